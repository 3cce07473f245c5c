"""The fixed kernels over lags that a layer of dot-product-free heads has, read off its weights.

    w_h(z) = e^{position_h(z)} / sum_{z'} e^{position_h(z')},     K = sum_h g_h w_h

| kernels | heads | kept of a head | ||K - target||_1 |
|---|---|---|---|
| `SumKernels` | lin, log | its exponent | approx/kernels/residuals.py, for K may cancel by many digits |
| `PeakKernels` | rope, t5, sharp | its peak, and what lies beside it | the peaks' mismatch, and all beside them |
| `TableKernels` | rope, t5, any | every weight of the window | term by term, and the target's tail |

All enclose in Arb. `weight_error` and `sum_error` are the rounding model of rounding.py for one head.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from flint import arb, arb_mat, ctx

from memloci.approx.kernels.residuals import residual_l1
from memloci.approx.kernels.rpe import LIN, LOG, AbstractRPE
from memloci.approx.kernels.targets import AbstractTarget, Spectrum
from memloci.certify.past_sums import any_order, in_blocks, joined, normaliser, recurrence, stream
from memloci.certify.rounding import LARGEST_LOG_SLOPE, LENGTH, LIBRARY, ZETA, Format, Numbers, gamma, times
from memloci.certify.slacks import ROUNDED
from memloci.core.balls import above
from memloci.core.errors import BadInput
from memloci.core.numbers import number
from memloci.model.attention import Attention
from memloci.model.encodings import T5, Lin, Log, Rope
from memloci.model.paths.choice import LONGEST
from memloci.model.zeta import N as TERMS

PROBE = 2_048  # lags looked at for taps; a tap that is not found becomes part of the error
TAP = 1e-2  # relative size of a tap
MOST_TAPS = 16
SHARP = 1e-9  # what may lie beside a peak that is taken for the whole head: below the roundings of float32
LONGEST_TABLE = 4_096  # windows that are kept lag by lag


_NOTHING = arb(0)
ANY_ORDER = {"plain": LONGEST}  # one sum, however long: it covers every way of adding


@dataclass(frozen=True)
class Taps(AbstractTarget):
    """rho(z) = sum_k c_k 1{z = t_k}, the c_k balls."""

    taps: tuple[tuple[int, arb], ...]

    @property
    def label(self) -> str:
        return " + ".join(f"{number(float(c.mid()))} at lag {t}" for t, c in self.taps)

    @property
    def start(self) -> int:
        return max((t for t, _ in self.taps), default=0)

    @cached_property
    def _at(self) -> dict[int, arb]:
        taps: dict[int, arb] = {}
        for t, c in self.taps:
            taps[t] = taps.get(t, _NOTHING) + c
        return taps

    def value(self, z: int) -> arb:
        return self._at.get(z, _NOTHING)

    def tail_sum(self, n: int) -> arb:
        return sum((c for t, c in self.taps if t > n), arb(0))

    def tail_bound(self, n: int) -> arb:
        return sum((abs(c) for t, c in self.taps if t > n), arb(0))

    def spectrum(self, rpe: AbstractRPE) -> Spectrum:
        return Spectrum()


class HeadKernels(ABC):
    """The kernels of one layer's heads."""

    H: int

    @abstractmethod
    def value(self, g: Sequence[arb], z: int) -> arb:
        """K(z)."""

    @abstractmethod
    def tap_lags(self, g: Sequence[arb]) -> list[int]:
        """Where K is large: a proposal, nothing rests on it."""

    @abstractmethod
    def residual(self, g: Sequence[arb], target: AbstractTarget) -> arb:
        """A ball whose upper end bounds ||K - target||_1."""

    @abstractmethod
    def sample(self, g: Sequence[float], n: int) -> np.ndarray:
        """K(1), ..., K(n) in float64, for proposals and pictures."""

    @property
    @abstractmethod
    def lags(self) -> float:
        """The most lags that are summed."""

    @property
    def swell(self) -> np.ndarray:
        """Per head, how large a sum over the past may be per unit of |v|: fast paths normalise it last, and the
        largest weight is then 1."""
        return np.full(self.H, float(self.lags))

    @abstractmethod
    def weight_error(self, precision: Format, stored: bool) -> np.ndarray:
        """Per head, sum_z |computed w_h(z) - w_h(z)|; `stored` if the weights are rounded to u too.
        Infinite where a weight may not be a number."""

    @abstractmethod
    def sum_error(self, precision: Format, stored: bool) -> np.ndarray:
        """Per head, the additions of sum_z w_h(z) v with the computed weights, per unit of |v|."""

    def recall_error(self, precision: Format, stored: bool) -> np.ndarray:
        """Per head, all that sum_z w_h(z) v loses, per unit of |v|: weights, products with them, additions."""
        weight, summed = self.weight_error(precision, stored), self.sum_error(precision, stored)
        return (
            weight + self._products(precision, stored) * (1 + weight) + (1 + ROUNDED * precision.u) * summed
        )

    def _products(self, precision: Format, stored: bool) -> np.ndarray:
        """Per head, the rounding of the products w_h(z) v: none where a weight is exactly 1."""
        return np.full(self.H, ROUNDED * precision.u)

    def streams(self, precision: Format) -> bool:
        """Whether `recall_error` bounds what a stream loses, too: it adds up a window in any order, as all paths do."""
        return True


