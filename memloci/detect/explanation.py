"""An explanation: memories of every kind together, the columns that they recall, and the task that says the same.

Memories are numbered as in the task: lags in order, then tables, then a kernel, then a match.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from memloci.core.numbers import literal, to_digits
from memloci.detect.adaptive import DetectedTable, pointer_column
from memloci.detect.detection import DetectedMemory
from memloci.detect.dictionary import Column, FittedReadout, lag_column
from memloci.detect.essential import KernelFit
from memloci.detect.expression import expression
from memloci.detect.match import DetectedMatch, match_column
from memloci.detect.series import Series

Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Explanation:
    """Memories; those at lag 0 are the present, which the readout may use."""

    series: Series
    places: tuple[Place, ...] = ()
    tables: tuple[DetectedTable, ...] = ()
    kernel: KernelFit | None = None
    match: DetectedMatch | None = None
    p_values: dict[Place, float] = field(default_factory=dict)

    @property
    def lags(self) -> list[int]:
        spikes = self.kernel.spikes if self.kernel else ()
        return sorted({z for _, z in self.places if z > 0} | set(spikes))

    @property
    def count(self) -> int:
        nested = sum(t.first is not None for t in self.tables)
        return (
            len(self.lags) + len(self.tables) + nested + (self.kernel is not None) + (self.match is not None)
        )

    @property
    def kind(self) -> str:
        parts = [
            ("fixed", bool(self.lags)),
            ("adaptive", bool(self.tables)),
            ("essential", self.kernel is not None),
            ("matched", self.match is not None),
        ]
        present = [name for name, present_part in parts if present_part]
        return present[0] if len(present) == 1 else "mixed" if present else "none"

    @property
    def numbers(self) -> dict[Any, int]:
        """The number of each memory: by lag, by table, `kernel`, `key`, `match`."""
        numbers: dict[Any, int] = {z: k + 1 for k, z in enumerate(self.lags)}
        if self.match is not None and self.series.least and 1 not in numbers:
            numbers = {1: 1} | {
                z: k + 2 for k, z in enumerate(self.lags)
            }  # the key of a match is the token before
        k = len(numbers)
        for i, table in enumerate(self.tables):
            if table.first is not None:
                k += 1
                numbers["first", i] = k
            k += 1
            numbers["table", i] = k
        for name, part in (("kernel", self.kernel), ("match", self.match)):
            if part is not None:
                k += 1
                numbers[name] = k
        return numbers

    @cached_property
    def columns(self) -> list[tuple[Any, Column]]:
        """Each recalled column, with the memory that it belongs to (None: the present)."""
        s, number = self.series, self.numbers
        places = sorted({*self.places, *(self._spike_places())}, key=lambda p: (p[1], p[0]))
        columns: list[tuple[Any, Column]] = [
            (z or None, lag_column(s, c, z, number[z] if z else 0)) for c, z in places
        ]
        for i, table in enumerate(self.tables):
            if not s.least and (table.channel, 0) not in self.places and i == 0:
                columns.append((None, lag_column(s, table.channel, 0, 0)))
            if table.first is not None:
                columns.append((("first", i), pointer_column(s, table, number["first", i], first=True)))
            columns.append((("table", i), pointer_column(s, table, number["table", i])))
        if self.kernel is not None:
            name = f"{s.names[self.kernel.channel]}{number['kernel']}"
            columns.append(("kernel", replace(self.kernel.column, name=name)))
        if self.match is not None:
            columns.append(("match", match_column(s, self.match, number["match"])))
        return columns

    def _spike_places(self) -> list[Place]:
        return [(self.kernel.channel, z) for z in self.kernel.spikes] if self.kernel else []

    @cached_property
    def readout(self) -> FittedReadout:
        return FittedReadout(self.series, [column for _, column in self.columns])

    @property
    def r2(self) -> float:
        return self.readout.r2 if self.columns else 0.0

    # -- what is reported -----------------------------------------------------------------------------------

    def memories(self) -> tuple[DetectedMemory, ...]:
        s = self.series
        effects: dict[Any, float] = {}
        for k, (memory, _) in enumerate(self.columns):
            if memory is not None:
                gain = self.readout.t_without(k)[1]
                effects[memory] = max(gain, effects.get(memory, 0.0))
        memories = []
        for z in self.lags:
            channels = tuple(
                dict.fromkeys(s.names[c] for c, lag in [*self.places, *self._spike_places()] if lag == z)
            )
            values = [self.p_values[p] for p in self.places if p[1] == z and p in self.p_values]
            memories.append(DetectedMemory(channels, effects.get(z, 0.0), min(values, default=None), lag=z))
        for i, table in enumerate(self.tables):
            name = s.names[table.channel]
            symbols = [literal(v) for v in s.symbols[table.channel]]  # pyright: ignore[reportOptionalIterable]
            payload = (s.names[table.payload],)
            if table.first is not None:
                first = {k: int(z) for k, z in zip(symbols, table.first, strict=True)}
                gain = effects.get(("first", i), 0.0)
                memories.append(DetectedMemory((name,), gain, table.p_value, lag_table=first, reads=name))
            lag_table: dict[str, Any] = (
                {k: int(z) for k, z in zip(symbols, table.lags, strict=True)}
                if table.first is None
                else {
                    k: {b: int(z) for b, z in zip(symbols, row, strict=True)}
                    for k, row in zip(symbols, table.lags, strict=True)
                }
            )
            gain = effects.get(("table", i), 0.0)
            memories.append(DetectedMemory(payload, gain, table.p_value, lag_table=lag_table, reads=name))
        if self.kernel is not None:
            k = self.kernel
            memories.append(
                DetectedMemory((s.names[k.channel],), effects.get("kernel", 0.0), k.p_value, kernel=k.text)
            )
        if self.match is not None:
            m = self.match
            memories.append(
                DetectedMemory(
                    (s.names[m.payload],),
                    effects.get("match", 0.0),
                    m.p_value,
                    match=self._match_text(),
                    offset=m.offset,
                )
            )
        return tuple(memories)

    def _match_text(self) -> str:
        assert self.match is not None
        key = self.series.names[self.match.key]
        present = self.numbers[1] if self.series.least else 0
        return f"{key}{self.numbers['match']} == {key}{present}"

    # -- the task -------------------------------------------------------------------------------------------

    def task_data(self) -> tuple[dict[str, Any], float]:
        """A task file as a dictionary, and what its readout explains."""
        text, share = expression(self.series, self.readout)
        memories = self._memory_tables()
        kinds = {next(iter(m)) for m in memories}
        data: dict[str, Any] = {}
        plain = all(len(m) == 1 for m in memories)
        if memories and kinds == {"lag"} and plain:
            lags = [m["lag"] for m in memories]
            data["kind"] = "adaptive" if any(isinstance(z, str) for z in lags) else "fixed"
            listed: dict[str, Any] = {"lags": lags}
        elif kinds == {"kernel"} and plain:
            data["kind"] = "essential"
            listed = {"kernels": [m["kernel"] for m in memories]}
        else:
            listed = {"memories": memories}
        return {**data, "channels": self._channels(), **listed, "readout": text}, share

    def _memory_tables(self) -> list[dict[str, Any]]:
        numbers, tables = self.numbers, []
        lags = sorted(z for z in numbers if isinstance(z, int))
        tables += [{"lag": int(z)} for z in lags]
        for i, table in enumerate(self.tables):
            name = self.series.names[table.channel]
            values = [literal(v) for v in self.series.symbols[table.channel]]  # pyright: ignore[reportOptionalIterable]
            if table.first is not None:
                tables.append({"lag": _cases(f"{name}0", values, [str(int(z)) for z in table.first])})
                inner = [
                    _cases(f"{name}{numbers['first', i]}", values, [str(int(z)) for z in row])
                    for row in table.lags
                ]
                tables.append({"lag": _cases(f"{name}0", values, inner)})
            else:
                tables.append({"lag": _cases(f"{name}0", values, [str(int(z)) for z in table.lags])})
        if self.kernel is not None:
            one: dict[str, Any] = {"kernel": self.kernel.text}
            if self.kernel.tail == "power" and self.kernel.rate <= 1:
                one["horizon"] = min(self.series.steps, 100_000)
            tables.append(one)
        if self.match is not None:
            tables.append({"match": self._match_text(), "which": "latest", "offset": self.match.offset})
        return tables

    def _channels(self) -> list[dict[str, Any]]:
        """Those that are used, with the values seen; a finite alphabet where symbols choose lags or are keys."""
        s = self.series
        used = {c for c, _ in (*self.places, *self._spike_places())}
        symbolic = {t.channel for t in self.tables} | ({self.match.key} if self.match else set())
        used |= symbolic | {t.payload for t in self.tables}
        used |= {self.kernel.channel} if self.kernel else set()
        used |= {self.match.payload} if self.match else set()
        channels = []
        for c in sorted(used):
            values = s.symbols[c]
            if values is not None and (c in symbolic or len(values) <= 16):
                channels.append({"name": s.names[c], "values": [_plain(v) for v in values.tolist()]})
            else:
                low, high = float(np.nanmin(s.raw[:, c])), float(np.nanmax(s.raw[:, c]))
                channels.append({"name": s.names[c], "range": [_outward(low, -1), _outward(high, 1)]})
        return channels


def _cases(variable: str, values: list[str], results: list[str]) -> str:
    """A table as an expression, the last value being all others; runs of one result are not repeated."""
    if len(set(results)) == 1:
        return results[0]
    most = max(set(results), key=results.count)
    text = most
    for value, result in zip(reversed(values), reversed(results), strict=True):
        if result != most:
            text = f"where({variable} == {value}, {result}, {text})"
    return text


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


def _outward(value: float, side: int) -> float:
    """To three digits, on the far side of what was seen."""
    short = to_digits(value, 3) if value else 0.0
    step = 10.0 ** (np.floor(np.log10(abs(value))) - 2) if value else 0.0
    return short if (short - value) * side >= 0 else to_digits(short + side * step, 3)
