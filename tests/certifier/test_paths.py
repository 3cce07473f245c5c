"""Certificates say which paths they cover, and cover them."""

import equinox as eqx
import numpy as np
import pytest

from memloci.certifier.certify import certify
from memloci.errors import BadInput
from memloci.pipeline import compile, load, verify, write
from memloci.tasks.fixed import Fixed
from memloci.tasks.load import load_task

LENGTH = 1500


def lin(task):
    return compile(task, tolerance=1e-2, precision="float32", route="one-layer-lin")


@pytest.mark.parametrize(
    "task", [Fixed(lags=[1, 2], readout="x1 - x2"), load_task("power-law")], ids=["lags", "tail"]
)
def test_the_recurrence_is_covered(task):
    """Values of one sign add up all roundings, random ones find the rest."""
    built = lin(task)
    assert built.model.path(LENGTH) == "recurrence"
    assert "or recurrence" in built.certificate.assumptions[0]
    rng = np.random.default_rng(0)
    for x in (np.ones((LENGTH, 1)), rng.choice([-1.0, 1.0], (LENGTH, 1)), rng.uniform(-1, 1, (LENGTH, 1))):
        found = np.asarray(eqx.filter_jit(built.model.using("recurrence"))(x.astype("float32")), "float64")
        error = np.abs(found - np.asarray(task.target(x))).max()
        assert error <= built.certificate.bound


def test_the_recurrence_costs_rounding():
    model, task = lin(load_task("power-law")).model, load_task("power-law")
    plain, recurrence = (certify(model.using(path), task) for path in ("blocks", "recurrence"))
    assert plain.exact_bound == recurrence.exact_bound and plain.bound < recurrence.bound


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
