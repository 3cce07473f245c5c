"""Certificates of matches that were false, and models that could not be built: streams, means, matches side by side."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memloci as ml
from memloci.tasks.inputs import sample


@pytest.mark.long(3)
@pytest.mark.parametrize("which, offset", [("latest", 1), ("earliest", 0), ("earliest", 1)])
def test_a_stream_finds_matches_that_are_older_than_the_window_of_the_first_layer(which, offset):
    """The window of 16 of the first layer was taken for that of all: a bound of 4e-7, and an error of 0.9."""
    task = ml.Matched(
        channels=[{"name": "k", "values": list(range(12))}, {"name": "v", "range": [-1, 1]}],
        matches=["k1 == k0"],
        which=which,
        offset=offset,
        readout="v1",
    )
    built = ml.compile(task, route="match", tolerance=1e-2)
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 12, 300), rng.uniform(-1, 1, 300)], axis=1).astype(np.float32)
    H = np.asarray(task.target(jnp.asarray(x)), dtype=float)
    stream = built.model.stream()
    y = np.asarray(stream.feed(x), dtype=float)
    assert "streams: covered" in built.certificate.assumptions
    assert np.abs(y - H).max() <= built.certificate.bound


@eqx.filter_jit
def outputs(model, x):
    return jax.vmap(model)(x)


def test_a_mean_of_matches_is_as_uneven_as_its_logits():
    """Logits of 2.7e11 that are 0.03 apart weigh one match 1.03 times the other: an error of 0.014, a bound of 5e-7."""
    keys = {"name": "k", "values": [0, 1, 2, 3]}
    task = ml.Matched(
        channels=[keys, {"name": "v", "range": [-1, 1]}], matches=["k1 != k0"], which="mean", readout="v1"
    )
    built = ml.compile(task, route="match", tolerance=1e-2, precision="float64")
    assert built.certificate.bound < 1e-6
    heads: Any = built.model.layers[1].attention.heads
    W_K, averages = np.array(heads.score.W_K), int(np.argmin(np.abs(np.asarray(heads.encoding.p))))
    rows, columns = np.nonzero(W_K[averages])
    x = np.zeros((4, 30, 2))
    x[:, :, 0] = np.random.default_rng(0).integers(0, 4, (4, 30))
    x[:, :, 1] = np.where(x[:, :, 0] == np.arange(4)[:, None], 1.0, -1.0)  # each key against the others
    H, seen = np.asarray(jax.vmap(task.target)(x)), []
    for j, i in zip(rows, columns, strict=True):
        changed = W_K.copy()
        changed[averages, j, i] *= 1 + 1e-13
        at = lambda m: m.layers[1].attention.heads.score.W_K
        model = eqx.tree_at(at, built.model, jnp.asarray(changed))
        seen.append(np.abs(np.asarray(outputs(model, x)) - H).max())
        assert seen[-1] <= ml.certify(model, task).bound
    assert max(seen) > 1e-3


def test_matches_that_compare_differently_share_a_layer():
    """One compares bits of a key, the other a class of a table: the dimensions of their queries differ."""
    channels = [{"name": "k", "values": [0, 1, 2, 3, 4]}, {"name": "v", "range": [-1, 1]}]
    memories = [ml.Match("k1 == k0"), ml.Match("k2 == 0", which="earliest")]
    task = ml.Task(channels=channels, memories=memories, readout="v1 - 0.5 * v2")
    built = ml.compile(task, route="match", tolerance=1e-5)
    rng = np.random.default_rng(1)
    x = np.stack([rng.integers(0, 5, (2, 60)), rng.uniform(-1, 1, (2, 60))], axis=2).astype(np.float32)
    H = np.asarray(jax.vmap(task.target)(x.astype(float)))
    assert built.certificate.met
    assert np.abs(np.asarray(outputs(built.model, x), dtype=float) - H).max() <= built.certificate.bound


KEYS = {"name": "k", "values": [0, 1, 2]}
UNEVEN = {"name": "k", "values": [-9, 4, 21]}  # no power of 2 lies between all neighbours
PAYLOAD = {"name": "v", "range": [-1, 1]}
TASKS = {
    "uneven letters": ([UNEVEN, PAYLOAD], [ml.Match("k1 == k0"), ml.Lag(4)], "v2 - 0.5 * v1"),
    "a table in which letters match nothing": ([KEYS, PAYLOAD], [ml.Match("k1 + k0 == 1", offset=1)], "v1"),
    "a table of uneven letters": ([UNEVEN, PAYLOAD], [ml.Match("abs(k1 - k0) < 2")], "v1"),
    "an earliest match, then a hop": (
        [KEYS, {**KEYS, "name": "a"}, PAYLOAD],
        [ml.Match("k1 > k0", which="earliest"), ml.Match("k2 == a1")],
        "2 * v2",
    ),
    "a kernel after a match": (
        [KEYS, PAYLOAD],
        [ml.Match("k1 == k0"), ml.Kernel("1 / (1 + z)", horizon=3)],
        "v1 * v2",
    ),
}


@pytest.mark.long(2)
@pytest.mark.parametrize("name", TASKS)
def test_matches_of_all_kinds_are_proved_and_hold(name):
    """Each had an infinite bound, or one above 1, or a traceback, with models that were right."""
    channels, memories, readout = TASKS[name]
    task = ml.Task(channels=channels, memories=memories, readout=readout)
    built = ml.compile(task, route="match", tolerance=1e-2)
    x = np.stack([np.asarray(sample(task, jax.random.key(k), 50)) for k in range(4)]).astype(np.float32)
    H = np.asarray(jax.vmap(task.target)(x.astype(float)))
    assert built.certificate.met
    assert np.abs(np.asarray(outputs(built.model, x), dtype=float) - H).max() <= built.certificate.bound
