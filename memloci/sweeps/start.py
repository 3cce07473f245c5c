"""A sweep from its file to its results, and beforehand what it would take.

sweep file -> runs -> queue in the store -> an engine works it off -> what the store holds then
"""

import importlib
import os
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.numbers import decimals, number
from memloci.core.specs import shorten
from memloci.sweeps.grid import Impossible, Sweep, read_sweep
from memloci.sweeps.local import Progress
from memloci.sweeps.runs import Runs
from memloci.sweeps.store import Store
from memloci.sweeps.worker import ENGINE, Job
from memloci.train.spec import Run

# Where runs are trained: modules with run(job, workers, progress); that of Ray takes an address too.
ENGINES = {"local": "memloci.sweeps.local", "ray": "memloci.sweeps.on_ray"}
EXECUTE = ENGINE
# The rule for what was never run; rough, and not fitted to any machine.
OPERATIONS = 4e9  # a second, of one worker
COMPILATION = 10.0  # seconds a program


def sweep(
    source: str | Path | Sweep,
    *,
    store: str | Path = "runs.sqlite",
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    progress: Progress = lambda text, done: None,
) -> Runs:
    """Run what a sweep file asks for and the store does not hold yet; all its runs, those that failed too.

    `address` is that of a Ray cluster, as HOST:PORT or "auto"; without it the engine "ray" starts its own.
    """
    if engine not in ENGINES:
        raise BadInput(f"engine: unknown {shorten(engine)}; use {', '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise BadInput(f"address: the engine {engine} has none; use it with engine ray")
    module = importlib.import_module(ENGINES[engine])
    grid = source if isinstance(source, Sweep) else read_sweep(source)
    path = str(Path(store).resolve())
    with Store(path) as opened:
        queued = opened.enqueue(grid.name, grid.runs)
    where = {} if address is None else {"address": address}
    module.run(Job(path, queued, EXECUTE), workers, progress, **where)
    return Runs(store, sweep=queued)


@dataclass(frozen=True)
class Forecast:
    """What a sweep would do."""

    name: str
    runs: int
    finished: int  # in the store already
    programs: int  # to compile for the others
    impossible: tuple[Impossible, ...]
    seconds: float | None  # for all workers together; None if nobody knows
    basis: str  # of that number

    @property
    def waiting(self) -> int:
        return self.runs - self.finished

    def to_dict(self) -> dict[str, Any]:
        return {
            "sweep": self.name,
            "runs": self.runs,
            "finished": self.finished,
            "waiting": self.waiting,
            "programs": self.programs,
            "impossible": [impossible.to_dict() for impossible in self.impossible],
            "seconds": self.seconds,
            "basis": self.basis,
        }


def forecast(sweep: Sweep, store: str | Path = "runs.sqlite", workers: int | None = None) -> Forecast:
    """Look at the sweep and the store, and start nothing."""
    rows = []
    if os.path.exists(store):
        with Store(store, create=False) as opened:
            rows = opened.rows()
    done = {row["key"] for row in rows if row["status"] == "done"}
    waiting = [run for run in sweep.runs if run.key not in done]
    programs = len({run.program for run in waiting})
    seconds, basis = _estimate(waiting, programs, rows)
    if seconds is not None:
        seconds /= max(1, min(workers or os.cpu_count() or 1, len(waiting)))
    finished = len(sweep.runs) - len(waiting)
    return Forecast(sweep.name, len(sweep.runs), finished, programs, sweep.impossible, seconds, basis)


def _estimate(
    waiting: Sequence[Run], programs: int, rows: Sequence[dict[str, Any]]
) -> tuple[float | None, str]:
    """Seconds of one worker, and where the number comes from."""
    paces: dict[Any, list[float]] = defaultdict(list)  # seconds a token, by program and by size
    for row in rows:
        if row["cost"] is not None and (row["record"] or {}).get("steps"):
            pace = row["cost"] / (row["record"]["steps"] * _tokens(row["config"]["training"]))
            paces[row["program"]].append(pace)
            paces[_size(row["config"])].append(pace)
    for alike, basis in ((lambda run: run.program, "programs"), (lambda run: _size(run.to_dict()), "sizes")):
        if all(alike(run) in paces for run in waiting):
            cost = lambda run, alike=alike: statistics.median(paces[alike(run)]) * _all_tokens(run)
            return sum(map(cost, waiting)), f"recorded runs of the same {basis}"
    if any(run.architecture is None for run in waiting):
        return None, "nothing like it was run before"
    seconds = sum(map(_operations, waiting)) / OPERATIONS + COMPILATION * programs
    rule = f"{number(OPERATIONS, 1)} operations a second, {decimals(COMPILATION)} s a compilation"
    return seconds, f"a rule of thumb, as nothing like it was run before: {rule}"


def _size(config: dict[str, Any]) -> tuple[Any, ...]:
    sizes = config["architecture"] or {}  # compiled weights have those of their route
    return config["training"]["route"], *(sizes.get(name) for name in ("layers", "heads", "width", "dim"))


def _tokens(training: dict[str, Any]) -> int:
    """Of one step."""
    return training["batch"] * training["length"]


def _all_tokens(run: Run) -> int:
    return run.training.steps * _tokens(run.training.model_dump())


def _operations(run: Run) -> float:
    """Forwards and backwards, per token: 6 for every weight, and 6 for every number that a score takes."""
    a = run.architecture
    assert a is not None and run.training.length is not None
    blocks = [a.block(l) for l in range(a.layers)]
    heads = sum(block.heads * (block.key_dim + block.value_dim) for block in blocks)
    weights = 2 * heads * a.dim + 2 * sum(block.width for block in blocks) * a.dim
    return 6 * (weights + heads * run.training.length) * _all_tokens(run)
