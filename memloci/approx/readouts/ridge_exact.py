"""Functions that one hidden layer computes exactly, found in the expression tree.

    affine                  no neurons
    piecewise linear        |u| = relu(u) + relu(-u),  max(u, v) = v + relu(u - v),  and what follows from
                            these as long as one layer is enough: functions of one linear form, sums of
                            kinks along hyperplanes (the range of three numbers is half their perimeter)
    tables and switches     on finite alphabets, through a code u = <a, symbols>:
                            J 1{u >= m}     = J relu(s (u - m) + 1/2) - J relu(s (u - m) - 1/2)
                            L(v) 1{u >= m}  = (relu(s (u - m) + L(v)) - relu(s (u - m) - L(v))) / 2
                            for every u that is 1/2s (or sup|L| / s) away from m: a staircase, so that an
                            input within its margin of a symbol gives the symbol's value exactly

Everything here is rational arithmetic; floats appear in ridge_sums.py, which bounds their rounding.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from memloci.core.intervals import Interval, Undefined
from memloci.language.domain import Domain
from memloci.language.evaluate import enclose, evaluate
from memloci.language.expression import Apply, Constant, Expression, Variable, variables

MAX_COMBINATIONS = 4_096  # of symbols
MAX_CODES = 6_000
MAX_VERTICES = 4_000
MAX_SELECTIONS = 8
HALF = Fraction(1, 2)

Box = Mapping[str, Interval]


@dataclass(frozen=True)
class Affine:
    """sum_i a_i v_i + b, exactly."""

    a: dict[str, Fraction] = field(default_factory=dict)
    b: Fraction = Fraction(0)

    def __add__(self, other: "Affine") -> "Affine":
        a = dict(self.a)
        for name, value in other.a.items():
            a[name] = a.get(name, Fraction(0)) + value
        return Affine({name: value for name, value in a.items() if value}, self.b + other.b)

    def __sub__(self, other: "Affine") -> "Affine":
        return self + other.times(Fraction(-1))

    def times(self, k: Fraction) -> "Affine":
        return Affine({name: k * value for name, value in self.a.items()} if k else {}, k * self.b)

    def at(self, point: Mapping[str, Fraction]) -> Fraction:
        return sum((value * point[name] for name, value in self.a.items()), self.b)

    def span(self, box: Box) -> tuple[Fraction, Fraction]:
        lo = hi = self.b
        for name, value in self.a.items():
            ends = value * Fraction(box[name].lo), value * Fraction(box[name].hi)
            lo, hi = lo + min(ends), hi + max(ends)
        return lo, hi

    def size(self, box: Box) -> Fraction:
        return max(map(abs, self.span(box)))

    @property
    def key(self) -> tuple[object, ...]:
        return (tuple(sorted(self.a.items())), self.b)


@dataclass(frozen=True)
class Exact:
    """affine + sum_k alpha_k relu(form_k), within `error` of f.

    With `margins`, the value is the one at the nearest symbol of each variable named there, as long as the
    input is within the margin of it.
    """

    affine: Affine
    relus: tuple[tuple[Fraction, Affine], ...] = ()
    error: Fraction = Fraction(0)
    margins: dict[str, float] = field(default_factory=dict)
    how: str = "affine"


_COMPARE: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "and": lambda x, y: x != 0 and y != 0,
    "or": lambda x, y: x != 0 or y != 0,
}


def affine(f: Expression, symbols: Mapping[str, Fraction] | None = None) -> Affine | None:
    """f as an affine function once `symbols` are known, or None when it is not seen to be one."""
    symbols = symbols or {}
    match f:
        case Constant(value):
            return Affine(b=Fraction(value))
        case Variable(name):
            return Affine(b=symbols[name]) if name in symbols else Affine({name: Fraction(1)})
        case Apply("where", (condition, x, y)):
            known = affine(condition, symbols)
            if known is None or known.a:
                return None
            return affine(x if known.b else y, symbols)
        case Apply(operation, operands):
            inner = [affine(o, symbols) for o in operands]
            if any(i is None for i in inner):
                zero = operation == "*" and any(i is not None and not i.a and i.b == 0 for i in inner)
                return Affine() if zero else None
            return _combine(operation, [i for i in inner if i is not None])


def _combine(operation: str, inner: list[Affine]) -> Affine | None:
    match operation, inner:
        case "+", [x, y]:
            return x + y
        case "-", [x, y]:
            return x - y
        case "neg", [x]:
            return x.times(Fraction(-1))
        case "*", [x, y] if not x.a:
            return y.times(x.b)
        case "*", [x, y] if not y.a:
            return x.times(y.b)
        case "/", [x, y] if not y.a and y.b:
            return x.times(1 / y.b)
        case "**", [x, y] if not y.a and y.b == 1:
            return x
    if any(i.a for i in inner):
        return None
    value = _number(operation, [i.b for i in inner])
    return None if value is None else Affine(b=value)


def _number(operation: str, x: list[Fraction]) -> Fraction | None:
    match operation:
        case "abs":
            return abs(x[0])
        case "min" | "max":
            return min(x) if operation == "min" else max(x)
        case "floor":
            return Fraction(math.floor(x[0]))
        case "round":
            return Fraction(round(x[0]))
        case "sign":
            return Fraction((x[0] > 0) - (x[0] < 0))
        case "not":
            return Fraction(int(x[0] == 0))
        case "//" | "%" if x[1]:
            turns = Fraction(math.floor(x[0] / x[1]))
            return turns if operation == "//" else x[0] - x[1] * turns
        case "**" if x[1].denominator == 1 and 0 <= x[1] <= 64:
            return x[0] ** int(x[1])
        case _ if operation in _COMPARE:
            return Fraction(int(_COMPARE[operation](x[0], x[1])))
    return None


# Piecewise linear functions.

Kinks = list[tuple[Fraction, Affine]]


def piecewise_linear(f: Expression, box: Box) -> Exact | None:
    """f as a sum of kinks, or None when one hidden layer is not seen to be enough."""
    split = _kinks(f) or _kinks_by_vertices(f, box)
    if split is None:
        return None
    base, kinks = split
    inside: Kinks = []
    for alpha, form in kinks:
        lo, hi = form.span(box)
        if lo >= 0:
            base = base + form.times(alpha)
        elif hi > 0:
            inside.append((alpha, form))
    base, merged = _merge(base, inside)
    return Exact(base, tuple(merged), how="piecewise linear" if merged else "affine")


def _merge(base: Affine, kinks: Kinks) -> tuple[Affine, Kinks]:
    """Kinks along the same hyperplane joined: relu(-u) = relu(u) - u."""
    joined: dict[tuple[object, ...], tuple[Fraction, Affine]] = {}
    for alpha, form in kinks:
        scale = form.a[min(form.a)]
        key = form.times(1 / scale).key
        if key not in joined:
            joined[key] = (alpha, form)
            continue
        total, first = joined[key]
        ratio = scale / first.a[min(first.a)]
        if ratio < 0:  # alpha relu(-r u) = alpha r relu(u) - alpha r u, r > 0
            base = base + first.times(alpha * ratio)
        joined[key] = (total + alpha * abs(ratio), first)
    return base, [(alpha, form) for alpha, form in joined.values() if alpha]


def _kinks(f: Expression) -> tuple[Affine, Kinks] | None:
    plain = affine(f)
    if plain is not None:
        return plain, []
    match f:
        case Apply("+" | "-" as sign, (x, y)):
            return _sum(_kinks(x), _kinks(y), Fraction(1 if sign == "+" else -1))
        case Apply("neg", (x,)):
            return _scaled(_kinks(x), Fraction(-1))
        case Apply("*" | "/" as operation, (x, y)):
            k, other = affine(y), x
            if operation == "*" and (k is None or k.a):
                k, other = affine(x), y
            if k is None or k.a or (operation == "/" and not k.b):
                return None
            return _scaled(_kinks(other), k.b if operation == "*" else 1 / k.b)
        case Apply("abs", (x,)):
            inner = _kinks(x)  # |u| = 2 relu(u) - u
            return _sum(_scaled(_positive(inner, inner), Fraction(2)), inner, Fraction(-1))
        case Apply("max" | "min" as which, (x, y)):
            p, q = _kinks(x), _kinks(y)
            gap = _sum(p, q, Fraction(-1))
            upper = _positive(gap, gap)
            return _sum(q, upper, Fraction(1)) if which == "max" else _sum(p, upper, Fraction(-1))
        case Apply("where", (Apply("<" | "<=" | ">" | ">=" as relation, (l, r)), x, y)):
            p, q = _kinks(x), _kinks(y)
            side = _sum(_kinks(l), _kinks(r), Fraction(-1))
            if relation[0] == "<":
                side = _scaled(side, Fraction(-1))
            return _sum(q, _positive(side, _sum(p, q, Fraction(-1))), Fraction(1))
    return None


Sum = tuple[Affine, Kinks] | None


def _sum(x: Sum, y: Sum, sign: Fraction) -> Sum:
    if x is None or y is None:
        return None
    return x[0] + y[0].times(sign), x[1] + [(sign * alpha, form) for alpha, form in y[1]]


def _scaled(x: Sum, k: Fraction) -> Sum:
    return None if x is None else (x[0].times(k), [(k * alpha, form) for alpha, form in x[1] if k])


def _positive(side: Sum, value: Sum) -> Sum:
    """`value` where `side` > 0 and 0 elsewhere, if that is continuous; along one linear form only."""
    if side is None or value is None:
        return None
    forms = [side[0], value[0], *(form for _, form in side[1] + value[1])]
    direction = next((form.a for form in forms if form.a), None)
    if direction is None:
        return value if side[0].b > 0 else (Affine(), [])
    lead = min(direction)
    direction = {name: v / direction[lead] for name, v in direction.items()}
    for form in forms:
        if form.a and {n: v / form.a.get(lead, Fraction(1)) for n, v in form.a.items()} != direction:
            return None
    s = Affine(direction)
    along = lambda form, x: form.b + form.a.get(lead, Fraction(0)) * x
    total = lambda part, x: (
        along(part[0], x)
        + sum((alpha * max(along(form, x), Fraction(0)) for alpha, form in part[1]), Fraction(0))
    )
    corners = {-form.b / form.a[lead] for _, form in side[1] + value[1] if form.a}
    edges = sorted(corners)
    ends = [edges[0] - 1, *edges, edges[-1] + 1] if edges else [Fraction(0), Fraction(1)]
    pieces = list(zip(ends[:-1], ends[1:], strict=True))
    for k, (x, y) in enumerate(pieces):  # zeros of `side`; the outer pieces run to infinity
        at, slope = total(side, x), (total(side, y) - total(side, x)) / (y - x)
        if slope:
            zero = x - at / slope
            positive_beyond = k == 0 or zero >= x
            before = k == len(pieces) - 1 or zero <= y
            if positive_beyond and before:
                corners.add(zero)
    knots = sorted(corners)
    if not knots:
        return value if total(side, Fraction(0)) > 0 else (Affine(), [])
    probes = [knots[0] - 1, *((x + y) / 2 for x, y in zip(knots[:-1], knots[1:], strict=True)), knots[-1] + 1]
    slopes, level = [], []
    for x in probes:
        on = total(side, x) > 0
        step = Fraction(1, 4) * min((abs(x - t) for t in knots), default=Fraction(1))
        slope = (total(value, x + step) - total(value, x)) / step if on else Fraction(0)
        slopes.append(slope)
        level.append((total(value, x) if on else Fraction(0), x))
    for k, t in enumerate(knots):  # continuity at each corner
        left = level[k][0] + slopes[k] * (t - level[k][1])
        right = level[k + 1][0] + slopes[k + 1] * (t - level[k + 1][1])
        if left != right:
            return None
    base = s.times(slopes[0]) + Affine(b=level[0][0] - slopes[0] * level[0][1])
    kinks = [
        (slopes[k + 1] - slopes[k], s + Affine(b=-t))
        for k, t in enumerate(knots)
        if slopes[k + 1] != slopes[k]
    ]
    return base, kinks


def _exactly(f: Expression, point: Mapping[str, Fraction]) -> Fraction:
    value = affine(f, point)
    assert value is not None and not value.a
    return value.b


def _selections(f: Expression, planes: dict[tuple[object, ...], Affine]) -> list[Affine] | None:
    """Every affine function that f can equal; collects the hyperplanes where the choice changes."""
    plain = affine(f)
    if plain is not None:
        return [plain]
    match f:
        case Apply("+" | "-" | "min" | "max" | "*" | "/" as operation, (x, y)):
            left, right = _selections(x, planes), _selections(y, planes)
            if left is None or right is None or len(left) * len(right) > MAX_SELECTIONS**2:
                return None
            if operation in ("min", "max"):
                _collect(planes, (p - q for p in left for q in right))
                joined = left + right
            else:
                pairs = [_combine(operation, [p, q]) for p in left for q in right]
                if any(p is None for p in pairs):
                    return None
                joined = [p for p in pairs if p is not None]
        case Apply("neg" | "abs" as operation, (x,)):
            inner = _selections(x, planes)
            if inner is None:
                return None
            if operation == "abs":
                _collect(planes, inner)
            joined = [p.times(Fraction(-1)) for p in inner] + (inner if operation == "abs" else [])
        case _:
            return None
    distinct = list({p.key: p for p in joined}.values())
    return distinct if len(distinct) <= MAX_SELECTIONS else None


def _collect(planes: dict[tuple[object, ...], Affine], forms: Iterable[Affine]) -> None:
    for form in forms:
        if form.a:
            unit = form.times(1 / form.a[min(form.a)])
            planes.setdefault(unit.key, unit)


def _kinks_by_vertices(f: Expression, box: Box) -> tuple[Affine, Kinks] | None:
    """Fit kinks on the hyperplanes where f may bend, then prove equality at the vertices."""
    names = sorted(variables(f))
    d = len(names)
    planes: dict[tuple[object, ...], Affine] = {}
    if d > 4 or any(box[n].is_point for n in names) or _selections(f, planes) is None or not planes:
        return None
    bends = list(planes.values())
    rng = np.random.default_rng(0)
    points = 40 * (len(bends) + d + 1)
    v = {n: rng.uniform(box[n].lo, box[n].hi, points) for n in names}
    y = evaluate(f, v, np)
    forms = [float(p.b) + sum(float(a) * v[n] for n, a in p.a.items()) for p in bends]
    columns = [np.maximum(u, 0.0) for u in forms] + [v[n] for n in names] + [np.ones(points)]
    fit, *_ = np.linalg.lstsq(np.stack(columns, axis=1), y, rcond=None)
    simple = [Fraction(float(x)).limit_denominator(720) for x in fit]
    if not np.allclose([float(x) for x in simple], fit, rtol=0, atol=1e-7):
        return None
    kinks = [(alpha, form) for alpha, form in zip(simple, bends, strict=False) if alpha]
    base = Affine({n: a for n, a in zip(names, simple[len(bends) :], strict=False) if a}, simple[-1])
    return (base, kinks) if vertex_supremum(f, names, box, base, kinks) == 0 else None


def vertex_supremum(
    f: Expression, names: Sequence[str], box: Box, base: Affine, kinks: Kinks
) -> Fraction | None:
    """max |f - base - sum_k alpha_k relu(form_k)| over the box, exactly, if f is seen to be piecewise linear.

    The difference is affine on every cell of the arrangement of the hyperplanes where f or the kinks bend,
    so it is largest at one of the vertices, of which there must be few enough.
    """
    from flint import fmpq, fmpq_mat

    d = len(names)
    planes: dict[tuple[object, ...], Affine] = {}
    if _selections(f, planes) is None:
        return None
    _collect(planes, (form for _, form in kinks))
    faces = [Affine({n: Fraction(1)}, -Fraction(end)) for n in names for end in box[n]]
    bends = [p for p in planes.values() if p.span(box)[0] < 0 < p.span(box)[1]]
    if math.comb(len(bends) + len(faces), d) > MAX_VERTICES or any(box[n].is_point for n in names):
        return None
    limits = {n: (Fraction(box[n].lo), Fraction(box[n].hi)) for n in names}
    ratio = lambda x: fmpq(x.numerator, x.denominator)
    worst = Fraction(0)
    for chosen in itertools.combinations(bends + faces, d):
        matrix = fmpq_mat(d, d, [ratio(p.a.get(n, Fraction(0))) for p in chosen for n in names])
        if matrix.det() == 0:
            continue
        solved = matrix.solve(fmpq_mat(d, 1, [ratio(-p.b) for p in chosen]))
        point = {n: Fraction(int(solved[i, 0].p), int(solved[i, 0].q)) for i, n in enumerate(names)}
        if any(not lo <= point[n] <= hi for n, (lo, hi) in limits.items()):
            continue
        total = base.at(point) + sum((a * max(p.at(point), Fraction(0)) for a, p in kinks), Fraction(0))
        worst = max(worst, abs(total - _exactly(f, point)))
    return worst


# Tables and switches on finite alphabets.


@dataclass(frozen=True)
class SymbolRow:
    """One combination of symbols: their intervals, f there as an affine function of the rest, its error."""

    symbols: tuple[Interval, ...]
    value: Affine
    error: Fraction


def switch(
    f: Expression,
    domains: Mapping[str, Domain],
    box: Box,
    *,
    margins: Mapping[str, float] | None = None,
    possible: Callable[[Mapping[str, float]], bool] | None = None,
) -> Exact | None:
    """f as a table over the variables with finite alphabets, affine in the others; None if it is not one.

    `margins`: how far from a symbol an input may lie; by default half of what the best code allows.
    `possible`: which combinations of symbols occur; all, by default.
    """
    discrete, rows = table_rows(f, domains, possible)
    return _staircase(discrete, rows, box, margins) if rows else None


def table_rows(
    f: Expression, domains: Mapping[str, Domain], possible: Callable[[Mapping[str, float]], bool] | None
) -> tuple[tuple[str, ...], list[SymbolRow]]:
    """f at every possible combination of symbols; no rows when it is no table."""
    names = tuple(sorted(variables(f)))
    discrete = tuple(n for n in names if len(domains[n]) > 1 or domains[n][0].is_point)
    count = math.prod(len(domains[n]) for n in discrete)
    rows: list[SymbolRow] = []
    if not discrete or count > MAX_COMBINATIONS:
        return discrete, []
    for symbols in itertools.product(*(domains[n] for n in discrete)):
        points = all(symbol.is_point for symbol in symbols)
        if points and possible is not None:
            if not possible({n: s.lo for n, s in zip(discrete, symbols, strict=True)}):
                continue
        row = _row(f, dict(zip(discrete, symbols, strict=True)), points, len(discrete) == len(names))
        if row is None:
            return discrete, []
        rows.append(_joined(row, rows))
    return discrete, rows


def _row(f: Expression, symbols: dict[str, Interval], points: bool, alone: bool) -> SymbolRow | None:
    if points:
        value = affine(f, {n: Fraction(s.lo) for n, s in symbols.items()})
        if value is not None:
            return SymbolRow(tuple(symbols.values()), value, Fraction(0))
    if not alone:
        return None
    try:
        span = enclose(f, symbols)
    except Undefined:
        return None
    if not math.isfinite(span.width) or span.width > 1e-12 * max(1.0, span.magnitude):
        return None
    middle = span.lo + span.width / 2
    error = max(Fraction(span.hi) - Fraction(middle), Fraction(middle) - Fraction(span.lo))
    return SymbolRow(tuple(symbols.values()), Affine(b=Fraction(middle)), error)


def _joined(row: SymbolRow, rows: list[SymbolRow]) -> SymbolRow:
    """The row with the value of an earlier one that it cannot be told from: no step of one ulp."""
    if row.error:
        for other in rows:
            apart = abs(row.value.b - other.value.b)
            if not other.value.a and apart <= row.error + other.error:
                return SymbolRow(row.symbols, other.value, row.error + apart)
    return row


def _codes(lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """Candidate weights a of u = <a, symbols>: all small integers, or many of them, and mixed radix codes."""
    d = lo.shape[1]
    if d <= 4:
        R = {1: 1, 2: 8, 3: 5, 4: 3}[d]
        small = np.array(list(itertools.product(range(-R, R + 1), repeat=d)), dtype=float)
    else:
        rng = np.random.default_rng(0)
        small = rng.integers(-3, 4, size=(2_000, d)).astype(float)
        small = np.concatenate([small, np.ones((1, d)), rng.choice([-1.0, 1.0], size=(500, d))])
    lead = np.array([next((x for x in row if x), 0.0) for row in small])
    small = small[lead > 0]
    spans = np.maximum(hi.max(axis=0) - lo.min(axis=0), 1e-300)
    gaps = []
    for i in range(d):
        pieces = sorted(set(zip(lo[:, i], hi[:, i], strict=True)))
        steps = [b[0] - a[1] for a, b in zip(pieces[:-1], pieces[1:], strict=True)]
        gaps.append(min(steps, default=1.0))
    orders = itertools.islice(itertools.permutations(range(d)), 24)
    radix = []
    for order in orders:
        for signs in itertools.islice(itertools.product((1.0, -1.0), repeat=d - 1), 16):
            a, below = np.zeros(d), 0.0
            for k, i in enumerate(order):
                a[i] = math.ceil((below + gaps[order[0]]) / gaps[i]) if k else 1.0
                below += a[i] * spans[i]
            a[list(order[1:])] *= signs
            radix.append(a)
    return np.concatenate([small[:MAX_CODES], np.array(radix)])


def _staircase(
    names: tuple[str, ...], rows: list[SymbolRow], box: Box, margins: Mapping[str, float] | None
) -> Exact | None:
    lo = np.array([[s.lo for s in row.symbols] for row in rows])
    hi = np.array([[s.hi for s in row.symbols] for row in rows])
    keys: dict[tuple[object, ...], int] = {}
    kind = np.array([keys.setdefault(row.value.key, len(keys)) for row in rows])
    if len(keys) == 1:
        return Exact(rows[0].value, error=max(row.error for row in rows), how="affine")
    mu = np.array([margins[n] for n in names]) if margins is not None else None
    best, choice = (math.inf, 0.0), None
    for a in _codes(lo, hi):
        low, high = np.minimum(a * lo, a * hi).sum(axis=1), np.maximum(a * lo, a * hi).sum(axis=1)
        order = np.argsort(low, kind="stable")
        change = np.flatnonzero(kind[order][1:] != kind[order][:-1])
        if len(change) > best[0]:
            continue
        gap = low[order][1:][change] - np.maximum.accumulate(high[order])[:-1][change]
        room = gap.min() - (0.0 if mu is None else 2 * (np.abs(a) @ mu))
        quality = room / np.abs(a).sum()
        if room > 1e-9 * np.abs(a).sum() and (len(change), -quality) < best:
            best, choice = (len(change), -quality), a
    if choice is None:
        return None
    if mu is None:
        mu = np.full(len(names), -best[1] / 4 * (1 - 1e-9))
    return _steps(names, rows, box, [Fraction(float(x)) for x in choice], [Fraction(float(x)) for x in mu])


def _steps(
    names: tuple[str, ...], rows: list[SymbolRow], box: Box, a: list[Fraction], mu: list[Fraction]
) -> Exact | None:
    u = Affine({n: x for n, x in zip(names, a, strict=True) if x})
    blur = sum((abs(x) * m for x, m in zip(a, mu, strict=True)), Fraction(0))
    coded = []
    for row in rows:
        ends = u.span(dict(zip(names, row.symbols, strict=True)))
        coded.append((ends[0] - blur, ends[1] + blur, row))
    coded.sort(key=lambda entry: entry[0])
    base, reached = coded[0][2].value, coded[0][1]
    now, value, error = base, base, coded[0][2].error  # `now`: what the network computes
    relus: Kinks = []
    plain = True
    for low, high, row in coded[1:]:
        if row.value.key != value.key:
            zone = low - reached
            if zone <= 0:
                return None
            jump, middle = row.value - now, (low + reached) / 2
            half = HALF if not jump.a else jump.size(box)
            s = Fraction(2) ** math.ceil(math.log2(float(half / zone) * 2.02))  # half / s < zone / 2
            middle = Fraction(round(middle * s * 256)) / (s * 256)
            if middle - half / s < reached or middle + half / s > low:
                return None
            step = (u + Affine(b=-middle)).times(s)
            if not jump.a:
                J = Fraction(float(jump.b))
                relus += [(J, step + Affine(b=HALF)), (-J, step + Affine(b=-HALF))]
                now = now + Affine(b=J)
            else:
                plain = False
                relus += [(HALF, step + jump), (-HALF, step - jump)]
                now = row.value
            value = row.value
        error = max(error, row.error + (row.value - now).size(box))
        reached = max(reached, high)
    stated = {n: float(m) for n, m in zip(names, mu, strict=True)}
    return Exact(base, tuple(relus), error, stated, "table" if plain else "switch")
