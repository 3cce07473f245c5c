"""Attention: H heads, each a score x encoding x normalisation.

    Attn(X)_t = sum_h W_O^h W_V^h sum_{s<t} a^h(t, s) x_s

`Head` is written for one head. `Attention` holds H of them in one `Head` whose arrays have a leading H axis.
`Head.weights` is the definition; a path (memloci/model/paths) may reach the same sums without the n x n weights.

What has not happened yet must not matter, even when it is NaN or infinite, and 0 * NaN = NaN in a sum
over all s. So values that are not finite are left out of the sum, and positions that see one become NaN.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from memloci.core.arrays import Key, Pairs, Scalar, Stream
from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.encodings import ENCODINGS, AbstractEncoding
from memloci.model.normalisation import NORMALISATIONS, AbstractNormalisation, Past
from memloci.model.paths.choice import PATHS
from memloci.model.scores import SCORES, AbstractScore


class Head(eqx.Module):
    """Weights over the lags z >= 1, and what is read and written with them."""

    score: AbstractScore
    encoding: AbstractEncoding
    normalisation: AbstractNormalisation
    past: Past
    W_V: Float[Array, "d_v D"]
    W_O: Float[Array, "D d_v"]

    @classmethod
    def init(cls, architecture: Architecture, rank: Scalar, *, key: Key) -> "Head":
        """A random head; `rank` in (0, 1) places it among the H heads of its layer."""
        D, H, d_v = architecture.dim, architecture.heads, architecture.value_dim
        key_score, key_encoding, key_V, key_O = jr.split(key, 4)
        score = SCORES[architecture.attention]
        encoding = ENCODINGS[architecture.encoding]
        return cls(
            score=score.init(architecture, rank, key=key_score),
            encoding=encoding.for_head(
                architecture, rank, dot=score.dot, multiplied=score.multiplies, key=key_encoding
            ),
            normalisation=NORMALISATIONS[architecture.normalisation](),
            past=Past(architecture.window, architecture.stride),
            W_V=jr.normal(key_V, (d_v, D), rank.dtype) * D**-0.5,
            W_O=jr.normal(key_O, (D, d_v), rank.dtype) * (H * d_v) ** -0.5,
        )

    def weights(self, X: Stream) -> Pairs:
        """a(t, s)."""
        z, visible = self.past.pairs(X.shape[0])
        content, position = self.score.logits(self.encoding, X, z)
        return self.normalisation.weights(content, position, visible, self.encoding, self.past)


class Attention(eqx.Module):
    """The sum of H heads; every array in `heads` has a leading H axis."""

    heads: Head

    @classmethod
    def init(cls, architecture: Architecture, *, key: Key) -> "Attention":
        H = architecture.heads
        ranks = jnp.asarray((np.arange(H) + 0.5) / H, architecture.precision)
        make = lambda rank, key: Head.init(architecture, rank, key=key)
        return cls(eqx.filter_vmap(make)(ranks, jr.split(key, H)))

    def __call__(self, X: Stream, path: str = "plain") -> Stream:
        """Attn(X), by a path of memloci/model/paths."""
        heads = self.heads
        V = jnp.einsum("nd,hvd->nhv", X, heads.W_V)
        broken = ~jnp.isfinite(V).all(axis=2)
        recalled = PATHS[path].recalled(heads, X, jnp.where(broken[:, :, None], 0.0, V))
        recalled = jnp.where(heads.past.sees_any(broken)[:, :, None], jnp.nan, recalled)
        return jnp.einsum("nhv,hdv->nd", recalled, heads.W_O)

    def weights(self, X: Stream) -> Float[Array, "H n n"]:
        """a^h(t, s) of every head."""
        return eqx.filter_vmap(lambda head: head.weights(X))(self.heads)

    def check(self) -> None:
        """Refuse slopes for which the normaliser does not exist."""
        try:
            self.heads.normalisation.check(self.heads.encoding, self.heads.past)
        except BadInput as error:
            raise error.within("attention") from None
