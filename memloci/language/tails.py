"""How an expression in the lag z behaves as z grows: the proof that a kernel is summable.

    |rho(z)| <= sum_i C_i z^a_i e^(-b_i z)   for all z >= start          (a `Majorant`)

built by structure: sums join terms, products multiply them, a quotient needs the divisor bounded below
by one such term, exp(u) needs the leading term of u. A kernel whose every term has b > 0, or b = 0 and
a < -1, is absolutely summable. What cannot be shown this way is refused, never guessed.

Nothing here is rounded in silence. The coefficients and exponents of polynomials are rational numbers, exactly
those of the text, because the sign of a leading coefficient decides which branch of a `where` a tail takes, and
terms may cancel to the last digit. C, a and b are balls, and a comparison counts only where balls decide it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from memloci.core.errors import BadInput
from memloci.core.numbers import literal
from memloci.core.specs import shorten
from memloci.language.expression import Apply, Constant, Expression, Variable

if TYPE_CHECKING:
    from flint import arb

TAIL_BITS = 128  # of the balls
MAX_START = 1 << 16  # a bound that starts later than this is of no use
LOG_POWER = Fraction(1, 100)  # log z <= z^0.01 / (0.01 e); small, so that log z / z^2 is still summable
MAX_TERMS = 64  # a product with more is bounded by one term, or refused
MAX_DIGITS = 1 << 14  # bits of a coefficient; powers of powers of one are refused before they take minutes
STRETCHED = 16  # exp(-z^s), 0 < s < 1, falls below z^-16 in the end

Number = int | float | Fraction


def ball(x: "Number | arb") -> "arb":
    """A rational number as a ball, exact where it has few digits."""
    from flint import arb, fmpq

    return arb(fmpq(x.numerator, x.denominator)) if isinstance(x, Fraction) else arb(x)


@dataclass(frozen=True)
class TailTerm:
    """C z^a e^(-b z), C >= 0."""

    C: "arb"
    a: "arb"
    b: "arb"

    @classmethod
    def of(cls, C: "Number | arb", a: "Number | arb" = 0, b: "Number | arb" = 0) -> "TailTerm":
        return cls(ball(C), ball(a), ball(b))

    def times(self, other: "TailTerm") -> "TailTerm":
        return TailTerm(self.C * other.C, self.a + other.a, self.b + other.b)

    def to_power(self, p: Fraction) -> "TailTerm":
        q = ball(p)
        C = self.C if self.C.is_zero() and p > 0 else self.C**q
        return TailTerm(C, self.a * q, self.b * q)

    @property
    def summable(self) -> bool:
        return self.C.is_zero() or self.b > 0 or (self.b.is_zero() and self.a < -1)

    def sum_beyond(self, n: int) -> "arb":
        """At least the sum over z > n."""
        if self.C.is_zero():
            return self.C
        if self.b.is_zero():  # decreasing, so the integral from n bounds the sum
            return self.C * ball(n) ** (self.a + 1) / (-self.a - 1)
        rate, peak = self.b, self.a * ball(n + 1).log()
        if not self.a <= 0:  # z^a e^(-b z / 2) is largest at z = 2 a / b; the other half decays
            z = (2 * self.a / self.b).max(ball(n + 1))
            rate, peak = self.b / 2, self.a * z.log() - self.b / 2 * z
        return self.C * (peak - rate * (n + 1)).exp() / -(-rate).expm1()


@dataclass(frozen=True)
class Majorant:
    terms: tuple[TailTerm, ...]
    start: int = 1

    @property
    def summable(self) -> bool:
        return all(term.summable for term in self.terms)

    @property
    def finite(self) -> bool:
        """Every number is one, and below the largest of float64."""
        numbers = [abs(x) for t in self.terms for x in (t.C, t.a, t.b)]
        return all(x.is_finite() and math.isfinite(float(x.upper())) for x in numbers)

    def sum_beyond(self, n: int) -> float:
        """At least sum_{z>n} |rho(z)| if n >= start; else at least the sum over z > start."""
        from flint import ctx

        with ctx.workprec(TAIL_BITS):
            total = sum((term.sum_beyond(max(n, self.start)) for term in self.terms), ball(0))
            if total.is_zero():
                return 0.0
            return math.nextafter(float(total.upper()), math.inf) if total.is_finite() else math.inf

    def single(self) -> TailTerm:
        """One term that bounds the sum of all, for z >= 1."""
        slowest = min((t.b for t in self.terms), key=float)
        power = max((t.a.upper() for t in self.terms if not t.b > slowest), key=float)
        slowest = slowest.lower()
        # A term with a larger power decays faster by e^(-(b_i - b) z); its excess z^(a_i - a) is bounded.
        total = ball(0)
        for t in self.terms:
            excess, rate = t.a - power, t.b - slowest
            bump = ball(1)
            if not excess <= 0:
                z = (excess / rate).max(ball(1))
                bump = (excess * z.log() - rate * z).exp()
            total += t.C * bump
        return TailTerm(total, power, slowest)


class Unknown(Exception):
    """The calculus has no rule for this expression."""


def majorant(kernel: Expression) -> Majorant:
    """A majorant of the kernel, or a refusal when none that is summable can be shown."""
    from flint import ctx

    with ctx.workprec(TAIL_BITS):
        try:
            bound = above(kernel)
            if not bound.finite:
                raise Unknown
        except Unknown:
            raise BadInput(f"{_show(kernel)} cannot be shown to be summable over all lags z >= 1") from None
        if not bound.summable:
            worst = bound.single()
            decay, power = float(worst.b), float(worst.a)
            growth = f"exp({literal(-decay)} * z)" if decay else f"z ** {literal(power)}"
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
            return f"{literal(value)}"


def above(f: Expression) -> Majorant:
    """A majorant of |f(z)|, whether or not it is summable."""
    from memloci.language.operations import OPERATIONS

    match f:
        case Constant(value):
            return Majorant((TailTerm.of(abs(value)),))
        case Variable():
            return Majorant((TailTerm.of(1, 1),))
        case Apply(operation, operands):
            return OPERATIONS[operation].tail(*operands)


# The rules of the operations: operands to a majorant.


def unknown(*operands: Expression) -> Majorant:
    raise Unknown


def at_most_one(*operands: Expression) -> Majorant:
    return Majorant((TailTerm.of(1),))


def same(x: Expression) -> Majorant:
    """|-x| and ||x||."""
    return above(x)


def joined(x: Expression, y: Expression) -> Majorant:
    """Sums, differences, minima and maxima."""
    return _join(above(x), above(y))


def product(x: Expression, y: Expression) -> Majorant:
    return _multiply(above(x), above(y))


def quotient(x: Expression, y: Expression) -> Majorant:
    return _multiply(above(x), _inverse(y))


def power(x: Expression, y: Expression) -> Majorant:
    match x, y:
        case _, Constant(p):
            return _power_above(x, Fraction(p))
        case Constant(c), _ if c > 0:  # c^u = exp(u log c)
            return _exp_above(y, ball(c).log())
    raise Unknown


def root(x: Expression) -> Majorant:
    return _power_above(x, Fraction(1, 2))


def exponential(u: Expression) -> Majorant:
    return _exp_above(u, ball(1))


def logarithm(u: Expression) -> Majorant:
    form, start = _positive(u)
    top = max(form.powers)  # |log u| <= log(2 c) + top log z, and at least log(c / 2) - ...
    c = ball(form.powers[top])
    constant = abs((2 * c).log()) + abs((c / 2).log())
    slow = TailTerm.of(ball(abs(top) / LOG_POWER) / ball(1).exp(), LOG_POWER)
    return Majorant((TailTerm.of(constant), slow), start)


def branch(condition: Expression, x: Expression, y: Expression) -> Majorant:
    decided = _eventually(condition)
    if decided is None:
        return _join(above(x), above(y))
    majorant = above(x if decided[0] else y)
    return Majorant(majorant.terms, max(majorant.start, decided[1]))


def stepped(x: Expression) -> Majorant:
    """floor and round move by less than 1."""
    return _join(above(x), Majorant((TailTerm.of(1),)))


def remainder(x: Expression, y: Expression) -> Majorant:
    return above(y)


def _join(x: Majorant, y: Majorant) -> Majorant:
    return Majorant(x.terms + y.terms, max(x.start, y.start))


def _multiply(x: Majorant, y: Majorant) -> Majorant:
    if len(x.terms) * len(y.terms) > MAX_TERMS:
        x, y = Majorant((x.single(),), x.start), Majorant((y.single(),), y.start)
    return Majorant(tuple(s.times(t) for s in x.terms for t in y.terms), max(x.start, y.start))


def _inverse(f: Expression) -> Majorant:
    term, start = _below(f)
    if not term.C > 0:
        raise Unknown
    return Majorant((term.to_power(Fraction(-1)),), start)


def _power_above(x: Expression, p: Fraction) -> Majorant:
    if p.denominator != 1:
        _require_positive(x)
    if p < 0:
        inverse = _inverse(x)
        return Majorant((inverse.single().to_power(-p),), inverse.start)
    bound = above(x)
    if p.denominator == 1 and p <= 8:
        result = Majorant((TailTerm.of(1),))
        for _ in range(int(p)):
            result = _multiply(result, bound)
        return result
    return Majorant((bound.single().to_power(p),), bound.start)


def _below(f: Expression) -> tuple[TailTerm, int]:
    """One term that |f(z)| is at least, for all z >= start."""
    match f:
        case Constant(value) if value != 0:
            return TailTerm.of(abs(value)), 1
        case Apply("neg" | "abs", (x,)):
            return _below(x)
        case Apply("*", (x, y)):
            (s, m), (t, n) = _below(x), _below(y)
            return s.times(t), max(m, n)
        case Apply("/", (x, y)):
            (s, m), bound = _below(x), above(y)
            return s.times(_nonzero(bound).to_power(Fraction(-1))), max(m, bound.start)
        case Apply("exp", (u,)):
            bound = _exp_above(Apply("neg", (u,)), ball(1))
            return bound.single().to_power(Fraction(-1)), bound.start
        case Apply("**", (x, Constant(p))) if p > 0:
            term, start = _below(x)
            return term.to_power(Fraction(p)), start
        case Apply("sqrt", (x,)):
            term, start = _below(x)
            return term.to_power(Fraction(1, 2)), start
        case Apply("+", (x, y)) if _nonnegative(x) and _nonnegative(y):
            options = []
            for part in (x, y):
                try:
                    options.append(_below(part))
                except Unknown:
                    continue
            if options:  # either will do; the one that falls more slowly says more
                return min(options, key=lambda option: (float(option[0].b), -float(option[0].a)))
    form = _polynomial(f)
    top = form.leading_power()
    c = form.powers[top]
    if all(other * c > 0 for other in form.powers.values()):
        return TailTerm.of(abs(c), top), form.start  # nothing cancels
    return TailTerm.of(abs(c) / 2, top), form.dominated_from(top)


def _nonzero(bound: Majorant) -> TailTerm:
    term = bound.single()
    if not term.C > 0:
        raise Unknown
    return term


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
        raise Unknown
    return form, form.dominated_from(top)


@dataclass(frozen=True)
class _Form:
    """sum_k c_k z^k + c_log log z for z >= start, with rational exponents k and coefficients, none of them 0."""

    powers: dict[Fraction, Fraction]
    log: Fraction = Fraction(0)
    start: int = 1

    def __post_init__(self):
        if any(
            c.numerator.bit_length() + c.denominator.bit_length() > MAX_DIGITS for c in self.powers.values()
        ):
            raise Unknown

    def leading_power(self) -> Fraction:
        if not self.powers or self.log:
            raise Unknown
        return max(self.powers)

    def dominated_from(self, top: Fraction) -> int:
        """From where on the other terms together are at most half the leading one."""
        rest = {k: abs(c) for k, c in self.powers.items() if k != top}
        share = ball(abs(self.powers[top]) / 2)
        return max(self.start, _first(lambda z: _relative(rest, top, z) <= share))

    def scaled(self, c: Fraction) -> "_Form":
        return _Form({k: c * v for k, v in self.powers.items() if c}, c * self.log, self.start)

    def plus(self, other: "_Form") -> "_Form":
        powers = dict(self.powers)
        for k, c in other.powers.items():
            powers[k] = powers.get(k, Fraction(0)) + c
        left = {k: c for k, c in powers.items() if c}
        return _Form(left, self.log + other.log, max(self.start, other.start))

    def times(self, other: "_Form") -> "_Form":
        start = max(self.start, other.start)
        if self.log or other.log:
            constant, form = (self, other) if not self.log else (other, self)
            if set(constant.powers) - {Fraction(0)} or constant.log:
                raise Unknown
            scaled = form.scaled(constant.powers.get(Fraction(0), Fraction(0)))
            return _Form(scaled.powers, scaled.log, start)
        if len(self.powers) * len(other.powers) > MAX_TERMS**2:
            raise Unknown
        powers: dict[Fraction, Fraction] = {}
        for j, c in self.powers.items():
            for k, e in other.powers.items():
                powers[j + k] = powers.get(j + k, Fraction(0)) + c * e
        return _Form({k: c for k, c in powers.items() if c}, Fraction(0), start)


def _relative(terms: dict[Fraction, Fraction], top: Fraction, z: "arb") -> "arb":
    """sum_k c_k z^(k - top); it falls as z grows, for k < top."""
    return sum((ball(c) * z ** ball(k - top) for k, c in terms.items()), ball(0))


def _first(condition: "Callable[[arb], bool]") -> int:
    """The first power of 2 at which a condition holds; the callers' conditions stay true from there on."""
    z = 1
    while not condition(ball(z)):
        z *= 2
        if z > 1 << 40:
            raise Unknown
    return z


