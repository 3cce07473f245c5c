"""Weights that compute the same in other coordinates have nearly the same bound: signs, scales and rotations of the stream."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.certify.analysis import CaseAnalysis
from memloci.tasks.inputs import sample
from tests.audit.mutations import moved, mutated


@pytest.fixture(scope="module")
def pointer():
    return ml.compile(ml.load_task("pointer"), route="rotary", precision="float64")


def in_jax(model):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, model)


@pytest.mark.long(5)
@pytest.mark.parametrize("scale", [-1.0, 0.5, -0.85])
@pytest.mark.parametrize(
    "name, route", [("product", "rotary"), ("trigram", "rotary"), ("partly-nested", "rotary")]
)
def test_the_sign_and_the_scale_of_a_slot_do_not_matter(name, route, scale):
    """Negating a slot of `product` turned 5.1e-4 into 7.07."""
    task = ml.load_task(name)
    built = ml.compile(task, route=route, tolerance=1e-2)
    T = np.ones(built.model.architecture.dim)
    T[: min(len(T), 16) : 2] = scale
    changed = in_jax(moved(built.model, np.diag(T), np.diag(1 / T)))
    assert ml.certify(changed, task).bound <= 2 * built.certificate.bound


def test_a_rotated_pointer_keeps_its_bound(pointer):
    """In float64 nothing but roundings of the rotated weights is lost; the bound was 2.6e5."""
    rotated = mutated(pointer.model, "rotate the stream", np.random.default_rng(0))
    found = ml.certify(rotated, pointer.task)
    assert found.bound <= max(10 * pointer.certificate.bound, 1e-8)


def test_a_rotated_pointer_of_float32_is_followed_exactly():
    """Its outputs move by 3.4e-5, because the rotated weights are rounded, and the bound in exact arithmetic says so."""
    task = ml.load_task("pointer")
    built = ml.compile(task, route="rotary")
    rotated = mutated(built.model, "rotate the stream", np.random.default_rng(0))
    x = sample(task, jr.key(0), 64, built.model.W_E.dtype)
    apart = float(jnp.abs(rotated(x) - task.target(x)).max())
    assert apart <= ml.certify(rotated, task).exact_bound <= 1e-4


def test_a_model_with_too_few_layers_for_its_task_has_a_certificate():
    """Levels of nesting that no layer reaches were looked up beyond the last layer."""
    task = ml.load_task("nested-2")
    shallow = ml.compile(ml.load_task("pointer"), route="rotary").model
    found = ml.certify(shallow, task)
    assert not found.met and len(CaseAnalysis(shallow, task).layers) == 2
