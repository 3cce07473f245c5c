"""A certificate never lies: no input found does worse, on any weights; and it is tight where theory says so."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from memloci.certify.certify import certify
from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from memloci.observe.sup_error import measure
from memloci.tasks.load import load_task
from memloci.tasks.short import Fixed

from .cases import blank_model, drawn_model, random_weights

ORACLE = 1e-13  # the target itself is computed in float64


def assert_sound(drawn, seed, **effort):
    certificate = certify(drawn.model, drawn.task)
    seen = measure(drawn.model, drawn.task, key=jr.key(seed), **effort)
    assert seen.err_sup <= certificate.bound * (1 + ORACLE) + ORACLE, drawn.label
    return seen.err_sup / certificate.bound


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_no_input_beats_the_certificate_of_random_weights(seed):
    assert_sound(random_weights(seed), seed, sequences=4, length=40, steps=8, starts=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 350))
def test_no_input_beats_the_certificate_of_many_random_weights(seed):
    assert_sound(random_weights(seed), seed, sequences=8, length=48, steps=16, starts=4)


def one_head(p: float, precision: str = "float64", **changes) -> Transformer:
    """y_t = sum_z w(z) x_{t-z} with one lin head."""
    fields = {"layers": 1, "heads": 1, "width": 0, "attention": "dpf", "normalisation": "infinite", "dim": 2}
    architecture = Architecture(**{**fields, "value_dim": 1, "precision": precision, **changes})
    model = blank_model(architecture)
    heads = lambda m: m.layers[0].attention.heads
    dtype = jnp.dtype(precision)
    return eqx.tree_at(
        lambda m: (m.W_E, m.b_E, heads(m).W_V, heads(m).W_O, heads(m).encoding.p, m.W_U, m.b_U),
        model,
        (
            jnp.asarray([[1.0], [0.0]], dtype),
            jnp.zeros(2, dtype),
            jnp.asarray([[[1.0, 0.0]]], dtype),
            jnp.asarray([[[0.0], [1.0]]], dtype),
            jnp.asarray([p], dtype),
            jnp.asarray([[0.0, 1.0]], dtype),
            jnp.zeros(1, dtype),
        ),
    )


@pytest.mark.parametrize("p", [0.25, 1.0, 6.0])
def test_the_bound_of_one_head_is_the_formula(p):
    """||w - 1{z = 1}||_1 = 2 q for w(z) = (1-q) q^{z-1}."""
    certificate = certify(one_head(p), Fixed(lags=[1], readout="x1"))
    assert certificate.exact_bound == pytest.approx(2 * np.exp(-p), rel=1e-8)
    assert certificate.mass == 1.0


def test_the_worst_input_of_a_linear_readout_attains_the_bound():
    model, task = one_head(0.5), Fixed(lags=[2], readout="x1")
    seen = measure(model, task, key=jr.key(0), length=80, sequences=2)
    assert 0.999 <= seen.err_adversarial / certify(model, task).bound <= 1


def test_a_larger_range_scales_the_bound():
    small = certify(one_head(1.0), Fixed(lags=[1], readout="x1"))
    wide = certify(one_head(1.0), Fixed(lags=[1], readout="x1", channels=[{"name": "x", "range": [-3, 2]}]))
    assert wide.exact_bound == pytest.approx(3 * small.exact_bound, rel=1e-8)


@pytest.mark.parametrize(
    "lags, readout",
    [([3], "x1 + x1"), ([3, 3], "x1 + x2"), ([3, 0], "2 * x1 + x2 - x0"), ([0, 3, 3], "x3 + x2 + x1 - x0")],
)
def test_memories_at_one_lag_are_one_token(lags, readout):
    """Whatever their names, and lag 0 is the present: all these are 2 x_{t-3}, and have the same bound."""
    architecture = Architecture(
        layers=1,
        heads=1,
        width=0,
        attention="dpf",
        encoding="t5",
        normalisation="infinite",
        dim=2,
        value_dim=1,
        window=4,
        buckets=8,
        max_distance=8,
        precision="float64",
    )
    heads = lambda m: m.layers[0].attention.heads
    places = lambda m: (m.W_E, heads(m).W_V, heads(m).W_O, heads(m).encoding.table, m.W_U)
    table = 50.0 * (np.arange(8) == 2)
    weights = ([[1.0], [0.0]], [[[1.0, 0.0]]], [[[0.0], [1.0]]], [table], [[0.0, 2.0]])
    model = eqx.tree_at(places, blank_model(architecture), tuple(map(jnp.asarray, weights)))
    bound = certify(model, Fixed(lags=[3], readout="2 * x1")).exact_bound
    assert bound < 1e-12
    assert certify(model, Fixed(lags=lags, readout=readout)).exact_bound == pytest.approx(bound, abs=1e-13)


def test_fewer_bits_cost_more_and_bits_are_enough():
    """A product with 0.75 is rounded; one with the weight of a steep head, which is 1, is not."""
    model = eqx.tree_at(lambda m: m.W_U, one_head(20.0), jnp.asarray([[0.0, 0.75]]))
    certificate = certify(model, Fixed(lags=[1], readout="0.75 * x1"), tolerance=1e-6)
    by = certificate.bound_by_precision
    assert (
        certificate.exact_bound <= by["float64"] < by["float32"] < by["bfloat16"]
        and by["float32"] < by["float16"]
    )
    assert certificate.met and certificate.bits is not None and 20 < certificate.bits < 53
    missed = certify(one_head(2.0), Fixed(lags=[1], readout="x1"), tolerance=1e-6)
    assert missed.status == "missed" and missed.bits is None


def test_any_weight_that_matters_moves_the_bound():
    model, task = one_head(8.0), Fixed(lags=[1], readout="x1")
    before = certify(model, task)
    heads = lambda m: m.layers[0].attention.heads
    for place in (
        lambda m: m.W_E,
        lambda m: m.b_E,
        lambda m: heads(m).W_V,
        lambda m: heads(m).W_O,
        lambda m: heads(m).encoding.p,
        lambda m: m.W_U,
        lambda m: m.b_U,
    ):
        changed = eqx.tree_at(place, model, place(model) + 1e-3)
        assert certify(changed, task).exact_bound != before.exact_bound


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"attention": "dp"}, "attention 'dp' with encoding 'lin' under normalisation 'infinite'"),
        ({"normalisation": "softmax"}, "attention 'dpf' with encoding 'lin' under normalisation 'softmax'"),
        ({"norm": "pre"}, "needs? norm 'none'|need norm 'none'"),
        ({"window": 8}, "unlimited past"),
    ],
)
def test_what_cannot_be_followed_is_refused(changes, match):
    fields = {"layers": 1, "heads": 1, "width": 0, "attention": "dpf", "normalisation": "infinite", "dim": 2}
    model = drawn_model(Architecture(**{**fields, **changes}))
    with pytest.raises(BadInput, match=match):
        certify(model, Fixed(lags=[1], readout="x1"))


def test_other_refusals():
    model = one_head(1.0)
    with pytest.raises(BadInput, match="channels"):
        certify(model, load_task("pointer"))
    with pytest.raises(BadInput, match="channels"):
        certify(model, load_task("multiplexer").model_copy(update={"channels": ()}))
    with pytest.raises(BadInput, match="callable"):
        certify(model, Fixed(lags=[1], readout=lambda x1: x1))
    with pytest.raises(BadInput, match="tolerance"):
        certify(model, Fixed(lags=[1], readout="x1"), tolerance=0.0)
    with pytest.raises(BadInput, match="precision"):
        certify(model, Fixed(lags=[1], readout="x1"), precision="float16")
    with pytest.raises(BadInput, match="precision 'float8' is unknown"):
        certify(model, Fixed(lags=[1], readout="x1"), precision="float8")
