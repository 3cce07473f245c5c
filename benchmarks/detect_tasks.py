"""Data with a known memory, for every row of the table of detection (benchmarks/detect.py)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.signal import lfilter


@dataclass(frozen=True)
class Case:
    """Data and what is to be found in it."""

    x: np.ndarray
    y: np.ndarray | None
    kind: str
    lags: tuple[int, ...] = ()
    table: Any = None
    tail: str | None = None
    rate: float | None = None
    offset: int | None = None
    text: str = ""


def inputs(rng: np.random.Generator, n: int, rho: float, uniform: bool = False) -> np.ndarray:
    """White or first-order autocorrelated, with variance 1."""
    if uniform and not rho:
        return rng.uniform(-1, 1, n)
    return np.asarray(lfilter([np.sqrt(1 - rho**2)], [1, -rho], rng.standard_normal(n + 500)))[500:]


def lagged(x: np.ndarray, lags) -> list[np.ndarray]:
    return [np.concatenate([np.zeros(z), x[: len(x) - z]]) for z in lags]


def noisy(rng: np.random.Generator, signal: np.ndarray, noise: float) -> np.ndarray:
    return signal + noise * signal.std() * rng.standard_normal(len(signal))


def _lags(rng, count, T) -> tuple[int, ...]:
    return tuple(sorted(rng.choice(np.arange(1, T + 1), count, replace=False).tolist()))


def _coefficients(rng, count) -> np.ndarray:
    return rng.uniform(0.5, 1.5, count) * rng.choice([-1, 1], count)


FIXED = ("linear", "product", "threshold", "signs")


def fixed(
    rng: np.random.Generator,
    kind: str | None = None,
    n: int = 20_000,
    T: int = 512,
    noise: float = 0.1,
    rho: float | None = None,
) -> Case:
    kind = kind or str(rng.choice(FIXED))
    rho = float(rng.choice([0.0, 0.5, 0.9])) if rho is None else rho
    x = inputs(rng, n, rho, bool(rng.integers(2)))
    count = int(rng.integers(1, 6))
    if kind == "product":
        count = max(2, count)
    if kind == "threshold":
        count = int(rng.integers(2, 4))
    lags = _lags(rng, count, T)
    m = lagged(x, lags)
    if kind == "linear":
        signal = np.tensordot(_coefficients(rng, count), np.stack(m), 1)
    elif kind == "product":
        signal = np.prod(m, axis=0)
    elif kind == "threshold":
        at = rng.uniform(-0.3, 0.3)
        signal = np.where(m[0] > at, m[1], -m[1] if count == 2 else m[2])
    else:
        signal = np.tensordot(_coefficients(rng, count), np.sign(m), 1)
    return Case(x, noisy(rng, signal, noise), "fixed", lags, text=f"{kind} rho {rho} lags {lags}")


OUTSIDE = ("max", "abs", "min", "round", "cos")


def outside_family(rng: np.random.Generator, n: int = 20_000, T: int = 512) -> Case:
    kind = str(rng.choice(OUTSIDE))
    rho = float(rng.choice([0.0, 0.5, 0.9]))
    x = inputs(rng, n, rho, bool(rng.integers(2)))
    lags = _lags(rng, 3 if kind == "min" else 2, T)
    m = lagged(x, lags)
    signal = {
        "max": lambda: np.maximum(m[0], m[1]),
        "abs": lambda: np.abs(m[0] - m[1]),
        "min": lambda: np.minimum(m[0], m[1]) * m[2],
        "round": lambda: np.round(2 * m[0]) + np.round(2 * m[1]),
        "cos": lambda: np.cos(2 * (m[0] + m[1])),
    }[kind]()
    return Case(x, noisy(rng, signal, 0.1), "fixed", lags, text=f"{kind} rho {rho} lags {lags}")


def weak(rng: np.random.Generator, n: int = 20_000, T: int = 512) -> Case:
    """One lag that explains a hundredth of the variance."""
    rho = float(rng.choice([0.0, 0.5, 0.9]))
    x = inputs(rng, n, rho)
    lags = _lags(rng, 1, T)
    (m,) = lagged(x, lags)
    return Case(x, m + np.sqrt(99) * rng.standard_normal(n), "fixed", lags, text=f"rho {rho} lags {lags}")


def hard_products(rng: np.random.Generator, n: int = 20_000, T: int = 512) -> Case:
    x = inputs(rng, n, 0.9)
    lags = _lags(rng, 4, T)
    m = lagged(x, rng.permutation(lags))
    return Case(x, noisy(rng, m[0] * m[1] + m[2] * m[3], 3.0), "fixed", lags, text=f"lags {lags}")


def adaptive(rng: np.random.Generator, n: int = 20_000, T: int = 64) -> Case:
    count = int(rng.integers(2, 9))
    a = rng.integers(1, count + 1, n)
    v = rng.uniform(-1, 1, n)
    g = rng.choice(np.arange(1, T + 1), count, replace=False)
    at = np.arange(n) - g[a - 1]
    signal = np.where(at >= 0, v[at], 0.0)
    return Case(np.stack([a, v], 1), noisy(rng, signal, 0.1), "adaptive", table=g, text=f"{g}")


def nested(rng: np.random.Generator, n: int = 20_000, T: int = 64) -> Case:
    count = int(rng.integers(2, 5))
    a = rng.integers(1, count + 1, n)
    v = rng.uniform(-1, 1, n)
    g1 = rng.choice(np.arange(1, T // 2), count, replace=False)
    g2 = rng.integers(1, T + 1, (count, count))
    t = np.arange(n)
    first = t - g1[a - 1]
    second = t - g2[a - 1, a[first] - 1]
    signal = np.where((first >= 0) & (second >= 0), v[second], 0.0)
    return Case(np.stack([a, v], 1), noisy(rng, signal, 0.1), "adaptive", table=(g1, g2), text=f"{g1} {g2}")


def kernel_values(tail: str, rate: float, n: int) -> np.ndarray:
    z = np.arange(1.0, n + 1)
    return np.exp(-rate * z) if tail == "exponential" else z**-rate


def _convolved(x: np.ndarray, rho: np.ndarray) -> np.ndarray:
    from scipy.signal import fftconvolve

    return np.concatenate([[0.0], fftconvolve(x, rho)[: len(x) - 1]])


def essential(
    rng: np.random.Generator, n: int = 50_000, link: str | None = None, spike: bool = False
) -> Case:
    tail = str(rng.choice(["exponential", "power"]))
    rate = (
        float(np.exp(rng.uniform(np.log(0.02), 0))) if tail == "exponential" else float(rng.uniform(0.8, 3))
    )
    x = inputs(rng, n, 0.0, True)
    u = _convolved(x, kernel_values(tail, rate, n))
    u = u / u.std()
    lags: tuple[int, ...] = ()
    if spike:
        lags = _lags(rng, 1, 64)
        u = u + lagged(x, lags)[0] / x.std()
        u = u / u.std()
    link = link or str(rng.choice(["linear", "tanh", "sign"]))
    signal = {"linear": lambda: u, "tanh": lambda: np.tanh(1.5 * u), "sign": lambda: np.sign(u)}[link]()
    kind = "mixed" if spike else "essential"
    return Case(
        x, noisy(rng, signal, 0.1), kind, lags, tail=tail, rate=rate, text=f"{tail} {rate:.3f} {link} {lags}"
    )


def latest_match(keys: np.ndarray, values: np.ndarray, offset: int) -> np.ndarray:
    """values at s + offset, for the latest s <= t - 1 - offset whose key equals that of t."""
    last: dict[int, int] = {}
    out = np.zeros(len(keys))
    for t in range(len(keys)):
        if t - 1 - offset >= 0:
            last[int(keys[t - 1 - offset])] = t - 1 - offset
        s = last.get(int(keys[t]))
        out[t] = 0.0 if s is None else values[s + offset]
    return out


def matched(rng: np.random.Generator, n: int = 20_000) -> Case:
    count = int(rng.choice([8, 64, 256]))
    offset = int(rng.integers(0, 2))
    k = rng.integers(1, count + 1, n)
    v = rng.uniform(-1, 1, n)
    signal = latest_match(k, v, offset)
    return Case(
        np.stack([k, v], 1),
        noisy(rng, signal, 0.1),
        "matched",
        offset=offset,
        text=f"{count} keys, offset {offset}",
    )


def parity(rng: np.random.Generator, n: int = 20_000, T: int = 512, flips: float = 0.0) -> Case:
    x = inputs(rng, n, 0.0, True)
    lags = _lags(rng, 5, T)
    signal = np.prod(np.sign(lagged(x, lags)), axis=0)
    signal = np.where(rng.random(n) < flips, -signal, signal)
    return Case(
        x,
        signal + 0.1 * rng.standard_normal(n),
        "none" if flips else "fixed",
        lags,
        text=f"{lags} flips {flips}",
    )


def null(rng: np.random.Generator, n: int = 4_000) -> Case:
    kind = str(rng.choice(["independent", "shuffled", "heavy", "volatile", "volatile pair", "heavy pair"]))
    if kind == "independent":
        return Case(inputs(rng, n, 0.9), inputs(rng, n, 0.9), "none", text=kind)
    if kind == "shuffled":
        return Case(rng.permutation(inputs(rng, n, 0.9)), None, "none", text=kind)
    if kind == "heavy":
        return Case(rng.standard_t(2, n), None, "none", text=kind)
    if kind == "heavy pair":
        return Case(rng.standard_t(1.5, n), rng.standard_t(1.5, n), "none", text=kind)
    if kind == "volatile":
        return Case(_garch(rng, n), None, "none", text=kind)
    return Case(_garch(rng, n), _garch(rng, n), "none", text=kind)


def _garch(rng: np.random.Generator, n: int) -> np.ndarray:
    x, variance = np.zeros(n + 500), 1.0
    noise = rng.standard_normal(n + 500)
    for t in range(1, n + 500):
        variance = 0.05 + 0.15 * x[t - 1] ** 2 + 0.8 * variance
        x[t] = np.sqrt(variance) * noise[t]
    return x[500:]


def mixture(rng: np.random.Generator, n: int = 20_000, T: int = 64) -> Case:
    kind = str(rng.choice(["lag and pointer", "lag and kernel", "two tables"]))
    if kind == "lag and kernel":
        return essential(rng, 50_000, "linear", True)
    count = int(rng.integers(2, 6))
    a = rng.integers(1, count + 1, n)
    v = rng.uniform(-1, 1, n)
    t = np.arange(n)
    tables = [rng.choice(np.arange(1, T + 1), count, replace=False) for _ in range(2)]
    at = lambda z: np.where(t >= z, v[np.maximum(t - z, 0)], 0.0)
    if kind == "lag and pointer":
        lags = _lags(rng, 1, T)
        signal = at(lags[0]) + rng.uniform(0.5, 1.5) * at(tables[0][a - 1])
        return Case(
            np.stack([a, v], 1),
            noisy(rng, signal, 0.1),
            "mixed",
            lags,
            table=tables[:1],
            text=f"{kind} {lags} {tables[0]}",
        )
    signal = at(tables[0][a - 1]) + rng.uniform(0.4, 1.5) * at(tables[1][a - 1])
    return Case(
        np.stack([a, v], 1), noisy(rng, signal, 0.1), "adaptive", table=tables, text=f"{kind} {tables}"
    )
