"""What depth trades: layers against heads per layer, width, bits and error, each row compiled and certified.

    fixed lags       t = s + s + ... : t / s layers of shifts by s, and H heads make each shift
    lags of content  a level of memories per layer, or one memory per layer (Theorem 4.4, Proposition 4.5): the heads and
                     neurons of a layer are then those of one memory in place of all; a chain of shifts; rotary heads

A row is kept if no other has as few layers, as few heads, as few neurons and as small a bound.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memloci.certify.certify import certify
from memloci.circuits.circuit import Circuit
from memloci.circuits.compile import compile_circuit
from memloci.core.errors import BadInput
from memloci.core.numbers import number
from memloci.core.precision import evaluated
from memloci.core.proved import Proved
from memloci.routes.depth import STEPS, depth
from memloci.routes.registry import ROUTES
from memloci.routes.request import Obstacle, Request
from memloci.routes.sums import sums
from memloci.synthesize import Progress, request_of
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.names import memory_of
from memloci.tasks.short import Fixed
from memloci.tasks.task import Task

TABLE_HEADS = (1, 2, 4, 8, 16)
TABLE_ROUTES = ("rotary", "rotary-deep", "chain")
TABLE_SUMS = ("", "deep", "direct")

Try = tuple[str, Callable[[Request], Circuit]]  # what is built, and how


@dataclass(frozen=True)
class DepthRow:
    route: str
    step: int | None  # of the shifts, where the lags are fixed
    layers: int
    heads: int
    width: int
    bits: int | None  # with which the bound is 1e-6, or twice its value in exact arithmetic if that is larger
    bound: Proved
    exact_bound: Proved
    mass: float
    parameters: int

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bound": float(self.bound), "exact_bound": float(self.exact_bound)}

    def beats(self, other: "DepthRow") -> bool:
        cost = lambda row: (row.layers, row.heads, row.width, row.bound)
        return cost(self) != cost(other) and all(a <= b for a, b in zip(cost(self), cost(other), strict=True))


def depth_table(
    task: Task,
    precision: str,
    *,
    steps: Sequence[int] = STEPS,
    heads: Sequence[int] = TABLE_HEADS,
    progress: Progress | None = None,
) -> list[DepthRow]:
    """The Pareto front of depth for recalling a task's lags: (layers, heads per layer, width, bound)."""
    tell = progress or (lambda text, done: None)
    evaluated(precision)
    recalled = lags_alone(task)
    request = request_of(recalled, 1e-3, precision)
    tries = list(_shifts(steps, heads) if recalled.stationary else _pointers(heads))
    rows: list[DepthRow] = []
    reasons: list[str] = []
    for k, (what, build) in enumerate(tries):
        tell(what, k / len(tries))
        try:
            circuit = build(request)
        except (Obstacle, BadInput) as reason:
            reasons.append(str(reason))
            continue
        model = compile_circuit(circuit)
        first = certify(model, recalled, tolerance=1.0)
        enough = max(2 * first.exact_bound, 1e-6)
        bits = certify(model, recalled, tolerance=enough).bits if first.exact_bound < 1 else None
        rows.append(
            DepthRow(
                route=circuit.route,
                step=int(circuit.route.removeprefix("depth-")) if recalled.stationary else None,
                layers=len(circuit.layers),
                heads=circuit.heads,
                width=max(circuit.width(l) for l in range(len(circuit.layers))),
                bits=bits,
                bound=first.bound,
                exact_bound=first.exact_bound,
                mass=first.mass,
                parameters=model.parameter_count,
            )
        )
    if not rows:
        raise BadInput(f"no depth serves these lags: {'; '.join(dict.fromkeys(reasons))}")
    if not any(row.bound < 1 for row in rows):
        least = number(min(row.bound for row in rows))
        raise BadInput(
            f"no depth that was tried has a bound below 1 in {precision}; the best bound is {least}"
        )
    return [row for row in rows if row.bound < 1 and not any(other.beats(row) for other in rows)]


def lags_alone(task: Task) -> Task:
    """The task that returns what memories at lags hold: what is computed from them costs the same in every row."""
    if task.stationary:
        lags = [lag for lag in task.fixed_lags.values() if lag]
        if not lags:
            raise BadInput("depth recalls lags, and no memory of this task lies at one")
        return Fixed(lags=lags, readout=[f"x{i + 1}" for i in range(len(lags))])
    if not all(isinstance(recall, LagTable) for recall in task.recalls):
        raise BadInput("the depth table is about memories at lags, and some of this task are none")
    read = {name for formula in task.readouts for name in formula.variables if memory_of(name)}
    return Task(channels=task.channels, memories=task.memories, readout=sorted(read))


def _shifts(steps: Sequence[int], heads: Sequence[int]) -> Iterator[Try]:
    for step in steps:
        for H in heads if step > 1 else (1,):
            yield f"shifts by {step}, {H} heads", lambda request, step=step, H=H: depth(request, step, H)


def _pointers(heads: Sequence[int]) -> Iterator[Try]:
    for name in TABLE_ROUTES:
        yield name, ROUTES[name]
    for form in TABLE_SUMS:
        for H in heads:
            build = lambda request, form=form, H=H: sums(request, "lin", "dp", H, form)
            yield f"lin-dp{form and '-' + form}, {H} heads per memory", build
