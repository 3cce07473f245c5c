"""Two-layer ReLU approximants of a readout, each with a proved error.

    f(v) ~ b + W v + sum_k A_k relu(<B_k, v> + c_k),    E_ffn >= sup |f(v) - that| over a box

v holds the recalled variables that f reads; the affine part costs no neurons, because the Transformer has a
residual stream and a linear readout. Routes, the first that serves:

    affine, piecewise linear        exact (ridge_exact.py)
    table, switch                   finite alphabets: exact, and within a margin of the symbols the same value
    ridges                          polynomials and compositions g(<u, v>) as sums of functions of one linear
                                    form (ridge_terms.py), piecewise linear with error ~ 1 / pieces^2
    fit                             anything else that is continuous, up to 4 variables (ridge_fit.py)

Proved: E_ffn, for the float64 weights in exact arithmetic; `certify_ridge` recomputes it from weights alone.
A tolerance that is missed is a result: compare E_ffn with it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from memloci.approx.readouts.ridge_bounds import Supremum, expression_target, supremum
from memloci.approx.readouts.ridge_exact import Affine, Exact, affine, piecewise_linear, switch
from memloci.approx.readouts.ridge_fit import MAX_FIT_WIDTH, Greedy, RidgeFit
from memloci.approx.readouts.ridge_pieces import Pieces, RidgeProfile, profile, proved_error
from memloci.approx.readouts.ridge_terms import Direction, decompose, polynomial, written_addends
from memloci.core.errors import BadInput
from memloci.core.intervals import Interval, up
from memloci.core.intervals import down as below
from memloci.core.numbers import literal, number
from memloci.core.specs import shorten
from memloci.language.domain import Domain, check_defined
from memloci.language.evaluate import evaluate
from memloci.language.expression import Apply, Constant, Expression, variables
from memloci.language.formula import Formula
from memloci.language.parse import parse
from memloci.tasks.task import Task

DEFAULT_TOLERANCE = 1e-3
MAX_WIDTH = 16_384
FIT_START = 12  # neurons; tuned
FIT_RTOL = {1: 0.03, 2: 0.03, 3: 0.1, 4: 0.2}

Readout = str | Expression | Formula
Ranges = Mapping[str, Interval | Domain]
EQUALITIES = frozenset(("==", "!="))
JUMPS = frozenset(
    ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "round", "floor", "sign", "//", "%", "where")
)


@dataclass(frozen=True)
class RidgeSum:
    """b + W v + A relu(B v + c), with d variables, m neurons and one row of W, b, A per output.

    E_ffn bounds |f(v) - value| on `box`. For variables in `margins`, which are finite alphabets, v may be
    anywhere within the margin of a symbol, and f is meant at the symbol.
    """

    variables: tuple[str, ...]
    B: Any  # (m, d)
    c: Any  # (m,)
    A: Any  # (outputs, m)
    W: Any  # (outputs, d)
    b: Any  # (outputs,)
    E_ffn: tuple[float, ...]
    how: tuple[str, ...]
    box: dict[str, Interval]
    margins: dict[str, float] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return len(self.c)

    def __call__(self, v: Any) -> Any:
        """(..., d) -> (..., outputs), in float64."""
        v = np.asarray(v, dtype=float)
        return self.b + v @ self.W.T + np.maximum(v @ self.B.T + self.c, 0.0) @ self.A.T


@dataclass(frozen=True)
class _Plan:
    """One output before its sizes are chosen."""

    f: Expression
    exact: Exact
    ridges: tuple[tuple[Direction, RidgeProfile], ...] = ()
    residual: Fraction = Fraction(0)
    remaining: tuple[Expression, ...] = ()
    how: str = ""


@dataclass(frozen=True)
class _Built:
    affine: Affine
    relus: tuple[tuple[Fraction, Affine], ...]
    error: Fraction
    how: str


def ridge_sum(
    readout: Readout | Sequence[Readout],
    domains: Ranges,
    *,
    tolerance: float | None = None,
    max_width: int | None = None,
    reach: float | Mapping[str, float] = 0.0,
    margins: float | Mapping[str, float] | None = None,
    possible: Callable[[Mapping[str, float]], bool] | None = None,
    snap: bool = False,
    seed: int = 0,
) -> RidgeSum:
    """A ReLU layer for the readout, or several of them, on the values that `domains` allow.

    `tolerance`: the E_ffn wanted of every output (1e-3 if neither it nor `max_width` is given).
    `reach`: how far the delivered values may leave their domains, that is, the attention error; margins of
    a table are at least as large.
    `margins`: the distance from its symbol that a variable with a finite alphabet must be allowed.
    `possible`: which combinations of symbols occur. `snap`: use a table where one serves, even if an
    affine or piecewise linear form would too: errors below the margin then vanish.
    """
    if tolerance is None and max_width is None:
        tolerance = DEFAULT_TOLERANCE
    if tolerance is not None and not tolerance > 0:
        raise BadInput(f"tolerance must be positive, found {literal(tolerance)}")
    if max_width is not None and max_width < 0:
        raise BadInput(f"max_width must be at least 0, found {max_width}")
    several = isinstance(readout, Sequence) and not isinstance(readout, str)
    formulas = [as_expression(f, domains) for f in (readout if several else [readout])]  # type: ignore[list-item]
    used = frozenset[str]().union(*map(variables, formulas))
    names = tuple(n for n in domains if n in used)
    spans = {n: span_of(domains[n]) for n in names}
    box = enlarged(spans, reach)
    wanted_margins = None if margins is None else {n: reach_of(margins, n) for n in names}
    errors = {n: reach_of(reach, n) for n in names}
    plans = [_plan(f, spans, box, errors, wanted_margins, possible, snap) for f in formulas]
    built = _build(plans, box, tolerance, max_width, seed)
    stated: dict[str, float] = {}
    for plan in plans:
        for n, margin in plan.exact.margins.items():
            stated[n] = min(margin, stated.get(n, math.inf))
    return _assemble(names, box, built, stated)


def readout_ridge(task: Task, **options: Any) -> RidgeSum:
    """The ridge sum of a task's readout; the options of `ridge_sum`."""
    formulas = []
    for k, formula in enumerate(task.readouts):
        if formula.expression is None:
            raise BadInput(
                f"readout[{k}]: nothing can be proved of the callable {formula}; write an expression"
            )
        formulas.append(formula)
    return ridge_sum(formulas, task.domains, **{"possible": task.occur_together, **options})