@dataclass(frozen=True)
class SumKernels(HeadKernels):
    """lin and log heads over an unlimited past.

    Computed: w(z) is e^{p phi(z) - p phi(1)} / total. The exponential is exactly 1 at lag 1, and elsewhere off by a factor
    e^{+-(a x + b)}, x = z - 1 (lin) or log z (log); total by `normaliser`. So with W = sum_z w(z) e^{a x} - 1,

        sum_z |computed w(z) - w(z)| <= (1 - w(1)) (e^b - 1) + W e^b,   and as much again as the normaliser is off.
    """

    rpe: AbstractRPE
    p: np.ndarray  # (H,), exact
    # That may be taken, and the longest sequence on each.
    paths: Mapping[str, int] = field(default_factory=lambda: ANY_ORDER, kw_only=True)

    @property
    def H(self) -> int:  # type: ignore[override]
        return len(self.p)

    def value(self, g: Sequence[arb], z: int) -> arb:
        return sum(
            (g_h * self.rpe.kernel_arb(arb(float(p)), z) for g_h, p in zip(g, self.p, strict=True)), arb(0)
        )

    def sample(self, g: Sequence[float], n: int) -> np.ndarray:
        return np.asarray(g) @ self.rpe.kernel(self.p.astype(float), np.arange(1.0, n + 1.0))

    def tap_lags(self, g: Sequence[arb]) -> list[int]:
        return _largest(self.sample([float(x.mid()) for x in g], PROBE))

    def residual(self, g: Sequence[arb], target: AbstractTarget) -> arb:
        return residual_l1(self.rpe, [float(p) for p in self.p], list(g), target)

    @property
    def lags(self) -> float:
        return LENGTH

    def _slower(self, u: float, stored: bool) -> tuple[np.ndarray, np.ndarray]:
        """(a, b), for the exponentials beyond lag 1; what storing p moves, the normaliser follows (`_slope_rounding`)."""
        p = self.p.astype(float)
        if self.rpe is LIN:
            # position = p * -z, less the anchor: z, the product and the difference are rounded. That is at
            # most 3 u p (z-1); the rest is for u^2.
            return 3.2 * u * p, np.full_like(p, 1.1 * LIBRARY * u)
        # position = p * -log z: z, the library's log, one product.
        return (LIBRARY + 1.6) * u * p, np.full_like(p, 1.1 * LIBRARY * u)

    def _normaliser(self, u: float) -> tuple[np.ndarray, np.ndarray]:
        """(its relative error and that of the division, whether it is exactly 1)."""
        p = self.p.astype(float)
        if self.rpe is LIN:
            off, one = normaliser(p, u)
            off = off + np.where(one, 0.0, 2.2 * u)  # 1 / (1 - q), and the division by it
        else:
            off, one = self._zeta_error(u) + 1.1 * u, np.zeros(len(p), dtype=bool)
        return np.where(off < 0.5, off / np.where(off < 0.5, 1 - off, 1.0), math.inf), one

    def _zeta_error(self, u: float) -> np.ndarray:
        """The relative error of the computed zeta(p), from model/zeta.py: exp(-p log x) for x = 16, ..., 1 after a tail.

        An exponential errs like those of the weights: a = (LIBRARY + 1) u p, b = LIBRARY u, nothing at x = 1. The tail's
        own factor rounds by less than 8 u, corrections included, and weighs less than 1e-9 u where p > 10. Each addition
        rounds its result, and that is sum_{z>=x} z^-p.
        """
        p = self.p.astype(float)
        exponentials = self._tilted_excess(1.1 * (LIBRARY + 1) * u * p) + 1.1 * LIBRARY * u * self._later
        tail = np.where(p > 10, 1e-9, 9.0 * self._ratio(p, p, TERMS + 1.0)) * u
        added = 1.1 * u * sum(self._ratio(p, p, float(x)) for x in range(1, TERMS + 1))
        return np.minimum(ZETA * u, exponentials + tail + added)

    @property
    def _later(self) -> np.ndarray:
        """sum_{z>1} w(z), from above: the weights whose exponentials are rounded."""
        p = self.p.astype(float)
        return np.exp(-p) if self.rpe is LIN else self._ratio(p, p, 2.0)

    @staticmethod
    def _ratio(s: np.ndarray, p: np.ndarray, first: float = 1.0) -> np.ndarray:
        """sum_{z>=first} z^-s / zeta(p), from above."""
        from scipy.special import zeta

        return zeta(s, first) / zeta(p, 1.0) * (1 + 1e-9)

    def _tilted_excess(self, a: np.ndarray) -> np.ndarray:
        """sum_z w(z) e^{a x} - 1, without cancellation; infinite where the sum is."""
        p = self.p.astype(float)
        if self.rpe is LIN:  # (1 - e^-p) / (1 - e^{a-p}) - 1
            less = np.where(a < p, a - p, -1.0)
            return np.where(a < p, np.exp(less) * np.expm1(-a) / np.expm1(less), math.inf)
        gains = [_zeta_gain(float(s), float(t)) for s, t in zip(p, a, strict=True)]
        return np.array(gains)

    def _slope_rounding(self, stored: bool, u: float) -> np.ndarray:
        """sum_z |w'(z) - w(z)| for the kernel w' of a slope p' that is p rounded.

        d w / d log p = w (mean(p x) - p x), so its norm is at most 2 p mean(x): for lin 2 p q / (1 - q) <= 2.
        """
        p = self.p.astype(float)
        if not stored:
            return np.zeros_like(p)
        if self.rpe is LIN:
            return 2.2 * u * np.minimum(1.0, p / np.expm1(np.minimum(p, 700.0)))
        # sum_z w(z) z^a - 1 >= a mean(log z) at p; p' may be less by u p.
        return 2.2 * self._tilted_excess(1.1 * u * p)

    def _computed_beyond(self, u: float, stored: bool, limit: float) -> Callable[[int], np.ndarray]:
        """k -> the sum of the computed weights beyond lag k and up to `limit`, from above."""
        p, (a, b) = self.p.astype(float), self._slower(u, stored)
        a = a + 1.1 * stored * u * p
        grown = (
            np.exp(np.minimum(b, 700.0))
            * (1 + self._normaliser(u)[0])
            * (1 + self._slope_rounding(stored, u))
        )

        def beyond(k: int) -> np.ndarray:
            if k >= limit:
                return np.zeros_like(p)
            if self.rpe is LIN:  # (1 + gained) (e^{(a-p) k} - e^{(a-p) limit})
                less = np.minimum(a - p, 0.0)
                part = np.where(a < p, np.exp(less * k) * -np.expm1(less * (limit - k)), 1.0)
                return times(times(grown, part), 1 + self._tilted_excess(a))
            safe = np.where(p - a > 1, p - a, 2.0)
            part = self._ratio(safe, p, k + 1.0) - self._ratio(safe, p, limit + 1.0) * (1 - 4e-9)
            return np.where(p - a > 1, times(grown, part), math.inf)

        return beyond

    def weight_error(self, precision: Format, stored: bool) -> np.ndarray:
        p, u = self.p.astype(float), precision.u
        a, b = self._slower(u, stored)
        gained = self._tilted_excess(a)
        with np.errstate(over="ignore"):
            error = self._rounded_share * np.expm1(b) + times(gained, np.exp(b))
        off, moved = self._normaliser(u)[0], self._slope_rounding(stored, u)
        error = moved + (1 + moved) * (error + times(off, 1 + error))
        if self.rpe is LIN:
            exists = (p * (1 - 2 * u) >= precision.least) & (2 * p < precision.most)
        else:
            exists = p <= LARGEST_LOG_SLOPE
        return np.where(exists, error, math.inf) + 3 * self.lags * precision.least

    @property
    def _rounded_share(self) -> np.ndarray:
        """Of the weights, those whose exponentials are rounded: all but that of lag 1."""
        return self._later

    def _products(self, precision: Format, stored: bool) -> np.ndarray:
        one = self._normaliser(precision.u)[1]
        return ROUNDED * precision.u * np.where(one, self._later, 1.0)

    def sum_error(self, precision: Format, stored: bool) -> np.ndarray:
        u, errors = precision.u, [np.zeros(self.H)]
        cuts: set[int] = set()
        if self.rpe is LIN:
            cuts = {max(1, math.ceil(min(-math.log(u) / float(p), LENGTH))) for p in self.p}
        for path, longest in self.paths.items():
            terms = min(longest - 1, self.lags)
            beyond = self._computed_beyond(u, stored, terms)
            if path == "plain":
                errors.append(any_order(terms, beyond(0), beyond, u, cuts))
            elif path == "blocks":
                errors.append(in_blocks(beyond(0), beyond, u, cuts))
        return np.max(errors, axis=0)

    def recall_error(self, precision: Format, stored: bool) -> np.ndarray:
        steps_error = super().recall_error(precision, stored)
        if "recurrence" not in self.paths:
            return steps_error
        assert self.rpe is LIN, "no bound covers the recurrence of other heads"
        moved = self._slope_rounding(stored, precision.u)
        steps = moved + (1 + moved) * recurrence(self.p.astype(float), precision.u)
        exists = np.isfinite(self.weight_error(precision, stored))
        steps = np.where(exists, steps, math.inf) + 3 * self.lags * precision.least
        return np.maximum(steps_error, steps) if len(self.paths) > 1 else steps

    def streams(self, precision: Format) -> bool:
        """lin heads keep a decaying sum; log heads a sum of exponentials, of which no rounding is proved."""
        if self.rpe is not LIN:
            return False
        return bool((stream(self.p.astype(float), precision.u) <= self.recall_error(precision, False)).all())

    @property
    def swell(self) -> np.ndarray:
        p = self.p.astype(float)
        if self.rpe is LIN:
            return np.minimum(1 / -np.expm1(-p), self.lags)
        from scipy.special import zeta

        return np.minimum(zeta(np.maximum(p, 1.0), 1.0) * (1 + 1e-9), self.lags)


