"""The paper's rates beside what is built: slopes only, because its constants are not explicit.

    E_attn = C(n) H^-n S(n)      for every n (lags), or for the first few (kernels): theory/paper_rates.py
    E_ffn  = O(m^-1/2)

C(n) is unknown, so no curve of the paper can be drawn: what can be compared is the slope of log error against log H
or log m. H^-n for every n means steeper than any slope. That holds in exact arithmetic and with free mass; at mass B
no number of heads gets below a floor,

    E >= <y, rho> - B sup |f|    (lower_bounds.py),

a line in B for every y: the largest of a few lines is proved at every B.

Proved: every error, every floor. Fitted: slopes. Tuned: which points are looked at.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from memloci.approx.kernels.kernel_sums import EXACT, KernelSum, fit, kernel_sum, pareto, sweep
from memloci.approx.kernels.kernel_targets import recall_target
from memloci.approx.kernels.lower_bounds import LowerBound, chebyshev_mass, lower_bound
from memloci.approx.kernels.rpe import RpeName
from memloci.approx.kernels.targets import AbstractTarget, Generic, SingleLag
from memloci.approx.readouts.ridge_certify import PAPER_SLOPE, width_against_error
from memloci.circuits.circuit import Circuit, DecayKernel
from memloci.core.errors import BadInput
from memloci.core.numbers import decimals, number
from memloci.core.precision import PRECISIONS
from memloci.core.proved import Proved
from memloci.routes.request import ROUNDING
from memloci.synthesize import Plan
from memloci.tasks.names import variable
from memloci.tasks.task import Task
from memloci.theory.lemma_f1 import heads_enough, lemma_heads
from memloci.theory.paper_rates import PaperRates, paper_rates

ROUTES: dict[str, RpeName] = {"one-layer-lin": "lin", "one-layer-log": "log"}
RATE_HEADS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LEMMA_PRECISIONS = (EXACT, "float64", "float32")
FARTHEST_RATE_LAG = 12  # tuned: beyond, the programs take longer than a reader waits
ROUNDING_LIMIT = (
    4.0  # tuned: an error of this many roundoffs of the mass comes from rounding the weights alone
)
FALLING, SILENT = 0.9, 0.95  # tuned: what counts as falling, and as more than no heads at all

Report = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How many points are looked at."""

    heads: dict[str, int]  # numbers of heads, by encoding
    moves: dict[str, int]  # of the exponents
    budgets: dict[str, int]  # masses below the model's
    precisions: tuple[str, ...]  # besides the model's
    lemma: tuple[int, ...]  # numbers of heads of Lemma F.1's proof
    widths: tuple[int, ...]
    fit_widths: dict[int, tuple[int, ...]]  # for readouts that must be fitted, by their number of variables


BRIEF = Effort(
    heads={"lin": 4, "log": 3},
    moves={"lin": 8, "log": 0},
    budgets={"lin": 3, "log": 2},
    precisions=(),
    lemma=(16, 32),
    widths=(4, 8, 16, 32, 64),
    fit_widths={1: (4, 8, 16, 32), 2: (4, 8, 16)},
)
THOROUGH = Effort(
    heads={"lin": 5, "log": 4},
    moves={"lin": 20, "log": 10},
    budgets={"lin": 4, "log": 3},
    precisions=("float64",),
    lemma=(16, 32, 64),
    widths=(4, 8, 16, 32, 64, 128, 256),
    fit_widths={1: (4, 8, 16, 32, 64), 2: (4, 8, 16, 32, 64), 3: (4, 8, 16, 32), 4: (4, 8, 16)},
)


@dataclass(frozen=True)
class Fitted:
    """Heads, mass and the largest l1 error of a memory, proved."""

    heads: int
    mass: float
    E: Proved


@dataclass(frozen=True)
class Theorem:
    """Proved: with mass at most `mass` any heads of this kind err by `E_least` or more on `memory`; to err
    by at most `E`, as this model does, any need `mass_least`. 0 says that no bound was found."""

    rpe: RpeName
    memory: str
    mass: float
    E: Proved
    E_least: float
    mass_least: float

    @property
    def ratio(self) -> float:
        """How far this model is from the least error that could be."""
        return self.E / self.E_least if self.E_least > 0 else math.inf


