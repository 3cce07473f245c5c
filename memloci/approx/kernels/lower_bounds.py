"""What no number of heads can do: proved lower bounds on error and mass.

Let kappa = sum_h a_h w_h, for any number of heads and any exponents, with sum_h |a_h| <= B. For every y
with |y_z| <= 1,

    ||kappa - rho||_1  >=  <y, rho> - <y, kappa>  >=  <y, rho> - B sup_beta |f(beta)|,
    f(beta) = sum_z y_z w_beta(z).

The bound of docs/theory.md takes y from shifted Chebyshev polynomials (`chebyshev_mass`). `lower_bound`
takes the best y it finds (exchange.py) and then proves the supremum:

- lin: f(beta) = sum_n c_n e^{-n beta}, c_n = y_{n+1} - y_n, a polynomial in q. Taylor cells cover
  0 <= beta <= beta_max; beyond, f differs from y_1 by less than sum |c_n| e^{-n beta_max}.
  Proved for all exponents in (0, infinity).
- log: f(beta) = g(beta) / zeta(beta), g(beta) = sum_{z<=n} y_z z^{-beta}, y = 0 beyond n. Taylor cells
  for g on [1, beta_max], with 1/zeta bounded by its value at the right end, because zeta falls: this
  includes beta -> 1, where every kernel vanishes. Beyond beta_max,
  |f| <= |y_1| + sum_{z>1} |y_z| z^{-beta_max}.
  Proved for all exponents in (1, infinity). How close it comes to the best fit is not proved.

With a price per mass instead of a budget (rounding: price = c u), the same y gives
||kappa - rho||_1 + price sum |a_h| >= <y, rho> whenever sup |f| <= price; y is scaled to make it so.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, ctx, fmpq

from memloci.approx.kernels.exchange import STEP, Progress, Rows, exchange
from memloci.approx.kernels.rpe import AbstractRPE, RpeName, as_rpe
from memloci.approx.kernels.targets import AbstractTarget, SingleLag
from memloci.approx.kernels.taylor import Cell, taylor_cell
from memloci.core.balls import above, below, fraction
from memloci.core.errors import BadInput

# Two heads or more are added up in numbers of the precision, and so every certificate of a sum of heads charges its mass
# sum_h |a_h| with one rounding of the values' size or more: a floor at this price is one that no certificate beats
# (tests/audit/test_false_certificates.py). One head alone, which may be charged nothing if it is a shift by 1, falls from lag
# 1 on and leaves an error of 1 at least of any lag beyond it; of a kernel, all that lies beyond lag 1 (routes/walls.py).
LEAST_CHARGE = 1.0
SUP_SLACK = 1e-4  # tuned: how far above the largest |f| found the proved supremum may lie


@dataclass(frozen=True)
class LowerBound:
    """Proved: at mass `mass` (or at `price` per mass) the error is at least `error`, whatever the heads."""

    rpe: RpeName
    target: str
    mass: float | None
    price: float
    error: float  # l1 error, or error + price * mass when a price was given; rounded down
    pairing: float  # <y, rho>, rounded down
    sup: float  # sup |f|, rounded up
    edges: tuple[int, ...]  # y is constant on (edges[i], edges[i+1]], and beyond the last
    y: tuple[Fraction, ...]

    def mass_for(self, error: float) -> float:
        """Proved: an l1 error of at most `error` needs at least this mass."""
        return max(0.0, below((arb(self.pairing) - arb(error)) / arb(self.sup)))


def lower_bound(
    rpe: RpeName | AbstractRPE,
    target: AbstractTarget,
    *,
    mass: float | None = None,
    price: float = 0.0,
    bits: int | None = None,
    alone: int | None = None,
    last: int | None = None,
    ratio: float = 1.15,
    rounds: int = 4,
    step: float = STEP,
    progress: Progress | None = None,
) -> LowerBound:
    """The best bound found for this target, over any number of heads and any exponents.

    Give a budget (`mass`) or a `price`. y is free on lags up to `alone`, constant on blocks up to `last`,
    and beyond. A lower bound of 0 means that none was found, not that an exact fit exists. For errors
    below 1e-6 give more: bits=256, alone=48, last=400, ratio=1.1, and a finer first dictionary (`step`).
    """
    rpe = as_rpe(rpe)
    if mass is not None and price:
        raise BadInput("give a mass budget or a price, not both: each makes a bound of its own")
    check_budget(mass, price)
    bits = bits or 192
    alone = alone or max(32, 2 * target.start)
    last = max(last or 200, alone + 2)
    rows = Rows.up_to(last, alone=alone, ratio=ratio)
    # Slower heads differ little from the limit, e^-5; with e^-2 |f| rose by a fifth beyond the dictionary.
    slowest = -math.log(last) - 5 if rpe.name == "lin" else -6.0
    proposal = exchange(
        rpe,
        target,
        rows,
        mass=mass,
        price=price,
        bits=bits,
        slowest=slowest,
        rounds=rounds,
        step=step,
        ends=True,
        progress=progress,
    )
    with ctx.workprec(bits):
        y = [_clip(value) for value in proposal.fit.y]
        if rpe.name == "log":
            y.append(arb(0))
        sup = prove_sup(rpe, rows, y)
        rho = rows.target(target)
        pairing = sum((a * b for a, b in zip(y, rho, strict=True)), arb(0))
        if mass is not None:
            error = pairing - arb(mass) * sup
        else:  # y / max(1, sup/price) is feasible at this price
            error = pairing / (sup / arb(price)).max(arb(1))
        return LowerBound(
            rpe=rpe.name,
            target=target.label,
            mass=mass,
            price=price,
            error=max(0.0, below(error)),
            pairing=below(pairing),
            sup=above(sup),
            edges=rows.edges,
            y=tuple(fraction(value) for value in y),
        )


def check_budget(mass: float | None, price: float) -> None:
    if mass is None and not price > 0:
        raise BadInput("give a mass budget, or a price per mass (the rounding unit of the weights)")
    if mass is not None and not 0 < mass < 1e300:
        raise BadInput(f"mass budget {mass}: must be positive and finite")
    if not 0 <= price < 1e300:
        raise BadInput(f"price {price}: must be finite and not negative")


# -- the supremum -------------------------------------------------------------------------------------


def prove_sup(rpe: RpeName | AbstractRPE, rows: Rows, y: Sequence[arb]) -> arb:
    """At least sup over all exponents of |sum_z y_z w_beta(z)|, y constant on each row."""
    rpe = as_rpe(rpe)
    if rpe.name == "lin":
        before = [arb(0), *y[:-1]]
        terms = [(arb(n), b - a) for n, a, b in zip(rows.edges, before, y, strict=True)]
        x_start = arb(0)
        shrink = lambda beta: arb(1)
    else:
        if not y[-1].is_zero():
            raise BadInput("log heads: y must be 0 beyond the last edge for its supremum to be proved")
        blocks = zip(rows.edges, rows.edges[1:], y, strict=False)
        terms = [(arb(z).log(), value) for lo, hi, value in blocks for z in range(lo + 1, hi + 1)]
        x_start = arb(1)
        shrink = lambda beta: 1 / beta.zeta() if beta > 1 else arb(0)
    constant, *decaying = terms
    fastest_rate = decaying[-1][0]
    level = abs(constant[1]).lower().max(arb(2) ** -ctx.prec)
    best = abs(constant[1]).upper()  # beta -> infinity: f -> y_1
    x_lo = x_start
    while True:
        rest = sum((abs(c) * (-nu * x_lo).exp() for nu, c in decaying), arb(0))
        if x_lo > 1 and (rest < level * SUP_SLACK / 4 or x_lo > ctx.prec):
            return best.max((abs(constant[1]) + rest).upper())
        x_hi = x_lo + (x_lo / 4).max(1 / fastest_rate)
        x_hi = x_hi.mid()
        cell = taylor_cell(terms, (), x_lo, x_hi, K=8 + ctx.prec // 3)
        top, level = _prove_cell(cell, x_lo, x_hi, shrink, level)
        best = best.max(top)
        x_lo = x_hi


def _prove_cell(cell: Cell, x_lo: arb, x_hi: arb, shrink, level: arb) -> tuple[arb, arb]:
    """A bound on |f| over one cell, and the largest |f| met so far: pieces far below it need no care."""
    top, todo = arb(0), [(x_lo, x_hi, 0)]
    while todo:
        lo, hi, depth = todo.pop()
        c_0, *others = cell.local(lo, hi)
        middle = (lo + hi) / 2
        level = level.max(((abs(c_0) - cell.error) * shrink(middle)).lower())
        bound = ((abs(c_0) + sum((abs(c) for c in others), cell.error)) * shrink(hi)).upper()
        if bound <= level * (1 + SUP_SLACK) or depth >= 40:
            top = top.max(bound)
        else:
            mid = middle.mid()
            todo += [(lo, mid, depth + 1), (mid, hi, depth + 1)]
    return top, level


# -- Chebyshev's bound on mass ------------------------------------------------------------------------

FARTHEST_BOUND_LAG = (
    1024  # tuned: a mass of 2^3800, far beyond the bits of any number here; farther lags take as much
)


@dataclass(frozen=True)
class ChebyshevMass:
    """Proved: lin heads in one layer with l1 error at most `error` for sum_i c_i 1{z = t_i} have mass at least `mass`."""

    taps: tuple[tuple[int, Fraction], ...]
    error: float
    degree: int
    mass: Fraction

    @property
    def as_float(self) -> float:
        """No larger than the mass, also where that is beyond float64."""
        return lower_float(self.mass)

    @property
    def log2(self) -> float:
        return below(arb(fmpq(self.mass.numerator, self.mass.denominator)).log() / arb.const_log2())


def lower_float(x: Fraction) -> float:
    """A float64 number that is at most x; x >= 0."""
    if x >= Fraction(sys.float_info.max):
        return sys.float_info.max
    return max(0.0, math.nextafter(float(x), -math.inf))


def chebyshev_mass(lag: int, error: float) -> ChebyshevMass:
    """What recalling one lag takes."""
    SingleLag(lag)  # refuses lags out of range
    if not 0 < error < 1:
        raise BadInput(f"error {error}: must lie between 0 and 1 (an error of 1 takes no heads at all)")
    return chebyshev_mass_of({lag: Fraction(1)}, error)


def chebyshev_mass_of(taps: Mapping[int, Fraction], error: float | Fraction) -> ChebyshevMass:
    """B >= |sum_i c_i y_{t_i - 1}| - eps max_j |y_j| for P(q) = sum_j y_j q^j = T_n(2q - 1), at the best degree n.

    In exact rational arithmetic: |P| <= 1 on [0, 1], and w_q(z) = (1-q) q^{z-1} only helps. The coefficients y_j have
    alternating signs, so taps of like sign at lags an odd number apart cancel, for this P.

    Lags beyond FARTHEST are all moved by the same s: heads for sum_i c_i 1{z = t_i}, looked at from lag s on, are heads for
    the taps at t_i - s with coefficients a_h q_h^s, so neither their mass nor their error is larger, and the bound holds.
    """
    eps, given = Fraction(error), tuple(sorted(taps.items()))
    best = ChebyshevMass(given, float(error), 0, Fraction(0))
    if not given:
        return best
    s = max(0, given[-1][0] - FARTHEST_BOUND_LAG)
    moved = [(t - s, c) for t, c in given if t > s]
    lag = moved[-1][0]
    degree = max(1, lag - 1)
    most = 64 * (lag + 8)  # an error near 0 would let it grow without end
    while degree <= min(best.degree + lag + 8, most) or best.degree == 0 and degree < 8 * lag + 64:
        signed = sum((c * (-1) ** t * _chebyshev_coefficient(degree, t - 1) for t, c in moved), Fraction(0))
        mass = abs(signed) - eps * _largest_coefficient(degree)
        if mass > best.mass:
            best = ChebyshevMass(given, float(error), degree, mass)
        degree += 1
    return best


def _chebyshev_coefficient(n: int, j: int) -> int:
    """|y_j| of T_n(2q - 1) = sum_j y_j q^j, whose sign is that of (-1)^{n - j}: 4^j n / (n + j) binomial(n + j, 2j)."""
    return 4**j * n * math.comb(n + j, 2 * j) // (n + j)


def _largest_coefficient(n: int) -> int:
    """max_j |y_j|: the ratio |y_{j+1} / y_j| = 2 (n^2 - j^2) / ((j + 1)(2j + 1)) falls, and is 1 or less from here on."""
    j = max(0, math.isqrt(n * n // 2) - 2)
    while 2 * (n * n - j * j) > (j + 1) * (2 * j + 1):
        j += 1
    while j > 0 and 2 * (n * n - (j - 1) ** 2) <= j * (2 * j - 1):
        j -= 1
    return _chebyshev_coefficient(n, j)


# -- numbers that stay on the safe side ---------------------------------------------------------------


def _clip(value: arb) -> arb:
    return arb(1) if value > 1 else arb(-1) if value < -1 else value.mid()
