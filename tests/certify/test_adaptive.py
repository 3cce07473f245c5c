"""Adaptive certificates, part by part: cases cover everything, balls hold, pointers find what they say."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flint import arb

from memloci.approx.kernels.rpe import LIN
from memloci.certify import cases as certify_cases
from memloci.certify.affine_forms import EXACT, AffineForms, add, folded, linear, relu, zeros
from memloci.certify.balls import Ball
from memloci.certify.cases import BLANK, Cases, cases_of
from memloci.certify.certify import certify
from memloci.certify.kernels import SumKernels
from memloci.certify.pointers import MATCH, SINK, UNKNOWN, find
from memloci.certify.position_forms import Inputs, embedded
from memloci.certify.rounding import format_of
from memloci.certify.unnormalised import Queries, UnnormalisedHeads
from memloci.core.errors import BadInput
from memloci.model.transformer import Transformer
from memloci.pipeline import compile
from memloci.tasks.inputs import sample
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.short import Adaptive
from memloci.tasks.task import Task

from .cases import many_outputs

ORACLE = 1e-13
V = {"name": "v", "range": [-1, 1]}

# -- cases ------------------------------------------------------------------------------------------------


def drawn_tokens(task: Task, n: int, rng: np.random.Generator) -> np.ndarray:
    """Ends of intervals as often as their insides."""
    x = np.zeros((n, task.d))
    for c, channel in enumerate(task.channels):
        for t in range(n):
            piece = channel.domain[rng.integers(len(channel.domain))]
            x[t, c] = rng.choice([piece.lo, piece.hi, rng.uniform(piece.lo, piece.hi)])
    return x


def memories(task: Task, x: np.ndarray, t: int) -> tuple[list[int], np.ndarray]:
    """Lags and values of position t, one memory after the other; BLANK where there is none."""
    lags, tokens = [0], [x[t]]
    names = [channel.name for channel in task.channels]
    for table, parents in zip(task.recalls, task.parents, strict=True):
        assert isinstance(table, LagTable)
        at = []
        for name, domain in zip(table.reads, table.domains, strict=True):
            channel = name.rstrip("0123456789")
            value = tokens[int(name[len(channel) :])][names.index(channel)]
            at.append(int(np.argmin([max(p.lo - value, value - p.hi) for p in domain])))
        lag = int(table.lags[tuple(at)])
        blank = t < lag or any(lags[j] == BLANK for j in parents)
        lags.append(BLANK if blank else lag)
        tokens.append(np.zeros(task.d) if blank else x[t - lag])
    return lags, np.concatenate(tokens)


def case_of(cases: Cases, lags: list[int], values: np.ndarray, t: int) -> int:
    """The one case that a position is in."""
    held = (cases.t_min <= t) & (t <= cases.t_max) & (cases.lag == lags).all(axis=1)
    held &= (np.abs(values - cases.centre) <= cases.radius).all(axis=1)
    assert held.sum() == 1
    return int(np.flatnonzero(held)[0])


A = {"name": "a", "values": [1, 2, 5]}
S = {"name": "s", "intervals": [[-1, -0.1], [0.3, 0.7]]}
TASKS = {
    "warm-up": ([A, V], ["a0"]),
    "negative": ([{"name": "a", "values": [-3, 0.1, 0.5]}, V], [lambda a0: {-3: 4, 0.1: 1, 0.5: 2}[a0]]),
    "constant": ([A, V], [3, "a0"]),
    "intervals": ([S, A, V], ["where(s0 > 0, 3, 7)", "where(s1 > 0, a0, 2)"]),
    "nested": ([A, V], ["a0", "a0 + a1", "a2"]),
    "two channels": ([A, {**A, "name": "b"}, V], ["a0", "b1", "a0 + b0", "max(a1, b3)"]),
}


@pytest.mark.parametrize("name", TASKS)
def test_every_position_is_in_exactly_one_case(name):
    channels, lags = TASKS[name]
    task = Adaptive(channels=channels, lags=lags, readout="v1")
    cases, rng = cases_of(task), np.random.default_rng(len(name))
    n = min(2 * int(max(task.lag_bounds)) + 4, 60)
    for _ in range(4):
        x = drawn_tokens(task, n, rng)
        for t in range(n):
            lags, values = memories(task, x, t)
            row = case_of(cases, lags, values, t)
            for i, j in enumerate(cases.same[row].tolist()):
                assert j <= i and lags[i] == lags[j]


def test_too_many_cases_are_refused(monkeypatch):
    monkeypatch.setattr(certify_cases, "MAX_CASES", 3)
    channels = [{"name": "a", "values": [1, 2, 3, 4]}, V]
    with pytest.raises(BadInput, match="more than 3 cases"):
        cases_of(Adaptive(channels=channels, lags=["a0"], readout="v1"))


def test_intervals_lie_within_their_balls():
    channels = [{"name": "s", "intervals": [[-1, -0.1], [0.3, 0.7]]}]
    cases = cases_of(Adaptive(channels=channels, lags=["where(s0 > 0, 3, 7)"], readout="s1"))
    for row in range(len(cases)):
        c, r = Fraction(cases.centre[row, 0]), Fraction(cases.radius[row, 0])
        assert any(c - r <= Fraction(lo) and Fraction(hi) <= c + r for lo, hi in channels[0]["intervals"])


# -- affine forms -----------------------------------------------------------------------------------------


def random_cases(rng: np.random.Generator, n: int, variables: int) -> Cases:
    """Some variables known, some within a radius."""
    centre = rng.choice([0.0, 1.0, -0.5, 0.3], (n, variables)) + rng.normal(size=(n, variables)).round(1)
    radius = np.where(rng.random((n, variables)) < 0.5, 0.0, rng.uniform(0, 1, (n, variables)))
    nobody = np.zeros((n, variables), dtype=np.int64)
    return Cases(centre, radius, nobody, np.ones(n, dtype=np.int64), np.full(n, 9), nobody)


def random_stream(rng: np.random.Generator, cases: Cases, D: int) -> AffineForms:
    n, A = cases.centre.shape
    coef = np.where(rng.random((n, D, A)) < 0.3, rng.choice([1.0, -1.0, 0.7, 3.0], (n, D, A)), 0.0)
    const = rng.choice([0.0, 1.0, 2.5, -0.1], (n, D))
    E = np.where(rng.random((n, D)) < 0.5, 0.0, 10.0 ** rng.uniform(-9, -1, (n, D)))
    return folded(cases, const, coef, E)


def random_layer(rng: np.random.Generator, rows: int, D: int, dtype) -> tuple[np.ndarray, np.ndarray]:
    """Zeros, whole numbers that add exactly, and others, some of which cancel."""
    W = rng.choice([0.0, 0.0, 1.0, -2.0, 0.25, 0.1, -7.3, 28.0], (rows, D))
    b = rng.choice([0.0, -1.0, 0.5, 3.3], rows)
    return W.astype(dtype).astype(float), b.astype(dtype).astype(float)


def points(rng: np.random.Generator, X: AffineForms) -> tuple[np.ndarray, list[list[Fraction]]]:
    """Unknowns of each case at random or at an end, and a stream that they allow, exactly."""
    n, D = X.const.shape
    xi = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], X.cases.centre.shape)
    v = X.cases.centre + X.cases.radius * xi
    e = X.E * rng.choice([-1.0, 0.0, 1.0], X.E.shape)
    stream = [[_affine(X, row, j, v) + Fraction(e[row, j]) for j in range(D)] for row in range(n)]
    return v, stream


def _affine(X: AffineForms, row: int, j: int, v: np.ndarray) -> Fraction:
    terms = (Fraction(c) * Fraction(x) for c, x in zip(X.coef[row, j], v[row], strict=True))
    return Fraction(X.const[row, j]) + sum(terms)


def assert_held(X: AffineForms, v: np.ndarray, stream: list[list[Fraction]]) -> None:
    for row, values in enumerate(stream):
        for j, value in enumerate(values):
            E = X.E[row, j]
            assert np.isinf(E) or abs(value - _affine(X, row, j, v)) <= Fraction(E)
            apart = abs(value - Fraction(X.middle[row, j]))
            assert np.isinf(E) or apart <= Fraction(X.radius[row, j])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
def test_exact_networks_stay_within_their_balls(seed):
    rng = np.random.default_rng(seed)
    X = random_stream(rng, random_cases(rng, 4, 3), 5)
    v, x = points(rng, X)
    for _ in range(3):
        B, c = random_layer(rng, 6, 5, float)
        A, _ = random_layer(rng, 5, 6, float)
        hidden = linear(B, X, EXACT, c)
        h = [[_dot(row, one) + Fraction(b) for row, b in zip(B, c, strict=True)] for one in x]
        assert_held(hidden, v, h)
        added = linear(A, relu(hidden), EXACT)
        a = [[_dot(row, [max(y, Fraction(0)) for y in one]) for row in A] for one in h]
        assert_held(added, v, a)
        X = add(X, added, EXACT)
        x = [[p + q for p, q in zip(one, two, strict=True)] for one, two in zip(x, a, strict=True)]
        assert_held(X, v, x)


def _dot(row: np.ndarray, x: list[Fraction]) -> Fraction:
    return sum((Fraction(w) * value for w, value in zip(row, x, strict=True)), Fraction(0))


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(25))
def test_computed_networks_stay_within_their_balls(seed, precision):
    """The same operations in the numbers of the precision, roundings and all."""
    rng, dtype, form = np.random.default_rng(seed), np.dtype(precision), format_of(precision)
    X = random_stream(rng, random_cases(rng, 4, 3), 5)
    v, exact = points(rng, X)
    x = np.array([[float(value) for value in one] for one in exact]).astype(dtype)
    gap = [
        [abs(Fraction(float(p)) - q) for p, q in zip(*both, strict=True)]
        for both in zip(x, exact, strict=True)
    ]
    off = np.array([[float(value) for value in one] for one in gap]) * (1 + 1e-12)
    X = AffineForms(X.cases, X.const, X.coef, X.E + np.where(off > 0, off + 1e-300, 0.0))
    for _ in range(3):
        B, c = random_layer(rng, 6, 5, dtype)
        A, _ = random_layer(rng, 5, 6, dtype)
        hidden = linear(B, X, form, c)
        h = x @ B.astype(dtype).T + c.astype(dtype)
        assert_held(hidden, v, _exactly(h))
        added, X_before = linear(A, relu(hidden), form), X
        a = np.maximum(h, dtype.type(0)) @ A.astype(dtype).T
        assert_held(added, v, _exactly(a))
        X, x = add(X_before, added, form), x + a
        assert x.dtype == dtype
        assert_held(X, v, _exactly(x))


def _exactly(x: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(float(value)) for value in row] for row in x]


# -- pointers ---------------------------------------------------------------------------------------------

PAIRS = 32  # 31 frequencies pi 2^-j and one that stands still
TURNS = np.array([*(1 << (31 - j) for j in range(31)), 0], dtype=np.int64)
WINDOW = 512


def turned(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """R_s x for every s, by complex numbers."""
    omega = TURNS / 2.0**31 * np.pi
    z = (x[:PAIRS] + 1j * x[PAIRS:]) * np.exp(1j * np.outer(s, omega))
    return np.concatenate([z.real, z.imag], axis=1)


def softmax_weights(q: np.ndarray, k: np.ndarray, k0: np.ndarray, t: int) -> np.ndarray:
    """Over the positions 0, ..., t - 1."""
    keys = turned(k, np.arange(t))
    keys[0] = k0
    logits = keys @ turned(q, np.array([t]))[0]
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@pytest.mark.parametrize("seed", range(40))
def test_a_pointer_finds_what_it_says(seed):
    """Every frequency with an amplitude of its own, errors in query and key, a sink or none."""
    rng = np.random.default_rng(seed)
    z, c = int(rng.integers(1, 200)), rng.choice([2.0, 8.0, 28.0])
    angle = TURNS[:31] / 2.0**31 * np.pi * z
    amplitudes = c * rng.uniform(0.5, 1.5, 31)
    q, k = np.zeros(2 * PAIRS), np.zeros(2 * PAIRS)
    q[:31], q[PAIRS : PAIRS + 31], k[:31] = amplitudes * np.cos(angle), -amplitudes * np.sin(angle), 1.0
    sink = rng.choice([0.0, 15.0, 29.0, 33.0]) * c
    q[31], k0 = sink, np.zeros(2 * PAIRS)
    k0[31] = 1.0
    if sink == 0:
        k0 = k.copy()
    rq, rk = rng.choice([0.0, 1e-6, 1e-3], 2)
    t_min = int(rng.integers(1, WINDOW))
    t_max = int(rng.integers(t_min, WINDOW + 1))
    one = lambda x, r: Ball(x, np.full_like(x, r))
    asked = Ball(q[None], np.full((1, 2 * PAIRS), rq))
    spans = np.array([t_min]), np.array([t_max])
    found = find(asked, one(k, rk), one(k0, rk), TURNS, *spans, format_of("float64"))
    what, beside = int(found.what[0]), float(found.beside[0])
    if what == UNKNOWN:
        return
    for t in {t_min, t_max, *rng.integers(t_min, t_max + 1, 10).tolist()}:
        off = lambda x, r: x + r * rng.uniform(-1, 1, x.shape)
        moved = off(k, rk)
        weights = softmax_weights(off(q, rq), moved, moved if sink == 0 else off(k0, rk), t)
        at = 0 if what == SINK else t - int(found.z[0])
        assert 0 <= at < t and 1 - weights[at] <= beside + 1e-12
    assert what == SINK or found.z[0] == z


def test_pointers_are_decided_where_they_should_be():
    """Match from t = z + 1 on, the sink before; both for any t cannot be told."""
    z, c = 5, 28.0
    angle = TURNS[:31] / 2.0**31 * np.pi * z
    q, k, k0 = (np.zeros(2 * PAIRS) for _ in range(3))
    q[:31], q[PAIRS : PAIRS + 31], k[:31] = c * np.cos(angle), -c * np.sin(angle), 1.0
    q[31], k0[31] = 30 * c, 1.0
    point = lambda x: Ball(x, np.zeros_like(x))
    asked = point(np.tile(q, (3, 1)))
    spans = np.array([6, 1, 1]), np.array([2**31, 5, 2**31])
    found = find(asked, point(k), point(k0), TURNS, *spans, format_of("float32"))
    assert found.what.tolist() == [MATCH, SINK, UNKNOWN] and found.z[0] == z
    assert (found.beside[:2] < 1e-10).all()


def test_a_missing_frequency_says_nothing():
    q, k = np.zeros(2 * PAIRS), np.zeros(2 * PAIRS)
    q[:31], k[:31] = 28.0, 1.0
    q[7] = 0.0
    point = lambda x: Ball(x, np.zeros_like(x))
    asked = point(q[None])
    found = find(asked, point(k), point(k), TURNS, np.array([9]), np.array([99]), format_of("float64"))
    assert found.what[0] == UNKNOWN


# -- heads without normalisation --------------------------------------------------------------------------


def unnormalised(
    seed: int, error: float
) -> tuple[Task, AffineForms, Callable[[np.ndarray, int], np.ndarray]]:
    """Random lin heads: what is proved of them in every case, and what they write."""
    task = Adaptive(channels=[{"name": "a", "values": [1, 2]}, V], lags=["a0"], readout="v1")
    cases, rng, H = cases_of(task), np.random.default_rng(seed), 3
    p, q = rng.uniform(0.5, 3, H), rng.normal(size=H)
    W_V, W_O = rng.normal(size=(H, 1, 2)), rng.normal(size=(H, 2, 1))
    past = embedded(np.eye(2), np.zeros(2), Inputs.of(task), np.zeros(2))
    n = len(cases)
    asked = Queries(np.zeros((n, 1)), np.full((n, H), error), lambda row: [arb(float(x)) for x in q])
    heads = UnnormalisedHeads(SumKernels(LIN, p), W_V, W_O, np.zeros((H, 1, 2)), None)
    proved = heads._recalled(asked, past, zeros(cases, 2), (2, 2), EXACT, False)

    def written(x: np.ndarray, t: int) -> np.ndarray:
        moved = q + error * rng.uniform(-1, 1, H)
        z = np.arange(1, t + 1)
        recalled = [np.exp(moved[h] - p[h] * z) @ x[t - z] @ W_V[h].T for h in range(H)]
        return np.sum([W_O[h] @ recalled[h] for h in range(H)], axis=0)

    return task, proved, written


@pytest.mark.parametrize("error", [0.0, 1e-3])
@pytest.mark.parametrize("seed", range(4))
def test_heads_without_normalisation_stay_within_their_balls(seed, error):
    task, proved, written = unnormalised(seed, error)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        x = drawn_tokens(task, 10, rng)
        for t in range(10):
            lags, values = memories(task, x, t)
            row = case_of(proved.cases, lags, values, t)
            apart = np.abs(written(x, t) - proved.const[row] - proved.coef[row] @ values)
            assert (apart <= proved.E[row] * (1 + 1e-12) + 1e-12).all()


@pytest.mark.parametrize("error", [1e3, math.inf])
def test_a_query_of_which_nothing_is_known_promises_nothing(error):
    _, proved, _ = unnormalised(0, error)
    with np.errstate(all="ignore"):
        assert np.isinf(proved.E[proved.cases.t_max > 0]).all()


# -- whole models, with weights that nobody meant -----------------------------------------------------------


@lru_cache
def compiled(route: str, nested: bool) -> tuple[Transformer, Task]:
    lags, readout = (["a0", "a0 + a1"], "v2") if nested else (["a0"], "v1")
    letters = {"name": "a", "values": [1, 2]}
    task = Adaptive(channels=[letters, {"name": "v", "range": [-0.5, 2]}], lags=lags, readout=readout)
    precision = "float64" if route.startswith("l") else "float32"
    tolerance = (
        1e-1 if nested and route.startswith("log") else 1e-3
    )  # lags up to 4: no log heads leave less than 0.004
    return compile(task, tolerance=tolerance, precision=precision, route=route).model, task


def disturbed(model: Transformer, rng: np.random.Generator) -> Transformer:
    """Every weight moved a little, or a few of them by much; slopes stay positive."""
    size, few = 10.0 ** rng.uniform(-7, -1), rng.random() < 0.5

    def move(leaf):
        if not eqx.is_inexact_array(leaf):
            return leaf
        w = np.asarray(leaf, dtype=float)
        there = (w != 0) if rng.random() < 0.7 else np.ones(w.shape, dtype=bool)
        chosen = there & (rng.random(w.shape) < (0.02 if few else 1.0))
        w = w * (1 + np.where(chosen, (1.0 if few else size) * rng.uniform(-0.5, 0.5, w.shape), 0.0))
        w = w + np.where(chosen & (rng.random(w.shape) < 0.2), size * rng.uniform(-1, 1, w.shape), 0.0)
        return jnp.asarray(w.astype(leaf.dtype))

    return jax.tree.map(move, model)


def assert_disturbed_is_sound(route: str, nested: bool, seed: int) -> None:
    model, task = compiled(route, nested)
    rng = np.random.default_rng(seed)
    damaged = disturbed(model, rng)
    try:
        found = certify(damaged, task)
    except BadInput:
        return
    keys = jr.split(jr.key(seed), 64)
    dtype = model.W_E.dtype
    x = np.stack([np.asarray(sample(task, key, 12, dtype)) for key in keys])
    x[::2, :, 1] = rng.choice([-0.5, 2.0], x[::2, :, 1].shape)
    y = np.stack([np.asarray(task._target(one.astype(float), np)) for one in x])
    err = np.abs(np.asarray(many_outputs(damaged, jnp.asarray(x))) - y).max()
    if math.isfinite(found.bound):  # otherwise NaN is no surprise
        assert err <= found.bound * (1 + ORACLE) + ORACLE, (route, nested, seed, err, found.bound)


@pytest.mark.long
@pytest.mark.parametrize(("route", "nested"), [("rotary", True), ("chain", False), ("lin-tmx", False)])
def test_no_input_beats_the_certificate_of_disturbed_weights(route, nested):
    for seed in range(6):
        assert_disturbed_is_sound(route, nested, seed)


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("route", ["rotary", "chain", "lin-tmx", "lin-dp", "log-tmx", "log-dp"])
def test_no_input_beats_the_certificate_of_many_disturbed_weights(route, nested):
    for seed in range(100, 200):
        assert_disturbed_is_sound(route, nested, seed)


@pytest.mark.long(3)
@pytest.mark.parametrize("route", ["rotary", "chain", "lin-tmx"])
def test_fewer_bits_cost_more(route):
    model, task = compiled(route, False)
    found = certify(model, task)
    by = found.bound_by_precision
    assert found.exact_bound <= by["float64"] <= by["float32"] <= by["bfloat16"]
    assert found.met and found.bits is not None and found.bits <= 53
    assert sum(term.E for term in found.terms) == pytest.approx(found.bound, rel=1e-6)


def test_what_is_not_followed_is_refused():
    model, task = compiled("chain", False)
    other = Adaptive(channels=list(task.channels), lags=["a0"], readout=lambda v1: v1)
    with pytest.raises(BadInput, match="callable"):
        certify(model, other)
    with pytest.raises(BadInput, match="one by one, and it is not affine"):
        certify(model, Adaptive(channels=list(task.channels), lags=["a0"], readout="v1 * v0"))
