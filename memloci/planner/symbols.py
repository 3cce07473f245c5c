"""Lag functions as neurons, layer by layer: which symbols a lag reads, and in which form they are there.

    stage s    the neurons of layer s (counted from 0)
    ready      the stage at which a variable is first in the stream: 0 for the present token, later for memories

A lag is computed at the first stage at which all it reads is ready. What became ready just then is fresh and
read by a staircase; what was ready before has been compared with its letters (lookup.py) and is old.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from memloci.approx.lookup import LONGEST, Fresh, Layer, Old, best_line, gate, lookup, place
from memloci.errors import BadInput
from memloci.planner.wiring import ONE
from memloci.tasks.adaptive import Adaptive


def memory_slot(channel: str, i: int) -> str:
    return f"{channel}{i}" if i else channel


def presence_slot(i: int) -> str:
    return f"present {i}"


@dataclass
class Symbols:
    """The symbols of a task in a stream, and the neurons that read them."""

    task: Adaptive
    ready: Callable[[int], int]  # memory -> stage
    precision: str
    lead: int = 0  # stages that only compare the present token with its letters
    stages: dict[int, Layer] = field(default_factory=dict)

    def layer(self, stage: int) -> Layer:
        return self.stages.setdefault(stage, Layer())

    @property
    def origins(self) -> dict[str, tuple[str, float]]:
        return {slot: what for layer in self.stages.values() for slot, what in layer.origins.items()}

    @property
    def longest(self) -> int:
        return LONGEST[self.precision]

    def stage_of(self, i: int) -> int:
        """When the lag of memory i (counted from 1) can be computed."""
        return max((self.ready(j) for j in self.task.parents[i - 1]), default=self.lead)

    def presence_needed(self, i: int) -> bool:
        return any(i in parents for parents in self.task.parents)

    def channels_needed(self, i: int, readout: Sequence[str]) -> tuple[str, ...]:
        """Which channels of memory i are read, by f or by a lag."""
        used = {*readout, *(name for table in self.task.lag_tables for name in table.variables)}
        return tuple(c.name for c in self.task.channels if f"{c.name}{i}" in used)

    def table(
        self, i: int, values: Callable[[np.ndarray], np.ndarray], outputs: Sequence[str], after: int = 0
    ) -> None:
        """Neurons that give `values(lag)`, one number per output, and 0 where memory i must be blank."""
        stage = max(self.stage_of(i), after)
        fresh, old, lags = self._reads(i, stage)
        lookup(self.layer(stage), fresh, old, np.asarray(values(lags), float), outputs, lags, self.longest)

    def gate(
        self,
        i: int,
        passes: Callable[[np.ndarray], np.ndarray],
        payloads: Sequence[tuple[str, str, float]],
        after: int = 0,
    ) -> None:
        """Neurons that add each (slot, destination, size) where `passes(lag)`."""
        stage = max(self.stage_of(i), after)
        fresh, old, lags = self._reads(i, stage, merge=False)  # old letters gate without cancellation
        gate(self.layer(stage), fresh, old, passes(lags), payloads, lags, self.longest)

    def _reads(self, i: int, stage: int, merge: bool = True) -> tuple[list[Fresh], list[Old], np.ndarray]:
        """What the table of memory i reads at a stage, and its lags with the axes (old..., fresh...)."""
        table = self.task.lag_tables[i - 1]
        owners = [_owner(self.task, name) for name in table.variables]
        pieces = dict(zip(table.variables, table.domains, strict=True))
        fresh_names = [
            n for n, (_, j) in zip(table.variables, owners, strict=True) if self._ready(j) == stage
        ]
        if merge and len(table.variables) > 1:  # one line for all of them, where the lag itself is that line
            everything = [self._fresh(n, pieces[n]) for n in table.variables]
            if self._one_line_is_shorter(everything, table.lags, len(fresh_names)):
                return everything, [], table.lags
        old_names = [n for n in table.variables if n not in fresh_names]
        fresh = [self._fresh(n, pieces[n]) for n in fresh_names]
        old = [self._old(n, pieces[n]) for n in old_names]
        axes = [table.variables.index(n) for n in (*old_names, *fresh_names)]
        return fresh, old, np.transpose(table.lags, axes)

    def _one_line_is_shorter(self, variables: list[Fresh], lags: np.ndarray, fresh: int) -> bool:
        values = lags.reshape(-1, 1).astype(float)
        try:
            line = best_line(variables, values, lags, self.longest)
        except BadInput:
            return False
        if fresh == len(variables):
            return True
        lined = int((np.diff(values[line.first], axis=0) != 0).sum())
        return lined <= lags.size

    def _ready(self, j: int) -> int:
        return self.ready(j) if j else 0

    def _fresh(self, name: str, pieces) -> Fresh:
        channel, j = _owner(self.task, name)
        return Fresh(memory_slot(channel, j), pieces, exact=j == 0, presence=presence_slot(j) if j else None)

    def _old(self, name: str, pieces) -> Old:
        """Its distances, compared at the stage where it is fresh."""
        channel, j = _owner(self.task, name)
        distances = tuple(f"{memory_slot(channel, j)} from {p.lo:g}" for p in pieces)
        absence = f"absent {j}" if j else None
        layer = self.layer(self._ready(j))
        key = (channel, j)
        if key not in self._placed:
            self._placed.add(key)
            place(layer, self._fresh(name, pieces), distances, None if ("", j) in self._placed else absence)
            self._placed.add(("", j))
        return Old(pieces, distances, absence)

    _placed: set[tuple[str, int]] = field(default_factory=set)


def _owner(task: Adaptive, name: str) -> tuple[str, int]:
    for channel in task.channels:
        rest = name[len(channel.name) :]
        if name.startswith(channel.name) and rest.isdigit():
            return channel.name, int(rest)
    raise BadInput(f"{name!r} is no variable of the task")


__all__ = ["ONE", "Symbols", "memory_slot", "presence_slot"]
