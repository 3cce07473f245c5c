"""The panels of a study: what was found for a claim.

At each x a trained arm is the mean of its seeds with a 95 % interval (of the logarithms, on a logarithmic axis), and
its seeds as faint dots. What is proved is a solid line with filled diamonds, a proved floor is grey with hatching
below, the paper's line is dotted and only its slope means something. Words for x make rows of dots.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import offset_copy

from memloci.core.numbers import decimals, number, to_digits
from memloci.study.claim import Panel, Series
from memloci.study.statistics import mean
from memloci.views.drawing import (
    DOWN,
    GRID,
    INK,
    LEFT,
    SERIES,
    SOFT,
    WIDTH,
    decade_ticks,
    finite,
    note_on,
    svg_of,
    wrapped,
)

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
DEPTH = 1e-20  # of the largest value: what lies deeper counts as 0 on a logarithmic axis
LETTER = 0.058  # inches, of a legend's letters; about


@dataclass(frozen=True)
class Spot:
    """The values of a series at one x."""

    x: float
    seeds: tuple[float, ...]
    centre: float | None  # None: no number, or zeros among them, whose logarithms have no mean
    low: float | None
    high: float | None
    zeros: int  # and what is as good as 0

    @property
    def empty(self) -> bool:
        return not self.seeds and not self.zeros


@dataclass(frozen=True)
class Drawn:
    """A series, ready to be drawn."""

    series: Series
    label: str
    spots: tuple[Spot, ...]
    color: str
    mark: str
    line: Any

    @property
    def single(self) -> bool:
        """It has a value at one x only, so no line shows it."""
        return sum(spot.centre is not None for spot in self.spots) == 1


# -- a panel ----------------------------------------------------------------------------------------------


def panel_figure(panel: Panel, name: str = "panel") -> str:
    """Curves over numbers, or rows of dots over words. A page with several of them gives each another name."""
    xs = list(dict.fromkeys(x for series in panel.series for x in series.x))
    if not _in_rows(panel):
        drawn = _drawn(panel, {x: float(x) for x in xs})
        height = 2.75 + _head_height(panel, drawn)
        return svg_of(name, height, lambda f: _curves(f, panel, drawn))
    words = list(dict.fromkeys(map(str, xs)))
    drawn = _drawn(panel, {x: float(words.index(str(x))) for x in xs})
    rows = [wrapped(word, 24, 3) for word in words]
    tallest = max(row.count("\n") + 1 for row in rows)
    places = [spot.x for one in drawn for spot in one.spots]
    each = max(0.3, 0.16 * max(map(places.count, places), default=1) + 0.12, 0.15 * tallest + 0.08)
    height = 0.6 + each * len(rows) + _head_height(panel, drawn)
    return svg_of(name, height, lambda f: _rows(f, panel, drawn, rows))


def caption(panel: Panel) -> str:
    """How to read it, in words."""
    kinds = {series.kind for series in panel.series}
    seeds = any(len(values) > 1 for series in panel.series for values in series.values)
    found = []
    if seeds:
        how = ", both of the logarithms" if panel.log_y else ""
        found.append(
            f"Markers are means over seeds, bars their 95 % intervals{how}; faint dots are the seeds."
        )
    if "measured" in kinds:
        found.append("Open markers were observed, not proved.")
    if "certified" in kinds:
        found.append("Filled diamonds are proved: no input does worse.")
    if "bound" in kinds:
        found.append(
            "A grey line is a proved floor; the text says of what. It is hatched below where nothing in the figure is there."
        )
    if "paper" in kinds:
        found.append("Of the paper's dotted line only the slope means something.")
    return " ".join(found)


def _drawn(panel: Panel, place: dict[Any, float]) -> list[Drawn]:
    numbers = [v for series in panel.series for values in series.values for v in finite(values)]
    numbers += finite(value for _, value in panel.marks)
    floor = max(max(numbers, default=0.0) * DEPTH, 1e-250) if panel.log_y else -math.inf  # room for limits
    # The same name has the same colour: what was trained and what is proved of one thing belong together.
    names = list(dict.fromkeys(s.name for s in panel.series if s.kind not in BACKGROUND))
    scattered = _scattered(panel)
    found = []
    for series in panel.series:
        k = names.index(series.name) % len(COLORS) if series.kind not in BACKGROUND else 0
        color = {"bound": SOFT, "paper": INK}.get(series.kind, COLORS[k])
        pairs = zip(series.x, series.values, strict=True)
        spots = sorted(
            (_spot(place[x], values, panel.log_y, floor) for x, values in pairs), key=lambda spot: spot.x
        )
        line = "none" if scattered else LINES[k]
        found.append(Drawn(series, _label(series), tuple(spots), color, MARKS[k], line))
    return found


def _scattered(panel: Panel) -> bool:
    """Every point has an x of its own, which was measured too: a line between two of them would mean nothing."""
    xs = [x for series in panel.series for x in series.x]
    if not all(isinstance(x, int | float) for x in xs) or all(x == round(x) for x in xs):
        return False
    return len(panel.series) > 1 and len(set(xs)) == len(xs)


def _label(series: Series) -> str:
    told = series.name.lower()
    missing = ", ".join(word for word in KINDS[series.kind] if word.split()[0] not in told)
    return wrapped(f"{series.name} ({missing})" if missing else series.name, 56, 2)


def _spot(x: float, values: Sequence[float | None], log: bool, floor: float) -> Spot:
    known = finite(values)
    seeds = [v for v in known if v > floor] if log else known
    zeros = len(known) - len(seeds)
    if zeros or not seeds:
        return Spot(x, tuple(seeds), None, None, None, zeros)
    found = mean([math.log10(v) for v in seeds] if log else seeds)
    back = lambda v: None if v is None else _power(v) if log else v
    return Spot(x, tuple(seeds), back(found.value), back(found.low), back(found.high), 0)


def _power(v: float) -> float:
    return 10.0 ** min(max(v, -300.0), 300.0)  # an interval of few seeds may reach anywhere


def _limits(panel: Panel, drawn: Sequence[Drawn]) -> tuple[float, float] | None:
    """Of the values' axis. What is compared sets them; intervals and lines behind may add a little."""
    marks = [v for v in finite(v for _, v in panel.marks) if v > 0 or not panel.log_y]
    # Among words a floor is a number like the others; behind curves it may leave the figure.
    rows = _in_rows(panel)
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


