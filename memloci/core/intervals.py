"""Closed intervals with outward rounding: every result contains every true value.

    [a, b] op [c, d]  is a superset of  { x op y : x in [a, b], y in [c, d] }

The ends are two floats, or two arrays with one entry per box: branch and bound looks at 10^5 boxes at once, everything
else at one. The rules are the same. Sums, products and quotients are IEEE operations, so one step outwards
(`nextafter`) is enough; other functions are enclosed at the end points (pointwise.py).

A rule does not look whether its operation exists everywhere on the operands; `language/operations.py` says where it
does, and the evaluators ask first.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from memloci.core.pointwise import (
    LARGEST_ANGLE,
    Ends,
    Values,
    by_arb,
    cos_at,
    exp_at,
    log_at,
    one,
    sin_at,
    sqrt_at,
    tanh_at,
)

INF = math.inf


class Undefined(ValueError):
    """The operation has no value for some operand in the interval; the text says which."""


class Interval(NamedTuple):
    lo: Any  # a float, or an array of them
    hi: Any

    @property
    def width(self) -> Any:
        return self.hi - self.lo

    @property
    def is_point(self) -> Any:
        return self.lo == self.hi

    @property
    def magnitude(self) -> Any:
        """max |x| over the interval."""
        return _max(abs(self.lo), abs(self.hi))

    def contains(self, x: float) -> Any:
        return _both(self.lo <= x, x <= self.hi)

    def halves(self) -> tuple["Interval", "Interval"]:
        middle = self.lo + (self.hi - self.lo) / 2
        return Interval(self.lo, middle), Interval(middle, self.hi)


def point(x: float) -> Interval:
    return Interval(x, x)


TRUE, FALSE, EITHER = point(1.0), point(0.0), Interval(0.0, 1.0)
MINUS_ONE, UNIT = point(-1.0), Interval(-1.0, 1.0)
WHOLE_LINE = Interval(-INF, INF)


# The few operations that differ between a number and an array.


def single(x: Interval) -> bool:
    """Whether this is one interval, not an array of them."""
    return one(x.lo) and one(x.hi)


def is_decided(condition: Any) -> bool:
    """Whether this is one truth value, not an array of them."""
    return isinstance(condition, bool) or getattr(condition, "ndim", 1) == 0


def _both(p: Any, q: Any) -> Any:
    return (p and q) if isinstance(p, bool) and isinstance(q, bool) else p & q


def _min(x: Values, y: Values) -> Values:
    if one(x) and one(y):
        return min(x, y)
    import numpy as np

    return np.minimum(x, y)


def _max(x: Values, y: Values) -> Values:
    if one(x) and one(y):
        return max(x, y)
    import numpy as np

    return np.maximum(x, y)


def down(x: Values) -> Values:
    if one(x):
        return math.nextafter(x, -INF)
    import numpy as np

    return np.nextafter(x, -INF)


def up(x: Values) -> Values:
    if one(x):
        return math.nextafter(x, INF)
    import numpy as np

    return np.nextafter(x, INF)


def _pick(condition: Any, x: Values, y: Values) -> Values:
    if is_decided(condition):
        return x if condition else y
    import numpy as np

    return np.where(condition, x, y)


def choose(condition: Any, x: Interval, y: Interval) -> Interval:
    """x where the condition holds, else y."""
    if is_decided(condition):
        return x if condition else y
    return Interval(_pick(condition, x.lo, y.lo), _pick(condition, x.hi, y.hi))


def _is(x: Interval, value: float) -> bool:
    """The interval is this one number, in every box."""
    return single(x) and bool(x.lo == value == x.hi)


def _outward(lo: Values, hi: Values) -> Interval:
    """One step outwards; inf - inf and 0 * inf give NaN, and the only honest enclosure is then the whole line."""
    lo, hi = down(lo), up(hi)
    if one(lo) and one(hi):
        return WHOLE_LINE if math.isnan(lo) or math.isnan(hi) else Interval(lo, hi)
    import numpy as np

    unknown = np.isnan(lo) | np.isnan(hi)
    if np.any(unknown):
        lo, hi = np.where(unknown, -INF, lo), np.where(unknown, INF, hi)
    return Interval(lo, hi)


def hull(*parts: Interval) -> Interval:
    lo, hi = parts[0]
    for part in parts[1:]:
        lo, hi = _min(lo, part.lo), _max(hi, part.hi)
    return Interval(lo, hi)


# Arithmetic.


def add(x: Interval, y: Interval) -> Interval:
    """An end that is exact stays: sums of small integers are points, and sqrt(x + 1) is defined at x = -1."""
    lo, hi = x.lo + y.lo, x.hi + y.hi
    out = _outward(lo, hi)
    return Interval(
        _pick(_exact_sum(x.lo, y.lo, lo), lo, out.lo), _pick(_exact_sum(x.hi, y.hi, hi), hi, out.hi)
    )


def _exact_sum(x: Values, y: Values, total: Values) -> Any:
    part = total - x  # Knuth's two-sum: the rounding error of x + y, without error; NaN where it is infinite
    return (x - (total - part)) + (y - part) == 0.0


def neg(x: Interval) -> Interval:
    return Interval(-x.hi, -x.lo)


def sub(x: Interval, y: Interval) -> Interval:
    return add(x, neg(y))


def mul(x: Interval, y: Interval) -> Interval:
    if _is(x, 1.0) or _is(y, 0.0):
        return y
    if _is(y, 1.0) or _is(x, 0.0):
        return x
    corners = [_product(a, b) for a in x for b in y]
    lo, hi = corners[0], corners[0]
    for corner in corners[1:]:
        lo, hi = _min(lo, corner), _max(hi, corner)
    if one(lo) and one(hi) and all(float(c).is_integer() and abs(c) < 2.0**53 for c in (*x, *y, lo, hi)):
        return Interval(lo, hi)
    return _outward(lo, hi)


def _product(x: Values, y: Values) -> Values:
    """0 times infinity is 0: an end point at infinity is a limit, not a value."""
    if one(x) and one(y):
        return 0.0 if x == 0.0 or y == 0.0 else x * y
    import numpy as np

    product = x * y
    return np.where(np.isnan(product), 0.0, product)


def div(x: Interval, y: Interval) -> Interval:
    """Of a divisor that is nowhere 0; the whole line where its enclosure cannot tell, as that of 1e-200 ** 2."""
    if _is(x, 0.0):
        return x
    undefined = y.contains(0.0)
    if single(x) and single(y):
        if undefined:
            return WHOLE_LINE
        corners = [a / b if math.isfinite(b) else 0.0 for a in x for b in y]
        return _outward(min(corners), max(corners))
    divisor = choose(undefined, TRUE, y)
    return choose(undefined, WHOLE_LINE, mul(x, _outward(1.0 / divisor.hi, 1.0 / divisor.lo)))


def _increasing(at: Callable[[Values], Ends]) -> Callable[[Interval], Interval]:
    """The enclosure of an increasing function from its two end points."""
    return lambda x: Interval(at(x.lo)[0], at(x.hi)[1])


exp = _increasing(exp_at)
log = _increasing(log_at)  # of what is positive
sqrt = _increasing(sqrt_at)  # of what is not negative
tanh = _increasing(tanh_at)


def cos(x: Interval) -> Interval:
    """The ends, and the tops at 2 pi k and bottoms between them that lie inside."""
    if single(x) and x.is_point:
        return Interval(*cos_at(x.lo))
    large = (x.magnitude > LARGEST_ANGLE) | (x.hi - x.lo >= 6.0)
    if is_decided(large) and large:
        return UNIT
    left, right = _pick(large, 0.0, x.lo), _pick(large, 0.0, x.hi)
    (a, b), (c, d) = cos_at(left), cos_at(right)
    slack = 1e-9 * (1 + _max(abs(left), abs(right)))  # it only widens the result
    turn = 2 * math.pi
    inside = lambda start: _ceil((left - slack - start) / turn) <= _floor((right + slack - start) / turn)
    lo, hi = _pick(inside(math.pi), -1.0, _min(a, c)), _pick(inside(0.0), 1.0, _max(b, d))
    return choose(large, UNIT, Interval(lo, hi))


def sin(x: Interval) -> Interval:
    if single(x) and x.is_point:
        return Interval(*sin_at(x.lo))
    return cos(sub(x, Interval(math.pi / 2, math.nextafter(math.pi / 2, INF))))


def _floor(x: Values) -> Values:
    if one(x):
        return float(math.floor(x)) if math.isfinite(x) else x
    import numpy as np

    return np.floor(x)


def _ceil(x: Values) -> Values:
    return -_floor(-x)


def power(x: Interval, y: Interval) -> Interval:
    """x^n for a whole number n; else exp(y log x), of what of the base is not negative; 0 is the limit of small bases.

    y log x is monotone in x and in y, so its extremes lie at corners, where log 0 is minus infinity: a base that may be
    arbitrarily small has a power that may be arbitrarily large where y may be negative.
    """
    if is_integer_point(y) and abs(y.lo) <= 1024:
        return integer_power(x, int(y.lo))
    if single(x) and single(y) and all(map(math.isfinite, (*x, *y))):
        corners = [by_arb("__pow__", a, b) if a > 0 else _power_of_zero(b) for a in x for b in y]
        return Interval(max(min(lo for lo, _ in corners), 0.0), max(hi for _, hi in corners))
    raw = exp(mul(y, _log_of_base(x)))
    return Interval(_pick(x.lo > 0, raw.lo, 0.0), raw.hi)


def _power_of_zero(y: float) -> Ends:
    """The limits of x^y for small x."""
    return (0.0, 0.0) if y > 0 else (0.0, 1.0) if y == 0 else (INF, INF)


def _log_of_base(x: Interval) -> Interval:
    """log of what of x is not negative."""
    lo, hi = _pick(x.lo > 0, x.lo, 1.0), _pick(x.hi > 0, x.hi, 1.0)
    ends = Interval(log_at(lo)[0], log_at(hi)[1])
    return Interval(_pick(x.lo > 0, ends.lo, -INF), _pick(x.hi > 0, ends.hi, -INF))


def is_integer_point(x: Interval) -> bool:
    """The interval is one whole number, the same in every box."""
    return single(x) and bool(x.is_point) and float(x.lo).is_integer()


def integer_power(x: Interval, n: int) -> Interval:
    """Monotone on each side of 0."""
    if n < 0:
        return div(TRUE, integer_power(x, -n))
    if n == 0:
        return TRUE
    low, high = _repeat(Interval(x.lo, x.lo), n), _repeat(Interval(x.hi, x.hi), n)
    if n % 2:
        return Interval(low.lo, high.hi)
    crosses = x.contains(0.0)
    return Interval(_pick(crosses, 0.0, _max(_min(low.lo, high.lo), 0.0)), _max(low.hi, high.hi))


def _repeat(x: Interval, n: int) -> Interval:
    result = TRUE
    while n:
        if n & 1:
            result = mul(result, x)
        n >>= 1
        if n:
            x = mul(x, x)
    return result


def absolute(x: Interval) -> Interval:
    least = _min(abs(x.lo), abs(x.hi))
    return Interval(_pick(x.contains(0.0), 0.0, least), x.magnitude)


def minimum(x: Interval, y: Interval) -> Interval:
    return Interval(_min(x.lo, y.lo), _min(x.hi, y.hi))


def maximum(x: Interval, y: Interval) -> Interval:
    return Interval(_max(x.lo, y.lo), _max(x.hi, y.hi))


# Steps: increasing, and exact in floating point.


def floor(x: Interval) -> Interval:
    return Interval(_floor(x.lo), _floor(x.hi))


def rounded(x: Interval) -> Interval:
    """To the nearest integer, half to even."""
    return Interval(_round(x.lo), _round(x.hi))


def _round(x: Values) -> Values:
    if one(x):
        return float(round(x)) if math.isfinite(x) else x
    import numpy as np

    return np.round(x)


def sign(x: Interval) -> Interval:
    return Interval(_sign(x.lo), _sign(x.hi))


def _sign(x: Values) -> Values:
    return (x > 0) * 1.0 - (x < 0) * 1.0


def floordiv(x: Interval, y: Interval) -> Interval:
    """Of a divisor that is nowhere 0. Points are divided exactly: 6 // 3 is 2, a point."""
    if single(x) and single(y):
        if not all(map(math.isfinite, (*x, *y))):
            return floor(div(x, y))
        turns = [math.floor(Fraction(a) / Fraction(b)) for a in x for b in y]
        return hull(*map(_is_integer, turns))
    import numpy as np

    integers = _integer_points(x) & _integer_points(y)
    turns = np.floor_divide(x.lo, np.where(np.equal(y.lo, 0), 1.0, y.lo))
    return choose(integers, Interval(turns, turns), floor(div(x, y)))


