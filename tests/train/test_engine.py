"""Training: the steps are Adam's on the plain definition, and nothing depends on company or interruptions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.store import from_weights
from memloci.tasks.load import load_task
from memloci.train import device, engine, program
from memloci.train.attack import attack
from memloci.train.checkpoint import from_bytes, to_bytes
from memloci.train.data import describe
from memloci.train.device import make_key
from memloci.train.engine import execute
from memloci.train.losses import LOSSES
from memloci.train.program import Program

from .cases import small_run

WITHOUT_TIME = lambda record: {k: v for k, v in record.items() if k != "seconds"}


def by_hand(run, steps):
    """The same training as a plain loop over the plain model and Optax' own pieces."""
    program, training = Program(run), run.training
    weights, rest = eqx.partition(program.model(program.start(run).w), eqx.is_inexact_array)
    schedule = optax.warmup_cosine_decay_schedule(0.0, training.rate, training.warmup, training.steps, 0.0)
    optimiser = optax.chain(optax.clip_by_global_norm(training.clip), optax.scale_by_adam())
    state = optimiser.init(weights)
    key = jr.fold_in(make_key(training.seed), 0)
    loss = lambda w, x, y: LOSSES[training.loss](jax.vmap(eqx.combine(w, rest))(x), y)
    gradient, data = jax.jit(jax.grad(loss)), program.data_of(run)
    batch = jax.jit(lambda step: program.source.batch(jr.fold_in(key, step), data))
    for step in range(steps):
        x, y = batch(step)
        with jax.numpy_dtype_promotion("standard"):
            change, state = optimiser.update(gradient(weights, x, y), state)
        # Optax counts from the step before: a warm-up of k reaches the rate at step k, ours at step k - 1.
        rate = training.rate * (step + 1) / training.warmup if step < training.warmup else schedule(step)
        move = lambda w, u, rate=rate: w - jnp.asarray(rate, w.dtype) * (u + training.weight_decay * w)
        weights = jax.tree.map(move, weights, change)
    return eqx.combine(weights, rest)


