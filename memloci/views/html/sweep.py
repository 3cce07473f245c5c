"""The report of a sweep: errors over the settings that vary, and how the runs ended.

Figures show the median over the runs that have a value, with their range; a table has every group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memloci.core.numbers import literal
from memloci.sweeps.runs import SEED
from memloci.views.figures.drawing import MOST_SERIES
from memloci.views.figures.sweep import Line, counts_figure, courses_figure, setting_figure
from memloci.views.html.parts import Cell, Code, Figure, Table
from memloci.views.html.render import render

if TYPE_CHECKING:
    from memloci.sweeps.summary import Group, Measure, SweepSummary, SweptRun

MOST_FIELDS = 6  # with a figure of their own
MOST_ROWS = 200  # of a table
MOST_LISTED = 50  # runs without a result


@dataclass(frozen=True)
class Over:
    """Each measure over one setting."""

    title: Cell
    figures: list[Figure]
    note: str


@dataclass(frozen=True)
class SweepReason:
    """A diagnosis, with the sentence of one run as an example; numbers differ between groups."""

    title: str
    runs: int
    sentence: str


@dataclass(frozen=True)
class SweepPage:
    title: str
    sweep: SweepSummary
    tiles: dict[str, Cell]
    counts: Figure | None
    over: list[Over]
    courses: Figure | None
    groups: Table
    reasons: list[SweepReason]
    without_result: Table  # runs that diverged, failed, or have not run
    unlisted: int


def sweep_html(sweep: SweepSummary) -> str:
    """The page about a sweep."""
    without_result = [entry for entry in sweep.entries if entry.diverged or entry.record is None]
    page = SweepPage(
        sweep.name,
        sweep,
        _tiles(sweep),
        _counts(sweep),
        [_over(sweep, k) for k in range(min(len(sweep.fields), MOST_FIELDS))],
        _courses(sweep),
        _groups(sweep),
        _reasons(sweep),
        _without_result(sweep, without_result[:MOST_LISTED]),
        max(0, len(without_result) - MOST_LISTED),
    )
    return render("sweep.html", page)


def short(name: str) -> str:
    """`architecture.heads` is known as heads; a setting of a task keeps its first word."""
    return name if name.startswith("task") else name.rpartition(".")[2]


def _tiles(sweep: SweepSummary) -> dict[str, Cell]:
    entries, measure = sweep.entries, sweep.measures[0].text
    return {
        "runs": len(entries),
        "groups": len(sweep.groups),
        "learned": None if sweep.data else sum(entry.learned for entry in entries),
        "diverged": sum(entry.diverged for entry in entries),
        "without a result": sum(entry.record is None for entry in entries),
        f"least {measure}": sweep.spread and sweep.spread.low,
        f"median {measure}": sweep.spread and sweep.spread.median,
        "seconds of training": round(float(sweep.seconds), 1),
    }


def _counts(sweep: SweepSummary) -> Figure | None:
    if not sweep.counts:
        return None
    caption = (
        "The reason of each run that did not learn is that of its group; below they are told in sentences."
    )
    return Figure(counts_figure(sweep.counts), "Runs by diagnosis", caption)


# -- figures ----------------------------------------------------------------------------------------------


def _over(sweep: SweepSummary, k: int) -> Over:
    """Each measure over one setting, a line per value of the next one."""
    entries, fields, field = sweep.entries, sweep.fields, sweep.fields[k]
    other = _next_field(entries, fields, k)
    tolerances = {entry.settings.get("training.tolerance") for entry in entries}
    figures = []
    for measure in sweep.measures:
        lines = _lines(entries, field, other, measure)
        (tolerance,) = tolerances if measure.name == "err_sup" and len(tolerances) == 1 else (None,)
        name, legend = f"over-{k}-{measure.name}", short(other or "")
        svg = setting_figure(name, short(field), lines, measure.text, tolerance, legend)
        figures.append(Figure(svg, f"{measure.text} over {field}"))
    missing = sum(entry.value(sweep.measures[0].name) is None for entry in entries)
    rest = [name for name in fields if name not in (field, other)]
    parts = ["Points are medians; bars reach from the least to the largest run."]
    if rest:
        parts.append(f"{', '.join(map(short, rest))} as they come.")
    if missing:
        parts.append(f"{missing:,} runs have no number here: they diverged, or have no result.")
    return Over(("Error over ", Code(field)), figures, " ".join(parts))


def _next_field(entries: Sequence[SweptRun], fields: Sequence[str], k: int) -> str | None:
    """The next setting with few enough values for a line each."""
    for name in [*fields[k + 1 :], *fields[:k]]:
        if 1 < len({repr(entry.settings.get(name)) for entry in entries}) <= MOST_SERIES:
            return name
    return None


def _lines(entries: Sequence[SweptRun], field: str, other: str | None, measure: Measure) -> list[Line]:
    points: dict[Any, dict[Any, list[float]]] = {}
    for entry in entries:
        value = entry.value(measure.name)
        if value is not None:
            line = entry.settings.get(other) if other else ""
            at = _axis_value(entry.settings.get(field))
            points.setdefault(line, {}).setdefault(at, []).append(value)
    ordered = sorted(points, key=lambda value: (str(type(value)), value if value is not None else 0))
    return [Line(_label(value), points[value]) for value in ordered]


def _axis_value(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else _label(value)


def _label(value: Any) -> str:
    text = "none" if value is None else f"{literal(value)}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _courses(sweep: SweepSummary) -> Figure | None:
    """The held-out loss over steps, for the values of the first setting that has few."""
    with_history = [entry for entry in sweep.entries if entry.history and entry.history.get("step")]
    if not with_history:
        return None
    field = sweep.fields[0] if sweep.fields else None
    groups: dict[Any, list[Any]] = {}
    for entry in with_history:
        value = _axis_value(entry.settings.get(field)) if field else "all runs"
        groups.setdefault(value, []).append(entry.history)
    ordered = sorted(groups, key=lambda value: (str(type(value)), value))
    if len(ordered) > MOST_SERIES:  # some of them, evenly
        ordered = [ordered[k] for k in np.linspace(0, len(ordered) - 1, MOST_SERIES).astype(int)]
    shown = [
        (f"{short(field)} = {_label(value)}" if field else _label(value), groups[value]) for value in ordered
    ]
    losses = {str(entry.settings.get("training.loss")) for entry in sweep.entries}
    caption = "Medians over all runs with that value; bands reach from the least to the largest of them."
    svg = courses_figure(shown, ", ".join(sorted(losses)))
    return Figure(svg, "Held-out loss over steps", caption, broad=True)


# -- tables -----------------------------------------------------------------------------------------------


def _groups(sweep: SweepSummary) -> Table:
    """A row per group, the best first."""
    measures = [f"{measure.text}: median (range)" for measure in sweep.measures]
    heads = [*map(short, sweep.fields), "runs", "learned", *measures, "diagnosis"]
    rows = [_group_row(group, sweep.fields) for group in sweep.groups[:MOST_ROWS]]
    numeric = range(len(sweep.fields), len(heads) - 1)
    return Table(heads, rows, numeric, [len(heads) - 1], 0 if len(sweep.groups) > 1 else None)


def _group_row(group: Group, fields: Sequence[str]) -> list[Cell]:
    spreads = [s and (s.median, " (", s.low, " to ", s.high, ")") for s in group.spreads]
    several = len(group.reasons) > 1
    names = [f"{name} ({count})" if several else name for name, count in group.reasons.items()]
    settings = [_label(group.settings.get(name)) for name in fields]
    return [*settings, group.runs, group.learned, *spreads, ", ".join(names)]


def _reasons(sweep: SweepSummary) -> list[SweepReason]:
    known = [one for one in sweep.reasons if one is not None]
    counts, first = Counter(one.name for one in known), {one.name: one for one in reversed(known)}
    title = lambda name: name[:1].upper() + name[1:]
    return [SweepReason(title(name), count, first[name].sentence) for name, count in counts.items()]


def _without_result(sweep: SweepSummary, entries: Sequence[SweptRun]) -> Table:
    heads = [*map(short, sweep.fields), "seed", "what happened"]
    rows = []
    for entry in entries:
        what = entry.trouble
        if entry.record is not None:
            what = str(entry.record.stopped or "the loss was no number")
        rows.append([*(_label(entry.settings.get(name)) for name in (*sweep.fields, SEED)), what])
    return Table(heads, rows, wordy=[len(heads) - 1])
