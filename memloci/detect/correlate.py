"""All lags of a candidate at once, and what chance makes of them.

    C(z) = sum_t e_t u_{t-z},   z = 0..T, by one FFT

Two scales of C(z) under no memory are computed, and the larger counts. Circular shifts beyond T leave each series its own
dependence and take away the one between them: the root mean square of C there (a block permutation whose block is the
whole series). The sum of e_t^2 u_{t-z}^2 knows what shifts do not: at short lags both sides of a volatile series are large
together. A p-value is corrected for the number of candidates by Bonferroni, whatever their dependence.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from memloci.detect.fourier import fft
from memloci.detect.series import Series

LEAST_FAR = 40  # shifts beyond T that estimate a scale


@dataclass(frozen=True, eq=False)
class Transform:
    """A channel of features on the axis of time, ready to be correlated."""

    u: np.ndarray
    spectrum: np.ndarray
    squared: np.ndarray  # the spectrum of u^2


def length_of(series: Series) -> int:
    return int(fft.next_fast_len(len(series.X), real=True))


def transform(series: Series, u: np.ndarray) -> Transform:
    """`u` is centred over the tokens; gaps stay 0."""
    inside = series.inside > 0
    u = np.where(inside, u - u[inside].mean(), 0.0)
    L = length_of(series)
    return Transform(u, fft.rfft(u, L), fft.rfft(u * u, L))


def all_shifts(series: Series, e: np.ndarray, spectrum: np.ndarray) -> np.ndarray:
    """sum_t e_t u_{t-z} at every circular shift z; `e` is on the axis of time."""
    L = length_of(series)
    return fft.irfft(fft.rfft(e, L) * spectrum.conj(), L)


def scores(series: Series, e: np.ndarray, u: Transform) -> tuple[np.ndarray, np.ndarray]:
    """C(z) and its z-score for z = 0..T; `e` is a value per row, with mean 0."""
    residual = series.scatter(e)
    C = all_shifts(series, residual, u.spectrum)
    near = C[: series.T + 1]
    variance = np.maximum(all_shifts(series, residual**2, u.squared)[: series.T + 1], 0.0)
    return near, near / (np.sqrt(np.maximum(variance, far_variance(series, C))) + 1e-12)


def far_variance(series: Series, C: np.ndarray) -> float:
    """The variance of C where no memory lives; 0 where there are too few shifts to know."""
    far = C[series.T + 1 : len(series.X) - series.T]
    if len(far) < LEAST_FAR:
        return 0.0
    # Gaps make shifted sequences overlap less than those in place.
    filled = float(series.inside.mean())
    return float(np.mean(far**2)) / max(filled, 0.25)


def block_t(series: Series, products: np.ndarray) -> float:
    """The t-value of a mean over blocks of time: serial dependence shorter than a block is in it."""
    count = int(series.blocks[-1]) + 1
    sums = np.bincount(series.blocks, products, minlength=count)
    spread = sums.std(ddof=1)
    return float(sums.mean() / (spread / np.sqrt(count))) if spread > 0 else 0.0


def t_p_value(series: Series, t: float) -> float:
    """Two-sided, with as many degrees of freedom as there are blocks less one."""
    return float(2 * stats.t.sf(abs(t), int(series.blocks[-1])))


def z_p_value(z: float) -> float:
    return float(2 * stats.norm.sf(abs(z)))
