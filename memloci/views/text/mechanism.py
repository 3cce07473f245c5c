"""What the heads and neurons of a circuit are for, in words: a row per head, or per group of heads with one purpose.

The circuit says it; nothing is read off the weights here.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from memloci.circuits.circuit import (
    ONE,
    Circuit,
    DecayKernel,
    Head,
    Layer,
    PeakKernel,
    Position,
    TableKernel,
    Turns,
)
from memloci.core.numbers import number
from memloci.routes.symbols import presence_slot
from memloci.tasks.names import memory_of


@dataclass(frozen=True)
class Doing:
    """A line of the table: cells in plain text."""

    layers: str
    heads: str
    purpose: str
    sees: str
    reads: str
    writes: str
    neurons: str


def doings(circuit: Circuit) -> list[Doing]:
    """Every layer in order; neighbours that do the same are one line."""
    described: list[tuple[int, int, Doing]] = []
    for l, layer in enumerate(circuit.layers):
        neurons = _neurons(circuit, l)
        groups = [list(group) for _, group in groupby(layer.heads, lambda head: head.purpose)] or [[]]
        for k, group in enumerate(groups):
            now = _doing(circuit, layer, group, neurons if k == len(groups) - 1 else "")
            if described and len(groups) == 1 and described[-1][2] == now:
                described[-1] = (described[-1][0], l, now)
            else:
                described.append((l, l, now))
    return [
        replace(doing, layers=f"{a + 1}" if a == b else f"{a + 1} to {b + 1}") for a, b, doing in described
    ]


def _doing(circuit: Circuit, layer: Layer, group: Sequence[Head], neurons: str) -> Doing:
    if not group:
        return Doing("", "–", "", "", "", "", neurons)
    slots = dict.fromkeys(slot for head in group for slot in head.writes)
    return Doing(
        "",
        f"{len(group)}",
        group[0].purpose,
        _sees(layer, [head.position for head in group]),
        _reads(dict.fromkeys(slot for head in group for slot in head.reads)),
        _writes(circuit, slots),
        neurons,
    )


def _sees(layer: Layer, positions: Sequence[Position]) -> str:
    """How a head weighs the past, or a group of heads."""
    match positions[0]:
        case DecayKernel():
            p = [position.p for position in positions if isinstance(position, DecayKernel)]
            several = f"s {number(min(p))} to {number(max(p))}" if len(p) > 1 else f" {number(p[0])}"
            moved = ", moved by its query" if layer.attention != "dpf" else ""
            return f"{layer.encoding} slope{several}{moved}"
        case PeakKernel(lag=lag):
            return f"a peak at lag {lag:,}"
        case TableKernel(logits=logits):
            return f"a table of {len(logits):,} lags"
        case Turns():
            return "where its query and the keys meet"


def _reads(slots: Iterable[str]) -> str:
    """x, x@3 -> x."""
    names = [slot.partition("@") for slot in slots]
    what = ", ".join(dict.fromkeys("presence" if name == ONE else name for name, *_ in names))
    return what + (", as carried so far" if any(step for *_, step in names) else "")


def _writes(circuit: Circuit, slots: Iterable[str]) -> str:
    """The memories that these slots hold in the end; the others are for later layers."""
    memories_of: dict[str, set[int]] = {}
    for name, slot in circuit.variable_slots.items():
        memories_of.setdefault(slot, set()).add(memory_of(name))
    for i in {i for memories_held in memories_of.values() for i in memories_held} - {0}:
        memories_of.setdefault(presence_slot(i), set()).add(i)
    memories = sorted({i for slot in slots for i in memories_of.get(slot, ())} - {0})
    texts = (
        [f"memor{'ies' if len(memories) > 1 else 'y'} {', '.join(map(str, memories))}"] if memories else []
    )
    if any(slot not in memories_of for slot in slots):
        texts.append("slots for later layers")
    return " and ".join(texts)


def _neurons(circuit: Circuit, l: int) -> str:
    """What the FFN of a layer computes, each purpose with its number of neurons."""
    neurons = circuit.layers[l].neurons
    counts = Counter(neurons.purposes if neurons is not None else ())
    if l == len(circuit.layers) - 1 and circuit.readout.width:
        counts["the readout"] = circuit.readout.width
    return "; ".join(f"{count:,}: {what}" for what, count in counts.items())
