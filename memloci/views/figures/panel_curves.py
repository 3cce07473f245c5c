"""A panel whose x are numbers: curves, and lines that are named at the right."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from matplotlib.transforms import offset_copy

from memloci.core.numbers import decimals, number
from memloci.study.panel import Panel
from memloci.views.figures.drawing import DOWN, GRID, INK, SOFT, note_on, wrapped
from memloci.views.figures.panel_parts import (
    BACKGROUND,
    Drawn,
    arrow_mark,
    faint_dots,
    head_of,
    interval_bar,
    is_scattered,
    limits_of,
    missing_mark,
    value_axis,
)

Region = list[tuple[float, float]]  # (x, the edge of what is hatched)


def curves_panel(figure: Figure, panel: Panel, drawn: Sequence[Drawn]) -> None:
    axes = figure.subplots()
    limits = limits_of(panel, drawn)
    _place_axis(axes, panel, sorted({spot.x for each in drawn for spot in each.spots}))
    axes.set_xlabel(wrapped(panel.x, 80, 2))
    axes.set_ylabel(wrapped(panel.y, 36, 3))
    if limits is None:
        note_on(axes, "no numbers")
    else:
        axes.set_yscale("log" if panel.log_y else "linear")
        axes.set_ylim(limits)
        value_axis(axes.yaxis, limits, panel.log_y)
        _mark_lines(axes, panel, limits)
    aside = [each for each in drawn if any(len(spot.seeds) > 1 for spot in each.spots)]
    # Side by side, in points, so that bars do not hide each other; a measured x stays where it is.
    step = 0.0 if is_scattered(panel) else min(5.0, 21.0 / max(len(aside), 1))
    for each in drawn:
        shift = step * (aside.index(each) - (len(aside) - 1) / 2) if each in aside else 0.0
        _curve(axes, each, limits, shift, _region(axes, each, drawn, panel.log_x))
    head_of(figure, axes, panel, drawn)


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
    style: dict[str, Any] = {"color": each.color, "transform": at, "zorder": 4}
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
            axes.plot(x, y, **style, linewidth=2.0, marker="D", markersize=5)
        case kind:
            hollow = kind == "measured"
            for spot in spots:
                if spot.low is not None and spot.high is not None and spot.high > spot.low:
                    interval_bar(axes, [spot.x, spot.x], [spot.low, spot.high], each.color, "_", at)
            seeds = [
                (spot.x, v) for spot in each.spots for v in spot.seeds if len(spot.seeds) > 1 or spot.zeros
            ]
            if seeds:
                axes.plot(*zip(*seeds, strict=True), **faint_dots(each.color), transform=at)
            axes.plot(
                x,
                y,
                **style,
                linestyle=each.line,
                linewidth=1.1 if hollow else 1.5,
                marker=each.mark,
                markersize=6,
                markerfacecolor="none" if hollow else each.color,
            )
    zeros = [spot.x for spot in each.spots if spot.zeros]
    axes.plot(zeros, [0.0] * len(zeros), **arrow_mark(each.color, DOWN), transform=across)
    missing = [spot.x for spot in each.spots if spot.empty]
    axes.plot(missing, [1.0] * len(missing), **missing_mark(each.color), transform=across)


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
        value_axis(axes.xaxis, axes.get_xlim(), axes.get_xscale() == "log")
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


def spread(positions: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Sorted places, moved apart until things of these heights do not touch; about where they were."""
    groups: list[tuple[float, list[int]]] = []  # centre, members
    for k in range(len(positions)):
        group = [k]
        centre = positions[k]
        while groups:
            before, members = groups[-1]
            if before + _size(heights, members) / 2 <= centre - _size(heights, group) / 2:
                break
            group = [*members, *group]
            centre = sum(positions[j] for j in group) / len(group)
            groups.pop()
        groups.append((centre, group))
    placed = list[float]()
    for centre, members in groups:
        at = centre - _size(heights, members) / 2
        for j in members:
            placed.append(at + heights[j] / 2)
            at += heights[j]
    return placed


def _size(heights: Sequence[float], members: Sequence[int]) -> float:
    return sum(heights[j] for j in members)
