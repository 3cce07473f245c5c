"""The capacity bound counts exactly what a query can ask for."""

import jax
import numpy as np
import pytest

from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from memloci.observe.counterexample import counterexample, counterexample_recurrent
from memloci.routes.capacity import capacity, exemption, obstacle, questions, state
from memloci.tasks.gallery import GALLERY
from memloci.tasks.memories.match import Match
from memloci.tasks.short import Adaptive, Fixed, Matched
from memloci.tasks.task import Task

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
    assert counts["mqar"] == 64 * 16 and counts["what-came-next"] == counts["selective-copy"] == 8
    assert counts["needle"] == 1 and counts["induction"] == 0  # one mark; symbols can be packed
    assert counts["switch"] == 2 and counts["delay"] == counts["power-law"] == 0


ASKING = [
    "pointer",
    "pointer-far",
    "switch",
    "nested-1",
    "nested-2",
    "nested-3",
    "needle",
    "what-came-next",
    "selective-copy",
]


@pytest.mark.parametrize("name", ASKING)
def test_a_question_gets_the_number_it_asks_for(name):
    task = GALLERY[name]()
    exam = questions(task)
    middle, t = [(piece.lo + piece.hi) / 2 for piece in exam.box], max(q.reach for q in exam.all)
    x = np.tile(middle, (len(exam.all), t + 1, 1))
    for k, q in enumerate(exam.all):
        for lag, token in (other.key for other in exam.all if other.key):
            x[k, t - lag] = token
        x[k, t] = q.token
        x[k, t - q.lag, q.channel] = exam.box[q.channel].hi
    told = np.asarray(jax.jit(task.target)(x))[:, -1]
    for k, q in enumerate(exam.all):
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


@pytest.mark.long(3)
@pytest.mark.parametrize("which", ["latest", "earliest", "mean"])
@pytest.mark.parametrize("offset", [0, 2])
def test_matches_ask_for_one_number_per_key(which, offset):
    channels = [A, {"name": "b", "values": [2, 3, 9]}, V]
    memory = Match("a1 == b0 and b1 != 9", which=which, offset=offset)
    task = Task(channels=channels, memories=[memory], readout="v1")
    exam = questions(task)
    assert len(exam.all) == 2  # the letters 2 and 3 of both alphabets
    t = max(q.reach for q in exam.all)
    for q in exam.all:
        x = np.tile([1.0, 9.0, 0.0], (t + 1, 1))
        for other in exam.all:
            assert other.key is not None
            x[t - other.key[0]] = other.key[1]
        x[t], x[t - q.lag, q.channel] = q.token, 0.75
        assert np.asarray(task.target(x))[-1, 0] == 0.75


def test_a_state_below_one_number_per_key_is_refused_and_shown():
    task = GALLERY["what-came-next"]()
    small = architecture(layers=1, heads=2, value_dim=3)
    assert "asks for 8" in str(obstacle(small, task)) and obstacle(architecture(), task) is None
    model = Transformer(small, task.d, task.outputs, key=jax.random.key(0))
    shown = counterexample(model, task, key=jax.random.key(1))
    assert shown is not None and shown.error >= 0.999 and np.ptp(shown.targets) > 1.9


def test_a_slot_per_key_suffices():
    """The converse: a state of N d numbers, one slot per key and channel, answers every query."""
    task = Matched(channels=[A, V], matches=["a1 == a0"], readout="v1")
    slots = lambda x: jax.nn.one_hot(x[0].astype(int) - 1, 4, dtype=x.dtype)
    step = lambda s, x: s * (1 - slots(x)) + slots(x) * x[1]
    x = np.stack(
        [np.random.default_rng(0).integers(1, 5, 60), np.random.default_rng(1).uniform(-1, 1, 60)], axis=1
    )
    state_, target = jax.numpy.zeros(4), np.asarray(task.target(x))
    for t in range(60):
        assert np.isclose(float(slots(jax.numpy.asarray(x[t])) @ state_), target[t, 0], atol=1e-6)
        state_ = step(state_, jax.numpy.asarray(x[t]))
    wide = lambda s, x: step(s, x)
    assert counterexample_recurrent(wide, lambda s, x: slots(x) @ s, 4, task, key=jax.random.key(0)) is None
    few = lambda s, x: step(jax.numpy.append(s, 0.0), x)[:3]
    shown = counterexample_recurrent(
        few, lambda s, x: slots(x) @ jax.numpy.append(s, 0.0), 3, task, key=jax.random.key(0)
    )
    assert shown is not None and shown.error >= 0.999
