"""The best kernel sum over all exponents: linear programs on a dictionary that moves to where it is needed.

With any number of heads, the fit of mass B to rho is a convex problem over measures of exponents, and its
dual is one function of the exponent (lower_bounds.py):

    f(beta) = sum_z y_z w_beta(z),   max <y, rho> - B sup_beta |f(beta)|,   |y_z| <= 1.

Heads sit where |f| touches its supremum. So: solve on a coarse dictionary, find the local maxima of |f|,
put the dictionary there, solve again, as Remez does. Exponents are placed by theta, where
beta = beta_min + log(1 + e^theta): even steps of theta are even ratios of q near 0 and of 1 - q near 1.

Lags are rows: each alone up to `alone`, then blocks that grow by a ratio, then one to infinity. A y
constant on blocks is still a valid y, so lower bounds lose nothing in rigour. For fits it assumes that r
keeps its sign inside a block; residuals.py tells the truth afterwards.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from flint import arb, arb_mat, ctx

from memloci.approx.kernels.l1_program import L1Fit, solve_l1
from memloci.approx.kernels.rpe import AbstractRPE
from memloci.approx.kernels.targets import AbstractTarget

Progress = Callable[[str, float], None]  # a word about the stage, and the fraction done

STEP = 0.16  # tuned: of theta, in the first dictionary; errors below 1e-12 need 0.06
SCAN = 5  # tuned: scan points per step
FAST = 14.0  # tuned: theta of the fastest head but one; the fastest is a lag-1 shift


@dataclass(frozen=True)
class Rows:
    """Blocks of lags (edges[i], edges[i+1]], and the last one to infinity."""

    edges: tuple[int, ...]

    @classmethod
    def up_to(cls, last: int, *, alone: int, ratio: float) -> "Rows":
        edges = list(range(alone + 1))
        while edges[-1] < last:
            edges.append(max(edges[-1] + 1, int(edges[-1] * ratio)))
        return cls(tuple(edges))

    def column(self, rpe: AbstractRPE, beta: float) -> list[arb]:
        """Sums of w_beta over each row."""
        return self.column_at(rpe, arb(beta))

    def column_at(self, rpe: AbstractRPE, b: arb) -> list[arb]:
        alone = next((i for i, e in enumerate(self.edges) if e != i), len(self.edges)) - 1
        column = rpe.mixture_arb([arb(1)], [b], alone)
        tails = rpe.tails_arb(b, self.edges[alone:])
        return column + [lo - hi for lo, hi in zip(tails, tails[1:], strict=False)] + [tails[-1]]

    def target(self, target: AbstractTarget) -> list[arb]:
        blocks = zip(self.edges, self.edges[1:], strict=False)
        return [target.block_sum(lo, hi) for lo, hi in blocks] + [target.tail_sum(self.edges[-1])]


@dataclass(frozen=True)
class Exchange:
    """Where heads would sit if any number were allowed, and the dual that says so."""

    exponents: tuple[float, ...]  # local maxima of |f|
    fit: L1Fit  # on the last dictionary
    rows: Rows
    bits: int


def beta_of(rpe: AbstractRPE, theta: float) -> float:
    return rpe.beta_min + (theta + math.log1p(math.exp(-theta)) if theta > 0 else math.log1p(math.exp(theta)))


def theta_of(rpe: AbstractRPE, beta: float) -> float:
    x = beta - rpe.beta_min
    return x + math.log(-math.expm1(-x)) if x < 30 else x


def shift_exponent(rpe: AbstractRPE, bits: int) -> float:
    """An exponent whose kernel is 1{z = 1} up to 2^-bits."""
    return bits * math.log(2) if rpe.name == "lin" else float(bits)


def exchange(
    rpe: AbstractRPE,
    target: AbstractTarget,
    rows: Rows,
    *,
    mass: float | None,
    price: float = 0.0,
    bits: int,
    slowest: float,
    fastest: float = FAST,
    rounds: int = 4,
    rtol: float = 1e-4,
    step: float = STEP,
    ends: bool = False,
    progress: Progress | None = None,
) -> Exchange:
    """Solve over all exponents with theta in [slowest, fastest], and one head that shifts by one lag.

    A bound for all exponents (`ends`) also needs the limit of slow heads: lin heads put all weight beyond
    the last edge; log heads there are covered by y = 0, so that row is left out.
    """
    with ctx.workprec(bits):
        rho = rows.target(target)
        limit = [[arb(0)] * (len(rho) - 1) + [arb(1)]] if ends and rpe.name == "lin" else []
        keep = len(rho) - 1 if ends and rpe.name == "log" else len(rho)
        count = max(8, math.ceil((fastest - slowest) / step))
        step = (fastest - slowest) / count
        scan = [slowest + step * i / SCAN for i in range(count * SCAN + 1)]
        shift = max(fastest + 1, shift_exponent(rpe, bits))
        columns: dict[float, list[arb]] = {}

        def column(theta: float) -> list[arb]:
            if theta not in columns:
                columns[theta] = rows.column(rpe, beta_of(rpe, theta))[:keep]
            return columns[theta]

        table = arb_mat([column(theta) for theta in scan])
        dictionary, maxima = [*scan[::SCAN], shift], scan[:1]
        fit = None
        for k in range(rounds):
            if progress:
                progress("choosing exponents", k / rounds)
            fit = solve_l1(
                [*map(column, dictionary), *limit],
                rho[:keep],
                mass=mass,
                price=price,
                bits=bits,
                rtol=max(rtol, 1e-2 / 100**k),
            )
            level = float(fit.s) + price
            maxima, highest = _local_maxima(scan, table, fit.y, column, step / SCAN, level)
            # A bound loses mass * (highest - level); far below float64 the error is a small part of mass * level.
            slack = 2e-3 if mass is None else min(2e-3, 0.01 * fit.error / max(mass * level, 1e-300))
            if k and highest <= level * (1 + slack):
                break
            # Columns where |f| stays low are not needed, but a thin grid keeps f from growing between others.
            values = (arb_mat([*map(column, dictionary)]) * arb_mat(keep, 1, fit.y)).entries()
            high = [theta for theta, f in zip(dictionary, values, strict=True) if abs(f) > 0.6 * level]
            dictionary = sorted({*scan[:: 3 * SCAN], *high, *maxima, shift})
        assert fit is not None
        maxima = sorted({*maxima, shift})
    return Exchange(tuple(beta_of(rpe, theta) for theta in maxima), fit, rows, bits)


def _local_maxima(
    scan: list[float],
    table: arb_mat,
    y: list[arb],
    column: Callable[[float], list[arb]],
    h: float,
    level: float,
) -> tuple[list[float], float]:
    """Local maxima of |f| over theta that come near `level`, each refined by two parabolas."""
    f = [float(abs(value)) for value in (table * arb_mat(len(y), 1, y)).entries()]
    highest = max(f)
    maxima = []

    def size(theta: float) -> float:
        return float(abs(sum((a * b for a, b in zip(column(theta), y, strict=True)), arb(0))))

    for i, value in enumerate(f):
        left, right = (f[i - 1] if i else -1.0), (f[i + 1] if i + 1 < len(f) else -1.0)
        if value < max(left, right) or value < 0.7 * level or value == left:
            continue
        theta, top = scan[i], value
        if left >= 0 and right >= 0:
            theta, (l, m, r), width = theta, (left, value, right), h
            for _ in range(2):
                bend = l - 2 * m + r
                move = 0.5 * (l - r) / bend * width if bend < 0 else 0.0
                theta += max(-width, min(width, move))
                width /= 8
                l, m, r = size(theta - width), size(theta), size(theta + width)
            top = m
        highest = max(highest, top)
        maxima.append(theta)
    return maxima, highest
