"""The plain definition: all n^2 weights, then one product."""

import equinox as eqx

from memloci.arrays import Stream
from memloci.fast.base import AbstractPath, Values


class Plain(AbstractPath):
    name = "plain"
    growth = "n^2 time and memory"

    @classmethod
    def recalled(cls, heads, X: Stream, V: Values) -> Values:
        one = lambda head, V: head.weights(X) @ V
        return eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 1), out_axes=1)(heads, V)

    recall = recalled  # it knows strides itself
