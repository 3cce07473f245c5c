"""The largest error found, sampled and adversarial, to be read beside a certificate.

    err(X) = max over t of |H_t(X) - TF_t(X)|

Sampled: sequences from the task's input distribution. Adversarial: ascent on err over whole sequences. A
step moves every token to the end of its range that the gradient's sign points to. When the error is
linear in the input, that is the exact worst case, x_{t-z} = sign r(z), at once (docs/theory.md, section 2);
otherwise it is a search from many starts, which keeps what helped. Gradients do not see what a symbol
decides, such as a lag, so symbols are drawn anew too. The error of every position counts; half of the
starts push at an early one, where memories are blank (a prefix is a sequence, so none is measured apart).
Alphabets and intervals are respected, in the model's numbers: 0.1 rounded to float32 lies outside
[-0.1, 0.1]. A symbol between two numbers stays itself, so the target is asked about it, and the model reads
the nearest number. Below the capacity bound, two pasts that the model confuses are looked for as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.core.errors import BadInput
from memloci.core.proved import Observed
from memloci.model.transformer import Transformer, require_precision
from memloci.observe.counterexample import Counterexample, counterexample
from memloci.observe.inside import inside
from memloci.routes.capacity import obstacle
from memloci.tasks.inputs import sample
from memloci.tasks.memories.base import Recall
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.task import Task

REDRAWS = 4  # of symbols, per step


@dataclass(frozen=True)
class Measurement:
    """What was seen; `worst_input` is the sequence with the largest error of all."""

    err_mean_square: Observed
    err_sampled: Observed
    err_adversarial: Observed
    length: int
    sequences: int
    steps: int
    worst_input: np.ndarray
    counterexample: Counterexample | None = None

    @property
    def err_sup(self) -> Observed:
        return Observed(max(self.err_sampled, self.err_adversarial))

    def to_dict(self) -> dict[str, Any]:
        return {
            "err_mean_square": float(self.err_mean_square),
            "err_sampled": float(self.err_sampled),
            "err_adversarial": float(self.err_adversarial),
            "length": self.length,
            "sequences": self.sequences,
            "steps": self.steps,
            **({"counterexample": self.counterexample.to_dict()} if self.counterexample else {}),
        }


def default_length(task: Task) -> int:
    """Long enough for every memory to be filled, for kernels to show their tails, and for symbols to come again."""
    return min(4_096, max(64, 2 * max(map(_reach, task.recalls), default=0) + 8))


def _reach(recall: Recall) -> int:
    if isinstance(recall, Occurrence):  # a few times as many tokens as there are symbols to be found
        symbols = math.prod(len(e.candidate_letters) for e in recall.predicate.equalities)
        return min(1_024, recall.offset + 2 * max(symbols, 32))
    return 1_024 if recall.bound == float("inf") else int(recall.bound)


def measure(
    model: Transformer,
    task: Task,
    *,
    key: Any,
    sequences: int = 64,
    length: int | None = None,
    steps: int = 20,
    starts: int = 8,
) -> Measurement:
    """Sampled and adversarial error of a model on a task."""
    if (model.channels, model.outputs) != (task.d, task.outputs):
        raise BadInput("the model and the task differ in channels or outputs")
    n = length or default_length(task)
    if not (1 <= n <= 65_536 and 1 <= sequences <= 1_000_000 and steps >= 0 and starts >= 1):
        raise BadInput(
            f"cannot measure {sequences} sequences of length {n} with {steps} steps, {starts} starts"
        )
    require_precision("float64")
    dtype, wide = model.W_E.dtype, jnp.dtype("float64")
    # The target in float64, whatever the model computes in: its rounding is not the model's error.
    # Weights are arguments: as constants XLA folds them while compiling, slowly, and zeros sometimes wrongly.
    weights, rest = eqx.partition(model, eqx.is_array)
    error = lambda w, x: eqx.combine(w, rest)(x).astype(wide) - task.target(x.astype(wide))
    both = jax.jit(lambda w, x: (jnp.abs(error(w, x)).max(), jnp.square(error(w, x)).mean()))
    sizes = lambda x: tuple(math.inf if math.isnan(v) else v for v in map(float, both(weights, x)))
    # The error at one position, signed, per output.
    signed = lambda w, x, t, o, sign: sign * error(w, x)[t, o].astype(dtype)
    slope = partial(jax.jit(jax.grad(signed, argnums=1), static_argnums=3), weights)
    sample_key, start_key = jr.split(key)
    # Below any error, so that the adversary starts from a drawn sequence: one of zeros may be no input at all.
    largest, worst, squares = -1.0, np.zeros((n, task.d)), 0.0
    for one in jr.split(sample_key, sequences):
        x = _draw(task, one, n, dtype)
        top, square = sizes(x)
        squares += square / sequences
        if not top <= largest:
            largest, worst = top, np.asarray(x)
    attacked, adversary = _ascend(slope, sizes, task, worst, start_key, n, steps, starts, dtype)
    confused = _confused(model, task, jr.fold_in(key, 2))
    if confused is not None and not confused.error <= attacked:
        attacked, adversary = confused.error, confused.worst
    return Measurement(
        Observed(squares),
        Observed(largest),
        Observed(attacked),
        n,
        sequences,
        steps * starts,
        adversary if attacked >= largest else worst,
        confused,
    )


def _confused(model: Transformer, task: Task, key: Any) -> Counterexample | None:
    """Two pasts that the model takes for the same, where the capacity bound says that there are some."""
    if model.architecture.norm != "none" or obstacle(model.architecture, task) is None:
        return None
    return counterexample(model, task, key=key)


def _ascend(
    slope: Any,
    sizes: Any,
    task: Task,
    first: np.ndarray,
    key: Any,
    n: int,
    steps: int,
    starts: int,
    dtype: Any,
) -> tuple[float, np.ndarray]:
    ends = [_ends(channel.domain, dtype) for channel in task.channels]
    largest, worst = 0.0, first
    keys, dice = jr.split(key, starts), np.random.default_rng(np.asarray(jr.bits(jr.fold_in(key, 1), (4,))))
    for k in range(starts):
        x = np.asarray(first) if k == 0 else np.asarray(_draw(task, keys[k], n, dtype))
        t = _position(task, n, k)
        for o in range(task.outputs):
            for sign in (1.0, -1.0):
                best_here, y = -1.0, x
                for _ in range(max(1, steps // 4)):
                    ascent = slope(jnp.asarray(y), t, o, jnp.asarray(sign, dtype))
                    tried = [_push(np.asarray(ascent), y, ends)]
                    tried += _redrawn(task, tried[0], t, dice)
                    tops = [float(sizes(jnp.asarray(one))[0]) for one in tried]
                    top, y = max(zip(tops, tried, strict=True), key=lambda pair: _rank(pair[0]))
                    if not top <= largest:
                        largest, worst = top, y
                    if top <= best_here:
                        break
                    best_here = top
    return largest, worst


def _rank(error: float) -> float:
    return np.inf if np.isnan(error) else error  # NaN is the worst of errors


def _position(task: Task, n: int, k: int) -> int:
    """Where start k looks: at the last position, which has the whole past to be wrong about, and every other
    time at an early one: all memories just there, the farthest one just blank, or nearly everything blank."""
    reach = task.farthest
    early = [t for t in (reach, reach - 1, 1, 2, 0) if 0 <= t < n - 1]
    return int(early[k // 2 % len(early)]) if k % 2 and early else n - 1


def _redrawn(task: Task, x: np.ndarray, t: int, dice: np.random.Generator) -> list[np.ndarray]:
    """A few copies with other symbols: at t, where they say what is recalled, and in turn at t and before."""
    finite = [(c, [piece.lo for piece in ch.domain]) for c, ch in enumerate(task.channels) if ch.finite]
    copies = []
    for k in range(REDRAWS if finite else 0):
        y = x.copy()
        where = t if k % 2 == 0 else dice.integers(0, t + 1, size=1 + t // 8)
        for c, symbols in finite:
            y[where, c] = dice.choice(symbols, size=np.shape(where))
        copies.append(y)
    return copies


def _draw(task: Task, key: Any, n: int, dtype: Any) -> Any:
    """A sequence in float64, of the model's numbers wherever a piece of the domain has some."""
    x = np.array(sample(task, key, n, jnp.dtype("float64")))
    near = x.astype(dtype).astype(float)
    for c, channel in enumerate(task.channels):
        for piece in channel.domain:
            in_piece = (x[:, c] >= piece.lo) & (x[:, c] <= piece.hi)
            x[in_piece, c] = np.clip(near[in_piece, c], *inside(piece, dtype))
    return jnp.asarray(x)


def _ends(domain: Sequence[Any], dtype: Any) -> tuple[float, float]:
    return inside(domain[0], dtype)[0], inside(domain[-1], dtype)[1]


def _push(gradient: np.ndarray, x: np.ndarray, ends: list[tuple[float, float]]) -> np.ndarray:
    """Every token to the end of its domain where the error grows; where it does not matter, as it was."""
    lo, hi = (np.array(side) for side in zip(*ends, strict=True))
    pushed = np.where(gradient > 0, hi, np.where(gradient < 0, lo, x))
    return pushed.astype(x.dtype)
