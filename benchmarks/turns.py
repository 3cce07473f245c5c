"""Contenders in processes of their own, run in turn: what disturbs one disturbs all alike.

A worker is a module that ends with `serve(start)` and is started as `python -m benchmarks.some_worker NAME`.
It speaks JSON lines over its pipes:

    worker   {"ready": true}            or {"error": "..."}, if this contender cannot run here
    driver   {"run": "case"}
    worker   {"seconds": 0.12, ...}     or {"error": "..."}; further keys are passed on

A case is prepared at its first run: built, compiled, warmed up. That is never in the time. Of the prepared
cases only the latest is kept, so run one case to the end before the next.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

Answer = dict[str, Any]
Measure = Callable[[], Answer]  # one timed run
Prepare = Callable[[str], Measure]  # of a case
Result = TypeVar("Result")

LIMIT = 600.0  # seconds for one answer, preparation included
ENVIRONMENT = {  # of every contender
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # spares page faults of large fresh arrays; only before start
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
ROOT = Path(__file__).parents[1]


# -- in a worker ------------------------------------------------------------------------------------------


def serve(start: Callable[[str], Prepare], cores: int = 1) -> None:
    """Answer until the driver closes the pipe. `start(NAME)` should import what the contender needs: only
    then does every thread of it stay on the same few cores."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes elsewhere

    def tell(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    pin(cores)
    try:
        prepare = start(sys.argv[1])
    except Exception as error:
        return tell({"error": _text(error)})
    tell({"ready": True})
    case, measure = None, None
    for line in sys.stdin:
        try:
            wanted = json.loads(line)["run"]
            if measure is None or wanted != case:
                case = measure = None  # free its arrays before the next ones are made
                case, measure = wanted, prepare(wanted)
            tell(measure())
        except Exception as error:
            tell({"error": _text(error)})


def pin(cores: int) -> None:
    """Stay on the last few cores, where the system allows to say so."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def best_within(job: Callable[[], Result], budget: float = 0.2) -> tuple[float, Result]:
    """Repeat a short job for `budget` seconds and keep its best time; a long one runs once.

    Time is the CPU time of the process. With one thread on one core that is the wall time of an idle machine, and
    neighbours disturb it little.
    """
    best, end = float("inf"), time.perf_counter() + budget
    while True:
        start = time.process_time()
        result = job()
        best = min(best, time.process_time() - start)
        if time.perf_counter() >= end:
            return best, result


def _text(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:300]}"


# -- in the driver ----------------------------------------------------------------------------------------


class Worker:
    """One contender's process. After a failure `error` says why, and every answer repeats it."""

    def __init__(self, module: str, name: str):
        self.error: str | None = None
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            encoding="utf-8",
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        )

    def wait(self) -> None:
        """Until it is ready, or has said why it cannot run."""
        self.error = self._answer().get("error")

    def run(self, case: str) -> Answer:
        if self.error is not None:
            return {"error": self.error}
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the answer will tell
            self.process.stdin.write(json.dumps({"run": case}) + "\n")
            self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Answer:
        assert self.process.stdout is not None
        asked = time.monotonic()
        alarm = threading.Timer(LIMIT, self.process.kill)
        alarm.start()
        try:
            line = self.process.stdout.readline()
        finally:
            alarm.cancel()
        if line:
            return json.loads(line)
        status = self.process.wait()
        if time.monotonic() - asked >= LIMIT:
            self.error = f"no answer within {LIMIT:g} s"
        else:
            self.log.seek(0)
            said = [line.strip() for line in self.log if line.strip()]
            self.error = " ".join([f"ended with status {status};", *said[-1:]])[:300]
        return {"error": self.error}

    def end(self) -> None:
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg") and self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)  # its children too
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


@contextmanager
def started(module: str, names: Iterable[str]) -> Iterator[dict[str, Worker]]:
    """The workers, ready or with an error, and killed at the end whatever happens."""
    workers: dict[str, Worker] = {}
    try:
        for name in names:
            workers[name] = Worker(module, name)
        for worker in workers.values():
            worker.wait()
        yield workers
    finally:
        for worker in workers.values():
            worker.end()


def in_turn(workers: Mapping[str, Worker], case: str, rounds: Mapping[str, int]) -> dict[str, Answer]:
    """Run one case round after round, each contender as often as `rounds` says, and keep its best answer.

    Who fails once is out of this case.
    """
    best: dict[str, Answer] = {}
    for turn in range(max(rounds.values(), default=0)):
        for name, own in rounds.items():
            if turn >= own or "error" in best.get(name, {}):
                continue
            answer = workers[name].run(case)
            if "error" in answer or name not in best or answer["seconds"] < best[name]["seconds"]:
                best[name] = answer
    return best
