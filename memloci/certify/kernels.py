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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from flint import arb, arb_mat

from memloci.approx.kernels.residuals import residual_l1
from memloci.approx.kernels.rpe import LIN, LOG, AbstractRPE
from memloci.approx.kernels.targets import AbstractTarget, Spectrum
from memloci.certify.rounding import LARGEST_LOG_SLOPE, LENGTH, LIBRARY, ZETA, Format, Numbers, gamma, times
from memloci.core.errors import BadInput
from memloci.core.numbers import number
from memloci.model.attention import Attention
from memloci.model.encodings import T5, Lin, Log, Rope
from memloci.model.paths.decay import CHUNK

PROBE = 2_048  # lags looked at for taps; a tap that is not found becomes part of the error
TAP = 1e-2  # relative size of a tap
MOST_TAPS = 16
SHARP = 1e-9  # what may lie beside a peak that is taken for the whole head: below the roundings of float32
LONGEST_TABLE = 4_096  # windows that are kept lag by lag
# A running sum of running sums, k of whose terms are large: an addition joins two operands with large terms
# at most k - 1 times. Any other errs by no more than its operand of small terms alone. Per unit of small
# terms: 1 in its running sum, which is then 2 at most, 2 when that is added to others, which are then 4 at
# most, and 4 when those meet the first large term.
SMALL = 7.0


_NOTHING = arb(0)


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
        found: dict[int, arb] = {}
        for t, c in self.taps:
            found[t] = found.get(t, _NOTHING) + c
        return found

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
        """Per head, the rounding of sum_z w_h(z) v with the computed weights, per unit of |v|."""


