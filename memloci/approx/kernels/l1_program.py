"""Best l1 fits by linear programming, in as many bits as they take.

    primal   min  sum_i |(W a - rho)_i| + price sum_h |a_h|       subject to  sum_h |a_h| <= mass
    dual     max  <y, rho> - mass s     subject to  |y_i| <= 1,  |<y, W_h>| <= price + s,  s >= 0

Columns W_h are head kernels, so nearly dependent that coefficients of 1e9 cancel to 1e-9. Float
solvers drop the entries that matter, so this is an interior-point method on flint's
matrices: Mehrotra's predictor and corrector from a point that is strictly feasible on both sides.
Its output is a proposal; residuals.py and lower_bounds.py prove what is claimed about it.

Beyond a mass of about 2^100 its steps take seconds each. `ridge_l2` solves a cheaper problem there,

    min  ||W a - rho||_2^2 + lambda ||a||_2^2,     (G + lambda) a = W^T rho,   G = W^T W in closed form,

with the least lambda that keeps the mass. At lag 20 and mass 1e30 its l1 error is 1.6 to 2 times
that of the program.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb, arb_mat, ctx

Vector = list[arb]


@dataclass(frozen=True)
class L1Fit:
    """Primal and dual solution of one program; `error` is the l1 part of the primal value."""

    a: Vector
    y: Vector
    s: arb
    error: float
    gap: float
    steps: int


def solve_l1(
    columns: Sequence[Sequence[arb]],
    rho: Sequence[arb],
    *,
    mass: float | None = None,
    price: float = 0.0,
    bits: int = 192,
    rtol: float = 1e-5,
    max_steps: int = 80,
) -> L1Fit:
    """Solve to a relative gap of `rtol`, or as far as `bits` allow; `gap` tells."""
    with ctx.workprec(bits):
        return _InteriorPoint(columns, rho, mass, price).run(rtol, max_steps)


def ridge_l2(gram: arb_mat, against: Sequence[arb], *, mass: float, halvings: int = 8) -> Vector:
    """The a of least squares whose mass fits, at flint's precision; `against` is W^T rho, |rho|_2 <= 1.

    lambda ||a||_2^2 <= |rho|_2^2, as a = 0 shows, so lambda = J / mass^2 is always large enough.
    """
    J = len(against)
    right = _column([value.mid() for value in against])

    def solve(log2_lambda: float) -> Vector:
        system = arb_mat(gram)
        weight = (arb(log2_lambda) * arb.const_log2()).exp()
        for j in range(J):
            system[j, j] += weight
        return [a.mid() for a in system.mid().solve(right, algorithm="approx").entries()]

    high = math.log2(J) - 2 * math.log2(mass)
    low = high - 100  # tuned: errors below 2^-50 are not sought here
    best = solve(high)
    for _ in range(halvings):
        middle = (low + high) / 2
        a = solve(middle)
        if sum((abs(a_j) for a_j in a), arb(0)) < mass:
            high, best = middle, a
        else:
            low = middle
    return best


class _InteriorPoint:
    # a = p - m with p, m >= 0; W a - rho = u - v with u, v >= 0; t is the mass left over.
    # Slacks of the dual: zp, zm, zu, zv, zt; y and nu = -s are the multipliers.
    def __init__(
        self, columns: Sequence[Sequence[arb]], rho: Sequence[arb], mass: float | None, price: float
    ):
        J, N = len(columns), len(rho)
        self.W_t = arb_mat([list(column) for column in columns]).mid()  # (J, N)
        self.W = self.W_t.transpose()
        self.rho = [value.mid() for value in rho]
        self.mass = arb(mass) if mass is not None else None
        self.price = arb(price)
        size = sum((abs(value) for value in self.rho), arb(0)).mid() + arb(2) ** -60
        start = (self.mass if self.mass is not None else size / (self.price + arb(2) ** -60)) / (4 * J)
        self.p, self.m = [start.mid()] * J, [start.mid()] * J
        spare = size / N
        self.u = [(arb(0).max(-value) + spare).mid() for value in self.rho]
        self.v = [(arb(0).max(value) + spare).mid() for value in self.rho]
        self.y, self.nu = [arb(0)] * N, arb(0)
        self.t = arb(0)
        if self.mass is not None:
            self.t = (self.mass / 2).mid()
            self.nu = (-size / self.mass).mid()

    def run(self, rtol: float, max_steps: int) -> L1Fit:
        steps = 0
        for steps in range(1, max_steps + 1):  # noqa: B007
            self._slacks()
            if self._gap() <= rtol * abs(self._error()) or not self._step():
                break
        self._slacks()
        a = [(p - m).mid() for p, m in zip(self.p, self.m, strict=True)]
        s = (-self.nu).mid()
        return L1Fit(a, self.y, s, _float(self._error()), _float(self._gap()), steps)

    def _error(self) -> arb:
        return sum((abs(u - v) for u, v in zip(self.u, self.v, strict=True)), arb(0))

    def _slacks(self) -> None:
        f = (self.W_t * _column(self.y)).entries()
        base = self.price - self.nu
        self.zp = [(base - f_j).mid() for f_j in f]
        self.zm = [(base + f_j).mid() for f_j in f]
        self.zu = [(1 + y).mid() for y in self.y]
        self.zv = [(1 - y).mid() for y in self.y]
        self.zt = (-self.nu).mid()

    def _pairs(self) -> list[tuple[Vector, Vector]]:
        pairs = [(self.p, self.zp), (self.m, self.zm), (self.u, self.zu), (self.v, self.zv)]
        return pairs if self.mass is None else [*pairs, ([self.t], [self.zt])]

    def _gap(self) -> arb:
        return sum((_dot(x, z) for x, z in self._pairs()), arb(0)).mid()

    def _step(self) -> bool:
        count = sum(len(x) for x, _ in self._pairs())
        mu = self._gap() / count
        J, N = len(self.p), len(self.y)
        theta_p, theta_m = _ratio(self.p, self.zp), _ratio(self.m, self.zm)
        theta = [a + b for a, b in zip(theta_p, theta_m, strict=True)]
        delta = [a - b for a, b in zip(theta_p, theta_m, strict=True)]
        D = [a + b for a, b in zip(_ratio(self.u, self.zu), _ratio(self.v, self.zv), strict=True)]
        border = (self.W * _column(delta)).mid()
        corner = sum(theta, arb(0)) + (self.t / self.zt if self.mass is not None else 0)

        a = _column([p - m for p, m in zip(self.p, self.m, strict=True)])
        Wa = (self.W * a).entries()
        short = [(rho - w + u - v).mid() for rho, w, u, v in zip(self.rho, Wa, self.u, self.v, strict=True)]
        short_mass = arb(0)
        if self.mass is not None:
            short_mass = (self.mass - sum(self.p, arb(0)) - sum(self.m, arb(0)) - self.t).mid()
        solve = _normal_solver(self.W, self.W_t, theta, D)

        def direction(targets: list[Vector]):
            """Newton's direction that sends each product x z to x z + target."""
            quotients = [
                [xi / z for xi, z in zip(target, zs, strict=True)]
                for target, (_, zs) in zip(targets, self._pairs(), strict=True)
            ]
            qp, qm, qu, qv, *qt = quotients
            Wq = (self.W * _column([a - b for a, b in zip(qp, qm, strict=True)])).entries()
            g = [r - w + a - b for r, w, a, b in zip(short, Wq, qu, qv, strict=True)]
            if self.mass is not None:
                h = short_mass - sum(qp, arb(0)) - sum(qm, arb(0)) - qt[0][0]
                both = solve(arb_mat([[gi, bi] for gi, bi in zip(g, border.entries(), strict=True)]))
                first = [both[i, 0] for i in range(N)]
                second = [both[i, 1] for i in range(N)]
                b = border.entries()
                dnu = ((h - _dot(b, first)) / (corner - _dot(b, second))).mid()
                dy = [(x - dnu * w).mid() for x, w in zip(first, second, strict=True)]
            else:
                dnu = arb(0)
                dy = [x.mid() for x in solve(_column(g)).entries()]
            df = (self.W_t * _column(dy)).entries()
            dzp, dzm = [-d - dnu for d in df], [d - dnu for d in df]
            dzs = [dzp, dzm, dy, [-d for d in dy]] + ([[-dnu]] if self.mass is not None else [])
            dxs = [
                [(q - x / z * dz).mid() for q, x, z, dz in zip(qs, xs, zs, dz_, strict=True)]
                for qs, (xs, zs), dz_ in zip(quotients, self._pairs(), dzs, strict=True)
            ]
            return dy, dnu, dxs, dzs

        pairs = self._pairs()
        products = [[x * z for x, z in zip(xs, zs, strict=True)] for xs, zs in pairs]
        try:
            _, _, dxs, dzs = direction([[-xz for xz in row] for row in products])
            step_x = min(_longest(xs, dx) for (xs, _), dx in zip(pairs, dxs, strict=True))
            step_z = min(_longest(zs, dz) for (_, zs), dz in zip(pairs, dzs, strict=True))
            gap_ahead = arb(0)
            for (xs, zs), dx, dz in zip(pairs, dxs, dzs, strict=True):
                for x, z, ddx, ddz in zip(xs, zs, dx, dz, strict=True):
                    gap_ahead += (x + step_x * ddx) * (z + step_z * ddz)
            sigma = max(1e-6, min(1.0, _float(gap_ahead / count / mu))) ** 3
            aim = sigma * mu
            targets = [
                [aim - xz - ddx * ddz for xz, ddx, ddz in zip(row, dx, dz, strict=True)]
                for row, dx, dz in zip(products, dxs, dzs, strict=True)
            ]
            dy, dnu, dxs, dzs = direction(targets)
        except ZeroDivisionError:
            return False
        step_x = 0.99 * min(_longest(xs, dx) for (xs, _), dx in zip(pairs, dxs, strict=True))
        step_z = 0.99 * min(_longest(zs, dz) for (_, zs), dz in zip(pairs, dzs, strict=True))
        if not (step_x > 1e-8 and step_z > 1e-8) or J == 0:
            return False
        moved = [
            [(x + step_x * d).mid() for x, d in zip(xs, dx, strict=True)]
            for (xs, _), dx in zip(pairs, dxs, strict=True)
        ]
        if not all(x.is_finite() for row in [*moved, dy, [dnu]] for x in row):
            return False
        self.p, self.m, self.u, self.v, *rest = moved
        if rest:
            self.t = rest[0][0]
        self.y = [(y + step_z * d).mid() for y, d in zip(self.y, dy, strict=True)]
        self.nu = (self.nu + step_z * dnu).mid()
        return True


