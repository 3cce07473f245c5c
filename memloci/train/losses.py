"""Losses: means over a batch, so that micro-batches add up.

mean-square     mean over sequences, positions and outputs of e^2
sup             mean over sequences of (mean_t |e|^p)^(2/p), p = 16: near the largest e^2, with slopes everywhere
cross-entropy   mean over sequences and positions of -log softmax(y)_next, in nats

To add one, write its function here and list it in LOSSES. JAX is imported where a loss is computed: the processes of a
sweep that train nothing only look for names.
"""

from collections.abc import Callable
from typing import Any

P = 16  # tuned: within 1.7 of the largest of 64 errors, when one stands out


def mean_square(outputs: Any, y: Any) -> Any:
    from memloci.model.paths.folded import mean_square

    return mean_square(outputs, y)


def sup(outputs: Any, y: Any) -> Any:
    import jax
    import jax.numpy as jnp

    e = jnp.abs(outputs - y).reshape(outputs.shape[0], -1)
    largest = jax.lax.stop_gradient(e.max(axis=1, keepdims=True))  # keeps e^16 in range
    tiny = jnp.finfo(e.dtype).tiny
    ratio = e / jnp.maximum(largest, tiny)
    mean = jnp.maximum(jnp.mean(ratio**P, axis=1), tiny)
    return jnp.mean(jnp.square(largest[:, 0]) * mean ** (2 / P))


def cross_entropy(outputs: Any, y: Any) -> Any:
    import jax
    import jax.numpy as jnp

    log_p = jax.nn.log_softmax(outputs, axis=-1)
    return -jnp.mean(jnp.take_along_axis(log_p, y[..., None], axis=-1))


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "mean-square": mean_square,
    "sup": sup,
    "cross-entropy": cross_entropy,
}
