"""How a model uses the past, lag by lag: where its heads look, and which lags its output depends on.

    weight of head h at lag z    a^h(t, t - z), over drawn sequences and positions t that have all the lags shown
    influence of lag z           sqrt(E |y_t(X) - y_t(X')|^2), X' being X with the token at t - z drawn anew

Weights say where a head looks, influence what comes of it. Influence is defined for a task as for a model, so that
the two can be laid over each other whatever the architecture. Both are observed, never proved.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.model.transformer import Block, Transformer
from memloci.observe.probes import lags_to_show
from memloci.tasks.inputs import sample
from memloci.tasks.task import Task

MOST_POSITIONS = 160  # tuned: of a drawn sequence
SEQUENCES, MOST_SEQUENCES = 8, 64  # for weights, and for influences
MOST_LAYERS, MOST_HEADS = 4, 6  # shown; of a layer, the heads that write most
WORK = 2e10  # tuned: multiplications for influences, seconds on any machine
TOGETHER = 64


@dataclass(frozen=True)
class HeadLags:
    """Where one head looks: the mean weight at each lag, and what 8 of 10 weights lie between."""

    layer: int
    head: int
    z: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class TokenInfluence:
    """How much the token z steps back moves the output, of the model and of the target."""

    z: np.ndarray
    target: np.ndarray
    model: np.ndarray
    sequences: int


def positions(task: Task, length: int) -> tuple[int, int]:
    """(n, Z): the length of drawn sequences, and the lags 1..Z that are looked at."""
    n = max(2, min(length, MOST_POSITIONS))
    return n, max(1, min(n - 1, lags_to_show(task)))


def head_lags(model: Transformer, task: Task, length: int, seed: int = 0) -> tuple[HeadLags, ...]:
    """The weights of the first layers' heaviest heads."""
    n, Z = positions(task, length)
    x = np.stack([np.asarray(sample(task, k, n, model.W_E.dtype)) for k in jr.split(jr.key(seed), SEQUENCES)])
    z, t = np.arange(1, Z + 1), np.arange(Z, n)
    curves = []
    with jax.default_matmul_precision("highest"):
        X = jax.vmap(model.embed)(jnp.asarray(x))
        for l, layer in enumerate(model.layers[:MOST_LAYERS]):
            weights = np.asarray(_weights(layer, X), dtype=float)  # (sequences, H, n, n)
            for h in _heaviest(layer):
                at_lags = weights[:, h][:, t[:, None], t[:, None] - z[None, :]].reshape(-1, Z)
                low, high = np.quantile(at_lags, (0.1, 0.9), axis=0)
                curves.append(HeadLags(l, h, z, at_lags.mean(axis=0), low, high))
            X = _through(layer, X)
    return tuple(curves)


def influence(model: Transformer, task: Task, length: int, seed: int = 1) -> TokenInfluence:
    """How much each lag matters at the last position."""
    n, Z = positions(task, length)
    count = int(np.clip(WORK / (2.0 * model.parameter_count * n * Z), 2, MOST_SEQUENCES))
    key_old, key_new = jr.split(jr.key(seed))
    draw = lambda key: np.asarray(sample(task, key, count * n, model.W_E.dtype)).reshape(count, n, task.d)
    old, new = draw(key_old), draw(key_new)
    changed = np.repeat(old[:, None], Z, axis=1)  # (count, Z, n, d)
    z = np.arange(1, Z + 1)
    changed[:, z - 1, n - 1 - z] = new[:, n - 1 - z]
    sequences = jnp.asarray(np.concatenate([old[:, None], changed], axis=1).reshape(-1, n, task.d))

    def changes(last: Any) -> np.ndarray:
        y = np.asarray(last(sequences), dtype=float).reshape(count, Z + 1, -1)
        return np.sqrt(np.square(y[:, 1:] - y[:, :1]).mean(axis=(0, 2)))

    return TokenInfluence(z, changes(_last(task.target)), changes(_last(model)), count)


def _last(function: Any) -> Any:
    """The output at the last position of each of many sequences."""
    return jax.jit(
        lambda many: jax.lax.map(lambda x: function(x)[-1], many, batch_size=min(TOGETHER, len(many)))
    )


def _heaviest(layer: Block) -> list[int]:
    """The heads whose W_O W_V is largest, in their order."""
    heads = layer.attention.heads
    size = np.linalg.norm(
        np.asarray(heads.W_O, dtype=float) @ np.asarray(heads.W_V, dtype=float), axis=(1, 2)
    )
    return sorted(int(h) for h in np.argsort(-size)[:MOST_HEADS])


@eqx.filter_jit
def _weights(layer: Block, X: jax.Array) -> jax.Array:
    return jax.vmap(lambda one: layer.attention.weights(layer.before_attention(one)))(X)


@eqx.filter_jit
def _through(layer: Block, X: jax.Array) -> jax.Array:
    return jax.vmap(layer)(X)
