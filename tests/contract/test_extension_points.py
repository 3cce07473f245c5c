"""Strangers (dummies.py) at every extension point: all that meets them agrees with the plain definition, or refuses.

| point | table | strangers |
|---|---|---|
| normalisation | model/normalisation.py NORMALISATIONS | Halved |
| encoding | model/encodings.py ENCODINGS | Root, Twist |
| score | model/scores.py SCORES | Doubled |
| path | model/paths/choice.py PATHS | Detour |
| route | routes/registry.py ROUTES | a route under another name |
| precision | core/precision.py PRECISIONS | TINY |
| operation | language/operations.py OPERATIONS | CUBE |
| memory | tasks/memories/__init__.py MEMORIES | Doubling |
"""

import itertools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.certify.certify import certify
from memloci.core.errors import BadInput
from memloci.core.intervals import Interval
from memloci.core.precision import PRECISIONS
from memloci.language.balls import value_at
from memloci.language.evaluate import dual, enclose, evaluate, on_boxes
from memloci.language.operations import OPERATIONS
from memloci.language.parse import parse
from memloci.language.tails import majorant
from memloci.model.architecture import Architecture
from memloci.model.encodings import ENCODINGS
from memloci.model.normalisation import NORMALISATIONS
from memloci.model.paths import folded
from memloci.model.paths.choice import PATHS, choose
from memloci.model.scores import SCORES
from memloci.model.transformer import Transformer
from memloci.routes import rotary
from memloci.routes.registry import ROUTES
from memloci.routes.request import Obstacle
from memloci.synthesize import plan
from memloci.tasks import memories
from memloci.tasks.task import Task

from . import dummies

SIZES = {"layers": 1, "heads": 2, "width": 4, "dim": 6, "key_dim": 4, "value_dim": 3, "precision": "float64"}
LENGTHS = (1, 2, 40, 300, 700)  # short ones take the plain path, 300 the recurrence, 700 the blocks


@pytest.fixture
def strangers(monkeypatch):
    for stranger in (dummies.Halved,):
        monkeypatch.setitem(NORMALISATIONS, stranger.name, stranger)
    for stranger in (dummies.Root, dummies.Twist):
        monkeypatch.setitem(ENCODINGS, stranger.name, stranger)
    monkeypatch.setitem(SCORES, dummies.Doubled.name, dummies.Doubled)
    monkeypatch.setitem(PATHS, dummies.Detour.name, dummies.Detour)


STRANGE = [
    ("dpf", "lin", "halved"),
    ("dp", "rope", "halved"),
    ("tmx", "log", "halved"),
    ("dpf", "root", "softmax"),
    ("dp", "root", "softmax"),
    ("tmx-mul", "root", "none"),
    ("dp", "twist", "softmax"),
    ("doubled", "lin", "softmax"),
    ("doubled", "log", "infinite"),
    ("doubled", "t5", "none"),
]


def _models(attention: str, encoding: str, normalisation: str, **more):
    """The model on the plain path, and the same on every path that does not refuse it."""
    fields = {**SIZES, "attention": attention, "encoding": encoding, "normalisation": normalisation, **more}
    plain = Transformer(Architecture(**fields, path="plain"), 2, 1, key=jr.key(1))
    others = {}
    for path in ("auto", "certified", *PATHS):
        try:
            others[path] = plain.using(path)
        except BadInput as refusal:
            assert path in str(refusal) and any(
                name in str(refusal) for name in (attention, encoding, normalisation)
            )
    return plain, others


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("kind", STRANGE)
def test_every_path_agrees_or_refuses(strangers, kind, stride):
    plain, others = _models(*kind, stride=stride)
    assert {"auto", "certified", "plain", "detour"} <= others.keys()
    for n in LENGTHS:
        x = jr.normal(jr.key(n), (n, 2), jnp.float64)
        y = plain(x)
        for path, model in others.items():
            if path != "sharp":  # it leaves something out, and says so
                assert jnp.abs(model(x) - y).max() <= 1e-9 * (1 + jnp.abs(y).max()), (path, n)


@pytest.mark.parametrize("kind", STRANGE)
def test_a_stream_agrees_or_refuses(strangers, kind):
    plain, _ = _models(*kind)
    x = jr.normal(jr.key(0), (50, 2), jnp.float64)
    try:
        stream = plain.stream()
    except BadInput as refusal:
        assert any(name in str(refusal) for name in kind)
        return
    assert np.abs(np.asarray(stream.feed(x)) - np.asarray(plain(x))).max() <= 1e-9


@pytest.mark.parametrize("kind", STRANGE)
def test_training_has_the_gradient_of_the_definition(strangers, kind):
    plain, _ = _models(*kind)
    x = jr.normal(jr.key(0), (3, 20, 2), jnp.float64)
    loss = lambda run: lambda model: jnp.square(run(model)(x)).mean()
    own = eqx.filter_grad(loss(lambda model: folded.fold(model, 20)))(plain)
    plainly = eqx.filter_grad(loss(lambda model: jax.vmap(model)))(plain)
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(plainly), strict=True):
        assert jnp.abs(a - b).max() <= 1e-9 * (1 + jnp.abs(b).max())


@pytest.mark.parametrize("kind", STRANGE)
def test_no_certificate_is_given_for_what_is_not_followed(strangers, kind):
    plain, others = _models(*kind)
    task = ml.Fixed(lags=[1], readout="x1", channels=[{"name": "x"}, {"name": "y"}])
    for path, model in others.items():
        with pytest.raises(BadInput, match=f"no certificate|{'|'.join(kind)}"):
            certify(model, task)
            pytest.fail(path)


