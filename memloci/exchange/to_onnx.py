"""ONNX: `model.onnx` for any batch and any length of at least 1, through PyTorch's exporter.

The exporter's notes hold stack traces with paths of the machine that exported; they are deleted, so that the same model
gives the same bytes.
"""

import logging
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from memloci.core.errors import BadInput
from memloci.exchange import layout
from memloci.exchange.agreement import Run
from memloci.exchange.subject import Subject
from memloci.exchange.to_torch import module_of

ONNX = "model.onnx"
OPSET = 20
BATCH, LENGTH = 2, 5  # of the example that is traced; both are then free


def files(subject: Subject) -> dict[str, bytes]:
    if subject.model.architecture.encoding == "learned":
        raise BadInput(
            "encoding 'learned' has a table of positions, so no ONNX of any length; export to torch"
        )
    data = onnx_bytes(graph_module(subject), (BATCH, LENGTH, subject.model.channels), free=True)
    config = layout.config(subject.model, subject.task)
    return {ONNX: data, layout.CONFIG: layout.json_bytes(config)}


def graph_module(subject: Subject) -> Any:
    """The PyTorch module of a model as it is traced: all pairs at once, and sums that ONNX would round as numbers."""
    module = module_of(subject)
    for block in module.blocks:
        block.attn.pairs = None
        _fix_sum(block.attn)
    return module.eval()


def _fix_sum(attention: Any) -> None:
    """The sum over an infinite past as a number: ONNX has no expm1, and e^-p - 1 has no correct digits for flat heads."""
    if attention.normalisation == "infinite" and attention.window is None:
        total = attention._infinite_sum().detach()
        attention._infinite_sum = lambda: total


def onnx_bytes(module: Any, shape: tuple[int, int, int], *, free: bool) -> bytes:
    """The graph of a module; `free`: of any batch and length."""
    import torch

    example = torch.zeros(shape, dtype=module.unembed.W_U.dtype)
    axes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("n")},) if free else None
    with _quiet():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            dynamic_shapes=axes,
            external_data=False,
            opset_version=OPSET,
            input_names=["x"],
            output_names=["y"],
            verbose=False,
        )
        assert program is not None
        data = program.model_proto.SerializeToString()
    return _stripped(data)


@contextmanager
def _quiet() -> Any:
    """The exporter warns of its own parts, and logs to the root."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _stripped(data: bytes) -> bytes:
    """Without notes of where each node came from."""
    import onnx

    model = onnx.load_from_string(data)
    parts: list[Any] = [model, model.graph, *model.functions]
    for graph in (model.graph, *model.functions):
        parts += list(graph.node)
    parts += [*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer]
    for part in parts:
        if hasattr(part, "metadata_props"):
            del part.metadata_props[:]
        if hasattr(part, "doc_string"):
            part.doc_string = ""
    return model.SerializeToString(deterministic=True)


def runner(folder: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / ONNX), options, providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(session.run(None, {"x": x})[0])