def _polynomial(f: Expression) -> _Form:
    match f:
        case Constant(value):
            return _Form({Fraction(0): Fraction(value)} if value else {})
        case Variable():
            return _Form({Fraction(1): Fraction(1)})
        case Apply("neg", (x,)):
            return _polynomial(x).scaled(Fraction(-1))
        case Apply("+", (x, y)):
            return _polynomial(x).plus(_polynomial(y))
        case Apply("-", (x, y)):
            return _polynomial(x).plus(_polynomial(y).scaled(Fraction(-1)))
        case Apply("*", (x, y)):
            return _polynomial(x).times(_polynomial(y))
        case Apply("/", (x, Constant(c))) if c:
            return _polynomial(x).scaled(1 / Fraction(c))
        case Apply("**", (Variable(), Constant(p))):
            return _Form({Fraction(p): Fraction(1)})
        case Apply("sqrt", (Variable(),)):
            return _Form({Fraction(1, 2): Fraction(1)})
        case Apply("**", (x, Constant(p))) if p.is_integer() and 0 <= p <= 8:
            result, base = _Form({Fraction(0): Fraction(1)}), _polynomial(x)
            for _ in range(int(p)):
                result = result.times(base)
            return result
        case Apply("log", (Variable(),)):
            return _Form({}, Fraction(1))
        case Apply("abs", (x,)):
            form = _polynomial(x)
            top = form.leading_power()
            signed = form.scaled(Fraction(1 if form.powers[top] > 0 else -1))
            return _Form(signed.powers, Fraction(0), form.dominated_from(top))
        case _:
            raise Unknown


