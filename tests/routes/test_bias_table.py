"""A table of biases is any kernel over its window: what lin heads fit badly is met, at the mass of the kernel."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from memloci.pipeline import compile, measure, plan
from memloci.tasks.load import load_task
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.short import Essential, Fixed

from .test_routes import ORACLE, assert_sound

CHANNELS = [{"name": "x", "range": [-1, 1]}, {"name": "b", "values": [-1, 2]}]


def build(task, tolerance=1e-3, precision="float32"):
    return compile(task, tolerance=tolerance, precision=precision, route="bias-table")


def window_of(built) -> int:
    assert built.model.architecture.window is not None
    return built.model.architecture.window


@pytest.mark.long
@pytest.mark.parametrize("name", ["ringing", "morlet"])
def test_oscillating_kernels_meet_the_tolerance_in_float32(name):
    """The gallery's two, with which one lin layer needs thousands of times their norm as mass."""
    built = build(load_task(name))
    assert built.certificate.met and (built.certificate.bits or 99) <= 24
    seen = assert_sound(built, length=300, starts=1)
    assert seen >= 0.9 * built.certificate.bound  # nearly all of it is the tail, and that is exact


@pytest.mark.long
@pytest.mark.parametrize("name", ["ringing", "morlet"])
def test_the_mass_is_the_norm_of_the_kernel(name):
    task = load_task(name)
    (kernel,) = task.recalls
    assert isinstance(kernel, Convolution)
    built = build(task, 1e-9, "float64")
    a = built.model.architecture
    assert built.certificate.met and (a.layers, a.heads) == (1, 2)
    assert built.certificate.mass == pytest.approx(kernel.norm, rel=1e-6)
    assert_sound(built, length=500, starts=1)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_heads_have_the_kernel(precision):
    """alpha_+ w_+ - alpha_- w_- = rho on the window, lag by lag."""
    built = build(load_task("ringing"), 1e-3, precision)
    attention, n = built.model.layers[0].attention, window_of(built)
    w = np.asarray(attention.weights(jnp.zeros((n + 1, 2), precision))[:, -1, :-1], dtype=float)[:, ::-1]
    alpha = np.asarray(attention.heads.W_O, dtype=float)[:, 1, 0]
    z = np.arange(1, n + 1)
    u = float(jnp.finfo(precision).eps)
    assert np.abs(alpha @ w - np.exp(-z / 10) * np.cos(2 * np.pi * z / 8)).sum() <= 100 * u


def test_the_window_grows_with_the_demand_and_parameters_with_the_window():
    rows = [build(load_task("ringing"), tolerance, "float64") for tolerance in (1e-1, 1e-3, 1e-6)]
    windows = [window_of(built) for built in rows]
    assert windows == sorted(set(windows)) and all(built.certificate.met for built in rows)
    for built, window in zip(rows, windows, strict=True):
        assert built.model.architecture.buckets == 2 * window <= 500


def test_kernels_of_one_sign_take_one_head_and_channels_share_it():
    task = Essential(
        kernels=["where(z < 5, 1 / z, 0)", "-exp(-z / 3) * sin(z) ** 2"],
        readout="x1 + 0.5 * b1 - x2",
        channels=CHANNELS,
    )
    built = build(task)
    assert built.certificate.met and built.model.architecture.heads == 2
    assert_sound(built, length=200)


def test_a_power_law_fits_the_longest_window():
    built = build(load_task("power-law"))
    assert built.certificate.met and window_of(built) > 1_000
    assert_sound(built, length=400, sequences=2, starts=1)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (Fixed(lags=[3], readout="x1"), "single lags need no table: route t5 does that with one head each"),
        (load_task("heavy-tail"), "beyond lag 2,048 the norm of z^-1.5 is up to 0.0442, more than the 9e-4"),
        (Essential(kernels=["z ** -2"], readout="x0"), "nothing is recalled"),
    ],
)
def test_refusals(task, reason):
    plans = plan(task, routes=["bias-table"])
    assert not plans.met and not plans.missed and reason in plans.obstacles["bias-table"]


def random_kernel(rng: np.random.Generator) -> str:
    a, b, c = rng.uniform(0.05, 2.0, 3).round(3).tolist()
    return str(
        rng.choice(
            [
                f"exp(-{a} * z) * cos({b} * z + {c})",
                f"exp(-(z - {10 * a}) ** 2 / {10 * b}) * sin({c} * z)",
                f"where(z % 3 == 0, -{a}, {b}) * exp(-{c} * z)",
                f"z ** -{2 + a} * sin({b} * z)",
                f"{a} * exp(-{b} * z) - {b} * exp(-{a} * z)",
            ]
        )
    )


def assert_random_is_sound(seed):
    rng = np.random.default_rng(seed)
    kernels = [random_kernel(rng) for _ in range(rng.integers(1, 4))]
    readout = " + ".join(f"{rng.uniform(-1, 1):.3f} * x{i + 1}" for i in range(len(kernels)))
    task = Essential(kernels=kernels, readout=readout)
    precision = str(rng.choice(["float32", "float64"]))
    plans = plan(task, float(rng.choice([1e-1, 1e-2, 1e-3])), precision, routes=["bias-table"])
    assert plans.met or plans.missed or "beyond lag 2,048" in plans.obstacles["bias-table"]
    for p in (*plans.met, *plans.missed):
        seen = measure(p.model, task, key=jr.key(seed), length=200, sequences=2, steps=4, starts=1)
        assert seen.err_sup <= p.certificate.bound + ORACLE, (precision, task.to_dict())


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_no_input_beats_the_certificate_of_random_kernels(seed):
    assert_random_is_sound(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_input_beats_the_certificate_of_many_random_kernels(seed):
    assert_random_is_sound(seed)
