"""Interval arithmetic contains the truth, on one interval and on arrays of them, and both agree."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memloci.core import intervals as iv
from memloci.core.intervals import WHOLE_LINE, Interval, point
from tests.language.exact import Unsure, exact_operation, outside
from tests.thorough import few

INF = math.inf


@pytest.mark.parametrize(
    ("function", "lo", "hi", "slack"),
    [
        ("exp", -30.0, 30.0, 1e-13),
        ("exp", -700.0, 700.0, 1e-13),
        ("log", 1e-8, 50.0, 1e-9),
        ("cos", -20.0, 20.0, 1e-9),
        ("sin", -4e5, 4e5, 1e-3),
        ("tanh", -30.0, 30.0, 1e-9),
        ("sqrt", 0.0, 50.0, 1e-14),
    ],
)
def test_functions_of_arrays_agree_with_arb(function, lo, hi, slack):
    """The enclosures contain Arb's values, and are sharp."""
    x = np.random.default_rng(0).uniform(lo, hi, 2_000)
    with np.errstate(all="ignore"):
        found = getattr(iv, function)(Interval(x, x))
    with ctx.workprec(200):
        for at, low, high in zip(x, found.lo, found.hi, strict=True):
            value = getattr(arb(float(at)), function)().mid()
            assert arb(float(low)) <= value <= arb(float(high))
            assert high - low <= slack * max(abs(low), 1e-6)


EXTREMES = [
    5e-324,
    1e-310,
    2.0**-1022,
    1e-300,
    1e-9,
    0.5,
    1.0,
    math.pi,
    354.0,
    709.0,
    709.7,
    709.8,
    745.0,
    2.0**19,
]
EXTREMES += [2.0**19 + 1, 1e9, 1e22, 1e155, 1e300, 1.7976931348623157e308]


@pytest.mark.parametrize("function", ["exp", "log", "cos", "sin", "tanh", "sqrt"])
def test_functions_of_extreme_numbers_are_enclosed(function):
    """At subnormal numbers, at the ends of the exponential and far out on the circle, alone and in arrays."""
    positive = function in ("log", "sqrt")
    x = np.array([sign * size for sign in ((1,) if positive else (1, -1)) for size in EXTREMES])
    with np.errstate(all="ignore"):
        many = getattr(iv, function)(Interval(x, x))
    for k, at in enumerate(x.tolist()):
        alone, together = getattr(iv, function)(point(at)), Interval(float(many.lo[k]), float(many.hi[k]))
        try:
            value = exact_operation(function, at)
        except Unsure:  # e ** 1e155 is beyond Arb, too
            assert alone.hi == together.hi == INF
            continue
        assert not outside(value, alone) and not outside(value, together)
    with np.errstate(all="ignore"):
        ends = getattr(iv, function)(Interval(np.array([0.25]), np.array([INF])))
    assert ends.hi[0] == {"cos": 1, "sin": 1, "tanh": 1}.get(function, INF)
    assert getattr(iv, function)(Interval(0.25, INF)).hi == ends.hi[0]


