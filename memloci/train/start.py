"""Where training starts: at random, at compiled weights, or at random with compiled exponents.

Noise is added to every array in units of its root mean square, so that it means the same for all of them.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.encodings import Lin, Log
from memloci.model.transformer import Transformer
from memloci.synthesize import plan
from memloci.tasks.load import task_from_dict
from memloci.tasks.task import Task
from memloci.train.device import make_key
from memloci.train.spec import Run

EXPONENT_MASS = 1e3  # tuned: exponents for weights that float32 can hold


def first_model(run: Run, channels: int, outputs: int) -> Transformer:
    """The model before the first step; the same seed gives the same one."""
    training, key = run.training, make_key(run.training.seed)
    if training.start == "compiled":
        model = _compiled(_text(run.task), training.tolerance, training.route)
    else:
        assert run.architecture is not None
        model = _random(run.architecture, channels, outputs, key)
        if training.start == "exponents":
            model = _with_exponents(model, run.record, training.exponents)
    return _disturbed(model, training.noise, jr.fold_in(key, 2)) if training.noise else model


@eqx.filter_jit  # one program in place of dozens, each compiled for a single operation
def _random(architecture: Architecture, channels: int, outputs: int, key: Any) -> Transformer:
    return Transformer(architecture, channels, outputs, key=key)


def _compiled(task: str, tolerance: float, route: str | None) -> Transformer:
    return _planned(task, tolerance, route).using("auto")


@lru_cache(maxsize=16)
def _planned(task: str, tolerance: float, route: str | None) -> Transformer:
    """A sweep asks for the same weights with every seed."""
    record = task_from_dict(json.loads(task))
    return plan(record, tolerance, routes=[route] if route else None).best.model


def _text(task: dict[str, Any]) -> str:
    return json.dumps(task, sort_keys=True)


def _with_exponents(model: Transformer, task: Task, exponents: Sequence[float] | None) -> Transformer:
    """The slopes of the first layer as given, or from the best kernel sum for this task with as many heads."""
    heads = model.layers[0].attention.heads
    if not isinstance(heads.encoding, Lin | Log) or heads.encoding.p is None:
        raise BadInput("start = 'exponents' is for lin and log encodings with a slope per head")
    slopes = exponents or _exponents(heads.encoding.name, _text(task.to_dict()), len(heads.W_V))
    p = jnp.asarray(slopes, heads.encoding.p.dtype)
    return eqx.tree_at(lambda m: m.layers[0].attention.heads.encoding.p, model, p)


@lru_cache(maxsize=16)
def _exponents(rpe: Any, task: str, heads: int) -> tuple[float, ...]:
    """Fitted once, however many seeds and rates start there."""
    from memloci.approx.kernels.kernel_sums import fit
    from memloci.approx.kernels.kernel_targets import recall_target

    recalls = task_from_dict(json.loads(task)).recalls
    targets = [recall_target(recall) for recall in recalls if recall.kernel and recall.bound]
    if not targets:
        raise BadInput("start = 'exponents' fits them to fixed lags and kernels, and this task has none")
    slopes = fit(rpe, targets, heads, mass=EXPONENT_MASS).exponents
    return tuple(slopes[h % len(slopes)] for h in range(heads))  # a sum may need fewer heads than there are


def _disturbed(model: Transformer, noise: float, key: Any) -> Transformer:
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(arrays)
    keys = jr.split(key, len(leaves))
    size = lambda w: jnp.sqrt(jnp.mean(jnp.square(w)))
    moved = [w + noise * size(w) * jr.normal(k, w.shape, w.dtype) for w, k in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, moved), rest)
