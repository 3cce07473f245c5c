"""The sharp path: it differs from the plain definition by what it leaves out, and by nothing else."""

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from memloci.certify.certify import certify
from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.attention import Attention
from memloci.model.paths.sharp import Sharp, legible, running_argmax, spelled
from memloci.pipeline import Built, compile
from memloci.tasks.gallery import GALLERY
from memloci.tasks.inputs import sample
from memloci.tasks.short import Fixed

EPS = float(np.finfo("float32").eps)
FIXED = {"lag 1": [1], "lag 3": [3], "lags 7 and 100": [7, 100]}
ADAPTIVE = ["pointer", "pointer-far", "nested-1", "nested-2", "partly-nested", "switch"]
FEW = ["lag 3", "pointer"]  # at more lengths; each compiles anew


@lru_cache
def built(name: str) -> Built:
    if name not in FIXED:
        return compile(GALLERY[name](), route="rotary")
    lags = FIXED[name]
    return compile(
        Fixed(lags=lags, readout=" - ".join(f"x{i + 1}" for i in range(len(lags)))), route="rotary"
    )


def drawn(name: str, n: int) -> jax.Array:
    return sample(built(name).task, jr.key(n), n, jnp.dtype("float32"))


def run(model, x):
    return np.asarray(eqx.filter_jit(lambda m, x: m(x))(model, x), "float64")


SLOW = {"nested-2", "partly-nested"}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in [*FIXED, *ADAPTIVE]]
)
def test_compiled_models_give_the_plain_numbers_up_to_what_is_neglected(name):
    model, task = built(name).model, built(name).task
    (term,) = [t.E for t in certify(model.using("sharp"), task).terms if t.name == "neglected"]
    for n in [2, 60, *([1, 3, 300] if name in FEW else [])]:
        x = drawn(name, n)
        sharp, plain = run(model.using("sharp"), x), run(model.using("plain"), x)
        assert np.abs(sharp - plain).max() <= term + 8 * EPS * (1 + np.abs(plain).max())


# -- any weights -------------------------------------------------------------------------------------------


def attention(seed: int, **changes) -> Attention:
    """Random heads with frequencies pi 2^-b, some of them still; logits from flat to sharp."""
    switches = {"attention": "dp", "encoding": "rope", "dim": 5, "key_dim": 12, "value_dim": 2} | changes
    a = Architecture(layers=1, heads=3, width=0, precision="float64", **switches)
    layer = eqx.filter_jit(Attention.init)(a, key=jr.key(seed))
    turns = jnp.asarray([[1 << 31, 1 << 30, 1 << 29, 1 << 28, 1 << 27, 0]] * 3, jnp.uint32)
    return eqx.tree_at(lambda at: at.heads.encoding.turns, layer, turns)


def kept_by(layer: Attention, X: jax.Array) -> np.ndarray:
    """(H, n, n): which places of the past each position keeps."""
    heads, n = layer.heads, len(X)
    kept = np.zeros((3, n, n), dtype=bool)
    spell = jax.jit(jax.vmap(spelled, in_axes=(None, 0, 0)))
    for h in range(3):
        head = jax.tree.map(lambda a, h=h: a[h] if eqx.is_array(a) else a, heads)
        if heads.score.dot:
            z = np.asarray(spell(head.encoding.turns, X @ head.score.W_Q.T, X @ head.score.W_K.T))
            for t in range(1, n):
                kept[h, t, [0, *([t - z[t]] if 1 <= z[t] <= t else [])]] = True
            continue
        k, window = head.past.stride, head.past.window or n
        logits = np.asarray(head.encoding.position(jnp.arange(n + 1, dtype=jnp.int32), X.dtype))
        for t in range(1, n):
            lags = np.arange(k, min(t, window) + 1, k)
            if len(lags):
                kept[h, t, t - lags[int(np.argmax(logits[lags]))]] = True
    return kept


@pytest.mark.long
@pytest.mark.parametrize("scale", [0.3, 8.0])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention": "dpf"},
        {"attention": "dpf", "stride": 3},
        {"attention": "dpf", "window": 6},
        {"attention": "dpf", "window": 6, "normalisation": "infinite"},
        {"attention": "tmx", "window": 9, "stride": 2, "normalisation": "infinite"},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())) or "dp",
)
def test_the_difference_is_at_most_the_mass_outside_the_places_that_are_kept(scale, changes):
    layer, n = attention(0, **changes), 19
    layer = eqx.tree_at(lambda at: at.heads.encoding, layer, _scaled(layer.heads.encoding, scale))
    X = jnp.asarray(scale * np.random.default_rng(0).uniform(-1, 1, (n, 5)))
    a = np.asarray(eqx.filter_jit(Attention.weights)(layer, X))
    N = np.where(kept_by(layer, X), 0.0, a).sum(axis=2).T[:, :, None]  # (n, H, 1)
    V = np.asarray(jnp.einsum("nd,hvd->nhv", X, layer.heads.W_V))
    largest = np.maximum.accumulate(np.abs(V).max(axis=2), axis=0)[:, :, None]
    W_O = np.abs(np.asarray(layer.heads.W_O))
    twice = 2 if layer.heads.normalisation.name == "softmax" else 1
    allowed = np.einsum("nhv,hdv->nd", np.broadcast_to(twice * N * largest, V.shape), W_O)
    by = eqx.filter_jit(lambda layer, X, path: layer(X, path))
    apart = np.abs(np.asarray(by(layer, X, "sharp")) - np.asarray(by(layer, X, "plain")))
    assert (apart <= allowed + 1e-12).all()
    assert (apart > 1e-9).any()  # the bound was needed


