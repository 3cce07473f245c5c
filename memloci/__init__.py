"""memloci: what a Transformer can remember, at what cost, and whether training finds it.

The public names. Each is imported when it is first used, so that `import memloci` and the command
line's help cost no JAX.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memloci.certify.certificate import Certificate as Certificate
    from memloci.certify.certify import certify as certify
    from memloci.core.errors import BadInput as BadInput
    from memloci.exchange.layout import from_torch as from_torch
    from memloci.exchange.to_transformer_lens import lens as lens
    from memloci.model.architecture import Architecture as Architecture
    from memloci.model.store import load as load
    from memloci.model.store import save as save
    from memloci.model.transformer import Transformer as Transformer
    from memloci.observe.sup_error import measure as measure
    from memloci.pipeline import Built as Built
    from memloci.pipeline import compile as compile
    from memloci.pipeline import detect as detect
    from memloci.pipeline import export as export
    from memloci.pipeline import train as train
    from memloci.pipeline import train_together as train_together
    from memloci.pipeline import verify as verify
    from memloci.pipeline import write as write
    from memloci.sweeps.runs import Runs as Runs
    from memloci.sweeps.start import sweep as sweep
    from memloci.synthesize import plan as plan
    from memloci.tasks.channel import Channel as Channel
    from memloci.tasks.gallery import GALLERY as GALLERY
    from memloci.tasks.inputs import require_inputs as require_inputs
    from memloci.tasks.load import load_task as load_task
    from memloci.tasks.memories.kernel import Kernel as Kernel
    from memloci.tasks.memories.lag import Lag as Lag
    from memloci.tasks.memories.match import Match as Match
    from memloci.tasks.memories.pointer import Pointer as Pointer
    from memloci.tasks.short import Adaptive as Adaptive
    from memloci.tasks.short import Essential as Essential
    from memloci.tasks.short import Fixed as Fixed
    from memloci.tasks.short import Matched as Matched
    from memloci.tasks.task import Task as Task
    from memloci.train.spec import Run as Run
    from memloci.train.spec import Training as Training
    from memloci.train.train import Fit as Fit

__version__ = "0.1.0"

_HOME = {
    "Adaptive": "memloci.tasks.short",
    "Architecture": "memloci.model.architecture",
    "BadInput": "memloci.core.errors",
    "Built": "memloci.pipeline",
    "Certificate": "memloci.certify.certificate",
    "Channel": "memloci.tasks.channel",
    "Essential": "memloci.tasks.short",
    "Fixed": "memloci.tasks.short",
    "GALLERY": "memloci.tasks.gallery",
    "Kernel": "memloci.tasks.memories.kernel",
    "Lag": "memloci.tasks.memories.lag",
    "Match": "memloci.tasks.memories.match",
    "Matched": "memloci.tasks.short",
    "Pointer": "memloci.tasks.memories.pointer",
    "Task": "memloci.tasks.task",
    "Runs": "memloci.sweeps.runs",
    "Transformer": "memloci.model.transformer",
    "certify": "memloci.certify.certify",
    "compile": "memloci.pipeline",
    "detect": "memloci.pipeline",
    "export": "memloci.pipeline",
    "from_torch": "memloci.exchange.layout",
    "lens": "memloci.exchange.to_transformer_lens",
    "load": "memloci.model.store",
    "load_task": "memloci.tasks.load",
    "measure": "memloci.observe.sup_error",
    "plan": "memloci.synthesize",
    "require_inputs": "memloci.tasks.inputs",
    "save": "memloci.model.store",
    "sweep": "memloci.sweeps.start",
    "Fit": "memloci.train.train",
    "Run": "memloci.train.spec",
    "Training": "memloci.train.spec",
    "train": "memloci.pipeline",
    "train_together": "memloci.pipeline",
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


class _Package(ModuleType):
    """Importing a subpackage binds its name here; where a public function has the same one (`ml.train`), it stays."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