# The rules by the names of their operations, and where each is meant to be used.
ANYWHERE: Callable[..., bool] = lambda *x: True
NOT_BY_ZERO: Callable[..., bool] = lambda x, y: not y.contains(0.0)
RULES: dict[str, tuple[Callable[..., Interval], int, Callable[..., bool]]] = {
    "+": (iv.add, 2, ANYWHERE),
    "-": (iv.sub, 2, ANYWHERE),
    "*": (iv.mul, 2, ANYWHERE),
    "/": (iv.div, 2, NOT_BY_ZERO),
    "//": (iv.floordiv, 2, NOT_BY_ZERO),
    "%": (iv.mod, 2, NOT_BY_ZERO),
    "**": (iv.power, 2, lambda x, y: x.lo > 0),
    "neg": (iv.neg, 1, ANYWHERE),
    "abs": (iv.absolute, 1, ANYWHERE),
    "min": (iv.minimum, 2, ANYWHERE),
    "max": (iv.maximum, 2, ANYWHERE),
    "exp": (iv.exp, 1, ANYWHERE),
    "log": (iv.log, 1, lambda x: x.lo > 0),
    "sqrt": (iv.sqrt, 1, lambda x: x.lo >= 0),
    "tanh": (iv.tanh, 1, ANYWHERE),
    "cos": (iv.cos, 1, ANYWHERE),
    "sin": (iv.sin, 1, ANYWHERE),
    "floor": (iv.floor, 1, ANYWHERE),
    "round": (iv.rounded, 1, ANYWHERE),
    "sign": (iv.sign, 1, ANYWHERE),
    "<": (iv.less, 2, ANYWHERE),
    "<=": (iv.less_equal, 2, ANYWHERE),
    "==": (iv.equal, 2, ANYWHERE),
    "and": (iv.conjunction, 2, ANYWHERE),
    "or": (iv.disjunction, 2, ANYWHERE),
    "not": (iv.negation, 1, ANYWHERE),
    "where": (iv.select, 3, ANYWHERE),
}

numbers = st.one_of(
    st.integers(-9, 9).map(float),
    st.floats(-8, 8),
    st.floats(-1e4, 1e4),
    st.floats(allow_nan=False, allow_infinity=False),
)
intervals = st.tuples(numbers, numbers, st.booleans()).map(
    lambda ends: point(ends[0]) if ends[2] else Interval(min(ends[:2]), max(ends[:2]))
)


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=few(60), deadline=None)
@given(data=st.data())
def test_arrays_and_single_intervals_enclose_the_same_truth(name, data):
    """On every box: the values at the ends and in between lie in both enclosures."""
    rule, arity, meant = RULES[name]
    boxes = data.draw(st.lists(st.tuples(*[intervals] * arity), min_size=1, max_size=5))
    boxes = [box for box in boxes if meant(*box)]
    assume(boxes)
    with np.errstate(all="ignore"):
        columns = [Interval(*map(np.array, zip(*column, strict=True))) for column in zip(*boxes, strict=True)]
        many = rule(*columns)
    for k, box in enumerate(boxes):
        alone = rule(*box)
        together = Interval(*(float(np.broadcast_to(end, len(boxes))[k]) for end in many))
        assert alone.lo <= alone.hi and together.lo <= together.hi
        for values in itertools.product(*({x.lo, x.lo / 2 + x.hi / 2, x.hi} for x in box)):
            if not all(x.contains(v) for x, v in zip(box, values, strict=True)):
                continue  # the middle of two neighbours, rounded
            try:
                value = exact_operation(name, *values)
            except Unsure:
                continue
            assert not outside(value, alone), (box, values, value, alone)
            assert not outside(value, together), (box, values, value, together)


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_one_interval_may_stand_for_all_boxes(name, data):
    """Operands that are arrays and operands that are single intervals mix: a number stands for all boxes."""
    rule, arity, meant = RULES[name]
    box = data.draw(st.tuples(*[intervals] * arity))
    assume(meant(*box))
    for single in range(arity):
        operands = [
            x if k == single else Interval(np.array([x.lo, x.lo]), np.array([x.hi, x.hi]))
            for k, x in enumerate(box)
        ]
        with np.errstate(all="ignore"):
            mixed = rule(*operands)
        for values in itertools.product(*box):
            try:
                value = exact_operation(name, *values)
            except Unsure:
                continue
            for k in (0, 1):
                found = Interval(*(float(np.broadcast_to(end, 2)[k]) for end in mixed))
                assert not outside(value, found), (box, values, value, found)


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_number_of_numpy_is_a_number(name, data):
    """float64 scalars, as they come out of arrays, give what Python's floats give."""
    rule, arity, meant = RULES[name]
    box = data.draw(st.tuples(*[intervals] * arity))
    assume(meant(*box))
    with np.errstate(all="ignore"):
        assert rule(*(Interval(np.float64(x.lo), np.float64(x.hi)) for x in box)) == rule(*box)


