"""Sequences from what a user has: arrays in memory, or a file.

    .npy (T,), (T, d), (n, T, d)     .npz the same as x, with y     .csv, .parquet a column per channel, a row per step
    .jsonl a step or a sequence per line     .txt its characters     many sequences may have unequal lengths

The target is an array y, a column, or `next`: then y_t is the value at t itself, and lag 1 is the value just before it.
Columns of words become symbols, numbered in alphabetical order. Nothing is unpickled.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from memloci.core.errors import BadInput
from memloci.core.specs import shorten
from memloci.detect.data_files import Columns, as_target, read_columns
from memloci.language.operations import CONSTANTS, functions

NEXT = "next"
MOST_CHANNELS = 64
LEAST_STEPS = 32


@dataclass(frozen=True)
class Recording:
    """Sequences of d channels, with a target at every step; NaN marks what is missing."""

    x: tuple[np.ndarray, ...]  # each (length, d)
    y: tuple[np.ndarray, ...]  # each (length,)
    names: tuple[str, ...]
    target: str  # a name, or `next`
    self_channel: int | None = None  # the channel that is its own target, whose present is therefore unknown
    alphabets: tuple[tuple[str, ...] | None, ...] = ()  # of columns that hold words
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        return sum(map(len, self.y))

    @property
    def d(self) -> int:
        return len(self.names)


def recording(data: Any, y: Any = None, target: str | None = None, own_past: bool = False) -> Recording:
    """The sequences of arrays, of a file, or of a `Recording`; refused in one line where they cannot be used."""
    if isinstance(data, Recording):
        return data
    if isinstance(data, str | Path):
        columns = read_columns(Path(data))
        try:
            return _checked(_with_target(columns, y, target, own_past))
        except BadInput as error:
            raise error.within(str(data)) from None
    return _checked(_with_target(_from_memory(data), y, target, own_past))


def _from_memory(data: Any) -> Columns:
    """An array, a list of sequences of unequal length, or a table with named columns."""
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):  # pandas, polars and others
        return Columns.of_table({str(name): np.asarray(data[name]) for name in data.columns})
    if isinstance(data, dict):
        return Columns.of_table({str(name): np.asarray(values) for name, values in data.items()})
    if isinstance(data, list | tuple) and data and all(np.ndim(each) in (1, 2) for each in data):
        if np.ndim(data[0]) == 1 and len({len(each) for each in data}) == 1:
            return Columns.of_array(np.asarray(data))  # a matrix, as nested lists
        return Columns.of_sequences([np.asarray(each) for each in data])
    return Columns.of_array(np.asarray(data))


# -- the target -------------------------------------------------------------------------------------------


def _with_target(columns: Columns, y: Any, target: str | None, own_past: bool) -> Recording:
    given = columns.y if y is None else as_target(y, columns)
    if target is None and given is not None:
        x, names, alphabets = columns.x, columns.names, columns.alphabets
        return _named(Recording(x, given, names, "y", None, alphabets, columns.notes))
    if target is None:
        target = "y" if "y" in columns.names and len(columns.names) > 1 else NEXT
    usable, notes = _usable(columns, target)
    columns = columns.select(usable)
    if target != NEXT and target not in columns.names:
        raise BadInput(f"no column is called {shorten(target)}; the columns are {', '.join(columns.names)}")
    target_column = 0 if target == NEXT else columns.names.index(target)
    if target == NEXT and len(columns.names) > 1:
        others = ", ".join(columns.names[1:])
        notes += (
            f"The target is the next value of {columns.names[0]}; --target chooses among {others} as well.",
        )
    series = tuple(x[:, target_column] for x in columns.x)
    if target == NEXT or own_past or len(columns.names) == 1:
        name = NEXT if target == NEXT or len(columns.names) == 1 else target
        result = Recording(columns.x, series, columns.names, name, target_column, columns.alphabets)
    else:
        rest = [k for k in range(len(columns.names)) if k != target_column]
        inputs = columns.select(rest)
        result = Recording(inputs.x, series, inputs.names, target, None, inputs.alphabets)
    return _named(replace(result, notes=(*columns.notes, *notes)))


# -- columns that cannot be used --------------------------------------------------------------------------


def _usable(columns: Columns, target: str) -> tuple[list[int], tuple[str, ...]]:
    """The columns with something to say, and a note about each of the others."""
    usable, notes = [], []
    for k, name in enumerate(columns.names):
        values = np.concatenate([x[:, k] for x in columns.x])
        finite = values[np.isfinite(values)]
        if name != target and len(columns.names) > 1 and (reason := _useless(finite, values)):
            notes.append(f"Column {name} is left out: {reason}.")
        else:
            usable.append(k)
    return usable, tuple(notes)


def _useless(present_values: np.ndarray, values: np.ndarray) -> str | None:
    if 2 * len(present_values) < len(values):
        return "more than half of its values are missing"
    if len(present_values) and present_values.min() == present_values.max():
        return "it is constant"
    steps = np.diff(present_values)
    if len(present_values) > 8 and (steps > 0).all() and np.ptp(steps) <= 0.1 * steps.mean():
        return "it counts the steps"
    return None


def _named(recording: Recording) -> Recording:
    """Names that a task file can hold: letters, no digit at the end, no word of the language."""
    chosen: list[str] = []
    for k, name in enumerate(recording.names):
        short = re.sub(r"\W", "_", name, flags=re.ASCII)[:30] or "x"
        if short[-1].isdigit() or not re.match(r"[A-Za-z_]", short):
            short = f"{re.sub(r'^[0-9]', '_', short)}{'_' if short[-1].isdigit() else ''}"
        while short in functions() or short in CONSTANTS or short in chosen:
            short = f"{short}_{'abcdefghijklmnopqrstuvwxyz'[k % 26]}"
        chosen.append(short)
    return replace(recording, names=tuple(chosen))


def _checked(recording: Recording) -> Recording:
    if not 1 <= recording.d <= MOST_CHANNELS:
        raise BadInput(f"1 to {MOST_CHANNELS} channels are expected, found {recording.d}")
    if recording.steps < LEAST_STEPS:
        raise BadInput(f"{recording.steps} steps are too few to detect a memory; at least {LEAST_STEPS}")
    ys = np.concatenate(recording.y)
    finite = ys[np.isfinite(ys)]
    if len(finite) < min(LEAST_STEPS, len(recording.y)) or not len(finite):
        raise BadInput(
            f"the target has {len(finite)} values that are numbers; at least {LEAST_STEPS} are needed"
        )
    if finite.min() == finite.max():
        raise BadInput("the target is constant, so nothing is remembered; choose another with --target")
    if max(abs(finite.min()), abs(finite.max())) > 1e150:
        raise BadInput("the target has values beyond 1e150; divide it by a constant")
    notes = list(recording.notes)
    for k, name in enumerate(recording.names):
        values = np.concatenate([x[:, k] for x in recording.x])
        missing = len(values) - int(np.isfinite(values).sum())
        if missing == len(values):
            raise BadInput(f"column {name} has no value that is a number")
        if missing:
            notes.append(
                f"Column {name} misses {missing:,} of {len(values):,} values; the mean stands for them."
            )
    if missing := len(ys) - len(finite):
        one_each = all(np.isfinite(y).sum() <= 1 for y in recording.y) and len(recording.y) > 1
        notes.append(
            "Each sequence has one target, at its last step."
            if one_each
            else f"The target misses {missing:,} of {len(ys):,} values; these steps are not used."
        )
    return replace(recording, notes=tuple(notes))
