"""The plain definition: all n^2 weights, then one product."""

import math

import equinox as eqx

from memloci.core.arrays import Stream
from memloci.core.errors import BadInput
from memloci.model.paths.base import AbstractPath, Values

MOST_PAIRS = 2**31  # of all heads: 8 to 16 GiB of weights


def longest_plain(heads: int) -> int:
    """The longest sequence whose weights are held."""
    return math.isqrt(MOST_PAIRS // heads)


class Plain(AbstractPath):
    name = "plain"
    growth = "n^2 time and memory"

    @classmethod
    def recalled(cls, heads, X: Stream, V: Values) -> Values:
        n, H, _ = V.shape
        if n > longest_plain(H):
            raise BadInput(
                f"path 'plain' would hold {n:,} x {n:,} weights of {H} heads; use path 'auto' or 'blocks'"
            )
        one = lambda head, V: head.weights(X) @ V
        return eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 1), out_axes=1)(heads, V)

    recall = recalled  # it knows strides itself
