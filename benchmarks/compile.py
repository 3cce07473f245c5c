"""What compiling costs: time and parameters against the farthest lag, and against heads.

Compiling is planning one route, making the weights and proving their certificate. Each time is also a ratio
to the shortest rotary model of the same run, which is what a machine's speed cancels out of.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.table import Table
from memloci.approx.kernels.kernel_sums import fit
from memloci.approx.kernels.targets import SingleLag
from memloci.pipeline import compile
from memloci.tasks.short import Fixed
from memloci.tasks.task import Task
from memloci.views.figures.drawing import BLUE, GREEN, RED, style

LAGS = {"rotary": (8, 64, 512, 4_096, 32_768), "depth-1": (8, 16, 32, 64)}
MEMORIES = (1, 2, 4, 8, 16, 32)  # one rotary head each
FIT_HEADS = (4, 8, 16, 32)
LOOKS = {"rotary": (BLUE, "o"), "depth-1": (RED, "s"), "fit of lag 5": (GREEN, "D")}


@dataclass(frozen=True)
class Row:
    series: str
    against: str  # lag or heads
    x: int
    seconds: float
    parameters: int | None  # a fit alone has none
    E: float


def seconds(job: Callable[[], Any], rounds: int = 2) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(rounds):  # the first run of a model also compiles it
        start = time.perf_counter()
        result = job()
        best = min(best, time.perf_counter() - start)
    return best, result


def _compiled(series: str, against: str, x: int, task: Task) -> Row:
    took, built = seconds(lambda: compile(task, route=series))
    return Row(series, against, x, took, built.model.parameter_count, float(built.certificate.bound))


def measure() -> list[Row]:
    rows = [
        _compiled(route, "lag", lag, Fixed(lags=[lag], readout="x1"))
        for route, lags in LAGS.items()
        for lag in lags
    ]
    for M in MEMORIES:
        mean = " + ".join(f"{1 / M} * x{i}" for i in range(1, M + 1))
        rows.append(
            _compiled("rotary", "heads", M, Fixed(lags=[7 * i for i in range(1, M + 1)], readout=mean))
        )
    for H in FIT_HEADS:
        took, found = seconds(lambda H=H: fit("lin", SingleLag(5), H), rounds=1)
        rows.append(Row("fit of lag 5", "heads", H, took, None, found.error))
    return rows


def run() -> Table:
    rows = measure()
    unit = rows[0].seconds
    cells: list[list[str | float]] = [
        [
            row.series,
            f"{row.against} {row.x:,}",
            row.seconds,
            row.seconds / unit,
            "-" if row.parameters is None else f"{row.parameters:,}",
            row.E,
        ]
        for row in rows
    ]
    columns = ["work", "size", "seconds", "ratio", "parameters", "error, proved"]
    note = "rotary parameters grow with log2 of the lag, those of depth with its square; a fit is the heads alone"
    return Table("Compiling", columns, cells, note, lambda path: draw(rows, path))


def draw(rows: list[Row], path: Path) -> None:
    """Seconds and parameters, against the lag and against heads."""
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(9, 5.6), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(2, 2, sharex="col", sharey="row")
        for j, (against, label) in enumerate(
            [("lag", "lag = context that must be reached, tokens"), ("heads", "heads")]
        ):
            for series, (color, marker) in LOOKS.items():
                own = [row for row in rows if row.series == series and row.against == against]
                sized = [(row.x, row.parameters) for row in own if row.parameters is not None]
                look = {"color": color, "marker": marker, "markersize": 5, "label": series}
                if own:
                    grid[0, j].plot([row.x for row in own], [row.seconds for row in own], **look)
                if sized:
                    grid[1, j].plot(*zip(*sized, strict=True), **look)
            ticks = sorted({row.x for row in rows if row.against == against})
            for axes in grid[:, j]:
                axes.set_xscale("log")
                axes.set_yscale("log")
                axes.set_xticks(ticks, [f"{x:,}" for x in ticks], rotation=45 if j == 0 else 0)
                axes.minorticks_off()
                axes.legend(loc="upper left")
            grid[1, j].set_xlabel(label)
        grid[0, 0].set_ylabel("seconds to compile and certify")
        grid[1, 0].set_ylabel("parameters")
        figure.savefig(path, metadata={"Software": None})
