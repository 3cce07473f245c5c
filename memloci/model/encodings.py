"""Positional encodings: how a head's logit depends on the lag z = t - s >= 1.

    lin      p phi(z),  phi = -z                      ALiBi
    log      p phi(z),  phi = -log z                  KERPLE
    t5       phi(z) = a learned number per bucket of lags
    rope     <R_t q, R_s k> = sum_j cos(omega_j z) (q_j . k_j) + sin(omega_j z) (q_j x k_j)
    sin, learned, none       nothing in the logit; sin and learned add a vector to the embedding

To add one, write its class here and list it in ENCODINGS. A class says in class variables what the scores
and normalisations need to know, so no other file changes.
"""

from abc import abstractmethod
from functools import lru_cache
from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from memloci.core.arrays import Key, Lags, OfLags, Pairs, Scalar, Slope, Turns
from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.rotation import angles, rotate, turns_of
from memloci.model.zeta import zeta


class AbstractEncoding(eqx.Module):
    """The position part of one head, or of the embedding."""

    name: ClassVar[str]
    sees_lag: ClassVar[bool] = False  # the logits of a head without a dot product depend on z
    has_phi: ClassVar[bool] = False
    rotates: ClassVar[bool] = False  # acts on queries and keys, if the head has them
    summable: ClassVar[Literal["always", "window", "never"]] = "never"  # sum_z exp(position part)
    least_slope: ClassVar[float | None] = None  # p above this makes the infinite sum converge

    @classmethod
    def refusals(cls, architecture: Architecture) -> list[str]:
        return []

    @classmethod
    @abstractmethod
    def for_head(
        cls, architecture: Architecture, rank: Scalar, *, dot: bool, multiplied: bool, key: Key
    ) -> "AbstractEncoding":
        """The part inside a head. `rank` in (0, 1) spreads the heads, `dot` says that the head has
        queries and keys of its own, `multiplied` that its score replaces p in p phi(z)."""

    @classmethod
    def for_embedding(cls, architecture: Architecture, *, key: Key) -> "AbstractEncoding | None":
        return None

    def slope(self) -> Slope | None:
        """p, if this encoding has one here."""
        return None

    def phi(self, z: Lags, dtype: np.dtype) -> OfLags:
        raise NotImplementedError(f"{self.name} has no phi")

    def position(self, z: Lags, dtype: np.dtype) -> OfLags:
        """The position part of the logit: p phi(z), or phi(z) where there is no slope."""
        p, phi = self.slope(), self.phi(z, dtype)
        return phi if p is None else p * phi

    def inner(self, q: Float[Array, "n d_k"], k: Float[Array, "n d_k"]) -> Pairs:
        """<q_t, k_s>, rotated if the encoding rotates."""
        return q @ k.T

    def infinite_sum(self, stride: int) -> Scalar:
        """sum_{j>=1} exp(p phi(j stride) - p phi(stride)); the anchor keeps it from under- and overflow."""
        raise NotImplementedError(f"the sum of {self.name} over an infinite past diverges")

    def vectors(self, n: int) -> Float[Array, "n D"]:
        """What is added to the embedding at positions 0..n-1."""
        raise NotImplementedError(f"{self.name} adds nothing to the embedding")


STEEP = 1.0  # slopes from which 1 - e^-p loses less than the library's expm1 may


class Lin(AbstractEncoding):
    name = "lin"
    sees_lag = True
    has_phi = True
    summable = "always"
    least_slope = 0.0
    p: Scalar | None

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        return cls(None if multiplied else 2.0 ** (-8.0 * rank))  # tuned: ALiBi's range of slopes

    def slope(self) -> Slope | None:
        return self.p

    def phi(self, z: Lags, dtype: np.dtype) -> OfLags:
        return -z.astype(dtype)

    def infinite_sum(self, stride: int) -> Scalar:
        """sum_{j>=1} e^{-pk(j-1)} = 1 / (1 - e^{-pk}); for steep heads a plain difference, which is exactly 1 once e^{-pk} is
        below half a unit of roundoff, whatever the library's exp does in its last bits."""
        assert self.p is not None
        steep = self.p * stride
        return 1 / jnp.where(steep < STEEP, -jnp.expm1(-steep), 1 - jnp.exp(-steep))


class Log(AbstractEncoding):
    name = "log"
    sees_lag = True
    has_phi = True
    summable = "always"
    least_slope = 1.0
    p: Scalar | None

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        return cls(None if multiplied else 1.0 + 3.0 * rank)  # tuned: summable, from slow to fast

    def slope(self) -> Slope | None:
        return self.p

    def phi(self, z: Lags, dtype: np.dtype) -> OfLags:
        return -jnp.log(z.astype(dtype))

    def infinite_sum(self, stride: int) -> Scalar:
        """sum_{j>=1} (jk)^-p k^p = zeta(p)."""
        assert self.p is not None
        return zeta(self.p)


