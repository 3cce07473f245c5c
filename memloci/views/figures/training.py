"""Curves over steps, and trained errors beside compiled ones. All but the compiled bound is observed.

A curve over several runs is their median; the band is from the least to the largest of them, and thin lines are the
runs themselves while there are few.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from memloci.core.numbers import decimals, finite, number, to_digits
from memloci.views.figures.drawing import BLUE, RED, SOFT, decade_ticks, svg_of

History = Mapping[str, Sequence[Any]]
FEW = 10  # runs that are drawn one by one
MOST_STEPS = 240  # of a curve; more would only make the page heavy
MARKS = ("o", "s", "^", "v", "P", "X")  # shapes too, for readers who see no colours
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))


@dataclass(frozen=True)
class Band:
    """A number over steps or settings: the median of several runs, and their range."""

    x: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


def over_steps(histories: Sequence[History], name: str) -> Band:
    """A column of the histories; runs that stopped earlier count while they last, what is no number does not."""
    by_step: dict[int, list[float]] = {}
    for history in histories:
        for step, value in zip(history["step"], history[name], strict=True):
            if value is not None and math.isfinite(value):
                by_step.setdefault(step, []).append(value)
    steps = sorted(by_step)
    if len(steps) > MOST_STEPS:
        steps = [steps[k] for k in np.unique(np.linspace(0, len(steps) - 1, MOST_STEPS).astype(int))]
    columns = [by_step[step] for step in steps]
    of = lambda reduce: np.array([reduce(column) for column in columns], dtype=float)
    return Band(np.array(steps, dtype=float), of(np.median), of(min), of(max))


def loss_figure(histories: Sequence[History], unit: str) -> str:
    """The loss of training, and on held-out sequences."""
    return svg_of("loss", 3.1, lambda f: _loss(f.subplots(), histories, unit))


def _loss(axes: Axes, histories: Sequence[History], unit: str) -> None:
    for name, label, color, line in (
        ("loss", "training", BLUE, "-"),
        ("held_out", "held-out", RED, "--"),
    ):
        _curve(axes, histories, name, label, color, line)
    step_axis(axes, f"loss, {unit}")


def errors_figure(histories: Sequence[History], tolerance: float) -> str:
    """The errors on held-out sequences, beside the tolerance."""
    return svg_of("errors", 3.1, lambda f: _errors(f.subplots(), histories, tolerance))


def _errors(axes: Axes, histories: Sequence[History], tolerance: float) -> None:
    _curve(axes, histories, "err_sup", "largest", RED, "-")
    rooted = [
        {**history, "root": [v if v is None else math.sqrt(v) for v in history["err_mean_square"]]}
        for history in histories
    ]
    _curve(axes, rooted, "root", "root mean square", BLUE, "--")
    axes.axhline(tolerance, color=SOFT, linestyle=":", linewidth=1.4, label=f"tolerance {number(tolerance)}")
    step_axis(axes, "error on held-out sequences")


def _curve(
    axes: Axes, histories: Sequence[History], name: str, label: str, color: str, line: Any = "-"
) -> None:
    band = over_steps(histories, name)
    if not len(band.x):
        return
    if 1 < len(histories) <= FEW:
        for history in histories:
            one = over_steps([history], name)
            axes.plot(one.x, one.median, color=color, linewidth=0.6, alpha=0.45)
    if len(histories) > 1:
        fill_band(axes, band, color)
    alone = {"marker": "o", "markersize": 4} if len(band.x) == 1 else {}
    axes.plot(band.x, band.median, color=color, linestyle=line, linewidth=1.8, label=label, **alone)


def fill_band(axes: Axes, band: Band, color: str) -> None:
    axes.fill_between(band.x, band.low, band.high, color=color, alpha=0.15, linewidth=0)
    for edge in (band.low, band.high):  # thin, and what the limits of the axis are taken from
        axes.plot(band.x, edge, color=color, linewidth=0.4, alpha=0.5)


def step_axis(axes: Axes, label: str) -> None:
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{decimals(x)}"))
    log_if_possible(axes)
    if axes.lines:
        axes.legend(loc="best")


def log_if_possible(axes: Axes, more: Sequence[float] = ()) -> None:
    """A logarithmic axis unless something on it is 0; ticks that are numbers where it spans less than two decades."""
    drawn = [float(v) for line in axes.lines for v in np.asarray(line.get_ydata(), dtype=float).ravel()]
    values = [v for v in [*drawn, *more] if math.isfinite(v)]
    if not values or min(values) <= 0:
        return
    low, high = min(values), max(values)
    axes.set_yscale("log")
    room = (high / low) ** 0.06 * 1.05
    axes.set_ylim(low / room, high * room)
    if high > 30 * low:
        decade_ticks(axes.yaxis)
        return
    ticks = sorted({to_digits(tick, 2) for tick in np.geomspace(low, high, 4)})
    axes.set_yticks(ticks, [number(tick) for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())


def compared_figure(err_sup: Sequence[float], E_compiled: float | None, tolerance: float) -> str:
    """Every run's largest error, the compiled weights' bound, and the tolerance."""
    return svg_of("compared", 1.5, lambda f: _compared(f.subplots(), err_sup, E_compiled, tolerance))


def _compared(axes: Axes, err_sup: Sequence[float], E_compiled: float | None, tolerance: float) -> None:
    rows = ["trained"] if E_compiled is None else ["trained", "compiled"]
    positive = [e for e in finite(err_sup) if e > 0]
    bound = [] if E_compiled is None else [E for E in finite([E_compiled]) if E > 0]
    values = [*positive, tolerance, *bound]
    low, high = min(values) / 8, max(values) * 8
    axes.plot(
        positive,
        [0] * len(positive),
        linestyle="none",
        marker="o",
        color=RED,
        markerfacecolor="none",
        markersize=8,
        markeredgewidth=1.6,
        label="observed",
    )
    at, mark = ([high / 2], ">") if E_compiled == math.inf else (bound, "D")  # it points out of the figure
    if at:
        axes.plot(at, [1], linestyle="none", marker=mark, color=BLUE, markersize=7, label="proved")
    axes.axvline(tolerance, color=SOFT, linestyle="--", linewidth=1.2, label=f"tolerance {number(tolerance)}")
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decade_ticks(axes.xaxis, 6)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.set_xlabel("largest error")
    axes.figure.legend(loc="outside upper center", ncols=3)
