"""Why a run did not learn its task: the first of these reasons that holds.

    proved for every model of the architecture     the capacity bound
    computed for every model of the architecture   tokens out of sight, a start that softmax does not see, an affine
                                                   model or too few neurons for the readout
    proved of recall, beside a fit that was found  too few bits, a tail unlike the encoding's, too few heads
    certified weights of the same sizes            expressible but not found by training
    counted                                        fewer layers than constructions for the nesting have

Where nothing decides, it says so. A sentence calls proved what is proved, with its number, and found what a search
has found: a better fit may exist. What witness.py computes holds for all weights by an argument, but its numbers come
from floats, so they are not called proved. Lower bounds are `E_..._least` (proved) and `err_least` (computed), bounds of weights `E_...`, observations `err_...`.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from memloci.approx.kernel_sums import KernelSum, fit
from memloci.approx.lower_bounds import chebyshev_mass, lower_bound
from memloci.approx.ridge_exact import affine
from memloci.approx.rpe import as_rpe
from memloci.approx.targets import AbstractTarget, SingleLag
from memloci.certifier.certificate import Certificate
from memloci.certifier.certify import certify
from memloci.certifier.rounding import UNIT
from memloci.compiler.design_to_model import design_to_model
from memloci.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.planner.capacity import questions, state
from memloci.planner.make_plan import demand_of, plan
from memloci.planner.routes import ROUNDING, Demand, Obstacle, kernel_layer
from memloci.tasks.adaptive import Adaptive
from memloci.tasks.base import Task
from memloci.tasks.essential import Essential
from memloci.tasks.load import task_from_dict
from memloci.training import witness
from memloci.training.spec import DATA_KINDS, Run

LEARNED, DIVERGED, NO_TARGET = "learned", "diverged", "nothing to compare with"
TOO_SHORT = "sequences shorter than the lags"
OUT_OF_SIGHT = "memories out of sight"
NO_DOT_PRODUCT = "no dot product: below the capacity bound"
START = "one softmax layer cannot see the start"
NO_FFN, NARROW = "no FFN for a readout that is not affine", "FFN too narrow"
BITS, TAIL, HEADS = "too few bits", "a tail that does not match the encoding", "too few heads"
NOT_FOUND = "expressible but not found by training"
SAMPLES = "the samples were learned, the task was not"
LAYERS = "too few layers for the nesting"
UNKNOWN = "not known"

QUICK_VARIABLES = 2  # tuned: readouts of more real variables take minutes to approximate
MOST_HEADS = 32  # tuned: more are not fitted
MOVES = 8  # tuned
FLOOR: dict[str, Any] = {
    "bits": 128,
    "alone": 24,
    "last": 100,
    "ratio": 1.3,
    "rounds": 3,
}  # weaker, not less true
OTHER = {"lin": "log", "log": "lin"}
COMPUTED = " (whatever the weights; computed in floats)"
APART = 10.0  # held-out loss over training loss


@dataclass(frozen=True)
class Diagnosis:
    """A reason by name, the sentence for a reader, and the numbers it rests on."""

    name: str
    sentence: str
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def learned(self) -> bool:
        return self.name == LEARNED

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "sentence": self.sentence, "evidence": self.evidence}


@dataclass(frozen=True)
class Case:
    """A run and what became of it."""

    run: Run
    architecture: Architecture
    task: Task
    err_sup: float
    loss: float | None
    held_out: float | None

    @property
    def n(self) -> int:
        return self.run.training.length or 2

    @property
    def tolerance(self) -> float:
        return self.run.training.tolerance

    @property
    def text(self) -> str:
        return json.dumps(self.task.to_dict(), sort_keys=True)


def diagnose(run: Run, record: dict[str, Any], thorough: bool = True) -> Diagnosis:
    """Why a run did not reach its tolerance, or that it did. Without `thorough` nothing is fitted, which takes seconds."""
    if record.get("status") == "diverged":
        step = record.get("diverged_at")
        return Diagnosis(
            DIVERGED,
            f"The loss was no number at step {step:,}; a lower rate, clipping or a warm-up may keep it finite.{_slopes(run)}"
            if isinstance(step, int)
            else "The loss was no number.",
            {"step": step, "rate": run.training.rate},
        )
    if run.task.get("kind") in DATA_KINDS:
        return Diagnosis(
            NO_TARGET, "The data has no definition to compare with; only its held-out loss is known."
        )
    err_sup = record.get("err_sup")
    if err_sup is None:
        return Diagnosis(DIVERGED, "The loss stayed finite, but on some sequence the output is no number.")
    case = Case(
        run,
        Architecture(**record["architecture"]),
        run.record,
        float(err_sup),
        record.get("loss"),
        record.get("held_out"),
    )
    if never := _never_seen(case):
        return never
    if case.err_sup <= case.tolerance:
        return _learned(case)
    for reason in (_reasons if thorough else _quick_reasons)(case):
        if reason is not None:
            return replace(reason, evidence={"err_sup": case.err_sup, **reason.evidence})
    return _unknown(case, thorough)


def _slopes(run: Run) -> str:
    a = run.architecture
    if a is None or a.normalisation != "infinite" or a.encoding not in OTHER:
        return ""
    least = {"lin": 0, "log": 1}[a.encoding]
    return f" With normalisation 'infinite' a slope that falls to {least} is enough: the sum over the past diverges."


def _quick_reasons(case: Case) -> Iterator[Diagnosis | None]:
    for reason in (_out_of_sight, _capacity, _start, _no_ffn, _narrow, _samples):
        yield reason(case)
    yield _layers(case)


def _reasons(case: Case) -> Iterator[Diagnosis | None]:
    for reason in (_out_of_sight, _capacity, _start, _no_ffn, _narrow, _samples):
        yield reason(case)
    # A search that is refused decides nothing: a callable, a lag out of range, a readout without bounds.
    for search in (_kernel_sums, _compiled):
        try:
            yield search(case)
        except (BadInput, Obstacle):
            yield None
    yield _layers(case)


# -- learned, or never asked ------------------------------------------------------------------------------


def _learned(case: Case) -> Diagnosis:
    far = max(case.task.lag_bounds)
    rare = f" Lags of {case.n:,} or more did not occur." if case.n <= far < math.inf else ""
    return Diagnosis(
        LEARNED,
        f"No error above the tolerance was seen: at most {case.err_sup:.3g} on drawn and sought sequences of length "
        f"{case.n:,}.{rare}",
        {"err_sup": case.err_sup, "tolerance": case.tolerance},
    )


def _never_seen(case: Case) -> Diagnosis | None:
    task = case.task
    if isinstance(task, Adaptive):
        least = [int(np.min(table.lags)) for table in task.lag_tables]
    else:
        least = [1 if bound == math.inf else int(bound) for bound in task.lag_bounds]
    late = {i: lag for i, lag in enumerate(least, start=1) if lag >= case.n}
    if not late:
        return None
    i, lag = next(iter(late.items()))
    return Diagnosis(
        TOO_SHORT,
        f"Sequences have {case.n:,} tokens and memory {i} lies at least {lag:,} back, so it is always blank: whatever "
        "the error, it says nothing about recall. Give a larger length.",
        {"err_sup": case.err_sup, "length": case.n, "lag": lag},
    )


# -- for every model of the architecture ------------------------------------------------------------------


def _out_of_sight(case: Case) -> Diagnosis | None:
    E = witness.out_of_sight(case.task, case.architecture, case.n)
    if E <= case.tolerance:
        return None
    a = case.architecture
    window = "" if a.window is None else f" a window of {a.window:,}"
    stride = "" if a.stride == 1 else f" stride {a.stride:,}"
    seen = " and".join(part for part in (window, stride) if part)
    return Diagnosis(
        OUT_OF_SIGHT,
        f"With{seen}, {_layers_text(a)} cannot reach tokens that the target depends on: two sequences that differ "
        f"only there get one answer, which is wrong by {_least(E)} or more on one of them{COMPUTED}.",
        {"err_least": E, "window": a.window, "stride": a.stride, "layers": a.layers},
    )


def _capacity(case: Case) -> Diagnosis | None:
    """planner/capacity.py, with the questions that sequences of this length have room for."""
    carried = state(case.architecture)
    asked = [question for question in questions(case.task).asked if question.reach < case.n]
    if carried is None or carried >= len(asked) or asked[carried].r <= case.tolerance:
        return None
    r = float(asked[carried].r)
    return Diagnosis(
        NO_DOT_PRODUCT,
        f"Weights of attention {case.architecture.attention!r} factorise, so L H d_v = {carried} numbers reach a "
        f"position from its past, and the task may ask for {len(asked)}: two pasts agree on all of them, and the error "
        f"is at least {_least(r)} (proved). A dot product, more layers, heads or value coordinates lift the bound.",
        {"E_least": r, "carried": carried, "asked": len(asked)},
    )


def _start(case: Case) -> Diagnosis | None:
    E = witness.start_unseen(case.task, case.architecture, case.n)
    if E <= case.tolerance:
        return None
    return Diagnosis(
        START,
        "On a constant sequence one softmax layer gives one answer at every position after the first, because its "
        f"weights sum to 1; the target changes as its memories begin, so the error is at least {_least(E)}{COMPUTED}. "
        "normalisation = 'infinite' or 'none', a second layer, or an absolute encoding can tell the positions apart.",
        {"err_least": E, "layers": 1, "normalisation": "softmax"},
    )


def _no_ffn(case: Case) -> Diagnosis | None:
    E = witness.not_affine(case.task, case.architecture, case.n)
    if E <= case.tolerance:
        return None
    return Diagnosis(
        NO_FFN,
        "Without an FFN and without a dot product the output is an affine function of the sequence, and the target is "
        f"not: every such function errs by {_least(E)} or more{COMPUTED}.",
        {"err_least": E, "width": 0},
    )


def _narrow(case: Case) -> Diagnosis | None:
    m = case.architecture.width
    count = witness.pieces(case.task, case.architecture, case.n, case.tolerance)
    if count <= m + 1:
        return None
    return Diagnosis(
        NARROW,
        f"Along a line of sequences one layer of {m:,} neurons is made of at most {m + 1:,} straight pieces, and the "
        f"tolerance takes {count:,} or more{COMPUTED}: width {count - 1:,} at least.",
        {"width": m, "width_least": count - 1},
    )


# -- seen -------------------------------------------------------------------------------------------------


def _samples(case: Case) -> Diagnosis | None:
    count, loss, held_out = case.run.training.samples, case.loss, case.held_out
    if count is None or not loss or not held_out or held_out < APART * loss:
        return None
    return Diagnosis(
        SAMPLES,
        f"On its {count:,} sequences the loss is {loss:.2g}, on others {held_out:.2g}: it fits what it saw. This is "
        "observed; more samples, or fresh ones, tell whether the task can be learned.",
        {"samples": count, "err_loss": loss, "err_held_out": held_out},
    )


def _layers(case: Case) -> Diagnosis | None:
    task, L = case.task, case.architecture.layers
    if not isinstance(task, Adaptive):
        return None
    paper = task.K + 1 + (task.M >= task.K + 1)
    levels = max(task.levels) + 1
    need = min(paper, levels + 1)
    if L >= need:
        return None
    recalls = "one recall" if levels == 1 else f"{levels} recalls, each of which waits for the one before,"
    return Diagnosis(
        LAYERS,
        f"The task takes {recalls} and the first lag must be computed too: constructions have {need} layers (the "
        f"paper's K + 1 + 1{{M >= K + 1}} is {paper}), this model {L}. That is a count, not a proof: nothing excludes "
        "that fewer layers with many heads and a wide FFN do it.",
        {"layers": L, "layers_of_constructions": need, "K": task.K, "levels": levels},
    )


# -- kernel sums: one layer of lin or log heads -----------------------------------------------------------


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


def _kernel_sums(case: Case) -> Diagnosis | None:
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
        return _expressible(case, certificate) if _holds(case, recall, certificate) else None
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
        f"With {_heads_text(other.heads, other.rpe)} the l1 error for this kernel is {_most(other.error)} (proved of a "
        f"fit); the best fit found with {_heads_text(case.architecture.heads, own.rpe)} leaves {_most(own.error)}.{proved}",
        evidence,
    )


def _charged(rpe: str, E: float) -> str:
    return (
        f"Charged with {ROUNDING:g} roundings of the mass, as certificates are, no {rpe} heads, however many, have an "
        f"error and rounding of less than {_least(E)} together (proved)."
    )


def _bits(case: Case, recall: Recall, found: KernelSum, floor: "Floor") -> Diagnosis:
    enough, bits = _enough(recall), -math.log2(recall.u)
    mass = math.floor(10 * floor.log2_mass) / 10
    return Diagnosis(
        BITS,
        f"To recall {floor.target} to within {enough:.2g}, one {recall.rpe} layer needs a mass of at least 2^{mass:g}, "
        f"whatever its heads (proved), and {recall.precision} has {bits:.0f} bits. {_charged(recall.rpe, floor.error)} "
        f"For the best fit found with {_heads_text(case.architecture.heads, recall.rpe)} that sum is "
        f"{_most(_paid(found, recall.u))}." + _packing(case.task),
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
        f"The best fit found with {_heads_text(case.architecture.heads, own.rpe)} leaves an l1 error of {_most(own.error)} "
        f"where the tolerance asks for {enough:.2g}; {more.heads} leave {_most(more.error)}. That fewer cannot is not "
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


# -- compiled weights of the same sizes -------------------------------------------------------------------


def _compiled(case: Case) -> Diagnosis | None:
    for route in _routes(case):
        found = _planned(case.text, case.tolerance, case.architecture.precision, route)
        if found is None:
            continue
        architecture, certificate = found
        if certificate.met and inside(architecture, case.architecture):
            return _expressible(case, certificate)
    return None


def _routes(case: Case) -> list[str | None]:
    """Routes that may fit the architecture and take seconds. The frequencies of compiled rotary heads are their own,
    not those that `rope_base` gives, so no rotary weights are a trained model's."""
    a, task, training = case.architecture, case.task, case.run.training
    if case.run.architecture is None:
        return [training.route]
    if slow_readout(task):
        return []
    far = max(task.lag_bounds)
    if isinstance(task, Adaptive):
        return ["chain"] if a.encoding == "lin" and a.layers > far else []
    if a.encoding == "lin" and a.layers > 1 and far < math.inf:
        return [f"depth-{step}"] if (step := math.ceil(far / a.layers)) <= 2 else []
    return []


