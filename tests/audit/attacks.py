"""Searches for the input on which a model errs most: population search, sign flips and gradients.

    err(X) = max over t and o of |TF_t(X)_o - H_t(X)_o|,   H from the oracle

The model is a function of many sequences at once. All three searches keep to the channels' ranges, in the model's numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.audit.oracle import Channel, Oracle

Model = Callable[[np.ndarray], np.ndarray]  # (N, n, channels) -> (N, n, outputs), in float64
Slopes = Callable[[np.ndarray, int, int], np.ndarray]  # d output o at t / d x of one sequence, (n, channels)

GENERATIONS = 4
FLIPS = 2


@dataclass
class Attack:
    """The worst sequence so far; `x` has the task's own numbers, of which the model reads the nearest."""

    oracle: Oracle
    model: Model
    dtype: np.dtype
    N: int
    n: int
    rng: np.random.Generator
    error: float = -1.0
    x: np.ndarray | None = None
    t: int = 0
    o: int = 0
    y: float = 0.0
    sign: float = 1.0
    range: float = 0.0  # the largest |H| seen
    sequences: int = 0
    by: str = ""

    def run(self, slopes: Slopes | None = None) -> None:
        population = self._drawn(self.N)
        for _ in range(GENERATIONS):
            errors = np.abs(self.judge(population, "population")).max(axis=(1, 2))
            best = population[np.argsort(-errors)[: max(4, self.N // 8)]]
            population = self._children(best)
        for _ in range(FLIPS):
            self._flip_signs()
        if slopes is not None:
            for _ in range(3):
                self._ascend(slopes)

    def judge(self, x: np.ndarray, by: str) -> np.ndarray:
        """TF - H of every sequence, (N, n, outputs); the worst is kept."""
        y, H = self.model(x.astype(self.dtype)), self.oracle.outputs(x)
        self.sequences += len(x)
        self.range = max(self.range, float(np.abs(H).max()))
        signed = y - H
        apart = np.where(np.isfinite(signed), np.abs(signed), np.inf)
        k, t, o = (int(i) for i in np.unravel_index(np.argmax(apart), apart.shape))
        if apart[k, t, o] > self.error:
            self.error, self.x, self.t, self.o, self.by = float(apart[k, t, o]), x[k].copy(), t, o, by
            self.y, self.sign = float(y[k, t, o]), 1.0 if signed[k, t, o] > 0 else -1.0
        return signed

    # Draws.

    def _drawn(self, N: int) -> np.ndarray:
        """Uniform tokens, ends of ranges, constants, and single tokens among the least ones."""
        parts = []
        for channel in self.oracle.channels:
            pieces = np.array(channel.pieces)
            which = self.rng.integers(len(pieces), size=(N, self.n))
            lo, hi = pieces[which, 0], pieces[which, 1]
            share = self.rng.random((N, self.n))
            ends = self.rng.random(N)[:, None] < 0.5
            share = np.where(ends, np.rint(share), share)
            parts.append(inside(lo + (hi - lo) * share, channel, self.dtype))
        x = np.stack(parts, axis=2)
        still = self.rng.random(N) < 0.15
        x[still] = x[still, :1]
        sparse = np.flatnonzero(self.rng.random(N) < 0.15)
        if len(sparse):
            calm = np.array(
                [min((p for piece in c.pieces for p in piece), key=abs) for c in self.oracle.channels]
            )
            calm = np.array(
                [
                    inside(np.array([v]), c, self.dtype)[0]
                    for v, c in zip(calm, self.oracle.channels, strict=True)
                ]
            )
            keep = self.rng.random((len(sparse), self.n, 1)) < 0.1
            x[sparse] = np.where(keep, x[sparse], calm)
        return x

    def _children(self, best: np.ndarray) -> np.ndarray:
        """Mixtures of two of the best, with some tokens drawn anew and some moved to the other end."""
        one, two = (best[self.rng.integers(len(best), size=self.N)] for _ in range(2))
        cut = self.rng.integers(0, self.n + 1, (self.N, 1))
        child = np.where((np.arange(self.n)[None] < cut)[:, :, None], one, two)
        anew = self.rng.random((self.N, self.n, 1)) < self.rng.choice([0.02, 0.1, 0.4], (self.N, 1, 1))
        child = np.where(anew, self._drawn(self.N), child)
        turn = self.rng.random(child.shape) < self.rng.choice([0.0, 0.1], (self.N, 1, 1))
        child = np.where(turn, self._opposite(child), child)
        back = self.rng.integers(0, 3)
        child = np.roll(child, back, axis=1)
        child[: len(best)] = best
        return child

    def _opposite(self, x: np.ndarray) -> np.ndarray:
        """Every token at the far end of its channel."""
        parts = []
        for c, channel in enumerate(self.oracle.channels):
            lo, hi = channel.pieces[0][0], channel.pieces[-1][1]
            far = np.where(x[..., c] - lo < hi - x[..., c], hi, lo)
            parts.append(inside(far, channel, self.dtype))
        return np.stack(parts, axis=-1)

    # Sign flips: every token to its other end, one at a time; then all at once that made the error larger.

    def _flip_signs(self) -> None:
        assert self.x is not None
        base, t, o = self.x, self.t, self.o
        ends, sign, now = (self._ends(0), self._ends(1)), self.sign, self.error
        tokens = [(s, c) for s in range(t + 1) for c in range(base.shape[1])]
        chosen, gains = base.copy(), []
        for start in range(0, len(tokens), self.N // 2):
            batch = np.repeat(base[None], self.N, axis=0)
            part = tokens[start : start + self.N // 2]
            for k, (s, c) in enumerate(part):
                batch[2 * k, s, c], batch[2 * k + 1, s, c] = ends[0][c], ends[1][c]
            found = (sign * self.judge(batch, "sign flips")[:, t, o]).astype(float)
            for k, (s, c) in enumerate(part):
                side = int(found[2 * k + 1] > found[2 * k])
                gain = found[2 * k + side] - now
                gains.append((gain, s, c, ends[side][c]))
        together = []
        for gain, s, c, end in sorted(gains, key=lambda g: -g[0]):
            if gain > 0:
                chosen = chosen.copy()
                chosen[s, c] = end
                together.append(chosen)
        if together:
            few = [together[k] for k in np.unique(np.linspace(0, len(together) - 1, self.N).astype(int))]
            self.judge(self._filled(np.array(few)), "sign flips")

    def _ends(self, side: int) -> list[float]:
        ends = [(c.pieces[0][0], c.pieces[-1][1])[side] for c in self.oracle.channels]
        return [
            float(inside(np.array([e]), c, self.dtype)[0])
            for e, c in zip(ends, self.oracle.channels, strict=True)
        ]

    def _filled(self, x: np.ndarray) -> np.ndarray:
        """N sequences: one program serves every search."""
        return np.concatenate([x, np.repeat(x[-1:], max(self.N - len(x), 0), axis=0)])

    # Gradients of the model, and differences of the oracle.

    def _ascend(self, slopes: Slopes) -> None:
        assert self.x is not None
        base, t, o, sign = self.x, self.t, self.o, self.sign
        gradient = slopes(base.astype(self.dtype), t, o) - self._target_slopes(base, t, o)
        lo, hi = np.array(self._ends(0)), np.array(self._ends(1))
        goal = np.where(sign * gradient > 0, hi, lo)
        goal = np.where(gradient == 0, base, goal)
        shares = np.linspace(0.1, 1.0, 10)[:, None, None]
        steps = base + shares * (goal - base)
        order = np.argsort(-np.abs(gradient), axis=None)
        partial = []
        for count in (1, 2, 4, 8, 16, len(order)):
            one = base.copy().reshape(-1)
            one[order[:count]] = goal.reshape(-1)[order[:count]]
            partial.append(one.reshape(base.shape))
        x = np.concatenate([steps, np.array(partial)])
        x = np.stack(
            [nearest(x[..., c], channel, self.dtype) for c, channel in enumerate(self.oracle.channels)],
            axis=-1,
        )
        self.judge(self._filled(x), "gradient")

    def _target_slopes(self, x: np.ndarray, t: int, o: int) -> np.ndarray:
        h = 1e-6
        tokens = [(s, c) for s in range(t + 1) for c in range(x.shape[1])]
        batch = np.repeat(x[None].astype(float), 2 * len(tokens), axis=0)
        for k, (s, c) in enumerate(tokens):
            batch[2 * k, s, c] += h
            batch[2 * k + 1, s, c] -= h
        H = self.oracle.outputs(batch)[:, t, o]
        found = np.zeros(x.shape)
        for k, (s, c) in enumerate(tokens):
            found[s, c] = float(H[2 * k] - H[2 * k + 1]) / (2 * h)
        return np.where(np.isfinite(found), found, 0.0)


def inside(x: np.ndarray, channel: Channel, dtype: np.dtype) -> np.ndarray:
    """Numbers of the dtype in the pieces that x lies in; a symbol stays itself, whether it is one or not."""
    x = np.asarray(x, dtype=float)
    if channel.finite:
        return x
    found, (lo, hi) = x.astype(dtype), _limits(channel, dtype)
    pieces = np.array(channel.pieces)
    piece = np.argmin(np.maximum(pieces[:, 0] - x[..., None], x[..., None] - pieces[:, 1]), axis=-1)
    return np.clip(found, lo[piece], hi[piece]).astype(float)


def nearest(x: np.ndarray, channel: Channel, dtype: np.dtype) -> np.ndarray:
    """Any number to the nearest that the channel has."""
    pieces = np.array(channel.pieces)
    clipped = np.clip(x[..., None], pieces[:, 0], pieces[:, 1])
    best = np.argmin(np.abs(clipped - x[..., None]), axis=-1)
    return inside(np.take_along_axis(clipped, best[..., None], axis=-1)[..., 0], channel, dtype)


def _limits(channel: Channel, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest number of the dtype in every piece."""
    lo, hi = (np.array([piece[side] for piece in channel.pieces]) for side in (0, 1))
    low, high = lo.astype(dtype), hi.astype(dtype)
    low = np.where(low.astype(float) < lo, np.nextafter(low, dtype.type(np.inf)), low)
    high = np.where(high.astype(float) > hi, np.nextafter(high, dtype.type(-np.inf)), high)
    return low, high
