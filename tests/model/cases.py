"""The one table of switches: which attention x encoding x normalisation make a model, and why not.

Adding an encoding or an attention kind adds its rows here; every test of this directory then covers it.
"""

from functools import cache
from itertools import product
from typing import Any
from zlib import crc32

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer

# Verdicts: OK, OK only with a window, or what the refusal says.
OK, WINDOW = "ok", "unlimited past diverges; set window"
UNIFORM = "same uniform mean"
CANCELS = "is exactly dpf, the query term cancels"
ROTATES = "rotation acts on queries and keys"
NO_SUM = "no position part to sum"
NO_PHI = r"no phi\(z\) to multiply"
RATE = "the query sets the rate"

#                           softmax  infinite  none
TABLE: dict[tuple[str, str], tuple[str, str, str]] = {
    ("dp", "lin"): (OK, OK, OK),
    ("dp", "log"): (OK, OK, OK),
    ("dp", "t5"): (OK, WINDOW, OK),
    ("dp", "rope"): (OK, ROTATES, OK),
    ("dp", "sin"): (OK, NO_SUM, OK),
    ("dp", "learned"): (OK, NO_SUM, OK),
    ("dp", "none"): (OK, NO_SUM, OK),
    ("dpf", "lin"): (OK, OK, OK),
    ("dpf", "log"): (OK, OK, OK),
    ("dpf", "t5"): (OK, WINDOW, OK),
    ("dpf", "rope"): (OK, WINDOW, OK),
    ("dpf", "sin"): (UNIFORM, UNIFORM, UNIFORM),
    ("dpf", "learned"): (UNIFORM, UNIFORM, UNIFORM),
    ("dpf", "none"): (UNIFORM, UNIFORM, UNIFORM),
    ("tmx", "lin"): (CANCELS, OK, OK),
    ("tmx", "log"): (CANCELS, OK, OK),
    ("tmx", "t5"): (CANCELS, WINDOW, OK),
    ("tmx", "rope"): (CANCELS, WINDOW, OK),
    ("tmx", "sin"): (UNIFORM, UNIFORM, UNIFORM),
    ("tmx", "learned"): (UNIFORM, UNIFORM, UNIFORM),
    ("tmx", "none"): (UNIFORM, UNIFORM, UNIFORM),
    ("tmx-mul", "lin"): (OK, RATE, OK),
    ("tmx-mul", "log"): (OK, RATE, OK),
    ("tmx-mul", "t5"): (OK, RATE, OK),
    ("tmx-mul", "rope"): (NO_PHI, NO_PHI, NO_PHI),
    ("tmx-mul", "sin"): (NO_PHI, NO_PHI, NO_PHI),
    ("tmx-mul", "learned"): (NO_PHI, NO_PHI, NO_PHI),
    ("tmx-mul", "none"): (NO_PHI, NO_PHI, NO_PHI),
}
NORMALISATION_NAMES = ("softmax", "infinite", "none")
NORMS = ("none", "pre", "post", "rms")
SIZES: dict[str, Any] = dict(layers=2, heads=2, width=5, dim=6, key_dim=4, value_dim=3)
SIZES |= dict(buckets=4, max_distance=6, max_length=12, precision="float64")
PASTS = {"plain": dict(window=None, stride=1), "window+stride": dict(window=4, stride=2)}
LENGTH, CHANNELS, OUTPUTS = 9, 2, 3


def switches() -> list[tuple[dict[str, Any], str]]:
    """Every combination of switches with every past, and its verdict: OK or a reason."""
    rows = []
    for ((attention, encoding), verdicts), (past, fields) in product(TABLE.items(), PASTS.items()):
        for normalisation, verdict in zip(NORMALISATION_NAMES, verdicts, strict=True):
            verdict = OK if verdict == WINDOW and past != "plain" else verdict
            names = dict(attention=attention, encoding=encoding, normalisation=normalisation)
            rows.append((names | fields, verdict))
    return rows


VALID = [case for case, verdict in switches() if verdict == OK]
REFUSED = [(case, verdict) for case, verdict in switches() if verdict != OK]
PLAIN = [case for case in VALID if case["window"] is None]
ONCE = PLAIN + [  # every combination once, with the simplest past it allows
    case for case in VALID if case["window"] is not None and case | PASTS["plain"] not in PLAIN
]
HOMOGENEOUS = [
    case
    for case in PLAIN
    if case["normalisation"] != "softmax" and case["encoding"] not in ("sin", "learned")
]


def name(case: Any) -> str:
    return "-".join(str(value) for value in case.values()) if isinstance(case, dict) else ""


def build(case: dict[str, Any], seed: int = 0, **changes: Any) -> Transformer:
    """A small model with random numbers everywhere, frequencies included.

    Only the slopes are chosen, so that every normaliser exists. Sizes are modest, because unnormalised dot
    products grow like the exponential of an exponential over two layers. Drawn by NumPy: compiling JAX's
    generators for every shape would take most of the tests' time.
    """
    return _build(architecture(case, **changes), seed)  # pyright: ignore[reportArgumentType] (frozen specs do hash)


def architecture(case: dict[str, Any], **changes: Any) -> Architecture:
    return Architecture(**(SIZES | case | changes))


@cache
def _build(architecture: Architecture, seed: int) -> Transformer:
    model = eqx.filter_eval_shape(lambda: Transformer(architecture, CHANNELS, OUTPUTS, key=jr.key(0)))
    rng = np.random.default_rng([seed, crc32(repr(architecture).encode())])

    def fill(path: Any, leaf: Any) -> jax.Array:
        if jax.tree_util.keystr(path).endswith(".p"):
            value = rng.uniform(1.2, 3.0, leaf.shape)
        elif leaf.dtype == np.uint32:
            return jnp.asarray(rng.integers(2**32, size=leaf.shape, dtype=np.uint32))
        else:
            value = 0.3 * rng.standard_normal(leaf.shape)
        return jnp.asarray(value, leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, model)


def tokens(seed: int = 0, n: int = LENGTH, dtype: str = "float64") -> np.ndarray:
    """A sequence in [-1, 1]."""
    return np.random.default_rng(seed).uniform(-1, 1, (n, CHANNELS)).astype(dtype)


def same_bits(a: Any, b: Any) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()
