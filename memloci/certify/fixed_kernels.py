"""Heads that are fixed kernels over lags: what a layer of them makes of the stream.

    Attn(X)_j = sum_i sum_z K_ji(z) X_i(t - z),     K_ji = sum_h (W_O W_V)^h_ji w_h

All heads are followed together, because they may cancel by many digits. K_ji, applied to an atom, is split into its
taps (or the task's kernels), which stay atoms, and the rest, whose l1 norm goes to the error. Coefficients are Arb
balls; nothing is assumed of which coordinate means what. Errors of the past come back through ||K_ji||_1.

What the layer rounds, it rounds head by head, before anything cancels: there the mass counts (`rounding`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from flint import arb

from memloci.approx.kernels.kernel_targets import scaled
from memloci.approx.kernels.targets import AbstractTarget, Sum
from memloci.certify.affine_forms import AffineForms, add, folded
from memloci.certify.kernels import HeadKernels, Taps, layer_kernels
from memloci.certify.position_forms import ONE, Atom, Inputs, PositionForms
from memloci.certify.rounding import Format, dot, gamma, product_error, times, underflow
from memloci.certify.slacks import ROUNDED
from memloci.core.balls import above
from memloci.model.attention import Attention

FIT_LAGS = 2_048
LEAST = 1e-6  # tuned: what a kernel must weigh in a mixture to be told apart from the rest
# tuned: how much of K a mixture may leave and still be preferred to a few lags that leave less: K of one lag is a shift
# that only resembles a kernel, K of several lags in the proportions of a kernel is that kernel
ALIKE_ONE, ALIKE_SEVERAL = 1e-6, 0.1
NEAT = 1e-3  # a coefficient this near to a whole number is meant to be that number; the residual says if not


@dataclass
class _Signal:
    """One linear functional of the stream, in Arb."""

    coefficients: dict[Atom, arb] = field(default_factory=dict)
    E: arb = field(default_factory=lambda: arb(0))
    declined: bool = False  # a mixture of the task's kernels, in favour of a few lags

    def add(self, atom: Atom, c: arb) -> None:
        self.coefficients[atom] = self.coefficients.get(atom, arb(0)) + c


class Rounded(NamedTuple):
    """What a layer's heads lose, per coordinate, and how large what they write can be."""

    error: np.ndarray
    reach: np.ndarray