POWERS = [-1025, -1024, -7, -3, -2, -1, 0, 1, 2, 3, 8, 1023, 1024]


@pytest.mark.parametrize("n", POWERS)
@given(x=intervals)
def test_whole_powers_of_both_signs_are_enclosed(n, x):
    """Also where the power is below the smallest number, or above the largest."""
    assume(n >= 0 or not x.contains(0.0))
    alone = iv.integer_power(x, n)
    with np.errstate(all="ignore"):
        many = iv.integer_power(Interval(np.array([x.lo]), np.array([x.hi])), n)
    together = Interval(*(float(np.broadcast_to(end, 1)[0]) for end in many))
    for at in x:
        value = exact_operation("**", at, float(n))
        assert alone.lo <= alone.hi and not outside(value, alone), (value, alone)
        assert together.lo <= together.hi and not outside(value, together), (value, together)


def test_a_divisor_that_cannot_be_told_from_zero_gives_the_whole_line():
    unknown = Interval(0.0, 5e-324)
    assert iv.div(point(1.0), unknown) == WHOLE_LINE
    many = iv.div(point(1.0), Interval(np.array([0.0, -5e-324, 2.0]), np.array([5e-324, 5e-324, 4.0])))
    np.testing.assert_array_equal(many.lo[:2], -INF)
    np.testing.assert_array_equal(many.hi[:2], INF)
    assert many.lo[2] <= 0.25 and many.hi[2] >= 0.5


@given(intervals)
def test_the_halves_of_an_interval_are_the_interval(x):
    assume(math.isfinite(x.width))
    left, right = x.halves()
    assert left.lo == x.lo and left.hi == right.lo and right.hi == x.hi
    assert left.lo <= left.hi <= right.hi and iv.hull(left, right) == x


@given(intervals)
def test_the_magnitude_is_the_largest_absolute_value(x):
    assert x.magnitude == iv.absolute(x).hi == max(abs(x.lo), abs(x.hi))
    assert x.contains(x.lo) and x.contains(x.hi) and x.is_point == (x.width == 0 and x.lo == x.hi)


def test_sums_that_are_exact_stay_points():
    """At each end by itself: sqrt(x + 1) is defined at x = -1 only if the sum is not widened there."""
    assert iv.add(Interval(-1.0, 0.1), point(1.0)).lo == 0.0
    many = iv.add(Interval(np.array([-1.0, 2.0]), np.array([0.1, 3.0])), point(1.0))
    np.testing.assert_array_equal(many.lo, [0.0, 3.0])
    assert many.hi[1] == 4.0 and many.hi[0] > 1.1 - 1e-15


TINY_BASES = [0.0, 5e-324, 1e-310, 1e-301, 2e-300, 1e-299, 0.5, 3.0]


@pytest.mark.parametrize(
    "exponents", [(-2.5, -0.5), (-0.5, 0.5), (0.25, 1.5), (-0.5, -0.5), (0.5, 0.5), (0.0, 0.3)]
)
def test_powers_of_bases_as_small_as_any_number_are_enclosed(exponents):
    """Every base in (0, 1e-300) counts, also where the interval of bases begins at 0."""
    y = Interval(*exponents)
    pairs = [(a, b) for a in TINY_BASES for b in TINY_BASES if a <= b]
    with np.errstate(all="ignore"):
        many = iv.power(
            Interval(*map(np.array, zip(*pairs, strict=True))), Interval(*(np.full(len(pairs), e) for e in y))
        )
    for k, (a, b) in enumerate(pairs):
        alone, together = iv.power(Interval(a, b), y), Interval(float(many.lo[k]), float(many.hi[k]))
        for x, at in itertools.product([z for z in TINY_BASES if a <= z <= b and z > 0], {*y, sum(y) / 2}):
            with ctx.workprec(200):
                value = arb(x) ** arb(at)
                assert not outside(value, alone) and not outside(value, together), (a, b, x, at)
