"""What one layer of lin or log heads can recall, and so why it did not: too few bits, the wrong tail, too few heads.

Proved: floors and the errors of fits. Found: the fits; a better one may exist.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from memloci.approx.kernel_sums import KernelSum, fit
from memloci.approx.lower_bounds import chebyshev_mass, lower_bound
from memloci.approx.rpe import as_rpe
from memloci.approx.targets import AbstractTarget, SingleLag
from memloci.certifier.certificate import Certificate
from memloci.certifier.certify import certify
from memloci.certifier.rounding import UNIT
from memloci.compiler.design_to_model import design_to_model
from memloci.errors import BadInput
from memloci.planner.make_plan import demand_of
from memloci.planner.routes import ROUNDING, Demand, kernel_layer
from memloci.tasks.adaptive import Adaptive
from memloci.tasks.base import Task
from memloci.tasks.essential import Essential
from memloci.tasks.load import task_from_dict
from memloci.training.diagnosis import (
    BITS,
    HEADS,
    OTHER,
    TAIL,
    Case,
    Diagnosis,
    expressible,
    heads_text,
    least,
    most,
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
class Recall:
    """What one layer of fixed kernels must recall, and what is known of it."""

    text: str  # the task
    rpe: str
    tolerance: float
    precision: str

    @property
    def task(self) -> Task:
        return task_from_dict(json.loads(self.text))

    @property
    def u(self) -> float:
        return UNIT[self.precision]


def kernel_sums(case: Case) -> Diagnosis | None:
    a, task = case.architecture, case.task
    plain = (
        a.norm == "none" and a.window is None and a.stride == 1 and a.normalisation in ("infinite", "none")
    )
    if a.layers > 1 or a.attention != "dpf" or a.encoding not in OTHER or not plain:
        return None
    if isinstance(task, Adaptive) or slow_readout(task):
        return None
    recall = Recall(case.text, a.encoding, case.tolerance, a.precision)
    found, enough = _fitted(recall, a.heads), _enough(recall)
    if _paid(found, recall.u) <= enough:
        certificate = _certified(recall, a.heads)
        return expressible(case, certificate) if _holds(case, recall, certificate) else None
    floor = _floor(recall)
    if isinstance(task, Essential):
        other = replace(recall, rpe=OTHER[recall.rpe])
        if _paid(_fitted(other, a.heads), recall.u) <= enough:
            return _tail(case, found, _fitted(other, a.heads), floor)
    if floor is not None and floor.error > enough:
        return _bits(case, recall, found, floor)
    for heads in _more(a.heads, recall):
        more = _fitted(recall, heads, moves=0)
        if _paid(more, recall.u) <= enough:
            return _heads(case, found, more, enough)
    return None


def _tail(case: Case, own: KernelSum, other: KernelSum, floor: "Floor | None") -> Diagnosis:
    proved = ""
    evidence: dict[str, Any] = {"heads": case.architecture.heads, "E_own": own.error, "E_other": other.error}
    if floor is not None and floor.error > case.tolerance:
        proved = f" {_charged(own.rpe, floor.error)}"
        evidence["E_own_least"] = floor.error
    return Diagnosis(
        TAIL,
        f"With {heads_text(other.heads, other.rpe)} the l1 error for this kernel is {most(other.error)} (proved of a "
        f"fit); the best fit found with {heads_text(case.architecture.heads, own.rpe)} leaves {most(own.error)}.{proved}",
        evidence,
    )


def _charged(rpe: str, E: float) -> str:
    return (
        f"Charged with {ROUNDING:g} roundings of the mass, as certificates are, no {rpe} heads, however many, have an "
        f"error and rounding of less than {least(E)} together (proved)."
    )


def _bits(case: Case, recall: Recall, found: KernelSum, floor: "Floor") -> Diagnosis:
    enough, bits = _enough(recall), -math.log2(recall.u)
    mass = math.floor(10 * floor.log2_mass) / 10
    return Diagnosis(
        BITS,
        f"To recall {floor.target} to within {enough:.2g}, one {recall.rpe} layer needs a mass of at least 2^{mass:g}, "
        f"whatever its heads (proved), and {recall.precision} has {bits:.0f} bits. {_charged(recall.rpe, floor.error)} "
        f"For the best fit found with {heads_text(case.architecture.heads, recall.rpe)} that sum is "
        f"{most(_paid(found, recall.u))}." + _packing(case.task),
        {
            "E_least": floor.error,
            "E_found": _paid(found, recall.u),
            "enough": enough,
            "log2_mass_least": floor.log2_mass,
            "bits": int(bits),
        },
    )


def _heads(case: Case, own: KernelSum, more: KernelSum, enough: float) -> Diagnosis:
    return Diagnosis(
        HEADS,
        f"The best fit found with {heads_text(case.architecture.heads, own.rpe)} leaves an l1 error of {most(own.error)} "
        f"where the tolerance asks for {enough:.2g}; {more.heads} leave {most(more.error)}. That fewer cannot is not "
        "proved: these are fits." + _packing(case.task),
        {
            "heads": case.architecture.heads,
            "E_found": own.error,
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


def _more(heads: int, recall: Recall) -> list[int]:
    """Numbers of heads beyond the run's; log heads for lags take long to fit, so one."""
    steps = [2 * heads, 4 * heads, 8 * heads]
    slow = recall.rpe == "log" and not isinstance(recall.task, Essential)
    return [H for H in (steps[:1] if slow else steps) if H <= (8 if slow else MOST_HEADS)]


