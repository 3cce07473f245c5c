"""Numbers that a user may give: positive ones, and limits that a variable of the environment raises."""

import math
import os

from memloci.core.errors import BadInput
from memloci.core.specs import shorten


def limit_from(variable: str, default: float) -> float:
    """A positive number from the environment, or the default."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadInput(f"{variable} must be a positive number, found {shorten(text)}")
    return value


def positive(value: object, what: str) -> float:
    """A finite number above 0 as a float; whole numbers may be too large for one."""
    try:
        found = math.nan if isinstance(value, bool | str | bytes) else float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not 0 < found < math.inf:
        raise BadInput(f"{what} must be a positive number, found {shorten(value)}")
    return found
