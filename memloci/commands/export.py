"""`memloci export`: a model for another runtime, checked as it is written."""

from pathlib import Path
from typing import Annotated

import typer

from memloci.commands.shared import Json, Model, print_json, print_view, progress_bar, write_text

EXAMPLE = "memloci export out/echo --to torch --out out/echo-torch"


def export(
    directory: Model,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="The format, such as torch, transformer-lens, onnx or vnnlib; an unknown name lists all.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The directory to write.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Export a model to PyTorch, TransformerLens, ONNX or VNN-LIB, and compare it with ours as it is written."""
    from memloci import pipeline
    from memloci.views.terminal.exports import export_table

    with progress_bar() as progress:
        progress("exporting", 0.0)
        done = pipeline.export(directory, to, out)
    if as_json:
        print_json(done.to_dict())
        return
    print_view(export_table(done))
    write_text(f"wrote {out}: {', '.join(done.files)}\n")