@dataclass
class FixedKernelHeads:
    """A layer of heads whose weights are the same at every position."""

    kernels: HeadKernels
    W_V: np.ndarray  # (H, d_v, D)
    W_O: np.ndarray  # (H, D, d_v)
    _mixture_cache: dict[bytes, PositionForms] = field(default_factory=dict)
    _norms: np.ndarray | None = None

    @classmethod
    def of(cls, attention: Attention, paths: Mapping[str, int]) -> "FixedKernelHeads":
        heads = attention.heads
        exact = lambda array: np.asarray(array, dtype=float)
        return cls(layer_kernels(attention, paths), exact(heads.W_V), exact(heads.W_O))

    @property
    def written(self) -> np.ndarray:
        return (self.W_O != 0).any(axis=(0, 2))

    def streams(self, precision: Format) -> bool:
        return self.kernels.streams(precision)

    # In exact arithmetic.

    def added(self, past: PositionForms) -> PositionForms:
        """Attn(X) for X exactly as `past` says, its errors aside; the same for every precision, so it is kept."""
        key = past.coef.tobytes() + repr(past.atoms).encode()
        if key not in self._mixture_cache:
            rows = np.eye(self.W_O.shape[1])[self.written]
            made = _as_forms(self._signals(rows, past), past.inputs)
            D = len(self.written)
            coef, E = np.zeros((D, len(made.atoms))), np.zeros(D)
            coef[self.written], E[self.written] = made.coef, made.E
            self._mixture_cache[key] = PositionForms(past.inputs, made.atoms, coef, E, np.zeros(D))
        return self._mixture_cache[key]

    def functionals(self, rows: np.ndarray, past: PositionForms) -> list[PositionForms]:
        """`rows` of X + Attn(X), errors of the past included: one joint kernel per row and atom. All ways to split them
        that are worth a try: which is best, the readout tells."""
        signals = self._signals(rows, past, itself=True)
        ways = [signals]
        if any(signal.declined for signal in signals):
            ways.append(self._signals(rows, past, itself=True, mixed=True))
        return [_as_forms(way, past.inputs) for way in ways]

    @property
    def norms(self) -> np.ndarray:
        """||K_ji||_1 for every pair of coordinates: how much an error in i can become in j."""
        if self._norms is None:
            D = self.W_V.shape[-1]
            self._norms = np.zeros((D, D))
            for j in np.flatnonzero(self.written).tolist():
                gains = self._gains(np.eye(D)[j])
                for i in {i for gain in gains for i in gain}:
                    self._norms[j, i] = above(self._norm([gain.get(i, arb(0)) for gain in gains]))
        return self._norms

    def _norm(self, g: Sequence[arb]) -> arb:
        return self.kernels.residual(g, Taps(()))

    def _gains(self, row: np.ndarray) -> list[dict[int, arb]]:
        """Per head, row W_O W_V: a ball per source coordinate that is not 0."""
        return [_through(row, self.W_O[h], self.W_V[h]) for h in range(self.kernels.H)]

    def _signals(
        self, rows: np.ndarray, past: PositionForms, itself: bool = False, mixed: bool = False
    ) -> list[_Signal]:
        """`rows` of Attn(X), and of X with `itself`; with `mixed`, every kernel as a mixture of the task's own."""
        signals, past = [], past.boxed()
        for row in rows:
            signal = _Signal()
            if itself:
                _combine(signal, row, past)
            gains = self._gains(row)
            atoms: dict[Atom, list[arb]] = {}
            for i in sorted({i for gain in gains for i in gain}):
                g = [gain.get(i, arb(0)) for gain in gains]
                for k in np.flatnonzero(past.coef[i]).tolist():
                    summed = atoms.setdefault(past.atoms[k], [arb(0)] * self.kernels.H)
                    for h in range(self.kernels.H):
                        summed[h] += g[h] * arb(float(past.coef[i, k]))
                if itself and past.E[i]:  # an unknown but bounded sequence, convolved
                    signal.E += self._norm(g).upper() * arb(float(past.E[i]))
            for atom, g in atoms.items():
                self._convolve(signal, atom, g, past.inputs, mixed)
            signals.append(signal)
        return signals

    def _convolve(self, signal: _Signal, atom: Atom, g: list[arb], inputs: Inputs, mixed: bool) -> None:
        """Add (sum_h g_h w_h) * atom to a signal."""
        known: list[tuple[int, float]] = []
        if inputs.kernels and atom.lag == 0 and not atom.kernel and atom.channel != ONE:
            known = _task_kernels(g, self.kernels, inputs, mixed)
            signal.declined |= not known
        parts: list[AbstractTarget] = [scaled(inputs.kernels[i], c) for i, c in known]
        for i, c in known:
            signal.add(Atom(atom.channel, 0, i), arb(c))
        taps = []
        for z in self.kernels.tap_lags(g) if not known else inputs.lags:
            tap = self.kernels.value(g, z) - sum((part.value(z) for part in parts), arb(0))
            taps.append((z, tap))
            signal.add(atom._replace(lag=atom.lag + z), tap)
        target = Sum((*parts, Taps(tuple(taps)))) if parts else Taps(tuple(taps))
        signal.E += self.kernels.residual(g, target).upper() * arb(inputs.size(atom))

    # As computed.

    def rounding(self, size: np.ndarray, precision: Format, stored: bool) -> Rounded:
        """What the heads lose of what they write, for |X| <= size.

        recalled = sum_z w(z) v(z): the values, the weights, the products, the additions; sum_z w <= 1. Then the sum
        over heads, one by one or in one product with all of W_O.
        """
        u, least, none = precision.u, precision.least, np.zeros_like(size)
        share = self.kernels.recall_error(precision, stored)
        reach, error, writers = none.copy(), none.copy(), none.copy()
        for h in range(self.kernels.H):
            values, writes = np.abs(self.W_V[h]), np.abs(self.W_O[h])
            value = dot(values, size)
            wrong = product_error(self.W_V[h], size, none, u, stored=stored) + underflow(
                self.W_V[h], size, precision
            )
            recalled = wrong + times(share[h], value + wrong) + 4 * self.kernels.lags * least
            reached = value + recalled
            # Fast paths add values up before they normalise them: no such sum may overflow, read or not.
            precision.expect(self.kernels.swell[h] * (value + wrong), reached, share[h])
            reach += dot(writes, reached)
            error += dot(writes, recalled) + product_error(
                self.W_O[h], reached, np.zeros_like(reached), u, stored=stored
            )
            error += underflow(self.W_O[h], reached, precision)
            writers += (writes > 0).sum(axis=1)
        error += times(gamma(np.maximum(writers - 1, 0), u), reach + error)
        precision.expect(reach + error)
        unwritten = ~self.written  # adding an exact 0 rounds nothing
        return Rounded(np.where(unwritten, 0.0, error), np.where(unwritten, 0.0, reach))

    def attend(
        self, X: AffineForms, past: PositionForms, shape: tuple[int, int], precision: Format, stored: bool
    ) -> AffineForms:
        """X + Attn(X) at the position of each case."""
        return add(X, self.recalled(X, past, shape, precision, stored), precision)

    def recalled(
        self, X: AffineForms, past: PositionForms, shape: tuple[int, int], precision: Format, stored: bool
    ) -> AffineForms:
        cases, added = X.cases, self.added(past)
        const, coef, E = added.at(np.zeros(len(cases), dtype=np.int64), cases, shape)
        E = E + (dot(self.norms, past.boxed().E) + self._rounding_of(past, precision, stored).error)[None, :]
        first = (cases.t_max == 0)[:, None]  # position 0 sees nothing
        const, coef, E = (
            np.where(first, 0.0, const),
            np.where(first[:, :, None], 0.0, coef),
            np.where(first, 0.0, E),
        )
        return folded(cases, const, coef, np.where(np.isnan(E), np.inf, E))

    def _rounding_of(self, past: PositionForms, precision: Format, stored: bool) -> Rounded:
        if not precision.u:
            return Rounded(np.zeros_like(past.E), np.zeros_like(past.E))
        return self.rounding(past.size, precision, stored)

    def at_any_position(self, past: PositionForms, precision: Format, stored: bool) -> PositionForms:
        """X + Attn(X) at any position."""
        rounding = self._rounding_of(past, precision, stored)
        result = past.plus(self.added(past))
        size = past.size
        joined = np.where(
            (size > 0) & (rounding.reach > 0),
            ROUNDED * precision.u * (size + rounding.reach + rounding.error),
            0.0,
        )
        precision.expect(size + rounding.reach + rounding.error)
        flushed = np.where(self.written, (self.kernels.H + 1) * precision.least, 0.0)
        E = dot(self.norms, past.boxed().E) + rounding.error + joined + flushed
        return result.worse(np.where(np.isnan(E), np.inf, E))


