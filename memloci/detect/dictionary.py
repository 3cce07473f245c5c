"""A readout of a few recalled columns, as a ridge regression on a dictionary of expressions, judged by folds of time.

    f(m) = sum_j b_j phi_j(m),    phi_j: values, powers, hinges, steps, signs, products, extremes, steps of the linear index

Each feature knows which columns it reads, so leaving a column out is a smaller system of the same Gram matrices. A column
is kept if the residual without it goes together with what it adds, out of fold (Clark and West's test of nested
predictors): under no effect the mean of that product is 0, whatever was fitted on the other folds. The ratio of losses per
block is a second test, for series whose size changes; the larger t-value counts, at half the level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy import stats

from memloci.core.numbers import literal, to_digits
from memloci.detect.series import FOLDS, Series

MOST_ROWS = 30_000  # on which a readout is fitted
KNOTS = 8
INDEX_STEPS = 32
PENALTIES = (1e-5, 1e-3, 1e-1)  # of the ridge, relative to the number of rows
LEVELS = 3


@dataclass(frozen=True, eq=False)
class Column:
    """A recalled value: its name in the readout, standardised values, and the way back to the user's units."""

    name: str
    values: np.ndarray  # (n,)
    centre: float
    scale: float
    symbols: np.ndarray | None = None  # standardised, where they are few


@dataclass(frozen=True, eq=False)
class Feature:
    values: np.ndarray
    reads: frozenset[int]
    text: str
    level: int  # 0 linear, 1 products, 2 all


