"""The store keeps its promises: claims are atomic, leases end, nothing is recorded twice, nothing is corrupted."""

import json
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest

from memloci.core.errors import BadInput
from memloci.sweeps.process import Process
from memloci.sweeps.store import MOST_DEATHS, VERSION, Store, StoreTrouble

from .cases import ROOT, make_run, make_runs
from .fake import DIVERGE, Outcome, execute


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def claimed(store, sweep, owner="me", most=100, **options):
    claim = store.claim(sweep, owner, most=most, **options)
    return claim.runs() if claim else []


def statuses(store):
    return {row["config"]["training"]["seed"]: row["status"] for row in store.rows()}


def test_a_run_comes_back_as_it_was(store):
    run = make_run(seed=5, rate=1e-4, clip=None)
    sweep = store.enqueue("one", [run])
    (back,) = claimed(store, sweep)
    assert back == run and (back.key, back.program) == (run.key, run.program)
    (outcome,) = execute([run])
    assert store.finish("me", [outcome]) == 1
    (row,) = store.rows("one")
    assert row["status"] == "done" and row["record"] == outcome.record
    assert store.history(run.key) == outcome.history and store.weights(run.key) == outcome.weights


def test_what_is_finished_is_not_queued_again_and_what_failed_is(store):
    runs = make_runs(range(3))
    sweep = store.enqueue("s", runs)
    claimed(store, sweep)
    store.finish("me", execute(runs[:1]))
    store.fail("me", [runs[1].key], "no luck")
    assert statuses(store) == {0: "done", 1: "failed", 2: "running"}
    assert store.enqueue("s", runs) == sweep
    assert statuses(store) == {0: "done", 1: "waiting", 2: "running"}
    assert store.enqueue("s", [*runs, make_run(9)]) != sweep  # another set of runs, the same name
    assert len(store.rows("s")) == 4


def test_a_claim_shares_a_program_and_prefers_the_compiled_one_then_a_free_one(store):
    runs = make_runs(range(4), batches=(1, 2, 3))
    sweep = store.enqueue("s", runs)
    first = store.claim(sweep, "a", most=2)
    assert len(first.keys) == 2 and {run.program for run in first.runs()} == {first.program}
    second = store.claim(sweep, "b", most=2)
    assert second.program != first.program  # nobody works on it
    third = store.claim(sweep, "c", most=2)
    assert third.program not in (first.program, second.program)
    again = store.claim(sweep, "a", most=100, compiled=first.program)
    assert again.program == first.program and len(again.keys) == 2


def test_the_last_runs_are_shared_among_the_workers(store):
    sweep = store.enqueue("s", make_runs(range(6)))
    assert len(claimed(store, sweep, "a", most=8, workers=2)) == 3
    assert len(claimed(store, sweep, "b", most=8, workers=2)) == 2


def test_sweeps_share_runs_and_leave_others_alone(store):
    small, large = store.enqueue("small", make_runs(range(2))), store.enqueue("large", make_runs(range(4)))
    assert len(claimed(store, small)) == 2
    assert store.counts(small).waiting == 0 and store.counts(large).waiting == 2
    assert store.sweeps()[make_run(0).key] == {"small", "large"}
    assert store.sweeps()[make_run(3).key] == {"large"}


CLAIMANT = """
import json, sys
from memloci.sweeps.store import Store
path, sweep, owner = sys.argv[1:]
mine = []
with Store(path) as store:
    while claim := store.claim(sweep, owner, most=3):
        mine += claim.keys
print(json.dumps(mine))
"""


def test_processes_never_claim_the_same_run(store):
    runs = make_runs(range(40), batches=range(1, 6))
    sweep = store.enqueue("s", runs)
    command = [sys.executable, "-c", CLAIMANT, str(store.path), sweep]
    claimants = [
        subprocess.Popen([*command, str(k)], cwd=ROOT, stdout=subprocess.PIPE, text=True) for k in range(4)
    ]
    keys = [key for claimant in claimants for key in json.loads(claimant.communicate(timeout=120)[0])]
    assert sorted(keys) == sorted(run.key for run in runs)


def test_processes_may_make_the_store_at_the_same_moment(tmp_path):
    code = "import sys; from memloci.sweeps.store import Store; Store(sys.argv[1]).close()"
    command = [sys.executable, "-c", code, str(tmp_path / "new.sqlite")]
    makers = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    for maker in makers:
        complaint = maker.communicate(timeout=120)[1]
        assert maker.returncode == 0, complaint


def test_who_has_lost_the_lease_records_nothing(store):
    run = make_run()
    sweep = store.enqueue("s", [run])
    claimed(store, sweep, "slow")
    store.reclaim_dead(lease=-1.0)
    assert claimed(store, sweep, "quick") == [run]
    assert not store.save_checkpoints("slow", 10, {run.key: b"state"})
    outcomes = execute([run])
    assert store.finish("slow", outcomes) == 0
    assert store.finish("quick", outcomes) == 1
    assert store.finish("quick", outcomes) == 0  # and nobody records twice
    store.fail("quick", [run.key], "too late")
    assert statuses(store) == {0: "done"}


