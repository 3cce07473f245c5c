"""What a page shows of a training, looked up once: diagnoses, where the best model looks, compiled weights beside it.

The fits are one run with several seeds (or rates); what is looked at closely is the best of them. All about trained
models is observed; compiled weights, and some of the reasons, are proved.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import jax.random as jr
import numpy as np

from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.observe.lags import HeadLags, TokenInfluence, head_lags, influence
from memloci.observe.portrait import SHOWN_MAPS
from memloci.observe.probes import AttentionMap, attention_maps, target_kernels
from memloci.synthesize import Plan, Plans, plan
from memloci.tasks.inputs import sample
from memloci.tasks.load import task_from_dict
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.task import Task
from memloci.train.diagnose import diagnose
from memloci.train.diagnosis import Diagnosis, slow_readout
from memloci.train.reproduce import Reproduction, reproduction
from memloci.train.spec import DATA_KINDS
from memloci.train.train import Fit, best

MAP_POSITIONS = 48
QUICK_MEMORIES = 2  # of an adaptive task


@dataclass(frozen=True)
class Uses:
    """How a model uses the past."""

    influence: TokenInfluence
    heads: tuple[HeadLags, ...]
    maps: tuple[AttentionMap, ...]  # of the first heads
    writing: int  # heads that write anything


@dataclass(frozen=True)
class CompiledReference:
    """Weights by construction for the same task, whatever their sizes."""

    plan: Plan | None
    note: str  # what they are, or why there are none


@dataclass(frozen=True)
class TrainingPortrait:
    """A training, with what was looked up in it."""

    fits: tuple[Fit, ...]
    best: int  # of the fits, the one that is looked at closely
    diagnoses: tuple[Diagnosis, ...]  # of every fit
    architecture: Architecture
    reproduction: Reproduction
    task: Task | None  # None: a user's data, which has no definition to compare with
    targets: dict[int, np.ndarray]  # memory -> its kernel at the lags 1, 2, ...
    uses: Uses | None  # None: data, or training diverged
    compiled: CompiledReference | None

    @property
    def chosen(self) -> Fit:
        return self.fits[self.best]

    @property
    def diagnosis(self) -> Diagnosis:
        return self.diagnoses[self.best]


def portrait(fits: Sequence[Fit]) -> TrainingPortrait:
    chosen, architecture = best(fits), best(fits).record.sizes[0]
    data, diverged = chosen.run.task.get("kind") in DATA_KINDS, chosen.record.diverged
    task = None if data else chosen.run.record
    return TrainingPortrait(
        tuple(fits),
        list(fits).index(chosen),
        tuple(diagnose(fit.run, fit.record) for fit in fits),
        architecture,
        reproduction([fit.run for fit in fits]),
        task,
        {} if task is None else target_kernels(task),
        None if task is None or diverged else _uses(chosen, task),
        None if task is None else _compiled(task, chosen.run.training.tolerance, architecture.precision),
    )


def _uses(chosen: Fit, task: Task) -> Uses:
    length = chosen.run.training.length
    n = min(MAP_POSITIONS, length or MAP_POSITIONS)
    x = np.asarray(sample(task, jr.key(0), n, chosen.model.W_E.dtype))
    return Uses(
        influence(chosen.model, task, length or 2),
        head_lags(chosen.model, task, length or 2),
        *attention_maps(chosen.model, x, SHOWN_MAPS),
    )


# -- trained against compiled -----------------------------------------------------------------------------


def _compiled(task: Task, tolerance: float, precision: str) -> CompiledReference:
    if reason := _slow(task):
        return CompiledReference(
            None, f"Compiled weights for this task take minutes ({reason}): memloci plan shows them."
        )
    try:
        planned = _planned(json.dumps(task.to_dict()), tolerance, precision)
    except BadInput as error:
        return CompiledReference(None, f"Nothing can be compiled for this task: {error}.")
    plans = [*planned.met, *planned.missed]
    if not plans:
        reasons = "; ".join(f"{route}: {reason}" for route, reason in planned.obstacles.items())
        return CompiledReference(
            None, f"The quick routes do not serve this task ({reasons}); memloci plan tries them all."
        )
    return CompiledReference(
        plans[0],
        f"Weights by construction for the same task, of the route that is quickest to try ({plans[0].route}). Their "
        "error is a bound that is proved for every input of any length; that of trained weights was seen on "
        "sequences like those of training.",
    )


@lru_cache(maxsize=32)
def _planned(text: str, tolerance: float, precision: str) -> Plans:
    task = task_from_dict(json.loads(text))
    return plan(task, tolerance, precision, routes=[_quick_route(task)])


def _quick_route(task: Task) -> str:
    """The route that is quickest to try."""
    if not task.M:
        return "one-layer-lin"
    kernels = any(isinstance(recall, Convolution) for recall in task.recalls)
    return "bias-table" if task.stationary and kernels else "rotary"


def _slow(task: Task) -> str | None:
    if not task.stationary and (task.M > QUICK_MEMORIES or max(task.levels) > 1):
        return f"{task.M} memories, of which some adapt"
    return slow_readout(task)
