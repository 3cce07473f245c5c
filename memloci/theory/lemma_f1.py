"""Lemma F.1 with its constant, and the heads of its proof: exponents 0.01 (k + 1), one after the other.

    x = e^{-gamma t} (lin), t^{-gamma} (log),  gamma = 0.01:     sum_k a_k x^{k+1}  =  x P(x),  deg P = H - 1

Theorem. For every n < H there are coefficients with

    sum_{t>=1} |kappa(t) - 1{t = T}|  <=  S (pi / 4)^n 4^{n-1} (n-1)! / (w^n x_T H (H-1) ... (H-n+1)),

    lin   x_T = e^{-gamma T},     S = sum_t e^{-gamma t} = 1 / (e^gamma - 1),       w = e^{-gamma T} (1 - e^-gamma)
    log   x_T = T^{-1-gamma},     S = sum_t t^{-1-gamma} = zeta(1 + gamma),         w = T^{-gamma} - (T+1)^{-gamma}

which is C(n) H^-n e^{0.01 (n+1) T} for lin and C(n) H^-n T^{1.01 (n+1)} for log, up to (1 + 1/T)^{1.01 n}. Slopes of log heads
exceed 1, so theirs are 1 + 0.01 (k + 1), and kappa(t) = t^{-1} x P(x).

Proof. w is the least distance of x at T from x at any other lag. Let B be an even bump on [-1, 1] with B(0) = 1 that vanishes
at the ends with n - 1 derivatives; psi(x) = B((x - x at T) / w) / x_T is what P must be near. The least |B^(n)| of such a
bump is 4^{n-1} (n-1)!: on one half B^(n) has mean 1 / (n-1)! against u^{n-1} and 0 against lower powers, and the least L1
distance of u^{n-1} from these on [0, 1] is 4^{1-n} (Chebyshev polynomials of the second kind). By Jackson's theorem with
the constant of Favard, Akhiezer and Krein some P of degree H - 1 is within (pi / 2)^n 2^-n |psi^(n)| / (H ... (H-n+1)) of psi on
[0, 1], the 2^-n for an interval of length 1. At lag t the error is at most x (lin) or t^{-1} x (log) times that; the sum over t is S.

The paper does not give C(n). Its heads are shared out among the memories: each has floor(H / M) of them.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from flint import arb, ctx

from memloci.approx.kernels.kernel_sums import EXACT, KernelSum, fit, kernel_sum
from memloci.approx.kernels.rpe import RpeName, to_arb
from memloci.approx.kernels.targets import AbstractTarget, SingleLag
from memloci.core.balls import above
from memloci.core.errors import BadInput
from memloci.core.proved import Proved
from memloci.routes.request import ROUNDING

GAMMA = Fraction(1, 100)
HIGHEST = 64  # tuned: the powers n that are tried
MOST_HEADS = 1 << 40
FREE_MASS = 1e60  # tuned: what stands for coefficients of any size
MOST_FITTED = 64  # tuned: heads of the proof that are fitted; a program takes seconds


def exponents(rpe: RpeName, heads: int, gamma: Fraction = GAMMA) -> list[float]:
    """The slopes of the proof's heads."""
    first = Fraction(1 if rpe == "log" else 0)
    return [float(first + gamma * (k + 1)) for k in range(heads)]


def lemma_bound(rpe: RpeName, lag: int, heads: int, gamma: Fraction = GAMMA) -> Proved:
    """The l1 error that the theorem allows that many heads for one lag, at the best n; infinite where it gives none."""
    powers = range(1, min(HIGHEST, heads - 1) + 1)
    with ctx.workprec(256):
        return Proved(min((above(_at(rpe, lag, heads, n, to_arb(gamma))) for n in powers), default=math.inf))


def _at(rpe: RpeName, lag: int, heads: int, n: int, gamma: arb) -> arb:
    T = arb(lag)
    if rpe == "lin":
        x_T, S = (-gamma * T).exp(), 1 / gamma.expm1()
        w = x_T * -(-gamma).expm1()
    else:
        x_T, S = (-(1 + gamma) * T.log()).exp(), (1 + gamma).zeta()
        w = (-gamma * T.log()).exp() - (-gamma * (T + 1).log()).exp()
    bump = arb(4 ** (n - 1) * math.factorial(n - 1))
    falling = arb(math.prod(range(heads - n + 1, heads + 1)))
    return S * (arb.pi() / 4) ** n * bump / (w**n * x_T * falling)


@lru_cache(maxsize=256)
def heads_enough(rpe: RpeName, lag: int, error: float) -> int | None:
    """The fewest heads for which the theorem promises this l1 error; None beyond MOST_HEADS."""
    if not error > 0:
        raise BadInput(f"an l1 error of {error}: give one above 0")
    low, high = 1, 2
    while lemma_bound(rpe, lag, high) > error:
        low, high = high, 2 * high
        if high > MOST_HEADS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if lemma_bound(rpe, lag, middle) > error else (low, middle)
    return high


def lemma_heads(targets: Sequence[AbstractTarget], heads: int, precision: str) -> KernelSum:
    """The proof's lin heads, shared out among the targets, with the best coefficients found for a precision, their error
    proved; `precision` may be "exact", where mass costs nothing. Fits of its log heads take minutes, so there are none."""
    targets = tuple(targets)
    if not targets or not all(isinstance(target, SingleLag) for target in targets):
        raise BadInput("Lemma F.1 is about single lags")
    each = heads // len(targets)
    if each < 1:
        raise BadInput(f"{heads} heads are fewer than the {len(targets)} memories that share them")
    if each > MOST_FITTED:
        raise BadInput(f"{each} heads per memory take long to fit; up to {MOST_FITTED} are")
    return _fitted(targets, each, precision)


@lru_cache(maxsize=64)
def _fitted(targets: tuple[AbstractTarget, ...], heads: int, precision: str) -> KernelSum:
    """Memories with the same exponents share their heads, which computes the same function."""
    slopes = exponents("lin", heads)
    if precision == EXACT:
        # Least squares serves where mass is free, but is not the best in l1: the fit of float64 may be better.
        free = fit("lin", targets, heads, precision=EXACT, mass=FREE_MASS, exponents=slopes)
        fitted = min([free, _fitted(targets, heads, "float64")], key=lambda each: each.error)
    else:
        fitted = fit("lin", targets, heads, precision=precision, rounding=ROUNDING, exponents=slopes)
    if fitted.error < 1:
        return fitted
    rows = zip(fitted.coefficients, fitted.errors, strict=True)
    helpful = [row if E < 1 else [0.0] * heads for row, (_, E) in rows]  # no heads at all err by 1
    return kernel_sum("lin", fitted.exponents, helpful, targets, precision)
