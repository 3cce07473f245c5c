"""What compiling costs: time and parameters against the farthest lag, and against heads.

Each time is a ratio to the certificate of the shortest rotary model in the same run, which is what a
machine's speed cancels out of.
"""

import time
from collections.abc import Callable
from typing import Any

from benchmarks.table import Table
from memloci.approx.kernel_sums import fit
from memloci.approx.targets import SingleLag
from memloci.pipeline import compile
from memloci.tasks.fixed import Fixed

LAGS = (8, 64, 512, 4_096, 32_768)
HEADS = (4, 8, 16, 32)


def _seconds(job: Callable[[], Any]) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(2):  # the first run also compiles and imports
        start = time.perf_counter()
        result = job()
        best = min(best, time.perf_counter() - start)
    return best, result


def run() -> Table:
    rows: list[list[str | float]] = []
    unit = 0.0
    for lag in LAGS:
        task = Fixed(lags=[lag], readout="x1")
        for route in ("rotary", *(["depth-1"] if lag <= 64 else [])):
            seconds, built = _seconds(lambda task=task, route=route: compile(task, route=route))
            unit = unit or seconds
            model = built.model
            rows.append(
                [
                    f"{route}, lag {lag:,}",
                    seconds,
                    seconds / unit,
                    model.parameter_count,
                    float(built.certificate.bound),
                ]
            )
    for heads in HEADS:
        seconds, found = _seconds(lambda heads=heads: fit("lin", SingleLag(5), heads))
        rows.append([f"fit of lag 5, {heads} lin heads", seconds, seconds / unit, heads, found.error])
    columns = ["work", "seconds", "ratio", "parameters or heads", "error, proved"]
    return Table(
        "Compiling", columns, rows, "rotary parameters grow with log2 of the lag, not with the length"
    )