@lru_cache(maxsize=128)
def _planned(
    text: str, tolerance: float, precision: str, route: str | None
) -> tuple[Architecture, Certificate] | None:
    plans = plan(task_from_dict(json.loads(text)), tolerance, precision, routes=[route] if route else None)
    if not plans.met:
        return None
    return plans.met[0].model.architecture, plans.met[0].certificate


def inside(small: Architecture, large: Architecture) -> bool:
    """Whether every model of `small` is one of `large`, with zeros in the rest."""
    same = ["encoding", "normalisation", "norm", "window", "stride", "precision"]
    least = ["layers", "heads", "width", "dim", "value_dim"]
    if small.attention != "dpf":
        least.append("key_dim")
    if small.encoding == "t5":
        same += ["buckets", "max_distance"]
    wider = small.attention == "dpf" and large.attention in ("dp", "tmx")  # with queries of 0
    return (
        (wider or small.attention == large.attention)
        and all(getattr(small, name) == getattr(large, name) for name in same)
        and all(getattr(small, name) <= getattr(large, name) for name in least)
    )


def _expressible(case: Case, certificate: Certificate) -> Diagnosis:
    start = " Training started there and left." if case.run.training.start == "compiled" else ""
    if certificate.met:
        proved = f"at most {_most(certificate.bound)}, proved in {certificate.precision} for every input"
    else:  # sums over a past without end are charged with rounding that a short sequence does not have
        proved = (
            f"at most {_most(certificate.exact_bound)} in exact arithmetic (proved; with the rounding of "
            f"{certificate.precision}, at most {_most(certificate.bound)} for any length)"
        )
    return Diagnosis(
        NOT_FOUND,
        f"Weights of these sizes exist whose error is {proved}; training reached {case.err_sup:.3g}.{start} Other "
        "seeds or rates, more steps, or start = 'exponents' may find them.",
        {
            "E_compiled": float(certificate.bound),
            "E_compiled_exact": float(certificate.exact_bound),
            "tolerance": case.tolerance,
        },
    )


