"""Values, enclosures and slopes of whole expressions."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memloci.errors import BadInput
from memloci.expressions.domain import bounds, lipschitz
from memloci.expressions.evaluate import enclose, evaluate, slopes
from memloci.expressions.interval import Interval, Undefined
from memloci.expressions.language import OPERATIONS
from memloci.expressions.parse import Expression, parse

from .exact import Unsure, exact, outside
from .texts import NAMES, boxes_with_points, expression_texts

EPS = np.finfo(float).eps


def _parsed(text: str) -> Expression:
    try:
        return parse(text, NAMES)
    except BadInput:  # numbers that do not exist; test_parse.py
        assume(False)
        raise


@settings(max_examples=400, deadline=None)
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


@settings(max_examples=400, deadline=None)
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


@settings(max_examples=30, deadline=None)
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


@settings(max_examples=150, deadline=None)
@given(expression_texts, boxes_with_points())
def test_numpy_evaluates_to_the_real_value(text, place):
    """Up to rounding: a few ulps for each operation, scaled by how steep the expression is."""
    expression, (_, point, _) = _parsed(text), place
    around = {name: Interval(v - 1e-9 * (1 + abs(v)), v + 1e-9 * (1 + abs(v))) for name, v in point.items()}
    try:
        value, nearby = exact(expression, point), enclose(expression, around)
    except (Undefined, Unsure):
        assume(False)
        return
    with np.errstate(all="ignore"):
        found = float(evaluate(expression, {n: np.float64(v) for n, v in point.items()}, np))
    slack = 1e-7 * (1 + abs(float(value)))
    assert nearby.lo - slack <= found <= nearby.hi + slack


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


@settings(max_examples=100, deadline=None)
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