def as_expression(readout: Readout, domains: Ranges) -> Expression:
    """The tree of a readout that is given as text, formula or tree."""
    if isinstance(readout, str):
        return parse(readout, tuple(domains))
    if isinstance(readout, Formula):
        if readout.expression is None:
            raise BadInput(f"nothing can be proved of the callable {readout}; write it as an expression")
        return readout.expression
    return readout


def span_of(values: Interval | Domain) -> Domain:
    return (values,) if isinstance(values, Interval) else tuple(values)


def reach_of(amount: float | Mapping[str, float], name: str) -> float:
    return float(amount.get(name, 0.0)) if isinstance(amount, Mapping) else float(amount)


def enlarged(domains: Mapping[str, Domain], reach: float | Mapping[str, float]) -> dict[str, Interval]:
    box = {}
    for n, domain in domains.items():
        r = reach_of(reach, n)
        if not 0 <= r < math.inf:
            raise BadInput(f"reach must be a number >= 0, found {literal(r)} for {n}")
        lo, hi = domain[0].lo, domain[-1].hi
        box[n] = Interval(below(lo - r), up(hi + r)) if r else Interval(lo, hi)
    return box


# Plans: which route.


def _plan(
    f: Expression,
    domains: Mapping[str, Domain],
    box: dict[str, Interval],
    reach: Mapping[str, float],
    margins: Mapping[str, float] | None,
    possible: Callable[[Mapping[str, float]], bool] | None,
    snap: bool,
) -> _Plan:
    def table() -> Exact | None:
        lookup = switch(f, domains, box, margins=margins, possible=possible)
        if lookup is None or all(margin >= reach[n] for n, margin in lookup.margins.items()):
            return lookup
        wide = {n: max(r, margins[n]) if margins is not None else r for n, r in reach.items()}
        return switch(f, domains, box, margins=wide, possible=possible)  # the attention error must fit in

    def simple() -> Exact | None:
        plain = affine(f)
        return Exact(plain) if plain is not None else piecewise_linear(f, box)

    for route in (table, simple) if snap else (simple, table):
        exact = route()
        if exact is not None:
            return _Plan(f, exact, how=exact.how)
    check_defined(f, {n: (part,) for n, part in box.items()})
    _refuse_jumps(f, domains, box)
    try:
        return _approximate(f, box)
    except OverflowError:
        raise BadInput(f"{_text(f)} has a coefficient with too many digits; round its numbers") from None