def _exp_above(u: Expression, factor: "arb") -> Majorant:
    """exp(factor u) <= C z^a e^(-b z), from the leading term of u."""
    try:
        form = _polynomial(u)
    except Unknown:
        bounded = above(u)  # |u| <= C for all z >= start
        if not all(t.a <= 0 and t.b >= 0 for t in bounded.terms):
            raise
        largest = sum((t.C for t in bounded.terms), ball(0))
        return Majorant((TailTerm.of((abs(factor) * largest).exp()),), bounded.start)
    power = factor * ball(form.log)
    growing = {k: c for k, c in form.powers.items() if k > 0}
    # z^k <= 1 for k < 0
    steady = sum(
        (abs(factor * ball(c)) if k else factor * ball(c) for k, c in form.powers.items() if k <= 0), ball(0)
    )
    if not growing:
        return Majorant((TailTerm.of(steady.exp(), power),), form.start)
    top = max(growing)
    c = factor * ball(growing[top])
    rest = {k: abs(v) for k, v in growing.items() if k != top}
    if top == 1 and not rest:
        return Majorant((TailTerm.of(steady.exp(), power, -c),), form.start)
    if not c < 0:
        if top > 1:
            raise Unknown
        others = abs(factor) * ball(sum(rest.values(), Fraction(0)))
        return Majorant((TailTerm.of(steady.exp(), power, -c - others),), form.start)
    # A negative leading term c z^top takes the rest with it: half of it pays for the rest.
    others = lambda z: abs(factor) * _relative(rest, top, z)
    if top >= 1:
        start = _first(lambda z: others(z) <= -c / 2)
        return Majorant((TailTerm.of(steady.exp(), power, -c / 2),), max(form.start, start))
    falls = (1 / ball(top)).exp()  # from there on log z / z^top falls
    start = _first(lambda z: z > falls and others(z) + STRETCHED * z.log() / z ** ball(top) <= -c)
    return Majorant((TailTerm.of(steady.exp(), power - STRETCHED),), max(form.start, start))


def _eventually(condition: Expression) -> tuple[bool, int] | None:
    """Whether a comparison of two polynomials is true for all z >= start."""
    match condition:
        case Apply("<" | "<=" | ">" | ">=" | "==" | "!=" as relation, (x, y)):
            try:
                form = _polynomial(Apply("-", (x, y)))
                if not form.powers and not form.log:  # they are the same
                    return relation in ("<=", ">=", "=="), form.start
                top = form.leading_power()
                above = form.powers[top] > 0
                alike = all((c > 0) == above for c in form.powers.values())
                start = form.start if alike else form.dominated_from(top)
            except Unknown:
                return None
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
