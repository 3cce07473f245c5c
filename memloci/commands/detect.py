"""`memloci detect`: which memory a data set has, with error rates, as a task."""

from pathlib import Path
from typing import Annotated

import typer

from memloci.commands.shared import Json, Seed, print_json, print_view, progress_bar, write_text

EXAMPLE = "memloci detect series.csv --target y --out out/series"

Data = Annotated[
    Path, typer.Argument(help="A .npy, .npz, .csv, .parquet, .jsonl or .txt file.", show_default=False)
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="The target: a column, or `next` for the next value.",
        show_default="y, else next",
    ),
]
MaxLag = Annotated[
    int, typer.Option("--max-lag", help="The largest lag that is searched.", min=1, max=100_000)
]
Fdr = Annotated[float, typer.Option("--fdr", help="The rate of false discoveries to stay below.")]


def detect(
    data: Data,
    target: Target = None,
    max_lag: MaxLag = 512,
    fdr: Fdr = 0.05,
    own_past: Annotated[
        bool, typer.Option("--own-past", help="Use the past of the target column as an input too.")
    ] = False,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference/--no-reference", help="Fit the reference predictor, which takes a few seconds."
        ),
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A directory for task.toml and report.html.", show_default=False),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Detect which memory a data set has (lags, lag tables, kernels or matches), with error rates, and write it as a task."""
    from memloci import pipeline
    from memloci.core.files import require_writable
    from memloci.views.terminal.detection import detection_view

    if out is not None:
        require_writable(out)
    with progress_bar() as progress:
        detection = pipeline.detect(
            data,
            max_lag=max_lag,
            fdr=fdr,
            target=target,
            seed=seed,
            own_past=own_past,
            with_reference=reference,
            progress=progress,
        )
        if out is not None:
            detection = pipeline.write_detection(detection, out)
    if as_json:
        print_json(detection.to_dict())
        return
    print_view(detection_view(str(data), detection))
    if out is not None:
        write_text(f"wrote {out}: {', '.join(sorted(path.name for path in out.iterdir()))}\n")
