"""Zeta by Euler-Maclaurin agrees with ball arithmetic to a few units in the last place."""

import flint
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memloci.model.zeta import hurwitz, zeta

from . import oracle

P = np.concatenate([1 + np.logspace(-6, 0, 13), np.linspace(2.0, 60.0, 59)])


@pytest.mark.parametrize(("dtype", "units"), [("float32", 6), ("float64", 6)])
def test_zeta_is_accurate(dtype, units):
    p = P.astype(dtype)
    found = np.asarray(jax.vmap(zeta)(jnp.asarray(p)), np.float64)
    truth = np.array([oracle.zeta(float(value)) for value in p])
    assert (np.abs(found - truth) <= units * jnp.finfo(dtype).eps * truth).all()


@pytest.mark.parametrize("a", [1, 2, 17, 1000, 10**6])
def test_hurwitz_zeta_is_accurate(a):
    """A power u^-p computed in floating point is off by up to p log(u) units, and so much is granted."""
    p = P[P * np.log10(a + 1) < 250]
    found = np.asarray(jax.vmap(lambda p: hurwitz(p, jnp.asarray(float(a))))(jnp.asarray(p)))
    truth = np.array([oracle.zeta(float(value), a) for value in p])
    granted = (6 + p * np.log(a + 16)) * jnp.finfo(float).eps
    assert (np.abs(found - truth) <= granted * truth).all()


def test_the_derivative_in_p_is_accurate():
    p = P[::6]
    found = np.asarray(jax.vmap(jax.grad(zeta))(jnp.asarray(p)))
    truth = np.array([float(flint.arb_series([value, 1], 2).zeta()[1]) for value in p])
    assert np.allclose(found, truth, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeta_of_a_large_slope_is_one_with_a_finite_derivative(dtype):
    """zeta - 1 ~ 2^-p + 3^-p, down to numbers that underflow; nothing inside overflows."""
    p = jnp.asarray(np.concatenate([np.geomspace(60.0, 1e4, 60), [1e9, 1e30, 3e38]]), dtype)
    assert (np.asarray(jax.vmap(zeta)(p)) == 1).all()
    slope = np.asarray(jax.vmap(jax.grad(zeta))(p), np.float64)
    truth = sum(-np.log(n) * n ** -np.asarray(p, np.float64) for n in (2.0, 3.0))
    room = jnp.finfo(dtype)
    assert np.allclose(slope, truth, rtol=6e3 * float(room.eps), atol=float(room.tiny))
