"""Effects against their margins: what decides a verdict, at a glance."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from memloci.core.numbers import finite, number
from memloci.study.statistics import Part
from memloci.views.figures.drawing import GREEN, INK, LEFT, RED, RIGHT, SOFT, note_on, svg_of, wrapped

VERDICTS: dict[str, tuple[str, str, bool]] = {  # colour, shape, filled
    "confirmed": (GREEN, "o", True),
    "refuted": (RED, "X", True),
    "inconclusive": (SOFT, "s", False),
}


def effects_figure(parts: Sequence[Part], name: str = "effects") -> str:
    """Each part's effect and interval against its margin; the side that the claim says is shaded."""
    groups: dict[str, list[Part]] = {}  # effects in the same unit share an axis
    for part in parts:
        groups.setdefault(part.unit, []).append(part)
    if not groups:
        return svg_of(name, 0.8, lambda f: note_on(_bare(f), "no parts"))
    heights = [sum(map(_part_height, group)) for group in groups.values()]
    total = sum(heights) + 0.52 * len(heights)
    return svg_of(name, total, lambda f: _effects(f, groups, heights))


def _bare(figure: Figure) -> Axes:
    axes = figure.subplots()
    axes.set_axis_off()
    return axes


LINE, STRIP, GAP = 0.165, 0.3, 0.1  # inches: a line of words, the strip under it, and between two parts


def _part_height(part: Part) -> float:
    return LINE * (_sentence(part).count("\n") + 1) + STRIP + GAP


def _sentence(part: Part) -> str:
    return wrapped(part.statement, 82, 4)


def _effects(figure: Figure, groups: dict[str, list[Part]], heights: Sequence[float]) -> None:
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=list(heights))[:, 0]
    for axes, (unit, parts), height in zip(panels, groups.items(), heights, strict=True):
        low, high = _effect_limits(parts)
        axes.set_xlim(low, high)
        axes.set_ylim(height, 0)  # inches, downwards
        axes.set_yticks([])
        axes.grid(False)  # it would cross the sentences
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.set_xlabel(wrapped(unit, 80, 2))
        top = 0.0
        for part in parts:
            words = _sentence(part)
            axes.text(0, top + 0.02, words, transform=axes.get_yaxis_transform(), va="top", fontsize=8.5)
            top += LINE * (words.count("\n") + 1)
            _effect(axes, part, top + 0.03, top + STRIP, low, high)
            top += STRIP + GAP


def _effect(axes: Axes, part: Part, top: float, bottom: float, low: float, high: float) -> None:
    color, mark, filled = VERDICTS[part.verdict]
    y = (top + bottom) / 2
    left, right = (part.margin, high) if part.side == "above" else (low, part.margin)
    shade = Rectangle((left, top), right - left, bottom - top, facecolor=GREEN, alpha=0.13, linewidth=0)
    axes.add_patch(shade)
    axes.vlines(part.margin, top, bottom, color=INK, linewidth=1.6)
    if low < 0 < high and part.margin != 0:
        axes.vlines(0, top, bottom, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)))
    value, ends = part.effect.value, (part.effect.low, part.effect.high)
    text = "no number"
    if value is not None and math.isfinite(value):
        text = number(value)
        if part.rests_on == "proof":
            text += ", proved"
        elif ends[0] is not None and ends[1] is not None:
            text += f"  [{number(ends[0])}, {number(ends[1])}]"
            axes.plot([max(ends[0], low), min(ends[1], high)], [y, y], color=color, linewidth=2.4, zorder=3)
            for end, edge, arrow in ((ends[0], low, LEFT), (ends[1], high, RIGHT)):
                beyond = end < low if edge == low else end > high
                if beyond:
                    axes.plot([edge], [y], marker=arrow, color=color, markersize=6, clip_on=False, zorder=3)
                else:
                    axes.vlines(end, y - 0.06, y + 0.06, color=color, linewidth=1.6, zorder=3)
        face = color if filled else "none"
        axes.plot(
            [value],
            [y],
            marker=mark,
            color=color,
            markerfacecolor=face,
            markersize=8,
            markeredgewidth=1.6 if not filled else 0.8,
            zorder=4,
        )
    else:
        axes.text((low + high) / 2, y, "no number", ha="center", va="center", fontsize=8, color=SOFT)
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(
        part.verdict, (1, y), (9, 5), **beside, va="center", fontsize=8, fontweight="bold", color=INK
    )
    axes.annotate(text, (1, y), (9, -5.5), **beside, va="center", fontsize=7.5, color=INK)


def _effect_limits(parts: Sequence[Part]) -> tuple[float, float]:
    """Effects and margins, and intervals as far as they do not dwarf them."""
    firm = [part.margin for part in parts]
    firm += finite(part.effect.value for part in parts)
    if min(firm) > 0 and min(firm) < 0.5 * max(firm):
        firm.append(0.0)
    span = max(firm) - min(firm) or abs(firm[0]) or 1.0
    ends = finite(end for part in parts for end in (part.effect.low, part.effect.high))
    reach = [min(max(end, min(firm) - 1.5 * span), max(firm) + 1.5 * span) for end in ends]
    low, high = min([*firm, *reach]), max([*firm, *reach])
    room = 0.08 * (high - low) or 0.5 * span
    return low - room, high + room
