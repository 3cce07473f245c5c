"""The numbers of a precision that lie in an interval: 0.1 rounded to float32 lies outside [-0.1, 0.1]."""

from typing import Any

import numpy as np


def inside(piece: Any, dtype: Any) -> tuple[float, float]:
    """The first and last number of the dtype in a piece; its own ends if it has none."""
    lo, hi = dtype.type(piece.lo), dtype.type(piece.hi)
    lo = lo if float(lo) >= piece.lo else np.nextafter(lo, dtype.type(np.inf))
    hi = hi if float(hi) <= piece.hi else np.nextafter(hi, dtype.type(-np.inf))
    return (float(lo), float(hi)) if lo <= hi else (piece.lo, piece.hi)
