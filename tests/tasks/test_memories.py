"""Memories of any kind, alone and mixed: written in Python or in a file, they are the same and do what they say."""

import json
import math
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memloci.core.errors import BadInput
from memloci.core.intervals import point
from memloci.tasks.load import load_task, task_from_dict
from memloci.tasks.memories import MEMORIES, Kernel, Lag, Match, Pointer, memory_from
from memloci.tasks.memories.base import Memory
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.short import Adaptive, Essential, Fixed
from memloci.tasks.task import Task
from tests.thorough import few

from . import oracle
from .cases import CASES, draw
from .files import as_toml
from .test_target import roundoff

CHANNELS = [{"name": "k", "values": [1, 2, 3]}, {"name": "v"}]
MIXED = [Lag(3), Pointer("2 * k0"), Kernel("z ** -2"), Kernel("z ** -0.5", horizon=1000)]
TABLES = [{"lag": 3}, {"lag": "2 * k0"}, {"kernel": "z ** -2"}, {"kernel": "z ** -0.5", "horizon": 1000}]
READOUT = "v1 * v2 - v3 + 0.01 * v4"


def mixed() -> Task:
    return Task(channels=CHANNELS, memories=MIXED, readout=READOUT)


# Writing them.


def test_objects_and_tables_are_the_same_memories():
    assert list(map(memory_from, TABLES)) == MIXED
    assert Task(channels=CHANNELS, memories=TABLES, readout=READOUT) == mixed()
    assert Task(channels=CHANNELS, memories=[MIXED[0], *TABLES[1:]], readout=READOUT) == mixed()


def test_a_mixture_survives_dictionary_json_and_toml(tmp_path):
    task = mixed()
    data = task.to_dict()
    assert list(data) == ["channels", "memories", "readout"] and task.kind == "mixed"
    assert data["memories"] == TABLES
    file = tmp_path / "task.toml"
    file.write_text(as_toml(data))
    X = draw(task, np.random.default_rng(0), 15)
    for again in (task_from_dict(data), task_from_dict(json.loads(json.dumps(data))), load_task(file)):
        assert again == task and again.to_dict() == data
        np.testing.assert_array_equal(again.target(X), task.target(X))


def test_a_file_writes_memories_as_tables():
    text = """
        channels = [{ name = "k", values = [1, 2, 3] }, { name = "v" }]
        memories = [{ lag = 3 }, { lag = "2 * k0" }, { kernel = "z ** -2" }]
        readout = "v1 * v2 - v3"
    """
    task = task_from_dict(tomllib.loads(text))
    assert task == Task(channels=CHANNELS, memories=MIXED[:3], readout="v1 * v2 - v3")


SHORT_FORMS = {  # the same task in short and at length, and the kind that it is
    "fixed": (
        lambda: Fixed(lags=[3, 17], readout="x1 * x2"),
        lambda: Task(memories=[Lag(3), Lag(17)], readout="x1 * x2"),
    ),
    "adaptive": (
        lambda: Adaptive(channels=CHANNELS, lags=["k0", 5], readout="v1 - v2"),
        lambda: Task(channels=CHANNELS, memories=[Pointer("k0"), Lag(5)], readout="v1 - v2"),
    ),
    "essential": (
        lambda: Essential(kernels=["z ** -2", "exp(-z)"], readout="x1 * x2"),
        lambda: Task(memories=[Kernel("z ** -2"), Kernel("exp(-z)")], readout="x1 * x2"),
    ),
}


@pytest.mark.parametrize("kind", SHORT_FORMS)
def test_a_short_form_is_the_task_at_length(kind):
    short, long = (make() for make in SHORT_FORMS[kind])
    assert short == long and short.kind == long.kind == kind
    assert short.to_dict() == long.to_dict() and long.to_dict()["kind"] == kind
    assert "memories" not in long.to_dict()


def test_lags_that_are_numbers_are_fixed_however_they_are_written():
    assert Adaptive(lags=[4, 5], readout="x1") == Fixed(lags=[4, 5], readout="x1")
    assert Adaptive(lags=[4, 5], readout="x1").kind == "fixed"


def test_majorants_belong_to_their_kernels():
    short = Essential(kernels=[lambda z: 0.5**z, "z ** -2"], majorants=["0.5 ** z", "0"], readout="x1")
    assert [memory.majorant for memory in short.memories if isinstance(memory, Kernel)] == ["0.5 ** z", "0"]
    assert short.kind == "essential" and short.recalls[0].bound == math.inf


def test_kernels_with_more_than_an_expression_are_written_as_tables():
    task = Task(memories=[Kernel("z", horizon=4)], readout="x1")
    assert task.kind == "essential"
    assert task.to_dict() == {"memories": [{"kernel": "z", "horizon": 4}], "readout": "x1"}
    assert task_from_dict(task.to_dict()) == task


