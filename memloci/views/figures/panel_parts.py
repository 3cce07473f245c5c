"""What curves and rows of dots share: how a series looks, the limits of an axis, the title with the legend."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from memloci.core.numbers import finite, number, to_digits
from memloci.study.panel import Curve, Panel, Spot
from memloci.views.figures.drawing import INK, SERIES, SOFT, WIDTH, decade_ticks, wrapped

COLORS = (*SERIES, INK, "#8c6d46")
MARKS = ("o", "s", "^", "v", "P", "X", "<", ">")  # shapes too, for readers who see no colours
LINES = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)), (0, (4, 1, 1, 1, 1, 1)))
KINDS = {  # what a legend says of a series, unless its name does
    "trained": (),
    "measured": ("observed",),
    "certified": ("proved",),
    "bound": ("floor", "proved"),
    "paper": ("slope only",),
}
BACKGROUND = ("bound", "paper")  # lines that other numbers are held against; they do not set the limits
LETTER = 0.058  # inches, of a legend's letters; about


@dataclass(frozen=True)
class Drawn:
    """A series, ready to be drawn."""

    series: Curve
    label: str
    spots: tuple[Spot, ...]
    color: str
    mark: str
    line: Any

    @property
    def single(self) -> bool:
        """It has a value at one x only, so no line shows it."""
        return sum(spot.centre is not None for spot in self.spots) == 1


def drawn_series(panel: Panel, positions: dict[Any, float]) -> list[Drawn]:
    # The same name has the same colour: what was trained and what is proved of one thing belong together.
    names = list(dict.fromkeys(s.name for s in panel.series if s.kind not in BACKGROUND))
    scattered = is_scattered(panel)
    drawn = []
    for series, series_spots in zip(panel.series, panel.spots, strict=True):
        k = names.index(series.name) % len(COLORS) if series.kind not in BACKGROUND else 0
        color = {"bound": SOFT, "paper": INK}.get(series.kind, COLORS[k])
        spots = sorted((replace(spot, x=positions[spot.x]) for spot in series_spots), key=lambda spot: spot.x)
        line = "none" if scattered else LINES[k]
        drawn.append(Drawn(series, _label(series), tuple(spots), color, MARKS[k], line))
    return drawn


def is_scattered(panel: Panel) -> bool:
    """Every point has an x of its own, which was measured too: a line between two of them would mean nothing."""
    xs = [x for series in panel.series for x in series.x]
    if not all(isinstance(x, int | float) for x in xs) or all(x == round(x) for x in xs):
        return False
    return len(panel.series) > 1 and len(set(xs)) == len(xs)


def in_rows(panel: Panel) -> bool:
    xs = [x for series in panel.series for x in series.x]
    return not all(isinstance(x, int | float) and not isinstance(x, bool) for x in xs)


def _label(series: Curve) -> str:
    name = series.name.lower()
    missing = ", ".join(word for word in KINDS[series.kind] if word.split()[0] not in name)
    return wrapped(f"{series.name} ({missing})" if missing else series.name, 56, 2)


def limits_of(panel: Panel, drawn: Sequence[Drawn]) -> tuple[float, float] | None:
    """Of the values' axis. What is compared sets them; intervals and lines behind may add a little."""
    marks = [v for v in finite(v for _, v in panel.marks) if v > 0 or not panel.log_y]
    # Among words a floor is a number like the others; behind curves it may leave the figure.
    rows = in_rows(panel)
    of = lambda behind: [
        v
        for each in drawn
        if (each.series.kind in BACKGROUND and not rows) == behind
        for spot in each.spots
        for v in spot.seeds
    ]
    core = of(False) + marks or of(True)
    if not core:
        return None
    ends = [v for each in drawn for spot in each.spots for v in (spot.low, spot.high) if v is not None]
    low, high = min(core), max(core)
    if panel.log_y:
        extra = [min(max(v, low / 10), high * 10) for v in [*of(True), *ends]]
        low, high = min([low, *extra]), max([high, *extra])
        room = max((high / low) ** 0.07, 1.15)
        return low / room, high * room
    span = high - low or abs(high) or 1.0
    extra = [min(max(v, low - 0.5 * span), high + 0.5 * span) for v in [*of(True), *ends]]
    low, high = min([low, *extra]), max([high, *extra])
    room = 0.08 * (high - low) or 0.1 * span
    return low - room, high + room


