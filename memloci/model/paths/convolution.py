"""Any kernel over lags, by the fast Fourier transform.

    Y = k * v,      one transform of the values, one of the kernel, one back

Fast for every encoding and window, but its rounding error is relative to the largest value of the whole
sequence, at every position: a huge value spoils what came before it, and no certificate covers it. So it is
never chosen by itself.
"""

import jax.numpy as jnp

from memloci.core.arrays import Stream
from memloci.model.paths import factors
from memloci.model.paths.base import AbstractPath, Values


class Convolution(AbstractPath):
    name = "convolution"
    growth = "n log n"
    serves = factors.KERNELS

    @classmethod
    def recall(cls, heads, X: Stream, V: Values) -> Values:
        n, H, d = V.shape
        window = heads.past.window
        lags = n - 1 if window is None else window // heads.past.stride
        if n < 2:
            return jnp.zeros_like(V)
        k, anchor = factors.kernel(heads, lags, V.dtype)
        reach = min(n - 1, lags)
        size = 1 << (n + reach).bit_length()  # no wrap-around; a power of 2 is fastest
        flat = V.reshape(n, H * d).T  # time last: contiguous transforms
        shifted = jnp.pad(k[:, :reach], ((0, 0), (1, 0)))
        product = jnp.fft.rfft(flat, size).reshape(H, d, -1) * jnp.fft.rfft(shifted, size)[:, None, :]
        Y = jnp.fft.irfft(product, size)[:, :, :n].reshape(H * d, n).T.reshape(n, H, d)
        out = factors.finish(heads, X, Y, k, anchor)
        return jnp.where((jnp.arange(n) > 0)[:, None, None], out, 0.0)
