"""What the last neurons and the readout round where everything they read is a symbol: combination by combination.

    y = W_U (X + A relu(B X + c)) + b_U,      X = symbols + e,  |e| <= E

A bound for all inputs at once takes every neuron for awake and as large as it ever is. Here each combination of symbols has
its own numbers. Neurons that sleep there write exactly 0. And numbers near a grid are rounded to it: let all terms of a sum
be multiples of a power of 2, g, up to disturbances that add up to d, let all sizes add up to less than g / (4 u), and let
d < 0.45 u g. Every partial sum is then P + d', where P is a multiple of g and a number of the precision, and |d'| <= 1.01 d.
If P is not 0, then |P| >= g, so that d' is below half of the spacing at P, and the result is P: the disturbance is gone. If
P is 0, d' is rounded by u of itself. So the computed sum is off by no more than the disturbances themselves:

    |computed - exact| <= 1.1 d,      0 where the symbols arrive exactly.
"""

import math

import numpy as np

from memloci.certify.affine_forms import grid_of as grid
from memloci.certify.readout import ReadoutWeights, Slots, Variables
from memloci.certify.rounding import Format, gamma, inexact, times, underflow
from memloci.certify.slacks import OWN, ROUNDED, own_product

CHUNK = 512  # combinations at once


def representable(W: np.ndarray, u: float) -> np.ndarray:
    """Whether each number is one of the precision."""
    return np.abs(W) * u <= grid(W)


def at_symbols(
    o: int, readout: ReadoutWeights, slots: Slots, variables: Variables, precision: Format, stored: bool
) -> float:
    """What FFN and readout round of output o where each slot holds a symbol up to its error, in the worst combination;
    infinite where a slot holds anything else."""
    finite = all(piece.is_point for name in slots.names for piece in variables.domains[name])
    if not finite or not np.isfinite(slots.errors).all():
        return math.inf
    live = readout.live(o)
    parts = ReadoutWeights(
        readout.B[live], readout.c[live], readout.A[:, live], readout.W_U[[o]], readout.b_U[[o]]
    )  # all that reaches this output
    symbols, _ = variables.boxes(slots.names)
    columns, worst = list(slots.coordinates), 0.0
    for start in range(0, len(symbols), CHUNK):
        boxes = symbols[start : start + CHUNK]
        middle, radius = np.zeros((2, len(boxes), readout.W_U.shape[1]))
        middle[:, columns] = boxes * slots.factors
        # The scale of a slot times a symbol was rounded here.
        radius[:, columns] = np.abs(slots.factors) * slots.errors
        radius[:, columns] += np.where(np.abs(slots.factors) == 1, 0.0, 2 * OWN * np.abs(middle[:, columns]))
        worst = max(worst, float(_boxes(parts, middle, radius, precision, stored).max()))
    return worst


def _boxes(
    r: ReadoutWeights, middle: np.ndarray, radius: np.ndarray, precision: Format, stored: bool
) -> np.ndarray:
    u, on = precision.u, grid(middle)
    wrong = np.zeros_like(middle)  # what was rounded so far; `radius` holds it too
    if len(r.c):
        error, on_argument = _product(r.B, middle, radius, on, precision, stored, r.c)
        argument = middle @ r.B.T + r.c
        sizes = np.abs(middle) @ np.abs(r.B).T + np.abs(r.c)
        spread = radius @ np.abs(r.B).T + error + own_product(r.B.shape[1]) * sizes
        awake = argument + spread > 0
        value, spread = np.where(awake, np.maximum(argument, 0.0), 0.0), np.where(awake, spread, 0.0)
        rounded, on_added = _product(
            r.A, value, spread, np.where(value > 0, on_argument, np.inf), precision, stored
        )
        absolute = np.abs(r.A).T
        wrong = np.where(awake, error, 0.0) @ absolute + rounded
        off = spread @ absolute + rounded + own_product(len(r.c)) * (value @ absolute)
        precision_holds = precision.represents(value + spread, value @ absolute + off)
        added, writes = value @ r.A.T, (value + spread) @ absolute > 0
        both = writes & ((middle != 0) | (radius > 0))
        middle, radius = middle + added, radius + off
        joined = np.where(both, ROUNDED * u * (np.abs(middle) + radius) + precision.least, 0.0)
        wrong, radius = wrong + joined, radius + joined
        on = np.where(both, 0.0, np.where(writes, on_added, on))
        if not precision_holds:
            return np.full((len(middle), len(r.b_U)), np.inf)
    error, _ = _product(r.W_U, middle, radius, on, precision, stored, r.b_U)
    total = (np.abs(middle) + radius) @ np.abs(r.W_U).T + np.abs(r.b_U) + error
    return np.where(precision.represents(total), wrong @ np.abs(r.W_U).T + error, np.inf)


def _product(
    W: np.ndarray,
    middle: np.ndarray,
    radius: np.ndarray,
    on: np.ndarray,
    precision: Format,
    stored: bool,
    bias: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(what W x + bias rounds, the grid of its value at `middle`), for x within `radius` of `middle`, on the grid `on`."""
    u, absolute = precision.u, np.abs(W)
    b = np.zeros(len(W)) if bias is None else bias
    size = np.abs(middle) + radius
    used = size > 0
    additions = np.maximum(used @ (W != 0).T.astype(float) + (b != 0) - 1, 0)
    rounds = used @ inexact(W).T.astype(float) > 0
    products = rounds + 1.0 * (stored & (rounds | inexact(b)))
    sizes = size @ absolute.T + np.abs(b)
    plain = times(gamma(additions + products, u), sizes)
    at = np.broadcast_to(grid(b), sizes.shape).copy()  # of every term, and so of every partial sum
    weight_grid = grid(W)
    for j in np.flatnonzero((W != 0).any(axis=0) & used.any(axis=0)).tolist():
        at = np.minimum(at, np.where(W[:, j] == 0, np.inf, weight_grid[:, j] * on[:, j, None]))
    disturbance = radius @ absolute.T
    near = (
        (4 * sizes * u < at)
        & (disturbance < 0.45 * u * at)
        & (representable(W, u).all(axis=1) & representable(b, u))
    )
    near &= gamma(additions + 1, u) < 0.01
    error = np.where(near, np.minimum(plain, 1.1 * disturbance), plain)
    below = np.where((W != 0).any(axis=1), underflow(W, size.max(axis=0), precision), 0.0)
    return error + below, at