@dataclass(frozen=True)
class HeadRates:
    """Error against heads and against mass for one layer of heads."""

    route: str
    rpe: RpeName
    precision: str  # of the model
    built: Fitted  # the model itself
    by_heads: dict[str, tuple[Fitted, ...]]  # by precision: mass costs what rounding it will
    by_mass: tuple[Fitted, ...]  # with the model's number of heads and less mass, then the model
    front: tuple[Fitted, ...]  # beaten by none of all these in heads, mass and error at once
    bounds: tuple[LowerBound, ...]
    slope: float  # of log E against log H in the last of these precisions, while it falls
    theorem: Theorem
    norm: float  # the error of no heads at all
    # Lemma F.1's own heads, by precision of their coefficients; lin heads and lags only.
    lemma: dict[str, tuple[Fitted, ...]] = field(default_factory=dict)
    lemma_needs: int | None = None  # heads for which the lemma, with its constant, promises the model's error

    def floor(self, mass: float) -> float:
        """Proved: whatever the heads, mass at most `mass` leaves an error of this or more."""
        lines = (Fraction(b.pairing) - Fraction(mass) * Fraction(b.sup) for b in self.bounds)
        best = max(lines, default=Fraction(0))
        return math.nextafter(float(best), -math.inf) if best > 0 else 0.0


@dataclass(frozen=True)
class WidthRates:
    """E_ffn against the number of neurons, for the output that is hardest to compute."""

    readout: str
    rows: tuple[tuple[int, Proved], ...]
    built: tuple[int, Proved]
    slope: float
    how: str
    paper_slope: float = PAPER_SLOPE


@dataclass(frozen=True)
class Rates:
    """The paper's slopes, and those of what was built; `notes` says why one is missing."""

    paper: PaperRates
    heads: tuple[HeadRates, ...] = ()
    width: WidthRates | None = None
    notes: dict[str, str] | None = None

    @cached_property
    def measured(self) -> dict[str, str]:
        """What was measured, one sentence for heads and one for width."""
        texts = {**dict.fromkeys(("heads", "width"), "not measured"), **(self.notes or {})}
        if self.heads:
            texts["heads"] = "; ".join(_slope_text(rates) for rates in self.heads)
        if self.width is not None:
            slope = "" if math.isnan(self.width.slope) else f"m^{decimals(self.width.slope, 2)} "
            rows = self.width.rows
            texts["width"] = f"{slope}from {rows[0][0]} to {rows[-1][0]} neurons"
        return texts

    def to_dict(self) -> dict[str, Any]:
        """JSON; a slope that could not be fitted is null."""
        return {
            "paper": self.paper.to_dict(),
            "measured": self.measured,
            "heads": [_heads_dict(rates) for rates in self.heads],
            "width": None if self.width is None else _width_dict(self.width),
        }


def stated(task: Task) -> Rates:
    """The paper's slopes alone: nothing is computed."""
    return Rates(paper_rates(task), notes=dict.fromkeys(("heads", "width"), "not measured: --rates does"))


def measured(
    task: Task,
    plans: Iterable[Plan],
    effort: Effort = BRIEF,
    progress: Callable[[str, float], None] | None = None,
) -> Rates:
    """The slopes of these plans: heads of the one-layer ones, width of the first readout that is not exact."""
    tell, plans = progress or (lambda text, done: None), list(plans)
    one_layer = [plan for plan in plans if plan.route in ROUTES]
    head_table: list[HeadRates] = []
    notes = {"heads": "not measured: no model of one lin or log layer", "width": "not measured: no readout"}
    for k, plan in enumerate(one_layer):
        say = lambda text, k=k, plan=plan: tell(f"{plan.route}: {text}", k / (len(one_layer) + 1))
        try:
            head_table.append(head_rates(task, plan.circuit, effort, say))
        except BadInput as reason:
            notes["heads"] = f"not measured: {reason}"
    tell("width", len(one_layer) / (len(one_layer) + 1))
    width = None
    try:
        width = width_rates(task, plans[0].circuit, effort) if plans else None
    except BadInput as reason:
        notes["width"] = str(reason)
    return Rates(paper_rates(task), tuple(head_table), width, notes)


