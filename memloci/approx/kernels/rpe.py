"""Relative encodings phi and the kernels over lags that a dot-product-free head makes of them.

    w(z) = e^{beta phi(z)} / sum_{k>=1} e^{beta phi(k)},    z = 1, 2, ...

    lin   phi(z) = -z        w(z) = (1-q) q^{z-1},  q = e^{-beta}      sum_{z>n} w(z) = q^n
    log   phi(z) = -log z    w(z) = z^{-beta} / zeta(beta)             zeta(beta, n+1) / zeta(beta)

Assumed: beta > 0 (lin), beta > 1 (log), else the normaliser diverges; `check` refuses the rest.
Each formula comes twice: in float64 for plots, and in Arb balls (names ending in `_arb`), at the
precision of flint's context, for proofs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from flint import arb, arb_mat, fmpq

from memloci.core.errors import BadInput
from memloci.core.numbers import literal

Number: TypeAlias = int | float | Fraction | arb
RpeName: TypeAlias = Literal["lin", "log"]


def to_arb(number: Number) -> arb:
    """The ball of an exact number (a Fraction is rounded outwards); a ball passes through."""
    if isinstance(number, Fraction):
        return arb(fmpq(number.numerator, number.denominator))
    return arb(number) if isinstance(number, arb | int) else arb(float(number))


class AbstractRPE(ABC):
    """A relative encoding with the kernels of its heads."""

    name: RpeName
    beta_min: float  # exponents must be larger

    def check(self, exponents: Sequence[Number]) -> list[arb]:
        """The exponents as balls, or a refusal."""
        balls = [to_arb(beta) for beta in exponents]
        for given, beta in zip(exponents, balls, strict=True):
            if not beta.is_finite() or not beta > self.beta_min:
                raise BadInput(
                    f"exponent {given}: {self.name} heads need a finite exponent above "
                    f"{literal(self.beta_min)}, else the weights over an infinite past do not sum"
                )
        return balls

    @abstractmethod
    def phi(self, z: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def kernel(self, exponents: np.ndarray, z: np.ndarray) -> np.ndarray:
        """w_h(z) in float64, of shape (H, z)."""

    @abstractmethod
    def tail(self, exponents: np.ndarray, n: int) -> np.ndarray:
        """sum_{z>n} w_h(z) in float64."""

    @abstractmethod
    def scale_arb(self, beta: arb) -> arb:
        """1 / sum_{z>=1} e^{beta phi(z)}."""

    @abstractmethod
    def kernel_arb(self, beta: arb, z: int) -> arb: ...

    @abstractmethod
    def tail_arb(self, beta: arb, n: int) -> arb: ...

    @abstractmethod
    def tails_arb(self, beta: arb, ns: Sequence[int]) -> list[arb]:
        """`tail_arb` at many n, the normaliser computed once."""

    @abstractmethod
    def mixture_arb(self, a: Sequence[arb], exponents: Sequence[arb], n: int) -> list[arb]:
        """sum_h a_h w_h(z) for z = 1..n."""


class LinRPE(AbstractRPE):
    """ALiBi: phi(z) = -z."""

    name: RpeName = "lin"
    beta_min = 0.0

    def phi(self, z: np.ndarray) -> np.ndarray:
        return -z

    def kernel(self, exponents: np.ndarray, z: np.ndarray) -> np.ndarray:
        beta = exponents[:, None]
        return -np.expm1(-beta) * np.exp(-beta * (z - 1)[None, :])

    def tail(self, exponents: np.ndarray, n: int) -> np.ndarray:
        return np.exp(-exponents * n)

    def scale_arb(self, beta: arb) -> arb:
        return beta.expm1()  # 1 / (q + q^2 + ...) = 1/q - 1

    def kernel_arb(self, beta: arb, z: int) -> arb:
        return -(-beta).expm1() * (-beta * (z - 1)).exp()

    def tail_arb(self, beta: arb, n: int) -> arb:
        return (-beta * n).exp()

    def tails_arb(self, beta: arb, ns: Sequence[int]) -> list[arb]:
        return [self.tail_arb(beta, n) for n in ns]

    def mixture_arb(self, a: Sequence[arb], exponents: Sequence[arb], n: int) -> list[arb]:
        # z - 1 = i m + j: q^{z-1} = (q^m)^i q^j, so n values are one (n/m, H) x (H, m) product.
        m = max(1, math.isqrt(n))
        rows = -(-n // m)
        weights = [a_h * -(-beta).expm1() for a_h, beta in zip(a, exponents, strict=True)]
        heads = list(zip(weights, exponents, strict=True))
        left = [[w * (-beta * (i * m)).exp() for w, beta in heads] for i in range(rows)]
        right = [[(-beta * j).exp() for j in range(m)] for beta in exponents]
        return (arb_mat(left) * arb_mat(right)).entries()[:n]


class LogRPE(AbstractRPE):
    """KERPLE: phi(z) = -log z."""

    name: RpeName = "log"
    beta_min = 1.0

    def phi(self, z: np.ndarray) -> np.ndarray:
        return -np.log(z)

    def kernel(self, exponents: np.ndarray, z: np.ndarray) -> np.ndarray:
        from scipy.special import zeta

        beta = exponents[:, None]
        return np.exp(-beta * np.log(z)[None, :]) / zeta(beta, 1.0)

    def tail(self, exponents: np.ndarray, n: int) -> np.ndarray:
        from scipy.special import zeta

        return zeta(exponents, n + 1.0) / zeta(exponents, 1.0)

    def scale_arb(self, beta: arb) -> arb:
        return 1 / beta.zeta()

    def kernel_arb(self, beta: arb, z: int) -> arb:
        return (-beta * arb(z).log()).exp() / beta.zeta()

    def tail_arb(self, beta: arb, n: int) -> arb:
        return beta.zeta(arb(n + 1)) / beta.zeta()

    def tails_arb(self, beta: arb, ns: Sequence[int]) -> list[arb]:
        scale = self.scale_arb(beta)
        return [beta.zeta(arb(n + 1)) * scale for n in ns]

    def mixture_arb(self, a: Sequence[arb], exponents: Sequence[arb], n: int) -> list[arb]:
        # z^-beta is multiplicative: exp only at the primes, one product elsewhere.
        factor = _smallest_factors(n)
        total = [arb(0)] * n
        for a_h, beta in zip(a, exponents, strict=True):
            scale = a_h * self.scale_arb(beta)
            power = [arb(1)] * (n + 1)
            for z in range(2, n + 1):
                p = factor[z]
                power[z] = (-beta * arb(z).log()).exp() if p == z else power[p] * power[z // p]
            total = [t + scale * w for t, w in zip(total, power[1:], strict=True)]
        return total


def _smallest_factors(n: int) -> list[int]:
    factor = list(range(n + 1))
    for p in range(2, math.isqrt(n) + 1):
        if factor[p] == p:
            for z in range(p * p, n + 1, p):
                factor[z] = min(factor[z], p)
    return factor


LIN, LOG = LinRPE(), LogRPE()


def as_rpe(rpe: RpeName | AbstractRPE) -> AbstractRPE:
    """The encoding of that name."""
    if isinstance(rpe, AbstractRPE):
        return rpe
    if rpe not in ("lin", "log"):
        raise BadInput(f"encoding {rpe!r}: kernel sums exist for 'lin' and 'log'")
    return LIN if rpe == "lin" else LOG
