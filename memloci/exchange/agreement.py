"""Every export is run as it was written, and compared with ours and with the target.

    |theirs - H| <= restated bound,      |theirs - ours| <= restated bound + our bound

on random sequences and on hostile ones: constant at either end of the range, alternating between the ends, a single
impulse, and ends drawn at random. One token that is infinite must spoil the positions that see it, and no others.
Where nothing is proved the difference must stay below a tuned number of roundings.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.core.numbers import number
from memloci.core.precision import PRECISIONS
from memloci.core.proved import Observed
from memloci.exchange.runtime import Restated
from memloci.exchange.subject import Subject
from memloci.model.transformer import Transformer, require_precision
from memloci.observe.inside import inside
from memloci.tasks.inputs import sample
from memloci.tasks.task import Task

LENGTHS = (1, 2, 17, 512)
ROUNDINGS = (
    2.0**12
)  # tuned: units of roundoff by which uncertified models may differ, relative to 1 + max |y|
SPOILED = 4  # the position of the infinite token
SEED = 20_402_522

Run = Callable[[np.ndarray], np.ndarray]  # (batch, n, channels) -> (batch, n, outputs)


class Disagreement(RuntimeError):
    """An exported model does not compute what ours does: a fault of the export, not of its user."""


@dataclass(frozen=True)
class Difference:
    """What was seen at one length: the largest differences over all sequences."""

    length: int
    sequences: int
    err_from_ours: Observed
    err_from_target: Observed | None
    limit_from_ours: float
    limit_from_target: float | None

    @property
    def within(self) -> bool:
        near = self.err_from_ours <= self.limit_from_ours
        if self.err_from_target is None or self.limit_from_target is None:
            return near
        return near and self.err_from_target <= self.limit_from_target

    def to_dict(self) -> dict[str, Any]:
        target = None if self.err_from_target is None else float(self.err_from_target)
        return {
            "length": self.length,
            "sequences": self.sequences,
            "err_from_ours": float(self.err_from_ours),
            "limit_from_ours": self.limit_from_ours,
            "err_from_target": target,
            "limit_from_target": self.limit_from_target,
        }


@dataclass(frozen=True)
class Reference:
    """What a model is compared on: the longest sequences, what we make of them, and the target; shorter ones are their
    beginnings, and what comes later changes nothing. The last sequence has an infinite token."""

    x: np.ndarray  # (batch, n, channels)
    ours: np.ndarray  # (batch, n, outputs)
    target: np.ndarray | None  # (batch - 1, n, outputs)


def compare(
    run: Run, subject: Subject, proved: Restated, lengths: Sequence[int] = LENGTHS
) -> tuple[Difference, ...]:
    """The differences at every length; raises `Disagreement` where one exceeds its limit."""
    known = reference(subject, max(*lengths, SPOILED + 1))
    spoiled = known.x[-1:, : 2 * SPOILED]
    if not np.array_equal(np.isfinite(known.ours[-1:, : 2 * SPOILED]), np.isfinite(run(spoiled))):
        raise Disagreement("an infinite token changes other positions of the exported model than of ours")
    return tuple(_compared(run, subject, proved, known, n) for n in lengths)


@lru_cache(maxsize=1)  # the formats of one model are compared one after the other
def reference(subject: Subject, n: int) -> Reference:
    model, task = subject.model, subject.task
    x = sequences(model, task, n)
    spoiled = np.zeros((1, n, model.channels), x.dtype)
    spoiled[0, SPOILED] = np.inf
    x = np.concatenate([x, spoiled])
    target = None if task is None else _target(task, x[:-1])
    return Reference(x, np.asarray(_ours(model, x), float), target)


def _compared(run: Run, subject: Subject, proved: Restated, known: Reference, n: int) -> Difference:
    theirs = np.asarray(run(known.x[:-1, :n]), float)
    ours = known.ours[:-1, :n]
    apart = float(np.abs(theirs - ours).max())
    if proved.bound is not None and subject.certificate is not None:
        limit = float(proved.bound) + float(subject.certificate.bound)
    else:
        u = PRECISIONS[subject.model.architecture.precision].u
        limit = ROUNDINGS * u * (1 + float(np.abs(ours).max()))
    off = None
    if known.target is not None and proved.bound is not None:
        off = Observed(np.abs(theirs - known.target[:, :n]).max())
    limit_from_target = None if off is None else float(proved.bound or 0.0)
    difference = Difference(n, len(theirs), Observed(apart), off, limit, limit_from_target)
    if not difference.within:
        raise Disagreement(
            f"at length {n} the exported model differs from ours by {number(apart)}, allowed is {number(limit)}"
            + ("" if off is None else f", and from the target by {number(off)}")
        )
    return difference


@eqx.filter_jit
def _ours(model: Transformer, x: Any) -> Any:
    return jax.vmap(model)(jnp.asarray(x))


def _target(task: Task, x: np.ndarray) -> np.ndarray:
    require_precision("float64")
    return np.asarray(jax.jit(jax.vmap(task.target))(jnp.asarray(x, jnp.float64)))


def sequences(model: Transformer, task: Task | None, n: int) -> np.ndarray:
    """Random and hostile inputs of one length, in the model's precision."""
    dtype = np.dtype(model.architecture.precision)
    if task is None:
        drawn = np.random.default_rng(SEED).normal(size=(4, n, model.channels))
        return drawn.astype(dtype)
    keys = jr.split(jr.key(SEED), 3)
    random = np.array(jax.vmap(lambda key: sample(task, key, n, jnp.dtype("float32")))(keys), dtype)
    return np.stack([*random, *_hostile(task, n, dtype)])


def _hostile(task: Task, n: int, dtype: np.dtype) -> Iterator[np.ndarray]:
    ends = np.array([_ends(channel.domain, dtype) for channel in task.channels], dtype)  # (channels, 2)
    t, one = np.arange(n), np.ones((n, task.d), np.int64)
    yield ends[:, 0][None].repeat(n, 0)
    yield ends[:, 1][None].repeat(n, 0)
    alternating = (t % 2)[:, None] * one
    yield np.take_along_axis(ends.T, alternating, 0)
    yield np.take_along_axis(ends.T, (t == 0)[:, None] * one, 0)
    drawn = np.random.default_rng(SEED).integers(0, 2, (n, task.d))
    yield np.take_along_axis(ends.T, drawn, 0)


def _ends(domain: Sequence[Any], dtype: np.dtype) -> tuple[float, float]:
    return inside(domain[0], dtype)[0], inside(domain[-1], dtype)[1]
