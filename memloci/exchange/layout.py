"""Our arrays under PyTorch's names, and back.

    layers.0.attention.heads.score.W_Q (H, d_k, D)  <->  blocks.0.attn.W_Q (H, D, d_k)

`config.json` holds the architecture, the sizes and the task; with it the shapes of all tensors are known before a file
is read. Whatever is missing, left over, misshapen or not a number is refused. Nothing from a file is executed.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memloci import __version__
from memloci.core.errors import BadInput
from memloci.core.files import parse_json, read_bytes, reading
from memloci.core.specs import shorten
from memloci.core.tensors import Arrays, pack, unpack
from memloci.model.architecture import Architecture
from memloci.model.store import MAX_RECORD, filled, named_leaves, skeleton_of
from memloci.model.transformer import Transformer
from memloci.tasks.load import task_from_dict
from memloci.tasks.task import Task

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FORMAT = "memloci-torch"
VERSION = 2  # 1 had matrices of our shapes and names
RUNS_IN = ("float32", "float64")  # float16 is summed in other precisions by other runtimes
KEYS = ("format", "version", "memloci", "architecture", "channels", "outputs", "task")

RENAMED = (
    (r"^([Wb])_E$", r"embed.\1_E"),
    (r"^([Wb])_U$", r"unembed.\1_U"),
    (r"^positions\.", "embed."),
    (r"^before_readout\.", "ln_final."),
    (r"^layers\.(\d+)\.attention\.heads\.(?:score\.|encoding\.)?", r"blocks.\1.attn."),
    (r"^layers\.(\d+)\.(?:before|after)_attention\.", r"blocks.\1.ln1."),
    (r"^layers\.(\d+)\.(?:before|after)_ffn\.", r"blocks.\1.ln2."),
    (r"^layers\.(\d+)\.ffn\.B$", r"blocks.\1.mlp.W_in"),
    (r"^layers\.(\d+)\.ffn\.c$", r"blocks.\1.mlp.b_in"),
    (r"^layers\.(\d+)\.ffn\.A$", r"blocks.\1.mlp.W_out"),
)
NORMS = ((r"\.gain$", ".w"), (r"\.bias$", ".b"))
# Our matrices act from the left, those of TransformerLens from the right.
TRANSPOSED = ("W_E", "W_U", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out")


class Imported(NamedTuple):
    model: Transformer
    task: Task | None


def torch_name(name: str) -> str:
    """The name of one of our arrays in a state dictionary."""
    for ours, theirs in RENAMED:
        renamed, count = re.subn(ours, theirs, name)
        if count:
            for gain, w in NORMS:
                renamed = re.sub(gain, w, renamed)
            return renamed
    raise AssertionError(f"{name} has no name in PyTorch")


def turned(name: str, array: np.ndarray) -> np.ndarray:
    """An array of ours as PyTorch has it under this name, or the other way round."""
    return np.swapaxes(array, -1, -2) if name.rpartition(".")[2] in TRANSPOSED else array


def state(model: Transformer) -> Arrays:
    """Every array of a model, under PyTorch's names."""
    named = {torch_name(name): np.asarray(leaf) for name, leaf in named_leaves(model)}
    return {name: turned(name, array) for name, array in named.items()}


def config(model: Transformer, task: Task | None) -> dict[str, Any]:
    """What `config.json` says."""
    precision = model.architecture.precision
    if precision not in RUNS_IN:
        raise BadInput(
            f"the model is {precision}; models are exported in {' or '.join(RUNS_IN)}: model.astype('float32')"
        )
    return {
        "format": FORMAT,
        "version": VERSION,
        "memloci": __version__,
        "architecture": model.architecture.to_dict(),
        "channels": model.channels,
        "outputs": model.outputs,
        "task": None if task is None else task.to_dict(),
    }


def files(model: Transformer, task: Task | None) -> dict[str, bytes]:
    """`model.safetensors` and `config.json`; the same model gives the same bytes."""
    model.check()
    return {WEIGHTS: pack(state(model)), CONFIG: json_bytes(config(model, task))}


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


# -- back -------------------------------------------------------------------------------------------------


def from_torch(source: Any) -> Transformer:
    """The model of a PyTorch module of ours, or of an exported folder; `ml.certify` and `ml.measure` take it."""
    return imported(source).model


