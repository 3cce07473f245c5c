"""What a page shows of a sweep: which settings vary, groups of runs, and why runs did not learn.

A group is all runs that differ in their seed only. Failures are diagnosed once for each group, since what is wrong with a
configuration is wrong with every seed; the searches that take seconds stop when they have taken long enough, and reasons
that need them are then left open.
"""

import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memloci.sweeps.runs import SEED
from memloci.train.diagnose import diagnose
from memloci.train.diagnosis import Diagnosis
from memloci.train.record import RunRecord, record_from_dict
from memloci.train.spec import DATA_KINDS, Run

SEARCH_SECONDS = 30.0  # tuned: for reasons that must be searched for


@dataclass(frozen=True)
class SweptRun:
    """One run of the sweep, with its settings laid flat."""

    config: dict[str, Any]
    settings: dict[str, Any]
    record: RunRecord | None  # None: it failed, or has not run
    history: Mapping[str, Sequence[Any]] | None
    trouble: str  # why there is no record

    @property
    def diverged(self) -> bool:
        return self.record is not None and self.record.diverged

    @property
    def learned(self) -> bool:
        error = self.value("err_sup")
        return error is not None and error <= self.settings["training.tolerance"]

    @property
    def group(self) -> str:
        """The same for runs that differ in their seed only."""
        return json.dumps({k: v for k, v in self.settings.items() if k != SEED}, sort_keys=True)

    def value(self, name: str) -> float | None:
        """A number of the record; `root` is the root of the mean square."""
        if self.record is None or self.diverged:
            return None
        if name == "root":
            square = self.record.err_mean_square
            return None if square is None else math.sqrt(square)
        return self.record.get(name)


@dataclass(frozen=True)
class Measure:
    """What is compared: the name in a record, and in words."""

    name: str
    text: str


@dataclass(frozen=True)
class Spread:
    """A number over runs."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only."""

    settings: dict[str, Any]
    runs: int
    learned: int
    spreads: tuple[Spread | None, ...]  # of every measure; None where no run has a number
    reasons: dict[str, int]  # diagnosis -> runs, the most frequent first


@dataclass(frozen=True)
class SweepSummary:
    name: str
    entries: tuple[SweptRun, ...]
    fields: tuple[str, ...]  # the settings that vary, numbers first
    measures: tuple[Measure, ...]
    reasons: tuple[Diagnosis | None, ...]  # of every entry
    groups: tuple[Group, ...]  # the best first
    spread: Spread | None  # of the first measure, over all runs
    seconds: float  # of training

    @property
    def data(self) -> bool:
        """Runs on a user's data: there is no target, so nothing counts as learned."""
        return all((entry.config.get("task") or {}).get("kind") in DATA_KINDS for entry in self.entries)

    @property
    def counts(self) -> dict[str, int]:
        """Diagnosis -> runs; what was learned first, then the most frequent."""
        counts = _counts(self.reasons)
        return dict(sorted(counts.items(), key=lambda pair: (pair[0] != "learned", -pair[1], pair[0])))


def summary(name: str, runs: Iterable[Mapping[str, Any]]) -> SweepSummary:
    """Of runs as a store gives them: {"config": ..., "record": ..., "history": ..., "error": ...}."""
    entries = [_entry(run) for run in runs]
    fields, measures = varying(entries), _measures(entries)
    reasons = _reasons(entries)
    return SweepSummary(
        name,
        tuple(entries),
        tuple(fields),
        tuple(measures),
        tuple(reasons),
        tuple(_groups(entries, reasons, measures)),
        _spread(entries, measures[0]),
        sum(entry.record.seconds or 0.0 for entry in entries if entry.record is not None),
    )


def _entry(run: Mapping[str, Any]) -> SweptRun:
    config = dict(run["config"])
    record, history = run.get("record"), run.get("history")
    trouble = str(run.get("error") or ("" if record else "no result yet"))
    return SweptRun(
        config, _flat(config), record_from_dict(record) if record else None, history or None, trouble
    )


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """`architecture.heads` and the like; lists and the like become text."""
    flat: dict[str, Any] = {}
    for table in ("task", "architecture", "training"):
        for key, value in (config.get(table) or {}).items():
            plain = isinstance(value, str | int | float | bool) or value is None
            flat[f"{table}.{key}"] = value if plain else json.dumps(value, ensure_ascii=False)
    return flat


