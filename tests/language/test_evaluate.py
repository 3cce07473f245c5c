"""Values, enclosures and slopes of whole expressions."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memloci.core.errors import BadInput
from memloci.core.intervals import WHOLE_LINE, Interval, Undefined
from memloci.language.domain import bounds, check_defined, lipschitz
from memloci.language.evaluate import (
    can_overflow,
    doubtful,
    enclose,
    enclose_boxes,
    evaluate,
    on_boxes,
    slopes,
)
from memloci.language.expression import Expression
from memloci.language.operations import OPERATIONS
from memloci.language.parse import parse
from tests.thorough import few

from .exact import Unsure, exact, outside
from .texts import NAMES, boxes_with_points, expression_texts

EPS = np.finfo(float).eps


def _parsed(text: str) -> Expression:
    try:
        return parse(text, NAMES)
    except BadInput:  # numbers that do not exist; test_parse.py
        assume(False)
        raise


@settings(max_examples=few(400), deadline=None)
@given(expression_texts, boxes_with_points())
def test_an_enclosure_contains_every_value_on_its_box(text, place):
    expression, (box, point, other) = _parsed(text), place
    try:
        enclosure = enclose(expression, box)
        values = [exact(expression, p) for p in (point, other)]
    except (Undefined, Unsure):
        assume(False)
        return
    for value in values:
        assert not outside(value, enclosure), (value, enclosure)


@settings(max_examples=few(400), deadline=None)
@given(expression_texts, boxes_with_points())
def test_slopes_contain_every_difference_quotient(text, place):
    """Mean value theorem; where the expression jumps, its slopes must be unbounded."""
    expression, (box, point, other) = _parsed(text), place
    for name in NAMES:
        moved = {**point, name: other[name]}
        if moved == point:
            continue
        try:
            found = slopes(expression, box).get(name, Interval(0.0, 0.0))
            change = exact(expression, moved) - exact(expression, point)
        except (Undefined, Unsure):
            continue
        quotient = change / exact(parse("x - y", NAMES), {"x": moved[name], "y": point[name]})
        assert not outside(quotient, found), (name, quotient, found)


@settings(max_examples=few(400), deadline=None)
@given(expression_texts, st.lists(boxes_with_points(), min_size=1, max_size=4))
def test_many_boxes_are_enclosed_as_each_of_them_alone(text, places):
    """Values and slopes on arrays of boxes contain the truth, and are the whole line where one box is refused."""
    expression = _parsed(text)
    box = {
        name: Interval(*(np.array([box[name][end] for box, _, _ in places]) for end in (0, 1)))
        for name in NAMES
    }
    value, partials = on_boxes(expression, box)
    only_value = enclose_boxes(expression, box)
    at = lambda found, k: Interval(*(float(np.broadcast_to(end, len(places))[k]) for end in found))
    for k, (alone, point, other) in enumerate(places):
        found, again = at(value, k), at(only_value, k)
        assert found == again and found.lo <= found.hi
        try:
            enclose(expression, alone)
        except Undefined:
            assert found == WHOLE_LINE
            continue
        for name in NAMES:
            moved = {**point, name: other[name]}
            try:
                here, there = exact(expression, point), exact(expression, moved)
            except Unsure:
                continue
            assert not outside(here, found) and not outside(there, found), (k, here, there, found)
            if moved != point:
                slope = at(partials.get(name, Interval(0.0, 0.0)), k)
                width = exact(parse("x - y", NAMES), {"x": moved[name], "y": point[name]})
                assert not outside((there - here) / width, slope), (k, name, here, there, slope)


@settings(max_examples=few(30), deadline=None)
@given(expression_texts, boxes_with_points())
def test_bounds_and_lipschitz_dominate(text, place):
    """The same for the answers after splitting; these are what later stages consume."""
    expression, (box, point, other) = _parsed(text), place
    domains = {name: (part,) for name, part in box.items()}
    try:
        enclose(expression, box)
        values = {name: exact(expression, {**point, name: other[name]}) for name in NAMES}
        here = exact(expression, point)
    except (Undefined, Unsure):
        assume(False)
        return
    limits, steepness = bounds(expression, domains), lipschitz(expression, domains)
    assert not outside(here, limits)
    for name, value in values.items():
        assert not outside(value, limits)
        reach = steepness.get(name, 0.0) * abs(other[name] - point[name]) * (1 + 4 * EPS)
        assert not abs(value - here) > reach, (name, value, here, reach)


@settings(max_examples=few(150), deadline=None)
@given(expression_texts, boxes_with_points())
def test_numpy_evaluates_to_the_real_value(text, place):
    """Up to rounding: a few ulps for each operation, scaled by how steep the expression is.

    On all that a task accepts: no value on the way may exceed float64.
    """
    expression, (_, point, _) = _parsed(text), place
    around = {name: Interval(v - 1e-9 * (1 + abs(v)), v + 1e-9 * (1 + abs(v))) for name, v in point.items()}
    try:
        assume(not can_overflow(expression, around))
        value, nearby = exact(expression, point), enclose(expression, around)
    except (Undefined, Unsure):
        assume(False)
        return
    with np.errstate(all="ignore"):
        found = float(evaluate(expression, {n: np.float64(v) for n, v in point.items()}, np))
    slack = 1e-7 * (1 + abs(float(value)))
    assert nearby.lo - slack <= found <= nearby.hi + slack


@pytest.mark.parametrize(
    "text", ["sin(x ** x)", "1 / (1 + exp(6 * x))", "where(x > 143, tanh(exp(6 * x)), x)"]
)
def test_a_value_on_the_way_that_exceeds_float64_is_refused(text):
    """sin(144 ** 144) is a number, and every program that computes it in float64 answers NaN."""
    with pytest.raises(BadInput, match="can exceed float64"):
        check_defined(parse(text, NAMES), {"x": (Interval(1.0, 200.0),)})
    check_defined(parse(text, NAMES), {"x": (Interval(1.0, 100.0),)})


@pytest.mark.parametrize(
    "text",
    [
        "x * y - x / (y + 3)",
        "exp(x) * sin(3 * y) + cos(x * y)",
        "tanh(x) ** 3 + (x - y) ** 2 + sqrt(y + 2)",
        "max(x, y) + min(x * y, 0.2) + abs(x - 0.3)",
        "where(x > y, x, y) + log(x + 2) * (y + 2) ** 1.5 + 2 ** x",
    ],
)
def test_many_small_boxes_contain_what_numpy_computes(text):
    """Values, and changes between two points by the mean value theorem; both are sharp on small boxes."""
    f = parse(text, NAMES)
    rng = np.random.default_rng(0)
    centre, radius = rng.uniform(-0.8, 0.8, (400, 2)), rng.uniform(0, 0.2, (400, 2))
    box = {
        name: Interval(centre[:, i] - radius[:, i], centre[:, i] + radius[:, i])
        for i, name in enumerate(NAMES)
    }
    value, partials = on_boxes(f, box)
    assert np.max(value.hi - value.lo) < 16 and np.median(value.hi - value.lo) < 2
    for _ in range(20):
        v = centre + radius * rng.uniform(-1, 1, (400, 2))
        at = lambda v: evaluate(f, {"x": v[:, 0], "y": v[:, 1]}, np)
        assert np.all((value.lo <= at(v)) & (at(v) <= value.hi))
        w = centre + radius * rng.uniform(-1, 1, (400, 2))
        low, high = np.zeros(400), np.zeros(400)
        for i, name in enumerate(NAMES):
            ends = [partials[name].lo * (w - v)[:, i], partials[name].hi * (w - v)[:, i]]
            low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        change = at(w) - at(v)
        assert np.all((low - 1e-12 <= change) & (change <= high + 1e-12))


UNKNOWN = {  # expressions without a value on [-1, 1], and what an evaluator might believe
    "log(x) + 1 / x": "anything",
    "0 * log(x)": "0",
    "tanh(1 / x)": "a value within 1",
    "sqrt(x) ** 0": "1",
    "(tanh(log(x)) ** 2 < 2) + 3": "4",
    "where(y > 5, log(x), 1 / x)": "one of two that do not exist",
    "where(0 * log(x), x, 2 * x)": "2 * x",
    "where(x > 0, x, x / 0)": "x",
    "where(x > 0, x, 1 / (0 * x))": "x",
    "where(x > 0, x, 0 / where(1, 0, x))": "x",
    "where(x > 0, x, sqrt(0 * x - 1))": "x",
    "where(x > 0, x, 1 // (0 * x))": "x",
    "where(x > 0, x, 1 % (0 * x))": "x",
    "where(x > 0, x, log(0 * x))": "x",
    "where(x > 0, x, (0 * x - 2) ** 0.5)": "x",
}


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_undefined_value_is_unknown_not_wrong(text):
    """Whatever is done with it afterwards. Beside it, on [1, 2], the value exists."""
    f = parse(text, NAMES)
    with pytest.raises(Undefined):
        enclose(f, {"x": Interval(-1.0, 1.0), "y": Interval(0.0, 1.0)})
    x = Interval(np.array([-1.0, 1.0]), np.array([1.0, 2.0]))
    value, partials = on_boxes(f, {"x": x, "y": Interval(np.zeros(2), np.ones(2))})
    for found in (value, partials["x"]):
        assert (found.lo[0], found.hi[0]) == (-math.inf, math.inf)
        assert np.isfinite(found.lo[1]) and np.isfinite(found.hi[1])


def test_of_many_boxes_each_takes_its_own_branch():
    """The branch that a box does not take need not exist there."""
    x = Interval(np.array([-1.0, 1.0, -1.0]), np.array([-0.5, 2.0, 2.0]))
    value, partials = on_boxes(parse("where(x > 0, log(x), 3 * x)", ("x",)), {"x": x})
    assert value.lo[0] <= -3 and value.hi[0] >= -1.5 and value.hi[0] - value.lo[0] < 1.5 + 1e-12
    assert value.lo[1] <= 0 and value.hi[1] >= math.log(2) and value.hi[1] - value.lo[1] < 0.7
    assert (partials["x"].lo[0], partials["x"].hi[0]) == pytest.approx((3, 3))
    assert (partials["x"].lo[1], partials["x"].hi[1]) == pytest.approx((0.5, 1))
    assert (value.lo[2], value.hi[2]) == (-math.inf, math.inf)


OPERANDS = [-22.0, -3.0, -2.0, -1.0, -0.5, -1e-9, 0.0, 1e-9, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 7.5, 300.0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_jax_and_numpy_agree_on_every_operation(name, dtype):
    operation = OPERATIONS[name]
    grid = np.array(list(itertools.product(OPERANDS, repeat=operation.arity)), dtype=dtype).T
    with np.errstate(all="ignore"):
        expected = operation.apply(np, *grid)
    found = np.asarray(operation.apply(jnp, *map(jnp.asarray, grid)))
    assert found.dtype == expected.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(dtype).eps, atol=np.finfo(dtype).tiny)


dyadic = st.integers(-64, 64).map(lambda k: k / 8)
exact_texts = st.recursive(
    st.sampled_from(["x", "y", "1", "2", "0.5", "0.25"]),
    lambda inner: st.one_of(
        st.builds("({}) {} ({})".format, inner, st.sampled_from("+ - * < <= > >= == !=".split()), inner),
        st.builds("{}({})".format, st.sampled_from("abs floor round sign - not".split()), inner).map(
            lambda text: f"({text})"
        ),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
        st.builds("where({}, {}, {})".format, inner, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=few(100), deadline=None)
@given(exact_texts, st.lists(st.tuples(dyadic, dyadic), min_size=1, max_size=5))
def test_jax_numpy_and_real_values_are_equal_where_arithmetic_is_exact(text, points):
    expression = parse(text, NAMES)
    x, y = (np.array(column) for column in zip(*points, strict=True))
    with_numpy = np.broadcast_to(evaluate(expression, {"x": x, "y": y}, np), x.shape)
    with_jax = evaluate(expression, {"x": jnp.asarray(x), "y": jnp.asarray(y)}, jnp)
    real = [float(exact(expression, {"x": a, "y": b})) for a, b in points]
    np.testing.assert_array_equal(with_numpy, real)
    np.testing.assert_array_equal(np.broadcast_to(np.asarray(with_jax), x.shape), real)


GUARDED = {
    "where(x > 0.5, 1 / x, x)": lambda x: -1 / x**2 if x > 0.5 else 1.0,
    "where(x > 0.5, log(x), 0)": lambda x: 1 / x if x > 0.5 else 0.0,
    "where(x > 0.5, where(x > 1, sqrt(x - 1), x), 2 * x)": lambda x: (
        0.5 / math.sqrt(x - 1) if x > 1 else 1.0 if x > 0.5 else 2.0
    ),
    "x * where(x > 0.5, x ** 0.5, 1)": lambda x: 1.5 * math.sqrt(x) if x > 0.5 else 1.0,
}


@pytest.mark.parametrize("text", GUARDED)
def test_the_branch_not_taken_leaves_the_derivative_alone(text):
    expression = parse(text, NAMES)
    derivative = jax.grad(lambda x: evaluate(expression, {"x": x}, jnp))
    for x in (-2.0, -1.0, 0.0, 0.25, 0.75, 2.0):
        np.testing.assert_allclose(derivative(x), GUARDED[text](x), rtol=8 * EPS)
    evaluate(expression, {"x": np.array([-1.0, 0.0, 2.0])}, np)  # warnings are errors here


SLOPES = {
    "x ** y at a whole exponent": ("x ** y", {"x": (2, 2), "y": (3, 3)}, {"x": 12, "y": 8 * math.log(2)}),
    "x ** 0.1": ("x ** 0.1", {"x": (1, 1), "y": (0, 0)}, {"x": 0.1}),
    "x / y": ("x / y", {"x": (1, 1), "y": (2, 2)}, {"x": 0.5, "y": -0.25}),
    "x % y": ("x % y", {"x": (7, 7), "y": (2.5, 2.5)}, {"x": 1, "y": -2}),
    "where": ("where(x > 0, x ** 2, y)", {"x": (3, 3), "y": (1, 1)}, {"x": 6}),
    "max": ("max(3 * x, y)", {"x": (1, 1), "y": (0, 0)}, {"x": 3, "y": 0}),
    "tanh": ("tanh(x)", {"x": (0, 0), "y": (0, 0)}, {"x": 1}),
    "sqrt": ("sqrt(x)", {"x": (4, 4), "y": (0, 0)}, {"x": 0.25}),
}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_at_a_point_are_the_derivative(name):
    text, box, expected = SLOPES[name]
    found = slopes(parse(text, NAMES), {n: Interval(*map(float, ends)) for n, ends in box.items()})
    assert found.keys() == expected.keys()
    for variable, value in expected.items():
        assert found[variable].lo <= value <= found[variable].hi
        assert found[variable].width <= 1e-14 * (1 + abs(value))


JUMPS = ["floor(x)", "round(x)", "sign(x)", "x > 0.25", "where(x, y, 1)", "x // 0.5", "x % 0.5", "not x"]


@pytest.mark.parametrize("text", JUMPS)
def test_a_jump_has_no_lipschitz_constant(text):
    domains = {name: (Interval(-1.0, 1.0),) for name in NAMES}
    assert lipschitz(parse(text, NAMES), domains)["x"] == math.inf


def test_what_is_not_known_is_in_doubt():
    """A jump that intervals cannot place, a value beyond float64, a value that does not exist; and nothing else."""
    z = np.arange(1.0, 7.0)
    assert doubtful(parse("floor(z / 3)", ("z",)), {"z": z}).tolist() == [2, 5]
    assert doubtful(parse("floor(exp(300 * z))", ("z",)), {"z": z}).tolist() == [2, 3, 4, 5]
    assert doubtful(parse("where(log(z - 3) > 0, 1, 2)", ("z",)), {"z": z}).tolist() == [0, 1, 2, 3]
    assert doubtful(parse("z ** -2 + floor(z + 0.5)", ("z",)), {"z": z}).tolist() == []
