"""Sums of exponentials and powers on an interval: Taylor polynomials with proved remainders.

    g(x) = sum_j A_j e^{-nu_j x} + sum_m c_m x^{-p_m},    x = centre + radius u,  |u| <= 1

The kernels of this package are such sums in the lag (residuals.py) and in the exponent
(lower_bounds.py), with terms that cancel to many digits; intervals put straight into the formula would
lose them all. On cells with radius = x/8 the remainder after K terms is below 8^-K times the mass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb, arb_poly

Terms = Sequence[tuple[arb, arb]]  # (rate nu or power p, coefficient)


@dataclass(frozen=True)
class Cell:
    """|g(x) - polynomial(u)| <= error for x = centre + radius u, |u| <= 1."""

    centre: arb
    radius: arb
    polynomial: arb_poly
    error: arb

    def local(self, x_lo: arb, x_hi: arb) -> list[arb]:
        """Coefficients of the same polynomial in v, |v| <= 1 on [x_lo, x_hi]."""
        u_lo, u_hi = (x_lo - self.centre) / self.radius, (x_hi - self.centre) / self.radius
        # The ball in the middle covers its own rounding; the half-width is rounded up.
        half = ((u_hi - u_lo) / 2).upper()
        return self.polynomial(arb_poly([(u_lo + u_hi) / 2, half])).coeffs() or [arb(0)]


def taylor_cell(exponentials: Terms, powers: Terms, x_lo: arb, x_hi: arb, K: int) -> Cell:
    """K terms around the middle of [x_lo, x_hi]; powers need x_lo > 0."""
    centre = ((x_lo + x_hi) / 2).mid()
    radius = (x_hi - centre).max(centre - x_lo).upper()
    coefficients, error = [arb(0)] * K, arb(0)
    for nu, A in exponentials:
        term, step = A * (-nu * centre).exp(), -nu * radius
        for k in range(K):
            coefficients[k] += term
            term = term * step / (k + 1)
        # Lagrange: `term` is A e^{-nu c} (-nu radius)^K / K!; e^{-nu x} is largest at the left end.
        error += abs(term) * (nu * radius).exp()
    for p, c in powers:
        term, step = c * (-p * centre.log()).exp(), -radius / centre
        for k in range(K):
            coefficients[k] += term
            term = term * step * (p + k) / (k + 1)
        error += abs(term) * ((p + K) * (centre / (centre - radius)).log()).exp()
    return Cell(centre, radius, arb_poly(coefficients), error.upper())
