"""What heads without dot products have in common: a kernel over lags, a normaliser, and a gate.

    a(t, s) = e^{gate_t} k(j) / N_t,      j = (t - s) / stride,      k(j) = e^{position(j) - anchor}

dpf has no gate, tmx has <w, x_t>. N_t is sum_{j<=t} k(j) for softmax, a constant otherwise. The anchor keeps k
from over- and underflow; it is a constant, so no gradient flows through it.
"""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from memloci.core.arrays import PerHead, Stream
from memloci.model.paths.base import Serves, Values

if TYPE_CHECKING:  # these stand above
    from memloci.model.attention import Head

Table = Float[Array, "H J"]
KERNELS = Serves(scores=("dpf", "tmx"), needs="weights that are a kernel over lags, times a gate")
RUN = 256  # terms that are added up in one product


def positions(heads: "Head", lags: np.ndarray, dtype: np.dtype) -> Table:
    """The position part at lags j (in strides) of every head."""
    z = jnp.asarray(lags * heads.past.stride, jnp.int32)
    position = lambda encoding: encoding.position(z, dtype)
    return eqx.filter_vmap(position, axis_size=len(heads.W_V))(heads.encoding)  # it may have no array


def kernel(heads: "Head", lags: int, dtype: np.dtype) -> tuple[Table, PerHead]:
    """k(1), ..., k(lags) relative to the largest of them, and the anchor."""
    position = positions(heads, np.arange(1, lags + 1), dtype)
    anchor = jax.lax.stop_gradient(position.max(axis=1))
    return jnp.exp(position - anchor[:, None]), anchor


def running_sums(k: Table) -> Table:
    """sum_{i<=j} k(i), as running sums of running sums."""
    H, J = k.shape
    runs = jnp.pad(k, ((0, 0), (0, -J % RUN))).reshape(H, -1, RUN)
    within = runs @ jnp.asarray(np.tri(RUN).T, k.dtype)  # one product adds up each run
    before = jnp.cumsum(within[:, :, -1], axis=1)[:, :-1]
    before = jnp.pad(before, ((0, 0), (1, 0)))
    return (within + before[:, :, None]).reshape(H, -1)[:, :J]


def finish(heads: "Head", X: Stream, Y: Values, k: Table | None, anchor: PerHead) -> Values:
    """Y / N_t e^{gate}, from Y_t = sum_j k(j) v_{t-j}; `k` is read by the normalisers that sum it."""
    match heads.normalisation.name:
        case "softmax":
            assert k is not None
            t = np.minimum(np.arange(X.shape[0]), k.shape[1])
            N = running_sums(k).T[np.maximum(t, 1) - 1]
            return Y / N[:, :, None]
        case "infinite" if heads.past.window is not None:
            assert k is not None
            scale = 1 / k.sum(axis=1)
        case "infinite":
            scale = jnp.exp(anchor - _unlimited_anchor(heads, X.dtype)) / _unlimited_sum(heads)
        case "none":
            return _gated(heads, X, Y, anchor)
        case other:
            raise AssertionError(f"normalisation {other!r} was to be refused")
    return _gated(heads, X, Y * scale[None, :, None], jnp.zeros_like(anchor))


def _gated(heads: "Head", X: Stream, Y: Values, anchor: PerHead) -> Values:
    if heads.score.name == "dpf":
        return Y * jnp.exp(anchor)[None, :, None]
    # In two steps: the gate may be as large as a weight is small.
    half = jnp.exp((X @ heads.score.w.T + anchor[None, :]) / 2)[:, :, None]  # pyright: ignore[reportAttributeAccessIssue]
    return Y * half * half


def _unlimited_anchor(heads: "Head", dtype: np.dtype) -> PerHead:
    return positions(heads, np.array([1]), dtype)[:, 0]


def _unlimited_sum(heads: "Head") -> PerHead:
    def one(encoding):
        p = encoding.slope()
        return jnp.where(p > encoding.least_slope, encoding.infinite_sum(heads.past.stride), jnp.nan)

    return eqx.filter_vmap(one)(heads.encoding)
