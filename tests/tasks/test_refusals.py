"""A user's mistake gets one clear line."""

import time

import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.tasks.load import task_from_dict
from memloci.tasks.short import Fixed

from .cases import REFUSED, adaptive, essential, fixed, general


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_refused_in_one_line(name):
    data, reason = REFUSED[name]
    began = time.process_time()
    with pytest.raises(BadInput, match=reason) as refusal:
        task_from_dict(data)
    assert time.process_time() - began < 2
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < 500


@pytest.mark.parametrize("data", [fixed(), adaptive(), essential()], ids=["fixed", "adaptive", "essential"])
def test_what_the_refusals_start_from_is_accepted(data):
    assert task_from_dict(data).kind == data["kind"]


ACCEPTED = {
    "division guarded by where": fixed(readout="where(abs(x1) > 0.1, 1 / x1, 0)"),
    "division by a sum of squares": fixed(readout="1 / (x1 * x1 + 0.001)"),
    "division that a blank cannot reach": fixed(
        channels=[{"name": "x", "range": [1, 2]}], readout="1 / (x1 - 0.5)"
    ),
    "division by the present": fixed(channels=[{"name": "x", "range": [1, 2]}], readout="x1 / x0"),
    "log on symbols": adaptive(readout="v1 * log(a0)"),
    "root at its end": fixed(readout="sqrt(x1 + 1)"),
    "lag of a symbol by division": adaptive(lags=["6 / a0"]),
    "numpy lags": fixed(lags=np.array([3, 17])),
    "largest lag": fixed(lags=[2**24]),
    "most memories": fixed(lags=list(range(1, 257))),
    "lag 0": fixed(lags=[0]),
    "lag 0 at a symbol": adaptive(lags=["a0 - 1"]),
    "constant lag 0": adaptive(lags=["1 - 1"]),
    "lag beside a kernel": general({"kernel": "z ** -2"}, {"lag": 2}, {"lag": "a0 + a2"}),
    "kernel that is summable up to its horizon only": general({"kernel": "z", "horizon": 65_536}),
    "callable kernel with a horizon": general({"kernel": lambda z: z, "horizon": 3}),
    "numpy horizon": general({"kernel": "1", "horizon": np.int64(3)}),
    "numpy memories": general(*np.array([{"lag": 3}, {"lag": 4}])),
    "no majorants": essential(majorants=None),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_sound_task_beside_a_refused_one_is_accepted(name):
    assert task_from_dict(ACCEPTED[name]).M >= 1


@pytest.mark.parametrize("shape", [(), (4,), (4, 2), (0, 4, 3)])
def test_a_sequence_of_a_wrong_shape_is_refused(shape):
    with pytest.raises(BadInput, match=r"a sequence has shape \(length, 1\), found"):
        Fixed(lags=[1], readout="x1").target(np.zeros(shape))


def test_a_readout_that_gives_a_wrong_shape_is_refused():
    task = Fixed(lags=[1], readout=lambda x1: x1[:2])
    with pytest.raises(BadInput, match=r"readout: gave shape \(2,\), expected \(5,\)"):
        task.target(np.zeros((5, 1)))
