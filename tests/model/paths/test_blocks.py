"""Blocks: the plain numbers from block sums, in linear memory, visiting only what is seen."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memloci.model.paths import blocks
from memloci.model.paths.blocks import Blocks, Plan, block_size
from memloci.model.paths.choice import PATHS
from tests.model.cases import ONCE, VALID, build, name, same_bits, tokens

from .agreement import assert_agrees, sample, some

LIN = dict(attention="dp", encoding="lin", normalisation="softmax")
KINDS = [  # one of every shape that logits have, and every normalisation
    LIN,
    dict(attention="dp", encoding="rope", normalisation="none"),
    dict(attention="dpf", encoding="t5", normalisation="softmax"),
    dict(attention="tmx", encoding="log", normalisation="infinite"),
    dict(attention="tmx-mul", encoding="log", normalisation="softmax"),
]


class Tiny(Blocks):
    """Blocks of 4, so that short sequences have many; both heads and two pairs of blocks at a time."""

    block = 4
    cached = 64


class TinyOneByOne(Tiny):
    cached = 1


@pytest.fixture(autouse=True)
def tiny_paths(monkeypatch):
    monkeypatch.setitem(PATHS, "tiny", Tiny)
    monkeypatch.setitem(PATHS, "tiny one by one", TinyOneByOne)


# -- the plain definition --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("case", some(VALID), ids=name)
def test_every_architecture_agrees(case):
    assert_agrees("tiny", *sample(case, 9, "float64"))


@pytest.mark.long
@pytest.mark.parametrize("case", VALID[::16], ids=name)
def test_one_block_agrees(case):
    assert_agrees("blocks", *sample(case, 9, "float64"))


@pytest.mark.long
@pytest.mark.parametrize("case", KINDS, ids=name)
def test_one_group_and_one_pair_at_a_time_agree(case):
    assert_agrees("tiny one by one", *sample(case, 13, "float64", heads=3))


@pytest.mark.long
@pytest.mark.parametrize("n", [0, 1, 2, 127, 128, 129, 257])
def test_every_length_agrees(n):
    assert_agrees("blocks", *sample(LIN, n, "float32"))


@pytest.mark.long
@pytest.mark.parametrize("past", [(50, 1), (200, 1), (None, 2), (200, 3)], ids=str)
def test_windows_and_strides_agree(past):
    window, stride = past
    assert_agrees("blocks", *sample(LIN, 300, "float64", window=window, stride=stride))


@pytest.mark.long
@pytest.mark.parametrize("case", KINDS[1:], ids=name)
def test_several_blocks_agree_in_float32(case):
    assert_agrees("blocks", *sample(case, 257, "float32"))


@pytest.mark.long
@pytest.mark.parametrize("normalisation", ["infinite", "none"])
def test_windows_of_several_blocks_agree(normalisation):
    case = LIN | dict(normalisation=normalisation, window=18, stride=2)
    assert_agrees("tiny", *sample(case, 40, "float64"))


def test_long_sequences_agree():
    assert_agrees("blocks", *sample(LIN | dict(window=100), 16384, "float32"), rows=[0, 1, 8191, 16383])


@pytest.mark.slow
@pytest.mark.parametrize("case", [LIN, KINDS[1] | dict(normalisation="softmax")], ids=name)
def test_long_pasts_agree(case):
    assert_agrees("blocks", *sample(case, 16384, "float32", scale=3.0), rows=[0, 1, 8191, 16383])


def test_logits_that_grow_with_the_lag_agree():
    """The positions that the last block is filled up with must not overflow the gradient."""
    heads, X, V = sample(LIN, 130, "float32")
    heads = eqx.tree_at(lambda heads: heads.encoding.p, heads, jnp.asarray([-2.0, -0.5], "float32"))
    assert_agrees("blocks", heads, X, V)


def test_a_sharp_head_weighs_its_peak_one():
    """The sum over the window and the weights come from one table: no error of 1e5 eps is left."""
    case = dict(attention="dpf", encoding="t5", normalisation="infinite", window=5)
    heads, X, V = sample(case, 40, "float32")
    table = jnp.asarray([[0.1, 1e5 + 0.3, 0.2, 0.4]] * 2, "float32")
    heads = eqx.tree_at(lambda heads: heads.encoding.table, heads, table)
    _, peak, following, *_ = heads.encoding.starts
    assert following == peak + 1  # a bucket of one lag
    recalled = np.asarray(Blocks.recalled(heads, X, V))
    assert (recalled[:peak] == 0).all()
    error = np.abs(recalled[peak:] - np.asarray(V)[:-peak]) / np.abs(np.asarray(V)[:-peak])
    assert error.max() <= 2 * np.finfo("float32").eps


def test_no_weights_where_the_infinite_sum_diverges():
    heads, X, V = sample(LIN | dict(normalisation="infinite"), 9, "float64")
    heads = eqx.tree_at(lambda heads: heads.encoding.p, heads, jnp.asarray([-0.1, 0.1]))
    recalled = np.asarray(Blocks.recalled(heads, X, V))
    assert np.isnan(recalled[1:, 0]).all() and np.isfinite(recalled[:, 1]).all()


# -- batches ---------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("path", ["blocks", "tiny"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_batch_is_its_sequences(path, stride):
    many = [sample(LIN, 11, "float64", seed=seed, stride=stride)[1:] for seed in range(3)]
    heads, *_ = sample(LIN, 11, "float64", stride=stride)
    X, V = (jnp.stack(arrays) for arrays in zip(*many, strict=True))

    def loss(tree, recall):
        return jnp.sum(recall(*tree) ** 2)

    run = lambda heads, X, V: PATHS[path].recalled(heads, X, V)
    batch = lambda heads, X, V: jax.vmap(lambda X, V: run(heads, X, V))(X, V)
    apart = lambda heads, X, V: jnp.stack([run(heads, x, v) for x, v in zip(X, V, strict=True)])
    both = [eqx.filter_jit(eqx.filter_value_and_grad(loss))((heads, X, V), f) for f in (batch, apart)]
    values, slopes = zip(*both, strict=True)
    np.testing.assert_allclose(*values, rtol=1e-13)
    for ours, theirs in zip(*map(jax.tree.leaves, slopes), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def test_gradients_of_every_sequence_of_a_batch():
    """vmap of a gradient, not only the gradient of a vmap."""
    many = [sample(LIN, 11, "float64", seed=seed)[1:] for seed in range(3)]
    heads, *_ = sample(LIN, 11, "float64")
    X, V = (jnp.stack(arrays) for arrays in zip(*many, strict=True))
    slope = eqx.filter_grad(lambda heads, X, V: jnp.sum(Tiny.recalled(heads, X, V) ** 2))
    found = eqx.filter_jit(eqx.filter_vmap(slope, in_axes=(None, 0, 0)))(heads, X, V)
    for b in range(3):
        alone = eqx.filter_jit(slope)(heads, X[b], V[b])
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours[b], theirs, rtol=1e-12, atol=1e-14)


# -- causality -------------------------------------------------------------------------------------------------

NOW = 6  # inside a block of 4
FUTURES = {0.7: -0.7, 1e30: 1e30, np.nan: 0.0, np.inf: -1e30, -np.inf: -1.0}  # of tokens and of finite values


@pytest.mark.long
@pytest.mark.parametrize("case", some(ONCE), ids=name)
def test_the_future_leaves_the_past_bit_identical(case):
    heads, X, V = sample(case, 11, "float32")
    run = eqx.filter_jit(Tiny.recalled)
    before = run(heads, X, V)[:NOW]
    assert np.isfinite(before).all() and (np.asarray(before)[0].view("uint32") == 0).all()
    for token, value in FUTURES.items():
        assert same_bits(run(heads, X.at[NOW:].set(token), V.at[NOW:].set(value))[:NOW], before)


def test_the_future_leaves_the_past_bit_identical_in_blocks_of_the_usual_size():
    heads, X, V = sample(LIN, 300, "float32")
    run = eqx.filter_jit(Blocks.recalled)
    before = run(heads, X, V)[:150]
    for token, value in FUTURES.items():
        assert same_bits(run(heads, X.at[150:].set(token), V.at[150:].set(value))[:150], before)


@pytest.mark.parametrize("case", [VALID[0], VALID[5]], ids=name)
def test_a_model_on_this_path_is_causal_and_breaks_only_what_sees_a_broken_token(case):
    run = eqx.filter_jit(build(case, path="tiny", precision="float32", layers=1))
    x = tokens(dtype="float32")
    before = run(x)
    x[4:] = np.nan
    after = run(x)
    assert same_bits(after[:4], before[:4]) and np.isnan(after[4:]).all()


def test_a_broken_key_spoils_only_what_sees_it():
    heads, X, V = sample(LIN | dict(window=5), 20, "float64")
    run = eqx.filter_jit(Tiny.recalled)
    whole, broken = run(heads, X, V), run(heads, X.at[7].set(jnp.nan), V)
    spoilt = np.arange(7, 7 + 5 + 1)  # itself, by its query, and all that see its key
    others = np.setdiff1d(np.arange(20), spoilt)
    assert np.isnan(broken[spoilt]).all() and same_bits(broken[others], whole[others])


def test_gradients_do_not_flow_backwards_in_time():
    heads, X, V = sample(LIN, 20, "float64")
    slope = jax.jit(jax.grad(lambda X, V: Tiny.recalled(heads, X, V)[9].sum(), argnums=(0, 1)))(X, V)
    assert all((part[10:] == 0).all() for part in slope) and (slope[1][:9] != 0).all()


# -- cost ------------------------------------------------------------------------------------------------------


def memory(path: str, n: int, gradient: bool) -> int:
    heads, X, V = sample(LIN, n, "float32", heads=8, dim=16, key_dim=16, value_dim=16)
    moving, fixed = eqx.partition(heads, eqx.is_inexact_array)
    run = lambda moving, X, V: PATHS[path].recalled(eqx.combine(moving, fixed), X, V).sum()
    run = jax.grad(run, argnums=(0, 1, 2)) if gradient else run
    analysis = jax.jit(run).lower(moving, X, V).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


@pytest.mark.long(2)
@pytest.mark.parametrize("gradient", [False, True])
def test_memory_is_linear_in_the_length(gradient):
    few, many = (memory("blocks", n, gradient) for n in (1024, 4096))
    assert many <= 4.1 * few
    assert many <= 40 * 4096 * 8 * 16 * 4  # at most 40 arrays like V
    assert memory("plain", 1024, gradient) > 8 * 1024**2 * 4  # the measure does see n x n arrays


@pytest.mark.long(3)
@pytest.mark.parametrize("window", [None, 1, 4, 5, 6, 9, 40])
def test_only_blocks_that_are_seen_are_visited(window, monkeypatch):
    """By the values, and once more by the gradient."""
    n, B, visits, logits = 30, 4, {"_forward": 0, "_backward": 0}, blocks._logits
    for way in visits:
        pass_of = getattr(blocks, way)

        def told(*arguments, way=way, pass_of=pass_of):
            def visit():
                visits[way] += 1

            def counted(*parts):
                jax.debug.callback(visit)
                return logits(*parts)

            with monkeypatch.context() as patch:
                patch.setattr(blocks, "_logits", counted)
                return pass_of(*arguments)

        monkeypatch.setattr(blocks, way, told)
    heads, X, V = sample(LIN, n, "float64", window=window, heads=1)
    jax.block_until_ready(jax.jit(jax.grad(lambda X: TinyOneByOne.recalled(heads, X, V).sum()))(X))
    jax.effects_barrier()
    z = np.subtract.outer(np.arange(n), np.arange(n))
    t, s = np.nonzero((z >= 1) & (z <= (window or n)))
    seen = len(set(zip(t // B, s // B, strict=True)))
    assert visits == {"_forward": seen, "_backward": seen}


def test_a_window_costs_what_it_touches():
    whole, windowed = (Plan(2**14, lags, 128, True, 1) for lags in (2**14 - 1, 128))
    assert whole.distances == 128 and windowed.distances == 2


@pytest.mark.parametrize("n", [1, 2, 9, 127, 128, 129, 257, 1000, 16384])
@pytest.mark.parametrize("lags", [1, 30, 100, 10**6])
def test_blocks_are_even_and_fit_the_window(n, lags):
    B = block_size(n, lags)
    count = -(-n // B)
    assert 1 <= B <= 128 and count * B - n < B and count * B < n + blocks.LANES * count
    assert B <= max(lags, blocks.SMALL_BLOCK)


def test_groups_divide_and_fill_the_cache():
    plan = Plan(1000, 999, 128, True, 2**15)
    assert [plan.groups(G) for G in (1, 2, 3, 8)] == [1, 2, 1, 2] and plan.pairs_at_once(1) == 2
    assert Plan(9, 8, 9, True, 2**15).groups(30) == 30
