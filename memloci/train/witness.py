"""Sequences that a model cannot tell apart: lower bounds on its error, whatever its weights.

    one answer to two sequences         error >= |H_t(X) - H_t(X')| / 2
    an affine model                     error >= |H_t(A) - H_t(A') - H_t(B') + H_t(B)| / 4,  A + B = A' + B'
    m kinks along a line                error >  e, if no m + 1 straight pieces stay within e of the target there

Each holds in exact arithmetic for every model of the architecture, on sequences of the length that a run is judged
on; the target is computed in floats, with a slack for their rounding that is not proved, so neither is the number.
The sequences are found by drawing, so 0 says that none was found, not that none exists.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.model.architecture import Architecture
from memloci.tasks.inputs import sample
from memloci.tasks.load import task_from_dict
from memloci.tasks.task import Task

DRAWS = 128
LINES, GRID = 4, 513
RELATIVE = ("lin", "log", "t5", "rope", "none")  # encodings that add nothing to the embedding
ROUNDING = 1e-5  # the target may be computed in float32: what is claimed is less than what was found by this

Sequences = np.ndarray  # (count, n, channels)


def out_of_sight(task: Task, a: Architecture, n: int) -> float:
    """The error that comes of tokens to which no chain of visible lags leads, one of each layer."""
    hidden = ~reached_lags(a, n)[::-1]  # of the tokens 0, ..., n - 1, seen from the last
    if not hidden.any():
        return 0.0
    X, Y = _draws(task, n, 0), _draws(task, n, 1)
    Y = np.where(hidden[None, :, None], Y, X)
    return _claimed(task, lambda H: np.abs(H(X)[:, -1] - H(Y)[:, -1]).max() / 2)


def reached_lags(a: Architecture, n: int) -> np.ndarray:
    """Which of the lags 0, ..., n - 1 are sums of visible lags, at most one of each layer."""
    reached = np.arange(n) == 0
    for l in range(a.layers):
        block = a.block(l)
        most = n if block.window is None else block.window // block.stride  # steps of the stride
        rows = -(-n // block.stride)
        padded = np.zeros(rows * block.stride, dtype=np.int64)
        padded[:n] = reached
        count = padded.reshape(rows, block.stride).cumsum(axis=0)
        earlier = np.zeros_like(count)
        earlier[most + 1 :] = count[: max(rows - most - 1, 0)]
        reached = (count > earlier).ravel()[:n]
    return reached


def start_unseen(task: Task, a: Architecture, n: int) -> float:
    """One softmax layer on a constant sequence: weights that sum to 1 give the same at every position but the first.

    Later layers see that the first position is unlike the others, and absolute encodings see it at once.
    """
    if a.layers > 1 or a.normalisation != "softmax" or a.encoding not in RELATIVE or n <= a.stride:
        return 0.0
    X = np.repeat(_draws(task, 1, 2), n, axis=1)
    return _claimed(task, lambda H: np.ptp(H(X)[:, a.stride :], axis=1).max() / 2)


def not_affine(task: Task, a: Architecture, n: int) -> float:
    """Weights that depend on lags only, and no FFN: an affine function of the sequence."""
    blocks = [a.block(l) for l in range(a.layers)]
    if a.norm != "none" or any(block.width or block.attention != "dpf" for block in blocks):
        return 0.0
    A, B = _draws(task, n, 3), _draws(task, n, 4)
    mixed = np.random.default_rng(0).random(A.shape) < 0.5
    A2, B2 = np.where(mixed, A, B), np.where(mixed, B, A)
    C = _towards(task, A, B)  # A and C span a segment
    crossed = lambda H: np.abs(H(A) - H(A2) - H(B2) + H(B)).max() / 4
    curvature = lambda H: np.abs(H(A) - 2 * H((A + C) / 2) + H(C)).max() / 4
    return max(_claimed(task, crossed), _claimed(task, curvature))


def pieces(task: Task, a: Architecture, n: int, error: float) -> int:
    """Straight pieces that any function within `error` of the target needs along some line; one layer of m neurons
    over weights that depend on lags only has m + 1. 0 where this says nothing."""
    if a.layers > 1 or not a.width or a.attention != "dpf" or a.norm != "none":
        return 0
    A = _draws(task, n, 5)[-LINES:]
    B = _towards(task, A, _draws(task, n, 6)[-LINES:])
    s = np.linspace(0.0, 1.0, GRID)
    most = 0
    for start, end in zip(A, B, strict=True):
        line = start[None] + s[:, None, None] * (end - start)[None]
        y = _target(task)(line)[:, -1]
        slack = error + ROUNDING * max(1.0, float(np.abs(y).max()))
        most = max([most, *(_fewest_pieces(s, y[:, o], slack) for o in range(y.shape[1]))])
    return most


def _fewest_pieces(s: np.ndarray, y: np.ndarray, error: float) -> int:
    """As far as a straight piece goes, then the next: no cover has fewer."""
    count, start = 0, 0
    while start < len(s):
        good, bad, step = (
            start + 1,
            len(s) + 1,
            1,
        )  # ends: one point always fits, and there are no more than all
        while bad - good > 1:  # in growing steps, and small ones again where they went too far
            end = good + min(step, bad - good - 1)
            if _fits(s[start:end], y[start:end], error):
                good, step = end, 2 * step
            else:
                bad, step = end, 1
        count, start = count + 1, good
    return count


def _fits(s: np.ndarray, y: np.ndarray, error: float) -> bool:
    """Whether some straight line is within `error` everywhere: the least of a convex function of its slope."""
    slopes = np.diff(y) / np.diff(s)
    low, high = float(slopes.min()), float(slopes.max())
    for _ in range(60):
        third = (high - low) / 3
        left, right = np.ptp(y - (low + third) * s), np.ptp(y - (high - third) * s)
        if min(left, right) <= 2 * error:
            return True
        low, high = (low, high - third) if left < right else (low + third, high)
    return bool(np.ptp(y - low * s) <= 2 * error)


# -- parts ------------------------------------------------------------------------------------------------


def _claimed(task: Task, search: Callable[[Any], Any]) -> float:
    """What was found, less than rounding can have added."""
    largest = 1.0
    target = _target(task)

    def H(X: Sequences) -> np.ndarray:
        nonlocal largest
        y = target(X)
        largest = max(largest, float(np.abs(y).max()))
        return y

    return max(0.0, float(search(H)) - ROUNDING * largest)


def _target(task: Task) -> Callable[[Sequences], np.ndarray]:
    target = _jitted(json.dumps(task.to_dict(), sort_keys=True))
    return lambda X: np.asarray(target(jnp.asarray(X, jnp.result_type(float))), dtype=float)


@lru_cache(maxsize=64)
def _jitted(text: str) -> Any:
    """One compilation for all runs of a sweep on a task."""
    return jax.jit(task_from_dict(json.loads(text)).target)


def _draws(task: Task, n: int, seed: int) -> Sequences:
    """Half of them as the task draws them, half with real channels at the ends of their ranges."""
    drawn = sample(task, jr.key(seed), DRAWS * n, jnp.result_type(float))
    X = np.array(drawn, dtype=float).reshape(DRAWS, n, task.d)
    random = np.random.default_rng(seed)
    half = X[DRAWS // 2 :]
    for c, channel in enumerate(task.channels):
        if not channel.finite:
            ends = np.array([end for piece in channel.domain for end in (piece.lo, piece.hi)])
            half[:, :, c] = random.choice(ends, half.shape[:2])
    return X


def _towards(task: Task, A: Sequences, B: Sequences) -> Sequences:
    """B where a channel's range is one interval, so that all between A and B is a token too; A elsewhere."""
    one_interval = np.array([len(channel.domain) == 1 and not channel.finite for channel in task.channels])
    return np.where(one_interval[None, None, :], B, A)
