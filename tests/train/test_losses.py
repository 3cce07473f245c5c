"""Losses are means over a batch, and lie where they say."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from memloci.train.losses import LOSSES, sup


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_the_mean_of_its_parts(name, getkey):
    found = jr.normal(getkey(), (6, 5, 3))
    y = jr.randint(getkey(), (6, 5), 0, 3) if name == "cross-entropy" else jr.normal(getkey(), (6, 5, 3))
    loss = LOSSES[name]
    parts = jnp.stack([loss(found[k : k + 1], y[k : k + 1]) for k in range(6)])
    np.testing.assert_allclose(loss(found, y), parts.mean(), rtol=1e-12)


def test_sup_lies_between_the_mean_square_and_the_largest_square(getkey):
    e = jr.normal(getkey(), (1, 64, 1)) ** 3
    zero = jnp.zeros_like(e)
    value, top = float(sup(e, zero)), float(jnp.square(e).max())
    assert float(jnp.square(e).mean()) < value <= top
    assert value >= top * 64 ** (-2 / 16)  # one error that stands out keeps this share


def test_sup_has_finite_slopes_everywhere():
    for e in (jnp.zeros((2, 3, 1)), jnp.full((2, 3, 1), 1e-30), jnp.full((2, 3, 1), 1e30)):
        slope = jax.grad(lambda e: sup(e, jnp.zeros_like(e)))(e)
        assert np.isfinite(np.asarray(slope)).all()


def test_cross_entropy_of_equal_logits_is_the_log_of_their_number():
    value = LOSSES["cross-entropy"](jnp.zeros((2, 3, 7)), jnp.ones((2, 3), int))
    np.testing.assert_allclose(value, np.log(7), rtol=1e-12)
