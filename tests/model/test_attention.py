"""Theorems about heads: what cancels, what depends on the lag only, and which limits meet."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.model.attention import Head
from memloci.model.encodings import AbstractEncoding, Lin, Log, Rope
from memloci.model.normalisation import Infinite, Past, Softmax, Unnormalised
from memloci.model.rotation import angles
from memloci.model.scores import DotProductFree, Tmx
from memloci.model.transformer import Transformer

from . import oracle
from .cases import HOMOGENEOUS, PLAIN, build, name, tokens

EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
D = 4


def head(encoding: AbstractEncoding, normalisation, score=None, past=None, dtype: Any = jnp.float64) -> Head:
    """A head that reads and writes everything: what it recalls is its weights applied to X."""
    eye = jnp.eye(D, dtype=dtype)
    return Head(score or DotProductFree(), encoding, normalisation, past or Past(None, 1), W_V=eye, W_O=eye)


def stream(n: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, (n, D)))


def without_biases(model: Transformer) -> Transformer:
    """b_E = 0 and c = 0: a blank token is the zero vector in every layer."""
    biases = lambda model: [model.b_E, *(layer.ffn.c for layer in model.layers)]
    return eqx.tree_at(biases, model, replace_fn=jnp.zeros_like)


@pytest.mark.parametrize("encoding", [Lin(jnp.asarray(0.3)), Log(jnp.asarray(1.7))], ids=["lin", "log"])
@pytest.mark.parametrize("past", [Past(None, 1), Past(7, 2)], ids=["plain", "window+stride"])
def test_under_softmax_tmx_is_dpf(encoding, past):
    X = stream(12)
    w = jnp.asarray([3.0, -2.0, 1.0, 5.0])
    tmx = head(encoding, Softmax(), Tmx(w), past)
    dpf = head(encoding, Softmax(), past=past)
    largest_logit = 11 + 12  # |<w, x_t>| <= 11, |p phi| < 12: its rounding is all that differs
    assert np.abs(tmx.weights(X) - dpf.weights(X)).max() <= 2 * largest_logit * EPS["float64"]
    without = head(encoding, Unnormalised(), Tmx(w), past).weights(X) - dpf.weights(X)
    assert np.abs(without).max() > 0.1  # and without softmax it is not


@pytest.mark.long
@pytest.mark.parametrize("case", HOMOGENEOUS, ids=name)
def test_a_blank_past_does_not_matter(case):
    """If b_E = 0 and c = 0, blank tokens stay blank through the layers, and only z = t - s is seen."""
    model = without_biases(build(case))
    x, blanks = tokens(n=6), 3
    y, error = oracle.transformer(model, x)
    later = np.asarray(model(np.concatenate([np.zeros((blanks, x.shape[1])), x])))
    assert (np.abs(later[blanks:] - y) <= EPS["float64"] * error).all()


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in PLAIN if case not in HOMOGENEOUS], ids=name)
def test_softmax_and_absolute_positions_do_see_the_start(case):
    """Contrast: softmax shares its weight among blanks too, absolute encodings count from the start."""
    model = without_biases(build(case))
    x, blanks = tokens(n=6), 3
    y, _ = oracle.transformer(model, x)
    later = np.asarray(model(np.concatenate([np.zeros((blanks, x.shape[1])), x])))
    assert np.abs(later[blanks:] - y).max() > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("case", HOMOGENEOUS, ids=name)
def test_weights_depend_on_the_tokens_and_the_lag_only(case):
    """The same two tokens at the same lag weigh the same wherever they stand, up to rounding."""
    heads = build(case).layers[0].attention
    X = np.asarray(np.random.default_rng(1).uniform(-1, 1, (3, 6)))
    X = jnp.asarray(np.concatenate([X, X, X]))
    weights = np.asarray(heads.weights(X))
    lead = weights[:, :3, :3]
    for start in (3, 6):
        block = weights[:, start : start + 3, start : start + 3]
        assert np.allclose(block, lead, rtol=64 * EPS["float64"], atol=0)


@pytest.mark.long(3)
@pytest.mark.parametrize("p", [1.05, 1.5, 4.0])
def test_infinite_is_softmax_times_the_share_of_the_past_that_exists(p):
    """sum_{z<=t} kappa(z) = 1 - tail(t), so infinite(t, .) = softmax(t, .) (1 - tail(t)); tail -> 0."""
    n = 40
    for encoding, tail in [
        (Lin(jnp.asarray(p)), lambda t: math.exp(-p * t)),
        (Log(jnp.asarray(p)), lambda t: oracle.zeta(p, t + 1) / oracle.zeta(p)),
    ]:
        softmax, infinite = (
            np.asarray(head(encoding, kind).weights(stream(n))) for kind in (Softmax(), Infinite())
        )
        share = np.array([1 - tail(t) for t in range(1, n)])
        assert np.allclose(infinite[1:], softmax[1:] * share[:, None], rtol=1e-13, atol=0)
        assert np.allclose(infinite[1:].sum(axis=1), share, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [1e-6, 0.01, 1.0, 88.5, 200.0, 1e4])
def test_lin_over_an_infinite_past_is_accurate_for_all_slopes(p, dtype):
    p = np.asarray(p, dtype)
    lags = np.arange(1, 12)
    weights = head(Lin(jnp.asarray(p)), Infinite(), dtype=dtype).weights(jnp.zeros((12, D), dtype))[-1, ::-1]
    exponent = float(p) * (lags - 1)
    expected = -math.expm1(-float(p)) * np.exp(-exponent)
    error = np.abs(np.asarray(weights[1:], np.float64) - expected)
    tiny = float(jnp.finfo(dtype).tiny)
    assert (error <= EPS[dtype] * (4 + 3 * (exponent + float(p)) * (lags > 1)) * expected + tiny).all()
    if p > 100:
        assert weights[1] == 1  # a steep head is an exact shift


def test_a_window_admits_slopes_that_an_infinite_past_refuses():
    for p in (-0.5, 0.0, 0.5):
        for encoding in (Lin(jnp.asarray(p)), Log(jnp.asarray(p))):
            weights = head(encoding, Infinite(), past=Past(6, 2)).weights(stream(9))
            assert np.allclose(np.asarray(weights[-1]).sum(), 1, rtol=1e-14)


@pytest.mark.parametrize(("encoding", "p", "least"), [("lin", 0.0, 0), ("lin", -1.0, 0), ("log", 1.0, 1)])
def test_check_names_the_head_whose_normaliser_diverges(encoding, p, least):
    model = build(dict(attention="dpf", encoding=encoding, normalisation="infinite"))
    model.check()
    model = eqx.tree_at(lambda m: m.layers[1].attention.heads.encoding.p, model, jnp.asarray([2.0, p]))
    with pytest.raises(BadInput, match=f"layer 1: attention: head 1 has slope .* needs p > {least}"):
        model.check()
    assert np.isnan(model(tokens())[-1]).all()


def test_rope_sees_the_lag_only():
    rng = np.random.default_rng(0)
    turns = jnp.asarray(rng.integers(2**32, size=8, dtype=np.uint32))
    q, k = rng.standard_normal((2, 16))
    rotating = Rope(turns, None, None)
    constant = Rope(turns, jnp.asarray(q), jnp.asarray(k))
    n = 30
    logits = np.asarray(rotating.inner(jnp.tile(q, (n, 1)), jnp.tile(k, (n, 1))))
    t, s = np.indices((n, n))
    by_lag = constant.position(jnp.asarray(t - s, jnp.int32) % n, jnp.dtype("float64"))
    past = t >= s
    assert np.allclose(logits[past], np.asarray(by_lag)[past], rtol=0, atol=1e-13)


@pytest.mark.parametrize("position", [65_536, 1_000_000, 2**31 - 1])
def test_float32_angles_are_accurate_at_any_position(position):
    turns = np.random.default_rng(1).integers(2**32, size=64, dtype=np.uint32)
    found = angles(jnp.asarray(turns), jnp.asarray([position], jnp.int32), jnp.dtype("float32"))[0]
    truth = [2 * math.pi * (int(count) * position % 2**32 / 2**32) for count in turns]
    assert np.abs(np.cos(np.asarray(found, np.float64)) - np.cos(truth)).max() <= 4 * EPS["float32"]
    assert np.abs(np.sin(np.asarray(found, np.float64)) - np.sin(truth)).max() <= 4 * EPS["float32"]
