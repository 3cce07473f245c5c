"""`memloci sweep`: a grid of trainings that can be stopped and started again."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from memloci.commands.shared import (
    FAILED,
    Address,
    Engine,
    Json,
    RunStore,
    Workers,
    print_json,
    print_view,
    progress_of_store,
    write_text,
)
from memloci.core.errors import BadInput

EXAMPLE = "memloci sweep heads.toml --dry-run"
MANY_RUNS = 1000  # more are asked about


def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file: docs/sweeps.md.", show_default=False)],
    store: RunStore = Path("runs.sqlite"),
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Report what would run and how long it may take, and start nothing."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Run without asking, whatever the number of runs.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="The page to write.", show_default="NAME.html beside the store"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a grid of models; a repeated call continues it, and trains nothing twice."""
    from memloci.core.files import require_writable
    from memloci.sweeps import start
    from memloci.sweeps.grid import read_sweep
    from memloci.views.terminal import runs as views

    grid = read_sweep(file, confirm=lambda count: None if yes or dry_run else _confirm_size(count))
    if dry_run:
        forecast = start.forecast(grid, store, workers)
        if as_json:
            print_json(forecast.to_dict())
        else:
            print_view(views.forecast_text(forecast))
        return
    page = report or store.with_name(f"{grid.name}.html")
    if page.is_dir() or not page.name:
        raise BadInput(f"--report: {page} is a directory; name the file to write")
    require_writable(page.parent)
    with progress_of_store(store) as progress:
        options: dict[str, Any] = {"workers": workers, "engine": engine, "address": address}
        runs = start.sweep(grid, store=store, progress=progress, **options)
    from memloci import pipeline

    pipeline.write_sweep(grid.name, runs, page)
    if as_json:
        impossible = [each.to_dict() for each in grid.impossible]
        summary = {"sweep": grid.name, "store": str(store), "report": str(page)}
        summary |= {"runs": len(runs), **runs.counts()}
        print_json({**summary, "failures": views.failures(runs), "impossible": impossible})
    else:
        print_view(views.sweep_text(grid.name, runs, grid.impossible))
        write_text(
            f"memloci runs --store {shlex.quote(str(store))} --sweep {shlex.quote(grid.name)} shows them\n"
        )
        write_text(f"wrote {page}\n")
    if runs.counts()["failed"]:
        raise typer.Exit(FAILED)


def _confirm_size(count: int) -> None:
    if count <= MANY_RUNS:
        return
    if not sys.stdin.isatty():
        raise BadInput(
            f"{count:,} combinations are many; use --yes to run them, or --dry-run to see what they would take"
        )
    typer.confirm(f"{count:,} combinations. Continue?", abort=True, err=True)
