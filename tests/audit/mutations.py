"""Changes of weights: of some the outputs stay what they are but for rounding, others make a model wrong.

    X -> T X of the stream, undone wherever it is read: a slot's sign or scale, the order of slots, a rotation

A certificate must hold of every one of them, because it is made from the weights alone.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from memloci.model.transformer import Transformer

Draw = np.random.Generator


def moved(model: Transformer, T: np.ndarray, back: np.ndarray) -> Transformer:
    """The model whose stream is T times the one before; `back` is the inverse of T."""

    def writes(W: Any) -> np.ndarray:
        return np.asarray(T @ np.asarray(W, dtype=float)).astype(W.dtype)

    def reads(W: Any) -> np.ndarray:
        return np.asarray(np.asarray(W, dtype=float) @ back).astype(W.dtype)

    model = eqx.tree_at(
        lambda m: (m.W_E, m.b_E, m.W_U), model, (writes(model.W_E), writes(model.b_E), reads(model.W_U))
    )
    for l in range(len(model.layers)):
        block = model.layers[l]
        heads, score = block.attention.heads, block.attention.heads.score
        readers = [name for name in ("W_Q", "W_K", "w") if getattr(score, name, None) is not None]
        for name in readers:
            at = lambda m, name=name, l=l: getattr(m.layers[l].attention.heads.score, name)
            model = eqx.tree_at(at, model, reads(getattr(score, name)))
        at_heads = lambda m, l=l: (m.layers[l].attention.heads.W_V, m.layers[l].attention.heads.W_O)
        model = eqx.tree_at(at_heads, model, (reads(heads.W_V), writes(heads.W_O)))
        if block.ffn is not None:
            at_ffn = lambda m, l=l: (m.layers[l].ffn.B, m.layers[l].ffn.A)
            model = eqx.tree_at(at_ffn, model, (reads(block.ffn.B), writes(block.ffn.A)))
    return model


def _diagonal(model: Transformer, scale: np.ndarray) -> Transformer:
    return moved(model, np.diag(scale), np.diag(1 / scale))


def flip_a_slot(model: Transformer, rng: Draw) -> Transformer:
    scale = np.ones(model.architecture.dim)
    scale[rng.integers(len(scale))] = -1
    return _diagonal(model, scale)


def flip_slots(model: Transformer, rng: Draw) -> Transformer:
    return _diagonal(model, rng.choice([-1.0, 1.0], model.architecture.dim))


def rescale_slots(model: Transformer, rng: Draw) -> Transformer:
    exact = 2.0 ** rng.integers(-3, 4, model.architecture.dim)
    return _diagonal(model, exact if rng.random() < 0.5 else rng.uniform(0.3, 3, model.architecture.dim))


def permute_slots(model: Transformer, rng: Draw) -> Transformer:
    T = np.eye(model.architecture.dim)[rng.permutation(model.architecture.dim)]
    return moved(model, T, T.T)


def rotate_a_plane(model: Transformer, rng: Draw) -> Transformer:
    D = model.architecture.dim
    if D < 2:
        return flip_a_slot(model, rng)
    i, j = rng.choice(D, 2, replace=False)
    angle, T = rng.uniform(0, 2 * np.pi), np.eye(D)
    T[[i, i, j, j], [i, j, i, j]] = [np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)]
    return moved(model, T, T.T)


def rotate_the_stream(model: Transformer, rng: Draw) -> Transformer:
    T = np.linalg.qr(rng.normal(size=(model.architecture.dim,) * 2))[0]
    return moved(model, T, T.T)


def permute_heads(model: Transformer, rng: Draw) -> Transformer:
    for l, block in enumerate(model.layers):
        order = rng.permutation(len(block.attention.heads.W_O))
        heads = jax.tree.map(
            lambda leaf, order=order: np.asarray(leaf)[order] if eqx.is_array(leaf) else leaf,
            block.attention.heads,
        )
        model = eqx.tree_at(lambda m, l=l: m.layers[l].attention.heads, model, heads)
    return model


def rescale_values(model: Transformer, rng: Draw) -> Transformer:
    """Of a head: values times s, what they write divided by it."""
    l = int(rng.integers(len(model.layers)))
    heads = model.layers[l].attention.heads
    s = rng.uniform(0.3, 3, (len(heads.W_O), 1, 1)) * rng.choice([-1, 1], (len(heads.W_O), 1, 1))
    both = (
        (np.asarray(heads.W_V) * s).astype(heads.W_V.dtype),
        (np.asarray(heads.W_O) / s).astype(heads.W_O.dtype),
    )
    return eqx.tree_at(
        lambda m: (m.layers[l].attention.heads.W_V, m.layers[l].attention.heads.W_O), model, both
    )


def rescale_neurons(model: Transformer, rng: Draw) -> Transformer:
    layers = [l for l, block in enumerate(model.layers) if block.ffn is not None and len(block.ffn.c)]
    if not layers:
        return rescale_values(model, rng)
    l = int(rng.choice(layers))
    ffn = model.layers[l].ffn
    assert ffn is not None
    s = rng.uniform(0.3, 3, len(ffn.c))
    new = (np.asarray(ffn.B) * s[:, None], np.asarray(ffn.c) * s, np.asarray(ffn.A) / s)
    new = tuple(array.astype(ffn.c.dtype) for array in new)
    return eqx.tree_at(lambda m: (m.layers[l].ffn.B, m.layers[l].ffn.c, m.layers[l].ffn.A), model, new)


def _floats(model: Transformer) -> list[int]:
    leaves = jax.tree.leaves(model)
    return [k for k, leaf in enumerate(leaves) if eqx.is_inexact_array(leaf) and leaf.size]


def _with_leaf(model: Transformer, k: int, array: np.ndarray) -> Transformer:
    leaves, shape = jax.tree.flatten(model)
    leaves[k] = array.astype(leaves[k].dtype)
    return jax.tree.unflatten(shape, leaves)


def _small(model: Transformer, rng: Draw) -> float:
    """From a few units of roundoff to a tenth, evenly on a logarithmic scale."""
    u = float(np.finfo(np.asarray(model.W_E).dtype).eps)
    return float(np.exp(rng.uniform(np.log(u), np.log(0.1))))


def perturb_weights(model: Transformer, rng: Draw) -> Transformer:
    """All weights that are not 0 by a small factor each."""
    size = _small(model, rng)
    for k in _floats(model):
        leaf = np.asarray(jax.tree.leaves(model)[k], dtype=float)
        model = _with_leaf(model, k, leaf * (1 + size * rng.normal(size=leaf.shape)))
    return model


def change_a_weight(model: Transformer, rng: Draw) -> Transformer:
    k = int(rng.choice(_floats(model)))
    leaf = np.array(jax.tree.leaves(model)[k], dtype=float)
    where = tuple(int(rng.integers(n)) for n in leaf.shape)
    old = leaf[where]
    leaf[where] = [0.0, -old, 2 * old, old + 10.0 ** rng.uniform(-6, 0)][int(rng.integers(4))]
    return _with_leaf(model, k, leaf)


def nudge_a_weight(model: Transformer, rng: Draw) -> Transformer:
    """One weight that is not 0, by so little that a proof may take it for what it was."""
    k = int(rng.choice(_floats(model)))
    leaf = np.array(jax.tree.leaves(model)[k], dtype=float)
    there = np.argwhere(leaf)
    if not len(there):
        return perturb_weights(model, rng)
    where = tuple(int(i) for i in there[rng.integers(len(there))])
    leaf[where] *= 1 + float(rng.choice([-1, 1])) * _small(model, rng)
    return _with_leaf(model, k, leaf)


def soften_a_layer(model: Transformer, rng: Draw) -> Transformer:
    """Scores divided by a power of 2: sharp heads get duller, and matches hold for shorter sequences."""
    layers = [l for l, block in enumerate(model.layers) if hasattr(block.attention.heads.score, "W_Q")]
    if not layers:
        return move_slopes(model, rng)
    l = int(rng.choice(layers))
    W_Q = np.asarray(model.layers[l].attention.heads.score.W_Q, dtype=float)  # type: ignore[attr-defined]
    W_Q = (W_Q * 2.0 ** -float(rng.integers(1, 22))).astype(model.W_E.dtype)
    return eqx.tree_at(lambda m: m.layers[l].attention.heads.score.W_Q, model, W_Q)


def move_slopes(model: Transformer, rng: Draw) -> Transformer:
    """Slopes of lin and log heads, of one layer, by a factor each; now and then to the other sign, or to 0."""
    with_slopes = [
        l
        for l, block in enumerate(model.layers)
        if getattr(block.attention.heads.encoding, "p", None) is not None
    ]
    if not with_slopes:
        return perturb_weights(model, rng)
    l = int(rng.choice(with_slopes))
    p = np.asarray(model.layers[l].attention.heads.encoding.p, dtype=float)  # type: ignore[attr-defined]
    factor = 1 + 10.0 ** rng.uniform(-8, 0) * rng.normal(size=p.shape)
    if rng.random() < 0.3:
        factor = rng.choice([-1.0, 0.0, 1.0, 0.25], p.shape)
    return eqx.tree_at(
        lambda m: m.layers[l].attention.heads.encoding.p, model, (p * factor).astype(model.W_E.dtype)
    )


EQUAL: dict[str, Callable[[Transformer, Draw], Transformer]] = {
    "flip a slot": flip_a_slot,
    "flip slots": flip_slots,
    "rescale slots": rescale_slots,
    "permute slots": permute_slots,
    "rotate a plane": rotate_a_plane,
    "rotate the stream": rotate_the_stream,
    "permute heads": permute_heads,
    "rescale values": rescale_values,
    "rescale neurons": rescale_neurons,
}
WRONG: dict[str, Callable[[Transformer, Draw], Transformer]] = {
    "perturb weights": perturb_weights,
    "change a weight": change_a_weight,
    "nudge a weight": nudge_a_weight,
    "soften a layer": soften_a_layer,
    "move slopes": move_slopes,
}
MUTATIONS = EQUAL | WRONG


def mutated(model: Transformer, name: str, rng: Draw) -> Transformer:
    """The model after one of the MUTATIONS, in arrays of JAX again."""
    arrays = lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf
    return jax.tree.map(arrays, MUTATIONS[name](model, rng))
