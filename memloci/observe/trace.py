"""One query followed through the layers: which lag was computed, where attention looked, what was recalled.

What a head is for, and which slot holds what, the circuit says; what they do is observed:

    a_h(t, s)                weights of head h                  where it looks
    d slot_i / d x_s         with the weights a_h held fixed    which token memory i holds

The second sees what the first cannot: a head that reads "the token before" from its successor, several heads
whose weights cancel, neurons that choose among tokens already there. Both are beside the task's own lags.

For pictures and for readers. Nothing here is proved.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from memloci.circuits.circuit import Circuit
from memloci.core.errors import BadInput
from memloci.model.transformer import Block, Transformer, require_precision
from memloci.routes.symbols import presence_slot
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.names import variable
from memloci.tasks.task import Task

PEAKS = 3  # positions told of each head
CLEAR_WEIGHT = 0.5  # of a token: a memory that holds less of every token holds none


@dataclass(frozen=True)
class WeightPeak:
    """A token of the past and its weight."""

    lag: int
    weight: float

    @property
    def is_clear(self) -> bool:
        """It weighs enough for a memory to hold the token."""
        return abs(self.weight) >= CLEAR_WEIGHT


@dataclass(frozen=True)
class HeadPeaks:
    """One head at position t: the largest of its weights over the past."""

    layer: int
    head: int
    purpose: str
    memories: tuple[int, ...]  # that it writes to; none where it only carries tokens for later layers
    peaks: tuple[WeightPeak, ...]


@dataclass(frozen=True)
class TracedRecall:
    """Memory i at position t: the lag that the task gives, the one that the network computed, and the token."""

    memory: int
    level: int
    layer: int  # the last that writes to it
    single: bool  # it is one token; if not, it is made of many
    lag: (
        int | None
    )  # of the task; None where it depends on a blank memory, and where there is no single token
    blank: bool
    attended: WeightPeak | None  # by all heads that write to it, together; None where none does
    read: WeightPeak | None  # the token that it holds; None where it holds none
    recalled: dict[str, float]  # channel -> what its slot holds
    target: dict[str, float]
    present: float | None  # the slot that says whether there is a token, for lags that ask

    @property
    def err(self) -> float:
        return max(
            (abs(self.recalled[channel] - self.target[channel]) for channel in self.recalled), default=0.0
        )

    @property
    def is_right(self) -> bool:
        """The network read the token that the task asks for, or none where there is none."""
        return not self.single or (self.read.lag if self.read else None) == (None if self.blank else self.lag)


@dataclass(frozen=True)
class Trace:
    t: int
    x: np.ndarray  # (t + 1, channels)
    channels: tuple[str, ...]
    layers: int
    heads: tuple[HeadPeaks, ...]
    recalls: tuple[TracedRecall, ...]
    output: np.ndarray
    target: np.ndarray

    @property
    def err(self) -> float:
        return float(np.abs(self.output - self.target).max())


def trace(model: Transformer, task: Task, circuit: Circuit, x: np.ndarray, t: int) -> Trace:
    """Position t of one sequence; `circuit` is that of the model's plan."""
    return traces(model, task, circuit, x, [t])[0]


def traces(
    model: Transformer, task: Task, circuit: Circuit, x: np.ndarray, positions: Sequence[int]
) -> tuple[Trace, ...]:
    """Several positions of one sequence, for the price of one run."""
    n, slots = len(x), circuit.slots
    if not all(0 <= t < n for t in positions):
        raise BadInput(f"positions must lie in 0..{n - 1}, found {list(positions)}")
    require_precision("float64")
    x = np.asarray(x, dtype=float)
    names = task.channel_names
    at = memory_slots(task, circuit)
    if not at:
        raise BadInput("no memory of the task is recalled; there is nothing to follow")
    layer_of = {i: _last_writer(model, list(by_channel.values())) for i, by_channel in at.items()}
    places = [(layer_of[i], j, c) for i, by_channel in at.items() for c, j in by_channel.items()]
    A, states, shares, output = _run(model, jnp.asarray(x, model.W_E.dtype), tuple(positions), places)
    target = np.asarray(jax.jit(task.target)(x))
    lags, blank, tokens = _task_recalls(task, x)
    whose = [i for i, by_channel in at.items() for _ in by_channel]

    def recall(k: int, t: int, i: int) -> TracedRecall:
        l, by_channel = layer_of[i], at[i]
        share = shares[k, whose.index(i), : t + 1]  # of its first channel; all travel together
        flag = presence_slot(i)
        single = isinstance(task.recalls[i - 1], LagTable)
        queried = single and not any(blank[j - 1, t] for j in task.parents[i - 1])
        return TracedRecall(
            memory=i,
            level=task.levels[i - 1],
            layer=l,
            single=single,
            lag=int(lags[i - 1, t]) if queried else None,
            blank=bool(blank[i - 1, t]),
            attended=_attended(model, A, by_channel, t),
            read=next((g for g in _largest(share, t, 1) if single and g.is_clear), None),
            recalled={names[c]: float(states[l][t, j]) for c, j in by_channel.items()},
            target={names[c]: float(tokens[i - 1][t, c]) for c in by_channel},
            present=float(states[l][t, slots.index(flag)]) if flag in slots else None,
        )

    return tuple(
        Trace(
            t,
            x[: t + 1],
            names,
            len(model.layers),
            _head_peaks(model, circuit, A, at, t),
            tuple(recall(k, t, i) for i in at),
            output[t],
            target[t],
        )
        for k, t in enumerate(positions)
    )


# -- what the task says -----------------------------------------------------------------------------------


