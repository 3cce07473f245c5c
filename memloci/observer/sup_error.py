"""The largest error found, sampled and adversarial, to be read beside a certificate.

    err(X) = max over t of |H_t(X) - TF_t(X)|

Sampled: sequences from the task's input distribution. Adversarial: ascent on err over whole sequences. A
step moves every token to the end of its range that the gradient's sign points to. When the error is
linear in the input, that is the exact worst case, x_{t-z} = sign r(z), at once (THEORY.md, section 2);
otherwise it is a search from many starts, which keeps what helped. Alphabets and intervals are respected,
in the model's numbers: 0.1 rounded to float32 lies outside [-0.1, 0.1]. A symbol between two numbers stays
itself, so the target is asked about it, and the model reads the nearest number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.certifier.certificate import Observed
from memloci.errors import BadInput
from memloci.model.transformer import Transformer, require_precision
from memloci.tasks.base import Task
from memloci.tasks.inputs import sample


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
        }


def default_length(task: Task) -> int:
    """Long enough for every memory to be filled, and for kernels to show their tails."""
    reach = max(1_024 if bound == float("inf") else int(bound) for bound in task.lag_bounds)
    return min(4_096, max(64, 2 * reach + 8))


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
    error = lambda x: model(x).astype(wide) - task.target(x.astype(wide))
    sizes = jax.jit(lambda x: (jnp.abs(error(x)).max(), jnp.square(error(x)).mean()))
    sample_key, start_key = jr.split(key)
    largest, worst, squares = 0.0, np.zeros((n, task.d)), 0.0
    for one in jr.split(sample_key, sequences):
        x = _draw(task, one, n, dtype)
        top, square = (float(v) for v in sizes(x))
        squares += square / sequences
        if not top <= largest:
            largest, worst = top, np.asarray(x)
    found, adversary = _ascend(error, sizes, task, worst, start_key, n, steps, starts, dtype)
    return Measurement(
        Observed(squares),
        Observed(largest),
        Observed(found),
        n,
        sequences,
        steps * starts,
        adversary if found >= largest else worst,
    )


def _ascend(
    error: Any,
    sizes: Any,
    task: Task,
    first: np.ndarray,
    key: Any,
    n: int,
    steps: int,
    starts: int,
    dtype: Any,
) -> tuple[float, np.ndarray]:
    # The last position has the whole past to be wrong about; its error, signed, per output.
    slope = jax.jit(jax.grad(lambda x, o, sign: sign * error(x)[-1, o].astype(dtype)), static_argnums=1)
    ends = [_ends(channel.domain, dtype) for channel in task.channels]
    largest, worst = 0.0, first
    keys = jr.split(key, starts)
    for k in range(starts):
        x = jnp.asarray(first) if k == 0 else _draw(task, keys[k], n, dtype)
        for o in range(task.outputs):
            for sign in (1.0, -1.0):
                best_here, y = -1.0, x
                for _ in range(max(1, steps // 4)):
                    y = _push(np.asarray(slope(y, o, jnp.asarray(sign, dtype))), np.asarray(y), ends)
                    top = float(sizes(jnp.asarray(y))[0])
                    if not top <= largest:
                        largest, worst = top, y
                    if top <= best_here:
                        break
                    best_here, y = top, jnp.asarray(y)
    return largest, worst


def _draw(task: Task, key: Any, n: int, dtype: Any) -> Any:
    """A sequence in float64, of the model's numbers wherever a piece of the domain has some."""
    x = np.array(sample(task, key, n, jnp.dtype("float64")))
    near = x.astype(dtype).astype(float)
    for c, channel in enumerate(task.channels):
        for piece in channel.domain:
            own = (x[:, c] >= piece.lo) & (x[:, c] <= piece.hi)
            x[own, c] = np.clip(near[own, c], *_inside(piece, dtype))
    return jnp.asarray(x)


def _inside(piece: Any, dtype: Any) -> tuple[float, float]:
    """The first and last number of the dtype in a piece; its own ends if it has none."""
    lo, hi = dtype.type(piece.lo), dtype.type(piece.hi)
    lo = lo if float(lo) >= piece.lo else np.nextafter(lo, dtype.type(np.inf))
    hi = hi if float(hi) <= piece.hi else np.nextafter(hi, dtype.type(-np.inf))
    return (float(lo), float(hi)) if lo <= hi else (piece.lo, piece.hi)


def _ends(domain: Sequence[Any], dtype: Any) -> tuple[float, float]:
    return _inside(domain[0], dtype)[0], _inside(domain[-1], dtype)[1]


def _push(gradient: np.ndarray, x: np.ndarray, ends: list[tuple[float, float]]) -> np.ndarray:
    """Every token to the end of its domain where the error grows; where it does not matter, as it was."""
    lo, hi = (np.array(side) for side in zip(*ends, strict=True))
    pushed = np.where(gradient > 0, hi, np.where(gradient < 0, lo, x))
    return pushed.astype(x.dtype)
