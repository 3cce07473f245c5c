"""Normalisation of the residual stream, position by position (off in the paper).

    layer:  g * (x - mean x) / sqrt(var x + eps) + b        rms:  g * x / sqrt(mean x^2 + eps)

    pre, rms:  X + f(norm(X)), and once more before the readout        post:  norm(X + f(X))

`eps` only keeps a constant x from dividing by zero. Tuned: its value, the usual one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from memloci.core.arrays import Stream

EPS = 1e-5


class Identity(eqx.Module):
    """No normalisation."""

    def __call__(self, X: Stream) -> Stream:
        return X


class LayerNorm(eqx.Module):
    gain: Float[Array, " D"]
    bias: Float[Array, " D"]

    def __call__(self, X: Stream) -> Stream:
        centred = X - X.mean(axis=1, keepdims=True)
        unit = centred * jax.lax.rsqrt((centred**2).mean(axis=1, keepdims=True) + EPS)
        return unit * self.gain[None, :] + self.bias[None, :]


class RMSNorm(eqx.Module):
    gain: Float[Array, " D"]

    def __call__(self, X: Stream) -> Stream:
        return X * jax.lax.rsqrt((X**2).mean(axis=1, keepdims=True) + EPS) * self.gain[None, :]


Norm = Identity | LayerNorm | RMSNorm


def before(norm: str, D: int, dtype: np.dtype) -> Norm:
    """The normalisation in front of a sublayer, or of the readout."""
    match norm:
        case "pre":
            return LayerNorm(jnp.ones(D, dtype), jnp.zeros(D, dtype))
        case "rms":
            return RMSNorm(jnp.ones(D, dtype))
        case _:
            return Identity()


def after_residual(norm: str, D: int, dtype: np.dtype) -> Norm:
    """The normalisation behind a residual addition."""
    return LayerNorm(jnp.ones(D, dtype), jnp.zeros(D, dtype)) if norm == "post" else Identity()