def _approximate(f: Expression, box: dict[str, Interval]) -> _Plan:
    kinks, rest = _kinks_apart(f, box)
    parts = decompose(rest, box)
    base, ridges = Exact(parts.affine + kinks.affine, kinks.relus), []
    for direction, phi in parts.ridges.items():
        lo, hi = _range(direction, box)
        ridges.append((direction, profile(phi, lo, hi)))
    left, residual = [], parts.residual
    for group in _groups(parts.remaining):
        names = sorted(variables(group))
        if len(names) > 4:
            raise BadInput(
                f"{_text(group)} reads {len(names)} variables and is neither polynomial, nor a sum of "
                "functions of one linear form, nor a table; a fit is proved for at most 4"
            )
        left.append(group)
    how = " + ".join(["ridges"] * bool(ridges) + ["kinks"] * bool(base.relus) + ["fit"] * bool(left))
    return _Plan(f, base, tuple(ridges), residual, tuple(left), how)


def _kinks_apart(f: Expression, box: dict[str, Interval]) -> tuple[Exact, Expression]:
    """The piecewise linear terms of f, which are exact, and the rest."""
    kinks, rest = Exact(Affine()), None
    for term in written_addends(f):
        pieces = piecewise_linear(term, box) if polynomial(term) is None else None
        if pieces is not None:
            kinks = Exact(kinks.affine + pieces.affine, kinks.relus + pieces.relus)
        else:
            rest = term if rest is None else Apply("+", (rest, term), getattr(f, "text", ""))
    return kinks, rest if rest is not None else Constant(0.0)


def _text(f: Expression) -> str:
    return shorten(getattr(f, "text", "") or "the readout")


def _groups(terms: tuple[Expression, ...]) -> list[Expression]:
    """Sums of the terms that share variables: each is fitted by itself."""
    groups: list[tuple[frozenset[str], Expression]] = []
    for term in terms:
        names, total = variables(term), term
        for group in [g for g in groups if g[0] & names]:
            names, total = names | group[0], Apply("+", (group[1], total), getattr(group[1], "text", ""))
            groups.remove(group)
        groups.append((names, total))
    return [total for _, total in groups]


def _contains(f: Expression, operations: frozenset[str]) -> bool:
    return isinstance(f, Apply) and (
        f.operation in operations or any(_contains(o, operations) for o in f.operands)
    )


def _refuse_jumps(f: Expression, domains: Mapping[str, Domain], box: dict[str, Interval]) -> None:
    """Halve segments towards the larger change of f; what remains after 44 halvings is a jump."""
    if not _contains(f, JUMPS):
        return
    names = sorted(variables(f))
    rng = np.random.default_rng(0)
    lo, hi = np.array([box[n].lo for n in names]), np.array([box[n].hi for n in names])
    p, q = lo + (hi - lo) * rng.random((800, len(names))), lo + (hi - lo) * rng.random((800, len(names)))
    at = lambda v: np.broadcast_to(evaluate(f, {n: v[:, i] for i, n in enumerate(names)}, np), (len(v),))
    scale = np.ptp(np.concatenate([at(p), at(q)])) + 1e-300
    for _ in range(44):
        middle = (p + q) / 2
        left = np.abs(at(middle) - at(p)) >= np.abs(at(q) - at(middle))
        p, q = np.where(left[:, None], p, middle), np.where(left[:, None], middle, q)
    size = np.abs(at(p) - at(q))
    k = int(np.argmax(size))
    if size[k] > 1e-3 * scale or _contains(f, EQUALITIES):
        near = ", ".join(f"{n} = {number(x, 4)}" for n, x in zip(names, p[k], strict=True))
        what = (
            f"jumps by {number(size[k])} near {near}"
            if size[k] > 1e-3 * scale
            else "tests equality, which jumps"
        )
        finite = all(len(domains[n]) > 1 or domains[n][0].is_point for n in names)
        cure = (
            "its symbols leave no margin, or are too many for a table"
            if finite
            else "give its variables finite alphabets, or intervals with a margin on which it is constant"
        )
        raise BadInput(f"{_text(f)} {what}, and a ReLU layer is continuous; {cure}")


def _range(direction: Direction, box: Mapping[str, Interval]) -> tuple[float, float]:
    lo, hi = Affine({n: Fraction(x) for n, x in direction}).span(box)
    return _round(lo, down=True), _round(hi, down=False)


