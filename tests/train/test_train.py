"""`ml.train` and `memloci train`: files whole or not at all, interrupted and resumed, refused in one line."""

import json
import signal
import subprocess
import sys
import time

import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci import pipeline
from memloci.core.errors import BadInput
from memloci.train import train as module
from memloci.train.options import plain_value
from memloci.train.options import runs as runs_of

from ..commands import memloci
from .cases import SETTINGS, SIZES, TASK, small_run

WRITTEN = {"model.safetensors", "model.json", "training.json", "report.html"}


def test_a_fit_is_written_and_loads_as_the_same_model(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "_training_page", lambda fits: f"a page about {len(fits)} fit".encode())
    fit = ml.train(
        ml.Fixed(**{k: v for k, v in TASK.items() if k != "kind"}), SIZES, out=tmp_path, **SETTINGS
    )
    assert {path.name for path in tmp_path.iterdir()} == WRITTEN
    model, task = ml.load(tmp_path)
    x = jr.uniform(jr.key(0), (9, 1), minval=-1)
    np.testing.assert_array_equal(model(x), fit.model(x))
    assert task is not None and task.to_dict() == TASK
    stored = json.loads((tmp_path / "training.json").read_text())
    assert (tmp_path / "report.html").read_text() == "a page about 1 fit"
    assert stored["fits"][0]["record"] == fit.record and stored["fits"][0]["history"] == fit.history


def test_a_key_is_a_seed(monkeypatch):
    runs = []
    monkeypatch.setattr(module, "train_together", lambda given, **_: runs.extend(given) or [None])
    for key in (jr.key(0), jr.key(1), jr.key(0)):
        module.train(TASK, SIZES, key=key, **SETTINGS)
    assert runs[0].key == runs[2].key != runs[1].key


@pytest.mark.slow
def test_an_interrupted_training_is_kept_and_goes_on_to_the_same_bits(tmp_path):
    runs = [small_run(seed=seed) for seed in (0, 1)]
    whole = ml.train_together(runs)

    def stop_at_half(text, done):
        if done >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(module.Interrupted, match="--resume --out"):
        ml.train_together(runs, out=tmp_path, progress=stop_at_half)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"runs.json", "checkpoint-0.safetensors", "checkpoint-1.safetensors"}
    with pytest.raises(BadInput, match="another training"):
        ml.train_together([small_run(seed=5)], out=tmp_path)
    assert [run.key for run in module.runs_in(tmp_path)] == [run.key for run in runs]
    said = []
    resumed = ml.train_together(
        runs, out=tmp_path, resume=True, progress=lambda text, done: said.append(done)
    )
    assert min(done for done in said if done) > 0.5  # it did not start over
    for a, b in zip(whole, resumed, strict=True):
        assert a.history == b.history
        np.testing.assert_array_equal(a.model.W_E, b.model.W_E)
    assert {path.name for path in tmp_path.iterdir()} == WRITTEN


def test_a_directory_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        ml.train(TASK, SIZES, out=tmp_path / "file", **SETTINGS)
    with pytest.raises(BadInput, match="needs `out`"):
        ml.train(TASK, SIZES, resume=True, **SETTINGS)


def test_damaged_files_of_an_interrupted_training_are_refused(tmp_path):
    for content in ("", "[]", '{"runs": 3}', '{"runs": [{"task": 3}]}'):
        (tmp_path / "runs.json").write_text(content)
        with pytest.raises(BadInput, match="runs.json|task"):
            module.runs_in(tmp_path)


def test_options_become_runs():
    others = ["training.clip=none", "architecture.norm=pre", "training.warmup=5", "training.loss=sup"]
    found = runs_of("delay", SIZES, {"steps": 7, "start": "random"}, others, range(3, 5))
    assert [run.training.seed for run in found] == [3, 4] and len({run.program for run in found}) == 1
    assert (
        found[0].training.clip is None and found[0].training.warmup == 5 and found[0].training.loss == "sup"
    )
    assert found[0].architecture is not None and found[0].architecture.norm == "pre"
    assert [plain_value(text) for text in ("1", "1e-3", "true", "[1, 2]", "word")] == [
        1,
        1e-3,
        True,
        [1, 2],
        "word",
    ]


@pytest.mark.slow
def test_ctrl_c_keeps_a_checkpoint_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "out"
    arguments = [
        "majority",
        "--steps",
        "50000000",
        "--batch",
        "2",
        "--heads",
        "1",
        "--width",
        "4",
        "--out",
        str(out),
    ]
    settings = [
        "architecture.dim=4",
        "training.length=12",
        "training.held_out=4",
        "training.evaluate_every=5",
    ]
    command = [sys.executable, "-m", "memloci.cli", "train", *arguments]
    command += [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    try:
        while not list(out.glob("checkpoint*")) and process.poll() is None:
            time.sleep(0.2)  # the first checkpoint comes after some seconds
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 1 and "Traceback" not in said
    assert f"continue with: memloci train --resume --out {out}" in said
    assert list(out.glob("checkpoint-0.safetensors"))


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "which task"),
        (("nothing",), "neither a file nor a gallery task"),
        (("delay", "--attention", "tmx"), "softmax"),
        (("delay", "--heads", "0"), "heads"),
        (("delay", "--set", "speed=3"), "--set"),
        (("delay", "--set", "training.speed=3"), "unknown key 'speed'"),
        (("delay", "--track", "paper"), "--track"),
        (("delay", "--start", "compiled", "--set", "training.route=ship"), "ship"),
        (("--resume", "--out", "/nowhere"), "no such file"),
    ],
)
def test_bad_input_gets_one_line_and_status_2(arguments, said):
    result = memloci("train", *arguments)
    assert result.returncode == 2 and result.stderr.count("\n") == 1 and said in result.stderr


def test_the_command_trains_and_tells(tmp_path):
    small = ["--heads", "1", "--width", "4", "--steps", "20", "--batch", "4", "--seeds", "2"]
    small += ["--set", "architecture.dim=4", "--set", "training.length=12", "--set", "training.held_out=4"]
    result = memloci(
        "train", "majority", *small, "--out", str(tmp_path / "out"), "--tolerance", "1e-9", "--json"
    )
    assert result.returncode == 3, result.stderr
    told = json.loads(result.stdout)
    assert len(told["fits"]) == 2 and told["fits"][0]["record"]["steps"] == 20
    assert {path.name for path in (tmp_path / "out").iterdir()} == WRITTEN