def _scaled(encoding, scale):
    return encoding if encoding.q is None else eqx.tree_at(lambda e: e.q, encoding, scale * encoding.q)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_query_spells_its_lag(precision):
    rng = np.random.default_rng(0)
    lags = np.concatenate([np.arange(64), rng.integers(0, 2**31, 200), [2**31 - 1]])
    turns = rng.permutation(1 << (31 - np.arange(31)))
    angle = np.pi * ((lags[:, None] * turns[None, :]) % 2**32) / 2**31
    q = np.concatenate([np.full_like(angle, 3.0), np.zeros_like(angle)], axis=1)
    k = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    read = jax.vmap(lambda q, k: spelled(jnp.asarray(turns, jnp.uint32), q, k))
    found = read(jnp.asarray(q, precision), jnp.asarray(k, precision))
    assert (np.asarray(found) == lags).all()


def test_a_running_argmax():
    values = np.random.default_rng(1).integers(0, 9, 50).astype(float)
    found = np.asarray(running_argmax(jnp.asarray(values)))
    assert found.tolist() == [int(np.argmax(values[: k + 1])) for k in range(50)]


@pytest.mark.long
@pytest.mark.parametrize("turns", [[3 << 20], [1], [1 << 31, 1 << 31]])
def test_other_frequencies_say_nan_and_not_a_wrong_number(turns):
    assert not legible(jnp.asarray(turns, jnp.uint32))
    layer = attention(0)
    own = lambda at: at.heads.encoding.turns
    layer = eqx.tree_at(own, layer, own(layer).at[1, : len(turns)].set(jnp.asarray(turns, jnp.uint32)))
    V = jnp.ones((4, 3, 2))
    recalled = np.asarray(eqx.filter_jit(Sharp.recalled)(layer.heads, jnp.ones((4, 5)), V))
    assert np.isnan(recalled[:, 1]).all() and np.isfinite(recalled[:, [0, 2]]).all()


# -- the past alone ----------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", ["lags 7 and 100", "nested-1"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_token_spoils_what_sees_it_and_nothing_before(name, value):
    model, x = built(name).model, drawn(name, 40)
    broken = x.at[13, 0].set(value)
    whole, sharp = run(model.using("sharp"), x), run(model.using("sharp"), broken)
    assert (sharp[:13] == whole[:13]).all()
    plain = run(model.using("plain"), broken)
    assert (np.isnan(sharp) == np.isnan(plain)).all() and np.isnan(sharp[13]).all()


@pytest.mark.long
@pytest.mark.parametrize("name", ["lag 3", "pointer"])
def test_the_future_does_not_matter(name):
    model, x = built(name).model.using("sharp"), drawn(name, 40)
    other = x.at[20:].set(drawn(name, 41)[20:40])
    assert (run(model, x)[:20] == run(model, other)[:20]).all()


def test_no_tokens():
    assert built("pointer").model.using("sharp")(jnp.zeros((0, 2), "float32")).shape == (0, 1)


def test_gradients_reach_the_token_that_is_read():
    model = built("pointer").model.using("sharp")
    x = drawn("pointer", 30).at[29, 0].set(5.0)
    slope = eqx.filter_jit(eqx.filter_grad(lambda x, model: model(x)[29, 0]))(x, model)
    assert np.isfinite(slope).all() and abs(slope[24, 1] - 1) < 1e-6
    assert np.abs(np.delete(np.asarray(slope[:, 1]), 24)).max() < 1e-6


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "switches, reason",
    [
        ({"encoding": "log"}, "reads a lag off rotary phases"),
        ({"attention": "dpf", "encoding": "t5"}, "reads a lag off rotary phases"),
        ({"attention": "tmx-mul", "encoding": "log"}, "at a rate that the query sets"),
        ({"encoding": "rope", "normalisation": "none"}, "every position counts"),
        ({"encoding": "rope", "window": 16}, "unlimited past and stride 1"),
        ({"encoding": "rope", "stride": 2}, "unlimited past and stride 1"),
    ],
)
def test_architectures_without_a_place_to_read_are_refused(switches, reason):
    with pytest.raises(BadInput, match=reason):
        Architecture(layers=1, heads=1, width=0, path="sharp", **switches)


def test_another_path_is_never_taken_for_it():
    model = built("pointer").model
    assert model.path(10**6) != "sharp" and model.using("sharp").path(10) == "sharp"
