"""Heads without normalisation, whose query scales a fixed kernel: weights e^{q_h(x_t)} e^{p_h phi(z)}.

    sum_h W_O W_V e^{q_h} sum_z e^{p_h phi(z)} x_{t-z}:   for one value of q, a kernel sum K_q = sum_h g_h w_h

with g_h = e^{q_h} Z_h times the gains, Z_h = sum_z e^{p_h phi(z)}. Cases with the same q share K_q. Its taps
stay what they are, the rest goes to the error as an l1 norm over all lags (kernels.py), in Arb; a window only
leaves out what is meant to be 0. Heads cancel
in K_q; what they round, before anything cancels, is paid for by the mass sum_h |g_h|.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from flint import arb

from memloci.approx.kernels.rpe import LIN, LOG
from memloci.certify.affine_forms import EXACT, AffineForms, add, folded, linear, zeros
from memloci.certify.balls import Ball
from memloci.certify.kernels import SumKernels, Taps
from memloci.certify.pointers import LIBM
from memloci.certify.position_forms import UNKNOWN, Atom, PositionForms
from memloci.certify.rounding import LENGTH, LIBRARY, Format, dot, gamma, times, underflow
from memloci.certify.slacks import SUMMED, own_product
from memloci.core.balls import above
from memloci.core.errors import BadInput
from memloci.core.numbers import literal, number
from memloci.model.attention import Head
from memloci.model.scores import AbstractScore, DotProduct, Tmx


@dataclass(frozen=True)
class ScaledKernels(SumKernels):
    """lin or log heads without a normaliser; `content` bounds |q_h|, which is rounded when it is added."""

    content: np.ndarray = field(default_factory=lambda: np.zeros(0))
    window: int | None = None

    @property
    def lags(self) -> float:
        return LENGTH if self.window is None else float(self.window)

    def _slower(self, u: float, stored: bool) -> tuple[np.ndarray, np.ndarray]:
        """z, the product p phi(z), the sum with q, then the library's exp; at every lag."""
        p = self.p.astype(float)
        functions = 2.2 if self.rpe is LIN else LIBRARY + 2.7
        a = (functions + 1.1 + 1.1 * stored) * u * p
        b = 1.1 * u * (LIBRARY + 1 + self.content) + (a if self.rpe is LIN else 0.0)
        return a, b

    @property
    def _rounded_share(self) -> np.ndarray:
        return np.ones(self.H)

    def _normaliser(self, u: float) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.H), np.zeros(self.H, dtype=bool)

    def _slope_rounding(self, stored: bool, u: float) -> np.ndarray:
        return np.zeros(self.H)  # without a normaliser, storing p only adds to a


@dataclass(frozen=True)
class Queries:
    """The query terms of the cases: cases with equal rows of `keys` ask the same."""

    keys: np.ndarray  # (n, anything)
    error: np.ndarray  # (n, H), of the query terms
    exactly: Callable[[int], list[arb]]  # case -> its query terms


