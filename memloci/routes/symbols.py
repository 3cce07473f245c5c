"""Lag functions as neurons, layer by layer: which symbols a lag reads, and in which form they are there.

    stage s    the neurons of layer s (counted from 0)
    ready      the stage at which a variable is first in the stream: 0 for the present token, later for memories

A lag is computed at the first stage at which all it reads is ready. What became ready just then is fresh and
read by a staircase; what was ready before has been compared with its letters (lookup.py) and is old. Where layers recall
one memory each, a lag that is wanted `late` is computed just before its layer, from the same letters: they stay in the stream.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memloci.approx.readouts.lookup import (
    Fresh,
    LookupLayer,
    LookupNeurons,
    Old,
    best_line,
    gate,
    longest,
    lookup,
    place,
)
from memloci.circuits.circuit import ONE
from memloci.core.errors import BadInput
from memloci.core.numbers import literal
from memloci.language.domain import Domain
from memloci.routes.request import Obstacle, Request
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.names import channel_of, memory_of, variable


def memory_slot(channel: str, i: int) -> str:
    return variable(channel, i) if i else channel


def presence_slot(i: int) -> str:
    return f"present {i}"


def memory_slots(request: Request, tables: Mapping[int, LagTable]) -> dict[str, str]:
    """Where the tokens of these memories are when f is computed."""
    return {variable(name, i): memory_slot(name, i) for i in tables for name in request.channels}


def layer_count(request: Request, layers: int, one_each: bool = False) -> str:
    """How the layers compare with the paper's count; with `one_each` every layer recalls one memory."""
    paper, count = request.task.paper_layers, f"{layers} layers" if layers > 1 else "1 layer"
    if one_each:
        return f"{count}, one memory each after the first (Theorem 4.4, Proposition 4.5)"
    if layers == paper:
        return f"{count}, the paper's K + 1 + 1{{M >= K + 1}}"
    if layers < paper:
        return f"{count}, {paper - layers} less than the paper's count: no chain of lags is deeper"
    return f"{count}, {layers - paper} more than the paper's count"


def recall_layers(
    request: Request, tables: Mapping[int, LagTable], lead: int, one_each: bool = False
) -> dict[int, int]:
    """memory -> the layer that recalls it: those of a level together, or one memory per layer. The first `lead` recall none."""
    levels = request.task.levels
    if not one_each:
        return {i: levels[i - 1] + lead for i in tables}
    if len({levels[i - 1] for i in tables}) == len(tables):
        raise Obstacle(
            "every level has a single memory, so the routes that recall a level per layer do the same"
        )
    order = sorted(tables, key=lambda i: (levels[i - 1], i))
    return {i: k + lead for k, i in enumerate(order)}


