"""The target is its definition, at every position, in either precision, alone and in batches."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memloci.tasks.gallery import GALLERY
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.task import Task

from . import oracle
from .cases import CASES, SHAPES, draw

ALL = pytest.mark.parametrize("name", CASES)
FINITE_LAGS = [
    name
    for name in CASES
    if name not in ("beyond", "adaptive-beyond", "delay-far", "pointer-far")
    and CASES[name]().farthest < math.inf
]
NO_MATCH = [name for name in CASES if not any(hasattr(memory, "match") for memory in CASES[name]().memories)]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def roundoff(task: Task, X: Any, Y: Any, dtype: str) -> float:
    """A few ulps of the largest number met; a convolution adds one per term, weighted by its kernel."""
    scale = 1.0 + np.abs(Y).max(initial=0.0) + np.abs(X).max(initial=0.0)
    terms = 0.0
    norms = [recall.norm for recall in task.recalls if isinstance(recall, Convolution)]
    if norms:
        steep = [slope for slope in task.lip_f.values() if math.isfinite(slope)]
        terms = len(X) * max(norms) * max(1.0, *steep)
    return float((32 + 2 * terms) * np.finfo(dtype).eps * scale)


# Most tests take sequences of 40 tokens: what JAX compiles for that length serves them all.


@pytest.mark.long(8)
@pytest.mark.parametrize(("dtype", "lengths"), [("float64", (0, 1, 40)), ("float32", (40,))])
@ALL
def test_the_target_equals_the_oracle(name, dtype, lengths, rng):
    task = CASES[name]()
    for n in lengths:
        X = draw(task, rng, n).astype(dtype)
        Y = np.asarray(task.target(X))
        expected = oracle.target(task, X)
        assert Y.dtype == dtype and Y.shape == expected.shape == (n, task.outputs)
        np.testing.assert_allclose(Y, expected, rtol=0, atol=roundoff(task, X, expected, dtype))


@pytest.mark.long(2)
@pytest.mark.long
@ALL
def test_a_batch_is_its_sequences(name, rng):
    task = CASES[name]()
    X = jnp.asarray(draw(task, rng, 2, 2, 17))
    together = task.target(X)
    assert together.shape == (2, 2, 17, task.outputs)
    alone = jnp.stack([jnp.stack([task.target(one) for one in row]) for row in X])
    np.testing.assert_allclose(together, alone, rtol=0, atol=roundoff(task, X[0, 0], alone, "float64"))
    mapped = jax.vmap(jax.vmap(task.target))(X)
    np.testing.assert_array_equal(together, mapped)


@pytest.mark.long(4)
@ALL
def test_jit_changes_nothing(name, rng):
    task = CASES[name]()
    X = jnp.asarray(draw(task, rng, 40))
    expected = task.target(X)
    np.testing.assert_allclose(
        jax.jit(task.target)(X), expected, rtol=0, atol=roundoff(task, X, expected, "float64")
    )


@pytest.mark.long(6)
@ALL
def test_the_future_does_not_change_the_past(name, rng):
    task = CASES[name]()
    X = draw(task, rng, 40)
    for t in (0, 38):
        other = X.copy()
        other[t + 1 :] = draw(task, rng, 39 - t)
        before, after = np.asarray(task.target(X)), np.asarray(task.target(other))
        np.testing.assert_array_equal(before[: t + 1], after[: t + 1])


@pytest.mark.parametrize("name", [name for name in NO_MATCH if CASES[name]().K == 0])
def test_blanks_in_front_change_nothing(name, rng):
    """Time homogeneity: the past before the start is 0, so zeros in front only shift the target. A match finds them."""
    task = CASES[name]()
    X = draw(task, rng, 17)
    shifted = task.target(np.concatenate([np.zeros((23, task.d)), X]))[23:]
    expected = oracle.target(task, X)
    np.testing.assert_allclose(shifted, expected, rtol=0, atol=roundoff(task, X, expected, "float64"))


@pytest.mark.long
@pytest.mark.parametrize("name", FINITE_LAGS)
def test_beyond_the_largest_lag_any_past_will_do(name, rng):
    """Time homogeneity for nested lags too: H_t sees the last T tokens, wherever they stand."""
    task = CASES[name]()
    T = int(max(task.lag_bounds, default=0))
    X, past = draw(task, rng, T + 10), draw(task, rng, 7)
    shifted = task.target(np.concatenate([past, X]))[len(past) :]
    np.testing.assert_array_equal(shifted[T:], task.target(X)[T:])


def test_a_memory_of_a_blank_is_blank():
    """By hand: a0 = 2 everywhere, so the first memory at t = 1 is blank and the second one too, although
    a blank reads 0 and 0 + 1 would be a lag within the sequence."""
    task = CASES["zero-symbol"]()
    X = np.array([[0, 0.5], [0, 0.25], [0, -0.5], [0, 1.0], [0, 0.125], [0, -1.0]])
    # lags 4, then a1 + 1 = 1, then a2 + 1 = 1: the third memory is x_{t-1} once t >= 4.
    np.testing.assert_array_equal(task.target(X)[:, 0], [0, 0, 0, 0, 1.0, 0.125])


def test_nested_pointers_by_hand():
    task = GALLERY["nested-1"]()  # lags 2 a0 and 2 a0 + a1, both from t
    a, v = [1, 3, 1, 2, 1, 4], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    # t=2: first memory is position 0 with a1 = 1, the second lies 3 back: blank. t=3: position -1: blank.
    # t=4: position 2, a1 = 1, 3 back: v[1]. t=5: position -3: blank.
    X = np.stack([a, v], axis=-1).astype(float)
    np.testing.assert_array_equal(task.target(X)[:, 0], [0, 0, 0, 0, 0.2, 0])


def test_the_derivative_of_a_product_is_the_other_memory(rng):
    task = GALLERY["product"]()
    X = draw(task, rng, 40)
    J = jax.jacobian(task.target)(jnp.asarray(X))[:, 0, :, 0]  # d y_t / d x_s
    expected = np.zeros((40, 40))
    for t in range(17, 40):
        expected[t, t - 3], expected[t, t - 17] = X[t - 17, 0], X[t - 3, 0]
    np.testing.assert_array_equal(J, expected)


def test_the_derivative_of_a_pointer_reaches_the_payload_only(rng):
    task = GALLERY["nested-1"]()
    X = draw(task, rng, 30)
    J = np.asarray(jax.jacobian(task.target)(jnp.asarray(X)))[:, 0]  # (t, s, channel)
    assert not J[..., 0].any()  # a lag is a whole number: no slope in the pointer
    assert set(np.unique(J[..., 1])) == {0.0, 1.0} and (J.sum((1, 2)) <= 1).all()


@pytest.mark.long(8)
@ALL
def test_the_gradient_is_finite(name, rng):
    """Also at blanks, and in the branch of a `where` that is not taken."""
    task = CASES[name]()
    X = jnp.asarray(draw(task, rng, 40))
    assert jnp.isfinite(jax.grad(lambda X: task.target(X).sum())(X)).all()


@pytest.mark.parametrize("name", SHAPES)
def test_sizes_by_hand(name):
    task = CASES[name]()
    M, K, levels, lag_bounds = SHAPES[name]
    assert (task.M, task.K, task.lag_bounds) == (M, K, lag_bounds)
    assert task.levels == ((0,) * M if levels is None else levels)


def test_a_lag_bound_is_reached():
    """T_i is the largest lag, not only a bound on it: the token T back decides."""
    task = GALLERY["nested-3"]()
    X = np.stack([np.full(13, 3.0), np.linspace(-1, 1, 13)], axis=-1)
    assert task.target(X)[12, 0] == X[0, 1] and task.lag_bounds[-1] == 12


def test_the_gallery_is_as_promised():
    tasks = [make() for make in GALLERY.values()]
    assert len(tasks) >= 14
    assert all(task.description and len(task.description) <= 80 for task in tasks)
    assert len({task.description for task in tasks}) == len(tasks)
    assert {task.K for task in tasks} >= {0, 1, 2, 3}
    assert {task.kind for task in tasks} == {"fixed", "adaptive", "essential", "matched"}


def test_integers_are_a_sequence_too():
    task = GALLERY["parity"]()
    X = np.ones((20, 1), dtype=int)
    assert task.target(X).dtype == jnp.result_type(float) and task.target(X)[-1, 0] == 1.0


def test_a_long_convolution_is_summed_in_blocks(rng):
    """Beyond one block of rows the memory is the same sum."""
    task = GALLERY["mixed-kernels"]()
    X = draw(task, rng, 600)
    long, short = np.asarray(task.target(X)), oracle.target(task, X[:40])
    np.testing.assert_allclose(long[:40], short, rtol=0, atol=roundoff(task, X, short, "float64"))
    for t in (255, 256, 511, 512, 599):
        memories = [
            sum(oracle.value(rho, {"z": float(z)}) * X[t - z, 0] for z in range(1, t + 1))
            for rho in ("z ** -2", "exp(-0.3 * z)")
        ]
        expected = memories[0] * memories[1] + 0.5 * memories[0]
        assert abs(long[t, 0] - expected) <= roundoff(task, X, long, "float64")
