"""Kernel sums that recall a lag chosen by the query: one vector of coefficients for a whole set of lags.

    lin   sum_h alpha_h e^{beta_h (g - z)}      a kernel of z - g
    log   sum_h alpha_h (z/g)^{-beta_h}         a kernel of z/g
    E_g = sum_{z>=1} |sum_h alpha_h e^{beta_h (phi(z) - phi(g))} - 1{z = g}|,   minimise max_g E_g + price max_g m_g

The attention is not normalised: the query supplies the gate e^{-beta_h phi(g)}, and the sum over z is a fixed
convolution (docs/theory.md, section 3). For one g this is a kernel sum (kernel_sums.py) whose coefficients are

    a_h(g) = alpha_h e^{-beta_h phi(g)} sum_{z>=1} e^{beta_h phi(z)},   m_g = sum_h |a_h(g)|,

e^{-phi} grows with g, so the mass m_g, which rounding costs, is largest at T, the largest lag. Errors of some lags
dominate others, because g sees the kernel only at z - g, or at z/g:

    lin   E_g <= E_T for g <= T.   Adaptive recall costs what recalling the fixed lag T costs.
    log   E_g <= E_g' when g divides g'.   So {1, 2, 3, 4} is as hard as {3, 4}, and harder than 4 alone.

In units of a_h(T) the lag g has the columns e^{-beta_h (phi(g) - phi(T))} w_h(z). Stacked for all lags that no other
dominates, they make one l1 program, the lags weighted by lambda_g: max_g E_g is the largest of its values over
lambda_g >= 0, sum_g lambda_g = 1. `mix` finds that lambda; exponents are chosen much as in `fit`.

Proved: `errors`, `masses`, `floor`. Tuned: everything that chooses exponents and lambda.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import arb, ctx

from memloci.approx.kernels.exchange import Progress, Rows, beta_of, exchange, shift_exponent, theta_of
from memloci.approx.kernels.kernel_sums import (
    MAX_HEADS,
    _descend,
    _Problem,
    round_to,
)
from memloci.approx.kernels.lower_bounds import SUP_SLACK, _prove_cell, check_budget, lower_bound
from memloci.approx.kernels.residuals import residual_l1
from memloci.approx.kernels.rpe import AbstractRPE, Number, RpeName, as_rpe, to_arb
from memloci.approx.kernels.targets import AbstractTarget, SingleLag
from memloci.approx.kernels.taylor import taylor_cell
from memloci.core.balls import above, below
from memloci.core.errors import BadInput
from memloci.core.precision import PRECISIONS, Precision, precision_of

MAX_BITS = 1000
BOUND_BITS = 192  # tuned: of lower bounds; more is needed below 1e-6
TOGETHER = 3  # tuned: lags in one lower bound
# The gate e^{-beta phi(g)} must not overflow; numbers of extended precision have exponents enough.


@dataclass(frozen=True)
class AdaptiveSum:
    """Coefficients for all of `lags` at once, and what is proved about exactly these numbers."""

    rpe: RpeName
    lags: tuple[int, ...]
    exponents: tuple[float, ...]
    alpha: tuple[float | Fraction, ...]  # fractions when the precision is a number of bits
    precision: str | int
    rounding: float
    errors: dict[int, float]  # E_g, rounded up
    masses: dict[int, float]  # m_g, rounded up

    @property
    def heads(self) -> int:
        return len(self.exponents)

    @property
    def error(self) -> float:
        """The largest proved error."""
        return max(self.errors.values())

    @property
    def mass(self) -> float:
        return max(self.masses.values())

    @property
    def paid(self) -> float:
        """error + rounding * u * mass: what is minimised."""
        return self.error + self.rounding * unit_roundoff(self.precision) * self.mass

    @property
    def bits(self) -> int:
        """Bits of alpha needed to keep its rounding (about 2^-bits mass) below the error, as in kernel_sums.py."""
        return max(1, math.ceil(math.log2(max(self.mass, 1.0)) - math.log2(max(self.error, 1e-300))))


def adaptive_sum(
    rpe: RpeName | AbstractRPE,
    lags: Iterable[int],
    heads: int,
    *,
    precision: str | int = "float64",
    rounding: float = 64.0,
    moves: int | None = None,
    progress: Progress | None = None,
) -> AdaptiveSum:
    """The best coefficients found with at most `heads` heads for the values `lags` of a lag table.

    Minimises E + rounding * u * mass for the precision: a format, or a number of bits for extended
    precision (u = 2^-bits). `moves` bounds the evaluations that refine the exponents (0: none;
    by default 10 in a format, and none in extended precision, where one more bit buys as much).
    """
    rpe, lags = as_rpe(rpe), _check_lags(lags)
    if not 1 <= heads <= MAX_HEADS:
        raise BadInput(f"heads {heads}: must lie between 1 and {MAX_HEADS}")
    u = unit_roundoff(precision)
    check_budget(None, rounding * u)
    problem = _Adaptive(rpe, lags, rounding * u, _fastest(rpe, lags[-1], precision))
    thetas = _spread(problem, heads, progress)
    if moves is None:
        moves = 10 if isinstance(precision, str) else 0
    if moves and lags != (1,):
        problem.mix([beta_of(rpe, theta) for theta in thetas], 1.3)  # for its lambda
        thetas = _descend(problem, thetas, moves, progress)
    if progress:
        progress("proving the error", 0.9)
    betas = {_round(min(beta_of(rpe, theta), problem.fastest), precision) for theta in thetas}
    chosen = sorted(float(beta) for beta in betas if beta > rpe.beta_min)
    return _settle(problem, chosen, lags, precision, rounding)


def unit_roundoff(precision: str | int) -> float:
    """u of a format, or of a number of significand bits."""
    if isinstance(precision, int) and 2 <= precision <= MAX_BITS:
        return 2.0**-precision
    if isinstance(precision, str) and precision in PRECISIONS:
        return PRECISIONS[precision].u
    known = ", ".join(PRECISIONS)
    raise BadInput(f"precision {precision!r}: choose {known}, or a number of bits from 2 to {MAX_BITS}")


def _max_gate(precision: Precision) -> float:
    """The largest exponent of a gate whose exponential the precision holds: 85 of float32, 700 of float64."""
    return min(0.96 * math.log(precision.most), 700.0)


def undominated(rpe: RpeName | AbstractRPE, lags: Iterable[int]) -> tuple[int, ...]:
    """The lags whose errors decide: the largest (lin), those that divide no other (log)."""
    lags = _check_lags(lags)
    if as_rpe(rpe).name == "lin":
        return lags[-1:]
    return tuple(g for g in lags if not any(other > g and other % g == 0 for other in lags))


def _check_lags(lags: Iterable[int]) -> tuple[int, ...]:
    lags = tuple(sorted({SingleLag(lag).lag for lag in lags}))  # SingleLag refuses what is no lag
    if not lags:
        raise BadInput("no lags: give the values that the lag table takes")
    return lags


def _gate(rpe: AbstractRPE, beta: arb, g: int | arb) -> arb:
    """e^{-beta phi(g)}."""
    return (beta * g).exp() if rpe.name == "lin" else (beta * arb(g).log()).exp()


def _fastest(rpe: AbstractRPE, T: int, precision: str | int) -> float:
    """The exponent of the head that sees z = 1 alone, as far as the gate of lag T allows."""
    shift = shift_exponent(rpe, 64 if isinstance(precision, str) else max(64, precision))
    step = T if rpe.name == "lin" else math.log(max(T, 2))
    return shift if not isinstance(precision, str) else min(shift, _max_gate(precision_of(precision)) / step)


# -- the program over all lags ------------------------------------------------------------------------


@dataclass(frozen=True)
class _LagRows(Rows):
    """The rows of every lag g, times lambda_g; to infinity, where the kernel has one sign, one row for all."""

    lags: tuple[int, ...]
    weights: tuple[float, ...]

    def column(self, rpe: AbstractRPE, beta: float) -> list[arb]:
        return self._stack(rpe, arb(beta), _base_column(rpe, self.edges, beta, ctx.prec))

    def column_at(self, rpe: AbstractRPE, b: arb) -> list[arb]:
        return self._stack(rpe, b, Rows(self.edges).column_at(rpe, b))

    def _stack(self, rpe: AbstractRPE, b: arb, column: list[arb]) -> list[arb]:
        *base, tail = column
        full = _gate(rpe, b, self.lags[-1])
        shares = [w * _gate(rpe, b, g) / full for g, w in zip(self.lags, self.weights, strict=True)]
        return [share * value for share in shares for value in base] + [tail * sum(shares, arb(0))]

    def target(self, target: AbstractTarget) -> list[arb]:
        """1{z = g} for each lag; `target` stands for them all."""
        ones = [
            (w, Rows(self.edges).target(SingleLag(g))[:-1])
            for g, w in zip(self.lags, self.weights, strict=True)
        ]
        return [w * value for w, one in ones for value in one] + [arb(0)]

    def errors(self, rpe: AbstractRPE, betas: Sequence[float], a: Sequence[arb]) -> list[float]:
        """E_g up to the last edge."""
        r = [-value for value in self.target(SingleLag(self.lags[-1]))]
        for a_h, beta in zip(a, betas, strict=True):
            r = [x + a_h * w for x, w in zip(r, self.column(rpe, beta), strict=True)]
        n = len(self.edges) - 1
        sums = [sum((abs(x) for x in r[i * n : (i + 1) * n]), arb(0)) for i in range(len(self.lags))]
        return [float(total) / w for total, w in zip(sums, self.weights, strict=True)]


@lru_cache(maxsize=256)
def _base_column(rpe: AbstractRPE, edges: tuple[int, ...], beta: float, bits: int) -> list[arb]:
    return Rows(edges).column(rpe, beta)  # Hurwitz zeta at every edge: as dear as the program itself


class _Adaptive(_Problem):
    """The problem of kernel_sums.py with the rows of all lags in place of one."""

    def __init__(self, rpe: AbstractRPE, lags: tuple[int, ...], price: float, fastest: float):
        bits = 192 + 2 * max(53, math.ceil(-math.log2(price)))  # tuned: mass and error, and room to spare
        super().__init__(rpe, (SingleLag(lags[-1]),), None, price, 0.0, bits)
        self.lags = undominated(rpe, lags)
        self.weights = (1 / len(self.lags),) * len(self.lags)
        self.fastest = fastest

    def rows(self, ratio: float, stretch: int = 1) -> _LagRows:
        return _LagRows(super().rows(ratio, stretch).edges, self.lags, self.weights)

    def mix(
        self, betas: Sequence[float], ratio: float, stretch: int = 1, rounds: int = 8
    ) -> tuple[list[arb], float]:
        """Coefficients whose largest E_g + price * mass is least, and that value; leaves lambda behind.

        A game: a against lambda. Its value is convex in a, so mixtures of the answers a to earlier lambda
        bound it from above, and the answer to the present lambda from below (Dantzig and Wolfe).
        """
        answers: list[list[arb]] = []
        costs: list[list[float]] = []
        mixture, value = np.ones(1), math.inf
        for _ in range(rounds):
            rows = self.rows(ratio, stretch)
            (fitted,) = self.solve(betas, rows)
            with ctx.workprec(self.bits):
                mass = float(sum((abs(a_h) for a_h in fitted.a), arb(0)))
                errors = rows.errors(self.rpe, betas, fitted.a)
            answers.append(fitted.a)
            costs.append([error + self.price * mass for error in errors])
            mixture, weights, value = _play(np.array(costs))
            if self.value(fitted) >= value * (1 - 1e-2):
                break
            self.weights = tuple(float(w) for w in weights)
        with ctx.workprec(self.bits):
            parts = [[float(m) * a_h for a_h in a] for m, a in zip(mixture, answers, strict=True)]
            return [sum(column, arb(0)) for column in zip(*parts, strict=True)], value


def _play(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The mixture of rows that makes the largest column least, the mixture of columns against it, the value."""
    from scipy.optimize import linprog

    count, lags = costs.shape
    unit = costs.max(axis=1).min()
    A = np.hstack([costs.T / unit, -np.ones((lags, 1))])
    total = np.append(np.ones(count), 0.0)[None, :]
    solved = linprog(np.append(np.zeros(count), 1.0), A_ub=A, b_ub=np.zeros(lags), A_eq=total, b_eq=[1.0])
    mixture = np.clip(solved.x[:-1], 0, None)
    mixture /= mixture.sum()
    weights = np.clip(-solved.ineqlin.marginals, 1e-3, None)  # a lag without weight would leave the program
    return mixture, weights / weights.sum(), float((mixture @ costs).max())


