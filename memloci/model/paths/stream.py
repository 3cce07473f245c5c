"""One token at a time: y_t from x_t and what the layers keep of the past.

    stream = model.stream()          y_t = stream(x_t),    y = stream.feed(x),    stream.save(path)

These are the numbers of `model(x)` up to rounding, whatever path the model names. Memory and time per token do
not grow with the position, unless the weights depend on every pair of tokens (memories.py). Then the rows that are
kept double when they are full, and the token that needs them waits until its program is compiled anew.

A token costs one call of a compiled program, so its arguments are few, constants are made beforehand, and matrices
lie the way a row of tokens is multiplied with them. `feed` takes CHUNKS of tokens layer by layer; only the sums
over the past go token by token.
"""

import hashlib
import json
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from memloci.core.arrays import Stream as Residual
from memloci.core.errors import BadInput
from memloci.core.files import read_bytes, replace_together
from memloci.core.specs import shorten
from memloci.core.tensors import pack, unpack
from memloci.model.attention import Head
from memloci.model.encodings import AbstractEncoding, Learned, Sin
from memloci.model.paths.memories import (
    LONGEST,
    STREAMS,
    AbstractMemory,
    Cache,
    Positions,
    State,
    most_rows,
    remember,
    rows_for,
)
from memloci.model.rotation import angles
from memloci.model.store import named_leaves
from memloci.model.transformer import Transformer, require_arithmetic

CHUNKS = (256, 32)  # tuned: tokens that `feed` takes at once; what is left over goes one by one
FORMAT = "memloci stream 1"
MOST_ROWS = 2**24  # of a growing cache, for the limit on a file's size
HEADER = 2**20  # bytes; far above what the names of 256 layers need


