"""ReLU fits of functions that no structure helps with, of up to four variables.

    f(v) ~ b + <W, v> + sum_k A_k relu(<B_k, v> + c_k)

Orthogonal greedy selection from a large dictionary of ridges, which attains the Barron rate m^-1/2 and
better, then the least maximum over a dense sample by linear programming. A proposal only: ridge_bounds.py
proves what it is worth.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from memloci.language.evaluate import evaluate
from memloci.language.expression import Expression

Array = Any

# Tuned: quality against seconds.
DIRECTIONS = {1: 1, 2: 48, 3: 60, 4: 80}
OFFSETS = 20
SAMPLES = {1: 800, 2: 1_200, 3: 1_600, 4: 2_000}
DENSE = 8_000
LP_WIDTH = 72  # beyond it reweighted least squares is quicker
MAX_FIT_WIDTH = 512
ROUNDS = 4  # of adding points where the fit is worst
CLIMBERS = 300


@dataclass(frozen=True)
class RidgeFit:
    W: Array
    b: float
    B: Array
    c: Array
    A: Array


class Greedy:
    """One greedy run; `fit(m)` uses its first m ridges."""

    def __init__(self, f: Expression, names: tuple[str, ...], lo: Array, hi: Array, m: int, seed: int = 0):
        d = len(names)
        rng = np.random.default_rng(seed)
        self.centre, self.radius = (lo + hi) / 2, np.maximum((hi - lo) / 2, 1e-12)
        near_edges = rng.beta(0.6, 0.6, size=(DENSE, d)) * 2 - 1
        corners = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=d)))
        self.points = np.concatenate([corners, near_edges])
        self.f, self.names, self.lo, self.hi = f, names, lo, hi
        self.y = self._values(self.points)
        self.few = np.arange(min(SAMPLES[d], len(self.points)))
        self.directions, self.offsets = _dictionary(d, rng)
        self.order = self._select(min(m, MAX_FIT_WIDTH))

    def _columns(self, points: Array, chosen: Array) -> Array:
        ridges = np.maximum(points @ self.directions[chosen].T + self.offsets[chosen], 0.0)
        return np.concatenate([np.ones((len(points), 1)), points, ridges], axis=1)

    def _select(self, m: int) -> Array:
        points, y = self.points[self.few], self.y[self.few]
        d = points.shape[1]
        G = self._columns(points, np.arange(len(self.offsets)))
        Q, _ = np.linalg.qr(G[:, : d + 1])
        rest = y - Q @ (Q.T @ y)
        G = G[:, d + 1 :]
        G = np.ascontiguousarray((G - Q @ (Q.T @ G)).astype(np.float32).T)  # (ridges, points)
        residual = (rest / max(float(np.abs(rest).max()), 1e-300)).astype(np.float32)
        norms = np.einsum("ij,ij->i", G, G)
        floor = 1e-5 * norms
        chosen: list[int] = []
        for _ in range(min(m, len(norms))):
            gain = (G @ residual) ** 2 / np.where(norms > floor, norms, np.inf)
            k = int(np.argmax(gain))
            if gain[k] <= 1e-12:
                break
            chosen.append(k)
            q = G[k] / np.linalg.norm(G[k])
            residual = residual - q * (q @ residual)
            shadow = G @ q
            G -= np.outer(shadow, q)  # what remains of every ridge once q is spanned
            norms = np.maximum(norms - shadow**2, 0.0)
            norms[k] = 0.0
        return np.array(chosen, dtype=int)

    def fit(self, m: int) -> tuple[RidgeFit, float]:
        """The first m ridges, and the largest error found."""
        chosen = self.order[:m]
        points, y = self.points, self.y
        x, error, worst = np.zeros(1 + points.shape[1] + len(chosen)), math.inf, math.inf
        for _ in range(ROUNDS):
            x = _minimax(self._columns(points, chosen), y)
            error = float(np.abs(self._columns(points, chosen) @ x - y).max())
            more = self._climb(points, y, chosen, x)
            values = self._values(more)
            worst = float(np.abs(self._columns(more, chosen) @ x - values).max())
            points, y = np.concatenate([points, more]), np.concatenate([y, values])
            if worst <= 1.1 * error:
                break
        d = points.shape[1]
        B = self.directions[chosen] / self.radius
        c = self.offsets[chosen] - B @ self.centre
        W = x[1 : d + 1] / self.radius
        return RidgeFit(W, float(x[0] - W @ self.centre), B, c, x[d + 1 :]), max(error, worst)

    def _values(self, points: Array) -> Array:
        where = np.clip(self.centre + points * self.radius, self.lo, self.hi)
        values = evaluate(self.f, {n: where[:, i] for i, n in enumerate(self.names)}, np)
        return np.broadcast_to(np.asarray(values, dtype=float), (len(where),)).copy()

    def _climb(self, points: Array, y: Array, chosen: Array, x: Array) -> Array:
        """Points between the samples where the error is larger, by random steps from the worst samples."""
        rng = np.random.default_rng(0)
        error = lambda v: np.abs(self._columns(v, chosen) @ x - self._values(v))
        best = points[np.argsort(-np.abs(self._columns(points, chosen) @ x - y))[:CLIMBERS]]
        for step in np.geomspace(0.3, 0.01, 8):
            trial = np.clip(best[:, None] + step * rng.normal(size=(len(best), 6, best.shape[1])), -1.0, 1.0)
            trial = np.concatenate([best[:, None], trial], axis=1)
            errors = error(trial.reshape(-1, best.shape[1])).reshape(len(best), 7)
            best = trial[np.arange(len(best)), errors.argmax(axis=1)]
        return best


def _dictionary(d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    if d == 1:
        directions = np.ones((1, 1))
    elif d == 2:
        angle = np.arange(DIRECTIONS[2]) * np.pi / DIRECTIONS[2]
        directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    else:
        small = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=d)))
        lead = np.array([next((x for x in row if x), 0.0) for row in small])
        directions = np.concatenate([small[lead > 0], rng.normal(size=(DIRECTIONS[d], d))])
        directions = directions / np.linalg.norm(directions, axis=1)[:, None]
    count = OFFSETS if d > 1 else 256
    reach = np.abs(directions).sum(axis=1)
    t = np.linspace(-1.0, 1.0, count + 2)[1:-1]
    offsets = (reach[:, None] * t).ravel()
    return np.repeat(directions, count, axis=0), offsets


def _minimax(C: Array, y: Array) -> Array:
    scale = np.linalg.norm(C, axis=0) / math.sqrt(len(C))
    C = C / scale
    n = C.shape[1]
    ridge = 1e-7 * np.eye(n) * math.sqrt(len(C))  # keeps the weights, and so the certificate, small
    x = np.linalg.lstsq(np.concatenate([C, ridge]), np.concatenate([y, np.zeros(n)]), rcond=None)[0]
    if n > LP_WIDTH:
        return _reweighted(C, y, x, ridge) / scale
    from scipy.optimize import linprog

    best, least = x, float(np.abs(C @ x - y).max())
    active: set[int] = set()
    for _ in range(8):  # exchange: solve on a few points, add those where the solution is worst
        error = C @ x - y
        active |= set(np.argsort(-np.abs(error))[: 3 * n + 30].tolist())
        rows = np.array(sorted(active))
        ones = np.ones((len(rows), 1))
        solved = linprog(
            np.append(np.zeros(n), 1.0),
            A_ub=np.concatenate([np.hstack([C[rows], -ones]), np.hstack([-C[rows], -ones])]),
            b_ub=np.concatenate([y[rows], -y[rows]]),
            bounds=[(-1e4, 1e4)] * n + [(0, None)],
            method="highs",
        )
        if solved.x is None:
            break
        x = solved.x[:n]
        worst = float(np.abs(C @ x - y).max())
        if worst < least:
            best, least = x, worst
        if worst <= 1.02 * solved.x[n]:
            break
    return best / scale


def _reweighted(C: Array, y: Array, x: Array, ridge: Array) -> Array:
    """Lawson's iteration: weights grow where the error is large."""
    best, least = x, float(np.abs(C @ x - y).max())
    weight = np.ones(len(y))
    for _ in range(12):
        error = np.abs(C @ x - y)
        weight = weight * (error / error.max() + 0.05)
        weight = weight / weight.mean()
        root = np.sqrt(weight)[:, None]
        gram = (C * root).T @ (C * root) + ridge.T @ ridge
        x = np.linalg.solve(gram, (C * weight[:, None]).T @ y)
        worst = float(np.abs(C @ x - y).max())
        if worst < least:
            best, least = x, worst
    return best
