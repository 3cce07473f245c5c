"""Adaptive lags: within each symbol of the present the lags are fixed, so the same search gives the table g(a).

    one level     for each symbol s:  lags of y over the steps with a_t = s
    two levels    C(z1, b, z2) = (sum over a_t = s, a_{t-z1} = b of y_t v_{t-z2})^2 / n_b;
                  g1(s) maximises sum_b max_z2 C, and g2(s, b) is the maximiser

A lag that every symbol has is fixed, and not of the table. If g2(s, .) is constant, g1(s) cannot be known and any value is
equivalent. A table with one value is a fixed lag.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memloci.detect.correlate import transform
from memloci.detect.dictionary import Column, FittedReadout, lag_column
from memloci.detect.forward import select_lags
from memloci.detect.series import Series

MOST_TABLES = 2
NESTED_STEPS = 20_000
NESTED_LAGS = 128  # two levels are searched up to this lag: the cost is its square times the steps
LEAST_ROWS = 60  # of a symbol
NESTED_SHARE = 0.05  # of the variance that a second level must add


@dataclass(frozen=True, eq=False)
class DetectedTable:
    """g over the symbols of one channel; nested: also over those of the token that the first level recalls."""

    channel: int  # whose symbols choose
    payload: int
    lags: np.ndarray  # (S,), or (S, S) of a second level
    first: np.ndarray | None = None  # (S,): the first level, where there is one
    p_value: float = 0.0

    @property
    def constant(self) -> bool:
        return self.first is None and len(np.unique(self.lags)) == 1


@dataclass(frozen=True, eq=False)
class Pointers:
    """Tables and fixed lags beside them, with the readout of what they recall."""

    tables: tuple[DetectedTable, ...]
    places: tuple[tuple[int, int], ...]
    readout: FittedReadout

    @property
    def r2(self) -> float:
        return self.readout.r2


def codes(series: Series, c: int) -> np.ndarray:
    """Each token's symbol of channel c as a number; in gaps that of the first."""
    values = series.symbols[c]
    assert values is not None
    raw = np.where(np.isfinite(series.raw[:, c]), series.raw[:, c], values[0])
    return np.clip(np.searchsorted(values, raw), 0, len(values) - 1)


def lag_of(series: Series, table: DetectedTable) -> np.ndarray:
    """The lag at every row."""
    code = codes(series, table.channel)
    now = code[series.rows]
    if table.first is None:
        return table.lags[now]
    return table.lags[now, code[series.rows - table.first[now]]]


def pointer_column(
    series: Series, table: DetectedTable, number: int, c: int | None = None, first: bool = False
) -> Column:
    c = table.payload if c is None else c
    z = (
        table.first[codes(series, table.channel)[series.rows]]
        if first and table.first is not None
        else lag_of(series, table)
    )
    return Column(
        f"{series.names[c]}{number}",
        series.X[series.rows - z, c],
        float(series.centre[c]),
        float(series.scale[c]),
    )


def adaptive_lags(series: Series, alpha: float) -> Pointers | None:
    """The best tables over any channel of symbols, or None."""
    best: Pointers | None = None
    for c in series.pointer_channels():
        if c == series.self_channel:
            continue  # the present symbol is what is to be predicted
        for candidate in (_one_level(series, c, alpha), _two_levels(series, c)):
            if candidate is None:
                continue
            extra = NESTED_SHARE if any(t.first is not None for t in candidate.tables) else 0.0
            if best is None or candidate.r2 - extra > best.r2:
                best = candidate
    return best


def _present(series: Series, c: int) -> list[Column]:
    """The present of the symbols' channel and of the payloads, which the readout may use."""
    return [lag_column(series, k, 0, 0) for k in range(series.d) if k == c] if not series.least else []


