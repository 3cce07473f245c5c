"""Numbers as text: the only place where a float becomes digits.

number(x)       three digits; a proved bound is rounded to the side on which it stays proved
literal(x)      a number as somebody typed it, to the last digit
exact_decimal(x)  all of its digits, for readers that know no exponents
decimals(x, n)  n digits behind the point, for times, percentages and coordinates
to_digits(x, n) not a text: the number that n digits say
finite(values)  not a text: the values that digits can say
"""

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from memloci.core.proved import DIGITS, Proved, ProvedLeast, rounded


def number(x: float, digits: int = DIGITS) -> str:
    """A few digits; a proved bound stays one: `Proved` is rounded up, `ProvedLeast` down."""
    if math.isnan(x):
        return "not a number"
    if math.isinf(x):
        return "infinite" if x > 0 else "minus infinite"
    if x == 0:
        return "0"
    short = rounded(x, digits, _rounding(x))
    if Decimal("0.001") <= abs(short) < 100_000:
        last_digit = short.as_tuple().exponent
        text = f"{short:,f}" if isinstance(last_digit, int) and last_digit < 0 else f"{int(short):,}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, exponent = f"{short:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent)}"


def to_digits(x: float, digits: int) -> float:
    """x, rounded to so many significant digits."""
    return float(rounded(x, digits, ROUND_HALF_EVEN))


def finite(values: Iterable[float | None]) -> list[float]:
    """Those that are numbers."""
    return [float(x) for x in values if x is not None and math.isfinite(x)]


def lower_number(x: float) -> str:
    """Three digits of a proved lower bound: rounded down."""
    return number(ProvedLeast(x))


def upper_number(x: float) -> str:
    """Three digits of a proved upper bound: rounded up."""
    return number(Proved(x))


def _rounding(x: float) -> str:
    if isinstance(x, Proved):
        return ROUND_CEILING
    return ROUND_FLOOR if isinstance(x, ProvedLeast) else ROUND_HALF_EVEN


def exact_decimal(x: float) -> str:
    """Exactly this number, with all digits and no exponent: 0.5, -1.0; for readers that know no other form."""
    text = format(Decimal(float(x)), "f")
    return text if "." in text else f"{text}.0"


def literal(x: float) -> str:
    """The shortest text that reads as x: what a user typed, or a parameter that must not lose a digit."""
    text = repr(float(x))
    return text[:-2] if text.endswith(".0") else text


def decimals(x: float, digits: int = 0, *, sign: bool = False) -> str:
    return f"{x:{'+' if sign else ''},.{digits}f}"


def coordinate(x: float) -> str:
    """A place in a drawing: six digits, no commas."""
    return f"{x:.6g}"


def percent(x: float) -> str:
    return f"{x:.0%}"


def power_of_two(log2: float) -> str:
    """2^12.3 for a proved lower bound on a power: rounded down."""
    return f"2^{literal(float(Decimal(log2).quantize(Decimal('0.1'), ROUND_FLOOR)))}"
