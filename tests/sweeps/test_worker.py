"""A worker records results and failures alike, goes on after both, and stops without losing anything."""

import pytest

from memloci.sweeps.store import Store, StoreTrouble
from memloci.sweeps.worker import Job, Worker

from . import fake
from .cases import FAKE, make_run, make_runs


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def make_worker(store, runs, execute=fake.execute, **settings):
    sweep = store.enqueue("s", runs)
    return Worker(Job(str(store.path), sweep, FAKE, **settings), "me", store, execute)


def by_seed(store, column):
    return {row["config"]["training"]["seed"]: row[column] for row in store.rows()}


def test_a_worker_works_until_nothing_waits(store):
    runs = make_runs(range(5), batches=(1, 2, 3))
    calls = []

    def execute(group, **options):
        calls.append([run.program for run in group])
        return fake.execute(group, **options)

    make_worker(store, runs, execute).work()
    assert [len(call) for call in calls] == [5, 5, 5] and len({call[0] for call in calls}) == 3
    for row, run in zip(store.rows(), runs, strict=True):
        assert row["record"] == fake.execute([run])[0].record and row["cost"] >= 0
    assert store.db.execute("SELECT count(*) FROM owners").fetchone() == (0,)


def test_faults_are_recorded_and_the_others_go_on(store):
    make_worker(store, make_runs([0, fake.CRASH, 2, fake.DIVERGE])).work()
    assert by_seed(store, "status") == {0: "done", fake.CRASH: "failed", 2: "done", fake.DIVERGE: "done"}
    assert by_seed(store, "error")[fake.CRASH] == "RuntimeError: the engine broke"


def test_what_the_engine_refuses_fails_alone(store):
    make_worker(store, [*make_runs([0, fake.REFUSE]), make_run(5, batch=2)]).work()
    assert by_seed(store, "status") == {0: "done", fake.REFUSE: "failed", 5: "done"}
    assert by_seed(store, "error")[fake.REFUSE] == "the engine refuses this"


def test_a_stopped_worker_keeps_checkpoints_and_the_next_goes_on_from_them(store):
    runs, steps = make_runs(range(3), steps=100), []

    def execute(group, *, states, save):
        def stop_after_thirty(snapshot):
            steps.append(snapshot.step)
            worker.stopping = worker.stopping or snapshot.step == 30
            save(snapshot)

        return fake.execute(group, states=states, save=stop_after_thirty)

    worker = make_worker(store, runs, execute)
    worker.work()
    assert steps == [10, 20, 30] and set(by_seed(store, "status").values()) == {"waiting"}
    worker.stopping = False
    worker.work()
    assert steps[3:] == [40, 50, 60, 70, 80, 90, 100]
    assert [row["record"] for row in store.rows()] == [outcome.record for outcome in fake.execute(runs)]
    assert set(by_seed(store, "cost").values()) == {None} and set(by_seed(store, "deaths").values()) == {0}


def test_a_checkpoint_that_does_not_fit_is_left_aside(store):
    run = make_run(fake.SPOIL)
    worker = make_worker(store, [run])
    store.claim(worker.job.sweep, "another")
    store.save_checkpoints("another", 10, {run.key: b'[10, "of another kind"]'})
    store.release("another")
    worker.work()
    (row,) = store.rows()
    assert row["status"] == "done" and row["record"]["value"] == fake.execute([run])[0].record["value"]


def test_who_has_lost_the_lease_stops_and_claims_anew(store):
    tries = []

    def execute(group, *, states, save):
        tries.append(len(group))
        if len(tries) == 1:
            store.reclaim_dead(lease=-1.0)
        return fake.execute(group, states=states, save=save)

    make_worker(store, make_runs(range(2)), execute, checkpoint=0.0).work()
    assert tries == [2, 2] and set(by_seed(store, "attempts").values()) == {2}
    assert set(by_seed(store, "status").values()) == {"done"}


def test_a_full_disk_is_no_fault_of_the_runs(store):
    large = lambda group, **options: [fake.Outcome(run.key, {}, {}, b"w" * 100_000) for run in group]
    worker = make_worker(store, make_runs(range(2)), large)
    pages = store.db.execute("PRAGMA page_count").fetchone()[0]
    store.db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreTrouble, match="the disk is full"):
        worker.work()
    assert "failed" not in by_seed(store, "status").values()
