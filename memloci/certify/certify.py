"""`certify`: the worst-case error of a model on a task, from the weights alone, of any origin: compiled, trained or loaded.

    weights -> what every coordinate of the stream holds (analysis.py) -> readout against f -> rounding

One analysis follows all memories of a task together. Where one case covers all positions of all sequences, exact errors
and roundings part (uniform_proof.py); else every case is followed in every precision (case_proof.py). What cannot be
followed is refused, with the reason.
"""

from collections.abc import Callable

import numpy as np
from flint import ctx

from memloci.certify.analysis import CaseAnalysis, most_terms
from memloci.certify.case_proof import CaseProof
from memloci.certify.certificate import Certificate, Term
from memloci.certify.mass import mass_lower_bound, mass_of
from memloci.certify.neglected import neglects
from memloci.certify.rounding import LIBRARY, Format, format_of
from memloci.certify.slacks import FEWEST_BITS, MOST_TERMS
from memloci.certify.uniform_proof import UniformProof
from memloci.core.errors import BadInput
from memloci.core.limits import positive, too_much_memory
from memloci.core.numbers import number
from memloci.core.precision import PRECISIONS, precision_of
from memloci.core.proved import Proved
from memloci.language.expression import rounded_constants
from memloci.model.architecture import Architecture
from memloci.model.paths.choice import AUTOMATIC, LONGEST, covered, possible_paths
from memloci.model.transformer import Transformer
from memloci.tasks.task import Task

PROOF_BITS = 256  # of the balls; coefficients cancel by up to a hundred digits only in extended precision
MOST_BITS = 400  # precisions tried for `bits`
LIVE = 6  # tuned: affine forms that a proof by cases holds per layer, as measured on alphabets of 128 to 256 symbols


def certify(
    model: Transformer, task: Task, *, tolerance: float = 1e-3, precision: str | None = None
) -> Certificate:
    """The certificate of `model` for `task`, in the precision in which the model is evaluated.

    `precision`, if given, must be that one: a claim about float64 says nothing of a model that runs in float32.
    `bound_by_precision` tells what the same weights would reach in others; `model.astype` puts them there.
    """
    evaluated_in = model.architecture.precision
    _check_request(evaluated_in, precision)
    tolerance = positive(tolerance, "tolerance")
    _check_form(model, task)
    model.check()
    with ctx.workprec(PROOF_BITS), np.errstate(all="ignore"):
        analysis = CaseAnalysis(model, task)
        _check_paths(model)
        _check_size(analysis)
        proof = UniformProof(analysis) if analysis.uniform else CaseProof(analysis)
        terms, exact = proof.terms(), proof.exact()
        bounds = {name: Proved(proof.bound(format_of(name))) for name in PRECISIONS}
        met = bounds[evaluated_in] <= tolerance
        meets = lambda u: proof.bound(Format(u)) <= tolerance
        bits = PRECISIONS[evaluated_in].bits
        # Logits of matches are exact in the precision that they are built for, and in no coarser one.
        if not (met and analysis.longest is not None and not meets(2.0 ** (1 - bits))):
            bits = fewest_bits(meets) if exact <= tolerance else None
        levels = proof.levels(format_of(evaluated_in), tolerance, met)
        least = mass_lower_bound(model, task, proof.errors)
    rounding = Term(
        "rounding", f"rounding model in {evaluated_in}", Proved(max(bounds[evaluated_in] - exact, 0.0))
    )
    return Certificate(
        status="met" if met else "missed",
        tolerance=tolerance,
        precision=evaluated_in,
        bound=bounds[evaluated_in],
        exact_bound=Proved(exact),
        bound_by_precision=bounds,
        terms=(*terms, rounding),
        mass=mass_of(model),
        mass_lower_bound=least,
        bits=bits,
        assumptions=assumptions(analysis),
        arithmetic=proof.arithmetic,
        levels=levels,
    )


def _check_request(evaluated_in: str, precision: str | None) -> None:
    if precision is not None and precision != evaluated_in:
        precision_of(precision)
        raise BadInput(
            f"precision {precision!r} is asked of a model that is evaluated in {evaluated_in}; certify it in {evaluated_in}, or "
            f"model.astype({precision!r}), which is evaluated in {precision}"
        )


def _check_form(model: Transformer, task: Task) -> None:
    a = model.architecture
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


def _check_size(analysis: CaseAnalysis) -> None:
    """Refuse what would be ended by the operating system: affine forms of every case, LIVE in each layer at a time."""
    if analysis.uniform:
        return
    a = analysis.model.architecture
    n, A = analysis.cases.centre.shape
    widest = max(a.dim, *(a.block(l).width for l in range(a.layers)))
    size = n * widest * (A + 3) * 8 * LIVE * a.layers
    if reason := too_much_memory(size, f"a certificate of {n:,} cases with {widest:,} numbers each"):
        raise BadInput(reason)


def _check_paths(model: Transformer) -> None:
    """Refuse a model that may be evaluated in a way whose rounding is not covered."""
    a = model.architecture
    for l in range(a.layers):
        for path in possible_paths(a.block(l)):
            if not covered(path, a.block(l)):
                which = (
                    "" if a.path == path else f", which path {a.path!r} takes for long sequences in layer {l}"
                )
                raise BadInput(
                    f"no certificate covers the rounding of path {path!r}{which}; certify model.using('certified')"
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


def assumptions(analysis: CaseAnalysis) -> tuple[str, ...]:
    model, task = analysis.model, analysis.task
    a = model.architecture
    ranges = ", ".join(
        f"{c.name} in {[p.lo for p in c.domain] if c.finite else [list(p) for p in c.domain]}"
        for c in task.channels
    )
    blocks = [a.block(l) for l in range(a.layers)]
    windows = sorted({block.window for block in blocks if block.window is not None})
    reach = f"every length; lags up to the window of {windows[0]:,}" if windows else "every length"
    if analysis.longest is not None:
        reach = f"every length up to {analysis.longest:,}, beyond which logits of far matches fall below near misses"
    evaluation = "; ".join(dict.fromkeys(_paths_text(block) for block in blocks))
    if neglects(model):
        evaluation += "; what it leaves out is a term"
    normalisations = ", ".join(dict.fromkeys(block.normalisation for block in blocks))
    return (
        *_constants(task),
        f"evaluation: model(x), {evaluation}",
        f"streams: {_streams(analysis)}",
        f"inputs: {ranges}, numbers of the precision; of inputs outside these ranges nothing is claimed",
        f"normalisation: {normalisations}",
        f"sequence lengths: {reach}, every position, also those earlier than a lag",
        "rounding: to nearest, sums in any order, those of more terms than half of 1/u as running sums, library functions "
        f"within {number(LIBRARY)} units (certify/rounding.py)",
    )


def _paths_text(block: Architecture) -> str:
    """The paths that a layer takes, and where."""
    paths = possible_paths(block)
    texts = [f"path {path}" + (f" up to {n:,} tokens" if n < LONGEST else "") for path, n in paths.items()]
    return ", ".join(texts) + (f", as path {block.path} chooses" if block.path in AUTOMATIC else "")


def _streams(analysis: CaseAnalysis) -> str:
    """Whether the bound holds for model.stream() too."""
    precision = format_of(analysis.model.architecture.precision)
    apart = [str(l) for l, layer in enumerate(analysis.layers) if not layer.heads.streams(precision)]
    return (
        f"not covered, model.stream() adds up layer {', '.join(apart)} in other ways" if apart else "covered"
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
