"""The rounding model of certify/rounding.py holds for the library that runs the models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, ctx

from memloci.certify.rounding import LARGEST_LOG_SLOPE, LIBRARY, ZETA, gamma, product_error, roundings
from memloci.core.precision import EVALUATED, PRECISIONS
from memloci.model.zeta import zeta

POINTS = {
    "exp": np.concatenate([-np.geomspace(1e-6, 80, 300), np.geomspace(1e-6, 60, 300)]),
    "expm1": -np.geomspace(1e-7, 80, 600),
    "log": np.concatenate([np.arange(2.0, 300), np.geomspace(300, 1e6, 300)]),
    "sin": np.linspace(-np.pi, np.pi, 601),
    "cos": np.linspace(-np.pi, np.pi, 601),
}


@pytest.mark.parametrize("precision", EVALUATED)
@pytest.mark.parametrize("name", POINTS)
def test_library_functions_err_by_less_than_the_model_says(name, precision):
    own = PRECISIONS[precision]
    inside = (np.abs(POINTS[name]) < own.most) & ((np.abs(POINTS[name]) >= own.least) | (POINTS[name] == 0))
    x = jnp.asarray(POINTS[name][inside], precision)
    found = np.asarray(jax.jit(getattr(jnp, name))(x), dtype=float)
    with ctx.workprec(120):
        for at, value in zip(np.asarray(x, dtype=float), found, strict=True):
            exact = getattr(arb(float(at)), name)()
            if abs(exact) < own.least or abs(exact) > own.most:  # the model says so of these (3)
                assert abs(value) <= own.least if abs(exact) < own.least else value > own.most / 2
                continue
            # sin and cos near a zero: relative to 1, which is how the logits of rope use them
            size = arb(1) if name in ("sin", "cos") else abs(exact)
            assert abs(arb(float(value)) - exact) <= LIBRARY * PRECISIONS[precision].u * size, (at, value)


@pytest.mark.parametrize("precision", EVALUATED)
def test_exact_values(precision):
    assert float(jnp.exp(jnp.zeros((), precision))) == 1.0
    assert float(jnp.log(jnp.ones((), precision))) == 0.0


@pytest.mark.parametrize("precision", EVALUATED)
@pytest.mark.parametrize("compiled", [False, True])
def test_zeta_errs_by_less_than_the_model_says(precision, compiled):
    """Compiled too: XLA may multiply first and divide later, and must not overflow on the way."""
    steep = np.geomspace(40, min(LARGEST_LOG_SLOPE, 0.9 * PRECISIONS[precision].most), 40)
    p = np.concatenate([1 + np.geomspace(1e-3, 1, 40), np.linspace(2, 40, 40), steep])
    p = jnp.asarray(p, precision)
    every = jax.vmap(zeta)
    found = np.asarray((jax.jit(every) if compiled else every)(p), dtype=float)
    with ctx.workprec(120):
        for at, value in zip(np.asarray(p, dtype=float), found, strict=True):
            exact = arb(float(at)).zeta()
            assert abs(arb(float(value)) - exact) <= ZETA * PRECISIONS[precision].u * exact, (at, value)


def test_powers_of_two_and_zeros_are_exact():
    W = np.array([[1.0, 0.0, 0.0], [0.5, 0.0, -4.0], [0.3, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert roundings(W).tolist() == [0, 1, 1, 0]
    size, none = np.ones(3), np.zeros(3)
    assert product_error(W, size, none, 2.0**-24)[0] == 0.0


def test_product_error_dominates_float32():
    rng = np.random.default_rng(0)
    for n in (3, 50, 400):
        W, x = rng.normal(size=(8, n)).astype(np.float32), rng.normal(size=n).astype(np.float32)
        exact = W.astype(float) @ x.astype(float)
        computed = np.asarray(jnp.asarray(W) @ jnp.asarray(x), dtype=float)
        bound = product_error(W, np.abs(x).astype(float), np.zeros(n), PRECISIONS["float32"].u)
        assert (np.abs(computed - exact) <= bound).all() and (bound < 1).all()


def test_too_many_roundings_say_nothing():
    assert np.isinf(gamma(2.0**24, 2.0**-24)) and gamma(0.0, 0.5) == 0
    # an infinite error is not lost where a weight is 0, nor turned into 0 where it is not
    W = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert product_error(W, np.ones(2), np.array([np.inf, 0.0]), 1e-3).tolist() == [np.inf, 0.0]
