"""How an expression in the lag z behaves as z grows: the proof that a kernel is summable.

    |rho(z)| <= sum_i C_i z^a_i e^(-b_i z)   for all z >= start          (a `Majorant`)

built by structure: sums join terms, products multiply them, a quotient needs the divisor bounded below
by one such term, exp(u) needs the leading term of u. A kernel whose every term has b > 0, or b = 0 and
a < -1, is absolutely summable. What cannot be shown this way is refused, never guessed.
"""

import math
from dataclasses import dataclass

from memloci.errors import BadInput
from memloci.expressions.parse import Apply, Constant, Expression, Variable
from memloci.specs import shorten

MAX_START = 1 << 16  # a bound that starts later than this is of no use
LOG_POWER = 0.01  # log z <= z^0.01 / (0.01 e); small, so that log z / z^2 is still summable
MAX_TERMS = 64  # a product with more is bounded by one term, or refused
STRETCHED = 16.0  # exp(-z^s), 0 < s < 1, falls below z^-16 in the end


@dataclass(frozen=True)
class Term:
    C: float
    a: float = 0.0
    b: float = 0.0

    def times(self, other: "Term") -> "Term":
        return Term(self.C * other.C, self.a + other.a, self.b + other.b)

    def to_power(self, p: float) -> "Term":
        return Term(self.C**p, self.a * p, self.b * p)

    def sum_beyond(self, n: int) -> float:
        """An upper bound on the sum over z > n, up to rounding."""
        if self.C == 0:
            return 0.0
        if self.b == 0:  # decreasing, so the integral from n bounds the sum
            return self.C * n ** (self.a + 1) / (-self.a - 1)
        rate, peak = self.b, self.a * math.log(n + 1)
        if self.a > 0:  # z^a e^(-b z / 2) is largest at z = 2 a / b; the other half decays
            z = max(n + 1, 2 * self.a / self.b)
            rate, peak = self.b / 2, self.a * math.log(z) - self.b / 2 * z
        try:
            return self.C * math.exp(peak - rate * (n + 1)) / -math.expm1(-rate)
        except OverflowError:
            return math.inf


@dataclass(frozen=True)
class Majorant:
    terms: tuple[Term, ...]
    start: int = 1

    @property
    def summable(self) -> bool:
        return all(t.C == 0 or t.b > 0 or (t.b == 0 and t.a < -1) for t in self.terms)

    @property
    def finite(self) -> bool:
        return all(math.isfinite(number) for t in self.terms for number in (t.C, t.a, t.b))

    def sum_beyond(self, n: int) -> float:
        return sum(term.sum_beyond(max(n, self.start)) for term in self.terms) * (1 + 1e-12)

    def single(self) -> Term:
        """One term that bounds the sum of all, for z >= 1."""
        slowest = min(self.terms, key=lambda t: (t.b, -t.a))
        same_rate = max(t.a for t in self.terms if t.b == slowest.b)
        # A term with a larger power decays faster by e^(-(b_i - b) z); its excess z^(a_i - a) is bounded.
        total = 0.0
        for t in self.terms:
            excess, rate = t.a - same_rate, t.b - slowest.b
            bump = 1.0
            if excess > 0:
                z = max(1.0, excess / rate)
                bump = math.exp(excess * math.log(z) - rate * z)
            total += t.C * bump
        return Term(total, same_rate, slowest.b)


class _Unknown(Exception):
    """The calculus has no rule for this expression."""


def majorant(kernel: Expression) -> Majorant:
    """A majorant of the kernel, or a refusal when none that is summable can be shown."""
    try:
        bound = _above(kernel)
        if not bound.finite:
            raise _Unknown
        worst = None if bound.summable else bound.single()
    except (_Unknown, OverflowError, ZeroDivisionError):
        raise BadInput(f"{_show(kernel)} cannot be shown to be summable over all lags z >= 1") from None
    if worst is not None:
        growth = f"exp({-worst.b:g} * z)" if worst.b else f"z ** {worst.a:g}"
        raise BadInput(
            f"{_show(kernel)} cannot be shown to be summable over all lags: it may behave like {growth}; "
            "a power must be below -1, an exponential must decay"
        )
    if bound.start > MAX_START:
        raise BadInput(
            f"{_show(kernel)} is not in its tail before lag {bound.start:,}; at most {MAX_START:,}"
        )
    return bound


