"""Functions as sums of functions of one linear form each.

    f(v) = affine(v) + sum_j phi_j(<u_j, v>) + rest,   |rest| <= residual on the box

Polynomials: every homogeneous part is a combination of powers <u, v>^p of linear forms; x y is a difference
of two squares. Among small integer directions u (and eigenvectors, for squares) a linear program picks
few and small terms: it minimises what the pieces of ridge_pieces.py will cost. The program only
proposes: the residual is computed in rational arithmetic and bounded. Compositions g(<u, v> + b)
are read off the tree. What is neither is left for a fit (ridge_fit.py).
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from memloci.approx.readouts.ridge_exact import Affine, Box, affine
from memloci.approx.readouts.ridge_pieces import FORM
from memloci.language.expression import Apply, Constant, Expression, Variable, variables

MAX_DEGREE = 10
MAX_TERMS = 400
MAX_PRODUCT = 8  # variables of one monomial: 2^7 directions
REWEIGHTS = 6  # tuned

Monomial = tuple[tuple[str, int], ...]  # sorted (name, power)
Polynomial = dict[Monomial, Fraction]
Direction = tuple[tuple[str, float], ...]  # sorted (name, coefficient)


@dataclass(frozen=True)
class Ridges:
    """The decomposition above; `remaining` is the part of f that is neither polynomial nor a ridge."""

    affine: Affine = field(default_factory=Affine)
    ridges: dict[Direction, Expression] = field(default_factory=dict)
    residual: Fraction = Fraction(0)
    remaining: tuple[Expression, ...] = ()


def decompose(f: Expression, box: Box, directions: Iterable[Direction] | None = None) -> Ridges:
    """f as a sum of ridges; with `directions`, polynomials may use these only."""
    allowed = list(directions) if directions is not None else None
    base, residual = Affine(), Fraction(0)
    ridges: dict[Direction, Expression] = {}
    left: list[Expression] = []
    total: Polynomial = {}
    for scale, term in _addends(f, Fraction(1)):
        monomials = polynomial(term)
        ridge = _composition(term)
        power_of_form = (
            ridge is not None and len(ridge[0]) > 1 and allowed is None
        )  # (x1 + x2) ** 5 is one ridge
        if monomials is not None and (not power_of_form or affine(term) is not None):
            total = _plus(total, monomials, scale)
            continue
        factor = _exact_constant(scale)
        scaled = term if scale == 1 else Apply("*", (factor, term)) if factor is not None else None
        if scaled is None:
            raise OverflowError("a coefficient has too many digits")
        if ridge is None:
            left.append(scaled)
            continue
        direction, phi = ridge
        phi = phi if scale == 1 or factor is None else Apply("*", (factor, phi))
        ridges[direction] = Apply("+", (ridges[direction], phi)) if direction in ridges else phi
    for part in _components(total):
        waring = _waring(part, box, allowed)
        if waring is None:
            left.append(_written(part))
            continue
        base = base + waring.affine
        residual += waring.residual
        for direction, phi in waring.ridges.items():
            ridges[direction] = Apply("+", (ridges[direction], phi)) if direction in ridges else phi
    return Ridges(base, ridges, residual, tuple(left))


def _addends(f: Expression, scale: Fraction) -> list[tuple[Fraction, Expression]]:
    match f:
        case Apply("+", (x, y)):
            return _addends(x, scale) + _addends(y, scale)
        case Apply("-", (x, y)):
            return _addends(x, scale) + _addends(y, -scale)
        case Apply("neg", (x,)):
            return _addends(x, -scale)
        case Apply("*", (Constant(k), x)) | Apply("*", (x, Constant(k))) if k:
            return _addends(x, scale * Fraction(k))
        case Apply("/", (x, Constant(k))) if k:
            return _addends(x, scale / Fraction(k))
    return [(scale, f)]


def written_addends(f: Expression) -> list[Expression]:
    """Terms whose sum is f exactly."""
    terms = []
    for scale, term in _addends(f, Fraction(1)):
        factor = _exact_constant(scale)
        if factor is None:
            raise OverflowError("a coefficient has too many digits")
        terms.append(term if scale == 1 else Apply("*", (factor, term)))
    return terms


def _exact_constant(x: Fraction) -> Expression | None:
    """An expression whose value is x exactly."""
    if Fraction(float(x)) == x:
        return Constant(float(x))
    if abs(x.numerator) < 2**53 and x.denominator < 2**53:
        return Apply("/", (Constant(float(x.numerator)), Constant(float(x.denominator))))
    return None


# Compositions with one linear form.


def _composition(f: Expression) -> tuple[Direction, Expression] | None:
    names = sorted(variables(f))
    if len(names) == 1:
        return ((names[0], 1.0),), _replace(f, names[0])
    forms: list[Affine] = []
    _maximal(f, forms)
    if not forms or any(form is None for form in forms):
        return None
    lead = min(forms[0].a)
    unit = {n: x / forms[0].a[lead] for n, x in forms[0].a.items()}
    for form in forms:
        if lead not in form.a or {n: x / form.a[lead] for n, x in form.a.items()} != unit:
            return None
    if any(Fraction(float(x)) != x for x in unit.values()):
        scale = forms[0].a[lead]
        unit = {n: x * scale for n, x in unit.items()}
        if any(Fraction(float(x)) != x for x in unit.values()):
            return None
    phi = _along(f, lead, unit[lead])
    return None if phi is None else (tuple((n, float(x)) for n, x in sorted(unit.items())), phi)


def _replace(f: Expression, name: str) -> Expression:
    match f:
        case Variable(n) if n == name:
            return Variable(FORM)
        case Apply(operation, operands, text):
            return Apply(operation, tuple(_replace(o, name) for o in operands), text)
    return f


def _maximal(f: Expression, forms: list[Affine]) -> None:
    """The affine functions that f is made of."""
    form = affine(f)
    if form is not None:
        if form.a:
            forms.append(form)
    elif isinstance(f, Apply):
        for operand in f.operands:
            _maximal(operand, forms)


def _along(f: Expression, lead: str, unit: Fraction) -> Expression | None:
    form = affine(f)
    if form is not None:
        slope, shift = _exact_constant(form.a.get(lead, Fraction(0)) / unit), _exact_constant(form.b)
        if slope is None or shift is None:
            return None
        if not form.a:
            return shift
        scaled = Variable(FORM) if slope == Constant(1.0) else Apply("*", (slope, Variable(FORM)))
        return scaled if form.b == 0 else Apply("+", (scaled, shift))
    if not isinstance(f, Apply):
        return None
    inner = [_along(o, lead, unit) for o in f.operands]
    return (
        None
        if any(i is None for i in inner)
        else Apply(f.operation, tuple(i for i in inner if i is not None), f.text)
    )


# Polynomials.


def polynomial(f: Expression) -> Polynomial | None:
    """The monomials of f, exactly; None when f is no polynomial, or too large a one."""
    match f:
        case Constant(value):
            return {(): Fraction(value)} if value else {}
        case Variable(name):
            return {((name, 1),): Fraction(1)}
        case Apply("+" | "-" as sign, (x, y)):
            p, q = polynomial(x), polynomial(y)
            return None if p is None or q is None else _plus(p, q, Fraction(1 if sign == "+" else -1))
        case Apply("neg", (x,)):
            p = polynomial(x)
            return None if p is None else _plus({}, p, Fraction(-1))
        case Apply("*", (x, y)):
            p, q = polynomial(x), polynomial(y)
            return None if p is None or q is None else _times(p, q)
        case Apply("/", (x, Constant(k))) if k:
            p = polynomial(x)
            return None if p is None else _plus({}, p, 1 / Fraction(k))
        case Apply("**", (x, Constant(n))) if n.is_integer() and 0 <= n <= MAX_DEGREE:
            base, result = polynomial(x), {(): Fraction(1)}
            for _ in range(int(n)):
                if base is None or result is None:
                    return None
                result = _times(result, base)
            return None if base is None else result
    return None


def _plus(p: Polynomial, q: Polynomial, scale: Fraction) -> Polynomial:
    total = dict(p)
    for monomial, x in q.items():
        total[monomial] = total.get(monomial, Fraction(0)) + scale * x
    return {monomial: x for monomial, x in total.items() if x}


def _times(p: Polynomial, q: Polynomial) -> Polynomial | None:
    total: Polynomial = {}
    for (m, x), (n, y) in itertools.product(p.items(), q.items()):
        powers = dict(m)
        for name, k in n:
            powers[name] = powers.get(name, 0) + k
        monomial = tuple(sorted(powers.items()))
        total[monomial] = total.get(monomial, Fraction(0)) + x * y
    total = {monomial: x for monomial, x in total.items() if x}
    if len(total) > MAX_TERMS or any(_degree(m) > MAX_DEGREE for m in total):
        return None
    return total


def _degree(m: Monomial) -> int:
    return sum(k for _, k in m)


def _written(p: Polynomial) -> Expression:
    total: Expression | None = None
    for monomial, x in p.items():
        term = _exact_constant(x)
        if term is None:
            raise OverflowError("a coefficient has too many digits")
        for name, k in monomial:
            power = Variable(name) if k == 1 else Apply("**", (Variable(name), Constant(float(k))))
            term = Apply("*", (term, power))
        total = term if total is None else Apply("+", (total, term))
    return total if total is not None else Constant(0.0)


def _components(p: Polynomial) -> list[Polynomial]:
    """Parts without common variables; a part of more than four variables falls into its monomials."""
    groups: list[tuple[set[str], Polynomial]] = []
    for monomial, x in p.items():
        names = {name for name, _ in monomial}
        meeting = [g for g in groups if g[0] & names]
        joined: Polynomial = {monomial: x}
        for group in meeting:
            names |= group[0]
            joined.update(group[1])
            groups.remove(group)
        groups.append((names, joined))
    parts: list[Polynomial] = []
    for names, part in groups:
        parts += [part] if len(names) <= 4 else [{m: x} for m, x in part.items()]
    return parts


def _waring(p: Polynomial, box: Box, allowed: list[Direction] | None) -> Ridges | None:
    """p as a sum of powers of linear forms in v - centre, degree by degree."""
    names = sorted({name for monomial in p for name, _ in monomial})
    centre = {n: _centre(box[n].lo, box[n].hi) for n in names}
    reach = {
        n: max(Fraction(box[n].hi) - centre[n], centre[n] - Fraction(box[n].lo), Fraction(1, 2**40))
        for n in names
    }
    shifted: Polynomial = {}
    for monomial, x in p.items():
        term: Polynomial | None = {(): x}
        for name, k in monomial:
            for _ in range(k):
                term = _times(term, {((name, 1),): Fraction(1), (): centre[name]}) if term else term
        if term is None:
            return None
        shifted = _plus(shifted, term, Fraction(1))
    base = Affine(b=shifted.pop((), Fraction(0)))
    for n in names:
        slope = shifted.pop(((n, 1),), Fraction(0))
        base = base + Affine({n: slope} if slope else {}, -slope * centre[n])
    powers: dict[Direction, Expression] = {}
    residual = Fraction(0)
    for degree in sorted({_degree(m) for m in shifted}):
        part = {m: x for m, x in shifted.items() if _degree(m) == degree}
        used = sorted({name for m in part for name, _ in m})
        directions = _directions(used, degree, part, reach) if allowed is None else _on(used, allowed)
        chosen = _powers(part, used, degree, directions, reach)
        if chosen is None:
            return None
        rest = dict(part)
        for u, alpha in chosen:
            rest = _plus(rest, _power_of(u, degree), -Fraction(alpha))
            shift = sum((Fraction(x) * centre[n] for n, x in u), Fraction(0))
            inner = _exact_constant(-shift)
            if inner is None:
                return None
            s = Variable(FORM) if shift == 0 else Apply("+", (Variable(FORM), inner))
            power = Apply("*", (Constant(alpha), Apply("**", (s, Constant(float(degree))))))
            powers[u] = Apply("+", (powers[u], power)) if u in powers else power
        for monomial, x in rest.items():
            residual += abs(x) * math.prod((reach[n] ** k for n, k in monomial), start=Fraction(1))
    return Ridges(base, powers, residual)


def _centre(lo: float, hi: float) -> Fraction:
    """Near the middle, with few digits; 0 when that is near enough."""
    middle, radius = (lo + hi) / 2, (hi - lo) / 2
    if abs(middle) <= 0.02 * radius:
        return Fraction(0)
    unit = 2.0 ** (math.floor(math.log2(max(radius, 1e-12))) - 5)
    return Fraction(round(middle / unit)) * Fraction(unit)


def _power_of(u: Direction, degree: int) -> Polynomial:
    """<u, w>^degree, expanded."""
    total: Polynomial = {}
    for powers in _exponents(len(u), degree):
        x = Fraction(math.factorial(degree))
        for (_, a), k in zip(u, powers, strict=True):
            x = x * Fraction(a) ** k / math.factorial(k)
        if x:
            total[tuple((n, k) for (n, _), k in zip(u, powers, strict=True) if k)] = x
    return total


def _exponents(d: int, degree: int) -> Iterable[tuple[int, ...]]:
    if d == 1:
        yield (degree,)
        return
    for k in range(degree + 1):
        for rest in _exponents(d - 1, degree - k):
            yield (k, *rest)


def _on(names: list[str], directions: list[Direction]) -> list[Direction]:
    return [u for u in directions if {n for n, x in u if x} <= set(names)]


def _directions(
    names: list[str], degree: int, part: Polynomial, reach: dict[str, Fraction]
) -> list[Direction]:
    d = len(names)
    scale = [2.0 ** -round(math.log2(float(reach[n]))) for n in names]  # a power of two: exact
    if d > 4:
        vectors: Iterable[tuple[float, ...]] = (
            (1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=d - 1)
        )
        if d > MAX_PRODUCT:
            return []
    else:
        R = {1: 1, 2: max(1, degree // 2 + 1), 3: 1 if degree == 2 else 2, 4: 1 if degree == 2 else 2}[d]
        vectors = (
            tuple(map(float, v))
            for v in itertools.product(range(-R, R + 1), repeat=d)
            if next((x for x in v if x), 0) > 0 and math.gcd(*v) == 1
        )
    directions = [tuple((n, x * k) for n, x, k in zip(names, v, scale, strict=True) if x) for v in vectors]
    if degree == 2 and d > 1:
        Q = np.zeros((d, d))
        for monomial, x in part.items():
            where = [names.index(n) for n, k in monomial for _ in range(k)]
            Q[where[0], where[1]] += float(x) / 2 / scale[where[0]] / scale[where[1]]
            Q[where[1], where[0]] += float(x) / 2 / scale[where[0]] / scale[where[1]]
        for vector in np.linalg.eigh(Q)[1].T:
            vector = np.round(vector * 2.0**20) / 2.0**20  # few digits: shifts by the centre stay exact
            directions.append(
                tuple((n, float(x * k)) for n, x, k in zip(names, vector, scale, strict=True) if x)
            )
    return list(dict.fromkeys(directions))


def _powers(
    part: Polynomial, names: list[str], degree: int, directions: list[Direction], reach: dict[str, Fraction]
) -> list[tuple[Direction, float]] | None:
    """Few and cheap directions with part = sum_j alpha_j <u_j, w>^degree, up to rounding."""
    if not directions:
        return None
    exponents = [m for m in _monomials(names, degree)]
    place = {m: i for i, m in enumerate(exponents)}
    size = np.array([math.prod(float(reach[n]) ** k for n, k in m) for m in exponents])
    M = np.zeros((len(exponents), len(directions)))
    for j, u in enumerate(directions):
        for m, x in _power_of(u, degree).items():
            M[place[m], j] = float(x)
    S = np.array([sum(abs(x) * float(reach[n]) for n, x in u) for u in directions])
    # In units of its largest value on the box, both for rows and for columns.
    M = M * size[:, None] / S**degree
    rhs = np.zeros(len(exponents))
    for m, x in part.items():
        rhs[place[m]] = float(x) * size[place[m]]
    alpha = _few(M, rhs)
    if alpha is None:
        return None
    return [(u, _tidy(a / s**degree)) for u, a, s in zip(directions, alpha, S, strict=True) if a]


def _tidy(x: float) -> float:
    """The simple fraction that x rounds, if there is one: x y is then exactly a difference of squares."""
    simple = Fraction(float(x)).limit_denominator(50_000)
    return float(simple) if abs(float(simple) - x) <= 1e-11 * abs(x) else float(x)


def _monomials(names: list[str], degree: int) -> Iterable[Monomial]:
    for powers in _exponents(len(names), degree):
        yield tuple((n, k) for n, k in zip(names, powers, strict=True) if k)


def _few(M: np.ndarray, rhs: np.ndarray) -> np.ndarray | None:
    """M alpha = rhs with a small sum of |alpha|^(1/3): pieces in proportion to it are needed."""
    from scipy.optimize import linprog

    scale = np.abs(rhs).max()
    J = M.shape[1]
    weight, best, least = np.ones(J), None, math.inf
    for _ in range(REWEIGHTS):
        solved = linprog(
            np.concatenate([weight, weight]),
            A_eq=np.hstack([M, -M]),
            b_eq=rhs / scale,
            bounds=(0, None),
            method="highs",
        )
        if solved.x is None:
            break
        alpha = solved.x[:J] - solved.x[J:]
        support = np.abs(alpha) > 1e-9
        exact = np.zeros(J)
        exact[support] = np.linalg.lstsq(M[:, support], rhs / scale, rcond=None)[0]
        if np.abs(M @ exact - rhs / scale).max() > 1e-9:
            exact = alpha
        cost = float(np.sum(np.abs(exact) ** (1 / 3)))
        if np.abs(M @ exact - rhs / scale).max() < 1e-6 and cost < least:
            best, least = exact * scale, cost
        weight = (np.abs(alpha) + 1e-3) ** (-2 / 3)
    return best