def _zeta_gain(p: float, a: float) -> float:
    """zeta(p - a) / zeta(p) - 1, from above."""
    if not p - a > 1 or not p <= LARGEST_LOG_SLOPE:
        return math.inf
    with ctx.workprec(128):
        return above(((arb(p) - arb(a)).zeta() / arb(p).zeta() - 1).max(arb(0)))


def _largest(K: np.ndarray) -> list[int]:
    """The lags of the largest |K|."""
    K = np.abs(K)
    order = np.argsort(-K, kind="stable")[:MOST_TAPS]
    return sorted(int(z) + 1 for z in order if K[z] >= TAP * K[order[0]] and K[z] > 0)


@dataclass(frozen=True)
class Logits:
    """How far a computed logit, less the largest one, can be from the exact one: per lag, or for all."""

    size: Numbers  # `count` roundings of this size
    count: float
    stored_size: Numbers  # of the numbers that make it, `stored_count` roundings when they are stored
    stored_count: float

    def error(self, u: float, stored: bool) -> Numbers:
        moved = stored * self.stored_size * float(gamma(self.stored_count, u))
        # 2 moved: of this logit and of the largest one. 1e-30, for underflow.
        return (self.size + 2 * float(np.max(moved))) * float(gamma(self.count, u)) + moved + 1e-30

    @property
    def largest(self) -> "Logits":
        return Logits(
            float(np.max(self.size)), self.count, float(np.max(self.stored_size)), self.stored_count
        )


