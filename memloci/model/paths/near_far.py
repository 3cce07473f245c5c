"""A causal convolution in linear time: near lags one by one, far lags by a few exponentials.

    Y_t = sum_{j=1..t} k(j) v_{t-j},        k(j) = near_j  (j < 2 C),       k(j) ~ sum_i c_i e^{-u_i j}  (j > C)

The sequence is cut into chunks of C. A chunk reads itself and the chunk before lag by lag, as two matrix
products, and all older chunks through the states of the exponentials, S_i = sum_s e^{-u_i (end - s)} v_s.
Products over a block of many chunks at once keep matrix products large and everything in cache. Blocks
follow one another in a scan, and each is computed again for the gradient, so memory is linear both ways.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from memloci.model.paths.base import Values

BLOCK = 1024  # tuned: positions whose products are taken together


def convolve(
    V: Values, near: Float[Array, "H twice"], rates: np.ndarray, weights: Float[Array, "H J"]
) -> Values:
    """`near` holds k(1), ..., k(2C - 1) and one number more that is not read."""
    n, H, d = V.shape
    C, J = near.shape[1] // 2, len(rates)
    m = max(1, min(BLOCK // C, -(-n // C)))  # chunks in a block
    blocks = -(-n // (m * C))
    filled = jnp.pad(V, ((0, blocks * m * C - n), (0, 0), (0, 0)))

    i = np.arange(C)
    lag = i[:, None] - i[None, :]
    within = jnp.where((lag > 0)[None], near[:, np.maximum(lag, 1) - 1], 0.0)  # (H, C, C)
    last = near[:, lag + C - 1]
    exp = lambda exponents: jnp.asarray(np.exp(exponents), V.dtype)
    gather = jnp.broadcast_to(exp(-rates[:, None] * (C - 1 - i)[None, :])[None], (H, J, C))
    spread = weights[:, None, :] * exp(-rates[None, :] * (C + 1 + i)[:, None])[None]
    fade = exp(-rates * C)[None, :, None]
    reading = jnp.concatenate([last, gather], axis=1)  # (H, C + J, C)

    @jax.checkpoint
    def block(carry, V):
        S, before = carry  # the states without the last chunk, and what that chunk gives to the next
        W = V.reshape(m, C, H, d).transpose(2, 1, 0, 3).reshape(H, C, m * d)
        given = (reading @ W).reshape(H, C + J, m, d)
        given = jnp.concatenate([before[:, :, None], given], axis=2)
        S, states = jax.lax.scan(lambda S, new: (fade * S + new, S), S, jnp.moveaxis(given[:, C:, :-1], 2, 0))
        states = jnp.moveaxis(states, 0, 2).reshape(H, J, m * d)
        Y = within @ W + given[:, :C, :-1].reshape(H, C, m * d) + spread @ states
        return (S, given[:, :, -1]), Y.reshape(H, C, m, d).transpose(2, 1, 0, 3).reshape(m * C, H, d)

    start = jnp.zeros((H, J, d), V.dtype), jnp.zeros((H, C + J, d), V.dtype)
    _, Y = jax.lax.scan(block, start, filled.reshape(blocks, m * C, H, d))
    return Y.reshape(-1, H, d)[:n]
