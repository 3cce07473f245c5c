"""Every combination of switches computes the theory's formula, up to honest rounding."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memloci.core.errors import BadInput
from tests.thorough import few

from . import oracle
from .cases import LENGTH, NORMS, ONCE, PASTS, SIZES, TABLE, VALID, build, name, tokens

C = 0.25  # of the oracle's bound, which lets every rounding conspire; 0.04 was the largest seen


def assert_agrees(model, x):
    y, error = oracle.transformer(model, x)
    found = model(x)
    dtype = jnp.dtype(model.architecture.precision)
    assert found.dtype == dtype and found.shape == y.shape
    excess = np.abs(np.asarray(found, np.float64) - y) / (jnp.finfo(dtype).eps * error + 1e-300)
    assert excess.max(initial=0) <= C


@pytest.mark.long(8)
@pytest.mark.long(8)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("case", VALID, ids=name)
def test_float64_agrees_with_the_oracle(case, norm):
    assert_agrees(build(case, norm=norm), tokens())


@pytest.mark.long
@pytest.mark.parametrize("case", ONCE, ids=name)
def test_float32_agrees_with_the_oracle(case):
    assert_agrees(build(case, precision="float32"), tokens(dtype="float32"))


@given(
    pair=st.sampled_from(sorted(TABLE)),
    normalisation=st.sampled_from(["softmax", "infinite", "none"]),
    norm=st.sampled_from(NORMS),
    precision=st.sampled_from(["float32", "float64"]),
    past=st.sampled_from(
        [*PASTS.values(), dict(window=5, stride=2), dict(window=1, stride=1), dict(window=2, stride=3)]
    ),
    layers=st.integers(0, 2),
    width=st.sampled_from([0, 5]),
    n=st.sampled_from([0, 1, 9]),
    seed=st.integers(0, 2**31 - 1),
)
@settings(derandomize=True, deadline=None, max_examples=few(40), database=None)
def test_any_architecture_is_refused_or_agrees(
    pair, normalisation, norm, precision, past, layers, width, n, seed
):
    case = dict(attention=pair[0], encoding=pair[1], normalisation=normalisation, norm=norm) | past
    case |= dict(layers=layers, width=width, precision=precision)
    try:
        model = build(case, seed)
    except BadInput as error:
        assert "\n" not in str(error)
        return
    assert_agrees(model, tokens(seed, n, precision))


def test_the_small_model_reaches_every_t5_bucket():
    assert LENGTH - 1 > SIZES["max_distance"]
