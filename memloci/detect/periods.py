"""Periods are not lags: a season may be carried by another lag, and a quasi-cycle by two short ones.

    held-out share of the variance that the means of the phases t mod P explain, for every P

A slow series is differenced first. The smallest period within 90 % of the best is taken, its means removed, and the rest
looked at again. Phase means are learnt on four fifths of the cycles and judged on the last, with a t-value over blocks.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from memloci.detect.series import Series

MOST_PERIODS = 3
SLOW = 0.6  # lag-1 correlation above which a series is differenced
LEAST_CYCLES = 5
MOST_STEPS = 100_000
LEAST_SHARE = 0.02


@dataclass(frozen=True)
class Period:
    period: int
    share: float  # of the (differenced) target's variance, held out
    p_value: float


def find_periods(series: Series, alpha: float) -> tuple[Period, ...]:
    """Of the target over time; of one long sequence only."""
    gaps = np.diff(series.rows)
    if (gaps > 1).any() or series.n < 40:
        return ()
    y = series.y[:MOST_STEPS]
    if np.corrcoef(y[1:], y[:-1])[0, 1] > SLOW:
        y = np.diff(y)
    y = y - y.mean()
    spread = np.quantile(np.abs(y), 0.995)
    y = np.clip(y, -spread, spread)
    most = min(max(2, series.T), len(y) // LEAST_CYCLES)
    periods: list[Period] = []
    for _ in range(MOST_PERIODS):
        shares = {P: _share(y, P) for P in range(2, most + 1)}
        if not shares:
            break
        top = max(shares.values())
        if top < LEAST_SHARE:
            break
        P = min(p for p, share in shares.items() if share >= 0.9 * top)
        p_value = len(shares) * _p_value(y, P)
        if p_value > alpha:
            break
        periods.append(Period(P, shares[P], p_value))
        y = y - _phase_means(y, y, P)
    return tuple(periods)


def _phase_means(train: np.ndarray, at: np.ndarray, P: int, start: int = 0) -> np.ndarray:
    phase = np.arange(len(train)) % P
    means = np.bincount(phase, train, minlength=P) / np.maximum(np.bincount(phase, minlength=P), 1)
    return means[(start + np.arange(len(at))) % P]


def _held_out(y: np.ndarray, P: int) -> tuple[np.ndarray, np.ndarray]:
    """The target and its prediction by phases, each half from the other."""
    half = len(y) // 2
    first = _phase_means_from(y, half, len(y), 0, half, P)
    second = _phase_means_from(y, 0, half, half, len(y), P)
    return y, np.concatenate([first, second])


def _phase_means_from(y: np.ndarray, a: int, b: int, c: int, d: int, P: int) -> np.ndarray:
    phase = np.arange(a, b) % P
    sums, counts = np.bincount(phase, y[a:b], minlength=P), np.bincount(phase, minlength=P)
    return (sums / np.maximum(counts, 1))[np.arange(c, d) % P]


def _share(y: np.ndarray, P: int) -> float:
    y, f = _held_out(y, P)
    return 1 - float(np.mean((y - f) ** 2) / np.var(y))


def _p_value(y: np.ndarray, P: int) -> float:
    y, f = _held_out(y, P)
    count = int(np.clip(len(y) // max(P, 10), 4, 50))
    sums = np.bincount(np.arange(len(y)) * count // len(y), y * f)
    spread = sums.std(ddof=1)
    return float(stats.t.sf(sums.mean() / (spread / np.sqrt(count)), count - 1)) if spread > 0 else 1.0
