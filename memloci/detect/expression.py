"""A readout in the language of task files: a few terms of the dictionary, in the user's units.

Terms are added greedily while the loss falls, and stop near what the whole dictionary reaches. Coefficients come from one
regression of the raw target on the terms as the language evaluates them, rounded to four digits.
"""

from collections.abc import Sequence

import numpy as np

from memloci.core.numbers import literal, to_digits
from memloci.detect.dictionary import LEVELS, Column, Feature, FittedReadout
from memloci.detect.series import Series
from memloci.language.formula import make_formula

MOST_TERMS = 12
WORTH = 0.003  # of the residual's variance that a term must take away
NEAR = 0.02  # above the least loss, at which a readout is good enough


def expression(series: Series, readout: FittedReadout) -> tuple[str, float]:
    """The text, and the share of the variance that it explains on the rows of the readout.

    The simplest level of the dictionary that comes near the best: an affine readout is not written with extremes.
    """
    goal = 1 - max(readout.r2, 0.0)
    total = float(np.var(readout.y)) * len(readout.y)
    chosen: list[Feature] = []
    for level in range(LEVELS):
        features = [f for f in readout.features if f.text and f.level <= level]
        chosen, loss = _greedy(features, readout.y, goal * total)
        if loss <= (1 + NEAR) * goal * total:
            break
    return _fitted(series, readout, [f.text for f in chosen])


def _greedy(features: Sequence[Feature], y: np.ndarray, goal: float) -> tuple[list[Feature], float]:
    """Terms by the loss that they take away, less those that turn out to be needless."""
    F = np.column_stack([f.values for f in features])
    F = F - F.mean(0)
    Z = F / (np.sqrt((F**2).sum(0)) + 1e-12)
    y = y - y.mean()
    r, chosen, Q = y.copy(), [], np.zeros((len(y), 0))
    left = np.ones(Z.shape[1])
    while len(chosen) < min(MOST_TERMS, Z.shape[1]):
        gain = np.where(left > 1e-3, (Z.T @ r) ** 2 / np.maximum(left, 1e-3), 0.0)
        # Of terms that do nearly as well the simplest is taken.
        simple = np.flatnonzero(gain >= 0.98 * gain.max()).tolist()
        k = int(min(simple, key=lambda i: (features[i].level, len(features[i].text))))
        q = Z[:, k] - Q @ (Q.T @ Z[:, k])
        if k in chosen or q @ q < 1e-6 or (gain[k] < WORTH * float(r @ r) and chosen):
            break
        q = q / np.sqrt(q @ q)
        r = r - q * (q @ r)
        chosen.append(k)
        Q = np.column_stack([Q, q])
        left = left - (q @ Z) ** 2
        if float(r @ r) <= (1 + NEAR / 2) * goal:
            break
    loss = float(r @ r)
    for k in reversed(chosen.copy()):
        rest = [j for j in chosen if j != k]
        if rest and (without := _loss(Z[:, rest], y)) < (1 + WORTH) * loss:
            chosen, loss = rest, without
    return [features[k] for k in chosen], loss


def _loss(F: np.ndarray, y: np.ndarray) -> float:
    r = y - F @ np.linalg.lstsq(F, y, rcond=None)[0]
    return float(r @ r)


def _fitted(series: Series, readout: FittedReadout, texts: Sequence[str]) -> tuple[str, float]:
    values = {c.name: raw_values(c)[readout.rows] for c in readout.columns}
    target = readout.y * series.y_scale + series.y_centre
    columns = [
        np.broadcast_to(make_formula(t, values)(values, np), target.shape).astype(float) for t in texts
    ]
    F = np.column_stack([np.ones(len(target)), *columns])
    beta = np.linalg.lstsq(F, target, rcond=None)[0]
    error = np.sqrt(np.mean((target - F @ beta) ** 2) / len(target))
    parts = []
    for b, text, column in zip(beta[1:], texts, columns, strict=True):
        if abs(b) * column.std() > 1e-4 * target.std():
            parts.append((float(b), text))
    if abs(beta[0]) > 4 * error and abs(beta[0]) > 1e-3 * target.std():
        parts.append((float(beta[0]), ""))
    share = 1 - float(np.mean((target - F @ beta) ** 2) / target.var())
    return _sum(parts), share


def _sum(parts: Sequence[tuple[float, str]]) -> str:
    total = ""
    for b, text in parts:
        size = to_digits(abs(b), 4)
        term = literal(size) if not text else text if size == 1 else f"{literal(size)} * {text}"
        total += (f" {'-' if b < 0 else '+'} " if total else "-" if b < 0 else "") + term
    return total or "0"


def raw_values(column: Column) -> np.ndarray:
    """In the user's units; symbols exactly, so that comparisons hold."""
    values = column.values * column.scale + column.centre
    if column.symbols is not None:
        exact = column.symbols * column.scale + column.centre
        exact = np.array([to_digits(v, 6) if v else 0.0 for v in exact.tolist()])
        at = np.abs(values[:, None] - exact[None]).argmin(1) if len(exact) <= 16 else None
        values = exact[at] if at is not None else values
    return values