@dataclass(frozen=True)
class Peak:
    lag: int
    weight: arb  # w(lag)
    beside: arb  # the sum of the other weights
    logits: Logits


@dataclass(frozen=True)
class PeakKernels(HeadKernels):
    peaks: tuple[Peak, ...]
    window: int

    @property
    def H(self) -> int:  # type: ignore[override]
        return len(self.peaks)

    def value(self, g: Sequence[arb], z: int) -> arb:
        total = arb(0)
        for g_h, peak in zip(g, self.peaks, strict=True):
            total += g_h * (peak.weight if peak.lag == z else arb(0).union(peak.beside))
        return total

    def sample(self, g: Sequence[float], n: int) -> np.ndarray:
        K = np.zeros(n)
        for g_h, peak in zip(g, self.peaks, strict=True):
            if peak.lag <= n:
                K[peak.lag - 1] += g_h * float(peak.weight)
        return K

    def tap_lags(self, g: Sequence[arb]) -> list[int]:
        return sorted({peak.lag for g_h, peak in zip(g, self.peaks, strict=True) if not g_h.is_zero()})

    def residual(self, g: Sequence[arb], target: AbstractTarget) -> arb:
        lags = self.tap_lags(g)
        total = arb(0)
        for lag in lags:
            at = sum((g_h * p.weight for g_h, p in zip(g, self.peaks, strict=True) if p.lag == lag), arb(0))
            total += abs(at - target.value(lag))
        beside = sum((abs(g_h) * p.beside for g_h, p in zip(g, self.peaks, strict=True)), arb(0))
        elsewhere = target.tail_bound(0) - sum((abs(target.value(lag)) for lag in lags), arb(0))
        return total + beside + elsewhere.max(arb(0))

    @property
    def lags(self) -> float:
        return float(self.window)

    def _beside(self, u: float, stored: bool) -> np.ndarray:
        """The computed weights beside the peak, summed: logit errors act on them alone, because the peak's
        own computed logit is the one that all are compared with."""
        excess = [min(2.0 * float(peak.logits.error(u, stored)), 700.0) for peak in self.peaks]
        beside = [
            float(peak.beside.upper()) * math.exp(e) for peak, e in zip(self.peaks, excess, strict=True)
        ]
        return np.minimum(beside, 1.0) * (1 + 4 * LIBRARY * u)

    def _adding(self, u: float, stored: bool) -> np.ndarray:
        """The rounding of a sum over the window, relative to the sum of sizes: the smaller of what few terms
        and what small terms allow."""
        small = joined(self.window, u) * self._beside(u, stored)
        return np.minimum(float(gamma(self.window - 1, u)), small)

    def _alone(self, u: float, stored: bool) -> np.ndarray:
        """Whether the computed normaliser is exactly 1, and so is the peak's weight: its exponential is exp(0) = 1, and all
        that is added to it, in any order, is below u, half of the spacing of the numbers above 1."""
        return joined(self.window, u) * self._beside(u, stored) <= 0.9 * u

    def weight_error(self, precision: Format, stored: bool) -> np.ndarray:
        u, adding, beside = precision.u, self._adding(precision.u, stored), self._beside(precision.u, stored)
        # The peak's own weight moves by what lies beside it, before and after; the normaliser is a sum too.
        error = 2.2 * u + 4.2 * beside
        room = np.where(adding < 1, 1 - adding, 1.0)
        most = 1 + (1 + 4 * LIBRARY * u) / room  # computed weights are parts of a computed whole
        exists = np.array([precision.represents(peak.logits.stored_size) for peak in self.peaks]) & (
            adding < 1
        )
        error = np.where(exists, np.minimum((error + adding) / room, most), math.inf)
        # 1 - w(peak), and the others before and after.
        error = np.where(exists & self._alone(u, stored), 3 * beside, error)
        return error + 3 * self.lags * precision.least

    def sum_error(self, precision: Format, stored: bool) -> np.ndarray:
        return self._adding(precision.u, stored) * (1 + self.weight_error(precision, stored))

    def _products(self, precision: Format, stored: bool) -> np.ndarray:
        alone, beside = self._alone(precision.u, stored), self._beside(precision.u, stored)
        return ROUNDED * precision.u * np.where(alone, beside, 1.0)


