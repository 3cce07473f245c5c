"""What the commands share: options, exit statuses, progress, and printing that survives a closed pipe."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from memloci.core.numbers import decimals
from memloci.core.precision import EVALUATED

DONE, FAILED, BAD_INPUT, MISSED = 0, 1, 2, 3
LONG = 30.0  # seconds after which one wants to know what takes so long


def complete_task(incomplete: str) -> list[str]:
    from memloci.tasks.gallery import GALLERY

    return [name for name in GALLERY if name.startswith(incomplete)]


_TASK = typer.Argument(
    help="A gallery name or a TOML file.", autocompletion=complete_task, show_default=False
)
Task = Annotated[str, _TASK]
TaskName = Annotated[str | None, _TASK]
Tolerance = Annotated[
    float, typer.Option("--tolerance", help="The worst-case error that plans must not exceed.")
]
Precision = Annotated[
    str, typer.Option("--precision", help=f"The precision of the model: {', '.join(EVALUATED)}.")
]
Model = Annotated[Path, typer.Argument(help="A model directory that memloci wrote.", show_default=False)]
EvaluationPath = Annotated[
    str | None, typer.Option("--path", help="How the model is evaluated; `memloci doctor` lists the paths.")
]
RunStore = Annotated[Path, typer.Option("--store", help="The file that stores the runs.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", help="Number of worker processes.", min=1, max=1024, show_default="one per core"
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine", help="The engine that trains the runs, such as local or ray; an unknown name lists all."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", help="The address of a Ray cluster: HOST:PORT or auto.", show_default="a new one, here"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of all random numbers.", min=0, max=2**32 - 1)]


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """A bar on standard error: what is being done, how far it is, and the time left; where there is no terminal, a line
    after half a minute, and after twice the time again."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        with progress_lines() as progress:
            yield progress
        return
    columns = BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, transient=True) as bar:
        line = bar.add_task("starting", total=1.0)
        yield lambda text, done: bar.update(line, description=text, completed=done)


@contextmanager
def progress_lines(first: float | None = None) -> Iterator[Callable[[str, float], None]]:
    """A line on standard error that says which step takes so long, after `first` seconds, twice that, four times that."""
    doing, ended = ["starting"], threading.Event()

    def report() -> None:
        wait = passed = LONG if first is None else first
        while not ended.wait(wait):
            print(
                f"memloci: after {decimals(passed)} s: {doing[0]} (Ctrl-C stops it)",
                file=sys.stderr,
                flush=True,
            )
            wait, passed = passed, 2 * passed

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield lambda text, done: doing.__setitem__(0, text)
    finally:
        ended.set()
        thread.join()


@contextmanager
def progress_of_store(store: Path) -> Iterator[Callable[[str, float], None]]:
    """A bar over work that a store keeps: Ctrl-C loses nothing, and says so."""
    try:
        with progress_bar() as progress:
            yield progress
    except KeyboardInterrupt:
        print(
            f"memloci: stopped; {store} has all finished work, the same command continues it", file=sys.stderr
        )
        raise typer.Exit(FAILED) from None


def print_json(value: Any) -> None:
    write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_view(renderable: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(renderable)
    write_text(captured.get())


def write_text(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough: memloci tasks | head -3
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
