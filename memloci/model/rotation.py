"""Rotations by large angles, exactly reduced.

    R_t x: the pair (x_j, x_{j + d/2}) turned by omega_j t

float32 cannot hold 65,536 radians to better than 0.008. A frequency is therefore kept as a whole number of
2^-32 turns per position: t * turns mod 2^32 is exact integer arithmetic, and only the remainder, half a
turn at most, becomes a float. `turns` is an array, stored with the weights; being integer it is not trained.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from memloci.core.arrays import Lags, Turns


def turns_of(base: float, count: int) -> Turns:
    """omega_j = base^{-j/count} radians per position, in units of 2^-32 turns."""
    omega = base ** -(np.arange(count) / count)
    return jnp.asarray(np.round(omega / (2 * np.pi) * 2.0**32).astype(np.uint32))


def angles(turns: Turns, t: Lags, dtype: np.dtype) -> Float[Array, "*lags f"]:
    """omega_j t, reduced to [-pi, pi) before it becomes a float."""
    wrapped = jnp.outer(t.astype(jnp.uint32), turns)  # modulo 2^32, exactly
    signed = jax.lax.bitcast_convert_type(wrapped, jnp.int32).reshape(*t.shape, turns.shape[0])
    wide = np.promote_types(dtype, np.float32)  # float16 does not hold 2^31
    return (signed.astype(wide) * (2 * np.pi / 2.0**32)).astype(dtype)


def rotate(x: Float[Array, "n d_k"], theta: Float[Array, "n f"]) -> Float[Array, "n d_k"]:
    """R_t x: the pair (x_j, x_{j + d_k/2}) turned by theta_tj."""
    x1, x2 = jnp.split(x, 2, axis=1)
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    return jnp.concatenate([x1 * cos - x2 * sin, x1 * sin + x2 * cos], axis=1)
