"""Weights at the edges of floating point, where a bound is easily too small."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flint import arb

from memloci.approx.kernels.kernel_targets import norm_above, recall_target, scaled
from memloci.approx.kernels.targets import Exponential
from memloci.certify.certify import certify
from memloci.certify.kernels import Logits, _peak
from memloci.certify.rounding import LARGEST_LOG_SLOPE, ZETA, Format, format_of
from memloci.core.balls import above
from memloci.core.intervals import Interval, point
from memloci.core.precision import PRECISIONS
from memloci.model.architecture import Architecture
from memloci.model.zeta import zeta
from memloci.observe.sup_error import measure
from memloci.tasks.short import Essential, Fixed
from memloci.tasks.task import Task

from .cases import blank_model, largest_error, last_weights

LAG_1 = Fixed(lags=[1], readout="x1")


def recall(
    p=None, *, E=1.0, V=1.0, O=1.0, U=1.0, precision="float32", task: Task = LAG_1, table=None, **changes
):
    """y_t = U O V E sum_z w(z) x_{t-z}, with one head."""
    fields = {"layers": 1, "heads": 1, "width": 0, "attention": "dpf", "normalisation": "infinite", "dim": 2}
    architecture = Architecture(
        **{**fields, "value_dim": 1, "precision": precision, "path": "certified", **changes}
    )
    model = blank_model(architecture, task.d, task.outputs)
    heads = lambda m: m.layers[0].attention.heads
    dtype = jnp.dtype(precision)
    model = eqx.tree_at(
        lambda m: (m.W_E, heads(m).W_V, heads(m).W_O, m.W_U),
        model,
        tuple(jnp.asarray(w, dtype) for w in ([[E], [0]], [[[V, 0]]], [[[0], [O]]], [[0, U]])),
    )
    if p is not None:
        model = eqx.tree_at(lambda m: heads(m).encoding.p, model, jnp.asarray([p], dtype))
    if table is not None:
        model = eqx.tree_at(lambda m: heads(m).encoding.table, model, jnp.asarray([table], dtype))
    return model


def test_underflow_is_counted():
    """2^-130 x is below float32's normal numbers, and 2^130 brings back what is left of it."""
    for E, V, O, x in [(2.0**-130, 2.0**100, 2.0**30, 0.75), (2.0**-120, 2.0**100, 2.0**20, 2.0**-10)]:
        model = recall(100.0, E=E, V=V, O=O)
        assert largest_error(model, LAG_1, [[x], [0.0]]) <= certify(model, LAG_1).bound


def test_overflow_proves_nothing():
    model = recall(100.0, E=2.0**100, V=2.0**100, O=2.0**-100, U=2.0**-100)
    assert not np.isfinite(largest_error(model, LAG_1, np.ones((3, 1))))
    assert certify(model, LAG_1).bound == math.inf


def test_weights_beyond_a_precision_prove_nothing_there():
    by = certify(recall(100.0, E=1e200, V=1e-200, precision="float64"), LAG_1).bound_by_precision
    assert by["float64"] < 1e-12 and by["float32"] == by["bfloat16"] == math.inf


def test_an_ffn_that_adds_nothing_may_still_overflow():
    model = recall(100.0, layers=2, width=1)
    model = eqx.tree_at(
        lambda m: (m.layers[0].ffn.A, m.layers[0].ffn.B, m.layers[1].ffn.A),
        model,
        (jnp.zeros((2, 1), "float32"), jnp.full((1, 2), 3e38, "float32"), jnp.zeros((2, 1), "float32")),
    )
    model = eqx.tree_at(lambda m: m.W_E, model, jnp.full((2, 1), 2.0, "float32"))
    assert np.isnan(largest_error(model, LAG_1, np.ones((3, 1)))) and certify(model, LAG_1).bound == math.inf


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("p", [1e3, 1e5, LARGEST_LOG_SLOPE])
def test_a_log_head_as_steep_as_allowed_is_lag_one(p, precision):
    model = recall(p, encoding="log", precision=precision)
    bound = certify(model, LAG_1).bound
    assert largest_error(model, LAG_1, np.random.default_rng(0).uniform(-1, 1, (50, 1))) <= bound
    assert bound < 200 * PRECISIONS[precision].u + 2e-9  # the room that ratios of zeta in float64 are given


def test_steeper_log_heads_prove_nothing():
    assert certify(recall(2 * LARGEST_LOG_SLOPE, encoding="log"), LAG_1).bound == math.inf


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_zeta_holds_up_to_the_largest_slope(precision):
    p = np.geomspace(50.0, LARGEST_LOG_SLOPE, 50)
    found = np.array([float(zeta(jnp.asarray(x, precision))) for x in p])
    assert (np.abs(found - 1) <= ZETA * PRECISIONS[precision].u).all()


