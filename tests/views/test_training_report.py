"""Pages about training are whole, ask for nothing, tell what happened, and let no text of a user become HTML."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import jax.random as jr
import numpy as np
import pytest
from typer.testing import CliRunner

from memloci import cli, pipeline
from memloci.core.numbers import number, to_digits
from memloci.model.transformer import Transformer
from memloci.observe.lags import head_lags, influence
from memloci.sweeps.summary import summary
from memloci.tasks.short import Adaptive, Essential, Fixed
from memloci.tasks.task import Task
from memloci.train.portrait import portrait
from memloci.train.record import record_from_dict
from memloci.train.reproduce import command
from memloci.train.spec import Run
from memloci.train.train import Fit
from memloci.views.figures import training as curves
from memloci.views.html.sweep import sweep_html
from memloci.views.html.training import training_html

from .checked import Checked

HOSTILE = """<script>alert('1')</script><img src=x onerror="y">&amp;</h1>$x$"""
SIZES: dict[str, Any] = {"layers": 1, "heads": 2, "width": 0, "attention": "dpf", "encoding": "lin"}
SIZES |= {"normalisation": "infinite", "dim": 4, "key_dim": 2, "value_dim": 2}


def history(error: float, steps: int = 6) -> dict[str, list[Any]]:
    fall = [error * error * (1 + 20 * math.exp(-k)) for k in range(steps)]
    return {
        "step": [100 * (k + 1) for k in range(steps)],
        "loss": fall,
        "held_out": [1.1 * v for v in fall],
        "err_mean_square": [1.1 * v for v in fall],
        "err_sup": [3 * math.sqrt(v) for v in fall],
    }


def _with_bits(fit: Fit) -> Fit:
    return replace(fit, record=record_from_dict({**fit.record, "bits_per_byte": 1.0}))


def recorded(run: Run, error: float, channels: int = 1, outputs: int = 1) -> dict[str, Any]:
    curve = history(error)
    assert run.architecture is not None
    return {
        "status": "done",
        "stopped": "all steps",
        "steps": 600,
        "seconds": 1.5,
        "loss": curve["loss"][-1],
        "held_out": curve["held_out"][-1],
        "parameters": 99,
        "architecture": run.architecture.model_dump(mode="json"),
        "channels": channels,
        "outputs": outputs,
        "err_mean_square": error**2,
        "err_sampled": 2 * error,
        "err_adversarial": 3 * error,
        "err_sup": 3 * error,
    }


def fit_of(
    task: Task | dict[str, Any], error: float = 0.1, sizes: dict[str, Any] = SIZES, **training: Any
) -> Fit:
    """As training leaves it, with random weights."""
    run = Run(task=task, architecture=sizes, training={"length": 24, **training})
    d, outputs = (task.d, task.outputs) if isinstance(task, Task) else (2, 1)
    assert run.architecture is not None
    model = Transformer(run.architecture, d, outputs, key=jr.key(run.training.seed))
    return Fit(run, model, record_from_dict(recorded(run, error, d, outputs)), history(error))


def diverged(fit: Fit) -> Fit:
    lost = {"status": "diverged", "stopped": "the loss was no number at step 3", "diverged_at": 3}
    lost |= dict.fromkeys(
        ("loss", "held_out", "err_mean_square", "err_sampled", "err_adversarial", "err_sup")
    )
    empty = {name: [100] if name == "step" else [None] for name in fit.history}
    return Fit(fit.run, fit.model, record_from_dict({**fit.record, **lost}), empty)


DELAY = Fixed(lags=[2], readout="x1")


def training_page(fits: list[Fit]) -> str:
    return training_html(portrait(fits))


def sweep_page(name: str, runs: list[dict[str, Any]]) -> str:
    return sweep_html(summary(name, runs))


# -- one training -----------------------------------------------------------------------------------------


def test_the_page_tells_what_was_learned_and_by_how_many_seeds():
    fits = [fit_of(DELAY, error, seed=seed) for seed, error in enumerate([1e-4, 0.1, 0.2])]
    page = training_page(fits)
    told = Checked(page).text
    assert "learned" in told and "1 of 3 runs learned" in told
    assert "Median of 3 runs" in told
    for heading in ("Loss", "Error", "Runs", "Which lags matter", "Where heads look", "Attention maps"):
        assert f"<h2>{heading}</h2>" in page
    assert "proved" in told  # of the compiled weights beside it
    assert page == training_page(fits)  # the same records give the same page


def test_a_failure_is_named_at_the_top():
    told = Checked(training_page([fit_of(DELAY, sizes={**SIZES, "normalisation": "softmax"})])).text
    assert "not learned" in told and "one softmax layer cannot see the start" in told


@pytest.mark.long
@pytest.mark.parametrize(
    "task",
    [
        Essential(kernels=["z ** -2"], readout="x1"),
        Adaptive(
            channels=[{"name": "a", "values": [1, 2, 3]}, {"name": "v", "range": [-1, 1]}],
            lags=["a0", "a0 + a1", "a0 + a1 + a2"],
            readout=["v3", "v1"],
        ),
    ],
    ids=["essential", "adaptive"],
)
def test_every_kind_of_task_has_a_page(task):
    sizes = {
        **SIZES,
        "attention": "dp",
        "normalisation": "softmax",
        "encoding": "log",
        "layers": 2,
        "width": 4,
    }
    told = Checked(training_page([fit_of(task, sizes=sizes)])).text
    assert "not learned" in told


def test_divergence_is_a_result():
    one = diverged(fit_of(DELAY))
    told = Checked(training_page([one])).text
    assert "diverged" in told and "step 3" in told
    told = Checked(training_page([one, fit_of(DELAY, 0.2, seed=1)])).text
    assert "1 of 2 runs" in told


@pytest.mark.parametrize("kind", ["text", "arrays"])
def test_data_has_curves_and_no_memory(kind):
    task = {"kind": kind, "path": "/some/place/data.txt", "sha256": "0", "length": 24}
    fit = fit_of(task)
    record = {k: v for k, v in fit.record.items() if not k.startswith("err_")}
    if kind == "text":
        record["bits_per_byte"] = 2.5
    else:
        record |= {"err_mean_square": 0.01, "err_sup": 0.3}
    page = training_page([Fit(fit.run, fit.model, record_from_dict(record), fit.history)])
    told = Checked(page).text
    assert ("2.5 bits per byte" in told) == (kind == "text")
    assert "data.txt" in told and "The memory" not in told and "Trained against compiled" not in told


def test_no_text_of_a_user_becomes_html():
    task = Fixed(description=HOSTILE, lags=[2], readout="x1")
    told = Checked(training_page([fit_of(task)])).text
    assert "alert('1')" in told
    data = {"kind": "text", "path": f"/a/{HOSTILE}", "sha256": "0", "length": 24}
    fit = fit_of(data)
    Checked(training_page([_with_bits(fit)]))


@pytest.mark.parametrize(
    "training",
    [{}, {"seed": 7, "rate": 0.01, "steps": 5, "batch": 3, "tolerance": 0.5}, {"clip": None, "loss": "sup"}],
)
def test_the_command_gives_the_same_runs(training, tmp_path, monkeypatch):
    sizes = {**SIZES, "norm": "pre", "window": 9, "precision": "float64"}
    runs = [
        Run(task=DELAY, architecture=sizes, training={**training, "seed": training.get("seed", 0) + k})
        for k in (0, 1)
    ]
    (tmp_path / "task.toml").write_text('kind = "fixed"\nlags = [2]\nreadout = "x1"\n')
    monkeypatch.chdir(tmp_path)
    asked: list[Run] = []

    def caught(runs, **rest):
        asked.extend(runs)
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "train_together", caught)
    words = command(runs[0], seeds=2).replace("\\\n", " ").split()
    CliRunner().invoke(cli.app, words[1:])
    assert [run.key for run in asked] == [run.key for run in runs]


# -- what is looked at ------------------------------------------------------------------------------------


def test_influence_is_where_the_memories_are():
    task = Fixed(lags=[2, 5], readout="x1 + 0.5 * x2")
    found = influence(fit_of(task).model, task, 24)
    assert set(np.flatnonzero(found.target > 1e-6) + 1) == {2, 5}
    assert found.target[1] > found.target[4]
    assert (found.model >= 0).all()


def test_weights_over_lags_are_the_head_s_kernel():
    fit = fit_of(DELAY)
    for head in head_lags(fit.model, DELAY, 24):
        p = float(fit.model.layers[0].attention.heads.encoding.p[head.head])  # type: ignore[attr-defined]
        w = np.exp(-p * head.z) * np.expm1(p)
        np.testing.assert_allclose(head.mean, w, rtol=1e-4)
        np.testing.assert_allclose(head.low, head.high, rtol=1e-4)


def test_a_band_is_over_the_runs_that_have_a_number():
    short, long, lost = history(0.1, 2), history(0.2, 4), history(0.3, 3)
    lost["loss"] = [None, None, math.inf]
    band = curves.over_steps([short, long, lost], "loss")
    assert band.x.tolist() == [100, 200, 300, 400]
    assert band.low[0] == short["loss"][0] and band.high[0] == long["loss"][0]
    assert band.low[3] == band.median[3] == band.high[3] == long["loss"][3]


@pytest.mark.parametrize("loss", [2e-9, 0.3, 2_345.0, 4.5e7])
def test_losses_of_any_size_are_drawn(loss):
    curve = {
        name: values if name == "step" else [loss, 1.2 * loss] * 3 for name, values in history(0.1).items()
    }
    svg = curves.loss_figure([curve], "mean square")
    ET.fromstring(svg)
    assert number(to_digits(1.2 * loss, 2)) in svg


@pytest.mark.parametrize("bound", [None, 0.0, 1e-6, math.inf])
def test_a_compiled_bound_of_any_size_is_drawn(bound):
    svg = curves.compared_figure([0.1, 0.0, math.inf], bound, 1e-3)
    ET.fromstring(svg)
    assert (">proved<" in svg) == bool(bound)


# -- sweeps -----------------------------------------------------------------------------------------------


def swept(heads: int, seed: int, error: float, task: Task = DELAY, **settings: Any) -> dict[str, Any]:
    run = Run(
        task=task, architecture={**SIZES, "heads": heads}, training={"seed": seed, "length": 24, **settings}
    )
    return {"config": run.to_dict(), "record": recorded(run, error), "history": history(error)}


def test_a_sweep_shows_what_varies_and_how_it_ended():
    runs = [
        swept(heads, seed, 0.1 / heads**3 * (1 + seed), rate=rate)
        for heads in (1, 2, 4, 8)
        for rate in (1e-3, 1e-2)
        for seed in (0, 1, 2)
    ]
    page = sweep_page("heads and rates", runs)
    told = Checked(page).text
    assert "architecture.heads" in told and "training.rate" in told
    assert "training.seed" not in told and "training.length" not in told
    assert page.count("<h2>Error over") == 2
    learned = sum(run["record"]["err_sup"] <= 1e-3 for run in runs)
    assert re.search(rf"<dt>learned</dt><dd>{learned}</dd>", page)


def test_a_sweep_lists_what_has_no_result():
    good, bad = swept(1, 0, 0.1), swept(2, 0, 0.1)
    bad["record"] |= {"status": "diverged", "stopped": "the loss was no number at step 3", "diverged_at": 3}
    bad["record"] |= {"err_sup": None, "held_out": None}
    failed = {**swept(4, 0, 0.1), "record": None, "history": None, "error": HOSTILE}
    told = Checked(sweep_page(HOSTILE, [good, bad, failed])).text
    assert "no number at step 3" in told and "alert('1')" in told


@pytest.mark.parametrize("count", [0, 1, 3])
def test_small_sweeps_have_a_page_too(count):
    Checked(sweep_page("small", [swept(2, seed, 0.1) for seed in range(count)]))


def test_tasks_and_words_vary_too():
    runs = [swept(1, 0, 0.1), swept(1, 0, 0.2, schedule="linear"), swept(1, 0, 0.3, clip=None)]
    other = Essential(description="a tail", kernels=["z ** -2"], readout="x1")
    runs += [swept(1, 0, 0.1, task=other), swept(1, 1, 0.0, task=other)]  # an error of exactly 0
    told = Checked(sweep_page("mixed", runs)).text
    assert "training.schedule" in told and "training.clip" in told and "a tail" in told


@pytest.mark.slow
def test_hundreds_of_runs_make_a_page_of_moderate_size():
    runs = [
        swept(1 + k % 4, k // 4, 0.1 * (1 + k % 7), rate=round(1e-3 * 1.03 ** (k // 12), 9))
        for k in range(480)
    ]
    page = sweep_page("many", runs)
    Checked(page)
    assert len(page) < 2_000_000
