"""What is proved: terms of a bound, levels with their margins, bounds beside what was seen, the wall."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memloci.certify.certificate import Certificate
from memloci.core.numbers import literal, number
from memloci.views.figures.drawing import (
    BLUE,
    FLOAT_BITS,
    GREEN,
    INK,
    OBSERVED,
    PROVED,
    RED,
    SKY,
    SOFT,
    decade_ticks,
    plain_text,
    svg_of,
)

if TYPE_CHECKING:
    from memloci.observe.probes import WallPoint
    from memloci.observe.sup_error import Measurement


def terms_figure(certificate: Certificate) -> str:
    """The summands of the bound, and the tolerance."""
    return svg_of("terms", 0.9 + 0.27 * (len(certificate.terms) + 1), lambda f: _terms(f, certificate))


def _terms(figure: Figure, certificate: Certificate) -> None:
    axes = figure.subplots()
    names = [*(term.name for term in certificate.terms), "bound"]
    values = [*(term.E for term in certificate.terms), certificate.bound]
    shown = [v for v in [*values, certificate.tolerance] if 0 < v < math.inf]
    low, high = min(shown) / 10, max(shown) * 10
    y = np.arange(len(names))[::-1]
    for k, name, value in zip(y, names, values, strict=True):
        color = BLUE if name == "bound" else SKY
        width = high if math.isinf(value) else value
        if value > 0:
            axes.barh(k, width - low, left=low, color=color, height=0.62)
        _at_right(axes, float(k), number(value))
    axes.axvline(certificate.tolerance, color=RED, linestyle="--", linewidth=1.4)
    axes.annotate(
        f"tolerance {number(certificate.tolerance)}",
        (certificate.tolerance, float(len(names)) - 0.45),
        ha="center",
        va="bottom",
        fontsize=8,
        color=RED,
        annotation_clip=False,
    )
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decade_ticks(axes.xaxis, 6)
    axes.set_yticks(y, [plain_text(name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(False, axis="y")
    axes.set_xlabel("worst-case error, proved")


def levels_figure(certificate: Certificate) -> str:
    """The error of each nested level, and how large it may be."""
    return svg_of(
        "levels", 0.85 + 0.27 * len(certificate.levels), lambda f: _levels(f.subplots(), certificate)
    )


def _levels(axes: Axes, certificate: Certificate) -> None:
    levels = certificate.levels
    shown = [v for level in levels for v in (level.E, level.margin) if 0 < v < math.inf]
    low, high = min(shown) / 10, max(shown) * 10
    y = np.arange(len(levels))[::-1]
    for k, level in zip(y, levels, strict=True):
        within = level.within
        if level.E > 0:
            axes.barh(k, min(level.E, high) - low, left=low, color=SKY if within else RED, height=0.5)
        axes.vlines(level.margin, k - 0.4, k + 0.4, color=INK, linewidth=2)
        _at_right(axes, float(k), number(level.E))
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decade_ticks(axes.xaxis, 6)
    axes.set_yticks(y, [f"m{', m'.join(map(str, level.memories[:6]))}" for level in levels])
    axes.set_ylim(-0.6, len(levels) - 0.4)
    axes.grid(False, axis="y")
    axes.set_xlabel("worst-case error of the memory, proved; the upright line is its margin")


# -- certified against measured ----------------------------------------------------------------------------


def certified_figure(certificate: Certificate, measurement: Measurement | None = None) -> str:
    """What is proved and what was seen, on one axis."""
    rows: list[tuple[str, float, bool]] = [("exact arithmetic", certificate.exact_bound, True)]
    rows += [(f"in {name}", E, True) for name, E in certificate.bound_by_precision.items()]
    if measurement is not None:
        rows += [
            ("adversarial search", float(measurement.err_adversarial), False),
            (f"{measurement.sequences:,} drawn sequences", float(measurement.err_sampled), False),
            ("root mean square", math.sqrt(measurement.err_mean_square), False),
        ]
    return svg_of("certified", 0.95 + 0.27 * len(rows), lambda f: _certified(f, rows, certificate))


def _certified(figure: Figure, rows: Sequence[tuple[str, float, bool]], certificate: Certificate) -> None:
    axes = figure.subplots()
    shown = [v for _, v, _ in rows if 0 < v < math.inf] + [certificate.tolerance]
    low, high = min(shown) / 30, max(shown) * 30
    y = np.arange(len(rows))[::-1]
    for k, (_, value, proved) in zip(y, rows, strict=True):
        if math.isinf(value):
            axes.plot([high / 4], [k], **{**PROVED, "marker": ">"})
        elif value > 0:
            axes.plot([value], [k], **(PROVED if proved else OBSERVED))
        text = "none seen" if value == 0 and not proved else number(value)
        _at_right(axes, float(k), text)
    axes.plot([], [], **PROVED, label="proved: no input does worse")
    if not all(proved for *_, proved in rows):
        axes.plot([], [], **OBSERVED, label="observed: some input does this badly")
    axes.axvline(
        certificate.tolerance,
        color=SOFT,
        linestyle="--",
        linewidth=1.2,
        label=f"tolerance {number(certificate.tolerance)}",
    )
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decade_ticks(axes.xaxis, 6)
    axes.set_yticks(y, [name for name, _, _ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("error")
    axes.figure.legend(
        loc="outside upper center", ncols=3, fontsize=7.5, columnspacing=1.0, handletextpad=0.3
    )


def _at_right(axes: Axes, y: float, text: str) -> None:
    """A value beside its row, where no line crosses it."""
    axes.annotate(text, (1, y), (4, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=8)


# -- the wall ----------------------------------------------------------------------------------------------


def wall_figure(points: Sequence[WallPoint], lags: Sequence[int] = (), bits: int | None = None) -> str:
    """Bits of mass against the lag for one lin layer, with what floats have."""
    return svg_of("wall", 3.2, lambda f: draw_wall(f.subplots(), points, lags, bits))


def draw_wall(
    axes: Axes, points: Sequence[WallPoint], lags: Sequence[int] = (), bits: int | None = None
) -> None:
    """The wall on given axes: proved lower bounds, floats' significands, and a task's lags."""
    farthest = max(point.lag for point in points)
    errors = sorted({point.error for point in points})
    curves = {e: [(p.lag, p.log2_mass) for p in points if p.error == e] for e in errors}
    for error, color, style in zip(errors, (BLUE, SKY), ("-", "--"), strict=False):
        z, b = zip(*curves[error], strict=True)
        axes.plot(
            z, b, style, color=color, linewidth=2, label=f"one lin layer, error ≤ {literal(error)} (proved)"
        )
    least = curves[errors[-1]]
    z, b = zip(*least, strict=True)
    axes.fill_between(z, b, 0, color=BLUE, alpha=0.08, linewidth=0)
    for name, significand in FLOAT_BITS.items():
        axes.axhline(significand, color=SOFT, linewidth=1.2, linestyle=":")
        axes.annotate(
            f"{name}: {significand} bits",
            (farthest, significand),
            (0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
    inside = sorted({lag for lag in lags if 2 <= lag <= farthest})
    strict_curve = dict(curves[errors[0]])
    for k, lag in enumerate(inside):
        label = "lags of this task" if k == 0 else None
        axes.plot([lag], [strict_curve[lag]], "D", color=RED, markersize=7, label=label, zorder=4)
        axes.vlines(lag, 0, strict_curve[lag], color=RED, linewidth=1, alpha=0.6)
    if bits is not None:
        axes.axhline(bits, color=GREEN, linewidth=2, label=f"this model: {bits} bits suffice (proved)")
    axes.set_xlim(1, farthest + 0.6)
    axes.set_ylim(0, max(b for _, b in strict_curve.items()) * 1.04)
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.set_xlabel("lag, tokens into the past")
    axes.set_ylabel("log₂ coefficient mass, bits")
    axes.legend(loc="upper left")