def _value_axis(axis: Any, limits: tuple[float, float], log: bool) -> None:
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
    ticks = next((found for found in choices if len(found) >= 3), close)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


# -- curves -----------------------------------------------------------------------------------------------


def _curves(figure: Figure, panel: Panel, drawn: Sequence[Drawn]) -> None:
    axes = figure.subplots()
    limits = _limits(panel, drawn)
    _place_axis(axes, panel, sorted({spot.x for each in drawn for spot in each.spots}))
    axes.set_xlabel(wrapped(panel.x, 80, 2))
    axes.set_ylabel(wrapped(panel.y, 36, 3))
    if limits is None:
        note_on(axes, "no numbers")
    else:
        axes.set_yscale("log" if panel.log_y else "linear")
        axes.set_ylim(limits)
        _value_axis(axes.yaxis, limits, panel.log_y)
        _mark_lines(axes, panel, limits)
    aside = [each for each in drawn if any(len(spot.seeds) > 1 for spot in each.spots)]
    # Side by side, in points, so that bars do not hide each other; a measured x stays where it is.
    step = 0.0 if _scattered(panel) else min(5.0, 21.0 / max(len(aside), 1))
    for each in drawn:
        shift = step * (aside.index(each) - (len(aside) - 1) / 2) if each in aside else 0.0
        _curve(axes, each, limits, shift, _region(axes, each, drawn, panel.log_x))
    _head(figure, axes, panel, drawn)


Region = list[tuple[float, float]]  # (x, the edge of what is hatched)


def _region(axes: Axes, each: Drawn, drawn: Sequence[Drawn], log_x: bool) -> Region:
    """What is below a floor, if nothing in the figure is there; a floor at one x reaches halfway to its neighbours."""
    edge = {spot.x: spot.centre for spot in each.spots if spot.centre is not None}
    others = [spot for other in drawn if other.series.kind not in BACKGROUND for spot in other.spots]
    if each.series.kind != "bound" or any(v < edge[s.x] for s in others if s.x in edge for v in s.seeds):
        return []
    if len(edge) != 1:
        return list(edge.items())
    ((x, y),) = edge.items()
    left, right = axes.get_xlim()
    xs = sorted({spot.x for other in drawn for spot in other.spots})
    middle = lambda a, b: math.sqrt(a * b) if log_x and min(a, b) > 0 else (a + b) / 2
    before, after = [v for v in xs if v < x], [v for v in xs if v > x]
    ends = middle(before[-1], x) if before else left, middle(x, after[0]) if after else right
    return [(end, y) for end in ends]


