"""Forward selection over lags, and over pairs of lags: which moment of the target does the past explain?

    lags    r_t ~ u_{t-z}              partial correlation given what was chosen; all z by one FFT
    pairs   r_t ~ x_{t-a} x_{t-b}      for each a one FFT over all b; a product of centred inputs has no other first moment

At each step the best candidate is added if its p-value, times the number of candidates, is below the stated rate; both the
scale of shifted series and the t-value over blocks of time must say so (correlate.py). So the chance that a step adds a lag
that has no part in the target is at most that rate, whatever was chosen before: family-wise, hence also of false discovery.
Afterwards every choice is tested given all the others, and the weakest is dropped until all hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memloci.detect.correlate import (
    LEAST_FAR,
    Transform,
    all_shifts,
    far_variance,
    t_p_value,
    transform,
    z_p_value,
)
from memloci.detect.fourier import fft
from memloci.detect.series import Series

MOST_TERMS = 24
PAIR_STEPS = 20_000  # of the series, for one channel; the search over pairs costs their number times this
BATCH = 32
COLLINEAR = 1e-3  # of a candidate's variance that must be left once the chosen are taken out


@dataclass(frozen=True)
class LagTerm:
    """A product of one or two lagged channels, with its corrected p-value."""

    factors: tuple[tuple[int, int], ...]  # (channel, lag)
    p_value: float


class Basis:
    """An orthonormal basis of the chosen terms, and the residual of the target."""

    def __init__(self, y: np.ndarray):
        self.y = y
        self.Q = np.full((len(y), 1), 1 / np.sqrt(len(y)))
        self.r = y - y.mean()

    def orthogonal(self, u: np.ndarray) -> np.ndarray:
        u = u - self.Q @ (self.Q.T @ u)
        return u - self.Q @ (self.Q.T @ u)  # twice is enough

    def add(self, u: np.ndarray) -> None:
        u = self.orthogonal(u)
        q = u / np.sqrt(u @ u)
        self.Q = np.column_stack([self.Q, q])
        self.r = self.r - q * (q @ self.r)


def p_value(series: Series, r: np.ndarray, u: np.ndarray, channel: Transform | None = None) -> float:
    """Of no dependence between r and a candidate u, both free of what was chosen; not yet corrected.

    The scale comes from the residual that the candidate leaves (Wald's test): a slow series that remembers its last
    value is no longer slow there, and where there is no dependence both residuals are the same.
    """
    size = float(u @ u)
    C = float(r @ u)
    e = r - u * (C / size)
    products = e * u
    variance = float(products @ products)
    if channel is not None:
        shifted = all_shifts(series, series.scatter(e), channel.spectrum)
        power = float((channel.u[series.rows] ** 2).sum()) + 1e-12
        variance = max(variance, far_variance(series, shifted) * min(size / power, 1.0))
    sums = np.bincount(series.blocks, products)
    t = C / (np.sqrt(float(sums @ sums)) + 1e-12)
    return max(z_p_value(C / np.sqrt(variance + 1e-12)), t_p_value(series, t))


def select_lags(
    series: Series,
    target: np.ndarray,
    channels: Sequence[Transform],
    alpha: float,
    *,
    fixed_columns: Sequence[np.ndarray] = (),
    most: int = MOST_TERMS,
    least: int | None = None,
) -> list[LagTerm]:
    """The lags of `channels` that explain a target, given some columns; factors number the channels."""
    first = series.least if least is None else least
    basis = Basis(target)
    for u in fixed_columns:
        basis.add(u)
    chosen: list[LagTerm] = []
    count = len(channels) * (series.T + 1 - first)
    power = [_squares(series, u) for u in channels]  # sum over rows of u_{t-z}^2
    explained = [np.zeros(series.T + 1) for _ in channels]
    new = basis.Q
    while len(chosen) < most:
        best: tuple[float, int, int] | None = None
        residual = series.scatter(basis.r)
        for c, u in enumerate(channels):
            for q in new.T:
                explained[c] += all_shifts(series, series.scatter(q), u.spectrum)[: series.T + 1] ** 2
            C = all_shifts(series, residual, u.spectrum)
            left = np.maximum(power[c] - explained[c], 0.0)
            share = left / (power[c] + 1e-12)
            gain = np.where(share > COLLINEAR, C[: series.T + 1] ** 2 / (left + 1e-12), 0.0)
            gain[:first] = 0.0
            z = int(np.argmax(gain))
            if best is None or gain[z] > best[0]:
                best = (float(gain[z]), c, z)
        assert best is not None
        _, c, z = best
        u = basis.orthogonal(channels[c].u[series.rows - z])
        if u @ u < COLLINEAR * max(power[c][z], 1e-12):
            break
        p = count * p_value(series, basis.r, u, channels[c])
        if p > alpha:
            break
        chosen.append(LagTerm(((c, z),), p))
        basis.add(u)
        new = basis.Q[:, -1:]
    return drop_insignificant(
        series,
        target,
        chosen,
        [channels[t.factors[0][0]].u[series.rows - t.factors[0][1]] for t in chosen],
        alpha / count,
        fixed_columns,
    )


def _squares(series: Series, u: Transform) -> np.ndarray:
    counted = series.scatter(np.ones(series.n))
    return np.maximum(all_shifts(series, counted, u.squared)[: series.T + 1], 0.0)


def drop_insignificant(
    series: Series,
    target: np.ndarray,
    terms: list[LagTerm],
    columns: list[np.ndarray],
    level: float,
    fixed_columns: Sequence[np.ndarray] = (),
) -> list[LagTerm]:
    """Without the terms that add nothing to the others: t-values of a regression, robust over blocks."""
    terms, columns = list(terms), list(columns)
    while len(terms) > 1:
        p = regression_p_values(series, target, np.column_stack([*columns, *fixed_columns]))[: len(terms)]
        worst = int(np.argmax(p))
        if p[worst] <= level:
            break
        del terms[worst], columns[worst]
    return terms


def regression_p_values(series: Series, y: np.ndarray, F: np.ndarray) -> np.ndarray:
    """Of each column, given the others; the covariance is a sandwich over blocks of time."""
    F = np.column_stack([F - F.mean(0)])
    inverse = np.linalg.pinv(F.T @ F)
    beta = inverse @ (F.T @ (y - y.mean()))
    e = y - y.mean() - F @ beta
    count = int(series.blocks[-1]) + 1
    starts = np.searchsorted(series.blocks, np.arange(count))
    sums = np.add.reduceat(F * e[:, None], starts, axis=0)
    covariance = inverse @ (sums.T @ sums) @ inverse
    t = beta / np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    return np.array([t_p_value(series, value) for value in t])


# -- pairs ------------------------------------------------------------------------------------------------


def best_pairs(series: Series, basis: Basis, alpha: float, most: int = 2) -> list[LagTerm]:
    """The pairs of lags whose product explains most of the residual, if chance would not."""
    first, T = series.least, series.T
    count = (series.d * (T + 1 - first)) ** 2 / 2
    pairs = _scan_pairs(series, basis.r)
    chosen: list[LagTerm] = []
    for _, a, b in pairs:
        if any({a, b} & set(term.factors) for term in chosen):
            continue
        u = basis.orthogonal(product_of(series, (a, b)))
        p = count * p_value(series, basis.r, u)
        if p > alpha:
            break
        chosen.append(LagTerm((a, b), p))
        if len(chosen) == most:
            break
    return chosen


def product_of(series: Series, factors: Sequence[tuple[int, int]]) -> np.ndarray:
    product = np.ones(series.n)
    for c, z in factors:
        product = product * series.clipped[series.rows - z, c]
    return product - product.mean()


def _scan_pairs(series: Series, r: np.ndarray) -> list[tuple[float, tuple[int, int], tuple[int, int]]]:
    """Pairs of (channel, lag) by their score, best first; each pair of channels gives its best few."""
    rows = max(2_000, PAIR_STEPS // series.d)
    at = series.rows if series.n <= rows else series.rows[(series.n - rows) // 2 :][:rows]
    e = r if series.n <= rows else r[(series.n - rows) // 2 :][:rows]
    start, stop = at[0] - series.T, at[-1] + 1
    X = series.clipped[start:stop].astype(np.float32)
    L = int(fft.next_fast_len(stop - start, real=True))
    E = np.zeros(L, np.float32)
    E[at - start] = e / (np.abs(e).max() + 1e-12)
    padded = np.zeros((series.d, L), np.float32)
    padded[:, : stop - start] = X.T
    spectra = fft.rfft(padded, axis=1)
    power = float((E**2).mean())
    lags = np.arange(series.least, series.T + 1)
    pairs = []
    for c in range(series.d):
        # E[x_a^2 x_b^2] depends on a - b; taken over the stretch.
        moments = [
            fft.irfft(fft.rfft(padded[c] ** 2) * fft.rfft(padded[k] ** 2).conj(), L) / L
            for k in range(series.d)
        ]
        for batch in range(0, len(lags), BATCH):
            some = lags[batch : batch + BATCH]
            shifted = np.stack([np.roll(padded[c], z) for z in some])
            spectrum = fft.rfft(E * shifted, axis=1)
            for k in range(c, series.d):
                C = fft.irfft(spectrum * spectra[k].conj(), L, axis=1)
                far = C[:, series.T + 1 : L - series.T]
                far_power = (far**2).mean(axis=1) if far.shape[1] >= LEAST_FAR else np.zeros(len(some))
                for row, a in enumerate(some.tolist()):
                    b = lags[lags >= a] if k == c else lags
                    variance = power * L * moments[k][b - a]  # x_{t-a}^2 x_{t-b}^2
                    score = C[row, b] / np.sqrt(np.maximum(variance, far_power[row]) + 1e-12)
                    top = int(np.argmax(np.abs(score)))
                    pairs.append((float(abs(score[top])), (c, a), (k, int(b[top]))))
    return sorted(pairs, reverse=True)[:8]


def linear_transforms(series: Series) -> list[Transform]:
    return [transform(series, series.clipped[:, c] * series.inside) for c in range(series.d)]
