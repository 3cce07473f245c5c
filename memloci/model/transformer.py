"""The Transformer of the theory, one sequence at a time.

    X  = W_E x + b_E  (+ a vector per position, for sin and learned)
    X <- X + Attn(X),   X <- X + FFN(X)          L times, normalised if `norm` says so
    y  = W_U X + b_U

Attention reads strictly the past, so y_t depends on x_0, ..., x_t only; the present arrives by the residual.
Attention has a plain definition, O(n^2), and faster paths to the same numbers (memloci/model/paths).
"""

import dataclasses
import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from memloci.core.arrays import Key, Stream
from memloci.core.errors import BadInput
from memloci.model import norms
from memloci.model.architecture import Architecture
from memloci.model.attention import Attention
from memloci.model.encodings import ENCODINGS, AbstractEncoding
from memloci.model.ffn import FFN
from memloci.model.paths.choice import choose

MAX_CHANNELS = 2**12  # tuned, like the limits of Architecture
MAX_LENGTH = 2**31  # positions are 32-bit integers


class Block(eqx.Module):
    """One layer. With width 0 there is no FFN, and no norms around it."""

    attention: Attention
    ffn: FFN | None
    before_attention: norms.Norm
    after_attention: norms.Norm
    before_ffn: norms.Norm
    after_ffn: norms.Norm

    @classmethod
    def init(cls, architecture: Architecture, *, key: Key) -> "Block":
        D, m, dtype = architecture.dim, architecture.width, np.dtype(architecture.precision)
        key_attention, key_ffn = jr.split(key)
        around_ffn = architecture.norm if m else "none"
        return cls(
            attention=Attention.init(architecture, key=key_attention),
            ffn=FFN.init(D, m, dtype, key=key_ffn) if m else None,
            before_attention=norms.before(architecture.norm, D, dtype),
            after_attention=norms.after_residual(architecture.norm, D, dtype),
            before_ffn=norms.before(around_ffn, D, dtype),
            after_ffn=norms.after_residual(around_ffn, D, dtype),
        )

    def __call__(self, X: Stream, path: str = "plain") -> Stream:
        X = self.after_attention(X + self.attention(self.before_attention(X), path))
        if self.ffn is not None:
            X = self.after_ffn(X + self.ffn(self.before_ffn(X)))
        return X


