"""Error against a size, for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from memloci.study.rates import RatesFinding
from memloci.views.terminal.tasks import plain_table
from memloci.views.text.rates import panel_cells, slope_cells


def rates_text(finding: RatesFinding) -> Any:
    """All of it for the terminal."""
    parts: list[Any] = [_table(panel.title, *panel_cells(panel)) for panel in finding.panels]
    heads, rows = slope_cells(finding)
    parts += [_table(None, heads, rows)] if rows else []
    lines = [f"paper: {finding.paper}"] if finding.paper else []
    lines += [f"{name}: {text}" for name, text in finding.floors.items()]
    return Group(*parts, Text("\n".join([*lines, *finding.notes])))


def _table(title: str | None, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    table = plain_table(title)
    for k, head in enumerate(heads):
        table.add_column(head, justify="right" if k else "left", no_wrap=k > 0)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
