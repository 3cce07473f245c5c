"""Trained models as a table for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from memloci.core.numbers import number
from memloci.train.diagnosis import Diagnosis
from memloci.train.train import Fit
from memloci.views.terminal.tasks import plain_table

COLUMNS = {
    "held-out loss": "held_out",
    "mean square": "err_mean_square",
    "largest error": "err_sup",
    "bits per byte": "bits_per_byte",
    "steps": "steps",
    "seconds": "seconds",
}


def fits_table(fits: Sequence[Fit], diagnosis: Diagnosis) -> Any:
    """A row per model, and what became of the best one."""
    shown = {title: name for title, name in COLUMNS.items() if any(name in fit.record for fit in fits)}
    table = plain_table()
    for title in ("seed", *shown, "stopped"):
        table.add_column(title, justify="left" if title in ("seed", "stopped") else "right")
    for fit in fits:
        values = [fit.record.get(name) for name in shown.values()]
        cells = ["-" if value is None else number(value) for value in values]
        table.add_row(str(fit.run.training.seed), *cells, fit.record.stopped or "")
    return Group(table, Text(f"{diagnosis.name}: {diagnosis.sentence}"))
