"""Slopes that must stay above a limit are trained by their logarithm.

Where a head divides by its sum over an infinite past, a slope below the limit (0 for lin, 1 for log) has no such sum, and
ALiBi's slopes start so near to it that a first step of Adam would cross it. So p = limit + exp(u), and u is trained.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from memloci.model.transformer import Transformer


def freed(model: Transformer) -> Transformer:
    """The model with u in place of p."""
    return _with(model, lambda p, limit: jnp.log(p - limit))


def bounded(model: Transformer) -> Transformer:
    """The model with p in place of u."""
    return _with(model, lambda u, limit: limit + jnp.exp(u))


def _with(model: Transformer, change: Callable[[Any, float], Any]) -> Transformer:
    for l, layer in enumerate(model.layers):
        block = model.architecture.block(l)
        if block.normalisation != "infinite" or block.window is not None:
            continue
        encoding = layer.attention.heads.encoding
        p = encoding.slope()
        # A slope that an encoding computes from other weights is left as it is: those are what is trained.
        if p is not None and encoding.least_slope is not None and getattr(encoding, "p", None) is p:
            where = lambda m, l=l: m.layers[l].attention.heads.encoding.p
            model = eqx.tree_at(where, model, change(p, encoding.least_slope))
    return model
