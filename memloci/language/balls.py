"""The value of an expression at one point, enclosed by an Arb ball, and numbers that stand for constants.

    value_at(f, {x1: 0.5})    a ball that contains f there, at flint's precision
    pin(f)                    the float64 number nearest to the value of an expression without variables

A ball at a jump (floor of exactly 2 known up to 1e-30, a comparison of equal numbers that are not known to be
equal) decides nothing; then `Undecided` is raised, never a guess made.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from memloci.core.balls import fraction, nearest
from memloci.core.errors import BadInput
from memloci.core.intervals import Undefined

if TYPE_CHECKING:
    from flint import arb

    from memloci.language.expression import Expression

BITS_TRIED = (128, 512, 2_048, 8_192)  # bits tried in turn until a constant is pinned


class Undecided(BadInput):
    """A jump is too close to the point to say on which side it lies."""


def value_at(f: "Expression", values: Mapping[str, Any]) -> "arb":
    """A ball that contains f at this point; `values` are numbers or balls.

    At flint's precision, or at more where a jump is close by.
    """
    from flint import ctx

    for bits in BITS_TRIED:
        if bits > ctx.prec:
            try:
                with ctx.workprec(max(bits // 4, ctx.prec)):
                    return _value_at(f, values)
            except Undecided:
                pass
    with ctx.workprec(max(BITS_TRIED[-1], ctx.prec)):
        return _value_at(f, values)


def _value_at(f: "Expression", values: Mapping[str, Any]) -> "arb":
    from flint import arb

    from memloci.language.expression import Apply, Constant, Variable
    from memloci.language.operations import OPERATIONS

    match f:
        case Constant(value):
            return arb(value)
        case Variable(name):
            value = values[name]
            return value if isinstance(value, arb) else arb(value)
        case Apply("where", (condition, x, y)):  # the branch that is not taken need not be defined
            return _value_at(x if _truth(condition, values) else y, values)
        case Apply("**", (x, Constant(p))) if p.is_integer():
            return _defined(_value_at(x, values) ** int(p), f)
        case Apply(operation, operands):
            return _defined(OPERATIONS[operation].ball(*(_value_at(o, values) for o in operands)), f)


def _defined(value: "arb", f: Any) -> "arb":
    if not value.is_finite():
        raise Undefined(f"no finite value in {f.text}")
    return value


def _truth(f: "Expression", values: Mapping[str, Any]) -> bool:
    """Whether f is true; `and` and `or` look at the second side only where the first does not decide."""
    from memloci.language.expression import Apply

    match f:
        case Apply("and", (x, y)):
            return _truth(x, values) and _truth(y, values)
        case Apply("or", (x, y)):
            return _truth(x, values) or _truth(y, values)
        case Apply("not", (x,)):
            return not _truth(x, values)
        case _:
            return holds("!=", _value_at(f, values), 0)


def pin(f: "Expression") -> tuple[float, bool]:
    """(the float64 nearest to the value of a constant expression, whether it is that value exactly).

    The literals are float64 numbers; everything computed from them is computed as if exactly and rounded once,
    to nearest. What no precision pins to one number is refused.
    """
    from flint import ctx

    undecided = None
    for bits in BITS_TRIED:
        with ctx.workprec(bits):
            try:
                value = _value_at(f, {})
            except Undecided as error:
                undecided = error
                continue
            lo, hi = (nearest(end) for end in (value.lower(), value.upper()))
            if lo == hi and not math.isfinite(lo):
                return lo, False
            if lo == hi:
                return lo + 0.0, bool(value.is_exact()) and Fraction(lo) == fraction(value)
    raise undecided or Undecided("its value is not pinned to one float64 number; write the number instead")


# The operations, one by one.


def holds(relation: str, x: Any, y: Any) -> bool:
    """A comparison, where the balls decide it."""
    from flint import arb

    x, y = arb(x), arb(y)
    same = x.is_exact() and y.is_exact() and x == y
    decided = {
        "<": (x < y, x >= y),
        "<=": (x <= y, x > y),
        ">": (x > y, x <= y),
        ">=": (x >= y, x < y),
        "==": (same, x != y),
        "!=": (x != y, same),
    }[relation]
    if decided[0] == decided[1]:
        raise Undecided(f"a comparison of {x.str(8)} with {y.str(8)} is too close to decide")
    return bool(decided[0])


def indicator(relation: str) -> Any:
    return lambda x, y: _number(holds(relation, x, y))


def _number(truth: bool) -> "arb":
    from flint import arb

    return arb(int(truth))


def conjunction(x: "arb", y: "arb") -> "arb":
    return _number(holds("!=", x, 0) and holds("!=", y, 0))


def disjunction(x: "arb", y: "arb") -> "arb":
    return _number(holds("!=", x, 0) or holds("!=", y, 0))


def negation(x: "arb") -> "arb":
    return _number(holds("==", x, 0))


def floor(x: "arb") -> "arb":
    value = x.floor()
    if not value.is_exact():
        raise Undecided(f"floor of {x.str(8)} is too close to a jump to decide")
    return value


def rounded(x: "arb") -> "arb":
    """To the nearest integer, half to even, as everywhere in the language."""
    low = floor(x)
    part = x - low
    if part.is_exact() and part == 0.5:
        return low if int(fraction(low)) % 2 == 0 else low + 1
    return low + 1 if holds(">", part, 0.5) else low


def sign(x: "arb") -> "arb":
    if x.is_zero():
        return x
    return _number(holds(">", x, 0)) - _number(holds("<", x, 0))


def floordiv(x: "arb", y: "arb") -> "arb":
    if x.is_exact() and y.is_exact() and not y.is_zero():  # a quotient of balls is never exactly 2
        return _is_integer(fraction(x) // fraction(y))
    return floor(x / y)


def mod(x: "arb", y: "arb") -> "arb":
    """x - y floor(x / y), which has the sign of y."""
    return x - y * floordiv(x, y)


def _is_integer(n: int) -> "arb":
    from flint import arb, fmpz

    return arb(fmpz(n))


def select(condition: "arb", x: "arb", y: "arb") -> "arb":
    return x if holds("!=", condition, 0) else y
