"""The operations of the language: one row each, and nothing else in the package knows their names by heart.

    apply(xp, x, ...)     the value on arrays, `xp` being numpy or jax.numpy
    value(x, ...)         an interval that contains every value, of one box or of many at once (core/intervals.py)
    slopes(x, ...)        intervals that contain every partial derivative, one per operand; unbounded where the
                          operation jumps, [0, 0] where it is flat
    undefined(x, ...)     where on these intervals the operation may have no value, and why
    ball(x, ...)          an Arb ball that contains the value at one point (balls.py)
    tail(x, ...)          of operands that are expressions in the lag z: a majorant for large z (tails.py)

Every column must be filled: a row with a gap fails when this file is imported. Truth values are numbers, 1 and 0, so
that they can be used in sums.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memloci.core import intervals as iv
from memloci.core.intervals import EITHER, FALSE, MINUS_ONE, TRUE, UNIT, WHOLE_LINE, Interval, choose
from memloci.language import balls, tails

Slopes = Callable[..., tuple[Interval, ...]]
Undefined = Callable[..., tuple[Any, str]]


def always_defined(*x: Interval) -> tuple[Any, str]:
    """Of an operation that always has a value."""
    return False, ""


@dataclass(frozen=True, kw_only=True)
class Operation:
    arity: int
    apply: Callable[..., Any]
    value: Callable[..., Interval]
    slopes: Slopes
    undefined: Undefined
    ball: Callable[..., Any]
    tail: Callable[..., tails.Majorant]
    function: bool = False  # written name(...), not as an operator
    jumps: bool = False  # its value can change by much where an operand changes by little


# Slopes.


def _flat_unless_jump(value: Callable[..., Interval]) -> Slopes:
    """Of an operation that is constant between its jumps."""

    def slopes(*x: Interval) -> tuple[Interval, ...]:
        values = value(*x)
        return (choose(values.lo == values.hi, FALSE, WHOLE_LINE),) * len(x)

    return slopes


def _abs_slope(x: Interval) -> Interval:
    return choose(x.lo > 0, TRUE, choose(x.hi < 0, MINUS_ONE, UNIT))


def _tanh_slope(x: Interval) -> Interval:
    return iv.sub(TRUE, iv.integer_power(iv.tanh(x), 2))


def _sqrt_slope(x: Interval) -> Interval:
    return choose(
        x.lo > 0, iv.div(TRUE, iv.mul(iv.point(2.0), iv.sqrt(_above_zero(x)))), Interval(0.0, math.inf)
    )


def _log_slope(x: Interval) -> Interval:
    return choose(x.lo > 0, iv.div(TRUE, _above_zero(x)), WHOLE_LINE)


def _above_zero(x: Interval) -> Interval:
    """x where it is positive, and 1 elsewhere, where the caller does not look."""
    return choose(x.lo > 0, x, TRUE)


def _select_slopes(first_below: bool) -> Slopes:
    """min and max pass one operand on; which one is known when the intervals do not overlap."""

    def slopes(x: Interval, y: Interval) -> tuple[Interval, Interval]:
        below, above = x.hi < y.lo, y.hi < x.lo
        first, second = (below, above) if first_below else (above, below)
        return (
            choose(first, TRUE, choose(second, FALSE, EITHER)),
            choose(first, FALSE, choose(second, TRUE, EITHER)),
        )

    return slopes


def _power_slopes(x: Interval, y: Interval) -> tuple[Interval, Interval]:
    """y x^(y-1) and x^y log x."""
    positive, base = x.lo > 0, _above_zero(x)
    in_exponent = choose(positive, iv.mul(iv.power(base, y), iv.log(base)), WHOLE_LINE)
    integer, fixed = iv.is_integer_point(y), iv.single(y) and y.is_point
    if integer and y.lo == 0:
        return FALSE, in_exponent
    if integer:
        bounded = True if y.lo > 0 else positive | (x.hi < 0)
    else:
        bounded = x.lo >= 0 if fixed and y.lo > 1 else positive
    away = choose(bounded, x, TRUE)
    factor = iv.integer_power(away, int(y.lo) - 1) if integer else iv.power(away, iv.sub(y, TRUE))
    return choose(bounded, iv.mul(y, factor), WHOLE_LINE), in_exponent


def _mod_slopes(x: Interval, y: Interval) -> tuple[Interval, Interval]:
    turns = iv.floordiv(x, y)
    one_turn = turns.lo == turns.hi
    return choose(one_turn, TRUE, WHOLE_LINE), choose(one_turn, iv.neg(turns), WHOLE_LINE)


def _choose_slopes(condition: Interval, x: Interval, y: Interval) -> tuple[Interval, ...]:
    known = iv.truth(condition)
    surely, never = known.lo == 1.0, known.hi == 0.0
    return (
        choose(surely | never, FALSE, WHOLE_LINE),
        choose(surely, TRUE, choose(never, FALSE, EITHER)),
        choose(surely, FALSE, choose(never, TRUE, EITHER)),
    )


# Where there is no value.


def _zero_divisor(x: Interval, y: Interval) -> tuple[Any, str]:
    return y.contains(0.0), "the divisor can be 0"


def _no_log(x: Interval) -> tuple[Any, str]:
    return x.lo <= 0, "log of a value that can be 0 or less"


def _no_sqrt(x: Interval) -> tuple[Any, str]:
    return x.lo < 0, "sqrt of a value that can be negative"


def _no_power(x: Interval, y: Interval) -> tuple[Any, str]:
    if iv.is_integer_point(y) and abs(y.lo) <= 1024:
        return (x.contains(0.0), "the divisor can be 0") if y.lo < 0 else (False, "")
    negative, at_zero = x.lo < 0, (x.lo == 0) & (y.lo <= 0)
    if iv.is_decided(negative) and not negative:
        return at_zero, "a power whose base can be 0 needs a positive exponent"
    return negative | at_zero, "a power whose base can be negative needs a whole-number exponent"


# Rows of one kind.


def _number(xp: Any, truth: Any, *operands: Any) -> Any:
    dtype = xp.result_type(*operands)
    return xp.asarray(truth).astype(dtype if xp.issubdtype(dtype, xp.floating) else float)


def _comparison(name: str, relation: str, value: Callable[..., Interval]) -> Operation:
    return Operation(
        arity=2,
        apply=lambda xp, x, y: _number(xp, getattr(xp, name)(x, y), x, y),
        value=value,
        slopes=_flat_unless_jump(value),
        undefined=always_defined,
        ball=balls.indicator(relation),
        tail=tails.at_most_one,
        jumps=True,
    )


def _logical(name: str, arity: int, value: Callable[..., Interval], ball: Callable[..., Any]) -> Operation:
    return Operation(
        arity=arity,
        apply=lambda xp, *x: _number(xp, getattr(xp, name)(*(xp.not_equal(v, 0) for v in x)), *x),
        value=value,
        slopes=_flat_unless_jump(value),
        undefined=always_defined,
        ball=ball,
        tail=tails.at_most_one,
        jumps=True,
    )


def _step(
    name: str,
    value: Callable[[Interval], Interval],
    ball: Callable[..., Any],
    tail: Callable[..., tails.Majorant],
) -> Operation:
    return Operation(
        arity=1,
        apply=lambda xp, x: getattr(xp, name)(x),
        value=value,
        slopes=_flat_unless_jump(value),
        undefined=always_defined,
        ball=ball,
        tail=tail,
        function=True,
        jumps=True,
    )


def _smooth(
    name: str,
    value: Callable[[Interval], Interval],
    slope: Callable[[Interval], Interval],
    tail: Callable[..., tails.Majorant],
    undefined: Undefined = always_defined,
) -> Operation:
    return Operation(
        arity=1,
        apply=lambda xp, x: getattr(xp, name)(x),
        value=value,
        slopes=lambda x: (slope(x),),
        undefined=undefined,
        ball=abs if name == "abs" else lambda x: getattr(x, name)(),
        tail=tail,
        function=True,
    )


def _apply_power(xp: Any, x: Any, y: Any) -> Any:
    if isinstance(y, float) and y.is_integer() and abs(y) <= 1024:
        y = int(y)  # an integer power is exact for small integers and has a derivative at 0
    return x**y


OPERATIONS: dict[str, Operation] = {
    "+": Operation(
        arity=2,
        apply=lambda xp, x, y: x + y,
        value=iv.add,
        slopes=lambda x, y: (TRUE, TRUE),
        undefined=always_defined,
        ball=lambda x, y: x + y,
        tail=tails.joined,
    ),
    "-": Operation(
        arity=2,
        apply=lambda xp, x, y: x - y,
        value=iv.sub,
        slopes=lambda x, y: (TRUE, MINUS_ONE),
        undefined=always_defined,
        ball=lambda x, y: x - y,
        tail=tails.joined,
    ),
    "*": Operation(
        arity=2,
        apply=lambda xp, x, y: x * y,
        value=iv.mul,
        slopes=lambda x, y: (y, x),
        undefined=always_defined,
        ball=lambda x, y: x * y,
        tail=tails.product,
    ),
    "/": Operation(
        arity=2,
        apply=lambda xp, x, y: x / y,
        value=iv.div,
        slopes=lambda x, y: (iv.div(TRUE, y), iv.neg(iv.div(x, iv.integer_power(y, 2)))),
        undefined=_zero_divisor,
        ball=lambda x, y: x / y,
        tail=tails.quotient,
    ),
    "//": Operation(
        arity=2,
        apply=lambda xp, x, y: xp.floor_divide(x, y),
        value=iv.floordiv,
        slopes=_flat_unless_jump(iv.floordiv),
        undefined=_zero_divisor,
        ball=balls.floordiv,
        tail=tails.unknown,
        jumps=True,
    ),
    "%": Operation(
        arity=2,
        apply=lambda xp, x, y: xp.mod(x, y),
        value=iv.mod,
        slopes=_mod_slopes,
        undefined=_zero_divisor,
        ball=balls.mod,
        tail=tails.remainder,
        jumps=True,
    ),
    "**": Operation(
        arity=2,
        apply=_apply_power,
        value=iv.power,
        slopes=_power_slopes,
        undefined=_no_power,
        ball=lambda x, y: x**y,
        tail=tails.power,
    ),
    "neg": Operation(
        arity=1,
        apply=lambda xp, x: -x,
        value=iv.neg,
        slopes=lambda x: (MINUS_ONE,),
        undefined=always_defined,
        ball=lambda x: -x,
        tail=tails.same,
    ),
    "<": _comparison("less", "<", iv.less),
    "<=": _comparison("less_equal", "<=", iv.less_equal),
    ">": _comparison("greater", ">", lambda x, y: iv.less(y, x)),
    ">=": _comparison("greater_equal", ">=", lambda x, y: iv.less_equal(y, x)),
    "==": _comparison("equal", "==", iv.equal),
    "!=": _comparison("not_equal", "!=", lambda x, y: iv.negation(iv.equal(x, y))),
    "and": _logical("logical_and", 2, iv.conjunction, balls.conjunction),
    "or": _logical("logical_or", 2, iv.disjunction, balls.disjunction),
    "not": _logical("logical_not", 1, iv.negation, balls.negation),
    "abs": _smooth("abs", iv.absolute, _abs_slope, tails.same),
    "exp": _smooth("exp", iv.exp, iv.exp, tails.exponential),
    "log": _smooth("log", iv.log, _log_slope, tails.logarithm, _no_log),
    "sin": _smooth("sin", iv.sin, iv.cos, tails.at_most_one),
    "cos": _smooth("cos", iv.cos, lambda x: iv.neg(iv.sin(x)), tails.at_most_one),
    "tanh": _smooth("tanh", iv.tanh, _tanh_slope, tails.at_most_one),
    "sqrt": _smooth("sqrt", iv.sqrt, _sqrt_slope, tails.root, _no_sqrt),
    "round": _step("round", iv.rounded, balls.rounded, tails.stepped),
    "floor": _step("floor", iv.floor, balls.floor, tails.stepped),
    "sign": _step("sign", iv.sign, balls.sign, tails.at_most_one),
    "min": Operation(
        arity=2,
        apply=lambda xp, x, y: xp.minimum(x, y),
        value=iv.minimum,
        slopes=_select_slopes(True),
        undefined=always_defined,
        ball=lambda x, y: x.min(y),
        tail=tails.joined,
        function=True,
    ),
    "max": Operation(
        arity=2,
        apply=lambda xp, x, y: xp.maximum(x, y),
        value=iv.maximum,
        slopes=_select_slopes(False),
        undefined=always_defined,
        ball=lambda x, y: x.max(y),
        tail=tails.joined,
        function=True,
    ),
    "where": Operation(
        arity=3,
        apply=lambda xp, c, x, y: xp.where(xp.not_equal(c, 0), x, y),
        value=iv.select,
        slopes=_choose_slopes,
        undefined=always_defined,
        ball=balls.select,
        tail=tails.branch,
        function=True,
        jumps=True,
    ),
}


def functions() -> tuple[str, ...]:
    """The operations that are written name(...)."""
    return tuple(name for name, operation in OPERATIONS.items() if operation.function)


CONSTANTS = {"pi": math.pi}
