"""Essential memory: a kernel over the whole past, with the kind of its tail and an interval for its rate.

    y_t = f(u_theta(t)) + e_t,   u_theta(t) = sum_{z>=1} rho_theta(z) x_{t-z},   rho = exp(-theta z) or z^-theta

f is a line, or a spline where the readout is curved. theta is profiled: for each theta the rest is a regression. The
interval is a sandwich over blocks of time at the minimum. A kernel is taken only if it describes the data in fewer numbers
than lags do, and the interval is given only if the residual shows no lag: under a wrong family it would be tight and wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats
from scipy.linalg import matmul_toeplitz

from memloci.core.numbers import literal, to_digits
from memloci.detect.correlate import all_shifts, transform
from memloci.detect.dictionary import Column
from memloci.detect.forward import Basis, linear_transforms, p_value, select_lags
from memloci.detect.fourier import fft
from memloci.detect.series import Series

TAILS = ("exponential", "power")
RANGES = {"exponential": (0.004, 3.0), "power": (0.55, 5.0)}
STEEPEST = {"exponential": 1.8, "power": 4.2}  # beyond, a kernel is its first lag
GRID = 20
KNOTS = 16
MOST_SPIKES = 3
MOST_LAGS = 8  # of the lags that a kernel is compared with
LEAST_LAGS = 3  # fewer describe themselves
HOPELESS = 0.95  # of the variance left by a kernel that no lag beside it will save
LINK_GAIN = 0.003  # of the variance, above which the readout counts as curved
BLOCKS = 100
POINTS = 15  # of the loss near its minimum
REACH = {False: 3.0, True: 10.0}  # of the parabola, in errors of a smooth readout (tuned)
WIDEN = {False: 1.0, True: 1.2}  # tuned on jumps: draws of blocks do not refit the curve of the readout


@dataclass(frozen=True, eq=False)
class KernelFit:
    """A kernel on one channel, with lags beside it."""

    tail: str
    rate: float
    interval: tuple[float, float] | None
    channel: int
    spikes: tuple[int, ...]  # lags beside the kernel
    curved: bool
    p_value: float
    r2: float
    column: Column
    index: np.ndarray  # u plus the lags beside it, as the readout sees them

    @property
    def text(self) -> str:
        rate = literal(to_digits(self.rate, 4))
        return f"exp(-{rate} * z)" if self.tail == "exponential" else f"z ** -{rate}"


class LagProfile:
    """The sum of squares as a function of theta, for one tail and channel; lags beside it are columns."""

    def __init__(self, series: Series, tail: str, channel: int, spikes: Sequence[int], curved: bool):
        self.series, self.tail, self.channel = series, tail, channel
        self.spikes, self.curved = tuple(spikes), curved
        self.x = series.X[:, channel]
        self.runs = _runs(series.inside)
        self.beside = [series.lagged(channel, z) for z in self.spikes]
        self.present = [] if series.least else [series.lagged(channel, 0)]

    def u(self, theta: float) -> np.ndarray:
        """The convolution at every row, with variance 1."""
        n = max(b - a for a, b in self.runs)
        z = np.arange(1.0, n + 1)
        rho = np.exp(-theta * z) if self.tail == "exponential" else z**-theta
        L = int(fft.next_fast_len(2 * n, real=True))
        spectrum = fft.rfft(np.concatenate([[0.0], rho])[: n + 1], L)
        filtered = np.zeros(len(self.x))
        for a, b in self.runs:
            filtered[a:b] = fft.irfft(fft.rfft(self.x[a:b], L) * spectrum, L)[: b - a]
        u = filtered[self.series.rows]
        return u

    def design(self, theta: float) -> np.ndarray:
        u = self.u(theta)
        u = u / (u.std() + 1e-12)
        columns = [np.ones(len(u)), u, *self.beside, *self.present]
        if not self.curved:
            return np.column_stack(columns)
        F = np.column_stack(columns)
        beta = np.linalg.lstsq(F, self.series.y, rcond=None)[0]
        index = F[:, 1:] @ beta[1:]
        index = index / (index.std() + 1e-12)
        return _splines(index)

    def fit(self, theta: float) -> tuple[float, np.ndarray, np.ndarray]:
        """The mean square of the residual, the prediction, and the design."""
        F = self.design(theta)
        G = F.T @ F
        G[np.diag_indices_from(G)] *= 1 + 1e-10
        f = F @ np.linalg.lstsq(G, F.T @ self.series.y, rcond=None)[0]
        return float(np.mean((self.series.y - f) ** 2)), f, F

    def loss(self, log_theta: float) -> float:
        return self.fit(float(np.exp(log_theta)))[0]

    def minimum(self) -> tuple[float, float]:
        """(theta, loss)."""
        low, high = RANGES[self.tail]
        grid = np.linspace(np.log(low), np.log(high), GRID)
        losses = [self.loss(g) for g in grid]
        k = int(np.argmin(losses))
        around = grid[max(k - 1, 0)], grid[min(k + 1, GRID - 1)]
        solved = optimize.minimize_scalar(self.loss, bounds=around, method="bounded", options={"xatol": 1e-5})
        return float(np.exp(solved.x)), float(solved.fun)

    def interval(self, theta: float) -> tuple[float, tuple[float, float]]:
        """The rate, and 95 % for it: where a parabola through the loss near the minimum is least, over draws of blocks.

        A readout with a jump has a ragged loss, whose curvature at one point says little; the parabola reaches over
        several times the error that a smooth readout would have.
        """
        _, f, F = self.fit(theta)
        h = 1e-3 * theta
        slope = (self.fit(theta + h)[1] - self.fit(theta - h)[1]) / (2 * h)
        slope = slope - F @ np.linalg.lstsq(F, slope, rcond=None)[0]
        y = self.series.y
        error = float(np.sqrt(np.mean((y - f) ** 2) / (slope @ slope + 1e-300)))
        reach = min(REACH[self.curved] * error, 0.3 * theta)
        offsets = np.linspace(-1, 1, POINTS)
        blocks = np.arange(len(y)) * BLOCKS // len(y)
        losses = np.stack(
            [np.bincount(blocks, (y - self.fit(theta + reach * k)[1]) ** 2) for k in offsets]
        )  # (points, blocks)
        weights = np.random.default_rng(0).multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), 500).T
        fit = np.polynomial.polynomial.polyfit(offsets, np.column_stack([losses.sum(1), losses @ weights]), 2)
        least = np.clip(-fit[1] / np.where(fit[2] > 0, 2 * fit[2], np.inf), -1, 1)
        centre = theta + reach * float(least[0]) if self.curved else theta
        half = (
            WIDEN[self.curved] * float(stats.t.ppf(0.975, BLOCKS - 1)) * reach * float(least[1:].std(ddof=1))
        )
        return centre, (centre - half, centre + half)


def _runs(inside: np.ndarray) -> list[tuple[int, int]]:
    edges = np.diff(np.concatenate([[0.0], inside, [0.0]]))
    return list(zip(np.flatnonzero(edges > 0).tolist(), np.flatnonzero(edges < 0).tolist(), strict=True))


def best_kernel(series: Series, alpha: float) -> KernelFit | None:
    """The kernel that describes the target in fewer numbers than lags do, or None."""
    channels = [c for c in range(series.d) if not series.words[c]]
    if not channels or len(_runs(series.inside)) > 64 or series.n < 500:
        return None
    gain, tail, c, theta = max(_rough(series, c, tail) for c in channels for tail in TAILS)
    u = LagProfile(series, tail, c, (), False).u(theta)
    tried = len(channels) * len(TAILS) * GRID
    p = tried * p_value(series, series.y - series.y.mean(), u - u.mean())
    if gain <= 0 or p > alpha:
        return None
    loss, theta, profile = _best_tail(series, c, (), False)
    if theta > STEEPEST[profile.tail]:
        return None
    linear_length, curved_length, count = _lag_lengths(series, alpha)
    price = _price(series)
    if series.n * np.log(loss) + 2 * price < linear_length:
        return _refined(series, c, p, alpha)
    if count < LEAST_LAGS or loss > HOPELESS:
        return None
    # A curved readout, or a lag beside the kernel, hides it from a straight fit: compare once more with both.
    kernel = _refined(series, c, p, alpha)
    if kernel is None:
        return None
    numbers = 2 + len(kernel.spikes) + kernel.curved
    length = series.n * np.log(1 - kernel.r2 + 1e-12) + numbers * price
    return kernel if length < min(linear_length, curved_length) else None


def _rough(series: Series, c: int, tail: str) -> tuple[float, str, int, float]:
    """(gain, tail, channel, theta) on a grid, from correlations up to the largest lag alone."""
    u = transform(series, series.X[:, c] * series.inside)
    C = all_shifts(series, series.scatter(series.y - series.y.mean()), u.spectrum)[1 : series.T + 1]
    autocorrelation = all_shifts(series, u.u, u.spectrum)[: series.T]
    z = np.arange(1.0, series.T + 1)
    best = (0.0, tail, c, 1.0)
    low, high = RANGES[tail]
    for theta in np.exp(np.linspace(np.log(low), np.log(high), GRID)):
        rho = np.exp(-theta * z) if tail == "exponential" else z**-theta
        variance = float(rho @ matmul_toeplitz(autocorrelation, rho))
        gain = float(rho @ C) ** 2 / max(variance * series.n, 1e-12)
        best = max(best, (gain, tail, c, float(theta)))
    return best


def _price(series: Series) -> float:
    """Of a lag or of a rate, in the units of n log(loss): which one, and how much of it."""
    return float(np.log(series.n) + 2 * np.log(series.T + 1))


def _lag_lengths(series: Series, alpha: float) -> tuple[float, float, int]:
    """The shortest description by lags alone, n log(loss) and a price for each, straight and through a curve; and how
    many lags were taken."""
    terms = select_lags(series, series.y, linear_transforms(series), alpha, most=MOST_LAGS)
    basis = Basis(series.y)
    linear_length = curved_length = np.inf
    for k, term in enumerate(terms, start=1):
        ((c, z),) = term.factors
        basis.add(series.clipped[series.rows - z, c])
        linear_length = min(
            linear_length, series.n * np.log(np.mean(basis.r**2) + 1e-12) + k * _price(series)
        )
    if terms:
        index = series.y - basis.r
        r = series.y - _spline(index / (index.std() + 1e-12), series.y)
        curved_length = series.n * np.log(np.mean(r**2) + 1e-12) + (len(terms) + 1) * _price(series)
    return float(linear_length), float(curved_length), len(terms)


def _splines(index: np.ndarray) -> np.ndarray:
    knots = np.quantile(index, np.linspace(0.01, 0.99, KNOTS))
    return np.column_stack([np.ones(len(index)), index, *(np.maximum(index - k, 0.0) ** 2 for k in knots)])


def _spline(index: np.ndarray, y: np.ndarray) -> np.ndarray:
    F = _splines(index)
    return F @ np.linalg.lstsq(F.T @ F, F.T @ y, rcond=None)[0]


def _refined(series: Series, c: int, p: float, alpha: float) -> KernelFit | None:
    """Tail, rate, curvature and lags beside the kernel, in turn until none changes."""
    spikes: tuple[int, ...] = ()
    curved = False
    while True:
        loss, theta, profile = _best_tail(series, c, spikes, curved)
        curved_profile = LagProfile(series, profile.tail, c, spikes, True)
        if not curved and loss - curved_profile.fit(theta)[0] > LINK_GAIN:
            curved = True
            loss, theta, profile = _best_tail(series, c, spikes, curved)
        more = _spikes(series, profile, theta, alpha)
        flat = not more
        if flat or len(spikes) + len(more) > MOST_SPIKES:
            break
        spikes = tuple(sorted({*spikes, *more}))
    tail = profile.tail
    if theta > STEEPEST[tail]:
        return None
    u = profile.u(theta)
    column = Column(f"{series.names[c]}{len(spikes) + 1}", u / u.std(), 0.0, float(series.scale[c] * u.std()))
    theta, interval = profile.interval(theta) if flat else (theta, None)
    return KernelFit(
        tail,
        theta,
        interval,
        c,
        spikes,
        curved,
        p,
        1 - loss / float(np.var(series.y)),
        column,
        profile.fit(theta)[1],
    )


def _best_tail(
    series: Series, c: int, spikes: Sequence[int], curved: bool
) -> tuple[float, float, LagProfile]:
    """(loss, theta, profile)."""
    fits = []
    for tail in TAILS:
        profile = LagProfile(series, tail, c, spikes, curved)
        theta, loss = profile.minimum()
        fits.append((loss, theta, profile))
    return min(fits, key=lambda fit: fit[0])


def _spikes(series: Series, profile: LagProfile, theta: float, alpha: float) -> list[int]:
    """The strongest lag in what the kernel leaves, given the directions in which the kernel itself could move."""
    _, f, F = profile.fit(theta)
    slopes = [profile.u(theta * (1 + s)) for s in (-0.05, 0.05)]
    r = series.y - f
    given = [*F.T[1:], *slopes] if not profile.curved else [f - f.mean(), *slopes]
    given = _independent(given)
    terms = select_lags(
        series, r, [linear_transforms(series)[profile.channel]], alpha, fixed_columns=given, most=1, least=1
    )
    return [t.factors[0][1] for t in terms if t.factors[0][1] not in profile.spikes]


def _independent(columns: Sequence[np.ndarray]) -> list[np.ndarray]:
    basis = Basis(columns[0] if len(columns) else np.zeros(2))
    independent = []
    for u in columns:
        if basis.orthogonal(u) @ u > 1e-8 * (u @ u + 1e-12):
            basis.add(u)
            independent.append(u)
    return independent
