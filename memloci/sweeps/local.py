"""The driver on one machine: worker processes, each with a claim on the one store.

The driver trains nothing and decides nothing that is not in the store, so it may be killed at any moment, and two
of them may work on the same sweep. It starts workers, replaces those that die, takes back what the dead had
claimed, and looks on until nothing is waiting or running.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, Protocol

from memloci.sweeps.store import Counts, Store, StoreTrouble
from memloci.sweeps.worker import BAD_STORE, DONE, Job

LOOK = 0.1  # seconds between looks at the workers
SEARCH = 2.0  # seconds between searches for other drivers' dead
GRACE = 10.0  # seconds to keep checkpoints after Ctrl-C
# Several programs that each want all cores get in each other's way.
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
SHARED = {"OMP_NUM_THREADS": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Hand:
    """A worker process, and what it complains of."""

    process: subprocess.Popen[bytes]
    complaints: IO[bytes]

    def close(self) -> str:
        """Wait for its end; its last words."""
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        with self.complaints as complaints:
            complaints.seek(0)
            lines = complaints.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def run(job: Job, workers: int | None = None, progress: Progress = lambda text, done: None) -> None:
    """Work on a sweep until it has no open runs; Ctrl-C keeps everything."""
    workers = workers or os.cpu_count() or 1
    with Store(job.store) as store, Crew(replace(job, workers=workers), store) as crew:
        try:
            supervise(job, store, crew, progress)
        except KeyboardInterrupt:
            progress("stopping, checkpoints are being saved; Ctrl-C again stops at once", 0.0)
            raise


class Team(Protocol):
    """Those who train for one driver, wherever they are."""

    @property
    def owners(self) -> set[str]: ...  # known to live
    def bury(self) -> None: ...
    def fill(self, waiting: int) -> None: ...


def supervise(job: Job, store: Store, crew: Team, progress: Progress) -> None:
    """Until no run of the sweep is open: replace the dead, and take back what other drivers' dead had."""
    first = counts = store.counts(job.sweep)
    searched = seconds_to_ask = 0.0
    while counts.open:
        crew.bury()
        if time.monotonic() - searched > SEARCH:
            store.reclaim_dead(crew.owners, job.lease, job.most_deaths)
            searched = time.monotonic()
        crew.fill(counts.waiting)
        progress(_status_line(counts), _part(counts, first))
        time.sleep(max(LOOK, 10 * seconds_to_ask))
        began = time.monotonic()
        counts = store.counts(job.sweep)
        seconds_to_ask = time.monotonic() - began  # of a huge sweep it takes a while: not too often


def _status_line(counts: Counts) -> str:
    failed = f", {counts.failed} failed" if counts.failed else ""
    return f"{counts.done} of {counts.total} runs done, {counts.running} running{failed}"


def _part(counts: Counts, first: Counts) -> float:
    """Of what was open at the start, so that the time left is that of the work left."""
    return min(1.0, (first.open - counts.open + counts.part) / first.open)


class Crew:
    """The workers of one driver; none outlives the `with` block."""

    def __init__(self, job: Job, store: Store):
        self.job, self.store = job, store
        self.hands: dict[str, Hand] = {}
        self.stillborn = 0  # workers in a row that died before they had claimed anything

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        """At the end, or on Ctrl-C: ask, wait for checkpoints, and kill who does not answer."""
        for hand in self.hands.values():
            hand.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + GRACE
        try:
            for hand in self.hands.values():
                hand.process.wait(max(0.0, until - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        for owner, hand in self.hands.items():
            hand.process.kill()
            hand.close()
            try:
                self.store.release(owner)
            except StoreTrouble:  # the next driver finds that the owner is dead
                pass

    @property
    def owners(self) -> set[str]:
        return set(self.hands)

    def fill(self, waiting: int) -> None:
        for _ in range(min(self.job.workers - len(self.hands), waiting)):
            self._start()

    def _start(self) -> None:
        owner = secrets.token_hex(8)
        complaints = tempfile.TemporaryFile()
        process = subprocess.Popen(
            # -P: a file of the user's that is called random.py is not the one that is meant
            [sys.executable, "-P", "-m", "memloci.sweeps.worker", self.job.to_json(), owner],
            stdin=subprocess.PIPE,  # never written to: its end is the driver's end
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env=_environment(self.job.workers),
        )
        self.hands[owner] = Hand(process, complaints)

    def bury(self) -> None:
        """Take back what workers had that have ended; raises where starting others would not help."""
        for owner, hand in list(self.hands.items()):
            status = hand.process.poll()
            if status is None:
                continue
            words = hand.close()
            del self.hands[owner]
            if status == BAD_STORE:
                raise StoreTrouble(words)
            if status != DONE:
                self._died(owner, f"{_ending(status)}{': ' if words else ''}{words}")

    def _died(self, owner: str, cause: str) -> None:
        had = self.store.reclaim(owner, cause, self.job.most_deaths)
        self.stillborn = 0 if had else self.stillborn + 1
        if self.stillborn >= self.job.most_deaths:
            raise RuntimeError(f"workers do not start: {cause}")


def _ending(status: int) -> str:
    if status > 0:
        return f"exit status {status}"
    hint = ", perhaps out of memory" if status == -signal.SIGKILL else ""
    return f"killed by {signal.Signals(-status).name}{hint}"


def _environment(workers: int) -> dict[str, str]:
    """Workers import from where the driver does, and share cores and graphics memory."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {**os.environ, "PYTHONPATH": path}
    if workers > 1:
        environment |= SHARED
        environment["XLA_FLAGS"] = f"{ONE_THREAD} {os.environ.get('XLA_FLAGS', '')}".strip()
    return environment