def test_a_strange_path_is_not_certified(strangers):
    model = ml.compile(ml.Fixed(lags=[1], readout="x1"), route="t5").model
    with pytest.raises(BadInput, match="no certificate covers the rounding of path 'detour'"):
        certify(model.using("detour"), ml.Fixed(lags=[1], readout="x1"))


def test_a_strange_kind_trains_and_reports(strangers, tmp_path):
    architecture = ml.Architecture(
        layers=1, heads=2, width=4, dim=6, attention="dpf", encoding="root", normalisation="softmax"
    )
    fit = ml.train(ml.Fixed(lags=[1], readout="x1"), architecture, steps=5)
    assert np.isfinite(fit.record["err_sup"])


def test_a_route_is_one_entry(monkeypatch):
    monkeypatch.setitem(
        ROUTES, "roundabout", lambda request: replace(rotary.rotary(request), route="roundabout")
    )
    plans = plan(ml.Fixed(lags=[3], readout="x1"), routes=["roundabout", "rotary"])
    bounds = {p.route: float(p.certificate.bound) for p in plans}
    assert bounds["roundabout"] == bounds["rotary"]

    def closed(request):
        raise Obstacle("the road is closed")

    monkeypatch.setitem(ROUTES, "closed", closed)
    assert plan(ml.Fixed(lags=[3], readout="x1"), routes=["closed"]).obstacles == {
        "closed": "the road is closed"
    }


def test_a_precision_is_one_row(monkeypatch):
    monkeypatch.setitem(PRECISIONS, "tiny", dummies.TINY)
    certificate = ml.compile(ml.Fixed(lags=[3], readout="x1"), route="rotary").certificate
    by = certificate.bound_by_precision
    assert by["tiny"] > by["bfloat16"] > by["float16"] > by["float32"]
    with pytest.raises(BadInput, match="models are built in"):
        plan(ml.Fixed(lags=[3], readout="x1"), precision="tiny")


def test_float16_is_a_precision_that_plans_can_name():
    task = ml.Fixed(lags=[3], readout="0.5 * x1")
    built = ml.compile(task, precision="float16", tolerance=0.05, route="rotary")
    assert built.certificate.met and built.model.W_E.dtype == jnp.float16
    x = jr.uniform(jr.key(0), (64, 1), jnp.float16, -1, 1)
    wide = x.astype(jnp.float64)
    assert jnp.abs(built.model(x).astype(jnp.float64) - task.target(wide)).max() <= built.certificate.bound


def test_an_operation_is_one_row(monkeypatch):
    monkeypatch.setitem(OPERATIONS, "cube", dummies.CUBE)
    f = parse("cube(x1) - x1", ("x1",))
    assert float(evaluate(f, {"x1": 0.5}, np)) == -0.375
    assert enclose(f, {"x1": Interval(0.5, 0.5)}).contains(-0.375)
    value, slopes = dual(f, {"x1": Interval(-1.0, 1.0)})
    many, steep = on_boxes(f, {"x1": Interval(np.array([-1.0, 0.5]), np.array([1.0, 0.5]))})
    assert (
        many.lo[0] <= value.lo == -2.0
        and many.hi[0] >= value.hi == 2.0
        and steep["x1"].hi[0] >= slopes["x1"].hi == 2
    )
    assert value_at(f, {"x1": 0.5}) == -0.375
    assert majorant(parse("cube(1 / z)", ("z",))).summable
    task = ml.Fixed(lags=[1], readout="cube(x1)")
    built = ml.compile(task, tolerance=0.01, route="t5")
    x = np.linspace(-1, 1, 33)[:, None]
    assert built.certificate.met
    assert np.abs(np.asarray(built.model(x)) - np.asarray(task.target(x))).max() <= built.certificate.bound


def test_an_operation_with_a_gap_cannot_be_written():
    columns = {name: getattr(dummies.CUBE, name) for name in dummies.CUBE.__dataclass_fields__}
    for gap in ("apply", "value", "slopes", "undefined", "ball", "tail"):
        with pytest.raises(TypeError, match=gap):
            type(dummies.CUBE)(**{name: column for name, column in columns.items() if name != gap})


def test_a_memory_is_one_class(monkeypatch):
    monkeypatch.setattr(memories, "MEMORIES", [*memories.MEMORIES, dummies.Doubling])
    task = Task(memories=[{"double": 2}, {"lag": 1}], readout="x1 - x2")
    x = np.arange(1.0, 6.0)[:, None] / 10
    assert np.allclose(np.asarray(task.target(x))[:, 0], [0, -0.1, 0, 0.1, 0.2])
    assert task.kind == "mixed" and Task(**task.to_dict()) == task
    plans = plan(task)
    assert not plans.met and not plans.missed  # no route knows it, and each says so
    assert all("twice lag 2" in reason for reason in plans.obstacles.values())
    model = ml.compile(ml.Fixed(lags=[1], readout="x1"), route="t5").model
    with pytest.raises(BadInput, match="no certificate follows"):
        certify(model, task)
    seen = ml.measure(model, task, key=jr.key(0), sequences=2, length=16, steps=2, starts=1)
    assert seen.err_sup > 1
    fit = ml.train(task, ml.Architecture(layers=1, heads=2, width=4, dim=6), steps=5)
    assert np.isfinite(fit.record["err_sup"])


def test_paths_are_chosen_for_strangers_by_what_they_serve(strangers):
    for (attention, encoding, normalisation), n in itertools.product(STRANGE, LENGTHS):
        architecture = Architecture(
            **SIZES, attention=attention, encoding=encoding, normalisation=normalisation
        )
        assert PATHS[choose(architecture, n)].refusal(architecture) is None