def positions_to_show(task: Task, x: np.ndarray, most: int = 10) -> list[int]:
    """Positions worth following: the first ones, each number of blank memories, and as many lags as there is room."""
    lags, blank, _ = _task_recalls(task, x)
    count = blank.sum(axis=0)
    chosen = dict.fromkeys(range(min(2, len(x))))
    for blanks in range(task.M, -1, -1):
        chosen |= dict.fromkeys(np.flatnonzero(count == blanks)[:1].tolist())
    all_recalled = np.flatnonzero(count == 0).tolist()
    _, first = np.unique(lags[:, all_recalled], axis=1, return_index=True)
    for t in sorted(all_recalled[k] for k in first.tolist()) + all_recalled:
        if len(chosen) < most:
            chosen[t] = None
    return sorted(list(chosen)[:most])


def _task_recalls(task: Task, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """(M, n) lags, (M, n) whether the memory is blank, and the tokens, by the task's definition; a kernel has no lag, 0."""
    tokens, blank = task.recall_with_blanks(x, np)
    values = {
        variable(channel.name, j): token[:, c]
        for j, token in enumerate([x, *tokens])
        for c, channel in enumerate(task.channels)
    }
    lags = [
        np.broadcast_to(recall(values, np) if isinstance(recall, LagTable) else 0, (len(x),))
        for recall in task.recalls
    ]
    shape = task.M, len(x)
    # Matches are found by JAX, also for arrays of NumPy.
    return np.array(lags).reshape(shape), np.array(blank).reshape(shape), [*map(np.asarray, tokens)]


# -- what the weights say ---------------------------------------------------------------------------------


def memory_slots(task: Task, circuit: Circuit) -> dict[int, dict[int, int]]:
    """memory -> {channel: coordinate}, of what is recalled at all."""
    coordinates: dict[int, dict[int, int]] = {}
    at = {slot: j for j, slot in enumerate(circuit.slots)}
    for i in range(1, task.M + 1):
        slots = [circuit.variable_slots.get(variable(channel, i)) for channel in task.channel_names]
        by_channel = {c: at[slot] for c, slot in enumerate(slots) if slot in at}
        if by_channel:
            coordinates[i] = by_channel
    return coordinates


def _last_writer(model: Transformer, coordinates: list[int]) -> int:
    def writes(layer: Block) -> bool:
        W_O = np.asarray(layer.attention.heads.W_O)[:, coordinates]
        return bool(W_O.any() or (layer.ffn is not None and np.asarray(layer.ffn.A)[coordinates].any()))

    return max((l for l, layer in enumerate(model.layers) if writes(layer)), default=0)


def _head_peaks(
    model: Transformer, circuit: Circuit, A: list[np.ndarray], at: dict[int, dict[int, int]], t: int
) -> tuple[HeadPeaks, ...]:
    peaks = []
    for l, layer in enumerate(model.layers):
        W_O = np.asarray(layer.attention.heads.W_O)
        for h in np.flatnonzero(W_O.any(axis=(1, 2))):
            memories = tuple(i for i, by_channel in at.items() if W_O[h, list(by_channel.values())].any())
            purpose = circuit.layers[l].heads[h].purpose
            peaks.append(HeadPeaks(l, int(h), purpose, memories, _largest(A[l][h, t, :t], t, PEAKS)))
    return tuple(peaks)


def _attended(model: Transformer, A: list[np.ndarray], slots: dict[int, int], t: int) -> WeightPeak | None:
    """The peak of sum_h W_O^h a_h(t, s), over the heads that write to a memory."""
    j, total = next(iter(slots.values())), np.zeros(t)
    for layer, weights in zip(model.layers, A, strict=True):
        gains = np.asarray(layer.attention.heads.W_O, dtype=float)[:, j].sum(axis=1)
        total = total + gains @ weights[:, t, :t]
    return next(iter(_largest(total, t, 1)), None)


def _largest(weights: np.ndarray, t: int, most: int) -> tuple[WeightPeak, ...]:
    order = np.argsort(-np.abs(weights), kind="stable")[:most]
    return tuple(WeightPeak(t - int(s), float(weights[s])) for s in order if weights[s] != 0)


def _run(
    model: Transformer, x: jax.Array, positions: tuple[int, ...], places: list[tuple[int, int, int]]
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
    """Weights (H, n, n) and states (n, D) after each layer, (position, place, s) shares, outputs."""

    def run(model: Transformer, x: jax.Array):
        X, A, states = model.embed(x), [], []
        for layer in model.layers:
            Y = layer.before_attention(X)
            A.append(jax.lax.stop_gradient(layer.attention.weights(Y)))
            read = lambda head, a, Y=Y: a @ (Y @ head.W_V.T) @ head.W_O.T
            X = layer.after_attention(X + eqx.filter_vmap(read)(layer.attention.heads, A[-1]).sum(axis=0))
            if layer.ffn is not None:
                X = layer.after_ffn(X + layer.ffn(layer.before_ffn(X)))
            states.append(X)
        contents = jnp.stack([states[l][jnp.array(positions), j] for l, j, _ in places], axis=1)
        return contents, (A, states, model.readout(X))

    @eqx.filter_jit
    def both(model: Transformer, x: jax.Array):
        return jax.jacrev(lambda x: run(model, x), has_aux=True)(x)

    with jax.default_matmul_precision("highest"):
        J, (A, states, output) = both(model, x)
    wide = lambda array: np.asarray(array, dtype=float)
    shares = np.stack([wide(J)[:, r, :, c] for r, (*_, c) in enumerate(places)], axis=1)
    return [wide(a) for a in A], [wide(X) for X in states], shares, wide(output)
