"""Records to rows: what the terminal shows of a task, and the same as JSON."""

import math
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from memloci.core.errors import BadInput
from memloci.core.intervals import Interval
from memloci.core.numbers import literal, lower_number, number, upper_number
from memloci.tasks.gallery import OUTSIDE, GalleryEntry
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.task import Task


def plain_table(title: str | None = None) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)


def task_summary(task: Task) -> dict[str, Any]:
    return {
        "kind": task.kind,
        "stationary": task.stationary,
        "M": task.M,
        "K": task.K,
        "lag_bounds": [None if math.isinf(bound) else bound for bound in task.lag_bounds],
        "description": task.description,
    }


def gallery_rows(gallery: Mapping[str, GalleryEntry]) -> list[dict[str, Any]]:
    """A summary of every entry. Kernels are not examined for a list: that would take NumPy's import."""
    rows = []
    for name, entry in gallery.items():
        if kernels := entry.fields.get("kernels"):
            M = len(kernels)
            summary = {
                "kind": "essential",
                "stationary": True,
                "M": M,
                "K": 0,
                "lag_bounds": [None] * M,
                "description": entry.description,
            }
        else:
            summary = task_summary(entry())
        rows.append({"name": name, **summary})
    return rows


def gallery_table(gallery: Mapping[str, GalleryEntry]) -> Any:
    table = plain_table("Gallery: a name serves wherever a task file does")
    for heading, justify in (("name", "left"), ("kind", "left"), ("M", "right"), ("K", "right")):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("farthest lag", justify="right", no_wrap=True)
    table.add_column("what is remembered")
    for row in gallery_rows(gallery):
        K = "-" if row["stationary"] else str(row["K"])
        lag = "all" if None in row["lag_bounds"] else str(max(row["lag_bounds"], default=0))
        table.add_row(f"[bold]{row['name']}[/bold]", row["kind"], str(row["M"]), K, lag, row["description"])
    outside = plain_table("Outside: what no memory here expresses")
    outside.add_column("name", no_wrap=True)
    outside.add_column("why")
    for name, reason in OUTSIDE.items():
        outside.add_row(Text(name, style="bold"), Text(reason))
    hint = Text("memloci tasks NAME shows one; --sample 10 draws an example; --toml starts a file.")
    return Group(table, outside, hint)


def task_details(task: Task) -> dict[str, Any]:
    """Everything that later stages read off a task; what nothing can prove is null."""
    return {
        **task_summary(task),
        "task": _or_none(task.to_dict),
        "memories": [recall.text for recall in task.recalls],
        "channels": {c.name: [list(piece) for piece in c.domain] for c in task.channels},
        "output_ranges": _or_none(lambda: [list(_finite(r)) for r in task.output_ranges]),
        "lipschitz": _or_none(lambda: {k: _finite_or_none(v) for k, v in task.lip_f.items()}),
    }


def _or_none(compute: Any) -> Any:
    try:
        return compute()
    except BadInput:
        return None


def _finite_or_none(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _finite(r: Interval) -> tuple[float | None, float | None]:
    return _finite_or_none(r.lo), _finite_or_none(r.hi)


def details_table(name: str, task: Task) -> Any:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for channel in task.channels:
        domain = channel.domain
        if channel.finite:
            shown = ", ".join(literal(piece.lo) for piece in domain[:12]) + (
                ", ..." if len(domain) > 12 else ""
            )
            text = f"one of {shown}"
        else:
            text = " or ".join(f"[{literal(piece.lo)}, {literal(piece.hi)}]" for piece in domain)
        table.add_row("channel", Text(f"{channel.name}: {text}"))
    for i, recall in enumerate(task.recalls, start=1):
        what = "" if isinstance(recall, LagTable) else "kernel " if recall.kernel else ""
        table.add_row(f"memory {i}", Text(what + recall.label))
    for formula in task.readouts:
        table.add_row("readout", Text(str(formula)))
    details = task_details(task)
    if details["output_ranges"] is not None:
        ranges = [f"[{lower_number(r.lo)}, {upper_number(r.hi)}]" for r in task.output_ranges]
        table.add_row("range", Text(", ".join(ranges)))
    if details["lipschitz"] is not None:
        steep = [f"|df/d{k}| <= {upper_number(v)}" for k, v in task.lip_f.items() if v]
        table.add_row("slopes", Text(", ".join(steep) or "constant"))
    if not task.stationary:
        adaptivity = f"K = {task.K}: the paper's construction has {task.paper_layers} layers"
        if any(isinstance(recall, Occurrence) for recall in task.recalls):
            adaptivity = f"K = {task.K}: the paper has no memory that is found by content"
        table.add_row("adaptivity", Text(adaptivity))
    title = Text.assemble((name, "bold"), f"  {task.kind} memory: {task.description or 'no description'}")
    return Group(title, Text(""), table)


def example_table(columns: dict[str, list[list[float]]]) -> Any:
    table = plain_table("Example")
    table.add_column("t", justify="right")
    for heading in columns:
        table.add_column(heading, justify="right")
    for t, row in enumerate(zip(*columns.values(), strict=True)):
        table.add_row(str(t), *(" ".join(f"{number(v)}" for v in cell) for cell in row))
    return table
