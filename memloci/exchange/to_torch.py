"""PyTorch: a folder with `model.safetensors`, `config.json` and `modeling.py`, which imports torch and nothing of ours."""

from pathlib import Path
from typing import Any

import numpy as np

from memloci.exchange import layout
from memloci.exchange.agreement import Run
from memloci.exchange.subject import Subject

MODELING = "modeling.py"


def files(subject: Subject) -> dict[str, bytes]:
    source = Path(__file__).with_name(MODELING).read_bytes()
    return layout.files(subject.model, subject.task) | {MODELING: source}


def module_of(subject: Subject, kind: Any = None) -> Any:
    """The PyTorch module of a model, in memory; `kind`: a class of such modules."""
    import torch

    from memloci.exchange import modeling

    module = (kind or modeling.Transformer)(layout.config(subject.model, subject.task))
    arrays = layout.state(subject.model).items()
    wide = {name: a.astype(np.int64) if a.dtype == np.uint32 else a for name, a in arrays}
    module.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in wide.items()}, strict=True)
    return module.eval()


def runner(folder: Path) -> Run:
    """What the files of a folder compute. The code is ours, which is what was written; none of the folder's is executed."""
    import torch

    from memloci.exchange import modeling

    model = modeling.load(folder)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(x)).numpy()

    return run
