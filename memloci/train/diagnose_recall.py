"""What one layer of lin or log heads can recall, and so why it did not: too few bits, the wrong tail, too few heads.

Proved: floors and the errors of fits. Found: the fits; a better one may exist.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from memloci.approx.kernels.kernel_sums import KernelSum, fit
from memloci.approx.kernels.lower_bounds import LEAST_CHARGE, chebyshev_mass, lower_bound
from memloci.approx.kernels.rpe import as_rpe
from memloci.approx.kernels.targets import AbstractTarget, SingleLag
from memloci.certify.certificate import Certificate
from memloci.certify.certify import certify
from memloci.circuits.circuit import Circuit
from memloci.circuits.compile import compile_circuit
from memloci.core.errors import BadInput
from memloci.core.numbers import lower_number, number, power_of_two, upper_number
from memloci.core.precision import PRECISIONS, Precision
from memloci.routes.kernel_heads import cost
from memloci.routes.one_layer import kernel_circuit
from memloci.routes.request import ROUNDING, Request
from memloci.synthesize import request_of
from memloci.tasks.load import task_from_dict
from memloci.tasks.task import Task
from memloci.train.diagnosis import (
    BITS,
    HEADS,
    OTHER,
    TAIL,
    DiagnosedRun,
    Diagnosis,
    expressible,
    heads_text,
    inside,
    slow_readout,
)

MOST_HEADS = 32  # tuned: more are not fitted
MOVES = 8  # tuned
FLOOR: dict[str, Any] = {
    "bits": 128,
    "alone": 24,
    "last": 100,
    "ratio": 1.3,
    "rounds": 3,
}  # weaker, not less true


@dataclass(frozen=True)
class RecallProblem:
    """What one layer of fixed kernels must recall, and what is known of it."""

    text: str  # the task
    rpe: str
    tolerance: float
    precision: str

    @property
    def task(self) -> Task:
        return task_from_dict(json.loads(self.text))

    @property
    def format(self) -> Precision:
        return PRECISIONS[self.precision]

    @property
    def u(self) -> float:
        return self.format.u


def kernel_sums(case: DiagnosedRun) -> Diagnosis | None:
    a, task = case.architecture, case.task
    plain = (
        a.norm == "none" and a.window is None and a.stride == 1 and a.normalisation in ("infinite", "none")
    )
    if a.layers > 1 or a.attention != "dpf" or a.encoding not in OTHER or not plain:
        return None
    if not task.stationary or slow_readout(task):
        return None
    recall = RecallProblem(case.text, a.encoding, case.tolerance, a.precision)
    fitted, enough = _fitted(recall, a.heads), _tolerated_error(recall)
    if cost(fitted, recall.u) <= enough:
        certificate = _certified(recall, a.heads)
        return expressible(case, certificate) if _holds(case, recall, certificate) else None
    floor = _floor(recall)
    if not _lags(recall):  # a lag has no tail
        other = replace(recall, rpe=OTHER[recall.rpe])
        if cost(_fitted(other, a.heads), recall.u) <= enough:
            return _tail(case, fitted, _fitted(other, a.heads), floor)
    if floor is not None and floor.error > enough:
        return _bits(case, recall, fitted, floor)
    for heads in _more(a.heads, recall):
        more = _fitted(recall, heads, moves=0)
        if cost(more, recall.u) <= enough:
            return _heads(case, fitted, more, enough)
    return None


def _tail(case: DiagnosedRun, fitted: KernelSum, other: KernelSum, floor: "KernelFloor | None") -> Diagnosis:
    proved = ""
    evidence: dict[str, Any] = {
        "heads": case.architecture.heads,
        "E_own": fitted.error,
        "E_other": other.error,
    }
    if floor is not None and floor.error > case.tolerance:
        proved = f" {_charged(fitted.rpe, floor.error)}"
        evidence["E_own_least"] = floor.error
    return Diagnosis(
        TAIL,
        f"With {heads_text(other.heads, other.rpe)} the l1 error for this kernel is {upper_number(other.error)} (proved of a "
        f"fit); the best fit found with {heads_text(case.architecture.heads, fitted.rpe)} leaves {upper_number(fitted.error)}.{proved}",
        evidence,
    )


def _charged(rpe: str, E: float) -> str:
    return (
        f"Charged with one rounding of the mass, less than any certificate charges, no {rpe} heads, however many, have an "
        f"error and rounding of less than {lower_number(E)} together (proved)."
    )


def _bits(
    case: DiagnosedRun, recall: RecallProblem, kernel_sum: KernelSum, floor: "KernelFloor"
) -> Diagnosis:
    enough, bits = _tolerated_error(recall), recall.format.bits
    return Diagnosis(
        BITS,
        f"To recall {floor.target} to within {number(enough, 2)}, one {recall.rpe} layer needs a mass of at least {power_of_two(floor.log2_mass)}, "
        f"whatever its heads (proved), and {recall.precision} has {bits} bits. {_charged(recall.rpe, floor.error)} "
        f"For the best fit found with {heads_text(case.architecture.heads, recall.rpe)} that sum is "
        f"{upper_number(cost(kernel_sum, recall.u))}." + _packing(case.task),
        {
            "E_least": floor.error,
            "E_found": cost(kernel_sum, recall.u),
            "enough": enough,
            "log2_mass_least": floor.log2_mass,
            "bits": bits,
        },
    )


def _heads(case: DiagnosedRun, fitted: KernelSum, more: KernelSum, enough: float) -> Diagnosis:
    return Diagnosis(
        HEADS,
        f"The best fit found with {heads_text(case.architecture.heads, fitted.rpe)} leaves an l1 error of {upper_number(fitted.error)} "
        f"where the tolerance asks for {number(enough, 2)}; {more.heads} leave {upper_number(more.error)}. That fewer cannot is not "
        "proved: these are fits." + _packing(case.task),
        {
            "heads": case.architecture.heads,
            "E_found": fitted.error,
            "heads_that_do": more.heads,
            "E_more": more.error,
        },
    )


def _packing(task: Task) -> str:
    finite = any(channel.finite for channel in task.channels)
    return (
        " Symbols, unlike real numbers, could be packed in fewer sums and unpacked by an FFN."
        if finite
        else ""
    )


def _more(heads: int, recall: RecallProblem) -> list[int]:
    """Numbers of heads beyond the run's; log heads for lags take long to fit, so one."""
    steps = [2 * heads, 4 * heads, 8 * heads]
    slow = recall.rpe == "log" and bool(_lags(recall))
    return [H for H in (steps[:1] if slow else steps) if H <= (8 if slow else MOST_HEADS)]


