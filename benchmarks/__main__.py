"""Run the benchmarks and write their tables and figures: `python -m benchmarks --out out/bench [name ...]`.

A benchmark is a module here with `run() -> Table`. Names choose some of them; all run otherwise.
"""

import argparse
import importlib
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.table import Table

ALL = (
    "startup",
    "compile",
    "adaptive",
    "attention",
    "streaming",
    "recall",
    "training",
    "first_steps",
    "profile",
)


def show(table: Table) -> RichTable:
    shown = RichTable(title=table.title, title_justify="left", caption=table.note, caption_justify="left")
    for heading in table.columns:
        shown.add_column(heading, justify="left" if heading == table.columns[0] else "right")
    for row in table.rows:
        shown.add_row(*(cell if isinstance(cell, str) else f"{cell:.3g}" for cell in row))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(ALL)}")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(ALL):
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or ALL:
        table: Table = importlib.import_module(f"benchmarks.{name}").run()
        Console().print(show(table))
        path = arguments.out / f"{name}.json"
        path.write_text(json.dumps(table.to_dict(), indent=2) + "\n")
        print(f"wrote {path}")
        if table.draw is not None:
            table.draw(path.with_suffix(".png"))
            print(f"wrote {path.with_suffix('.png')}")


if __name__ == "__main__":
    main()
