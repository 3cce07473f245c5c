"""The compiled part of training: many steps, then an evaluation, in one call.

    w <- w - rate(t) (adam(clip(grad)) + decay w)        t = 1, ..., count, batches drawn inside

All that tells runs of one program apart (rates, seeds, starting weights, ...) is an argument, so a grid shares
the compilation. Weights are one flat vector: the optimiser is then a handful of operations, quick to compile.
Several models take turns on a CPU, where one alone fills the cache, and go side by side elsewhere. The batch of step t
depends on the run's seed and t alone: training can stop anywhere and go on.
"""

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from memloci.model.paths.folded import MICRO_BATCH, fold, loss_and_gradient
from memloci.model.transformer import Transformer, require_precision
from memloci.train.attack import attack
from memloci.train.cache import keep_programs
from memloci.train.data import AbstractSource, FromTask, source_of
from memloci.train.device import generator, make_key, on_cpu
from memloci.train.losses import LOSSES
from memloci.train.slopes import bounded, freed
from memloci.train.spec import Run
from memloci.train.start import first_model

SCHEDULES = ("constant", "linear", "cosine")
NEVER = -1


class State(NamedTuple):
    """One model in training."""

    w: Any
    moments: Any  # Adam's
    step: Any
    diverged: Any  # the first step whose loss was no number; NEVER


class Numbers(NamedTuple):
    """What a program is told about a run."""

    key: Any
    rate: Any
    schedule: Any
    steps: Any
    warmup: Any
    clip: Any
    decay: Any


class Report(NamedTuple):
    """After some steps: the mean loss of these steps, and what held-out sequences say."""

    loss: Any
    held_out: Any
    err_mean_square: Any
    err_sup: Any


