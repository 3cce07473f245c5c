"""Interval arithmetic contains what it should, at the points where floating point is awkward."""

import itertools
import math
import random

import pytest

from memloci.expressions.interval import Interval, Undefined, point
from memloci.expressions.language import OPERATIONS

from .exact import Unsure, exact_operation, outside, ulps

INF = math.inf
TINY, HUGE = 5e-324, 1.7976931348623157e308
MAGNITUDES = [TINY, 1e-300, 1e-9, 0.1, 0.5, 1.0, math.pi / 2, 2.0, math.pi, 3.0, 2 * math.pi, 7.5, 22.0]
MAGNITUDES += [300.0, 710.0, 1e6, 2.0**41, 2.0**53 + 2, 1e155, HUGE]
AWKWARD = sorted({s * m for s in (-1.0, 1.0) for m in MAGNITUDES} | {0.0})
SAMPLES = 400  # intervals, or pairs of them, per operation


def _samples(interval: Interval) -> list[float]:
    inner = [x for x in AWKWARD if interval.contains(x)]
    middle = interval.lo / 2 + interval.hi / 2
    return [x for x in {*interval, middle, *inner} if math.isfinite(x) and interval.contains(x)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_enclosure_contains_sampled_values(name):
    operation, choose = OPERATIONS[name], random.Random(name)
    ends = [-INF, *AWKWARD, INF]
    checked = 0
    for _ in range(SAMPLES):
        operands = []
        for _ in range(operation.arity):
            k = choose.randrange(len(ends))
            reach = choose.choice([0, 1, 2, 4, len(ends)])  # narrow ones too: wide ones hide mistakes
            lo, hi = ends[k], ends[min(k + reach, len(ends) - 1)]
            operands.append(Interval(min(lo, HUGE), max(hi, -HUGE)))
        try:
            enclosure = operation.enclose(*operands)
        except Undefined:
            continue
        grid = list(itertools.product(*(_samples(x) for x in operands)))
        for values in choose.sample(grid, min(9, len(grid))):
            try:
                value = exact_operation(name, *values)
            except Unsure:
                continue
            assert not outside(value, enclosure), (name, operands, values, value, enclosure)
            checked += 1
    assert checked > SAMPLES


MODERATE = [-22.0, -math.pi, -2.0, -1.0, -0.5, -0.1, 0.0, 0.1, 0.25, 0.5, 1.0, math.pi / 2, 3.0, 7.5]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_enclosure_at_a_point_is_sharp(name):
    """At points where a value exists the enclosure exists too, and is a few units in the last place wide."""
    operation = OPERATIONS[name]
    checked = 0
    for values in itertools.product(MODERATE, repeat=operation.arity):
        try:
            value = exact_operation(name, *values)
        except Unsure:
            continue
        enclosure = operation.enclose(*map(point, values))
        assert not outside(value, enclosure)
        wide = 64 if name == "**" else 8  # a power is repeated multiplication
        least = 4 * math.ulp(1.0) if name in ("sin", "cos") else 2 * TINY  # near a zero at a multiple of pi
        assert ulps(enclosure) <= wide or enclosure.width <= least, (name, values, enclosure)
        checked += 1
    assert checked >= 5


UNDEFINED = [
    ("/", (Interval(1.0, 2.0), Interval(-1.0, 1.0)), "divisor"),
    ("/", (Interval(1.0, 2.0), point(0.0)), "divisor"),
    ("//", (Interval(1.0, 2.0), Interval(0.0, 1.0)), "divisor"),
    ("%", (Interval(1.0, 2.0), Interval(-1.0, 0.0)), "divisor"),
    ("log", (Interval(0.0, 1.0),), "log"),
    ("sqrt", (Interval(-TINY, 1.0),), "sqrt"),
    ("**", (Interval(-1.0, 1.0), point(-1.0)), "divisor"),
    ("**", (Interval(-1.0, 1.0), point(0.5)), "whole-number"),
    ("**", (Interval(0.0, 1.0), Interval(-1.0, 1.0)), "positive exponent"),
]


@pytest.mark.parametrize(("name", "operands", "reason"), UNDEFINED)
def test_an_operation_that_may_not_exist_says_so(name, operands, reason):
    with pytest.raises(Undefined, match=reason):
        OPERATIONS[name].enclose(*operands)


def test_whole_numbers_stay_points():
    """Lag tables rely on it: what is exact is not widened."""
    for name, expected in {"+": 9, "-": 3, "*": 18, "//": 2, "%": 0, "**": 216, "min": 3, "max": 6}.items():
        assert OPERATIONS[name].enclose(point(6.0), point(3.0)) == point(float(expected)), name
