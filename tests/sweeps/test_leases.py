"""Leases compare no clocks of different machines, and a worker that grows is replaced without losing a run."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from memloci.sweeps import local, worker
from memloci.sweeps.process import resident
from memloci.sweeps.store import Store
from memloci.sweeps.worker import Job, Worker

from .cases import FAKE, ROOT, make_run, make_runs
from .fake import execute


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def from_elsewhere(store, owner="far"):
    """A claim of a process on another machine: nobody here can tell whether it lives."""
    sweep = store.enqueue("s", [make_run()])
    assert store.claim(sweep, owner)
    store.db.execute("UPDATE owners SET host = 'elsewhere', pid = 1, birth = 'then' WHERE name = ?", (owner,))
    return sweep


@pytest.mark.parametrize("ahead", [3600.0, -3600.0, 1e9])
def test_a_clock_that_is_wrong_steals_nothing(store, monkeypatch, ahead):
    sweep = from_elsewhere(store)
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + ahead)
    with Store(store.path) as other:
        for _ in range(3):
            other.reclaim_dead(lease=180.0)
    assert store.counts(sweep).running == 1


def test_a_claim_ends_when_its_beats_stand_still_for_the_lease_of_who_looks(store, monkeypatch):
    sweep, now = from_elsewhere(store), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Store(store.path) as driver, Store(store.path) as newcomer:
        for _ in range(50):  # for hours, with a sign of life now and then
            driver.reclaim_dead(lease=180.0)
            now[0] += 170.0
            store.beat("far")
        assert store.counts(sweep).running == 1
        driver.reclaim_dead(lease=180.0)
        now[0] += 181.0
        newcomer.reclaim_dead(lease=180.0)  # who has just come cannot know
        assert store.counts(sweep).running == 1
        driver.reclaim_dead(lease=180.0)
        assert store.counts(sweep).waiting == 1


def test_a_claim_is_a_sign_of_life_too(store, monkeypatch):
    """Short runs: a worker claims again and again before its first beat."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    runs = make_runs(range(20))
    sweep = store.enqueue("s", runs)
    with Store(store.path) as driver:
        for _ in runs:
            claim = store.claim(sweep, "far")
            store.db.execute("UPDATE owners SET host = 'elsewhere' WHERE name = 'far'")
            driver.reclaim_dead(lease=180.0)
            now[0] += 100.0
            assert claim and store.finish("far", execute(claim.runs())) == 1


def test_a_beat_between_the_look_and_the_theft_saves_the_claim(store):
    sweep = from_elsewhere(store)
    (beats,) = store.db.execute("SELECT beats FROM owners").fetchone()
    store.beat("far")
    assert store.reclaim("far", "silent", beats=beats) == 0
    assert store.counts(sweep).running == 1


# -- processes that grow ----------------------------------------------------------------------------------


def test_a_worker_ends_between_two_programs_and_loses_no_run(store):
    runs = make_runs(range(4), batches=range(1, 6))
    job = Job(str(store.path), store.enqueue("s", runs), FAKE, group=2, programs=2)
    workers = 0
    while store.counts(job.sweep).open:
        Worker(job, f"w{workers}", store, execute).work()
        workers += 1
    assert workers == 3  # five programs, two at a time
    assert {row["status"] for row in store.rows()} == {"done"}
    assert {row["attempts"] for row in store.rows()} == {1}


def test_a_worker_ends_when_it_has_too_much_memory(store, monkeypatch):
    sizes = iter([0, 5 << 30])
    monkeypatch.setattr(worker, "resident", lambda: next(sizes, 5 << 30))
    runs = make_runs(range(2), batches=range(1, 4))
    job = Job(str(store.path), store.enqueue("s", runs), FAKE, group=1, memory=3.0)
    Worker(job, "w", store, execute).work()
    # It has finished both runs of the program that it had compiled, and begun no other.
    counts = store.counts(job.sweep)
    assert (counts.done, counts.waiting) == (2, 4)


