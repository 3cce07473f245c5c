"""`memloci tasks`: the gallery, or one task with an example."""

from typing import Annotated

import typer

from memloci.commands.shared import Json, Seed, TaskName, print_json, print_view, write_text

EXAMPLE = "memloci tasks nested-1 --sample 10"


def tasks(
    task: TaskName = None,
    sample: Annotated[
        int,
        typer.Option("--sample", help="Draw a sequence of this length with its target.", min=0, max=10_000),
    ] = 0,
    toml: Annotated[
        bool, typer.Option("--toml", help="Print the task as a TOML file to start from.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """List the gallery, or show one task: its memories, ranges and an example."""
    from memloci.tasks.gallery import GALLERY
    from memloci.tasks.load import load_task
    from memloci.views.terminal import tasks as views
    from memloci.views.text.tasks import task_toml

    if task is None:
        if as_json:
            print_json(views.gallery_rows(GALLERY))
        else:
            print_view(views.gallery_table(GALLERY))
        return
    record = load_task(task)
    if toml:
        write_text(task_toml(record) + "\n")
        return
    drawn = None
    if sample:
        from memloci.tasks.inputs import example

        drawn = example(record, sample, seed)
    if as_json:
        print_json({**views.task_details(record), **({"sample": drawn} if drawn else {})})
    else:
        print_view(views.details_table(task, record))
        if drawn:
            print_view(views.example_table(drawn))
