"""The capacity bound counts exactly what a query can ask for."""

import jax
import numpy as np
import pytest

from memloci.model.architecture import Architecture
from memloci.routes.capacity import capacity, exemption, obstacle, questions, state
from memloci.tasks.gallery import GALLERY
from memloci.tasks.short import Adaptive, Fixed

A = {"name": "a", "values": [1, 2, 3, 4]}
V, W = {"name": "v", "range": [-1, 1]}, {"name": "w", "range": [0, 10]}


def architecture(**switches) -> Architecture:
    sizes = {"layers": 2, "heads": 2, "width": 4, "value_dim": 2, "attention": "dpf"}
    return Architecture(**{**sizes, **switches})


@pytest.mark.parametrize(
    "channels, lags, readout, count",
    [
        ([A, V], ["a0"], "v1", 4),
        ([A, V], ["2 * a0"], "v1", 4),
        ([A, V], ["max(a0, 3)"], "v1", 2),  # lags 3 and 4
        ([A, V], ["a0", 3], "v2", 1),
        ([A, V], [3], "v1", 0),  # every lag is fixed: no query chooses anything
        ([A, V, W], ["a0"], ["v1", "w1"], 8),
        ([A, V, W], ["a0"], ["v1", "v1"], 4),  # the same number asked for twice
        ([A, V], ["a0", "a0 + 2"], ["v1", "v2"], 6),  # lags 1..4 and 3..6
        ([A, V], ["a0", "a0 + a1"], "v2", 4),  # nested: one lag per query, whatever the past
        ([A, V], ["a0", "a1"], "v2", 1),  # the query cannot choose among equal symbols
        ([A, V], ["a0"], "a1", 0),  # a symbol can be packed
        ([A, V], ["a0"], "v0", 0),  # the present needs no memory
        ([A, V], ["a0"], "v1 * v1", 0),  # not returned as it is: nothing is claimed
    ],
)
def test_capacity_counts_the_numbers_that_can_be_asked_for(channels, lags, readout, count):
    assert capacity(Adaptive(channels=channels, lags=lags, readout=readout)) == count


def test_gallery():
    counts = {name: capacity(make()) for name, make in GALLERY.items()}
    assert counts["pointer"] == 8 and counts["pointer-far"] == 9 and counts["nested-1"] == 4
    assert counts["switch"] == 2 and counts["delay"] == counts["power-law"] == 0


@pytest.mark.parametrize("name", ["pointer", "pointer-far", "switch", "nested-1", "nested-2", "nested-3"])
def test_a_question_gets_the_number_it_asks_for(name):
    task = GALLERY[name]()
    exam = questions(task)
    middle, t = [(piece.lo + piece.hi) / 2 for piece in exam.box], max(q.reach for q in exam.asked)
    x = np.tile(middle, (len(exam.asked), t + 1, 1))
    for k, q in enumerate(exam.asked):
        x[k, t] = q.token
        x[k, t - q.lag, q.channel] = exam.box[q.channel].hi
    told = np.asarray(jax.jit(task.target)(x))[:, -1]
    for k, q in enumerate(exam.asked):
        assert told[k, q.output] == exam.box[q.channel].hi


def test_state_and_who_is_exempt():
    task = GALLERY["pointer"]()
    assert state(architecture()) == 8 and state(architecture(attention="dp")) is None
    for attention in ("dp", "tmx-mul"):
        assert obstacle(architecture(attention=attention), task) is None
        assert "does not factorise" in str(exemption(architecture(attention=attention), task))
    assert obstacle(architecture(), task) is None  # 8 numbers for 8
    assert "not below the bound" in str(exemption(architecture(), task))
    fixed = Fixed(lags=[3], readout="x1")
    assert obstacle(architecture(), fixed) is None and "fixed" in str(exemption(architecture(), fixed))


def test_the_obstacle_tells_both_counts_and_the_error():
    below = architecture(layers=1)
    text = str(obstacle(below, GALLERY["pointer"]()))
    assert "L H d_v = 4 numbers" in text and "asks for 8" in text and "at least 1" in text
    assert exemption(below, GALLERY["pointer"]()) is None


def test_unequal_ranges_promise_what_the_longest_ones_do():
    task = Adaptive(channels=[A, V, W], lags=["a0"], readout=["v1", "w1"])
    # 4 numbers on [0, 10] and 4 on [-1, 1]: a state of 3 must confuse the former, a state of 4 the latter.
    assert "at least 5" in str(obstacle(architecture(layers=1, heads=1, value_dim=3), task))
    assert "at least 1" in str(obstacle(architecture(layers=1, heads=1, value_dim=4), task))
