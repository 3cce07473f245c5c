"""How far certificates lie above the errors that are found: a ratio per route.

    bound / max(adversarial error, 2 ulps of the output's range)

over gallery tasks and random ones, compiled in float32. The adversary is `measure`, with sequences on which rounding
errors add up (constant, alternating, random signs) beside it. Two ulps of the output's range stand in for an error that
sampling cannot find: no evaluation in that precision is surely better.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from benchmarks.table import Table
from memloci.certify.certificate import Certificate
from memloci.core.errors import BadInput
from memloci.core.precision import PRECISIONS
from memloci.model.transformer import Transformer
from memloci.observe.sup_error import default_length, measure
from memloci.pipeline import compile
from memloci.routes.registry import ROUTES
from memloci.tasks.gallery import GALLERY
from memloci.tasks.short import Adaptive, Essential, Fixed
from memloci.tasks.task import Task

RANDOM = 10  # tasks per route
PRECISION = "float32"
TOLERANCE = {
    "depth-3": 1e-2,
    "depth-4": 1e-1,
    "lin-tmx": 1e-2,
    "lin-dp": 1e-2,
    "log-tmx": 1e-2,
    "log-dp": 1e-2,
}  # the wall


@dataclass(frozen=True)
class Tightness:
    route: str
    task: str
    bound: float
    exact: float
    found: float  # the largest error of any input tried
    floor: float  # 2 ulps of the output's range

    @property
    def ratio(self) -> float:
        return self.bound / max(self.found, self.floor)


def tightness(route: str, name: str, task: Task, model: Transformer, proved: Certificate) -> Tightness:
    """One compiled model against what is found of it."""
    found, largest = largest_error(model, task)
    ulp = math.ldexp(2 * PRECISIONS[proved.precision].u, math.frexp(largest)[1] - 1)
    return Tightness(route, name, float(proved.bound), float(proved.exact_bound), found, 2 * ulp)


def largest_error(model: Transformer, task: Task, seed: int = 0) -> tuple[float, float]:
    """(the largest error found, the largest output seen)."""
    n = min(default_length(task), 2_056)
    seen = measure(model, task, key=jr.key(seed), sequences=8, length=n, steps=8, starts=4)
    worst, largest = float(seen.err_sup), 0.0
    program = eqx.filter_jit(model)
    for x in (seen.worst_input, *structured(task, n, seed)):
        target = np.asarray(task.target(jnp.asarray(x, "float64")))
        largest = max(largest, float(np.abs(target).max()))
        worst = max(worst, float(np.abs(np.asarray(program(jnp.asarray(x)), "float64") - target).max()))
    return worst, largest


def structured(task: Task, n: int, seed: int) -> Iterator[np.ndarray]:
    """Sequences whose rounding errors add up, and random ends of the ranges; symbols are drawn."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    signs = [np.ones(n), -np.ones(n), (-1.0) ** t, np.where(t < n // 2, 1.0, -1.0)]
    signs += [rng.choice([-1.0, 1.0], n) for _ in range(8)]
    for sign in signs:
        columns = []
        for channel in task.channels:
            lo, hi = channel.domain[0].lo, channel.domain[-1].hi
            if channel.finite:
                columns.append(rng.choice([piece.lo for piece in channel.domain], n))
            elif len(channel.domain) > 1:
                columns.append(rng.choice([end for piece in channel.domain for end in piece], n))
            else:
                columns.append(np.where(sign > 0, hi, lo))
        x = np.stack(columns, axis=1).astype(PRECISION).astype(float)
        yield x


# -- tasks ------------------------------------------------------------------------------------------------


def random_task(route: str, rng: np.random.Generator) -> Task:
    """A task that the route is made for."""
    real = lambda: f"{rng.uniform(-1, 1):.3f}"
    if route in ("rotary", "chain", "lin-tmx", "lin-dp", "log-tmx", "log-dp") and (
        route != "rotary" or rng.integers(2)
    ):
        far = {"rotary": 64, "chain": 8, "lin-tmx": 3, "lin-dp": 3, "log-tmx": 2, "log-dp": 2}[route]
        values = sorted(rng.choice(np.arange(1, far + 1), min(far, 4), replace=False).tolist())
        channels: list[Any] = [{"name": "a", "values": values}, {"name": "v", "range": [-1, 1]}]
        return Adaptive(channels=channels, lags=["a0"], readout=f"{real()} * v1 + {real()} * v0")
    if route == "bias-table" or (route.startswith("one-layer") and rng.integers(2)):
        rate, power = rng.uniform(0.05, 1.5), rng.uniform(1.5, 3.5)
        kernel = f"exp(-{rate:.3f} * z)" if route != "one-layer-log" else f"z ** -{power:.3f}"
        return Essential(kernels=[kernel], readout=f"{real()} * x1 + {real()} * x0")
    far = {"rotary": 240, "t5": 240, "depth-1": 12, "depth-2": 10, "depth-3": 9, "depth-4": 8}.get(route, 2)
    M = int(min(far, rng.integers(1, 5)))
    lags = sorted(rng.choice(np.arange(1, far + 1), M, replace=False).tolist())
    return Fixed(lags=lags, readout=" + ".join(f"{real()} * x{i}" for i in range(1, M + 1)))


def tasks_of(
    route: str, count: int = RANDOM, seed: int = 0, gallery: bool = True
) -> Iterator[tuple[str, Task]]:
    for name, entry in GALLERY.items() if gallery else ():
        yield name, entry()
    rng = np.random.default_rng(seed)
    for k in range(count):
        yield f"random {k}", random_task(route, rng)


def measured(
    routes: Sequence[str] = tuple(ROUTES), count: int = RANDOM, gallery: bool = True
) -> Iterator[Tightness]:
    for route in routes:
        for name, task in tasks_of(route, count, gallery=gallery):
            try:
                built = compile(task, tolerance=tolerance_of(route), precision=PRECISION, route=route)
            except BadInput:
                continue  # this route does not serve the task
            yield tightness(route, name, task, built.model, built.certificate)


def tolerance_of(route: str) -> float:
    return TOLERANCE.get(route, 1e-3)


def run() -> Table:
    rows: list[list[str | float]] = []
    found = list(measured())
    for route in ROUTES:
        own = [one for one in found if one.route == route]
        if own:
            ratios = [one.ratio for one in own]
            worst = max(own, key=lambda one: one.ratio)
            rows.append([route, str(len(own)), float(np.median(ratios)), worst.ratio, worst.task])
    columns = ["route", "tasks", "median ratio", "largest ratio", "its task"]
    note = f"in {PRECISION}; a ratio below 1 would refute the certificate"
    return Table("Bounds against errors found", columns, rows, note)