class Transformer(eqx.Module):
    """(n, channels) -> (n, outputs); `vmap` it over a batch."""

    architecture: Architecture = eqx.field(static=True)
    W_E: Float[Array, "D channels"]
    b_E: Float[Array, " D"]
    positions: AbstractEncoding | None
    layers: tuple[Block, ...]
    before_readout: norms.Norm
    W_U: Float[Array, "outputs D"]
    b_U: Float[Array, " outputs"]

    def __init__(self, architecture: Architecture, channels: int, outputs: int, *, key: Key):
        for name, size in [("channels", channels), ("outputs", outputs)]:
            if type(size) is not int or not 1 <= size <= MAX_CHANNELS:
                raise BadInput(f"{name} must be a whole number from 1 to {MAX_CHANNELS}, found {size!r}")
        require_precision(architecture.precision)
        D, L, dtype = architecture.dim, architecture.layers, np.dtype(architecture.precision)
        key_E, key_U, key_positions, *key_layers = jr.split(key, 3 + L)
        self.architecture = architecture
        self.W_E = jr.normal(key_E, (D, channels), dtype) * channels**-0.5
        self.b_E = jnp.zeros(D, dtype)
        self.positions = ENCODINGS[architecture.encoding].for_embedding(architecture, key=key_positions)
        self.layers = tuple(
            Block.init(architecture.block(l), key=key_layer) for l, key_layer in enumerate(key_layers)
        )
        self.before_readout = norms.before(architecture.norm, D, dtype)
        self.W_U = jr.normal(key_U, (outputs, D), dtype) * D**-0.5
        self.b_U = jnp.zeros(outputs, dtype)

    @property
    def channels(self) -> int:
        return self.W_E.shape[1]

    @property
    def outputs(self) -> int:
        return self.W_U.shape[0]

    @property
    def parameter_count(self) -> int:
        """How many numbers are trained; the integer frequencies of rope and sin are not."""
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array)))

    def __call__(self, x: Any) -> Float[Array, "n outputs"]:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((self, x))):
            return self._evaluate(x)
        # One program. Outside jit JAX would compile every operation alone, which takes longer than this.
        return _compiled(self, self._sequence(x))

    def _evaluate(self, x: Any) -> Float[Array, "n outputs"]:
        # Some devices multiply float32 matrices in fewer bits unless told; the theory counts every bit.
        with jax.default_matmul_precision("highest"):
            X = self.embed(x)
            for l, layer in enumerate(self.layers):
                X = layer(X, choose(self.architecture.block(l), X.shape[0]))
            return self.readout(X)

    def path(self, n: int) -> str:
        """The path (memloci/model/paths) that sequences of length n take, or several where layers differ;
        `architecture.path` is what was asked for."""
        paths = [choose(self.architecture.block(l), n) for l in range(self.architecture.layers)]
        return ", ".join(dict.fromkeys(paths))

    def stream(self, path: str | os.PathLike[str] | None = None) -> Any:
        """One token at a time (memloci/model/paths/stream.py); from a file, as `Stream.save` left it."""
        from memloci.model.paths.stream import Stream

        return Stream(self) if path is None else Stream.restore(self, path)

    def using(self, path: str) -> "Transformer":
        """The same model on another path: a name of `memloci doctor`, or "auto"."""
        return self._with_architecture(path=path)

    def astype(self, precision: str) -> "Transformer":
        """The same weights in another precision, in which the model is then evaluated."""
        require_precision(precision)
        changed = self._with_architecture(precision=precision)

        def cast(leaf: Any) -> Any:
            if not eqx.is_inexact_array(leaf):
                return leaf
            if isinstance(leaf, Tracer):
                return leaf.astype(precision)
            with np.errstate(over="ignore"):  # NumPy rounds to nearest as XLA does, and compiles nothing
                return jnp.asarray(np.asarray(leaf).astype(precision))

        return jax.tree.map(cast, changed)

    def _with_architecture(self, **switches: Any) -> "Transformer":
        architecture = Architecture(**{**self.architecture.to_dict(), **switches})
        changed = object.__new__(type(self))
        for field in dataclasses.fields(self):
            value = architecture if field.name == "architecture" else getattr(self, field.name)
            object.__setattr__(changed, field.name, value)
        return changed

    def embed(self, x: Any) -> Stream:
        """X0 from a sequence of shape (n, channels), in the model's precision."""
        x = self._sequence(x)
        X = x @ self.W_E.T + self.b_E[None, :]
        return X if self.positions is None else X + self.positions.vectors(x.shape[0])

    def readout(self, X: Stream) -> Float[Array, "n outputs"]:
        return self.before_readout(X) @ self.W_U.T + self.b_U[None, :]

    def check(self) -> None:
        """Refuse weights that define no function: NaN, infinity, another precision, a slope whose normaliser diverges.

        It reads values, so call it outside jit; gradient steps can lead anywhere.
        """
        for leaf in jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array)):
            if leaf.dtype != self.architecture.precision:
                raise BadInput(
                    f"a weight is {leaf.dtype} where the architecture says {self.architecture.precision}; "
                    f"model.astype({str(leaf.dtype)!r}) changes both"
                )
            if not np.isfinite(np.asarray(leaf)).all():
                raise BadInput("a weight is NaN or infinite")
        for l, layer in enumerate(self.layers):
            try:
                layer.attention.check()
            except BadInput as error:
                raise error.within(f"layer {l}") from None

    def _sequence(self, x: Any) -> Float[Array, "n channels"]:
        require_arithmetic(self.W_E.dtype)
        try:
            x = x if isinstance(x, jax.Array) else np.asarray(x)
        except ValueError:
            raise BadInput("the input is not an array of numbers") from None
        if not any(jnp.issubdtype(x.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            raise BadInput(f"the input holds {x.dtype}, not real numbers")
        if x.ndim != 2 or x.shape[1] != self.channels:
            shape = "(" + ", ".join(map(str, x.shape)) + ")"
            raise BadInput(
                f"the input must have shape (n, {self.channels}), found {shape}; vmap over a batch"
            )
        if x.shape[0] >= MAX_LENGTH:
            raise BadInput(
                f"the input has {x.shape[0]:,} positions, at most {MAX_LENGTH - 1:,} can be counted"
            )
        return jnp.asarray(x, self.W_E.dtype)


@eqx.filter_jit
def _compiled(model: Transformer, x: Any) -> Any:
    return model._evaluate(x)


def require_arithmetic(dtype: Any) -> None:
    """JAX computes float64 numbers in float32 once its 64-bit mode is off; nothing that is proved holds then."""
    if dtype == np.float64 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise BadInput(
            "the model is float64, but JAX's 64-bit mode has been switched off since it was made; "
            "call jax.config.update('jax_enable_x64', True)"
        )


def require_precision(precision: str) -> None:
    """float64 needs JAX's 64-bit mode: switch it on, unless the environment says not to."""
    if precision != "float64" or jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        return
    if os.environ.get("JAX_ENABLE_X64", "").strip().lower() in ("0", "false", "no", "off"):
        raise BadInput("precision 'float64' needs 64-bit JAX, but the variable JAX_ENABLE_X64 forbids it")
    jax.config.update("jax_enable_x64", True)
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise BadInput(
            "precision 'float64' needs 64-bit JAX, but a surrounding jax.enable_x64(False) forbids it"
        )
