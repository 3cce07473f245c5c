"""The Hurwitz zeta function, by Euler-Maclaurin summation.

    zeta(p, a) = sum_{j>=0} (a + j)^-p = sum_{j<N} (a + j)^-p + u^(1-p)/(p-1) + u^-p/2
                 + sum_{i=1..R} B_2i/(2i)! p (p+1) ... (p+2i-2) u^(-p-2i+1) + remainder,   u = a + N

The normaliser of a log head over an infinite past is zeta(p) = zeta(p, 1). JAX has a zeta function,
but no derivative of it in p; this one is made of exponentials and logarithms, so it has all of them, and what it rounds
is known (certify/rounding.py, `zeta_error`): exp(-p log x) rather than x ** -p, of which nothing is assumed.
Assumed: p > 1 and a >= 1. Tuned: N and R; for p <= 60 the remainder is far below float64's rounding,
because its coefficients grow only while u^-p is already negligible. Proved: beyond p = STEEP u all of the tail
is below (1 + 16/a)^-p <= e^(-16 STEEP) of the first term, so its coefficients may stop growing there; they
would overflow, and u^-p = 0 would not help.
"""

from fractions import Fraction
from math import factorial

import jax.numpy as jnp

from memloci.core.arrays import Scalar

N = 16
STEEP = 32.0
BERNOULLI = [(1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510)]
COEFFICIENTS = [float(Fraction(*B) / factorial(2 * i)) for i, B in enumerate(BERNOULLI, start=1)]


def zeta(p: Scalar) -> Scalar:
    """Riemann's zeta(p) = sum_{z>=1} z^-p for p > 1."""
    return hurwitz(p, jnp.ones_like(p))


def hurwitz(p: Scalar, a: Scalar) -> Scalar:
    """zeta(p, a) = sum_{j>=0} (a + j)^-p for p > 1, a >= 1; inside in float32 at least, for float16 overflows."""
    if jnp.finfo(p.dtype).bits < 32:
        return hurwitz(p.astype(jnp.float32), a.astype(jnp.float32)).astype(p.dtype)
    u = a + N
    s = jnp.minimum(p, STEEP * u)
    # Nested, so that no compiler can multiply p (p+1) ... (p+14) before it divides: in float32 that overflows.
    corrections = jnp.zeros_like(p)
    for i in reversed(range(1, len(COEFFICIENTS) + 1)):
        step = s / u if i == 1 else ((s + (2 * i - 3)) / u) * ((s + (2 * i - 2)) / u)
        corrections = step * (COEFFICIENTS[i - 1] + corrections)
    power = lambda x: jnp.exp(-p * jnp.log(x))
    total = (u / (p - 1) + 0.5 + corrections) * power(u)
    for j in reversed(range(N)):  # the smallest terms first
        total = total + power(a + j)
    return total