def test_a_slope_below_the_normal_numbers_proves_nothing():
    assert certify(recall(1e-39), LAG_1).bound == math.inf


def test_biases_are_stored_with_their_offset():
    """A t5 table matters up to a constant; rounding it to fewer bits does not."""
    task = Fixed(lags=[3], readout="x1")
    shape = {"encoding": "t5", "window": 16, "buckets": 8, "max_distance": 16}
    table = 1e9 + 12.0 * (np.arange(8) == 2)
    claimed = certify(recall(table=table, precision="float64", task=task, **shape), task)
    rounded = recall(table=table, precision="float32", task=task, **shape)
    x = np.sign(np.random.default_rng(0).normal(size=(40, 1)))
    error = largest_error(rounded, task, x)
    assert error > 1 and error <= claimed.bound_by_precision["float32"]
    assert claimed.bound_by_precision["float64"] < 1e-3


def test_a_gain_that_rounds_to_zero_is_not_zero():
    """W_U A = 2^60 ((1 + 2^-30)^2 - (1 + 2^-29)) = 1, in float64 0."""
    task = Fixed(lags=[1], readout="0 * x0")
    model = recall(5.0, precision="float64", width=1, dim=3 - 1, task=task)
    a = 1 + 2.0**-30
    model = eqx.tree_at(
        lambda m: (m.W_E, m.W_U, m.layers[0].ffn.A, m.layers[0].ffn.B, m.layers[0].ffn.c),
        model,
        tuple(
            jnp.asarray(w, "float64")
            for w in (
                [[1.0], [0.0]],
                [[a, 1.0]],
                [[a * 2.0**60], [-(1 + 2.0**-29) * 2.0**60]],
                [[1.0, 0.0]],
                [0.0],
            )
        ),
    )
    assert certify(model, task).exact_bound >= 1


def test_logits_too_close_to_tell_have_no_peak():
    """Two logits that differ by 10, and are the same float64 number."""
    peak = _peak([arb(10) ** 18, arb(10) ** 18 + 10], Logits(1.0, 1.0, 1.0, 1.0))
    weight = 1 / (1 + arb(10).exp())
    truth = weight if peak.lag == 1 else 1 - weight
    assert peak.weight.overlaps(truth) and peak.beside.upper() >= (1 - truth).upper()


def test_a_bound_that_is_not_a_number_is_infinite():
    assert above(arb.nan()) == math.inf and above(arb(0)) == 0.0
    assert above(arb(1) / 3) > 1 / 3


def test_symbols_between_the_numbers_of_a_precision_are_rounded():
    channels = [{"name": "x", "values": [0.1, 0.3]}]
    task = Fixed(lags=[1], readout="x0", channels=channels)
    model = recall(50.0, task=task)
    model = eqx.tree_at(
        lambda m: m.W_U, model, jnp.asarray([[1.0, 0.0]], "float32")
    )  # y_t = x_t, without any rounding
    x = [[0.1], [0.3]]
    assert 0 < largest_error(model, task, x) <= certify(model, task).bound
    assert measure(model, task, key=jr.key(0), sequences=2).err_sup <= certify(model, task).bound
    exact = Fixed(lags=[1], readout="x0", channels=[{"name": "x", "values": [0.25, 0.5]}])
    assert certify(model, exact).bound < 1e-13  # what branch and bound leaves; the symbols add nothing


def test_measured_tokens_stay_in_the_alphabet():
    """Also where a model errs by nothing: here where(x0 > 0, 1, 0), which 0 would show to be a ramp."""
    channels = [{"name": "x", "values": [-1, 0.5]}]
    task = Fixed(lags=[1], readout="(x0 + 1) / 1.5", channels=channels)
    exact = Fixed(lags=[1], readout="x0", channels=channels)
    model = eqx.tree_at(lambda m: m.W_U, recall(50.0, task=exact), jnp.asarray([[1.0, 0.0]], "float32"))
    for one in (task, exact):
        worst = measure(model, one, key=jr.key(0), sequences=2, length=8).worst_input
        assert set(worst.ravel().tolist()) <= {-1.0, 0.5}


def test_measured_tokens_stay_in_the_range():
    task = Fixed(lags=[1], readout="x1", channels=[{"name": "x", "range": [-0.1, 0.1]}])
    worst = measure(recall(0.5, task=task), task, key=jr.key(0), sequences=2, length=8).worst_input
    assert np.abs(worst).max() <= 0.1 and (worst == worst.astype(np.float32)).all()


