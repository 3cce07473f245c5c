"""Proposition 4.2, sharpened: no affine function of the past errs by less than the floor, and dp passes below it."""

import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.optimize import linprog

import memloci as ml
from memloci.model.encodings import ENCODINGS
from memloci.model.transformer import Transformer
from memloci.routes.affine_floor import affine_floor, affine_obstacle
from memloci.tasks.task import Task

V = {"name": "v", "range": [-1, 1]}


def every_past(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """All sequences of three tokens from {-1, 0, 1}, and the target at the last of them."""
    X = np.array(list(itertools.product([-1.0, 0.0, 1.0], repeat=3)))[:, :, None]
    return X, np.asarray(jax.vmap(task.target)(jnp.asarray(X)))[:, -1, 0]


def test_the_best_affine_function_of_the_papers_target_errs_by_exactly_1():
    """A linear program over all pasts agrees with the theorem: the constant is sharp, where the paper has 2/3."""
    task = ml.load_task("look-back")
    X, y = every_past(task)
    A = np.hstack([X[:, :, 0], np.ones((len(X), 1))])
    best = linprog(
        [0, 0, 0, 0, 1],
        A_ub=np.block([[A, -np.ones((len(A), 1))], [-A, -np.ones((len(A), 1))]]),
        b_ub=np.concatenate([y, -y]),
        bounds=[(None, None)] * 4 + [(0, None)],
    )
    floor = affine_floor(task)
    assert floor is not None and floor.E_least == 1.0 and floor.lags == (1, 2)
    assert best.fun == pytest.approx(1.0, abs=1e-9)


def test_the_measure_that_proves_it_sees_no_affine_function():
    """Signs on eight pasts: every affine function sums to 0 against them, the target to the sum of their sizes."""
    task, weights = ml.load_task("look-back"), {}
    for now, (first, second) in itertools.product((0, 1), itertools.product((-1, 1), repeat=2)):
        if first != second:
            weights[second, first, now] = first if now == 0 else second
    X = np.array(list(weights), dtype=float)[:, :, None]
    y = np.asarray(jax.vmap(task.target)(jnp.asarray(X)))[:, -1, 0]
    mu = [Fraction(w) for w in weights.values()]
    for column in [np.ones(len(X)), *X[:, :, 0].T]:
        assert sum(w * Fraction(float(x)) for w, x in zip(mu, column, strict=True)) == 0
    assert sum(w * Fraction(float(v)) for w, v in zip(mu, y, strict=True)) == sum(map(abs, mu))


@pytest.mark.parametrize(("encoding", "normalisation"), [("log", "softmax"), ("rope", "infinite")])
def test_no_model_of_the_kind_gets_below_the_floor(encoding, normalisation):
    task = ml.load_task("look-back")
    a = ml.Architecture(
        layers=2,
        heads=3,
        width=0,
        attention="dpf",
        encoding=encoding,
        normalisation=normalisation,
        window=None if ENCODINGS[encoding].summable == "always" else 8,
        dim=4,
        key_dim=2,
        value_dim=2,
    )
    assert "errs by 1 or more" in (affine_obstacle(a, task) or "")
    X, y = every_past(task)
    for seed in range(2):
        model = Transformer(a, 1, 1, key=jr.key(seed))
        out = np.asarray(jax.vmap(model)(jnp.asarray(X, jnp.float32)))[:, -1, 0]
        assert np.abs(out - y).max() >= 1 - 1e-5


def test_the_floor_is_half_the_range_of_the_channel():
    wide = ml.Adaptive(
        channels=[{"name": "a", "values": [1, 2]}, {**V, "range": [-1, 5]}], lags=["a0"], readout="v1"
    )
    floor = affine_floor(wide)
    assert floor is not None and floor.E_least == 3.0


@pytest.mark.parametrize("name", ["nested-1", "delay", "power-law", "induction"])
def test_it_says_nothing_of_other_tasks(name):
    assert affine_floor(ml.load_task(name)) is None


@pytest.mark.parametrize(
    "switch",
    [{"width": 4}, {"attention": "dp"}, {"attention": "tmx", "normalisation": "none"}, {"norm": "pre"}],
)
def test_it_says_nothing_of_other_models(switch):
    a = ml.Architecture(**{"layers": 1, "heads": 2, "width": 0, "attention": "dpf", **switch})
    assert affine_obstacle(a, ml.load_task("look-back")) is None


def test_a_dot_product_passes_below_it_in_one_layer():
    """Attention reads the lag off the token: one layer of dp heads, whose only neurons bring the present itself."""
    task = ml.load_task("look-back")
    built = ml.compile(task, tolerance=1e-9, precision="float64", route="lin-dp-direct")
    a = built.model.architecture
    assert built.certificate.bound < 1e-9 and (a.layers, a.attention, a.width) == (1, "dp", 2)
    X, y = every_past(task)
    out = np.asarray(jax.vmap(built.model)(jnp.asarray(X)))[:, -1, 0]
    assert np.abs(out - y).max() <= built.certificate.bound + 1e-15
