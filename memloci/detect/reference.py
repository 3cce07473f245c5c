"""The reference: how well can the target be predicted at all, by a strong method that knows nothing of memories?

Gradient-boosted trees on the present, the latest lags, the lags with the largest correlations, and the columns that were
recalled; fitted on four fifths of the time, judged on the last. Its budget: 30,000 rows, 96 columns, 200 trees.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from memloci.detect.correlate import transform
from memloci.detect.dictionary import Column
from memloci.detect.forward import all_shifts
from memloci.detect.series import Series

MOST_ROWS = 30_000
MOST_COLUMNS = 96
RECENT = 24
TREES = 200
SLOW = 0.9  # correlation with the last value
BLOCKS = 40


@dataclass(frozen=True, eq=False)
class Reference:
    rows: np.ndarray  # of the series, held out
    prediction: np.ndarray
    r2: float
    p_value: float  # of predicting no better than the mean
    columns: int


def reference(series: Series, recalled: Sequence[Column], seed: int) -> Reference | None:
    """None where scikit-learn is not installed."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        return None
    base = _last_value(series)
    X = np.column_stack([*(c.values for c in recalled), *_lags(series)])[:, :MOST_COLUMNS]
    fit, judge = np.flatnonzero(~series.held_out), np.flatnonzero(series.held_out)
    if len(fit) > MOST_ROWS:
        starts = np.linspace(0, len(fit) - MOST_ROWS // 50, 50).astype(int)
        fit = fit[np.unique(np.concatenate([np.arange(s, s + MOST_ROWS // 50) for s in starts]))]
    judge = judge[: 2 * MOST_ROWS]
    settings: Any = {"max_iter": TREES, "early_stopping": False, "random_state": seed}
    trees = HistGradientBoostingRegressor(**settings)
    with_limits = trees.fit(X[fit].astype(np.float32), series.y[fit] - base[fit])
    f = np.asarray(with_limits.predict(X[judge].astype(np.float32))) + base[judge]
    mean = series.y[fit].mean()
    return Reference(judge, f, share(series.y[judge], f), _p_value(series.y[judge], f, mean), X.shape[1])


def _last_value(series: Series) -> np.ndarray:
    """Of a slow series that predicts itself, whose trees then learn the change: they cannot go beyond what they saw."""
    if series.self_channel is None:
        return np.zeros(series.n)
    last = series.lagged(series.self_channel, 1) * series.scale[series.self_channel] / series.y_scale
    return last if np.corrcoef(last, series.y)[0, 1] > SLOW else np.zeros(series.n)


def _lags(series: Series) -> list[np.ndarray]:
    """The present, the latest lags, and those that correlate most, alone or by their squares."""
    places = [
        (c, z)
        for z in range(series.least, min(RECENT // max(1, series.d // 2), series.T) + 1)
        for c in range(series.d)
    ]
    e, size = series.y, np.minimum(series.y**2, 9.0)
    scored = []
    for c in range(series.d):
        for target, power in ((e, 1), (size, 2)):
            u = transform(series, series.clipped[:, c] ** power * series.inside)
            C = np.abs(all_shifts(series, series.scatter(target - target.mean()), u.spectrum)[: series.T + 1])
            C = C / (np.median(C) + 1e-12)
            scored += [(float(C[z]), c, z) for z in np.argsort(-C)[:24].tolist() if z >= series.least]
    places += [(c, z) for _, c, z in sorted(scored, reverse=True)]
    return [series.lagged(c, z) for c, z in dict.fromkeys(places)]


def share(y: np.ndarray, f: np.ndarray) -> float:
    """Of the variance of these very steps."""
    return 1 - float(np.mean((y - f) ** 2) / max(np.var(y), 1e-300))


def _p_value(y: np.ndarray, f: np.ndarray, mean: float) -> float:
    gain = (y - mean) ** 2 - (y - f) ** 2
    sums = np.bincount(np.arange(len(y)) * BLOCKS // len(y), gain, minlength=BLOCKS)
    spread = sums.std(ddof=1)
    return float(stats.t.sf(sums.mean() / (spread / np.sqrt(BLOCKS)), BLOCKS - 1)) if spread > 0 else 1.0


def ratio_interval(y: np.ndarray, f: np.ndarray, g: np.ndarray, seed: int) -> tuple[float, float]:
    """95 % for share(f) / share(g), by a bootstrap over blocks of the held-out time."""
    rng = np.random.default_rng(seed)
    count = min(BLOCKS, max(4, len(y) // 10))
    block = np.arange(len(y)) * count // len(y)
    squares = np.bincount(block, (y - f) ** 2)
    other = np.bincount(block, (y - g) ** 2)
    total = np.bincount(block, (y - y.mean()) ** 2)
    draws = rng.integers(0, count, (1000, count))
    a, b, t = squares[draws].sum(1), other[draws].sum(1), total[draws].sum(1)
    ratios = (t - a) / np.where(np.abs(t - b) > 1e-9 * t, t - b, np.nan)
    low, high = np.nanquantile(ratios, [0.025, 0.975])
    return float(low), float(high)
