"""`memloci plan`: architectures that meet a tolerance, and why the others do not."""

from typing import Annotated

import typer

from memloci.commands.shared import (
    MISSED,
    Json,
    Precision,
    Task,
    Tolerance,
    print_json,
    print_view,
    progress_bar,
)
from memloci.core.precision import DEFAULT

EXAMPLE = "memloci plan echo --tolerance 1e-4 --precision float64"


def plan(
    task: Task,
    tolerance: Tolerance = 1e-3,
    precision: Precision = DEFAULT,
    route: Annotated[
        list[str] | None, typer.Option("--route", help="Look at this route only; may be repeated.")
    ] = None,
    depth_table: Annotated[
        bool,
        typer.Option("--depth-table", help="Instead: layers against heads, bits and error for its lags."),
    ] = False,
    with_rates: Annotated[
        bool,
        typer.Option(
            "--rates", help="Also error against heads, mass and width, with slopes; a minute or two."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Architectures that meet the tolerance, cheapest first, and for those that cannot, why."""
    from memloci.synthesize import plan as make_plans
    from memloci.tasks.load import load_task
    from memloci.tradeoffs import rates
    from memloci.tradeoffs.depth_table import depth_table as make_depth_table
    from memloci.views.terminal import plans as views

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
        found = rates.stated(record)
        if with_rates:
            found = rates.measured(record, (*plans.met, *plans.missed), rates.THOROUGH, progress)
    if as_json:
        print_json(views.plans_dict(plans, found))
    else:
        print_view(views.plans_table(task, plans))
        print_view(views.rates_table(found))
    if not plans.met:
        raise typer.Exit(MISSED)
