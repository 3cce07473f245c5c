"""The picture of a query shows the tokens that matter, and the words about heads are those of the wiring."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from memloci.circuits.wiring import Wiring
from memloci.routes.adaptive import ADAPTIVE_ROUTES, AdaptiveDemand

from memloci.observe.trace import Glance, Look, Recall, Trace
from memloci.synthesize import demand_of
from memloci.tasks.gallery import GALLERY
from memloci.tasks.short import Adaptive
from memloci.views import figures, follow
from memloci.views.mechanism import doings


def _trace(t: int, lags: list[int], attended: int = -1) -> Trace:
    """Every memory at its lag, read from the successor."""
    x = np.stack([np.arange(t + 1.0), np.linspace(-1, 1, t + 1)], axis=1)
    recalls = tuple(
        Recall(
            memory=i,
            level=i - 1,
            layer=i,
            lag=lag,
            blank=lag > t,
            attended=Glance(lag + attended, 1.0) if lag <= t else Glance(t, 1.0),
            read=Glance(lag, 1.0) if lag <= t else None,
            held={"v": x[t - lag, 1] if lag <= t else 0.0},
            wanted={"v": x[t - lag, 1] if lag <= t else 0.0},
            present=None,
        )
        for i, lag in enumerate(lags, start=1)
    )
    looks = [Look(0, 0, (), (Glance(1, 1.0),)), *(Look(i, 0, (i,), ()) for i in range(1, len(lags) + 1))]
    return Trace(t, x, ("a", "v"), len(lags) + 1, tuple(looks), recalls, np.zeros(1), np.zeros(1))


def _texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


def test_near_tokens_are_all_shown_and_far_ones_with_their_neighbours():
    near = _texts(follow.picture(_trace(11, [3, 8])))
    assert {str(p) for p in range(12)} <= set(near) and "…" not in near
    assert {"m1", "m2", "now", "m1: lag 3, v = 0.455", "layer 1", "layer 3", "output"} <= set(near)
    far = _trace(300, [256])
    assert follow._columns(far) == [43, 44, 45, 46, 297, 298, 299, 300]
    assert _texts(follow.picture(far)).count("…") == 2  # at the left, and between


def test_a_head_that_reads_the_token_before_and_one_at_rest():
    reads = follow.picture(_trace(9, [4]))
    assert reads.count("hop") == 1 and reads.count("open") == 1 and "rests" not in reads
    rests = follow.picture(_trace(2, [4]))
    assert "rests" in rests and "hop" not in rests and "m1: blank" in _texts(rests)


def test_a_wrong_token_is_said_to_be_wrong():
    right = _trace(9, [4])
    wrong = replace(right, recalls=(replace(right.recalls[0], lag=5),))
    assert "m1: lag 4, v = 0.111 (wrong)" in _texts(follow.picture(wrong))
    assert not any("(wrong)" in text for text in _texts(follow.picture(right)))


def test_layers_that_carry_alike_are_one_lane():
    looks = tuple(Look(l, 0, (), (Glance(1, 1.0),)) for l in range(5))
    base = _trace(9, [4])
    chain = replace(base, layers=6, looks=looks, recalls=(replace(base.recalls[0], layer=5, attended=None),))
    assert [lane.title for lane in follow._lanes(chain)] == ["layers 1 to 5", "layer 6"]
    assert "each 1 step back" in _texts(follow.picture(chain))


def test_names_of_channels_are_escaped():
    svg = follow.picture(replace(_trace(3, [1]), channels=("<b>", "&")))
    assert "<b>" not in svg
    ET.fromstring(svg)


# -- mechanism --------------------------------------------------------------------------------------------


def _wiring(name: str, route: str, precision: str = "float32") -> Wiring:
    demand = demand_of(GALLERY[name](), 1e-3, precision)
    assert isinstance(demand, AdaptiveDemand)
    return ADAPTIVE_ROUTES[route](demand)


def test_heads_of_a_rotary_pointer_in_words():
    told = doings(_wiring("nested-2", "rotary"))
    assert [d.layers for d in told] == ["1", "2", "3", "4"]
    assert told[0].looks == "1 step back" and "the lag g1" in told[0].neurons
    assert [d.writes for d in told[1:]] == ["memory 1", "memory 2", "memory 3"]
    assert told[3].looks.startswith("g3 − 1 steps back") and told[3].reads == "v of the token before"


def test_layers_of_a_chain_are_told_once():
    told = doings(_wiring("nested-1", "chain"))
    assert [d.layers for d in told] == ["1", "2 to 11", "12", "13"]
    assert "into memory 1" in told[2].neurons and "into memory 2" in told[3].neurons


def test_heads_that_sum_to_a_lag_are_one_line():
    task = Adaptive(
        channels=[{"name": "a", "values": [1, 2]}, {"name": "v", "range": [-1, 1]}], lags=["a0"], readout="v1"
    )
    demand = demand_of(task, 1e-3, "float64")
    assert isinstance(demand, AdaptiveDemand)
    wiring = ADAPTIVE_ROUTES["lin-tmx"](demand)
    line = doings(wiring)[-1]
    assert int(line.heads) == wiring.heads > 1 and re.search(r"exp\(−β \(z − g1\)\), β from", line.looks)


# -- figures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pointer-far", "partly-nested", "nested-3"])
def test_lags_that_memories_may_have_are_drawn(name):
    task = GALLERY[name]()
    svg = figures.memory_figure(task)
    assert svg == figures.memory_figure(task)
    assert isinstance(task, Adaptive)
    texts = _texts(svg)
    assert [f"m{i}: {lag}" in texts for i, lag in enumerate(task.lags, start=1)] == [True] * task.M
