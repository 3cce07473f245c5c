"""`memloci runs`: what a store of runs holds."""

from pathlib import Path
from typing import Annotated

import typer

from memloci.commands.shared import Json, RunStore, print_json, print_view, write_text
from memloci.core.errors import BadInput

EXAMPLE = "memloci runs --where architecture.heads=4 --by training.rate"


def runs(
    store: RunStore = Path("runs.sqlite"),
    sweep: Annotated[str | None, typer.Option("--sweep", help="List the runs of this sweep only.")] = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", help="List runs with this status: done, diverged, failed, running or waiting."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="A condition such as 'training.rate<=1e-3'; may be repeated."),
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option("--by", help="Compare the values of this field; may be repeated.")
    ] = None,
    measure: Annotated[
        str, typer.Option("--measure", help="The measure to compare, such as err_sup or err_mean_square.")
    ] = "err_sup",
    export: Annotated[
        Path | None, typer.Option("--export", help="Write the runs to this .csv, .jsonl or .parquet file.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write a page about the runs to this file.", show_default=False),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option("--track", help="Also write curves beside the store; the only tracker is tensorboard."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Most lines to show.", min=1)] = 50,
    as_json: Json = False,
) -> None:
    """List, filter, compare, export and report the runs in a store."""
    from memloci.sweeps.runs import Runs
    from memloci.views.terminal import runs as views

    selected = Runs(store, sweep=sweep)
    known = selected.counts()
    if status is not None and status not in known:
        raise BadInput(f"--status: unknown {status!r}; use {', '.join(known)}")
    selected = selected.where(*(where or ()), *([f"status={status}"] if status else ()))
    if export is not None:
        selected.export(export)
    if report is not None:
        from memloci import pipeline

        pipeline.write_sweep(sweep or store.name, selected, report)
    if track is not None:
        from memloci.train.options import tracker

        histories = {row["key"][:12]: row["history"] for row in selected.complete() if row["history"]}
        tracker(track, store.parent)(histories)
    lines = selected.compare(*by, measure=measure) if by else None
    if as_json:
        print_json(list(selected) if lines is None else lines)
    elif lines is not None:
        print_view(views.comparison_table(lines, by or [], measure))
    elif export is not None:
        write_text(f"wrote {export}: {len(selected):,} runs\n")
    else:
        print_view(views.runs_table(selected, limit))