def _one_level(series: Series, c: int, alpha: float) -> Pointers | None:
    symbols = series.symbols[c]
    assert symbols is not None
    now = codes(series, c)[series.rows]
    X, inside = series.clipped, series.inside
    payloads = [k for k in range(series.d) if series.symbols[k] is None] or list(range(series.d))
    channels = [transform(series, X[:, k] * inside) for k in payloads]
    channels += [transform(series, X[:, k] ** 2 * inside) for k in payloads]
    by_symbol: list[dict[tuple[int, int], tuple[float, float]]] = []
    for s in range(len(symbols)):
        at = np.flatnonzero(now == s)
        if len(at) < LEAST_ROWS:
            by_symbol.append({})
            continue
        part = replace(series, rows=series.rows[at], y=series.y[at])
        y = part.y - part.y.mean()
        terms = select_lags(part, y, channels, alpha / len(symbols), most=6, least=1)
        columns = [channels[t.factors[0][0]].u[part.rows - t.factors[0][1]] for t in terms]
        beta = np.linalg.lstsq(np.column_stack(columns), y, rcond=None)[0] if terms else []
        mine: dict[tuple[int, int], tuple[float, float]] = {}
        for term, b in zip(terms, beta, strict=True):
            ((k, z),) = term.factors
            place = (payloads[k % len(payloads)], z)
            if place not in mine or abs(b) > abs(mine[place][0]):
                mine[place] = (float(b), term.p_value)
        by_symbol.append(mine)
    return _tables(series, c, by_symbol)


def _tables(series: Series, c: int, fixed_by_symbol: list[dict]) -> Pointers | None:
    """What every symbol has is fixed; the rest are tables, told apart by their coefficients."""
    present = [mine for mine in fixed_by_symbol if mine]
    if len(present) < 2:
        return None
    common = set.intersection(*(set(mine) for mine in present))
    rest = [{p: v for p, v in mine.items() if p not in common} for mine in fixed_by_symbol]
    count = max(map(len, rest))
    if not 1 <= count <= MOST_TABLES:
        return None
    payload = max(
        {k for mine in rest for k, _ in mine}, key=lambda k: sum(k == q for mine in rest for q, _ in mine)
    )
    full = [sorted(mine.items(), key=lambda i: -i[1][0]) for mine in rest if len(mine) == count]
    levels = np.array([[b for _, (b, _) in ranked] for ranked in full]).mean(
        0
    )  # typical coefficients, falling
    tables = []
    for k in range(count):
        lags, p = [], 0.0
        for mine, everything in zip(rest, fixed_by_symbol, strict=True):
            of_payload = {place: v for place, v in mine.items() if place[0] == payload}
            if len(of_payload) == count:
                place, (_, value) = sorted(of_payload.items(), key=lambda i: -i[1][0])[k]
                lags.append(place[1])
                p = max(p, value)
            elif (
                of_payload
            ):  # one lag where others have two: both tables agree there, or one of them lies on a fixed lag
                place = min(of_payload, key=lambda q: abs(of_payload[q][0] - levels[k]))
                both = abs(of_payload[place][0]) > 0.75 * abs(levels.sum())
                lone = common and not both and abs(of_payload[place][0] - levels[k]) > 0.3 * abs(levels[k])
                lags.append(min(common)[1] if lone else place[1])
            elif common and everything:  # the table lies on the fixed lag, whose coefficient is larger there
                lags.append(min(z for _, z in common))
            else:
                lags.append(-1)  # a symbol without a lag of its own
        known = [z for z in lags if z >= 0]
        fill = known[0] if known else 1
        tables.append(DetectedTable(c, payload, np.array([z if z >= 0 else fill for z in lags]), None, p))
    if all(t.constant for t in tables):
        return None
    places = tuple(sorted(common, key=lambda q: q[1]))
    number = len({z for _, z in places if z > 0})
    columns = [lag_column(series, k, z, i + 1) for i, (k, z) in enumerate(places)]
    columns += [pointer_column(series, t, number + i + 1) for i, t in enumerate(tables)]
    return Pointers(tuple(tables), places, FittedReadout(series, [*_present(series, c), *columns]))


# -- two levels -------------------------------------------------------------------------------------------