@dataclass
class UnnormalisedHeads:
    """A layer of such heads. `mixture_cache` keeps the kernels that were proved: precisions share them."""

    kernels: SumKernels
    W_V: np.ndarray  # (H, d_v, D)
    W_O: np.ndarray  # (H, D, d_v)
    W_Q: np.ndarray  # (H, d_k, D); tmx is a query with the key 1
    W_K: np.ndarray | None
    window: int | None = None
    mixture_cache: dict[bytes, PositionForms] = field(default_factory=dict)

    @classmethod
    def of(cls, heads: Head, paths: Mapping[str, int]) -> "UnnormalisedHeads":
        exact = lambda array: np.asarray(array, dtype=float)
        W_Q, W_K = _query_and_key(heads.score)
        return cls(_slopes(heads, paths), exact(heads.W_V), exact(heads.W_O), W_Q, W_K, heads.past.window)

    @property
    def written(self) -> np.ndarray:
        return np.flatnonzero((self.W_O != 0).any(axis=(0, 2)))

    def streams(self, precision: Format) -> bool:
        """A stream adds up all of the past at once, or as a state; paths add blocks, whose rounding is less."""
        return False

    def keys(self, h: int, past: PositionForms, precision: Format, stored: bool) -> tuple[Ball, Ball]:
        assert self.W_K is not None
        key = past.linear(self.W_K[h], precision, stored)
        return key.ball(first=False), key.ball(first=True)

    def attend(
        self, X: AffineForms, past: PositionForms, shape: tuple[int, int], precision: Format, stored: bool
    ) -> AffineForms:
        queries = self._queries(X, past, precision, stored)
        return add(X, self._recalled(queries, past, X, shape, precision, stored), precision)

    def at_any_position(self, past: PositionForms, precision: Format, stored: bool) -> PositionForms:
        """Nothing is known of what these heads write where the query is not."""
        unknown = np.zeros(len(past.E))
        unknown[self.written] = np.inf
        return past.worse(unknown)

    def _queries(self, X: AffineForms, past: PositionForms, precision: Format, stored: bool) -> Queries:
        """The query term of every head; a key that depends on s has no such term, and its error says so."""
        W_Q = self.W_Q
        H, n = len(self.W_O), len(X.cases)
        used = np.flatnonzero((W_Q != 0).any(axis=(0, 1)))
        # Numbers that are known exactly are multiplied in Arb; float64 would cost 2^-53 of the mass.
        known = (X.E[:, used] == 0).all(axis=1) & ~np.isin(used, X.dependent).any()
        middle, error, keys = np.zeros((n, H)), np.zeros((n, H)), []
        for h in range(H):
            q, unrounded = linear(W_Q[h], X, precision, stored=stored), linear(W_Q[h], X, EXACT)
            k, apart = np.ones(len(W_Q[h])), np.zeros(len(W_Q[h]))
            if self.W_K is not None:
                key, first = self.keys(h, past, precision, stored)
                k, apart = key.middle, np.abs(key.middle - first.middle) + key.radius + first.radius
            keys.append(k)
            size = np.abs(q.middle) + q.radius
            rounded = np.maximum(q.E - unrounded.E, 0.0) * SUMMED + own_product(4) * unrounded.E
            beyond = np.where(known[:, None], rounded, q.radius)
            wrong = beyond * (np.abs(k) + apart) + size * apart
            if self.W_K is not None:
                wrong = wrong + gamma(len(k), precision.u) * size * (np.abs(k) + apart)
            middle[:, h] = q.middle @ k
            float64 = own_product(len(k)) * (size @ np.abs(k))
            error[:, h] = wrong.sum(axis=1) * SUMMED + np.where(known, 0.0, float64)
        keep = np.concatenate([np.where(known[:, None], X.const[:, used], 0.0), middle], axis=1)

        def exactly(row: int) -> list[arb]:
            if not known[row]:
                return [arb(float(x)) for x in middle[row]]
            x = [arb(float(value)) for value in X.const[row, used]]
            return [_bilinear(W_Q[h][:, used], x, keys[h]) for h in range(H)]

        return Queries(keep, error, exactly)

    def _recalled(
        self,
        queries: Queries,
        past: PositionForms,
        like: AffineForms,
        shape: tuple[int, int],
        precision: Format,
        stored: bool,
    ) -> AffineForms:
        """What all heads together write."""
        D, result = self.W_O.shape[1], zeros(like.cases, self.W_O.shape[1])
        const, coef, E = result.const, result.coef, result.E
        _, first, which = np.unique(queries.keys, axis=0, return_index=True, return_inverse=True)
        which = np.asarray(which).reshape(len(queries.keys))
        for k, one in enumerate(first.tolist()):
            rows = np.flatnonzero(which == k)
            cases, q = like.cases.take(rows), queries.exactly(one)
            kernel = self._kernel(queries.keys[one].tobytes(), q, past)
            parts = kernel.at(np.zeros(len(rows), dtype=np.int64), cases, shape)
            const[rows], coef[rows, :, : parts[1].shape[2]], E[rows] = parts
            wrong = self._errors(q, queries.error[rows].max(axis=0), past, precision, stored)
            E[rows] += wrong[None, :]
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

    def _kernel(self, key: bytes, q: list[arb], past: PositionForms) -> PositionForms:
        """K_q applied to the past, exactly: taps as places, the rest as error."""
        if key not in self.mixture_cache:
            scales = self._scales(q)
            rows: list[dict[Atom, float]] = [{} for _ in range(self.W_O.shape[1])]
            E = np.zeros(len(rows))
            for j in self.written.tolist():
                for atom, g in self._gains(j, past, scales).items():
                    taps = []
                    for z in self.kernels.tap_lags(g):
                        if self.window is not None and z > self.window:
                            continue  # not seen; the residual over all lags then counts it
                        weight = float(self.kernels.value(g, z).mid())
                        taps.append((z, arb(weight)))
                        tap = atom._replace(lag=atom.lag + z)
                        rows[j][tap] = rows[j].get(tap, 0.0) + weight
                    E[j] += (
                        above(self.kernels.residual(g, Taps(tuple(taps)))) * past.inputs.size(atom) * SUMMED
                    )
            atoms = tuple(dict.fromkeys(atom for row in rows for atom in row))
            coef = np.array([[row.get(atom, 0.0) for atom in atoms] for row in rows]).reshape(
                len(rows), len(atoms)
            )
            sizes = np.array([past.inputs.size(atom) for atom in atoms])
            E += own_product(7) * np.abs(coef) @ sizes  # sums of taps
            self.mixture_cache[key] = PositionForms(past.inputs, atoms, coef, E, E)
        return self.mixture_cache[key]

    def _gains(self, j: int, past: PositionForms, scales: list[arb]) -> dict[Atom, list[arb]]:
        """Per place of the past, the coefficients g_h with which it reaches coordinate j."""
        gains: dict[Atom, list[arb]] = {}
        for h, scale in enumerate(scales):
            for v in np.flatnonzero(self.W_O[h, j]).tolist():
                for i in np.flatnonzero(self.W_V[h, v]).tolist():
                    gain = arb(float(self.W_O[h, j, v])) * arb(float(self.W_V[h, v, i])) * scale
                    for k in np.flatnonzero(past.coef[i]).tolist():
                        if past.atoms[k].channel == UNKNOWN:
                            continue  # an error of the value (`_errors`)
                        g = gains.setdefault(past.atoms[k], [arb(0)] * len(scales))
                        g[h] += gain * arb(float(past.coef[i, k]))
        return gains

    def _errors(
        self, q: list[arb], error: np.ndarray, past: PositionForms, precision: Format, stored: bool
    ) -> np.ndarray:
        """Per coordinate: what the query's error, the values' errors and all roundings cost."""
        u, D = precision.u, self.W_O.shape[1]
        unknown = ~np.isfinite(error)
        largest = [x + arb(float(e)) for x, e in zip(q, np.where(unknown, 0.0, error), strict=True)]
        scale = np.where(unknown, np.inf, [above(s) for s in self._scales(largest)])  # e^{q + error} Z
        moved = -np.expm1(-error) * (1 + LIBM)  # of that: e^{q + error} - e^q
        share = moved.copy()
        content = np.array([above(abs(x)) for x in q]) + error
        kernels = ScaledKernels(
            self.kernels.rpe, self.kernels.p, content, self.window, paths=self.kernels.paths
        )
        if u:
            share = share + kernels.recall_error(precision, stored)
        first = self.kernels.p if self.kernels.rpe is LIN else np.zeros_like(self.kernels.p)
        precision.expect(
            np.array([above((x - arb(float(p))).exp()) for x, p in zip(largest, first, strict=True)])
        )
        total, reach, writers = np.zeros(D), np.zeros(D), np.zeros(D)
        for h in range(len(q)):
            value = past.linear(self.W_V[h], precision, stored).boxed()
            reached = times(scale[h], value.size) * (1 + share[h])
            precision.expect(value.size, reached)
            if not self.W_O[h].any():
                continue
            recalled = times(scale[h], share[h] * value.size + (1 + share[h]) * value.E)
            recalled = recalled + kernels.lags * precision.least * (4 + value.size)
            writes = np.abs(self.W_O[h])
            inside = (self.W_O[h] != 0).sum(axis=1) + 1 + stored
            total = total + dot(writes, recalled) + times(gamma(inside, u), dot(writes, reached))
            total = total + np.where(writes.any(axis=1), underflow(self.W_O[h], reached, precision), 0.0)
            reach = reach + dot(writes, reached)
            writers += (writes > 0).sum(axis=1)  # all of W_O may be one product
        precision.expect(reach + total)
        return total + times(gamma(np.maximum(writers - 1, 0), u), reach + total)


