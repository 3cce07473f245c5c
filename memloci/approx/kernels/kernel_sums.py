"""Sums of head kernels that imitate lags and kernels, with errors proved over all lags.

    kappa_i(z) = sum_h a_ih w_h(z) ~ rho_i(z),   E_i = ||kappa_i - rho_i||_1,   mass = max_i sum_h |a_ih|

All memories i share the H exponents; each has its own row of coefficients. Used by fixed and essential
memories (docs/theory.md, sections 2 and 5).

How `fit` works. Solved over all exponents (exchange.py), the heads that recall a lag turn out to sit at

    q_j = tanh(j h)^2,   j = 0, 1, 2, ...       (lin; q = 0 is a shift by one lag)

to three digits where we compared (lag 4 at mass 1e6), with a spacing h that depends on lag and mass. An
observation, not a theorem: nothing proved rests on it. So `fit` searches h alone, then moves all exponents
downhill (variable projection: for given exponents the coefficients solve a linear program, and its dual y
gives the gradient

    dE/dbeta_h = -a_h sum_z y_z dw_h(z)/dbeta,   y = -sign r where r is not 0).

Smooth kernels start from even ratios of 1/beta instead. Targets that are kernel sums already are exact.
Exact coefficients of a mass that no float format could use (`_Far`) show the wall, and no model is built
of them: there h is searched by least squares, and exponents stay where it puts them.
Exponents are then rounded to the weights' precision, the coefficients solved anew, rounded too, and
the error of exactly these numbers is proved by `residual_l1`. So rounding of weights is inside E_i;
rounding while the model runs is not, and is about u * mass: `fit` minimises E + rounding * u * mass.

Proved: `errors`, `mass`. Tuned: everything that chooses exponents.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, arb_mat, ctx

from memloci.approx.kernels.exchange import Progress, Rows, beta_of, shift_exponent, theta_of
from memloci.approx.kernels.l1_program import L1Fit, ridge_l2, solve_l1
from memloci.approx.kernels.lower_bounds import check_budget
from memloci.approx.kernels.residuals import residual_l1
from memloci.approx.kernels.rpe import AbstractRPE, RpeName, as_rpe, to_arb
from memloci.approx.kernels.targets import AbstractTarget, SingleLag
from memloci.core.errors import BadInput
from memloci.core.precision import precision_of

EXACT = "exact"  # in place of a precision: coefficients of any number of digits

MAX_HEADS = 1024
FAR_MASS = (1e31, 1e18)  # tuned, for up to 64 heads and more: linear programs would take minutes
FEW_HEADS = 8  # tuned
FAR = 1 << 20  # tuned: log heads are fitted on lags up to here, and beyond only in sum


@dataclass(frozen=True)
class KernelSum:
    """A fit, and what is proved about it. Coefficients are exact numbers: fractions at precision "exact"."""

    rpe: RpeName
    targets: tuple[AbstractTarget, ...]
    exponents: tuple[float, ...]
    coefficients: tuple[tuple[float | Fraction, ...], ...]  # one row per target
    precision: str
    errors: tuple[tuple[float, float], ...]  # proved enclosure of ||r_i||_1, rounded outwards
    mass: float  # max_i sum_h |a_ih|, rounded up

    @property
    def heads(self) -> int:
        return len(self.exponents)

    @property
    def error(self) -> float:
        """The largest proved error."""
        return max(upper for _, upper in self.errors)

    @property
    def relative_errors(self) -> tuple[float, ...]:
        """E_i / ||rho_i||_1, rounded up."""
        norms = [float(target.norm().lower()) * (1 - 2.0**-50) for target in self.targets]
        return tuple(
            math.nextafter(upper / n, math.inf) for (_, upper), n in zip(self.errors, norms, strict=True)
        )

    @property
    def bits(self) -> int:
        """Bits of a coefficient needed to keep rounding (about 2^-bits mass) below the error."""
        return max(1, math.ceil(math.log2(max(self.mass, 1.0)) - math.log2(max(self.error, 1e-300))))


def fit(
    rpe: RpeName | AbstractRPE,
    targets: AbstractTarget | Sequence[AbstractTarget],
    heads: int,
    *,
    mass: float | None = None,
    precision: str = "float64",
    rounding: float = 1.0,
    exponents: Sequence[float] | None = None,
    moves: int = 60,
    bits: int | None = None,
    progress: Progress | None = None,
) -> KernelSum:
    """The best kernel sums found with at most `heads` heads shared by all targets.

    Minimises E + rounding * u * mass for the weights' precision, within the budget `mass` if there is
    one (with `precision="exact"`, u = 0 and a budget is needed). `exponents` fixes them; `moves` bounds
    the evaluations of their refinement (0: none). Exact recall of a lag t takes a budget of 2^(4 t) or so
    (`chebyshev_mass` says); beyond `FAR_MASS` the fit is one of least squares, not the best in l1.
    """
    rpe = as_rpe(rpe)
    targets = (targets,) if isinstance(targets, AbstractTarget) else tuple(targets)
    price = _check(targets, heads, mass, precision, rounding)
    unit = unit_roundoff(precision)
    problem = _Problem(rpe, targets, mass, price, unit, bits or (256 if precision != "exact" else 384))
    if precision == "exact" and _Far.serves(problem, heads):
        problem = _Far(rpe, targets, mass, price, unit, bits or 0)
    closed_form = _exact_sum(problem) if exponents is None else None
    if closed_form is not None and len(closed_form[0]) <= heads:
        rows = [[_stored_exactly(a, precision) for a in row] for row in closed_form[1]]
        return kernel_sum(
            rpe, [round_to(beta, precision) for beta in closed_form[0]], rows, targets, precision
        )
    if exponents is not None:
        rpe.check(exponents)
        chosen = list(exponents)
    else:
        chosen = _choose(problem, heads, moves, progress)
    rounded = {round_to(beta, precision) for beta in chosen}
    chosen = sorted(beta for beta in rounded if beta > rpe.beta_min)  # coarse formats may round to the limit
    if progress:
        progress("proving the error", 0.9)
    return _settle(problem, chosen, precision)


def _check(
    targets: Sequence[AbstractTarget], heads: int, mass: float | None, precision: str, rounding: float
) -> float:
    if not targets:
        raise BadInput("no targets: give at least one lag or kernel")
    if not 1 <= heads <= MAX_HEADS:
        raise BadInput(f"heads {heads}: must lie between 1 and {MAX_HEADS}")
    price = rounding * unit_roundoff(precision)
    if mass is None and precision == "exact":
        raise BadInput("exact coefficients cost nothing to enlarge; give a mass budget")
    check_budget(mass, price)
    return price


def unit_roundoff(precision: str) -> float:
    return 0.0 if precision == EXACT else precision_of(precision).u


def round_to(number: float | arb, precision: str) -> float:
    """The nearest number of that format (its exponent range is not modelled)."""
    if precision == "exact" or isinstance(number, float) and precision == "float64":
        return float(number)
    man, exp = arb(number).mid().man_exp()
    bits = precision_of(precision).bits
    excess = int(man).bit_length() - bits
    if excess <= 0:
        return math.ldexp(int(man), int(exp))
    return math.ldexp(_round_half_even(int(man), excess), int(exp) + excess)


def _round_half_even(man: int, shift: int) -> int:
    return round(Fraction(man, 1 << shift))


# -- the problem on rows of lags ----------------------------------------------------------------------


class _Problem:
    """Targets, budget and the rows of lags they are fitted on."""

    def __init__(
        self,
        rpe: AbstractRPE,
        targets: tuple[AbstractTarget, ...],
        mass: float | None,
        price: float,
        unit: float,
        bits: int,
    ):
        self.rpe, self.targets, self.price, self.bits = rpe, targets, price, bits
        # Rounding the coefficients must not push their mass over the budget.
        self.mass = mass * (1 - 1e-6) / (1 + unit) if mass is not None else None
        self.lags_only = all(isinstance(target, SingleLag) for target in targets)
        self.norm = max(float(target.norm()) for target in targets)
        first = max(target.start for target in targets)
        self.alone = max(48 if self.lags_only else 24, first + 16)
        self.last = self._last()
        self.slowest = -math.log(self.last) + (1.5 if self.lags_only else 1.0) if rpe.name == "lin" else -4.0

    def _last(self) -> int:
        if self.lags_only:  # log heads have heavy tails, which cost l1 error however far away
            return max(400, 8 * self.alone) if self.rpe.name == "lin" else FAR
        last, small = 4 * self.alone, 1e-6 * self.norm  # tuned
        while last < 1 << 34 and any(float(target.tail_bound(last).mid()) > small for target in self.targets):
            last *= 2
        return last if self.rpe.name == "lin" else max(last, FAR)

    def rows(self, ratio: float, stretch: int = 1) -> Rows:
        if self.rpe.name == "log":
            ratio, stretch = 1 + 2 * (ratio - 1), stretch**2
        return Rows.up_to(self.last * stretch, alone=self.alone, ratio=ratio)

    def solve(self, exponents: Sequence[float], rows: Rows, rtol: float = 1e-5) -> list[L1Fit]:
        """Coefficients for given exponents, one program per target; more bits until the gap closes."""
        with ctx.workprec(self.bits):
            columns = [rows.column(self.rpe, beta) for beta in exponents]
            rhos = [rows.target(target) for target in self.targets]
        fits = []
        for rho in rhos:
            bits = self.bits
            while True:
                fitted = solve_l1(columns, rho, mass=self.mass, price=self.price, bits=bits, rtol=rtol)
                value = abs(fitted.error) + self.price * _mass(fitted.a)
                if abs(fitted.gap) <= 10 * rtol * value or bits >= 2 * self.bits:
                    break
                bits *= 2
            fits.append(fitted)
        return fits

    def value(self, fitted: L1Fit) -> float:
        """What is minimised for one target: error, and rounding at its price."""
        return max(1e-300, fitted.error + self.price * _mass(fitted.a))

    def value_and_gradient(self, theta: np.ndarray, rows: Rows) -> tuple[float, np.ndarray]:
        """The sum of the logs of the values, so that a memory out of reach does not hide the others."""
        betas = [beta_of(self.rpe, float(t)) for t in theta]
        fits = self.solve(betas, rows, rtol=1e-4)
        total, slope = 0.0, np.zeros(len(theta))
        with ctx.workprec(self.bits):
            h = arb(2) ** (-self.bits // 3)
            changes = []
            for t, beta in zip(theta, betas, strict=True):
                up, down = (rows.column_at(self.rpe, arb(beta) + d) for d in (h, -h))
                stretch = 1 / (1 + math.exp(-float(t)))  # dbeta/dtheta
                changes.append([(u - d) / (2 * h) * stretch for u, d in zip(up, down, strict=True)])
            for fitted in fits:
                value = self.value(fitted)
                total += math.log(value)
                for k, (a, change) in enumerate(zip(fitted.a, changes, strict=True)):
                    pull = sum((y * c for y, c in zip(fitted.y, change, strict=True)), arb(0))
                    slope[k] -= float(a * pull) / value
        return total, slope


class _Far(_Problem):
    """Lags far behind the wall, in exact arithmetic: least squares, for which everything has a closed form.

        sum_z w_i(z) w_j(z) = (1 - q_i)(1 - q_j) / (1 - q_i q_j)

    The condition number is about mass^2 / error^2, and the residual cancels another factor of mass.
    """

    @staticmethod
    def serves(problem: _Problem, heads: int) -> bool:
        if problem.rpe.name != "lin" or not problem.lags_only:
            return False
        return problem.mass is not None and problem.mass > FAR_MASS[heads > 64]

    def __init__(self, *args):
        super().__init__(*args)
        assert self.mass is not None
        self.bits = max(self.bits, 256 + 3 * max(0, math.ceil(math.log2(self.mass))))

    def solve(self, exponents: Sequence[float], rows: Rows, rtol: float = 1e-5) -> list[L1Fit]:
        """The fits of least squares, and their l1 error on the lags that the rows cover."""
        assert self.mass is not None
        with ctx.workprec(self.bits):
            beta = [arb(b) for b in exponents]
            q = [(-b).exp() for b in beta]
            gram = arb_mat([[(1 - x) * (1 - y) / (1 - x * y) for y in q] for x in q]).mid()
            fits = []
            for target in self.targets:
                assert isinstance(target, SingleLag)
                against = [self.rpe.kernel_arb(b, target.lag) for b in beta]
                a = ridge_l2(gram, against, mass=self.mass, halvings=5 if rtol >= 1e-3 else 12)
                r = self.rpe.mixture_arb(a, beta, rows.edges[-1])
                r[target.lag - 1] -= 1
                error = float(sum((abs(value) for value in r), arb(0)).mid())
                fits.append(L1Fit(a, [], arb(0), error, math.inf, 0))
        return fits


# -- exponents ----------------------------------------------------------------------------------------


def _choose(problem: _Problem, heads: int, moves: int, progress: Progress | None) -> list[float]:
    spread = _tanh_spread if problem.lags_only else _even_spread
    thetas = spread(problem, heads, progress)
    if moves and not isinstance(problem, _Far):
        thetas = _descend(problem, thetas, moves, progress)
    return [beta_of(problem.rpe, t) for t in thetas]


def _exact_sum(problem: _Problem) -> tuple[list[float], list[list[arb]]] | None:
    """Exponents and coefficients of targets that are sums of head kernels already (lag 1 nearly is)."""
    rows: list[dict[float, arb]] = []
    for target in problem.targets:
        if isinstance(target, SingleLag) and target.lag == 1:
            rows.append({shift_exponent(problem.rpe, 64): arb(1)})
            continue
        spectrum = target.spectrum(problem.rpe)
        if spectrum is None or spectrum.powers or not spectrum.exponentials or target.start:
            return None
        if not all(nu > problem.rpe.beta_min for nu, _ in spectrum.exponentials):
            return None
        row: dict[float, arb] = {}
        for nu, c in spectrum.exponentials:  # c e^{-nu x} = (c / scale) w(z)
            row[float(nu)] = row.get(float(nu), arb(0)) + c / problem.rpe.scale_arb(nu)
        rows.append(row)
    exponents = sorted({beta for row in rows for beta in row})
    a = [[row.get(beta, arb(0)) for beta in exponents] for row in rows]
    heaviest = max(sum((abs(a_h) for a_h in row), arb(0)) for row in a)
    if problem.mass is not None and not heaviest < problem.mass:
        return None
    return exponents, a


def _tanh_spread(problem: _Problem, heads: int, progress: Progress | None) -> list[float]:
    """theta of q_j = tanh(j h)^2 with the best h; log heads use 2^-(beta - 1) in place of q."""
    rows = problem.rows(1.1)
    unit = 1.0 if problem.rpe.name == "lin" else math.log(2)
    reach = 0.5 * math.log(4 * problem.last / 4)  # beyond, heads are slower than the last lag
    shift = shift_exponent(problem.rpe, 64)

    def thetas(h: float) -> list[float]:
        count = max(2, min(heads, math.ceil(reach / h)))
        betas = [problem.rpe.beta_min - 2 * math.log(math.tanh(j * h)) / unit for j in range(1, count)]
        return [theta_of(problem.rpe, beta) for beta in [shift, *betas]][:heads]

    tried: dict[float, float] = {}

    def value(h: float) -> float:
        if h not in tried:
            if progress:
                progress("choosing exponents", min(0.99, len(tried) / 18))
            fits = problem.solve([beta_of(problem.rpe, t) for t in thetas(h)], rows, rtol=1e-3)
            # Heads that change nothing are not worth having: each must earn 0.02 %.
            tried[h] = 2e-4 * len(thetas(h)) + sum(math.log(problem.value(f)) for f in fits)
        return tried[h]

    few = heads > 64 and not isinstance(problem, _Far)  # each program takes seconds
    coarse = list(np.geomspace(min(0.5, 0.8 / heads), 0.5 if few else 0.9, 6 if few else 10))
    best = min(coarse, key=value)
    ratio = coarse[1] / coarse[0]
    for _ in range(2 if few else 4):
        ratio **= 0.5
        best = min((best / ratio, best, best * ratio), key=value)
    return sorted(thetas(best))


def _mass(a: Sequence[arb]) -> float:
    return float(sum((abs(a_h) for a_h in a), arb(0)))


def _even_spread(problem: _Problem, heads: int, progress: Progress | None) -> list[float]:
    """The best of a few even spreads of theta: power laws are geometric sums of exponentials."""
    rows = problem.rows(1.25)
    best: tuple[float, list[float]] | None = None
    ends = [0.0]
    if problem.rpe.name == "lin":  # few heads cannot afford slow ones
        ends += [0.25, 0.5] + ([0.65, 0.8, 0.9] if heads < FEW_HEADS else [])
    for cut in ends:
        for fast in (1.0, 2.5, 4.0):
            slow = problem.slowest * (1 - cut) if problem.slowest < 0 else problem.slowest
            if progress:
                progress("choosing exponents", 0.5)
            thetas = list(np.linspace(slow, fast, heads)) if heads > 1 else [fast - 1]
            fits = problem.solve([beta_of(problem.rpe, t) for t in thetas], rows, rtol=1e-3)
            value = sum(math.log(problem.value(fitted)) for fitted in fits)
            if best is None or value < best[0]:
                best = (value, thetas)
    assert best is not None
    return best[1]


def _descend(problem: _Problem, thetas: list[float], moves: int, progress: Progress | None) -> list[float]:
    """Move exponents downhill; the objective has kinks, so the best point met is what counts."""
    from scipy.optimize import minimize

    rows = problem.rows(1.1 if problem.lags_only else 1.15)
    best = {"value": math.inf, "thetas": np.array(thetas)}
    done = 0

    def objective(theta: np.ndarray):
        nonlocal done
        done += 1
        if progress:
            progress("moving exponents", min(0.99, done / moves))
        value, slope = problem.value_and_gradient(theta, rows)
        if value < best["value"]:
            best.update(value=value, thetas=theta.copy())
        return value, slope

    low = -math.log(problem.last) - 1 if problem.rpe.name == "lin" else -6.0
    bounds = [(low, max(60.0, max(thetas) + 1))] * len(thetas)
    minimize(
        objective,
        np.array(thetas),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxfun": moves, "maxcor": 20, "ftol": 1e-6},
    )
    return sorted(float(t) for t in best["thetas"])


# -- coefficients -------------------------------------------------------------------------------------


def _settle(problem: _Problem, exponents: list[float], precision: str) -> KernelSum:
    """Solve for the coefficients, round them, prove the error; finer rows while rows are what is wrong."""
    best: KernelSum | None = None
    # A sign change inside a block hides error from the program: halve the blocks until it does not.
    for ratio, stretch in ((1.06, 2), (1.03, 4)):
        fits = problem.solve(exponents, problem.rows(ratio, stretch))
        candidate = kernel_sum(
            problem.rpe,
            exponents,
            [[_stored_exactly(a, precision) for a in fitted.a] for fitted in fits],
            problem.targets,
            precision,
        )
        if best is None or _score(problem, candidate) < _score(problem, best):
            best = candidate
        hoped = [fitted.error for fitted in fits]
        if all(
            upper <= 1.02 * hope + 1e-300 for (_, upper), hope in zip(candidate.errors, hoped, strict=True)
        ):
            break
        if all(
            upper
            <= 1.02 * hope + problem.price * candidate.mass + 4 * unit_roundoff(precision) * candidate.mass
            for (_, upper), hope in zip(candidate.errors, hoped, strict=True)
        ):
            break  # the difference is rounding, which finer rows do not cure
    assert best is not None
    return _silence_failures(problem, best)


def _silence_failures(problem: _Problem, fitted: KernelSum) -> KernelSum:
    """A row that does worse than no head at all is set to 0."""
    norms = [float(target.norm().upper()) for target in problem.targets]
    failed = [upper > norm * (1 + 1e-6) for (_, upper), norm in zip(fitted.errors, norms, strict=True)]
    if not any(failed):
        return fitted
    rows = [
        [0.0] * fitted.heads if bad else row for bad, row in zip(failed, fitted.coefficients, strict=True)
    ]
    return kernel_sum(problem.rpe, fitted.exponents, rows, problem.targets, fitted.precision)


def _stored_exactly(a: arb, precision: str) -> float | Fraction:
    if precision != "exact":
        return round_to(a, precision)
    man, exp = a.mid().man_exp()
    return Fraction(int(man)) * Fraction(2) ** int(exp)


def _score(problem: _Problem, fitted: KernelSum) -> float:
    return sum(upper for _, upper in fitted.errors) + problem.price * fitted.mass


def kernel_sum(
    rpe: RpeName | AbstractRPE,
    exponents: Sequence[float],
    coefficients: Sequence[Sequence[float | Fraction]],
    targets: Sequence[AbstractTarget],
    precision: str = "float64",
) -> KernelSum:
    """The record of given weights, with their errors proved."""
    rpe = as_rpe(rpe)
    if len(coefficients) != len(targets):
        raise BadInput(
            f"{len(coefficients)} rows of coefficients for {len(targets)} targets; give one per target"
        )
    balls = [
        residual_l1(rpe, exponents, row, target) for row, target in zip(coefficients, targets, strict=True)
    ]
    masses = [sum((abs(to_arb(a)) for a in row), arb(0)) for row in coefficients]
    return KernelSum(
        rpe=rpe.name,
        targets=tuple(targets),
        exponents=tuple(float(beta) for beta in exponents),
        coefficients=tuple(tuple(row) for row in coefficients),
        precision=precision,
        errors=tuple((max(0.0, _outward(ball.lower(), -1)), _outward(ball.upper(), 1)) for ball in balls),
        mass=max(_outward(m.upper(), 1) for m in masses),
    )


def _outward(number: arb, direction: int) -> float:
    """A float64 number on this side of it; the number itself, if it is one."""
    near = float(number)
    return near if direction * (arb(near) - number) >= 0 else math.nextafter(near, direction * math.inf)


# -- error against heads and mass ---------------------------------------------------------------------


def sweep(
    rpe: RpeName | AbstractRPE,
    targets: AbstractTarget | Sequence[AbstractTarget],
    heads: Iterable[int],
    masses: Iterable[float],
    *,
    precision: str = "float64",
    moves: int = 30,
    on_fit: Callable[[KernelSum], None] | None = None,
) -> list[KernelSum]:
    """A fit for each number of heads and each mass budget."""
    masses, fits = list(masses), []
    for H in heads:
        for mass in masses:
            fits.append(fit(rpe, targets, H, mass=mass, precision=precision, moves=moves))
            if on_fit:
                on_fit(fits[-1])
    return fits


def pareto(fits: Iterable[KernelSum]) -> list[KernelSum]:
    """Those that no other beats in heads, mass and error at once, cheapest first."""
    fits = list(fits)
    cost = lambda f: (f.heads, f.mass, f.error)

    def beaten(f: KernelSum) -> bool:
        return any(
            all(a <= b for a, b in zip(cost(g), cost(f), strict=True)) and cost(g) != cost(f) for g in fits
        )

    return sorted((f for f in fits if not beaten(f)), key=cost)
