"""Error against a size, as cells: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memloci.core.numbers import decimals, lower_number, number, upper_number
from memloci.study.panel import Curve, Panel

if TYPE_CHECKING:
    from memloci.study.rates import RatesFinding
    from memloci.study.rates_curves import Slope

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
        name = curve_name(series.name, series.kind)
        if series.kind != "trained":
            at = dict(zip(series.x, map(_value(series), series.values), strict=True))
            rows.append([name, *(at.get(x, DASH) for x in xs)])
            continue
        estimates = series.over_seeds()
        ends = {name: "value"}
        if any(len(of_seeds) > 1 for of_seeds in series.values):
            ends |= {"trained, 95 % from": "low", "trained, 95 % to": "high"}
        estimate_at = lambda x, end, estimates=estimates: (
            getattr(estimates[x], end) if x in estimates else None
        )
        rows += [[text, *(_or_dash(estimate_at(x, end)) for x in xs)] for text, end in ends.items()]
    rows += [[text, *[lower_number(value)] * len(xs)] for text, value in panel.marks]
    return [panel.x, *(f"{x:,}" for x in xs)], rows


def curve_name(name: str, kind: str) -> str:
    return f"{name} ({KINDS[kind]})" if KINDS[kind] else name


def _value(series: Curve) -> Callable[[Sequence[float]], str]:
    """Of a single number, rounded so that a bound stays one."""
    text = {"certified": upper_number, "bound": lower_number}.get(series.kind, number)
    return lambda values: text(values[0]) if values else DASH


def _or_dash(value: float | None) -> str:
    return DASH if value is None else number(value)


def slope_cells(finding: RatesFinding) -> Cells:
    """A row for every slope."""
    rows = [
        [curve_name(slope.curve, slope.kind), slope.what, *_slope_text(slope)]
        for slope in finding.slopes
        if slope.estimate.value is not None
    ]
    return [f"slope in {power_of(finding)}", "of the", "slope", "95 % interval", "from", "to"], rows


def power_of(finding: RatesFinding) -> str:
    return "2^bits" if finding.vary == "bits" else finding.vary


def _slope_text(slope: Slope) -> list[str]:
    """-3.16, [-4.77, -1.56], 2, 16"""
    estimate = slope.estimate
    interval = DASH
    if estimate.low is not None and estimate.high is not None:
        interval = f"[{decimals(estimate.low, 2)}, {decimals(estimate.high, 2)}]"
    value = DASH if estimate.value is None else decimals(estimate.value, 2)
    return [value, interval, f"{slope.first:,}", f"{slope.last:,}"]
