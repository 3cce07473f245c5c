"""Closed intervals with outward rounding: every result contains every true value.

    [a, b] op [c, d]  is a superset of  { x op y : x in [a, b], y in [c, d] }

Sums, products and quotients are IEEE operations, so one step outwards (`nextafter`) is enough. Other
functions are enclosed at the end points by Arb balls, so nothing depends on the accuracy of libm.
An operation that is undefined somewhere on its operands raises `Undefined`: the caller may split the
operands and try again, or refuse.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

INF = math.inf


class Undefined(ValueError):
    """The operation has no value for some operand in the interval; the text says which."""


class Interval(NamedTuple):
    lo: float
    hi: float

    @property
    def width(self) -> float:
        return self.hi - self.lo

    @property
    def is_point(self) -> bool:
        return self.lo == self.hi

    @property
    def magnitude(self) -> float:
        """max |x| over the interval."""
        return max(abs(self.lo), abs(self.hi))

    def contains(self, x: float) -> bool:
        return self.lo <= x <= self.hi

    def halves(self) -> tuple["Interval", "Interval"]:
        middle = self.lo + (self.hi - self.lo) / 2
        return Interval(self.lo, middle), Interval(middle, self.hi)


def point(x: float) -> Interval:
    return Interval(x, x)


def hull(*parts: Interval) -> Interval:
    return Interval(min(p.lo for p in parts), max(p.hi for p in parts))


TRUE, FALSE, EITHER = point(1.0), point(0.0), Interval(0.0, 1.0)
WHOLE_LINE = Interval(-INF, INF)


def down(x: float) -> float:
    return math.nextafter(x, -INF)


def up(x: float) -> float:
    return math.nextafter(x, INF)


def _outward(lo: float, hi: float) -> Interval:
    # inf - inf and 0 * inf give NaN; the only honest enclosure is then the whole line.
    if math.isnan(lo) or math.isnan(hi):
        return WHOLE_LINE
    return Interval(down(lo), up(hi))


def add(x: Interval, y: Interval) -> Interval:
    lo, hi = x.lo + y.lo, x.hi + y.hi
    if _exact_sum(x.lo, y.lo, lo) and _exact_sum(x.hi, y.hi, hi):
        return Interval(lo, hi)  # sums of small integers stay points, which lag tables rely on
    return _outward(lo, hi)


def neg(x: Interval) -> Interval:
    return Interval(-x.hi, -x.lo)


def sub(x: Interval, y: Interval) -> Interval:
    return add(x, neg(y))


def _exact_sum(x: float, y: float, total: float) -> bool:
    part = total - x  # Knuth's two-sum: the rounding error of x + y, without error
    return math.isfinite(total) and (x - (total - part)) + (y - part) == 0.0


def _product(x: float, y: float) -> float:
    return 0.0 if x == 0.0 or y == 0.0 else x * y  # an end point at infinity is a limit, not a value


def mul(x: Interval, y: Interval) -> Interval:
    corners = [_product(a, b) for a in x for b in y]
    lo, hi = min(corners), max(corners)
    integers = all(c.is_integer() and abs(c) < 2.0**53 for c in (*x, *y, lo, hi))
    return Interval(lo, hi) if integers or x == FALSE or y == FALSE else _outward(lo, hi)


def div(x: Interval, y: Interval) -> Interval:
    if y.contains(0.0):
        raise Undefined("the divisor can be 0")
    if x == FALSE:
        return FALSE
    corners = [a / b if math.isfinite(b) else 0.0 for a in x for b in y]
    return _outward(min(corners), max(corners))


def _ball(function: str, x: float, *more: float) -> Interval:
    """A function at one point, enclosed by Arb."""
    from flint import arb

    value = getattr(arb(x), function)(*(arb(m) for m in more))
    lo, hi = float(value.lower()), float(value.upper())
    return _outward(lo, hi)


def increasing(function: str, at_minus_inf: float, at_inf: float) -> Callable[[Interval], Interval]:
    """The enclosure of an increasing function from its two end points."""

    def end(x: float) -> Interval:
        if math.isinf(x):
            return point(at_inf if x > 0 else at_minus_inf)
        return _ball(function, x)

    return lambda x: Interval(end(x.lo).lo, end(x.hi).hi)


def exp(x: Interval) -> Interval:
    raw = increasing("exp", 0.0, INF)(x)
    return Interval(max(raw.lo, 0.0), raw.hi)


def log(x: Interval) -> Interval:
    if x.lo <= 0:
        raise Undefined("log of a value that can be 0 or less")
    return increasing("log", -INF, INF)(x)


def sqrt(x: Interval) -> Interval:
    if x.lo < 0:
        raise Undefined("sqrt of a value that can be negative")
    raw = increasing("sqrt", 0.0, INF)(x)
    return Interval(max(raw.lo, 0.0), raw.hi)


def tanh(x: Interval) -> Interval:
    raw = increasing("tanh", -1.0, 1.0)(x)
    return Interval(max(raw.lo, -1.0), min(raw.hi, 1.0))


def _wave(function: str, first_top: float) -> Callable[[Interval], Interval]:
    """cos and sin: extremes are pi apart, 1 at `first_top` and then 1 and -1 in turn."""

    def enclose(x: Interval) -> Interval:
        if not math.isfinite(x.width) or x.width >= 6.0 or x.magnitude > 2.0**40:
            return Interval(-1.0, 1.0)
        a, b = _ball(function, x.lo), _ball(function, x.hi)
        lo, hi = min(a.lo, b.lo), max(a.hi, b.hi)
        slack = 1e-9 * (1 + x.magnitude)  # it only widens the result
        left, right = x.lo - slack - first_top, x.hi + slack - first_top
        for k in range(math.floor(left / math.pi), math.ceil(right / math.pi) + 1):
            if left <= k * math.pi <= right:
                lo, hi = (lo, 1.0) if k % 2 == 0 else (-1.0, hi)
        return Interval(max(lo, -1.0), min(hi, 1.0))

    return enclose


cos = _wave("cos", 0.0)
sin = _wave("sin", math.pi / 2)


def power(x: Interval, y: Interval) -> Interval:
    if y.is_point and y.lo.is_integer() and abs(y.lo) <= 1024:
        return _integer_power(x, int(y.lo))
    if x.lo < 0:
        raise Undefined("a power whose base can be negative needs a whole-number exponent")
    if x.lo == 0 and y.lo <= 0:
        raise Undefined("a power whose base can be 0 needs a positive exponent")
    if math.isinf(x.hi) or math.isinf(y.lo) or math.isinf(y.hi):
        return Interval(0.0, INF)
    # x ** y = exp(y log x) is monotone in x and in y, so the corners are extreme.
    corners = [point(0.0) if a == 0 else _ball("__pow__", a, b) for a in x for b in y]
    enclosed = hull(*corners)
    return Interval(max(enclosed.lo, 0.0), enclosed.hi)


def _integer_power(x: Interval, n: int) -> Interval:
    if n < 0:
        return div(TRUE, _integer_power(x, -n))
    if n == 0:
        return TRUE
    if n % 2 == 0 and x.contains(0.0):
        return Interval(0.0, _repeat(point(x.magnitude), n).hi)
    ends = _repeat(point(x.lo), n), _repeat(point(x.hi), n)  # monotone on each side of 0
    return hull(*ends)


def _repeat(x: Interval, n: int) -> Interval:
    result = TRUE
    while n:
        if n & 1:
            result = mul(result, x)
        x, n = (mul(x, x), n >> 1) if n > 1 else (x, 0)
    return result


def absolute(x: Interval) -> Interval:
    if x.contains(0.0):
        return Interval(0.0, x.magnitude)
    return x if x.lo > 0 else neg(x)


def minimum(x: Interval, y: Interval) -> Interval:
    return Interval(min(x.lo, y.lo), min(x.hi, y.hi))


def maximum(x: Interval, y: Interval) -> Interval:
    return Interval(max(x.lo, y.lo), max(x.hi, y.hi))


def staircase(step: Callable[[float], float]) -> Callable[[Interval], Interval]:
    """floor, round and sign: increasing, and exact in floating point."""

    def enclose(x: Interval) -> Interval:
        ends = [end if math.isinf(end) else float(step(end)) for end in x]
        return Interval(ends[0], ends[1])

    return enclose


def floordiv(x: Interval, y: Interval) -> Interval:
    if y.contains(0.0) or not all(map(math.isfinite, (*x, *y))):
        return staircase(math.floor)(div(x, y))
    turns = [math.floor(Fraction(a) / Fraction(b)) for a in x for b in y]  # exact: 6 // 3 is 2, a point
    return hull(*map(_whole, turns))


def _whole(n: int) -> Interval:
    try:
        return point(float(n)) if float(n) == n else _outward(float(n), float(n))
    except OverflowError:
        return _outward(INF, INF) if n > 0 else _outward(-INF, -INF)


def mod(x: Interval, y: Interval) -> Interval:
    """x - y floor(x / y), which has the sign of y."""
    if y.contains(0.0):
        raise Undefined("the divisor can be 0")
    if x.is_point and y.is_point and all(map(math.isfinite, (x.lo, y.lo))):
        exact = Fraction(x.lo) % Fraction(y.lo)
        rest = float(exact)
        return point(rest) if rest == exact else _outward(rest, rest)
    turns = floordiv(x, y)
    bound = Interval(min(y.lo, 0.0), max(y.hi, 0.0))
    if not turns.is_point or math.isinf(turns.lo):
        return bound
    raw = sub(x, mul(y, turns))
    return Interval(max(raw.lo, bound.lo), min(raw.hi, bound.hi))


def less(x: Interval, y: Interval) -> Interval:
    return TRUE if x.hi < y.lo else FALSE if x.lo >= y.hi else EITHER


def less_equal(x: Interval, y: Interval) -> Interval:
    return TRUE if x.hi <= y.lo else FALSE if x.lo > y.hi else EITHER


def equal(x: Interval, y: Interval) -> Interval:
    if x.hi < y.lo or y.hi < x.lo:
        return FALSE
    return TRUE if x.is_point and x == y else EITHER


def truth(x: Interval) -> Interval:
    """Whether x is non-zero."""
    return FALSE if x == FALSE else EITHER if x.contains(0.0) else TRUE


def negation(x: Interval) -> Interval:
    known = truth(x)
    return EITHER if known == EITHER else FALSE if known == TRUE else TRUE


def conjunction(x: Interval, y: Interval) -> Interval:
    a, b = truth(x), truth(y)
    return FALSE if FALSE in (a, b) else TRUE if a == b == TRUE else EITHER


def disjunction(x: Interval, y: Interval) -> Interval:
    return negation(conjunction(negation(x), negation(y)))
