"""kill -9 at random moments: no finished run is lost, none is recorded twice, and the results are the same."""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from memloci.sweeps.process import Process
from memloci.sweeps.store import Store
from memloci.sweeps.worker import Job

from .cases import FAKE, end, make_runs, start_driver
from .fake import execute

EVERY_RECORDING = """
CREATE TABLE recordings (key TEXT);
CREATE TRIGGER recording AFTER UPDATE OF record ON runs WHEN NEW.record IS NOT NULL
BEGIN INSERT INTO recordings VALUES (NEW.key); END;
CREATE TABLE kept (key TEXT, step INTEGER);
CREATE TRIGGER keeping AFTER INSERT ON checkpoints
BEGIN INSERT INTO kept VALUES (NEW.key, json_extract(CAST(NEW.state AS TEXT), '$[0]')); END
"""


class Tormentor:
    """Two drivers at most on one store, and somebody who kills them and their workers."""

    def __init__(self, path: Path, seed: int):
        self.path, self.random = path, random.Random(seed)
        self.drivers: list[subprocess.Popen[bytes]] = []
        self.kills = {"driver": 0, "worker": 0}
        self.runs = []
        with Store(path) as store:
            store.db.executescript(EVERY_RECORDING)
        self.more_work()

    def more_work(self) -> None:
        """Another sweep in the same store: however quick the machine is, there is something to interrupt."""
        first = len(self.runs)
        runs = make_runs(range(first, first + 8), batches=range(1, 9), steps=100, noise=5.0)
        self.runs += runs
        with Store(self.path) as store:
            sweep = store.enqueue(f"from {first}", runs)
        settings = {"beat": 0.2, "checkpoint": 0.02, "most_deaths": 10**6, "group": 4}
        self.job = Job(str(self.path), sweep, FAKE, **settings)

    def torment(self, kills: int) -> None:
        with Store(self.path) as store:
            while sum(self.kills.values()) < kills:
                self.drivers = [driver for driver in self.drivers if not self._over(driver)]
                if not store.counts(self.job.sweep).open:
                    self.more_work()
                if len(self.drivers) < self.random.choice([1, 1, 1, 2]):
                    self.drivers.append(start_driver(self.job, workers=3))
                early = self.random.random() < 0.1  # perhaps before anything is claimed
                while not early and not self._workers(store) and self._working(store):
                    time.sleep(0.01)
                time.sleep(self.random.uniform(0.0, 0.2))
                if early or self.random.random() < 0.15:
                    self._kill_driver()
                else:
                    self._kill_worker(store)

    def _workers(self, store: Store) -> list[int]:
        owners = store.db.execute("SELECT host, pid, birth FROM owners ORDER BY name").fetchall()
        return [owner[1] for owner in owners if not Process(*owner).dead()]

    def _working(self, store: Store) -> bool:
        return bool(store.counts(self.job.sweep).open) and any(d.poll() is None for d in self.drivers)

    def _over(self, driver: subprocess.Popen[bytes]) -> bool:
        if driver.poll() is None:
            return False
        assert driver.returncode in (0, -signal.SIGKILL), driver.communicate()[1].decode()
        end(driver)
        return True

    def _kill_driver(self) -> None:
        self.random.choice(self.drivers).kill()
        self.kills["driver"] += 1

    def _kill_worker(self, store: Store) -> None:
        if pids := self._workers(store):
            with suppress(ProcessLookupError):  # its driver was killed a moment ago
                os.kill(self.random.choice(pids), signal.SIGKILL)
                self.kills["worker"] += 1

    def end(self) -> None:
        for driver in self.drivers:
            end(driver)


@pytest.fixture
def tormentor(tmp_path):
    made = Tormentor(tmp_path / "runs.sqlite", seed=6)
    yield made
    made.end()


@pytest.mark.parametrize("kills", [14, pytest.param(52, marks=pytest.mark.slow)])
def test_nothing_is_lost_or_recorded_twice_however_often_it_is_killed(tormentor, kills):
    tormentor.torment(kills)
    print(tormentor.kills, len(tormentor.runs), "runs")
    tormentor.end()
    with Store(tormentor.path) as store:
        _finish(store, tormentor.job)
        rows = {row["key"]: row for row in store.rows()}
        recorded = [key for (key,) in store.db.execute("SELECT key FROM recordings")]
        assert sorted(recorded) == sorted(rows)  # each exactly once
        assert steps_lost(store) == 0
        undisturbed = {outcome.key: outcome for run in tormentor.runs for outcome in execute([run])}
        assert rows.keys() == undisturbed.keys()
        for key, outcome in undisturbed.items():
            assert rows[key]["status"] == "done" and rows[key]["record"] == outcome.record
            assert store.history(key) == outcome.history and store.weights(key) == outcome.weights
        assert store.db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for table in ("checkpoints", "owners"):
            assert store.db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def steps_lost(store: Store) -> int:
    """Steps that were kept and yet done again: a run that goes on from less than its last checkpoint keeps a lower one."""
    furthest: dict[str, int] = {}
    lost = 0
    for key, step in store.db.execute("SELECT key, step FROM kept ORDER BY rowid"):
        lost += max(0, furthest.get(key, 0) - step)
        furthest[key] = max(step, furthest.get(key, 0))
    assert furthest  # something was kept
    return lost


def _finish(store: Store, job: Job) -> None:
    """Start again, as a user would; earlier sweeps are done, or the next would not have begun."""
    driver = start_driver(job)
    try:
        assert driver.wait(300) == 0, driver.communicate()[1].decode()
    finally:
        end(driver)
    assert not store.counts(job.sweep).open
