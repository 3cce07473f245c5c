"""Certificates of the sharp path: they hold for what it computes, and say what it leaves out."""

import json
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flint import ctx

from memloci import pipeline
from memloci.certify.balls import Ball
from memloci.certify.certify import certify
from memloci.certify.kernels import layer_kernels
from memloci.certify.neglected import outside, spells
from memloci.certify.rounding import format_of
from memloci.core.errors import BadInput
from memloci.core.precision import PRECISIONS
from memloci.model.architecture import Architecture
from memloci.model.paths.sharp import running_argmax, spelled
from memloci.model.transformer import Transformer
from memloci.observe.sup_error import measure
from memloci.tasks.task import Task
from tests.model.paths.test_sharp import built

from .cases import drawn_model


def neglected(certificate) -> float:
    (term,) = [term.E for term in certificate.terms if term.name == "neglected"]
    return float(term)


def seen(model: Transformer, task: Task, length: int = 24) -> float:
    return float(measure(model, task, key=jr.key(0), sequences=4, length=length, steps=8, starts=4).err_sup)


@pytest.mark.long
@pytest.mark.parametrize("name", ["lag 1", "lags 7 and 100", "pointer", "switch", "nested-1"])
def test_the_bound_holds_and_has_the_term(name):
    model, task = built(name).model, built(name).task
    plain, sharp = certify(model, task), certify(model.using("sharp"), task)
    assert sharp.met and 0 < neglected(sharp) < 1e-9
    assert not any(term.name == "neglected" for term in plain.terms)
    assert sharp.exact_bound == pytest.approx(plain.exact_bound + neglected(sharp), rel=1e-6)
    assert all(sharp.bound_by_precision[p] >= plain.bound_by_precision[p] * (1 - 1e-12) for p in PRECISIONS)
    assert any("sharp" in assumption for assumption in sharp.assumptions)
    assert seen(model.using("sharp"), task, 120 if name == "lags 7 and 100" else 24) <= sharp.bound


@pytest.mark.long
@pytest.mark.parametrize("name", ["lags 7 and 100", "pointer"])
def test_a_saved_model_is_certified_anew(name, tmp_path):
    one = built(name)
    sharp = one.model.using("sharp")
    certificate = certify(sharp, one.task)
    pipeline.write(replace(one, model=sharp, certificate=certificate), tmp_path / "out")
    found = pipeline.verify(tmp_path / "out")
    assert pipeline.disagreement(tmp_path / "out", found) is None and neglected(found) > 0
    # The same weights on the plain path are another claim.
    stored = json.loads((tmp_path / "out" / "model.json").read_text())
    stored["architecture"]["path"] = "plain"
    (tmp_path / "out" / "model.json").write_text(json.dumps(stored))
    assert pipeline.disagreement(tmp_path / "out", pipeline.verify(tmp_path / "out")) is not None


# -- weights that are not what they were -------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("scale", [0.25, 0.05, 0.01])
def test_blunt_fixed_heads_are_told(scale):
    one = built("lags 7 and 100")
    q = lambda m: m.layers[0].attention.heads.encoding.q
    model = eqx.tree_at(q, one.model, scale * q(one.model)).using("sharp")
    found = certify(model, one.task)
    assert found.met == (scale == 0.25 and found.bound <= 1e-3)
    assert found.bound >= seen(model, one.task, 120) and neglected(found) > 1e-5
    assert np.isfinite(found.bound)


