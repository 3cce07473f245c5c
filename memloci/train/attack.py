"""The adversary inside the compiled loop: the ascent of observe/sup_error.py, in one program for all weights.

From drawn sequences, every token moves to the end of its range that raises the error at one position; symbols at
that position are drawn anew, since no gradient sees what they decide. The largest error ever met counts.
It is an observation in the model's own precision; `ml.measure` looks longer, and in float64.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.model.transformer import Transformer
from memloci.observe.inside import inside
from memloci.tasks.inputs import sample
from memloci.tasks.task import Task

STARTS, ROUNDS = 8, 4


def attack(model: Transformer, task: Task, n: int, key: Any) -> Any:
    """max |H_t(X) - TF_t(X)| over the sequences tried."""
    dtype = model.W_E.dtype
    lo, hi = (jnp.asarray(side, dtype) for side in _ends(task, dtype))
    finite = jnp.asarray([channel.finite for channel in task.channels])
    error = lambda x: model(x) - task.target(x)

    def from_one(key: Any, t: Any, sign: Any) -> Any:
        def again(x: Any, key: Any) -> Any:
            slope = jax.grad(lambda x: sign * error(x)[t].sum())(x)
            pushed = jnp.where(slope > 0, hi[None, :], jnp.where(slope < 0, lo[None, :], x))
            drawn = sample(task, key, n, dtype)
            touched = (jnp.arange(n, dtype=t.dtype) == t)[:, None] & finite[None, :]
            x = jnp.where(touched, drawn, pushed)
            return x, jnp.abs(error(x)).max()

        keys = jr.split(key, ROUNDS + 1)
        x = sample(task, keys[0], n, dtype)
        tops = jax.lax.scan(again, x, keys[1:])[1]
        return jnp.maximum(jnp.abs(error(x)).max(), tops.max())

    t, sign = (jnp.asarray(each) for each in _starts(task, n, dtype))
    return jax.lax.map(lambda one: from_one(*one), (jr.split(key, STARTS), t, sign)).max()


def _starts(task: Task, n: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Half of them at the last position, the others where memories begin; both signs in turn."""
    reach = task.farthest
    early = [int(t) for t in (reach, reach - 1, 1) if 0 <= t < n - 1] or [n - 1]
    t = [n - 1 if k % 4 < 2 else early[k // 4 % len(early)] for k in range(STARTS)]
    return np.asarray(t, "int32"), np.asarray([(-1.0) ** k for k in range(STARTS)], dtype)


def _ends(task: Task, dtype: Any) -> tuple[list[float], list[float]]:
    pieces = [(channel.domain[0], channel.domain[-1]) for channel in task.channels]
    return [inside(a, dtype)[0] for a, _ in pieces], [inside(b, dtype)[1] for _, b in pieces]