def _round(x: Fraction, *, down: bool) -> float:
    near = float(x)
    if down:
        return near if Fraction(near) <= x else below(near)
    return near if Fraction(near) >= x else up(near)


# Sizes, and the pieces themselves.


def _pieces_for(plan: _Plan, tolerance: float) -> list[int]:
    """Pieces per ridge that bring their errors to `tolerance` together, with the fewest neurons.

    Minimise sum_j n_j with sum_j (I_j / n_j)^2 <= tolerance: the errors are in proportion to I_j^(2/3).
    """
    efforts = [p.effort for _, p in plan.ridges]
    total = sum(e ** (2 / 3) for e in efforts)
    return [max(1, math.ceil(e / math.sqrt(tolerance * e ** (2 / 3) / total) - 1e-9)) for e in efforts]


def _share(plan: _Plan, tolerance: float) -> float:
    """What the ridges may use of the tolerance; each fit gets as much as all ridges."""
    return tolerance / (len(plan.remaining) + 1 if plan.ridges else 1)


def _build(
    plans: list[_Plan], box: dict[str, Interval], tolerance: float | None, max_width: int | None, seed: int
) -> list[_Built]:
    limit = MAX_WIDTH if max_width is None else max_width
    fixed = sum(len(p.exact.relus) for p in plans)
    if fixed > limit:
        routes = ", ".join(sorted({p.how for p in plans if p.exact.relus}))
        raise BadInput(
            f"an exact readout ({routes}) needs {fixed} neurons, and max_width is {limit}; raise it"
        )
    fits, ridged = sum(len(p.remaining) for p in plans), any(p.ridges for p in plans)
    room = limit - fixed
    for_ridges = room if not fits else room // 3 if ridged else 0
    each_fit = (room - for_ridges) // fits if fits else 0
    target = _affordable(plans, tolerance, for_ridges) if ridged else 0.0
    built = []
    for plan in plans:
        result = _ridges_built(plan, box, target, tolerance if target == tolerance else None)
        for f in plan.remaining:
            goal = None if tolerance is None else tolerance / (len(plan.remaining) + bool(plan.ridges))
            fit, bound = _fitted(f, box, goal, each_fit, seed)
            result = _joined(result, fit, tuple(sorted(variables(f))), bound)
        built.append(replace(result, how=plan.how))
    return built


def _affordable(plans: list[_Plan], tolerance: float | None, room: int) -> float:
    """The tolerance, or the least common error that the neurons allow."""
    width = lambda T: sum(n - 1 for p in plans if p.ridges for n in _pieces_for(p, _share(p, T)))
    if tolerance is not None and width(tolerance) <= room:
        return tolerance
    low, high = 1e-18, 1e18
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if width(middle) <= room else (middle, high)
    return high


def _ridges_built(plan: _Plan, box: dict[str, Interval], target: float, tolerance: float | None) -> _Built:
    base, relus = plan.exact.affine, list(plan.exact.relus)
    error = plan.exact.error + plan.residual
    if not plan.ridges:
        return _Built(base, tuple(relus), error, plan.how)
    share, total, errors = _share(plan, target), math.inf, [math.inf]
    made: list[tuple[Direction, RidgeProfile, Pieces]] = []
    for attempt in range(8):
        counts = _pieces_for(plan, share)
        made = [(u, p, p.pieces(n)) for (u, p), n in zip(plan.ridges, counts, strict=True)]
        errors = [proved_error(p.phi, p.lo, p.hi, pieces) for _, p, pieces in made]
        total = sum(errors)
        if tolerance is None or total + float(error) <= _share(plan, tolerance) or attempt == 7:
            break
        share *= min(
            0.99, 0.998 * (_share(plan, tolerance) - float(error)) / total
        )  # few pieces: the law is not exact
        if share <= 0 or sum(_pieces_for(plan, share)) > MAX_WIDTH:
            break
    if not math.isfinite(total):
        raise BadInput(f"{_text(plan.f)} cannot be enclosed on the box; is it defined and bounded there?")
    for u, _, pieces in made:
        s = Affine({n: Fraction(x) for n, x in u})
        base = base + s.times(Fraction(pieces.beta)) + Affine(b=Fraction(pieces.alpha))
        relus += [
            (Fraction(a), s + Affine(b=-Fraction(t)))
            for a, t in zip(pieces.jumps, pieces.knots, strict=True)
            if a
        ]
    return _Built(base, tuple(relus), error + sum((Fraction(e) for e in errors), Fraction(0)), plan.how)