def slow_readout(task: Task) -> str | None:
    """Why the readout's neurons would take minutes to find; None if seconds."""
    if any(formula.expression is None for formula in task.readouts):
        return "nothing can be proved of a callable"
    if all(affine(formula.expression) is not None for formula in task.readouts if formula.expression):
        return None
    real = {channel.name for channel in task.channels if not channel.finite}
    read = {name for formula in task.readouts for name in formula.variables}
    count = sum(name.rstrip("0123456789") in real for name in read)
    return f"a readout of {count} real variables" if count > QUICK_VARIABLES else None


# -- parts ------------------------------------------------------------------------------------------------


def _unknown(case: Case, thorough: bool) -> Diagnosis:
    looked = "" if thorough else " Nothing was fitted or compiled to compare with."
    return Diagnosis(
        UNKNOWN,
        f"The largest error seen is {case.err_sup:.3g}. Nothing proved excludes that this architecture learns the "
        f"task, and no weights of its sizes were found that do.{looked}",
        {"err_sup": case.err_sup, "tolerance": case.tolerance},
    )


def _least(E: float) -> str:
    """A lower bound, rounded down when it is shortened."""
    digits = 2 - math.floor(math.log10(E))
    return f"{math.floor(E * 10**digits) / 10**digits:g}"


def _most(E: float) -> str:
    """An upper bound, rounded up."""
    digits = 2 - math.floor(math.log10(E)) if E > 0 else 0
    return f"{math.ceil(E * 10**digits) / 10**digits:g}"


def _layers_text(a: Architecture) -> str:
    return "one layer" if a.layers == 1 else f"{a.layers} layers"


def _heads_text(count: int, rpe: str) -> str:
    return f"one {rpe} head" if count == 1 else f"{count} {rpe} heads"
