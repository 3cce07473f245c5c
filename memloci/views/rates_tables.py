"""Error against a size, as cells: for the terminal and for the page."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from memloci.core.numbers import decimals, lower_number, number
from memloci.core.proved import Proved
from memloci.study.claim import Panel
from memloci.study.rates import RatesFinding
from memloci.study.rates_curves import MEASURES, Slope, over_seeds
from memloci.views.tables import plain_table

DASH = "–"
KINDS = {
    "certified": "proved",
    "measured": "observed",
    "bound": "proved floor",
    "paper": "slope only",
    "trained": "",
}

Cells = tuple[list[str], list[list[str]]]  # heads and rows


def panel_cells(panel: Panel) -> Cells:
    """A row for every curve, a column for every x; what was trained has its interval below."""
    xs = sorted({x for series in panel.series for x in series.x})
    rows = []
    for series in panel.series:
        at = dict(zip(series.x, series.values, strict=True))
        values = [at.get(x, ()) for x in xs]
        text, *ends = _texts(series.kind)
        rows.append([curve_name(series.name, series.kind), *map(text, values)])
        if any(len(own) > 1 for own in values):
            names = ("trained, 95 % from", "trained, 95 % to")
            rows += [[name, *map(end, values)] for name, end in zip(names, ends, strict=True)]
    rows += [[text, *[lower_number(value)] * len(xs)] for text, value in panel.marks]
    return [panel.x, *(f"{x:,}" for x in xs)], rows


def curve_name(name: str, kind: str) -> str:
    return f"{name} ({KINDS[kind]})" if KINDS[kind] else name


def _texts(kind: str) -> list[Callable[[Sequence[float]], str]]:
    """Bounds are rounded so that they stay bounds; seeds are a mean and the ends of its interval."""
    told = lambda value: DASH if value is None else number(value)
    match kind:
        case "certified":
            return [lambda values: number(Proved(values[0])) if values else DASH]
        case "bound":
            return [lambda values: lower_number(values[0]) if values else DASH]
        case "trained":
            return [
                lambda values: told(over_seeds(values).value),
                lambda values: told(over_seeds(values).low),
                lambda values: told(over_seeds(values).high),
            ]
        case _:
            return [lambda values: number(values[0]) if values else DASH]


def slope_cells(finding: RatesFinding) -> Cells:
    """A row for every slope."""
    rows = [
        [curve_name(slope.curve, slope.kind), MEASURES[slope.measure], *_slope_text(slope)]
        for slope in finding.slopes
        if slope.estimate.value is not None
    ]
    return [f"slope in {power_of(finding)}", "of the", "slope", "95 % interval", "from", "to"], rows


def power_of(finding: RatesFinding) -> str:
    return "2^bits" if finding.vary == "bits" else finding.vary


def _slope_text(slope: Slope) -> list[str]:
    """-3.16, [-4.77, -1.56], 2, 16"""
    found = slope.estimate
    interval = DASH
    if found.low is not None and found.high is not None:
        interval = f"[{decimals(found.low, 2)}, {decimals(found.high, 2)}]"
    value = DASH if found.value is None else decimals(found.value, 2)
    return [value, interval, f"{slope.first:,}", f"{slope.last:,}"]


def rates_text(finding: RatesFinding) -> Any:
    """All of it for the terminal."""
    parts: list[Any] = [_table(panel.title, *panel_cells(panel)) for panel in finding.panels]
    heads, rows = slope_cells(finding)
    parts += [_table(None, heads, rows)] if rows else []
    told = [f"paper: {finding.paper}"] if finding.paper else []
    told += [f"{name}: {says}" for name, says in finding.floors.items()]
    return Group(*parts, Text("\n".join([*told, *finding.notes])))


def _table(title: str | None, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    table = plain_table(title)
    for k, head in enumerate(heads):
        table.add_column(head, justify="right" if k else "left", no_wrap=k > 0)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
