"""Heads that read one place: look only where it can be.

    dp          logit(z) = sum_b C_b cos(pi 2^-b z) + S_b sin(pi 2^-b z),   C, S from the query and a key
    dpf, tmx    logit(z) = a table over lags, the same for every position

A sharp rotary head weighs one lag nearly 1. Without a dot product that is the lag of the largest logit among
the visible ones, a running maximum of the table. With one, the phases of the query spell it: if all cosines
peak at z, the sign of C_b cos + S_b sin at the bits below b is bit b of z. The key that the query is compared
with is the position's own, because sharp heads have keys that are alike; position 0 alone may have another
(a sink), so it is asked as well. Softmax then runs over these two places. With `lin`, dp heads compare content, and the
token with the largest logit is found by its key (by_content.py).

This is not the plain definition: what lies elsewhere is left out. For weights a(t, s) with the mass N outside
the places that are kept,

    |plain_t - sharp_t| <= 2 N max |v|   (softmax, which is normalised anew; N max |v| for infinite)

and the certificate of a model on this path bounds N and adds it (certify/neglected.py). On heads that are
not sharp N is large. A lag cannot be read off frequencies other than pi 2^-b: NaN says so at once.
"""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from memloci.core.arrays import Lags, OfLags, Stream, Turns
from memloci.model.paths.base import AbstractPath, Serves, Values
from memloci.model.paths.by_content import compared
from memloci.model.rotation import angles, rotate

if TYPE_CHECKING:  # these stand above
    from memloci.model.architecture import Architecture
    from memloci.model.attention import Head

BITS = 31  # of a lag: positions are 32-bit integers
QUERIES = 2**12  # at once; tuned, with memory in mind
LAGS = 2**14  # of a table, at once; tuned

Read = Float[Array, "n d_v"]


class Sharp(AbstractPath):
    name = "sharp"
    growth = "n time and memory; approximate, reads one place per head"

    serves = Serves(
        scores=("dp", "dpf", "tmx"), encodings=("rope", "lin"), normalisations=("softmax", "infinite")
    )

    @classmethod
    def refusal(cls, architecture: "Architecture") -> str | None:
        a = architecture
        if a.attention == "tmx-mul":
            return (
                "path 'sharp' with attention 'tmx-mul': its weights fall off from the nearest or the farthest "
                "lag at a rate that the query sets, so what one place leaves out has no bound"
            )
        if a.encoding != "rope" and (a.attention, a.encoding, a.normalisation) != ("dp", "lin", "softmax"):
            return (
                f"path 'sharp' reads a lag off rotary phases, and encoding {a.encoding!r} has none; use "
                "encoding 'rope', attention 'dp' with 'lin' under 'softmax', or another path"
            )
        if a.normalisation == "none":
            return (
                "path 'sharp' with normalisation 'none': every position counts, however low its logit; use "
                "'softmax' or 'infinite'"
            )
        if a.attention == "dp" and (a.window is not None or a.stride != 1):
            return "path 'sharp' with attention 'dp' needs an unlimited past and stride 1"
        return super().refusal(architecture)

    @classmethod
    def recall(cls, heads, X: Stream, V: Values) -> Values:
        if X.shape[0] == 0:
            return V
        return _recalled(heads, X, V)


@eqx.filter_jit  # a model called by itself compiles each layer once, not at every call
def _recalled(heads: "Head", X: Stream, V: Values) -> Values:
    if not heads.encoding.rotates:
        return compared(heads, X, V)
    one = _queried if heads.score.dot else _fixed
    return eqx.filter_vmap(one, in_axes=(eqx.if_array(0), None, 1), out_axes=1)(heads, X, V)


# -- a lag that the query spells ---------------------------------------------------------------------------


def _queried(head: "Head", X: Stream, V: Read) -> Read:
    """Softmax over the position that the query asks for and position 0."""
    W_Q, W_K, turns = head.score.W_Q, head.score.W_K, head.encoding.turns  # type: ignore[attr-defined]
    k_0, zero = W_K @ X[0], jnp.zeros((), jnp.int32)

    def at(t: Int[Array, ""]) -> Float[Array, " d_v"]:
        q = W_Q @ X[t]
        z = spelled(turns, *jax.lax.stop_gradient((q, W_K @ X[t])))
        visible = jnp.stack([(z >= 1) & (z < t), t >= 1])  # z = t is position 0, and asked anyway
        s = jnp.where(visible[0], t - z, zero)
        turned = rotate(jnp.stack([q, q]), angles(turns, jnp.stack([z, t]), q.dtype))
        logits = jnp.sum(turned * jnp.stack([W_K @ X[s], k_0]), axis=1)
        return _softmax(logits, visible) @ jnp.stack([V[s], V[0]])

    recalled = jax.lax.map(at, jnp.arange(X.shape[0], dtype=jnp.int32), batch_size=QUERIES)
    return jnp.where(legible(turns), recalled, jnp.nan)


