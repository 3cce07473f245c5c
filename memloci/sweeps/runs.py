"""Stored runs, to look at: filter, compare, export.

A field of a run is a setting (`architecture.heads`), what was measured (`err_sup`), or `status`, `key` and `error`.
Numbers over seeds are summarised by median, mean and the interval mean +- t s / sqrt(n), which covers the mean with
95 % where the values are about normal; runs that diverged have no value and are counted beside it.
"""

import csv
import importlib
import io
import json
import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.files import parse_json, replace_together
from memloci.core.specs import shorten
from memloci.sweeps.store import Store

COVERAGE = 0.95
SEED = "training.seed"
CONDITION = re.compile(r"\s*([\w.-]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*")
# A comma or "and" ends a condition only where another one begins: lists have commas too.
NEXT_CONDITION = re.compile(r"(?:,|\s+and\s)(?=\s*[\w.-]+\s*(?:[<>]=?|!=|==?))")
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Row = dict[str, Any]


class Runs(Sequence[Row]):
    """The runs of a store, or of one sweep in it; each is a dictionary of its fields."""

    def __init__(self, store: str | Path = "runs.sqlite", *, sweep: str | None = None):
        with Store(store, create=False) as opened:
            names, rows = opened.sweeps(), opened.rows(sweep)
        if sweep is not None and not rows:
            known = ", ".join(sorted(set().union(*names.values()))) or "none"
            raise BadInput(f"{store}: no sweep {shorten(sweep)}; there are {known}")
        self.store = Path(store)
        self.rows = [_flat(row, names.get(row["key"], set())) for row in rows]

    def _only(self, rows: Iterable[Row]) -> "Runs":
        chosen = object.__new__(Runs)
        chosen.store, chosen.rows, chosen.__dict__["fields"] = self.store, list(rows), self.fields
        return chosen

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    @cached_property
    def fields(self) -> list[str]:
        """All that any run has, in the order met."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def history(self, key: str) -> dict[str, list[Any]]:
        """The curves of a run."""
        with Store(self.store, create=False) as store:
            return store.history(key)

    def complete(self) -> list[Row]:
        """Every run as it is stored, curves included: {"config", "record", "history", "error"}."""
        chosen = {row["key"] for row in self.rows}
        with Store(self.store, create=False) as store:
            stored = [row for row in store.rows() if row["key"] in chosen]
            return [{**row, "history": store.history(row["key"])} for row in stored]

    def weights(self, key: str) -> bytes:
        """The weights of a run as safetensors; empty if it has none."""
        with Store(self.store, create=False) as store:
            return store.weights(key)

    def counts(self) -> dict[str, int]:
        """How many are done, diverged, failed, running and waiting."""
        statuses = [row["status"] for row in self.rows]
        return {
            status: statuses.count(status) for status in ("done", "diverged", "failed", "running", "waiting")
        }

    def where(self, *conditions: str) -> "Runs":
        """Those that meet all conditions, such as "architecture.heads=4" or "err_sup<1e-2, training.seed!=0"."""
        chosen = self
        for text in conditions:
            for part in NEXT_CONDITION.split(text):
                chosen = chosen._only(filter(self._test(part), chosen.rows))
        return chosen

    def _test(self, text: str) -> Callable[[Row], bool]:
        condition = CONDITION.fullmatch(text)
        if condition is None:
            raise BadInput(
                f"where: {shorten(text)} is no condition; write FIELD=VALUE, or one of != < <= > >="
            )
        name, sign, limit = condition[1], condition[2], _value(condition[3])
        self._check(name, "where")
        if sign in ORDERS:
            if not isinstance(limit, int | float):
                raise BadInput(f"where: {name} {sign} takes a number, found {shorten(limit)}")
            return lambda row: isinstance(row.get(name), int | float) and ORDERS[sign](row[name], limit)
        return lambda row: (row.get(name) == limit) == (sign != "!=")

    def _check(self, name: str, expression: str) -> None:
        if name not in self.fields and self.fields:
            close = [field for field in self.fields if field.endswith(f".{name}")]
            hint = f"; perhaps {close[0]} is meant" if close else f"; there are {', '.join(self.fields)}"
            raise BadInput(f"{expression}: no run has the field {shorten(name)}{hint}")

    def varying(self) -> list[str]:
        """The settings in which these runs differ."""
        settings = (name for name in self.fields if name.startswith(("task.", "architecture.", "training.")))
        return [name for name in settings if len({_text(row[name]) for row in self.rows if name in row}) > 1]

    def compare(self, *by: str, measure: str = "err_sup") -> list[Row]:
        """A line for every value of the fields `by`: how many runs, and the measure over them.

        `also` names settings other than the seed in which the runs of a line differ.
        """
        for name in by:
            self._check(name, "by")
        self._check(measure, "measure")
        groups: dict[str, list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: [_order(row.get(name)) for name in by]):
            groups.setdefault(_text([row.get(name) for name in by]), []).append(row)
        return [self._only(rows)._line(by, measure) for rows in groups.values()]

    def _line(self, by: Sequence[str], measure: str) -> Row:
        values = [row[measure] for row in self.rows if row.get(measure) is not None]
        if not all(isinstance(value, int | float) for value in values):
            raise BadInput(f"measure: {measure} is no number")
        also = [name for name in self.varying() if name not in (*by, SEED)]
        counts = self.counts()
        return {
            **{name: self.rows[0].get(name) for name in by},
            "runs": len(values),
            "diverged": counts["diverged"],
            "failed": counts["failed"],
            "median": statistics.median(values) if values else None,
            "mean": statistics.fmean(values) if values else None,
            **dict(zip(("low", "high"), _interval(values), strict=True)),
            "also": also,
        }

    def export(self, path: str | Path) -> None:
        """All fields to FILE.csv, .jsonl or .parquet; the file is written whole or not at all."""
        path = Path(path)
        writers = {".csv": self._csv, ".jsonl": self._jsonl, ".parquet": self._parquet}
        if path.suffix not in writers:
            raise BadInput(f"{path}: unknown kind of file; use {', '.join(writers)}")
        replace_together(path.parent, {path.name: writers[path.suffix]()})

    def _csv(self) -> bytes:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._cells())
        return text.getvalue().encode()

    def _jsonl(self) -> bytes:
        return "".join(json.dumps(row, allow_nan=False) + "\n" for row in self.rows).encode()

    def _parquet(self) -> bytes:
        try:
            pyarrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
        except ImportError:
            raise BadInput("Parquet needs pyarrow: pip install pyarrow, or export .csv or .jsonl") from None
        cells = list(self._cells())
        columns = {name: _column([row.get(name) for row in cells]) for name in self.fields}
        file = io.BytesIO()
        parquet.write_table(pyarrow.table(columns), file)
        return file.getvalue()

    def _cells(self) -> Iterator[Row]:
        """Tables hold numbers and text; lists are written as JSON."""
        for row in self.rows:
            yield {name: _text(v) if isinstance(v, list | dict) else v for name, v in row.items()}


def _flat(row: Row, sweeps: set[str]) -> Row:
    record = row["record"] or {}
    status = record.get("status", row["status"]) if row["status"] == "done" else row["status"]
    about = {"key": row["key"], "status": status, "sweeps": sorted(sweeps), "error": row["error"]}
    about |= {"note": row["note"]} if row["note"] else {}
    return {**about, **dict(_leaves(row["config"])), **dict(_leaves({**record, "status": status}))}


def _leaves(table: Row, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _value(text: str) -> Any:
    """What a user types for a value: JSON, or else text."""
    try:
        return parse_json(text)
    except BadInput:
        return text.strip("'")


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers first, by size."""
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, _text(value)


def _interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return None, None
    from scipy.special import stdtrit

    t = float(stdtrit(len(values) - 1, (1 + COVERAGE) / 2))
    mean, half = statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def _column(values: list[Any]) -> list[Any]:
    """One type for a column of a table: what is mixed becomes text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 or kinds <= {int, float}:
        return values
    return [None if value is None else str(value) for value in values]
