"""Files as columns: each format becomes sequences of channels, and is refused in one line where it cannot.

Only the bytes of a plain file are read; arrays with pickled objects are refused.
"""

import csv
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memloci.core.errors import BadInput
from memloci.core.files import parse_json, read_bytes
from memloci.core.specs import shorten

MAX_FILE = 2**32  # bytes
MOST_SYMBOLS = 4_096  # different words in a column; with more it is a text or a date, not an alphabet
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Columns:
    """Sequences of named channels; `y` where the file has targets of its own."""

    x: tuple[np.ndarray, ...]  # each (length, d)
    names: tuple[str, ...]
    y: tuple[np.ndarray, ...] | None = None
    alphabets: tuple[tuple[str, ...] | None, ...] = ()
    notes: tuple[str, ...] = ()

    def select(self, indices: Sequence[int]) -> "Columns":
        indices = list(indices)
        alphabets = tuple(self.alphabets[k] for k in indices)
        names = tuple(self.names[k] for k in indices)
        return Columns(tuple(x[:, indices] for x in self.x), names, self.y, alphabets, self.notes)

    @staticmethod
    def of_array(x: np.ndarray, y: tuple[np.ndarray, ...] | None = None) -> "Columns":
        if x.dtype.kind in "US":
            values, alphabet = _symbols(x.ravel())
            if x.ndim != 1:
                raise BadInput(f"words are expected in one dimension, found shape {x.shape}")
            return Columns((values[:, None],), ("x",), y, (alphabet,))
        if x.dtype.kind not in "fiub":
            raise BadInput(f"an array of numbers is expected, found {x.dtype}")
        if x.ndim not in (1, 2, 3) or 0 in x.shape:
            raise BadInput(f"shape (T,), (T, d) or (n, T, d) is expected, found {x.shape}")
        x = x.astype(float)
        x = x[:, None] if x.ndim == 1 else x
        parts = tuple(x) if x.ndim == 3 else (x,)
        d = parts[0].shape[1]
        return Columns(parts, default_names(d), y, (None,) * d)

    @staticmethod
    def of_sequences(parts: Sequence[np.ndarray], y: tuple[np.ndarray, ...] | None = None) -> "Columns":
        shaped = [_two_axes(part) for part in parts]
        widths = {part.shape[1] for part in shaped}
        if len(widths) != 1:
            raise BadInput(f"sequences differ in their number of channels: {sorted(widths)}")
        d = widths.pop()
        return Columns(tuple(shaped), default_names(d), y, (None,) * d)

    @staticmethod
    def of_table(table: dict[str, Any]) -> "Columns":
        """Columns of one length; words become symbols, or are left out where they are too many."""
        lengths = {name: len(values) for name, values in table.items()}
        if not table:
            raise BadInput("there is no column")
        if len(set(lengths.values())) != 1:
            raise BadInput(f"columns differ in length: {shorten(lengths)}")
        columns, names, alphabets, notes = [], [], [], []
        for name, values in table.items():
            try:
                column, alphabet = _column(np.asarray(values))
            except BadInput as reason:
                notes.append(f"Column {name} is left out: {reason}.")
                continue
            columns.append(column)
            names.append(name)
            alphabets.append(alphabet)
        if not columns:
            raise BadInput(f"no column holds numbers or a few symbols: {' '.join(notes)}")
        return Columns((np.stack(columns, 1),), tuple(names), None, tuple(alphabets), tuple(notes))


def default_names(d: int) -> tuple[str, ...]:
    """x, or xa, xb, ...: the digits that follow a name count memories."""
    if d == 1:
        return ("x",)
    return tuple(f"x{LETTERS[k // 26 - 1] if k >= 26 else ''}{LETTERS[k % 26]}" for k in range(d))


