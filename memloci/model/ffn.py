"""The feed-forward layer: a sum of m ridges per output, the theory's two-layer ReLU network.

FFN(X) = A relu(B X + c),   B: (m, D),  c: (m),  A: (D, m);  no output bias
"""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from memloci.core.arrays import Key, Stream


class FFN(eqx.Module):
    B: Float[Array, "m D"]
    c: Float[Array, " m"]
    A: Float[Array, "D m"]

    @classmethod
    def init(cls, D: int, m: int, dtype: np.dtype, *, key: Key) -> "FFN":
        """Ridges of unit size, their kinks spread over the inputs."""
        key_B, key_c, key_A = jr.split(key, 3)
        return cls(
            B=jr.normal(key_B, (m, D), dtype) * (2 / D) ** 0.5,
            c=jr.uniform(key_c, (m,), dtype, minval=-0.5, maxval=0.5),
            A=jr.normal(key_A, (D, m), dtype) * (1 / m) ** 0.5,
        )

    def __call__(self, X: Stream) -> Stream:
        return jax.nn.relu(X @ self.B.T + self.c[None, :]) @ self.A.T