def test_which_pieces_have_numbers():
    single, three = format_of("float32"), Format(2.0**-3)
    assert not single.has_number_in(point(0.1)) and single.has_number_in(point(-0.375))
    assert single.has_number_in(Interval(0.1, 0.1000001)) and single.has_number_in(Interval(-1.0, 1.0))
    assert three.has_number_in(point(1.75)) and not three.has_number_in(point(1.875))
    assert not three.has_number_in(Interval(-1.24, -1.01)) and three.has_number_in(Interval(1.9, 2.0))


def exact_weight_errors(model, precision, n=4_000):
    """sum over n lags of |computed - exact| weights of a model's only head."""
    from memloci.certify.kernels import layer_kernels

    heads = model.layers[0].attention
    w = np.asarray(last_weights(heads, jnp.zeros((n + 1, 2), precision)), dtype=float)
    kernels = layer_kernels(heads)
    exact = kernels.sample([1.0], n)
    return np.abs(w - exact).sum(), kernels.weight_error(format_of(precision), False)[0]


@pytest.mark.parametrize(
    "encoding, p", [("lin", 1e-3), ("lin", 0.3), ("lin", 5.0), ("log", 1.3), ("log", 3.0)]
)
def test_computed_weights_are_within_their_error(encoding, p):
    error, bound = exact_weight_errors(recall(p, encoding=encoding), "float32")
    assert error <= bound


@pytest.mark.parametrize("p", [1.01, 1.05, 1.5, 4.0])
def test_log_weights_rounded_to_bfloat16_are_within_their_error(p):
    """Where p - 1 loses digits, zeta moves by more than its slope says."""
    from scipy.special import zeta as exact

    from memloci.certify.kernels import layer_kernels

    kernels = layer_kernels(recall(p, encoding="log", precision="float64").layers[0].attention)
    bound = kernels.weight_error(format_of("bfloat16"), True)[0]
    z = np.arange(1.0, 1e5)
    for moved in (p * (1 - PRECISIONS["bfloat16"].u), p * (1 + PRECISIONS["bfloat16"].u)):
        if moved > 1:
            assert np.abs(z**-p / exact(p, 1.0) - z**-moved / exact(moved, 1.0)).sum() <= bound


def test_sums_of_running_sums_in_bfloat16_are_within_their_error():
    """The past in blocks, smallest first: the order that errs most."""
    from memloci.certify.kernels import layer_kernels

    for p in (0.05, 0.3, 2.0):
        kernels = layer_kernels(recall(p, precision="float32").layers[0].attention)
        bfloat16 = format_of("bfloat16")
        bound = kernels.sum_error(bfloat16, False)[0]
        w = np.asarray(jnp.asarray(kernels.sample([1.0], 600), jnp.bfloat16))
        for order in (w, w[::-1]):
            for block in (1, 7, 50, 600):
                total = order.dtype.type(0)
                for start in range(0, len(order), block):
                    part = order.dtype.type(0)
                    for x in order[start : start + block]:
                        part = part + x
                    total = total + part
                assert abs(float(total) - w.astype(float).sum()) <= bound


def test_factors_need_not_multiply_to_a_float():
    """0.1 * 0.3 is no float64 number, and a readout of a kernel is certified all the same."""
    tenth = scaled(Exponential(0.7, 0.3), 0.1)
    assert abs(tenth.value(2) - arb(0.1) * arb(0.3) * (-arb(0.7) * 2).exp()) < 1e-15
    assert abs(tenth.tail_sum(4) - arb(0.1) * Exponential(0.7, 0.3).tail_sum(4)) < 1e-15
    assert scaled(tenth, -2.0).tail_bound(0).overlaps(-scaled(tenth, -2.0).tail_sum(0))
    task = Essential(kernels=["0.3 * exp(-0.7 * z)"], readout="0.1 * x1")
    model = recall(0.7, O=0.3 / math.expm1(0.7), U=0.1, precision="float64", task=task)
    certificate = certify(model, task)
    assert certificate.bound < 1e-12
    assert measure(model, task, key=jr.key(0), sequences=2, length=100).err_sup <= certificate.bound + 1e-13


def test_the_norm_of_a_kernel_is_proved():
    """In float64 a difference of large numbers makes the sum too small or too large."""
    task = Essential(kernels=["exp(-0.01 * z) * ((10000.0 + z ** -2) - 10000.0)"], readout="x1")
    norm = norm_above(recall_target(task.recalls[0]))
    exact = sum(math.exp(-0.01 * z) * z**-2.0 for z in range(1, 20_000))
    assert exact <= norm <= exact * (1 + 1e-6)