def read_columns(path: Path) -> Columns:
    """The columns of a file, by the ending of its name."""
    read = READERS.get(path.suffix.lower())
    if read is None:
        raise BadInput(
            f"{path}: data is read from {', '.join(READERS)}, found a name that ends in {shorten(path.suffix)}"
        )
    try:
        return read(read_bytes(path.resolve(), MAX_FILE))
    except BadInput as error:
        raise error.within(str(path)) from None
    except (OSError, RuntimeError, MemoryError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None


# -- formats ----------------------------------------------------------------------------------------------


def _npy(content: bytes) -> Columns:
    return Columns.of_array(_array(content))


def _array(content: bytes) -> np.ndarray:
    try:
        return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
    except (ValueError, EOFError, OSError):
        raise BadInput("not an array that NumPy saved without pickles") from None


def _npz(content: bytes) -> Columns:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            arrays = {
                name[:-4]: _array(archive.read(name)) for name in archive.namelist() if name.endswith(".npy")
            }
    except (zipfile.BadZipFile, KeyError, EOFError):
        raise BadInput("not an archive that NumPy saved") from None
    if "x" not in arrays and len(arrays) == 1:
        return Columns.of_array(next(iter(arrays.values())))
    if "x" not in arrays:
        raise BadInput(
            f"an array x is expected, and y if there is a target; found {', '.join(arrays) or 'none'}"
        )
    columns = Columns.of_array(arrays["x"])
    if "y" not in arrays:
        return columns
    return Columns(columns.x, columns.names, as_target(arrays["y"], columns), columns.alphabets)


def _csv(content: bytes) -> Columns:
    text = _decoded(content)
    first = text[: text.find("\n")] if "\n" in text else text
    delimiter = max(",;\t", key=first.count) if any(map(first.count, ",;\t")) else ","
    heads = next(csv.reader([first.strip("\r")], delimiter=delimiter), [])
    if not heads:
        raise BadInput("the file is empty")
    headed = not all(_is_number(cell) or not cell.strip() for cell in heads)
    names = [cell.strip() or f"column_{k}" for k, cell in enumerate(heads)]
    names = names if headed else list(default_names(len(heads)))
    if len(set(names)) < len(names):
        raise BadInput(f"two columns have one name: {shorten(names)}")
    try:  # numbers alone, by the quick way
        values = np.loadtxt(io.StringIO(text), delimiter=delimiter, skiprows=int(headed), ndmin=2)
    except ValueError:
        return Columns.of_table(_cells(text, delimiter, names, headed))
    if not len(values):
        raise BadInput("there is no row below the names of the columns")
    return Columns((values,), tuple(names), None, (None,) * len(names))


def _cells(text: str, delimiter: str, names: list[str], headed: bool) -> dict[str, Any]:
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row][int(headed) :]
    if not rows:
        raise BadInput("there is no row below the names of the columns")
    for k, row in enumerate(rows, start=1 + headed):
        if len(row) != len(names):
            raise BadInput(f"row {k} has {len(row)} cells, but there are {len(names)} columns")
    return {name: np.array([row[k].strip() for row in rows]) for k, name in enumerate(names)}


def _parquet(content: bytes) -> Columns:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise BadInput(
            "Parquet needs pyarrow; type pip install 'memloci[detect]', or save a CSV file"
        ) from None
    try:
        table = parquet.read_table(pa.BufferReader(content))
    except (pa.ArrowInvalid, OSError):
        raise BadInput("not a Parquet file") from None
    columns = {}
    for name in table.column_names:
        values = table[name]
        words = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        listed = [v if v is not None else "" for v in values.to_pylist()] if words else values.to_numpy()
        columns[str(name)] = np.asarray(listed)
    return Columns.of_table(columns)


def _jsonl(content: bytes) -> Columns:
    lines = [line for line in _decoded(content).splitlines() if line.strip()]
    if not lines:
        raise BadInput("the file is empty")
    items = []
    for k, line in enumerate(lines, start=1):
        try:
            items.append(parse_json(line))
        except BadInput as error:
            raise error.within(f"line {k}") from None
    kinds = {type(item) for item in items}
    if kinds <= {int, float, type(None)}:
        return Columns.of_array(np.array([np.nan if v is None else v for v in items], float))
    if kinds == {str}:
        return Columns.of_array(np.array(items))
    if kinds == {list}:
        return _lists(items)
    if kinds != {dict}:
        raise BadInput("each line is expected to be a number, a list or an object, and all alike")
    if all(isinstance(item.get("x"), list) for item in items):
        x = Columns.of_sequences([_numbers(item["x"], "x") for item in items])
        if "y" not in items[0]:
            return x
        ys = [_numbers(item.get("y"), "y") for item in items]
        scalar = all(y.ndim == 0 for y in ys)
        return Columns(x.x, x.names, as_target(np.array(ys) if scalar else ys, x), x.alphabets)
    names = list(dict.fromkeys(name for item in items for name in item))
    cells = {
        name: np.array(["" if item.get(name) is None else str(item[name]) for item in items])
        for name in names
    }
    return Columns.of_table(cells)


def _lists(items: list[Any]) -> Columns:
    """Rows of a table where all are short and alike, sequences otherwise."""
    lengths = {len(item) for item in items}
    if len(lengths) == 1 and max(lengths) <= 16 < len(items):
        return Columns.of_array(_numbers(items, "a line"))
    return Columns.of_sequences([_numbers(item, "a line") for item in items])