def value_axis(axis: Any, limits: tuple[float, float], log: bool) -> None:
    low, high = limits
    if not log:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        return
    if high > 30 * low:
        decade_ticks(axis, 6)
        return
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices = (
        [float(f"{digit}e{k}") for k in decades for digit in digits if low <= float(f"{digit}e{k}") <= high]
        for digits in (
            (1, 2, 5),
            (1, 1.5, 2, 3, 4, 5, 7),
            (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
        )
    )
    close = sorted({to_digits(tick, 3) for tick in np.geomspace(low * 1.02, high / 1.02, 4)})
    ticks = next((choice for choice in choices if len(choice) >= 3), close)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


# -- marks -------------------------------------------------------------------------------------------------


def interval_bar(
    axes: Axes, x: Sequence[float], y: Sequence[float], color: str, cap: str, at: Any = None
) -> None:
    placed = {} if at is None else {"transform": at}
    axes.plot(x, y, color=color, linewidth=1.3, marker=cap, markersize=6, zorder=3, **placed)


def faint_dots(color: str) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": "o",
        "markersize": 3.4,
        "markeredgewidth": 0,
        "color": color,
        "alpha": 0.45,
        "zorder": 2,
    }


def arrow_mark(color: str, mark: int | str) -> dict[str, Any]:
    """Off the axis, to the side of small values."""
    return {
        "linestyle": "none",
        "marker": mark,
        "color": color,
        "markersize": 8,
        "clip_on": False,
        "zorder": 5,
    }


def missing_mark(color: str) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": "x",
        "color": color,
        "markersize": 7,
        "markeredgewidth": 1.8,
        "clip_on": False,
        "zorder": 5,
    }


def dashes_of(k: int) -> Any:
    return ((0, (6, 3)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (1, 3)))[k % 4]


# -- the title and the legend ------------------------------------------------------------------------------


def _entries(panel: Panel, drawn: Sequence[Drawn]) -> list[tuple[str, dict[str, Any]]]:
    """The legend: names and how they look."""
    rows = in_rows(panel)
    entries: list[tuple[str, dict[str, Any]]] = []
    for each in drawn:
        line = "none" if rows else each.line
        style: dict[str, Any] = {"color": each.color, "marker": each.mark, "linestyle": line}
        match each.series.kind:
            case "bound":
                style = {"color": SOFT, "linewidth": 1.8}
            case "paper":
                style = {"color": INK, "linestyle": ":", "linewidth": 1.6}
            case "certified":
                style |= {
                    "marker": "D",
                    "markersize": 5,
                    "linestyle": "none" if rows else "-",
                    "linewidth": 2,
                }
            case "measured":
                style |= {"markerfacecolor": "none"}
        limits = limits_of(panel, drawn)
        values = [v for spot in each.spots for v in spot.seeds]
        below = limits is not None and values and max(values) < limits[0]
        above = limits is not None and values and min(values) > limits[1]
        where = ": below the axis" if below else ": beyond the axis" if above else ""
        entries.append((each.label + where, style))
    spots = [spot for each in drawn for spot in each.spots]
    if rows:
        marks = [(text, value) for text, value in panel.marks if math.isfinite(value)]
        entries += [
            (wrapped(text, 56, 2), {"color": INK, "linestyle": dashes_of(k), "linewidth": 1.0})
            for k, (text, _) in enumerate(marks)
        ]
    if any(spot.zeros for spot in spots):
        entries.append(
            ("0 or nearly: off the axis", {**arrow_mark(SOFT, "<" if rows else "v"), "clip_on": True})
        )
    if any(spot.empty for spot in spots):
        entries.append(("no number", {**missing_mark(SOFT), "clip_on": True}))
    return entries


def _columns(labels: Sequence[str]) -> int:
    """As many as fit side by side."""
    widest = max(len(line) for label in labels for line in label.split("\n"))
    fit = int((WIDTH - 0.1) // (LETTER * widest + 0.55))
    return max(1, min(fit, 4, len(labels)))


def head_height(panel: Panel, drawn: Sequence[Drawn]) -> float:
    """Inches, of the title and the legend."""
    labels = [label for label, _ in _entries(panel, drawn)]
    title = 0.19 * (wrapped(panel.title, 62, 3).count("\n") + 1)
    if not labels or (len(labels) == 1 and not _needs_legend(panel)):
        return title
    lines = math.ceil(len(labels) / _columns(labels)) + sum(label.count("\n") for label in labels)
    return title + 0.16 * lines + 0.1


def _needs_legend(panel: Panel) -> bool:
    return len(panel.series) != 1 or panel.series[0].kind != "trained"


def head_of(figure: Figure, axes: Axes, panel: Panel, drawn: Sequence[Drawn]) -> None:
    """The title, and the legend under it, above the axes: labels are often longer than an axis has room for."""
    entries = _entries(panel, drawn)
    if entries and (len(entries) > 1 or _needs_legend(panel)):
        handles = [axes.plot([], [], **style, label=label)[0] for label, style in entries]
        columns = _columns([label for label, _ in entries])
        legend = figure.legend(
            handles=handles,
            loc="outside upper left",
            ncols=columns,
            columnspacing=1.4,
            handletextpad=0.5,
            borderpad=0.1,
            borderaxespad=0.2,
            alignment="left",
            title=wrapped(panel.title, 62, 3),
            title_fontsize=10,
        )
        legend.get_title().set_fontweight("bold")
        return
    figure.suptitle(wrapped(panel.title, 62, 3), x=0.01, ha="left", fontsize=10, fontweight="bold")
