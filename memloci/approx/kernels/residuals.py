"""The l1 error of a kernel sum over all lags, proved.

    ||r||_1 = sum_{z>=1} |r(z)|,    r = sum_h a_h w_h - rho

For a linear readout this is the worst-case error itself, not only a bound (docs/theory.md, section 2): the
worst input is x_{t-z} = sign r(z). `residual_l1` returns a ball that contains it. Two ways to reach
infinity, the cheaper that works:

1. a window z <= n summed term by term, and the triangle inequality beyond it, with n so large that
   the tail no longer matters (|a_h| and rho decay);
2. sign cells. Beyond the window r is a sum of exponentials A_j e^{-nu_j x} (x = z for lin, log z for log),
   and of powers. On a stretch of lags its Taylor polynomial, with a proved remainder, shows whether r
   can vanish; where it cannot, |r| sums in closed form, and stretches around a zero are halved. The
   last stretch is the one where the slowest term outweighs all others, for ever. Slow heads and power
   laws need this: their tails are never small.

Proved: the ball, for any finite coefficients and any target of targets.py. Tuned: where to switch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from flint import arb, ctx

from memloci.approx.kernels.rpe import AbstractRPE, Number, RpeName, as_rpe, to_arb
from memloci.approx.kernels.targets import ZERO, AbstractTarget
from memloci.approx.kernels.taylor import Cell, taylor_cell
from memloci.core.errors import BadInput

# Tuned: all of these trade time only.
FIRST_WINDOW = 256
CHEAP_WINDOW = 8_192
MAX_WINDOW = {"lin": 400_000, "log": 20_000}
RELATIVE_TAIL = 1e-10
MAX_BITS = 1 << 15
TINY = 1e-300  # smaller than any error that a float can report
FARTHEST_LAG = 1 << 800  # a lag; float(lag) must stay finite
MAX_CELLS = 600
MAX_HALVINGS = 4_000


def residual_l1(
    rpe: RpeName | AbstractRPE,
    exponents: Sequence[Number],
    coefficients: Sequence[Number],
    target: AbstractTarget,
    *,
    rtol: float = 1e-9,
) -> arb:
    """A ball around ||sum_h a_h w_h - rho||_1 over all lags z >= 1, for any weights.

    Its lower end is proved too, so the ball shows how tight the bound is. Precision grows until the
    radius is below `rtol` of the value, or no longer shrinks (inputs that are balls themselves).
    """
    rpe = as_rpe(rpe)
    if len(exponents) != len(coefficients):
        raise BadInput(f"{len(exponents)} exponents but {len(coefficients)} coefficients; give one per head")
    bits, best = 128, None
    while True:
        with ctx.workprec(bits):
            beta = rpe.check(exponents)
            a = [to_arb(number) for number in coefficients]
            if not all(a_h.is_finite() for a_h in a):
                raise BadInput("a coefficient is not finite; every head needs a number")
            ball = _l1(rpe, a, beta, target)
        if ball.rad() <= rtol * ball.mid() or ball.upper() < TINY:
            return ball
        stuck = best is not None and ball.is_finite() and ball.rad() > best.rad() * 0.5
        if stuck or bits >= MAX_BITS:
            return ball if best is None or ball.rad() < best.rad() else best
        best, bits = ball if ball.is_finite() else best, 2 * bits


def residual(
    rpe: RpeName | AbstractRPE,
    exponents: Sequence[Number],
    coefficients: Sequence[Number],
    target: AbstractTarget,
    n: int,
) -> list[arb]:
    """r(z) for z = 1..n, at flint's current precision."""
    rpe = as_rpe(rpe)
    beta = rpe.check(exponents)
    a = [to_arb(number) for number in coefficients]
    return _window(rpe, a, beta, target, n)


