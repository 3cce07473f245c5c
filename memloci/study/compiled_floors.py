"""What no compiled or trained model of a kind gets below, as an error of the output.

"At one rounding of the mass": for any number of heads of the encoding whose coefficients have mass B,

    E_attn + u B >= floor(u)      (lower_bounds.py),      sup error = |c| E_attn

for memories that are fixed kernels and outputs that are c times one of them plus what the present adds, with tokens from
[-1, 1] or such: the worst input is sign r(z). It is proved over sequences of any length; short ones do not show what lies
beyond them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memloci.approx.kernels.adaptive_sums import floor as floor_of_form
from memloci.approx.kernels.kernel_targets import recall_target
from memloci.approx.kernels.lower_bounds import lower_bound
from memloci.approx.kernels.targets import SingleLag
from memloci.approx.readouts.ridge_exact import affine
from memloci.core.errors import BadInput
from memloci.core.numbers import lower_number
from memloci.core.precision import PRECISIONS
from memloci.routes.capacity import questions
from memloci.routes.request import Obstacle
from memloci.study.compiled_curves import (
    FARTHEST_FIT,
    PRECISION_OF_BITS,
    CompiledCurves,
    CurveFloor,
    RatesRequest,
)
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.names import memory_of
from memloci.tasks.task import Task

FARTHEST_FORM = 16  # tuned: lags of adaptive sums that a floor is computed for


def add_floors(curves: CompiledCurves, precisions: Sequence[str]) -> None:
    """The same at every size: no number of heads gets below."""
    rates = curves.request
    for precision in precisions:
        least = _floor(curves, PRECISIONS[precision].u)
        if least is not None:
            name = f"any {rates.encoding} heads, {precision}"
            curves.floors.append(
                CurveFloor(name, dict.fromkeys(rates.values, least), _statement(rates, precision))
            )


def _statement(request: RatesRequest, what: str) -> str:
    return (
        f"proved: in one layer no {request.encoding} heads, however many, have an error plus one rounding of their mass "
        f"in {what} below it, over sequences of any length"
    )


def _floor(curves: CompiledCurves, u: float) -> float | None:
    """E_attn + u mass of any heads, as an error of the output; None, with a reason, where nothing is proved."""
    rates = curves.request
    try:
        i, factor = _one_memory(rates.task)
        target = recall_target(rates.task.recalls[i - 1])
        if isinstance(target, SingleLag) and target.lag > FARTHEST_FIT:
            raise Obstacle(f"lag {target.lag:,} takes long; it is computed for lags up to {FARTHEST_FIT}")
        curves.report("the least that any heads leave")
        least_l1, norm = lower_bound(rates.rpe, target, price=u).error, float(target.norm().upper())
        # A single head is not charged for rounding, and its mass is at most ||rho||_1 + E <= 2 ||rho||_1.
        least = (least_l1 - 2 * u * norm) * factor * (1 - 1e-12)
    except (BadInput, Obstacle) as reason:
        curves.note(f"lower bound: {reason}")
        return None
    if least <= 0:
        curves.note(f"lower bound: none above 0 was found for {rates.encoding} heads")
        return None
    return least


def _one_memory(task: Task) -> tuple[int, float]:
    """(i, |c| sup |x|) where every output that recalls something is c x_i plus what the present adds."""
    best: tuple[int, float] | None = None
    for formula in task.readouts:
        form = affine(formula.expression) if formula.expression is not None else None
        if form is None:
            raise Obstacle("the readout is not affine, and what is proved is an error of recall")
        recalled = {v: c for v, c in form.a.items() if c and memory_of(v)}
        if len(recalled) != 1:
            continue
        ((name, c),) = recalled.items()
        channel = task.channel(name)
        if channel.domain[0].lo != -channel.domain[-1].hi:
            continue
        factor = abs(float(c)) * channel.magnitude * (1 - 1e-15)
        if best is None or factor > best[1]:
            best = memory_of(name), factor
    if best is None:
        raise Obstacle(
            "no output returns a single memory with a symmetric range, and errors of several may cancel"
        )
    return best


def capacity_floor(request: RatesRequest, architecture: Mapping[str, Any]) -> CurveFloor | None:
    """The capacity bound for models of these sizes as they vary; None where it says nothing."""
    if architecture.get("attention") not in ("tmx", "dpf"):
        return None
    least: dict[int, float] = {}
    for value in request.values:
        sizes = {**architecture, **({request.vary: value} if request.vary in architecture else {})}
        numbers = sizes["layers"] * sizes["heads"] * sizes["value_dim"]
        open_ = [q for q in questions(request.task).all if q.reach < request.length_at(value)]
        if numbers < len(open_):
            least[value] = float(open_[numbers].r)
    if not least:
        return None
    return CurveFloor(
        "capacity",
        least,
        f"proved: weights of attention {architecture['attention']} factorise, and in models of the sizes that are trained (layers "
        f"{architecture['layers']}, values per head {architecture['value_dim']}) fewer numbers reach a position than can be asked for, "
        "whatever the weights",
    )


def floors_by_bits(curves: CompiledCurves) -> None:
    """Mass costs less with more bits, so what is proved of a finer format holds for a coarser one."""
    rates, best, least = curves.request, 0.0, dict[int, float]()
    for bits in reversed(rates.values):
        best = max(best, _floor(curves, PRECISIONS[PRECISION_OF_BITS[bits]].u) or 0.0)
        if best > 0:
            least[bits] = best
    if least:
        by_size = dict(sorted(least.items()))
        curves.floors.append(
            CurveFloor(f"any {rates.encoding} heads", by_size, _statement(rates, "so many bits"))
        )


def note_form(curves: CompiledCurves, precisions: Sequence[str]) -> None:
    """What sums of this form cannot do; not a floor of the figure, for other models of these sizes are no such sums."""
    rates = curves.request
    for precision in precisions:
        for i, (level, recall) in enumerate(zip(rates.task.levels, rates.task.recalls, strict=True), start=1):
            lags = sorted({*recall.cells} - {0}) if isinstance(recall, LagTable) else []
            if level == 0 and lags and 1 < lags[-1] <= FARTHEST_FORM:
                curves.report("the least that sums of this form leave")
                if (least := floor_of_form(rates.rpe, lags, PRECISIONS[precision].u)) <= 0:
                    continue
                curves.note(
                    f"compiled, {precision}: of all sums of this form, however many heads, none recalls memory {i} with an "
                    f"error plus one rounding of its mass below {lower_number(least)} (proved)"
                )
                break
