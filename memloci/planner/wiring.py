"""A wiring: a whole Transformer between named slots, the record that the compiler turns into weights.

    layer = heads, each (query, key, kernel, values, writes), then neurons

The residual stream is a row of slots. `Design` (design.py) is enough where layers only move; here heads
may look at content, and every layer may have neurons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from memloci.approx.lookup import Neurons
from memloci.approx.ridge_sums import RidgeSum
from memloci.model.architecture import Architecture
from memloci.planner.design import output_slot

ONE = "one"  # the slot that holds 1 at every position

Rows = Mapping[str, np.ndarray]  # slot -> what it adds to a query or a key


@dataclass(frozen=True)
class Reader:
    """One head: what it asks, what it sees of the past, what it reads and where it writes."""

    values: tuple[str, ...]  # slots read, one value coordinate each
    writes: Mapping[str, Mapping[str, float]]  # destination -> {slot read: gain}
    query: Rows = field(default_factory=dict)  # dp
    key: Rows = field(default_factory=dict)  # dp
    w: Mapping[str, float] = field(default_factory=dict)  # tmx: slot -> weight
    p: float | None = None  # lin and log
    turns: tuple[int, ...] | None = None  # rope, in units of 2^-32


@dataclass(frozen=True)
class Stage:
    """One layer."""

    heads: tuple[Reader, ...]
    neurons: Neurons | None = None


@dataclass(frozen=True)
class Wiring:
    route: str
    why: str
    channels: tuple[str, ...]
    stages: tuple[Stage, ...]
    holds: dict[str, str]  # variable of the task -> slot that holds it when f is computed
    readout: RidgeSum
    attention: str
    encoding: str
    normalisation: str
    precision: str
    key_dim: int = 1
    window: int | None = None
    origins: Mapping[str, tuple[str, float]] = field(
        default_factory=dict
    )  # slot -> (channel, number taken off)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        found: list[str] = [*self.channels, ONE]
        for stage in self.stages:
            for head in stage.heads:
                found += [*head.query, *head.key, *head.w, *head.values, *head.writes]
            if stage.neurons is not None:
                found += [*stage.neurons.inputs, *stage.neurons.outputs]
        found += [self.holds[name] for name in self.readout.variables]
        return tuple(dict.fromkeys([*found, *map(output_slot, self.outputs_with_neurons)]))

    @property
    def outputs_with_neurons(self) -> tuple[int, ...]:
        return tuple(o for o, row in enumerate(self.readout.A) if row.any())

    @property
    def heads(self) -> int:
        return max(len(stage.heads) for stage in self.stages)

    @property
    def width(self) -> int:
        own = [stage.neurons.width if stage.neurons else 0 for stage in self.stages]
        own[-1] += self.readout.width
        return max(own)

    def architecture(self) -> Architecture:
        return Architecture(
            layers=len(self.stages),
            heads=self.heads,
            width=self.width,
            attention=self.attention,
            encoding=self.encoding,
            normalisation=self.normalisation,
            dim=len(self.slots),
            key_dim=self.key_dim,
            value_dim=max(1, *(len(head.values) for stage in self.stages for head in stage.heads)),
            window=self.window,
            precision=self.precision,  # type: ignore[arg-type]
            path="certified",
            max_length=1,
        )


def writes_each(values: Sequence[str], destinations: Sequence[str]) -> dict[str, dict[str, float]]:
    """Every value to a destination of its own, unchanged."""
    return {to: {value: 1.0} for value, to in zip(values, destinations, strict=True)}
