"""Error against heads, mass and width, with the floors that are proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from memloci.views.figures.drawing import GREEN, PROVED, PURPLE, RED, SKY, SOFT, WIDTH, decade_ticks, svg_of

if TYPE_CHECKING:
    from memloci.tradeoffs.rates import HeadRates, WidthRates


def heads_figure(rates: HeadRates) -> str:
    """Error against heads, and against mass with the proved floor."""
    return svg_of(f"heads-{rates.rpe}", 3.3, lambda f: _heads_and_mass(f, rates), width=1.75 * WIDTH)


def _heads_and_mass(figure: Figure, rates: HeadRates) -> None:
    left, right = figure.subplots(1, 2)
    for (precision, points), color in zip(rates.by_heads.items(), (SKY, GREEN), strict=False):
        H, E = [p.heads for p in points], [float(p.E) for p in points]
        left.plot(H, E, color=color, marker="D", markersize=5, label=f"in {precision} (proved)")
    for (precision, points), dash in zip(rates.lemma.items(), ("-", "--", ":"), strict=False):
        H, E = [p.heads for p in points], [float(p.E) for p in points]
        left.plot(
            H, E, color=PURPLE, linestyle=dash, marker="o", markersize=4, label=f"Lemma F.1, {precision}"
        )
    _mark(left, rates.built.heads, rates.built.E)
    left.set_xlabel("heads H")
    left.set_ylabel("largest l1 error of a memory")
    left.set_xscale("log")
    shown = [*rates.by_heads.values(), *rates.lemma.values()]
    ticks = sorted({p.heads for points in shown for p in points} | {rates.built.heads})
    left.set_xticks(ticks, [str(H) for H in ticks])
    left.xaxis.set_minor_locator(NullLocator())
    left.set_xlim(ticks[0] / 1.15, ticks[-1] * 1.15)

    masses = [p.mass for p in rates.by_mass]
    decades = max(masses) > 30 * min(masses)
    room = (max(masses) / min(masses)) ** 0.08 if decades else 1.02
    low, high = min(masses) / room, max(masses) * room
    B = np.geomspace(low, high, 300) if decades else np.linspace(low, high, 300)
    B = B[B <= rates.built.mass]  # beyond, the floor was not looked for
    floor = np.array([rates.floor(float(b)) for b in B])
    errors = [float(p.E) for points in shown for p in points]
    errors += [float(p.E) for p in rates.by_mass]
    floors = np.append(floor, rates.theorem.E_least)
    least = min([*errors, *floors[floors > min(errors) * 1e-2]])  # a floor far below would flatten the rest
    for axes in (left, right):
        axes.set_yscale("log")
        axes.set_ylim(least / 3, max(*errors, floor.max()) * 2.5)
        decade_ticks(axes.yaxis)
    bottom = right.get_ylim()[0]
    right.plot(B, np.where(floor > bottom, floor, np.nan), color=RED, linewidth=2)
    right.fill_between(B, bottom, np.maximum(floor, bottom), color=RED, alpha=0.1, linewidth=0)
    right.plot([], [], color=RED, linewidth=2, label="no heads err less (proved)")
    right.plot(
        masses,
        [float(p.E) for p in rates.by_mass],
        color=SKY,
        linestyle="none",  # a straight line between two points would cross the floor
        marker="D",
        markersize=5,
        label=f"found with {rates.built.heads} head{'s' if rates.built.heads > 1 else ''} (proved)",
    )
    _mark(right, rates.built.mass, rates.built.E)
    right.set_xlabel("mass B, the sum of the coefficients' sizes")
    if decades:
        right.set_xscale("log")
        decade_ticks(right.xaxis, 6)
    right.set_xlim(low, high)
    least_E = rates.theorem.E_least
    if bottom < least_E:  # the same floor, whatever the heads: a line across the left picture
        left.axhline(
            least_E, color=RED, linewidth=1.4, linestyle="--", label="floor at this model's mass (proved)"
        )
        left.axhspan(bottom, least_E, color=RED, alpha=0.1, linewidth=0)
    for axes in (left, right):
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, columnspacing=1.0, handletextpad=0.4
        )


def _mark(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [float(y)], **{**PROVED, "markersize": 9, "zorder": 5}, label="this model (proved)")


def width_figure(rates: WidthRates) -> str:
    """E_ffn against neurons, beside the paper's slope."""
    return svg_of("width", 3.0, lambda f: _width(f.subplots(), rates))


def _width(axes: Axes, rates: WidthRates) -> None:
    rows = [(m, float(E)) for m, E in rates.rows if m > 0 and E > 0]
    m, E = [w for w, _ in rows], [e for _, e in rows]
    axes.plot(m, E, color=SKY, marker="D", markersize=5, label="proved at each width")
    _mark(axes, *rates.built)
    # Only the slope of the dashed line means anything: its height is that of the first point.
    ends = np.array([m[0], max(*m, rates.built[0])], dtype=float)
    axes.plot(
        ends,
        E[0] * (ends / ends[0]) ** rates.paper_slope,
        color=SOFT,
        linestyle="--",
        label="the paper's slope, −1/2 (its height means nothing)",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [w for w in m if w != rates.built[0]]
    axes.set_xticks(ticks, [f"{w:,}" for w in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    decade_ticks(axes.yaxis)
    axes.set_ylim(min(*E, float(rates.built[1])) / 2.5, max(E) * 2)
    axes.set_xlabel("width m, neurons")
    axes.set_ylabel("E_ffn, readout error")
    axes.legend(loc="lower left")
