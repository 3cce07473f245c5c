"""Matches by construction: certified, and right on every query of data that other code made."""

import numpy as np
import pytest

import memloci as ml
from memloci.routes.registry import ROUTES
from memloci.synthesize import plan
from memloci.tasks.inputs import sample

PAYLOAD = {"name": "v", "range": [-1, 1]}


def stored_pairs(rng, keys, n):
    """Keys and values in random order, then queries, as an MQAR generator makes them; and the answers, from a dictionary."""
    X, answers, store = np.zeros((n, 2)), np.zeros(n), {}
    for t in range(n):
        key, value = int(rng.integers(keys)), rng.uniform(-1, 1)
        X[t], answers[t] = (key, value), store.get(key, 0.0)
        store[key] = np.float32(value)
    return X, answers


def followed(rng, symbols, n):
    """Symbols, and what followed the last occurrence of each whose successor lies in the past."""
    w, answers = rng.integers(symbols, size=n), np.zeros(n)
    for t in range(n):
        before = [s for s in range(t - 1) if w[s] == w[t]]
        answers[t] = w[before[-1] + 1] if before else 0
    return w[:, None].astype(float), answers


@pytest.mark.parametrize("keys", [3, 40])
def test_every_query_of_a_store_is_answered(keys):
    channels = [{"name": "k", "values": list(range(keys))}, PAYLOAD]
    task = ml.Matched(channels=channels, matches=["k1 == k0"], readout="v1")
    built = ml.compile(task, route="match", tolerance=1e-5)
    X, answers = stored_pairs(np.random.default_rng(keys), keys, 300)
    assert built.certificate.met
    assert np.abs(np.asarray(built.model(X))[:, 0] - answers).max() <= built.certificate.bound


def test_every_induction_is_answered():
    task = ml.Matched(
        channels=[{"name": "w", "values": list(range(12))}], matches=["w1 == w0"], offset=1, readout="w1"
    )
    built = ml.compile(task, route="match", tolerance=1e-5)
    X, answers = followed(np.random.default_rng(5), 12, 300)
    assert built.certificate.met
    y = np.asarray(built.model(X))[:, 0]
    assert np.array_equal(np.rint(y), answers) and np.abs(y - answers).max() <= built.certificate.bound


def test_a_key_at_position_0_is_found_among_near_misses():
    channels = [{"name": "k", "values": list(range(8))}, PAYLOAD]
    built = ml.compile(ml.Matched(channels=channels, matches=["k1 == k0"], readout="v1"), route="match")
    X = np.c_[np.full(400, 6.0), np.full(400, -1.0)]  # 6 and 7 differ in one bit
    X[0], X[-1] = (7.0, 0.5), (7.0, 0.0)
    assert np.asarray(built.model(X))[-1, 0] == 0.5


@pytest.mark.parametrize("name", ["needle", "selective-copy", "what-came-next"])
def test_matches_of_the_gallery_are_certified_and_hold(name, getkey):
    """Conditions that are no equality are tables: the heads compare classes of letters in place of bits."""
    task = ml.load_task(name)
    built = ml.compile(task, tolerance=1e-5)
    X = sample(task, getkey(), 300)
    assert built.plan.circuit.route == "match" and built.certificate.met
    assert np.abs(np.asarray(built.model(X)) - np.asarray(task.target(X))).max() <= built.certificate.bound


def test_no_route_for_lags_claims_to_serve_a_match():
    channels = [{"name": "k", "values": [0, 1]}, PAYLOAD]
    task = ml.Matched(channels=channels, matches=["k1 == k0"], readout="v1")
    found = plan(task, 1e-3, routes=[name for name in ROUTES if name != "match"])
    assert not found.met and not found.missed and all(found.obstacles.values())
    with pytest.raises(ml.BadInput, match="depends on the input"):
        mixed = [ml.Match("k1 == k0"), ml.Pointer("k0 + 1")]
        ml.compile(ml.Task(channels=channels, memories=mixed, readout="v1 + v2"), route="match")