def _l1(rpe: AbstractRPE, a: list[arb], beta: list[arb], target: AbstractTarget) -> arb:
    heads = [(a_h, b_h) for a_h, b_h in zip(a, beta, strict=True) if not a_h.is_zero()]
    a, beta = [a_h for a_h, _ in heads], [b_h for _, b_h in heads]
    n = max(FIRST_WINDOW, target.start + 1)
    window = _window(rpe, a, beta, target, n)
    head = _abs_sum(window)
    enough = RELATIVE_TAIL * head.mid()
    horizon = _horizon(rpe, a, beta, target, n, enough, CHEAP_WINDOW)
    if horizon is None and (tail := _Tail.of(rpe, a, beta, target)) is not None:
        cells = _sign_cells(tail, n, enough)
        if cells is not None:
            return head + cells
    if horizon is None:  # a target of no known kind: go on until it has died out, then ignore it
        horizon = _horizon(rpe, [], [], target, n, enough, MAX_WINDOW[rpe.name]) or MAX_WINDOW[rpe.name]
        head = _abs_sum(_window(rpe, a, beta, target, horizon))
        tail = _Tail.of(rpe, a, beta, ZERO)
        cells = _sign_cells(tail, horizon, enough) if tail is not None else None
        if cells is not None:
            neglected = target.tail_bound(horizon).upper()
            return head + cells + (-neglected).union(neglected)
    elif horizon > n:
        head = _abs_sum(_window(rpe, a, beta, target, horizon))
    n = horizon
    low = abs(_tail_sum(rpe, a, beta, target, n)).lower()
    high = _tail_bound(rpe, a, beta, target, n).upper()
    return head + arb(0).max(low).union(high)


def _window(rpe: AbstractRPE, a: list[arb], beta: list[arb], target: AbstractTarget, n: int) -> list[arb]:
    kappa = rpe.mixture_arb(a, beta, n) if a else [arb(0)] * n
    return [k - target.value(z) for z, k in enumerate(kappa, start=1)]


def _abs_sum(values: list[arb]) -> arb:
    return sum((abs(value) for value in values), arb(0))


def _tail_bound(rpe: AbstractRPE, a: list[arb], beta: list[arb], target: AbstractTarget, n: int) -> arb:
    heads = sum((abs(a_h) * rpe.tail_arb(b_h, n) for a_h, b_h in zip(a, beta, strict=True)), arb(0))
    return heads + target.tail_bound(n)


def _tail_sum(rpe: AbstractRPE, a: list[arb], beta: list[arb], target: AbstractTarget, n: int) -> arb:
    heads = sum((a_h * rpe.tail_arb(b_h, n) for a_h, b_h in zip(a, beta, strict=True)), arb(0))
    return heads - target.tail_sum(n)


def _horizon(
    rpe: AbstractRPE, a: list[arb], beta: list[arb], target: AbstractTarget, n: int, enough: arb, most: int
) -> int | None:
    """A window beyond which the triangle inequality leaves less than `enough`, if `most` allows one."""
    while n <= most:
        if _tail_bound(rpe, a, beta, target, n) <= enough:
            return n
        n = 2 * n
    return None