def imported(source: Any) -> Imported:
    """The model and its task."""
    if isinstance(source, str | Path):
        folder = Path(source)
        try:
            with reading(folder):
                return _from_folder(folder)
        except BadInput as error:
            raise error.within(str(source)) from None
    settings: Any = getattr(source, "config", None)
    state_dict: Any = getattr(source, "state_dict", None)
    if not isinstance(settings, Mapping) or not callable(state_dict):
        raise BadInput(
            f"expected a folder of `memloci export --to torch` or a module of its modeling.py, found {shorten(source)}"
        )
    state: Any = state_dict()
    tensors = {str(name): _numbers(str(name), tensor) for name, tensor in state.items()}
    return _from_parts(dict(settings), tensors)


def _numbers(name: str, tensor: Any) -> np.ndarray:
    try:
        return np.asarray(tensor.detach().cpu().numpy())
    except (
        Exception
    ) as error:  # sparse, quantised, bfloat16 and meta tensors each raise an error of their own
        raise BadInput(f"tensor {name} cannot be read as numbers: {shorten(str(error))}") from None


def _from_folder(folder: Path) -> Imported:
    try:
        settings = parse_json(read_bytes(folder / CONFIG, MAX_RECORD))
        expected = _expected(settings)
    except BadInput as error:
        raise error.within(CONFIG) from None
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in expected.values())
    try:
        tensors, _ = unpack(read_bytes(folder / WEIGHTS, size + 2**16 + 512 * len(expected)))
        return _from_parts(settings, tensors)
    except BadInput as error:
        raise error.within(WEIGHTS) from None


def _expected(settings: Any) -> dict[str, Any]:
    """Name and shape of every tensor."""
    if not isinstance(settings, Mapping) or settings.get("format") != FORMAT:
        raise BadInput(f"not the config of an exported model: 'format' must be {FORMAT!r}")
    if settings.get("version") != VERSION:
        raise BadInput(
            f"version {shorten(settings.get('version'))} is not known, this memloci reads {VERSION}"
        )
    if missing := [key for key in KEYS if key not in settings]:
        raise BadInput(f"{missing[0]} is missing")
    if not isinstance(settings["architecture"], Mapping):
        raise BadInput(f"architecture must be an object, found {shorten(settings['architecture'])}")
    try:
        architecture = Architecture(**settings["architecture"])
    except (BadInput, TypeError) as error:
        raise BadInput(str(error)).within("architecture") from None
    skeleton = skeleton_of(architecture, settings["channels"], settings["outputs"])
    return {torch_name(name): leaf for name, leaf in named_leaves(skeleton)}


def _from_parts(settings: Mapping[str, Any], tensors: Arrays) -> Imported:
    expected = _expected(settings)
    if missing := sorted(expected.keys() - tensors.keys()):
        raise BadInput(f"tensor {missing[0]} is missing")
    if unknown := sorted(tensors.keys() - expected.keys()):
        raise BadInput(f"tensor {shorten(unknown[0])} does not belong to this architecture")
    checked = {name: _checked(name, tensors[name], leaf) for name, leaf in expected.items()}
    architecture = Architecture(**settings["architecture"])
    skeleton = skeleton_of(architecture, settings["channels"], settings["outputs"])
    model = filled(skeleton, {name: checked[torch_name(name)] for name, _ in named_leaves(skeleton)})
    return Imported(model, None if settings["task"] is None else task_from_dict(settings["task"]))


def _checked(name: str, tensor: np.ndarray, leaf: Any) -> np.ndarray:
    shape = turned(name, np.broadcast_to(False, leaf.shape)).shape
    if tensor.shape != shape:
        raise BadInput(f"tensor {name} must have shape {shape}, found {tensor.shape}")
    if tensor.dtype == np.int64 and leaf.dtype == np.uint32:  # PyTorch counts turns in 64 bits
        if ((tensor < 0) | (tensor >= 2**32)).any():
            raise BadInput(f"tensor {name} must hold whole numbers from 0 to 2^32 - 1")
        return tensor.astype(np.uint32)
    if tensor.dtype != leaf.dtype:
        raise BadInput(f"tensor {name} must be {leaf.dtype}, found {tensor.dtype}")
    if not np.isfinite(tensor).all():
        raise BadInput(f"tensor {name} holds NaN or infinity")
    return turned(name, tensor)
