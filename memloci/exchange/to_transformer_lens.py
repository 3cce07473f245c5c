"""TransformerLens: PyTorch's folder, `lens.py`, which puts a hook point at every step of its `modeling.py`, and `bridge.py`."""

from pathlib import Path
from typing import Any

import numpy as np

from memloci.exchange import to_torch
from memloci.exchange.agreement import Disagreement, Run
from memloci.exchange.subject import Subject, subject_of

SOURCES = ("lens.py", "bridge.py")


def files(subject: Subject) -> dict[str, bytes]:
    written = to_torch.files(subject)
    for name in SOURCES:
        source = Path(__file__).with_name(name).read_text()
        written[name] = source.replace("from memloci.exchange import modeling", "import modeling").encode()
    return written


def lens(source: Any, *, bridge: bool = False) -> Any:
    """A compiled model, a model directory or a Transformer, as a TransformerLens model in memory; with `bridge`, behind
    TransformerLens' own TransformerBridge."""
    from memloci.exchange.formats import format_of

    format_of("transformer-lens")
    subject = subject_of(source)
    if bridge:
        from memloci.exchange.bridge import bridge as bridged

        return bridged(to_torch.module_of(subject))
    from memloci.exchange.lens import LensModel

    return to_torch.module_of(subject, LensModel)


def runner(folder: Path) -> Run:
    import torch

    from memloci.exchange import bridge, lens

    model, bridged = lens.load(folder), bridge.load(folder)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            given = torch.from_numpy(x)
            y = np.asarray(model.run_with_cache(given)[0])
            if not np.array_equal(y, np.asarray(bridged(given)), equal_nan=True):
                raise Disagreement("the bridge computes something else than the module that it wraps")
            return y

    return run
