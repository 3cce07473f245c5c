"""Why a run did not learn its task: the first of these reasons that holds.

    proved for every model of the architecture     the capacity bound, the floor of affine functions of the past
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
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from memloci.certify.certificate import Certificate
from memloci.core.errors import BadInput
from memloci.core.numbers import lower_number, number
from memloci.model.architecture import Architecture
from memloci.routes.affine_floor import affine_floor, is_affine
from memloci.routes.capacity import questions, state
from memloci.routes.request import Obstacle
from memloci.synthesize import plan
from memloci.tasks.load import task_from_dict
from memloci.tasks.memories.lag_table import LagTable
from memloci.train import witness
from memloci.train.diagnose_recall import kernel_sums
from memloci.train.diagnosis import (
    DIVERGED,
    LAYERS,
    LEARNED,
    NARROW,
    NO_DOT_PRODUCT,
    NO_FFN,
    NO_TARGET,
    OTHER,
    OUT_OF_SIGHT,
    SAMPLES,
    START,
    TOO_SHORT,
    UNKNOWN,
    DiagnosedRun,
    Diagnosis,
    expressible,
    inside,
    layers_text,
    slow_readout,
)
from memloci.train.record import RunRecord
from memloci.train.spec import DATA_KINDS, Run

COMPUTED = " (whatever the weights; computed in floats)"
APART = 10.0  # held-out loss over training loss


def diagnose(run: Run, record: RunRecord, thorough: bool = True) -> Diagnosis:
    """Why a run did not reach its tolerance, or that it did. Without `thorough` nothing is fitted, which takes seconds."""
    if record.diverged:
        step = record.diverged_at
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
    err_sup = record.err_sup
    if err_sup is None:
        return Diagnosis(DIVERGED, "The loss stayed finite, but on some sequence the output is no number.")
    trained = record.architecture or run.architecture
    if trained is None:
        return Diagnosis(
            UNKNOWN, "The record does not say which architecture was trained.", {"err_sup": err_sup}
        )
    case = DiagnosedRun(
        run,
        trained,
        run.record,
        float(err_sup),
        record.loss,
        record.held_out,
    )
    if never := _too_short(case):
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


def _quick_reasons(case: DiagnosedRun) -> Iterator[Diagnosis | None]:
    for reason in (_out_of_sight, _capacity, _start, _no_ffn, _narrow, _samples):
        yield reason(case)
    yield _layers(case)


def _reasons(case: DiagnosedRun) -> Iterator[Diagnosis | None]:
    for reason in (_out_of_sight, _capacity, _start, _no_ffn, _narrow, _samples):
        yield reason(case)
    # A search that is refused decides nothing: a callable, a lag out of range, a readout without bounds.
    for search in (kernel_sums, _compiled):
        try:
            yield search(case)
        except (BadInput, Obstacle):
            yield None
    yield _layers(case)


# -- learned, or never asked ------------------------------------------------------------------------------


def _learned(case: DiagnosedRun) -> Diagnosis:
    far = case.task.farthest
    rare = f" Lags of {case.n:,} or more did not occur." if case.n <= far < math.inf else ""
    return Diagnosis(
        LEARNED,
        f"No error above the tolerance was seen: at most {number(case.err_sup)} on drawn and sought sequences of length "
        f"{case.n:,}.{rare}",
        {"err_sup": case.err_sup, "tolerance": case.tolerance},
    )


def _too_short(case: DiagnosedRun) -> Diagnosis | None:
    nearest = [min(recall.cells) if isinstance(recall, LagTable) else 1 for recall in case.task.recalls]
    late = {i: lag for i, lag in enumerate(nearest, start=1) if lag >= case.n}
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


def _out_of_sight(case: DiagnosedRun) -> Diagnosis | None:
    E = witness.out_of_sight(case.task, case.architecture, case.n)
    if E <= case.tolerance:
        return None
    a = case.architecture
    blocks = [a.block(l) for l in range(a.layers)]
    windows = sorted({block.window for block in blocks if block.window is not None})
    strides = sorted({block.stride for block in blocks if block.stride > 1})
    window = f" a window of {' or '.join(f'{w:,}' for w in windows)}" if windows else ""
    stride = f" stride {' or '.join(f'{k:,}' for k in strides)}" if strides else ""
    limits = " and".join(part for part in (window, stride) if part)
    return Diagnosis(
        OUT_OF_SIGHT,
        f"With{limits}, {layers_text(a)} cannot reach tokens that the target depends on: two sequences that differ "
        f"only there get one answer, which is wrong by {lower_number(E)} or more on one of them{COMPUTED}.",
        {
            "err_least": E,
            "window": windows[0] if windows else None,
            "stride": strides[0] if strides else 1,
            "layers": a.layers,
        },
    )


def _capacity(case: DiagnosedRun) -> Diagnosis | None:
    """routes/capacity.py, with the questions that sequences of this length have room for."""
    numbers = state(case.architecture)
    asks = [question for question in questions(case.task).all if question.reach < case.n]
    if numbers is None or numbers >= len(asks) or asks[numbers].r <= case.tolerance:
        return None
    r = float(asks[numbers].r)
    return Diagnosis(
        NO_DOT_PRODUCT,
        f"Weights of attention {_attentions(case.architecture)} factorise, so L H d_v = {numbers} numbers reach a "
        f"position from its past, and the task may ask for {len(asks)}: two pasts agree on all of them, and the error "
        f"is at least {lower_number(r)} (proved). A dot product, more layers, heads or value coordinates lift the bound.",
        {"E_least": r, "carried": numbers, "asked": len(asks)},
    )


def _attentions(a: Architecture) -> str:
    names = dict.fromkeys(a.block(l).attention for l in range(a.layers))
    return " and ".join(map(repr, names))


def _start(case: DiagnosedRun) -> Diagnosis | None:
    E = witness.start_unseen(case.task, case.architecture, case.n)
    if E <= case.tolerance:
        return None
    return Diagnosis(
        START,
        "On a constant sequence one softmax layer gives one answer at every position after the first, because its "
        f"weights sum to 1; the target changes as its memories begin, so the error is at least {lower_number(E)}{COMPUTED}. "
        "normalisation = 'infinite' or 'none', a second layer, or an absolute encoding can tell the positions apart.",
        {"err_least": E, "layers": 1, "normalisation": "softmax"},
    )


def _no_ffn(case: DiagnosedRun) -> Diagnosis | None:
    floor = affine_floor(case.task) if is_affine(case.architecture) else None
    if floor is not None and floor.E_least > case.tolerance and max(floor.lags) < case.n:
        return Diagnosis(
            NO_FFN,
            f"Without an FFN and without a dot product the output is an affine function of the past, and {floor.text}.",
            {"E_least": float(floor.E_least), "width": 0},
        )
    E = witness.not_affine(case.task, case.architecture, case.n)
    if E <= case.tolerance:
        return None
    return Diagnosis(
        NO_FFN,
        "Without an FFN and without a dot product the output is an affine function of the sequence, and the target is "
        f"not: every such function errs by {lower_number(E)} or more{COMPUTED}.",
        {"err_least": E, "width": 0},
    )


def _narrow(case: DiagnosedRun) -> Diagnosis | None:
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


def _samples(case: DiagnosedRun) -> Diagnosis | None:
    count, loss, held_out = case.run.training.samples, case.loss, case.held_out
    if count is None or not loss or not held_out or held_out < APART * loss:
        return None
    return Diagnosis(
        SAMPLES,
        f"On its {count:,} sequences the loss is {number(loss, 2)}, on others {number(held_out, 2)}: it fits what it saw. This is "
        "observed; more samples, or fresh ones, tell whether the task can be learned.",
        {"samples": count, "err_loss": loss, "err_held_out": held_out},
    )


def _layers(case: DiagnosedRun) -> Diagnosis | None:
    task, L = case.task, case.architecture.layers
    if task.stationary:
        return None
    paper = task.paper_layers
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


# -- compiled weights of the same sizes -------------------------------------------------------------------


def _compiled(case: DiagnosedRun) -> Diagnosis | None:
    for route in _routes(case):
        planned = _planned(case.text, case.tolerance, case.architecture.precision, route)
        if planned is None:
            continue
        architecture, certificate = planned
        if certificate.met and inside(architecture, case.architecture):
            return expressible(case, certificate)
    return None


def _routes(case: DiagnosedRun) -> list[str | None]:
    """Routes that may fit the architecture and take seconds. The frequencies of compiled rotary heads are their own,
    not those that `rope_base` gives, so no rotary weights are a trained model's."""
    a, task, training = case.architecture, case.task, case.run.training
    if case.run.architecture is None:
        return [training.route]
    if slow_readout(task):
        return []
    far = task.farthest
    if not task.stationary:
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


# -- nothing decides -------------------------------------------------------------------------------------


def _unknown(case: DiagnosedRun, thorough: bool) -> Diagnosis:
    caveat = "" if thorough else " Nothing was fitted or compiled to compare with."
    return Diagnosis(
        UNKNOWN,
        f"The largest error seen is {number(case.err_sup)}. Nothing proved excludes that this architecture learns the "
        f"task, and no weights of its sizes were found that do.{caveat}",
        {"err_sup": case.err_sup, "tolerance": case.tolerance},
    )
