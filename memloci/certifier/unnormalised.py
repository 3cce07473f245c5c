"""Heads without normalisation, whose query scales a fixed kernel: weights e^{q_h(x_t)} e^{p_h phi(z)}.

    sum_h W_O W_V e^{q_h} sum_z e^{p_h phi(z)} x_{t-z}:   for one value of q, a kernel sum K_q = sum_h g_h w_h

with g_h = e^{q_h} Z_h times the gains, Z_h = sum_z e^{p_h phi(z)}. Cases with the same q share K_q. Its taps
stay what they are, the rest goes to the error as an l1 norm over all lags (kernels.py), in Arb; a window only
leaves out what is meant to be 0. Heads cancel
in K_q; what they round, before anything cancels, is paid for by the mass sum_h |g_h|.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from flint import arb

from memloci.approx.rpe import LIN
from memloci.certifier.anywhere import Anywhere, Place
from memloci.certifier.carried import Carried, folded, nothing
from memloci.certifier.kernels import SumKernels, Taps
from memloci.certifier.rounding import LENGTH, LIBRARY, Format, dot, gamma, lost, times
from memloci.certifier.signals import above


@dataclass(frozen=True)
class ScaledKernels(SumKernels):
    """lin or log heads without a normaliser; `content` bounds |q_h|, which is rounded when it is added."""

    content: np.ndarray = field(default_factory=lambda: np.zeros(0))
    window: int | None = None

    @property
    def lags(self) -> float:
        return LENGTH if self.window is None else float(self.window)

    def sum_error(self, precision: Format, stored: bool) -> np.ndarray:
        """A window makes the sum short."""
        error = super().sum_error(precision, stored)
        if self.window is None:
            return error
        return np.minimum(
            error, gamma(self.window - 1, precision.u) * (1 + self.weight_error(precision, stored))
        )

    def _slower(self, u: float, stored: bool) -> tuple[np.ndarray, np.ndarray]:
        """z, the product p phi(z), the sum with q, then the library's exp; no normaliser."""
        p = self.p.astype(float)
        functions = 2.2 if self.rpe is LIN else LIBRARY + 2.7
        a = (functions + 1.1 + 1.1 * stored) * u * p
        b = 1.1 * u * (LIBRARY + 1 + self.content) + (a if self.rpe is LIN else 0.0)
        return a, b


@dataclass(frozen=True)
class Asked:
    """What the cases ask of the heads: cases with equal rows of `keys` ask the same."""

    keys: np.ndarray  # (n, anything)
    error: np.ndarray  # (n, H), of the query terms
    exactly: Callable[[int], list[arb]]  # case -> its query terms


