"""Sequences drawn for a task: the stated input distribution of every mean-square error.

Tokens are independent. A channel is uniform on its range, on its alphabet, or on the union of its
intervals (by length).
"""

from typing import Any

from memloci.tasks.channel import Channel
from memloci.tasks.task import Task


def sample(task: Task, key: Any, length: int, dtype: Any = None) -> Any:
    """One sequence (length, channels); `jax.vmap` over keys for many."""
    import jax.numpy as jnp
    import jax.random as jr

    dtype = jnp.result_type(float) if dtype is None else dtype
    keys = jr.split(key, task.d)
    columns = [_draw(c, k, length, dtype) for c, k in zip(task.channels, keys, strict=True)]
    return jnp.stack(columns, axis=-1)


def _draw(channel: Channel, key: Any, length: int, dtype: Any) -> Any:
    import jax.numpy as jnp
    import jax.random as jr

    pieces = channel.domain
    if channel.finite:  # "int32": the same draws whether or not JAX is in its 64-bit mode
        which = jr.randint(key, (length,), 0, len(pieces), "int32")
        return jnp.array([piece.lo for piece in pieces], dtype)[which]
    which_key, where_key = jr.split(key)
    if len(pieces) == 1:  # nothing to choose: one program less to compile
        lo, hi = (jnp.array(end, dtype) for end in pieces[0])
    else:
        widths = jnp.array([piece.width for piece in pieces], dtype)
        which = jr.choice(which_key, len(pieces), (length,), p=widths / widths.sum())
        lo, hi = (jnp.array(ends, dtype)[which] for ends in zip(*pieces, strict=True))
    return lo + (hi - lo) * jr.uniform(where_key, (length,), dtype)


def example(task: Task, length: int, seed: int) -> dict[str, list[list[float]]]:
    """A sequence with what is recalled at each position, and the target, as plain lists."""
    import jax.numpy as jnp
    import jax.random as jr

    X = sample(task, jr.key(seed), length)
    columns: dict[str, list[list[float]]] = {"token": X.tolist()}
    columns |= {f"memory {i}": m.tolist() for i, m in enumerate(task.recall(X, jnp), start=1)}
    columns["target"] = task.target(X).tolist()
    return columns