def _is_integer(n: int) -> Interval:
    try:
        return point(float(n)) if float(n) == n else _outward(float(n), float(n))
    except OverflowError:
        return _outward(INF, INF) if n > 0 else _outward(-INF, -INF)


def _integer_points(x: Interval) -> Any:
    """Integers that float64 divides without a doubt."""
    import numpy as np

    return np.equal(x.lo, x.hi) & np.equal(np.rint(x.lo), x.lo) & np.less(np.abs(x.lo), 2.0**53)


def mod(x: Interval, y: Interval) -> Interval:
    """x - y floor(x / y), which has the sign of y."""
    if single(x) and single(y) and x.is_point and y.is_point and all(map(math.isfinite, (x.lo, y.lo))):
        exact = Fraction(x.lo) % Fraction(y.lo)
        rest = float(exact)
        return point(rest) if rest == exact else _outward(rest, rest)
    turns, bound = floordiv(x, y), Interval(_min(y.lo, 0.0), _max(y.hi, 0.0))
    one_turn = _both(turns.lo == turns.hi, abs(turns.lo) < INF)
    if is_decided(one_turn) and not one_turn:
        return bound
    raw = sub(x, mul(y, turns))
    return choose(one_turn, Interval(_max(raw.lo, bound.lo), _min(raw.hi, bound.hi)), bound)