# -- exponents ----------------------------------------------------------------------------------------


def _spread(problem: _Adaptive, heads: int, progress: Progress | None) -> list[float]:
    """theta of c^{-(beta - beta_min)} = tanh(j h)^2, j = 1, 2, ..., and the fastest head, for the best h and c.

    As in kernel_sums.py, where c is fixed. Fast heads tell the smallest arguments of the kernel apart, which
    for log are 1/T, then 1/(T-1) if that is a lag, 2/T if not: c is smaller the closer they are.
    """
    rpe, rows = problem.rpe, problem.rows(1.3)
    # Beyond, heads are slower than the last lag (lin), or tails so heavy that their signs take minutes to prove.
    reach = 0.5 * math.log(problem.last) if rpe.name == "lin" else 2.0

    def thetas(h: float, log_c: float) -> list[float]:
        count = min(heads - 1, math.ceil(reach / h))
        betas = [rpe.beta_min - 2 * math.log(math.tanh(j * h)) / log_c for j in range(1, count + 1)]
        return sorted(theta_of(rpe, beta) for beta in [*betas, problem.fastest])

    tried: dict[tuple[float, float], float] = {}

    def value(choice: tuple[float, float]) -> float:
        if choice not in tried:
            if progress:
                progress("choosing exponents", min(0.99, len(tried) / 22))
            (fitted,) = problem.solve([beta_of(rpe, t) for t in thetas(*choice)], rows, rtol=1e-3)
            tried[choice] = problem.value(fitted)
        return tried[choice]

    T = problem.lags[-1]
    if T == 1 or heads == 1:
        return [theta_of(rpe, problem.fastest)]
    log_c = 0.85 * _log_c(problem.lags) if rpe.name == "log" else 1.0  # tuned
    hs = np.geomspace(0.8 / heads, 0.8, 8)
    h, log_c = min(((float(h), log_c) for h in hs), key=value)
    ratio = float(hs[1] / hs[0])
    for _ in range(3):
        ratio **= 0.5
        h, log_c = min(((h * r, log_c) for r in (1 / ratio, 1.0, ratio)), key=value)
        if rpe.name == "log":
            h, log_c = min(((h, log_c * r) for r in (1 / ratio, 1.0, ratio)), key=value)
    return thetas(h, log_c)


