"""The rounding model: what floating point adds to a bound.

Stated, and tested in tests/certify/test_rounding.py:

1. +, -, * and / are rounded to nearest: fl(x op y) = (x op y)(1 + d), |d| <= u, and additions are not reordered where the
   program says their order. A sum whose order it does not say, a product of matrices for one, is made in any order and
   with or without fused operations, so n terms err by at most gamma(n - 1) sum |terms|; adding 0 and multiplying by a
   power of 2 are exact. Sums of more than 1 / (2 u) terms are running sums of running sums, of any number and in any
   order: every library does it so, and bare trees would cost a logarithm. What each path adds: past_sums.py.
2. Library functions, at arguments that are numbers of the precision, where the result is not below `least`:

   | function | called on | error at most |
   |---|---|---|
   | exp | [log least, log most] | LIBRARY u relative; exp(0) = 1 exactly |
   | expm1 | [-1, 0] | LIBRARY u relative |
   | log | [1, 2^31] | LIBRARY u relative; log(1) = 0 exactly |
   | sin, cos | [-pi, pi] | LIBRARY u absolute |
   | zeta (model/zeta.py) | (1, LARGEST_LOG_SLOPE] | ZETA u relative |

   The largest errors that the test finds on a CPU, in units of u of float32 and of float64: exp 1.5, expm1 5.7, log 1.1,
   sin and cos 0.6, zeta 8.
3. Numbers below the smallest normal one, `least`, may be taken for 0, as operands and as results. What
   may exceed `most` may become infinite, and then 0 * inf = NaN anywhere: such a bound is infinite.
4. The inputs are numbers of the precision. Where a symbol or a whole interval has none, the model reads
   the nearest number.

u, `least` and `most` of every precision are in core/precision.py.

Every quantity here is non-negative and built from non-negative terms, so evaluating these formulas in
float64 has a small relative error; slacks.py adds that back.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from memloci.core.intervals import Interval
from memloci.core.precision import PRECISIONS

Numbers = int | float | np.ndarray


@dataclass(frozen=True)
class Format:
    """A precision. Without `least` and `most` only the significand is limited."""

    u: float
    least: float = 0.0
    most: float = math.inf

    def represents(self, *sizes: Numbers) -> bool:
        """No number of these sizes overflows; twice the room, for what rounding adds."""
        return all(bool((2.0 * np.asarray(size) < self.most).all()) for size in sizes)

    def expect(self, *sizes: Numbers) -> None:
        """Numbers of these sizes are computed; see `Watched`."""

    def mark_broken(self) -> None:
        """Nothing is known of what is computed from here on; see `Watched`."""

    def has_number_in(self, piece: Interval) -> bool:
        """Some number of this format lies in the piece."""
        if piece.contains(0.0) or not self.u:
            return True
        near, far = (Fraction(end) for end in sorted((abs(piece.lo), abs(piece.hi))))
        # The spacing of the format just above `near`, in exact arithmetic: float64 has none for its smallest numbers.
        spacing = Fraction(self.u) * Fraction(2) ** math.frexp(near)[1]
        step = max(spacing, 2 * Fraction(self.u) * Fraction(self.least))
        return math.ceil(near / step) * step <= far


@dataclass(frozen=True)
class Watched(Format):
    """A format that remembers whether anything computed in it may overflow, or is not a number."""

    broken: list[bool] = field(default_factory=list, compare=False)

    def expect(self, *sizes: Numbers) -> None:
        if math.isfinite(self.most) and not self.represents(*sizes):
            self.broken.append(True)

    def mark_broken(self) -> None:
        self.broken.append(True)


def format_of(precision: str) -> Format:
    row = PRECISIONS[precision]
    return Format(row.u, row.least, row.most)


LIBRARY = 8.0
ZETA = 64.0
LARGEST_LOG_SLOPE = 1e9  # z^-p is 0 beyond lag 1 long before; much later balls of zeta(p, n) are not finite
LENGTH = 2.0**31  # positions are 32-bit integers


def gamma(n: Numbers, u: float) -> np.ndarray:
    """n u / (1 - n u): the classical bound on n roundings in a row; infinite when it says nothing."""
    nu = np.asarray(n, dtype=float) * u
    return np.where(nu < 0.5, nu / np.where(nu < 0.5, 1 - nu, 1.0), np.inf)


def roundings(W: np.ndarray) -> np.ndarray:
    """Per row of a matrix, the roundings in a row that one term of W x meets: products with 0 and with
    powers of 2 are exact, and so is adding 0."""
    W = np.asarray(W, dtype=float)
    return np.asarray(np.maximum((W != 0).sum(axis=-1) - 1, 0) + inexact(W).any(axis=-1))


def inexact(W: np.ndarray) -> np.ndarray:
    """Which numbers are neither 0 nor a power of 2: products with them are rounded, and a coarser precision may hold
    no such number. A power of 2 that it takes for 0 is counted by `underflow`."""
    mantissa, _ = np.frexp(np.abs(W))
    return (W != 0) & (mantissa != 0.5)


def times(x: Numbers, y: Numbers) -> np.ndarray:
    """x y for non-negative numbers, of which some may be infinite; 0 times infinity is 0, as for no term."""
    both = (np.asarray(x) > 0) & (np.asarray(y) > 0)
    with np.errstate(invalid="ignore"):
        return np.where(both, np.multiply(x, y), 0.0)


def dot(W: np.ndarray, x: np.ndarray) -> np.ndarray:
    """W x for non-negative W and x, with `times` for products."""
    return times(W, x[None, :]).sum(axis=-1) if not np.isfinite(x).all() else W @ x


def product_error(
    W: np.ndarray,
    size: np.ndarray,
    error: np.ndarray,
    u: float,
    bias: np.ndarray | None = None,
    stored: bool = False,
) -> np.ndarray:
    """The rounding of W x + bias, for |x| <= size known up to `error`: what x brings, and what is added.

    `stored`: W and bias are rounded to u first, one more rounding for every term; powers of 2 are not.
    """
    absolute = np.abs(np.asarray(W, dtype=float))
    bias = np.zeros(len(absolute)) if bias is None else np.abs(bias)
    count = roundings(W) + (bias != 0) + stored * (inexact(absolute).any(axis=-1) | inexact(bias))
    return dot(absolute, error) + times(gamma(count, u), dot(absolute, size + error) + bias)


def underflow(W: np.ndarray, size: np.ndarray, precision: Format) -> np.ndarray:
    """What underflow can take from W x + bias, per row: operands of W, of x, and every result."""
    if not precision.least:
        return np.zeros(len(W))
    absolute = np.abs(np.asarray(W, dtype=float))
    results = 2.0 * (absolute > 0).sum(axis=-1) + 2.0
    below = np.where(absolute < precision.least, absolute, 0.0)
    return precision.least * (results + absolute.sum(axis=-1)) + dot(below, size)