@dataclass
class Symbols:
    """The symbols of a task in a stream, and the neurons that read them."""

    request: Request
    ready: Callable[[int], int]  # memory -> stage
    lead: int = 0  # stages that only compare the present token with its letters
    late: Mapping[int, int] = field(
        default_factory=dict
    )  # memory -> the first stage at which its lag is computed
    stages: dict[int, LookupLayer] = field(default_factory=dict)

    def layer(self, stage: int) -> LookupLayer:
        return self.stages.setdefault(stage, LookupLayer())

    def layer_for(self, i: int) -> LookupLayer:
        """The neurons that compute the lag of memory i."""
        return self.layer(max(self.stage_of(i), self.late.get(i, 0)))

    def neurons(self, stage: int) -> LookupNeurons | None:
        return self.stages[stage].neurons() if stage in self.stages else None

    def table_of(self, i: int) -> LagTable:
        table = self.request.task.recalls[i - 1]
        assert isinstance(table, LagTable)
        return table

    @property
    def origins(self) -> dict[str, tuple[str, float]]:
        return {slot: what for layer in self.stages.values() for slot, what in layer.origins.items()}

    @property
    def longest(self) -> int:
        return longest(self.request.precision)

    def stage_of(self, i: int) -> int:
        """When the lag of memory i (counted from 1) can be computed."""
        return max((self.ready(j) for j in self.request.task.parents[i - 1]), default=self.lead)

    def presence_needed(self, i: int) -> bool:
        return any(i in parents for parents in self.request.task.parents)

    def table(
        self, i: int, values: Callable[[np.ndarray], np.ndarray], outputs: Sequence[str], least_stage: int = 0
    ) -> None:
        """Neurons that give `values(lag)`, one number per output, and 0 where memory i must be blank."""
        stage = max(self.stage_of(i), least_stage)
        fresh, old, lags = self._reads(i, stage)
        stage = max(stage, self.late.get(i, 0))
        lookup(self.layer(stage), fresh, old, np.asarray(values(lags), float), outputs, lags, self.longest)

    def gate(
        self,
        i: int,
        passes: Callable[[np.ndarray], np.ndarray],
        payloads: Sequence[tuple[str, str, float]],
        least_stage: int = 0,
    ) -> None:
        """Neurons that add each (slot, destination, size) where `passes(lag)`."""
        stage = max(self.stage_of(i), least_stage)
        fresh, old, lags = self._reads(i, stage, merge=False)  # old letters gate without cancellation
        stage = max(stage, self.late.get(i, 0))
        gate(self.layer(stage), fresh, old, passes(lags), payloads, lags, self.longest)

    def _reads(self, i: int, stage: int, merge: bool = True) -> tuple[list[Fresh], list[Old], np.ndarray]:
        """What the table of memory i reads at a stage, and its lags with the axes (old..., fresh...)."""
        table = self.table_of(i)
        pieces = dict(zip(table.reads, table.domains, strict=True))
        fresh_names = [name for name in table.reads if self._ready(memory_of(name)) == stage]
        if merge and len(table.reads) > 1:  # one line for all of them, where the lag itself is that line
            everything = [self._fresh(n, pieces[n]) for n in table.reads]
            if self._one_line_is_shorter(everything, table.lags, len(fresh_names)):
                return everything, [], table.lags
        old_names = [n for n in table.reads if n not in fresh_names]
        fresh = [self._fresh(n, pieces[n]) for n in fresh_names]
        old = [self._old(n, pieces[n]) for n in old_names]
        axes = [table.reads.index(n) for n in (*old_names, *fresh_names)]
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

    def _fresh(self, name: str, pieces: Domain) -> Fresh:
        channel, j = channel_of(name), memory_of(name)
        return Fresh(memory_slot(channel, j), pieces, exact=j == 0, presence=presence_slot(j) if j else None)

    def _old(self, name: str, pieces: Domain) -> Old:
        """Its distances, compared at the stage where it is fresh."""
        channel, j = channel_of(name), memory_of(name)
        distances = tuple(f"{memory_slot(channel, j)} from {literal(p.lo)}" for p in pieces)
        absence = f"absent {j}" if j else None
        layer = self.layer(self._ready(j))
        key = (channel, j)
        if key not in self._placed:
            self._placed.add(key)
            purpose, layer.purpose = layer.purpose, f"{name} compared with its letters"
            place(layer, self._fresh(name, pieces), distances, None if ("", j) in self._placed else absence)
            layer.purpose = purpose
            self._placed.add(("", j))
        return Old(pieces, distances, absence)

    _placed: set[tuple[str, int]] = field(default_factory=set)


def destinations(symbols: Symbols, i: int) -> tuple[list[str], list[str]]:
    """(what is read of a token, where it goes) for memory i: channels, then presence where a lag needs it."""
    channels = symbols.request.channels_of(i)
    read, to = list(channels), [memory_slot(channel, i) for channel in channels]
    if symbols.presence_needed(i):
        read.append(ONE)
        to.append(presence_slot(i))
    return read, to