@pytest.mark.long
@pytest.mark.parametrize(
    "name, scale", [("pointer", 0.25), ("pointer", 0.02), ("pointer", -1.0), ("nested-1", 0.25)]
)
def test_blunt_pointers_are_told(name, scale):
    one = built(name)
    W_Q = lambda m: [layer.attention.heads.score.W_Q for layer in m.layers]
    model = eqx.tree_at(W_Q, one.model, [scale * W for W in W_Q(one.model)]).using("sharp")
    found = certify(model, one.task)
    assert not found.met and found.bound >= seen(model, one.task)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_noise_in_the_weights_never_hides_an_error(seed):
    one = built("pointer")
    rng, strength = np.random.default_rng(seed), (1e-4, 1e-2, 0.3, 3.0)[seed]
    parts = lambda m: [
        getattr(layer.attention.heads.score, name) for layer in m.layers for name in ("W_Q", "W_K")
    ]
    noisy = [W + strength * jnp.asarray(rng.standard_normal(W.shape), W.dtype) for W in parts(one.model)]
    model = eqx.tree_at(parts, one.model, noisy).using("sharp")
    found = certify(model, one.task)
    assert found.bound >= seen(model, one.task)


def test_frequencies_that_spell_nothing_are_refused():
    one = built("pointer")
    turns = lambda m: m.layers[1].attention.heads.encoding.turns
    model = eqx.tree_at(turns, one.model, turns(one.model).at[0, 3].set(12_345))
    certify(model, one.task)
    with pytest.raises(BadInput, match="layer 1, head 0: path 'sharp' reads lags off the frequencies"):
        certify(model.using("sharp"), one.task)


# -- the parts ---------------------------------------------------------------------------------------------


@eqx.filter_jit
def kept_lags(encoding, lags):
    return running_argmax(encoding.position(lags, jnp.dtype("float32")))


@eqx.filter_jit
def logits_of(encoding, lags):
    return encoding.position(lags, jnp.dtype("float64"))


@pytest.mark.parametrize("seed", range(4))
def test_what_lies_outside_covers_the_lag_that_is_kept(seed):
    """Float32 logits choose, float64 weights count, at every position of a filling window."""
    window = (6, 40, 40, 200)[seed]
    a = Architecture(
        layers=1, heads=3, width=0, attention="dpf", encoding="rope", normalisation="infinite", window=window
    )
    layer = drawn_model(a, seed=seed).layers[0].attention
    q = lambda at: at.heads.encoding.q
    layer = eqx.tree_at(q, layer, (0.1, 3.0, 100.0, 30.0)[seed] * q(layer))
    with ctx.workprec(128):
        N = outside(layer_kernels(layer), format_of("float32"), False)
    lags = jnp.arange(1, window + 1, dtype=jnp.int32)
    for h in range(3):
        encoding = jax.tree.map(lambda leaf, h=h: leaf[h], layer.heads.encoding)
        kept = np.asarray(kept_lags(encoding, lags))
        wide = jax.tree.map(lambda x: x.astype("float64") if eqx.is_inexact_array(x) else x, encoding)
        logits = np.asarray(logits_of(wide, lags))
        w = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        left = [w[: t + 1].sum() - w[kept[t]] for t in range(window)]
        assert max(left) <= N[h] + 1e-12 and N[h] <= 1


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_what_is_said_to_spell_a_lag_does(precision):
    rng = np.random.default_rng(3)
    turns = (1 << (31 - rng.permutation(31)[:6])).astype(np.uint32)
    said, one = 0, jax.jit(lambda q, k: spelled(jnp.asarray(turns), q, k))
    read = jax.jit(jax.vmap(one))
    for _ in range(40):
        spread = rng.choice([1e-6, 0.01, 0.1, 0.5])
        q, k = (
            Ball(rng.normal(size=(1, 12)), np.full((1, 12), spread)),
            Ball(rng.normal(size=12), np.full(12, spread)),
        )
        centre = (jnp.asarray(q.middle[0]), jnp.asarray(k.middle))
        z = np.asarray(one(*centre), np.int64)[None]
        if not spells(q, k, turns, z, format_of(precision))[0]:
            continue
        said += 1
        corners = [ball.middle.reshape(-1) + spread * rng.choice([-1, 1], (50, 12)) for ball in (q, k)]
        found = read(
            *(
                jnp.asarray(0.999 * c + 0.001 * m, precision)
                for c, m in zip(corners, (q.middle, k.middle), strict=True)
            )
        )
        assert (np.asarray(found) == z[0]).all()
    assert 5 < said < 40
