"""Matches by key: the latest past token whose key equals the present one, read `offset` steps later.

    s(t) = max { s <= t - 1 - o : k_s = k_t },   memory x_{s(t) + o}

The index of s(t) is one search in sorted keys. Numbers are tested by a correlation over blocks of time. Of a series that
predicts itself the present key is unknown, so the key is the token just before.
"""

from dataclasses import dataclass

import numpy as np

from memloci.detect.correlate import block_t, t_p_value
from memloci.detect.dictionary import Column, FittedReadout
from memloci.detect.series import Series

OFFSETS = range(4)


@dataclass(frozen=True, eq=False)
class DetectedMatch:
    key: int
    payload: int
    offset: int
    p_value: float
    readout: FittedReadout

    @property
    def r2(self) -> float:
        return self.readout.r2


def matched_at(series: Series, key: int, offset: int) -> np.ndarray:
    """For each row the position that is read, or -1."""
    keys = series.raw[:, key]
    values, code = np.unique(np.where(np.isfinite(keys), keys, np.inf), return_inverse=True)
    N = len(keys)
    part = np.cumsum(np.diff(series.inside, prepend=0.0) > 0)  # sequences are kept apart
    combined = (part.astype(np.int64) * (len(values) + 1) + code) * N + np.arange(N)
    tokens = np.sort(combined[series.inside > 0])
    # The present key is the token itself, or the one before it where the token is the target.
    late = series.least
    now = series.rows - late
    last = now - 1 - offset + late * 0
    searched = (part[series.rows].astype(np.int64) * (len(values) + 1) + code[now]) * N + last
    at = np.searchsorted(tokens, searched, side="right") - 1
    nearest = tokens[np.maximum(at, 0)]
    same = (at >= 0) & (nearest // N == searched // N) & (last >= 0)
    return np.where(same, nearest % N + offset, -1)


def match_column(series: Series, match: DetectedMatch, number: int) -> Column:
    at = matched_at(series, match.key, match.offset)
    values = np.where(at >= 0, series.X[at, match.payload], 0.0)
    c = match.payload
    return Column(f"{series.names[c]}{number}", values, float(series.centre[c]), float(series.scale[c]))


def best_match(series: Series, alpha: float) -> DetectedMatch | None:
    """The match that explains most, if chance would not."""
    keys = [c for c, s in enumerate(series.symbols) if s is not None and len(s) >= 2]
    tried = len(keys) * series.d * len(OFFSETS)
    best: tuple[float, int, int, int, float] | None = None
    for key in keys:
        for offset in OFFSETS:
            at = matched_at(series, key, offset)
            if (at >= 0).mean() < 0.2:
                continue
            for c in range(series.d):
                if c == key and offset == 0:
                    continue  # the key itself
                u = np.where(at >= 0, series.clipped[at, c], 0.0)
                u = u - u.mean()
                r = float(np.corrcoef(u, series.y)[0, 1]) if u.std() > 0 else 0.0
                p = tried * t_p_value(series, block_t(series, u * series.y))
                if p <= alpha and (best is None or abs(r) > abs(best[0])):
                    best = (r, key, c, offset, p)
    if best is None:
        return None
    _, key, c, offset, p = best
    at = matched_at(series, key, offset)
    values = np.where(at >= 0, series.X[at, c], 0.0)
    column = Column(f"{series.names[c]}1", values, float(series.centre[c]), float(series.scale[c]))
    return DetectedMatch(key, c, offset, p, FittedReadout(series, [column]))
