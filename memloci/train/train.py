"""`ml.train`: a task, or data, to a trained model.

    fit = ml.train(task, ml.Architecture(...), key=key)        fit.model, fit.record, fit.history

With `out`, a directory holds the model, its curves and a page about them when training ends, and until then a checkpoint,
from which `resume` goes on to the same result. All files are written whole or not at all. Who draws the page is said by
the caller (memloci/pipeline.py): this floor knows of no pages.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.files import parse_json, read_bytes, reading, replace_together
from memloci.core.numbers import number
from memloci.core.specs import shorten
from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from memloci.tasks.load import load_task
from memloci.tasks.task import Task
from memloci.train.record import RunRecord
from memloci.train.spec import DATA_KINDS, Run

RUNS, TRAINING, REPORT = "runs.json", "training.json", "report.html"
CHECKPOINT = "checkpoint-{}.safetensors"
KEEP_EVERY = 10.0  # seconds between checkpoints
MAX_CHECKPOINT = 2**32
DATA_ENDINGS = (".npz", ".txt")

Progress = Callable[[str, float], None]
Page = Callable[[Sequence["Fit"]], bytes]  # the page about a training


@dataclass(frozen=True)
class Fit:
    """A trained model, and how it got there."""

    run: Run
    model: Transformer
    record: RunRecord
    history: dict[str, list[Any]]

    @property
    def learned(self) -> bool:
        """Whether no error above the tolerance was seen."""
        error = self.record.err_sup
        return error is not None and error <= self.run.training.tolerance

    def to_dict(self) -> dict[str, Any]:
        return {"run": self.run.to_dict(), "record": self.record.to_dict(), "history": self.history}


class Interrupted(KeyboardInterrupt):
    """Training was stopped from outside; `str` says what is kept and how to go on."""


def train(
    task: Any,
    architecture: Architecture | Mapping[str, Any] | None = None,
    *,
    key: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    page: Page | None = None,
    **settings: Any,
) -> Fit:
    """One model. `task` is a task, a gallery name, a file, or a pair of arrays (x, y); `settings` are `Training`'s.

    `key` is a JAX key in place of `seed`.
    """
    if key is not None:
        import jax.random as jr

        settings["seed"] = int(jr.bits(key, dtype="uint32"))
    described, arrays = describe_task(task)
    run = Run(task=described, architecture=architecture, training=settings)
    return train_together([run], out=out, resume=resume, progress=progress, page=page, arrays=arrays)[0]


def train_together(
    runs: Sequence[Run],
    *,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    page: Page | None = None,
    arrays: Any = None,
) -> list[Fit]:
    """Runs that differ in numbers only (seed, rate, ...), in one compiled program; the fits in their order."""
    from memloci.train.data import Arrays
    from memloci.train.device import precision_mode
    from memloci.train.engine import Snapshot, execute
    from memloci.train.program import Program

    if not runs:
        raise BadInput("there are no runs to train")
    place = Path(out) if out is not None else None
    states = _resumed(runs, place) if resume else {}
    if place is not None and not resume:
        _claim(place, runs)
    tell, began = progress or (lambda text, done: None), time.monotonic()
    last: dict[str, Any] = {"snapshot": None, "kept": began}

    def keep(snapshot: Snapshot) -> None:
        last["snapshot"] = snapshot
        tell(_status_line(snapshot), snapshot.step / snapshot.steps)
        if place is not None and time.monotonic() - last["kept"] > KEEP_EVERY:
            _write_checkpoints(place, runs, snapshot)
            last["kept"] = time.monotonic()

    try:
        tell("compiling", 0.0)
        with precision_mode(runs[0]):
            program = Program(runs[0], Arrays(runs[0], arrays) if arrays is not None else None)
        outcomes = execute(runs, states=states, save=keep, program=program)
        fits = [Fit(run, o.model, o.record, o.history) for run, o in zip(runs, outcomes, strict=True)]
        if place is not None:
            write(fits, place)
    except KeyboardInterrupt:
        snapshot = last["snapshot"]
        if place is not None and not (place / RUNS).exists():  # it came while the last files were written
            raise Interrupted(_remove_page(place)) from None
        if place is not None and snapshot is not None:
            _write_checkpoints(place, runs, snapshot)
        raise Interrupted(_how_to_go_on(place, snapshot)) from None
    if place is not None and page is not None:
        try:
            tell("writing the report", 1.0)
            replace_together(place, {REPORT: page(fits)})
        except KeyboardInterrupt:
            raise Interrupted(_remove_page(place)) from None
    return fits


def best(fits: Iterable[Fit]) -> Fit:
    """The one with the lowest held-out loss."""
    return min(fits, key=lambda fit: _rank(fit.record.held_out))


def write(fits: Sequence[Fit], directory: Path) -> None:
    """The best model and all curves, in place of the checkpoints and of the page about an earlier training."""
    from memloci.model.store import save

    chosen = best(fits)
    content = {"format": 1, "fits": [fit.to_dict() for fit in fits], "best": list(fits).index(chosen)}
    beside = {TRAINING: (json.dumps(content, allow_nan=False) + "\n").encode()}
    remove = [RUNS, REPORT, *(CHECKPOINT.format(k) for k in range(len(fits)))]
    if chosen.record.diverged:
        replace_together(directory, beside, remove=remove)  # there are no weights, but what happened is told
        return
    data = chosen.run.task.get("kind") in DATA_KINDS
    extra = {"trained": chosen.run.to_dict()["training"]}
    task = None if data else chosen.run.record
    save(chosen.model, directory, task=task, extra=extra, beside=beside, remove=remove)


def describe_task(task: Any) -> tuple[dict[str, Any], Any]:
    """What a user may give as a task, as a run has it; and arrays, if these were given."""
    from memloci.train.data import describe, in_memory

    if isinstance(task, Task):
        return task.to_dict(), None
    if isinstance(task, dict):
        return task, None
    if isinstance(task, tuple) and len(task) == 2:
        return in_memory(*task)
    if not isinstance(task, str | Path):
        raise BadInput(f"a task is a task, a name, a file or a pair of arrays (x, y), found {shorten(task)}")
    if str(task).endswith(DATA_ENDINGS):
        return describe(task), None
    return load_task(task).to_dict(), None


def runs_in(directory: str | Path) -> list[Run]:
    """The runs of a training that was interrupted."""
    with reading(Path(directory)):
        return _runs_written(Path(directory))


def _runs_written(directory: Path) -> list[Run]:
    if not (directory / RUNS).exists():
        finished = (directory / TRAINING).exists()
        why = "the training there is finished" if finished else "no training was interrupted there"
        raise BadInput(f"{directory}: {RUNS}: no such file; {why}, so leave out --resume")
    try:
        content = parse_json(read_bytes(directory / RUNS, 2**26))
        if not isinstance(content, dict) or type(content.get("format")) is not int or content["format"] != 1:
            raise BadInput("not what memloci wrote: it has no format 1; start anew in another directory")
        if not isinstance(content.get("runs"), list) or not content["runs"]:
            raise BadInput("not what memloci wrote: it lists no runs; start anew in another directory")
        return [_run(fields) for fields in content["runs"]]
    except BadInput as error:
        raise error.within(f"{directory}: {RUNS}") from None


def _run(fields: Any) -> Run:
    if not isinstance(fields, dict):
        raise BadInput(f"a run must be an object, found {shorten(fields)}")
    return Run(**fields)


def _claim(directory: Path, runs: Sequence[Run]) -> None:
    """Say what is trained here, and find out before the work whether anything can be written."""

    def check() -> None:
        if (directory / RUNS).exists() and _keys(_runs_written(directory)) != _keys(runs):
            raise BadInput(
                f"{directory}: holds another training that was interrupted; resume it, or choose another"
            )

    content = {"format": 1, "runs": [run.to_dict() for run in runs]}
    replace_together(directory, {RUNS: (json.dumps(content, indent=1) + "\n").encode()}, check=check)


def _write_checkpoints(directory: Path, runs: Sequence[Run], snapshot: Any) -> None:
    states = snapshot.checkpoints()
    replace_together(directory, {CHECKPOINT.format(k): states[run.key] for k, run in enumerate(runs)})


def _resumed(runs: Sequence[Run], directory: Path | None) -> dict[str, bytes]:
    """The checkpoints of a training that was interrupted; those of another one are not its own."""
    if directory is None:
        raise BadInput("resume: needs `out`, the directory of the training to go on with")
    if _keys(runs_in(directory)) != _keys(runs):
        raise BadInput(
            f"{directory}: holds another training; `memloci train --resume --out {directory}` goes on with that"
        )
    checkpoints = {}
    with reading(directory):
        for k, run in enumerate(runs):
            path = directory / CHECKPOINT.format(k)
            if path.exists():
                checkpoints[run.key] = _intact(path)
    return checkpoints


def _intact(path: Path) -> bytes:
    from memloci.core.tensors import unpack

    try:
        data = read_bytes(path, MAX_CHECKPOINT)
        unpack(data)
        return data
    except BadInput as error:
        raise BadInput(f"{path}: {error}; delete the file to train this run from the start") from None


def _keys(runs: Sequence[Run]) -> list[str]:
    return [run.key for run in runs]


def _status_line(snapshot: Any) -> str:
    losses = [loss for loss in snapshot.losses.values() if loss is not None]
    loss = f"{number(min(losses))}" if losses else "no number"
    several = f"{len(snapshot.runs)} models, best " if len(snapshot.runs) > 1 else ""
    return f"step {snapshot.step:,} of {snapshot.steps:,}, {several}loss {loss}"


def _how_to_go_on(directory: Path | None, snapshot: Any) -> str:
    if snapshot is None:
        return "interrupted before the first evaluation; there is no checkpoint yet"
    done = f"interrupted at step {snapshot.step:,} of {snapshot.steps:,}"
    if directory is None:
        return f"{done}; without `out` no checkpoint is saved"
    return f"{done}; a checkpoint is saved, continue with: memloci train --resume --out {directory}"


def _remove_page(directory: Path) -> str:
    return (
        f"interrupted while the report was written; {directory} has the model and its curves, but no report"
    )


def _rank(loss: float | None) -> float:
    return float("inf") if loss is None else loss
