"""What a task remembers: the lags and kernels of its memories."""

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from memloci.core.numbers import decimals
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from memloci.views.figures.drawing import (
    INK,
    MOST_SERIES,
    SERIES,
    SOFT,
    decade_ticks,
    lag_ticks,
    plain_text,
    svg_of,
)

MOST_ROWS = 12  # memories whose lags are drawn


def memory_figure(task: Task, targets: Mapping[int, np.ndarray]) -> str:
    """Which lags are remembered, and with which kernels (`targets`, at the lags 1, 2, ...); nothing where there is neither."""
    kernels = {i: r for i, r in enumerate(task.recalls, start=1) if isinstance(r, Convolution)}
    tables = {i: r for i, r in enumerate(task.recalls, start=1) if isinstance(r, LagTable)}
    panels: list[tuple[float, Callable[[Axes], None]]] = []
    if tables and all(table.kernel for table in tables.values()):
        lags = {i: int(table.bound) for i, table in tables.items()}
        panels.append((1.9, lambda axes: _stems(axes, lags)))
    elif tables:
        panels.append((0.75 + 0.3 * min(len(tables), MOST_ROWS), lambda axes: _rows(axes, task, tables)))
    if kernels:
        panels.append((2.5, lambda axes: _weights(axes, kernels, targets)))
    if not panels:
        return ""
    heights = [height for height, _ in panels]

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (_, panel) in zip(drawn, panels, strict=True):
            panel(axes)

    return svg_of("memory", sum(heights), draw)


def _weights(axes: Axes, kernels: Mapping[int, Convolution], targets: Mapping[int, np.ndarray]) -> None:
    """A line per kernel."""
    shown = list(kernels.items())[:MOST_SERIES]
    values = [targets[i] for i, _ in shown]
    for (i, kernel), rho, color in zip(shown, values, SERIES, strict=False):
        axes.plot(
            np.arange(1, len(rho) + 1),
            rho,
            color=color,
            marker="o",
            markersize=3,
            label=f"memory {i}: {_cut(kernel.text, 48)}",
        )
    if all((rho > 0).all() for rho in values):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(1e-12, min(rho.min() for rho in values) / 2))
        decade_ticks(axes.yaxis)
        lag_ticks(axes)
    else:
        axes.axhline(0, color=SOFT, linewidth=0.8)
    axes.set_ylabel("weight ρ(z)")
    axes.set_xlabel("lag z, tokens into the past")
    axes.legend(loc="best")


def _stems(axes: Axes, lags: Mapping[int, int]) -> None:
    """A stem per memory at a fixed lag."""
    far = max(lags.values())
    for (i, lag), color in zip(lags.items(), _cycle(len(lags)), strict=True):
        axes.vlines(lag, 0, 1, color=color, linewidth=2)
        axes.plot([lag], [1], "o", color=color, markersize=7)
        if len(lags) <= 12:
            axes.annotate(
                f"m{i}", (lag, 1), (0, 7), textcoords="offset points", ha="center", fontsize=8, color=INK
            )
    axes.plot([0], [0], "s", color=INK, markersize=6, clip_on=False, zorder=5)
    axes.annotate("now", (0, 0), (0, 8), textcoords="offset points", ha="center", fontsize=8)
    # Time runs to the right, as one reads.
    near = max(1, min(lags.values()))
    if far > 64 and far > 20 * near:
        axes.set_xscale("symlog", linthresh=near)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{decimals(x)}"))
        axes.set_xlim(far * 2, -0.3 * near)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.set_xlim(far * 1.06 + 1, -0.04 * far - 0.3)
    axes.set_ylim(0, 1.35)
    axes.set_yticks([0, 1])
    axes.set_xlabel("lag z, tokens into the past")
    axes.set_ylabel("weight")


def _rows(axes: Axes, task: Task, tables: Mapping[int, LagTable]) -> None:
    """A row per memory, a dot per lag it may have: the larger, the more of its table has that lag."""
    far = max(table.bound for table in tables.values())
    shown = list(tables.items())[:MOST_ROWS]
    for row, (i, table) in enumerate(shown):
        lags, counts = np.unique(table.lags, return_counts=True)
        color = SERIES[task.levels[i - 1] % MOST_SERIES]
        axes.scatter(lags, np.full(len(lags), row), s=24 + 56 * counts / counts.max(), color=color, zorder=3)
    names = [f"m{i}: {_cut(table.text.removeprefix('lag '), 28)}" for i, table in shown]
    axes.set_yticks(range(len(shown)), names)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(False, axis="y")
    # Time runs to the right, as one reads.
    if far > 64:
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(far * 1.6, 0)
        ticks = [2**k for k in range(far.bit_length() + 1) if 2**k <= far]
        axes.set_xticks([0, *ticks[:: 1 + len(ticks) // 12]])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{decimals(x)}"))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(min(12, far + 1), integer=True))
        axes.set_xlim(far + 0.06 * far + 0.5, -0.02 * far - 0.01)
    axes.set_xlabel("lag, tokens into the past; 0 is now")


def _cut(text: str, most: int) -> str:
    return plain_text(text if len(text) <= most else text[: most - 1] + "…")


def _cycle(n: int) -> list[str]:
    return [SERIES[i % MOST_SERIES] for i in range(n)]
