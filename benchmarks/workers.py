"""Contenders in processes of their own, driven in turn: one JSON line asks, one JSON line answers.

A process keeps its own libraries, flags and allocator, and one thread. Time is the CPU time of the process:
with one thread that is the wall time of an idle machine, and neighbours disturb it little.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

# Page faults of large fresh buffers cost every contender alike; huge pages spare them. Only before start.
ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}
Build = Callable[[dict[str, Any]], tuple[dict[str, Any], Callable[[int], None]]]


class Worker:
    """One contender: `module` is run as a program that calls `serve`."""

    def __init__(self, module: str, job: dict[str, Any]):
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ENVIRONMENT,
        )
        self.answer = self._ask(job)

    def seconds(self, steps: int) -> float:
        """CPU time of one step, on average over `steps`."""
        return self._ask({"steps": steps})["seconds"]

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contender ended with code {self.process.wait()}; its messages are above")
        return json.loads(line)


def serve(build: Build) -> None:
    """Read a job, say what was built, then run as many steps as asked until the input ends."""
    if hasattr(os, "sched_setaffinity"):  # one core: no library starts a second thread to wait in
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    own = os.fdopen(os.dup(1), "w")  # libraries print too: keep the answers apart
    os.dup2(2, 1)
    answer, run = build(json.loads(sys.stdin.readline()))
    print(json.dumps(answer), file=own, flush=True)
    for line in sys.stdin:
        steps = json.loads(line)["steps"]
        start = time.process_time()
        run(steps)
        print(json.dumps({"seconds": (time.process_time() - start) / steps}), file=own, flush=True)


def cpu_seconds(job: Callable[[], object], rounds: int) -> float:
    """The best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        job()
        best = min(best, time.process_time() - start)
    return best
