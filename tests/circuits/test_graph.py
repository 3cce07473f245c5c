"""The graph of a compiled model is true: every edge of it changes outputs, and every other edge changes exactly nothing."""

import json
from functools import cache

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.circuits.circuit_file import CIRCUIT, circuit_dict, read_circuit
from memloci.circuits.graph import Design, graph_of
from memloci.model.store import save
from memloci.observe.patching import Dissection
from memloci.synthesize import Built
from memloci.tasks.inputs import sample

CASES = [
    ("needle", "match"),
    ("product", "rotary"),
    ("pointer", "rotary"),
    ("pointer", "chain"),
    ("delay", "depth-2"),
    ("two-hop", "match"),
    ("power-law", "one-layer-log"),
    ("nested-3", "rotary"),
    ("partly-nested", "rotary"),
]


@cache
def built(name: str, route: str) -> Built:
    return ml.compile(ml.load_task(name), route=route)


def draws(task, seed: int, n: int = 24, count: int = 4) -> np.ndarray:
    return np.stack([np.asarray(sample(task, key, n)) for key in jr.split(jr.key(seed), count)])


@pytest.mark.long(3)
@pytest.mark.parametrize(("name", "route"), CASES)
def test_edges_of_the_graph_change_outputs_and_others_change_nothing(name, route):
    one = built(name, route)
    graph, parts = graph_of(one.model, Design.of(one.plan.circuit)), Dissection(one.model)
    assert [node.name for node in graph.nodes] == [*parts.nodes, "output"]
    x = draws(one.task, 0)
    y, _ = parts.run(x)
    other = parts.run(draws(one.task, 1))[1]
    changing = {(e.source, e.target, e.input) for e in graph.edges if not e.constant}
    for edge in graph.candidates():
        moved = np.abs(parts.patched(x, other, [edge]) - y).max()
        assert (moved > 0) == (edge in changing), (edge, moved)


@pytest.mark.parametrize(("name", "route"), CASES[:2])
def test_taken_apart_a_model_computes_the_same(name, route):
    one = built(name, route)
    x = draws(one.task, 2)
    y, wrote = Dissection(one.model).run(x)
    np.testing.assert_allclose(y, jax.vmap(one.model)(x), atol=1e-6)
    np.testing.assert_allclose(one.model.readout(jnp.asarray(wrote[0].sum(axis=0))), y[0], atol=1e-6)


@pytest.mark.long(3)
@pytest.mark.parametrize(("name", "route"), [*CASES, ("delay", "t5"), ("delay", "depth-1")])
def test_a_head_that_is_called_an_offset_attends_there(name, route):
    one = built(name, route)
    graph, n = graph_of(one.model, Design.of(one.plan.circuit)), 24
    X = one.model.embed(draws(one.task, 3, n, 1)[0])
    for l, block in enumerate(one.model.layers):
        weights = np.asarray(block.attention.weights(X))
        for node in graph.nodes:
            if node.layer == l and node.head is not None:
                lag = node.offset or 0
                t = np.arange(max(lag, 1) + 1, n)
                if node.role == "offset" and len(t):
                    assert weights[node.head, t, t - lag].min() > 0.9, node
                if node.role == "sink":
                    assert weights[node.head, t, 0].min() > 0.9, node
        X = block(X)


def written(directory):
    """A model directory, without its page, which takes longest; what its circuit says, and the graph."""
    one = built("needle", "match")
    graph = graph_of(one.model, Design.of(one.plan.circuit))
    told = circuit_dict(one.plan.circuit, graph)
    save(one.model, directory, beside={CIRCUIT: json.dumps(told).encode()})
    return told, graph


def test_circuit_files_are_read_back_and_those_of_format_1_too(tmp_path):
    told, graph = written(tmp_path)
    found = read_circuit(tmp_path)
    assert found.graph == graph and found.effect.bound == 0.0 and found.route == "match"
    assert {node.name for node in graph.irrelevant} == {"a0.h0", "a2.h0"}
    old = {key: told[key] for key in ("route", "slots", "layers")}
    (tmp_path / CIRCUIT).write_text(json.dumps(old | {"format": 1}))
    again = read_circuit(tmp_path).graph
    assert again.edges == graph.edges and [n.name for n in again.nodes] == [n.name for n in graph.nodes]
    assert [n.purpose for n in again.nodes] == [n.purpose for n in graph.nodes]


def test_wrong_circuit_files_are_refused_in_one_line(tmp_path):
    told, _ = written(tmp_path)
    wrong = {
        "format 3 is not known": told | {"format": 3},
        "no key 'format'": [],
        "not what memloci writes": told | {"nodes": [{"name": 3}]},
        "expected a list of names": told | {"edges": [told["edges"][0] | {"carries": "x"}]},
        "another model": told | {"format": 1, "slots": []},
    }
    for message, data in wrong.items():
        (tmp_path / CIRCUIT).write_text(json.dumps(data))
        with pytest.raises(ml.BadInput, match=message) as error:
            read_circuit(tmp_path)
        assert "\n" not in str(error.value)
    (tmp_path / CIRCUIT).unlink()
    with pytest.raises(ml.BadInput, match="no such file"):
        read_circuit(tmp_path)