def test_the_driver_replaces_workers_that_have_ended_so(store):
    runs = make_runs(range(2), batches=range(1, 5))
    job = Job(str(store.path), store.enqueue("s", runs), FAKE, beat=0.2, programs=1)
    started, start = [], local.Crew._start
    local.Crew._start = lambda self: started.append(1) or start(self)
    try:
        local.run(job, workers=1)
    finally:
        local.Crew._start = start
    assert {row["status"] for row in store.rows()} == {"done"} and len(started) == 4
    assert {row["attempts"] for row in store.rows()} == {1} and {row["deaths"] for row in store.rows()} == {0}


def test_memory_is_that_of_this_process():
    assert 1 << 24 < resident() < 1 << 36


# -- stores of before, and damaged ones -------------------------------------------------------------------

VERSION_1 = """
CREATE TABLE runs (key TEXT PRIMARY KEY, program TEXT NOT NULL, config TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed')), owner TEXT,
    attempts INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL, started REAL,
    finished REAL, cost REAL, error TEXT, record TEXT, history TEXT, weights BLOB);
CREATE INDEX queue ON runs (status, program, key, deaths, owner);
CREATE TABLE owners (name TEXT PRIMARY KEY, host TEXT, pid INTEGER, birth TEXT, seen REAL NOT NULL, part REAL NOT NULL);
CREATE TABLE sweeps (id TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE sweep_runs (sweep TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (sweep, key)) WITHOUT ROWID;
CREATE INDEX sweeps_by_run ON sweep_runs (key);
CREATE TABLE checkpoints (key TEXT PRIMARY KEY, step INTEGER NOT NULL, state BLOB NOT NULL);
PRAGMA application_id = 1835363692;
PRAGMA user_version = 1;
"""


@pytest.fixture
def old_store(tmp_path):
    """Four runs as version 1 kept them: done, failed, running with a checkpoint, waiting."""
    from memloci.sweeps.database import to_json

    path, runs = tmp_path / "old.sqlite", make_runs(range(4))
    (outcome,) = execute(runs[:1])
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(VERSION_1)
    for run, status in zip(runs, ("done", "failed", "running", "waiting"), strict=True):
        owner = "worker" if status == "running" else None
        db.execute(
            "INSERT INTO runs (key, program, config, status, owner, created) VALUES (?, ?, ?, ?, ?, 1.0)",
            (run.key, run.program, to_json(run.to_dict()), status, owner),
        )
        db.execute("INSERT INTO sweep_runs VALUES ('id', ?)", (run.key,))
    db.execute("INSERT INTO sweeps VALUES ('id', 's', 1.0)")
    db.execute(
        "UPDATE runs SET record = ?, history = ?, weights = ? WHERE status = 'done'",
        (to_json(outcome.record), to_json(outcome.history), outcome.weights),
    )
    db.execute("INSERT INTO checkpoints VALUES (?, 10, ?)", (runs[2].key, b'[10, "x"]'))
    db.execute("INSERT INTO owners VALUES ('worker', 'elsewhere', 1, 'then', ?, 0.0)", (time.time() - 1e4,))
    db.commit()
    db.close()
    return path, runs


def test_a_store_of_version_1_is_read_as_it_is_and_migrated_by_who_writes(old_store):
    path, runs = old_store
    (outcome,) = execute(runs[:1])
    for create in (False, True, True):
        with Store(path, create=create) as store:
            assert store.version == (2 if create else 1)
            rows = {row["key"]: row for row in store.rows("s")}
            assert rows[runs[0].key]["record"] == outcome.record and rows[runs[0].key]["note"] is None
            assert store.history(runs[0].key) == outcome.history
            assert store.weights(runs[0].key) == outcome.weights
            running = "waiting" if create else "running"
            assert [rows[run.key]["status"] for run in runs] == ["done", "failed", running, "waiting"]
    with Store(path) as store:
        sweep = store.enqueue("s", runs)
        claim = store.claim(sweep, "me", most=4)
        assert claim and set(claim.keys) == {run.key for run in runs[1:]}
        assert claim.states == {runs[2].key: b'[10, "x"]'}
        assert store.finish("me", execute(runs[1:])) == 3