def _numbers(value: Any, what: str) -> np.ndarray:
    try:
        return np.array(value, dtype=float)  # None becomes NaN
    except (TypeError, ValueError):
        raise BadInput(
            f"{what} must be numbers, or lists of numbers of equal length, found {shorten(value)}"
        ) from None


def _txt(content: bytes) -> Columns:
    """Characters as symbols; a file with one number per line is a series."""
    text = _decoded(content)
    lines = text.split()
    if len(lines) >= 32 and all(map(_is_number, lines[:32])):
        try:
            return Columns.of_array(np.array(lines, dtype=float))
        except ValueError:
            pass
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    alphabet, values = np.unique(codes, return_inverse=True)
    if not len(codes):
        raise BadInput("the file is empty")
    letters = tuple(chr(code) for code in alphabet)
    return Columns((values.astype(float)[:, None],), ("x",), None, (letters,))


READERS: dict[str, Callable[[bytes], Columns]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".csv": _csv,
    ".parquet": _parquet,
    ".jsonl": _jsonl,
    ".txt": _txt,
}


# -- targets ----------------------------------------------------------------------------------------------


def as_target(y: Any, columns: Columns) -> tuple[np.ndarray, ...]:
    """y beside x: one value per step, or one per sequence, which then belongs to its last step."""
    lengths = [len(x) for x in columns.x]
    if isinstance(y, list | tuple) and len(y) == len(lengths) and all(np.ndim(each) >= 1 for each in y):
        parts = [np.asarray(each).reshape(len(each), -1) for each in y]
    else:
        array = _numeric(np.asarray(y), "y")
        if array.ndim >= 2 and array.shape[-1] == 1:
            array = array[..., 0]
        if len(lengths) == 1 and array.ndim == 1:
            array = array[None]
        if array.ndim == 1 and len(array) == len(lengths):
            ends = [np.full(n, np.nan) for n in lengths]
            for end, value in zip(ends, array, strict=True):
                end[-1] = value
            return tuple(ends)
        if array.ndim > 2 or array.ndim == 0 or len(array) != len(lengths):
            raise BadInput(
                f"y has shape {np.shape(y)}; one target per step of x is expected, {_shape(lengths)}"
            )
        parts = [row[:, None] for row in array]
    for part, n in zip(parts, lengths, strict=True):
        if part.shape != (n, 1):
            raise BadInput(
                f"y has {part.shape} values where x has {n:,} steps; one target per step is expected"
            )
    return tuple(_numeric(part[:, 0], "y") for part in parts)


def _shape(lengths: Sequence[int]) -> str:
    return f"({lengths[0]},)" if len(lengths) == 1 else f"({len(lengths)}, {lengths[0]})"


def _numeric(values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype.kind not in "fiub":
        raise BadInput(f"{name} must hold numbers, found {values.dtype}")
    return values.astype(float)


# -- cells ------------------------------------------------------------------------------------------------


def _two_axes(part: np.ndarray) -> np.ndarray:
    if part.dtype.kind not in "fiub" or part.ndim not in (1, 2):
        raise BadInput(
            f"a sequence has shape (length,) or (length, channels), found {part.dtype} {part.shape}"
        )
    return part.astype(float)[:, None] if part.ndim == 1 else part.astype(float)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("not text in UTF-8") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(values: np.ndarray) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Numbers, with NaN for empty cells; or symbols, where cells are words."""
    if values.dtype.kind in "fiub":
        return values.astype(float), None
    if values.dtype.kind == "M":
        raise BadInput("it holds dates")
    words = np.array(["" if v is None else str(v) for v in values.tolist()])
    empty = np.isin(np.char.lower(words), ["", "na", "nan", "null", "none", "?"])
    numeric = np.full(len(words), np.nan)
    try:
        numeric[~empty] = words[~empty].astype(float)
        return numeric, None
    except ValueError:
        pass
    numbers = np.array([_is_number(word) for word in words[~empty][:1000].tolist()])
    if numbers.mean() > 0.5:
        wrong = words[~empty][np.argmin(numbers)]
        raise BadInput(f"most cells are numbers, but one is {shorten(str(wrong))}")
    return _symbols(words)


def _symbols(words: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    alphabet, values = np.unique(words.astype(str), return_inverse=True)
    if len(alphabet) > min(MOST_SYMBOLS, max(8, len(words) // 4)):
        raise BadInput(f"it holds {len(alphabet):,} different words")
    return values.astype(float), tuple(map(str, alphabet))
