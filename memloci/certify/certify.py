"""`certify`: the worst-case error of a model on a task, from the weights alone, of any origin: compiled, trained or loaded.

    weights -> what every coordinate of the stream holds (analysis.py) -> readout against f -> rounding

One analysis follows all memories of a task together. Where one case covers all positions of all sequences, exact errors
and roundings part (uniform_proof.py); else every case is followed in every precision (case_proof.py). What cannot be
followed is refused, with the reason.
"""

import math
from collections.abc import Callable

import numpy as np
from flint import ctx

from memloci.certify.analysis import CaseAnalysis, most_terms
from memloci.certify.case_proof import CaseProof
from memloci.certify.certificate import Certificate, Term
from memloci.certify.mass import mass_lower_bound, mass_of
from memloci.certify.neglected import neglects
from memloci.certify.rounding import Format, format_of
from memloci.certify.slacks import FEWEST_BITS, MOST_TERMS
from memloci.certify.uniform_proof import UniformProof
from memloci.core.errors import BadInput
from memloci.core.precision import PRECISIONS, precision_of
from memloci.core.proved import Proved
from memloci.core.specs import shorten
from memloci.language.expression import rounded_constants
from memloci.model.paths.choice import PATHS, covered, may_take
from memloci.model.transformer import Transformer
from memloci.tasks.task import Task

BITS = 256  # of the balls; coefficients cancel by up to a hundred digits only in extended precision
MOST_BITS = 400  # precisions tried for `bits`


def certify(
    model: Transformer, task: Task, *, tolerance: float = 1e-3, precision: str | None = None
) -> Certificate:
    """The certificate of `model` for `task`, in the precision in which the model is evaluated.

    `precision`, if given, must be that one: a claim about float64 says nothing of a model that runs in float32.
    `bound_by_precision` tells what the same weights would reach in others; `model.astype` puts them there.
    """
    own = model.architecture.precision
    _check_request(own, precision, tolerance)
    _check_form(model, task)
    model.check()
    with ctx.workprec(BITS), np.errstate(all="ignore"):
        analysis = CaseAnalysis(model, task)
        proof = UniformProof(analysis) if analysis.uniform else CaseProof(analysis)
        terms, exact = proof.terms(), proof.exact()
        bounds = {name: Proved(proof.bound(format_of(name))) for name in PRECISIONS}
        met = bounds[own] <= tolerance
        bits = fewest_bits(lambda u: proof.bound(Format(u)) <= tolerance) if exact <= tolerance else None
        levels = proof.levels(format_of(own), tolerance, met)
        least = mass_lower_bound(model, task, proof.errors)
    rounding = Term("rounding", f"rounding model in {own}", Proved(max(bounds[own] - exact, 0.0)))
    return Certificate(
        status="met" if met else "missed",
        tolerance=tolerance,
        precision=own,
        bound=bounds[own],
        exact_bound=Proved(exact),
        bound_by_precision=bounds,
        terms=(*terms, rounding),
        mass=mass_of(model),
        mass_lower_bound=least,
        bits=bits,
        assumptions=assumptions(model, task),
        arithmetic=proof.arithmetic,
        levels=levels,
    )


def _check_request(own: str, precision: str | None, tolerance: float) -> None:
    if precision is not None and precision != own:
        precision_of(precision)
        raise BadInput(
            f"precision {precision!r} is asked of a model that is evaluated in {own}; certify it in {own}, or "
            f"model.astype({precision!r}), which is evaluated in {precision}"
        )
    if not 0 < tolerance < math.inf:
        raise BadInput(f"tolerance must be positive, found {shorten(tolerance)}")


def _check_form(model: Transformer, task: Task) -> None:
    a = model.architecture
    if a.path in PATHS and not all(covered(a.path, a.block(l)) for l in range(a.layers)):
        raise BadInput(
            f"no certificate covers the rounding of path {a.path!r}; certify model.using('certified')"
        )
    if a.norm != "none":
        raise BadInput(
            f"norm {a.norm!r}: a normalised stream is not a sum of kernels; certificates need norm 'none'"
        )
    if model.positions is not None:
        raise BadInput(
            f"encoding {a.encoding!r} adds position vectors to the stream; no certificate follows them"
        )
    if (terms := most_terms(model)) > MOST_TERMS:
        raise BadInput(f"sums of {terms:,} terms; bounds are computed in float64 for up to {MOST_TERMS:,}")
    if (model.channels, model.outputs) != (task.d, task.outputs):
        raise BadInput(
            f"the model maps {model.channels} channels to {model.outputs} outputs, "
            f"the task {task.d} to {task.outputs}"
        )


def fewest_bits(meets_with: Callable[[float], bool]) -> int | None:
    """The fewest significand bits, FEWEST_BITS or more, with which the tolerance is met; `meets_with` takes the unit
    roundoff."""
    meets = lambda bits: meets_with(2.0**-bits)
    low, high = FEWEST_BITS - 1, FEWEST_BITS
    while not meets(high):
        low, high = high, 2 * high
        if high > MOST_BITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def assumptions(model: Transformer, task: Task) -> tuple[str, ...]:
    a = model.architecture
    ranges = ", ".join(
        f"{c.name} in {[p.lo for p in c.domain] if c.finite else [list(p) for p in c.domain]}"
        for c in task.channels
    )
    blocks = [a.block(l) for l in range(a.layers)]
    windows = sorted({block.window for block in blocks if block.window is not None})
    reach = f"every length; lags up to the window of {windows[0]:,}" if windows else "every length"
    taken = [path for path in ("plain", "blocks", "recurrence") if any(may_take(path, b) for b in blocks)]
    evaluation = f"path {' or '.join(taken)}, as the path certified chooses"
    if a.path in PATHS:
        evaluation = f"path {a.path}" + ("; what it leaves out is a term" if neglects(model) else "")
    normalisations = ", ".join(dict.fromkeys(block.normalisation for block in blocks))
    return (
        *_constants(task),
        f"evaluation: {evaluation}",
        f"inputs: {ranges}, numbers of the precision",
        f"normalisation: {normalisations}",
        f"sequence lengths: {reach}, every position, also those earlier than a lag",
        "rounding: to nearest, sums in any order, over a long past as running sums, library functions within 8 units (certify/rounding.py)",
    )


def _constants(task: Task) -> tuple[str, ...]:
    """Which numbers of the task had to be rounded before anything was proved."""
    formulas = [*task.readouts, *(formula for recall in task.recalls for formula in recall.formulas)]
    read: dict[str, float] = {}
    for formula in formulas:
        if formula.expression is not None:
            read |= rounded_constants(formula.expression)
    if not read:
        return ()
    return ("constants: " + ", ".join(f"{text} is read as {value!r}" for text, value in read.items()),)
