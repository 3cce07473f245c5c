"""`memloci rates`: error against one size."""

from pathlib import Path
from typing import Annotated

import typer

from memloci.commands.shared import (
    Address,
    Engine,
    Json,
    RunStore,
    Seed,
    Task,
    Workers,
    print_json,
    print_view,
    progress_of_store,
    write_text,
)
from memloci.core.errors import BadInput

EXAMPLE = "memloci rates power-law --vary heads --out out/rates"


def rates(
    task: Task,
    vary: Annotated[
        str,
        typer.Option(
            "--vary", help="What varies: heads, width, layers, samples, length or bits.", show_default=False
        ),
    ],
    values: Annotated[
        str | None,
        typer.Option("--values", help="The values, such as 1,2,4,8.", show_default="some that suit the task"),
    ] = None,
    encoding: Annotated[
        str, typer.Option("--encoding", help="The encoding of the heads: lin or log.")
    ] = "lin",
    no_train: Annotated[bool, typer.Option("--no-train", help="Leave out what needs training.")] = False,
    seeds: Annotated[
        int, typer.Option("--seeds", help="Number of trained models at every value.", min=1, max=1000)
    ] = 5,
    steps: Annotated[int, typer.Option("--steps", help="Steps of each training.", min=1)] = 600,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A directory for the page, its figures and data.", show_default=False),
    ] = None,
    store: RunStore = Path("runs.sqlite"),
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare error against one size: the paper's slope, what is proved, what is compiled and what is trained."""
    from memloci.core.files import replace_together, require_writable
    from memloci.study.rates import rates as find_rates

    try:
        chosen = None if values is None else [int(value) for value in values.split(",")]
    except ValueError:
        raise BadInput(f"--values: needs whole numbers with commas between, found {values!r}") from None
    if out is not None:
        require_writable(out)
    with progress_of_store(store) as progress:
        finding = find_rates(
            task,
            vary,
            values=chosen,
            encoding=encoding,
            seeds=seeds,
            steps=steps,
            seed=seed,
            store=store,
            workers=workers,
            engine=engine,
            address=address,
            trained=not no_train,
            progress=progress,
        )
    if out is not None:
        from memloci.views.html.rates import rates_files

        replace_together(out, rates_files(finding))
    if as_json:
        print_json(finding.to_dict())
        return
    from memloci.views.terminal.rates import rates_text

    print_view(rates_text(finding))
    if out is not None:
        write_text(f"wrote {out}: rates.html, and figures and data of both errors\n")