def sample_rows(series: Series) -> np.ndarray:
    """The rows on which readouts are fitted: all, or the first part of each block."""
    if series.n <= MOST_ROWS:
        return np.arange(series.n)
    count = int(series.blocks[-1]) + 1
    starts = np.searchsorted(series.blocks, np.arange(count))
    return np.concatenate([np.arange(s, s + MOST_ROWS // count) for s in starts])


def lag_column(series: Series, c: int, z: int, number: int) -> Column:
    symbols = series.symbols[c]
    few = None if symbols is None or len(symbols) > 16 else (symbols - series.centre[c]) / series.scale[c]
    return Column(
        f"{series.names[c]}{number}",
        series.lagged(c, z),
        float(series.centre[c]),
        float(series.scale[c]),
        few,
    )


class FittedReadout:
    """A ridge on the dictionary of some columns."""

    def __init__(self, series: Series, columns: Sequence[Column], target: np.ndarray | None = None):
        self.series, self.columns = series, list(columns)
        self.rows = sample_rows(series)
        self.y = (series.y if target is None else target)[self.rows]
        self.folds, self.blocks = series.folds[self.rows], series.blocks[self.rows]
        self.features = list(dictionary(self.columns, self.rows, self.y))

    @cached_property
    def F(self) -> np.ndarray:
        return np.column_stack([np.ones(len(self.rows)), *(f.values for f in self.features)])

    @cached_property
    def grams(self) -> tuple[np.ndarray, np.ndarray]:
        bounds = np.searchsorted(self.folds, np.arange(FOLDS + 1))
        parts = [(self.F[a:b], self.y[a:b]) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
        return np.stack([F.T @ F for F, _ in parts]), np.stack([F.T @ y for F, y in parts])

    def predict(self, indices: np.ndarray, penalty: float) -> np.ndarray:
        """Out-of-fold predictions from some features."""
        G, b = self.grams
        out = np.zeros(len(self.rows))
        total, right = G.sum(0), b.sum(0)
        bounds = np.searchsorted(self.folds, np.arange(FOLDS + 1))
        for k in range(FOLDS):
            beta = np.zeros(len(right))
            beta[indices] = _solve(total - G[k], right - b[k], indices, penalty * len(self.rows))
            part = slice(bounds[k], bounds[k + 1])
            out[part] = self.F[part] @ beta
        return out

    def feature_indices(self, level: int, without: int | None = None) -> np.ndarray:
        used = [f.level <= level and (without is None or without not in f.reads) for f in self.features]
        return np.flatnonzero([True, *used])

    @cached_property
    def best(self) -> tuple[int, float, np.ndarray]:
        """The level and penalty with the least loss out of fold, and its predictions."""
        tried = []
        for level in range(LEVELS):
            used = self.feature_indices(level)
            if tried and len(used) == len(self.feature_indices(level - 1)):
                continue
            for penalty in PENALTIES:
                out = self.predict(used, penalty)
                tried.append((float(np.mean((self.y - out) ** 2)), level, penalty, out))
        _, level, penalty, out = min(tried, key=lambda each: each[0])
        return level, penalty, out

    @property
    def r2(self) -> float:
        """The share of the variance explained out of fold."""
        return 1 - float(np.mean((self.y - self.best[2]) ** 2)) / float(np.var(self.y))

    def t_without(self, k: int) -> tuple[float, float]:
        """The t-value of column k, and the share of the variance that it adds."""
        level, penalty, full = self.best
        less = self.predict(self.feature_indices(level, k), penalty)
        before, after = (self.y - less) ** 2, (self.y - full) ** 2
        gain = float(np.mean(before - after)) / float(np.var(self.y))
        t = _block_t(self.blocks, (self.y - less) * (full - less))
        return max(t, _log_ratio_t(self.blocks, before, after)), gain

    def p_value(self, t: float) -> float:
        """Twice the one-sided value: t is the larger of two."""
        return float(2 * stats.t.sf(t, int(self.blocks.max())))

    def residual(self) -> np.ndarray:
        """At every row of the series, of the best fit; out of fold where it was fitted."""
        level, penalty, out = self.best
        if len(self.rows) == self.series.n:
            return self.series.y - out
        used = self.feature_indices(level)
        G, b = self.grams
        beta = _solve(G.sum(0), b.sum(0), used, penalty * len(self.rows))
        predicted = np.empty(self.series.n)
        for part in np.array_split(np.arange(self.series.n), -(-self.series.n // MOST_ROWS)):
            features = list(dictionary(self.columns, part, self.y, self.rows))
            F = np.column_stack([np.ones(len(part)), *(f.values for f in features)])
            predicted[part] = F[:, used] @ beta
        predicted[self.rows] = out
        return self.series.y - predicted


def _solve(G: np.ndarray, b: np.ndarray, indices: np.ndarray, penalty: float) -> np.ndarray:
    G = G[np.ix_(indices, indices)].copy()
    scale = np.sqrt(np.maximum(np.diag(G), 1e-12))
    G /= np.outer(scale, scale)
    n = max(G.shape[0], 1)
    G[np.arange(1, n), np.arange(1, n)] += penalty / max(scale[0] ** 2, 1.0)
    try:
        beta = np.linalg.solve(G, b[indices] / scale)
    except np.linalg.LinAlgError:
        beta = np.linalg.lstsq(G, b[indices] / scale, rcond=None)[0]
    return beta / scale


def _block_t(blocks: np.ndarray, products: np.ndarray) -> float:
    count = int(blocks.max()) + 1
    sums = np.bincount(blocks, products, minlength=count)
    spread = sums.std(ddof=1)
    return float(sums.mean() / (spread / np.sqrt(count))) if spread > 0 else 0.0


def _log_ratio_t(blocks: np.ndarray, before: np.ndarray, after: np.ndarray) -> float:
    """Of the losses' ratio in each block: blocks in which all is large do not decide alone."""
    count = int(blocks.max()) + 1
    a, b = (np.bincount(blocks, loss, minlength=count) + 1e-300 for loss in (before, after))
    ratio = np.log(a / b)
    spread = ratio.std(ddof=1)
    return float(ratio.mean() / (spread / np.sqrt(count))) if spread > 0 else 0.0


# -- the features -----------------------------------------------------------------------------------------


def dictionary(
    columns: Sequence[Column], rows: np.ndarray, y: np.ndarray, fitted: np.ndarray | None = None
) -> list[Feature]:
    """The features at some rows; knots come from the rows on which the readout is fitted."""
    fitted = rows if fitted is None else fitted
    M = [np.clip(c.values[rows], -6, 6) for c in columns]
    base = [np.clip(c.values[fitted], -6, 6) for c in columns]
    features: list[Feature] = []

    def add(values: np.ndarray, reads: Sequence[int], text: str, level: int) -> None:
        features.append(Feature(values, frozenset(reads), text, level))

    name = [c.name for c in columns]
    zero = [np.clip(-c.centre / c.scale, -6, 6) for c in columns]  # the user's 0
    sign = [np.sign(m - o) for m, o in zip(M, zero, strict=True)]
    for k, m in enumerate(M):
        add(m, [k], name[k], 0)
        if (symbols := columns[k].symbols) is not None:
            for s in symbols[1:]:
                value = literal(to_digits(s * columns[k].scale + columns[k].centre, 6))
                add((np.abs(m - s) < 1e-6) * 1.0, [k], f"where({name[k]} == {value}, 1, 0)", 1)
            continue
        centred = m - zero[k]  # powers in the user's units
        add(centred**2, [k], f"{name[k]} ** 2", 1)
        add(sign[k], [k], f"sign({name[k]})", 1)
        add(centred**3, [k], f"{name[k]} ** 3", 2)
        add(np.abs(centred), [k], f"abs({name[k]})", 2)
        for q in _knots(base[k]):
            at = literal(to_digits(q * columns[k].scale + columns[k].centre, 3))
            add(np.maximum(m - q, 0.0), [k], f"max({name[k]} - {at}, 0)", 2)
            add((m > q) * 1.0, [k], f"where({name[k]} > {at}, 1, 0)", 2)
    few = len(M) <= 8
    centred = [m - o for m, o in zip(M, zero, strict=True)]
    for i, j in combinations(range(len(M)), 2):
        add(centred[i] * centred[j], [i, j], f"{name[i]} * {name[j]}", 1)
        _pair_features(add, i, j, centred, sign, name, columns, base, zero, few)
    most = 5 if len(M) <= 7 else 4 if len(M) <= 9 else 3
    for size in range(3, min(len(M), most) + 1):
        if len(M) > 10:
            break
        for some in combinations(range(len(M)), size):
            value = np.prod([centred[k] for k in some], axis=0)
            signs = np.prod([sign[k] for k in some], axis=0)
            add(value, some, " * ".join(name[k] for k in some), 2)
            if size == 3 or len(M) <= 5:
                add(signs, some, " * ".join(f"sign({name[k]})" for k in some), 2)
    if len(M) > most:
        everything = range(len(M))
        add(np.prod(centred, axis=0), everything, " * ".join(name), 2)
        add(np.prod(sign, axis=0), everything, " * ".join(f"sign({n})" for n in name), 2)
    if len(M) > 1:
        _index_features(add, M, base, y, name)
    return features


def _pair_features(add, i, j, values, sign, name, columns, base, zero, few) -> None:
    """Of two columns: signs, extremes, and one switched by the other."""
    add(sign[i] * sign[j], [i, j], f"sign({name[i]}) * sign({name[j]})", 2)
    if not few:
        return
    add(values[i] * sign[j], [i, j], f"{name[i]} * sign({name[j]})", 2)
    add(values[j] * sign[i], [i, j], f"{name[j]} * sign({name[i]})", 2)
    a, b = (values[k] * columns[k].scale for k in (i, j))
    scale = max(columns[i].scale, columns[j].scale)
    add(np.maximum(a, b) / scale, [i, j], f"max({name[i]}, {name[j]})", 2)
    add(np.minimum(a, b) * b / scale**2, [i, j], f"min({name[i]}, {name[j]}) * {name[j]}", 2)
    add((a > b) * 1.0, [i, j], f"where({name[i]} > {name[j]}, 1, 0)", 2)
    for k, o in ((i, j), (j, i)):
        if columns[k].symbols is not None:
            for s in columns[k].symbols[1:]:
                at = s - zero[k]
                value = literal(to_digits(s * columns[k].scale + columns[k].centre, 6))
                add(
                    (np.abs(values[k] - at) < 1e-6) * values[o],
                    [i, j],
                    f"where({name[k]} == {value}, {name[o]}, 0)",
                    2,
                )
            continue
        for q in np.quantile(base[k], [0.15, 0.3, 0.42, 0.58, 0.7, 0.85] if len(values) <= 5 else [0.3, 0.7]):
            at = literal(to_digits(q * columns[k].scale + columns[k].centre, 3))
            add((values[k] + zero[k] > q) * values[o], [i, j], f"where({name[k]} > {at}, {name[o]}, 0)", 2)


def _index_features(add, M, base, y, name) -> None:
    """Steps of the best linear index, for the sign of a sum and the like; it reads every column."""
    F = np.column_stack([np.ones(len(base[0])), *base])
    beta = np.linalg.lstsq(F, y[: len(F)], rcond=None)[0] if len(F) == len(y) else np.zeros(F.shape[1])
    index = np.column_stack([np.ones(len(M[0])), *M]) @ beta
    if np.ptp(index) < 1e-9:
        return
    known = F @ beta
    for q in np.unique(np.quantile(known, np.linspace(0.02, 0.98, INDEX_STEPS))):
        add((index > q) * 1.0, range(len(M)), "", 2)


def _knots(values: np.ndarray) -> np.ndarray:
    return np.unique(np.quantile(values, np.linspace(0.06, 0.94, KNOTS)))