class T5(AbstractEncoding):
    """phi(z) is the learned number of the bucket that z falls in."""

    name = "t5"
    sees_lag = True
    has_phi = True
    summable = "window"
    table: Float[Array, " buckets"]
    starts: tuple[int, ...] = eqx.field(static=True)  # the first lag of each bucket

    @classmethod
    def refusals(cls, architecture):
        buckets, farthest = architecture.buckets, architecture.max_distance
        if farthest < buckets:
            return [f"encoding 't5' needs max_distance >= buckets, found {farthest} < {buckets}"]
        return []

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        table = 0.1 * jr.normal(key, (architecture.buckets,), rank.dtype)  # tuned: nearly uniform
        return cls(table, starts=bucket_starts(architecture.buckets, architecture.max_distance))

    def phi(self, z: Lags, dtype: np.dtype) -> OfLags:
        starts = jnp.asarray(self.starts, z.dtype)
        return self.table[jnp.searchsorted(starts, z, side="right") - 1].astype(dtype)


class Rope(AbstractEncoding):
    """Rotates the head's queries and keys; without a dot product, a constant query and key of its own."""

    name = "rope"
    sees_lag = True
    rotates = True
    summable = "window"
    turns: Turns
    q: Float[Array, " d_k"] | None
    k: Float[Array, " d_k"] | None

    @classmethod
    def refusals(cls, architecture):
        odd = architecture.key_dim % 2 == 1
        return [f"encoding 'rope' turns pairs, so key_dim must be even, found {architecture.key_dim}"] * odd

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        d_k = architecture.key_dim
        q, k = jr.normal(key, (2, d_k), rank.dtype) * d_k**-0.25  # <q, k> of unit size
        turns = turns_of(architecture.rope_base, d_k // 2)
        return cls(turns, None if dot else q, None if dot else k)

    def position(self, z: Lags, dtype: np.dtype) -> OfLags:
        if self.q is None or self.k is None:
            return jnp.zeros(z.shape, dtype)
        if z.ndim == 2:  # n lags occur in n^2 pairs: turn each once
            return self.position(jnp.arange(z.shape[0] + 1, dtype=z.dtype), dtype)[z]
        (q1, q2), (k1, k2) = jnp.split(self.q, 2), jnp.split(self.k, 2)
        theta = angles(self.turns, z, dtype)
        return jnp.cos(theta) @ (q1 * k1 + q2 * k2) + jnp.sin(theta) @ (q1 * k2 - q2 * k1)

    def inner(self, q: Float[Array, "n d_k"], k: Float[Array, "n d_k"]) -> Pairs:
        theta = angles(self.turns, jnp.arange(q.shape[0], dtype=jnp.int32), q.dtype)
        return rotate(q, theta) @ rotate(k, theta).T


class Unplaced(AbstractEncoding):
    """`none`, and the inside of the heads when positions are added to the embedding."""

    name = "none"

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        return Unplaced()

    def position(self, z: Lags, dtype: np.dtype) -> OfLags:
        return jnp.zeros(z.shape, dtype)


class Sin(AbstractEncoding):
    """Adds (sin omega_j t, cos omega_j t) to the embedding."""

    name = "sin"
    turns: Turns
    dim: int = eqx.field(static=True)
    dtype: str = eqx.field(static=True)

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        return Unplaced()

    @classmethod
    def for_embedding(cls, architecture, *, key):
        turns = turns_of(architecture.rope_base, (architecture.dim + 1) // 2)
        return cls(turns, architecture.dim, architecture.precision)

    def vectors(self, n: int) -> Float[Array, "n D"]:
        theta = angles(self.turns, jnp.arange(n, dtype=jnp.int32), np.dtype(self.dtype))
        return jnp.concatenate([jnp.sin(theta), jnp.cos(theta)], axis=1)[:, : self.dim]


class Learned(AbstractEncoding):
    """Adds one learned vector per position to the embedding."""

    name = "learned"
    table: Float[Array, "max_length D"]

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        return Unplaced()

    @classmethod
    def for_embedding(cls, architecture, *, key):
        shape = (architecture.max_length, architecture.dim)
        return cls(0.1 * jr.normal(key, shape, np.dtype(architecture.precision)))  # tuned

    def vectors(self, n: int) -> Float[Array, "n D"]:
        if n > self.table.shape[0]:
            raise BadInput(
                f"encoding 'learned' has {self.table.shape[0]} positions, the sequence {n}; raise max_length"
            )
        return self.table[:n]


ENCODINGS: dict[str, type[AbstractEncoding]] = {
    encoding.name: encoding for encoding in (Lin, Log, T5, Rope, Sin, Learned, Unplaced)
}


def silent_with_dot(encoding: AbstractEncoding) -> bool:
    """Whether the position part is surely 0 in a head with queries and keys; a derived class may have another."""
    return type(encoding) in (Rope, Unplaced)


@lru_cache
def bucket_starts(buckets: int, farthest: int) -> tuple[int, ...]:
    """The first lag of each t5 bucket: 1, 2, ..., E exactly, then log-spaced; the last one is farthest + 1.

    In integers, so that every machine agrees: floor(E (farthest/E)^{j/q}) is the largest v with
    v^q <= farthest^j E^{q-j}.
    """
    E = buckets // 2
    q = buckets - E - 1
    starts = list(range(1, E + 1))
    for j in range(q + 1):
        power = farthest**j * E ** (q - j)
        v = round(E * (farthest / E) ** (j / q))
        while v**q > power:
            v -= 1
        while (v + 1) ** q <= power:
            v += 1
        starts.append(max(starts[-1], v) + 1)
    return tuple(starts)