@dataclass(frozen=True)
class SumKernels(HeadKernels):
    rpe: AbstractRPE
    p: np.ndarray  # (H,), exact
    recurrent: bool = field(
        default=False, kw_only=True
    )  # lin: the sum may also be made by the recurrence of model/paths/decay.py

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
        """(a, b): the computed w(z) is w(z) e^{+-(a x + b)}, x = z - 1 (lin) or log z (log)."""
        p = self.p.astype(float)
        if self.rpe is LIN:
            # position = p * -z, less the anchor: z, the product and the difference are rounded. That is at
            # most 3 u p (z-1), and 0 at z = 1; the rest is for u^2. The normaliser is -1 / expm1(-p).
            a = 3.2 * u * p
            if self.recurrent:
                # A step multiplies by 1 + expm1(-p), off by LIBRARY u (e^p - 1) < 10.4 u p where p < 1/2, or by
                # e^-p, off by LIBRARY u <= 16 u p; a chunk by e^{-p CHUNK}, off by LIBRARY u.
                a = (18 * p + 1.1 * LIBRARY / CHUNK) * u
            return a + 1.1 * stored * u * p, np.full_like(p, 1.1 * u * (2 * LIBRARY + 4 + stored))
        # position = p * -log z: z, the library's log, one product; the normaliser is zeta(p).
        a = (LIBRARY + 1.6 + 1.1 * stored) * u * p
        b = 1.1 * u * (LIBRARY + 3) - math.log1p(-ZETA * u) if ZETA * u < 1 else math.inf
        return a, np.full_like(p, b)

    def _mass_beyond(self, k: int, u: float, stored: bool) -> np.ndarray:
        """sum_{z>k} of the computed weights, from above."""
        p, (a, b) = self.p.astype(float), self._slower(u, stored)
        if self.rpe is LIN:
            with np.errstate(over="ignore"):
                return times(np.exp(b + np.minimum(a - p, 0.0) * k), 1 + self._gained(p, a))
        from scipy.special import zeta

        safe = np.where(p - a > 1, p - a, 2.0)
        ratio = zeta(safe, k + 1.0) / zeta(p, 1.0) * (1 + 1e-9)
        # Rounding p to p (1 - u) raises the normaliser by at most zeta(p - a) / zeta(p).
        rounded = zeta(safe, 1.0) / zeta(p, 1.0) * (1 + 1e-9) if stored else 1.0
        with np.errstate(over="ignore"):
            return np.where(p - a > 1, times(np.exp(b), ratio * rounded), math.inf)

    @staticmethod
    def _gained(p: np.ndarray, a: np.ndarray) -> np.ndarray:
        """sum_z w(z) e^{a (z-1)} - 1 = (1 - e^-p) / (1 - e^{a-p}) - 1, without cancellation."""
        less = np.where(a < p, a - p, -1.0)
        return np.where(a < p, np.exp(less) * np.expm1(-a) / np.expm1(less), math.inf)

    def weight_error(self, precision: Format, stored: bool) -> np.ndarray:
        p, u = self.p.astype(float), precision.u
        a, b = self._slower(u, stored)
        if self.rpe is LIN:
            gained = self._gained(p, a)
            with np.errstate(over="ignore"):
                error = np.expm1(b) * (1 + gained) + gained
            exists = (p * (1 - 2 * u) >= precision.least) & (2 * p < precision.most)
        else:
            # sum_z w(z) z^a = zeta(p - a) / zeta(p) <= e^{a / (p - a - 1)}, because (s - 1) zeta(s) grows.
            room = np.where(p - a > 1, p - a - 1, 1.0)
            error = np.where(p - a > 1, np.expm1(b + (1 + stored) * a / room), math.inf)
            exists = p <= LARGEST_LOG_SLOPE
        return np.where(exists, error, math.inf) + 3 * self.lags * precision.least

    def sum_error(self, precision: Format, stored: bool) -> np.ndarray:
        u = precision.u
        cuts = {1, *(2**k for k in range(1, 60))}
        if self.rpe is LIN:
            cuts |= {max(1, math.ceil(min(-math.log(u) / float(p), LENGTH))) for p in self.p}
        all_mass = self._mass_beyond(0, u, stored)
        errors = [
            (times((k - 1) * u, all_mass) + SMALL * self._mass_beyond(k, u, stored)) / (1 - (k - 1) * u)
            for k in sorted(cuts)
            if (k - 1) * u < 0.5
        ]
        plain = np.min(errors, axis=0) * (1 + 1e-9)
        return np.maximum(plain, self._recurrence_error(u) * all_mass) if self.recurrent else plain

    def _recurrence_error(self, u: float) -> np.ndarray:
        """The additions of model/paths/decay.py, per unit of the sum of weights.

        S <- hold S + (decay S + v) errs by 2.2 u of the sum within the chunk, which is min(1, CHUNK (1 - q)) of the
        whole at most, q = e^-p; or by no more than the smaller operand, q. Errors decay like S, so their sum over
        the past is 1/(1 - q) of one. The same holds for the sum over chunks, and one sum of both is read.
        """
        q = np.exp(-self.p.astype(float))
        over, kept = q**CHUNK, -np.expm1(-self.p.astype(float))
        within = np.minimum(u, q) * (np.minimum(1 / kept, CHUNK) + 1)
        return 2.4 * (within + np.minimum(u, over) / -np.expm1(-self.p.astype(float) * CHUNK))

    @property
    def swell(self) -> np.ndarray:
        p = self.p.astype(float)
        if self.rpe is LIN:
            return np.minimum(1 / -np.expm1(-p), self.lags)
        from scipy.special import zeta

        return np.minimum(zeta(np.maximum(p, 1.0), 1.0) * (1 + 1e-9), self.lags)


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
        return np.minimum(float(gamma(self.window - 1, u)), SMALL * self._beside(u, stored))

    def weight_error(self, precision: Format, stored: bool) -> np.ndarray:
        u, adding = precision.u, self._adding(precision.u, stored)
        # The peak's own weight moves by what lies beside it, before and after; the normaliser is a sum too.
        error = 2.2 * u + 4.2 * self._beside(u, stored)
        room = np.where(adding < 1, 1 - adding, 1.0)
        most = 1 + (1 + 4 * LIBRARY * u) / room  # computed weights are parts of a computed whole
        exists = np.array([precision.holds(peak.logits.stored_size) for peak in self.peaks]) & (adding < 1)
        error = np.where(exists, np.minimum((error + adding) / room, most), math.inf)
        return error + 3 * self.lags * precision.least

    def sum_error(self, precision: Format, stored: bool) -> np.ndarray:
        return self._adding(precision.u, stored) * (1 + self.weight_error(precision, stored))


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

    def _moved(self, u: float, stored: bool) -> tuple[np.ndarray, np.ndarray]:
        """(A(z), mean(A)) per head; infinite where it says nothing."""
        # Twice: a rotary logit and the anchor it is compared with are both of that size.
        error = np.stack([np.broadcast_to(2.0 * l.error(u, stored), self.window) for l in self.logits])
        A = np.expm1(np.minimum(error, 600.0)) * (1 + LIBRARY * u) + LIBRARY * u
        mean = (self._above * A).sum(axis=1)
        return A, np.where((error < 600.0).all(axis=1) & (mean < 0.5), mean, math.inf)

    def _adding(self, u: float, stored: bool) -> np.ndarray:
        """The rounding of a sum over the window, relative to the sum of sizes: the smallest of what few terms
        allow, and what k large ones do with all others small."""
        A, mean = self._moved(u, stored)
        found = np.full(self.H, float(gamma(self.window - 1, u)))
        for h in np.nonzero(np.isfinite(mean))[0]:
            # 8 u, for the division: the weights are summed as well, with values
            computed = np.sort(self._above[h] * (1 + A[h]) * (1 + 8 * u) / (1 - mean[h]))[::-1]
            rest = np.append(np.cumsum(computed[::-1])[::-1][1:], 0.0)  # beside the k largest, k = 1, 2, ...
            ku = u * np.arange(self.window)
            few = ku < 0.5
            found[h] = min(found[h], ((ku + SMALL * rest)[few] / (1 - ku[few])).min())
        return found

    def weight_error(self, precision: Format, stored: bool) -> np.ndarray:
        u, G = precision.u, self._adding(precision.u, stored)
        _, mean = self._moved(u, stored)
        known = np.isfinite(mean)
        A = np.where(known, mean, 0.0)
        room = np.where(G < 1, 1 - G, 1.0)
        # 2 u for the division, which may be a product with the inverse; the rest is for u^2
        moved = (2 * A + 2.5 * u * (1 + A) + G * (1 + A)) / ((1 - A) * room)
        most = 1 + (1 + 2.5 * u) / room  # computed weights are parts of a computed whole
        error = np.where(known, np.minimum(moved, most), most)
        holds = [precision.holds(l.stored_size) for l in self.logits]
        return np.where(np.array(holds) & (G < 1), error, math.inf) + 4 * self.lags * precision.least

    def sum_error(self, precision: Format, stored: bool) -> np.ndarray:
        return times(self._adding(precision.u, stored), 1 + self.weight_error(precision, stored))


