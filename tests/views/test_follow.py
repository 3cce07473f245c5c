"""The picture of a query shows the tokens that matter, and the words about heads are those of the circuit."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from memloci.circuits.circuit import Circuit
from memloci.observe.probes import target_kernels
from memloci.observe.trace import HeadPeaks, Trace, TracedRecall, WeightPeak
from memloci.routes.registry import ROUTES
from memloci.synthesize import request_of
from memloci.tasks.gallery import GALLERY
from memloci.tasks.memories.lag import Lag
from memloci.tasks.memories.pointer import Pointer
from memloci.tasks.short import Adaptive, Essential, Fixed
from memloci.tasks.task import Task
from memloci.views.figures import lanes
from memloci.views.figures.memory import memory_figure
from memloci.views.text.mechanism import doings


def _trace(t: int, lags: list[int], attended: int = -1) -> Trace:
    """Every memory at its lag, read from the successor."""
    x = np.stack([np.arange(t + 1.0), np.linspace(-1, 1, t + 1)], axis=1)
    recalls = tuple(
        TracedRecall(
            memory=i,
            level=i - 1,
            layer=i,
            single=True,
            lag=lag,
            blank=lag > t,
            attended=WeightPeak(lag + attended, 1.0) if lag <= t else WeightPeak(t, 1.0),
            read=WeightPeak(lag, 1.0) if lag <= t else None,
            recalled={"v": x[t - lag, 1] if lag <= t else 0.0},
            target={"v": x[t - lag, 1] if lag <= t else 0.0},
            present=None,
        )
        for i, lag in enumerate(lags, start=1)
    )
    looks = [HeadPeaks(0, 0, "recalls the token before", (), (WeightPeak(1, 1.0),))]
    looks += [HeadPeaks(i, 0, f"recalls memory {i}", (i,), ()) for i in range(1, len(lags) + 1)]
    return Trace(t, x, ("a", "v"), len(lags) + 1, tuple(looks), recalls, np.zeros(1), np.zeros(1))


def _texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


def test_near_tokens_are_all_shown_and_far_ones_with_their_neighbours():
    near = _texts(lanes.picture(_trace(11, [3, 8])))
    assert {str(p) for p in range(12)} <= set(near) and "…" not in near
    assert {"m1", "m2", "now", "m1: lag 3, v = 0.455", "layer 1", "layer 3", "output"} <= set(near)
    far = _trace(300, [256])
    assert lanes._columns(far) == [43, 44, 45, 46, 297, 298, 299, 300]
    assert _texts(lanes.picture(far)).count("…") == 2  # at the left, and between


def test_a_head_that_reads_the_token_before_and_one_at_rest():
    reads = lanes.picture(_trace(9, [4]))
    assert reads.count("hop") == 1 and reads.count("open") == 1 and "rests" not in reads
    rests = lanes.picture(_trace(2, [4]))
    assert "rests" in rests and "hop" not in rests and "m1: blank" in _texts(rests)


def test_a_wrong_token_is_said_to_be_wrong():
    right = _trace(9, [4])
    wrong = replace(right, recalls=(replace(right.recalls[0], lag=5),))
    assert "m1: lag 4, v = 0.111 (wrong)" in _texts(lanes.picture(wrong))
    assert not any("(wrong)" in text for text in _texts(lanes.picture(right)))


def test_layers_that_carry_alike_are_one_lane():
    looks = tuple(HeadPeaks(l, 0, "shifts by 1", (), (WeightPeak(1, 1.0),)) for l in range(5))
    base = _trace(9, [4])
    chain = replace(base, layers=6, heads=looks, recalls=(replace(base.recalls[0], layer=5, attended=None),))
    assert [lane.title for lane in lanes._lanes(chain)] == ["layers 1 to 5", "layer 6"]
    assert {"shifts by 1", "each 1 step back"} <= set(_texts(lanes.picture(chain)))
    other = replace(looks[2], purpose="recalls lag 1")
    apart = replace(chain, heads=(*looks[:2], other, *looks[3:]))
    titles = ["layers 1 to 2", "layer 3", "layers 4 to 5", "layer 6"]
    assert [lane.title for lane in lanes._lanes(apart)] == titles


def test_a_lane_says_what_its_heads_are_for_and_is_never_too_long():
    trace = _trace(9, [3, 8])
    assert {"recalls the token before", "recalls memory 1", "recalls memory 2"} <= set(
        _texts(lanes.picture(trace))
    )
    more = [HeadPeaks(1, h, f"recalls memory {h + 1} of a long list of memories", (1,), ()) for h in range(3)]
    lane = lanes._lanes(replace(trace, heads=tuple(more)))[1]
    assert lane.purposes_text.endswith("… and 2 more") and len(lane.purposes_text) <= lanes.MOST_LETTERS


def test_a_memory_made_of_many_tokens_has_no_lag():
    trace = _trace(9, [4])
    many = replace(trace.recalls[0], single=False, lag=None, read=None, blank=False)
    assert many.is_right
    svg = lanes.picture(replace(trace, recalls=(many,)))
    assert "m1: many tokens, v = 0.111" in _texts(svg) and "hop" not in svg


def test_names_of_channels_are_escaped():
    svg = lanes.picture(replace(_trace(3, [1]), channels=("<b>", "&")))
    assert "<b>" not in svg
    ET.fromstring(svg)


# -- mechanism --------------------------------------------------------------------------------------------


def _circuit(task: Task, route: str, precision: str = "float32") -> Circuit:
    return ROUTES[route](request_of(task, 1e-3, precision))


def test_heads_of_a_rotary_pointer_in_words():
    told = doings(_circuit(GALLERY["nested-2"](), "rotary"))
    assert [d.layers for d in told] == ["1", "2", "3", "4"]
    assert told[0].purpose == "recalls the token before" and "query of memory 1" in told[0].neurons
    assert told[0].writes == "slots for later layers" and told[0].reads == "a, presence, v"
    assert [d.writes for d in told[1:]] == ["memory 1", "memory 2", "memory 3"]
    assert [d.purpose for d in told[1:]] == [f"recalls memory {i}" for i in (1, 2, 3)]
    assert "query of memory 2" in told[1].neurons and "query of memory 3" in told[2].neurons
    assert told[3].sees == "where its query and the keys meet" and told[3].reads == "v, as carried so far"


def test_layers_of_a_chain_are_told_once():
    told = doings(_circuit(GALLERY["nested-1"](), "chain"))
    assert [d.layers for d in told] == ["1", "2 to 11", "12", "13"]
    assert [d.purpose for d in told] == ["shifts by 1"] * 3 + [""]
    assert "memory 1 chosen" in told[2].neurons and "memory 2 chosen" in told[3].neurons


def test_heads_that_sum_to_a_lag_are_one_line():
    task = Adaptive(
        channels=[{"name": "a", "values": [1, 2]}, {"name": "v", "range": [-1, 1]}], lags=["a0"], readout="v1"
    )
    circuit = _circuit(task, "lin-tmx", "float64")
    line = doings(circuit)[-1]
    assert int(line.heads) == circuit.heads > 1 and "that together recall memory 1" in line.purpose
    assert re.fullmatch(r"lin slopes \S+ to \S+, moved by its query", line.sees)
    kernels = Essential(kernels=["exp(-z)", "exp(-0.5 * z)"], readout="x1 - x2")
    (line,) = doings(_circuit(kernels, "one-layer-lin"))
    assert (line.heads, line.writes, line.sees) == ("2", "memories 1, 2", "lin slopes 0.5 to 1")
    peaks = doings(_circuit(Fixed(lags=[1, 3], readout="x1 - x2"), "rotary"))
    assert [(d.sees, d.writes) for d in peaks] == [
        ("a peak at lag 1", "memory 1"),
        ("a peak at lag 3", "memory 2"),
    ]


# -- figures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pointer-far", "partly-nested", "nested-3"])
def test_lags_that_memories_may_have_are_drawn(name):
    task = GALLERY[name]()
    targets = target_kernels(task)
    svg = memory_figure(task, targets)
    assert svg == memory_figure(task, targets)
    assert task.kind == "adaptive"
    texts = _texts(svg)
    lags = [memory.lag for memory in task.memories if isinstance(memory, Lag | Pointer)]
    assert [f"m{i}: {lag}" in texts for i, lag in enumerate(lags, start=1)] == [True] * task.M