def _two_levels(series: Series, c: int) -> Pointers | None:
    symbols = series.symbols[c]
    assert symbols is not None
    T = min(series.T, NESTED_LAGS)
    payloads = [k for k in range(series.d) if series.symbols[k] is None] or [c]
    if len(symbols) > 12 or series.n < 40 * len(symbols) ** 2:
        return None
    best: tuple[float, DetectedTable] | None = None
    for k in payloads:
        for power in (1, 2):
            score, table = _nested_table(series, c, k, power, T)
            if best is None or score > best[0]:
                best = (score, table)
    if best is None:
        return None
    table = best[1]
    if not any(len(np.unique(row)) > 1 for row in table.lags):
        return None
    columns = [pointer_column(series, table, 1, first=True), pointer_column(series, table, 2)]
    return Pointers((table,), (), FittedReadout(series, [*_present(series, c), *columns]))


def _nested_table(series: Series, c: int, payload: int, power: int, T: int) -> tuple[float, DetectedTable]:
    """The best two-level table for products with v, or with v^2 and y^2; its score is a share of the variance."""
    code = codes(series, c)
    count = len(series.symbols[c]) if series.symbols[c] is not None else 0  # pyright: ignore[reportArgumentType]
    some = slice(0, NESTED_STEPS)
    rows = series.rows[some]
    now = code[rows]
    u = series.clipped[:, payload] ** power
    u = np.where(series.inside > 0, u - u[series.inside > 0].mean(), 0.0).astype(np.float32)
    target = series.y[some] if power == 1 else np.minimum(series.y[some] ** 2, 9.0)
    if power == 2 and abs(_correlation(series.y[some], target)) > 0.9:
        return 0.0, DetectedTable(c, payload, np.ones((count, count), int), np.ones(count, int))
    first, second = np.ones(count, int), np.ones((count, count), int)
    total = explained = 0.0
    lags = np.arange(1, T + 1)
    for s in range(count):
        at = rows[now == s]
        if len(at) < LEAST_ROWS:
            continue
        y = target[now == s]
        y = (y - y.mean()).astype(np.float32)
        V = u[at[:, None] - lags]
        B = code[at[:, None] - lags]
        plain, less, sums, sums_less = _nested_scores(y, V, B, count)
        variance = float((V**2).mean())
        use = less if less.max() > 1.05 * plain.max() else plain
        S = sums_less if use is less else sums
        z1 = int(np.argmax(use))
        first[s] = lags[z1]
        second[s] = lags[np.argmax(np.abs(S[:, z1]), axis=1)]
        total += float(y @ y)
        explained += float(use[z1]) / max(variance, 1e-9)
    return explained / max(total, 1e-9), DetectedTable(c, payload, second, first)


def _nested_scores(y: np.ndarray, V: np.ndarray, B: np.ndarray, count: int):
    """Of every first lag: sum_b max_z2 C, as it is and with the first memory itself taken out of y."""
    T = V.shape[1]
    beta = (y @ V) / ((V**2).sum(0) + 1e-9)
    plain, less = np.zeros(T), np.zeros(T)
    sums, sums_less = np.zeros((count, T, T), np.float32), np.zeros((count, T, T), np.float32)
    for b in range(count):
        A = (B == b).astype(np.float32)
        n_b = A.sum(0) + 1.0
        sums[b] = (A * y[:, None]).T @ V
        sums_less[b] = sums[b] - beta[:, None] * ((A * V).T @ V)
        plain += (sums[b] ** 2).max(1) / n_b
        squares = sums_less[b] ** 2
        squares[np.arange(T), np.arange(T)] = 0.0
        less += squares.max(1) / n_b
    gained = beta**2 * (V**2).sum(0) * float((V**2).mean())
    return plain, less + gained, sums, sums_less


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / np.sqrt((a @ a) * (b @ b) + 1e-12))


def equivalent(tables: Sequence[np.ndarray]) -> bool:
    """Whether second-level tables agree wherever a difference can be seen."""
    a, b = tables
    return bool((a == b).all())