def spelled(turns: Turns, q: Float[Array, " d_k"], k: Float[Array, " d_k"]) -> Int[Array, ""]:
    """The lag at which <R_z q, k> is largest if all its cosines peak together; its bits, from the lowest."""
    (q1, q2), (k1, k2) = jnp.split(q, 2), jnp.split(k, 2)
    is_bit = _bit_turns()[:, None] == turns[None, :]
    j, present = is_bit.argmax(axis=1), is_bit.any(axis=1)  # a bit without a frequency stays 0
    C, S = (jnp.where(present, part[j], 0.0) for part in (q1 * k1 + q2 * k2, q1 * k2 - q2 * k1))
    bit = jnp.asarray(1 << np.arange(BITS), jnp.int32)
    omega = jnp.asarray(np.pi * 0.5 ** np.arange(BITS), q.dtype)

    def step(z, row):
        C_b, S_b, bit_b, omega_b = row
        theta = omega_b * z.astype(q.dtype)  # z < 2^b, so below pi
        return jnp.where(C_b * jnp.cos(theta) + S_b * jnp.sin(theta) < 0, z + bit_b, z), None

    return jax.lax.scan(step, jnp.zeros((), jnp.int32), (C, S, bit, omega))[0]


def legible(turns: Turns) -> Bool[Array, ""]:
    """Every frequency is a different pi 2^-b, or 0."""
    is_bit = _bit_turns()[:, None] == turns[None, :]
    return (is_bit.any(axis=0) | (turns == 0)).all() & (is_bit.sum(axis=1) <= 1).all()


def _bit_turns() -> Turns:
    """pi 2^-b in units of 2^-32 turns."""
    return jnp.asarray(1 << (31 - np.arange(BITS)), jnp.uint32)


def _softmax(logits: Float[Array, " k"], visible: Bool[Array, " k"]) -> Float[Array, " k"]:
    """Over what is seen; 0 where nothing is. Both sides of a `where` stay finite, for gradients."""
    top = jax.lax.stop_gradient(jnp.max(jnp.where(visible, logits, -jnp.inf)))
    e = jnp.where(visible, jnp.exp(jnp.where(visible, logits - top, 0.0)), 0.0)
    return e / jnp.where(visible.any(), e.sum(), 1.0)


# -- a lag that is the same everywhere ---------------------------------------------------------------------


def _fixed(head: "Head", X: Stream, V: Read) -> Read:
    """The visible lag with the largest logit."""
    n, past = X.shape[0], head.past
    infinite = head.normalisation.sums_position
    # Neighbours are `stride` positions apart; `infinite` sums its whole window, however short the sequence.
    window = n - 1 if past.window is None else past.window // past.stride
    length = window if infinite else min(window, n - 1)
    if length == 0:
        return jnp.zeros_like(V)
    logits = _table(head, past.stride * jnp.arange(1, length + 1, dtype=jnp.int32), X.dtype)
    t = jnp.arange(n, dtype=jnp.int32)
    best = running_argmax(logits)[jnp.clip(t - 1, 0, length - 1)]
    weight = jnp.ones((n,), X.dtype)
    if infinite:
        anchor = jax.lax.stop_gradient(logits.max())
        content = X @ head.score.w if head.score.name == "tmx" else jnp.zeros((), X.dtype)  # type: ignore[attr-defined]
        weight = jnp.exp(content + (logits[best] - anchor)) / jnp.exp(logits - anchor).sum()
    return jnp.where((t >= 1)[:, None], weight[:, None] * V[jnp.maximum(t - 1 - best, 0)], 0.0)


def _table(head: "Head", z: Lags, dtype: np.dtype) -> OfLags:
    one = lambda z: head.encoding.position(z, dtype)
    return jax.lax.map(one, z, batch_size=LAGS)


def running_argmax(values: Float[Array, " k"]) -> Int[Array, " k"]:
    """Where the largest of the first 1, 2, ..., k values stands; the first of equal ones."""
    values = jax.lax.stop_gradient(values)
    before = jnp.pad(jax.lax.cummax(values)[:-1], (1, 0), constant_values=-jnp.inf)
    place = jnp.arange(values.shape[0], dtype=jnp.int32)
    return jax.lax.cummax(jnp.where(values > before, place, 0))