def _beyond(target: AbstractTarget, n: int) -> arb:
    """At least sum_{z>n} |target(z)|: what is known of oscillating tails is loose, so values come first."""
    if isinstance(target, Taps):
        return target.tail_bound(n)
    values = (abs(target.value(z)) for z in range(n + 1, PROBE + 1))
    return sum(values, target.tail_bound(max(n, PROBE)))


def layer_kernels(attention: Attention, recurrent: bool = False) -> HeadKernels:
    """The kernels of a layer, or a refusal when its weights are not fixed kernels over lags.

    `recurrent`: lin heads may take the path of that name.
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
    if isinstance(encoding, Lin | Log):
        if past.window is not None or past.stride != 1:
            raise BadInput("certificates of lin and log heads need an unlimited past and stride 1")
        p = np.asarray(encoding.p, dtype=float)
        return SumKernels(LIN, p, recurrent=recurrent) if isinstance(encoding, Lin) else SumKernels(LOG, p)
    if past.stride != 1 or past.window is None:
        raise BadInput("certificates of rope and t5 heads need a window and stride 1")
    if isinstance(encoding, Rope):
        return _window_kernels(_rope_logits(encoding, past.window), past.window)
    if isinstance(encoding, T5):
        return _window_kernels(_t5_logits(encoding, past.window), past.window)
    raise BadInput(f"encoding {encoding.name!r} has no fixed kernel over lags")


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