def _normal_solver(W: arb_mat, W_t: arb_mat, theta: Vector, D: Vector):
    """g -> (W diag(theta) W^T + diag(D))^{-1} g, through the smaller of the two matrices."""
    N, J = W.nrows(), W.ncols()
    if J >= N:
        scaled = arb_mat([[t * w for w in row] for t, row in zip(theta, W_t.tolist(), strict=True)])
        normal = (W * scaled + _diagonal(D)).mid()
        return lambda g: normal.solve(g.mid(), algorithm="approx")
    inverse = [1 / d for d in D]
    SW = arb_mat([[s * w for w in row] for s, row in zip(inverse, W.tolist(), strict=True)]).mid()
    small = (W_t * SW + _diagonal([1 / t for t in theta])).mid()

    def solve(g: arb_mat) -> arb_mat:  # Woodbury; the extra bits pay for its cancellation
        Sg = arb_mat([[s * x for x in row] for s, row in zip(inverse, g.tolist(), strict=True)])
        return Sg - SW * small.solve((W_t * Sg).mid(), algorithm="approx")

    return solve


def _column(values: Vector) -> arb_mat:
    return arb_mat(len(values), 1, values)


def _diagonal(values: Vector) -> arb_mat:
    n = len(values)
    matrix = arb_mat(n, n)
    for i, value in enumerate(values):
        matrix[i, i] = value
    return matrix


def _ratio(x: Vector, z: Vector) -> Vector:
    return [(a / b).mid() for a, b in zip(x, z, strict=True)]


def _dot(x: Vector, z: Vector) -> arb:
    return sum((a * b for a, b in zip(x, z, strict=True)), arb(0))


def _longest(x: Vector, dx: Vector) -> float:
    """The largest step up to 1 that keeps x + step dx >= 0."""
    return min(1.0, *(float(-a / d) for a, d in zip(x, dx, strict=True) if d < 0), 1.0)


def _float(ball: arb) -> float:
    value = float(ball.mid())
    return value if math.isfinite(value) else math.inf
