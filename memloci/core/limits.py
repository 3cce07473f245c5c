"""Limits that a user may raise, each by a variable of the environment that its refusal names."""

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