# -- heads and mass ---------------------------------------------------------------------------------------


def head_rates(
    task: Task, circuit: Circuit, effort: Effort = BRIEF, report: Report = lambda text: None
) -> HeadRates:
    """Error against heads and mass around a circuit of one layer; refused where there is nothing to see."""
    rpe = ROUTES[circuit.route]
    built = _as_kernel_sum(task, circuit, rpe)
    targets = built.targets
    far = max((t.lag for t in targets if isinstance(t, SingleLag)), default=1)
    if far > FARTHEST_RATE_LAG:
        raise BadInput(f"lag {far} takes too long to look at; lags up to {FARTHEST_RATE_LAG} are")
    if built.error <= ROUNDING_LIMIT * PRECISIONS[circuit.precision].u * max(built.mass, 1.0):
        raise BadInput(f"{_heads(built.heads)} of kind {rpe} exact up to the rounding of weights")
    norm = max(float(target.norm().upper()) for target in targets)
    # Fits of kernels that the heads do not resemble take minutes: a page has the model and its floor.
    slow = effort is BRIEF and any(_unlike(target, rpe) for target in targets)
    by_heads: dict[str, list[KernelSum]] = {}
    for precision in dict.fromkeys((circuit.precision, *effort.precisions)):
        by_heads[precision] = []
        for H in (built.heads,) if slow else _around(built.heads, effort.heads[rpe]):
            report(f"{H} heads in {precision}")
            mine = H == built.heads and precision == circuit.precision
            kind, moves = precision, effort.moves[rpe]
            fitted = built if mine else fit(rpe, targets, H, precision=kind, rounding=ROUNDING, moves=moves)
            if fitted.error < SILENT * norm:
                by_heads[precision].append(fitted)
    report("the floor")
    hardest = _hardest(built)
    by_mass, bounds = [], [lower_bound(rpe, hardest, mass=built.mass)]
    for mass in () if slow else _budgets(rpe, built, hardest, norm, effort.budgets[rpe]):
        report(f"mass {number(mass, 2)}")
        # The model's exponents, and some that suit the mass where there is time: the better of the two.
        same_slopes = fit(rpe, targets, built.heads, mass=mass, exponents=built.exponents)
        again = effort.moves[rpe] > 0 and _cancels(built, norm)
        other = sweep(rpe, targets, [built.heads], [mass], moves=0) if again else []
        by_mass.append(min([same_slopes, *other], key=lambda k: k.error))
        bounds.append(lower_bound(rpe, hardest, mass=mass, rounds=2))
    by_mass.append(built)
    every_fit = [*by_mass, *(k for sums in by_heads.values() for k in sums)]
    deep = list(by_heads.values())[-1]
    return HeadRates(
        route=circuit.route,
        rpe=rpe,
        precision=circuit.precision,
        built=_point(built),
        by_heads={name: tuple(map(_point, sums)) for name, sums in by_heads.items()},
        by_mass=tuple(map(_point, by_mass)),
        front=tuple(map(_point, pareto(dict.fromkeys(k for k in every_fit if k.error < SILENT * norm)))),
        bounds=tuple(bounds),
        slope=fitted_slope([(k.heads, k.error) for k in deep]),
        theorem=_theorem(rpe, built, hardest, bounds[0]),
        norm=norm,
        lemma=_lemma(rpe, targets, effort.lemma, report),
        lemma_needs=_lemma_needs(rpe, targets, built.error),
    )


def _lemma(
    rpe: RpeName, targets: Sequence[AbstractTarget], heads: Sequence[int], report: Report
) -> dict[str, tuple[Fitted, ...]]:
    """What the heads of the paper's own proof reach, where fitting them is quick."""
    if rpe != "lin" or not all(isinstance(target, SingleLag) for target in targets):
        return {}
    fitted: dict[str, tuple[Fitted, ...]] = {}
    for precision in LEMMA_PRECISIONS:
        report(f"the heads of Lemma F.1, {precision}")
        sums = {H: lemma_heads(targets, H, precision) for H in heads if H >= len(targets)}
        fitted[precision] = tuple(
            Fitted(H, float(fit_of_lemma.mass), Proved(fit_of_lemma.error))
            for H, fit_of_lemma in sums.items()
        )
    return fitted


