"""Where a trained model looks, lag by lag, beside the lags and kernels that it should recall. All of it is observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from memloci.views.figures.drawing import BLUE, INK, SERIES, SOFT, decade_ticks, lag_ticks, svg_of
from memloci.views.figures.training import LINES, MARKS

if TYPE_CHECKING:
    from memloci.observe.lags import HeadLags, TokenInfluence


def influence_figure(influence: TokenInfluence, task: Task) -> str:
    """Which lags the output depends on, of the model and of the target."""
    return svg_of("influence", 3.0, lambda f: _influence(f.subplots(), influence, task))


def _influence(axes: Axes, influence: TokenInfluence, task: Task) -> None:
    axes.plot(
        influence.z,
        influence.target,
        linestyle="none",
        marker="o",
        color=SOFT,
        markersize=6,
        markerfacecolor="none",
        label="target",
    )
    low = (
        0.0 if influence.model.min() <= 0 else influence.model.min() * 1e-3
    )  # below the picture on a logarithmic axis
    axes.vlines(influence.z, low, influence.model, color=BLUE, linewidth=1.6)
    axes.plot(
        influence.z, influence.model, linestyle="none", marker="o", color=BLUE, markersize=3, label="model"
    )
    axes.set_ylabel("change of the output, rms")
    if not (_spreads(task) and _both_log(axes, [*influence.target, *influence.model])):
        axes.set_ylim(bottom=0)
    _lag_axis(axes, influence.z)
    axes.legend(loc="best")


def heads_figure(heads: Sequence[HeadLags], task: Task, targets: Mapping[int, np.ndarray]) -> str:
    """Where each head looks, a panel per layer, beside the lags that must be recalled."""
    layers = sorted({head.layer for head in heads})
    height = 0.8 + 1.75 * len(layers)
    return svg_of("heads", height, lambda f: _heads(f, heads, layers, task, targets))


def _heads(
    figure: Figure,
    heads: Sequence[HeadLags],
    layers: Sequence[int],
    task: Task,
    targets: Mapping[int, np.ndarray],
) -> None:
    panels = figure.subplots(len(layers), 1, squeeze=False, sharex=True)[:, 0]
    for axes, layer in zip(panels, layers, strict=True):
        layer_heads = [head for head in heads if head.layer == layer]
        for head, color, mark, line in zip(layer_heads, SERIES, MARKS, LINES, strict=False):
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
        _target_lags(axes, task, targets, layer_heads[0].z)
        axes.set_ylabel(f"layer {layer + 1}\nweight")
        if not (_spreads(task) and _both_log(axes, [w for head in layer_heads for w in head.mean])):
            axes.set_ylim(bottom=0)
        axes.legend(loc="best", ncols=2 if len(layer_heads) > 3 else 1)
    _lag_axis(panels[-1], heads[0].z)


def _target_lags(axes: Axes, task: Task, targets: Mapping[int, np.ndarray], z: np.ndarray) -> None:
    """Lines at fixed lags, marks at lags that may be asked for, circles for kernels."""
    label = "kernel, scaled"
    for i, recall in enumerate(task.recalls, start=1):
        kernel = np.abs(targets[i][: len(z)]) if isinstance(recall, Convolution) else np.zeros(len(z))
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
    queried = {lag for recall in _tables(task) if not recall.kernel for lag in recall.cells}
    lags = sorted(lag for lag in queried if lag <= z[-1])
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
