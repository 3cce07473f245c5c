"""Any biases over a window: every weight is enclosed, and no input or rounding beats the certificate."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flint import arb

from memloci.approx.kernels.kernel_targets import recall_target
from memloci.certify.certify import certify
from memloci.certify.kernels import LONGEST_TABLE, PeakKernels, TableKernels, Taps, layer_kernels
from memloci.certify.rounding import format_of
from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from memloci.observe.sup_error import measure
from memloci.tasks.short import Essential, Fixed

from .cases import drawn_model, last_weights, random_essential, random_fixed

ORACLE = 1e-13
SCALES = (0.1, 1.0, 5.0, 40.0, 300.0)  # of the biases: from flat to sharp, and to weights that underflow


def with_tables(tables, precision="float32", channels=1, outputs=1, seed=0, **changes) -> Transformer:
    """A model with random weights, and these biases in its one layer or in both."""
    tables = np.asarray(tables, dtype=precision)
    fields = {"width": 0, "attention": "dpf", "encoding": "t5", "normalisation": "infinite", "dim": 3}
    H, buckets = tables.shape[-2:]
    sizes = {"layers": 1, "heads": H, "buckets": buckets, "max_distance": buckets, "window": buckets // 2}
    architecture = Architecture(**{**fields, **sizes, "value_dim": 2, "precision": precision, **changes})
    model = drawn_model(architecture, channels, outputs, seed=seed)
    for l in range(architecture.layers):
        place = lambda m, l=l: m.layers[l].attention.heads.encoding.table
        model = eqx.tree_at(place, model, jnp.asarray(tables))
    return model


def plain(tables, alphas=(1.0,), precision="float64", **changes) -> Transformer:
    """y_t = sum_h alpha_h sum_z w_h(z) x_{t-z}."""
    model = with_tables(tables, precision, **{"dim": 2, "value_dim": 1, **changes})
    heads = lambda m: m.layers[0].attention.heads
    H = len(alphas)
    new = ([[1], [0]], [[[1, 0]]] * H, [[[0], [alpha]] for alpha in alphas], [[0, 1]])
    return eqx.tree_at(
        lambda m: (m.W_E, heads(m).W_V, heads(m).W_O, m.W_U),
        model,
        tuple(jnp.asarray(np.array(w, dtype=precision)) for w in new),
    )


def softmax(table, window):
    e = np.exp(np.asarray(table, dtype=np.longdouble)[:window] - np.max(table[:window]))
    return e / e.sum()


def random_tables(seed):
    rng = np.random.default_rng(seed)
    task = random_fixed(rng) if rng.integers(2) else random_essential(rng)
    layers = int(rng.integers(1, 3)) if task.kind == "fixed" else 1
    H, half = int(rng.integers(1, 4)), int(rng.integers(2, 40))
    tables = rng.choice(SCALES) * rng.normal(size=(H, 2 * half)) + rng.choice([0.0, 0.0, 1e3])
    tables[rng.random(tables.shape) < 0.2] = -rng.choice([1.0, 64.0, 1e3])
    window = int(rng.choice([half, 2 * half, max(1, half // 2)]))
    precision = str(rng.choice(["float32", "float64"]))
    model = with_tables(tables, precision, task.d, task.outputs, seed, layers=layers, window=window)
    bias = rng.normal(size=3) * rng.integers(0, 2)
    return task, eqx.tree_at(lambda m: m.b_E, model, jnp.asarray(bias, precision))


def assert_sound(seed):
    task, model = random_tables(seed)
    bound = certify(model, task).bound
    seen = measure(model, task, key=jr.key(seed), length=90, sequences=3, steps=8, starts=2)
    assert seen.err_sup <= bound * (1 + ORACLE) + ORACLE, task.to_dict()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_no_input_beats_the_certificate_of_random_tables(seed):
    assert_sound(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_no_input_beats_the_certificate_of_many_random_tables(seed):
    assert_sound(seed)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("scale", SCALES)
def test_computed_weights_are_within_their_error(scale, precision):
    table = scale * np.random.default_rng(0).normal(size=2 * 300)
    model = plain([table], precision=precision)
    attention = model.layers[0].attention
    kernels = layer_kernels(attention)
    w = np.asarray(last_weights(attention, jnp.zeros((301, 2), precision)), dtype=np.longdouble)
    error = float(np.abs(w - softmax(table.astype(precision), 300)).sum())
    assert error <= kernels.weight_error(format_of(precision), False)[0] < 1e4 * format_of(precision).u


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("stored", [False, True])
def test_weights_in_bfloat16_are_within_their_error(scale, stored):
    """Every step rounded to 8 bits, and the biases too if they are stored so."""
    rng = np.random.default_rng(1)
    eight = np.asarray(jnp.zeros(1, jnp.bfloat16)).dtype
    for n in (2, 9, 60):
        table = scale * rng.normal(size=2 * n) + rng.choice([0.0, 50.0])
        if not stored:
            table = table.astype(eight).astype(float)
        kernels = layer_kernels(plain([table]).layers[0].attention)
        assert isinstance(kernels, TableKernels | PeakKernels)
        t = table[:n].astype(eight)
        e = np.exp((t - t.max()).astype(float)).astype(eight)
        total = eight.type(0)
        for x in e:
            total = total + x
        error = np.abs((e / total).astype(float) - softmax(table, n)).sum()
        assert error <= kernels.weight_error(format_of("bfloat16"), stored)[0]
        v = rng.choice([-1.0, 1.0], n).astype(eight)
        recalled = eight.type(0)
        for x in e / total * v:
            recalled = recalled + x
        exact = ((e / total).astype(float) * v.astype(float)).sum()
        assert abs(float(recalled) - exact) <= kernels.sum_error(format_of("bfloat16"), stored)[0]


def test_the_worst_input_attains_the_bound():
    """Two heads that differ in sign; all 14 lags of the window are taps, so nothing is lost."""
    tables = np.random.default_rng(2).normal(size=(2, 28))
    model, task = plain(tables, [0.7, -1.3]), Fixed(lags=[3], readout="x1")
    certificate = certify(model, task)
    seen = measure(model, task, key=jr.key(0), length=40, sequences=2, starts=1)
    assert 0.999 <= seen.err_sup / certificate.bound <= 1 and certificate.mass == pytest.approx(2.0)


def test_the_residual_is_the_l1_norm():
    tables = np.random.default_rng(3).normal(size=(2, 40))
    kernels = layer_kernels(plain(tables, [1.0, 1.0]).layers[0].attention)
    K = 0.7 * softmax(tables[0], 20) - 1.3 * softmax(tables[1], 20)
    g = [arb(0.7), arb(-1.3)]
    assert isinstance(kernels, TableKernels)
    assert kernels.sample([0.7, -1.3], 30) == pytest.approx(np.append(K, np.zeros(10)).astype(float))
    assert float(kernels.value(g, 3)) == pytest.approx(float(K[2])) and kernels.value(g, 21) == 0
    assert float(kernels.residual(g, Taps(()))) == pytest.approx(float(np.abs(K).sum()))
    far = Taps(((3, arb(1)), (25, arb(2))))
    K[2] -= 1
    assert float(kernels.residual(g, far)) == pytest.approx(float(np.abs(K).sum()) + 2)
    K[2] += 1
    rho = recall_target(Essential(kernels=["exp(-z / 5) * cos(z)"], readout="x1").recalls[0])
    z = np.arange(1, 400)
    wanted = np.exp(-z / 5) * np.cos(z)
    wanted[:20] -= K.astype(float)
    assert float(kernels.residual(g, rho)) == pytest.approx(np.abs(wanted).sum())


def test_every_bias_that_is_seen_matters():
    table, task = np.linspace(0.0, -2.0, 12), Essential(kernels=["exp(-0.4 * z)"], readout="x1")
    before = certify(plain([table]), task).exact_bound
    for bucket in range(12):
        changed = table + 1e-3 * (np.arange(12) == bucket)
        same = certify(plain([changed]), task).exact_bound == before
        assert same == (bucket >= 6)  # beyond the window


def test_sharp_heads_keep_their_peaks_and_others_their_tables():
    sharp, flat = 40.0 * np.eye(1, 64, 4), np.zeros((1, 64))
    kinds = lambda tables, **changes: type(
        layer_kernels(plain(tables, [1.0] * len(tables), **changes).layers[0].attention)
    )
    assert kinds(sharp) is PeakKernels and kinds(flat) is TableKernels
    assert kinds(np.concatenate([sharp, flat])) is TableKernels
    assert kinds(flat, window=LONGEST_TABLE + 1) is PeakKernels


def test_a_table_is_never_worse_than_its_peak():
    """One lag, whichever way the head is kept."""
    task = Fixed(lags=[3], readout="x1")
    below, above = (certify(plain([c * np.eye(1, 64, 2)[0]]), task).exact_bound for c in (24.0, 25.0))
    assert below == pytest.approx(2 * 31 * np.exp(-24.0), rel=1e-6)
    assert above == pytest.approx(2 * 31 * np.exp(-25.0), rel=1e-6)


@pytest.mark.parametrize("window", [1, 16])
def test_biases_beyond_a_precision_prove_nothing_there(window):
    table = np.append(np.full(31, 1e39), -1e39)
    by = certify(plain([table], window=window), Fixed(lags=[1], readout="x1")).bound_by_precision
    assert by["float64"] < 3 and by["float32"] == by["bfloat16"] == np.inf