def test_leases_end_with_the_process_or_its_silence_only(store):
    sweep = store.enqueue("s", make_runs(range(2), batches=(1, 2)))
    claimed(store, sweep, "alive")
    claimed(store, sweep, "dead")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with sqlite3.connect(store.path) as other:
        other.execute("UPDATE owners SET pid = ? WHERE name = 'dead'", (gone.pid,))
    other.close()
    store.reclaim_dead()
    assert store.counts(sweep).running == 2 and store.counts(sweep).waiting == 2
    store.reclaim_dead(alive={"alive"}, lease=-1.0)
    assert store.counts(sweep).running == 2
    store.reclaim_dead(lease=-1.0)
    assert store.counts(sweep).running == 0


def test_a_process_is_known_by_its_birth():
    this = Process.this()
    assert not this.dead()
    assert replace(this, birth="earlier").dead()
    assert not replace(this, host="elsewhere", pid=1, birth="x").dead()  # nobody can tell from here
    assert not replace(this, birth="").dead()


def test_a_zombie_is_dead():
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    process = Process(Process.this().host, child.pid, "")
    born = replace(process, birth="whatever it was")
    assert not process.dead() and born.dead()
    child.communicate()
    assert process.dead()


def test_a_run_that_outlives_too_many_workers_fails_with_the_reason(store):
    sweep = store.enqueue("s", make_runs(range(2)))
    for _ in range(2):
        assert len(claimed(store, sweep)) == 2
        store.reclaim("me", "killed by SIGSEGV")
    while suspects := claimed(store, sweep):
        assert len(suspects) == 1  # tried alone, for the other may be innocent
        if suspects[0].training.seed == 0:
            store.reclaim("me", "killed by SIGSEGV")
        else:
            store.finish("me", execute(suspects))
    assert statuses(store) == {0: "failed", 1: "done"}
    assert [row["error"] for row in store.rows()] == ["its worker died 5 times: killed by SIGSEGV", None]


def test_a_checkpoint_clears_a_run_and_is_given_to_the_next_worker(store):
    run = make_run()
    sweep = store.enqueue("s", [run])
    for step in range(2 * MOST_DEATHS):
        claim = store.claim(sweep, "me")
        assert claim.states == ({run.key: b"%d" % (step - 1)} if step else {})
        assert store.save_checkpoints("me", step, {run.key: b"%d" % step})
        store.reclaim("me", "killed")
    claimed(store, sweep)
    store.finish("me", execute([run]))
    assert store.db.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)


def test_nan_is_a_result(store):
    run = make_run(seed=DIVERGE)
    claimed(store, store.enqueue("s", [run]))
    assert store.finish("me", execute([run])) == 1
    (row,) = store.rows()
    assert row["status"] == "done" and row["record"]["status"] == "diverged" and row["record"]["steps"] == 7
    assert store.history(run.key)["loss"] == [1.0, None]


def test_progress_counts_what_is_half_done(store):
    sweep = store.enqueue("s", make_runs(range(4)))
    claimed(store, sweep, most=2)
    store.beat("me", part=0.25)
    counts = store.counts(sweep)
    assert (counts.running, counts.waiting, counts.part, counts.total) == (2, 2, 0.5, 4)


def test_a_full_disk_gets_one_line_and_costs_nothing_that_was_finished(store):
    runs = make_runs(range(3))
    sweep = store.enqueue("s", runs)
    claimed(store, sweep)
    store.finish("me", execute(runs[:1]))
    pages = store.db.execute("PRAGMA page_count").fetchone()[0]
    store.db.execute(f"PRAGMA max_page_count = {pages + 2}")
    large = [Outcome(run.key, {"status": "done"}, {}, b"w" * 100_000) for run in runs[1:]]
    with pytest.raises(StoreTrouble, match="the disk is full") as refusal:
        store.finish("me", large)
    assert "\n" not in str(refusal.value) and "runs.sqlite" in str(refusal.value)
    with pytest.raises(StoreTrouble, match="full"):
        store.save_checkpoints("me", 1, {run.key: b"s" * 100_000 for run in runs[1:]})
    assert statuses(store) == {0: "done", 1: "running", 2: "running"}
    assert store.db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.db.execute("PRAGMA max_page_count = 1000000")
    assert store.finish("me", large) == 2


def test_a_store_from_a_newer_version_is_refused(store):
    store.db.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(
        BadInput, match=rf"runs.sqlite: written by a newer memloci \(store version {VERSION + 1}"
    ):
        Store(store.path)


def test_other_files_are_refused_and_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("these are notes, not runs\n" * 100)
    with pytest.raises(BadInput, match=r"notes.txt: not a store of runs"):
        Store(text)
    assert text.read_text().startswith("these are notes")
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    before = other.read_bytes()
    with pytest.raises(BadInput, match=r"an SQLite file, but no store of runs"):
        Store(other)
    assert other.read_bytes() == before
    with pytest.raises(BadInput, match="cannot be read or written"):
        Store(tmp_path)
    with pytest.raises(BadInput, match="no such store"):
        Store(tmp_path / "missing.sqlite", create=False)


def test_a_run_of_another_version_is_not_trained(store):
    run = make_run()
    sweep = store.enqueue("s", [run])
    store.db.execute(
        "UPDATE runs SET config = replace(config, '\"seed\":0', '\"seed\":1'), config_sum = NULL"
    )
    claim = store.claim(sweep, "me")
    with pytest.raises(BadInput, match="another version"):
        claim.runs()
