"""A worker: one process that claims runs, trains them and records the results, until none is waiting.

Runs that share a program are claimed together, so that it is compiled once. What a run does wrong is recorded as
its failure and the sweep goes on; only a store that cannot be written ends the worker. It ends with its driver,
and on SIGTERM it keeps checkpoints, gives back what it has, and goes. A process grows with every program that it compiles,
so after some of them, or above a limit of memory, it ends between two runs and the driver starts another.
"""

import importlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from memloci.core.errors import BadInput
from memloci.sweeps.process import end_with_parent, resident
from memloci.sweeps.store import LEASE, MOST_DEATHS, ClaimedRuns, Outcome, Store, StoreTrouble
from memloci.train.spec import Run

DONE, BAD_STORE = 0, 2  # exit status
ENGINE = "memloci.train.engine:execute"


class TrainingSnapshot(Protocol):
    """Where a training is."""

    @property
    def step(self) -> int: ...  # of all runs together
    @property
    def steps(self) -> int: ...  # the same, in the end
    def checkpoints(self) -> dict[str, bytes]: ...


class Execute(Protocol):
    """Train runs that share a program; `save` is called about once a second."""

    def __call__(
        self,
        runs: Sequence[Run],
        *,
        states: Mapping[str, bytes] = ...,
        save: Callable[[Any], None] | None = None,
    ) -> Sequence[Outcome]: ...


class Records(Protocol):
    """Where results go: the store, or what leads to it."""

    def save_checkpoints(self, owner: str, step: int, states: Mapping[str, bytes]) -> bool: ...
    def finish(self, owner: str, outcomes: Sequence[Outcome], cost: float | None = None) -> int: ...
    def fail(self, owner: str, keys: Sequence[str], error: str) -> None: ...
    def note(self, owner: str, keys: Sequence[str], text: str) -> None: ...


@dataclass(frozen=True)
class Job:
    """What a driver tells its workers; the times are in seconds, all tuned."""

    store: str
    sweep: str
    engine: str = ENGINE  # module:function
    workers: int = 1  # that share the sweep
    group: int = 8  # most runs claimed at once
    beat: float = 5.0  # between signs of life
    checkpoint: float = 10.0  # between checkpoints
    lease: float = LEASE
    most_deaths: int = MOST_DEATHS
    programs: int = 16  # that a process compiles before another takes over: XLA gives back no memory
    memory: float = 3.0  # gigabytes that a process may have before another takes over, at its next program

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class LeaseExpired(Exception):
    """Another worker has these runs now."""


class Stopped(Exception):
    """The driver asked this worker to stop."""


class Trainer:
    """What trains claimed runs, and records what comes of them."""

    def __init__(self, job: Job, owner: str, records: Records, execute: Execute):
        self.job, self.owner, self.records, self.execute = job, owner, records, execute
        self.stopping = False
        self.part = 0.0  # of the present runs, that is done
        self.kept = 0.0  # when the last checkpoint was

    def train(self, claim: ClaimedRuns) -> None:
        try:
            runs = claim.runs()
            if (problem := self._try(runs, claim.states)) is None:
                return
            if claim.states:
                text = f"trained from the start, as it could not go on from its checkpoint: {problem}"
                self.records.note(self.owner, list(claim.states), text)
            elif len(runs) == 1:
                self.records.fail(self.owner, claim.keys, problem)
                return
            # Together or from a checkpoint they failed: now one by one, from the start.
            for run in runs:
                if error := self._try([run], {}):
                    self.records.fail(self.owner, [run.key], error)
        except LeaseExpired:
            pass
        except StoreTrouble:
            raise
        except BadInput as error:
            self.records.fail(self.owner, claim.keys, str(error))

    def _try(self, runs: Sequence[Run], states: Mapping[str, bytes]) -> str | None:
        """Train and record; what went wrong, if anything, as one line."""
        self.part, self.kept, start = 0.0, time.monotonic(), time.monotonic()
        try:
            outcomes = self.execute(runs, states=states, save=self._save_checkpoints)
        except (StoreTrouble, LeaseExpired, Stopped):
            raise
        except BadInput as error:
            return str(error)
        except Exception as error:  # whatever it is, the sweep goes on
            return " ".join(f"{type(error).__name__}: {error}".split())
        if forgotten := {run.key for run in runs} - {outcome.key for outcome in outcomes}:
            return f"the engine has no result of {len(forgotten)} of {len(runs)} runs"
        # What a resumed run costs is not known; the others share the time.
        cost = None if states else (time.monotonic() - start) / len(runs)
        self.records.finish(self.owner, outcomes, cost)
        return None

    def _save_checkpoints(self, snapshot: TrainingSnapshot) -> None:
        self.part = snapshot.step / snapshot.steps
        if self.stopping or time.monotonic() - self.kept >= self.job.checkpoint:
            if not self.records.save_checkpoints(self.owner, snapshot.step, snapshot.checkpoints()):
                raise LeaseExpired
            self.kept = time.monotonic()
        if self.stopping:
            raise Stopped

    def stop(self, *_: object) -> None:
        self.stopping = True


class Worker(Trainer):
    """One that finds its own work in the store, and gives signs of life."""

    def __init__(self, job: Job, owner: str, store: Store, execute: Execute):
        super().__init__(job, owner, store, execute)
        self.store = store

    def work(self) -> None:
        compiled, programs = None, 0
        with self._signs_of_life():
            try:
                while not self.stopping and (claim := self._claim(compiled, not self._worn(programs))):
                    programs += claim.program != compiled
                    self.train(claim)
                    compiled = claim.program
            except Stopped:
                pass
            self.store.release(self.owner)

    def _worn(self, programs: int) -> bool:
        """Whether another process had better go on: it finishes what it has compiled, and ends between two runs."""
        return programs >= self.job.programs or (programs > 0 and resident() > self.job.memory * 2**30)

    def _claim(self, compiled: str | None, other_programs: bool) -> ClaimedRuns | None:
        job = self.job
        share = {"most": job.group, "workers": job.workers}
        return self.store.claim(
            job.sweep, self.owner, **share, compiled=compiled, other_programs=other_programs
        )

    @contextmanager
    def _signs_of_life(self) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _beat(self, ended: threading.Event) -> None:
        with Store(self.job.store) as store:
            while not ended.wait(self.job.beat):
                try:
                    store.beat(self.owner, self.part)
                except StoreTrouble:  # the main thread meets it too, and says so
                    pass


def load_engine(name: str) -> Execute:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def main(arguments: Sequence[str]) -> int:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which then asks by SIGTERM
    job, owner = Job(**json.loads(arguments[0])), arguments[1]
    try:
        with Store(job.store) as store:
            worker = Worker(job, owner, store, load_engine(job.engine))
            signal.signal(signal.SIGTERM, worker.stop)
            worker.work()
    except StoreTrouble as error:
        print(error, file=sys.stderr)
        return BAD_STORE
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
