"""What a path is: from the values of H heads to what each head recalls, at every position.

    recalled_t^h = sum_{s<t} a^h(t, s) v_s^h

A path gets the stacked heads, the stream X and the values V, all of them finite, and never the plain n x n
weights. Everything around it (values, broken tokens, strides, W_O) is the same for all paths: model/attention.py.

With a stride k, position t sees t - k, t - 2k, ...: the sequence is k sequences that never meet. They are
taken apart first, so a path sees every k-th token, and a neighbour is `past.stride` positions away.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from memloci.arrays import Stream

if TYPE_CHECKING:  # these stand above
    from memloci.model.architecture import Architecture
    from memloci.model.attention import Head

Values = Float[Array, "n H d_v"]


class AbstractPath(ABC):
    name: ClassVar[str]
    growth: ClassVar[str]  # of time with the length n, for people

    @classmethod
    def refusal(cls, architecture: "Architecture") -> str | None:
        """Why this path cannot serve this architecture; None if it can."""
        return None

    @classmethod
    def recalled(cls, heads: "Head", X: Stream, V: Values) -> Values:
        """What every head recalls at every position."""
        k, n = heads.past.stride, X.shape[0]
        if k == 1 or n == 0:
            return cls.recall(heads, X, V)
        one = lambda X, V: cls.recall(heads, X, V)
        return together(jax.vmap(one)(apart(X, k), apart(V, k)), n)

    @classmethod
    @abstractmethod
    def recall(cls, heads: "Head", X: Stream, V: Values) -> Values:
        """The same for a sequence whose neighbours are `heads.past.stride` positions apart."""


def apart(rows: Shaped[Array, "n *rest"], k: int) -> Shaped[Array, "k m *rest"]:
    """The k sequences of every k-th row, the last ones filled up with 0."""
    n = rows.shape[0]
    m = -(-n // k)
    filled = jnp.pad(rows, [(0, m * k - n)] + [(0, 0)] * (rows.ndim - 1))
    return jnp.moveaxis(filled.reshape(m, k, *rows.shape[1:]), 1, 0)


def together(parts: Shaped[Array, "k m *rest"], n: int) -> Shaped[Array, "n *rest"]:
    """The inverse of `apart`."""
    k, m = parts.shape[:2]
    return jnp.moveaxis(parts, 0, 1).reshape(k * m, *parts.shape[2:])[:n]
