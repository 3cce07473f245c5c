"""Random tasks, models and routes on which a certificate must hold: the table of the soundness tests."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.core.precision import EVALUATED
from memloci.model.architecture import Architecture
from memloci.model.attention import Attention
from memloci.model.rotation import turns_of
from memloci.model.transformer import Transformer
from memloci.tasks.short import Essential, Fixed
from memloci.tasks.task import Task

ONE_CHANNEL = ("x1 - 0.5 * x2", "x1 * x2", "abs(x1) + x0", "max(x0, x2)", "x1 ** 2 - x2", "tanh(2 * x1) + x2")
TWO_CHANNELS = ("x1 * b2", "where(b1 > 0, x2, x0)", "b1 * b2", "sign(b1) + x0", "min(b1, b2)")
ALPHABET: dict[str, Any] = {"name": "b", "values": [-1, 0.5, 2]}
KERNELS = ("z ** -2", "exp(-0.3 * z)", "z ** -1.5", "exp(-z / 5) * cos(z)", "0.5 * exp(-0.1 * z) + z ** -3")


def random_fixed(rng: np.random.Generator, far: int = 9) -> Task:
    lags = sorted(rng.choice(np.arange(1, far), 2, replace=False).tolist())
    if rng.integers(2):
        channels = [{"name": "x", "range": [-1, 1]}, ALPHABET]
        return Fixed(lags=lags, readout=str(rng.choice(TWO_CHANNELS)), channels=channels)
    return Fixed(lags=lags, readout=str(rng.choice(ONE_CHANNEL)))


def random_essential(rng: np.random.Generator) -> Task:
    kernels = [str(kernel) for kernel in rng.choice(KERNELS, 2, replace=False)]
    return Essential(kernels=kernels, readout=str(rng.choice(("x1", "x1 - 0.5 * x2", "x1 + 0.25 * x0"))))


# -- models, made in NumPy: JAX would compile its generators for every shape -------------------------------


def blank_model(architecture: Architecture, channels: int = 1, outputs: int = 1) -> Transformer:
    """All weights 0, to be replaced, and all slopes 2: those of heads that write nothing must converge too."""
    shapes: Any = eqx.filter_eval_shape(lambda: Transformer(architecture, channels, outputs, key=jr.key(0)))
    fill = lambda path, leaf: jnp.asarray(np.full(leaf.shape, 2 * (path[-1].name == "p"), leaf.dtype))
    return jax.tree_util.tree_map_with_path(fill, shapes)


def drawn_model(
    architecture: Architecture, channels: int = 1, outputs: int = 1, *, seed: int = 0
) -> Transformer:
    """Random weights of the sizes with which a model starts, and its slopes and frequencies."""
    rng, base = np.random.default_rng(seed), architecture.rope_base

    def fill(path: Any, leaf: jax.Array) -> jax.Array:
        name, dtype = path[-1].name, leaf.dtype
        rank = np.arange(1.0, len(leaf) + 1) / len(leaf)
        match name:
            case "turns":
                return jnp.broadcast_to(turns_of(base, leaf.shape[-1]), leaf.shape)
            case "b_E" | "b_U":
                value = np.zeros(leaf.shape)
            case "p":
                value = 2.0 ** (-8.0 * rank) if architecture.encoding == "lin" else 1.0 + 3.0 * rank
            case "c":
                value = rng.uniform(-0.5, 0.5, leaf.shape)
            case "table":
                value = 0.1 * rng.normal(size=leaf.shape)
            case "q" | "k":
                value = rng.normal(size=leaf.shape) * leaf.shape[-1] ** -0.25
            case _:
                value = rng.normal(size=leaf.shape) * leaf.shape[-1] ** -0.5
        return jnp.asarray(value.astype(dtype))

    return jax.tree_util.tree_map_with_path(fill, blank_model(architecture, channels, outputs))


@eqx.filter_jit
def outputs_of(model: Transformer, x: jax.Array) -> jax.Array:
    """One program for all models of an architecture."""
    return model(x)


@eqx.filter_jit
def many_outputs(model: Transformer, x: jax.Array) -> jax.Array:
    """Of many sequences."""
    return jax.vmap(model)(x)


@eqx.filter_jit
def last_weights(attention: Attention, x: jax.Array) -> jax.Array:
    """What the first head weighs lag 1, 2, ... at the last position."""
    return attention.weights(x)[0, -1, :-1][::-1]


def largest_error(model: Transformer, task: Task, x: Any) -> float:
    """On one sequence; NaN if the model's output is."""
    x = np.asarray(x, dtype=float)
    y = np.asarray(outputs_of(model, jnp.asarray(x)), dtype=float)
    return float(np.abs(y - np.asarray(task.target(x))).max())


@dataclass(frozen=True)
class Drawn:
    task: Task
    model: Transformer
    label: str


def random_weights(seed: int) -> Drawn:
    """A task, and a model with random weights that knows nothing of it."""
    rng = np.random.default_rng(seed)
    task = random_fixed(rng) if rng.random() < 0.8 else random_essential(rng)
    encodings = ("lin", "log", "rope", "t5") if task.kind == "fixed" else ("lin", "log")
    encoding, precision = str(rng.choice(encodings)), str(rng.choice(EVALUATED))
    layers = 1 if task.kind == "essential" else int(rng.integers(1, 3))
    architecture = Architecture(
        layers=layers,
        heads=int(rng.integers(1, 4)),
        width=int(rng.choice((0, 3))) if layers == 1 else 0,
        attention="dpf",
        encoding=encoding,
        normalisation="infinite",
        dim=4,
        key_dim=4,
        value_dim=2,
        window=16 if encoding in ("rope", "t5") else None,
        precision=precision,  # type: ignore[arg-type]
        buckets=8,
        max_distance=16,
        path="certified",
    )
    model = drawn_model(architecture, task.d, task.outputs, seed=seed)
    bias = rng.normal(size=4) * rng.integers(0, 2)
    model = eqx.tree_at(lambda m: m.b_E, model, jnp.asarray(bias, precision))
    return Drawn(
        task, model, f"{encoding} {precision} L={layers} {architecture.heads} heads, {task.to_dict()}"
    )
