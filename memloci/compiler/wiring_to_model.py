"""A wiring to weights: names become coordinates, nothing else happens here."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from memloci.compiler.design_to_model import blank
from memloci.model.architecture import Architecture
from memloci.model.transformer import Block, Transformer
from memloci.planner.design import output_slot
from memloci.planner.wiring import ONE, Reader, Stage, Wiring


def wiring_to_model(wiring: Wiring) -> Transformer:
    """The Transformer of a wiring."""
    a = wiring.architecture()
    model = blank(a, len(wiring.channels), len(wiring.readout.b))
    dtype = np.dtype(a.precision)
    at = {slot: j for j, slot in enumerate(wiring.slots)}
    cast = lambda array: jnp.asarray(np.asarray(array, dtype=float).astype(dtype))

    W_E, b_E = np.zeros((a.dim, len(wiring.channels))), np.zeros(a.dim)
    for c, channel in enumerate(wiring.channels):
        W_E[at[channel], c] = 1
    for slot, (channel, origin) in wiring.origins.items():
        W_E[at[slot], wiring.channels.index(channel)], b_E[at[slot]] = 1, -origin
    b_E[at[ONE]] = 1
    W_U = np.zeros((len(wiring.readout.b), a.dim))
    for i, name in enumerate(wiring.readout.variables):
        W_U[:, at[wiring.holds[name]]] += wiring.readout.W[:, i]
    for o in wiring.outputs_with_neurons:
        W_U[o, at[output_slot(o)]] = 1
    model = eqx.tree_at(
        lambda m: (m.W_E, m.b_E, m.W_U, m.b_U), model, tuple(map(cast, (W_E, b_E, W_U, wiring.readout.b)))
    )
    blocks = []  # one by one: replacing leaves of a model of 256 layers takes long
    for l, stage in enumerate(wiring.stages):
        block = _fill_heads(model.layers[l], a, stage, at, cast)
        if a.width:
            last = l == len(wiring.stages) - 1
            ffn = lambda b: (b.ffn.B, b.ffn.c, b.ffn.A)
            block = eqx.tree_at(ffn, block, tuple(map(cast, _neurons(wiring, stage, at, a.width, last))))
        blocks.append(block)
    return eqx.tree_at(lambda m: m.layers, model, tuple(blocks))


def _neurons(
    wiring: Wiring, stage: Stage, at: Mapping[str, int], width: int, last: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    B, c, A = np.zeros((width, len(at))), np.zeros(width), np.zeros((len(at), width))
    m = 0
    if (own := stage.neurons) is not None:
        m = own.width
        B[:m, [at[name] for name in own.inputs]] = own.B
        A[[at[name] for name in own.outputs], :m] = own.A
        c[:m] = own.c
    if last and wiring.readout.width:
        ridge, end = wiring.readout, m + wiring.readout.width
        for i, name in enumerate(ridge.variables):
            B[m:end, at[wiring.holds[name]]] += ridge.B[:, i]
        c[m:end] = ridge.c
        for o in wiring.outputs_with_neurons:
            A[at[output_slot(o)], m:end] = ridge.A[o]
    return B, c, A


def _fill_heads(block: Block, a: Architecture, stage: Stage, at: Mapping[str, int], cast) -> Block:
    H, D, d_v = a.heads, a.dim, a.value_dim
    W_V, W_O = np.zeros((H, d_v, D)), np.zeros((H, D, d_v))
    for h, head in enumerate(stage.heads):
        for v, slot in enumerate(head.values):
            W_V[h, v, at[slot]] = 1
        for to, gains in head.writes.items():
            for slot, gain in gains.items():
                W_O[h, at[to], head.values.index(slot)] = gain
    heads = lambda b: b.attention.heads
    block = eqx.tree_at(lambda b: (heads(b).W_V, heads(b).W_O), block, (cast(W_V), cast(W_O)))
    # A layer with fewer heads than the widest repeats its last head with nothing to write.
    spare = stage.heads[-1] if stage.heads else None
    all_heads = [*stage.heads, *[spare] * (H - len(stage.heads))]
    return _fill_scores(block, a, all_heads, at, cast)


def _fill_scores(
    block: Block, a: Architecture, readers: list[Reader | None], at: Mapping[str, int], cast
) -> Block:
    heads = lambda b: b.attention.heads
    if a.attention == "dp":
        W_Q, W_K = (np.zeros((len(readers), a.key_dim, a.dim)) for _ in range(2))
        for h, reader in enumerate(readers):
            for W, rows in [(W_Q, reader.query), (W_K, reader.key)] if reader else []:
                for slot, vector in rows.items():
                    W[h, :, at[slot]] += vector
        block = eqx.tree_at(lambda b: (heads(b).score.W_Q, heads(b).score.W_K), block, (cast(W_Q), cast(W_K)))
    if a.attention == "tmx":
        w = np.zeros((len(readers), a.dim))
        for h, reader in enumerate(readers):
            for slot, weight in reader.w.items() if reader else []:
                w[h, at[slot]] = weight
        block = eqx.tree_at(lambda b: heads(b).score.w, block, cast(w))
    if a.encoding in ("lin", "log"):
        p = [reader.p if reader and reader.p is not None else 2.0 for reader in readers]
        block = eqx.tree_at(lambda b: heads(b).encoding.p, block, cast(p))
    if a.encoding == "rope":
        turns = np.zeros((len(readers), a.key_dim // 2), np.uint32)
        for h, reader in enumerate(readers):
            if reader and reader.turns is not None:
                turns[h] = reader.turns
        block = eqx.tree_at(lambda b: heads(b).encoding.turns, block, jnp.asarray(turns))
    return block