def _show(kernel: Expression) -> str:
    match kernel:
        case Apply(text=text):
            return shorten(text)
        case Variable(name):
            return name
        case Constant(value):
            return f"{value:g}"


def _above(f: Expression) -> Majorant:
    match f:
        case Constant(value):
            return Majorant((Term(abs(value)),))
        case Variable():
            return Majorant((Term(1.0, 1.0),))
        case Apply("+" | "-" | "min" | "max", (x, y)):
            return _join(_above(x), _above(y))
        case Apply("neg" | "abs", (x,)):
            return _above(x)
        case Apply("*", (x, y)):
            return _multiply(_above(x), _above(y))
        case Apply("/", (x, y)):
            return _multiply(_above(x), _inverse(y))
        case Apply("**", (x, Constant(p))):
            return _power_above(x, p)
        case Apply("sqrt", (x,)):
            return _power_above(x, 0.5)
        case Apply("**", (Constant(c), u)) if c > 0:  # c^u = exp(u log c)
            return _exp_above(Apply("*", (Constant(math.log(c)), u)))
        case Apply("exp", (u,)):
            return _exp_above(u)
        case Apply("log", (u,)):
            form, start = _positive(u)
            top = max(form.powers)  # |log u| <= log(2 c) + top log z, and at least log(c / 2) - ...
            constant = abs(math.log(2 * form.powers[top])) + abs(math.log(form.powers[top] / 2))
            slow = Term(abs(top) / (LOG_POWER * math.e), LOG_POWER)
            return Majorant((Term(constant), slow), start)
        case Apply("where", (condition, x, y)):
            decided = _eventually(condition)
            if decided is None:
                return _join(_above(x), _above(y))
            taken = _above(x if decided[0] else y)
            return Majorant(taken.terms, max(taken.start, decided[1]))
        case Apply("floor" | "round", (x,)):
            return _join(_above(x), Majorant((Term(1.0),)))
        case Apply("%", (_, y)):
            return _above(y)
        case Apply(
            "sin" | "cos" | "tanh" | "sign" | "<" | "<=" | ">" | ">=" | "==" | "!=" | "and" | "or" | "not"
        ):
            return Majorant((Term(1.0),))
        case _:
            raise _Unknown


def _join(x: Majorant, y: Majorant) -> Majorant:
    return Majorant(x.terms + y.terms, max(x.start, y.start))


def _multiply(x: Majorant, y: Majorant) -> Majorant:
    if len(x.terms) * len(y.terms) > MAX_TERMS:
        x, y = Majorant((x.single(),), x.start), Majorant((y.single(),), y.start)
    return Majorant(tuple(s.times(t) for s in x.terms for t in y.terms), max(x.start, y.start))


def _inverse(f: Expression) -> Majorant:
    term, start = _below(f)
    if term.C <= 0:
        raise _Unknown
    return Majorant((term.to_power(-1.0),), start)


def _power_above(x: Expression, p: float) -> Majorant:
    if not p.is_integer():
        _require_positive(x)
    if p < 0:
        inverse = _inverse(x)
        return Majorant((inverse.single().to_power(-p),), inverse.start)
    bound = _above(x)
    if p.is_integer() and p <= 8:
        result = Majorant((Term(1.0),))
        for _ in range(int(p)):
            result = _multiply(result, bound)
        return result
    return Majorant((bound.single().to_power(p),), bound.start)


