"""Figures about training: curves over steps, errors over settings, lags over lags. All of it is observed.

A curve over several runs is their median; the band is from the least to the largest of them, and thin lines are the
runs themselves while there are few.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy

from memloci.core.numbers import decimals, number, to_digits
from memloci.observe.lags import HeadLags, Influence
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from memloci.views.drawing import (
    BLUE,
    GREEN,
    INK,
    MOST_SERIES,
    RED,
    SERIES,
    SOFT,
    WIDTH,
    decade_ticks,
    lag_ticks,
    plain_text,
    svg_of,
)

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


# -- over steps -------------------------------------------------------------------------------------------


def over_steps(histories: Sequence[History], name: str) -> Band:
    """A column of the histories; runs that stopped earlier count while they last, what is no number does not."""
    found: dict[int, list[float]] = {}
    for history in histories:
        for step, value in zip(history["step"], history[name], strict=True):
            if value is not None and math.isfinite(value):
                found.setdefault(step, []).append(value)
    steps = sorted(found)
    if len(steps) > MOST_STEPS:
        steps = [steps[k] for k in np.unique(np.linspace(0, len(steps) - 1, MOST_STEPS).astype(int))]
    columns = [found[step] for step in steps]
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
    _steps(axes, f"loss, {unit}")


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
    _steps(axes, "error on held-out sequences")


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
        _fill(axes, band, color)
    alone = {"marker": "o", "markersize": 4} if len(band.x) == 1 else {}
    axes.plot(band.x, band.median, color=color, linestyle=line, linewidth=1.8, label=label, **alone)


def _fill(axes: Axes, band: Band, color: str) -> None:
    axes.fill_between(band.x, band.low, band.high, color=color, alpha=0.15, linewidth=0)
    for edge in (band.low, band.high):  # thin, and what the limits of the axis are taken from
        axes.plot(band.x, edge, color=color, linewidth=0.4, alpha=0.5)


def _steps(axes: Axes, label: str) -> None:
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{decimals(x)}"))
    _log_if_possible(axes)
    if axes.lines:
        axes.legend(loc="best")


def _log_if_possible(axes: Axes, more: Sequence[float] = ()) -> None:
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


# -- over lags --------------------------------------------------------------------------------------------


def influence_figure(found: Influence, task: Task) -> str:
    """Which lags the output depends on, of the model and of the target."""
    return svg_of("influence", 3.0, lambda f: _influence(f.subplots(), found, task))


def _influence(axes: Axes, found: Influence, task: Task) -> None:
    axes.plot(
        found.z,
        found.target,
        linestyle="none",
        marker="o",
        color=SOFT,
        markersize=6,
        markerfacecolor="none",
        label="target",
    )
    low = (
        0.0 if found.model.min() <= 0 else found.model.min() * 1e-3
    )  # below the picture on a logarithmic axis
    axes.vlines(found.z, low, found.model, color=BLUE, linewidth=1.6)
    axes.plot(found.z, found.model, linestyle="none", marker="o", color=BLUE, markersize=3, label="model")
    axes.set_ylabel("change of the output, rms")
    if not (_spreads(task) and _both_log(axes, [*found.target, *found.model])):
        axes.set_ylim(bottom=0)
    _lag_axis(axes, found.z)
    axes.legend(loc="best")


def heads_figure(heads: Sequence[HeadLags], task: Task) -> str:
    """Where each head looks, a panel per layer, beside the lags that must be recalled."""
    layers = sorted({head.layer for head in heads})
    height = 0.8 + 1.75 * len(layers)
    return svg_of("heads", height, lambda f: _heads(f, heads, layers, task))


def _heads(figure: Figure, heads: Sequence[HeadLags], layers: Sequence[int], task: Task) -> None:
    panels = figure.subplots(len(layers), 1, squeeze=False, sharex=True)[:, 0]
    for axes, layer in zip(panels, layers, strict=True):
        own = [head for head in heads if head.layer == layer]
        for head, color, mark, line in zip(own, SERIES, MARKS, LINES, strict=False):
            axes.fill_between(head.z, head.low, head.high, color=color, alpha=0.14, linewidth=0)
            every = max(1, len(head.z) // 12)
            label = f"head {head.head + 1}"
            axes.plot(
                head.z,
                head.mean,
                color=color,
                linestyle=line,
                marker=mark,
                markevery=every,
                markersize=4,
                linewidth=1.3,
                label=label,
            )
        _target_lags(axes, task, own[0].z)
        axes.set_ylabel(f"layer {layer + 1}\nweight")
        if not (_spreads(task) and _both_log(axes, [w for head in own for w in head.mean])):
            axes.set_ylim(bottom=0)
        axes.legend(loc="best", ncols=2 if len(own) > 3 else 1)
    _lag_axis(panels[-1], heads[0].z)


def _target_lags(axes: Axes, task: Task, z: np.ndarray) -> None:
    """Lines at fixed lags, marks at lags that may be asked for, circles for kernels."""
    label = "kernel, scaled"
    for recall in task.recalls:
        kernel = np.abs(recall.at_lags(len(z))) if isinstance(recall, Convolution) else np.zeros(len(z))
        if kernel.any():
            axes.plot(
                z,
                kernel / kernel.sum(),
                linestyle="none",
                marker="o",
                color=SOFT,
                markerfacecolor="none",
                markersize=5,
                markevery=max(1, len(z) // 24),
                label=label,
            )
            label = None
    asked = {lag for recall in _tables(task) if not recall.kernel for lag in recall.cells}
    lags = sorted(lag for lag in asked if lag <= z[-1])
    if lags:
        axes.plot(
            lags,
            [0.0] * len(lags),
            linestyle="none",
            marker=6,
            color=INK,
            markersize=7,
            clip_on=False,
            label="lags asked for",
        )
    for k, lag in enumerate(sorted({lag for lag in task.fixed_lags.values() if 0 < lag <= z[-1]})):
        axes.axvline(
            lag, color=INK, linestyle=(0, (2, 2)), linewidth=1.1, label=None if k else "lags to recall"
        )


def _tables(task: Task) -> list[LagTable]:
    return [recall for recall in task.recalls if isinstance(recall, LagTable)]


def _spreads(task: Task) -> bool:
    """Every memory is spread over many lags."""
    return task.M > 0 and all(isinstance(recall, Convolution) for recall in task.recalls)


def _both_log(axes: Axes, values: Sequence[float]) -> bool:
    """Logarithms on both axes, for kernels: a power law is a straight line then. Not where something is 0."""
    if min(values) <= 0:
        return False
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(max(min(values), 1e-6 * max(values)) / 2, max(values) * 2)
    decade_ticks(axes.yaxis)
    return True


def _lag_axis(axes: Axes, z: np.ndarray) -> None:
    axes.set_xlabel("lag z, tokens into the past")
    if axes.get_xscale() == "log":
        axes.set_xlim(0.9, z[-1] * 1.1)
        lag_ticks(axes)
        return
    axes.set_xlim(0, z[-1] + 1)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))


# -- trained against compiled -----------------------------------------------------------------------------


def compared_figure(err_sup: Sequence[float], E_compiled: float | None, tolerance: float) -> str:
    """Every run's largest error, the compiled weights' bound, and the tolerance."""
    return svg_of("compared", 1.5, lambda f: _compared(f.subplots(), err_sup, E_compiled, tolerance))


def _compared(axes: Axes, err_sup: Sequence[float], E_compiled: float | None, tolerance: float) -> None:
    rows = ["trained"] if E_compiled is None else ["trained", "compiled"]
    seen = [e for e in err_sup if e > 0]
    axes.plot(
        seen,
        [0] * len(seen),
        linestyle="none",
        marker="o",
        color=RED,
        markerfacecolor="none",
        markersize=8,
        markeredgewidth=1.6,
        label="observed",
    )
    if E_compiled is not None and E_compiled > 0:
        axes.plot([E_compiled], [1], linestyle="none", marker="D", color=BLUE, markersize=7, label="proved")
    axes.axvline(tolerance, color=SOFT, linestyle="--", linewidth=1.2, label=f"tolerance {number(tolerance)}")
    values = [*seen, tolerance, *([E_compiled] if E_compiled else [])]
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 8, max(values) * 8)
    decade_ticks(axes.xaxis, 6)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.set_xlabel("largest error")
    axes.figure.legend(loc="outside upper center", ncols=3)


# -- over settings ----------------------------------------------------------------------------------------


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
    _log_if_possible(axes, shown)
    if several or tolerance is not None:
        axes.legend(loc="best", title=plain_text(legend) if several else None, title_fontsize=8)


def _setting_axis(axes: Axes, values: Sequence[Any], place: Mapping[Any, float], numeric: bool) -> None:
    low, high = min(place.values()), max(place.values())
    if numeric and low > 0 and high >= 8 * low:
        axes.set_xscale("log")
        room = (high / low) ** 0.08
        axes.set_xlim(low / room, high * room)
    else:
        room = 0.5 if not numeric else 0.08 * (high - low) or 0.5
        axes.set_xlim(low - room, high + room)
    shown = values[:: 1 + len(values) // 9]
    text = lambda value: number(float(value)) if numeric else plain_text(_cut(value))
    axes.set_xticks([place[value] for value in shown], [text(value) for value in shown])
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
        _fill(axes, band, color)
        axes.plot(band.x, band.median, color=color, linestyle=line, linewidth=1.6, label=plain_text(label))
    _steps(axes, f"held-out loss, {unit}")


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
