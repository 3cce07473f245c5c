"""The numbers of figures, as CSV files."""

import csv
import io
from collections.abc import Sequence

from memloci.study.claim import VerdictGrid
from memloci.study.panel import Panel
from memloci.study.statistics import Part

PART_COLUMNS = ("part", "effect", "low", "high", "side", "margin", "unit", "rests_on")


def panel_csv(panel: Panel) -> bytes:
    """A row for every value; where an x has none, a row without a value says so."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["panel", "series", "kind", "x", "seed_index", "value"])
    for series in panel.series:
        for x, values in zip(series.x, series.values, strict=True):
            named = [panel.title, series.name, series.kind, x]
            rows.writerows(
                [*named, k, "" if value is None else repr(value)] for k, value in enumerate(values)
            )
            if not values:
                rows.writerow([*named, "", ""])
    rows.writerows([panel.title, name, "line", "", "", repr(value)] for name, value in panel.marks)
    return out.getvalue().encode()


def effects_csv(parts: Sequence[Part]) -> bytes:
    """A row for every part."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow([*PART_COLUMNS, "verdict"])
    rows.writerows([*part_cells(part), part.verdict] for part in parts)
    return out.getvalue().encode()


def grid_csv(grid: VerdictGrid) -> bytes:
    """A row for every case, with the part that decided it."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["claim", "change", "verdict", *PART_COLUMNS])
    for claim, cases in zip(grid.rows, grid.cases, strict=True):
        for change, case in zip(grid.columns, cases, strict=True):
            rows.writerow([claim, change, case.verdict, *part_cells(case.part)])
    return out.getvalue().encode()


def part_cells(part: Part | None) -> list[str]:
    if part is None:
        return [""] * len(PART_COLUMNS)
    cell = lambda value: "" if value is None else repr(value)
    ends = map(cell, (part.effect.value, part.effect.low, part.effect.high))
    return [part.statement, *ends, part.side, repr(part.margin), part.unit, part.rests_on]