def _below(f: Expression) -> tuple[Term, int]:
    """One term that |f(z)| exceeds for all z >= start."""
    match f:
        case Constant(value) if value != 0:
            return Term(abs(value)), 1
        case Apply("neg" | "abs", (x,)):
            return _below(x)
        case Apply("*", (x, y)):
            (s, m), (t, n) = _below(x), _below(y)
            return s.times(t), max(m, n)
        case Apply("/", (x, y)):
            (s, m), bound = _below(x), _above(y)
            return s.times(bound.single().to_power(-1.0)), max(m, bound.start)
        case Apply("exp", (u,)):
            bound = _exp_above(Apply("neg", (u,)))
            return bound.single().to_power(-1.0), bound.start
        case Apply("**", (x, Constant(p))) if p > 0:
            term, start = _below(x)
            return term.to_power(p), start
        case Apply("sqrt", (x,)):
            term, start = _below(x)
            return term.to_power(0.5), start
        case Apply("+", (x, y)) if _nonnegative(x) and _nonnegative(y):
            options = []
            for part in (x, y):
                try:
                    options.append(_below(part))
                except _Unknown:
                    continue
            if options:
                return min(options, key=lambda option: (option[0].b, -option[0].a))
    form = _polynomial(f)
    top = form.leading_power()
    c = form.powers[top]
    if all(other * c > 0 for other in form.powers.values()):
        return Term(abs(c), top), form.start  # nothing cancels
    return Term(abs(c) / 2, top), form.dominated_from(top)


def _nonnegative(f: Expression) -> bool:
    match f:
        case Constant(value):
            return value >= 0
        case Variable():
            return True
        case Apply("exp" | "abs" | "sqrt", _):
            return True
        case Apply("**", (x, Constant(p))):
            return (p.is_integer() and p % 2 == 0) or _nonnegative(x)
        case Apply("+" | "*" | "/", (x, y)):
            return _nonnegative(x) and _nonnegative(y)
        case _:
            return False


def _require_positive(x: Expression) -> None:
    """A fractional power needs a base that is positive in the tail."""
    if not _nonnegative(x):
        _positive(x)


def _positive(u: Expression) -> tuple["_Form", int]:
    form = _polynomial(u)
    top = form.leading_power()
    if form.powers[top] <= 0:
        raise _Unknown
    return form, form.dominated_from(top)


@dataclass(frozen=True)
class _Form:
    """sum_k c_k z^k + c_log log z for z >= start, with real exponents k."""

    powers: dict[float, float]
    log: float = 0.0
    start: int = 1

    def leading_power(self) -> float:
        if not self.powers or self.log:
            raise _Unknown
        return max(self.powers)

    def dominated_from(self, top: float) -> int:
        """From where on the other terms together are at most half the leading one."""
        rest = {k: abs(c) for k, c in self.powers.items() if k != top}
        share = abs(self.powers[top]) / 2
        return max(self.start, _first(lambda z: sum(c * z ** (k - top) for k, c in rest.items()) <= share))

    def scaled(self, c: float) -> "_Form":
        return _Form({k: c * v for k, v in self.powers.items() if c * v}, c * self.log, self.start)

    def plus(self, other: "_Form") -> "_Form":
        powers = dict(self.powers)
        for k, c in other.powers.items():
            powers[k] = powers.get(k, 0.0) + c
        kept = {k: c for k, c in powers.items() if c}
        return _Form(kept, self.log + other.log, max(self.start, other.start))

    def times(self, other: "_Form") -> "_Form":
        start = max(self.start, other.start)
        if self.log or other.log:
            constant, form = (self, other) if not self.log else (other, self)
            if set(constant.powers) - {0.0} or constant.log:
                raise _Unknown
            scaled = form.scaled(constant.powers.get(0.0, 0.0))
            return _Form(scaled.powers, scaled.log, start)
        if len(self.powers) * len(other.powers) > MAX_TERMS**2:
            raise _Unknown
        powers: dict[float, float] = {}
        for j, c in self.powers.items():
            for k, e in other.powers.items():
                powers[j + k] = powers.get(j + k, 0.0) + c * e
        return _Form({k: c for k, c in powers.items() if c}, 0.0, start)


def _first(holds) -> int:
    """The first power of 2 at which a condition holds; the callers' conditions stay true from there on."""
    z = 1
    while not holds(float(z)):
        z *= 2
        if z > 1 << 40:
            raise _Unknown
    return z


