"""One training, as data: what is learned, by which architecture, with which settings.

    Run = task x architecture x Training,   key = hash of all of it and of NUMERICS

Two runs with the same key are the same run: nothing is trained twice. Two runs with the same `program` differ in
numbers only (rate, seed, ...), never in shapes or code: one compiled program serves both.
"""

import hashlib
import json
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from memloci.core.errors import BadInput
from memloci.core.specs import Spec, shorten
from memloci.model.architecture import Architecture
from memloci.tasks.load import task_from_dict
from memloci.tasks.task import Task
from memloci.train.losses import LOSSES

# Raised when the same settings give other numbers than before, as when fitted starts change: stored runs of an older one
# are not reused. Compiled starts change more often, and count for runs that start there.
NUMERICS = 2
NUMERICS_OF_COMPILED = 3

MAX_TOKENS = 2**26  # of a batch, or of a fixed data set; tuned
DATA_KINDS = ("text", "arrays")  # train/data.py: a user's own data in place of a task
MIN_LENGTH, MAX_DEFAULT_LENGTH = 32, 256
# What a program takes as arguments; everything else is compiled in.
NUMBERS = ("steps", "rate", "schedule", "warmup", "clip", "weight_decay", "patience", "improvement")
NUMBERS += ("evaluate_every", "start", "exponents", "noise", "route", "seed", "tolerance")