class Stream:
    """What a model has seen so far; called with the next token, it says the next output."""

    def __init__(self, model: Transformer):
        require_arithmetic(model.W_E.dtype)
        _refuse_unknown(model)
        model.check()
        self._model = model
        self._position = 0
        self._shape, self._dtype = (model.channels,), np.dtype(model.W_E.dtype)
        self._positions(0)
        self._state = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in self._blank().values()]

    @property
    def position(self) -> int:
        """Tokens seen so far."""
        return self._position

    @property
    def nbytes(self) -> int:
        """The memory that the past takes."""
        return sum(array.nbytes for array in self._state)

    def __call__(self, x_t: Any) -> Float[Array, " outputs"]:
        """y_t for the next token, of shape (channels,)."""
        if type(x_t) is not np.ndarray or x_t.dtype != self._dtype or x_t.shape != self._shape:
            x_t = self._token(x_t)
        require_arithmetic(self._dtype)
        if self._position >= self._room:
            self._make_room(1)
        self._state, y = self._one(self._state, self._leaves, x_t)
        self._position += 1
        return y

    def feed(self, x: Any) -> Float[Array, "n outputs"]:
        """y for the next n tokens, of shape (n, channels)."""
        x = np.asarray(self._model._sequence(x))
        self._require(x.shape[0])
        outputs: list[Any] = []
        for size in CHUNKS:
            while x.shape[0] >= size:
                self._make_room(size)
                self._state, y = _program(self._structure, size)(self._state, self._leaves, x[:size])
                self._position += size
                outputs.append(y)
                x = x[size:]
        outputs.extend(self(x_t) for x_t in x)
        rows = [np.asarray(y).reshape(-1, self._model.outputs) for y in outputs]
        return jnp.asarray(np.concatenate([np.zeros((0, self._model.outputs), self._dtype), *rows]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file, written whole or not at all, from which `model.stream(path)` goes on bit by bit."""
        path = Path(path)
        if not path.name:
            raise BadInput(f"{str(path)!r} names no file to save the stream in")
        tensors = dict(zip(self._blank(), map(np.asarray, self._state), strict=True))
        metadata = {"format": FORMAT, "model": fingerprint(self._model)}
        replace_together(path.parent, {path.name: pack(tensors, metadata)})

    @classmethod
    def restore(cls, model: Transformer, path: str | os.PathLike[str]) -> "Stream":
        """The stream as it was saved. Whatever is wrong with the file raises `BadInput`."""
        stream = cls(model)
        try:
            stream._restore(Path(path))
        except BadInput as error:
            raise error.within(str(path)) from None
        return stream

    # -- tokens ------------------------------------------------------------------------------------------------

    def _token(self, x_t: Any) -> np.ndarray:
        try:
            x_t = np.asarray(x_t)
        except ValueError:
            raise BadInput("the token is not an array of numbers") from None
        if x_t.shape != self._shape:
            raise BadInput(
                f"a token must have shape {self._shape}, found {x_t.shape}; `feed` takes several at once"
            )
        if x_t.dtype.kind not in "fiub":
            return np.asarray(self._model._sequence(x_t[None]))[0]
        with np.errstate(over="ignore"):  # too large for the model's precision is infinite, as in `model(x)`
            return x_t.astype(self._dtype)

    def _require(self, n: int) -> None:
        """Refuse tokens beyond the last position."""
        end, last = self._position + n, _last(self._model)
        if end <= last:
            return
        if last < LONGEST:
            raise BadInput(f"encoding 'learned' has {last} positions, the stream {end}; raise max_length")
        raise BadInput(f"a stream has at most {LONGEST:,} positions, these tokens end at {end:,}")

    # -- memory ------------------------------------------------------------------------------------------------

    def _positions(self, position: int) -> None:
        """Everything that depends on the rows of the caches, which have room for so many tokens; every layer has a past
        of its own."""
        pasts = [layer.attention.heads.past for layer in self._model.layers]
        rows = [rows_for(past, position) for past in pasts]
        self._readers = tuple(
            Reader.of(layer.attention.heads, count)
            for layer, count in zip(self._model.layers, rows, strict=True)
        )
        leaves, self._structure = jax.tree.flatten((_turned(_around_attention(self._model)), self._readers))
        self._leaves = [jnp.asarray(leaf) for leaf in leaves]
        self._one = _program(self._structure, 1)
        growing = [
            (count, past.stride)
            for count, past, reader in zip(rows, pasts, self._readers, strict=True)
            if count < most_rows(past) and isinstance(reader.memory, Cache)
        ]
        self._fewest = min(
            (count for count, _ in growing), default=MOST_ROWS
        )  # rows of a cache that can grow
        self._room = min([_last(self._model), *(count * stride for count, stride in growing)])

    def _make_room(self, n: int) -> None:
        """Larger caches, if n more tokens need them; rows that were written stay where they are."""
        self._require(n)
        end = self._position + n
        if end <= self._room:
            return
        self._positions(end)
        for i, larger in enumerate(self._blank().values()):
            smaller = self._state[i]
            more = [(0, after - before) for before, after in zip(smaller.shape, larger.shape, strict=True)]
            if any(after for _, after in more):
                self._state[i] = jnp.asarray(np.pad(np.asarray(smaller), more))

    def _blank(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of all that is kept, in the order of the program."""
        shapes = {"position": jax.ShapeDtypeStruct((), jnp.int32)}
        for l, reader in enumerate(self._readers):
            shapes_of_layer = jax.eval_shape(reader.memory.start)
            shapes |= {f"layers.{l}.{name}": shapes_of_layer[name] for name in sorted(shapes_of_layer)}
        return shapes

    def _restore(self, path: Path) -> None:
        most = sum(leaf.size * leaf.dtype.itemsize for leaf in self._blank().values())
        if self._room < _last(self._model):
            most *= MOST_ROWS // self._fewest
        tensors, metadata = unpack(read_bytes(path, most + HEADER))
        if metadata.get("format") != FORMAT:
            raise BadInput(
                f"not a stream that this version reads: its format is {shorten(metadata.get('format'))}"
            )
        if metadata.get("model") != fingerprint(self._model):
            raise BadInput("the stream of another model: architecture or weights differ")
        position = tensors.get("position", np.array(-1))
        if position.shape != () or position.dtype != np.int32 or not 0 <= position <= _last(self._model):
            raise BadInput("position is not a whole number that this model can have reached")
        self._position = int(position)
        if self._position > self._room:
            self._positions(self._position)
        expected = self._blank()
        if missing := sorted(expected.keys() - tensors.keys()):
            raise BadInput(f"tensor {missing[0]} is missing")
        if unknown := sorted(tensors.keys() - expected.keys()):
            raise BadInput(f"tensor {shorten(unknown[0])} does not belong to this model")
        for name, leaf in expected.items():
            array = tensors[name]
            if array.shape != leaf.shape or array.dtype != leaf.dtype:
                raise BadInput(
                    f"tensor {name} must be {leaf.dtype} of shape {leaf.shape}, found {array.dtype} {array.shape}"
                )
        self._state = [jnp.array(tensors[name]) for name in expected]


def fingerprint(model: Transformer) -> str:
    """The same for models with the same numbers, whatever path they take."""
    architecture = {k: v for k, v in model.architecture.to_dict().items() if k != "path"}
    digest = hashlib.sha256(json.dumps(architecture, sort_keys=True).encode())
    for name, leaf in named_leaves(model):
        digest.update(f"{name} {leaf.shape} {leaf.dtype}".encode() + np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _last(model: Transformer) -> int:
    """The positions a stream can have."""
    return model.positions.table.shape[0] if type(model.positions) is Learned else LONGEST


# -- the program -----------------------------------------------------------------------------------------------


class Reader(eqx.Module):
    """Attention to what is kept, in place of `Attention`."""

    W_V: Float[Array, "D Hd_v"]
    W_O: Float[Array, "Hd_v D"]
    memory: AbstractMemory
    H: int = eqx.field(static=True)

    @classmethod
    def of(cls, heads: Head, rows: int) -> "Reader":
        H, d_v, D = heads.W_V.shape
        W_V, W_O = np.asarray(heads.W_V), np.asarray(heads.W_O)
        return cls(
            W_V=jnp.asarray(W_V.reshape(H * d_v, D).T),
            W_O=jnp.asarray(np.moveaxis(W_O, 1, 2).reshape(H * d_v, D)),
            memory=remember(heads, rows),
            H=H,
        )

    def __call__(self, state: State, t: Positions, X: Residual) -> tuple[State, Residual]:
        n = X.shape[0]
        V = (X @ self.W_V).reshape(n, self.H, -1)
        broken = ~jnp.isfinite(V).all(axis=2)
        state, recalled = self.memory.read(state, t, X, jnp.where(broken[:, :, None], jnp.nan, V))
        return state, recalled.reshape(n, -1) @ self.W_O


@lru_cache(maxsize=64)
def _program(structure: Any, n: int) -> Callable:
    """(state, leaves of the model, n tokens) -> (state, y), compiled; for n = 1 token and y lie flat."""

    def advance(state: list[Array], leaves: list[Array], x: Array) -> tuple[list[Array], Array]:
        turned, readers = jax.tree.unflatten(structure, leaves)
        kinds = jax.tree.structure((0, [jax.eval_shape(reader.memory.start) for reader in readers]))
        start, states = jax.tree.unflatten(kinds, state)
        with jax.default_matmul_precision("highest"):
            states, y = _advance(_turned(turned), readers, states, start, x.reshape(n, -1))
        return jax.tree.leaves((start + n, states)), y[0] if n == 1 else y

    return jax.jit(advance, donate_argnums=0)


def _advance(model: Any, readers: tuple[Reader, ...], states: list[State], start: Array, x: Array):
    """As `Transformer.__call__`, from position `start` on."""
    t = start + jnp.arange(x.shape[0], dtype=jnp.int32)
    X = x @ model.W_E.T + model.b_E[None, :]
    if model.positions is not None:
        X = X + _vectors(model.positions, t)
    advanced = []
    for layer, reader, before in zip(model.layers, readers, states, strict=True):
        state, read = reader(before, t, layer.before_attention(X))
        advanced.append(state)
        X = layer.after_attention(X + read)
        if layer.ffn is not None:
            X = layer.after_ffn(X + layer.ffn(layer.before_ffn(X)))
    return advanced, model.readout(X)


def _refuse_unknown(model: Transformer) -> None:
    for l in range(model.architecture.layers):
        if reason := STREAMS.refusal("a stream", model.architecture.block(l)):
            raise BadInput(reason)
    if model.positions is not None and type(model.positions) not in (Sin, Learned):
        raise BadInput(
            f"a stream does not serve encoding {model.positions.name!r}, whose vectors start at position 0"
        )


def _vectors(positions: AbstractEncoding, t: Positions) -> Residual:
    """What is added to the embedding at positions t; `AbstractEncoding.vectors` starts at 0."""
    match positions:
        case Sin():
            theta = angles(positions.turns, t, np.dtype(positions.dtype))
            return jnp.concatenate([jnp.sin(theta), jnp.cos(theta)], axis=1)[:, : positions.dim]
        case Learned():
            return positions.table[t]
    raise AssertionError(f"encoding {positions.name!r} was to be refused")


def _around_attention(model: Transformer) -> Transformer:
    """The model without its heads, which readers replace."""
    heads = lambda model: [layer.attention for layer in model.layers]
    return eqx.tree_at(heads, model, [None] * len(model.layers))


def _turned(model: Transformer) -> Transformer:
    """Every matrix that is applied to tokens, transposed. Done outside and again inside the program: W.T of a
    matrix that arrives as W.T costs nothing, of one that arrives as W a copy for every token."""

    def matrices(model):
        inner = [W for layer in model.layers if layer.ffn is not None for W in (layer.ffn.B, layer.ffn.A)]
        return [model.W_E, model.W_U, *inner]

    return eqx.tree_at(matrices, model, replace_fn=lambda W: W.T)
