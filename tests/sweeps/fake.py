"""An engine that learns nothing: quick, deterministic, resumable, and faulty where a test asks for it.

The result of a run is a chain of hashes of its key, one per step, so that a step left out or done twice shows.
Seeds from 1,000,000 on ask for faults.
"""

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memloci.core.errors import BadInput
from memloci.train.spec import Run

CRASH, REFUSE, DIE, DIVERGE, SPOIL = (1_000_000 + k for k in range(5))
CHUNK = 10  # steps between snapshots


@dataclass
class Course:
    run: Run
    step: int = 0
    value: str = ""

    def advance(self) -> None:
        for _ in range(min(CHUNK, self.run.training.steps - self.step)):
            self.value = hashlib.sha256(f"{self.run.key}{self.value}{self.step}".encode()).hexdigest()
            self.step += 1

    def state(self) -> bytes:
        return json.dumps([self.step, self.value]).encode()


@dataclass
class Snapshot:
    courses: list[Course]

    @property
    def step(self) -> int:
        return min(course.step for course in self.courses)

    @property
    def steps(self) -> int:
        return max(course.run.training.steps for course in self.courses)

    def checkpoints(self) -> dict[str, bytes]:
        return {course.run.key: course.state() for course in self.courses}


@dataclass
class Outcome:
    key: str
    record: dict[str, Any]
    history: dict[str, list[Any]] = field(default_factory=dict)
    weights: bytes = b""


def execute(
    runs: Sequence[Run],
    *,
    states: Mapping[str, bytes] = {},
    save: Callable[[Any], None] | None = None,
) -> list[Outcome]:
    assert len({run.program for run in runs}) == 1
    courses = [Course(run, *json.loads(states.get(run.key, b'[0, ""]'))) for run in runs]
    _misbehave({run.training.seed for run in runs}, states)
    while any(course.step < course.run.training.steps for course in courses):
        time.sleep(
            runs[0].training.noise / 1000
        )  # milliseconds a chunk takes, where a test needs it to take some
        for course in courses:
            course.advance()
        if save:
            save(Snapshot(courses))
    return [_outcome(course) for course in courses]


def _misbehave(seeds: set[int], states: Mapping[str, bytes]) -> None:
    if CRASH in seeds:
        raise RuntimeError("the engine broke")
    if REFUSE in seeds:
        raise BadInput("the engine refuses this")
    if DIE in seeds:
        os.kill(os.getpid(), signal.SIGKILL)
    if SPOIL in seeds and states:
        raise KeyError("a checkpoint of another kind")


def _outcome(course: Course) -> Outcome:
    run = course.run
    if run.training.seed == DIVERGE:
        record = {"status": "diverged", "steps": 7, "seconds": 0.5, "err_sup": None, "err_mean_square": None}
        return Outcome(run.key, record, _history([0, 7], [1.0, float("nan")]))
    error = int(course.value[:8], 16) / 2**32
    record = {"status": "done", "steps": course.step, "seconds": 0.5, "value": course.value}
    record |= {"err_sup": error, "err_mean_square": error**2, "stopped": "all steps"}
    record["architecture"] = {"layers": 1, "heads": 1, "width": 0}
    return Outcome(run.key, record, _history([0, course.step], [1.0, error]), course.value.encode())


def _history(steps: list[int], losses: list[float]) -> dict[str, list[Any]]:
    """With the names that the engine gives them."""
    return {"step": steps, **dict.fromkeys(("loss", "held_out", "err_mean_square", "err_sup"), losses)}