# Truth values are numbers, 1 and 0.


def _truth(surely: Any, never: Any) -> Interval:
    return Interval(_pick(surely, 1.0, 0.0), _pick(never, 0.0, 1.0))


def less(x: Interval, y: Interval) -> Interval:
    return _truth(x.hi < y.lo, x.lo >= y.hi)


def less_equal(x: Interval, y: Interval) -> Interval:
    return _truth(x.hi <= y.lo, x.lo > y.hi)


def equal(x: Interval, y: Interval) -> Interval:
    same = _both(_both(x.lo == x.hi, y.lo == y.hi), x.lo == y.lo)
    return _truth(same, (x.hi < y.lo) | (y.hi < x.lo))


def truth(x: Interval) -> Interval:
    """Whether x is non-zero."""
    return _truth((x.lo > 0) | (x.hi < 0), _both(x.lo == 0, x.hi == 0))


def negation(x: Interval) -> Interval:
    x_true = truth(x)
    return Interval(1.0 - x_true.hi, 1.0 - x_true.lo)


def conjunction(x: Interval, y: Interval) -> Interval:
    return minimum(truth(x), truth(y))


def disjunction(x: Interval, y: Interval) -> Interval:
    return maximum(truth(x), truth(y))


def select(condition: Interval, x: Interval, y: Interval) -> Interval:
    """x where the condition is non-zero, else y; both where it is not known."""
    chosen = truth(condition)
    return choose(chosen.lo == 1.0, x, choose(chosen.hi == 0.0, y, hull(x, y)))