# -- sign cells ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tail:
    """r(z) = sum_j A_j e^{-nu_j x} + sum_m c_m z^{-p_m}, x = z or log z; the powers only for x = z."""

    rpe: AbstractRPE
    a: list[arb]
    beta: list[arb]
    target: AbstractTarget
    exponentials: list[tuple[arb, arb]]  # (nu, A)
    powers: list[tuple[arb, arb]]  # (p, c)

    @classmethod
    def of(cls, rpe: AbstractRPE, a: list[arb], beta: list[arb], target: AbstractTarget) -> "_Tail | None":
        spectrum = target.spectrum(rpe)
        if spectrum is None:
            return None
        terms = [(b_h, a_h * rpe.scale_arb(b_h)) for a_h, b_h in zip(a, beta, strict=True)]
        for nu, c in spectrum.exponentials:  # a head at the target's own rate: one term, perhaps tiny
            same = [j for j, (b_h, _) in enumerate(terms) if b_h.is_exact() and b_h == nu]
            if same:
                terms[same[0]] = (nu, terms[same[0]][1] - c)
            else:
                terms.append((nu, -c))
        terms = [(nu, A) for nu, A in terms if not A.is_zero()]
        return cls(rpe, a, beta, target, terms, [(p, -c) for p, c in spectrum.powers])

    def x(self, z: int | arb) -> arb:
        return arb(z) if self.rpe.name == "lin" else arb(z).log()

    def one_sign_beyond(self, n: int) -> bool:
        """Proved: r(z) != 0 for all z > n, because the slowest term outweighs the rest at n + 1 and after."""
        x = self.x(n + 1)
        sizes = [(nu, abs(A) * (-nu * x).exp()) for nu, A in self.exponentials]
        if self.powers:  # z^p e^{-nu z} falls once z > p / nu, so the comparison at n + 1 lasts
            p_slow, c_slow = min(self.powers, key=lambda term: float(term[0]))
            lead = abs(c_slow) * (-p_slow * x.log()).exp()
            others = [
                abs(c) * (-p * x.log()).exp() for p, c in self.powers if not (p == p_slow and c is c_slow)
            ]
            if not all(nu * x > p_slow for nu, _ in sizes):
                return False
            return bool(lead > sum((size for _, size in sizes), sum(others, arb(0))))
        if not sizes:
            return True
        slow = min(range(len(sizes)), key=lambda j: float(sizes[j][0]))
        rest = [size for j, (nu, size) in enumerate(sizes) if j != slow]
        ordered = all(sizes[slow][0] < nu for j, (nu, _) in enumerate(sizes) if j != slow)
        return ordered and bool(sizes[slow][1] > sum(rest, arb(0)))

    def cell(self, lo: int, hi: int) -> Cell:
        """r on the real interval [lo, hi]; 8^-K keeps the remainder below the precision."""
        return taylor_cell(self.exponentials, self.powers, self.x(lo), self.x(hi), K=8 + ctx.prec // 3)

    def sum_between(self, lo: int, hi: int) -> arb:
        """sum of r(z) over lo < z <= hi."""
        return self.sum_beyond(lo) - self.sum_beyond(hi)

    def sum_beyond(self, n: int) -> arb:
        return _tail_sum(self.rpe, self.a, self.beta, self.target, n)

    def value(self, z: int) -> arb:
        x = self.x(z)
        heads = zip(self._scaled, self.beta, strict=True)
        return sum((A * (-b_h * x).exp() for A, b_h in heads), -self.target.value(z))

    @cached_property
    def _scaled(self) -> list[arb]:
        """a_h over its normaliser, which for log heads is a zeta function: it is computed once."""
        return [a_h * self.rpe.scale_arb(b_h) for a_h, b_h in zip(self.a, self.beta, strict=True)]


def _sign_cells(tail: _Tail, n: int, enough: arb) -> arb | None:
    """sum_{z>n} |r(z)|; None when it takes too many cells."""
    total = arb(0)
    for _ in range(MAX_CELLS):
        if tail.one_sign_beyond(n):
            return total + abs(tail.sum_beyond(n))
        bound = _tail_bound(tail.rpe, tail.a, tail.beta, tail.target, n)
        if bound <= enough:
            return total + abs(tail.sum_beyond(n)).lower().union(bound.upper())
        if n > FARTHEST_LAG:
            return None
        hi = n + 1 + (n // 4 if tail.rpe.name == "lin" else int(n**1.25) - n)  # centre / radius about 8
        stretch = _abs_sum_over(tail, n, hi, tail.cell(n + 1, hi))
        if stretch is None:
            return None
        total, n = total + stretch, hi
    return None


def _abs_sum_over(tail: _Tail, lo: int, hi: int, cell: Cell) -> arb | None:
    """sum of |r(z)| over lo < z <= hi, inside the cell whose Taylor polynomial is given."""
    total, todo, halvings = arb(0), [(lo, hi)], 0
    while todo:
        lo, hi = todo.pop()
        if hi - lo <= 4:
            total += sum((abs(tail.value(z)) for z in range(lo + 1, hi + 1)), arb(0))
            continue
        c_0, *others = cell.local(tail.x(lo + 1), tail.x(hi))
        if abs(c_0) > sum((abs(c) for c in others), cell.error):
            total += abs(tail.sum_between(lo, hi))
            continue
        if abs(c_0.mid()) <= c_0.rad() + cell.error:
            # r is smaller than what the precision leaves of it, here and in either half: a bound serves, and what it
            # is too large by asks for more bits.
            most = sum((abs(c) for c in others), abs(c_0) + cell.error)
            total += arb(0).union((hi - lo) * most.upper())
            continue
        halvings += 1
        if halvings > MAX_HALVINGS:
            return None
        mid = (lo + hi) // 2
        todo += [(lo, mid), (mid, hi)]
    return total
