"""What is inside a model: kernels against targets, attention maps, an example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from memloci.views.figures.drawing import (
    MOST_SERIES,
    ORANGE,
    PURPLE,
    RED,
    SERIES,
    SKY,
    SOFT,
    WIDTH,
    decade_ticks,
    lag_ticks,
    note_on,
    plain_text,
    svg_of,
)

if TYPE_CHECKING:
    from memloci.observe.probes import AttentionMap, Example, SlotKernel

MOST_POINTS = 600  # of a curve; more would only make the page heavy
MOST_POSITIONS = 120  # of an example
DEPTH = 1e-12  # of the largest value: what lies deeper is not drawn on a logarithmic axis


# -- kernels against targets -------------------------------------------------------------------------------


def kernels_figure(kernels: Sequence[SlotKernel]) -> str:
    """What each slot remembers against what it should, and the difference below."""
    return svg_of("kernels", 3.9, lambda f: _kernels(f, kernels[:MOST_SERIES]))


def _kernels(figure: Figure, kernels: Sequence[SlotKernel]) -> None:
    top, low = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    spread = any(np.count_nonzero(kernel.target) > 1 for kernel in kernels)
    least, largest, exact = math.inf, 0.0, []
    for kernel, color in zip(kernels, SERIES, strict=False):
        z, K = _thin(kernel.z, kernel.compiled)
        label = plain_text(f"{kernel.variable}: {kernel.label}"[:48])
        if spread:
            top.plot(z, K, color=color, label=label)
        else:  # single lags: stems, where there is something to see
            visible = np.abs(K) > 2e-3
            top.vlines(z[visible], 0, K[visible], color=color, linewidth=2, label=label)
        some = _sparse(np.flatnonzero(kernel.target))
        top.plot(kernel.z[some], kernel.target[some], "o", color=color, markerfacecolor="none", markersize=6)
        z, r = _thin(kernel.z, kernel.residual)
        visible = r > 0
        if visible.any():
            low.plot(z[visible], r[visible], color=color, marker=".", markersize=4, linewidth=0.8 * spread)
            least, largest = min(least, r[visible].min()), max(largest, r.max())
        else:
            exact.append(kernel.variable)
    if spread and all((kernel.target > 0).all() for kernel in kernels):
        top.set_xscale("log")
        top.set_yscale("log")
        decade_ticks(top.yaxis)
    elif kernels and kernels[0].z[-1] > 2_000:
        top.set_xscale("log")
    else:
        top.set_xlim(0, kernels[0].z[-1] + 1)
        top.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    if top.get_xscale() == "log":
        lag_ticks(top)
    if not spread:
        top.axhline(0, color=SOFT, linewidth=0.8)
    top.set_ylabel("weight")
    top.plot([], [], "o", color=SOFT, markerfacecolor="none", markersize=6, label="target")
    top.legend(loc="best", ncols=2 if len(kernels) > 3 else 1)
    low.set_ylabel("|kernel − target|")
    low.set_xlabel("lag z, tokens into the past")
    if largest:
        low.set_yscale("log")
        low.set_ylim(max(least / 4, largest * DEPTH), largest * 8)
        decade_ticks(low.yaxis)
    if exact:
        note_on(low, f"{', '.join(exact)}: no difference in float64")


def _sparse(positions: np.ndarray, most: int = 24) -> np.ndarray:
    """At most `most` of the places, dense at first, so that circles stay apart on a logarithmic axis."""
    if len(positions) <= most:
        return positions
    return positions[np.unique(np.geomspace(1, len(positions), most).astype(int)) - 1]


def _thin(z: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MOST_POINTS points: of each bin the one of largest size, so no peak is lost."""
    if len(z) <= MOST_POINTS:
        return z, values
    bins = np.array_split(np.arange(len(z)), MOST_POINTS)
    keep = np.array([part[np.argmax(np.abs(values[part]))] for part in bins])
    return z[keep], values[keep]


# -- attention maps ----------------------------------------------------------------------------------------


