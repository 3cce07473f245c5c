"""Targets that are words: lags by the bits that they save.

    H(y_t | context) in bits per symbol, from counts on four fifths of the text, on the last fifth

Contexts grow one lag at a time, each a count table smoothed by the shorter one. If lags go on to save bits where contexts
have become as long as the counts allow, the memory is dense and no list of lags describes it.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from memloci.detect.series import Series

MOST_CONTEXT = 4
LAGS = 32  # tried one by one; information at all others is only listed
LEAST_BITS = 0.005  # per symbol that a lag saves
EXHAUSTED = 0.05  # contexts per symbol of text: counts have become too few to tell
STRENGTH = 4.0  # of the shorter context, in counts


@dataclass(frozen=True)
class SymbolLags:
    lags: tuple[int, ...]
    saved: tuple[float, ...]  # bits per symbol, one for each lag
    p_values: tuple[float, ...]
    entropy: float  # without a context
    remaining_bits: float  # with all of them
    dense: bool
    information: tuple[float, ...]  # bits between the target and lag 1, 2, ..., without the bias of chance


def symbol_lags(series: Series, alpha: float) -> SymbolLags:
    """Of a series of words that predicts itself."""
    c = series.self_channel or 0
    raw = np.where(np.isfinite(series.raw[:, c]), series.raw[:, c], -1)
    alphabet, code = np.unique(raw, return_inverse=True)
    K = len(alphabet)
    rows, y = series.rows, code[series.rows]
    train = ~series.held_out
    base = np.bincount(y[train], minlength=K) + 0.5
    q = (base / base.sum())[y]
    entropy = -float(np.log2(q[~train]).mean())
    context = np.zeros(len(rows), np.int64)
    lags: list[int] = []
    saved: list[float] = []
    p_values: list[float] = []
    last = min(LAGS, series.T)
    dense = False
    for step in range(MOST_CONTEXT + 1):
        best: tuple[float, int, np.ndarray, np.ndarray, float] | None = None
        for z in range(1, last + 1):
            if z in lags:
                continue
            longer = np.unique(context * K + code[rows - z], return_inverse=True)[1].astype(np.int64)
            new = _smoothed(longer, y, K, train, q)
            gain = np.log2(new[~train] / q[~train])
            bits = float(gain.mean())
            if best is None or bits > best[0]:
                best = (bits, z, longer, new, last * _p_value(gain))
        if best is None:
            break
        if best[0] < LEAST_BITS or best[4] > alpha:
            # Contexts that are seen a few times each have nothing more to say, but the text has.
            rare = len(np.unique(best[2])) > EXHAUSTED * len(rows)
            information = np.array(_information(series, code, K))
            dense = bool(lags) and rare and float(np.mean(information > LEAST_BITS)) > 0.5
            break
        if step == MOST_CONTEXT:
            dense = True
            break
        bits, z, context, q, p = best
        lags.append(z)
        saved.append(bits)
        p_values.append(p)
    left = -float(np.log2(q[~train]).mean())
    return SymbolLags(
        tuple(lags), tuple(saved), tuple(p_values), entropy, left, dense, _information(series, code, K)
    )


def _smoothed(context: np.ndarray, y: np.ndarray, K: int, train: np.ndarray, q: np.ndarray) -> np.ndarray:
    """P(y | context), with the shorter context's q as its prior."""
    pairs = context * K + y
    keys, at = np.unique(pairs, return_inverse=True)
    both = np.bincount(at[train], minlength=len(keys))[at] - train  # a row does not count itself
    alone = np.bincount(context[train], minlength=int(context.max()) + 1)[context] - train
    return (both + STRENGTH * q) / (alone + STRENGTH)


def _p_value(gain: np.ndarray) -> float:
    count = min(50, len(gain))
    sums = np.bincount(np.arange(len(gain)) * count // len(gain), gain)
    spread = sums.std(ddof=1)
    return float(stats.t.sf(sums.mean() / (spread / np.sqrt(count)), count - 1)) if spread > 0 else 1.0


def _information(series: Series, code: np.ndarray, K: int) -> tuple[float, ...]:
    """Mutual information at each lag, less that of shifts where there is none."""
    rows, y = series.rows, code[series.rows]
    p_y = np.bincount(y, minlength=K) / len(y)

    def bits(other: np.ndarray) -> float:
        joint = np.bincount(y * K + other, minlength=K * K).reshape(K, K) / len(y)
        outer = np.outer(p_y, np.bincount(other, minlength=K) / len(y))
        return float((joint[joint > 0] * np.log2(joint[joint > 0] / outer[joint > 0])).sum())

    half = len(rows) // 2
    bias = float(np.mean([bits(np.roll(y, half + 37 * k)) for k in range(3)]))
    return tuple(bits(code[rows - z]) - bias for z in range(1, min(64, series.T) + 1))
