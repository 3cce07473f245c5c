"""The pieces that claims are made of: small tasks, one small model, comparisons of arms."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from memloci.core.numbers import number
from memloci.study.claim import Curve, Evidence
from memloci.study.statistics import Estimate, difference

MEAN_SQUARE, SUP, BITS = "err_mean_square", "err_sup", "bits_per_byte"
SIGNS = {"name": "b", "values": [-1, 1]}
PAYLOAD = {"name": "v", "range": [-1, 1]}
# The paper's layer: weights that depend on the lag alone, over an infinite past, and no layer norm.
LAYER: dict[str, Any] = {"layers": 1, "attention": "dpf", "encoding": "lin", "normalisation": "infinite"}
SIZES: dict[str, Any] = {"dim": 32, "key_dim": 8, "value_dim": 8}


def model(heads: int, width: int, **switches: Any) -> dict[str, Any]:
    return {**LAYER, **SIZES, "heads": heads, "width": width, **switches}


def fixed(lags: Sequence[int], readout: str, *channels: dict[str, Any]) -> dict[str, Any]:
    return _task({"kind": "fixed", "lags": list(lags), "readout": readout}, channels)


def adaptive(lags: Sequence[str], readout: str, *channels: dict[str, Any]) -> dict[str, Any]:
    return _task({"kind": "adaptive", "lags": list(lags), "readout": readout}, channels)


def essential(kernel: str, readout: str = "x1", *channels: dict[str, Any]) -> dict[str, Any]:
    return _task({"kind": "essential", "kernels": [kernel], "readout": readout}, channels)


def _task(fields: dict[str, Any], channels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    from memloci.tasks.load import task_from_dict

    return task_from_dict({**fields, **({"channels": list(channels)} if channels else {})}).to_dict()


@lru_cache(maxsize=8)
def text(path: str) -> dict[str, Any]:
    from memloci.train.data import describe

    return describe(path)


def gain(evidence: Evidence, worse: str, better: str, level: float, measure: str = MEAN_SQUARE) -> Estimate:
    """By how many decades the error of `worse` is above that of `better`."""
    return difference(evidence[worse].logs(measure), evidence[better].logs(measure), level)


def series(
    evidence: Evidence, name: str, points: Sequence[tuple[Any, str]], measure: str = MEAN_SQUARE
) -> Curve:
    """The values of several arms, as (x, name of the arm)."""
    return Curve(
        name, tuple(x for x, _ in points), tuple(tuple(evidence[arm].values(measure)) for _, arm in points)
    )


def in_heads(H: int) -> str:
    return "1 head" if H == 1 else f"{H} heads"


def factor(effect: Estimate) -> str:
    """A gain as a number: 2 decades are 100."""
    return "no number" if effect.value is None else f"{number(10**effect.value)}"


def changed(effect: Estimate) -> str:
    """A gain in words, behind a subject in the plural."""
    if effect.value is None:
        return "have no number to compare"
    return f"{'lower' if effect.value >= 0 else 'raise'} the error by a factor of {number(10 ** abs(effect.value))}"


def balanced(architecture: dict[str, Any], channels: int, parameters: int) -> dict[str, Any]:
    """The same architecture with the FFN width that brings its parameters nearest to a number.

    Every neuron costs the same, so two sizes tell what all of them are.
    """
    none, one = (parameter_count({**architecture, "width": m}, channels) for m in (0, 1))
    width = max(0, round((parameters - none) / (one - none)))
    return {**architecture, "width": width}


def parameter_count(architecture: dict[str, Any], channels: int, outputs: int | None = None) -> int:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from memloci.model.architecture import Architecture
    from memloci.model.transformer import Transformer

    make = lambda key: Transformer(Architecture(**architecture), channels, outputs or channels, key=key)
    shapes = eqx.filter_eval_shape(make, jr.key(0))
    trained = lambda leaf: hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes) if trained(leaf))
