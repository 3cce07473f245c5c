"""A model taken apart into its nodes, and runs in which some of them, or some edges, carry something else.

    stream that a target reads = sum over the nodes before it of what each wrote

Every input of every target (q, k and v of a head, that of neurons, that of the readout) is a sum of its own, so any edge
can carry what its source wrote on another input, and any node can be held at given values. Names are those of
circuits/graph.py. Sequences are short here: weights are n x n.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from memloci.circuits.graph import INPUT, OUTPUT
from memloci.core.errors import BadInput
from memloci.model.attention import Head
from memloci.model.transformer import Transformer

HEAD_INPUTS = ("q", "k", "v")
ASKS = {"W_Q": 0, "w": 0, "W_K": 1}  # arrays of a score: which of the inputs each reads


@dataclass(frozen=True)
class Dissection:
    """A model and the names of its nodes, in the order of computation."""

    model: Transformer

    def __post_init__(self) -> None:
        if self.model.architecture.norm != "none" or self.model.positions is not None:
            raise BadInput(
                "a normalised stream, or one with position vectors, is no sum of what its nodes write; "
                "models with norm 'none' and a relative encoding are taken apart"
            )

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All that write: the input, heads and neurons."""
        names = [INPUT]
        for l, block in enumerate(self.model.layers):
            names += [f"a{l}.h{h}" for h in range(block.attention.heads.W_V.shape[0])]
            names += [f"m{l}"] if block.ffn is not None else []
        return tuple(names)

    @cached_property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """All that is read: (target, input)."""
        places = []
        for name in self.nodes[1:]:
            places += [(name, each) for each in (HEAD_INPUTS if name.startswith("a") else ("",))]
        return (*places, (OUTPUT, ""))

    def run(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """(batch, n, channels) -> outputs, and what every node wrote, (batch, nodes, n, D)."""
        return self._run(x, None, (), {})

    def patched(self, x: Any, other: np.ndarray, edges: Iterable[tuple[str, str, str]]) -> np.ndarray:
        """The outputs where these edges carry what their source wrote in another run."""
        return self._run(x, other, edges, {})[0]

    def holding(self, x: Any, writes: Mapping[str, np.ndarray]) -> np.ndarray:
        """The outputs where these nodes write what is given, an array that broadcasts to (batch, n, D)."""
        return self._run(x, None, (), writes)[0]

    def _run(
        self,
        x: Any,
        other: np.ndarray | None,
        edges: Iterable[tuple[str, str, str]],
        writes: Mapping[str, np.ndarray],
    ) -> tuple[np.ndarray, np.ndarray]:
        x = jnp.asarray(x, self.model.W_E.dtype)
        shape = x.shape[0], len(self.nodes), x.shape[1], self.model.architecture.dim
        foreign = np.zeros((len(self.inputs), len(self.nodes)), dtype=bool)
        for source, target, name in edges:
            foreign[self.inputs.index((target, name)), self.nodes.index(source)] = True
        values = np.zeros(shape, self.model.W_E.dtype)
        fixed = np.zeros(len(self.nodes), dtype=bool)
        for name, value in writes.items():
            k = self.nodes.index(name)
            values[:, k], fixed[k] = value, True
        borrowed = values if other is None else other
        y, wrote = _batch(self.model, x, jnp.asarray(borrowed), foreign, jnp.asarray(values), fixed)
        return np.asarray(y), np.asarray(wrote)


@eqx.filter_jit
def _batch(model: Transformer, x: Any, borrowed: Any, foreign: Any, values: Any, fixed: Any) -> Any:
    one = lambda x, borrowed, values: _one(model, x, borrowed, foreign, values, fixed)
    with jax.default_matmul_precision("highest"):
        return jax.vmap(one)(x, borrowed, values)


def _one(model: Transformer, x: Any, borrowed: Any, foreign: Any, values: Any, fixed: Any) -> Any:
    def written(k: int, new: Any) -> Any:
        """With what nodes k, k + 1, ... write."""
        rows = slice(k, k + len(new))
        return wrote.at[rows].set(jnp.where(fixed[rows, None, None], values[rows], new))

    def streams(row: int, count: int) -> Any:
        """What `count` inputs read; nodes that come later have written 0."""
        mixed = jnp.where(foreign[row : row + count, :, None, None], borrowed, wrote)
        return mixed.sum(axis=1)

    node, row = 1, 0
    wrote = jnp.zeros_like(values)
    wrote = written(0, model.embed(x)[None])
    for block in model.layers:
        heads = block.attention.heads
        H, inputs = heads.W_V.shape[0], len(HEAD_INPUTS)
        read = streams(row, H * inputs).reshape(H, inputs, *values.shape[1:])
        wrote = written(node, eqx.filter_vmap(_head)(heads, *(read[:, i] for i in range(inputs))))
        node, row = node + H, row + H * inputs
        if block.ffn is not None:
            wrote = written(node, block.ffn(streams(row, 1)[0])[None])
            node, row = node + 1, row + 1
    return model.readout(streams(row, 1)[0]), wrote


def _head(head: Head, queries: Any, keys: Any, values: Any) -> Any:
    """What a head writes when its queries, keys and values read three streams: one wide stream, of which its matrices
    read a third each."""
    names = [name for name in ASKS if hasattr(head.score, name)]
    wide = [_third(getattr(head.score, name), ASKS[name]) for name in names]
    apart = eqx.tree_at(lambda h: [getattr(h.score, name) for name in names], head, wide) if names else head
    weights = apart.weights(jnp.concatenate([queries, keys, values], axis=1))
    return (weights @ (values @ head.W_V.T)) @ head.W_O.T


def _third(W: Any, i: int) -> Any:
    parts = [jnp.zeros_like(W)] * 3
    parts[i] = W
    return jnp.concatenate(parts, axis=-1)
