"""Matches, token by token: a layer keeps as much of the past as its own window asks for, not as the first layer's."""

import jax.numpy as jnp
import numpy as np
import pytest

import memloci as ml


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