def test_a_store_in_which_an_older_version_works_is_left_to_it(old_store):
    path, _ = old_store
    with sqlite3.connect(path) as db:
        db.execute("UPDATE owners SET seen = ?", (time.time(),))
    db.close()
    before = path.read_bytes()
    with pytest.raises(Exception, match="worker of an older memloci is at work there|of an older memloci"):
        Store(path)
    Store(path, create=False).close()
    assert path.read_bytes() == before


def damage(store, column, key, change):
    store.db.execute(f"UPDATE runs SET {column} = ? WHERE key = ?", (change, key))


@pytest.mark.parametrize(
    "column, value",
    [
        ("record", '{"status":"done","err_sup":0.0}'),
        ("record", "CAST(x'7b22ff227d' AS TEXT)"),
        ("record", "{"),
        ("record", '{"status":"done","status":"done"}'),
        ("record", 7),
        ("record", None),
        ("config", "{}"),
        ("config", b"\xff"),
        ("history", '{"loss":[0.0]}'),
        ("history", None),
        ("weights", b"other weights"),
        ("weights", None),
    ],
)
def test_a_changed_value_is_told_refused_and_trained_anew(store, column, value):
    runs = make_runs(range(2))
    sweep = store.enqueue("s", runs)
    store.claim(sweep, "me", most=2)
    store.finish("me", execute(runs))
    key = runs[0].key
    if isinstance(value, str) and value.startswith("CAST"):
        store.db.execute(f"UPDATE runs SET {column} = {value} WHERE key = ?", (key,))
    else:
        damage(store, column, key, value)
    rows = {row["key"]: row for row in store.rows()}
    assert rows[runs[1].key]["status"] == "done"  # the others are as they were
    if column in ("record", "config"):
        assert rows[key]["status"] == "failed" and "in the store" in rows[key]["error"]
    elif value is not None:
        read = store.history if column == "history" else store.weights
        with pytest.raises(Exception, match=f"run {key[:8]}: .*trains it anew"):
            read(key)
    assert store.enqueue("s", runs) == sweep
    claim = store.claim(sweep, "me", most=2)
    assert claim and claim.keys == (key,)
    assert store.finish("me", execute(claim.runs())) == 1
    rows = {row["key"]: row for row in store.rows()}
    assert rows[key]["record"] == execute(runs[:1])[0].record and rows[key]["error"] is None
    assert rows[key]["note"].startswith("trained anew: its ")


def test_damaged_settings_of_a_waiting_run_fail_it_alone(store):
    runs = make_runs(range(3))
    sweep = store.enqueue("s", runs)
    store.db.execute("UPDATE runs SET config = CAST(x'ff' AS TEXT) WHERE key = ?", (runs[0].key,))
    claim = store.claim(sweep, "me", most=1)
    assert claim and claim.keys == (runs[1].key,)
    status = {row["key"]: row["status"] for row in store.rows()}
    assert status == {runs[0].key: "failed", runs[1].key: "running", runs[2].key: "waiting"}
    store.enqueue("s", runs)
    assert store.counts(sweep).waiting == 2


def test_a_damaged_checkpoint_is_not_gone_on_from_and_the_run_is_trained(store):
    run = make_run()
    sweep = store.enqueue("s", [run])
    store.claim(sweep, "me")
    assert store.save_checkpoints("me", 10, {run.key: b'[10, "x"]'})
    store.release("me")
    store.db.execute("UPDATE checkpoints SET state = x'00'")
    Worker(Job(str(store.path), sweep, FAKE), "w", store, execute).work()
    (row,) = store.rows()
    assert row["status"] == "done" and row["record"] == execute([run])[0].record
    assert row["note"].startswith("trained from the start: its checkpoint in the store was damaged")


