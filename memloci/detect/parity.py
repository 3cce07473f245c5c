"""Parities of signs, by elimination over GF(2).

    sign(y_t) = s * product over z in S of sign(x_{t-z})   <=>   a linear system over bits, T + 2 unknowns

Correlations cannot see a parity of three signs or more. Elimination does while labels are nearly free of flips: one wrong
row among the T + 2 that are used spoils the answer. Rows are those with the largest |y|, redrawn a few times, and the
answer is checked on the others: a wrong one agrees with half of them.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from memloci.detect.series import Series

DRAWS = 40
SPARE = 64
MOST_SIGNS = 16  # an answer with more is a chance solution


@dataclass(frozen=True)
class Parity:
    places: tuple[tuple[int, int], ...]
    agreement: float
    p_value: float


def parity(series: Series, seed: int, alpha: float) -> Parity | None:
    """The lags of a parity, where one exists."""
    channels = [c for c in range(series.d) if not series.words[c]]
    unknowns = [(c, z) for c in channels for z in range(series.least, series.T + 1)]
    need = len(unknowns) + 1 + SPARE
    if series.n < 2 * need or len(unknowns) > 4_200:
        return None
    rng = np.random.default_rng(seed)
    size = np.abs(series.y * series.y_scale + series.y_centre)
    bits = (series.y * series.y_scale + series.y_centre) < 0
    if bits.mean() < 0.2 or bits.mean() > 0.8:
        return None
    strong = np.argsort(-size)[: max(2 * need, series.n // 10)]
    negative = (series.raw - 0.0) < 0
    for _ in range(DRAWS):
        some = rng.choice(strong, min(need, len(strong)), replace=False)
        rows = np.column_stack(
            [*(negative[series.rows[some] - z, c] for c, z in unknowns), np.ones(len(some), bool), bits[some]]
        )
        answer = _solve(rows)
        if answer is None:
            continue
        chosen = [place for place, on in zip(unknowns, answer[:-1], strict=True) if on]
        if not 2 <= len(chosen) <= MOST_SIGNS:
            continue
        predicted = np.full(series.n, bool(answer[-1]))
        for c, z in chosen:
            predicted ^= negative[series.rows - z, c]
        others = np.ones(series.n, bool)
        others[some] = False
        right = float((predicted == bits)[others].mean())
        p = float(DRAWS * stats.binom.sf(round(right * others.sum()) - 1, int(others.sum()), 0.5))
        if p <= alpha and right > 0.7:
            return Parity(tuple(sorted(chosen, key=lambda q: q[1])), right, p)
    return None


def _solve(rows: np.ndarray) -> np.ndarray | None:
    """The solution of a system over GF(2), or None where it is contradictory; the last column is the right side."""
    words = [int("".join("1" if b else "0" for b in row), 2) for row in rows.tolist()]
    width = rows.shape[1]
    pivots: dict[int, int] = {}  # the leading bit -> the row
    for word in words:
        while word:
            lead = word.bit_length() - 1
            if lead not in pivots:
                break
            word ^= pivots[lead]
        if not word:
            continue
        if word == 1:
            return None  # 0 = 1
        pivots[word.bit_length() - 1] = word
    if len(pivots) < width - 1:
        return None
    answer = np.zeros(width, bool)  # by position from the left; free of unknowns
    for lead in sorted(pivots):
        word = pivots[lead]
        value = word & 1
        for bit in range(1, lead):
            if word >> bit & 1 and answer[width - 1 - bit]:
                value ^= 1
        answer[width - 1 - lead] = bool(value)
    return answer[:-1]
