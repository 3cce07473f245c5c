"""Kernels over lags that a few numbers of memory can follow, in linear time.

| encoding | kernel | state |
|---|---|---|
| lin | e^{-p j} | one number per value: decay.py |
| log | j^-p, p >= 0 | near lags, and exponentials with a proved error: near_far.py, exponentials.py |
| t5 | a table, then a constant | near lags, and a running sum |

A log head with p < 0 weighs the far past most; it takes the blocks.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from memloci.core.arrays import PerHead, Stream
from memloci.model.encodings import T5, Lin, Log
from memloci.model.paths import factors
from memloci.model.paths.base import AbstractPath, Values
from memloci.model.paths.blocks import Blocks
from memloci.model.paths.decay import Gains, decayed
from memloci.model.paths.exponentials import grid, weights
from memloci.model.paths.near_far import convolve

CHUNK = 64  # tuned: near lags of a log head
RUN = 64  # positions whose gains share an exponential
LONGEST_TABLE = 512  # lags of a t5 table that are still cheap to take one by one


class Recurrence(AbstractPath):
    name = "recurrence"
    growth = "n"

    serves = replace(
        factors.KERNELS,
        encodings=("lin", "log", "t5"),
        needs="weights that are a kernel over lags with a short recurrence, times a gate",
    )

    @classmethod
    def refusal(cls, architecture):
        if reason := super().refusal(architecture):
            return reason
        if architecture.window is not None:
            return "path 'recurrence' has no way to forget at the end of a window; use 'blocks'"
        if architecture.encoding == "t5" and architecture.max_distance > LONGEST_TABLE * architecture.stride:
            return (
                f"path 'recurrence' takes t5 lags up to max_distance one by one, at most {LONGEST_TABLE}; "
                "use 'blocks'"
            )
        return None

    @classmethod
    def recall(cls, heads, X: Stream, V: Values) -> Values:
        if X.shape[0] < 2:
            return jnp.zeros_like(V)
        match heads.encoding:
            case Lin(p) if p is not None:
                return _lin(heads, X, V, p)
            case Log(p) if p is not None:
                return jax.lax.cond((p >= 0).all(), _log, Blocks.recall, heads, X, V)
            case T5():
                return _t5(heads, X, V)
        raise AssertionError(f"encoding {heads.encoding.name!r} was to be refused")


def _lin(heads, X: Stream, V: Values, p: PerHead) -> Values:
    n, P = X.shape[0], p * heads.past.stride
    if heads.normalisation.name == "softmax":
        return decayed(V, P, gains(P, n))
    Y = decayed(V, P, jnp.ones((n, P.shape[0]), V.dtype))
    if heads.normalisation.name == "none":  # relative to the largest weight: the first lag's, or the t-th's
        t = jnp.arange(n, dtype=V.dtype)[:, None]
        Y = Y * jnp.exp(-jnp.minimum(P, 0.0)[None, :] * t)[:, :, None]
        anchor = -jnp.maximum(P, 0.0)
    else:
        anchor = -P
    return factors.finish(heads, X, Y, None, anchor)


def _log(heads, X: Stream, V: Values) -> Values:
    p, n = heads.encoding.p, X.shape[0]
    kernel = lambda lags: jnp.exp(-p[:, None] * jnp.log(jnp.arange(1, lags + 1, dtype=V.dtype))[None, :])
    rates = grid(str(V.dtype), CHUNK + 1, n)
    Y = convolve(V, kernel(2 * CHUNK), rates.rates, weights(rates, p))
    anchor = factors.positions(heads, np.array([1]), V.dtype)[:, 0]
    sums = heads.normalisation.name == "softmax"
    return factors.finish(heads, X, Y, kernel(n - 1) if sums else None, anchor)


def _t5(heads, X: Stream, V: Values) -> Values:
    constant = -(-heads.encoding.starts[-1] // heads.past.stride)  # the first lag of the last bucket
    C = max(CHUNK, constant)
    k, anchor = factors.kernel(heads, max(2 * C, X.shape[0] - 1), V.dtype)
    Y = convolve(V, k[:, : 2 * C], np.zeros(1), k[:, constant - 1 : constant])
    return factors.finish(heads, X, Y, k, anchor)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def gains(P: PerHead, n: int) -> Gains:
    """g_t = 1 / sum_{j=1..t} e^{-|P| (j-1)} = (1 - e^-|P|) / (1 - e^{-|P| t}) for t = 1, ..., n - 1; g_0 = 1.

    1 - e^{-a (r + i)} = (1 - e^{-a r}) + e^{-a r} (1 - e^{-a i}) cancels nothing, and takes few exponentials.
    """
    a = jnp.abs(P)[None, None, :]
    r = RUN * jnp.arange(-(-n // RUN), dtype=P.dtype)[:, None, None]
    i = jnp.arange(RUN, dtype=P.dtype)[None, :, None]
    sums = (-jnp.expm1(-a * r) - jnp.exp(-a * r) * jnp.expm1(-a * i)).reshape(-1, P.shape[0])[:n]
    t, one = jnp.arange(n, dtype=P.dtype)[:, None], -jnp.expm1(-a[0])
    flat = one < jnp.finfo(P.dtype).tiny
    g = jnp.where(flat, 1.0, one) / jnp.where(flat, jnp.maximum(t, 1.0), jnp.where(t == 0, 1.0, sums))
    return jnp.where(t == 0, 1.0, g)


def gain(P: Gains, t: Gains) -> Gains:
    """g_t at any t >= 1, one by one."""
    a = jnp.abs(P)
    flat = a * t < jnp.finfo(t.dtype).tiny
    return jnp.where(
        flat, 1 / t, jnp.expm1(-jnp.where(flat, 1.0, a)) / jnp.expm1(-jnp.where(flat, 1.0, a * t))
    )


@gains.defjvp
def _gains_jvp(n, primals, tangents):
    """d log g / d|P| = 1/(e^a - 1) - t/(e^{at} - 1) = b(a) - t b(a t), which cancels nothing."""
    (P,), (P_dot,) = primals, tangents
    g, a = gains(P, n), jnp.abs(P)[None, :]
    t = jnp.arange(n, dtype=P.dtype)[:, None]
    slope = jnp.where(P < 0, -1.0, 1.0)[None, :] * (_bernoulli(a) - t * _bernoulli(a * t))
    return g, g * jnp.where(t == 0, 0.0, slope) * P_dot[None, :]


def _bernoulli(x):
    """(x / (e^x - 1) - 1) / x = -1/2 + x/12 - x^3/720 + ..., for x >= 0."""
    small = x < 0.1
    s = jnp.where(small, x, 0.0)
    series = -0.5 + s * (1 / 12 + s**2 * (-1 / 720 + s**2 * (1 / 30240 - s**2 / 1209600)))
    y = jnp.where(small, 1.0, x)
    return jnp.where(small, series, (y / jnp.expm1(y) - 1) / y)
