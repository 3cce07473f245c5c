"""`memloci compile`: weights by construction, with a certificate and a report."""

from pathlib import Path
from typing import Annotated

import typer

from memloci.commands.shared import (
    MISSED,
    EvaluationPath,
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
from memloci.core.precision import DEFAULT

EXAMPLE = "memloci compile echo --out out/echo --tolerance 1e-4"


def compile(
    task: Task,
    out: Annotated[Path, typer.Option("--out", help="The directory to write.", show_default=False)],
    tolerance: Tolerance = 1e-3,
    precision: Precision = DEFAULT,
    route: Annotated[
        str | None, typer.Option("--route", help="Use this route instead of the cheapest one.")
    ] = None,
    path: EvaluationPath = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compile weights by construction, and write them with a certificate and a report."""
    import jax.random as jr

    from memloci import pipeline
    from memloci.core.files import require_writable
    from memloci.tasks.load import load_task
    from memloci.views.terminal import plans as views

    record = load_task(task)
    record.to_dict()  # a task that cannot be written is refused before the work, not after
    require_writable(out)
    with progress_bar() as progress:
        planning = lambda text, done: progress(text, 0.8 * done)
        plans = pipeline.plan(
            record, tolerance, precision, routes=[route] if route else None, progress=planning
        )
        built = pipeline.compile(record, plans.best, path=path)
        progress("measuring", 0.85)
        measurement = pipeline.measure(built.model, record, key=jr.key(seed))
        progress("writing the report", 0.95)
        pipeline.write(built, out, plans, measurement)
    if as_json:
        print_json(
            {"directory": str(out), "route": built.plan.route, "certificate": built.certificate.to_dict()}
        )
    else:
        print_view(views.certificate_table(built.certificate, measurement))
        write_text(
            f"wrote {out}: model.safetensors, model.json, circuit.json, certificate.json, report.html\n"
        )
    if not built.certificate.met:
        raise typer.Exit(MISSED)