def _polynomial(f: Expression) -> _Form:
    match f:
        case Constant(value):
            return _Form({0.0: value} if value else {})
        case Variable():
            return _Form({1.0: 1.0})
        case Apply("neg", (x,)):
            return _polynomial(x).scaled(-1.0)
        case Apply("+", (x, y)):
            return _polynomial(x).plus(_polynomial(y))
        case Apply("-", (x, y)):
            return _polynomial(x).plus(_polynomial(y).scaled(-1.0))
        case Apply("*", (x, y)):
            return _polynomial(x).times(_polynomial(y))
        case Apply("/", (x, Constant(c))) if c:
            return _polynomial(x).scaled(1 / c)
        case Apply("**", (Variable(), Constant(p))):
            return _Form({p: 1.0})
        case Apply("sqrt", (Variable(),)):
            return _Form({0.5: 1.0})
        case Apply("**", (x, Constant(p))) if p.is_integer() and 0 <= p <= 8:
            result, base = _Form({0.0: 1.0}), _polynomial(x)
            for _ in range(int(p)):
                result = result.times(base)
            return result
        case Apply("log", (Variable(),)):
            return _Form({}, 1.0)
        case Apply("abs", (x,)):
            form = _polynomial(x)
            top = form.leading_power()
            signed = form.scaled(math.copysign(1.0, form.powers[top]))
            return _Form(signed.powers, 0.0, form.dominated_from(top))
        case _:
            raise _Unknown


def _exp_above(u: Expression) -> Majorant:
    """exp(u) <= C z^a e^(-b z), from the leading term of u."""
    try:
        form = _polynomial(u)
    except _Unknown:
        bounded = _above(u)  # |u| <= C for all z >= start
        if any(t.a > 0 or t.b < 0 for t in bounded.terms):
            raise
        return Majorant((Term(math.exp(sum(t.C for t in bounded.terms))),), bounded.start)
    start = form.start
    growing = {k: c for k, c in form.powers.items() if k > 0}
    steady = sum(abs(c) if k < 0 else c for k, c in form.powers.items() if k <= 0)  # z^k <= 1 for k < 0
    if not growing:
        return Majorant((Term(math.exp(steady), form.log),), start)
    top = max(growing)
    c = growing[top]
    rest = {k: abs(v) for k, v in growing.items() if k != top}
    if top == 1.0 and not rest:
        return Majorant((Term(math.exp(steady), form.log, -c),), start)
    if c > 0:
        if top > 1:
            raise _Unknown
        return Majorant((Term(math.exp(steady), form.log, -c - sum(rest.values())),), start)
    # A negative leading term c z^top takes the rest with it: half of it pays for the rest.
    if top >= 1:
        taken = _first(lambda z: sum(v * z ** (k - top) for k, v in rest.items()) <= -c / 2)
        return Majorant((Term(math.exp(steady), form.log, -c / 2),), max(start, taken))
    taken = _first(
        lambda z: (
            z > math.exp(1 / top)
            and sum(v * z ** (k - top) for k, v in rest.items()) + STRETCHED * math.log(z) / z**top <= -c
        )
    )
    return Majorant((Term(math.exp(steady), form.log - STRETCHED),), max(start, taken))


def _eventually(condition: Expression) -> tuple[bool, int] | None:
    """Whether a comparison of two polynomials is true for all z >= start."""
    match condition:
        case Apply("<" | "<=" | ">" | ">=" | "==" | "!=" as relation, (x, y)):
            try:
                form = _polynomial(Apply("-", (x, y)))
                top = form.leading_power()
                start = form.dominated_from(top)
            except _Unknown:
                return None
            above = form.powers[top] > 0
            # The leading term exceeds the rest strictly, so equality never holds.
            truths = {"<": not above, "<=": not above, ">": above, ">=": above, "==": False, "!=": True}
            return truths[relation], start
        case Apply("and" | "or" as joint, (x, y)):
            known = [side for side in (_eventually(x), _eventually(y))]
            decisive = joint == "or"
            for side in known:
                if side is not None and side[0] == decisive:
                    return side
            if known[0] is not None and known[1] is not None:
                return not decisive, max(known[0][1], known[1][1])
            return None
        case Apply("not", (x,)):
            inner = _eventually(x)
            return None if inner is None else (not inner[0], inner[1])
        case _:
            return None
