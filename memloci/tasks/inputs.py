"""Sequences drawn for a task: the stated input distribution of every mean-square error.

Tokens are independent. A channel is uniform on its range, on its alphabet, or on the union of its
intervals (by length). `require_inputs` refuses a sequence that is none of the task: no bound is about it.
"""

from typing import Any

from memloci.core.errors import BadInput
from memloci.core.numbers import literal
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


def require_inputs(task: Task, X: Any) -> None:
    """Refuse a sequence (..., length, channels) with a number that its channel does not take, and say where it is.

    A number of the precision is meant: where an interval or a symbol has none, it is the nearest one.
    """
    import numpy as np

    X = np.asarray(X)
    if X.ndim < 2 or X.shape[-1] != task.d:
        raise BadInput(f"a sequence has shape (length, {task.d}), found {X.shape}")
    if X.dtype.kind not in "fiu":
        raise BadInput(f"a sequence holds numbers, found {X.dtype}")
    dtype = X.dtype if X.dtype.kind == "f" else np.dtype("float64")
    for k, channel in enumerate(task.channels):
        x = X[..., k].astype(dtype)
        lo, hi = np.array([_ends(piece.lo, piece.hi, dtype) for piece in channel.domain], dtype).T
        with np.errstate(invalid="ignore"):
            which = np.clip(np.searchsorted(lo, x, side="right") - 1, 0, None)
            outside = ~((lo[which] <= x) & (x <= hi[which]))
        if outside.any():
            place = tuple(int(i) for i in np.argwhere(outside)[0])
            raise BadInput(
                f"x[{', '.join(map(str, (*place, k)))}] = {literal(float(x[place]))} is no value of channel "
                f"{channel.name!r}, which is {_described(channel)}; no bound is about such an input"
            )


def _ends(lo: float, hi: float, dtype: Any) -> tuple[Any, Any]:
    """The least and the largest number of a precision in an interval, or twice the nearest one if it has none."""
    import numpy as np

    low, high = dtype.type(lo), dtype.type(hi)
    up = np.nextafter(low, dtype.type(np.inf)) if float(low) < lo else low
    down = np.nextafter(high, dtype.type(-np.inf)) if float(high) > hi else high
    return (up, down) if up <= down else (low, low)


def _described(channel: Channel) -> str:
    pieces = channel.domain
    several = [literal(p.lo) if p.is_point else f"[{literal(p.lo)}, {literal(p.hi)}]" for p in pieces[:4]]
    return "in " + ", ".join(several) + (f" or one of {len(pieces) - 4} more" if len(pieces) > 4 else "")


def example(task: Task, length: int, seed: int) -> dict[str, list[list[float]]]:
    """A sequence with what is recalled at each position, and the target, as plain lists."""
    import jax.numpy as jnp
    import jax.random as jr

    X = sample(task, jr.key(seed), length)
    columns: dict[str, list[list[float]]] = {"token": X.tolist()}
    columns |= {f"memory {i}": m.tolist() for i, m in enumerate(task.recall(X, jnp), start=1)}
    columns["target"] = task.target(X).tolist()
    return columns
