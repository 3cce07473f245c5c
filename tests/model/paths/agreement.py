"""The one comparison all paths must pass: the plain definition in float64, row by row, values and gradients.

    |recalled_t - reference_t| <= VALUES eps scale_t,      scale_t = sum_s a(t, s) (1 + |logit|) |v_s|

A weight e^x of a logit computed to eps |x| is off by that much, so the logit belongs to the scale.
Gradients are compared leaf by leaf, in units of the largest entry of the leaf, of the sizes of the logits and,
because they are sums over up to n positions with both signs, of sqrt(n).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memloci.model.paths.base import AbstractPath
from memloci.model.paths.choice import PATHS
from memloci.model.rotation import angles, rotate
from tests.model.cases import build

VALUES, GRADIENTS = 64.0, 64.0


def some(cases: list, every: int = 10) -> list:
    """Every tenth case with each change, all of them in `make test-all`: each is a compilation of seconds."""
    more = lambda case: pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
    return [more(case) if i % every else case for i, case in enumerate(cases)]


def sample(case: dict[str, Any], n: int, precision: str, seed: int = 0, scale: float = 1.0, **changes: Any):
    """(stacked heads of a layer, X, V): heads as in model/cases.py, values of both signs."""
    model = build(case, seed, precision=precision, **changes)
    rng = np.random.default_rng(seed + n)
    heads = model.layers[0].attention.heads
    D, H, d_v = model.architecture.dim, model.architecture.heads, model.architecture.value_dim
    X = jnp.asarray(scale * rng.uniform(-1, 1, (n, D)), precision)
    V = jnp.asarray(rng.uniform(-1, 1, (n, H, d_v)), precision)
    return heads, X, V


def reference(heads: Any, X: Any, V: Any, rows: Any):
    """(recalled, scale, scale of the slope p, largest logit) at `rows`: memory is len(rows) n."""

    def one(head, V):
        def at(t):
            n, past = X.shape[0], head.past
            z = t - jnp.arange(n)
            visible = (z >= 1) & (z % past.stride == 0)
            if past.window is not None:
                visible &= z <= past.window
            z = jnp.where(visible, z, past.stride)
            content, position = _logits(head, X, t, z)
            logits = content + position
            match head.normalisation.name:
                case "softmax":
                    top = jnp.max(logits, where=visible, initial=-jnp.inf)
                    top = jax.lax.stop_gradient(jnp.where(visible.any(), top, 0.0))
                    e = jnp.where(visible, jnp.exp(jnp.where(visible, logits - top, 0.0)), 0.0)
                    a = e / jnp.where(visible.any(), e.sum(), 1.0)
                case "infinite":
                    if past.window is None:
                        lags = past.stride * jnp.ones((), jnp.int32)
                        anchor = head.encoding.position(lags, X.dtype)
                        total = head.encoding.infinite_sum(past.stride)
                    else:
                        anchor, total = 0.0, jnp.exp(head.encoding.position(past.admitted(), X.dtype)).sum()
                    a = jnp.where(visible, jnp.exp(jnp.where(visible, logits - anchor, 0.0)), 0.0) / total
                case _:
                    a = jnp.where(visible, jnp.exp(jnp.where(visible, logits, 0.0)), 0.0)
            size = jnp.where(visible, jnp.abs(content) + jnp.abs(position), 0.0)
            phi = jnp.abs(head.encoding.phi(z, X.dtype)) if head.encoding.has_phi else jnp.zeros_like(a)
            scales = (a * (1 + size)) @ jnp.abs(V), (a * phi) @ jnp.abs(V)
            return a @ V, *map(jax.lax.stop_gradient, scales), size.max(initial=0.0)

        return jax.lax.map(at, jnp.asarray(rows))

    return eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 1), out_axes=(1, 1, 1, 0))(heads, V)


def _logits(head, X, t, z):
    encoding, score = head.encoding, head.score
    match score.name:
        case "dp":
            q, k = X[t] @ score.W_Q.T, X @ score.W_K.T
            if not encoding.rotates:
                return k @ q, encoding.position(z, X.dtype)
            theta = angles(encoding.turns, z, X.dtype)
            return jnp.sum(rotate(jnp.broadcast_to(q, k.shape), theta) * k, axis=1), jnp.zeros_like(
                z, X.dtype
            )
        case "dpf":
            return jnp.zeros_like(z, X.dtype), encoding.position(z, X.dtype)
        case "tmx":
            return jnp.broadcast_to(X[t] @ score.w, z.shape), encoding.position(z, X.dtype)
        case "tmx-mul":
            return (X[t] @ score.w) * encoding.phi(z, X.dtype), jnp.zeros_like(z, X.dtype)
    raise AssertionError(score.name)


def wide(tree: Any) -> Any:
    return jax.tree.map(lambda a: a.astype("float64") if eqx.is_inexact_array(a) else a, tree)


# Values and gradients come from one program, and both functions are compiled once for each kind and shape.


@eqx.filter_jit
def _own(path: type[AbstractPath], tree: Any, rows: Any, ybar: Any) -> Any:
    def summed(tree):
        found = path.recalled(*tree)
        return jnp.vdot(found[rows], ybar), found

    gradient: Any = eqx.filter_grad(summed, has_aux=True)
    return gradient(tree)


@eqx.filter_jit
def _plain(tree: Any, rows: Any, ybar: Any) -> Any:
    def summed(tree):
        found = reference(tree[0], tree[1], tree[2], rows)
        return jnp.vdot(found[0], ybar), found

    gradient: Any = eqx.filter_grad(summed, has_aux=True)
    return gradient(tree)


def assert_agrees(path: str, heads: Any, X: Any, V: Any, rows: list[int] | None = None) -> None:
    """The path's values at `rows` (all, if none are named), and the gradients of a sum over those rows."""
    n, eps = X.shape[0], float(jnp.finfo(X.dtype).eps)
    if not n:
        assert PATHS[path].recalled(heads, X, V).shape == V.shape
        return
    at = np.asarray(range(n) if rows is None else rows)
    ybar = jnp.asarray(np.random.default_rng(n).uniform(-1, 1, (len(at), *V.shape[1:])), X.dtype)
    tree: Any = (heads, X, V)
    own, found = _own(PATHS[path], tree, at, ybar)
    plain, (expected, scale, lagged, largest) = _plain(wide(tree), at, wide(ybar))
    assert found.shape == V.shape and found.dtype == V.dtype
    excess = np.abs(np.asarray(found, "float64")[at] - expected) / (eps * np.asarray(scale) + 1e-300)
    assert np.isfinite(found).all() and excess.max(initial=0.0) <= VALUES, excess.max()
    unit = GRADIENTS * eps * (1 + float(np.max(largest))) * len(at) ** 0.5
    # A gradient may be a sum that cancels. The slope's has one term per lag, as large as the lag.
    for (leaf, ours), theirs in zip(
        jax.tree_util.tree_leaves_with_path(own), jax.tree.leaves(plain), strict=True
    ):
        ours, theirs = np.asarray(ours, "float64"), np.asarray(theirs)
        assert np.isfinite(ours).all()
        term = lagged if jax.tree_util.keystr(leaf).endswith(".p") else scale
        floor = np.abs(theirs).max(initial=0.0) + float(np.max(term))
        assert np.abs(ours - theirs).max(initial=0.0) <= unit * floor, (
            np.abs(ours - theirs).max() / floor / eps
        )
