"""A panel whose x are words: rows of dots."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from memloci.study.panel import Panel, Spot
from memloci.views.figures.drawing import GRID, INK, LEFT, SOFT, note_on, wrapped
from memloci.views.figures.panel_parts import (
    BACKGROUND,
    Drawn,
    arrow_mark,
    dashes_of,
    faint_dots,
    head_of,
    interval_bar,
    limits_of,
    missing_mark,
    value_axis,
)


def rows_panel(figure: Figure, panel: Panel, drawn: Sequence[Drawn], rows: Sequence[str]) -> None:
    axes = figure.subplots()
    limits = limits_of(panel, drawn)
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
        value_axis(axes.xaxis, limits, panel.log_y)
        for k, (_, value) in enumerate(panel.marks):
            if math.isfinite(value) and (value > 0 or not panel.log_y):
                axes.axvline(value, color=INK, linestyle=dashes_of(k), linewidth=1.0, zorder=1.5)
    for row in range(len(rows)):
        in_row = [(each, spot) for each in drawn for spot in each.spots if spot.x == row]
        for k, (each, spot) in enumerate(in_row, start=1):
            _dot(
                axes, each, spot, limits, row - 0.34 + 0.68 * k / (len(in_row) + 1), 0.68 / (len(in_row) + 1)
            )
    head_of(figure, axes, panel, drawn)


def _dot(
    axes: Axes, each: Drawn, spot: Spot, limits: tuple[float, float] | None, y: float, width: float
) -> None:
    along = axes.get_yaxis_transform()
    if spot.centre is not None:
        match each.series.kind:
            case "bound":
                left = limits[0] if limits else 0.0
                size = max(spot.centre - left, 0.0)
                style: dict[str, Any] = {
                    "facecolor": "none",
                    "edgecolor": GRID,
                    "hatch": "////",
                    "linewidth": 0,
                }
                axes.add_patch(Rectangle((left, y - width / 2), size, width, **style))
                axes.vlines(spot.centre, y - width / 2, y + width / 2, color=SOFT, linewidth=2.2)
            case "paper":
                axes.vlines(spot.centre, y - width / 2, y + width / 2, color=INK, linewidth=2, linestyle=":")
            case "certified":
                axes.plot([spot.centre], [y], marker="D", color=each.color, markersize=6, zorder=4)
            case kind:
                if spot.low is not None and spot.high is not None and spot.high > spot.low:
                    interval_bar(axes, [spot.low, spot.high], [y, y], each.color, "|")
                face = "none" if kind == "measured" else each.color
                style = {"color": each.color, "markerfacecolor": face, "zorder": 4}
                axes.plot([spot.centre], [y], marker=each.mark, markersize=6, **style)
    if each.series.kind not in BACKGROUND and (len(spot.seeds) > 1 or spot.zeros):
        axes.plot(spot.seeds, [y] * len(spot.seeds), **faint_dots(each.color))
    if spot.zeros:
        axes.plot([0.0], [y], **arrow_mark(each.color, LEFT), transform=along)
    if spot.empty:
        axes.plot([1.0], [y], **missing_mark(each.color), transform=along)
