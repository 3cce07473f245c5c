"""Errors over the settings of a sweep, its courses, and how its runs ended. All of it is observed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy

from memloci.core.numbers import number
from memloci.views.figures.drawing import BLUE, GREEN, MOST_SERIES, SERIES, SOFT, WIDTH, plain_text, svg_of
from memloci.views.figures.training import (
    LINES,
    MARKS,
    History,
    fill_band,
    log_if_possible,
    over_steps,
    step_axis,
)


@dataclass(frozen=True)
class Line:
    """Errors over the values of a setting: those of every run at each of them."""

    label: str
    at: dict[Any, list[float]]


def setting_figure(
    name: str, field: str, lines: Sequence[Line], what: str, tolerance: float | None, legend: str
) -> str:
    """A number over one setting, a line per value of another."""
    return svg_of(name, 3.2, lambda f: _setting(f.subplots(), field, lines, what, tolerance, legend))


def _setting(
    axes: Axes, field: str, lines: Sequence[Line], what: str, tolerance: float | None, legend: str
) -> None:
    values = _ordered({value for line in lines for value in line.at})
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    place = {value: float(value) if numeric else float(k) for k, value in enumerate(values)}
    several, shown = len(lines) > 1, list[float]()
    for k, line in enumerate(lines[:MOST_SERIES]):
        at = [value for value in values if line.at.get(value)]
        x = [place[value] for value in at]
        low, high = [min(line.at[value]) for value in at], [max(line.at[value]) for value in at]
        shown += low + high
        # Side by side, so that bars do not hide each other.
        aside = offset_copy(
            axes.transData, axes.get_figure(root=True), x=4.0 * (k - (len(lines) - 1) / 2), units="points"
        )
        axes.vlines(x, low, high, color=SERIES[k], alpha=0.35, linewidth=3, transform=aside)
        axes.plot(
            x,
            [float(np.median(line.at[value])) for value in at],
            color=SERIES[k],
            marker=MARKS[k],
            markersize=6,
            markerfacecolor="none",
            linestyle=LINES[k] if numeric else "none",
            label=plain_text(line.label) if several else None,
            transform=aside,
        )
    if tolerance is not None:
        axes.axhline(
            tolerance, color=SOFT, linestyle=":", linewidth=1.4, label=f"tolerance {number(tolerance)}"
        )
    _setting_axis(axes, values, place, numeric)
    axes.set_xlabel(plain_text(field))
    axes.set_ylabel(what)
    log_if_possible(axes, shown)
    if several or tolerance is not None:
        axes.legend(loc="best", title=plain_text(legend) if several else None, title_fontsize=8)


def _setting_axis(axes: Axes, values: Sequence[Any], positions: Mapping[Any, float], numeric: bool) -> None:
    low, high = min(positions.values()), max(positions.values())
    if numeric and low > 0 and high >= 8 * low:
        axes.set_xscale("log")
        room = (high / low) ** 0.08
        axes.set_xlim(low / room, high * room)
    else:
        room = 0.5 if not numeric else 0.08 * (high - low) or 0.5
        axes.set_xlim(low - room, high + room)
    shown = values[:: 1 + len(values) // 9]
    text = lambda value: number(float(value)) if numeric else plain_text(_cut(value))
    axes.set_xticks([positions[value] for value in shown], [text(value) for value in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def _ordered(values: set[Any]) -> list[Any]:
    return sorted(
        values, key=lambda value: (isinstance(value, str), str(type(value)) * isinstance(value, str), value)
    )


def _cut(value: Any, most: int = 18) -> str:
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def courses_figure(groups: Sequence[tuple[str, Sequence[History]]], unit: str) -> str:
    """The held-out loss of several groups of runs, each a median with its range."""
    return svg_of("courses", 3.4, lambda f: _courses(f.subplots(), groups, unit), width=1.4 * WIDTH)


def _courses(axes: Axes, groups: Sequence[tuple[str, Sequence[History]]], unit: str) -> None:
    for (label, histories), color, line in zip(groups, SERIES, LINES, strict=False):
        band = over_steps(histories, "held_out")
        if not len(band.x):
            continue
        fill_band(axes, band, color)
        axes.plot(band.x, band.median, color=color, linestyle=line, linewidth=1.6, label=plain_text(label))
    step_axis(axes, f"held-out loss, {unit}")


def counts_figure(counts: Mapping[str, int]) -> str:
    """How many runs ended how."""
    return svg_of("counts", 0.7 + 0.28 * len(counts), lambda f: _counts(f.subplots(), counts))


def _counts(axes: Axes, counts: Mapping[str, int]) -> None:
    names = list(counts)
    y = np.arange(len(names))[::-1]
    for k, name in zip(y, names, strict=True):
        color = GREEN if name == "learned" else BLUE
        axes.barh(k, counts[name], color=color, height=0.6)
        axes.annotate(f" {counts[name]:,}", (counts[name], float(k)), va="center", fontsize=8)
    axes.set_yticks(y, [plain_text(name) for name in names])
    axes.set_xlim(0, max(counts.values()) * 1.12)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(False, axis="y")
    axes.set_xlabel("runs")
