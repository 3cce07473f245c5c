"""What a path is: from the values of H heads to what each head recalls, at every position.

    recalled_t^h = sum_{s<t} a^h(t, s) v_s^h

A path gets the stacked heads, the stream X and the values V, all of them finite, and never the plain n x n
weights. Everything around it (values, broken tokens, strides, W_O) is the same for all paths: model/attention.py.

With a stride k, position t sees t - k, t - 2k, ...: the sequence is k sequences that never meet. They are
taken apart first, so a path sees every k-th token, and a neighbour is `past.stride` positions away.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from memloci.core.arrays import Stream

if TYPE_CHECKING:  # these stand above
    from memloci.model.architecture import Architecture
    from memloci.model.attention import Head

Values = Float[Array, "n H d_v"]


@dataclass(frozen=True)
class Serves:
    """What a way of evaluation can do, by name. A score, encoding or normalisation that is not listed is refused:
    one that nobody thought of must not be taken for another."""

    scores: tuple[str, ...] = ("dp", "dpf", "tmx", "tmx-mul")
    normalisations: tuple[str, ...] = ("softmax", "infinite", "none")
    encodings: tuple[str, ...] | None = None  # None: any that is a table over lags, and rope
    needs: str = ""  # what the others lack, for people

    def refusal(self, who: str, architecture: "Architecture") -> str | None:
        a = architecture
        for what, name, known in (
            ("attention", a.attention, self.scores),
            ("encoding", a.encoding, self.encodings or self._tables(a)),
            ("normalisation", a.normalisation, self.normalisations),
        ):
            if name not in known:
                needs = f"; it needs {self.needs}" if self.needs else ""
                return f"{who} does not serve {what} {name!r}, only {', '.join(known)}{needs}"
        return None

    @staticmethod
    def _tables(architecture: "Architecture") -> tuple[str, ...]:
        """Encodings that leave <q, k> alone, so that a table over lags says all about them; and rope."""
        from memloci.model.encodings import ENCODINGS, AbstractEncoding

        plain = lambda kind: not kind.rotates and kind.inner is AbstractEncoding.inner
        return tuple(name for name, kind in ENCODINGS.items() if plain(kind) or name == "rope")


class AbstractPath(ABC):
    name: ClassVar[str]
    growth: ClassVar[str]  # of time with the length n, for people
    serves: ClassVar[Serves | None] = None  # None: everything, because it is the definition

    @classmethod
    def refusal(cls, architecture: "Architecture") -> str | None:
        """Why this path cannot serve this architecture; None if it can."""
        return None if cls.serves is None else cls.serves.refusal(f"path {cls.name!r}", architecture)

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
