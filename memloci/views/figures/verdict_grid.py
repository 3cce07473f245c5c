"""Claims against changes: where a verdict holds, where it turns around, at a glance.

A cell has the colour and the sign of its verdict and, below, the effect that decided it. A frame marks a verdict that is
the opposite of the one in the first column.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from memloci.core.numbers import number
from memloci.study.claim import GridCell, VerdictGrid
from memloci.views.figures.drawing import GRID, INK, SOFT, plain_text, svg_of, wrapped
from memloci.views.figures.effects import VERDICTS

WIDTH, ROW, HEAD = 9.6, 0.36, 0.75  # inches
WORDS = {"not run": "", "cannot be": "–"}
DECIDED = {"confirmed", "refuted"}
CAPTION = (
    "Circles are confirmed, crosses refuted, hollow squares open; a dash is a case that cannot be, an empty place one that was not run. Beside each is the effect "
    "that decided it. Framed verdicts are the opposite of those with no change."
)


def grid_figure(grid: VerdictGrid, name: str = "grid") -> str:
    return svg_of(name, HEAD + ROW * len(grid.rows), lambda figure: _draw(figure, grid), WIDTH)


def _draw(figure: Figure, grid: VerdictGrid) -> None:
    axes = figure.subplots()
    axes.set_xlim(0, len(grid.columns))
    axes.set_ylim(len(grid.rows), 0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=6)
    axes.xaxis.tick_top()
    axes.set_xticks([k + 0.5 for k in range(len(grid.columns))], [wrapped(c, 14, 2) for c in grid.columns])
    axes.set_yticks(
        [k + 0.5 for k in range(len(grid.rows))], list(map(plain_text, grid.rows)), fontweight="bold"
    )
    for k in range(len(grid.rows) + 1):
        axes.axhline(k, color=GRID, linewidth=0.8, zorder=0)
    for y, cases in enumerate(grid.cases):
        for x, case in enumerate(cases):
            _cell(axes, x, y, case, turned={case.verdict, cases[0].verdict} == DECIDED)
    figure.suptitle(wrapped(grid.title, 90, 2), x=0.01, ha="left", fontsize=10, fontweight="bold")


def _cell(axes: Axes, x: int, y: int, case: GridCell, turned: bool) -> None:
    if case.part is None:
        axes.text(
            x + 0.5, y + 0.5, WORDS.get(case.verdict, ""), ha="center", va="center", fontsize=8, color=SOFT
        )
        return
    color, mark, filled = VERDICTS[case.verdict]
    axes.add_patch(
        Rectangle((x + 0.04, y + 0.08), 0.92, 0.84, facecolor=color, alpha=0.14, linewidth=0, zorder=1)
    )
    if turned:
        frame = Rectangle(
            (x + 0.04, y + 0.08), 0.92, 0.84, facecolor="none", edgecolor=INK, linewidth=1.6, zorder=3
        )
        axes.add_patch(frame)
    face = color if filled else "none"
    axes.plot([x + 0.16], [y + 0.5], marker=mark, color=color, markerfacecolor=face, markersize=7, zorder=4)
    value = case.part.effect.value
    text = "no number" if value is None else f"{number(value, 2)} {_short(case.part.unit)}"
    axes.text(x + 0.27, y + 0.5, plain_text(text), va="center", fontsize=7.2, color=INK, zorder=4)


def _short(unit: str) -> str:
    return {"bits per byte": "bits", "Kendall's tau": "tau", "log10 error": "log10", "sup error": "sup"}.get(
        unit, unit
    )
