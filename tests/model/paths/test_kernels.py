"""Heads without dot products: the recurrence and the convolution, against the definition."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.paths.choice import PATHS
from memloci.model.paths.decay import decayed
from memloci.model.paths.recurrence import gain, gains
from tests.model.cases import VALID, architecture, build, name

from .agreement import assert_agrees, sample, some

FACTORISING = [case for case in VALID if case["attention"] in ("dpf", "tmx")]
SERVED = [
    (path, case)
    for case in FACTORISING
    for path in ("recurrence", "convolution")
    if PATHS[path].refusal(architecture(case)) is None
]
DPF = dict(attention="dpf", normalisation="softmax", window=None, stride=1)


def label(value):
    return name(value) if isinstance(value, dict) else str(value)


@pytest.mark.long(2)
@pytest.mark.parametrize(("path", "case"), some(SERVED), ids=label)
def test_it_is_the_definition(path, case):
    assert_agrees(path, *sample(case, 150, "float64"))


@pytest.mark.long
@pytest.mark.parametrize("n", [0, 1, 2, 129, 256])
@pytest.mark.parametrize("encoding", ["lin", "log"])
@pytest.mark.parametrize("path", ["recurrence", "convolution"])
def test_every_length(path, encoding, n):
    assert_agrees(path, *sample(DPF | dict(encoding=encoding), n, "float32"))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025])
@pytest.mark.parametrize("encoding", ["lin", "log", "t5"])
@pytest.mark.parametrize("path", ["recurrence", "convolution"])
def test_every_length_and_precision(path, encoding, n, precision):
    rows = sorted({0, 1, 2, n // 2, n - 1} & set(range(n)))
    assert_agrees(path, *sample(DPF | dict(encoding=encoding), n, precision), rows=rows)


@pytest.mark.long
@pytest.mark.parametrize(("encoding", "normalisation"), [("lin", "softmax"), ("log", "none")])
def test_65537_positions(encoding, normalisation):
    case = DPF | dict(encoding=encoding, normalisation=normalisation)
    heads, X, V = sample(case, 65_537, "float32")
    assert_agrees("recurrence", heads, X, V, rows=[0, 1, 40_000, 65_535, 65_536])


@pytest.mark.long
@pytest.mark.parametrize("p", [[-0.7, 1e-6], [0.0, 3e-3], [-1e-3, 40.0]])
def test_every_slope(p):
    """Slopes that hardly fall, that rise, and that forget at once; values of one sign, so that nothing averages
    out."""
    case = DPF | dict(encoding="lin")
    heads, X, V = sample(case, 1000, "float32")
    heads = eqx.tree_at(lambda h: h.encoding.p, heads, jnp.asarray(p, "float32"))
    assert_agrees("recurrence", heads, X, jnp.abs(V), rows=[1, 2, 500, 999])


def test_a_slow_sum_does_not_stall():
    """One recurrence over all steps would lose digits in float32, in e^-p and in every addition."""
    n = 100_000
    V, p = jnp.ones((n, 1, 1), "float32"), jnp.asarray([1e-6], "float32")
    found = decayed(V, p, jnp.ones((n, 1), "float32"))[-1, 0, 0]
    expected = -np.expm1(-1e-6 * (n - 1)) / -np.expm1(-1e-6)
    assert abs(float(found) / expected - 1) < 2e-5
    one, q = np.float32(0), np.float32(np.exp(-1e-6))
    for _ in range(n - 1):
        one = q * one + np.float32(1)
    assert abs(float(one) / expected - 1) > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("p", [-2.0, -0.5])
def test_a_power_that_grows_takes_the_blocks(p):
    heads, X, V = sample(DPF | dict(encoding="log"), 150, "float64")
    heads = eqx.tree_at(lambda h: h.encoding.p, heads, jnp.asarray([p, 1.5]))
    assert_agrees("recurrence", heads, X, V)


@pytest.mark.long
@pytest.mark.parametrize("p", [0.0, 1e-12, 1e-5, -1e-5, 0.3])
def test_the_gains_and_their_slope_near_p_0(p):
    P = jnp.asarray([p], "float64")
    value, tangent = jax.jit(lambda P: jax.jvp(lambda P: gains(P, 1001), (P,), (jnp.ones_like(P),)))(P)
    for t in (1, 7, 1000):
        lags = np.arange(t)
        terms = np.exp(-abs(p) * lags)
        slope = (np.sign(p) or 1.0) * (lags * terms).sum() / terms.sum() ** 2
        np.testing.assert_allclose(value[t, 0], 1 / terms.sum(), rtol=1e-13)
        np.testing.assert_allclose(tangent[t, 0], slope, rtol=1e-12, atol=1e-16)
        np.testing.assert_allclose(gain(P, jnp.asarray([float(t)])), value[t], rtol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("path", ["recurrence", "convolution"])
def test_a_batch(path):
    heads, X, V = sample(DPF | dict(encoding="lin"), 40, "float64")
    recalled = jax.jit(lambda V: PATHS[path].recalled(heads, X, V))
    many = jnp.stack([V, 2 * V, V[::-1]])
    found = jax.jit(jax.vmap(recalled))(many)
    np.testing.assert_allclose(found, jnp.stack([recalled(V) for V in many]), atol=1e-14)


@pytest.mark.parametrize("encoding", ["lin", "log", "t5"])
def test_the_future_leaves_the_past_bit_identical(encoding):
    model = build(DPF | dict(encoding=encoding, path="recurrence"), precision="float32")
    run = eqx.filter_jit(model)
    x = np.random.default_rng(0).uniform(-1, 1, (200, model.channels)).astype("float32")
    before = np.asarray(run(x))
    for value in (1e30, np.nan, np.inf):
        changed = x.copy()
        changed[90] = value
        after = np.asarray(run(changed))
        assert after[:90].tobytes() == before[:90].tobytes()
        assert np.isnan(after[90:]).all() or value == 1e30


@pytest.mark.slow
def test_memory_is_linear():
    """Compiled buffers at twice the length are about twice as large, gradients included."""
    for encoding in ("lin", "log"):
        sizes = []
        for n in (8_192, 16_384):
            heads, X, V = sample(DPF | dict(encoding=encoding), n, "float32")
            loss = lambda heads, V, X=X: PATHS["recurrence"].recalled(heads, X, V).sum()
            arrays, rest = eqx.partition(heads, eqx.is_inexact_array)
            gradient = jax.jit(
                jax.grad(lambda a, V, rest=rest, loss=loss: loss(eqx.combine(a, rest), V), (0, 1))
            )
            if encoding == "log":  # with the fallback that p < 0 would take, in blocks
                assert PATHS["blocks"].growth.endswith("n memory")
            analysis: Any = gradient.lower(arrays, V).compile().memory_analysis()
            sizes.append(analysis.temp_size_in_bytes)
        assert sizes[1] < 2.6 * sizes[0]


def test_refusals():
    sizes = dict(layers=1, heads=1, width=0)
    for fields, reason in [
        (dict(attention="dp", path="recurrence"), "needs weights that are a kernel over lags"),
        (dict(attention="dpf", window=8, path="recurrence"), "no way to forget"),
        (dict(attention="dpf", encoding="rope", path="recurrence"), "'rope'.*needs .* a short recurrence"),
        (dict(attention="dpf", encoding="t5", max_distance=4096, path="recurrence"), "one by one"),
        (dict(attention="tmx-mul", path="convolution"), "needs weights that are a kernel over lags"),
    ]:
        with pytest.raises(BadInput, match=reason):
            Architecture(**(sizes | fields))  # type: ignore[arg-type]