class Training(Spec):
    """How a run is trained and judged."""

    steps: Annotated[int, Field(ge=1, le=10**8)] = 2000
    batch: Annotated[int, Field(ge=1, le=2**20)] = 128  # sequences per step
    length: Annotated[int, Field(ge=2, le=2**20)] | None = None  # of a sequence; None: `default_length`
    samples: Annotated[int, Field(ge=1, le=2**26)] | None = None  # a fixed data set; None: fresh ones always
    loss: str = "mean-square"  # a name of train/losses.py
    rate: Annotated[float, Field(gt=0, le=100)] = 3e-3
    schedule: Literal["constant", "linear", "cosine"] = "cosine"  # down to 0 at the last step
    warmup: Annotated[int, Field(ge=0, le=10**8)] = 0  # steps until the rate is reached
    clip: Annotated[float, Field(gt=0)] | None = 1.0  # largest norm of the gradient
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0
    patience: Annotated[int, Field(ge=1, le=10**6)] | None = (
        None  # evaluations without improvement; None: all
    )
    improvement: Annotated[float, Field(ge=0, lt=1)] = 0.01  # relative; less is a plateau
    evaluate_every: Annotated[int, Field(ge=1, le=10**6)] = 100  # steps
    held_out: Annotated[int, Field(ge=1, le=2**16)] = 256  # sequences
    start: Literal["random", "compiled", "exponents"] = "random"
    exponents: Annotated[tuple[Annotated[float, Field(gt=0, le=1e9)], ...], Field(min_length=1)] | None = (
        None  # one for every head of the first layer; None: those of a kernel sum that fits the task
    )
    noise: Annotated[float, Field(ge=0, le=100)] = 0.0  # on the starting weights, in units of their size
    route: str | None = None  # of compiled weights
    tolerance: Annotated[float, Field(gt=0)] = 1e-3  # what counts as learned; also for compiled weights
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, name: str) -> str:
        if name not in LOSSES:
            raise ValueError(f"unknown {shorten(name)}, use one of {', '.join(LOSSES)}")
        return name

    @field_validator("rate", "clip", "weight_decay", "improvement", "noise", "tolerance", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        return float(value) if type(value) is int else value  # TOML's 1 for 1.0

    @field_validator("exponents", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(map(cls._whole, value)) if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _sizes(self) -> "Training":
        if max(self.batch, self.held_out, self.samples or 0) * (self.length or 1) > MAX_TOKENS:
            raise ValueError(
                f"batch, samples and held_out times length must be at most {MAX_TOKENS:,} tokens"
            )
        if self.exponents is not None and self.start != "exponents":
            raise ValueError(f"exponents are for start = 'exponents', found start = {self.start!r}")
        return self


class Run(Spec):
    """One training, complete: `task` is what a task file says, or a user's data (train/data.py)."""

    task: dict[str, Any]
    architecture: Architecture | None = None  # None: that of the compiled weights
    training: Training = Training()

    if TYPE_CHECKING:  # tasks and dictionaries: wider than the fields they become

        def __init__(self, **fields: Any): ...

    @field_validator("architecture", mode="before")
    @classmethod
    def _architecture(cls, value: Any) -> Any:
        return Architecture(**value) if isinstance(value, dict) else value

    @field_validator("training", mode="before")
    @classmethod
    def _training(cls, value: Any) -> Any:
        return Training(**value) if isinstance(value, dict) else value

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, fields: Any) -> Any:
        """Defaults that depend on the task are filled in, so that the key tells them."""
        task, training = fields.get("task"), fields.get("training", Training())
        if isinstance(task, Task):
            fields = {**fields, "task": task.to_dict()}
        elif not isinstance(task, dict):
            raise BadInput(f"task: must be a task or what its file says, found {shorten(task)}")
        training = Training(**training) if isinstance(training, dict) else training
        filled = {}
        if training.length is None:
            filled["length"] = default_length(fields["task"])
        if fields["task"].get("kind") == "text" and "loss" not in training.model_fields_set:
            filled["loss"] = "cross-entropy"
        return {**fields, "training": Training(**{**training.model_dump(), **filled})}

    @model_validator(mode="after")
    def _possible(self) -> "Run":
        data, training = self.task.get("kind") in DATA_KINDS, self.training
        if not data:
            self.record  # noqa: B018  a task that is none is refused here
        if (training.loss == "cross-entropy") != (self.task.get("kind") == "text"):
            raise ValueError(
                f"loss {training.loss!r} does not go with {self.task.get('kind')!r}; cross-entropy is for text"
            )
        if training.start == "compiled" and self.architecture is not None:
            raise ValueError(
                "start = 'compiled' brings its own architecture; leave yours out, or start at 'random'"
            )
        if training.start != "compiled" and self.architecture is None:
            raise ValueError("architecture is missing")
        heads = self.architecture.heads if self.architecture else 0
        if training.exponents is not None and len(training.exponents) != heads:
            raise ValueError(
                f"exponents: needs one for each of {heads} heads, found {len(training.exponents)}"
            )
        if data and training.start != "random":
            raise ValueError("there are compiled weights for tasks only; data starts at 'random'")
        if data and training.samples is not None:
            raise ValueError("samples is for tasks; a data set has as many sequences as it has")
        return self

    @cached_property
    def record(self) -> Task:
        return task_from_dict(self.task)

    @cached_property
    def key(self) -> str:
        """Names the run; the place of a data file does not matter, its content does."""
        numerics = NUMERICS_OF_COMPILED if self.training.start == "compiled" else NUMERICS
        return _hash({**self.to_dict(), "task": self._identity, "numerics": numerics})

    @cached_property
    def program(self) -> str:
        """Names what is compiled."""
        fixed = {k: v for k, v in self.training.model_dump().items() if k not in NUMBERS}
        architecture = self.architecture and self.architecture.to_dict()
        route = [self.training.route, self.training.tolerance] if architecture is None else None
        return _hash({"task": self._identity, "architecture": architecture, "route": route, **fixed})

    @property
    def _identity(self) -> dict[str, Any]:
        if self.task.get("kind") in DATA_KINDS:
            return {k: v for k, v in self.task.items() if k != "path"}
        return self.record.to_dict()

    def to_dict(self) -> dict[str, Any]:
        settings = self.model_dump(mode="json", exclude={"architecture"})
        return {**settings, "architecture": self.architecture and self.architecture.to_dict()}


def default_length(task: dict[str, Any]) -> int:
    """Room for every memory: twice the largest lag."""
    if task.get("kind") in DATA_KINDS:
        return int(task.get("length", 128))
    bounds = task_from_dict(task).lag_bounds
    reach = max((MAX_DEFAULT_LENGTH if bound == float("inf") else int(bound) for bound in bounds), default=0)
    return max(MIN_LENGTH, min(2 * reach, max(MAX_DEFAULT_LENGTH, reach + 16)))


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
