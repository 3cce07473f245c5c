"""What depth trades: layers against heads per layer, bits and error, each row compiled and certified.

    lag t = s + s + ... : t / s layers of shifts by s, and H heads make each shift

A row is kept if no other has as few layers, as few heads and as small a bound.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memloci.certifier.certificate import Proved
from memloci.certifier.certify import certify
from memloci.compiler.design_to_model import design_to_model
from memloci.errors import BadInput
from memloci.planner.make_plan import PRECISIONS, demand_of
from memloci.planner.routes import STEPS, Demand, Progress, depth
from memloci.tasks.base import Task
from memloci.tasks.fixed import Fixed

HEADS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Row:
    step: int
    layers: int
    heads: int
    bits: int | None  # with which the bound is 1e-6, or twice its value in exact arithmetic if that is larger
    bound: Proved
    exact_bound: Proved
    mass: float
    parameters: int

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bound": float(self.bound), "exact_bound": float(self.exact_bound)}

    def beats(self, other: "Row") -> bool:
        mine, theirs = (self.layers, self.heads, self.bound), (other.layers, other.heads, other.bound)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def depth_table(
    task: Task,
    precision: str,
    *,
    steps: Sequence[int] = STEPS,
    heads: Sequence[int] = HEADS,
    progress: Progress | None = None,
) -> list[Row]:
    """The Pareto front of depth for recalling a task's lags: (layers, heads per layer, bits, bound)."""
    tell = progress or (lambda text, done: None)
    if not isinstance(task, Fixed):
        raise BadInput(f"depth recalls fixed lags; this task has {task.kind} memories")
    if precision not in PRECISIONS:
        raise BadInput(f"precision {precision!r}: models are built in {' or '.join(PRECISIONS)}")
    # The lags alone: what is computed from them costs the same in every row.
    task = Fixed(lags=task.lags, readout=[f"x{i + 1}" for i in range(task.M)])
    demand = demand_of(task, 1e-3, precision)
    assert isinstance(demand, Demand)
    tries = [(step, H) for step in steps for H in (heads if step > 1 else (1,))]
    rows: list[Row] = []
    for k, (step, H) in enumerate(tries):
        tell(f"shifts by {step}, {H} heads", k / len(tries))
        model = design_to_model(depth(demand, step, H))
        first = certify(model, task, tolerance=1.0)
        enough = max(2 * first.exact_bound, 1e-6)
        bits = certify(model, task, tolerance=enough).bits
        a = model.architecture
        rows.append(
            Row(
                step,
                a.layers,
                a.heads,
                bits,
                first.bound,
                first.exact_bound,
                first.mass,
                model.parameter_count,
            )
        )
    return [row for row in rows if row.bound < 1 and not any(other.beats(row) for other in rows)]
