"""A model in another basis of its residual stream: X' = Q X for an orthogonal Q, which changes no output.

    W_E, b_E, W_O, A  ->  Q W        W_V, W_Q, W_K, w, B, W_U  ->  W Q^T

Slots, which were coordinates, become directions: slot j is column j of Q. A signed permutation only renames and flips, so
its weights are the same numbers; of other rotations the products are rounded to the model's precision, and what is
proved of the model must be proved again.
"""

from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from memloci.model.store import named_leaves
from memloci.model.transformer import Transformer

READ = ("W_V", "W_Q", "W_K", "w", "B", "W_U")  # their last axis is the stream
WRITTEN = ("W_E", "b_E", "A")  # their first axis is
KEPT = ("p", "table", "turns", "q", "k", "c", "b_U")  # nothing of them is


def rotated(model: Transformer, Q: np.ndarray) -> Transformer:
    """The model whose stream is Q X; norms and position vectors do not turn with it."""
    leaves = [_turned(name.rpartition(".")[2], leaf, Q) for name, leaf in named_leaves(model)]
    return jax.tree.unflatten(jax.tree.structure(model), leaves)


def _turned(name: str, leaf: Any, Q: np.ndarray) -> Any:
    wide = np.asarray(leaf, dtype=float)
    if name in READ:
        turned = wide @ Q.T
    elif name in WRITTEN:
        turned = Q @ wide
    elif name == "W_O":
        turned = Q @ wide  # (H, D, d_v)
    elif name in KEPT:
        return leaf
    else:
        raise ValueError(f"{name} does not turn with the stream")
    return jnp.asarray(turned.astype(leaf.dtype))


def signed_permutation(D: int, seed: int) -> np.ndarray:
    """Every coordinate somewhere else, half of them negated."""
    rng = np.random.default_rng(seed)
    return np.eye(D)[rng.permutation(D)] * rng.choice([-1.0, 1.0], size=(D, 1))


def rotation(D: int, seed: int, blocks: Sequence[Collection[int]] | None = None) -> np.ndarray:
    """A rotation drawn uniformly, of all of the stream or of each block of coordinates by itself."""
    rng = np.random.default_rng(seed)
    Q = np.eye(D)
    for block in [range(D)] if blocks is None else blocks:
        coordinates = sorted(block)
        if coordinates:
            factor, triangle = np.linalg.qr(rng.normal(size=(len(coordinates), len(coordinates))))
            Q[np.ix_(coordinates, coordinates)] = factor * np.sign(np.diag(triangle))
    return Q
