"""Arrays as bytes, with a checksum: safetensors whose header also holds words.

A bit that flips on a disk leaves a safetensors file well formed, so the header carries SHA-256 of all names, types,
shapes, numbers and words. Files of older versions have none and are read as they are.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from memloci.core.errors import BadInput
from memloci.core.files import parse_json
from memloci.core.specs import shorten

SUM = "sha256"

Arrays = dict[str, np.ndarray]


def pack(arrays: Mapping[str, Any], words: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file that tells when it is damaged; the same arrays and words give the same bytes."""
    contiguous = {name: np.ascontiguousarray(a).reshape(np.shape(a)) for name, a in arrays.items()}
    words = dict(words or {})
    return _in_order(safetensors.numpy.save(contiguous, metadata={**words, SUM: _sum(contiguous, words)}))


def _in_order(data: bytes) -> bytes:
    """With the words of the header sorted: safetensors writes them in an order that changes from call to call."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of 8 bytes
    return b"".join([len(text).to_bytes(8, "little"), text, memoryview(data)[start:]])


def unpack(data: bytes) -> tuple[Arrays, dict[str, str]]:
    """The arrays and the words of a safetensors file, ours or another's; `BadInput` if it is damaged."""
    try:
        arrays = safetensors.numpy.load(data)
    except Exception as error:  # the parser's own errors are of many types, some of them undocumented
        raise BadInput(f"not a whole safetensors file: {shorten(str(error))}") from None
    start = int.from_bytes(data[:8], "little")  # the parser has checked this header
    words = dict(parse_json(data[8 : 8 + start]).get("__metadata__") or {})
    claimed = words.pop(SUM, None)
    if claimed is not None and claimed != _sum(arrays, words):
        raise BadInput("damaged: its numbers are not those that were written (the checksum differs)")
    return arrays, words if claimed is None else {**words, SUM: claimed}


def _sum(arrays: Mapping[str, np.ndarray], words: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    for name in sorted(arrays):
        a = arrays[name]
        digest.update(f"\n{json.dumps(name)} {a.dtype.name} {a.shape}\n".encode())
        digest.update(a.tobytes())
    return digest.hexdigest()
