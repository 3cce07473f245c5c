"""`memloci train`: weights by gradient."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from memloci.commands.shared import (
    FAILED,
    MISSED,
    Json,
    Seed,
    complete_task,
    print_json,
    print_view,
    progress_bar,
    write_text,
)
from memloci.core.errors import BadInput

EXAMPLE = "memloci train product --heads 4 --steps 2000 --seeds 3 --out out/product"


def train(
    task: Annotated[
        str | None,
        typer.Argument(
            help="A gallery name, a TOML file, or data: an .npz file with x and y, a .txt file.",
            autocompletion=complete_task,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The directory to write.", show_default=False)
    ] = None,
    layers: Annotated[int, typer.Option("--layers", help="Number of layers.")] = 1,
    heads: Annotated[int, typer.Option("--heads", help="Number of heads in each layer.")] = 4,
    width: Annotated[int, typer.Option("--width", help="Neurons of each FFN.")] = 128,
    attention: Annotated[
        str,
        typer.Option("--attention", help="The attention, such as dp, dpf or tmx; an unknown name lists all."),
    ] = "dp",
    encoding: Annotated[
        str,
        typer.Option(
            "--encoding", help="The positional encoding, such as lin, log or rope; an unknown name lists all."
        ),
    ] = "lin",
    steps: Annotated[int, typer.Option("--steps", help="Number of steps.")] = 2000,
    batch: Annotated[int, typer.Option("--batch", help="Sequences per step.")] = 128,
    rate: Annotated[float, typer.Option("--rate", help="The learning rate.")] = 3e-3,
    start: Annotated[
        str,
        typer.Option(
            "--start", help="Where training starts: random, compiled (weights and architecture) or exponents."
        ),
    ] = "random",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any other setting, such as training.clip=0.5 or architecture.norm=pre; may be repeated.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Exit with status 3 if a larger error is seen.")
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds",
            help="Number of models, with consecutive seeds from --seed; the best one is saved.",
            min=1,
            max=1000,
        ),
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the interrupted training in --out.")
    ] = False,
    track: Annotated[
        str | None,
        typer.Option("--track", help="Also write curves for another program, such as tensorboard."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train weights by gradient, with curves, a report, and the reason where training fails."""
    from memloci import pipeline
    from memloci.train import options
    from memloci.train.diagnose import diagnose
    from memloci.train.train import Interrupted, best, runs_in
    from memloci.views.terminal.fits import fits_table

    if resume and out is not None and task is None:
        runs = runs_in(out)
    elif task is None:
        raise BadInput("which task? A gallery name or a file; or --resume --out DIR")
    else:
        architecture: dict[str, Any] = {"layers": layers, "heads": heads, "width": width}
        architecture |= {"attention": attention, "encoding": encoding}
        training: dict[str, Any] = {"steps": steps, "batch": batch, "rate": rate, "start": start}
        training |= {} if tolerance is None else {"tolerance": tolerance}
        runs = options.runs(task, architecture, training, settings or [], range(seed, seed + seeds))
    write_curves = options.tracker(track, out)
    try:
        with progress_bar() as progress:
            fits = pipeline.train_together(runs, out=out, resume=resume, progress=progress)
    except Interrupted as stopped:
        print(f"memloci: {stopped}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    write_curves({f"seed-{fit.run.training.seed}": fit.history for fit in fits})
    if as_json:
        print_json({"directory": out and str(out), "fits": [fit.to_dict() for fit in fits]})
    else:
        chosen = best(fits)
        print_view(fits_table(fits, diagnose(chosen.run, chosen.record)))
        if out is not None:
            write_text(f"wrote {out}: {', '.join(sorted(path.name for path in out.iterdir()))}\n")
    if tolerance is not None and not best(fits).learned:
        raise typer.Exit(MISSED)
