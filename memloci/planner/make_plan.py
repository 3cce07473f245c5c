"""`plan`: (task, tolerance, precision) -> designs, cheapest first, and the routes that cannot serve.

The tolerance is shared out before a route is asked: an affine readout leaves all of it to attention, a
finite alphabet leaves attention its margin, anything else splits it between f and the memories. Each
design is compiled and certified here, so what a plan promises is proved, not hoped for.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memloci.approx.kernel_targets import memory_target
from memloci.approx.ridge_sums import RidgeSum, readout_ridge
from memloci.approx.targets import AbstractTarget
from memloci.certifier.certificate import Certificate
from memloci.certifier.certify import certify
from memloci.certifier.rounding import UNIT
from memloci.compiler.design_to_model import design_to_model
from memloci.compiler.wiring_to_model import wiring_to_model
from memloci.errors import BadInput
from memloci.model.transformer import Transformer
from memloci.planner.adaptive_routes import ADAPTIVE_ROUTES, AdaptiveDemand
from memloci.planner.capacity import obstacle
from memloci.planner.design import Design
from memloci.planner.routes import ROUTES, Demand, Obstacle, Progress
from memloci.planner.wiring import Wiring
from memloci.tasks.adaptive import Adaptive
from memloci.tasks.base import Task

PRECISIONS = ("float32", "float64")
WIDEST = 1e-2  # the attention error that a readout is made for where its slopes ask for less


@dataclass(frozen=True)
class Plan:
    """A design with its certificate and cost."""

    design: Design | Wiring
    model: Transformer
    certificate: Certificate

    @property
    def route(self) -> str:
        return self.design.route

    @property
    def why(self) -> str:
        return self.design.why

    @property
    def cost(self) -> tuple[int, int, int, int]:
        """(heads in all, layers, parameters, bits): what plans are ranked by."""
        a = self.model.architecture
        return a.layers * a.heads, a.layers, self.model.parameter_count, self.certificate.bits or 10**6


@dataclass(frozen=True)
class Plans(Sequence[Plan]):
    """The plans that meet the tolerance, cheapest first; `missed` and `obstacles` say what of the others."""

    task: Task
    tolerance: float
    precision: str
    met: tuple[Plan, ...]
    missed: tuple[Plan, ...]
    obstacles: dict[str, str]

    def __getitem__(self, index):  # type: ignore[override]
        return self.met[index]

    def __len__(self) -> int:
        return len(self.met)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.met)


def plan(
    task: Task,
    tolerance: float = 1e-3,
    precision: str = "float32",
    *,
    routes: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Plans:
    """Every route for a task: ranked if it meets the tolerance, with the reason if it does not."""
    chosen = _check(task, tolerance, precision, routes)
    tell = progress or (lambda text, done: None)
    tell("the readout", 0.0)
    demand = demand_of(task, tolerance, precision)
    met, missed, obstacles = [], [], {}
    for k, name in enumerate(chosen):
        done = (k + 1) / (len(chosen) + 1)
        tell(name, done)
        try:
            saying = replace(demand, say=lambda text, name=name, done=done: tell(f"{name}: {text}", done))
            design, model = _build(name, saying)
            found = Plan(design, model, certify(model, task, tolerance=tolerance, precision=precision))
        except (Obstacle, BadInput) as reason:
            obstacles[name] = str(reason)
            continue
        (met if found.certificate.met else missed).append(found)
    met.sort(key=lambda p: p.cost)
    missed.sort(key=lambda p: p.certificate.bound)
    return Plans(task, tolerance, precision, tuple(met), tuple(missed), obstacles)


def _build(name: str, demand: Demand | AdaptiveDemand) -> tuple[Design | Wiring, Transformer]:
    if isinstance(demand, AdaptiveDemand):
        wiring = ADAPTIVE_ROUTES[name](demand)
        if reason := obstacle(wiring.architecture(), demand.task):
            raise Obstacle(reason)
        return wiring, wiring_to_model(wiring)
    design = ROUTES[name](demand)
    return design, design_to_model(design)


def demand_of(task: Task, tolerance: float, precision: str) -> Demand | AdaptiveDemand:
    """What the routes are asked for."""
    readout, E_attn = share(task, tolerance)
    if isinstance(task, Adaptive):
        return AdaptiveDemand(task, readout, E_attn, precision)
    names = tuple(channel.name for channel in task.channels)
    return Demand(names, _memories(task, readout), E_attn, readout, precision)


def _check(task: Task, tolerance: float, precision: str, routes: Sequence[str] | None) -> Sequence[str]:
    if not (isinstance(tolerance, int | float) and 0 < tolerance < math.inf):
        raise BadInput(f"tolerance must be a positive number, found {tolerance!r}")
    if precision not in PRECISIONS:
        raise BadInput(f"precision {precision!r}: models are built in {' or '.join(PRECISIONS)}")
    known = tuple(ADAPTIVE_ROUTES if isinstance(task, Adaptive) else ROUTES)
    for name in routes or ():
        if name not in known:
            raise BadInput(
                f"route {name!r} is unknown; the routes of {task.kind} memories are {', '.join(known)}"
            )
    return tuple(routes) if routes else known


def share(task: Task, tolerance: float) -> tuple[RidgeSum, float]:
    """The readout's neurons, and the l1 error per memory that leaves the tolerance room."""
    size = max(channel.magnitude for channel in task.channels)
    present = {f"{channel.name}0" for channel in task.channels}
    sizes = dict(zip(task.variables, [c.magnitude for c in task.channels] * (task.M + 1), strict=True))
    recalled = {name: bound for name, bound in task.lip_f.items() if name not in present}
    total = sum(bound * sizes[name] for name, bound in recalled.items() if math.isfinite(bound))
    E_attn = min(0.45 * tolerance / total, WIDEST) if total else WIDEST
    reach = {name: E_attn * own for name, own in sizes.items()}
    ridge = readout_ridge(task, tolerance=0.45 * tolerance, reach=reach)
    if ridge.margins and set(ridge.margins) == set(ridge.variables):
        return ridge, 0.5 * min(ridge.margins.values()) / size  # below the margin errors vanish
    if not any(ridge.E_ffn) and total:
        return ridge, 0.9 * tolerance / total  # an exact readout leaves all of the tolerance to attention
    return ridge, E_attn


def _memories(task: Task, readout: RidgeSum) -> tuple[tuple[str, str, AbstractTarget], ...]:
    found = []
    for i in range(1, task.M + 1):
        names = [(f"{channel.name}{i}", channel.name) for channel in task.channels]
        read = [(name, channel) for name, channel in names if name in readout.variables]
        if read:
            target = memory_target(task, i - 1)  # one for all channels, so that they share its heads
            found += [(name, channel, target) for name, channel in read]
    return tuple(found)


__all__ = ["PRECISIONS", "UNIT", "Plan", "Plans", "plan", "share"]
