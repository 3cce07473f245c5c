"""A circuit: a whole Transformer between named slots, and the ground truth of what each part of it is for.

    layer = heads, each (query, key, position, reads, writes), then neurons

The residual stream is a row of slots. The embedding fills the slots of the channels, a head adds what it recalls of the
slots it reads to those it writes, neurons compute slots from slots, and the readout computes f from the slots that hold
its variables. Routes make circuits; compile.py turns one into weights; circuit_file.py writes what is known of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from memloci.approx.readouts.lookup import LookupNeurons
from memloci.approx.readouts.ridge_sums import RidgeSum
from memloci.model.architecture import Architecture, LayerSwitches

ONE = "one"  # the slot that holds 1 at every position

Rows = Mapping[str, np.ndarray]  # slot -> what it adds to a query or a key


# What a head's logits owe to the lag.


@dataclass(frozen=True)
class DecayKernel:
    """A lin or log head: slope p."""

    p: float


@dataclass(frozen=True)
class PeakKernel:
    """A rotary head that peaks at one lag: logit c sum_j cos(pi 2^-j (z - lag)), j < frequencies."""

    lag: int
    c: float
    frequencies: int


@dataclass(frozen=True)
class TableKernel:
    """A t5 head with a bucket for each of the lags 1, 2, ...: logits[z - 1] there, `beyond` at all later ones."""

    logits: tuple[float, ...]
    beyond: float


@dataclass(frozen=True)
class Turns:
    """A rotary head with queries and keys of its own: the frequencies, in units of 2^-32 turns."""

    turns: tuple[int, ...]


Position = DecayKernel | PeakKernel | TableKernel | Turns


@dataclass(frozen=True)
class Head:
    """What a head is for, what it asks, what it sees of the past, what it reads and where it writes."""

    purpose: str
    reads: tuple[str, ...]  # slots, one value coordinate each
    writes: Mapping[str, Mapping[str, float]]  # destination -> {slot read: gain}
    position: Position
    query: Rows = field(default_factory=dict)  # dp
    key: Rows = field(default_factory=dict)  # dp
    gate: Mapping[str, float] = field(default_factory=dict)  # tmx: slot -> weight
    lag: int | None = None  # where its queries are the same everywhere: what it attends to; 0 is position 0

    @property
    def slots(self) -> tuple[str, ...]:
        return (*self.query, *self.key, *self.gate, *self.reads, *self.writes)


@dataclass(frozen=True)
class Layer:
    """Heads of one kind, then neurons."""

    attention: str
    encoding: str
    normalisation: str
    heads: tuple[Head, ...]
    neurons: LookupNeurons | None = None
    window: int | None = None
    key_dim: int = 1

    @property
    def kind(self) -> tuple[str, str, str, int | None]:
        return self.attention, self.encoding, self.normalisation, self.window

    @property
    def buckets(self) -> int:
        """Half of the buckets of t5 are single lags."""
        return max(
            32, *(2 * len(h.position.logits) for h in self.heads if isinstance(h.position, TableKernel)), 0
        )


@dataclass(frozen=True)
class Circuit:
    route: str  # a key of ROUTES
    why: str  # one sentence for the reader of a plan
    channels: tuple[str, ...]  # the slots that the embedding fills, in order
    layers: tuple[Layer, ...]
    variable_slots: dict[str, str]  # variable of the task -> slot that holds it when f is computed
    readout: RidgeSum  # f, for all outputs
    precision: str
    # slot -> (channel, number taken off): slots that the embedding fills beside the channels
    origins: Mapping[str, tuple[str, float]] = field(default_factory=dict)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The residual stream: inputs, what is moved and computed, and one slot per output that has neurons."""
        used: list[str] = []
        for layer in self.layers:
            used += [slot for head in layer.heads for slot in head.slots]
            if layer.neurons is not None:
                used += [*layer.neurons.inputs, *layer.neurons.outputs]
        used += [self.variable_slots[name] for name in self.readout.variables]
        first = [*self.channels, *([ONE] if ONE in used else [])]
        return tuple(dict.fromkeys([*first, *used, *map(output_slot, self.outputs_with_neurons)]))

    @property
    def outputs_with_neurons(self) -> tuple[int, ...]:
        return tuple(o for o, row in enumerate(self.readout.A) if row.any())

    @property
    def heads(self) -> int:
        return max(max(len(layer.heads) for layer in self.layers), 1)

    @property
    def mass(self) -> float:
        """The largest sum over the heads of a layer of |gains| between two slots."""
        masses: dict[tuple[int, str, str], float] = {}
        for l, layer in enumerate(self.layers):
            for head in layer.heads:
                for to, gains in head.writes.items():
                    for slot, gain in gains.items():
                        masses[l, slot, to] = masses.get((l, slot, to), 0.0) + abs(gain)
        return max(masses.values(), default=0.0)

    def width(self, l: int) -> int:
        """Neurons of layer l; the readout's are in the last."""
        neurons = self.layers[l].neurons
        return (neurons.width if neurons else 0) + (self.readout.width if l == len(self.layers) - 1 else 0)

    def architecture(self) -> Architecture:
        """Sizes and switches; layers of one kind are alike, so that one program serves them."""
        kinds = {layer.kind for layer in self.layers}
        first, every = self.layers[0], range(len(self.layers))
        shared = {
            "layers": len(self.layers),
            "dim": len(self.slots),
            "precision": self.precision,
            "path": "certified",
            "max_length": 1,
        }
        if len(kinds) == 1:
            block = _block(self.layers, max(self.width(l) for l in every), self.heads)
            return Architecture(**shared, **block.model_dump())
        blocks = [
            _block([layer], self.width(l), max(1, len(layer.heads))) for l, layer in enumerate(self.layers)
        ]
        top = _block([first], self.width(0), max(1, len(first.heads)))
        return Architecture(**shared, **top.model_dump(), blocks=tuple(blocks))

    def neuron_purposes(self, l: int) -> tuple[str | None, ...]:
        """Of every neuron of layer l; None of those that only fill it up to the width of other layers."""
        neurons = self.layers[l].neurons
        purposes = list(neurons.purposes if neurons is not None else ())
        purposes += ["readout"] * (self.readout.width if l == len(self.layers) - 1 else 0)
        return tuple(purposes)


def _block(layers: Sequence[Layer], width: int, heads: int) -> LayerSwitches:
    """The sizes that hold all of these layers, which are of one kind."""
    first = layers[0]
    buckets = max(layer.buckets for layer in layers)
    value_dim = max((len(head.reads) for layer in layers for head in layer.heads), default=1)
    return LayerSwitches(
        heads=heads,
        width=width,
        attention=first.attention,
        encoding=first.encoding,
        normalisation=first.normalisation,
        key_dim=max(layer.key_dim for layer in layers),
        value_dim=max(1, value_dim),
        window=first.window,
        buckets=buckets,
        max_distance=max(128, buckets) if first.window is None else max(first.window, buckets),
    )


def purpose(verb: str, what: str, heads: int) -> str:
    """What a head is for that acts together with others, or alone."""
    return f"{verb}s {what}" if heads == 1 else f"one of {heads} heads that together {verb} {what}"


def output_slot(o: int) -> str:
    return f"output {o}"


def shifted(slot: str, lag: int) -> str:
    """The slot of a channel moved by a lag."""
    return f"{slot}@{lag}" if lag else slot


def writes_each(reads: Iterable[str], destinations: Iterable[str]) -> dict[str, dict[str, float]]:
    """Every slot to a destination of its own, unchanged."""
    return {to: {slot: 1.0} for slot, to in zip(reads, destinations, strict=True)}
