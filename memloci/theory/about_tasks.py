"""What results of results.py say of a task: one sentence each, with its numbers; None where a result is not about it."""

import math

from memloci.approx.kernels.lower_bounds import chebyshev_mass
from memloci.approx.readouts.ridge_exact import affine
from memloci.core.numbers import literal, power_of_two
from memloci.core.precision import PRECISIONS
from memloci.routes.affine_floor import affine_floor
from memloci.routes.capacity import questions
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.task import Task
from memloci.theory.lemma_f1 import heads_enough

ERROR = 1e-3  # for which numbers are told


def _far(task: Task) -> int:
    """The farthest fixed lag; 0 if there is none."""
    return max(task.fixed_lags.values(), default=0) if task.stationary else 0


def _affine_readouts(task: Task) -> bool:
    forms = [formula.expression and affine(formula.expression) for formula in task.readouts]
    return all(form is not None for form in forms)


def lemma_f1(task: Task) -> str | None:
    if not (far := _far(task)):
        return None
    counts = {rpe: heads_enough(rpe, far, ERROR) for rpe in ("lin", "log")}
    by_encoding = [f"{count:,} {rpe}" for rpe, count in counts.items() if count is not None]
    if not by_encoding:
        return None
    return f"its own heads, with our constant, recall lag {far:,} to within {literal(ERROR)} with {' or '.join(by_encoding)} heads, in exact arithmetic"


def exact_certificate(task: Task) -> str | None:
    if not task.stationary or not _affine_readouts(task):
        return None
    return "the readout is affine, so what a certificate proves of attention is attained by an input, up to rounding"


def precision_wall(task: Task) -> str | None:
    far = _far(task)
    if far < 2:
        return None
    mass, stops = chebyshev_mass(far, ERROR), stopped(task)
    text = f"one layer of lin heads needs {power_of_two(mass.log2)} of mass to recall lag {far:,} to within {literal(ERROR)}"
    return text + (f": one rounding of that exceeds the error in {', '.join(stops)}" if stops else "")


def stopped(task: Task) -> list[str]:
    """The precisions in which no layer of lin heads recalls the farthest lag."""
    far = _far(task)
    log2 = chebyshev_mass(far, ERROR).log2 if far > 1 else 0.0
    return (
        [name for name, precision in PRECISIONS.items() if log2 - precision.bits > math.log2(ERROR)]
        if far > 1
        else []
    )


def chain_of_shifts(task: Task) -> str | None:
    far = _far(task)
    return f"lag {far:,} is {far:,} layers of exact shifts by one" if far > 1 else None


def rotary(task: Task) -> str | None:
    lags = len(set(task.fixed_lags.values()) - {0})
    if task.stationary:
        return f"{lags} rotary head{'s' if lags > 1 else ''} in one layer" if lags else None
    if any(isinstance(recall, Occurrence) for recall in task.recalls):
        return None
    return f"{max(task.levels) + 2} layers with one softmax head per memory, any lag and length"


def affine_past(task: Task) -> str | None:
    floor = affine_floor(task)
    return floor.text if floor else None


def capacity_bound(task: Task) -> str | None:
    asks = questions(task).all
    if not asks:
        return None
    return (
        f"a query can ask for N = {len(asks):,} real numbers of the past, so models whose weights factorise err by "
        f"{literal(asks[-1].r)} or more while L H d_v < {len(asks):,}"
    )


def matches(task: Task) -> str | None:
    by_content = [i for i, recall in enumerate(task.recalls, start=1) if isinstance(recall, Occurrence)]
    return (
        f"memor{'ies' if len(by_content) > 1 else 'y'} {', '.join(map(str, by_content))}: route match recalls by content"
        if by_content
        else None
    )