def _combine(signal: _Signal, row: np.ndarray, past: PositionForms) -> None:
    """A linear functional of the stream itself."""
    for i in np.flatnonzero(row).tolist():
        w = arb(float(row[i]))
        for k in np.flatnonzero(past.coef[i]).tolist():
            signal.add(past.atoms[k], w * arb(float(past.coef[i, k])))
        signal.E += abs(w) * arb(float(past.E[i]))


def _through(row: np.ndarray, W_O: np.ndarray, W_V: np.ndarray) -> dict[int, arb]:
    inner = [
        sum((arb(float(row[j])) * arb(float(W_O[j, v])) for j in np.nonzero(row)[0] if W_O[j, v]), arb(0))
        for v in range(W_V.shape[0])
    ]
    gain: dict[int, arb] = {}
    for v, b in enumerate(inner):
        if not b.is_zero():
            for i in np.nonzero(W_V[v])[0]:
                gain[int(i)] = gain.get(int(i), arb(0)) + b * arb(float(W_V[v, i]))
    return {i: g for i, g in gain.items() if not g.is_zero()}


def _as_forms(signals: Sequence[_Signal], inputs: Inputs) -> PositionForms:
    """Coefficients in float64; what they miss is error."""
    atoms = tuple(dict.fromkeys(atom for signal in signals for atom in signal.coefficients))
    coef, E = np.zeros((len(signals), len(atoms))), np.zeros(len(signals))
    for j, signal in enumerate(signals):
        rest = signal.E
        for k, atom in enumerate(atoms):
            if atom in signal.coefficients:
                ball = signal.coefficients[atom]
                coef[j, k] = float(ball.mid())
                rest += abs(ball - arb(coef[j, k])) * arb(inputs.size(atom))
        E[j] = above(rest)
    return PositionForms(inputs, atoms, coef, E, np.zeros(len(signals)))


def _task_kernels(g: list[arb], kernels: HeadKernels, inputs: Inputs, mixed: bool) -> list[tuple[int, float]]:
    """(memory, coefficient): the mixture of the task's kernels, and of its fixed lags, that is nearest to K. A proposal
    by least squares, of which nothing is believed; empty where K is no such mixture, unless it shall be one (`mixed`)."""
    K = kernels.sample([float(x.mid()) for x in g], FIT_LAGS)
    numbers = list(inputs.kernels)
    lags = [z for z in inputs.lags if z <= FIT_LAGS]
    task_kernels = np.array([inputs.sampled(i, FIT_LAGS) for i in numbers]).T
    spikes = np.zeros((FIT_LAGS, len(lags)))
    spikes[[z - 1 for z in lags], range(len(lags))] = 1.0
    columns = np.concatenate([task_kernels, spikes], axis=1)
    mixture = np.linalg.lstsq(columns, K, rcond=None)[0]
    few, rest = kernels.tap_lags(g), K.copy()
    rest[[z - 1 for z in few if z <= FIT_LAGS]] = 0.0
    left = np.abs(K - columns @ mixture).sum()
    alike = left <= (ALIKE_SEVERAL if len(few) > 1 else ALIKE_ONE) * np.abs(K).sum()
    if np.abs(rest).sum() <= left and not alike and not mixed:  # a few lags say it better
        return []
    weight = np.abs(mixture) * np.array([*(inputs.norms[i] for i in numbers), *np.ones(len(lags))])
    neat = np.where(np.abs(mixture - np.rint(mixture)) < NEAT, np.rint(mixture), mixture)
    return [
        (i, float(c))
        for i, c, w in zip(numbers, neat[: len(numbers)], weight, strict=False)
        if c and w > LEAST * weight.max()
    ]
