"""`memloci sweep` and `memloci runs`: files, exit codes, one line for a mistake."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

import memloci as ml
from memloci.sweeps import start
from memloci.sweeps.store import Store

from ..commands import Ended
from ..commands import memloci as command
from .cases import FAKE, ROOT
from .fake import CRASH, DIVERGE

# As the command line is, but with the engine that learns nothing.
MAIN = (
    f"import memloci.sweeps.start as start; start.EXECUTE = {FAKE!r}; import memloci.cli; memloci.cli.main()"
)
SWEEP = """
name = "tiny sweep"
task = "delay"
[training]
start = "compiled"
steps = 40
[grid]
"training.batch" = [1, 2]
"training.seed" = [0, 1, 2]
"""
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "TERM": "dumb", "PYTHONPATH": str(ROOT)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.toml").write_text(SWEEP)
    return tmp_path


def memloci(folder, *arguments) -> Ended:
    """In this folder; only workers are processes of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(ROOT))  # workers find the engine of tests
        patch.setattr(start, "EXECUTE", FAKE)
        return command(*arguments)


def answer(folder, *arguments, status=0):
    result = memloci(folder, *arguments, "--json")
    assert result.returncode == status, result.stderr
    return json.loads(result.stdout)


def refused(result: Ended) -> str:
    assert result.returncode == 2 and "Traceback" not in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize("command", ["sweep", "runs"])
def test_help_has_an_example(folder, command):
    text = memloci(folder, command, "--help").stdout
    assert "Example" in text and f"memloci {command}" in text and "--json" in text


def test_a_sweep_runs_once_and_is_looked_at(folder):
    told = answer(folder, "sweep", "tiny.toml", "--workers", "2")
    assert (told["runs"], told["done"], told["failed"], told["impossible"]) == (6, 6, 0, [])
    with Store(folder / "runs.sqlite") as store:
        before = store.rows()
    text = memloci(folder, "sweep", "tiny.toml")
    assert text.returncode == 0 and "tiny sweep: 6 runs, 6 done" in text.stdout and not text.stderr
    assert "memloci runs --store runs.sqlite --sweep 'tiny sweep'" in text.stdout
    with Store(folder / "runs.sqlite") as store:
        assert store.rows() == before
    listed = memloci(folder, "runs", "--sweep", "tiny sweep").stdout
    assert all(row["key"][:8] in listed for row in before) and "batch" in listed and "err_sup" in listed
    few = answer(
        folder, "runs", "--where", "training.batch=1", "--where", "training.seed>0", "--status", "done"
    )
    assert [row["training.seed"] for row in few] == [1, 2]
    lines = answer(folder, "runs", "--by", "training.batch", "--measure", "err_mean_square")
    assert [(line["training.batch"], line["runs"]) for line in lines] == [(1, 3), (2, 3)]
    assert "95 %" in memloci(folder, "runs", "--by", "training.batch").stdout
    assert "6 runs" in memloci(folder, "runs", "--export", "runs.csv").stdout
    assert (folder / "runs.csv").read_text().count("\n") == 7
    assert "5 more" in memloci(folder, "runs", "--limit", "1").stdout


def test_a_dry_run_says_what_would_be_and_starts_nothing(folder):
    told = answer(folder, "sweep", "tiny.toml", "--dry-run")
    assert (told["runs"], told["finished"], told["waiting"], told["programs"]) == (6, 0, 6, 2)
    assert told["seconds"] is None and "nothing like it" in told["basis"]
    assert not (folder / "runs.sqlite").exists()
    answer(folder, "sweep", "tiny.toml", "--workers", "1")
    (folder / "more.toml").write_text(SWEEP.replace("[0, 1, 2]", "[0, 1, 2, 3]"))
    told = answer(folder, "sweep", "more.toml", "--dry-run")
    assert (told["runs"], told["finished"], told["waiting"], told["programs"]) == (8, 6, 2, 2)
    assert told["seconds"] > 0 and told["basis"] == "recorded runs of the same programs"
    (folder / "more.toml").write_text(SWEEP.replace("[1, 2]", "[3]"))
    assert answer(folder, "sweep", "more.toml", "--dry-run")["basis"] == "recorded runs of the same sizes"
    assert "time:  about" in memloci(folder, "sweep", "more.toml", "--dry-run").stdout


def test_a_dry_run_of_something_new_follows_a_stated_rule(folder):
    architecture = "[architecture]\nlayers = 1\nheads = 2\nwidth = 8\n"
    varied = '"architecture.attention" = ["dp", "tmx"]\n'
    text = (
        SWEEP.replace('start = "compiled"\n', "").replace("[training]", architecture + "[training]") + varied
    )
    (folder / "new.toml").write_text(text)
    told = answer(folder, "sweep", "new.toml", "--dry-run")
    assert told["seconds"] > 0 and "rule of thumb" in told["basis"] and told["runs"] == 6
    assert told["impossible"][0]["count"] == 6 and "query term cancels" in told["impossible"][0]["reason"]
    shown = memloci(folder, "sweep", "new.toml", "--dry-run").stdout
    assert "impossible, left out: 6" in shown and "query term cancels" in shown


