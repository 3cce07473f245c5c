"""The past does not depend on the future, to the last bit; the present sees strictly the past."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from .cases import ONCE, PLAIN, VALID, build, name, same_bits, tokens

NOW = 5
FUTURES = [np.full((4, 1), 0.7), np.array([[1e30], [np.nan], [np.inf], [-np.inf]])]


@pytest.mark.long
@pytest.mark.parametrize("case", ONCE, ids=name)
def test_the_future_leaves_the_past_bit_identical(case):
    model = build(case, precision="float32")
    x = tokens(dtype="float32")
    before = model(x)[:NOW]
    assert np.isfinite(before).all()
    for future in FUTURES:
        changed = x.copy()
        changed[NOW:] = future
        assert same_bits(model(changed)[:NOW], before)


@pytest.mark.parametrize("norm", ["pre", "post", "rms"])
def test_norms_and_jit_keep_the_past_bit_identical(norm):
    model = build(PLAIN[0], norm=norm, precision="float32")
    run = eqx.filter_jit(model)
    x = tokens(dtype="float32")
    before = run(x)[:NOW]
    for future in FUTURES:
        changed = x.copy()
        changed[NOW:] = future
        assert same_bits(run(changed)[:NOW], before)


@pytest.mark.long
@pytest.mark.parametrize("case", PLAIN, ids=name)
def test_a_broken_token_is_seen_by_all_that_follow(case):
    x = tokens()
    x[NOW, 1] = np.nan
    y = build(case, layers=1)(x)
    assert np.isfinite(y[:NOW]).all() and np.isnan(y[NOW:]).all()


def test_a_broken_token_is_seen_only_through_the_window():
    x = tokens()
    x[2] = np.inf
    y = build(dict(attention="dpf", window=3, stride=2), layers=1)(x)
    broken = np.isnan(np.asarray(y)).all(axis=1)
    assert list(np.flatnonzero(broken)) == [2, 4]


@pytest.mark.long
@pytest.mark.parametrize("case", VALID, ids=name)
def test_attention_reads_strictly_the_visible_past(case):
    model = build(case)
    X = jnp.asarray(tokens()) @ model.W_E.T
    weights = model.layers[0].attention.weights(X)
    t, s = np.indices(weights.shape[1:])
    z, window = t - s, case["window"] or len(X)
    visible = (z >= 1) & (z <= window) & (z % case["stride"] == 0)
    assert ((np.asarray(weights) != 0) == visible).all()


def test_gradients_do_not_flow_backwards_in_time():
    model = build(PLAIN[0])
    gradient = jax.grad(lambda x: model(x)[NOW].sum())(jnp.asarray(tokens()))
    assert (gradient[NOW + 1 :] == 0).all() and np.isfinite(gradient).all()