def _lemma_needs(rpe: RpeName, targets: Sequence[AbstractTarget], error: float) -> int | None:
    lags = [target.lag for target in targets if isinstance(target, SingleLag)]
    if len(lags) < len(targets):
        return None
    needs = heads_enough(rpe, max(lags), error)  # farther lags take more
    return None if needs is None else len(lags) * needs


def _as_kernel_sum(task: Task, circuit: Circuit, rpe: RpeName) -> KernelSum:
    """The circuit's own numbers, which are the weights, with their errors proved anew."""
    (layer,) = circuit.layers
    if not layer.heads:
        raise BadInput("nothing is recalled")
    coefficients: dict[AbstractTarget, list[float]] = {}  # channels of one memory share a row
    for i, recall in enumerate(task.recalls, start=1):
        for channel in task.channel_names:
            slot = circuit.variable_slots.get(variable(channel, i))
            if slot is not None and all(slot in head.writes for head in layer.heads):
                coefficients[recall_target(recall)] = [head.writes[slot][channel] for head in layer.heads]
    exponents = [head.position.p for head in layer.heads if isinstance(head.position, DecayKernel)]
    return kernel_sum(rpe, exponents, list(coefficients.values()), list(coefficients), circuit.precision)


def _unlike(target: AbstractTarget, rpe: RpeName) -> bool:
    """Kernels without a closed form, and any but single lags for log heads."""
    return isinstance(target, Generic) or rpe == "log" and not isinstance(target, SingleLag)


def _point(kernel_sum: KernelSum) -> Fitted:
    return Fitted(kernel_sum.heads, float(kernel_sum.mass), Proved(kernel_sum.error))


def _around(heads: int, count: int) -> tuple[int, ...]:
    """Numbers of heads around `heads`: one that is larger, and those below."""
    first = next((k for k, H in enumerate(RATE_HEADS) if heads <= H), len(RATE_HEADS) - 1)
    last = min(max(first + 1, count - 1), len(RATE_HEADS) - 1)
    return RATE_HEADS[last - count + 1 : last + 1]


def _cancels(built: KernelSum, norm: float) -> bool:
    """Heads cancel: their mass is not just what must be recalled, and spans decades."""
    return built.mass > 4 * norm


def _budgets(
    rpe: RpeName, built: KernelSum, hardest: AbstractTarget, norm: float, count: int
) -> tuple[float, ...]:
    """Masses below the model's, rising, where the floor is between its error and that of no heads."""
    if not _cancels(built, norm):
        return tuple(built.mass * (1 - 0.3 / 3**k) for k in range(count))
    least, most = 0.01 * built.mass, built.mass
    if rpe == "lin" and isinstance(hardest, SingleLag) and hardest.lag > 1:
        least = chebyshev_mass(hardest.lag, 0.5).as_float
        most = min(4 * chebyshev_mass(hardest.lag, min(0.4, built.error)).as_float, built.mass)
    step = max(most / least, 2.0) ** (1 / count)
    return tuple(mass for mass in (least * step**k for k in range(count)) if mass < built.mass)


def _hardest(built: KernelSum) -> AbstractTarget:
    """The farthest lag, else the kernel with the largest error: its bound holds for the largest error."""
    lags = [target for target in built.targets if isinstance(target, SingleLag)]
    if lags:
        return max(lags, key=lambda target: target.lag)
    errors = {target: upper for target, (_, upper) in zip(built.targets, built.errors, strict=True)}
    return max(errors, key=lambda target: errors[target])


