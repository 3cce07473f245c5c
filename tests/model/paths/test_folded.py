"""A folded batch is the model: values and gradients of every kind, in both precisions.

Bounds are multiples of eps: values in units of the largest output, gradients in units of the leaf's largest
entry, or of a thousandth of the model's where a leaf's own is smaller (some true gradients are 0).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.model.paths import gradients
from memloci.model.paths.folded import (
    LONGEST,
    Folded,
    Unfolded,
    fold,
    loss_and_gradient,
    mean_square,
    outputs,
)
from memloci.model.paths.gradients import Map, recall_own_values, recall_shared
from tests.model.cases import CHANNELS, OUTPUTS, PASTS, PLAIN, build, name

from .agreement import some

TIMES_EPS = 2000.0  # 5e-13 in float64, 2e-4 in float32: sums over up to 3 n^2 terms of both signs
LIN = PLAIN[0]


def data(n: int, precision: str, batch: int = 3):
    rng = np.random.default_rng(n)
    x = jnp.asarray(rng.uniform(-1, 1, (batch, n, CHANNELS)), precision)
    return x, jnp.asarray(rng.uniform(-1, 1, (batch, n, OUTPUTS)), precision)


def wide(tree):
    return jax.tree.map(lambda a: a.astype("float64") if eqx.is_inexact_array(a) else a, tree)


@eqx.filter_jit
def plain(model, x, y):
    """The definition, batched: the gradient, with the outputs and the loss."""

    def loss(model):
        found = jax.vmap(model)(x)
        value = mean_square(found, y)
        return value, (found, value)

    return eqx.filter_grad(loss, has_aux=True)(model)


@eqx.filter_jit
def folded(model, x, y):
    def loss(model):
        found = outputs(model, x)
        value = mean_square(found, y)
        return value, (found, value)

    return eqx.filter_grad(loss, has_aux=True)(model)


def assert_close(own, true, eps):
    """Two (gradient, (outputs, loss)), compared in float64."""
    (own_slopes, own_seen), (slopes, seen) = jax.tree.map(lambda a: np.asarray(a, "float64"), (own, true))
    for found, expected in zip(own_seen, seen, strict=True):
        assert np.abs(found - expected).max() <= TIMES_EPS * eps * np.abs(expected).max()
    assert jax.tree.structure(own_slopes) == jax.tree.structure(slopes)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(slopes))
    for found, expected in zip(jax.tree.leaves(own_slopes), jax.tree.leaves(slopes), strict=True):
        assert np.isfinite(found).all()
        unit = max(float(np.abs(expected).max()), 1e-3 * largest)
        assert np.abs(found - expected).max() <= TIMES_EPS * eps * unit


def assert_agrees(model, x, y):
    own = folded(model, x, y)
    assert own[1][0].dtype == x.dtype
    assert_close(own, plain(*wide((model, x, y))), float(jnp.finfo(x.dtype).eps))


@pytest.mark.parametrize("case", some(PLAIN), ids=name)
def test_every_kind_agrees_in_float64(case):
    assert_agrees(build(case), *data(9, "float64"))


@pytest.mark.long
@pytest.mark.parametrize("case", PLAIN[::4], ids=name)
def test_some_kinds_agree_in_float32(case):
    assert_agrees(build(case, precision="float32"), *data(9, "float32"))


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("case", [PLAIN[i] for i in (0, 3, 8)], ids=name)
def test_longer_sequences_in_blocks_agree(case, precision):
    x, y = data(64, precision)
    assert len(gradients._blocks(64, 4)) > 1
    assert_agrees(build(case, precision=precision, heads=4), x, y)


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {
            "key_dim": 2,
            "value_dim": 1,
        },  # not fewer channels than a head has numbers: the first layer is not folded
        {"norm": "pre"},
        {"norm": "post"},
        {"width": 0},
        {"layers": 1},
        {"layers": 1, "width": 0},
        {"key_dim": 18, "layers": 3},  # products over more features than are unrolled
        PASTS["window+stride"],
    ],
    ids=str,
)
def test_other_shapes_agree(changes):
    assert_agrees(build(LIN, **changes), *data(9, "float64"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("case", [LIN, PLAIN[10]], ids=name)  # folded, and the model's own code
def test_micro_batches_do_not_matter(case):
    model, (x, y) = build(case), data(9, "float64", batch=6)
    true = plain(model, x, y)
    for size in (1, 4, 100):  # 4 does not divide 6: 3 does
        loss, slopes = eqx.filter_jit(loss_and_gradient)(model, x, y, micro_batch=size)
        assert_close((slopes, (loss,)), (true[0], true[1][1:]), 2.0**-52)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_large_logits_neither_overflow_nor_lose_a_row(scale):
    """Where no shift is proved safe, the largest logit is subtracted; float32 would overflow at 89."""
    model = build(LIN, precision="float32", layers=1)
    grow = lambda W: W * scale
    model = eqx.tree_at(lambda m: m.layers[0].attention.heads.score.W_Q, model, replace_fn=grow)
    model = eqx.tree_at(lambda m: m.layers[0].attention.heads.score.W_K, model, replace_fn=grow)
    x, y = data(9, "float32")
    slopes, (found, _) = folded(model, 4 * x, y)
    expected = np.asarray(plain(*wide((model, 4 * x, y)))[1][0])
    size = 1 + 16 * scale**2  # a logit of size `size` is off by eps times it, and so is its weight
    assert (
        np.abs(np.asarray(found, "float64") - expected).max() <= 64 * 2.0**-23 * size * np.abs(expected).max()
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


@pytest.mark.parametrize("slope", [-200.0, 200.0])
def test_steep_slopes_of_either_sign(slope):
    steep = lambda model: eqx.tree_at(
        lambda m: m.layers[0].attention.heads.encoding.p, model, replace_fn=lambda p: 0 * p + slope
    )
    model, (x, y) = steep(build(LIN, precision="float32", layers=1)), data(9, "float32")
    assert_agrees(model, x, y)


def test_the_first_position_recalls_exactly_nothing():
    q, u = jnp.ones((1, 4)), jnp.ones((1, 4, 1))
    table = jnp.where(np.triu(np.ones((4, 4), bool), 1), 0.0, -jnp.inf)
    shared: Any = recall_shared(True, (q,), u, table, None, jnp.ones(()))
    v = jnp.ones((1, 1, 1, 4))
    own: Any = recall_own_values(True, v, v, v, table[None], None)
    assert shared[0].tolist() == [[0, 1, 1, 1]] and own[0, 0].tolist() == [[0, 1, 1, 1]]


def test_linear_has_the_gradient_of_a_product(getkey):
    W, X = jax.random.normal(getkey(), (5, 4)), jax.random.normal(getkey(), (4, 2, 3))
    jax.test_util.check_grads(lambda W, X: Map.of(W)(X), (W, X), order=1, modes=["rev"])


def test_a_batch_of_another_shape_is_refused():
    for shape in [(2, 9, CHANNELS + 1), (9, CHANNELS), (0, 9, CHANNELS)]:
        with pytest.raises(BadInput, match=f"shape \\(batch, n, {CHANNELS}\\)"):
            outputs(build(LIN), jnp.zeros(shape))


def test_long_sequences_take_the_paths_of_the_model():
    model = build(LIN)
    assert isinstance(fold(model, LONGEST), Folded) and isinstance(fold(model, LONGEST + 1), Unfolded)