def _log_c(lags: tuple[int, ...]) -> float:
    """log of the ratio between the smallest arguments z/g of a log kernel."""
    T = lags[-1]
    return math.log(T / (T - 1)) if T - 1 in lags else math.log(2)


# -- coefficients -------------------------------------------------------------------------------------


def _settle(
    problem: _Adaptive, betas: list[float], lags: tuple[int, ...], precision: str | int, rounding: float
) -> AdaptiveSum:
    """Solve, round, prove; once more on finer rows if rows are what is wrong."""
    rpe, T = problem.rpe, lags[-1]
    # A sum that does worse than no head at all is not kept.
    best = adaptive_sum_of(rpe, lags, betas, [0.0] * len(betas), precision=precision, rounding=rounding)
    for ratio, stretch in ((1.06, 2), (1.03, 4)):
        a, hope = problem.mix(betas, ratio, stretch)
        with ctx.workprec(problem.bits):
            scales = [rpe.scale_arb(arb(beta)) / _gate(rpe, arb(beta), T) for beta in betas]
            alpha = [_round(a_h * scale, precision) for a_h, scale in zip(a, scales, strict=True)]
        candidate = adaptive_sum_of(rpe, lags, betas, alpha, precision=precision, rounding=rounding)
        best = min(best, candidate, key=lambda one: one.paid)
        if candidate.paid <= 1.02 * hope + 4 * unit_roundoff(precision) * candidate.mass:
            break
    return best


