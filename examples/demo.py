"""Compile a gallery of tasks into weights, certify them, and write a page about each.

    python examples/demo.py --out out/demo

Takes under 3 minutes on 2 cores. Open the index page that it names at the end. Expected: every task meets
its tolerance, and no measured error lies above its certificate.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax.random as jr
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from memloci import pipeline
from memloci.core.numbers import number
from memloci.tasks.load import load_task
from memloci.views.html.compiled import IndexEntry, index_html


@dataclass(frozen=True)
class Wanted:
    """A gallery task, and the routes worth the wait in a demonstration."""

    task: str
    routes: tuple[str, ...]
    tolerance: float = 1e-3
    name: str = ""  # where it differs from the task's

    @property
    def directory(self) -> str:
        return self.name or self.task


GALLERY = (
    Wanted("delay", ("rotary", "t5", "depth-1", "depth-4", "one-layer-lin")),
    Wanted("delay", ("depth-1",), name="delay-deep"),
    Wanted("echo", ("rotary", "t5", "depth-1", "one-layer-lin")),
    Wanted("product", ("rotary", "t5")),
    Wanted("parity", ("rotary", "t5", "depth-1")),
    Wanted("multiplexer", ("rotary", "t5")),
    Wanted("pointer", ("rotary", "chain", "lin-tmx")),
    Wanted("nested-2", ("rotary", "chain")),
    Wanted("exponential", ("one-layer-lin", "rotary")),
    Wanted("power-law", ("one-layer-log", "rotary"), tolerance=1e-2),
    Wanted("power-law", ("one-layer-lin",), tolerance=1e-2, name="power-law-lin"),
)


def compile_one(wanted: Wanted, out: Path, progress: Callable[[str], None]) -> IndexEntry:
    task, directory = load_task(wanted.task), wanted.directory
    say = lambda text, done=0.0: progress(f"{directory}: {text}")
    plans = pipeline.plan(task, wanted.tolerance, routes=wanted.routes, progress=say)
    built = pipeline.compile(task, plans.best)
    say("measuring")
    seen = pipeline.measure(built.model, task, key=jr.key(0))
    say("writing")
    pipeline.write(built, out / directory, plans, seen)
    return IndexEntry(directory, f"{directory}/{pipeline.REPORT}", built, seen)


def summary(entries: Sequence[IndexEntry]) -> Table:
    table = Table(
        title="Compiled memories",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for heading in ("task", "status", "route"):
        table.add_column(heading, no_wrap=True)
    for heading in ("L × H", "weights", "certified", "measured"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in entries:
        built, seen = entry.built, entry.measurement
        a, c = built.model.architecture, built.certificate
        status = "[green]met[/green]" if c.met else "[red]missed[/red]"
        measured = "" if seen is None else number(seen.err_sup)
        sizes = (f"{a.layers:,} × {a.heads:,}", f"{built.model.parameter_count:,}")
        table.add_row(entry.name, status, built.plan.route, *sizes, number(c.bound), measured)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile, certify and report a gallery of tasks.")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="directory to write")
    parser.add_argument("--only", nargs="*", metavar="TASK", help="these tasks only")
    arguments = parser.parse_args()
    chosen = [wanted for wanted in GALLERY if not arguments.only or wanted.directory in arguments.only]
    if not chosen:
        parser.error(f"no such task; there are {', '.join(wanted.directory for wanted in GALLERY)}")
    console = Console()
    entries: list[IndexEntry] = []
    columns = TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with ProgressBar(*columns, console=console) as bar:
        line = bar.add_task("starting", total=len(chosen))
        for wanted in chosen:
            say = lambda text: bar.update(line, description=text[:44])
            entries.append(compile_one(wanted, arguments.out, say))
            bar.advance(line)
        bar.update(line, description="done")
    index = arguments.out / "index.html"
    index.write_text(index_html(entries), encoding="utf-8")
    console.print(summary(entries))
    console.print(f"open {index.resolve()}", soft_wrap=True, highlight=False)
    return 0 if all(entry.built.certificate.met for entry in entries) else 3


if __name__ == "__main__":
    sys.exit(main())