def _curve(axes: Axes, each: Drawn, limits: tuple[float, float] | None, shift: float, region: Region) -> None:
    at = offset_copy(axes.transData, axes.get_figure(root=True), x=shift, units="points")
    across = offset_copy(axes.get_xaxis_transform(), axes.get_figure(root=True), x=shift, units="points")
    spots = [spot for spot in each.spots if spot.centre is not None]
    x = [spot.x for spot in each.spots]
    # A gap where there is no mean: a line across would hide it.
    y = [math.nan if spot.centre is None else spot.centre for spot in each.spots]
    look: dict[str, Any] = {"color": each.color, "transform": at, "zorder": 4}
    match each.series.kind:
        case "bound":
            axes.plot(x, y, color=SOFT, linewidth=1.6, marker="_" if each.single else "", markersize=22)
            if limits is not None and region:
                far, edge = (np.array(side, dtype=float) for side in zip(*region, strict=True))
                axes.fill_between(
                    far,
                    np.full(len(far), limits[0]),
                    np.maximum(edge, limits[0]),
                    facecolor="none",
                    edgecolor=GRID,
                    hatch="////",
                    linewidth=0,
                    zorder=0.5,
                )
        case "paper":
            axes.plot(x, y, color=INK, linestyle=":", linewidth=1.6, marker="_" if each.single else "")
        case "certified":
            axes.plot(x, y, **look, linewidth=2.0, marker="D", markersize=5)
        case kind:
            hollow = kind == "measured"
            for spot in spots:
                if spot.low is not None and spot.high is not None and spot.high > spot.low:
                    _bar(axes, [spot.x, spot.x], [spot.low, spot.high], each.color, "_", at)
            seeds = [
                (spot.x, v) for spot in each.spots for v in spot.seeds if len(spot.seeds) > 1 or spot.zeros
            ]
            if seeds:
                axes.plot(*zip(*seeds, strict=True), **_faint(each.color), transform=at)
            axes.plot(
                x,
                y,
                **look,
                linestyle=each.line,
                linewidth=1.1 if hollow else 1.5,
                marker=each.mark,
                markersize=6,
                markerfacecolor="none" if hollow else each.color,
            )
    zeros = [spot.x for spot in each.spots if spot.zeros]
    axes.plot(zeros, [0.0] * len(zeros), **_arrow(each.color, DOWN), transform=across)
    lost = [spot.x for spot in each.spots if spot.empty]
    axes.plot(lost, [1.0] * len(lost), **_lost(each.color), transform=across)


