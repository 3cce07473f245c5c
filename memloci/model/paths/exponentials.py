"""A power law as a sum of exponentials, with a proved error.

    z^-p = 1/Gamma(p) int e^{p x - z e^x} dx  ~  h p / Gamma(1+p) sum_j e^{p x_j} e^{-z u_j},      u_j = e^{x_j}

The trapezoid rule on the whole line, x_j = x_0 + j h, converges like e^{-2 pi theta / h}: its relative error is the
same for every z. Terms that die before z reaches FIRST are left out. The infinitely many slow ones, u_j < u_0 =
reach / n, see z u_j <= reach only, where e^{-z u} is nearly a polynomial: they are moved to r fixed rates by
interpolation. So the rates do not depend on p, nor on the head, and the weights are smooth in p >= 0.

| error | relative to z^-p, for FIRST <= z <= n |
|---|---|
| trapezoid | 2 (cos theta)^-p / (e^{2 pi theta / h} - 1), any 0 < theta < pi/2 |
| fast terms | Gamma(p, z e^{x_J}) / Gamma(p) and one term: monotone from there on |
| slow terms | reach^r / (r! 2^{2r-1}) times their weight reach^p p h / (expm1(p h) Gamma(1+p)) |

`relative_error` encloses their sum in balls, for a given p.
"""

from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb, ctx
from jaxtyping import Array, Float

from memloci.core.arrays import PerHead

BITS = 128


@dataclass(frozen=True)
class Grid:
    """The rates for lags first <= z <= n, and what their weights are made of."""

    h: float
    r: int
    reach: float
    last: float  # the fastest rate is last / first
    first: int
    n: int

    @property
    def x(self) -> np.ndarray:
        """log u_j of the trapezoid's own rates, ascending."""
        x_0 = np.log(self.reach / self.n)
        J = max(1, int(np.ceil((np.log(self.last / self.first) - x_0) / self.h)) + 1)
        return x_0 + self.h * np.arange(J)

    @property
    def u_0(self) -> float:
        return float(np.exp(self.x[0]))

    @property
    def nodes(self) -> np.ndarray:
        """Where the slow terms go, in units of u_0: 0 and Chebyshev points of [0, 1]."""
        k = np.arange(self.r)
        points = 0.5 - 0.5 * np.cos(np.pi * (k + 0.5) / self.r)
        return (points - points[0]) / (1 - points[0])  # the first at 0: what is slowest becomes a constant

    @property
    def rates(self) -> np.ndarray:
        return np.concatenate([self.nodes * self.u_0, np.exp(self.x)])

    @property
    def transfer(self) -> np.ndarray:
        """(r, terms): how much of the slow term u_0 e^{-jh}, j = 1, 2, ..., each node takes; the first one's
        share less 1, so that every row dies out."""
        j = np.arange(1, int(np.ceil(45 / self.h)))
        at, nodes = np.exp(-self.h * j), self.nodes
        shares = np.ones((self.r, len(j)))
        for i in range(self.r):
            for k in range(self.r):
                if k != i:
                    shares[i] *= (at - nodes[k]) / (nodes[i] - nodes[k])
        shares[0] -= 1
        return shares


# Tuned: errors below eps / 2 for p to 4, where lags beyond `first` have weight 1e-5 at most.
SHAPES = {"float32": (0.38, 5, 0.3, 28.0), "float64": (0.19, 10, 0.5, 60.0)}


@lru_cache
def grid(dtype: str, first: int, n: int) -> Grid:
    """For lags from `first` to n in this precision."""
    return Grid(*SHAPES[dtype], first=first, n=max(n, 2 * first))


def weights(grid: Grid, p: PerHead) -> Float[Array, "H J"]:
    """c_j with z^-p ~ sum_j c_j e^{-u_j z}, for p >= 0."""
    dtype, P = p.dtype, p[:, None]
    scale = jnp.exp(-jax.scipy.special.gammaln(1 + P))
    on_grid = (grid.h * P) * jnp.exp(P * jnp.asarray(grid.x, dtype)[None, :])
    j = jnp.arange(1, grid.transfer.shape[1] + 1, dtype=dtype)[None, :]
    slow = (grid.h * P) * (jnp.exp(-grid.h * P * j) @ jnp.asarray(grid.transfer.T, dtype))
    zero = grid.h * P == 0  # two wheres: the unused side must stay finite
    series = jnp.where(zero, 1.0, grid.h * P / jnp.where(zero, 1.0, jnp.expm1(grid.h * P)))
    slow = slow.at[:, 0].add(series[:, 0])
    return scale * jnp.concatenate([slow * jnp.exp(P * float(grid.x[0])), on_grid], axis=1)


def relative_error(grid: Grid, p: float) -> float:
    """An upper bound of |sum_j c_j e^{-u_j z} - z^-p| / z^-p over first <= z <= n, in exact arithmetic."""
    with ctx.workprec(BITS):
        P, h = arb(p), arb(grid.h)
        if p == 0:
            return 0.0
        trapezoid = min(
            (
                2 * (arb(k) / 64).cos() ** -P / ((2 * arb.pi() * (arb(k) / 64) / h).exp() - 1)
                for k in range(8, 100)
            ),
            key=lambda ball: float(ball.mid()),
        )
        # e^{p x - z e^x} falls beyond x = log(p/z), so the terms left out are below the integral from the last one
        # kept; at the smallest z, where they weigh most.
        top = arb(grid.first) * arb(float(grid.x[-1])).exp()
        fast = top.gamma_upper(P) / P.gamma() if top > P else arb(1)
        reach, r = arb(grid.u_0) * grid.n, grid.r
        # Interpolation at the nodes: |e^{-zu} - polynomial| <= (z u_0)^r / r! max |prod (x - nodes)|.
        product = max(_largest_product(grid), 0.0)
        slow = reach**r / arb(r).fac() * arb(product)
        slow *= reach**P * (P * h) / ((P * h).exp() - 1) / (1 + P).gamma()
        return float((trapezoid + fast + slow).upper()) * (1 + 1e-12)


def _largest_product(grid: Grid) -> float:
    """max over [0, 1] of |prod_k (x - node_k)|, from above: sampled, and the slope's bound r between samples."""
    samples = np.linspace(0, 1, 4097)
    product = np.abs(samples[:, None] - grid.nodes[None, :]).prod(axis=1)
    others = np.array(
        [np.abs(samples[:, None] - np.delete(grid.nodes, k)[None, :]).prod(axis=1) for k in range(grid.r)]
    )
    slope = others.sum(axis=0).max() * 2
    return float(product.max() + slope / 8192)