@lru_cache(maxsize=512)
def _demand(recall: Recall) -> Demand:
    demand = demand_of(recall.task, recall.tolerance, recall.precision)
    assert isinstance(demand, Demand)
    if not demand.memories:
        raise BadInput("nothing is recalled")
    return demand


def _enough(recall: Recall) -> float:
    return _demand(recall).E_attn


def _targets(recall: Recall) -> list[AbstractTarget]:
    return list(dict.fromkeys(target for _, _, target in _demand(recall).memories))


@lru_cache(maxsize=512)
def _fitted(recall: Recall, heads: int, moves: int = MOVES) -> KernelSum:
    """The best of a quick fit and, if that is not enough, one that moves its exponents."""
    ask: Callable[[int], KernelSum] = lambda moves: fit(
        recall.rpe,  # type: ignore[arg-type]
        _targets(recall),
        min(heads, MOST_HEADS),
        precision=recall.precision,  # type: ignore[arg-type]
        rounding=ROUNDING,
        moves=moves,
    )
    found = ask(0)
    slow = recall.rpe == "log" and any(isinstance(target, SingleLag) for target in found.targets)
    if not moves or slow or _paid(found, recall.u) <= _enough(recall):
        return found
    return min(found, ask(moves), key=lambda one: _paid(one, recall.u))


def _paid(found: KernelSum, u: float) -> float:
    """Error, and what rounding costs when heads cancel."""
    return found.error + (ROUNDING * u * found.mass if found.heads > 1 else 0.0)


@dataclass(frozen=True)
class Floor:
    """Proved: no heads of the encoding leave less, when mass costs what certificates charge."""

    target: str
    error: float
    log2_mass: float  # that the error which is enough takes


@lru_cache(maxsize=512)
def _floor(recall: Recall) -> Floor | None:
    """For the farthest lag, or the kernel that has the highest; None where heads are such kernels already."""
    enough, rpe = _enough(recall), as_rpe(recall.rpe)  # type: ignore[arg-type]
    lags = [target for target in _targets(recall) if isinstance(target, SingleLag)]
    if lags:
        hardest: list[AbstractTarget] = [max(lags, key=lambda target: target.lag)]
        if max(target.lag for target in lags) == 1:
            return None
    else:
        hardest = [t for t in _targets(recall) if (s := t.spectrum(rpe)) is None or s.powers]
    found = []
    for target in hardest:
        effort = {} if lags else FLOOR
        bound = lower_bound(rpe, target, price=ROUNDING * recall.u, **effort)
        # One head pays no price (`_paid`), but weights that sum to 1 keep its mass below ||rho||_1 + enough.
        error = bound.error - ROUNDING * recall.u * (float(target.norm().upper()) + enough)
        if isinstance(target, SingleLag) and recall.rpe == "lin" and enough < 1:
            mass = chebyshev_mass(target.lag, enough).log2
        else:
            mass = math.log2(max(bound.mass_for(enough), 1.0))
        found.append(Floor(target.label, max(0.0, error), mass))
    return max(found, key=lambda floor: floor.error, default=None)


@lru_cache(maxsize=512)
def _certified(recall: Recall, heads: int) -> Certificate:
    """The certificate of the fit, compiled."""
    model = design_to_model(kernel_layer(_demand(recall), _fitted(recall, heads)))
    return certify(model, recall.task, tolerance=recall.tolerance, precision=recall.precision)


def _holds(case: Case, recall: Recall, certificate: Certificate) -> bool:
    """Whether the run's sizes have room for the compiled weights."""
    a, demand = case.architecture, _demand(recall)
    outputs = sum(bool(row.any()) for row in demand.readout.A)
    room = a.dim >= case.task.d + len(demand.memories) + outputs
    read = len({channel for _, channel, _ in demand.memories})
    same = a.normalisation == "infinite"  # what certificates of these weights assume
    enough = certificate.exact_bound <= case.tolerance
    return enough and same and room and a.width >= demand.readout.width and a.value_dim >= read
