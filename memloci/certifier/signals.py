"""What each coordinate of the residual stream carries, followed through the attention layers.

    S_j(t) = sum_a coef_j(a) a(t) + e_j(t),   |e_j(t)| <= E_j for all t and all inputs

The atoms a are the input's channels at some lag, x_c(t - z), the constant 1 at some lag (blank before the
start, like any token), and, for essential memories, the task's own kernels. A layer of fixed kernels maps
atoms to atoms: sum_h g_h w_h, applied to an atom, is split into its taps (or the task's kernels), which
stay atoms, and the rest, whose l1 norm goes to E. Coefficients are Arb balls; nothing is assumed of which
coordinate means what.

`attention_rounding` follows the same path for |computed - exact| (rounding.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from flint import arb

from memloci.approx.targets import AbstractTarget, Sum
from memloci.certifier.kernels import HeadKernels, Taps
from memloci.certifier.rounding import Format, dot, gamma, lost, product_error, times
from memloci.model.attention import Attention

FIT_LAGS = 2_048


class Atom(NamedTuple):
    channel: int  # -1 is the constant 1
    lag: int  # 0 is the present
    kernel: int = -1  # of an essential task, instead of a lag


CONSTANT = Atom(-1, 0)


@dataclass
class Signal:
    """One coordinate, or one linear functional of the stream."""

    coefficients: dict[Atom, arb] = field(default_factory=dict)
    E: arb = field(default_factory=lambda: arb(0))

    def add(self, atom: Atom, c: arb) -> None:
        total = self.coefficients.get(atom, arb(0)) + c
        if total.is_zero():
            self.coefficients.pop(atom, None)
        else:
            self.coefficients[atom] = total

    @property
    def silent(self) -> bool:
        return not self.coefficients and self.E.is_zero()


@dataclass(frozen=True)
class Memory:
    """What the certificate knows of the task: sizes of the channels, and kernels if it has them."""

    sizes: tuple[float, ...]
    kernels: tuple[AbstractTarget, ...] = ()
    kernel_norms: tuple[float, ...] = ()

    def size(self, atom: Atom) -> float:
        if atom.channel < 0:
            return 1.0
        scale = self.kernel_norms[atom.kernel] if atom.kernel >= 0 else 1.0
        return self.sizes[atom.channel] * scale

    def bound(self, signal: Signal) -> float:
        """sup |S|."""
        total = sum((abs(c) * arb(self.size(a)) for a, c in signal.coefficients.items()), signal.E)
        return above(total)


def above(ball: arb) -> float:
    """A float at least as large as all of a ball; infinite when the ball is not finite."""
    if ball.is_zero():
        return 0.0
    return math.nextafter(float(ball.upper()), math.inf) if ball.is_finite() else math.inf


def embedded(W_E: np.ndarray, b_E: np.ndarray) -> list[Signal]:
    """The stream after the embedding."""
    signals = []
    for row, b in zip(W_E, b_E, strict=True):
        signal = Signal()
        for c, w in enumerate(row):
            if w:
                signal.add(Atom(c, 0), arb(float(w)))
        if b:
            signal.add(CONSTANT, arb(float(b)))
        signals.append(signal)
    return signals


def combine(rows: np.ndarray, signals: Sequence[Signal]) -> list[Signal]:
    """Linear functionals of the stream."""
    result = []
    for row in rows:
        signal = Signal()
        for w, part in zip(row, signals, strict=True):
            if w:
                for atom, c in part.coefficients.items():
                    signal.add(atom, arb(float(w)) * c)
                signal.E += abs(arb(float(w))) * part.E
        result.append(signal)
    return result


def attend(
    rows: np.ndarray, signals: Sequence[Signal], attention: Attention, kernels: HeadKernels, memory: Memory
) -> list[Signal]:
    """The functionals `rows` of X + Attn(X)."""
    W_V = np.asarray(attention.heads.W_V, dtype=float)
    W_O = np.asarray(attention.heads.W_O, dtype=float)
    result = combine(rows, signals)
    for row, signal in zip(rows, result, strict=True):
        gains = [_through(row, W_O[h], W_V[h]) for h in range(kernels.H)]  # per head: source -> gain
        sources = sorted({i for gain in gains for i in gain})
        atoms: dict[Atom, list[arb]] = {}
        for i in sources:
            for atom, c in signals[i].coefficients.items():
                g = atoms.setdefault(atom, [arb(0)] * kernels.H)
                for h, gain in enumerate(gains):
                    if i in gain:
                        g[h] += gain[i] * c
            if not signals[i].E.is_zero():  # an unknown but bounded sequence, convolved
                g = [gain.get(i, arb(0)) for gain in gains]
                norm = kernels.residual(g, Taps(()))
                signal.E += norm.upper() * signals[i].E
        for atom, g in atoms.items():
            _convolve(signal, atom, g, kernels, memory)
    return result


def _through(row: np.ndarray, W_O: np.ndarray, W_V: np.ndarray) -> dict[int, arb]:
    """row W_O W_V, exactly enough: a ball per source coordinate that is not 0."""
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


def _convolve(signal: Signal, atom: Atom, g: list[arb], kernels: HeadKernels, memory: Memory) -> None:
    """Add (sum_h g_h w_h) * atom to a signal."""
    if memory.kernels and atom.lag == 0 and atom.kernel < 0 and atom.channel >= 0:
        known = _known_kernels(g, kernels, memory)
        target: AbstractTarget = Sum(tuple(part for _, _, part in known)) if known else Taps(())
        for i, c, _ in known:
            signal.add(Atom(atom.channel, 0, i), arb(c))
    else:
        taps = tuple((z, kernels.value(g, z)) for z in kernels.tap_lags(g))
        target = Taps(taps)
        for z, c in taps:
            signal.add(Atom(atom.channel, atom.lag + z, atom.kernel), c)
    signal.E += kernels.residual(g, target).upper() * arb(memory.size(atom))


def _known_kernels(
    g: list[arb], kernels: HeadKernels, memory: Memory
) -> list[tuple[int, float, AbstractTarget]]:
    """The mixture of the task's kernels nearest to K: a proposal by least squares, then proved."""
    from memloci.approx.kernel_targets import scaled

    K = kernels.sample([float(x.mid()) for x in g], FIT_LAGS)
    columns = np.array([[float(rho.value(z)) for z in range(1, FIT_LAGS + 1)] for rho in memory.kernels]).T
    found = np.linalg.lstsq(columns, K, rcond=None)[0]
    largest = np.abs(found).max(initial=0.0)
    # A coefficient within 1e-3 of a whole number is meant to be that number; the residual says if not.
    neat = np.where(np.abs(found - np.rint(found)) < 1e-3, np.rint(found), found)
    return [
        (i, float(c), scaled(memory.kernels[i], float(c)))
        for i, c in enumerate(neat)
        if abs(c) > 1e-6 * largest and c
    ]


