"""Fixed lags: forward selection, proposals by other moments, and pruning by a readout.

A lag enters in one of two ways. It explains the target to first order, alone or in a product with another one, beyond
chance (forward.py). Or it is proposed by another moment (the size of the residual goes together with the size of the past,
as under a product of three), and then improves the prediction of the target itself out of fold (dictionary.py): volatile
series pass the first test and fail the second. All lags must hold given the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memloci.detect.correlate import transform
from memloci.detect.dictionary import Column, FittedReadout, lag_column
from memloci.detect.forward import (
    Basis,
    best_pairs,
    drop_insignificant,
    linear_transforms,
    product_of,
    select_lags,
)
from memloci.detect.series import Series

Place = tuple[int, int]  # (channel, lag)

LINEAR_SHARE, PAIR_SHARE, PROPOSAL_SHARE = 0.5, 0.3, 0.1  # of the error rate; of proposals, each of two sizes
ROUNDS = 3
MOST_LAGS = 12
MOST_PAIRS = 10
HARMONICS = (2, 3, 4)  # of the rank: effects that a straight line and a parabola miss
ENOUGH = 0.999  # of the variance: nothing is left to look for
MINOR = 0.004  # of what is explained; lags below that share are told of, and not counted as memories (tuned)


@dataclass(frozen=True, eq=False)
class FixedLags:
    """Lags with their share of the variance and p-values, the readout, and lags too small to count."""

    places: tuple[Place, ...]
    effects: tuple[float, ...]
    p_values: tuple[float, ...]
    minor: tuple[Place, ...]
    readout: FittedReadout | None
    capped: bool = False

    @property
    def r2(self) -> float:
        return self.readout.r2 if self.readout else 0.0


def fixed_lags(
    series: Series, alpha: float, fixed_columns: Sequence[Column] = (), thorough: bool = True
) -> FixedLags:
    """The lags of a target, beside other recalled columns that are given."""
    fixed_values = [c.values for c in fixed_columns]
    places, p_values = _first_order(series, series.y, alpha, fixed_values, thorough)
    capped = len(places) >= MOST_LAGS
    readout: FittedReadout | None = None
    for k in range(ROUNDS):
        proposed = list(places)
        if thorough and (readout is None or readout.r2 < ENOUGH):
            r = readout.residual() if readout else _residual(series, places, fixed_values)
            proposed += [p for p in _proposals(series, r, alpha) if p not in proposed][
                : MOST_LAGS - len(proposed)
            ]
            if readout is not None:
                again, new = _first_order(series, r, alpha, [], True)
                proposed += [p for p in again if p not in proposed]
                p_values |= {p: v for p, v in new.items() if p not in p_values}
        if not proposed:
            break
        if readout is not None and set(proposed) == set(places):
            break
        before = set(places)
        places, readout = prune(series, proposed, alpha, fixed_columns)
        if not places or (k and set(places) == before):
            break
    if readout is None or not places:
        return FixedLags((), (), (), (), None)
    selection = _described(places, readout, p_values, fixed_columns, capped, series)
    if not thorough or selection.readout is None:
        return selection
    moved, readout = _shifted_to_neighbours(series, list(selection.places), selection.readout, fixed_columns)
    if tuple(moved) == selection.places:
        return selection
    return replace(_described(moved, readout, p_values, fixed_columns, capped, series), minor=selection.minor)


def columns_of(series: Series, places: Sequence[Place], fixed_columns: Sequence[Column] = ()) -> list[Column]:
    """Present values are x0; a lag has the number of its memory, in order of lags after those given."""
    lags = sorted({z for _, z in places if z > 0})
    number = {0: 0} | {z: k + 1 for k, z in enumerate(lags)}
    return [*fixed_columns, *(lag_column(series, c, z, number[z]) for c, z in places)]


def _first_order(series, y, alpha, fixed_columns, pairs: bool) -> tuple[list[Place], dict[Place, float]]:
    """Lags alone, then in pairs, then again given both, until nothing is significant."""
    transforms = linear_transforms(series)
    linear = select_lags(series, y, transforms, LINEAR_SHARE * alpha, fixed_columns=fixed_columns)
    terms = list(linear)
    columns = [product_of(series, t.factors) for t in terms]
    if pairs:
        basis = Basis(y)
        for u in (*fixed_columns, *columns):
            basis.add(u)
        for _ in range(MOST_PAIRS):
            if 1 - basis.r.var() / y.var() > ENOUGH:
                break
            new = best_pairs(series, basis, PAIR_SHARE * alpha)
            if not new:
                break
            for term in new:
                u = product_of(series, term.factors)
                if basis.orthogonal(u) @ u < 1e-6 * (u @ u):
                    continue
                basis.add(u)
                terms.append(term)
                columns.append(u)
        more = (
            select_lags(series, y, transforms, alpha, fixed_columns=[*fixed_columns, *columns], most=4)
            if len(terms) > len(linear)
            else []
        )
        terms += more
        columns += [product_of(series, t.factors) for t in more]
        count = (series.d * series.T) ** (2 if len(terms) > len(linear) else 1)
        terms = drop_insignificant(series, y, terms, columns, alpha / count, fixed_columns)
    p_values: dict[Place, float] = {}
    for term in terms:
        for place in term.factors:
            p_values[place] = min(term.p_value, p_values.get(place, 1.0))
    strongest = sorted(p_values, key=lambda p: p_values[p])[:MOST_LAGS]
    return sorted(strongest, key=lambda p: (p[1], p[0])), p_values


def _residual(series: Series, places: Sequence[Place], fixed_columns) -> np.ndarray:
    basis = Basis(series.y)
    for u in (*fixed_columns, *(product_of(series, [p]) for p in places)):
        if basis.orthogonal(u) @ u > 1e-6 * (u @ u):
            basis.add(u)
    return basis.r


def _proposals(series: Series, r: np.ndarray, alpha: float) -> list[Place]:
    """Lags at which another moment of the residual depends on the past; strongest first."""
    X, inside = series.clipped, series.inside
    size = np.abs(X)
    squares = [transform(series, X[:, c] ** 2 * inside) for c in range(series.d)]
    logs = [transform(series, np.log(size[:, c] + 0.05) * inside) for c in range(series.d)]
    ranks = [_ranks(X[:, c]) for c in range(series.d)]
    waves = [transform(series, np.cos(np.pi * h * u) * inside) for u in ranks for h in HARMONICS]
    bound = np.quantile(np.abs(r), 0.995)
    cut = np.clip(r, -bound, bound)
    log_r = np.log(np.abs(cut) + 0.05 * (np.median(np.abs(cut)) + 1e-12))
    p_values: dict[Place, float] = {}
    for target, channels, per in (
        (cut, waves, len(HARMONICS)),
        (log_r - log_r.mean(), logs, 1),
        (cut**2 - (cut**2).mean(), squares, 1),
    ):
        for term in select_lags(series, target, channels, PROPOSAL_SHARE * alpha, most=6):
            ((c, z),) = term.factors
            place = (c // per, z)
            p_values[place] = min(term.p_value, p_values.get(place, 1.0))
    return sorted(p_values, key=lambda p: p_values[p])


def _ranks(x: np.ndarray) -> np.ndarray:
    """x as a number from 0 to 1, by an empirical distribution."""
    some = np.sort(x[:: max(1, len(x) // 20_000)])
    return np.searchsorted(some, x) / len(some)


def prune(
    series: Series, places: Sequence[Place], alpha: float, fixed_columns: Sequence[Column] = ()
) -> tuple[list[Place], FittedReadout | None]:
    """The lags that hold given the others, and their readout."""
    places = sorted(places, key=lambda p: (p[1], p[0]))
    level = alpha / (2 * max(len(places), 4))
    while places:
        readout = FittedReadout(series, columns_of(series, places, fixed_columns))
        t = [readout.t_without(k + len(fixed_columns))[0] for k in range(len(places))]
        weakest = int(np.argmin(t))
        if readout.p_value(t[weakest]) <= level:
            return places, readout
        del places[weakest]
    return [], None


def _shifted_to_neighbours(
    series: Series, places: list[Place], readout: FittedReadout, fixed_columns
) -> tuple[list[Place], FittedReadout]:
    """Each lag at its neighbours, where inputs change slowly and the first choice may be one off."""
    for c, z in list(places):
        if abs(series.autocorrelation(c)) < 0.5:
            continue
        best, at = readout, None
        for other in (z - 2, z - 1, z + 1, z + 2):
            if not series.least <= other <= series.T or (c, other) in places:
                continue
            trial = FittedReadout(
                series, columns_of(series, [(c, other) if p == (c, z) else p for p in places], fixed_columns)
            )
            if 1 - trial.r2 < 0.98 * (1 - best.r2):
                best, at = trial, other
        if at is not None:
            places = [(c, at) if p == (c, z) else p for p in places]
            readout = best
    ordered = sorted(places, key=lambda p: (p[1], p[0]))
    return ordered, readout if ordered == places else FittedReadout(
        series, columns_of(series, ordered, fixed_columns)
    )


def _described(places, readout, p_values, fixed_columns, capped, series) -> FixedLags:
    """Effects, and the lags whose share is too small to count beside the others."""
    places, minor = list(places), []
    while True:
        tested = [readout.t_without(k + len(fixed_columns)) for k in range(len(places))]
        effects = [gain for _, gain in tested]
        weakest = int(np.argmin(effects))
        if len(places) < 2 or effects[weakest] >= MINOR * max(readout.r2, 0.0):
            break
        minor.append(places.pop(weakest))
        readout = FittedReadout(series, columns_of(series, places, fixed_columns))
    p = [p_values.get(place, readout.p_value(t)) for place, (t, _) in zip(places, tested, strict=True)]
    return FixedLags(tuple(places), tuple(effects), tuple(p), tuple(minor), readout, capped)
