"""On boxes where f and the network are affine the supremum is exact: a value at a vertex reaches it, and no point exceeds it."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from memloci.approx.readouts.ridge_affine import affine_supremum
from memloci.language.parse import parse

NAMES = ("x", "y")


def network(rng, m, lo, hi):
    """Neurons that keep their sign on every box: the constant is moved out of what the boxes reach."""
    W, b, B, A = rng.normal(size=2), float(rng.normal()), rng.normal(size=(m, 2)), rng.normal(size=m)
    reach = np.maximum(np.abs(lo), np.abs(hi)).max(axis=0)
    c = rng.choice([-1.0, 1.0], m) * (np.abs(B) @ reach + rng.uniform(0.01, 1, m))
    return W, b, B, c, A


def output(weights, v):
    W, b, B, c, A = weights
    exact = lambda x: Fraction(float(x))
    total = exact(b) + sum(exact(w) * x for w, x in zip(W, v, strict=True))
    for k in range(len(c)):
        argument = exact(c[k]) + sum(exact(w) * x for w, x in zip(B[k], v, strict=True))
        total += exact(A[k]) * max(argument, Fraction(0))
    return total


@pytest.mark.parametrize("m", [0, 1, 7])
def test_a_vertex_reaches_the_supremum_and_no_point_exceeds_it(m):
    rng = np.random.default_rng(m)
    f = parse("0.3 * x - 2 * y + 0.1", NAMES)
    value = lambda v: Fraction(0.3) * v[0] - 2 * v[1] + Fraction(0.1)
    for _ in range(20):
        lo = rng.normal(size=(3, 2))
        hi = lo + rng.uniform(0, 1, (3, 2))
        weights = network(rng, m, lo, hi)
        found = affine_supremum(f, NAMES, weights, lo, hi)
        assert math.isfinite(found)
        vertices = [
            [Fraction(float((lo, hi)[side][i, j])) for j, side in enumerate(sides)]
            for i in range(3)
            for sides in itertools.product((0, 1), repeat=2)
        ]
        largest = max(abs(value(v) - output(weights, v)) for v in vertices)
        assert largest <= Fraction(found) <= largest * (1 + Fraction(1, 2**50))
        for _ in range(10):
            i, share = rng.integers(3), rng.random(2)
            v = [Fraction(float(x)) for x in lo[i] + share * (hi[i] - lo[i])]
            assert abs(value(v) - output(weights, v)) <= Fraction(found)


def test_symbols_are_read_by_f_alone():
    """f at the symbol, the network on the box around it: a staircase of two neurons that cancel gives 0 exactly."""
    f = parse("where(x > 0.2, 0.3, 2.0) + 0 * y", NAMES)
    weights = (
        np.zeros(2),
        2.0,
        np.array([[1024.0, 0], [1024.0, 0]]),
        np.array([0.5, -0.5]) - 1024 * 0.25,
        np.array([-1.7, 1.7]),
    )
    symbols = np.array([[-1.0, 0.0], [0.5, 0.0]])
    lo, hi = symbols - 0.01, symbols + 0.01
    exact = abs(Fraction(0.3) - Fraction(2.0) + Fraction(1.7))
    assert Fraction(affine_supremum(f, NAMES, weights, lo, hi, symbols)) <= exact * (1 + Fraction(1, 2**50))
    assert not math.isfinite(affine_supremum(f, NAMES, weights, lo - 1, hi + 1, symbols))  # a neuron turns on


def test_what_is_not_affine_is_declined_unless_it_is_a_number():
    weights = np.array([1.0, 0.0]), 0.0, np.zeros((0, 2)), np.zeros(0), np.zeros(0)
    lo, hi = np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]])
    assert not math.isfinite(affine_supremum(parse("sin(x)", NAMES), NAMES, weights, lo, hi))
    found = affine_supremum(parse("sin(x)", NAMES), NAMES, weights, hi, hi)
    assert abs(found - (1 - math.sin(1))) < 1e-14 and found >= 1 - math.sin(1) - 1e-16
