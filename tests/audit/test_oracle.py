"""The oracle of the audit, on numbers worked out by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

from tests.audit.oracle import Oracle, Undecided, exceeds

X = np.array([[0.5], [-1.0], [0.25], [1.0], [-0.5]])
CASES = [
    ('kind = "fixed"\nlags = [1, 3]\nreadout = "2 * x1 - x2 + 0.5"', [0.5, 1.5, -1.5, 0.5, 3.5]),
    ('kind = "essential"\nkernels = ["1 / z"]\nreadout = "x1"', [0, 0.5, -0.75, -1 / 12, 11 / 12]),
    ('memories = [{ kernel = "1 / z", horizon = 2 }]\nreadout = "x1"', [0, 0.5, -0.75, -0.25, 1.125]),
    ('memories = [{ kernel = "(-1) ** z / z" }]\nreadout = "x1"', [0, -0.5, 1.25, -11 / 12, -5 / 12]),
    # x1 = 0, 0.5, -1, 0.25, 1
    (
        'kind = "fixed"\nlags = [1]\nreadout = "where(x1 > 0.3 and not x0 < -0.7, 1, floor(x0))"',
        [0, -1, 0, 1, 1],
    ),
]


@pytest.mark.parametrize("text, expected", CASES)
def test_both_arithmetics_agree_with_hand_work(text, expected):
    oracle = Oracle.read(text)
    found = oracle.outputs(X[None])[0, :, 0]
    np.testing.assert_allclose(found.astype(float), expected, rtol=0, atol=1e-15)
    for t, value in enumerate(expected):
        assert abs(oracle.enclosure(X, t, 0) - arb(value)) < 1e-15


def test_steps_round_halves_to_even_and_remainders_are_of_floors():
    oracle = Oracle.read('kind = "fixed"\nlags = [1]\nreadout = ["round(2 * x0)", "x0 % 0.75", "x0 // 0.75"]')
    expected = [[1, 0.5, 0], [-2, 0.5, -2], [0, 0.25, 0], [2, 0.25, 1], [-1, 0.25, -1]]
    np.testing.assert_array_equal(oracle.outputs(X[None])[0].astype(float), expected)
    for t in range(5):
        for o in range(3):
            assert oracle.enclosure(X, t, o) == arb(expected[t][o])


def test_pointers_and_blanks():
    text = """
channels = [{ name = "a", values = [0, 1, 2] }, { name = "v", range = [-1, 1] }]
memories = [{ lag = "a0" }, { lag = "a0 + a1" }]
readout = "v1 + 10 * v2"
"""
    x = np.array([[0, 0.5], [1, 0.25], [2, -1.0], [1, 1.0], [2, 0.75]])
    # t = 0: both memories are the present; 1: both are token 0; 2: token 0, then token 0; 3: token 2, then 0; 4: 2, then 0
    expected = [0.5 + 5, 0.5 + 5, 0.5 + 5, -1 + 5, -1 + 5]
    oracle = Oracle.read(text)
    np.testing.assert_array_equal(oracle.outputs(x[None])[0, :, 0].astype(float), expected)
    blank = np.array([[2, 0.5], [2, 0.25]])  # a lag of 2 is before the start, and so is what it leads to
    np.testing.assert_array_equal(oracle.outputs(blank[None])[0, :, 0].astype(float), [0, 0])
    assert oracle.enclosure(blank, 1, 0) == 0


def test_numbers_are_rounded_once():
    oracle = Oracle.read('kind = "fixed"\nlags = [1]\nreadout = ["(0.1 + 0.2 - 0.3) * 1e16", "sin(1e10)"]')
    exact = float((Fraction(0.1) + Fraction(0.2) - Fraction(0.3)) * 10**16)
    assert oracle.outputs(X[None])[0, 0].astype(float).tolist() == [exact, math.sin(1e10)]


def test_a_violation_is_proved_or_none():
    assert exceeds(1.5, arb(1.0), 0.25) and exceeds(math.nan, arb(1.0), 0.25)
    assert not exceeds(1.25, arb(1.0), 0.25) and not exceeds(1.5, arb(1.0, 0.5), 0.25)
    same = Oracle.read('kind = "essential"\nkernels = ["exp(-z)"]\nreadout = "sign(x1 - exp(-x0))"')
    with pytest.raises(Undecided):
        same.enclosure(np.ones((2, 1)), 1, 0)
