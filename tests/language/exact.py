"""The language in 300-bit ball arithmetic, written apart from the package: what a value really is.

`exact(expression, point)` is a ball that contains the real value. Where 300 bits cannot decide a jump, or
the value does not exist, `Unsure` is raised and a test says nothing about that point.
"""

import math

from flint import arb, ctx

from memloci.core.intervals import Interval
from memloci.language.expression import Apply, Constant, Expression, Variable

BITS = 300


class Unsure(Exception):
    pass


def exact(expression: Expression, point: dict[str, float]) -> arb:
    with ctx.workprec(BITS):
        return _value(expression, {name: arb(value) for name, value in point.items()})


def exact_operation(name: str, *operands: float) -> arb:
    with ctx.workprec(BITS):
        return _sure(_apply(name, [arb(x) for x in operands]))


def outside(value: arb, interval: Interval) -> bool:
    """Whether the value certainly lies outside the interval."""
    with ctx.workprec(BITS):
        return bool(value < arb(interval.lo)) or bool(value > arb(interval.hi))


def _value(expression: Expression, point: dict[str, arb]) -> arb:
    match expression:
        case Constant(value):
            return arb(value)
        case Variable(name):
            return point[name]
        case Apply("where", (condition, x, y)):
            return _value(x if _nonzero(_value(condition, point)) else y, point)
        case Apply(name, operands):
            return _sure(_apply(name, [_value(o, point) for o in operands]))
    raise AssertionError(expression)


def _sure(x: arb) -> arb:
    if not x.is_finite():
        raise Unsure
    return x


def _compare(x: arb, y: arb) -> int:
    if x < y:
        return -1
    if x > y:
        return 1
    if x.is_exact() and y.is_exact() and x == y:
        return 0
    raise Unsure


def _nonzero(x: arb) -> bool:
    return _compare(x, arb(0)) != 0


def _floor(x: arb) -> arb:
    low, high = x.lower().floor(), x.upper().floor()
    if not (low.is_exact() and high.is_exact() and low == high):
        raise Unsure
    return low


def _round(x: arb) -> arb:
    above = _floor(x + arb(0.5))
    tie = x.is_exact() and above == x + arb(0.5)
    odd = (above / 2).floor() * 2 != above
    return above - 1 if tie and odd else above  # a tie goes to the even neighbour


def _power(x: arb, y: arb) -> arb:
    if y.is_exact() and y.is_integer() and abs(y) < 2000:
        n = int(float(y))
        if n < 0 and not _nonzero(x):
            raise Unsure
        return x**n
    if _compare(x, arb(0)) < 0 or (not _nonzero(x) and _compare(y, arb(0)) <= 0):
        raise Unsure
    return x**y if _nonzero(x) else arb(0)


def _apply(name: str, operands: list[arb]) -> arb:
    x, y = operands[0], operands[-1]
    match name:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "/" | "//" | "%":
            if not _nonzero(y):
                raise Unsure
            if name == "/":
                return x / y
            return _floor(x / y) if name == "//" else x - y * _floor(x / y)
        case "**":
            return _power(x, y)
        case "neg":
            return -x
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            order = _compare(x, y)
            truths = {
                "<": order < 0,
                "<=": order <= 0,
                ">": order > 0,
                ">=": order >= 0,
                "==": order == 0,
                "!=": order != 0,
            }
            return arb(int(truths[name]))
        case "and":
            return arb(int(_nonzero(x) and _nonzero(y)))
        case "or":
            return arb(int(_nonzero(x) or _nonzero(y)))
        case "not":
            return arb(int(not _nonzero(x)))
        case "min":
            return x.min(y)
        case "max":
            return x.max(y)
        case "where":
            return operands[1] if _nonzero(x) else y
        case "abs":
            return abs(x)
        case "floor":
            return _floor(x)
        case "round":
            return _round(x)
        case "sign":
            return arb(_compare(x, arb(0)))
        case "log":
            if _compare(x, arb(0)) <= 0:
                raise Unsure
            return x.log()
        case "sqrt":
            if _compare(x, arb(0)) < 0:
                raise Unsure
            return x.sqrt()
        case "exp" | "sin" | "cos" | "tanh":
            return getattr(x, name)()
    raise AssertionError(name)


def ulps(interval: Interval) -> float:
    """The width in units of the last place of its larger end."""
    return interval.width / math.ulp(interval.magnitude)