def _round(number: float | arb, precision: str | int) -> float | Fraction:
    if isinstance(precision, str):
        return round_to(number, precision)
    if not isinstance(number, arb):  # exponents stay floats: any exponent is as good as its neighbours
        return float(number)
    man, exp = number.mid().man_exp()
    shift = max(0, int(man).bit_length() - precision)
    return round(Fraction(int(man), 1 << shift)) * Fraction(2) ** (int(exp) + shift)


def adaptive_sum_of(
    rpe: RpeName | AbstractRPE,
    lags: Iterable[int],
    exponents: Sequence[float],
    alpha: Sequence[float | Fraction],
    *,
    precision: str | int = "float64",
    rounding: float = 64.0,
) -> AdaptiveSum:
    """The record of given weights, with their errors proved."""
    rpe, lags = as_rpe(rpe), _check_lags(lags)
    errors, masses = {}, {}
    for g in lags:
        a = coefficients(rpe, exponents, alpha, g)
        errors[g] = above(residual_l1(rpe, exponents, a, SingleLag(g)))
        masses[g] = above(sum((abs(a_h) for a_h in a), arb(0)))
    return AdaptiveSum(rpe.name, lags, tuple(exponents), tuple(alpha), precision, rounding, errors, masses)


def coefficients(
    rpe: RpeName | AbstractRPE,
    exponents: Sequence[float],
    alpha: Sequence[Number],
    g: int,
    *,
    bits: int = 2048,
) -> list[arb]:
    """a_h(g), the coefficients of the normalised kernels w_h when the query asks for lag g."""
    rpe = as_rpe(rpe)
    with ctx.workprec(bits):
        betas = rpe.check(exponents)
        return [
            to_arb(x) * _gate(rpe, beta, g) / rpe.scale_arb(beta)
            for x, beta in zip(alpha, betas, strict=True)
        ]


