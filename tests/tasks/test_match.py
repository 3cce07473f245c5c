"""Matches against the definition, position by position: an oracle that shares nothing with the code but the task."""

import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.tasks.gallery import OUTSIDE
from memloci.tasks.inputs import sample
from memloci.tasks.load import load_task, task_from_dict

KEY = {"name": "k", "values": [0, 1, 2]}
FLAG = {"name": "f", "values": [-1, 1]}
PAYLOAD = {"name": "v", "range": [-1, 1]}


def recalled(X, holds, which, offset):
    """Per position the recalled token, from the definition; holds(s, t)."""
    found = []
    for t in range(len(X)):
        places = [s for s in range(t) if s + offset <= t - 1 and holds(s, t)]
        tokens = [X[s + offset] for s in places]
        if not tokens:
            found.append(np.zeros(X.shape[1]))
        else:
            pick = {"latest": tokens[-1], "earliest": tokens[0], "mean": np.mean(tokens, axis=0)}
            found.append(pick[which])
    return np.array(found)


PREDICATES = {
    "k1 == k0": lambda X, s, t: X[s, 0] == X[t, 0],
    "k0 == k1 and f1 == 1": lambda X, s, t: X[s, 0] == X[t, 0] and X[s, 1] == 1,
    "k1 != k0": lambda X, s, t: X[s, 0] != X[t, 0],
    "k1 < k0 or f1 == f0": lambda X, s, t: X[s, 0] < X[t, 0] or X[s, 1] == X[t, 1],
    "k1 == k0 and f1 == f0": lambda X, s, t: X[s, 0] == X[t, 0] and X[s, 1] == X[t, 1],
    "f1 == 1 and f0 == 1": lambda X, s, t: X[s, 1] == 1 and X[t, 1] == 1,
    "k1 == f0": lambda X, s, t: X[s, 0] == X[t, 1],
}


# Every predicate, every choice and every offset; all combinations in `make test-all`: each is a compilation.
CASES = [
    pytest.param(text, which, offset, marks=[pytest.mark.slow] if j != i % 3 or k != (i + i // 3) % 3 else [])
    for i, text in enumerate(PREDICATES)
    for j, which in enumerate(["latest", "earliest", "mean"])
    for k, offset in enumerate([0, 1, 3])
]


@pytest.mark.parametrize(("text", "which", "offset"), CASES)
def test_the_target_is_the_definition(text, which, offset, getkey):
    memory = ml.Match(text, which=which, offset=offset)
    task = ml.Task(channels=[KEY, FLAG, PAYLOAD], memories=[memory], readout=["k1", "f1", "v1"])
    X = np.asarray(sample(task, getkey(), 40))
    expected = recalled(X, lambda s, t: PREDICATES[text](X, s, t), which, offset)
    assert np.allclose(np.asarray(task.target(X)), expected, atol=1e-12)


def test_hops_read_what_was_recalled_and_blanks_spread(getkey):
    channels = [KEY, {"name": "a", "values": [0, 1, 2]}, PAYLOAD]
    memories = [ml.Match("k1 == k0"), ml.Match("k2 == a1"), ml.Pointer("a2 + 1")]
    task = ml.Task(channels=channels, memories=memories, readout=["v1", "v2", "v3"])
    X = np.asarray(sample(task, getkey(), 60))
    Y, blanks = np.asarray(task.target(X)), 0
    for t in range(len(X)):
        first = [s for s in range(t) if X[s, 0] == X[t, 0]]
        second = [s for s in range(t) if first and X[s, 0] == X[first[-1], 1]]
        lag = int(X[second[-1], 1]) + 1 if second else t + 1
        values = [X[s[-1], 2] if s else 0.0 for s in (first, second)]
        assert np.array_equal(Y[t], [*values, X[t - lag, 2] if lag <= t else 0.0])
        blanks += not second
    assert blanks and task.K == 2 and task.levels == (0, 1, 2)


def test_a_candidate_whose_successor_is_the_present_is_passed_over():
    task = ml.Matched(channels=[KEY, PAYLOAD], matches=["k1 == k0"], offset=1, readout="v1")
    X = np.array([[1, 0.1], [0, 0.2], [1, 0.3], [1, 0.4]])
    assert (
        np.asarray(task.target(X))[3, 0] == 0.2
    )  # the token at 2 matches too, but its successor is the present


def test_short_and_long_forms_are_one_task():
    short = {
        "kind": "matched",
        "channels": [KEY, PAYLOAD],
        "matches": ["k1 == k0"],
        "offset": 1,
        "readout": "v1",
    }
    long = {"channels": [KEY, PAYLOAD], "memories": [{"match": "k1 == k0", "offset": 1}], "readout": "v1"}
    assert task_from_dict(short) == task_from_dict(long)
    task = task_from_dict(long)
    assert task.kind == "matched" and task.to_dict()["matches"] == ["k1 == k0"]
    assert task_from_dict(task.to_dict()) == task
    mixed = ml.Task(channels=[KEY, PAYLOAD], memories=[ml.Lag(2), ml.Match("k2 == k0")], readout="v1 + v2")
    assert mixed.kind == "mixed" and task_from_dict(mixed.to_dict()) == mixed
    apart = [ml.Match("k1 == k0"), ml.Match("k2 == k0", which="earliest")]
    two = ml.Task(channels=[KEY, PAYLOAD], memories=apart, readout="v1 + v2")
    assert "memories" in two.to_dict() and task_from_dict(two.to_dict()) == two


@pytest.mark.parametrize(
    ("memories", "why"),
    [
        ([ml.Match("v1 == v0")], "no margin"),
        ([ml.Match("k0 == 1")], "nothing of the past token"),
        ([ml.Match("k2 == k0"), ml.Lag(1)], "not recalled before the match"),
        ([ml.Kernel("z ** -2"), ml.Match("k2 == k1")], "no token"),
        ([ml.Match("k1 == k0", which="mean"), ml.Match("k2 == k1")], "no token"),
        ([ml.Match("k1 == q0")], "unknown"),
    ],
)
def test_refusals_say_why(memories, why):
    with pytest.raises(ml.BadInput, match=why):
        ml.Task(channels=[KEY, PAYLOAD], memories=memories, readout="v1")


@pytest.mark.parametrize(
    ("field", "value"), [("which", "newest"), ("offset", -1), ("offset", 1.5), ("match", 3)]
)
def test_wrong_fields_are_refused(field, value):
    with pytest.raises(ml.BadInput, match=field):
        ml.Match(**{"match": "k1 == k0", field: value})


def test_an_alphabet_of_4096_keys_needs_no_table():
    task = ml.Matched(
        channels=[{"name": "k", "values": list(range(4096))}, PAYLOAD], matches=["k1 == k0"], readout="v1"
    )
    X = np.asarray(sample(task, jr.key(3), 1_500))
    expected = recalled(X, lambda s, t: X[s, 0] == X[t, 0], "latest", 0)[:, 1]
    assert np.array_equal(np.asarray(task.target(X))[:, 0], expected)


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_lies_outside_is_named_with_the_reason(name):
    with pytest.raises(ml.BadInput, match="not a task of sparse memory"):
        load_task(name)