@pytest.mark.parametrize(
    "loss, architecture",
    [
        pytest.param("mean-square", {}, marks=pytest.mark.slow),
        ("sup", {"layers": 2, "attention": "dpf", "encoding": "log"}),
    ],
)
def test_steps_are_those_of_adam_on_the_plain_definition(loss, architecture):
    architecture = {**architecture, "precision": "float64"}
    run = small_run(
        None, architecture, loss=loss, warmup=3, clip=0.05, weight_decay=0.01, steps=12, samples=20
    )
    (outcome,) = execute([run])
    expected = by_hand(run, 12)
    assert outcome.model.W_E.dtype == "float64"
    for found, wanted in zip(
        jax.tree.leaves(outcome.model), jax.tree.leaves(eqx.filter(expected, eqx.is_array)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_company_changes_no_bit():
    runs = [small_run(), small_run(seed=1), small_run(rate=0.1, schedule="constant"), small_run(steps=15)]
    together = execute(runs)
    for run, outcome in zip(runs, together, strict=True):
        (alone,) = execute([run])
        assert alone.weights == outcome.weights
        assert alone.history == outcome.history
        assert WITHOUT_TIME(alone.record) == WITHOUT_TIME(outcome.record)
    assert len({outcome.weights for outcome in together}) == len(runs)


def test_a_loss_that_is_no_number_is_a_result_with_its_step():
    wild = small_run(rate=100.0, clip=None, schedule="constant", weight_decay=10.0, steps=400)
    outcome, other = execute([wild, small_run(steps=400)])
    assert outcome.record["status"] == "diverged" and outcome.record["err_sup"] is None
    assert 0 <= outcome.record["diverged_at"] < outcome.record["steps"] <= 400
    assert outcome.weights == b"" and str(outcome.record["diverged_at"]) in outcome.record["stopped"]
    assert other.record["status"] == "done"


def test_a_plateau_ends_a_run():
    run = small_run(steps=1000, rate=1e-9, patience=3)
    (outcome,) = execute([run])
    assert outcome.record["stopped"] == "plateau" and outcome.record["steps"] == 40


@pytest.mark.slow
def test_models_side_by_side_are_the_same_models(monkeypatch):
    """As on an accelerator: up to rounding, because sums may be taken in another order."""
    for place in (device, program):
        monkeypatch.setattr(place, "on_cpu", lambda: False)
    runs = [small_run(samples=20), small_run(samples=20, seed=1, steps=15)]
    together = execute(runs, program=Program(runs[0]))
    for run, b in zip(runs, together, strict=True):
        (a,) = execute([run], program=Program(run))
        assert a.history["step"] == b.history["step"]
        np.testing.assert_allclose(a.history["held_out"], b.history["held_out"], rtol=1e-4)


@pytest.mark.parametrize("samples", [None, pytest.param(20, marks=pytest.mark.slow)])
def test_a_run_goes_on_from_a_checkpoint_to_the_same_bits(samples):
    run = small_run(steps=35, samples=samples, patience=50)
    kept = []
    (whole,) = execute([run], save=lambda snapshot: kept.append(snapshot.checkpoints()))
    assert len(kept) == 4
    for states in kept:
        (resumed,) = execute([run], states=states)
        assert resumed.weights == whole.weights and resumed.history == whole.history
        assert WITHOUT_TIME(resumed.record) == WITHOUT_TIME(whole.record)


def test_a_checkpoint_of_another_run_or_no_checkpoint_is_refused():
    run, kept = small_run(), []
    execute([run], save=lambda snapshot: kept.append(snapshot.checkpoints()))
    state = kept[0][run.key]
    for other in (small_run(seed=1), small_run(rate=0.5)):
        with pytest.raises(BadInput, match="another run"):
            execute([other], states={other.key: state})
    for bad in (b"", b"{}", state[:-1], state[:50]):
        with pytest.raises(BadInput, match="not a checkpoint"):
            execute([run], states={run.key: bad})
    course = from_bytes(run, state, Program(run).start(run))
    assert {to_bytes(run, course) for _ in range(20)} == {state}, "the same run gives the same bytes"


@pytest.mark.slow
def test_training_lowers_the_loss_and_the_weights_are_those_of_the_record():
    run = small_run(steps=300, batch=32, rate=0.01)
    (outcome,) = execute([run])
    held_out = outcome.history["held_out"]
    assert held_out[-1] < 0.3 * held_out[0] and outcome.record["status"] == "done"
    architecture = Architecture(**outcome.record["architecture"])
    model = from_weights(architecture, outcome.record["channels"], outcome.record["outputs"], outcome.weights)
    x, y = Program(run).held_out
    e = jax.vmap(model)(x) - y
    np.testing.assert_allclose(float(jnp.square(e).mean()), outcome.record["err_mean_square"], rtol=1e-4)
    np.testing.assert_allclose(float(jnp.abs(e).max()), outcome.record["err_sampled"], rtol=1e-4)
    assert outcome.record["err_sup"] >= outcome.record["err_sampled"]


@pytest.mark.parametrize("encoding, limit", [("lin", 0.0), pytest.param("log", 1.0, marks=pytest.mark.slow)])
def test_slopes_stay_where_their_sum_converges(encoding, limit):
    """ALiBi's smallest slope is 2^-8: a plain first step at this rate would cross 0."""
    architecture = {"attention": "dpf", "normalisation": "infinite", "encoding": encoding, "heads": 4}
    run = small_run(None, architecture, rate=0.1, steps=60)
    (outcome,) = execute([run])
    p = np.asarray(outcome.model.layers[0].attention.heads.encoding.slope())
    before = Program(run).model(Program(run).start(run).w).layers[0].attention.heads.encoding.slope()
    assert outcome.record["status"] == "done" and (p > limit).all()
    assert np.abs(p - np.asarray(before)).min() > 1e-4


@pytest.mark.slow
def test_compiled_weights_stay_where_they_are_and_recover_from_noise():
    task = {"kind": "fixed", "lags": [3], "readout": "x1"}
    still = small_run(task, start="compiled", route="rotary", rate=1e-12)
    (kept,) = execute([still])
    assert kept.record["err_sup"] <= still.training.tolerance
    noisy = small_run(task, start="compiled", route="rotary", noise=0.05, rate=1e-12)
    (disturbed,) = execute([noisy])
    assert disturbed.record["err_sup"] > 10 * kept.record["err_sup"]
    (trained,) = execute(
        [small_run(task, start="compiled", route="rotary", noise=0.05, rate=3e-3, steps=300)]
    )
    assert trained.record["err_mean_square"] < 0.1 * disturbed.record["err_mean_square"]


@pytest.mark.slow
def test_exponents_are_those_of_the_kernel_sum():
    architecture = {"attention": "dpf", "normalisation": "infinite", "heads": 4}
    task = {"kind": "essential", "kernels": ["exp(-0.5 * z) + exp(-2 * z)"], "readout": "x1"}
    program = Program(run := small_run(task, architecture, start="exponents"))
    slopes = program.model(program.start(run).w).layers[0].attention.heads.encoding.slope()
    assert sorted(set(np.round(np.asarray(slopes, float), 6))) == [0.5, 2.0]
    with pytest.raises(BadInput, match="lin and log"):
        execute([small_run(architecture={"encoding": "t5"}, start="exponents")])


def test_exponents_can_be_given():
    architecture = {"attention": "dpf", "normalisation": "infinite"}
    program = Program(run := small_run(None, architecture, start="exponents", exponents=(0.5, 2.0)))
    slopes = program.model(program.start(run).w).layers[0].attention.heads.encoding.slope()
    np.testing.assert_allclose(np.asarray(slopes), [0.5, 2.0], rtol=1e-6)


@pytest.mark.slow
def test_the_mode_of_the_process_does_not_change_a_run():
    """What a worker did before, in float64 or not, leaves the numbers of a float32 run as they are."""
    channels = [{"name": "b", "values": [-1, 1]}, {"name": "x", "range": [-1, 1]}]
    run = small_run(
        {"kind": "fixed", "lags": [1, 3], "readout": "b1 - 0.5 * x2", "channels": channels},
        samples=64,
        steps=20,
    )
    found = []
    for wide in (False, True):
        with jax.enable_x64(wide):
            (outcome,) = execute([run], program=None)
        engine._latest.clear()
        found.append((outcome.weights, outcome.record["err_sup"], outcome.history["held_out"]))
    assert found[0] == found[1]


@pytest.mark.slow
def test_text_and_arrays_are_learned_too(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"abcdefgh" * 200)
    run = small_run(describe(tmp_path / "a.txt"), steps=200, rate=0.02)
    (outcome,) = execute([run])
    assert outcome.record["bits_per_byte"] < 0.5 and "err_sup" not in outcome.record
    x = np.random.default_rng(0).normal(size=(64, 12, 2))
    np.savez(tmp_path / "a.npz", x=x, y=np.concatenate([0 * x[:, :1, :1], x[:, :-1, :1]], axis=1))
    (outcome,) = execute([small_run(describe(tmp_path / "a.npz"), steps=300, rate=0.01)])
    assert outcome.record["err_mean_square"] < 0.3


def test_runs_of_several_programs_are_not_trained_together():
    with pytest.raises(BadInput, match="share one program"):
        execute([small_run(), small_run(batch=4)])
    with pytest.raises(BadInput, match="share one program"):
        execute([])


@pytest.mark.slow
def test_the_adversary_finds_the_worst_case_of_a_linear_error():
    """A model of zeros on x1 - 0.5 x2: the largest error is 1.5, at opposite ends of the range."""
    run = small_run(architecture={"precision": "float64"})
    program = Program(run)
    model = program.model(jnp.zeros(program.size))
    task = load_task("product")
    assert float(attack(model, run.record, 12, jr.key(0))) == 1.5
    assert float(attack(model, task, 40, jr.key(0))) == 1.0
