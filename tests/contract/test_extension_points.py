"""Strangers (dummies.py) at every extension point: all that meets them agrees with the plain definition, or refuses.

| point | table | strangers |
|---|---|---|
| normalisation | model/normalisation.py NORMALISATIONS | Halved, Hinge |
| encoding | model/encodings.py ENCODINGS | Root, Steeper, Steady, Ledge, Twist, Undeclared, Louder |
| score | model/scores.py SCORES | Doubled, Cooler |
| path | model/paths/choice.py PATHS | Detour |
| route | routes/registry.py ROUTES | roundabout, astray, closed |
| precision | core/precision.py PRECISIONS | TINY, and bfloat16 as one that models run in |
| operation | language/operations.py OPERATIONS | CUBE |
| memory | tasks/memories/__init__.py MEMORIES | Doubling, Farther |
| engine of sweeps | sweeps/start.py ENGINES | run |
| training | sweeps/start.py EXECUTE, train/losses.py LOSSES | guess, fourth_power |
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.certify.certify import certify
from memloci.commands.doctor import examine
from memloci.core import precision
from memloci.core.errors import BadInput
from memloci.core.intervals import Interval
from memloci.core.precision import PRECISIONS
from memloci.language.balls import value_at
from memloci.language.evaluate import dual, enclose, evaluate, on_boxes
from memloci.language.operations import OPERATIONS
from memloci.language.parse import parse
from memloci.language.tails import majorant
from memloci.model import architecture as switches
from memloci.model.architecture import Architecture
from memloci.model.encodings import ENCODINGS
from memloci.model.normalisation import NORMALISATIONS
from memloci.model.paths import folded
from memloci.model.paths.choice import PATHS, choose
from memloci.model.scores import SCORES
from memloci.model.transformer import Transformer
from memloci.observe.counterexample import counterexample
from memloci.pipeline import write_sweep
from memloci.routes import capacity
from memloci.routes.registry import ROUTES
from memloci.sweeps import start
from memloci.sweeps.fits import best_fits
from memloci.sweeps.grid import make_sweep
from memloci.synthesize import plan
from memloci.tasks import memories
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from memloci.tradeoffs.rates import stated
from memloci.train import witness
from memloci.train.data import source_of
from memloci.train.diagnose import diagnose
from memloci.train.losses import LOSSES
from memloci.train.record import RunRecord
from memloci.views.terminal.plans import plans_dict, plans_table

from . import dummies

SIZES: dict[str, Any] = {"layers": 1, "heads": 2, "width": 0, "dim": 6, "key_dim": 4, "value_dim": 3}
ONE_LAG = ml.Fixed(lags=[1], readout="x1")
EXACT = 1e-9


@pytest.fixture(scope="module")
def strangers():
    with pytest.MonkeyPatch.context() as patch:
        for stranger in (dummies.Halved, dummies.Hinge):
            patch.setitem(NORMALISATIONS, stranger.name, stranger)
        for stranger in (dummies.Root, dummies.Steeper, dummies.Steady, dummies.Ledge):
            patch.setitem(ENCODINGS, stranger.name, stranger)
        for stranger in (dummies.Twist, dummies.Undeclared, dummies.Louder):
            patch.setitem(ENCODINGS, stranger.name, stranger)
        for stranger in (dummies.Doubled, dummies.Cooler):
            patch.setitem(SCORES, stranger.name, stranger)
        patch.setitem(PATHS, dummies.Detour.name, dummies.Detour)
        patch.setitem(LOSSES, "fourth-power", dummies.fourth_power)
        patch.setattr(memories, "MEMORIES", [*memories.MEMORIES, dummies.Doubling, dummies.Farther])
        yield


STRANGE = [
    ("dpf", "lin", "halved"),
    ("dp", "rope", "halved"),
    ("tmx", "lin", "hinge"),
    ("dpf", "root", "softmax"),
    ("dp", "root", "softmax"),
    ("tmx-mul", "root", "none"),
    ("dpf", "steeper", "infinite"),
    ("dpf", "steeper", "softmax"),
    ("dp", "steeper", "softmax"),
    ("tmx", "steady", "infinite"),
    ("dp", "ledge", "softmax"),
    ("dp", "twist", "softmax"),
    ("dp", "undeclared", "none"),
    ("dp", "louder", "softmax"),
    ("doubled", "log", "infinite"),
    ("doubled", "lin", "softmax"),
    ("cooler", "rope", "softmax"),
]


# -- heads: normalisations, encodings and scores -----------------------------------------------------------------


def _architecture(kind: tuple[str, str, str], **more: Any) -> Architecture:
    named = dict(zip(("attention", "encoding", "normalisation"), kind, strict=True))
    return Architecture(**{**SIZES, "precision": "float64", **named, **more})


def _model(kind: tuple[str, str, str], **more: Any) -> Transformer:
    """On the plain path."""
    return Transformer(_architecture(kind, path="plain", **more), 2, 1, key=jr.key(1))


_run = eqx.filter_jit(lambda model, x: model(x))
_attend = eqx.filter_jit(lambda attention, X, path: attention(X, path))


def _on_every_path(plain: Transformer, kind: tuple[str, str, str]) -> dict[str, Transformer]:
    """The same model on all paths but those that refuse it, each with a reason that names the stranger."""
    found = {}
    for path in ("auto", "certified", *PATHS):
        try:
            found[path] = plain.using(path)
        except BadInput as refusal:
            assert path in str(refusal) and any(name in str(refusal) for name in kind)
    return found


@pytest.mark.parametrize(
    ("kind", "stride"), [*((kind, 1) for kind in STRANGE), (STRANGE[3], 3), (STRANGE[9], 3), (STRANGE[10], 3)]
)
def test_every_path_agrees_or_refuses(strangers, kind, stride):
    plain = _model(kind, stride=stride)
    others = _on_every_path(plain, kind)
    assert {"auto", "certified", "plain", "detour"} <= others.keys()
    # sharp leaves something out, and says so; auto and certified choose among the others.
    own = sorted(others.keys() - {"plain", "auto", "certified", "sharp", "detour"})
    X, attention = jr.normal(jr.key(37), (37, 6), jnp.float64), plain.layers[0].attention
    expected = _attend(attention, X, "plain") if own else X
    for path in own:
        error = jnp.abs(_attend(attention, X, path) - expected).max()
        assert error <= EXACT * (1 + jnp.abs(expected).max()), path


@pytest.mark.parametrize("kind", STRANGE)
def test_paths_are_chosen_by_what_they_serve(strangers, kind):
    for path, n in itertools.product(("auto", "certified"), (1, 2, 300, 700, 10**6)):
        a = _architecture(kind, path=path)
        assert PATHS[choose(a, n)].refusal(a) is None


@pytest.mark.parametrize("kind", STRANGE)
def test_a_stream_agrees_or_refuses(strangers, kind):
    plain = _model(kind)
    x = jr.normal(jr.key(0), (9, 2), jnp.float64)
    try:
        stream = plain.stream()
    except BadInput as refusal:
        assert any(name in str(refusal) for name in kind)
        return
    np.testing.assert_allclose(stream.feed(x), _run(plain, x), atol=EXACT)


@pytest.mark.parametrize("kind", STRANGE)
def test_training_has_the_gradient_of_the_definition(strangers, kind):
    plain = _model(kind)
    if isinstance(folded.fold(plain, 9), folded.Unfolded):  # its gradient is that of the model's own code
        return
    x = jr.normal(jr.key(0), (2, 9, 2), jnp.float64)
    loss = lambda run: lambda model: jnp.square(run(model)(x)).mean()
    gradient = lambda run: eqx.filter_jit(eqx.filter_grad(loss(run)))(plain)
    own, plainly = gradient(lambda model: folded.fold(model, 9)), gradient(jax.vmap)
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(plainly), strict=True):
        assert jnp.abs(a - b).max() <= EXACT * (1 + jnp.abs(b).max())


@pytest.mark.parametrize("kind", STRANGE)
def test_no_certificate_is_given_for_what_is_not_followed(strangers, kind):
    plain = _model(kind)
    task = ml.Fixed(lags=[1], readout="x1", channels=[{"name": "x"}, {"name": "y"}])
    for path, model in _on_every_path(plain, kind).items():
        with pytest.raises(BadInput, match=f"no certificate|{'|'.join(kind)}"):
            certify(model, task)
            pytest.fail(path)


def test_a_stranger_in_one_layer_is_found(strangers):
    kinds = [("dpf", "lin", "infinite"), ("dpf", "steeper", "infinite")]
    blocks = [
        {"heads": 2, "width": 0, "attention": a, "encoding": e, "normalisation": n} for a, e, n in kinds
    ]
    model = Transformer(_architecture(kinds[0], layers=2, blocks=blocks), 1, 1, key=jr.key(1))
    x = jr.normal(jr.key(0), (9, 1), jnp.float64)
    np.testing.assert_allclose(model.stream().feed(x), _run(model, x), atol=EXACT)
    assert isinstance(folded.fold(model, 9), folded.Unfolded)
    with pytest.raises(BadInput, match="steeper"):
        certify(model, ONE_LAG)
    with pytest.raises(BadInput, match="steeper"):
        model.using("recurrence")


def test_nothing_is_claimed_of_all_models_with_a_stranger(strangers):
    """Lower bounds hold for every model of an architecture, so they say nothing of architectures that have strangers."""
    constant, later = jnp.ones((9, 2), jnp.float64), ml.Fixed(lags=[3], readout="x1")
    assert (
        jnp.ptp(_run(_model(("dp", "louder", "softmax")), constant)[1:]) > 1e-3
    )  # it does tell positions apart
    assert witness.start_unseen(later, _architecture(("dp", "louder", "softmax")), 9) == 0
    assert witness.start_unseen(later, _architecture(("dp", "lin", "softmax")), 9) > 0
    pointer = ml.GALLERY["pointer"]()
    hinge, known = (_architecture(("tmx", "lin", name), value_dim=1) for name in ("hinge", "none"))
    assert capacity.state(known) is not None and capacity.obstacle(known, pointer)
    assert capacity.state(hinge) is None and capacity.obstacle(hinge, pointer) is None
    assert "'hinge' are not known to factorise" in str(capacity.exemption(hinge, pointer))
    with pytest.raises(BadInput, match="hinge"):
        counterexample(Transformer(hinge, pointer.d, pointer.outputs, key=jr.key(0)), pointer, key=jr.key(1))


# -- paths -------------------------------------------------------------------------------------------------------


def test_a_strange_path_is_the_definition_shown_and_not_certified(strangers):
    model = ml.compile(ONE_LAG, route="t5").model
    x = np.linspace(-1, 1, 9)[:, None]
    np.testing.assert_array_equal(model.using("detour")(x), model.using("plain")(x))
    with pytest.raises(BadInput, match="no certificate covers the rounding of path 'detour'"):
        certify(model.using("detour"), ONE_LAG)
    found = examine()
    assert found["paths"]["detour"] == "n^2"
    assert any("steeper" in kinds["kinds"] for kinds in found["chosen"])


# -- trainers and reports ----------------------------------------------------------------------------------------

FEW: dict[str, Any] = {"steps": 2, "batch": 4, "held_out": 4, "length": 8}
TRAINED = ("tmx", "steady", "infinite")
DOUBLED: dict[str, Any] = {"memories": [{"double": 2}, {"lag": 1}], "readout": "x1 - x2"}


@pytest.fixture(scope="module")
def trained(strangers, tmp_path_factory):
    """A strange memory, learned by a strange encoding with a strange loss; and the directory of the training."""
    place = tmp_path_factory.mktemp("trained")
    return ml.train(Task(**DOUBLED), _architecture(TRAINED), out=place, loss="fourth-power", **FEW), place


def test_strangers_are_trained_and_reported(trained):
    fit, place = trained
    x, y = source_of(fit.run).held_out()
    found = jax.jit(jax.vmap(fit.model.using("plain")))(x)
    assert fit.record["held_out"] == pytest.approx(float(dummies.fourth_power(found, y)), rel=1e-9)
    assert not eqx.tree_equal(
        fit.model.layers[0].attention.heads.encoding.slope(), jnp.exp(-2.0 * jnp.array([0.25, 0.75]))
    )
    page = (place / "report.html").read_text()
    assert all(word in page for word in ("steady", "fourth-power", "twice lag 2"))
    model, task = ml.load(place)
    assert task == Task(**DOUBLED) and eqx.tree_equal(model, fit.model)
    with pytest.raises(BadInput, match="no certificate follows"):
        ml.verify(place)
    with pytest.raises(BadInput, match="'exponents' is for lin and log"):
        ml.train(ONE_LAG, _architecture(TRAINED), start="exponents", **FEW)


def test_a_loss_that_is_not_listed_is_refused():
    with pytest.raises(BadInput, match="loss: unknown 'fifth-power', use one of mean-square, sup"):
        ml.train(ONE_LAG, _architecture(("dpf", "lin", "infinite")), loss="fifth-power", **FEW)


def test_an_engine_of_sweeps_is_one_entry(trained, monkeypatch, tmp_path):
    monkeypatch.setitem(start.ENGINES, "here", dummies.__name__)
    fit, _ = trained
    architecture = _architecture(TRAINED).to_dict()
    asked = make_sweep(
        {
            "task": DOUBLED,
            "architecture": {k: v for k, v in architecture.items() if k != "normalisation" and v is not None},
            "training": {**FEW, "loss": "fourth-power"},
            "grid": {"architecture.normalisation": ["infinite", "softmax"]},
        }
    )
    assert ["'tmx'" in refused.reason for refused in asked.impossible] == [True]  # under softmax it is dpf
    told: list[str] = []
    tell = lambda text, done: told.append(text)
    runs = ml.sweep(asked, store=tmp_path / "runs.sqlite", engine="here", progress=tell)
    assert told == ["worked off"] and runs.counts()["done"] == len(runs) == 1
    (stored,) = best_fits(runs)
    assert stored.run.key == fit.run.key and eqx.tree_equal(stored.model, fit.model)
    assert stored.record["err_sup"] == fit.record["err_sup"]
    write_sweep("strange", runs, tmp_path / "sweep.html")
    assert (tmp_path / "sweep.html").exists() and "steady" in (tmp_path / "sweep-best.html").read_text()
    with pytest.raises(BadInput, match="engine: unknown 'there'; use local, ray, here"):
        ml.sweep(asked, store=tmp_path / "runs.sqlite", engine="there")


def test_a_training_is_one_function(monkeypatch, tmp_path):
    monkeypatch.setitem(start.ENGINES, "here", dummies.__name__)
    monkeypatch.setattr(start, "EXECUTE", f"{dummies.__name__}:guess")
    asked = make_sweep(
        {
            "task": ONE_LAG.to_dict(),
            "architecture": {**SIZES, "attention": "dpf", "normalisation": "infinite"},
            "training": FEW,
            "grid": {"training.seed": [0, 1, 2]},
        }
    )
    runs = ml.sweep(asked, store=tmp_path / "runs.sqlite", engine="here")
    found = {row["training.seed"]: row for row in runs}
    assert (found[0]["status"], found[0]["err_sup"]) == ("done", 0.25)
    assert found[1]["status"] == "failed" and found[1]["error"] == "ArithmeticError: the stranger broke"
    assert found[2]["status"] == "failed" and "no result" in found[2]["error"]
    write_sweep("guessed", runs, tmp_path / "sweep.html")
    assert "the stranger broke" in (tmp_path / "sweep.html").read_text()
    assert not (tmp_path / "sweep-best.html").exists()  # there is no model to show


# -- routes ------------------------------------------------------------------------------------------------------


def test_a_route_is_one_entry(monkeypatch, tmp_path):
    for route in (dummies.roundabout, dummies.astray, dummies.closed):
        monkeypatch.setitem(ROUTES, route.__name__, route)
    task = ml.Fixed(lags=[3], readout="x1")
    plans = plan(task, routes=["roundabout", "rotary", "astray", "closed"])
    bounds = {p.route: float(p.certificate.bound) for p in plans}
    assert bounds["roundabout"] == bounds["rotary"]
    assert plans.obstacles == {"closed": "the road is closed"}
    # A route only proposes: what it proposes is judged by its weights.
    (missed,) = plans.missed
    assert missed.route == "astray" and missed.certificate.bound >= 2
    told = str(plans_dict(plans, stated(task)))
    assert all(word in told for word in ("roundabout", "astray", "the road is closed"))
    assert plans_table("strange", plans) is not None
    ml.write(ml.compile(task, plans.best), tmp_path, plans)
    assert "roundabout" in (tmp_path / "report.html").read_text()
    assert ml.verify(tmp_path).bound == bounds["rotary"]


# -- precisions --------------------------------------------------------------------------------------------------


def test_a_precision_is_one_row(monkeypatch):
    monkeypatch.setitem(PRECISIONS, "tiny", dummies.TINY)
    certificate = ml.compile(ml.Fixed(lags=[3], readout="x1"), route="rotary").certificate
    by = certificate.bound_by_precision
    assert by["tiny"] > by["bfloat16"] > by["float32"]  # fewer bits of the same range
    with pytest.raises(BadInput, match="models are built in"):
        plan(ml.Fixed(lags=[3], readout="x1"), precision="tiny")
    with pytest.raises(BadInput, match="precision: unknown 'tiny'"):
        _architecture(("dpf", "lin", "infinite"), precision="tiny")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_models_run_in_a_precision_that_says_so(monkeypatch, name):
    monkeypatch.setitem(PRECISIONS, name, replace(PRECISIONS[name], evaluates=True))
    names = tuple(name for name, row in PRECISIONS.items() if row.evaluates)
    monkeypatch.setattr(precision, "EVALUATED", names)
    monkeypatch.setattr(switches, "EVALUATED", names)
    task = ml.Fixed(lags=[3], readout="x1 * x1")
    built = ml.compile(task, precision=name, tolerance=0.3, route="rotary")
    assert built.certificate.met and built.model.W_E.dtype == name
    x = jr.uniform(jr.key(0), (64, 1), jnp.float64, -1, 1).astype(name)
    y = task.target(x.astype(jnp.float64))
    error = jnp.abs(_run(built.model, x).astype(jnp.float64) - y).max()
    assert 0 < error <= built.certificate.bound


# -- operations --------------------------------------------------------------------------------------------------


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


# -- memories ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steady", [False, True])
def test_a_memory_is_one_class(strangers, steady):
    task = Task(memories=[{"double": 2, "steady": steady}, {"lag": 1}], readout="x1 - x2")
    x = np.arange(1.0, 6.0)[:, None] / 10
    assert np.allclose(np.asarray(task.target(x))[:, 0], [0, -0.1, 0, 0.1, 0.2])
    assert task.kind == "mixed" and Task(**task.to_dict()) == task and task.stationary == steady
    plans = plan(task)
    assert not plans.met and not plans.missed and plans.obstacles.keys() == ROUTES.keys()
    others = [name for name, reason in plans.obstacles.items() if "twice lag 2" not in reason]
    known = ("no lag depends on the input", "no memory is found by content")
    assert all(plans.obstacles[name].startswith(known) for name in others)
    assert steady or not others
    model = ml.compile(ONE_LAG, route="t5").model
    with pytest.raises(BadInput, match="twice lag 2"):
        certify(model, task)
    seen = ml.measure(model, task, key=jr.key(0), sequences=2, length=16, steps=2, starts=1)
    assert seen.err_sup > 1
    run = ml.Run(task=task, architecture=_architecture(("dpf", "lin", "infinite")), training=FEW)
    reason = diagnose(run, RunRecord("done", measures={"err_sup": 1.0}))
    assert not reason.evidence.keys() & {"E_found", "E_compiled", "E_least"}  # nothing was fitted or proved


def test_a_memory_derived_from_another_is_not_taken_for_it(strangers):
    task = Task(memories=[{"farther": 2}], readout="x1")
    x = np.arange(1.0, 7.0)[:, None] / 8
    assert np.asarray(task.target(x))[:, 0].tolist() == [0, 0, 0, 0, 0.125, 0.25]
    assert task.kind == "mixed" and Task(**task.to_dict()) == task
    built = ml.compile(task, route="rotary")  # what it recalls is the token at lag 4, and that is known
    assert built.certificate.met
    assert np.abs(np.asarray(built.model(x)) - np.asarray(task.target(x))).max() <= built.certificate.bound


def test_a_recall_is_not_derived_from_another():
    with pytest.raises(TypeError, match="derive a recall from Recall itself"):

        @dataclass(frozen=True)
        class Negated(LagTable):
            pass
