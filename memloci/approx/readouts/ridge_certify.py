"""E_ffn from the weights alone, and how it falls with the width.

`certify_ridge` knows nothing of how the weights were found; trained ones will do. It takes the best of

    vertices                    f piecewise linear, few neurons: exact
    branch and bound            ridge_bounds.py: any weights, any continuous f of up to 4 variables
    one linear form at a time   neurons with the same direction make a function of one variable; if f splits
                                along the same directions, the errors of the parts add up

On a finite alphabet with margins the boxes are the symbols' surroundings, and f is its value at the symbol.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from memloci.approx.readouts.ridge_bounds import Target, expression_target, supremum
from memloci.approx.readouts.ridge_exact import Affine, SymbolRow, table_rows, vertex_supremum
from memloci.approx.readouts.ridge_pieces import FORM, Pieces, proved_error
from memloci.approx.readouts.ridge_sums import (
    Ranges,
    Readout,
    RidgeSum,
    as_expression,
    enlarged,
    ridge_sum,
    span_of,
)
from memloci.approx.readouts.ridge_terms import Direction, decompose, written_addends
from memloci.core.errors import BadInput
from memloci.core.intervals import Interval
from memloci.language.domain import Domain
from memloci.language.evaluate import evaluate
from memloci.language.expression import Apply, Constant, Expression, variables
from memloci.tasks.task import Task

MAX_BOXES = {1: 200_000, 2: 400_000, 3: 1_000_000, 4: 1_500_000}
RTOL = {1: 0.02, 2: 0.04, 3: 0.15, 4: 0.25}
MAX_SPLIT_DIRECTIONS = 64
MAX_EXACT_WIDTH = 64
PROBES = 20_000
PAPER_SLOPE = -0.5  # E_FFN = O(m^-1/2), docs/theory.md section 0


def certify_ridge(
    ridge: RidgeSum,
    readout: Readout,
    domains: Ranges,
    *,
    output: int = 0,
    reach: float | Mapping[str, float] = 0.0,
    margins: Mapping[str, float] | None = None,
    possible: Callable[[Mapping[str, float]], bool] | None = None,
    rtol: float | None = None,
    max_boxes: int | None = None,
) -> float:
    """An upper bound on |readout - output| of these weights over the domains, enlarged by `reach`.

    With `margins` (those of the record by default) the readout is meant at the symbols near the input.
    """
    f = as_expression(readout, domains)
    names = ridge.variables
    if not variables(f) <= set(names):
        missing = ", ".join(sorted(variables(f) - set(names)))
        raise BadInput(f"the readout reads {missing}, which these weights do not")
    spans: dict[str, Domain] = {n: span_of(domains[n]) for n in names}
    box = enlarged(spans, reach)
    W, b, A = ridge.W[output], float(ridge.b[output]), ridge.A[output]
    live = A != 0
    B, c, A = ridge.B[live], ridge.c[live], A[live]
    margins = ridge.margins if margins is None else margins
    if margins and set(margins) & variables(f):
        return _at_symbols(f, names, spans, box, margins, possible, (W, b, B, c, A))
    exact = _by_vertices(f, names, box, W, b, B, c, A)
    if exact is not None:
        return exact
    return _continuous(f, names, box, W, b, B, c, A, rtol, max_boxes)


def _continuous(
    f: Expression,
    names: tuple[str, ...],
    box: dict[str, Interval],
    W: Any,
    b: float,
    B: Any,
    c: Any,
    A: Any,
    rtol: float | None,
    max_boxes: int | None,
) -> float:
    d = len(names)
    lo, hi = np.array([box[n].lo for n in names]), np.array([box[n].hi for n in names])
    rtol = RTOL.get(d, 0.25) if rtol is None else rtol
    split, parts = _split_bound(f, names, box, W, b, B, c, A), _separate(f, names, B)
    enough = 0.0
    if math.isfinite(split):
        v = lo + (hi - lo) * np.random.default_rng(0).random((PROBES, d))
        enough = float(np.abs(_difference(f, names, v, W, b, B, c, A)).max()) * (1 + rtol)
        if split <= enough:
            return split
    if len(parts) > 1:  # no variable in common: the errors of the parts add up
        total, left = Fraction(0), Fraction(b)
        for part, inner in parts:
            columns = [names.index(n) for n in inner]
            reading = np.flatnonzero(B[:, columns].any(axis=1))
            weights = W[columns], 0.0, B[reading][:, columns], c[reading], A[reading]
            v = lo[columns] + (hi - lo)[columns] * np.random.default_rng(0).random((PROBES, len(inner)))
            gap = _difference(part, inner, v, *weights)
            shift = float(gap.max() + gap.min()) / 2
            weights = weights[0], shift, *weights[2:]
            total += Fraction(_continuous(part, inner, box, *weights, rtol=None, max_boxes=max_boxes))
            left -= Fraction(shift)
        flat = np.flatnonzero(~B.any(axis=1))
        left += sum((Fraction(A[k]) * max(Fraction(c[k]), Fraction(0)) for k in flat), Fraction(0))
        return min(split, math.nextafter(float(total + abs(left)), math.inf))
    if d > 4:
        if math.isfinite(split):
            return split
        raise BadInput(
            f"weights that mix {d} variables are certified for polynomials and sums of functions of one linear "
            "form only; anything else takes at most 4"
        )
    boxes = MAX_BOXES[d] if max_boxes is None else max_boxes
    result = supremum(
        expression_target(f, names), W, b, B, c, A, lo, hi, rtol=rtol, enough=enough, max_boxes=boxes
    )
    return min(split, result.bound)


def _difference(
    f: Expression, names: tuple[str, ...], v: Any, W: Any, b: float, B: Any, c: Any, A: Any
) -> Any:
    """f - N on a sample: it only decides what to prove."""
    y = np.asarray(evaluate(f, {n: v[:, i] for i, n in enumerate(names)}, np), dtype=float)
    return y - (b + v @ W + np.maximum(v @ B.T + c, 0.0) @ A)


def _separate(f: Expression, names: tuple[str, ...], B: Any) -> list[tuple[Expression, tuple[str, ...]]]:
    """The parts of f whose variables neither f nor a neuron mixes."""
    try:
        terms = written_addends(f)
    except OverflowError:
        return [(f, names)]
    groups: list[set[str]] = []
    neurons = {tuple(n for n, x in zip(names, row, strict=True) if x) for row in B}
    for joint in [*(variables(term) for term in terms), *neurons, *((n,) for n in names)]:
        if joint:
            meeting = [g for g in groups if g & set(joint)]
            groups = [g for g in groups if not g & set(joint)] + [set(joint).union(*meeting)]
    parts = []
    for k, group in enumerate(groups):
        members = [t for t in terms if variables(t) & group or (k == 0 and not variables(t))]
        total: Expression = members[0] if members else Constant(0.0)
        for term in members[1:]:
            total = Apply("+", (total, term))
        parts.append((total, tuple(n for n in names if n in group)))
    return parts


def certify_readout(ridge: RidgeSum, task: Task, **options: Any) -> tuple[float, ...]:
    """`certify_ridge` for every output of a task."""
    possible = task.occur_together
    return tuple(
        certify_ridge(ridge, formula, task.domains, output=k, possible=possible, **options)
        for k, formula in enumerate(task.readouts)
    )


def _by_vertices(
    f: Expression, names: tuple[str, ...], box: dict[str, Interval], W: Any, b: float, B: Any, c: Any, A: Any
) -> float | None:
    form = lambda row, shift: Affine(
        {n: Fraction(x) for n, x in zip(names, row, strict=True) if x}, Fraction(shift)
    )
    if len(names) > 4 or len(A) > MAX_EXACT_WIDTH:
        return None
    kinks = [(Fraction(a), form(row, float(shift))) for a, row, shift in zip(A, B, c, strict=True)]
    worst = vertex_supremum(f, names, box, form(W, b), kinks)
    if worst is None:
        return None
    return float(worst) if Fraction(float(worst)) >= worst else math.nextafter(float(worst), math.inf)


# Finite alphabets.


def _at_symbols(
    f: Expression,
    names: tuple[str, ...],
    domains: dict[str, Domain],
    box: dict[str, Interval],
    margins: Mapping[str, float],
    possible: Callable[[Mapping[str, float]], bool] | None,
    weights: tuple[Any, float, Any, Any, Any],
) -> float:
    discrete, rows = table_rows(f, domains, possible)
    if not rows:
        raise BadInput("the readout is no table over its finite alphabets; certify it without margins")
    lo, hi = (np.tile([box[n][end] for n in names], (len(rows), 1)) for end in (0, 1))
    for k, row in enumerate(rows):
        for n, symbol in zip(discrete, row.symbols, strict=True):
            i = names.index(n)
            lo[k, i] = np.nextafter(symbol.lo - margins[n], -math.inf)
            hi[k, i] = np.nextafter(symbol.hi + margins[n], math.inf)
    W, b, B, c, A = weights
    target = _rows_target(rows, names)
    return supremum(target, W, b, B, c, A, lo, hi, rtol=0.1, atol=1e-12).bound


def _rows_target(rows: list[SymbolRow], names: tuple[str, ...]) -> Target:
    slope = np.array([[float(row.value.a.get(n, 0)) for n in names] for row in rows])
    shift = np.array([float(row.value.b) for row in rows])
    slack = np.array([float(row.error) for row in rows]) * (1 + 1e-12) + 1e-15 * np.abs(shift)

    def target(centre: Any, radius: Any, label: Any) -> tuple[Interval, Interval, Interval]:
        size = np.abs(slope[label]) * (np.abs(centre) + radius)
        error = slack[label] + 1e-14 * size.sum(axis=1)
        at = np.sum(slope[label] * centre, axis=1) + shift[label]
        swing = np.sum(np.abs(slope[label]) * radius, axis=1) * (1 + 1e-12)
        return (
            Interval(at - error, at + error),
            Interval(slope[label], slope[label]),
            Interval(at - error - swing, at + error + swing),
        )

    return target


# One linear form at a time.


def _split_bound(
    f: Expression, names: tuple[str, ...], box: dict[str, Interval], W: Any, b: float, B: Any, c: Any, A: Any
) -> float:
    """A bound that adds up one-dimensional errors, or infinity when f and the weights do not split alike."""
    groups: dict[Direction, list[int]] = {}
    for k, row in enumerate(B):
        u = tuple(sorted((n, float(x)) for n, x in zip(names, row, strict=True) if x))
        if u:
            groups.setdefault(u, []).append(k)
    if not groups or len(groups) > MAX_SPLIT_DIRECTIONS:
        return math.inf
    try:
        parts = decompose(f, box, groups)
    except OverflowError:
        return math.inf
    if parts.remaining or set(parts.ridges) - set(groups):
        return math.inf
    flat = [k for k, row in enumerate(B) if not row.any()]
    constant = sum((Fraction(A[k]) * max(Fraction(c[k]), Fraction(0)) for k in flat), Fraction(b))
    rest = parts.affine - Affine({n: Fraction(x) for n, x in zip(names, W, strict=True) if x}, constant)
    total = Fraction(parts.residual)
    for u, members in groups.items():
        s = Affine({n: Fraction(x) for n, x in u})
        ends = s.span(box)
        lo, hi = math.nextafter(float(ends[0]), -math.inf), math.nextafter(float(ends[1]), math.inf)
        lo, hi = (float(e) if Fraction(float(e)) == e else x for e, x in zip(ends, (lo, hi), strict=True))
        knots = tuple(-float(c[k]) for k in members)
        jumps = tuple(float(A[k]) for k in members)
        phi = parts.ridges.get(u)
        alpha, beta = _middle(phi, lo, hi, knots, jumps)
        if phi is None:
            return math.inf  # neurons along a direction that f does not use: let branch and bound see
        error = proved_error(phi, lo, hi, Pieces(alpha, beta, knots, jumps))
        if not math.isfinite(error):
            return math.inf
        total += Fraction(error)
        rest = rest + s.times(Fraction(beta)) + Affine(b=Fraction(alpha))
    total += rest.size(box)
    return math.nextafter(float(total), math.inf)


def _middle(
    phi: Expression | None, lo: float, hi: float, knots: tuple[float, ...], jumps: tuple[float, ...]
) -> tuple[float, float]:
    """The affine part that suits phi minus its kinks: any will do, the rest is bounded."""
    if phi is None:
        return 0.0, 0.0
    inside = [t for t in sorted(knots) if lo < t < hi]
    ends = np.array([lo, *inside, hi])  # samples in every piece, however small
    s = np.unique(
        ends[:-1, None] + np.diff(ends)[:, None] * np.linspace(0.0, 1.0, max(9, 2_000 // len(ends)))
    )
    order = np.argsort(knots)
    t, a = np.array(knots)[order], np.array(jumps)[order]
    below = np.searchsorted(t, s)
    slope, offset = np.concatenate([[0.0], np.cumsum(a)]), np.concatenate([[0.0], np.cumsum(a * t)])
    y = np.asarray(evaluate(phi, {FORM: s}, np)) - (slope[below] * s - offset[below])
    low, high = -2.0 * np.ptp(y) / (hi - lo), 2.0 * np.ptp(y) / (hi - lo)
    for _ in range(60):  # the spread of y - slope * s is convex in the slope
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if np.ptp(y - a * s) <= np.ptp(y - b * s) else (a, high)
    gap = y - low * s
    return float((gap.max() + gap.min()) / 2), float(low)


# Rates.


@dataclass(frozen=True)
class WidthTable:
    """Rows (neurons used, E_ffn), and the slope of log E_ffn against log width, for the paper's -1/2."""

    rows: tuple[tuple[int, float], ...]
    slope: float
    how: str
    paper_slope: float = PAPER_SLOPE


def width_against_error(
    readout: Readout,
    domains: Ranges,
    widths: Sequence[int],
    *,
    reach: float | Mapping[str, float] = 0.0,
    seed: int = 0,
) -> WidthTable:
    """The proved error at each width. The slope is NaN where fewer than two errors are above 0."""
    rows, how = [], ""
    for width in widths:
        ridge = ridge_sum(readout, domains, max_width=int(width), reach=reach, seed=seed)
        rows.append((ridge.width, max(ridge.E_ffn)))
        how = ridge.how[0]
    points = sorted({(m, E) for m, E in rows if m > 0 and E > 1e-12})
    if len({m for m, _ in points}) < 2:
        return WidthTable(tuple(rows), math.nan, how)
    x, y = np.log([m for m, _ in points]), np.log([E for _, E in points])
    return WidthTable(tuple(rows), float(np.polynomial.polynomial.polyfit(x, y, 1)[1]), how)
