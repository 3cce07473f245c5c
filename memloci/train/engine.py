"""Training: runs in, outcomes out, in chunks that can be interrupted.

    while some run is not done:   advance all by `evaluate_every` steps,  note what was seen,  show a snapshot

The unit of work is a group of runs that share a compiled program (`Run.program`); a grid is a few such groups. A run ends
after its steps, on a plateau (`patience` evaluations without improvement of the held-out loss), or when its loss is no
number any more, which is a result too.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memloci.core.errors import BadInput
from memloci.model.store import weights_bytes
from memloci.model.transformer import Transformer
from memloci.train.checkpoint import HISTORY, Course, from_bytes, to_bytes
from memloci.train.device import precision_mode
from memloci.train.program import Program
from memloci.train.record import RunRecord
from memloci.train.spec import Run, Training


@dataclass(frozen=True)
class Snapshot:
    """What can be shown, or kept, between two chunks."""

    runs: Sequence[Run]
    courses: Sequence[Course]

    @property
    def step(self) -> int:
        """Of all runs together, steps done; those that have ended count as complete."""
        return sum(
            run.training.steps if ended(run.training, course) else course.step
            for run, course in zip(self.runs, self.courses, strict=True)
        )

    @property
    def steps(self) -> int:
        return sum(run.training.steps for run in self.runs)

    @property
    def losses(self) -> dict[str, float | None]:
        last = lambda course: course.history["held_out"][-1] if course.history["held_out"] else None
        return {run.key: last(course) for run, course in zip(self.runs, self.courses, strict=True)}

    def checkpoints(self) -> dict[str, bytes]:
        return {run.key: to_bytes(run, course) for run, course in zip(self.runs, self.courses, strict=True)}


@dataclass(frozen=True)
class Outcome:
    """The result of a run: numbers, curves, and weights unless they are none."""

    key: str
    record: RunRecord
    history: dict[str, list[Any]]
    weights: bytes
    model: Transformer


def execute(
    runs: Sequence[Run],
    *,
    states: Mapping[str, bytes] | None = None,
    save: Callable[[Snapshot], None] | None = None,
    program: Program | None = None,
) -> list[Outcome]:
    """Train runs that share a program; `states` are checkpoints to go on from, `save` sees every chunk."""
    if not runs or len({run.program for run in runs}) > 1:
        raise BadInput("a group of runs to train together must share one program")
    with precision_mode(runs[0]):
        return _execute(runs, states or {}, save, program or _program(runs[0]))


def _execute(
    runs: Sequence[Run],
    states: Mapping[str, bytes],
    save: Callable[[Snapshot], None] | None,
    program: Program,
) -> list[Outcome]:
    courses = [_begin(program, run, states.get(run.key)) for run in runs]
    numbers, data = [program.numbers(run) for run in runs], [program.data_of(run) for run in runs]
    while True:
        counts = [_next(run.training, course) for run, course in zip(runs, courses, strict=True)]
        if not any(counts):
            break
        compiling, began = program.compile_seconds, time.perf_counter()
        moved, reports = program.advance([course.state for course in courses], numbers, data, counts)
        seconds = time.perf_counter() - began - (program.compile_seconds - compiling)
        for k, count in enumerate(counts):
            if count:
                share = seconds * count / sum(counts)
                courses[k] = _noted(courses[k], moved[k], reports[k], share)
        if save is not None:
            save(Snapshot(runs, courses))
    worst = program.err_adversarial([course.state for course in courses])
    return [_outcome(program, *each) for each in zip(runs, courses, worst, strict=True)]


_latest: dict[str, Program] = {}


def _program(run: Run) -> Program:
    """The last one is kept: a sweep asks for the same program many times in a row."""
    if run.program not in _latest:
        _latest.clear()
        _latest[run.program] = Program(run)
    return _latest[run.program]


def ended(training: Training, course: Course) -> bool:
    return course.diverged or course.step >= training.steps or _plateau(training, course)


def _begin(program: Program, run: Run, state: bytes | None) -> Course:
    fresh = program.start(run)
    if state is not None:
        return from_bytes(run, state, fresh)
    return Course(fresh, {name: [] for name in HISTORY}, 0.0)


def _next(training: Training, course: Course) -> int:
    """How many steps come next: up to the next whole multiple of `evaluate_every`, wherever one starts."""
    if ended(training, course):
        return 0
    every = training.evaluate_every
    return min(every - course.step % every, training.steps - course.step)


def _noted(course: Course, state: Any, report: Any, seconds: float) -> Course:
    values = (int(state.step), *(_finite(value) for value in report))
    history = {name: [*course.history[name], value] for name, value in zip(HISTORY, values, strict=True)}
    return Course(state, history, course.seconds + seconds)


def _plateau(training: Training, course: Course) -> bool:
    if training.patience is None:
        return False
    best, since = math.inf, 0
    for loss in course.history["held_out"]:
        since += 1
        if loss is not None and loss < best * (1 - training.improvement):
            best, since = loss, 0
    return since >= training.patience


def _outcome(program: Program, run: Run, course: Course, err_adversarial: float | None) -> Outcome:
    model, history = program.model(course.state.w), course.history
    last = {name: values[-1] for name, values in history.items()}
    record = RunRecord(
        status="diverged" if course.diverged else "done",
        stopped=_why(run.training, course),
        steps=course.step,
        seconds=round(course.seconds, 4),
        loss=last["loss"],
        held_out=last["held_out"],
        parameters=model.parameter_count,
        architecture=program.architecture,
        channels=model.channels,
        outputs=model.outputs,
        diverged_at=int(course.state.diverged) if course.diverged else None,
        measures=_measures(run.training, last, err_adversarial),
    )
    return Outcome(run.key, record, history, b"" if course.diverged else weights_bytes(model), model)


def _measures(
    training: Training, last: Mapping[str, Any], err_adversarial: float | None
) -> dict[str, float | None]:
    """What can be compared with other runs: text has bits, and only a target can be attacked."""
    if training.loss == "cross-entropy":
        return {"bits_per_byte": last["held_out"] and last["held_out"] / math.log(2)}
    sampled = {"err_mean_square": last["err_mean_square"], "err_sup": last["err_sup"]}
    if err_adversarial is None:
        return sampled
    sup, worst = last["err_sup"], _finite(err_adversarial)
    largest = None if sup is None or worst is None else max(sup, worst)
    return {**sampled, "err_sampled": sup, "err_adversarial": worst, "err_sup": largest}


def _why(training: Training, course: Course) -> str:
    if course.diverged:
        return f"the loss was no number at step {int(course.state.diverged)}"
    return "all steps" if course.step >= training.steps else "plateau"


def _finite(value: Any) -> float | None:
    value = float(value)
    return value if math.isfinite(value) else None