def _bilinear(W: np.ndarray, x: list[arb], k: np.ndarray) -> arb:
    """<W x, k>."""
    total = arb(0)
    for row, weight in zip(W, k, strict=True):
        for w, value in zip(row, x, strict=True):
            if w and weight:
                total += arb(float(w)) * value * arb(float(weight))
    return total


def _query_and_key(score: AbstractScore) -> tuple[np.ndarray, np.ndarray | None]:
    """tmx is a query with the key 1."""
    exact = lambda array: np.asarray(array, dtype=float)
    if isinstance(score, DotProduct):
        return exact(score.W_Q), exact(score.W_K)
    if isinstance(score, Tmx):
        return exact(score.w)[:, None, :], None
    raise BadInput(f"no certificate follows attention {score.name!r} without normalisation")


def _slopes(heads: Head, paths: Mapping[str, int]) -> SumKernels:
    if heads.past.stride != 1:
        raise BadInput("certificates of lin and log heads need stride 1")
    p, least = np.asarray(heads.encoding.slope(), dtype=float), heads.encoding.least_slope
    assert least is not None
    if not (p > least).all():
        raise BadInput(
            f"a slope of {number(float(p.min()), 6)}; the sum over the past converges above {literal(least)}"
        )
    return SumKernels(LIN if heads.encoding.name == "lin" else LOG, p, paths=paths)
