"""sup |f - N| on boxes where f is affine and no neuron changes its sign: exact, in rational arithmetic.

    f(v) - N(v) = d_0 + <d, v>,      sup |f - N| = max over both signs of  +-d_0 + sum_i max(+-d_i lo_i, +-d_i hi_i)

Theorem. On a box lo <= v <= hi let f be affine (or a number that an interval encloses), and let each neuron's argument,
affine as well, have no two signs there. Then N is affine on the box, and the supremum is the one above: an affine function
is largest at a vertex, and each variable chooses its end by itself. All of it is computed in fractions and rounded up once.

Branch and bound (ridge_bounds.py) bounds what float64 loses of all neurons together, awake or not. For a staircase, whose
neurons cancel, or for a linear readout, that is hundreds of units in the last place of float64 where the truth is 0.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from memloci.approx.readouts.ridge_exact import Affine, affine
from memloci.core.intervals import point, up
from memloci.language.evaluate import enclose
from memloci.language.expression import Expression, variables

MOST_PRODUCTS = 60_000  # tuned: fractions multiplied before branch and bound is the quicker way

Weights = tuple[
    np.ndarray, float, np.ndarray, np.ndarray, np.ndarray
]  # W, b, B, c, A of N, as in ridge_bounds.py


def affine_supremum(
    f: Expression,
    names: Sequence[str],
    weights: Weights,
    lo: np.ndarray,
    hi: np.ndarray,
    symbols: np.ndarray | None = None,
) -> float:
    """sup |f - N| over the boxes lo <= v <= hi, (n, d), or infinity where this rule does not apply.

    `symbols` (n, d): where it is not NaN, f reads this number while the network reads the box around it. Without it f reads
    the variables whose box is a point as numbers.
    """
    W, b, B, c, A = weights
    given = np.where(lo == hi, lo, np.nan) if symbols is None else symbols
    awake = _awake(B, c, lo, hi) & (A != 0)[None, :]
    products = (awake.sum() + len(lo)) * (len(names) + 1)
    if (
        not len(lo)
        or products > MOST_PRODUCTS
        or not all(np.isfinite(part).all() for part in (W, b, B, c, A))
    ):
        return math.inf
    exact = [
        (Fraction(float(A[k])), _form(names, B[k], float(c[k]))) if awake[:, k].any() else None
        for k in range(len(c))
    ]
    direct, worst = _form(names, W, float(b)), Fraction(0)
    for i in range(len(lo)):
        box = {name: (Fraction(float(lo[i, j])), Fraction(float(hi[i, j]))) for j, name in enumerate(names)}
        symbol = {name: float(given[i, j]) for j, name in enumerate(names) if not math.isnan(given[i, j])}
        target = _target(f, symbol)
        if target is None:
            return math.inf
        (f_affine, half), N = target, direct
        for k in np.flatnonzero(awake[i]).tolist():
            gain, form = exact[k] or (Fraction(0), Affine())
            low, high = _span(form, box)
            if low < 0 < high:
                return math.inf
            if high > 0:
                N = N + form.times(gain)
        worst = max(worst, *(abs(end) + half for end in _span(f_affine - N, box)))
    try:
        return up(float(worst)) if worst else 0.0
    except OverflowError:
        return math.inf


def _awake(B: np.ndarray, c: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """(n, m): neurons whose argument may be above 0 on a box; the others surely are not."""
    if not len(c):
        return np.zeros((len(lo), 0), dtype=bool)
    most = np.maximum(B, 0.0) @ hi.T + np.minimum(B, 0.0) @ lo.T + c[:, None]
    size = np.abs(B) @ np.maximum(np.abs(lo), np.abs(hi)).T + np.abs(c)[:, None]
    return (most + 4 * (B.shape[1] + 4) * 2.0**-53 * size + 1e-300 >= 0).T


def _form(names: Sequence[str], row: np.ndarray, constant: float) -> Affine:
    a = {name: Fraction(float(w)) for name, w in zip(names, row, strict=True) if w}
    return Affine(a, Fraction(constant))


def _target(f: Expression, symbols: Mapping[str, float]) -> tuple[Affine, Fraction] | None:
    """(g, h) with |f - g| <= h once the symbols are known."""
    exact = affine(f, {name: Fraction(value) for name, value in symbols.items()})
    if exact is not None:
        return exact, Fraction(0)
    if not variables(f) <= symbols.keys():
        return None
    value = enclose(f, {name: point(x) for name, x in symbols.items()})
    if not math.isfinite(value.lo) or not math.isfinite(value.hi):
        return None
    low, high = Fraction(value.lo), Fraction(value.hi)
    return Affine(b=(low + high) / 2), (high - low) / 2


def _span(form: Affine, box: Mapping[str, tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction]:
    low = high = form.b
    for name, slope in form.a.items():
        ends = slope * box[name][0], slope * box[name][1]
        low, high = low + min(ends), high + max(ends)
    return low, high
