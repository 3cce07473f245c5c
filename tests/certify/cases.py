"""Random tasks, models and routes on which a certificate must hold: the table of the soundness tests."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from memloci.tasks.short import Essential, Fixed
from memloci.tasks.task import Task

ONE_CHANNEL = ("x1 - 0.5 * x2", "x1 * x2", "abs(x1) + x0", "max(x0, x2)", "x1 ** 2 - x2", "tanh(2 * x1) + x2")
TWO_CHANNELS = ("x1 * b2", "where(b1 > 0, x2, x0)", "b1 * b2", "sign(b1) + x0", "min(b1, b2)")
ALPHABET: dict[str, Any] = {"name": "b", "values": [-1, 0.5, 2]}
KERNELS = ("z ** -2", "exp(-0.3 * z)", "z ** -1.5", "exp(-z / 5) * cos(z)", "0.5 * exp(-0.1 * z) + z ** -3")


def random_fixed(rng: np.random.Generator, far: int = 9) -> Fixed:
    lags = sorted(rng.choice(np.arange(1, far), 2, replace=False).tolist())
    if rng.integers(2):
        channels = [{"name": "x", "range": [-1, 1]}, ALPHABET]
        return Fixed(lags=lags, readout=str(rng.choice(TWO_CHANNELS)), channels=channels)
    return Fixed(lags=lags, readout=str(rng.choice(ONE_CHANNEL)))


def random_essential(rng: np.random.Generator) -> Essential:
    kernels = [str(kernel) for kernel in rng.choice(KERNELS, 2, replace=False)]
    return Essential(kernels=kernels, readout=str(rng.choice(("x1", "x1 - 0.5 * x2", "x1 + 0.25 * x0"))))


@dataclass(frozen=True)
class Drawn:
    task: Task
    model: Transformer
    label: str


def random_weights(seed: int) -> Drawn:
    """A task, and a model with random weights that knows nothing of it."""
    rng = np.random.default_rng(seed)
    task = random_fixed(rng) if rng.random() < 0.8 else random_essential(rng)
    encodings = ("lin", "log", "rope", "t5") if isinstance(task, Fixed) else ("lin", "log")
    encoding, precision = str(rng.choice(encodings)), str(rng.choice(("float32", "float64")))
    layers = 1 if isinstance(task, Essential) else int(rng.integers(1, 3))
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
    )
    model = Transformer(architecture, task.d, task.outputs, key=jr.key(seed))
    bias = rng.normal(size=4) * rng.integers(0, 2)
    model = eqx.tree_at(lambda m: m.b_E, model, jnp.asarray(bias, precision))
    return Drawn(
        task, model, f"{encoding} {precision} L={layers} {architecture.heads} heads, {task.to_dict()}"
    )