def _fitted(
    f: Expression, box: dict[str, Interval], tolerance: float | None, width: int, seed: int
) -> tuple[RidgeFit, Supremum]:
    names = tuple(sorted(variables(f)))
    lo, hi = np.array([box[n].lo for n in names]), np.array([box[n].hi for n in names])
    width = min(width, MAX_FIT_WIDTH)
    m = width if tolerance is None else min(width, FIT_START)
    greedy = Greedy(f, names, lo, hi, width if tolerance is None else min(width, 8 * FIT_START), seed)
    target, best = expression_target(f, names), None
    while True:
        fit, err = greedy.fit(m)
        if tolerance is None or err <= tolerance or m >= width:
            bound = supremum(
                target, fit.W, fit.b, fit.B, fit.c, fit.A, lo, hi, rtol=FIT_RTOL[len(names)], enough=0.0
            )
            if best is None or bound.bound < best[1].bound:
                best = fit, bound
            if tolerance is None or bound.bound <= tolerance or m >= width:
                break
            err = bound.bound
        m = min(width, max(m + 4, math.ceil(m * min(3.0, max(1.2, (err / tolerance) ** 0.6)))))
        if m > len(greedy.order) and len(greedy.order) < width:
            greedy = Greedy(f, names, lo, hi, min(width, 2 * m), seed)
        if len(greedy.order) < m:  # the dictionary is used up
            width = m = len(greedy.order)
    assert best is not None
    if not math.isfinite(best[1].bound):
        raise BadInput(f"{_text(f)} cannot be enclosed on the box; is it defined and bounded there?")
    return best


def _joined(built: _Built, fit: RidgeFit, names: tuple[str, ...], bound: Supremum) -> _Built:
    form = lambda row, b: Affine(
        {n: Fraction(float(x)) for n, x in zip(names, row, strict=True) if x}, Fraction(float(b))
    )
    relus = tuple(
        (Fraction(float(a)), form(row, c)) for a, row, c in zip(fit.A, fit.B, fit.c, strict=True) if a
    )
    return _Built(
        built.affine + form(fit.W, fit.b), built.relus + relus, built.error + Fraction(bound.bound), built.how
    )


def _assemble(
    names: tuple[str, ...], box: dict[str, Interval], built: list[_Built], margins: dict[str, float]
) -> RidgeSum:
    """Float64 weights; what rounding them costs goes into E_ffn."""
    roomy = dict(box)
    for n, margin in margins.items():
        roomy[n] = Interval(below(box[n].lo - margin), up(box[n].hi + margin))
    index: dict[tuple[float, ...], int] = {}
    used: set[tuple[int, tuple[float, ...]]] = set()
    entries: list[tuple[int, int, float]] = []
    W, b, E = np.zeros((len(built), len(names))), np.zeros(len(built)), []
    for k, part in enumerate(built):
        error = part.error
        for alpha, form in part.relus:
            row = [float(form.a.get(n, 0)) for n in names]
            c, A = float(form.b), float(alpha)
            near = Affine({n: Fraction(x) for n, x in zip(names, row, strict=True) if x}, Fraction(c))
            if Fraction(A) != alpha or near.key != form.key:
                error += abs(alpha - Fraction(A)) * form.size(roomy) + abs(Fraction(A)) * (form - near).size(
                    roomy
                )
            copy = 0  # outputs share neurons; within one output a second copy keeps A exact
            while (k, (*row, c, copy)) in used:
                copy += 1
            used.add((k, (*row, c, copy)))
            entries.append((k, index.setdefault((*row, c, copy), len(index)), A))
        for i, n in enumerate(names):
            W[k, i] = float(part.affine.a.get(n, 0))
        b[k] = float(part.affine.b)
        near = Affine({n: Fraction(x) for n, x in zip(names, W[k], strict=True) if x}, Fraction(b[k]))
        E.append(_round(error + (part.affine - near).size(roomy), down=False))
    A = np.zeros((len(built), len(index)))
    for k, place, a in entries:
        A[k, place] = a
    table = np.array(list(index), dtype=float).reshape(len(index), len(names) + 2)
    return RidgeSum(
        names,
        table[:, :-2].copy(),
        table[:, -2].copy(),
        A,
        W,
        b,
        tuple(E),
        tuple(p.how for p in built),
        box,
        margins,
    )
