"""What depends on the device that trains.

On a CPU models take turns, and `unsafe_rbg` compiles several times faster than JAX's own generator. Elsewhere models go side
by side, where only the latter gives each the numbers that it would have alone.
"""

from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.random as jr

from memloci.model.transformer import require_precision
from memloci.train.spec import Run


def on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def generator() -> str:
    return "unsafe_rbg" if on_cpu() else "threefry2x32"


def make_key(seed: int) -> Any:
    """The same seed gives the same numbers on the same kind of device."""
    return jr.key(seed, impl=generator())


def precision_mode(run: Run) -> AbstractContextManager[Any]:
    """JAX's 64-bit mode for runs in float64, and for no others: in it a float32 run rounds elsewhere, so its numbers would
    depend on what the process did before."""
    precision = "float32" if run.architecture is None else run.architecture.precision
    require_precision(precision)
    return jax.enable_x64(precision == "float64")
