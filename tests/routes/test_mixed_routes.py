"""Memories that mix: kernels beside lags and pointers, lag 0, repeated lags, horizons, and models in float16."""

from functools import lru_cache
from typing import NamedTuple

import jax.random as jr
import pytest

from memloci.pipeline import measure
from memloci.synthesize import Plan, plan
from memloci.tasks.memories.kernel import Kernel
from memloci.tasks.memories.lag import Lag
from memloci.tasks.memories.match import Match
from memloci.tasks.memories.pointer import Pointer
from memloci.tasks.task import Task

ORACLE = 1e-13
V = {"name": "v", "range": [-1, 1]}
FROM_1, FROM_0 = ([{"name": "a", "values": values}, V] for values in ([1, 2, 3], [0, 1, 2]))
LIGHT, RINGING = Kernel("exp(-0.5 * z)"), Kernel("exp(-z / 4) * cos(z)")
SHORT = Kernel("z ** -0.5", horizon=6)


def pointers(*memories: Lag | Pointer | Kernel, readout: str, channels: list = FROM_1) -> Task:
    return Task(channels=channels, memories=memories, readout=readout)


TASKS = {
    "lag and kernel": Task(memories=[Lag(3), LIGHT], readout="x1 + x2"),
    "lag and short kernel": Task(memories=[SHORT, Lag(4)], readout="x1 - x2"),
    "short kernel": Task(memories=[SHORT], readout="x1"),
    "one lag twice": Task(memories=[Lag(3), Lag(3)], readout="x1 * x2"),
    "lag 0 alone": Task(memories=[Lag(0)], readout="x1"),
    "lag 0 and lag": Task(memories=[Lag(0), Lag(3)], readout="x1 * x2"),
    "everything stationary": Task(memories=[Lag(3), LIGHT, Lag(3), Lag(0)], readout="x1 * x3 + x2 + x4"),
    "pointer and kernel": pointers(Pointer("a0"), LIGHT, readout="v1 + v2"),
    "pointer times kernel": pointers(Pointer("a0"), LIGHT, readout="v1 * v2"),
    "pointer and ringing": pointers(Pointer("a0"), RINGING, readout="v1 + v2"),
    "pointer times lag 0": pointers(Pointer("a0"), Lag(0), readout="v1 * v2"),
    "pointer from lag 0": pointers(Lag(0), Pointer("a1"), readout="v2"),
    "pointer to lag 0": pointers(Pointer("a0"), readout="v1", channels=FROM_0),
    "nested to lag 0": pointers(Pointer("a0"), Pointer("a0 + a1"), readout="v2", channels=FROM_0),
}


KEYED = [{"name": "k", "values": [1, 2, 3]}, V]
TASKS["match and kernel"] = Task(
    channels=KEYED, memories=[Match("k1 == k0"), Lag(2), LIGHT], readout="v1 + 0.5 * v2 + v3"
)


class Case(NamedTuple):
    task: str
    route: str
    layers: int
    tolerance: float = 1e-2
    precision: str = "float32"


CASES = [
    Case("pointer and kernel", "chain", 3),
    Case("pointer and kernel", "rotary", 3),
    Case("pointer times kernel", "rotary", 3, 0.1),
    Case("pointer times kernel", "chain", 4, 0.1),
    Case("pointer and ringing", "rotary", 3),
    Case("pointer times lag 0", "rotary", 2, 0.1),
    Case("pointer from lag 0", "rotary", 3),
    Case("pointer from lag 0", "chain", 4),
    Case("pointer to lag 0", "rotary", 2),
    Case("pointer to lag 0", "chain", 2),
    Case("pointer to lag 0", "lin-tmx", 2, precision="float64"),
    Case("nested to lag 0", "rotary", 3),
    Case("nested to lag 0", "chain", 5),
    Case("match and kernel", "match", 4),
    Case("lag and kernel", "depth-1", 3),
    Case("lag and kernel", "bias-table", 1),
    Case("lag and short kernel", "bias-table", 1),
    Case("short kernel", "bias-table", 1),
    Case("one lag twice", "rotary", 1),
    Case("one lag twice", "depth-1", 3),
    Case("lag 0 alone", "one-layer-lin", 1),
    Case("lag 0 and lag", "rotary", 1),
    Case("lag 0 and lag", "t5", 1),
    Case("everything stationary", "depth-1", 3, 0.1),
    Case("everything stationary", "bias-table", 1, 0.1),
]
SLOW = [  # heads that are fitted to a lag and a kernel together
    Case("lag and kernel", "one-layer-lin", 1, precision="float64"),
    Case("lag and kernel", "depth-2", 2, precision="float64"),
    Case("lag and short kernel", "one-layer-lin", 1, precision="float64"),
]


@lru_cache
def planned(case: Case) -> Plan:
    plans = plan(TASKS[case.task], case.tolerance, case.precision, routes=[case.route])
    assert not plans.obstacles
    return plans.best


def assert_sound(made: Plan, task: Task) -> None:
    seen = measure(made.model, task, key=jr.key(0), length=24, sequences=4, steps=8, starts=2)
    assert seen.err_sup <= made.certificate.bound + ORACLE


@pytest.mark.long(3)
@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)])
def test_mixed_memories_meet_the_tolerance(case):
    made = planned(case)
    assert made.certificate.met and made.model.architecture.layers == case.layers


@pytest.mark.long
@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)])
def test_no_input_beats_the_certificate_of_mixed_memories(case):
    assert_sound(planned(case), TASKS[case.task])


def test_lag_0_is_the_present():
    """The readout reads the slot of the channel itself: nothing is moved."""
    made = planned(Case("lag 0 and lag", "rotary", 1))
    assert made.circuit.variable_slots["x1"] == made.circuit.variable_slots["x0"] == "x"
    assert made.model.architecture.heads == 1


@pytest.mark.parametrize(
    ("task", "route", "reason"),
    [
        ("lag and kernel", "rotary", "e^(-0.5 z) spreads over all of them"),
        ("lag and kernel", "t5", "e^(-0.5 z) spreads over all of them"),
        (
            "pointer and kernel",
            "lin-tmx",
            "it sees a window of the past, and e^(-0.5 z) spreads over all of it",
        ),
        ("pointer and kernel", "depth-1", "memory 1 is at lag a0"),
        ("pointer and ringing", "chain", "exp(-z / 4) * cos(z) in one lin layer"),
        ("lag 0 alone", "rotary", "nothing is recalled"),
    ],
)
def test_routes_refuse_memories_that_they_cannot_bring(task, route, reason):
    assert reason in plan(TASKS[task], 1e-2, routes=[route]).obstacles[route]


# -- float16 ----------------------------------------------------------------------------------------------

HALF = [
    Case("one lag twice", "rotary", 1, 0.2, "float16"),
    Case("short kernel", "bias-table", 1, 0.5, "float16"),
]


@pytest.mark.parametrize("case", HALF)
def test_models_in_float16_meet_what_it_allows(case):
    made = planned(case)
    assert made.certificate.met and made.certificate.precision == "float16"
    assert made.model.W_E.dtype == "float16"


@pytest.mark.long
@pytest.mark.parametrize("case", HALF)
def test_no_input_beats_a_certificate_in_float16(case):
    assert_sound(planned(case), TASKS[case.task])
