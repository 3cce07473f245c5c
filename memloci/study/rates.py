"""Error against one size at a time: the paper's slope, what is proved, what is built, what is trained.

    slope = d log10 error / d log10 size

| curve | where it comes from |
|---|---|
| paper | a slope: constants are not explicit, so the line starts at the first point of another curve |
| proved floor | what no model of the kind gets below (compiled_floors.py) |
| compiled | weights by construction: the certified worst case, and what `measure` saw |
| trained | gradient descent from random weights: a rate tuned on a pilot seed, then fresh seeds |

Both errors are shown. The mean square has the square of the certified worst case as its bound, and twice the paper's
slope. A trained point is the mean over seeds of log10 error, with its 95 % interval. Slopes of compiled curves are those
of the part that falls: beyond it a wall is met, not a rate. Their intervals say how straight a line is; only those of
trained curves are about chance.

A curve that is missing has a note that says why.
"""

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.study import finding_cache
from memloci.study.claim import Panel, Progress, Result
from memloci.study.compiled_curves import CompiledResults, RatesRequest, compiled_from_dict
from memloci.study.compiled_floors import capacity_floor
from memloci.study.compiled_sizes import compiled
from memloci.study.rates_curves import MEASURES, Slope, panel_of, paper_of, rows_of, slopes_of
from memloci.study.rates_request import arms_of, read, runs_without_result
from memloci.study.tuned_runs import tuned_runs
from memloci.tasks.load import load_task
from memloci.tasks.task import Task
from memloci.train.cache import directory

STEPS, SEEDS = 600, 5
WIDER = 2  # times that the two rates of tuned_runs.py are followed up where the better one is at an end


@dataclass(frozen=True)
class RatesFinding:
    """Error against one size: two panels, their numbers, slopes, and what is missing."""

    task: str
    description: str
    kind: str
    vary: str
    values: tuple[int, ...]
    encoding: str
    seeds: int  # 0: nothing was trained
    steps: int
    panels: tuple[Panel, ...]  # the largest error, the mean square
    rows: tuple[dict[str, Any], ...]  # one for every point of every curve
    slopes: tuple[Slope, ...]
    paper: str  # its rate in words; empty where it states none
    floors: dict[str, str]  # what each floor says
    notes: tuple[str, ...]
    seconds: float  # of one core, for runs, compilations and computations
    command: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rates(
    task: str | Path | Task,
    vary: str,
    *,
    values: Sequence[int] | None = None,
    encoding: str = "lin",
    seeds: int = SEEDS,
    steps: int = STEPS,
    seed: int = 0,
    store: str | Path = "runs.sqlite",
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    trained: bool = True,
    progress: Progress | None = None,
) -> RatesFinding:
    """Error against `vary`. Runs go through the store, so a second call trains nothing."""
    record = task if isinstance(task, Task) else load_task(task)
    name = record.description or record.kind if isinstance(task, Task) else str(task)
    request = read(record, vary, values, encoding, seeds, steps, seed)
    tell, began = progress or (lambda text, done: None), time.process_time()
    share = 0.4 if trained else 1.0
    built = _compiled(request, lambda text, done: tell(text, share * done))
    computed = time.process_time() - began
    results, cost = dict[int, Result](), 0.0
    notes = list(built.notes)
    arms = arms_of(request, steps, notes)
    if not trained:
        notes.append("trained: nothing, as asked")
    elif arms:
        where = {"workers": workers, "engine": engine, "address": address}
        named, cost = tuned_runs(
            list(arms.values()),
            name=f"rates-{vary}",
            store=store,
            seeds=range(seed, seed + seeds),
            wider=WIDER,
            progress=lambda text, done: tell(text, share + (1 - share) * done),
            **where,
        )
        results = {value: named[arm.name] for value, arm in arms.items()}
        notes += runs_without_result(results)
    floors = list(built.floors)
    if arms and (floor := capacity_floor(request, next(iter(arms.values())).architecture or {})) is not None:
        floors.append(floor)
    paper = paper_of(request, notes)
    panels = tuple(panel_of(request, measure, built, floors, results, paper, notes) for measure in MEASURES)
    return RatesFinding(
        task=name,
        description=record.description,
        kind=record.kind,
        vary=vary,
        values=request.values,
        encoding=encoding,
        seeds=seeds if results else 0,
        steps=steps,
        panels=panels,
        rows=tuple(rows_of(built, floors, results)),
        slopes=tuple(slopes_of(request, panels)),
        paper=paper.statement if paper else "",
        floors={floor.name: floor.statement for floor in floors},
        notes=tuple(dict.fromkeys(notes)),
        seconds=round(computed + cost, 1),
        command=_command(task, request, seeds, steps, seed, trained, values),
    )


def _compiled(request: RatesRequest, progress: Progress) -> CompiledResults:
    """Kept beside the compiled programs (train/cache.py), so the same question again only draws."""
    settings = [
        request.task.to_dict(),
        *(getattr(request, f.name) for f in fields(request) if f.name != "task"),
    ]
    name, where = finding_cache.fingerprint(settings), directory()
    file = where / "curves" / f"{name[:32]}.json" if where else None
    if file is not None and (stored := finding_cache.read(file, name)) is not None:
        return compiled_from_dict(stored)
    built = compiled(request, progress)
    if file is not None:
        try:
            finding_cache.write(file, name, asdict(built))
        except BadInput:  # nothing can be written there: it is computed again next time
            pass
    return built


def _command(
    task: Any,
    request: RatesRequest,
    seeds: int,
    steps: int,
    seed: int,
    trained: bool,
    values: Sequence[int] | None,
) -> str:
    words = ["memloci", "rates", "TASK.toml" if isinstance(task, Task) else str(task), "--vary", request.vary]
    words += ["--encoding", request.encoding] if request.encoding != "lin" else []
    words += ["--values", ",".join(map(str, request.values))] if values is not None else []
    words += ["--seeds", str(seeds)] if seeds != SEEDS else []
    words += ["--steps", str(steps)] if steps != STEPS else []
    words += ["--seed", str(seed)] if seed else []
    return shlex.join(words + ([] if trained else ["--no-train"]))
