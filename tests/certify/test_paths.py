"""Certificates say which paths they cover, and cover them."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from memloci.certify.certify import certify
from memloci.core.errors import BadInput
from memloci.model.store import load
from memloci.pipeline import compile, verify, write
from memloci.tasks.load import load_task
from memloci.tasks.short import Essential, Fixed

from .cases import outputs_of
from .test_certify import one_head

LENGTH = 1500


def lin(task):
    return compile(task, tolerance=1e-2, precision="float32", route="one-layer-lin")


@pytest.mark.long
@pytest.mark.parametrize(
    "task", [Fixed(lags=[1, 2], readout="x1 - x2"), load_task("power-law")], ids=["lags", "tail"]
)
def test_the_recurrence_is_covered(task):
    """Values of one sign add up all roundings, random ones find the rest."""
    built = lin(task)
    assert built.model.path(LENGTH) == "recurrence"
    assert "path recurrence, as path certified chooses" in built.certificate.assumptions[0]
    rng = np.random.default_rng(0)
    for x in (np.ones((LENGTH, 1)), rng.choice([-1.0, 1.0], (LENGTH, 1)), rng.uniform(-1, 1, (LENGTH, 1))):
        found = np.asarray(outputs_of(built.model.using("recurrence"), jnp.asarray(x, "float32")), "float64")
        error = np.abs(found - np.asarray(task.target(x))).max()
        assert error <= built.certificate.bound


@pytest.mark.slow
def test_paths_differ_in_rounding_only():
    model, task = lin(load_task("power-law")).model, load_task("power-law")
    found = [certify(model.using(path), task) for path in ("plain", "blocks", "recurrence", "certified")]
    assert len({certificate.exact_bound for certificate in found}) == 1
    # One sum of up to 2^14 terms rounds most, and what is chosen by length is no better than its worst part.
    assert found[0].bound == max(certificate.bound for certificate in found)
    assert found[3].bound >= found[2].bound


@pytest.mark.parametrize("fields", [{"encoding": "log"}, {"encoding": "log", "path": "auto"}])
def test_auto_is_refused_where_it_may_leave_what_is_covered(fields):
    """Log heads take the recurrence there, whose sums of exponentials no certificate covers."""
    task = Essential(kernels=["z ** -2"], readout="x1")
    model = one_head(2.0, "float32", **fields)
    assert model.path(100_000) == "recurrence"
    with pytest.raises(BadInput, match="path 'recurrence', which path 'auto' takes.*using\\('certified'\\)"):
        certify(model, task)
    assert certify(model.using("certified"), task).bound < 1


def test_auto_is_certified_where_all_that_it_takes_is_covered():
    """Lin heads: plain and recurrence, both covered, and both named with their lengths."""
    certificate = certify(one_head(1.0, "float32"), Fixed(lags=[1], readout="x1"))
    assert (
        "path plain up to 2,047 tokens, path recurrence, as path auto chooses" in certificate.assumptions[0]
    )


@pytest.mark.parametrize(
    ("p", "encoding", "covered"),
    [
        (0.5, "lin", True),
        (1e-9, "lin", False),  # a stream of one step at a time loses u / p of u
        (2.0, "log", False),
    ],
)
def test_certificates_say_whether_they_cover_streams(p, encoding, covered):
    model = one_head(p, "float32", encoding=encoding, path="certified")
    kernel = "z ** -2" if encoding == "log" else "exp(-z)"
    told = [
        text
        for text in certify(model, Essential(kernels=[kernel], readout="x1")).assumptions
        if "streams" in text
    ]
    assert told == ["streams: covered"] if covered else told[0].startswith("streams: not covered")


def test_what_no_certificate_covers_is_refused():
    task = load_task("exponential")
    model = lin(task).model
    with pytest.raises(BadInput, match="no certificate covers the rounding of path 'convolution'"):
        certify(model.using("convolution"), task)


def test_a_path_is_kept_and_verified(tmp_path):
    task = Fixed(lags=[7], readout="x1")
    built = compile(task, precision="float32", route="rotary", path="sharp")
    assert built.model.architecture.path == "sharp" and built.certificate.met
    write(built, tmp_path / "m")
    assert load(tmp_path / "m")[0].architecture.path == "sharp"
    assert verify(tmp_path / "m").bound == built.certificate.bound
    assert verify(tmp_path / "m", "plain").bound <= built.certificate.bound


@pytest.mark.parametrize("path", ["certified", "plain"])
def test_a_sum_that_overflows_before_it_is_normalised_is_not_certified(path):
    """sum_z z^-1.5 v = 2.6 v is no number of float32 here, though its share of zeta(1.5) would be."""
    task = Essential(kernels=["z ** -1.5"], readout="x1")
    model = one_head(1.5, "float32", encoding="log", path=path)
    weights = lambda m: (m.layers[0].attention.heads.W_V, m.layers[0].attention.heads.W_O)
    W_V, W_O = weights(model)
    model = eqx.tree_at(weights, model, (W_V * 1.4e38, W_O * 1.2e-38))
    found = np.asarray(outputs_of(model.using("blocks"), jnp.ones((3000, 1), "float32")))
    assert not np.isfinite(found).all() and certify(model, task).bound == math.inf
