"""What a run learns from: a task, arrays of a user's own, or text.

A source says how many channels and outputs a model of it has, and gives batches inside the compiled loop:

    data  = source.data(seed)            arrays for the device, possibly none
    x, y  = source.batch(key, data)      drawn anew at every step
    x, y  = source.held_out()            the same for every seed, never trained on

Tokens of a task are independent, so a whole batch is one long draw, cut up. Of a file, the last tenth is held out.
"""

import abc
import hashlib
import io
import math
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.core.errors import BadInput
from memloci.core.files import read_bytes
from memloci.core.limits import limit_from
from memloci.core.numbers import literal, number
from memloci.core.specs import shorten
from memloci.tasks.inputs import sample
from memloci.tasks.task import Task
from memloci.train.device import make_key
from memloci.train.spec import DATA_KINDS, Run

BYTES = 256  # the vocabulary of text
MAX_FILE = 2**31
MOST_GB = 1.0  # of arrays in memory; the user may raise it
HELD_OUT_SEED = 0x4E1D  # any number, the same for all
HELD_OUT_PART = 10  # a tenth


def describe(path: str | Path) -> dict[str, Any]:
    """A data file as the `task` of a run: its kind, place and content hash."""
    content = _read(path)
    kind = "arrays" if str(path).endswith(".npz") else "text"
    described: dict[str, Any] = {
        "kind": kind,
        "path": str(path),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    if kind == "arrays":
        described["length"] = _arrays(content, path)[0].shape[1]
    return described


def in_memory(x: Any, y: Any) -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """Arrays that a program has made, as the `task` of a run, and themselves."""
    x, y = _pair(np.asarray(x), np.asarray(y), "data")
    content = hashlib.sha256(repr((x.shape, y.shape, x.dtype.str, y.dtype.str)).encode())
    content.update(x.tobytes() + y.tobytes())
    return {"kind": "arrays", "path": "", "sha256": content.hexdigest(), "length": x.shape[1]}, (x, y)


def source_of(run: Run) -> "AbstractSource":
    kinds = {"text": Text, "arrays": Arrays}
    return kinds[run.task["kind"]](run) if run.task.get("kind") in DATA_KINDS else FromTask(run)


class AbstractSource(abc.ABC):
    channels: int
    outputs: int

    def __init__(self, run: Run):
        self.run, self.training = run, run.training
        self.n = run.training.length or 0
        precision = run.architecture.precision if run.architecture else "float32"
        self.dtype = jnp.dtype(precision)

    @abc.abstractmethod
    def data(self, seed: int) -> Any:
        """What `batch` reads, as a tree of arrays."""

    @abc.abstractmethod
    def batch(self, key: Any, data: Any) -> tuple[Any, Any]:
        """(batch, n, channels) and the targets."""

    @abc.abstractmethod
    def held_out(self) -> tuple[Any, Any]: ...


class FromTask(AbstractSource):
    """Fresh sequences at every step, or a fixed set of `samples` of them."""

    def __init__(self, run: Run):
        super().__init__(run)
        self.task: Task = run.record
        self.channels, self.outputs = self.task.d, self.task.outputs

    def data(self, seed: int) -> Any:
        if self.training.samples is None:
            return ()
        return jax.jit(self.draw, static_argnums=1)(jr.fold_in(make_key(seed), 1), self.training.samples)

    def batch(self, key: Any, data: Any) -> tuple[Any, Any]:
        if self.training.samples is None:
            return self.draw(key, self.training.batch)
        return _rows(key, data, self.training.batch)

    def held_out(self) -> tuple[Any, Any]:
        return jax.jit(self.draw, static_argnums=1)(make_key(HELD_OUT_SEED), self.training.held_out)

    def draw(self, key: Any, count: int) -> tuple[Any, Any]:
        x = sample(self.task, key, count * self.n, self.dtype).reshape(count, self.n, self.task.d)
        return x, self.task.target(x)


class Arrays(AbstractSource):
    """x of shape (sequences, n, channels) and y of shape (sequences, n, outputs), from an .npz file or from memory."""

    def __init__(self, run: Run, arrays: tuple[np.ndarray, np.ndarray] | None = None):
        super().__init__(run)
        x, y = arrays or _arrays(_checked(run), run.task["path"])
        if x.shape[1] < self.n:
            raise BadInput(f"the data has sequences of {x.shape[1]} tokens, but length is {self.n}")
        x, y = x[:, : self.n], y[:, : self.n]
        _require_range(x, y, self.dtype, run.task.get("path") or "data")
        self.x, self.y = (jnp.asarray(a, self.dtype) for a in (x, y))
        self.channels, self.outputs = x.shape[2], y.shape[2]
        self.kept = max(1, len(x) - max(1, min(len(x) // HELD_OUT_PART, self.training.held_out)))

    def data(self, seed: int) -> Any:
        return self.x[: self.kept], self.y[: self.kept]

    def batch(self, key: Any, data: Any) -> tuple[Any, Any]:
        return _rows(key, data, self.training.batch)

    def held_out(self) -> tuple[Any, Any]:
        return self.x[self.kept :], self.y[self.kept :]


class Text(AbstractSource):
    """Next-byte prediction: x is one-hot, y the bytes that follow."""

    channels = outputs = BYTES

    def __init__(self, run: Run):
        super().__init__(run)
        content = np.frombuffer(_checked(run), np.uint8)
        self.kept = len(content) - len(content) // HELD_OUT_PART
        if len(content) - self.kept <= self.n:
            raise BadInput(
                f"{run.task['path']}: {len(content):,} bytes are too few; a tenth of them must hold more than one "
                f"sequence of length {self.n}"
            )
        self.bytes = content

    def data(self, seed: int) -> Any:
        return jnp.asarray(self.bytes[: self.kept])

    def batch(self, key: Any, data: Any) -> tuple[Any, Any]:
        start = jr.randint(key, (self.training.batch,), 0, len(data) - self.n, "int32")
        return self._windows(data, start)

    def held_out(self) -> tuple[Any, Any]:
        rest = jnp.asarray(self.bytes[self.kept :])
        count = min(self.training.held_out, (len(rest) - 1) // self.n)
        start = np.linspace(0, len(rest) - self.n - 1, count).astype("int32")
        return self._windows(rest, jnp.asarray(start))

    def _windows(self, text: Any, start: Any) -> tuple[Any, Any]:
        rows = text[start[:, None] + jnp.arange(self.n + 1, dtype=start.dtype)[None, :]]
        return jax.nn.one_hot(rows[:, :-1], BYTES, dtype=self.dtype), rows[:, 1:].astype("int32")


def _rows(key: Any, data: Any, batch: int) -> Any:
    """A batch of a fixed set; all of it, if it is no larger."""
    count = len(jax.tree.leaves(data)[0])
    if count <= batch:
        return data
    rows = jr.randint(key, (batch,), 0, count, "int32")
    return jax.tree.map(lambda a: a[rows], data)


def _read(path: str | Path) -> bytes:
    try:
        return read_bytes(Path(path), MAX_FILE)
    except BadInput as error:
        raise error.within(str(path)) from None


def _checked(run: Run) -> bytes:
    content = _read(run.task["path"])
    if hashlib.sha256(content).hexdigest() != run.task["sha256"]:
        raise BadInput(f"{run.task['path']}: has changed since the run was described")
    return content


def _arrays(content: bytes, path: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            declared = [_declared(archive, f"{name}.npy") for name in ("x", "y")]
        most = limit_from("MEMLOCI_DATA_GB", MOST_GB)
        if sum(declared) > most * 2**30:
            size = sum(declared) / 2**30
            raise BadInput(
                f"x and y take {number(size)} GB in memory, above the limit of {number(most)} GB; "
                f"set MEMLOCI_DATA_GB={math.ceil(size)} to read them"
            )
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = file["x"], file["y"]
    except BadInput as error:
        raise error.within(str(path)) from None
    except Exception as error:  # zip, header and array errors are of many types
        raise BadInput(f"{path}: not an .npz file of arrays: {shorten(str(error))}") from None
    return _pair(*arrays, path)


def _declared(archive: zipfile.ZipFile, name: str) -> int:
    """The bytes that an array would take, from its header: a file of a megabyte can hold gigabytes of zeros."""
    if name not in archive.namelist():
        raise BadInput("needs two arrays, x and y")
    info = archive.getinfo(name)
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = header(file)
    size = math.prod(shape) * dtype.itemsize
    if size > info.file_size:
        raise BadInput(f"{name} declares {size:,} bytes, but {info.file_size:,} are there")
    return max(size, info.file_size)


def _require_range(x: np.ndarray, y: np.ndarray, dtype: Any, path: Any) -> None:
    """Every number, and its square, must be finite in the precision that trains; else the loss is no number at once."""
    most = math.sqrt(float(jnp.finfo(dtype).max))
    for name, a in (("x", x), ("y", y)):
        sizes = np.abs(a.astype("float64"))
        if sizes.max() > most:
            place = tuple(int(k) for k in np.unravel_index(sizes.argmax(), a.shape))
            raise BadInput(
                f"{path}: {name}[{', '.join(map(str, place))}] = {literal(float(a[place]))} is too large for {dtype}, "
                f"whose squares end at {number(most)}; scale the data"
                + ("" if dtype == jnp.float64 else ', or train with architecture.precision = "float64"')
            )


def _pair(x: np.ndarray, y: np.ndarray, path: Any) -> tuple[np.ndarray, np.ndarray]:
    for name, a in (("x", x), ("y", y)):
        if a.ndim != 3 or 0 in a.shape or a.dtype.kind not in "fiub" or not np.isfinite(a).all():
            raise BadInput(
                f"{path}: {name} must hold finite numbers of shape (sequences, length, channels), found "
                f"{a.dtype} of shape {a.shape}"
            )
    if x.shape[:2] != y.shape[:2] or len(x) < 2:
        raise BadInput(
            f"{path}: x {x.shape} and y {y.shape} need the same sequences and length, and two sequences or more"
        )
    return x, y