def attention_figure(maps: Sequence[AttentionMap]) -> str:
    """The weights a(t, s) of each head on one sequence."""
    columns = {1: 1, 2: 2, 3: 2, 4: 2, 5: 3, 6: 3}.get(len(maps), 4)
    rows = math.ceil(len(maps) / columns)
    height = 0.6 + rows * min(2.9, (WIDTH - 0.9) / columns)
    return svg_of("attention", height, lambda f: _maps(f, maps, rows, columns))


def _maps(figure: Figure, maps: Sequence[AttentionMap], rows: int, columns: int) -> None:
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    # Nothing is transparent, everything is solid: the map reads on a light and on a dark page.
    ramp = LinearSegmentedColormap.from_list(
        "weight", [(0.0, (*to_rgb(SKY), 0.0)), (0.35, (*to_rgb(SKY), 0.75)), (1.0, (*to_rgb(RED), 1.0))]
    )
    top = max((float(map_of_head.weights.max()) for map_of_head in maps), default=1.0) or 1.0
    image = None
    for axes, map_of_head in zip(grid.flat, maps, strict=False):
        image = axes.imshow(
            map_of_head.weights,
            cmap=ramp,
            norm=PowerNorm(0.5, 0, top),
            interpolation="nearest",
            aspect="equal",
        )
        axes.set_title(f"layer {map_of_head.layer + 1}, head {map_of_head.head + 1}", pad=3, fontsize=8)
        axes.grid(False)
        axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)
    for axes in list(grid.flat)[len(maps) :]:
        axes.set_visible(False)
    figure.supxlabel("position s read from", fontsize=9)
    figure.supylabel("position t", fontsize=9)
    if image is not None:
        bar = figure.colorbar(image, ax=list(grid.flat), shrink=0.8, pad=0.02, fraction=0.05)
        bar.set_label("weight a(t, s)")
        bar.outline.set_visible(False)  # type: ignore[operator]
        bar.locator = MaxNLocator(4)
        bar.update_ticks()


# -- an example --------------------------------------------------------------------------------------------


def example_figure(example: Example) -> str:
    """A sequence, its target and the model's output; the error below."""
    return svg_of("example", 4.0, lambda f: _example(f, example), width=1.75 * WIDTH)


def _example(figure: Figure, example: Example) -> None:
    inputs, outputs, errors = figure.subplots(3, 1, sharex=True, height_ratios=[2, 3, 2])
    t = np.arange(len(example.x))[-MOST_POSITIONS:]
    x, target, output, error = (
        part[-MOST_POSITIONS:] for part in (example.x, example.target, example.output, example.error)
    )
    for c, color in zip(range(x.shape[1]), (SOFT, ORANGE, PURPLE), strict=False):
        inputs.step(t, x[:, c], where="mid", color=color, linewidth=1, label=example.channels[c])
    if x.shape[1] > 1:
        _legend_above(inputs, 3)
    inputs.set_ylabel("input")
    for o, color in zip(range(target.shape[1]), SERIES, strict=False):
        name = "" if target.shape[1] == 1 else f" {o}"
        outputs.plot(t, output[:, o], color=color, linewidth=1.4, label=f"model{name}")
        outputs.plot(
            t,
            target[:, o],
            "o",
            color=color,
            markerfacecolor="none",
            markersize=4,
            markeredgewidth=0.9,
            label=f"target{name}",
        )
        e = error[:, o]
        if (e > 0).any():
            errors.plot(t[e > 0], e[e > 0], ".", color=color, markersize=5)
    outputs.set_ylabel("output")
    _legend_above(outputs, 2 * target.shape[1])
    errors.set_ylabel("|error|")
    errors.set_xlabel("position t")
    if (error > 0).any():
        errors.set_yscale("log")
        top = error.max()
        errors.set_ylim(max(error[error > 0].min() / 3, top * 1e-6), top * 5)
        decade_ticks(errors.yaxis, 4)
    else:
        note_on(errors, "no difference anywhere")


def _legend_above(axes: Axes, columns: int) -> None:
    """A legend in one row, with room made for it above the curves."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.3 * (high - low))
    axes.legend(loc="upper right", ncols=columns)
