"""The operations of the language: what each does to arrays, to intervals, and how fast it changes.

One row per operation; adding an operation means adding a row. A row has

    apply(xp, x, ...)     the value on arrays, `xp` being numpy or jax.numpy
    enclose(x, ...)       an interval that contains every value (interval.py)
    slopes(x, ...)        intervals that contain every partial derivative, one per operand; unbounded
                          where the operation jumps, [0, 0] where it is flat

Truth values are numbers, 1 and 0, so that they can be used in sums.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memloci.expressions import interval as iv
from memloci.expressions.interval import FALSE, TRUE, WHOLE_LINE, Interval

Slopes = Callable[..., tuple[Interval, ...]]


@dataclass(frozen=True)
class Operation:
    arity: int
    apply: Callable[..., Any]
    enclose: Callable[..., Interval]
    slopes: Slopes
    function: bool = False  # written name(...), not as an operator


MINUS_ONE = iv.point(-1.0)
UNIT = Interval(-1.0, 1.0)
POSITIVE_UNIT = Interval(0.0, 1.0)


def _flat_unless_jump(enclose: Callable[..., Interval]) -> Slopes:
    """Slopes of an operation that is constant between its jumps."""

    def slopes(*x: Interval) -> tuple[Interval, ...]:
        return (FALSE if enclose(*x).is_point else WHOLE_LINE,) * len(x)

    return slopes


def _number(xp: Any, truth: Any, *operands: Any) -> Any:
    dtype = xp.result_type(*operands)
    return xp.asarray(truth).astype(dtype if xp.issubdtype(dtype, xp.floating) else float)


def _comparison(name: str, enclose: Callable[..., Interval]) -> Operation:
    def apply(xp: Any, x: Any, y: Any) -> Any:
        return _number(xp, getattr(xp, name)(x, y), x, y)

    return Operation(2, apply, enclose, _flat_unless_jump(enclose))


def _logical(name: str, arity: int, enclose: Callable[..., Interval]) -> Operation:
    def apply(xp: Any, *x: Any) -> Any:
        return _number(xp, getattr(xp, name)(*(xp.not_equal(v, 0) for v in x)), *x)

    return Operation(arity, apply, enclose, _flat_unless_jump(enclose))


def _step(name: str, step: Callable[[float], float]) -> Operation:
    enclose = iv.staircase(step)
    return Operation(1, lambda xp, x: getattr(xp, name)(x), enclose, _flat_unless_jump(enclose), True)


def _smooth(name: str, enclose: Callable[[Interval], Interval], slope: Callable[[Interval], Interval]):
    return Operation(1, lambda xp, x: getattr(xp, name)(x), enclose, lambda x: (slope(x),), True)


def _abs_slope(x: Interval) -> Interval:
    return TRUE if x.lo > 0 else MINUS_ONE if x.hi < 0 else UNIT


def _tanh_slope(x: Interval) -> Interval:
    return iv.sub(TRUE, iv._integer_power(iv.tanh(x), 2))


def _sqrt_slope(x: Interval) -> Interval:
    if x.lo <= 0:
        return Interval(0.0, math.inf)
    return iv.div(TRUE, iv.mul(iv.point(2.0), iv.sqrt(x)))


def _select_slopes(first_below: bool) -> Slopes:
    """min and max pass one operand on; which one is known when the intervals do not overlap."""

    def slopes(x: Interval, y: Interval) -> tuple[Interval, Interval]:
        if x.hi < y.lo or y.hi < x.lo:
            return (TRUE, FALSE) if (x.hi < y.lo) == first_below else (FALSE, TRUE)
        return POSITIVE_UNIT, POSITIVE_UNIT

    return slopes


def _power_slopes(x: Interval, y: Interval) -> tuple[Interval, Interval]:
    """y x^(y-1) and x^y log x."""
    in_exponent = WHOLE_LINE if x.lo <= 0 else iv.mul(iv.power(x, y), iv.log(x))
    if y == FALSE:
        return FALSE, in_exponent
    below = iv.sub(y, TRUE)
    if x.lo <= 0 and not (y.is_point and (y.lo.is_integer() or y.lo > 1)):
        return WHOLE_LINE, in_exponent
    return iv.mul(y, iv.power(x, below)), in_exponent


def _apply_power(xp: Any, x: Any, y: Any) -> Any:
    if isinstance(y, float) and y.is_integer() and abs(y) <= 1024:
        y = int(y)  # an integer power is exact for small integers and has a derivative at 0
    return x**y


def _mod_slopes(x: Interval, y: Interval) -> tuple[Interval, Interval]:
    turns = iv.floordiv(x, y)
    return (TRUE, iv.neg(turns)) if turns.is_point else (WHOLE_LINE, WHOLE_LINE)


def _choose(condition: Interval, x: Interval, y: Interval) -> Interval:
    known = iv.truth(condition)
    return x if known == TRUE else y if known == FALSE else iv.hull(x, y)


def _choose_slopes(condition: Interval, x: Interval, y: Interval) -> tuple[Interval, ...]:
    known = iv.truth(condition)
    if known == iv.EITHER:
        return WHOLE_LINE, POSITIVE_UNIT, POSITIVE_UNIT
    return (FALSE, TRUE, FALSE) if known == TRUE else (FALSE, FALSE, TRUE)


OPERATIONS: dict[str, Operation] = {
    "+": Operation(2, lambda xp, x, y: x + y, iv.add, lambda x, y: (TRUE, TRUE)),
    "-": Operation(2, lambda xp, x, y: x - y, iv.sub, lambda x, y: (TRUE, MINUS_ONE)),
    "*": Operation(2, lambda xp, x, y: x * y, iv.mul, lambda x, y: (y, x)),
    "/": Operation(
        2,
        lambda xp, x, y: x / y,
        iv.div,
        lambda x, y: (iv.div(TRUE, y), iv.neg(iv.div(x, iv._integer_power(y, 2)))),
    ),
    "//": Operation(2, lambda xp, x, y: xp.floor_divide(x, y), iv.floordiv, _flat_unless_jump(iv.floordiv)),
    "%": Operation(2, lambda xp, x, y: xp.mod(x, y), iv.mod, _mod_slopes),
    "**": Operation(2, _apply_power, iv.power, _power_slopes),
    "neg": Operation(1, lambda xp, x: -x, iv.neg, lambda x: (MINUS_ONE,)),
    "<": _comparison("less", iv.less),
    "<=": _comparison("less_equal", iv.less_equal),
    ">": _comparison("greater", lambda x, y: iv.less(y, x)),
    ">=": _comparison("greater_equal", lambda x, y: iv.less_equal(y, x)),
    "==": _comparison("equal", iv.equal),
    "!=": _comparison("not_equal", lambda x, y: iv.negation(iv.equal(x, y))),
    "and": _logical("logical_and", 2, iv.conjunction),
    "or": _logical("logical_or", 2, iv.disjunction),
    "not": _logical("logical_not", 1, iv.negation),
    "abs": _smooth("abs", iv.absolute, _abs_slope),
    "exp": _smooth("exp", iv.exp, iv.exp),
    "log": _smooth("log", iv.log, lambda x: iv.div(TRUE, x)),
    "sin": _smooth("sin", iv.sin, iv.cos),
    "cos": _smooth("cos", iv.cos, lambda x: iv.neg(iv.sin(x))),
    "tanh": _smooth("tanh", iv.tanh, _tanh_slope),
    "sqrt": _smooth("sqrt", iv.sqrt, _sqrt_slope),
    "round": _step("round", round),
    "floor": _step("floor", math.floor),
    "sign": _step("sign", lambda x: math.copysign(1.0, x) if x else 0.0),
    "min": Operation(2, lambda xp, x, y: xp.minimum(x, y), iv.minimum, _select_slopes(True), True),
    "max": Operation(2, lambda xp, x, y: xp.maximum(x, y), iv.maximum, _select_slopes(False), True),
    "where": Operation(
        3,
        lambda xp, c, x, y: xp.where(xp.not_equal(c, 0), x, y),
        _choose,
        _choose_slopes,
        True,
    ),
}

FUNCTIONS = tuple(name for name, operation in OPERATIONS.items() if operation.function)
CONSTANTS = {"pi": math.pi}