@dataclass(frozen=True)
class TableKernels(HeadKernels):
    """Every weight of every head: w_h(z) = e^{l(z)} / sum_z' e^{l(z')}, z <= window.

    Rounding. The model takes e(z) = exp(l(z) - anchor) with one anchor for all lags, so the anchor cancels:
    the computed e(z) is e(z) (1 + a(z)), |a| <= A(z) = e^{logit error} (1 + LIBRARY u) - 1, or below `least`.
    With the sum over the window off by a factor 1 + c, |c| <= G, and mean(A) = sum_z w(z) A(z),

        computed w(z) / w(z) = (1 + a(z)) (1 + 2 u) / ((1 + mean(a)) (1 + c))
        sum_z |computed w(z) - w(z)| <= (2 mean(A) + 2 u + G + ...) / ((1 - mean(A)) (1 - G))

    A lag with a large logit error costs only as much as its weight.
    """

    w: tuple[tuple[arb, ...], ...]  # (H, window)
    logits: tuple[Logits, ...]

    @property
    def H(self) -> int:  # type: ignore[override]
        return len(self.w)

    @property
    def window(self) -> int:
        return len(self.w[0])

    @property
    def lags(self) -> float:
        return float(self.window)

    @cached_property
    def _above(self) -> np.ndarray:
        """The weights in float64, from above; none underflows, so that a large error of it counts."""
        return np.array([[max(float(x.upper()), 1e-300) for x in row] for row in self.w]) * (1 + 1e-12)

    @cached_property
    def _floats(self) -> np.ndarray:
        return np.array([[float(x.mid()) for x in row] for row in self.w])

    def value(self, g: Sequence[arb], z: int) -> arb:
        if z > self.window:
            return arb(0)
        return sum((g_h * row[z - 1] for g_h, row in zip(g, self.w, strict=True)), arb(0))

    def sample(self, g: Sequence[float], n: int) -> np.ndarray:
        K = np.zeros(n)
        m = min(n, self.window)
        K[:m] = np.asarray(g) @ self._floats[:, :m]
        return K

    def tap_lags(self, g: Sequence[arb]) -> list[int]:
        return _largest(self.sample([float(x.mid()) for x in g], self.window))

    def residual(self, g: Sequence[arb], target: AbstractTarget) -> arb:
        used = [(g_h, row) for g_h, row in zip(g, self.w, strict=True) if not g_h.is_zero()]
        total = _beyond(target, self.window)
        for z in range(1, self.window + 1):
            K = sum((g_h * row[z - 1] for g_h, row in used), arb(0))
            total += abs(K - target.value(z))
        return total

    def _logit_rounding(self, u: float, stored: bool) -> tuple[np.ndarray, np.ndarray]:
        """(A(z), mean(A)) per head; infinite where it says nothing."""
        # Twice: a rotary logit and the anchor it is compared with are both of that size.
        error = np.stack([np.broadcast_to(2.0 * l.error(u, stored), self.window) for l in self.logits])
        A = np.expm1(np.minimum(error, 600.0)) * (1 + LIBRARY * u) + LIBRARY * u
        mean = (self._above * A).sum(axis=1)
        return A, np.where((error < 600.0).all(axis=1) & (mean < 0.5), mean, math.inf)

    def _adding(self, u: float, stored: bool) -> np.ndarray:
        """The rounding of a sum over the window, relative to the sum of sizes: the smallest of what few terms
        allow, and what k large ones do with all others small."""
        A, mean = self._logit_rounding(u, stored)
        gammas = np.full(self.H, float(gamma(self.window - 1, u)))
        for h in np.nonzero(np.isfinite(mean))[0]:
            # 8 u, for the division: the weights are summed as well, with values
            computed = np.sort(self._above[h] * (1 + A[h]) * (1 + 8 * u) / (1 - mean[h]))[::-1]
            rest = np.append(np.cumsum(computed[::-1])[::-1][1:], 0.0)  # beside the k largest, k = 1, 2, ...
            ku = u * np.arange(self.window)
            few = ku < 0.5
            gammas[h] = min(gammas[h], ((ku + joined(self.window, u) * rest)[few] / (1 - ku[few])).min())
        return gammas

    def weight_error(self, precision: Format, stored: bool) -> np.ndarray:
        u, G = precision.u, self._adding(precision.u, stored)
        _, mean = self._logit_rounding(u, stored)
        known = np.isfinite(mean)
        A = np.where(known, mean, 0.0)
        room = np.where(G < 1, 1 - G, 1.0)
        # 2 u for the division, which may be a product with the inverse; the rest is for u^2
        moved = (2 * A + 2.5 * u * (1 + A) + G * (1 + A)) / ((1 - A) * room)
        most = 1 + (1 + 2.5 * u) / room  # computed weights are parts of a computed whole
        error = np.where(known, np.minimum(moved, most), most)
        holds = [precision.represents(l.stored_size) for l in self.logits]
        return np.where(np.array(holds) & (G < 1), error, math.inf) + 4 * self.lags * precision.least

    def sum_error(self, precision: Format, stored: bool) -> np.ndarray:
        return times(self._adding(precision.u, stored), 1 + self.weight_error(precision, stored))


