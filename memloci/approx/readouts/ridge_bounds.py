"""The largest distance between a function and a two-layer ReLU network on boxes, proved.

    sup |f(v) - N(v)|,   N(v) = b + <W, v> + sum_k A_k relu(<B_k, v> + c_k)

Branch and bound. On a box with centre o and radius r, a neuron's argument u runs over [l, h], and for any
slope lam in [0, 1]   relu(u) = lam u + [0, max(-lam l, (1 - lam) h)];   lam = h / (h - l) makes that
excess smallest, and 0 where the neuron is decided. With the mean value theorem for f,

    f(v) - N(v)  in  f(o) - N_lam(o) + sum_i (df/dv_i - dN_lam/dv_i) [-r_i, r_i] - sum_k A_k [0, excess_k]

so slopes of f and N cancel before they are bounded. The gap closes like r^2 inside a linear piece of N.
Proved: `bound`, for any weights, also when the budget ends the search. Products of matrices are plain
floats; `_Network.slack` bounds their rounding a priori and is added to every bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from memloci.core.intervals import Interval
from memloci.language.evaluate import enclose_boxes, on_boxes
from memloci.language.expression import Expression

Array = Any  # float64, by shape in the comments: n boxes, d variables, m neurons

EPS = 2.0**-53
CELLS = 2_000_000  # numbers per temporary array; tuned for cache and memory


@dataclass(frozen=True)
class Supremum:
    """bound >= sup |f - N| >= found: the last is met at the point `at`."""

    bound: float
    attained: float
    at: tuple[float, ...]
    boxes: int


# (centre (n, d), radius (n, d), label (n,)) -> f at the centre, the slopes on the box (n, d), f on the box.
Target = Callable[[Array, Array, Array], tuple[Interval, Interval, Interval]]


def expression_target(f: Expression, names: tuple[str, ...]) -> Target:
    """f as branch and bound reads it; labels are not used."""

    def target(centre: Array, radius: Array, label: Array) -> tuple[Interval, Interval, Interval]:
        n = len(centre)
        lo, hi = np.nextafter(centre - radius, -math.inf), np.nextafter(centre + radius, math.inf)
        points = {name: Interval(centre[:, i], centre[:, i]) for i, name in enumerate(names)}
        spans = {name: Interval(lo[:, i], hi[:, i]) for i, name in enumerate(names)}
        value, partials = on_boxes(f, spans)
        at = enclose_boxes(f, points)
        low, high = np.zeros_like(centre), np.zeros_like(centre)
        for i, name in enumerate(names):
            if name in partials:
                low[:, i], high[:, i] = partials[name]
        full = lambda x: np.broadcast_to(np.asarray(x, dtype=float), (n,))
        return (
            Interval(full(at.lo), full(at.hi)),
            Interval(low, high),
            Interval(full(value.lo), full(value.hi)),
        )

    return target


class _Network:
    def __init__(self, W: Array, b: float, B: Array, c: Array, A: Array, reach: Array):
        self.W, self.b, self.B, self.c, self.A = W, b, B, c, A
        self.abs_B = np.abs(B)
        m, d = B.shape
        # Each sum of n terms errs by at most n EPS (1 + 2^-20) times the sum of sizes, whatever its order.
        size = self.abs_B @ reach + np.abs(c)
        mass = float(np.abs(A) @ size + np.abs(W) @ reach + abs(b))
        self.slack = 4 * (m + 3 * d + 16) * EPS * mass + 1e-300
        self.slack_u = 4 * (d + 4) * EPS * size + 1e-300  # (m,) of a neuron's argument, with its radius

    def at(self, v: Array) -> Array:
        return self.b + v @ self.W + np.maximum(v @ self.B.T + self.c, 0.0) @ self.A

    def affine(self, centre: Array, radius: Array) -> tuple[Array, Array, Array, Array, Array]:
        """N_lam at the centre, its slopes, how far N can lie below and above it, and what to split."""
        u, spread = centre @ self.B.T + self.c, radius @ self.abs_B.T + self.slack_u
        low, high = u - spread, u + spread
        lam = np.clip(high / (2 * spread), 0.0, 1.0)
        excess = np.maximum(-lam * low, (1 - lam) * high)
        open_ = (lam > 0) & (lam < 1)
        excess = np.where(open_, excess * (1 + 8 * EPS), 0.0)
        scaled = lam * self.A
        value = self.b + centre @ self.W + np.sum(scaled * u, axis=1)
        below = np.where(open_, excess, 0.0) @ np.minimum(self.A, 0.0)
        above = excess @ np.maximum(self.A, 0.0)
        weight = np.where(open_, np.abs(self.A), 0.0) @ self.abs_B
        return value, self.W + scaled @ self.B, below, above, weight


def supremum(
    target: Target,
    W: Array,
    b: float,
    B: Array,
    c: Array,
    A: Array,
    lo: Array,
    hi: Array,
    *,
    rtol: float = 0.05,
    atol: float = 0.0,
    enough: float = 0.0,
    max_boxes: int = 400_000,
) -> Supremum:
    """sup |f - N| over the boxes lo <= v <= hi, (n, d); each box has its row number as label.

    Stops at a bound within `rtol` (or `atol`) of a value found, or when no box can exceed `enough`, or
    after `max_boxes`; the bound holds in each case.
    """
    lo, hi = np.atleast_2d(np.asarray(lo, float)), np.atleast_2d(np.asarray(hi, float))
    reach = np.max(np.maximum(np.abs(lo), np.abs(hi)), axis=0)
    net = _Network(W, b, B, c, A, reach)
    centre = lo + (hi - lo) / 2
    radius = np.nextafter(np.maximum(hi - centre, centre - lo), math.inf)
    label = np.arange(len(lo))
    attained, at, closed, examined = 0.0, centre[0], 0.0, 0
    while len(centre):
        step = max(1, CELLS // (len(net.A) + 8))
        bounds, split = np.empty(len(centre)), np.empty(len(centre), dtype=int)
        for start in range(0, len(centre), step):
            part = slice(start, start + step)
            bounds[part], split[part], size = _bound_boxes(
                net, target, centre[part], radius[part], label[part]
            )
            k = int(np.argmax(size))
            if size[k] > attained:
                attained, at = float(size[k]), centre[start + k]
        examined += len(centre)
        keep = bounds > max(attained * (1 + rtol), attained + atol, attained + 8 * net.slack, enough)
        keep &= centre.shape[1] > 0  # a constant has no variable along which a box could be split
        if not keep.all():
            closed = max(closed, float(bounds[~keep].max()))
        if examined + 2 * keep.sum() > max_boxes:
            closed = max(closed, float(bounds[keep].max(initial=0.0)))
            break
        centre, radius, label, split = centre[keep], radius[keep], label[keep], split[keep]
        rows = np.arange(len(centre))
        radius = radius.copy()
        half = radius[rows, split] / 2
        radius[rows, split] = half * (1 + 4 * EPS) + 4 * EPS * np.abs(centre[rows, split])
        left, right = centre.copy(), centre.copy()
        left[rows, split] -= half
        right[rows, split] += half
        centre, radius, label = (
            np.concatenate([left, right]),
            np.concatenate([radius, radius]),
            np.concatenate([label, label]),
        )
    return Supremum(closed, attained, tuple(map(float, at)), examined)


def _bound_boxes(
    net: _Network, target: Target, centre: Array, radius: Array, label: Array
) -> tuple[Any, Any, Any]:
    """For each box a bound on |f - N|, the variable to split, and a proved lower bound at the centre."""
    with np.errstate(all="ignore"):
        at, slopes, span = target(centre, radius, label)
        value, gradient, below, above, weight = net.affine(centre, radius)
        middle = slopes.lo / 2 + slopes.hi / 2
        spread = np.maximum(slopes.hi - middle, middle - slopes.lo)
        steep = np.abs(middle - gradient) + spread
        swing = np.sum(steep * radius, axis=1) * (1 + 1e-12)
        upper = at.hi - value + swing - below
        lower = at.lo - value - swing - above
        # Where the slopes are unbounded the values still bound f, if less sharply.
        swing_net = np.sum(np.abs(gradient) * radius, axis=1) * (1 + 1e-12)
        upper = np.fmin(upper, span.hi - value + swing_net - below)
        lower = np.fmax(lower, span.lo - value - swing_net - above)
        bound = np.maximum(upper, -lower)
        size = np.maximum(np.abs(at.hi), np.abs(at.lo))
        bound = bound + net.slack + 1e-14 * (np.abs(bound) + np.where(np.isfinite(size), size, 0.0))
        bound = np.where(np.isnan(bound), np.inf, np.maximum(bound, 0.0))
        exact = net.at(centre)
        miss = np.maximum(at.lo - exact, exact - at.hi) - net.slack
        score = (np.where(np.isfinite(steep), steep, 1e300) + weight) * radius
    split = np.argmax(score, axis=1) if score.shape[1] else np.zeros(len(score), dtype=int)
    return bound, split, np.where(np.isfinite(miss), miss, 0.0)
