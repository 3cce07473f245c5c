"""Sweeps and stored runs as tables for the terminal."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from memloci.core.numbers import number
from memloci.core.specs import shorten
from memloci.sweeps.grid import Impossible
from memloci.sweeps.runs import Runs
from memloci.sweeps.start import Forecast
from memloci.views.terminal.tasks import plain_table
from memloci.views.text.sizes import duration

MEASURES = ("err_sup", "err_mean_square", "steps", "seconds")
MAX_COLUMNS = 8  # of settings; a terminal is not wider


def forecast_text(forecast: Forecast) -> Any:
    time = "unknown" if forecast.seconds is None else f"about {duration(forecast.seconds)}"
    lines = [
        f"{forecast.name}: {forecast.runs:,} runs, {forecast.finished:,} of them finished already",
        f"to do: {forecast.waiting:,} runs, {forecast.programs:,} compilations",
        f"time:  {time} (from {forecast.basis})" if forecast.waiting else "time:  none",
    ]
    return Group(Text("\n".join(lines)), impossible_text(forecast.impossible))


def impossible_text(impossible: Sequence[Impossible]) -> Any:
    if not impossible:
        return Text("")
    total = sum(each.count for each in impossible)
    lines = [f"impossible, left out: {total:,}"]
    for each in impossible:
        lines.append(f"  {each.count:,}: {each.reason} (as with {shorten(each.example, 120)})")
    return Text("\n".join(lines))


def failures(runs: Runs) -> dict[str, int]:
    """Why runs failed, and how many."""
    return dict(Counter(row["error"] for row in runs if row["status"] == "failed").most_common())


def noted(runs: Runs) -> dict[str, int]:
    """What is to be known of runs that did not fail, and of how many."""
    return dict(Counter(row["note"] for row in runs if row.get("note")).most_common())


def sweep_text(name: str, runs: Runs, impossible: Sequence[Impossible]) -> Any:
    counts = runs.counts()
    line = f"{name}: {len(runs):,} runs, {counts['done']:,} done"
    line += "".join(f", {counts[s]:,} {s}" for s in ("diverged", "failed", "running", "waiting") if counts[s])
    lines = [line, *(f"  {count:,} failed: {reason}" for reason, count in failures(runs).items())]
    lines += [f"  {count:,} {note}" for note, count in noted(runs).items()]
    return Group(Text("\n".join(lines)), impossible_text(impossible))


def runs_table(runs: Runs, limit: int) -> Any:
    """A line for every run: the settings in which they differ, and what came out."""
    settings = runs.varying()
    shown, hidden = settings[:MAX_COLUMNS], settings[MAX_COLUMNS:]
    table = plain_table()
    for name in ("key", "status", *map(_heading, shown), *MEASURES):
        table.add_column(name, justify="right" if name in MEASURES else "left", no_wrap=True)
    for row in runs[:limit]:
        cells = [cell(row.get(name)) for name in (*shown, *MEASURES)]
        table.add_row(row["key"][:8], row["status"], *map(Text, cells))
    notes = [f"{len(runs) - limit:,} more; --limit shows them"] if len(runs) > limit else []
    notes += [f"they also differ in {', '.join(hidden)}"] if hidden else []
    notes += [f"{count:,} failed: {reason}" for reason, count in failures(runs).items()]
    notes += [f"{count:,} {note}" for note, count in noted(runs).items()]
    return Group(table, Text("\n".join(notes)))


def comparison_table(lines: Sequence[Mapping[str, Any]], by: Sequence[str], measure: str) -> Any:
    table = plain_table(measure)
    for name in by:
        table.add_column(_heading(name))
    for name in ("runs", "diverged", "failed", "median", "mean", "95 % of the mean"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        interval = "-" if line["low"] is None else f"{cell(line['low'])} .. {cell(line['high'])}"
        counts = [str(line[name]) for name in ("runs", "diverged", "failed")]
        values = [cell(line[name]) for name in ("median", "mean")]
        table.add_row(*(Text(cell(line[name])) for name in by), *counts, *values, interval)
    also = sorted({name for line in lines for name in line["also"]})
    note = f"not only seeds: runs of a line also differ in {', '.join(also)}" if also else ""
    return Group(table, Text(note))


def _heading(name: str) -> str:
    """Room is short: architecture.heads is heads."""
    return name.rpartition(".")[2]


def cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case float():
            return number(value)
        case str():
            return shorten(value, 40).strip("'")
        case _:
            return json.dumps(value)
