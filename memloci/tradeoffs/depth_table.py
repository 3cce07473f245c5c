"""What depth trades: layers against heads per layer, bits and error, each row compiled and certified.

    lag t = s + s + ... : t / s layers of shifts by s, and H heads make each shift

A row is kept if no other has as few layers, as few heads and as small a bound.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memloci.certify.certify import certify
from memloci.circuits.compile import compile_circuit
from memloci.core.errors import BadInput
from memloci.core.precision import evaluated
from memloci.core.proved import Proved
from memloci.routes.depth import STEPS, depth
from memloci.routes.request import Obstacle
from memloci.synthesize import Progress, request_of
from memloci.tasks.short import Fixed
from memloci.tasks.task import Task

TABLE_HEADS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class DepthRow:
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

    def beats(self, other: "DepthRow") -> bool:
        mine, theirs = (self.layers, self.heads, self.bound), (other.layers, other.heads, other.bound)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def depth_table(
    task: Task,
    precision: str,
    *,
    steps: Sequence[int] = STEPS,
    heads: Sequence[int] = TABLE_HEADS,
    progress: Progress | None = None,
) -> list[DepthRow]:
    """The Pareto front of depth for recalling a task's fixed lags: (layers, heads per layer, bits, bound)."""
    tell = progress or (lambda text, done: None)
    lags = [lag for lag in task.fixed_lags.values() if lag]
    if not lags:
        raise BadInput("depth recalls fixed lags, and no memory of this task lies at one")
    evaluated(precision)
    # The lags alone: what is computed from them, and what other memories there are, costs the same in every row.
    task = Fixed(lags=lags, readout=[f"x{i + 1}" for i in range(len(lags))])
    request = request_of(task, 1e-3, precision)
    tries = [(step, H) for step in steps for H in (heads if step > 1 else (1,))]
    rows: list[DepthRow] = []
    reasons: list[str] = []
    for k, (step, H) in enumerate(tries):
        tell(f"shifts by {step}, {H} heads", k / len(tries))
        try:
            circuit = depth(request, step, H)
        except Obstacle as reason:
            reasons.append(str(reason))
            continue
        model = compile_circuit(circuit)
        first = certify(model, task, tolerance=1.0)
        enough = max(2 * first.exact_bound, 1e-6)
        bits = certify(model, task, tolerance=enough).bits
        a = model.architecture
        rows.append(
            DepthRow(
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
    if not rows:
        raise BadInput(f"no depth serves these lags: {'; '.join(dict.fromkeys(reasons))}")
    return [row for row in rows if row.bound < 1 and not any(other.beats(row) for other in rows)]
