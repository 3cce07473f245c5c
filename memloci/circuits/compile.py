"""A circuit to weights: names become coordinates and every number is a formula; nothing is trained.

W_E, b_E            one 1 per channel, and the constant 1       the input fills the first slots
W_V, W_O            one 1 per slot read, gains where written    heads
W_Q, W_K, w, p, ... the rows and slopes of the circuit          what heads ask, and see of the past
B, c, A             the layer's neurons; in the last, also the ridge sum of f
W_U, b_U            what is linear in f
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.circuits.circuit import (
    ONE,
    Circuit,
    DecayKernel,
    Head,
    Layer,
    PeakKernel,
    TableKernel,
    Turns,
    output_slot,
)
from memloci.model.architecture import Architecture
from memloci.model.store import named_leaves
from memloci.model.transformer import Transformer, require_precision

At = Mapping[str, int]
SPARE = 2.0  # the slope of heads that a layer without readers has; they write nothing


def compile_circuit(circuit: Circuit) -> Transformer:
    """The Transformer of a circuit."""
    architecture, at = circuit.architecture(), {slot: j for j, slot in enumerate(circuit.slots)}
    weights = _embedding(circuit, at) | _readout(circuit, at)
    for l, layer in enumerate(circuit.layers):
        block = architecture.block(l)
        arrays = _heads(layer, block, at) | _neurons(circuit, l, block.width, at)
        weights |= {f"layers.{l}.{name}": array for name, array in arrays.items()}
    return _filled(architecture, len(circuit.channels), len(circuit.readout.b), weights)


def _filled(
    architecture: Architecture, channels: int, outputs: int, weights: dict[str, np.ndarray]
) -> Transformer:
    """A model with these arrays, and 0 everywhere else; all leaves in one pass."""
    require_precision(architecture.precision)
    skeleton: Any = eqx.filter_eval_shape(lambda: Transformer(architecture, channels, outputs, key=jr.key(0)))
    leaves = []
    for name, leaf in named_leaves(skeleton):
        array = weights.pop(name, None)
        if array is not None and array.shape != leaf.shape:
            raise AssertionError(f"{name} has shape {array.shape}, the model has {leaf.shape}")
        leaves.append(jnp.asarray((np.zeros(leaf.shape) if array is None else array).astype(leaf.dtype)))
    if weights:
        raise AssertionError(f"the model has no {', '.join(weights)}")
    return jax.tree.unflatten(jax.tree.structure(skeleton), leaves)


def _embedding(circuit: Circuit, at: At) -> dict[str, np.ndarray]:
    W_E, b_E = np.zeros((len(at), len(circuit.channels))), np.zeros(len(at))
    for c, channel in enumerate(circuit.channels):
        W_E[at[channel], c] = 1
    for slot, (channel, origin) in circuit.origins.items():
        W_E[at[slot], circuit.channels.index(channel)], b_E[at[slot]] = 1, -origin
    if ONE in at:
        b_E[at[ONE]] = 1
    return {"W_E": W_E, "b_E": b_E}


def _readout(circuit: Circuit, at: At) -> dict[str, np.ndarray]:
    ridge = circuit.readout
    W_U = np.zeros((len(ridge.b), len(at)))
    for i, name in enumerate(ridge.variables):
        W_U[:, at[circuit.variable_slots[name]]] += ridge.W[:, i]
    for o in circuit.outputs_with_neurons:
        W_U[o, at[output_slot(o)]] = 1
    return {"W_U": W_U, "b_U": np.asarray(ridge.b)}


def _neurons(circuit: Circuit, l: int, width: int, at: At) -> dict[str, np.ndarray]:
    if not width:
        return {}
    B, c, A = np.zeros((width, len(at))), np.zeros(width), np.zeros((len(at), width))
    m = 0
    if (neurons := circuit.layers[l].neurons) is not None:
        m = neurons.width
        B[:m, [at[name] for name in neurons.inputs]] = neurons.B
        A[[at[name] for name in neurons.outputs], :m] = neurons.A
        c[:m] = neurons.c
    if l == len(circuit.layers) - 1 and circuit.readout.width:
        ridge, end = circuit.readout, m + circuit.readout.width
        for i, name in enumerate(ridge.variables):
            B[m:end, at[circuit.variable_slots[name]]] += ridge.B[:, i]
        c[m:end] = ridge.c
        for o in circuit.outputs_with_neurons:
            A[at[output_slot(o)], m:end] = ridge.A[o]
    return {"ffn.B": B, "ffn.c": c, "ffn.A": A}


def _heads(layer: Layer, block: Architecture, at: At) -> dict[str, np.ndarray]:
    H, D, d_v = block.heads, len(at), block.value_dim
    W_V, W_O = np.zeros((H, d_v, D)), np.zeros((H, D, d_v))
    for h, head in enumerate(layer.heads):
        for v, slot in enumerate(head.reads):
            W_V[h, v, at[slot]] = 1
        for to, gains in head.writes.items():
            for slot, gain in gains.items():
                W_O[h, at[to], head.reads.index(slot)] += gain
    # A layer with fewer heads than the widest repeats what its last head asks, with nothing to write.
    asking = [*layer.heads, *layer.heads[-1:] * (H - len(layer.heads))]
    arrays = {"W_V": W_V, "W_O": W_O, **_scores(asking, block, at), **_positions(asking, block)}
    return {f"attention.heads.{name}": array for name, array in arrays.items()}


def _scores(heads: Sequence[Head], block: Architecture, at: At) -> dict[str, np.ndarray]:
    match block.attention:
        case "dp":
            rows = {"W_Q": [head.query for head in heads], "W_K": [head.key for head in heads]}
            arrays = {}
            for name, each in rows.items():
                W = np.zeros((block.heads, block.key_dim, len(at)))
                for h, row in enumerate(each):
                    for slot, vector in row.items():
                        W[h, : len(vector), at[slot]] += vector  # heads that ask less leave the rest 0
                arrays[f"score.{name}"] = W
            return arrays
        case "tmx":
            w = np.zeros((block.heads, len(at)))
            for h, head in enumerate(heads):
                for slot, weight in head.gate.items():
                    w[h, at[slot]] = weight
            return {"score.w": w}
    return {}


def _positions(heads: Sequence[Head], block: Architecture) -> dict[str, np.ndarray]:
    positions = [head.position for head in heads]
    if not positions:  # nothing is read; lin and log heads still need a slope that converges
        return {"encoding.p": np.full(block.heads, SPARE)} if block.encoding in ("lin", "log") else {}
    match positions[0]:
        case DecayKernel():
            return {"encoding.p": np.array([p.p for p in positions if isinstance(p, DecayKernel)])}
        case PeakKernel():
            parts = [_turned(p, block.key_dim // 2) for p in positions if isinstance(p, PeakKernel)]
            turns, q, k = (np.stack(each) for each in zip(*parts, strict=True))
            return {"encoding.turns": turns, "encoding.q": q, "encoding.k": k}
        case Turns():
            turns = [p.turns for p in positions if isinstance(p, Turns)]
            return {"encoding.turns": np.array(turns, dtype=np.uint32)}
        case TableKernel():
            return {
                "encoding.table": np.stack(
                    [_table(p, block) for p in positions if isinstance(p, TableKernel)]
                )
            }


def _turned(peak: PeakKernel, frequencies: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """omega_j = pi 2^-j, exactly 2^(31-j) in units of 2^-32 turns; <R_t q, R_s k> = c sum_j cos(omega_j (z - lag))."""
    j = np.arange(frequencies)
    turns = (1 << (31 - j)).astype(np.uint32)
    # Reduced in integers first, so that a lag of a million loses nothing.
    reduced = (peak.lag * (1 << (31 - j)) % 2**32).astype(float) / 2**31
    q = np.concatenate([np.full(len(j), peak.c), np.zeros(len(j))])
    k = np.concatenate([np.cos(np.pi * reduced), np.sin(np.pi * reduced)])
    return turns, q, k


def _table(table: TableKernel, block: Architecture) -> np.ndarray:
    """The first half of the buckets are the lags 1, 2, ... themselves."""
    logits = np.full(block.buckets, table.beyond)
    logits[: len(table.logits)] = table.logits
    return logits
