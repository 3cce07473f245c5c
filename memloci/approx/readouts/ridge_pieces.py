"""Piecewise linear approximation of a function of one linear form, with a proved error.

    phi(s) ~ alpha + beta s + sum_k A_k relu(s - t_k)   on [lo, hi],   n pieces, n - 1 neurons

Knots equidistribute sqrt|phi''|; values at the knots are shifted so that the error oscillates about 0.
For smooth phi the error tends to (int sqrt|phi''| / 4)^2 / n^2, the best that n pieces can do; for s^2
and pieces of width h it is h^2 / 8. Proved: `proved_error`, from the weights. Tuned: where knots go.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from memloci.core.intervals import Interval
from memloci.language.evaluate import enclose_boxes, evaluate, on_boxes
from memloci.language.expression import Expression

GRID = 4_096  # samples of the curvature; tuned
BALANCE = 12  # rounds of moving knots; tuned
MAX_CELLS = 400_000
FORM = "s"  # the variable of phi


@dataclass(frozen=True)
class Pieces:
    alpha: float
    beta: float
    knots: tuple[float, ...]
    jumps: tuple[float, ...]  # A_k: the slope changes by it at t_k


@dataclass(frozen=True)
class RidgeProfile:
    """phi on [lo, hi], and I = int sqrt|phi''| / 4: n pieces reach about (I / n)^2."""

    phi: Expression
    lo: float
    hi: float
    effort: float
    grid: Any
    share: Any  # of I, left of each grid point

    def pieces(self, n: int) -> Pieces:
        """n pieces; the error is whatever `proved_error` then says."""
        share, best, least = self.share, None, math.inf
        for _ in range(BALANCE if n > 1 else 1):  # errors at inflections and few pieces differ: even them out
            knots = np.interp(np.arange(n + 1) / n, share, self.grid)
            knots[0], knots[-1] = self.lo, self.hi
            y, errors = self._level(knots)
            if errors.max() < least:
                best, least = (knots, y), errors.max()
            where = np.clip(np.searchsorted(knots, self.grid[1:], side="left") - 1, 0, n - 1)
            density = np.diff(share) * np.sqrt(errors / errors.max() + 1e-3)[where]
            share = np.concatenate([[0.0], np.cumsum(density)]) / density.sum()
        assert best is not None
        knots, y = best
        slopes = np.diff(y) / np.diff(knots)
        return Pieces(
            float(y[0] - slopes[0] * knots[0]),
            float(slopes[0]),
            tuple(map(float, knots[1:-1])),
            tuple(map(float, np.diff(slopes))),
        )

    def _level(self, knots: Any) -> tuple[Any, Any]:
        """Values at the knots that balance the error above and below, and the error of each piece."""
        y = _values(self.phi, knots)
        weights = np.linspace(0.0, 1.0, 33)
        s = knots[:-1, None] + np.diff(knots)[:, None] * weights
        exact = _values(self.phi, s)
        gap = y[:-1, None] + np.diff(y)[:, None] * weights - exact
        shift = -(gap.max(axis=1).clip(0.0) + gap.min(axis=1).clip(None, 0.0)) / 2  # what each piece wants
        left, right = np.append(shift[0], shift), np.append(shift, shift[-1])
        y = y + np.where(left * right > 0, (left + right) / 2, 0.0)
        errors = np.abs(y[:-1, None] + np.diff(y)[:, None] * weights - exact).max(axis=1)
        return y, errors + 1e-300


def profile(phi: Expression, lo: float, hi: float) -> RidgeProfile:
    grid = lo + (hi - lo) * (1 - np.cos(np.linspace(0, np.pi, GRID + 1))) / 2  # finer where ends may be steep
    y = _values(phi, grid)
    slopes = np.diff(y) / np.diff(grid)
    bend = np.abs(np.diff(slopes)) / ((grid[2:] - grid[:-2]) / 2)
    density = np.sqrt(np.interp(grid, grid[1:-1], bend)) / 4
    noise = 1e-9 * (np.abs(y).max() + 1e-300)  # rounding looks like curvature on a fine grid
    density = np.maximum(density, math.sqrt(noise) / (hi - lo))
    share = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    return RidgeProfile(phi, lo, hi, float(share[-1]), grid, share / share[-1])


def _values(phi: Expression, s: Any) -> Any:
    with np.errstate(all="ignore"):
        y = np.broadcast_to(np.asarray(evaluate(phi, {FORM: s}, np), dtype=float), np.shape(s))
    return np.where(np.isfinite(y), y, 0.0)


def proved_error(phi: Expression, lo: float, hi: float, pieces: Pieces, *, rtol: float = 0.01) -> float:
    """An upper bound on the largest |phi - pieces| over [lo, hi]; infinite where phi is undefined."""
    order = np.argsort(pieces.knots, kind="stable")
    inside = [k for k in order if lo < pieces.knots[k] < hi]
    slope, value = Fraction(pieces.beta), Fraction(pieces.alpha) + Fraction(pieces.beta) * Fraction(lo)
    for k in order:
        if pieces.knots[k] <= lo:
            slope += Fraction(pieces.jumps[k])
            value += Fraction(pieces.jumps[k]) * (Fraction(lo) - Fraction(pieces.knots[k]))
    starts, slopes, values = [lo], [slope], [value]
    for k in inside:  # exact: the network's own corners
        t = Fraction(pieces.knots[k])
        value += slope * (t - Fraction(starts[-1]))
        slope += Fraction(pieces.jumps[k])
        starts.append(pieces.knots[k])
        slopes.append(slope)
        values.append(value)
    start = np.array(starts)
    end = np.append(start[1:], hi)
    rise, base = _span(slopes), _span(values)
    cells = max(4, 4096 // len(start))
    cut = np.linspace(0.0, 1.0, cells + 1)
    left = start[:, None] + (end - start)[:, None] * cut[:-1]
    right = np.concatenate([left[:, 1:], end[:, None]], axis=1)
    piece = np.repeat(np.arange(len(start)), cells)
    left, right = left.ravel(), right.ravel()
    attained, closed, examined = 0.0, 0.0, 0
    while True:
        centre = left + (right - left) / 2
        line = lambda s, piece=piece: _line(s, piece, start, rise, base)
        with np.errstate(all="ignore"):
            at = _minus(enclose_boxes(phi, {FORM: Interval(centre, centre)}), line(Interval(centre, centre)))
            value_span, partials = on_boxes(phi, {FORM: Interval(left, right)})
            slope_span = partials.get(FORM, Interval(0.0, 0.0))
            radius = np.nextafter(np.maximum(right - centre, centre - left), math.inf)
            steep = np.maximum(
                np.abs(np.nextafter(slope_span.hi - rise.lo[piece], math.inf)),
                np.abs(np.nextafter(slope_span.lo - rise.hi[piece], -math.inf)),
            )
            swing = np.nextafter(steep * radius, math.inf)
            span = _minus(value_span, line(Interval(left, right)))
            upper = np.fmin(np.nextafter(at.hi + swing, math.inf), span.hi)
            lower = np.fmax(np.nextafter(at.lo - swing, -math.inf), span.lo)
        bound = np.maximum(np.maximum(upper, -lower), 0.0)
        bound = np.where(np.isnan(bound), np.inf, bound)
        met = np.maximum(at.lo, -at.hi)
        attained = max(attained, float(np.max(met[np.isfinite(met)], initial=0.0)))
        examined += len(centre)
        keep = bound > attained * (1 + rtol) + 1e-15 * float(np.max(np.abs(base.hi)))
        closed = max(closed, float(bound[~keep].max(initial=0.0)))
        if not keep.any():
            return closed
        if examined > MAX_CELLS:
            return max(closed, float(bound[keep].max()))
        left, right, piece, centre = left[keep], right[keep], piece[keep], centre[keep]
        a, b = left + (centre - left) / 2, centre + (right - centre) / 2
        left, right = np.concatenate([left, a, centre, b]), np.concatenate([a, centre, b, right])
        piece = np.tile(piece, 4)


def _span(numbers: list[Fraction]) -> Interval:
    near = np.array([float(x) for x in numbers])
    return Interval(np.nextafter(near, -math.inf), np.nextafter(near, math.inf))


def _minus(x: Interval, y: Interval) -> Interval:
    return Interval(np.nextafter(x.lo - y.hi, -math.inf), np.nextafter(x.hi - y.lo, math.inf))


def _line(s: Interval, piece: Any, start: Any, rise: Interval, base: Interval) -> Interval:
    """base + rise (s - start), with s right of start."""
    near = np.maximum(np.nextafter(s.lo - start[piece], -math.inf), 0.0)
    far = np.maximum(np.nextafter(s.hi - start[piece], math.inf), 0.0)
    low = np.minimum(rise.lo[piece] * near, rise.lo[piece] * far)
    high = np.maximum(rise.hi[piece] * near, rise.hi[piece] * far)
    lo = np.nextafter(base.lo[piece] + np.nextafter(low, -math.inf), -math.inf)
    return Interval(lo, np.nextafter(base.hi[piece] + np.nextafter(high, math.inf), math.inf))