def test_failed_runs_give_status_1_and_are_told(folder):
    (folder / "tiny.toml").write_text(SWEEP.replace("[0, 1, 2]", f"[0, {CRASH}, {DIVERGE}]"))
    told = answer(folder, "sweep", "tiny.toml", "--workers", "1", status=1)
    assert (told["done"], told["diverged"], told["failed"]) == (2, 2, 2)
    assert told["failures"] == {"RuntimeError: the engine broke": 2}
    again = memloci(folder, "sweep", "tiny.toml", "--workers", "1")
    assert again.returncode == 1 and "2 failed: RuntimeError: the engine broke" in again.stdout


def test_mistakes_get_one_line_and_status_2(folder):
    assert "nosuch.toml: no such file" in refused(memloci(folder, "sweep", "nosuch.toml"))
    assert "engine: unknown 'cloud'" in refused(memloci(folder, "sweep", "tiny.toml", "--engine", "cloud"))
    assert "runs.sqlite: no such store" in refused(memloci(folder, "runs"))
    assert "not a store" in refused(memloci(folder, "sweep", "tiny.toml", "--store", "tiny.toml"))
    answer(folder, "sweep", "tiny.toml", "--workers", "1")
    assert "--status: unknown 'odd'" in refused(memloci(folder, "runs", "--status", "odd"))
    assert "no sweep 'odd'" in refused(memloci(folder, "runs", "--sweep", "odd"))
    assert "is no condition" in refused(memloci(folder, "runs", "--where", "odd"))
    with Store(folder / "runs.sqlite") as store:
        store.db.execute("PRAGMA user_version = 99")
    assert "newer memloci" in refused(memloci(folder, "sweep", "tiny.toml"))
    assert "newer memloci" in refused(memloci(folder, "runs"))


def test_a_huge_sweep_is_asked_about(folder):
    (folder / "huge.toml").write_text(SWEEP.replace("[0, 1, 2]", str(list(range(600)))))
    assert "huge.toml: 1,200 combinations are many; use --yes" in refused(
        memloci(folder, "sweep", "huge.toml")
    )
    assert not (folder / "runs.sqlite").exists()
    assert answer(folder, "sweep", "huge.toml", "--dry-run")["runs"] == 1200


def test_a_terminal_is_asked_and_may_say_no(folder):
    (folder / "huge.toml").write_text(SWEEP.replace("[0, 1, 2]", str(list(range(600)))))
    ours, theirs = pty.openpty()
    try:
        words = [sys.executable, "-c", MAIN, "sweep", "huge.toml"]
        asked = subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, stdin=theirs, stderr=subprocess.PIPE)
        os.write(ours, b"n\n")
        complaint = asked.communicate(timeout=120)[1].decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert asked.returncode == 1 and "1,200 combinations. Continue?" in complaint
    assert not (folder / "runs.sqlite").exists()


def test_ctrl_c_says_how_to_go_on(folder):
    (folder / "long.toml").write_text(SWEEP.replace("steps = 40", "steps = 100000000\nnoise = 10.0"))
    words = [sys.executable, "-c", MAIN, "sweep", "long.toml", "--workers", "1"]
    driver = subprocess.Popen(
        words, cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        while not _claimed(folder / "runs.sqlite"):
            assert driver.poll() is None
        driver.send_signal(signal.SIGINT)
        complaint = driver.communicate(timeout=120)[1].decode()
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == 1 and complaint.count("\n") == 1
    assert "stopped; runs.sqlite has all finished work, the same command continues it" in complaint


def _claimed(path) -> bool:
    if not path.exists():
        return False
    with Store(path) as store:
        return bool(store.db.execute("SELECT count(*) FROM owners").fetchone()[0])


def test_runs_need_no_jax(folder):
    answer(folder, "sweep", "tiny.toml", "--workers", "1")
    code = "import sys, memloci.cli\ntry:\n memloci.cli.main(['runs'])\nexcept SystemExit as end:\n assert not end.code\n"
    code += "assert not {'jax', 'equinox', 'scipy', 'matplotlib'} & set(sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr


def test_python_says_the_same(folder, monkeypatch):
    monkeypatch.setattr(start, "EXECUTE", FAKE)
    found = ml.sweep(folder / "tiny.toml", store=folder / "mine.sqlite", workers=1)
    assert isinstance(found, ml.Runs) and len(found) == 6
    assert len(ml.Runs(folder / "mine.sqlite").where("training.batch=2")) == 3


def test_the_real_engine_trains_a_sweep(folder):
    text = 'task = "delay"\n[architecture]\nlayers = 1\nheads = 1\nwidth = 4\ndim = 8\n'
    text += (
        "[training]\nsteps = 4\nbatch = 2\nevaluate_every = 2\nheld_out = 2\n[grid]\ntraining.seed = [0, 1]\n"
    )
    (folder / "real.toml").write_text(text)
    found = ml.sweep(folder / "real.toml", store=folder / "real.sqlite", workers=1)
    assert [row["status"] for row in found] == ["done", "done"], [row["error"] for row in found]
    assert found[0]["err_sup"] > 0 and found[0]["err_sup"] != found[1]["err_sup"]
    assert found.weights(found[0]["key"])


def test_curves_of_stored_runs_go_to_tensorboard(folder):
    answer(folder, "sweep", "tiny.toml", "--workers", "1")
    answer(folder, "runs", "--where", "training.seed=0", "--track", "tensorboard")
    assert len(list(folder.glob("tensorboard/*/events.out.tfevents.*"))) == 2
    assert "--track" in memloci(folder, "runs", "--track", "paper").stderr