@dataclass(frozen=True)
class Sums:
    """A layer of such heads. `known` keeps the kernels that were proved: precisions share them."""

    kernels: SumKernels
    W_V: np.ndarray  # (H, d_v, D)
    W_O: np.ndarray  # (H, D, d_v)
    window: int | None = None
    known: dict[bytes, Anywhere] = field(default_factory=dict)

    @property
    def written(self) -> np.ndarray:
        return np.flatnonzero((self.W_O != 0).any(axis=(0, 2)))

    def recall(
        self,
        asked: Asked,
        past: Anywhere,
        like: Carried,
        shape: tuple[int, int],
        precision: Format,
        stored: bool,
    ) -> Carried:
        """What all heads together write."""
        D, result = self.W_O.shape[1], nothing(like.cases, self.W_O.shape[1])
        const, coef, E = result.const, result.coef, result.E
        _, first, which = np.unique(asked.keys, axis=0, return_index=True, return_inverse=True)
        which = np.asarray(which).reshape(len(asked.keys))
        for k, one in enumerate(first.tolist()):
            rows = np.flatnonzero(which == k)
            cases, q = like.cases.take(rows), asked.exactly(one)
            kernel = self._kernel(asked.keys[one].tobytes(), q, past)
            parts = kernel.recalled(np.zeros(len(rows), dtype=np.int64), cases, shape)
            const[rows], coef[rows, :, : parts[1].shape[2]], E[rows] = parts
            lost = self._lost(q, asked.error[rows].max(axis=0), past, precision, stored)
            E[rows] += lost[None, :]
        first = (like.cases.t_max == 0)[:, None]  # position 0 sees nothing
        const, coef, E = (
            np.where(first, 0.0, const),
            np.where(first[:, :, None], 0.0, coef),
            np.where(first, 0.0, E),
        )
        assert E.shape[1] == D
        return folded(like.cases, const, coef, np.where(np.isnan(E), np.inf, E))

    def _scales(self, q: list[arb]) -> list[arb]:
        """e^{q_h} Z_h."""
        return [
            x.exp() / self.kernels.rpe.scale_arb(arb(float(p)))
            for x, p in zip(q, self.kernels.p, strict=True)
        ]

    def _kernel(self, key: bytes, q: list[arb], past: Anywhere) -> Anywhere:
        """K_q applied to the past, exactly: taps as places, the rest as error."""
        if key not in self.known:
            scales = self._scales(q)
            rows: list[dict[Place, float]] = [{} for _ in range(self.W_O.shape[1])]
            E = np.zeros(len(rows))
            for j in self.written.tolist():
                for (c, lag), g in self._gains(j, past, scales).items():
                    taps = []
                    for z in self.kernels.tap_lags(g):
                        if self.window is not None and z > self.window:
                            continue  # not seen; the residual over all lags then counts it
                        weight = float(self.kernels.value(g, z).mid())
                        taps.append((z, arb(weight)))
                        rows[j][c, lag + z] = rows[j].get((c, lag + z), 0.0) + weight
                    reach = 1.0 if c < 0 else past.sizes[c]
                    E[j] += above(self.kernels.residual(g, Taps(tuple(taps)))) * reach * (1 + 1e-12)
            places = tuple(dict.fromkeys(place for row in rows for place in row))
            coef = np.array([[row.get(place, 0.0) for place in places] for row in rows])
            sizes = np.array([1.0 if c < 0 else past.sizes[c] for c, _ in places])
            E += 2.0**-50 * np.abs(coef.reshape(len(rows), len(places))) @ sizes  # sums of taps
            self.known[key] = Anywhere(places, coef.reshape(len(rows), len(places)), E, E, past.sizes)
        return self.known[key]

    def _gains(self, j: int, past: Anywhere, scales: list[arb]) -> dict[Place, list[arb]]:
        """Per place of the past, the coefficients g_h with which it reaches coordinate j."""
        found: dict[Place, list[arb]] = {}
        for h, scale in enumerate(scales):
            for v in np.flatnonzero(self.W_O[h, j]).tolist():
                for i in np.flatnonzero(self.W_V[h, v]).tolist():
                    gain = arb(float(self.W_O[h, j, v])) * arb(float(self.W_V[h, v, i])) * scale
                    for k in np.flatnonzero(past.coef[i]).tolist():
                        g = found.setdefault(past.places[k], [arb(0)] * len(scales))
                        g[h] += gain * arb(float(past.coef[i, k]))
        return found

    def _lost(
        self, q: list[arb], error: np.ndarray, past: Anywhere, precision: Format, stored: bool
    ) -> np.ndarray:
        """Per coordinate: what the query's error, the values' errors and all roundings cost."""
        u, D = precision.u, self.W_O.shape[1]
        unknown = ~np.isfinite(error)
        largest = [x + arb(float(e)) for x, e in zip(q, np.where(unknown, 0.0, error), strict=True)]
        scale = np.where(unknown, np.inf, [above(s) for s in self._scales(largest)])  # e^{q + error} Z
        moved = -np.expm1(-error) * (1 + 1e-9)  # of that: e^{q + error} - e^q
        share = moved.copy()
        kernels = ScaledKernels(
            self.kernels.rpe, self.kernels.p, np.array([above(abs(x)) for x in q]) + error, self.window
        )
        if u:
            weight, summed = kernels.weight_error(precision, stored), kernels.sum_error(precision, stored)
            share = share + weight + 1.05 * u * (1 + weight) + (1 + 1.05 * u) * summed
        first = self.kernels.p if self.kernels.rpe is LIN else np.zeros_like(self.kernels.p)
        precision.expect(
            np.array([above((x - arb(float(p))).exp()) for x, p in zip(largest, first, strict=True)])
        )
        total, reach, writers = np.zeros(D), np.zeros(D), np.zeros(D)
        for h in range(len(q)):
            value = past.linear(self.W_V[h], precision, stored)
            whole = times(scale[h], value.size) * (1 + share[h])
            precision.expect(value.size, whole)
            if not self.W_O[h].any():
                continue
            recalled = times(scale[h], share[h] * value.size + (1 + share[h]) * value.E)
            recalled = recalled + kernels.lags * precision.least * (4 + value.size)
            writes = np.abs(self.W_O[h])
            inside = (self.W_O[h] != 0).sum(axis=1) + 1 + stored
            total = total + dot(writes, recalled) + times(gamma(inside, u), dot(writes, whole))
            total = total + np.where(writes.any(axis=1), lost(self.W_O[h], whole, precision), 0.0)
            reach = reach + dot(writes, whole)
            writers += (writes > 0).sum(axis=1)  # all of W_O may be one product
        precision.expect(reach + total)
        return total + times(gamma(np.maximum(writers - 1, 0), u), reach + total)
