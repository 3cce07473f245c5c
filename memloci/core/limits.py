"""Numbers that a user may give: positive ones, and limits that a variable of the environment raises."""

import math
import os

from memloci.core.errors import BadInput
from memloci.core.numbers import number
from memloci.core.specs import shorten

MEMORY_GB = 4.0  # tuned: a laptop has it to spare


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
        as_number = math.nan if isinstance(value, bool | str | bytes) else float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        as_number = math.nan
    if not 0 < as_number < math.inf:
        raise BadInput(f"{what} must be a positive number, found {shorten(value)}")
    return as_number


def too_much_memory(size: float, what: str) -> str | None:
    """Why something is not built that would take so many bytes; None if it may be."""
    gigabytes, most = size / 2**30, limit_from("MEMLOCI_MEMORY_GB", MEMORY_GB)
    if gigabytes <= most:
        return None
    return (
        f"{what} would take about {number(gigabytes)} GB of memory, above the limit of {number(most)} GB; "
        f"set MEMLOCI_MEMORY_GB={math.ceil(gigabytes)} if there is so much"
    )
