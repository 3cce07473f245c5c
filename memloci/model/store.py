"""A model on disk: `model.safetensors` (weights) and `model.json` (what they mean).

Loading trusts neither file. The architecture is read and checked first; it says which tensors must be
there, of which shape, hence how large the file may be; only then are weights read. Nothing is executed.

Saving is all or nothing (core/files.py). Both files carry one `id`, a checksum of the record and of every number: it
tells files that do not belong together, and files that were changed or damaged since they were saved.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import safetensors.numpy

from memloci import __version__
from memloci.core.errors import BadInput
from memloci.core.files import parse_json, read_bytes, reading, replace_together
from memloci.core.specs import shorten
from memloci.core.tensors import pack, unpack
from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer, require_precision
from memloci.tasks.load import task_from_dict
from memloci.tasks.task import Task

FORMAT = 1
WEIGHTS, RECORD = "model.safetensors", "model.json"
MAX_RECORD = 2**24  # bytes; a task and its tables are far smaller
REQUIRED = ("format", "version", "architecture", "channels", "outputs")
OPTIONAL = ("task", "extra", "id")


class Stored(NamedTuple):
    model: Transformer
    task: dict[str, Any] | None
    extra: dict[str, Any]


def save(
    model: Transformer,
    directory: str | os.PathLike[str],
    task: Task | dict[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    beside: Mapping[str, bytes] | None = None,
    remove: Iterable[str] = (),
) -> None:
    """Write both files into `directory`, which is made if need be, and the files `beside` with them; delete `remove`.

    `task` is a task or what its file says; `extra` is anything else worth keeping, in JSON.
    """
    model.check()
    tensors = _tensors(model)
    record = {
        "format": FORMAT,
        "version": __version__,
        "architecture": model.architecture.to_dict(),
        "channels": model.channels,
        "outputs": model.outputs,
        "task": task.to_dict() if isinstance(task, Task) else task,
        "extra": dict(extra or {}),
    }
    try:
        record["id"] = _checksum(record, tensors)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"the task or the extra data cannot be written as JSON: {error}") from None
    weights = safetensors.numpy.save(tensors, metadata={"id": record["id"]})
    text = json.dumps(record, allow_nan=False, indent=1) + "\n"
    replace_together(
        Path(directory), {WEIGHTS: weights, RECORD: text.encode(), **(beside or {})}, remove=remove
    )


def _checksum(record: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """Of all that is in both files; the same before they are written and after they are read."""
    text = json.dumps({key: value for key, value in record.items() if key != "id"}, allow_nan=False)
    digest = hashlib.sha256(text.encode())
    for name, tensor in tensors.items():
        digest.update(name.encode() + tensor.tobytes())
    return digest.hexdigest()[:16]


def _tensors(model: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in named_leaves(model)}


def weights_bytes(model: Transformer) -> bytes:
    """All arrays of a model, as the content of a safetensors file."""
    return pack(_tensors(model))


def from_weights(architecture: Architecture, channels: int, outputs: int, data: bytes) -> Transformer:
    """The model that `weights_bytes` wrote; whatever is wrong with the bytes raises `BadInput`."""
    skeleton = skeleton_of(architecture, channels, outputs)
    tensors, _ = _parse_tensors(data, dict(named_leaves(skeleton)))
    return filled(skeleton, tensors)


def load(directory: str | os.PathLike[str]) -> tuple[Transformer, Task | None]:
    """The model and its task, as saved."""
    stored = read(directory)
    return stored.model, task_of(stored, directory)


def task_of(stored: Stored, directory: str | os.PathLike[str]) -> Task | None:
    try:
        return None if stored.task is None else task_from_dict(stored.task)
    except BadInput as error:
        raise error.within(f"{directory}: {RECORD}: task") from None


def read(directory: str | os.PathLike[str], *, changed: bool = False) -> Stored:
    """Everything `save` was given. Whatever is wrong with the files raises `BadInput`.

    `changed`: also if a file was changed since; `unchanged` tells.
    """
    stored, intact = _open(Path(directory))
    if not intact and not changed:
        raise BadInput(
            f"{directory}: the files were damaged or changed since they were saved (the checksum differs); save again"
        )
    return stored


def unchanged(directory: str | os.PathLike[str]) -> bool:
    """Whether record and weights are those that were saved; True of files that carry no checksum."""
    return _open(Path(directory))[1]


def _open(directory: Path) -> tuple[Stored, bool]:
    try:
        with reading(directory):
            return _read(directory)
    except BadInput as error:
        raise error.within(str(directory)) from None


def _read(directory: Path) -> tuple[Stored, bool]:
    try:
        record = _parse_record(read_bytes(directory / RECORD, MAX_RECORD))
        architecture = _architecture(record["architecture"])
        skeleton = skeleton_of(architecture, record["channels"], record["outputs"])
    except BadInput as error:
        raise error.within(RECORD) from None
    try:
        tensors, weights_id = _parse_weights(directory / WEIGHTS, dict(named_leaves(skeleton)))
    except BadInput as error:
        raise error.within(WEIGHTS) from None
    marked = weights_id is not None and record.get("id") is not None
    if marked and weights_id != record["id"]:
        raise BadInput(f"{WEIGHTS} and {RECORD} are from different models; save again")
    in_order = {name: tensors[name] for name, _ in named_leaves(skeleton)}
    stored = Stored(filled(skeleton, tensors), record.get("task"), record.get("extra") or {})
    return stored, not marked or record["id"] == _checksum(record, in_order)


def filled(skeleton: Any, tensors: dict[str, np.ndarray]) -> Transformer:
    leaves = [jnp.asarray(tensors[name]) for name, _ in named_leaves(skeleton)]
    model = jax.tree.unflatten(jax.tree.structure(skeleton), leaves)
    model.check()
    return model


def named_leaves(model: Any) -> list[tuple[str, Any]]:
    """Every array of the model with its path: `layers.0.attention.heads.W_V`."""
    paths, _ = jax.tree_util.tree_flatten_with_path(model)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in paths]


def _parse_record(data: bytes) -> dict[str, Any]:
    record = parse_json(data)
    if not isinstance(record, dict) or "format" not in record:
        raise BadInput("not a model's record: it has no key 'format'")
    if type(record["format"]) is not int or record["format"] != FORMAT:
        raise BadInput(f"format {shorten(record['format'])} is not known, this version reads {FORMAT}")
    if unknown := [key for key in record if key not in REQUIRED + OPTIONAL]:
        raise BadInput(f"unknown key {shorten(unknown[0])}")
    if missing := [key for key in REQUIRED if key not in record]:
        raise BadInput(f"{missing[0]} is missing")
    for key in ("channels", "outputs"):
        if type(record[key]) is not int:
            raise BadInput(f"{key} must be a whole number, found {shorten(record[key])}")
    for key in ("version", "id"):
        if not isinstance(record.get(key, ""), str):
            raise BadInput(f"{key} must be text, found {shorten(record[key])}")
    for key in ("task", "extra"):
        if not isinstance(record.get(key), dict | None):
            raise BadInput(f"{key} must be an object, found {shorten(record[key])}")
    return record


def _architecture(fields: Any) -> Architecture:
    if not isinstance(fields, dict):
        raise BadInput(f"architecture must be an object, found {shorten(fields)}")
    try:
        return Architecture(**fields)
    except BadInput as error:
        raise error.within("architecture") from None


def skeleton_of(architecture: Architecture, channels: Any, outputs: Any) -> Any:
    """The model's shapes, with nothing allocated."""
    require_precision(architecture.precision)
    return eqx.filter_eval_shape(
        lambda: Transformer(architecture, channels, outputs, key=jr.key(0)),
    )


def _parse_weights(path: Path, expected: dict[str, Any]) -> tuple[dict[str, np.ndarray], str | None]:
    payload = sum(leaf.size * leaf.dtype.itemsize for leaf in expected.values())
    header = 2**16 + 512 * len(expected)
    return _parse_tensors(read_bytes(path, payload + header), expected)


def _parse_tensors(data: bytes, expected: dict[str, Any]) -> tuple[dict[str, np.ndarray], str | None]:
    tensors, metadata = unpack(data)
    if missing := sorted(expected.keys() - tensors.keys()):
        raise BadInput(f"tensor {missing[0]} is missing")
    if unknown := sorted(tensors.keys() - expected.keys()):
        raise BadInput(f"tensor {shorten(unknown[0])} does not belong to this architecture")
    for name, leaf in expected.items():
        array = tensors[name]
        if array.shape != leaf.shape:
            raise BadInput(f"tensor {name} must have shape {leaf.shape}, found {array.shape}")
        if array.dtype != leaf.dtype:
            raise BadInput(f"tensor {name} must be {leaf.dtype}, found {array.dtype}")
        if not np.isfinite(array).all():
            raise BadInput(f"tensor {name} holds NaN or infinity")
    return tensors, metadata.get("id")
