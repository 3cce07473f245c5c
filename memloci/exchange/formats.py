"""The formats of export. To add one, write `exchange/to_<name>.py` and a row here.

A format's file has `files(subject)`, all that is written, and `runner(folder)`, which loads what was written into the
other runtime. Every export is run that way and compared with ours before its files are moved into place.
"""

import importlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.files import replace_together, require_writable
from memloci.core.specs import shorten
from memloci.exchange.agreement import LENGTHS, Difference, compare
from memloci.exchange.layout import json_bytes
from memloci.exchange.runtime import Restated, restated
from memloci.exchange.subject import subject_of

CERTIFICATE, CHECK = "certificate.json", "check.json"
INSTALL = 'pip install "torch==2.13.0" "memloci[torch]"'


@dataclass(frozen=True)
class ExportFormat:
    name: str
    home: str  # the module that writes it
    runtime: str  # the program that computes it
    needs: tuple[str, ...]  # packages of the extra `torch`
    network: bool = (
        True  # it computes our outputs; otherwise its file's own `observed(run, subject, proved)` compares
    )


_ONNX = ("torch", "onnx", "onnxscript", "onnxruntime")
FORMATS = {
    each.name: each
    for each in (
        ExportFormat("torch", "memloci.exchange.to_torch", "PyTorch", ("torch",)),
        ExportFormat(
            "transformer-lens",
            "memloci.exchange.to_transformer_lens",
            "TransformerLens on PyTorch",
            ("torch", "transformer_lens"),
        ),
        ExportFormat("onnx", "memloci.exchange.to_onnx", "onnxruntime", _ONNX),
        ExportFormat("vnnlib", "memloci.exchange.to_vnnlib", "onnxruntime", _ONNX, network=False),
    )
}


@dataclass(frozen=True)
class Export:
    """What was written, what is proved of it, and what was seen when it ran."""

    format: str
    directory: str
    files: tuple[str, ...]
    proved: Restated
    observed: tuple[Difference, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "directory": self.directory,
            "files": list(self.files),
            "certificate": self.proved.to_dict(),
            "check": [each.to_dict() for each in self.observed],
        }


def format_of(name: object) -> ExportFormat:
    """The format of that name, where what it needs is installed."""
    if not isinstance(name, str) or name not in FORMATS:
        raise BadInput(f"format {shorten(name)} is unknown; use {', '.join(FORMATS)}")
    chosen = FORMATS[name]
    for package in chosen.needs:
        try:
            importlib.import_module(package)
        except ImportError:
            raise BadInput(f"export to {name} needs the package {package}: {INSTALL}") from None
    return chosen


def export(source: Any, to: str, out: str | Path, *, lengths: Sequence[int] = LENGTHS) -> Export:
    """A model for another runtime, checked as it is written; all of its files, or none."""
    chosen, subject = format_of(to), subject_of(source)
    require_writable(Path(out))
    home = importlib.import_module(chosen.home)
    written: dict[str, bytes] = home.files(subject)
    proved = restated(subject, chosen.runtime)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in written.items():
            Path(folder, name).write_bytes(data)
        run = home.runner(Path(folder))
        if chosen.network:
            differences = compare(run, subject, proved, lengths)
        else:
            differences = home.observed(run, subject, proved)
    written[CERTIFICATE] = json_bytes(proved.to_dict())
    written[CHECK] = json_bytes([each.to_dict() for each in differences])
    replace_together(Path(out), written)
    return Export(to, str(out), tuple(sorted(written)), proved, differences)
