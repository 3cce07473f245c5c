# pyright: reportOptionalOperand=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportArgumentType=false
"""Intervals cover as often as they say, and verdicts follow the rule."""

import math
import random

import pytest
from scipy import stats

from memloci.study.statistics import (
    Estimate,
    Part,
    combination,
    difference,
    kendall,
    mean,
    overall,
    shared_level,
    slope,
)

CONFIRMED, REFUTED, OPEN = Estimate(1.0, 0.5, 1.5), Estimate(-1.0, -1.5, -0.5), Estimate(0.1, -0.5, 0.7)


def _part(effect, side="above"):
    return Part("says", effect, 0.0, "decades", side)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_mean_has_students_interval(level):
    values = [1.0, 2.0, 4.0, 8.0, 9.0]
    found = mean(values, level)
    low, high = stats.t.interval(level, 4, loc=4.8, scale=stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((4.8, low, high))


def test_a_difference_is_welchs():
    a, b = [1.0, 2.0, 4.0, 8.0], [0.5, 0.6, 0.4, 0.1, 0.9]
    found, welch = difference(a, b), stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((welch.low, welch.high))


def test_intervals_of_combinations_cover():
    """1,000 experiments with three arms of unequal spread: about 95 of 100 intervals hold the truth."""
    chance, held = random.Random(0), 0
    for _ in range(1000):
        arms = [[chance.gauss(m, s) for _ in range(5)] for m, s in ((1.0, 0.1), (2.0, 1.0), (0.5, 0.3))]
        found = combination([(1.0, arms[0]), (1.0, arms[1]), (-2.0, arms[2])])
        held += found.low <= 2.0 <= found.high
    assert 930 <= held <= 985


def test_a_computed_number_adds_no_uncertainty():
    values = [1.0, 1.2, 0.9, 1.4, 1.1]
    one, two = mean(values), difference(values, [0.5])
    assert two.high - two.low == pytest.approx(one.high - one.low)
    assert two.value == pytest.approx(one.value - 0.5)


def test_no_values_no_number():
    assert difference([1.0, 2.0], []) == Estimate(None, None, None)
    assert _part(difference([1.0, 2.0], [])).verdict == "inconclusive"


def test_equal_values_are_certain():
    assert mean([2.0, 2.0, 2.0]) == Estimate(2.0, 2.0, 2.0)


def test_the_slope_of_a_power_law_is_its_power():
    x = [1.0, 2.0, 4.0, 8.0, 16.0]
    found = slope(x, [math.log10(3.0 * v**-1.7) for v in x])
    assert found.value == pytest.approx(-1.7)
    assert found.low == pytest.approx(-1.7) and found.high == pytest.approx(-1.7)


def test_the_interval_of_a_slope_is_that_of_regression():
    x, y = [1.0, 10.0, 100.0, 1000.0], [0.1, -0.9, -2.2, -2.9]
    found, fit = slope(x, y), stats.linregress([0, 1, 2, 3], y)
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.975, 2) * fit.stderr)
    assert slope([2.0, 2.0], [1.0, 2.0]).value is None


@pytest.mark.parametrize("seed", range(5))
def test_kendall_is_scipys(seed):
    chance = random.Random(seed)
    a, b = ([chance.random() for _ in range(7)] for _ in range(2))
    assert kendall(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)


def test_a_part_is_judged_by_its_whole_interval():
    assert [_part(e).verdict for e in (CONFIRMED, REFUTED, OPEN)] == ["confirmed", "refuted", "inconclusive"]
    assert [_part(e, "below").verdict for e in (CONFIRMED, REFUTED, OPEN)] == [
        "refuted",
        "confirmed",
        "inconclusive",
    ]


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ((CONFIRMED, CONFIRMED), "confirmed"),
        ((CONFIRMED, OPEN), "inconclusive"),
        ((CONFIRMED, OPEN, REFUTED), "refuted"),
        ((), "inconclusive"),
    ],
)
def test_one_part_refutes_and_all_confirm(effects, verdict):
    assert overall([_part(effect) for effect in effects]) == verdict


def test_parts_share_the_five_percent():
    """With no effect at all, a claim of 4 parts is called something in at most about 5 of 100 studies."""
    chance, wrong = random.Random(1), 0
    for _ in range(500):
        parts = [
            _part(difference(*([chance.gauss(0, 1) for _ in range(5)] for _ in range(2)), shared_level(4)))
            for _ in range(4)
        ]
        wrong += any(part.verdict != "inconclusive" for part in parts)
    assert wrong <= 40
