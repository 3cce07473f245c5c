"""The command line: parse, call, print. One command per stage; the work is done elsewhere.

Exit status: 0 done, 2 bad input, 3 the tolerance was missed (the result is still written), 1 anything
else. A user's mistake gets one line, never a traceback. Heavy imports happen inside commands, so that
help and listings answer at once.
"""

import json
import os
import sys
from typing import Annotated, Any

import typer

from memloci import __version__
from memloci.errors import BadInput

DONE, FAILED, BAD_INPUT, MISSED = 0, 1, 2, 3

app = typer.Typer(
    name="memloci",
    help="What a Transformer can remember, at what cost, and whether training finds it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Start with:  memloci tasks",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0, max=2**32 - 1)]


def _complete_task(incomplete: str) -> list[str]:
    from memloci.tasks.gallery import GALLERY

    return [name for name in GALLERY if name.startswith(incomplete)]


TaskName = Annotated[
    str | None,
    typer.Argument(help="A gallery name or a TOML file.", autocompletion=_complete_task, show_default=False),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"memloci {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example:  memloci tasks nested-1 --sample 10")
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
    from memloci.report import tables
    from memloci.tasks.gallery import GALLERY
    from memloci.tasks.load import load_task

    if task is None:
        records = {name: make() for name, make in GALLERY.items()}
        if as_json:
            _print_json([{"name": name, **tables.task_summary(record)} for name, record in records.items()])
        else:
            _print(tables.gallery_table(records))
        return
    record = load_task(task)
    if toml:
        _write(tables.task_toml(record) + "\n")
        return
    drawn = None
    if sample:
        from memloci.tasks.inputs import example

        drawn = example(record, sample, seed)
    if as_json:
        _print_json({**tables.task_details(record), **({"sample": drawn} if drawn else {})})
    else:
        _print(tables.details_table(task, record))
        if drawn:
            _print(tables.example_table(drawn))


@app.command(epilog="Example:  memloci doctor --json")
def doctor(as_json: Json = False) -> None:
    """Versions, devices and optional extras: what is here, and how to get what is not."""
    from memloci.report.doctor import examine, findings_table

    findings = examine()
    if as_json:
        _print_json(findings)
    else:
        _print(findings_table(findings))


def _print_json(value: Any) -> None:
    _write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _print(renderable: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(renderable)
    _write(captured.get())


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough: memloci tasks | head -3
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: list[str] | None = None) -> None:
    """The entry point: run a command and turn its outcome into an exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(arguments)
    except BadInput as error:
        if "--json" in arguments:
            _print_json({"error": str(error)})
        print(f"memloci: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        print("memloci: interrupted", file=sys.stderr)
        sys.exit(FAILED)
    except Exception as error:
        if os.environ.get("MEMLOCI_DEBUG"):
            raise
        name = type(error).__name__
        print(f"memloci: this is a bug: {name}: {error} (MEMLOCI_DEBUG=1 shows where)", file=sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
