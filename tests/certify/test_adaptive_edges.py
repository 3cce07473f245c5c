"""Weights that once made a certificate of adaptive memories promise too much."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from memloci.certify.affine_forms import AffineForms, add_all
from memloci.certify.balls import Ball
from memloci.certify.cases import Cases
from memloci.certify.certify import certify
from memloci.certify.pointers import UNKNOWN, find
from memloci.certify.rounding import format_of
from memloci.pipeline import compile
from memloci.tasks.short import Adaptive
from memloci.tasks.task import Task

from .cases import many_outputs


def pointer(*letters: float) -> Task:
    channels = [{"name": "a", "values": list(letters)}, {"name": "v", "range": [-1, 1]}]
    return Adaptive(channels=channels, lags=["a0"], readout="v1")


def largest_error(model, task, seeds: int = 16, n: int = 12) -> float:
    """On short random sequences, whose first positions have blank memories."""
    letters, rng = [piece.lo for piece in task.channels[0].domain], np.random.default_rng(0)
    x = np.stack([rng.choice(letters, (seeds, n)), rng.uniform(-1, 1, (seeds, n))], axis=2)
    x = np.asarray(x, model.W_E.dtype)
    y = np.asarray(many_outputs(model, jnp.asarray(x)), float)
    error = np.abs(y - np.stack([np.asarray(task._target(one, np)) for one in x.astype(float)]))
    return math.inf if np.isnan(error).any() else float(error.max())


@pytest.mark.parametrize("scale", [1.0, 7.0, 40.0])
def test_a_pointer_without_its_sink_is_wrong_before_the_start(scale):
    task = pointer(2, 3, 5)
    model = compile(task, precision="float64", route="rotary").model
    W_Q = lambda m: m.layers[1].attention.heads.score.W_Q
    spoiled = eqx.tree_at(W_Q, model, (scale * W_Q(model)).at[:, 31].set(0.0))
    assert certify(spoiled, task).bound >= largest_error(spoiled, task) > 0.5


def test_sharp_amplitudes_do_not_excuse_an_unknown_query():
    turns = np.array([1 << (31 - b) for b in range(31)], dtype=np.uint32)
    q = np.zeros((1, 62))
    q[0, :31] = 1000 * np.cos(np.pi * 2.0 ** -np.arange(31))  # lag 1
    q[0, 31:] = -1000 * np.sin(np.pi * 2.0 ** -np.arange(31))
    key = Ball(np.concatenate([np.ones(31), np.zeros(31)]), np.zeros(62))
    t = np.array([1]), np.array([2**31])
    sharp = find(Ball(q, np.zeros_like(q)), key, key, turns, *t, format_of("float64"))
    assert sharp.what[0] != UNKNOWN and sharp.z[0] == 1 and sharp.beside[0] < 1e-100
    assert find(Ball(q, np.full_like(q, 1e4)), key, key, turns, *t, format_of("float64")).what[0] == UNKNOWN


@pytest.mark.parametrize("weight", [5.0, 1e3])
def test_a_gate_that_reads_the_payload_is_seen(weight):
    task = pointer(1, 2)
    model = compile(task, precision="float64", route="lin-tmx").model
    w = lambda m: m.layers[1].attention.heads.score.w
    spoiled = eqx.tree_at(w, model, w(model).at[:, 1].set(weight))  # the slot of v
    assert certify(spoiled, task).bound >= largest_error(spoiled, task) > 0.1


def test_a_neuron_that_writes_nothing_may_still_overflow():
    task = pointer(1, 2, 3)
    model = compile(task, route="rotary").model
    B = lambda m: m.layers[-1].ffn.B
    ffn = model.layers[-1].ffn
    assert ffn is not None and not np.asarray(ffn.A).any()
    spoiled = eqx.tree_at(B, model, B(model).at[0, 0].set(3e38))
    found = certify(spoiled, task)
    assert found.bound == math.inf and found.status == "missed"


def test_heads_are_added_in_any_order():
    """64 heads of which two cancel: an order that keeps them apart loses the small ones."""
    one = np.ones((1, 1))
    none = np.zeros((1, 1))
    same = np.zeros((1, 1), dtype=np.int64)
    cases = Cases(none, none, same, np.array([1]), np.array([1]), same)
    sizes = [0.99] * 62 + [1.5 * 2**24, -1.5 * 2**24]
    parts = [AffineForms(cases, size * one, none[:, :, None], none) for size in sizes]
    total = add_all(parts, [np.ones(1)] * len(parts), format_of("float32"))
    computed = np.float32(0)
    for size in sizes[62:63] + sizes[:62] + sizes[63:]:
        computed += np.float32(size)
    assert abs(float(computed) - sum(sizes)) <= total.E[0, 0]
    assert abs(float(computed) - sum(sizes)) > 10


def test_unread_weights_beyond_a_format_spoil_its_bound():
    task = pointer(1, 2)
    model = compile(task, precision="float64", route="rotary").model
    silent = int(np.flatnonzero(~np.asarray(model.W_U).any(axis=0))[0])
    spoiled = eqx.tree_at(lambda m: m.W_U, model, model.W_U.at[0, silent].set(jnp.asarray(1e300)))
    assert certify(spoiled, task).bound_by_precision["float32"] == math.inf
