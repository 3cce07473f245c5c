"""Runs, jobs and drivers that the tests of sweeps share."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from memloci.sweeps.worker import Job
from memloci.train.spec import Run

ROOT = Path(__file__).parents[2]
FAKE = "tests.sweeps.fake:execute"
TASK = {"kind": "fixed", "lags": [3], "readout": "x1"}
DRIVER = (
    "import json, sys; from memloci.sweeps.local import run; from memloci.sweeps.worker import Job; "
    "run(Job(**json.loads(sys.argv[1])), int(sys.argv[2]))"
)


def make_run(seed: int = 0, batch: int = 1, **training: Any) -> Run:
    """A run whose architecture is that of compiled weights: to check it takes no JAX, so processes start quickly.

    Another batch is another program.
    """
    settings = {"start": "compiled", "steps": 40, "seed": seed, "batch": batch, **training}
    return Run(task=TASK, training=settings)


def make_runs(seeds: Iterable[int], batches: Iterable[int] = (1,), **training: Any) -> list[Run]:
    return [make_run(seed, batch, **training) for batch in batches for seed in seeds]


def start_driver(job: Job, workers: int = 2) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, job.to_json(), str(workers)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


def wait_until(condition: Callable[[], object]) -> None:
    """However slow the machine; a test that waits in vain is ended by this."""
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
