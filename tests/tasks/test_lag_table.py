"""A lag is looked up, never computed from rounded numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from memloci.core.intervals import Interval, point
from memloci.language.formula import make_formula
from memloci.tasks.memories.lag_table import make_lag_table

TENTHS = tuple(point(k / 10) for k in range(1, 10))


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_every_symbol_finds_its_lag_in_every_precision(dtype, xp):
    """10 * 0.3 and 0.7 / 0.1 are not whole in floating point; the table is exact all the same."""
    for text in ("10 * a0", "a0 / 0.1"):
        table = make_lag_table(make_formula(text, {"a0"}), {"a0": TENTHS})
        values = xp.asarray(np.array([k / 10 for k in range(1, 10)], dtype=dtype))
        np.testing.assert_array_equal(table({"a0": values}, xp), np.arange(1, 10))


def test_a_table_of_two_variables_is_the_formula():
    domains = {"a0": tuple(map(point, (-2.0, 0.5, 3.0))), "a1": tuple(map(point, (0.0, 1.0)))}
    table = make_lag_table(make_formula("where(a1 > a0, 7, 2 * a0 + a1)", domains), domains)
    assert table.reads == ("a0", "a1") and table.bound == 7
    assert table.domains == (domains["a0"], domains["a1"]) and table.cells == [7, 7, 1, 7, 6, 7]
    np.testing.assert_array_equal(table.lags, [[7, 7], [1, 7], [6, 7]])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_value_counts_as_the_nearest_piece(dtype):
    """Recalled values carry an error; below half the margin it vanishes."""
    domains = {"s0": (Interval(-1.0, -0.2), Interval(0.2, 1.0), point(2.0))}
    table = make_lag_table(make_formula("where(s0 > 1.5, 9, where(s0 > 0, 3, 7))", domains), domains)
    values = np.array([-5, -1, -0.2, -0.01, 0.01, 0.2, 1, 1.49, 1.51, 2, 9], dtype=dtype)
    np.testing.assert_array_equal(table({"s0": values}, np), [7, 7, 7, 7, 3, 3, 3, 3, 9, 9, 9])


def test_a_constant_on_an_interval_may_need_splitting():
    domains = {"s0": (Interval(-1.0, -0.2), Interval(0.2, 1.0))}
    table = make_lag_table(make_formula("where(s0 * s0 * s0 - s0 < 2, 4, 5)", domains), domains)
    np.testing.assert_array_equal(table.lags, [4, 4])