def _beyond(target: AbstractTarget, n: int) -> arb:
    """At least sum_{z>n} |target(z)|: what is known of oscillating tails is loose, so values come first."""
    if isinstance(target, Taps):
        return target.tail_bound(n)
    values = (abs(target.value(z)) for z in range(n + 1, PROBE + 1))
    return sum(values, target.tail_bound(max(n, PROBE)))


def layer_kernels(attention: Attention, paths: Mapping[str, int] = ANY_ORDER) -> HeadKernels:
    """The kernels of a layer, or a refusal when its weights are not fixed kernels over lags.

    `paths` that it may take, and the longest sequence on each (model/paths/choice.py).
    """
    heads = attention.heads
    encoding, past = heads.encoding, heads.past
    if heads.score.name != "dpf":
        raise BadInput(f"attention {heads.score.name!r} weighs lags by content; fixed memories need 'dpf'")
    if heads.normalisation.name != "infinite":
        raise BadInput(
            f"normalisation {heads.normalisation.name!r} makes a head's kernel depend on the position; "
            "certificates of fixed kernels need 'infinite'"
        )
    attention.check()
    kind = type(encoding)  # exactly: a class derived from one of these may have another kernel
    if kind is Lin or kind is Log:
        if past.window is not None or past.stride != 1:
            raise BadInput("certificates of lin and log heads need an unlimited past and stride 1")
        p = np.asarray(encoding.slope(), dtype=float)
        return SumKernels(LIN if kind is Lin else LOG, p, paths=paths)
    if kind is not Rope and kind is not T5:
        raise BadInput(
            f"no certificate follows heads of {kind.__name__} (encoding {encoding.name!r}); they follow those of Lin, "
            "Log, Rope and T5"
        )
    if past.stride != 1 or past.window is None:
        raise BadInput("certificates of rope and t5 heads need a window and stride 1")
    if isinstance(encoding, Rope):
        return _window_kernels(_rope_logits(encoding, past.window), past.window)
    assert isinstance(encoding, T5)
    return _window_kernels(_t5_logits(encoding, past.window), past.window)