@lru_cache(maxsize=512)
def _request(recall: RecallProblem) -> Request:
    request = request_of(recall.task, recall.tolerance, recall.precision)
    if not request.kernel_variables:
        raise BadInput("nothing is recalled")
    return request


def _tolerated_error(recall: RecallProblem) -> float:
    return _request(recall).E_attn


def _lags(recall: RecallProblem) -> list[SingleLag]:
    return [target for target in _request(recall).targets if isinstance(target, SingleLag)]


@lru_cache(maxsize=512)
def _fitted(recall: RecallProblem, heads: int, moves: int = MOVES) -> KernelSum:
    """The best of a quick fit and, if that is not enough, one that moves its exponents."""
    ask: Callable[[int], KernelSum] = lambda moves: fit(
        recall.rpe,  # type: ignore[arg-type]
        _request(recall).targets,
        min(heads, MOST_HEADS),
        precision=recall.precision,  # type: ignore[arg-type]
        rounding=ROUNDING,
        moves=moves,
    )
    fitted = ask(0)
    slow = recall.rpe == "log" and bool(_lags(recall))
    if not moves or slow or cost(fitted, recall.u) <= _tolerated_error(recall):
        return fitted
    return min(fitted, ask(moves), key=lambda one: cost(one, recall.u))


@dataclass(frozen=True)
class KernelFloor:
    """Proved: no heads of the encoding leave less, when mass costs the least that any certificate charges."""

    target: str
    error: float
    log2_mass: float  # that the error which is enough takes


@lru_cache(maxsize=512)
def _floor(recall: RecallProblem) -> KernelFloor | None:
    """For the farthest lag, or the kernel that has the highest; None where heads are such kernels already."""
    enough, rpe = _tolerated_error(recall), as_rpe(recall.rpe)  # type: ignore[arg-type]
    lags = _lags(recall)
    if lags:
        hardest: list[AbstractTarget] = [max(lags, key=lambda target: target.lag)]
        if max(target.lag for target in lags) == 1:
            return None
    else:
        hardest = [t for t in _request(recall).targets if (s := t.spectrum(rpe)) is None or s.powers]
    floors = []
    for target in hardest:
        effort = {} if lags else FLOOR
        bound = lower_bound(rpe, target, price=LEAST_CHARGE * recall.u, **effort)
        if isinstance(target, SingleLag) and recall.rpe == "lin" and enough < 1:
            mass = chebyshev_mass(target.lag, enough).log2
        else:
            mass = math.log2(max(bound.mass_for(enough), 1.0))
        floors.append(KernelFloor(target.label, bound.error, mass))
    return max(floors, key=lambda floor: floor.error, default=None)


@lru_cache(maxsize=512)
def _compiled(recall: RecallProblem, heads: int) -> Circuit:
    """The fit, as a circuit."""
    return kernel_circuit(_request(recall), _fitted(recall, heads))


@lru_cache(maxsize=512)
def _certified(recall: RecallProblem, heads: int) -> Certificate:
    return certify(compile_circuit(_compiled(recall, heads)), recall.task, tolerance=recall.tolerance)


def _holds(case: DiagnosedRun, recall: RecallProblem, certificate: Certificate) -> bool:
    """Whether the compiled weights are good enough, and are weights of the run's architecture."""
    circuit = _compiled(recall, case.architecture.heads)
    return certificate.exact_bound <= case.tolerance and inside(circuit.architecture(), case.architecture)
