"""Heads that compare content: the token with the largest logit, found by its key.

    logit(s) = <q_t, k_s> + p phi(t - s),      phi = -z

Tokens with equal keys differ in position alone, so of each distinct key one token can win: the latest for p >= 0, the
earliest for p < 0. With U distinct keys that is n U logits in place of n^2, each one a number of the plain definition. Keys
are told apart exactly, by sorting them. They are taken in blocks, as many as there are, and positions in chunks, so memory
grows with n alone.

The winner gets the weight 1, and all others are left out (sharp.py). A slope of 0 has no winner: heads that average
are not sharp, and no certificate covers them on this path.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from memloci.core.arrays import Scalar, Stream
from memloci.model.paths.base import Values

if TYPE_CHECKING:  # this stands above
    from memloci.model.attention import Head

KEYS = 64  # at once; tuned
CHUNK = 2**10  # positions at once; tuned

Rows = Float[Array, "n d_k"]
Places = Int[Array, " n"]
NOWHERE = -1


def compared(heads: "Head", X: Stream, V: Values) -> Values:
    """The value of the token with the largest logit, 0 where there is none; one head after the other, to save memory."""
    p: Any = heads.encoding.slope()
    values = []
    for h, (W_Q, W_K) in enumerate(zip(heads.score.W_Q, heads.score.W_K, strict=True)):  # type: ignore[attr-defined]
        s = winners(*jax.lax.stop_gradient((X @ W_Q.T, X @ W_K.T, p[h])))
        values.append(jnp.where((s != NOWHERE)[:, None], V[jnp.maximum(s, 0), h], 0.0))
    return jnp.stack(values, axis=1)


def winners(Q: Rows, K: Rows, p: Scalar) -> Places:
    """Per position, the visible token with the largest logit, or NOWHERE."""
    n, C = Q.shape[0], min(CHUNK, Q.shape[0])
    same, first, U = distinct(K)
    chunks = -(-n // C)
    queries = jnp.pad(Q, ((0, chunks * C - n), (0, 0))).reshape(chunks, C, -1)
    keys = jnp.pad(same, (0, chunks * C - n), constant_values=NOWHERE).reshape(chunks, C)
    t = jnp.arange(chunks * C, dtype=jnp.int32).reshape(chunks, C)

    def block(state):
        b, top, at = state
        key_numbers = b * KEYS + jnp.arange(KEYS, dtype=jnp.int32)
        earliest = jnp.where(key_numbers < U, first[jnp.minimum(key_numbers, n - 1)], n)
        k_u = K[jnp.minimum(earliest, n - 1)].T

        def chunk(latest, given):
            q, key, t, top, at = given
            latest_here = jnp.where(key[:, None] == key_numbers[None, :], t[:, None], NOWHERE)
            until = jnp.maximum(jax.lax.cummax(latest_here, axis=0), latest[None, :])
            before = jnp.concatenate([latest[None, :], until[:-1]])  # strictly the past
            begun = jnp.where(earliest[None, :] < t[:, None], earliest[None, :], NOWHERE)
            s = jnp.where(p < 0, begun, before)
            z = (t[:, None] - s).astype(q.dtype)
            logits = jnp.where(s != NOWHERE, q @ k_u - p * z, -jnp.inf)
            u = logits.argmax(axis=1)[:, None]
            candidate, place = (jnp.take_along_axis(rows, u, axis=1)[:, 0] for rows in (logits, s))
            better = candidate > top
            return until[-1], (jnp.where(better, candidate, top), jnp.where(better, place, at))

        none = jnp.full((KEYS,), NOWHERE, jnp.int32)
        _, (top, at) = jax.lax.scan(chunk, none, (queries, keys, t, top, at))
        return b + 1, top, at

    start = (
        jnp.zeros((), jnp.int32),
        jnp.full((chunks, C), -jnp.inf, Q.dtype),
        jnp.full((chunks, C), NOWHERE, jnp.int32),
    )
    _, _, at = jax.lax.while_loop(lambda state: state[0] * KEYS < U, block, start)
    return at.reshape(-1)[:n]


def distinct(K: Rows) -> tuple[Places, Places, Int[Array, ""]]:
    """(which distinct key each token has, where each of them is first, how many there are)."""
    n = K.shape[0]
    place = jnp.arange(n, dtype=jnp.int32)
    columns = jax.lax.sort((*K.T, place), num_keys=K.shape[1])  # stable: equal keys stay in the order of time
    order, rows = columns[-1], jnp.stack(columns[:-1], axis=1)
    new = jnp.concatenate([jnp.zeros(1, bool), (rows[1:] != rows[:-1]).any(axis=1)])
    which = jnp.cumsum(new, dtype=jnp.int32)
    same = jnp.zeros(n, jnp.int32).at[order].set(which)
    first = jnp.full(n, n, jnp.int32).at[which].min(order)
    return same, first, which[-1] + 1