def _window_kernels(heads: Iterable[tuple[list[arb], Logits]], window: int) -> HeadKernels:
    """Peaks say enough of sharp heads, and are all that is kept of long windows."""
    peaks, tables = [], []
    for logits, errors in heads:
        peaks.append(_peak(logits, errors.largest))
        if window <= LONGEST_TABLE:
            tables.append((logits, errors))
    if window > LONGEST_TABLE or all(peak.beside.upper() < SHARP for peak in peaks):
        return PeakKernels(tuple(peaks), window)
    return TableKernels(
        tuple(_softmax(logits) for logits, _ in tables), tuple(errors for _, errors in tables)
    )


def _softmax(logits: list[arb]) -> tuple[arb, ...]:
    anchor = max(logits, key=lambda x: float(x.mid())).mid()  # any exact number would do
    e = [(x - anchor).exp() for x in logits]
    total = sum(e, arb(0))
    return tuple(x / total for x in e)


def _rope_logits(encoding: Rope, window: int) -> Iterable[tuple[list[arb], Logits]]:
    turns, q, k = (np.asarray(part) for part in (encoding.turns, encoding.q, encoding.k))
    for h in range(len(q)):
        yield _rope_head(turns[h], q[h].astype(float), k[h].astype(float), window)


def _rope_head(turns: np.ndarray, q: np.ndarray, k: np.ndarray, window: int) -> tuple[list[arb], Logits]:
    """One head: logit(z) = sum_j C_j cos(omega_j z) + S_j sin(omega_j z), for all z at once.

    z = i m + j makes the logits one matrix product, by the addition theorems.
    """
    f = len(turns)
    q1, q2, k1, k2 = ([arb(float(x)) for x in part] for part in (q[:f], q[f:], k[:f], k[f:]))
    C = [a * c + b * d for a, b, c, d in zip(q1, q2, k1, k2, strict=True)]
    S = [a * d - b * c for a, b, c, d in zip(q1, q2, k1, k2, strict=True)]
    m = max(1, math.isqrt(window))
    rows = window // m + 1
    # In units of pi: sin_pi and cos_pi are exact at the many multiples of a half that occur.
    omega = [arb(int(t)) / arb(2**31) for t in turns]
    left = []
    for i in range(rows):
        row = []
        for j in range(f):
            cos, sin = (omega[j] * (i * m)).cos_pi(), (omega[j] * (i * m)).sin_pi()
            row += [C[j] * cos + S[j] * sin, S[j] * cos - C[j] * sin]
        left.append(row)
    right = []
    for j in range(f):
        right += [[(omega[j] * b).cos_pi() for b in range(m)], [(omega[j] * b).sin_pi() for b in range(m)]]
    logits = (arb_mat(left) * arb_mat(right)).entries()[1 : window + 1]
    # The coefficients are rounded before they cancel, so their products count, not their sums.
    absolute = [(abs(a) + abs(b)) * (abs(c) + abs(d)) for a, b, c, d in zip(q1, q2, k1, k2, strict=True)]
    size = float(sum(absolute, arb(0)).upper()) * (1 + 1e-12)
    # theta carries 3 roundings of up to pi, cos and sin the library's, the coefficients 3, the sums 2 f,
    # and the difference to the anchor 1.
    return logits, Logits(size, 10 + LIBRARY + 3 + 2 * f + 1, size, 2)


def _t5_logits(encoding: T5, window: int) -> Iterable[tuple[list[arb], Logits]]:
    starts = np.asarray(encoding.starts)
    bucket = np.searchsorted(starts, np.arange(1, window + 1), side="right") - 1
    for row in np.asarray(encoding.table, dtype=float)[:, bucket]:
        # The table is exact, but for its storage; the difference to the anchor is rounded.
        yield [arb(float(x)) for x in row], Logits(row.max() - row, 1, np.abs(row), 1)


def _peak(logits: list[arb], errors: Logits) -> Peak:
    best = max(range(len(logits)), key=lambda z: float(logits[z].mid()))
    top = logits[best]
    if not all(x < top for z, x in enumerate(logits) if z != best):
        unknown = arb(0).union(arb(1))  # a tie, or too close to tell: nothing is known of the peak
        return Peak(best + 1, unknown, unknown, errors)
    others = sum(((x - top).exp() for z, x in enumerate(logits) if z != best), arb(0))
    total = 1 + others
    return Peak(best + 1, 1 / total, others / total, errors)
