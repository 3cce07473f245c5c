"""Proved and observed numbers are different types, and printing one cannot turn it into the other.

    Proved        an upper bound, out of ball, interval or exact arithmetic only; printed rounded up
    ProvedLeast   a lower bound of the same origin; printed rounded down
    Observed      seen by evaluating something; the worst case may be worse

They are floats, so arithmetic with them gives plain floats: what is computed from a bound is one again only where
somebody says so.
"""

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from fractions import Fraction

DIGITS = 3
FAITHFUL = 15  # digits that a float64 number keeps
_SPEC = re.compile(r"(.?[<>=^])?[-+ ]?z?#?0?\d*[,_]?(\.(?P<places>\d+))?(?P<kind>[eEfFgGn%]?)", re.DOTALL)


class _Sided(float):
    """A float that knows on which side it may be rounded when it becomes text."""

    rounding = ROUND_HALF_EVEN

    def __repr__(self) -> str:
        return f"{type(self).__name__}({rounded(self, 6, self.rounding):g})"

    def __str__(self) -> str:
        return format(self, "")

    def __format__(self, spec: str) -> str:
        """Any format of a float, of the number rounded to the safe side at the last digit that the format shows."""
        shown = spec or f".{DIGITS}g"
        parts = _SPEC.fullmatch(shown)
        exact = Decimal(float(self))
        if parts is None or not exact.is_finite() or not exact:
            return format(float(self), shown)
        places, kind = int(parts["places"] or 6), parts["kind"].lower()
        digits = exact.adjusted() - _last_digit(exact, places, kind) + 1
        near = float(rounded(self, digits, self.rounding) if digits <= FAITHFUL else self)
        if math.isinf(near) and self.rounding == ROUND_HALF_EVEN:
            near = float(self)
        digits_only = f".{places}" * bool(parts["places"]) + kind.replace("n", "g")
        while not self._safe(format(near, digits_only)):  # of many digits, a neighbour's may have to do
            near = math.nextafter(near, math.inf if self.rounding == ROUND_CEILING else -math.inf)
        return format(near, shown)

    def _safe(self, text: str) -> bool:
        """Whether this text may stand for the number: it says no less than an upper bound, no more than a lower one."""
        if self.rounding == ROUND_HALF_EVEN or "inf" in text:
            return True
        printed = Fraction(text.rstrip("%")) / (100 if text.endswith("%") else 1)
        return printed >= Fraction(self) if self.rounding == ROUND_CEILING else printed <= Fraction(self)


class Proved(_Sided):
    """An upper bound that is a theorem."""

    rounding = ROUND_CEILING


class ProvedLeast(_Sided):
    """A lower bound that is a theorem."""

    rounding = ROUND_FLOOR


class Observed(_Sided):
    """A number seen on inputs; the worst case may be worse."""


def _last_digit(exact: Decimal, digits: int, kind: str) -> int:
    """The power of ten of the last digit that a format shows."""
    match kind:
        case "f":
            return -digits
        case "%":
            return -digits - 2
        case "e":
            return exact.adjusted() - digits
        case _:
            return exact.adjusted() - max(digits, 1) + 1


def rounded(x: float, digits: int, rounding: str) -> Decimal:
    """x to so many significant digits; infinities and NaN as they are."""
    exact = Decimal(float(x))
    if not exact.is_finite() or not exact:
        return exact
    return exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=rounding)
