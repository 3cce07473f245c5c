"""What was found in data: memories with effects and p-values, the share that they explain, and a task.

The JSON of `memloci detect` is `Detection.to_dict`; its keys are fixed. Everything here was learnt from data: nothing is proved.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.numbers import decimals, number, percent
from memloci.tasks.load import task_from_dict
from memloci.tasks.task import Task

KINDS = ("none", "fixed", "adaptive", "essential", "matched", "mixed", "outside")


@dataclass(frozen=True)
class DetectedMemory:
    """One memory: exactly one of lag, lag_table, kernel and match is given."""

    channels: tuple[str, ...]  # whose values are used
    effect: float  # the share of the target's variance that is lost without it
    p_value: float | None  # corrected for all candidates
    lag: int | None = None
    lag_table: dict[str, Any] | None = None  # symbol -> lag; of a second level, symbol -> symbol -> lag
    reads: str | None = None  # the channel whose symbols choose the lag
    kernel: str | None = None
    match: str | None = None
    offset: int | None = None

    def to_dict(self) -> dict[str, Any]:
        given = {
            "lag": self.lag,
            "lag_table": self.lag_table,
            "reads": self.reads,
            "kernel": self.kernel,
            "match": self.match,
            "offset": self.offset,
        }
        rest = {"channels": list(self.channels), "effect": self.effect, "p_value": self.p_value}
        return {key: value for key, value in given.items() if value is not None} | rest

    @property
    def text(self) -> str:
        if self.lag is not None:
            return f"lag {self.lag:,}"
        if self.lag_table is not None:
            return f"lag by {self.reads}: {_table_text(self.lag_table)}"
        if self.kernel is not None:
            return f"kernel {self.kernel}"
        return f"match {self.match}, offset {self.offset}"


def _table_text(table: dict[str, Any]) -> str:
    parts = [f"{k} -> {'(' + _table_text(v) + ')' if isinstance(v, dict) else v}" for k, v in table.items()]
    return ", ".join(parts[:8]) + (", ..." if len(parts) > 8 else "")


@dataclass(frozen=True)
class Explained:
    """Held-out shares of the variance: of the memories, of the reference, and the first as a share of the second."""

    share: float | None
    interval: tuple[float, float] | None
    r2: float
    reference_r2: float | None

    def to_dict(self) -> dict[str, Any]:
        interval = None if self.interval is None else list(self.interval)
        return {"share": self.share, "interval": interval, "r2": self.r2, "reference_r2": self.reference_r2}


@dataclass(frozen=True)
class Tail:
    kind: str = "none"  # exponential, power, none
    rate: float | None = None
    interval: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        interval = None if self.interval is None else list(self.interval)
        return {"kind": self.kind, "rate": self.rate, "interval": interval}


@dataclass(frozen=True)
class DetectedPeriod:
    period: int
    share: float
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        return {"period": self.period, "share": self.share, "p_value": self.p_value}


@dataclass(frozen=True)
class LagCorrelation:
    """The correlation of the target with a channel at each lag, and half the width of its 95 % interval."""

    channel: str
    lags: tuple[int, ...]
    values: tuple[float, ...]
    half_widths: tuple[float, ...]


@dataclass(frozen=True)
class Candidate:
    """A class of memory that was tried, with what it explains out of fold; None where nothing was significant."""

    kind: str
    memories: int
    r2: float | None


@dataclass(frozen=True)
class Detection:
    """What `ml.detect` returns."""

    kind: str
    memories: tuple[DetectedMemory, ...]
    fdr: float
    explained: Explained
    tail: Tail
    periods: tuple[DetectedPeriod, ...]
    notes: tuple[str, ...]
    seconds: float
    steps: int
    target: str
    max_lag: int
    task_data: dict[str, Any] | None  # what task.toml says
    candidates: tuple[Candidate, ...] = ()
    influence: tuple[LagCorrelation, ...] = ()
    residual: tuple[LagCorrelation, ...] = ()
    task_file: str | None = None
    render: "Callable[[Detection], str] | None" = field(default=None, repr=False, compare=False)

    @property
    def lags(self) -> tuple[int, ...]:
        """The fixed lags, in order."""
        return tuple(sorted(m.lag for m in self.memories if m.lag is not None))

    @cached_property
    def task(self) -> Task | None:
        """The task that was found; None where there is none to write down."""
        if self.task_data is None:
            return None
        try:
            return task_from_dict(self.task_data)
        except BadInput:
            return None

    @property
    def report(self) -> str:
        """The findings in a few lines."""
        lines = [f"{self.kind}: {self.headline}"]
        lines += [f"  {m.text} of {', '.join(m.channels)}: effect {number(m.effect)}" for m in self.memories]
        if self.periods:
            lines.append(f"periods: {', '.join(str(p.period) for p in self.periods)}")
        return "\n".join([*lines, *self.notes])

    @property
    def headline(self) -> str:
        """One sentence about what is explained."""
        e = self.explained
        text = f"the memories explain {percent(max(e.r2, 0.0))} of the variance on held-out steps"
        if e.reference_r2 is None:
            return text
        return f"{text}, the reference {percent(max(e.reference_r2, 0.0))}"

    def __str__(self) -> str:
        return f"{self.report}\n({decimals(self.seconds, 1)} s, false discovery rate {number(self.fdr)})"

    def _repr_html_(self) -> str | None:
        return None if self.render is None else self.render(self)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "lags": list(self.lags),
            "memories": [m.to_dict() for m in self.memories],
            "fdr": self.fdr,
            "explained": self.explained.to_dict(),
            "tail": self.tail.to_dict(),
            "periods": [p.to_dict() for p in self.periods],
            "task_file": self.task_file,
            "task": self.task_data,
            "notes": list(self.notes),
            "seconds": self.seconds,
            "steps": self.steps,
            "target": self.target,
            "max_lag": self.max_lag,
        }