class Program:
    """What the runs of one `Run.program` share."""

    def __init__(self, run: Run, source: AbstractSource | None = None):
        keep_programs()
        self.source = source or source_of(run)
        model = first_model(run, self.source.channels, self.source.outputs)
        require_precision(model.architecture.precision)
        self.architecture = model.architecture
        arrays, self.rest = eqx.partition(freed(model), eqx.is_inexact_array)
        flat, self.unravel = ravel_pytree(arrays)
        self.dtype, self.size = flat.dtype, flat.size
        self.loss = LOSSES[run.training.loss]
        self.shares_data = not (isinstance(self.source, FromTask) and run.training.samples is not None)
        self.compile_seconds = 0.0
        self._compiled: dict[tuple[int, ...], Any] = {}

    @cached_property
    def held_out(self) -> Any:
        return self.source.held_out()

    @cached_property
    def shared_data(self) -> Any:
        return self.source.data(0) if self.shares_data else ()

    def model(self, w: Any) -> Transformer:
        return bounded(eqx.combine(self.unravel(jnp.asarray(w)), self.rest))

    def start(self, run: Run) -> State:
        model = first_model(run, self.source.channels, self.source.outputs)
        w = ravel_pytree(eqx.filter(freed(model), eqx.is_inexact_array))[0]
        return State(w, ADAM.init(w), np.int32(0), np.int32(NEVER))

    def numbers(self, run: Run) -> Numbers:
        training, number = run.training, lambda x: np.asarray(x, self.dtype)
        return Numbers(
            jax.random.key_data(jr.fold_in(make_key(training.seed), 0)),
            number(training.rate),
            np.int32(SCHEDULES.index(training.schedule)),
            number(training.steps),
            number(training.warmup),
            number(np.inf if training.clip is None else training.clip),
            number(training.weight_decay),
        )

    def data_of(self, run: Run) -> Any:
        return () if self.shares_data else self.source.data(run.training.seed)

    def advance(
        self, states: Sequence[State], numbers: Sequence[Numbers], data: Sequence[Any], counts: Sequence[int]
    ) -> tuple[list[State], list[Report | None]]:
        """`counts` steps of each model, and its evaluation; none after no steps."""
        each = list(zip(states, numbers, data, np.asarray(counts, "int32"), strict=True))
        if on_cpu():
            one = lambda part: self._call(self._one, part) if part[3] else (part[0], None)
            moved = [jax.tree.map(np.asarray, one(part)) for part in each]
        else:
            all_of_them = jax.vmap(self._one, in_axes=(0, 0, 0, 0, None, None))
            moved = unstack(self._call(all_of_them, stack(each)), len(each))
        return [state for state, _ in moved], [report for _, report in moved]

    def _call(self, function: Any, arguments: Any) -> Any:
        """Compiled once per number of models, which on a CPU is always one."""
        arguments = (*arguments, self.shared_data, self.held_out)
        shape = np.shape(arguments[3])
        if shape not in self._compiled:
            began = time.perf_counter()
            lowered: Any = jax.jit(function).lower(*arguments)
            self._compiled[shape] = lowered.compile(compiler_options=_options())
            self.compile_seconds += time.perf_counter() - began
        return self._compiled[shape](*arguments)

    def _one(self, state: State, numbers: Numbers, data: Any, count: Any, shared: Any, held_out: Any) -> Any:
        key, data = (
            jax.random.wrap_key_data(numbers.key, impl=generator()),
            shared if self.shares_data else data,
        )

        def step(_: Any, progress: Any) -> Any:
            state, total = progress
            x, y = self.source.batch(jr.fold_in(key, state.step), data)
            model, pull_back = eqx.filter_vjp(self.model, state.w)
            loss, gradient = loss_and_gradient(model, x, y, self.loss)
            (slopes,) = pull_back(gradient)
            size = jnp.sqrt(jnp.sum(jnp.square(slopes)))
            slopes = slopes * jnp.minimum(1.0, numbers.clip / jnp.maximum(size, jnp.finfo(size.dtype).tiny))
            with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to a whole number
                change, moments = ADAM.update(slopes, state.moments)
            w = state.w - _rate(numbers, state.step) * (change + numbers.decay * state.w)
            bad = ~jnp.isfinite(loss) & (state.diverged == NEVER)
            diverged = jnp.where(bad, state.step, state.diverged)
            return State(w, moments, state.step + 1, diverged), total + loss

        zero = jnp.zeros((), self.dtype)
        state, total = jax.lax.fori_loop(0, count, step, (state, zero))
        loss = total / jnp.maximum(count, 1).astype(self.dtype)
        return state, self._evaluate(state.w, held_out, loss)

    def _evaluate(self, w: Any, held_out: Any, loss: Any) -> Report:
        folded, count = fold(self.model(w), held_out[0].shape[1]), len(held_out[0])
        size = max(size for size in range(1, MICRO_BATCH + 1) if count % size == 0)
        parts = jax.tree.map(lambda rows: rows.reshape(-1, size, *rows.shape[1:]), held_out)
        compared = lambda outputs, y: outputs - y if outputs.shape == y.shape else jnp.zeros_like(outputs)

        def one(part: Any) -> Any:
            outputs = folded(part[0])
            e = compared(outputs, part[1])
            return self.loss(outputs, part[1]), jnp.mean(jnp.square(e)), jnp.abs(e).max()

        losses, squares, tops = jax.lax.map(one, parts)
        return Report(loss, losses.mean(), squares.mean(), tops.max())

    def err_adversarial(self, states: Sequence[State]) -> list[float | None]:
        """The largest error an adversary found; data of a user's own has no definition to attack."""
        source = self.source
        if not isinstance(source, FromTask):
            return [None] * len(states)
        return [float(self._attack(state.w)) for state in states]

    @cached_property
    def _attack(self) -> Any:
        source = self.source
        assert isinstance(source, FromTask)
        return jax.jit(lambda w: attack(self.model(w), source.task, source.n, make_key(0)))


ADAM: Any = optax.scale_by_adam()


def _rate(numbers: Numbers, step: Any) -> Any:
    """Up to the rate in `warmup` steps, then down to 0 at the last one, unless constant."""
    t = step.astype(numbers.rate.dtype)
    up = jnp.minimum(1.0, (t + 1) / jnp.maximum(numbers.warmup, 1))
    done = jnp.clip((t - numbers.warmup) / jnp.maximum(numbers.steps - numbers.warmup, 1), 0.0, 1.0)
    down = jnp.stack([jnp.ones_like(done), 1 - done, (1 + jnp.cos(jnp.pi * done)) / 2])
    return numbers.rate * up * down[numbers.schedule]


def _options() -> dict[str, str | bool]:
    # XLA uses half the vector registers of recent processors unless told.
    return {"xla_cpu_prefer_vector_width": "512"} if on_cpu() else {}


def stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


def unstack(tree: Any, count: int) -> list[Any]:
    tree = jax.tree.map(np.asarray, tree)
    part = lambda k: jax.tree.map(lambda leaf: leaf[k], tree)
    return [part(k) for k in range(count)]