def _place_axis(axes: Axes, panel: Panel, xs: Sequence[float]) -> None:
    """Ticks where the numbers are, as many as there is room for."""
    if not xs:
        axes.set_xticks([])
        return
    low, high = xs[0], xs[-1]
    if panel.log_x and low > 0:
        axes.set_xscale("log")
        room = max((high / low) ** 0.07, 1.2)
        axes.set_xlim(low / room, high * room)
    elif panel.log_x and high > 0:  # a 0 has a place too
        axes.set_xscale("symlog", linthresh=min(x for x in xs if x > 0))
        axes.set_xlim(low - 0.2 * min(x for x in xs if x > 0), high * 1.3)
    else:
        room = 0.07 * (high - low) or 0.5 * (abs(high) or 1.0)
        axes.set_xlim(low - room, high + room)
    if len(xs) > 8 and any(x != round(x) for x in xs):  # no sizes but measured numbers
        _value_axis(axes.xaxis, axes.get_xlim(), axes.get_xscale() == "log")
        return
    at = axes.xaxis.get_transform().transform(np.array([*axes.get_xlim(), *xs]))
    ways = (at[2:] - at[0]) / (at[1] - at[0])
    shown, end = list[float](), -1.0
    for x, way in zip(xs, ways, strict=True):
        half = 0.009 * (len(_tick(x)) + 1)  # of the width of a figure: half a label
        if way - half > end:
            shown.append(x)
            end = way + half
    axes.set_xticks(shown, [_tick(x) for x in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def _tick(x: float) -> str:
    """A size of a model is not rounded."""
    return f"{decimals(x)}" if x == round(x) and abs(x) < 1e6 else number(x)


def _mark_lines(axes: Axes, panel: Panel, limits: tuple[float, float]) -> None:
    """Horizontal lines, named at the right; names that would touch are moved apart."""
    low, high = limits
    marks = [(text, v) for text, v in panel.marks if math.isfinite(v) and (v > 0 or not panel.log_y)]
    marks.sort(key=lambda mark: mark[1])
    way = lambda v: math.log(v / low) / math.log(high / low) if panel.log_y else (v - low) / (high - low)
    texts = [wrapped(text, 20, 3) for text, _ in marks]
    heights = [0.055 * (text.count("\n") + 1) for text in texts]
    places = spread([way(v) for _, v in marks], heights)
    for (_, value), text, place in zip(marks, texts, places, strict=True):
        axes.axhline(value, color=INK, linestyle=(0, (6, 3)), linewidth=0.9, zorder=1.5)
        axes.annotate(
            text,
            (1.0, way(value)),
            (1.025, place),
            "axes fraction",
            va="center",
            fontsize=8,
            color=INK,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": SOFT, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
        )


def spread(places: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Sorted places, moved apart until things of these heights do not touch; about where they were."""
    groups: list[tuple[float, list[int]]] = []  # centre, members
    for k in range(len(places)):
        own = [k]
        centre = places[k]
        while groups:
            before, members = groups[-1]
            if before + _size(heights, members) / 2 <= centre - _size(heights, own) / 2:
                break
            own = [*members, *own]
            centre = sum(places[j] for j in own) / len(own)
            groups.pop()
        groups.append((centre, own))
    found = list[float]()
    for centre, members in groups:
        at = centre - _size(heights, members) / 2
        for j in members:
            found.append(at + heights[j] / 2)
            at += heights[j]
    return found


def _size(heights: Sequence[float], members: Sequence[int]) -> float:
    return sum(heights[j] for j in members)


# -- rows of dots -----------------------------------------------------------------------------------------


def _rows(figure: Figure, panel: Panel, drawn: Sequence[Drawn], rows: Sequence[str]) -> None:
    axes = figure.subplots()
    limits = _limits(panel, drawn)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0, pad=7)
    for label in axes.get_yticklabels():
        label.set_multialignment("left")  # a page's font has other widths: right edges would be ragged
    for k in range(1, len(rows)):
        axes.axhline(k - 0.5, color=GRID, linewidth=0.8)
    axes.set_ylabel(wrapped(panel.x, 30, 2))
    axes.set_xlabel(wrapped(panel.y, 70, 2))
    if limits is None:
        axes.set_xticks([])
        note_on(axes, "no numbers")
        axes.set_yticks(range(len(rows)), rows)
    else:
        axes.set_xscale("log" if panel.log_y else "linear")
        axes.set_xlim(limits)
        _value_axis(axes.xaxis, limits, panel.log_y)
        for k, (_, value) in enumerate(panel.marks):
            if math.isfinite(value) and (value > 0 or not panel.log_y):
                axes.axvline(value, color=INK, linestyle=_dashes(k), linewidth=1.0, zorder=1.5)
    for row in range(len(rows)):
        own = [(each, spot) for each in drawn for spot in each.spots if spot.x == row]
        for k, (each, spot) in enumerate(own, start=1):
            _dot(axes, each, spot, limits, row - 0.34 + 0.68 * k / (len(own) + 1), 0.68 / (len(own) + 1))
    _head(figure, axes, panel, drawn)


def _dot(
    axes: Axes, each: Drawn, spot: Spot, limits: tuple[float, float] | None, y: float, width: float
) -> None:
    along = axes.get_yaxis_transform()
    if spot.centre is not None:
        match each.series.kind:
            case "bound":
                left = limits[0] if limits else 0.0
                size = max(spot.centre - left, 0.0)
                look: dict[str, Any] = {
                    "facecolor": "none",
                    "edgecolor": GRID,
                    "hatch": "////",
                    "linewidth": 0,
                }
                axes.add_patch(Rectangle((left, y - width / 2), size, width, **look))
                axes.vlines(spot.centre, y - width / 2, y + width / 2, color=SOFT, linewidth=2.2)
            case "paper":
                axes.vlines(spot.centre, y - width / 2, y + width / 2, color=INK, linewidth=2, linestyle=":")
            case "certified":
                axes.plot([spot.centre], [y], marker="D", color=each.color, markersize=6, zorder=4)
            case kind:
                if spot.low is not None and spot.high is not None and spot.high > spot.low:
                    _bar(axes, [spot.low, spot.high], [y, y], each.color, "|")
                face = "none" if kind == "measured" else each.color
                look = {"color": each.color, "markerfacecolor": face, "zorder": 4}
                axes.plot([spot.centre], [y], marker=each.mark, markersize=6, **look)
    if each.series.kind not in BACKGROUND and (len(spot.seeds) > 1 or spot.zeros):
        axes.plot(spot.seeds, [y] * len(spot.seeds), **_faint(each.color))
    if spot.zeros:
        axes.plot([0.0], [y], **_arrow(each.color, LEFT), transform=along)
    if spot.empty:
        axes.plot([1.0], [y], **_lost(each.color), transform=along)


def _dashes(k: int) -> Any:
    return ((0, (6, 3)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (1, 3)))[k % 4]


# -- parts of both ----------------------------------------------------------------------------------------


def _bar(axes: Axes, x: Sequence[float], y: Sequence[float], color: str, cap: str, at: Any = None) -> None:
    placed = {} if at is None else {"transform": at}
    axes.plot(x, y, color=color, linewidth=1.3, marker=cap, markersize=6, zorder=3, **placed)


def _faint(color: str) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": "o",
        "markersize": 3.4,
        "markeredgewidth": 0,
        "color": color,
        "alpha": 0.45,
        "zorder": 2,
    }


def _arrow(color: str, mark: int | str) -> dict[str, Any]:
    """Off the axis, to the side of small values."""
    return {
        "linestyle": "none",
        "marker": mark,
        "color": color,
        "markersize": 8,
        "clip_on": False,
        "zorder": 5,
    }


def _lost(color: str) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": "x",
        "color": color,
        "markersize": 7,
        "markeredgewidth": 1.8,
        "clip_on": False,
        "zorder": 5,
    }


def _entries(panel: Panel, drawn: Sequence[Drawn]) -> list[tuple[str, dict[str, Any]]]:
    """The legend: names and how they look."""
    rows = _in_rows(panel)
    found: list[tuple[str, dict[str, Any]]] = []
    for each in drawn:
        line = "none" if rows else each.line
        look: dict[str, Any] = {"color": each.color, "marker": each.mark, "linestyle": line}
        match each.series.kind:
            case "bound":
                look = {"color": SOFT, "linewidth": 1.8}
            case "paper":
                look = {"color": INK, "linestyle": ":", "linewidth": 1.6}
            case "certified":
                look |= {"marker": "D", "markersize": 5, "linestyle": "none" if rows else "-", "linewidth": 2}
            case "measured":
                look |= {"markerfacecolor": "none"}
        limits = _limits(panel, drawn)
        seen = [v for spot in each.spots for v in spot.seeds]
        below = limits is not None and seen and max(seen) < limits[0]
        above = limits is not None and seen and min(seen) > limits[1]
        where = ": below the axis" if below else ": beyond the axis" if above else ""
        found.append((each.label + where, look))
    spots = [spot for each in drawn for spot in each.spots]
    if rows:
        marks = [(text, value) for text, value in panel.marks if math.isfinite(value)]
        found += [
            (wrapped(text, 56, 2), {"color": INK, "linestyle": _dashes(k), "linewidth": 1.0})
            for k, (text, _) in enumerate(marks)
        ]
    if any(spot.zeros for spot in spots):
        found.append(("0 or nearly: off the axis", {**_arrow(SOFT, "<" if rows else "v"), "clip_on": True}))
    if any(spot.empty for spot in spots):
        found.append(("no number", {**_lost(SOFT), "clip_on": True}))
    return found


def _in_rows(panel: Panel) -> bool:
    xs = [x for series in panel.series for x in series.x]
    return not all(isinstance(x, int | float) and not isinstance(x, bool) for x in xs)


def _columns(labels: Sequence[str]) -> int:
    """As many as fit side by side."""
    widest = max(len(line) for label in labels for line in label.split("\n"))
    fit = int((WIDTH - 0.1) // (LETTER * widest + 0.55))
    return max(1, min(fit, 4, len(labels)))


def _head_height(panel: Panel, drawn: Sequence[Drawn]) -> float:
    """Inches, of the title and the legend."""
    labels = [label for label, _ in _entries(panel, drawn)]
    title = 0.19 * (wrapped(panel.title, 62, 3).count("\n") + 1)
    if not labels or (len(labels) == 1 and not _needs_legend(panel)):
        return title
    lines = math.ceil(len(labels) / _columns(labels)) + sum(label.count("\n") for label in labels)
    return title + 0.16 * lines + 0.1


def _needs_legend(panel: Panel) -> bool:
    return len(panel.series) != 1 or panel.series[0].kind != "trained"


def _head(figure: Figure, axes: Axes, panel: Panel, drawn: Sequence[Drawn]) -> None:
    """The title, and the legend under it, above the axes: labels are often longer than an axis has room for."""
    entries = _entries(panel, drawn)
    if entries and (len(entries) > 1 or _needs_legend(panel)):
        handles = [axes.plot([], [], **look, label=label)[0] for label, look in entries]
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
