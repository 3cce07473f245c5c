"""Numbers as text: three digits, and a bound that is printed is still a bound."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from memloci.certifier.certificate import Proved


def number(x: float) -> str:
    """Three digits; a proved bound is rounded up, so that what is printed is still a bound."""
    return _rounded(x, ROUND_CEILING if isinstance(x, Proved) else ROUND_HALF_EVEN)


def lower_number(x: float) -> str:
    """Three digits of a proved lower bound: rounded down."""
    return _rounded(x, ROUND_FLOOR)


def _rounded(x: float, rounding: str) -> str:
    if math.isinf(x):
        return "infinite"
    if x == 0:
        return "0"
    exact = Decimal(float(x))
    last = exact.adjusted() - 2
    short = exact.quantize(Decimal(1).scaleb(last), rounding=rounding)
    if Decimal("0.001") <= abs(short) < 100_000:
        text = f"{short:,f}" if last < 0 else f"{int(short):,}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits, exponent = f"{short:.2e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
