"""Recall over long sequences: a compiled rotary model on the path `sharp`, up to a million tokens.

Each row runs in a process of its own, because peak memory is a process's. `seconds` is the better of two runs,
the first of which also compiles; the memory holds both, the libraries and the sequence. The error is against
the task's own target, the bound is the certificate of the model on this path.
"""

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks import adaptive
from benchmarks.table import Table
from memloci.tasks.short import Fixed
from memloci.tasks.task import Task

LENGTHS = (10_000, 100_000, 1_000_000)
LAG, T = 65_535, 4_096


def tasks() -> dict[str, Task]:
    return {f"lag {LAG:,}": Fixed(lags=[LAG], readout="x1"), f"pointer, T {T:,}": adaptive.task(16, T)}


def measure(name: str, n: int) -> dict[str, float]:
    """In this process, so call it once per process."""
    import resource

    import equinox as eqx
    import jax.numpy as jnp
    import jax.random as jr

    from memloci.certify.certify import certify
    from memloci.pipeline import compile
    from memloci.tasks.inputs import sample

    task = tasks()[name]
    model = compile(task, route="rotary").model.using("sharp")
    bound = float(certify(model, task).bound)
    x = sample(task, jr.key(0), n, jnp.dtype("float32"))
    run = eqx.filter_jit(lambda model, x: model(x))  # weights as arguments, not as constants to fold
    took, y = [], x
    for _ in range(2):
        start = time.perf_counter()
        y = run(model, x).block_until_ready()
        took.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB, in bytes on macOS
    gib = peak / 2 ** (30 if sys.platform == "darwin" else 20)
    error = float(jnp.abs(y - task.target(x)).max())
    return {"n": n, "seconds": min(took), "first": took[0], "GiB": gib, "error": error, "bound": bound}


def exponent(rows: list[dict[str, float]]) -> float:
    """The slope of log seconds against log n."""
    logs = np.log([[row["n"], row["seconds"]] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def run() -> Table:
    cells: list[list[str | float]] = []
    for name in tasks():
        rows: list[dict[str, Any]] = []
        for n in LENGTHS:
            command = [sys.executable, "-m", "benchmarks.recall", name, str(n)]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rows.append(json.loads(out.splitlines()[-1]))
        for row in rows:
            last = row is rows[-1]
            numbers = [row[key] for key in ("seconds", "first", "GiB", "error", "bound")]
            cells.append([name, f"{row['n']:,}", *numbers, exponent(rows) if last else ""])
    columns = ["model", "tokens", "seconds", "with compiling", "GiB", "error", "error, proved", "exponent"]
    note = "path sharp, float32; exponent: of seconds against tokens, least squares over the rows of a model"
    return Table("Recall over long sequences", columns, cells, note)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
