"""The recurrence of a lin head: a decaying sum over the past, in linear time.

    Y_t = sum_{j=1..t} e^{-p (j-1)} v_{t-j}            p >= 0:   Y_{t+1} = e^-p Y_t + v_t
    Y_t = sum_{s<t}   e^{-|p| s}    v_s                p < 0: the same weights, relative to the oldest one

Relative to the largest weight nothing overflows, whatever p is. `decayed` returns g_t Y_t: a softmax is
g_t = 1 / sum of those weights.

A recurrence over all n would lose digits twice. First, e^-p is rounded: after 1/p steps the weight is off by
eps/p. So S + expm1(-p) S is taken where p is small, whose error is eps p per step. Second, adding v to a sum of 1/p
such terms loses eps/p of it. So the past is cut into chunks: a sum from 0 inside each, and one over chunks, which
carries the rounding error of its additions along (`Fading`): no error then grows with the length, nor with 1/p
(certify/past_sums.py has the bound).

The gradient is the same recurrence backwards in time, and the slope's needs only one product more:

    vbar_s = sum_{t>s} e^{-p (t-s-1)} g_t ybar_t,      pbar = -e^-p sum_s <vbar_s, Y_s>     (p >= 0)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from memloci.core.arrays import PerHead
from memloci.model.paths.base import Values

CHUNK = 128  # tuned: a chunk of 8 heads of 16 stays in the fastest cache
SMALL = 0.5  # 1 + expm1(-p) has no cancellation below, and e^-p few roundings per unit of p above

Gains = Float[Array, "n H"]


@jax.custom_vjp
def decayed(V: Values, p: PerHead, g: Gains) -> Values:
    """g_t Y_t for every head; g must not be 0."""
    return _forward(V, p, g)


class Fading(NamedTuple):
    """e^-u taken apart, for a decaying sum that comes with its own rounding error, S + e:

        S' + e' = e^-u (S + e) + v        S' = fl(S + y),   y = expm1(-u) S + (v + e^-u e),   e' = S + y - S' exactly

    y is small where u is, so that its rounding is too. For fast u there is nothing to lose, and y = e^-u S + ... alone.
    """

    hold: Array  # 1 or 0
    decay: Array  # expm1(-u) or e^-u
    remaining: Array  # e^-u itself

    @classmethod
    def at(cls, u: Array) -> "Fading":
        small = u < SMALL
        left = jnp.exp(-u)
        return cls(small.astype(u.dtype), jnp.where(small, jnp.expm1(-u), left), left)


def faded(fading: Fading, S: Array, e: Array, v: Array) -> tuple[Array, Array]:
    """(S', e')."""
    old, y = fading.hold * S, fading.decay * S + (v + fading.remaining * e)
    return two_sum(old, y)


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """x + y, rounded, and what that misses: exact, because additions are not reordered."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


class _Rates(NamedTuple):
    """What a chunk of C steps needs, of shape (1, H d_v), or (C, H d_v) where it depends on the step.

    Every head's number is there d_v times: a step is then one long vector operation, which is fastest.
    """

    hold: Array  # S <- hold S + (decay S + v): 1 or 0, and expm1(-p) or e^-p
    decay: Array
    old: Array  # what is left of the sum before the chunk at its i-th step
    over: Fading  # ... and after the chunk
    new: Array  # the weight of the i-th step's value, relative to the chunk's first
    rise: Array  # -|p| for p < 0, else 0: chunks are weighed by e^{rise t0}
    fall: Array  # p for p > 0, else 0


def _rates(p: PerHead, C: int, d: int) -> _Rates:
    fall, rise = (jnp.repeat(side(p, 0.0), d)[None, :] for side in (jnp.maximum, jnp.minimum))
    i = jnp.arange(C, dtype=p.dtype)[:, None]
    step = Fading.at(fall)
    return _Rates(
        hold=step.hold,
        decay=step.decay,
        old=jnp.exp(-fall * i),
        over=Fading.at(fall * C),
        new=jnp.exp(rise * i),
        rise=rise,
        fall=fall,
    )


def _chunks(x: Array, C: int, fill: float = 0.0) -> Float[Array, "m C lanes"]:
    """(n, ...) -> (m, C, the rest in one axis), filled up."""
    m = -(-x.shape[0] // C)
    rows = x.reshape(x.shape[0], -1)
    filled = jnp.pad(rows, ((0, m * C - x.shape[0]), (0, 0)), constant_values=fill)
    return filled.reshape(m, C, rows.shape[1])


def _within(rates: _Rates, V: Array, reverse: bool = False) -> tuple[Array, Array]:
    """The recurrence from 0 over one chunk: (the sum after it, the sums before each step)."""
    hold, decay = rates.hold[0], rates.decay[0]
    step = lambda S, v: (hold * S + (decay * S + v), S)
    after, before = jax.lax.scan(step, jnp.zeros_like(V[0]), V, reverse=reverse)
    return after[None, :], before


def _forward(V: Values, p: PerHead, g: Gains) -> Values:
    n, H, d = V.shape
    C = min(CHUNK, n)
    rates = _rates(p, C, d)

    def chunk(carry, given):
        (S, e, t0), (V, g) = carry, given
        started = jnp.exp(rates.rise * t0)
        total, within = _within(rates, V * rates.new)
        out = (started * within + rates.old * S) * jnp.repeat(g, d, axis=1)
        return (*faded(rates.over, S, e, started * total), t0 + C), out

    none = jnp.zeros((1, H * d), V.dtype)
    _, out = jax.lax.scan(chunk, (none, none, jnp.zeros((), V.dtype)), (_chunks(V, C), _chunks(g, C)))
    return out.reshape(-1, H, d)[:n]


def _remember(V: Values, p: PerHead, g: Gains):
    out = _forward(V, p, g)
    return out, (V, p, g, out)


def _backward(residuals, bar: Values) -> tuple[Values, PerHead, Gains]:
    V, p, g, out = residuals
    n, H, d = V.shape
    C = min(CHUNK, n)
    rates = _rates(p, C, d)
    i = jnp.arange(C, dtype=V.dtype)[:, None]
    per_head = lambda x: x.reshape(-1, H, d).sum(axis=2)

    def chunk(carry, given):
        (S, t0), (V, g, out, bar) = carry, given
        gains = jnp.repeat(g, d, axis=1)
        Y = out / gains
        total, within = _within(rates, bar * gains, reverse=True)
        V_bar = (within + jnp.flip(rates.old, 0) * S) * (rates.new * jnp.exp(rates.rise * t0))
        slope = jnp.where(rates.rise < 0, (t0 + i) * V, -jnp.exp(-rates.fall) * Y)
        p_bar = (V_bar * slope).sum(axis=0, keepdims=True)
        return (rates.over.remaining * S + total, t0 - C), (V_bar, per_head(bar * Y), p_bar)

    m = -(-n // C)
    start = jnp.zeros((1, H * d), V.dtype), jnp.asarray((m - 1) * C, V.dtype)
    given = (_chunks(V, C), _chunks(g, C, fill=1.0), _chunks(out, C), _chunks(bar, C))
    _, (V_bar, g_bar, p_bar) = jax.lax.scan(chunk, start, given, reverse=True)
    return V_bar.reshape(-1, H, d)[:n], per_head(p_bar).sum(axis=0), g_bar.reshape(-1, H)[:n]


decayed.defvjp(_remember, _backward)
