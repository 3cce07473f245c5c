"""Attention kinds: the part of a head's logit that depends on the tokens.

    dp         <W_Q x_t, W_K x_s> + p phi(z)
    dpf        p phi(z)
    tmx        <w, x_t> + p phi(z)
    tmx-mul    <w, x_t> phi(z)

A score returns the content and the position part apart, because an infinite past is normalised by the
position part alone. There is no 1/sqrt(d_k): the initial scale of W_Q and W_K plays its role.
To add a kind, write its class here and list it in SCORES.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from memloci.core.arrays import Key, LagPairs, Pairs, Scalar, Stream
from memloci.model.architecture import Architecture
from memloci.model.encodings import ENCODINGS, AbstractEncoding
from memloci.model.normalisation import AbstractNormalisation


class AbstractScore(eqx.Module):
    name: ClassVar[str]
    dot: ClassVar[bool] = False  # has queries and keys
    multiplies: ClassVar[bool] = False  # scales phi(z) in place of p

    @classmethod
    def refusals(
        cls, encoding: type[AbstractEncoding], normalisation: type[AbstractNormalisation]
    ) -> list[str]:
        return []

    @classmethod
    @abstractmethod
    def init(cls, architecture: Architecture, rank: Scalar, *, key: Key) -> "AbstractScore":
        """Logits of about unit size when the tokens are; `rank` also fixes the dtype."""

    @abstractmethod
    def logits(self, encoding: AbstractEncoding, X: Stream, z: LagPairs) -> tuple[Pairs, Pairs]:
        """The content and the position part of the logit, for every pair (t, s)."""


class DotProduct(AbstractScore):
    name = "dp"
    dot = True
    W_Q: Float[Array, "d_k D"]
    W_K: Float[Array, "d_k D"]

    @classmethod
    def init(cls, architecture, rank, *, key):
        D, d_k = architecture.dim, architecture.key_dim
        W_Q, W_K = jr.normal(key, (2, d_k, D), rank.dtype) * (D**-0.5 * d_k**-0.25)
        return cls(W_Q, W_K)

    def logits(self, encoding: AbstractEncoding, X: Stream, z: LagPairs) -> tuple[Pairs, Pairs]:
        return encoding.inner(X @ self.W_Q.T, X @ self.W_K.T), encoding.position(z, X.dtype)


class DotProductFree(AbstractScore):
    name = "dpf"

    @classmethod
    def refusals(cls, encoding, normalisation):
        return _needs_lag(cls, encoding)

    @classmethod
    def init(cls, architecture, rank, *, key):
        return cls()

    def logits(self, encoding: AbstractEncoding, X: Stream, z: LagPairs) -> tuple[Pairs, Pairs]:
        position = encoding.position(z, X.dtype)
        return jnp.zeros_like(position), position


class Tmx(AbstractScore):
    name = "tmx"
    w: Float[Array, " D"]

    @classmethod
    def refusals(cls, encoding, normalisation):
        reasons = _needs_lag(cls, encoding)
        if normalisation.cancels_query:
            reasons.append(
                f"attention 'tmx' under normalisation {normalisation.name!r} is exactly dpf, the query term "
                "cancels; use attention 'dpf', or normalisation 'none' or 'infinite'"
            )
        return reasons

    @classmethod
    def init(cls, architecture, rank, *, key):
        D = architecture.dim
        return cls(jr.normal(key, (D,), rank.dtype) * D**-0.5)

    def logits(self, encoding: AbstractEncoding, X: Stream, z: LagPairs) -> tuple[Pairs, Pairs]:
        position = encoding.position(z, X.dtype)
        return jnp.broadcast_to((X @ self.w)[:, None], position.shape), position


class TmxMul(AbstractScore):
    name = "tmx-mul"
    multiplies = True
    w: Float[Array, " D"]

    @classmethod
    def refusals(cls, encoding, normalisation):
        reasons = []
        if not encoding.has_phi:
            known = ", ".join(name for name, kind in ENCODINGS.items() if kind.has_phi)
            reasons.append(
                f"attention 'tmx-mul' with encoding {encoding.name!r} has no phi(z) to multiply; use {known}"
            )
        if normalisation.sums_position:
            reasons.append(
                f"attention 'tmx-mul' under normalisation {normalisation.name!r}: the query sets the rate, "
                "and the sum over the past diverges where it is not positive; use 'softmax' or 'none'"
            )
        return reasons

    @classmethod
    def init(cls, architecture, rank, *, key):
        D = architecture.dim
        return cls(0.1 * jr.normal(key, (D,), rank.dtype) * D**-0.5)  # tuned: phi(z) grows with z

    def logits(self, encoding: AbstractEncoding, X: Stream, z: LagPairs) -> tuple[Pairs, Pairs]:
        phi = encoding.phi(z, X.dtype)
        return (X @ self.w)[:, None] * phi, jnp.zeros_like(phi)


def _needs_lag(score: type[AbstractScore], encoding: type[AbstractEncoding]) -> list[str]:
    if encoding.sees_lag:
        return []
    known = ", ".join(name for name, kind in ENCODINGS.items() if kind.sees_lag)
    return [
        f"attention {score.name!r} with encoding {encoding.name!r}: all logits of a position are equal, so "
        f"every head is the same uniform mean; use {known}"
    ]


SCORES: dict[str, type[AbstractScore]] = {
    score.name: score for score in (DotProduct, DotProductFree, Tmx, TmxMul)
}
