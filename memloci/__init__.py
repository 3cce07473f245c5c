"""memloci: what a Transformer can remember, at what cost, and whether training finds it.

The public names. Each is imported when it is first used, so that `import memloci` and the command
line's help cost no JAX.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memloci.certifier.certificate import Certificate as Certificate
    from memloci.certifier.certify import certify as certify
    from memloci.errors import BadInput as BadInput
    from memloci.model.architecture import Architecture as Architecture
    from memloci.model.store import load as load
    from memloci.model.store import save as save
    from memloci.model.transformer import Transformer as Transformer
    from memloci.observer.sup_error import measure as measure
    from memloci.pipeline import Built as Built
    from memloci.pipeline import compile as compile
    from memloci.pipeline import verify as verify
    from memloci.pipeline import write as write
    from memloci.planner.make_plan import plan as plan
    from memloci.sweeps.runs import Runs as Runs
    from memloci.sweeps.start import sweep as sweep
    from memloci.tasks.adaptive import Adaptive as Adaptive
    from memloci.tasks.channel import Channel as Channel
    from memloci.tasks.essential import Essential as Essential
    from memloci.tasks.fixed import Fixed as Fixed
    from memloci.tasks.gallery import GALLERY as GALLERY
    from memloci.tasks.load import load_task as load_task
    from memloci.training.spec import Run as Run
    from memloci.training.spec import Training as Training
    from memloci.training.train import Fit as Fit
    from memloci.training.train import train as train
    from memloci.training.train import train_together as train_together

__version__ = "0.1.0"

_HOME = {
    "Adaptive": "memloci.tasks.adaptive",
    "Architecture": "memloci.model.architecture",
    "BadInput": "memloci.errors",
    "Built": "memloci.pipeline",
    "Certificate": "memloci.certifier.certificate",
    "Channel": "memloci.tasks.channel",
    "Essential": "memloci.tasks.essential",
    "Fixed": "memloci.tasks.fixed",
    "GALLERY": "memloci.tasks.gallery",
    "Runs": "memloci.sweeps.runs",
    "Transformer": "memloci.model.transformer",
    "certify": "memloci.certifier.certify",
    "compile": "memloci.pipeline",
    "load": "memloci.model.store",
    "load_task": "memloci.tasks.load",
    "measure": "memloci.observer.sup_error",
    "plan": "memloci.planner.make_plan",
    "save": "memloci.model.store",
    "sweep": "memloci.sweeps.start",
    "Fit": "memloci.training.train",
    "Run": "memloci.training.spec",
    "Training": "memloci.training.spec",
    "train": "memloci.training.train",
    "train_together": "memloci.training.train",
    "verify": "memloci.pipeline",
    "write": "memloci.pipeline",
}
__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'memloci' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
