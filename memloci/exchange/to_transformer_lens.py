"""TransformerLens: PyTorch's folder and `lens.py`, which puts a hook point at every step of its `modeling.py`."""

from pathlib import Path
from typing import Any

import numpy as np

from memloci.exchange import layout, to_torch
from memloci.exchange.agreement import Run
from memloci.exchange.subject import Subject, subject_of

LENS = "lens.py"


def files(subject: Subject) -> dict[str, bytes]:
    source = Path(__file__).with_name(LENS).read_text()
    alone = source.replace("from memloci.exchange import modeling", "import modeling")
    return to_torch.files(subject) | {LENS: alone.encode()}


def lens(source: Any) -> Any:
    """A compiled model, a model directory or a Transformer, as a TransformerLens model in memory."""
    from memloci.exchange.formats import format_of
    from memloci.exchange.to_onnx import module_of

    format_of("transformer-lens")
    from memloci.exchange.lens import LensModel

    subject = subject_of(source)
    model = LensModel(layout.config(subject.model, subject.task))
    model.load_state_dict(module_of(subject).state_dict(), strict=True)
    return model.eval()


def runner(folder: Path) -> Run:
    import torch

    from memloci.exchange.lens import load

    model = load(folder)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(model.run_with_cache(torch.from_numpy(x))[0])

    return run
