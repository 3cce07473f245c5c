"""The driver: workers that die are replaced, drivers share a store, Ctrl-C keeps everything."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from memloci.sweeps import local
from memloci.sweeps.process import Process
from memloci.sweeps.store import Counts, Store, StoreTrouble
from memloci.sweeps.worker import Job

from .cases import FAKE, end, make_run, make_runs, start_driver, wait_until
from .fake import CRASH, DIE, execute


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def make_job(store, runs, **settings):
    return Job(str(store.path), store.enqueue("s", runs), FAKE, **{"beat": 0.2, **settings})


def owners(store):
    return [Process(*row) for row in store.db.execute("SELECT host, pid, birth FROM owners")]


def test_a_driver_works_off_a_sweep_and_tells_how_far_it_is(store):
    runs = make_runs(range(6), batches=(1, 2))
    seen = []
    local.run(make_job(store, runs), workers=2, progress=lambda text, part: seen.append((text, part)))
    assert {row["status"] for row in store.rows()} == {"done"} and not owners(store)
    assert seen[0] == ("0 of 12 runs done, 0 running", 0.0)
    assert all(0.0 <= part <= 1.0 for _, part in seen)


def test_a_finished_sweep_starts_no_worker(store, monkeypatch):
    job = make_job(store, make_runs(range(2)))
    local.run(job, workers=1)
    attempts = [row["attempts"] for row in store.rows()]
    monkeypatch.setattr(local.Crew, "_start", lambda crew: pytest.fail("nothing is waiting"))
    local.run(job, workers=2)
    assert [row["attempts"] for row in store.rows()] == attempts == [1, 1]


def test_a_run_that_kills_its_worker_fails_and_the_others_go_on(store):
    local.run(make_job(store, [*make_runs([0, DIE]), make_run(CRASH, batch=2)], most_deaths=3), workers=2)
    rows = {row["config"]["training"]["seed"]: row for row in store.rows()}
    assert rows[0]["status"] == "done" and rows[CRASH]["error"] == "RuntimeError: the engine broke"
    assert rows[DIE]["error"] == "its worker died 3 times: killed by SIGKILL, perhaps out of memory"


def test_workers_that_cannot_start_are_not_started_for_ever(store):
    job = Job(
        str(store.path), store.enqueue("s", make_runs([0])), "tests.sweeps.nosuch:execute", most_deaths=2
    )
    with pytest.raises(RuntimeError, match="workers do not start: .*No module named"):
        local.run(job, workers=1)
    assert store.rows()[0]["status"] == "waiting"


def test_a_store_that_cannot_be_used_stops_the_driver_with_the_line(store):
    job = make_job(store, make_runs([0]))
    store.db.execute("PRAGMA user_version = 99")
    crew = local.Crew(job, store)
    with pytest.raises(StoreTrouble, match="^[^\\n]*runs.sqlite: written by a newer memloci"), crew:
        crew.fill(1)
        wait_until(lambda: crew.bury() or not crew.hands)


def test_two_drivers_on_one_sweep_do_not_collide(store):
    runs = make_runs(range(10), batches=(1, 2, 3), noise=2.0)
    job = make_job(store, runs, group=2)
    drivers = [start_driver(job), start_driver(job)]
    try:
        for driver in drivers:
            assert driver.wait(120) == 0
    finally:
        for driver in drivers:
            end(driver)
    assert [row["record"] for row in store.rows()] == [execute([run])[0].record for run in runs]
    assert {row["attempts"] for row in store.rows()} == {1}


def test_workers_end_with_their_driver(store):
    driver = start_driver(make_job(store, make_runs(range(4), steps=10**6, noise=10.0), group=1))
    try:
        wait_until(lambda: len(owners(store)) == 2)
        workers = owners(store)
    finally:
        end(driver)
    wait_until(lambda: all(worker.dead() for worker in workers))


def test_ctrl_c_keeps_checkpoints_and_the_next_worker_goes_on_from_them(store):
    job = make_job(store, make_runs(range(4), steps=10**8, noise=10.0), group=1)
    driver = start_driver(job)
    try:
        wait_until(lambda: len(owners(store)) == 2)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(120) == -signal.SIGINT
    finally:
        end(driver)
    assert store.counts(job.sweep) == Counts(waiting=4) and not owners(store)
    assert {row["deaths"] for row in store.rows()} == {0}
    claim = store.claim(job.sweep, "next", most=4)
    assert claim and len(claim.states) == 2
    assert all(json.loads(state)[0] > 0 for state in claim.states.values())


def test_a_worker_that_is_stopped_by_somebody_else_loses_its_runs_to_others(store):
    """A process that is alive but silent, as after a machine's sleep."""
    job = make_job(store, make_runs(range(2), steps=500, noise=20.0), group=1, beat=60.0)
    driver = start_driver(job, workers=1)
    try:
        wait_until(lambda: owners(store))
        pid = owners(store)[0].pid
        os.kill(pid, signal.SIGSTOP)
        local.run(replace(job, lease=1.0), workers=1)  # another driver, that does not know the worker
        os.kill(pid, signal.SIGCONT)
        assert driver.wait(120) == 0
    finally:
        end(driver)
    assert {row["status"] for row in store.rows()} == {"done"}


def test_several_workers_share_the_cores(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    alone, shared = local._environment(1), local._environment(2)
    assert alone["XLA_FLAGS"] == "--mine" and "OMP_NUM_THREADS" not in alone.keys() - os.environ.keys()
    assert shared["XLA_FLAGS"].endswith("--mine") and "multi_thread_eigen=false" in shared["XLA_FLAGS"]


def test_the_flags_are_known_to_xla():
    code = "import jax.numpy as jnp; print(jnp.arange(3).sum())"
    result = subprocess.run(
        [sys.executable, "-c", code], env=local._environment(2), capture_output=True, text=True, timeout=120
    )
    assert result.stdout.strip() == "3", result.stderr
