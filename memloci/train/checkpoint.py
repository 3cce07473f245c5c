"""A model in training, as bytes: enough to go on to the same result, bit for bit.

A safetensors file with the weights and moments; its header names the run and holds the losses so far. It is written
and read like every other file of a stranger: nothing is executed, and what does not fit is refused.
"""

import json
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors.numpy

from memloci.core.errors import BadInput
from memloci.core.specs import shorten
from memloci.train.program import State
from memloci.train.spec import NUMERICS, Run

FORMAT = 1
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
    return safetensors.numpy.save(arrays, metadata={"course": json.dumps(record)})


def from_bytes(run: Run, data: bytes, like: State) -> Course:
    """`like` has the shapes that are expected."""
    try:
        arrays = safetensors.numpy.load(data)
        start = int.from_bytes(data[:8], "little")
        record = json.loads(json.loads(data[8 : 8 + start])["__metadata__"]["course"])
        history = {name: list(record["history"][name]) for name in HISTORY}
        stamp, seconds = (record["format"], record["numerics"], record["key"]), float(record["seconds"])
    except Exception as error:  # the parser's own errors are of many types
        raise BadInput(f"not a checkpoint: {shorten(str(error))}") from None
    if stamp != (FORMAT, NUMERICS, run.key):
        raise BadInput("the checkpoint is of another run or version; start anew, or with the settings it had")
    leaves, structure = jax.tree.flatten(like)
    found = [arrays.get(str(k)) for k in range(len(leaves))]
    for leaf, a in zip(leaves, found, strict=True):
        if a is None or a.size != np.size(leaf) or a.dtype != np.asarray(leaf).dtype:
            raise BadInput("the checkpoint does not fit the model; start anew")
    shaped = [a.reshape(np.shape(leaf)) for leaf, a in zip(leaves, found, strict=True) if a is not None]
    return Course(jax.tree.unflatten(structure, shaped), history, seconds)
