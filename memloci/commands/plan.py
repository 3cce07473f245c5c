"""`memloci plan`: architectures that meet a tolerance, and why the others do not."""

from pathlib import Path
from typing import Annotated, Any

import typer

from memloci.commands.shared import (
    MISSED,
    Json,
    Precision,
    Seed,
    Task,
    Tolerance,
    print_json,
    print_view,
    progress_bar,
    write_text,
)
from memloci.core.errors import BadInput
from memloci.core.precision import DEFAULT

DATA = (".npy", ".npz", ".csv", ".parquet", ".jsonl", ".txt")
EXAMPLE = "memloci plan echo --tolerance 1e-4 --precision float64"


def plan(
    task: Task,
    tolerance: Tolerance = 1e-3,
    precision: Precision = DEFAULT,
    route: Annotated[
        list[str] | None, typer.Option("--route", help="Consider only this route; may be repeated.")
    ] = None,
    depth_table: Annotated[
        bool,
        typer.Option(
            "--depth-table", help="Show layers against heads, bits and error for the lags instead of plans."
        ),
    ] = False,
    with_rates: Annotated[
        bool,
        typer.Option(
            "--rates",
            help="Also show error against heads, mass and width, with slopes; takes a minute or two.",
        ),
    ] = False,
    target: Annotated[
        str | None,
        typer.Option("--target", help="For data: the target, a column or `next`.", show_default=False),
    ] = None,
    max_lag: Annotated[
        int, typer.Option("--max-lag", help="For data: the largest lag that is searched.", min=1)
    ] = 512,
    fdr: Annotated[
        float, typer.Option("--fdr", help="For data: the rate of false discoveries to stay below.")
    ] = 0.05,
    with_trials: Annotated[
        bool,
        typer.Option(
            "--try", help="For data: train the suggested architecture and two alternatives briefly."
        ),
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """List architectures that meet the tolerance, cheapest first, and the reason why the others do not. The memory of data is detected first."""
    from memloci.synthesize import plan as make_plans
    from memloci.tasks.load import load_task
    from memloci.tradeoffs import rates
    from memloci.tradeoffs.depth_table import depth_table as make_depth_table
    from memloci.views.terminal import plans as views

    learnt: dict[str, Any] = {}
    if Path(task).suffix.lower() in DATA:
        record, learnt = _detected(task, target, max_lag, fdr, with_trials, seed, as_json)
    else:
        record = load_task(task)
    if depth_table:
        with progress_bar() as progress:
            rows = make_depth_table(record, precision, progress=progress)
        if as_json:
            print_json([row.to_dict() for row in rows])
        else:
            print_view(views.depth_rows_table(task, precision, rows))
        return
    with progress_bar() as progress:
        plans = make_plans(record, tolerance, precision, routes=route, progress=progress)
        curves = rates.stated(record)
        if with_rates:
            curves = rates.measured(record, (*plans.met, *plans.missed), rates.THOROUGH, progress)
    if as_json:
        proved = views.plans_dict(plans, curves)
        print_json({**learnt, "proved": proved} if learnt else proved)
    else:
        print_view(views.plans_table(task, plans))
        print_view(views.rates_table(curves))
    if not plans.met:
        raise typer.Exit(MISSED)


def _detected(
    data: str, target: str | None, max_lag: int, fdr: float, with_trials: bool, seed: int, quiet: bool
) -> tuple[Any, dict[str, Any]]:
    """The task that data has, shown; and what was learnt, for machines."""
    from memloci import pipeline
    from memloci.views.terminal.detection import detection_view, trials_table

    with progress_bar() as progress:
        detection = pipeline.detect(
            data, max_lag=max_lag, fdr=fdr, target=target, seed=seed, progress=progress
        )
    if not quiet:
        print_view(detection_view(data, detection))
    if detection.task is None:
        if quiet:
            print_json({"learnt": detection.to_dict(), "proved": None})
        raise BadInput(
            f"{data}: there is no task to plan for: kind {detection.kind!r}; {detection.notes[-1] if detection.notes else ''}"
        )
    learnt: dict[str, Any] = {"learnt": detection.to_dict()}
    if with_trials:
        with progress_bar() as progress:
            progress("training the suggestion and two alternatives", 0.5)
            rows = pipeline.try_architectures(detection, data, target=target, seed=seed)
        learnt["tried"] = [row.to_dict() for row in rows]
        if not quiet:
            print_view(trials_table(rows))
    if not quiet:
        write_text("\nProved, given this task:\n")
    return detection.task, learnt