def test_every_kind_of_memory_has_a_key_and_takes_it_as_its_first_argument():
    examples = {Lag: 3, Pointer: "k0", Kernel: "z ** -2", Match: "k1 == k0"}
    assert set(MEMORIES) == set(examples)
    for kind, value in examples.items():
        assert kind(value) == kind(**{kind.key: value}) == memory_from({kind.key: value})
        with pytest.raises(TypeError, match="takes one positional argument, found 2"):
            kind(value, value)


MISTAKES = {
    "a lag that is no number": (lambda: Lag("k0"), "lag: a lag is a whole number from 0 to .*, found 'k0'"),
    "a negative lag": (lambda: Lag(-1), "lag: a lag is a whole number from 0 to .*, found -1"),
    "a pointer that is a number": (lambda: Pointer(3), "lag: a lag function is an expression in quotes"),
    "a kernel that is a number": (lambda: Kernel(0.5), "kernel: a kernel is an expression in z"),
    "a horizon of 0": (
        lambda: Kernel("z", horizon=0),
        "horizon: a horizon is a whole number from 1 to 65,536",
    ),
    "no lag": (lambda: Lag(), "lag is missing"),
    "no kernel": (lambda: Kernel(horizon=3), "kernel is missing"),
    "an unknown key": (
        lambda: Kernel("z", reach=3),
        "unknown key 'reach'; the keys are kernel, horizon, majorant",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_memory_refuses_mistakes_by_itself(name):
    make, reason = MISTAKES[name]
    with pytest.raises(BadInput, match=f"^{reason}"):
        make()


# What they are in a task.


def test_prepared_memories_say_what_later_stages_ask():
    lag, pointer, kernel, cut = mixed().recalls
    assert isinstance(lag, LagTable) and (lag.reads, lag.domains, lag.cells) == ((), (), [3])
    assert isinstance(pointer, LagTable) and pointer.reads == ("k0",) and pointer.cells == [2, 4, 6]
    assert pointer.domains == (tuple(map(point, (1.0, 2.0, 3.0))),)
    assert isinstance(kernel, Convolution) and kernel.horizon is None and kernel.tail.summable
    assert isinstance(cut, Convolution) and cut.horizon == 1000 and cut.tail.sum_beyond(1000) == 0
    task = mixed()
    assert [recall.kernel for recall in task.recalls] == [True, False, True, True]
    assert [recall.bound for recall in task.recalls] == [3, 6, math.inf, 1000]
    assert task.lag_variables == {"k0"} and task.fixed_lags == {1: 3} and not task.stationary
    assert Task(memories=[Lag(3), Kernel("z ** -2")], readout="x1").stationary


def test_domains_are_those_of_the_kind():
    """A token may be blank; a convolution lies within its norm."""
    task = mixed()
    assert task.domains["k0"] == tuple(map(point, (1.0, 2.0, 3.0)))
    assert task.domains["k1"] == task.domains["k2"] == tuple(map(point, (0.0, 1.0, 2.0, 3.0)))
    (reach,) = task.domains["k3"]
    assert reach.lo == -reach.hi and 3 * math.pi**2 / 6 <= reach.hi <= 3 * math.pi**2 / 6 * 1.001
    (reach,) = task.domains["v4"]
    assert reach.hi == pytest.approx(math.fsum(z**-0.5 for z in range(1, 1001)))


def test_names_run_on_over_kinds():
    task = Task(
        channels=CHANNELS,
        memories=[Kernel("z ** -2"), Lag(1), Pointer("k2"), Pointer("k0 + k3")],
        readout="v4",
    )
    assert task.parents == ((), (), (2,), (3,)) and task.levels == (0, 0, 1, 2) and task.K == 3


# What they recall.


def test_a_mixture_by_hand():
    """Ones in the payload: a lag reads 1 once it lies within the sequence, a kernel sums its own first terms."""
    task = Task(
        channels=CHANNELS,
        memories=[Lag(3), Pointer("2 * k0"), Kernel("z ** -2"), Kernel("1", horizon=2)],
        readout=["v1", "v2", "v3", "v4"],
    )
    X = np.ones((6, 2))
    squares = [sum(1 / z**2 for z in range(1, t + 1)) for t in range(6)]
    Y = np.asarray(task.target(X))
    np.testing.assert_array_equal(Y[:, 0], [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(Y[:, 1], [0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(Y[:, 2], squares, rtol=1e-15)
    np.testing.assert_array_equal(Y[:, 3], [0, 1, 2, 2, 2, 2])


def test_lag_0_is_the_present():
    task = Fixed(lags=[0, 1], readout=["x1 - x0", "x2"])
    X = draw(task, np.random.default_rng(0), 9)
    Y = np.asarray(task.target(X))
    np.testing.assert_array_equal(Y[:, 0], 0)
    np.testing.assert_array_equal(Y[1:, 1], X[:-1, 0])
    assert task.lag_bounds == (0, 1) and Y[0, 1] == 0


def test_a_pointer_may_point_to_the_present():
    """k0 = 1 gives lag 0; what is then read is the token itself, blank nowhere."""
    task = Adaptive(channels=CHANNELS, lags=["k0 - 1", "k1 - 1"], readout=["v1", "k2"])
    X = np.array([[1, 0.5], [2, 0.25], [1, -0.5], [3, 1.0]])
    # Lags 0, 1, 0, 2; the symbols found there are 1, 1, 1, 2, so the second lags are 0, 0, 0, 1.
    np.testing.assert_array_equal(task.target(X), [[0.5, 1], [0.5, 2], [-0.5, 1], [0.25, 1]])


def test_a_task_may_have_no_memories():
    for task in (Task(memories=[], readout="x0 ** 2"), Fixed(lags=[], readout="x0 ** 2")):
        X = draw(task, np.random.default_rng(0), 7)
        np.testing.assert_array_equal(task.target(X), X**2)
        assert (task.M, task.K, task.lag_bounds, task.recall(X, np)) == (0, 0, (), [])
        assert task.stationary and task_from_dict(task.to_dict()) == task


def test_a_horizon_cuts_a_kernel():
    """Up to the horizon the memory is that of the whole kernel; later it forgets what lies beyond."""
    whole = Task(memories=[Kernel("z ** -2")], readout="x1")
    cut = Task(memories=[Kernel("z ** -2", horizon=5)], readout="x1")
    X = draw(whole, np.random.default_rng(0), 30)
    a, b = np.asarray(whole.target(X)), np.asarray(cut.target(X))
    np.testing.assert_allclose(b[:6], a[:6], rtol=0, atol=1e-15)
    assert (abs(b - a)[7:] > 1e-6).all()
    other = X.copy()
    other[:20] = draw(whole, np.random.default_rng(1), 20)
    np.testing.assert_allclose(cut.target(other)[25:], b[25:], rtol=0, atol=1e-15)


def test_a_kernel_with_a_horizon_ends_in_a_long_sequence_too():
    """Beyond one block of rows, and in float32."""
    task = Task(memories=[Kernel("1", horizon=3)], readout="x1")
    X = draw(task, np.random.default_rng(0), 600).astype("float32")
    expected = [X[max(t - 3, 0) : t, 0].sum() for t in range(600)]
    np.testing.assert_allclose(task.target(X)[:, 0], expected, rtol=0, atol=1e-5)


def test_blanks_follow_the_tokens_that_are_read():
    """A kernel is never blank; a lag is blank before the start, and so is one that reads a blank."""
    task = Task(
        channels=CHANNELS, memories=[Kernel("z ** -2"), Lag(2), Pointer("k2"), Pointer("k0")], readout="v1"
    )
    X = np.ones((5, 2))
    blanks = np.array(task.recall_with_blanks(X, np)[1])
    expected = [[0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    np.testing.assert_array_equal(blanks, np.array(expected, dtype=bool))


@st.composite
def mixtures(draw_from: st.DrawFn) -> list[Memory]:
    """Memories in any order; pointers read the present and any earlier token."""
    found: list[Memory] = []
    tokens = [0]
    for i in range(1, draw_from(st.integers(0, 5)) + 1):
        kind = draw_from(st.sampled_from(["lag", "pointer", "kernel", "cut"]))
        if kind in ("lag", "pointer"):
            first, second = (draw_from(st.sampled_from(tokens)) for _ in range(2))
            forms = [f"k{first}", f"2 * k{first} + k{second} - 3", f"where(k{first} > k{second}, 0, 5)"]
            lag = draw_from(st.integers(0, 12))
            found.append(Lag(lag) if kind == "lag" else Pointer(draw_from(st.sampled_from(forms))))
            tokens.append(i)
        else:
            rho = draw_from(st.sampled_from(["z ** -2", "exp(-z / 3)", "where(z % 2 == 0, 1, -1) / z ** 3"]))
            horizon = draw_from(st.integers(1, 30)) if kind == "cut" else None
            found.append(Kernel(rho, horizon=horizon))
    return found


@settings(max_examples=few(40), deadline=None)
@given(mixtures(), st.integers(0, 2**32 - 1))
def test_any_mixture_is_what_the_definition_says(memories, seed):
    """Against loops over positions, memories and lags, in plain Python; and again after a round trip."""
    readout = [f"{name}{i}" for i in range(len(memories) + 1) for name in ("k", "v")]
    task = Task(channels=CHANNELS, memories=memories, readout=readout)
    X = draw(task, np.random.default_rng(seed), 20)
    expected = oracle.target(task, X)
    np.testing.assert_allclose(task.target(X), expected, rtol=0, atol=roundoff(task, X, expected, "float64"))
    again = task_from_dict(json.loads(json.dumps(task.to_dict())))
    assert again == task
    np.testing.assert_array_equal(again.target(X), task.target(X))


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name]().kind == "mixed"])
def test_a_batch_of_a_mixture_is_its_sequences(name):
    task = CASES[name]()
    X = jnp.asarray(draw(task, np.random.default_rng(0), 3, 11))
    together, alone = jax.jit(task.target)(X), jnp.stack([task.target(one) for one in X])
    np.testing.assert_allclose(together, alone, rtol=0, atol=roundoff(task, X[0], alone, "float64"))
