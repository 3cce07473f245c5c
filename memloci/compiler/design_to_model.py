"""A design to weights: every number a formula, nothing trained.

W_E   one 1 per channel                       the input fills the first slots
W_V   one 1 per source slot                   a head reads the slots that its layer moves
W_O   alpha_h of each move                    and writes them, weighted, to the destinations
B, c, A, W_U, b_U   the ridge sum of f        the last FFN and the readout
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer, require_precision
from memloci.planner.design import Bucket, Decay, Design, Layer, Table, Turn, output_slot


def design_to_model(design: Design) -> Transformer:
    """The Transformer of a design."""
    architecture = design.architecture()
    model = blank(architecture, len(design.channels), len(design.readout.b))
    dtype = np.dtype(architecture.precision)
    at = {slot: j for j, slot in enumerate(design.slots)}
    D, d = len(at), len(design.channels)

    W_E = np.zeros((D, d), dtype)
    for c, channel in enumerate(design.channels):
        W_E[at[channel], c] = 1
    model = eqx.tree_at(lambda m: (m.W_E, m.b_E), model, (jnp.asarray(W_E), jnp.zeros(D, dtype)))
    for l, layer in enumerate(design.layers):
        model = _fill_attention(model, l, layer, at, dtype)
    return _fill_readout(model, design, at, dtype)


def blank(architecture: Architecture, channels: int, outputs: int) -> Transformer:
    """A model of zeros; drawing random numbers only to overwrite them would take seconds to compile."""
    require_precision(architecture.precision)
    shapes = eqx.filter_eval_shape(lambda: Transformer(architecture, channels, outputs, key=jr.key(0)))
    return jax.tree.map(lambda leaf: jnp.asarray(np.zeros(leaf.shape, leaf.dtype)), shapes)


def _fill_attention(
    model: Transformer, l: int, layer: Layer, at: dict[str, int], dtype: np.dtype
) -> Transformer:
    a = model.architecture
    H, D, d_v = a.heads, a.dim, a.value_dim
    W_V, W_O = np.zeros((H, d_v, D), dtype), np.zeros((H, D, d_v), dtype)
    for v, source in enumerate(layer.sources):
        W_V[: len(layer.heads), v, at[source]] = 1
    for move in layer.moves:
        v = layer.sources.index(move.source)
        for h, alpha in enumerate(move.alpha):
            W_O[h, at[move.destination], v] += alpha
    heads = lambda m: m.layers[l].attention.heads
    model = eqx.tree_at(lambda m: (heads(m).W_V, heads(m).W_O), model, (jnp.asarray(W_V), jnp.asarray(W_O)))
    # A layer with fewer heads than the widest repeats its last kernel with nothing to write.
    kernels = [*layer.heads, *[layer.heads[-1]] * (H - len(layer.heads))]
    return _fill_kernels(model, l, kernels, dtype)


def _fill_kernels(model: Transformer, l: int, kernels: list, dtype: np.dtype) -> Transformer:
    encoding = lambda m: m.layers[l].attention.heads.encoding
    match kernels[0]:
        case Decay():
            p = jnp.asarray(np.array([kernel.p for kernel in kernels], dtype))
            return eqx.tree_at(lambda m: encoding(m).p, model, p)
        case Turn():
            turns, q, k = (
                jnp.stack(parts) for parts in zip(*(_turn(x, dtype) for x in kernels), strict=True)
            )
            return eqx.tree_at(
                lambda m: (encoding(m).turns, encoding(m).q, encoding(m).k), model, (turns, q, k)
            )
        case Bucket():
            tables = jnp.stack([_bucket(x, model, dtype) for x in kernels])
            return eqx.tree_at(lambda m: encoding(m).table, model, tables)
        case Table():
            tables = jnp.stack([_table(x, model, dtype) for x in kernels])
            return eqx.tree_at(lambda m: encoding(m).table, model, tables)
        case other:
            raise TypeError(f"no heads are built from {other!r}")


def _turn(kernel: Turn, dtype: np.dtype) -> tuple[jnp.ndarray, jnp.ndarray, jnp.ndarray]:
    """omega_j = pi 2^-j, exactly 2^(31-j) in units of 2^-32 turns; <R_t q, R_s k> = c sum_j cos(omega_j (z - lag))."""
    j = np.arange(kernel.frequencies)
    turns = (1 << (31 - j)).astype(np.uint32)
    # Reduced in integers first, so that a lag of a million loses nothing.
    reduced = (kernel.lag * (1 << (31 - j)) % 2**32).astype(float) / 2**31
    q = np.concatenate([np.full(len(j), kernel.c), np.zeros(len(j))])
    k = np.concatenate([np.cos(np.pi * reduced), np.sin(np.pi * reduced)])
    return jnp.asarray(turns), jnp.asarray(q.astype(dtype)), jnp.asarray(k.astype(dtype))


def _bucket(kernel: Bucket, model: Transformer, dtype: np.dtype) -> jnp.ndarray:
    table = np.full(model.architecture.buckets, -kernel.c, dtype)
    table[kernel.lag - 1] = 0  # the first half of the buckets are the lags 1, 2, ... themselves
    return jnp.asarray(table)


def _table(kernel: Table, model: Transformer, dtype: np.dtype) -> jnp.ndarray:
    table = np.full(model.architecture.buckets, min(kernel.logits), dtype)  # what lies beyond is never seen
    table[: len(kernel.logits)] = kernel.logits
    return jnp.asarray(table)


def _fill_readout(model: Transformer, design: Design, at: dict[str, int], dtype: np.dtype) -> Transformer:
    a, ridge = model.architecture, design.readout
    W_U, b_U = np.zeros((len(ridge.b), a.dim)), np.asarray(ridge.b)
    B, A = np.zeros((a.width, a.dim)), np.zeros((a.dim, a.width))
    for i, name in enumerate(ridge.variables):
        W_U[:, at[design.holds[name]]] += ridge.W[:, i]
        B[:, at[design.holds[name]]] += ridge.B[:, i]
    for o in design.outputs_with_neurons:
        A[at[output_slot(o)]] = ridge.A[o]
        W_U[o, at[output_slot(o)]] = 1
    cast = lambda array: jnp.asarray(np.asarray(array).astype(dtype))
    model = eqx.tree_at(lambda x: (x.W_U, x.b_U), model, (cast(W_U), cast(b_U)))
    if a.width:
        for l in range(a.layers):
            on = float(l == a.layers - 1)  # earlier layers only move
            ffn = lambda x, l=l: (x.layers[l].ffn.B, x.layers[l].ffn.c, x.layers[l].ffn.A)
            model = eqx.tree_at(ffn, model, (cast(on * B), cast(on * ridge.c), cast(on * A)))
    return model