def test_a_checkpoint_that_the_engine_refuses_is_left_and_the_run_is_trained(store):
    from memloci.core.errors import BadInput

    run = make_run()
    sweep = store.enqueue("s", [run])
    store.claim(sweep, "me")
    store.save_checkpoints("me", 10, {run.key: b"of another version"})
    store.release("me")

    def refusing(runs, *, states=None, save=None):
        if states:
            raise BadInput("the checkpoint is of another version")
        return execute(runs, save=save)

    Worker(Job(str(store.path), sweep, FAKE), "w", store, refusing).work()
    (row,) = store.rows()
    assert row["status"] == "done" and "of another version" in row["note"]


@pytest.mark.parametrize("flips", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_no_bit_flip_in_a_store_changes_a_result_in_silence(store, flips):
    """Every result that is given out is the one that was recorded, whatever else a flip does."""
    runs = make_runs(range(6))
    sweep = store.enqueue("s", runs)
    store.claim(sweep, "me", most=6)
    outcomes = {outcome.key: outcome for outcome in execute(runs)}
    store.finish("me", outcomes.values())
    store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    data, choose, refused = store.path.read_bytes(), random.Random(5), 0
    for k in range(flips):
        path, changed = store.path.with_name(f"{k}.sqlite"), bytearray(data)
        bit = choose.randrange(8 * len(data))
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        refused += not intact(path, outcomes)
        path.unlink()
    assert refused < flips  # most flips hit nothing that is used


def intact(path, outcomes) -> bool:
    from memloci.core.errors import BadInput

    try:
        with Store(path, create=False) as store:
            for row in store.rows():
                if row["status"] == "done" and row["key"] in outcomes:
                    outcome = outcomes[row["key"]]
                    assert row["record"] == outcome.record
                    assert store.history(row["key"]) == outcome.history
                    assert store.weights(row["key"]) == outcome.weights
    except BadInput:
        return False
    return True


READER = """
import os, sys
from memloci.sweeps.runs import Runs
if os.geteuid() == 0:  # who may do everything, also write what cannot be written
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
runs = Runs(sys.argv[1])
print(len(runs), runs.counts()["done"], len(runs.history(runs[0]["key"])["step"]))
"""


@pytest.fixture
def folder():
    made = Path(tempfile.mkdtemp())  # below a place that every user may enter
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def read_by_another(path):
    return subprocess.run([sys.executable, "-c", READER, str(path)], cwd=ROOT, capture_output=True, text=True)


def test_a_store_on_media_that_cannot_be_written_is_read(folder):
    path, runs = folder / "runs.sqlite", make_runs(range(2))
    with Store(path) as store:
        store.claim(store.enqueue("s", runs), "me", most=2)
        store.finish("me", execute(runs))
    path.chmod(0o444)
    folder.chmod(0o555)
    result = read_by_another(path)
    assert result.stdout.split() == ["2", "2", "2"], result.stderr
    assert os.listdir(folder) == ["runs.sqlite"]


def test_results_that_are_still_in_the_log_are_not_left_out_in_silence(folder):
    path, runs = folder / "runs.sqlite", make_runs(range(2))
    with Store(path) as store:
        store.claim(store.enqueue("s", runs), "me", most=2)
        store.finish("me", execute(runs))
        copy = folder / "copy"
        copy.mkdir()
        for name in ("runs.sqlite", "runs.sqlite-wal"):  # as after a kill, without the third file
            shutil.copy(folder / name, copy / name)
    for file in copy.iterdir():
        file.chmod(0o444)
    copy.chmod(0o555)
    result = read_by_another(copy / "runs.sqlite")
    assert result.stdout.split() == ["2", "2", "2"] or "copy both files to a disk" in result.stderr, (
        result.stderr
    )
    copy.chmod(0o755)