# -- what no number of heads can do -------------------------------------------------------------------


def floor(
    rpe: RpeName | AbstractRPE, lags: Iterable[int], price: float, *, progress: Progress | None = None
) -> float:
    """Proved: error + price * mass of any adaptive sum is at least this, whatever its heads.

    For each g the heads are a kernel sum for the fixed lag g, of error E_g and mass m_g, so every lower bound
    for that lag (lower_bounds.py) holds. For lin nothing is lost, because E_T and m_T decide. For log, lags that
    share one alpha are harder together; any few of them bound the rest, and we take the last. Take lambda_g >= 0 of sum 1 and |y_{g,z}| <= 1:

        max_g E_g >= sum_g lambda_g <y_g, 1_g - kappa_g> = sum_g lambda_g y_{g,g} - sum_h a_h(T) f(beta_h),
        f(beta) = sum_g lambda_g (g/T)^beta sum_z y_{g,z} z^{-beta} / zeta(beta),

    hence max_g E_g + price m_T >= sum_g lambda_g y_{g,g} whenever |f| <= price for all beta > 1.
    """
    rpe, lags = as_rpe(rpe), _check_lags(lags)
    check_budget(None, price)
    if rpe.name == "lin":
        return lower_bound(rpe, SingleLag(lags[-1]), price=price, progress=progress).error
    return _log_floor(rpe, undominated(rpe, lags)[-TOGETHER:], price, progress)


def _log_floor(rpe: AbstractRPE, lags: tuple[int, ...], price: float, progress: Progress | None) -> float:
    T, weights = lags[-1], (1 / len(lags),) * len(lags)  # even weights are near the best where we looked
    rows = _LagRows(Rows.up_to(500, alone=max(32, 2 * T), ratio=1.2).edges, lags, weights)
    fastest = min(60.0, 12 / _log_c(lags))  # beyond, only the shift matters
    proposal = exchange(
        rpe,
        SingleLag(T),
        rows,
        mass=None,
        price=price,
        bits=BOUND_BITS,
        slowest=-7.0,
        fastest=fastest,
        step=0.25,
        ends=True,
        progress=progress,
    )
    with ctx.workprec(BOUND_BITS):
        y = [value.mid().max(arb(-1)).min(arb(1)) for value in proposal.fit.y]
        n = len(rows.edges) - 1
        terms, pairing = [], arb(0)
        for i, (g, weight) in enumerate(zip(lags, weights, strict=True)):
            for lo, hi, value in zip(rows.edges, rows.edges[1:], y[i * n : (i + 1) * n], strict=False):
                terms += [((arb(z) * T / g).log(), weight * value) for z in range(lo + 1, hi + 1)]
                pairing += weight * value if lo < g <= hi else 0
        total = sum(map(arb, weights), arb(0))  # 1, but for rounding
        sup = _prove_sup(terms)
        return max(0.0, below(pairing / (sup / arb(price)).max(total)))


def _prove_sup(terms: list[tuple[arb, arb]]) -> arb:
    """At least sup over beta > 1 of |sum_j c_j e^{-nu_j beta}| / zeta(beta); as in lower_bounds.py."""
    constant = sum((abs(c) for nu, c in terms if nu.is_zero()), arb(0))
    decaying = [(nu, c) for nu, c in terms if not nu.is_zero()]
    shrink = lambda beta: 1 / beta.zeta() if beta > 1 else arb(0)  # largest at the right end of a cell
    level, best, lo = constant.lower().max(arb(2) ** -ctx.prec), constant.upper(), arb(1)
    while True:
        rest = sum((abs(c) * (-nu * lo).exp() for nu, c in decaying), arb(0))
        if lo > 1 and (rest < level * SUP_SLACK / 4 or lo > ctx.prec):
            return best.max((constant + rest).upper())
        hi = (lo + lo / 4).mid()
        top, level = _prove_cell(taylor_cell(terms, (), lo, hi, K=8 + ctx.prec // 3), lo, hi, shrink, level)
        best, lo = best.max(top), hi
