"""Below the capacity bound every model confuses two pasts, and they are found and shown."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.rotation import turns_of
from memloci.model.transformer import Transformer
from memloci.observe.counterexample import counterexample, counterexample_recurrent, recalled
from memloci.observe.sup_error import measure
from memloci.routes.capacity import exemption
from memloci.tasks.gallery import GALLERY
from memloci.tasks.short import Adaptive, Fixed
from memloci.tasks.task import Task


def pointer(T: int, low: float = -1.0, high: float = 1.0) -> Task:
    """The token says how far back to look, 1..T; its symbols are k / T."""
    symbols = {"name": "a", "values": [k / T for k in range(1, T + 1)]}
    payload = {"name": "v", "range": [low, high]}
    return Adaptive(channels=[symbols, payload], lags=[f"{T} * a0"], readout="v1")


def random_model(L: int, H: int, d_v: int, *, key, channels: int = 2, outputs: int = 1, **switches):
    defaults = {"attention": "dpf", "normalisation": "infinite", "precision": "float64", "width": 16}
    sizes = {"layers": L, "heads": H, "value_dim": d_v, "dim": 8, "key_dim": 4}
    architecture = Architecture(**{**sizes, **defaults, **switches})
    shapes = eqx.filter_eval_shape(lambda: Transformer(architecture, channels, outputs, key=key))
    rng = np.random.default_rng(np.asarray(jr.key_data(key)))

    def fill(path, leaf):  # in NumPy: compiling JAX's random numbers takes longer than the tests themselves
        if leaf.dtype == np.uint32:
            return jnp.broadcast_to(turns_of(architecture.rope_base, leaf.shape[-1]), leaf.shape)
        if path[-1].name in ("b_E", "b_U"):
            return jnp.zeros(leaf.shape, leaf.dtype)
        if path[-1].name == "p":
            slow, fast = (1.2, 3.0) if architecture.encoding == "log" else (0.05, 0.5)
            return jnp.asarray(np.linspace(slow, fast, leaf.shape[0], dtype=leaf.dtype))
        return jnp.asarray((rng.normal(size=leaf.shape) * leaf.shape[-1] ** -0.5).astype(leaf.dtype))

    return jax.tree_util.tree_map_with_path(fill, shapes)


def chain(T: int, L: int) -> Transformer:
    """L lag-1 shifts, then a gate: recalls the lags 1..L of `pointer(T)` with no error but rounding.

    The first FFN writes h_k = 1{a = k / T}, a hat of a; the last one adds sum_k relu(v_k + 2 h_k - 1) = v_a + 1.
    """
    D, m = 2 + L + T + 1, 3 * T
    switches = {"width": m, "dim": D, "encoding": "lin", "precision": "float64"}
    model = random_model(L, 1, 1, key=jr.key(0), **switches)
    model = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_inexact_array(leaf) else leaf, model)
    layers = list(model.layers)
    hats, out = 2 + L, D - 1
    for l in range(L):
        W_V, W_O = np.zeros((1, 1, D)), np.zeros((1, D, 1))
        W_V[0, 0, 1 + l] = W_O[0, 2 + l, 0] = 1
        B, c, A = np.zeros((m, D)), np.zeros(m), np.zeros((D, m))
        if l == 0:
            for k in range(T):
                B[3 * k : 3 * k + 3, 0] = T
                c[3 * k : 3 * k + 3] = np.array([1, 0, -1]) - (k + 1)
                A[hats + k, 3 * k : 3 * k + 3] = [1, -2, 1]
        if l == L - 1:
            for k in range(L):
                B[k, 2 + k], B[k, hats + k], c[k], A[out, k] = 1, 2, -1, 1
        layers[l] = eqx.tree_at(
            lambda b: (b.attention.heads.W_V, b.attention.heads.W_O, b.attention.heads.encoding.p, b.ffn),
            layers[l],
            (
                *map(jnp.asarray, (W_V, W_O, np.array([60.0]))),
                eqx.tree_at(lambda f: (f.B, f.c, f.A), layers[l].ffn, tuple(map(jnp.asarray, (B, c, A)))),
            ),
        )
    W_E, W_U = np.zeros((D, 2)), np.zeros((1, D))
    W_E[0, 0] = W_E[1, 1] = W_U[0, out] = 1
    weights = (*map(jnp.asarray, (W_E, W_U)), jnp.asarray([-1.0]), tuple(layers))
    return eqx.tree_at(lambda m: (m.W_E, m.W_U, m.b_U, m.layers), model, weights)


def check(found, model, task, r: float = 1.0) -> None:
    """Everything that a counterexample claims, from the two sequences alone."""
    assert found is not None
    assert np.array_equal(found.first[-1], found.second[-1])
    assert np.array_equal(found.first[:, 0], found.second[:, 0])  # the symbols
    lo, hi = task.channels[1].range
    both = np.stack([found.first, found.second])
    assert lo <= both[..., 1].min() and both[..., 1].max() <= hi
    y, H = (np.asarray(f(both), dtype=float)[:, -1] for f in map(jax.jit, (jax.vmap(model), task.target)))
    assert np.allclose(H, found.targets) and abs(np.ptp(H) - 2 * r) <= 1e-6 * r
    assert np.abs(y[0] - y[1]).max() <= 1e-4 * max(1.0, np.abs(y).max()) and found.apart <= 1e-4
    assert np.abs(y - H).max() >= (1 - 1e-3) * r and found.error >= (1 - 1e-3) * r


@pytest.mark.long
@pytest.mark.parametrize(
    "L, H, d_v, T, switches",
    [
        (1, 1, 1, 4, {}),
        (1, 2, 2, 5, {"attention": "tmx", "encoding": "log", "precision": "float32"}),
        (1, 2, 2, 16, {"encoding": "rope", "normalisation": "softmax", "precision": "float32"}),
        (2, 1, 2, 5, {"normalisation": "softmax", "precision": "float32"}),
        (2, 2, 1, 8, {"attention": "tmx", "normalisation": "none", "encoding": "log"}),
        (2, 2, 2, 9, {"encoding": "t5", "normalisation": "softmax", "buckets": 8}),
        (3, 1, 2, 7, {"attention": "tmx"}),
        (3, 2, 2, 13, {"encoding": "log", "precision": "float32", "window": 9}),
    ],
)
def test_random_models_below_the_bound_are_refuted(L, H, d_v, T, switches, getkey):
    model, task = random_model(L, H, d_v, key=getkey(), **switches), pointer(T)
    check(counterexample(model, task, key=getkey()), model, task)


def test_what_is_recalled_does_not_depend_on_the_present_and_decides_the_answer(getkey):
    model = random_model(3, 2, 2, key=getkey(), attention="tmx")
    x = jr.uniform(getkey(), (9, 2), minval=-1.0)
    other = x.at[-1].set(jnp.asarray([0.3, 5.0]))
    changed = x.at[2].add(0.5)
    S, same, differs = jax.jit(jax.vmap(lambda x: recalled(model, x)))(jnp.stack([x, other, changed]))
    assert S.shape == (12,) and np.allclose(S, same, rtol=0, atol=1e-12)
    assert np.abs(S - differs).max() > 1e-6


def test_a_chain_attains_the_bound_and_one_layer_less_fails_where_it_must():
    T = 3
    task, whole, short = pointer(T), chain(T, T), chain(T, T - 1)
    assert counterexample(whole, task, key=jr.key(0)) is None
    assert "not below the bound" in str(exemption(whole.architecture, task))
    seen = measure(whole, task, key=jr.key(0), sequences=4, length=12, steps=8, starts=4)
    assert seen.err_sup <= 1e-9 and seen.counterexample is None
    found = counterexample(short, task, key=jr.key(0))
    check(found, short, task)
    assert found is not None and found.lag == T  # it recalls all the others


def test_other_ranges_scale_the_error(getkey):
    model, task = random_model(1, 2, 1, key=getkey()), pointer(4, low=2.0, high=8.0)
    check(counterexample(model, task, key=getkey()), model, task, r=3.0)


@pytest.mark.long
@pytest.mark.parametrize("name", ["pointer-far", "nested-1"])
def test_far_and_nested_lags(name, getkey):
    task = GALLERY[name]()
    model = random_model(1, 2, 1, key=getkey())
    check(counterexample(model, task, key=getkey()), model, task)


def test_refusals(getkey):
    task = pointer(4)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"attention": "dp", "normalisation": "softmax"}, "factorise"),
        ({"norm": "pre"}, "norm 'pre'"),
    ]
    for switches, reason in refused:
        with pytest.raises(BadInput, match=reason):
            counterexample(random_model(1, 1, 1, key=getkey(), **switches), task, key=getkey())
    with pytest.raises(BadInput, match="channels"):
        counterexample(random_model(1, 1, 1, key=getkey(), channels=3), task, key=getkey())


def test_recurrent_states_are_refuted_too(getkey):
    n, task = 5, pointer(6)
    A, B, C = (np.asarray(jr.normal(getkey(), shape)) for shape in ((n, n), (n, 2), (1, n)))
    A = 0.4 * A
    step = lambda s, x: jnp.tanh(A @ s + B @ x)
    readout = lambda s, x: C @ s + x[:1]
    found = counterexample_recurrent(step, readout, n, task, key=getkey())
    assert found is not None and found.error >= 1 - 1e-3 and found.apart <= 1e-4
    ends = []
    for x in (found.first, found.second):
        s = np.zeros(n)
        for token in x[:-1]:
            s = np.tanh(A @ s + B @ token)
        ends.append(s)
    assert np.allclose(*ends, rtol=0, atol=1e-8) and not np.allclose(found.first, found.second)
    assert counterexample_recurrent(step, readout, 6, task, key=getkey()) is None


@pytest.mark.slow
def test_measure_records_it_and_is_deterministic(getkey):
    model, task = chain(4, 3), pointer(4)
    effort = {"sequences": 2, "length": 10, "steps": 4, "starts": 2}
    seen, again = (measure(model, task, key=jr.key(5), **effort) for _ in range(2))
    check(seen.counterexample, model, task)
    assert seen.counterexample is not None and seen.err_adversarial >= seen.counterexample.error
    told = json.loads(json.dumps(seen.to_dict(), allow_nan=False))
    assert told == again.to_dict() and told["counterexample"]["lag"] == 4
    assert np.array_equal(seen.worst_input, again.worst_input)
    free = random_model(1, 1, 1, key=getkey(), attention="dp", normalisation="softmax")
    assert measure(free, task, key=getkey(), **effort).counterexample is None


def test_the_search_looks_at_blank_memories():
    """softmax spreads over what there is while lag 8 is before the start: wrong by 1 there, right later."""
    switches = {"encoding": "t5", "normalisation": "softmax", "width": 0, "dim": 2, "buckets": 32}
    model = random_model(1, 1, 1, key=jr.key(0), channels=1, **switches)
    heads = lambda m: m.layers[0].attention.heads
    table = np.zeros((1, 32))
    table[0, 7] = 60.0
    weights = ([[[1.0, 0.0]]], [[[0.0], [1.0]]], table, [[1.0], [0.0]], [[0.0, 1.0]])
    model = eqx.tree_at(
        lambda m: (heads(m).W_V, heads(m).W_O, heads(m).encoding.table, m.W_E, m.W_U),
        model,
        tuple(map(jnp.asarray, weights)),
    )
    seen = measure(model, Fixed(lags=[8], readout="x1"), key=jr.key(1), sequences=1)
    assert seen.err_sampled < 0.99 and seen.err_adversarial > 1 - 1e-9


def test_the_search_draws_symbols_that_no_gradient_asks_for():
    """A model that answers 0 is wrong about one symbol in 32 only."""
    task = Adaptive(
        channels=[{"name": "a", "values": list(range(32))}, {"name": "v", "range": [-1, 1]}],
        lags=[1],
        readout="where(a0 == 21, v1, 0)",
    )
    model = random_model(1, 1, 1, key=jr.key(0), width=0)
    model = eqx.tree_at(lambda m: m.W_U, model, jnp.zeros_like(model.W_U))
    found = [measure(model, task, key=jr.key(k), sequences=1, length=3).err_adversarial for k in range(2)]
    assert found == [1.0, 1.0]
