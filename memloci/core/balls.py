"""Arb balls to numbers: on the safe side, exactly, or to nearest."""

import math
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flint import arb


def fraction(exact: "arb") -> Fraction:
    """The value of a ball of radius 0."""
    man, exp = exact.man_exp()
    return Fraction(int(man)) * Fraction(2) ** int(exp)


def nearest(exact: "arb") -> float:
    """The nearest float64 number, ties to even; infinite beyond the largest."""
    try:
        return float(fraction(exact))  # Python rounds a quotient of integers once, and correctly
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def above(ball: "arb") -> float:
    """A float64 number at least as large as all of a ball; infinite when the ball is not finite."""
    if not ball.is_finite():
        return math.inf
    x = float(ball.upper())
    return x if ball <= x else math.nextafter(x, math.inf)


def below(ball: "arb") -> float:
    """A float64 number at most as large as all of a ball."""
    return -above(-ball)