def _theorem(rpe: RpeName, built: KernelSum, hardest: AbstractTarget, bound: LowerBound) -> Theorem:
    E = Proved(built.error)
    least = bound.mass_for(E)
    if rpe == "lin" and isinstance(hardest, SingleLag) and E < 1:
        least = max(least, chebyshev_mass(hardest.lag, E).as_float)
    return Theorem(rpe, hardest.label, built.mass, E, bound.error, max(least, 0.0))


def fitted_slope(points: Sequence[tuple[int, float]]) -> float:
    """The least-squares slope of log E against log size, without a plateau at the end; NaN below two points."""
    falling = list(points)
    while len(falling) > 1 and not 0 < falling[-1][1] < FALLING * falling[-2][1]:
        falling.pop()
    if len(falling) < 2:
        return math.nan
    x, y = np.log([size for size, _ in falling]), np.log([E for _, E in falling])
    return float(np.polynomial.polynomial.polyfit(x, y, 1)[1])


def _heads(count: int) -> str:
    return "1 head" if count == 1 else f"{count} heads"


def _slope_text(rates: HeadRates) -> str:
    if math.isnan(rates.slope):
        return f"{rates.rpe}: too few points for a slope"
    precision, points = list(rates.by_heads.items())[-1]
    return f"{rates.rpe}: H^{decimals(rates.slope, 1)} from {points[0].heads} to {points[-1].heads} heads in {precision}"


# -- width ------------------------------------------------------------------------------------------------


def width_rates(task: Task, circuit: Circuit, effort: Effort = BRIEF) -> WidthRates:
    """E_ffn against neurons for the readout of a circuit; refused where it is exact."""
    ridge = circuit.readout
    o = max(range(len(ridge.E_ffn)), key=lambda k: ridge.E_ffn[k])
    if not any(ridge.E_ffn):
        raise BadInput("exact, no neurons" if not ridge.width else f"exact with {ridge.width} neurons")
    neurons = int(np.count_nonzero(ridge.A[o]))
    if not neurons:
        raise BadInput("the readout has no neurons")
    widths = effort.widths
    if "fit" in ridge.how[o]:
        used = len(ridge.variables)
        if used not in effort.fit_widths:
            raise BadInput(f"not measured: fits of {used} variables take longer than a page should")
        widths = effort.fit_widths[used]
    # The box of the circuit's readout is what attention may deliver, so nothing need be added to it.
    table = width_against_error(task.readouts[o], ridge.box, widths)
    return WidthRates(
        readout=_text(task, o),
        rows=tuple((m, Proved(E)) for m, E in table.rows),
        built=(neurons, Proved(ridge.E_ffn[o])),
        slope=table.slope,
        how=table.how,
    )


def _text(task: Task, o: int) -> str:
    source = task.readouts[o].source
    return source if isinstance(source, str) else str(task.readouts[o])


# -- JSON -------------------------------------------------------------------------------------------------


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def _heads_dict(rates: HeadRates) -> dict[str, Any]:
    rows = lambda points: [{"heads": p.heads, "mass": p.mass, "E": float(p.E)} for p in points]
    theorem = rates.theorem
    return {
        "route": rates.route,
        "slope": _finite(rates.slope),
        "built": rows([rates.built])[0],
        "by_heads": {name: rows(points) for name, points in rates.by_heads.items()},
        "by_mass": [{**row, "E_least": rates.floor(row["mass"])} for row in rows(rates.by_mass)],
        "front": rows(rates.front),
        "lemma_f1": {
            "heads_enough": rates.lemma_needs,
            "by_precision": {name: rows(points) for name, points in rates.lemma.items()},
        },
        "theorem": {
            "memory": theorem.memory,
            "mass": theorem.mass,
            "E": float(theorem.E),
            "E_least": theorem.E_least,
            "mass_least": theorem.mass_least,
            "ratio": _finite(theorem.ratio),
        },
    }


def _width_dict(rates: WidthRates) -> dict[str, Any]:
    return {
        "readout": rates.readout,
        "how": rates.how,
        "slope": _finite(rates.slope),
        "paper_slope": rates.paper_slope,
        "rows": [{"width": m, "E_ffn": float(E)} for m, E in rates.rows],
        "built": {"width": rates.built[0], "E_ffn": float(rates.built[1])},
    }