def link_norms(attention: Attention, kernels: HeadKernels) -> np.ndarray:
    """||K_ji||_1 for every pair of coordinates: how much an error in i can become in j."""
    W_V = np.asarray(attention.heads.W_V, dtype=float)
    W_O = np.asarray(attention.heads.W_O, dtype=float)
    D = W_V.shape[-1]
    norms = np.zeros((D, D))
    for j in np.nonzero((W_O != 0).any(axis=(0, 2)))[0]:
        row = np.zeros(D)
        row[j] = 1.0
        gains = [_through(row, W_O[h], W_V[h]) for h in range(kernels.H)]
        for i in {i for gain in gains for i in gain}:
            ball = kernels.residual([gain.get(i, arb(0)) for gain in gains], Taps(()))
            norms[j, i] = above(ball)
    return norms


def attention_rounding(
    attention: Attention,
    kernels: HeadKernels,
    norms: np.ndarray,
    size: np.ndarray,
    error: np.ndarray,
    precision: Format,
    stored: bool,
) -> np.ndarray:
    """The rounding error of X + Attn(X), for |X| <= size already computed up to `error`; infinite if
    anything may overflow.

    What X brings goes through the exact kernels, in which heads cancel (`norms`). What this layer adds is
    rounded head by head, before anything cancels: there the mass counts.
    """
    W_V = np.asarray(attention.heads.W_V, dtype=float)
    W_O = np.asarray(attention.heads.W_O, dtype=float)
    u, least, none = precision.u, precision.least, np.zeros_like(size)
    weight, summed = kernels.weight_error(precision, stored), kernels.sum_error(precision, stored)
    carried, given = dot(norms, error), size + error
    reach, added, writers = none.copy(), none.copy(), none.copy()
    for h in range(kernels.H):
        values, writes = np.abs(W_V[h]), np.abs(W_O[h])
        value = dot(values, given)
        wrong = product_error(W_V[h], given, none, u, stored=stored) + lost(W_V[h], given, precision)
        # recalled = sum_z w(z) v(z): the values, the weights, the products, the additions; sum_z w <= 1
        share = weight[h] + 1.05 * u * (1 + weight[h]) + (1 + 1.05 * u) * summed[h]
        recalled = wrong + times(share, value + wrong) + 4 * kernels.lags * least
        whole = value + recalled
        reach += dot(writes, whole)
        added += dot(writes, recalled) + product_error(W_O[h], whole, np.zeros_like(whole), u, stored=stored)
        added += lost(W_O[h], whole, precision)
        writers += (writes > 0).sum(axis=1)
        sums = kernels.swell[h] * (value + wrong)
        if not (np.isfinite(share) and precision.holds(sums, whole, reach + added)):
            return np.full_like(size, math.inf)  # 0 * NaN = NaN, so one head spoils everything
    # The sum over heads, one by one or in one product with all of W_O.
    added += times(gamma(np.maximum(writers - 1, 0), u), reach + added)
    both = (given > 0) & (reach > 0)  # the residual addition; adding to 0 is exact
    added += np.where(both, 1.05 * u * (given + reach + added), 0.0) + (kernels.H + 1) * least
    if not precision.holds(given + reach + added):
        return np.full_like(size, math.inf)
    return error + carried + added
