"""PLAN: (task, tolerance, precision) -> route -> circuit -> weights -> certificate, ranked by what they cost.

The tolerance is shared out before a route is asked: an affine readout leaves all of it to attention, a
finite alphabet leaves attention its margin, anything else splits it between f and the memories. Each
circuit is compiled and certified here, so what a plan promises is proved, not hoped for.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memloci.approx.readouts.ridge_sums import RidgeSum, readout_ridge
from memloci.certify.certificate import Certificate
from memloci.certify.certify import certify
from memloci.circuits.circuit import Circuit
from memloci.circuits.compile import compile_circuit
from memloci.core.errors import BadInput
from memloci.core.limits import positive, too_much_memory
from memloci.core.precision import DEFAULT, evaluated
from memloci.core.specs import shorten
from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from memloci.routes.capacity import obstacle
from memloci.routes.registry import ROUTES
from memloci.routes.request import Obstacle, Request
from memloci.tasks.inputs import require_inputs
from memloci.tasks.task import Task

BYTES = 48  # tuned: of memory, per parameter, while weights are built and certified
WIDEST = 1e-2  # the attention error that a readout is made for where its slopes ask for less

Progress = Callable[[str, float], None]  # what is being done, and the part of the work before it


@dataclass(frozen=True)
class Plan:
    """A circuit with its weights, certificate and cost."""

    circuit: Circuit
    model: Transformer
    certificate: Certificate

    @property
    def route(self) -> str:
        return self.circuit.route

    @property
    def why(self) -> str:
        return self.circuit.why

    @property
    def cost(self) -> tuple[int, int, int, int]:
        """(heads in all, layers, parameters, bits): what plans are ranked by."""
        a = self.model.architecture
        heads = sum(a.block(l).heads for l in range(a.layers))
        return heads, a.layers, self.model.parameter_count, self.certificate.bits or 10**6


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

    @property
    def best(self) -> Plan:
        """The cheapest plan that meets the tolerance, else the one that comes nearest."""
        if self.met:
            return self.met[0]
        if self.missed:
            return self.missed[0]
        reasons = "; ".join(f"{route}: {reason}" for route, reason in self.obstacles.items())
        raise BadInput(f"no route serves this task: {reasons}")


@dataclass(frozen=True)
class Built:
    """Weights by construction, and what is proved of them."""

    task: Task
    model: Transformer
    certificate: Certificate
    plan: Plan

    def run(self, x: Any, *, strict: bool = False) -> Any:
        """model(x); with `strict`, an input outside the ranges that the certificate is about is refused."""
        if strict:
            require_inputs(self.task, x)
        return self.model(x)


def plan(
    task: Task,
    tolerance: float = 1e-3,
    precision: str = DEFAULT,
    *,
    routes: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Plans:
    """Every route for a task: ranked if it meets the tolerance, with the reason if it does not."""
    chosen = _chosen(routes)
    tolerance = positive(tolerance, "tolerance")
    evaluated(precision)
    tell = progress or (lambda text, done: None)
    tell("the readout", 0.0)
    request = request_of(task, tolerance, precision)
    met, missed, obstacles = [], [], {}
    for k, name in enumerate(chosen):
        done = (k + 1) / (len(chosen) + 1)
        tell(name, done)
        try:
            say = lambda text, name=name, done=done: tell(f"{name}: {text}", done)
            candidate = plan_route(name, replace(request, report=say), tolerance)
        except (Obstacle, BadInput) as reason:
            obstacles[name] = str(reason)
            continue
        (met if candidate.certificate.met else missed).append(candidate)
    met.sort(key=lambda p: p.cost)
    missed.sort(key=lambda p: p.certificate.bound)
    return Plans(task, tolerance, precision, tuple(met), tuple(missed), obstacles)


def plan_route(name: str, request: Request, tolerance: float) -> Plan:
    """The plan of one route, or its obstacle."""
    circuit = ROUTES[name](request)
    architecture = circuit.architecture()
    if reason := obstacle(architecture, request.task) or too_large(architecture):
        raise Obstacle(reason)
    request.report(f"weights, {architecture.parameter_limit():,} at most")
    model = compile_circuit(circuit)
    request.report(f"the certificate of {model.parameter_count:,} parameters")
    return Plan(circuit, model, certify(model, request.task, tolerance=tolerance))


def too_large(architecture: Architecture) -> str | None:
    """Why these weights are not built: they, and their certificate, would take more memory than is allowed."""
    count = architecture.parameter_limit()
    return too_much_memory(count * BYTES, f"not built: {count:,} parameters")


def _chosen(routes: Sequence[str] | None) -> Sequence[str]:
    for name in routes or ():
        if name not in ROUTES:
            raise BadInput(f"route {shorten(name)} is unknown; the routes are {', '.join(ROUTES)}")
    return tuple(routes) if routes else tuple(ROUTES)


def request_of(task: Task, tolerance: float, precision: str) -> Request:
    """What the routes are asked for."""
    readout, E_attn = share(task, tolerance)
    return Request(task, readout, E_attn, loosest(task, tolerance, readout), precision)


def share(task: Task, tolerance: float) -> tuple[RidgeSum, float]:
    """The readout's neurons, and the l1 error per memory that leaves the tolerance room."""
    size = max(channel.magnitude for channel in task.channels)
    present = {f"{channel.name}0" for channel in task.channels}
    sizes = dict(zip(task.variables, [c.magnitude for c in task.channels] * (task.M + 1), strict=True))
    recalled = {name: bound for name, bound in task.lip_f.items() if name not in present}
    total = sum(bound * sizes[name] for name, bound in recalled.items() if math.isfinite(bound))
    E_attn = min(0.45 * tolerance / total, WIDEST) if total else WIDEST
    reach = {name: E_attn * magnitude for name, magnitude in sizes.items()}
    ridge = readout_ridge(task, tolerance=0.45 * tolerance, reach=reach)
    if ridge.margins and set(ridge.margins) == set(ridge.variables):
        return ridge, 0.5 * min(ridge.margins.values()) / size  # below the margin errors vanish
    if not any(ridge.E_ffn) and total:
        return ridge, 0.9 * tolerance / total  # an exact readout leaves all of the tolerance to attention
    return ridge, E_attn


def loosest(task: Task, tolerance: float, readout: RidgeSum) -> dict[str, float]:
    """Per variable, the l1 error of its recall that alone takes the whole tolerance, or the whole margin.

    A readout with slope c errs by |c| r ||residual||_1 on some past, r being half the channel's range, because each
    past token can be at either end; an error of a symbol beyond its margin gives another symbol's value.
    """
    errors = dict.fromkeys(task.variables, math.inf)
    for name, slope in task.lip_f.items():
        channel = task.channel(name)
        r = (channel.domain[-1].hi - channel.domain[0].lo) / 2
        if name in readout.margins and channel.magnitude:
            errors[name] = readout.margins[name] / channel.magnitude
        elif 0 < slope * r < math.inf:
            errors[name] = tolerance / (slope * r)
    return errors


__all__ = ["Built", "Plan", "Plans", "Progress", "plan", "request_of"]