def varying(entries: Sequence[SweptRun]) -> list[str]:
    """The settings that differ between runs, seeds aside; a task that differs in many ways is one setting."""
    names = list(dict.fromkeys(name for entry in entries for name in entry.settings))
    differs = lambda name: len({repr(entry.settings.get(name)) for entry in entries}) > 1
    differing = [name for name in names if name != SEED and differs(name)]
    of_task = [name for name in differing if name.startswith("task.")]
    if len(of_task) > 1:
        for entry in entries:
            entry.settings["task"] = _task_name(entry)
        differing = ["task", *(name for name in differing if name not in of_task)]
        of_task = ["task"]
    if of_task and "training.length" in differing:  # the default length follows from the task
        pairs = {(entry.settings[of_task[0]], entry.settings["training.length"]) for entry in entries}
        if len(pairs) == len({task for task, _ in pairs}):
            differing.remove("training.length")
    return sorted(differing, key=lambda name: (not _is_number(entries, name), differing.index(name)))


def _task_name(entry: SweptRun) -> str:
    task = entry.config.get("task") or {}
    rest = {key: value for key, value in task.items() if key not in ("description", "channels")}
    return str(task.get("description") or json.dumps(rest, ensure_ascii=False))


def _is_number(entries: Sequence[SweptRun], name: str) -> bool:
    values = [entry.settings.get(name) for entry in entries]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _measures(entries: Sequence[SweptRun]) -> list[Measure]:
    if any(entry.record and "bits_per_byte" in entry.record for entry in entries):
        return [Measure("bits_per_byte", "held-out bits per byte")]
    if any(entry.record and "err_sup" in entry.record for entry in entries):
        return [Measure("err_sup", "largest error seen"), Measure("root", "root mean square error")]
    return [Measure("held_out", "held-out loss")]


def _reasons(entries: Sequence[SweptRun]) -> list[Diagnosis | None]:
    """One search per group: what is wrong with a configuration is wrong with every seed."""
    began, known = time.monotonic(), dict[str, Diagnosis]()
    reasons: list[Diagnosis | None] = []
    for entry in entries:
        if entry.record is None:
            reasons.append(None)
        elif entry.learned or entry.diverged or entry.group not in known:
            thorough = time.monotonic() - began < SEARCH_SECONDS
            one = diagnose(Run(**entry.config), entry.record, thorough=thorough)
            if not entry.learned and not entry.diverged:
                known[entry.group] = one
            reasons.append(one)
        else:
            reasons.append(known[entry.group])
    return reasons


def _groups(
    entries: Sequence[SweptRun], reasons: Sequence[Diagnosis | None], measures: Sequence[Measure]
) -> list[Group]:
    """The best first, by the median of the first measure."""
    grouped: dict[str, list[int]] = {}
    for k, entry in enumerate(entries):
        grouped.setdefault(entry.group, []).append(k)
    groups = []
    for members in grouped.values():
        entries_of = [entries[k] for k in members]
        groups.append(
            Group(
                entries_of[0].settings,
                len(entries_of),
                sum(entry.learned for entry in entries_of),
                tuple(_spread(entries_of, measure) for measure in measures),
                dict(_counts(reasons[k] for k in members).most_common()),
            )
        )
    return sorted(groups, key=lambda group: group.spreads[0].median if group.spreads[0] else math.inf)


def _spread(entries: Sequence[SweptRun], measure: Measure) -> Spread | None:
    values = [value for entry in entries if (value := entry.value(measure.name)) is not None]
    return Spread(float(statistics.median(values)), min(values), max(values)) if values else None


def _counts(reasons: Iterable[Diagnosis | None]) -> Counter[str]:
    return Counter("no result" if one is None else one.name for one in reasons)
