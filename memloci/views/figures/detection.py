"""Influence against lag, with intervals: what the target depends on, and what is left of it. All of it is observed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from memloci.views.figures.drawing import BLUE, GREEN, RED, SERIES, SOFT, plain_text, svg_of

if TYPE_CHECKING:
    from memloci.detect.detection import Candidate, LagCorrelation

MOST_DRAWN = 1_024  # lags; of more, the largest of each group


def influence_figure(name: str, influences: Sequence[LagCorrelation], lags: Sequence[int] = ()) -> str:
    """The correlation at each lag with the band of chance, and marks at the lags that were chosen."""
    height = 0.7 + 1.7 * len(influences)
    return svg_of(name, height, lambda f: _influences(f, influences, lags))


def _influences(figure, influences: Sequence[LagCorrelation], lags: Sequence[int]) -> None:
    panels = figure.subplots(len(influences), 1, squeeze=False, sharex=True)[:, 0]
    for axes, one, color in zip(panels, influences, SERIES, strict=False):
        _influence(axes, one, color, lags)
    panels[-1].set_xlabel("lag")


def _influence(axes: Axes, one: LagCorrelation, color: str, lags: Sequence[int]) -> None:
    z, values, half = (np.asarray(v, float) for v in (one.lags, one.values, one.half_widths))
    if len(z) > MOST_DRAWN:
        every = -(-len(z) // MOST_DRAWN)
        groups = [slice(k, k + every) for k in range(0, len(z), every)]
        top = [g.start + int(np.argmax(np.abs(values[g]))) for g in groups]
        z, values, half = z[top], values[top], half[top]
    axes.fill_between(z, -half, half, color=SOFT, alpha=0.25, linewidth=0, label="95 % of chance")
    axes.vlines(z, 0, values, color=color, linewidth=1.0)
    marked = [k for k, lag in enumerate(z) if int(lag) in set(lags)]
    axes.plot(
        z[marked], values[marked], linestyle="none", marker="o", color=RED, markersize=4, label="chosen"
    )
    axes.axhline(0, color=SOFT, linewidth=0.8)
    axes.set_ylabel(plain_text(f"correlation with {one.channel}"))
    axes.legend(loc="best")


def classes_figure(candidates: Sequence[Candidate], reference: float | None) -> str:
    """What each class explains out of fold, beside the reference."""
    return svg_of(
        "classes", 0.8 + 0.3 * (len(candidates) + 1), lambda f: _classes(f.subplots(), candidates, reference)
    )


def _classes(axes: Axes, candidates: Sequence[Candidate], reference: float | None) -> None:
    names = [f"{c.kind} ({c.memories})" if c.memories else c.kind for c in candidates]
    values = [max(c.r2 or 0.0, 0.0) for c in candidates]
    colors = [BLUE] * len(names)
    if reference is not None:
        names.append("reference")
        values.append(max(reference, 0.0))
        colors.append(GREEN)
    y = np.arange(len(names))[::-1]
    axes.barh(y, values, color=colors, height=0.6)
    axes.set_yticks(y, names)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the variance, held out")
