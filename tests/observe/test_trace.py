"""A trace tells what the network does: the lags of the task, the tokens it holds, and its own output."""

from functools import cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.observe.probes import example_run
from memloci.observe.trace import Trace, positions_to_show, trace, traces
from memloci.pipeline import Built, compile
from memloci.tasks.short import Adaptive

PAYLOAD = {"name": "v", "range": [-1, 1]}
NESTED = Adaptive(
    channels=[{"name": "a", "values": [1, 2, 3]}, PAYLOAD], lags=["a0", "a0 + a1"], readout="v2 + 0.5 * v1"
)
NEAR = Adaptive(channels=[{"name": "a", "values": [1, 2]}, PAYLOAD], lags=["a0"], readout="v1")


@cache
def _built(route: str) -> Built:
    wide = route == "lin-tmx"
    return compile(NEAR if wide else NESTED, route=route, precision="float64" if wide else "float32")


@pytest.fixture(scope="module", params=["rotary", "chain", "lin-tmx"])
def built(request) -> Built:
    return _built(request.param)


@pytest.fixture(scope="module")
def run(built) -> tuple[np.ndarray, tuple[Trace, ...]]:
    example = example_run(built.model, built.task, n=16)
    return example.x, _all(built, built.model, example.x)


def _all(built: Built, model, x) -> tuple[Trace, ...]:
    return traces(model, built.task, built.plan.circuit, x, range(len(x)))


@pytest.mark.long(3)
def test_the_network_reads_the_lags_of_the_task(run):
    """Walked by hand: t - a_t, and from what was found there."""
    x, found = run
    a = x[:, 0].astype(int)
    for at in found:
        first, *second = at.recalls
        t = at.t
        there = a[t] <= t
        assert (first.lag, first.blank) == (a[t], not there)
        assert first.is_right and (first.read is not None) == there
        if first.read:
            assert first.read.lag == a[t] and first.read.weight == pytest.approx(1, abs=1e-4)
        for recall in second:
            lag = a[t] + a[t - a[t]] if there else None
            assert (recall.lag, recall.blank) == (lag, lag is None or lag > t) and recall.is_right


def test_slots_hold_the_tokens_and_outputs_are_the_models(built, run):
    x, found = run
    y = np.asarray(eqx.filter_jit(built.model)(jnp.asarray(x, built.model.W_E.dtype)))
    for at in found:
        np.testing.assert_allclose(at.output, y[at.t], atol=1e-6)
        assert at.err <= built.certificate.bound
        for recall in at.recalls:
            token = {
                name: 0.0 if recall.blank else x[at.t - (recall.lag or 0), c] for c, name in enumerate("av")
            }
            assert recall.target == {name: token[name] for name in recall.recalled}
            assert recall.err < 1e-3 and "v" in recall.recalled
            if recall.present is not None:
                assert recall.present == pytest.approx(0.0 if recall.blank else 1.0, abs=1e-3)


def test_heads_look_where_the_route_says(built, run):
    _, found = run
    for at in found[4:]:
        for recall in at.recalls:
            if built.plan.route == "rotary" and recall.lag and recall.lag > 1 and not recall.blank:
                assert recall.attended and recall.attended.lag == recall.lag - 1  # "the token before"
            if built.plan.route == "rotary" and recall.lag == 1:
                assert recall.attended and recall.attended.lag == at.t  # at rest
            if built.plan.route == "lin-tmx" and not recall.blank:
                assert recall.attended and recall.attended.lag == recall.lag  # all heads together
            if built.plan.route == "chain":
                assert recall.attended is None
        if built.plan.route == "chain":
            assert {head.peaks[0].lag for head in at.heads} == {1}
        else:
            assert {i for head in at.heads for i in head.memories} == {r.memory for r in at.recalls}
    assert not any(head.peaks for head in found[0].heads)  # the first token has no past


def test_a_wrong_lag_is_seen():
    """Heads that are told to head elsewhere: the trace names another token, not the task's."""
    built = _built("rotary")
    x = example_run(built.model, built.task, n=16).x
    slots = built.plan.circuit.slots
    swap = {f"{part} {j} of 1": f"{part} {j} of 2" for part in ("cos", "sin") for j in range(31)}
    order = np.arange(len(slots))
    for one, other in swap.items():
        i, j = slots.index(one), slots.index(other)
        order[[i, j]] = order[[j, i]]
    where = lambda model: model.layers[2].attention.heads.score.W_Q
    broken = eqx.tree_at(where, built.model, where(built.model)[..., order])
    wrong = [recall for at in _all(built, broken, x)[6:] for recall in at.recalls if recall.memory == 2]
    assert not any(recall.is_right for recall in wrong if recall.lag and recall.lag > 2)
    assert max(recall.err for recall in wrong) > 0.1


def test_positions_worth_following():
    x = np.tile([[3.0, 0.5], [1.0, -0.5], [2.0, 0.25]], (8, 1))
    told = positions_to_show(NESTED, x, most=6)
    assert told[:2] == [0, 1] and told == sorted(set(told)) and len(told) == 6
    blanks = {t: [x[t, 0] > t, x[t, 0] > t or x[t, 0] + x[t - int(x[t, 0]), 0] > t] for t in told}
    assert {sum(b) for b in blanks.values()} == {0, 1, 2}


def test_one_position_and_none():
    built = compile(NEAR, route="chain")
    circuit, x = built.plan.circuit, np.array([[1, 0.5], [2, -0.25], [2, 0.75]])
    one = trace(built.model, NEAR, circuit, x, 2)
    assert one.recalls[0].recalled["v"] == pytest.approx(0.5, abs=1e-5) and len(one.x) == 3
    with pytest.raises(BadInput, match="0..2"):
        trace(built.model, NEAR, circuit, x, 3)
    present = compile(Adaptive(channels=NEAR.channels, lags=["a0"], readout="v0"), route="one-layer-lin")
    with pytest.raises(BadInput, match="nothing to follow"):
        trace(present.model, present.task, present.plan.circuit, x, 2)
