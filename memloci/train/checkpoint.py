"""A model in training, as bytes: enough to go on to the same result, bit for bit.

A safetensors file with the weights and moments; its header names the run and holds the losses so far, and a checksum of
all of it. It is written and read like every other file of a stranger: nothing is executed, and what does not fit or was
damaged is refused.
"""

import json
from typing import Any, NamedTuple

import jax
import numpy as np

from memloci.core.errors import BadInput
from memloci.core.files import parse_json
from memloci.core.specs import shorten
from memloci.core.tensors import SUM, pack, unpack
from memloci.train.program import State
from memloci.train.spec import NUMERICS, Run

FORMAT = 2
UNCHECKED = 1  # the format of before, which had no checksum
HISTORY = ("step", "loss", "held_out", "err_mean_square", "err_sup")


class Course(NamedTuple):
    """A run on its way: its model, and what was seen at every evaluation."""

    state: State
    history: dict[str, list[Any]]
    seconds: float  # of training so far

    @property
    def step(self) -> int:
        return int(self.state.step)

    @property
    def diverged(self) -> bool:
        return int(self.state.diverged) >= 0


def to_bytes(run: Run, course: Course) -> bytes:
    arrays = {str(k): np.atleast_1d(leaf) for k, leaf in enumerate(jax.tree.leaves(course.state))}
    record = {"format": FORMAT, "numerics": NUMERICS, "key": run.key}
    record |= {"history": course.history, "seconds": course.seconds}
    return pack(arrays, {"course": json.dumps(record)})


def from_bytes(run: Run, data: bytes, like: State) -> Course:
    """`like` has the shapes that are expected."""
    try:
        arrays, words = unpack(data)
        record = parse_json(words["course"])
        history = {name: list(record["history"][name]) for name in HISTORY}
        stamp, seconds = (record["numerics"], record["key"]), float(record["seconds"])
        version = record["format"]
    except BadInput as error:
        raise BadInput(f"not a checkpoint that one can go on from: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadInput(f"not a checkpoint: {shorten(str(error))}") from None
    if type(version) is not int or version not in (UNCHECKED, FORMAT) or stamp != (NUMERICS, run.key):
        raise BadInput("the checkpoint is of another run or version; start anew, or with the settings it had")
    if version == FORMAT and SUM not in words:
        raise BadInput("the checkpoint is damaged: it has no checksum")
    leaves, structure = jax.tree.flatten(like)
    stored = [arrays.get(str(k)) for k in range(len(leaves))]
    for leaf, a in zip(leaves, stored, strict=True):
        if a is None or a.size != np.size(leaf) or a.dtype != np.asarray(leaf).dtype:
            raise BadInput("the checkpoint does not fit the model; start anew")
    shaped = [a.reshape(np.shape(leaf)) for leaf, a in zip(leaves, stored, strict=True) if a is not None]
    course = Course(jax.tree.unflatten(structure, shaped), history, seconds)
    _check(run, course)
    return course


def _check(run: Run, course: Course) -> None:
    """Curves that belong together, up to the step that the model has reached."""
    steps = course.history["step"]
    numbers = [value for name in HISTORY for value in course.history[name]]
    if (
        len({len(values) for values in course.history.values()}) > 1
        or any(type(value) not in (int, float, type(None)) for value in numbers)
        or any(type(step) is not int for step in steps)
        or steps != sorted(set(steps))
        or (steps[-1] if steps else 0) != course.step
        or not 0 <= course.step <= run.training.steps
        or not 0 <= course.seconds < float("inf")
    ):
        raise BadInput(
            "the checkpoint is damaged: its curves do not fit the steps that it has done; start anew"
        )
