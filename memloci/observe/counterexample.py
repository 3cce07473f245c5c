"""Two pasts that a model cannot tell apart, though the task can: the capacity bound made concrete.

    S(X_+) = S(X_-),  x_t the same  =>  y_t the same;   H_t(X_+) - H_t(X_-) = 2 r  =>  error >= r on one of them

S holds what attention recalls at t: sum_z kappa_h(z) W_V^h X_{t-z} of every layer and head, before the gate
that depends on x_t. Weights that factorise let nothing else through, so n = L H d_v numbers must answer N
questions about the past, and n < N leaves antipodal pasts with the same answers (routes/capacity.py has the
theorem). Here they are found, for given weights, and then shown to the model itself.

The search is in float64; the verdict is the model's own, in its own precision, so `error` and `apart` are
observed, with rounding. By the triangle inequality error >= r - apart / 2. When kinks stop the search it
starts again, with older tokens and numbers that nobody asks for set free too: they only add room.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.core.errors import BadInput
from memloci.core.numbers import number
from memloci.core.proved import Observed
from memloci.model.attention import Head
from memloci.model.transformer import Transformer, require_precision
from memloci.observe.antipodes import antipodes
from memloci.observe.inside import inside
from memloci.routes.capacity import Question, Questions, exemption, questions, state
from memloci.tasks.task import Task

SPARE = 16  # questions beyond n + 1, and free numbers nobody asks for: tuned, more room and more work
SHORT = 1e-3  # relative: rounding may leave the error this far below r


@dataclass(frozen=True)
class Counterexample:
    """Two sequences with the same last token, the query, that get the same answer and deserve different ones."""

    first: np.ndarray  # (t + 1, channels)
    second: np.ndarray
    outputs: np.ndarray  # (2, outputs): the model's, at t
    targets: np.ndarray
    channel: str  # what is asked for
    lag: int
    r: float  # half the length of its interval: in exact arithmetic the error is r or more
    error: Observed  # the larger of the two
    apart: Observed  # the largest difference between the two answers
    how: str

    @property
    def worst(self) -> np.ndarray:
        """The sequence with the larger error."""
        wrong = np.abs(self.outputs - self.targets).max(axis=1)
        return self.first if wrong[0] >= wrong[1] else self.second

    def to_dict(self) -> dict[str, Any]:
        """A summary for JSON; the pasts are in the record."""
        return {
            "channel": self.channel,
            "lag": self.lag,
            "length": len(self.first),
            "outputs": self.outputs.tolist(),
            "targets": self.targets.tolist(),
            "error": float(self.error),
            "apart": float(self.apart),
            "how": self.how,
        }

    def __str__(self) -> str:
        return (
            f"two pasts of {len(self.first) - 1:,} tokens, asked for {self.channel} at lag {self.lag}: answers "
            f"{number(self.apart, 2)} apart, targets {number(np.ptp(self.targets, axis=0).max())} apart, "
            f"so the error is {number(self.error)} ({self.how})"
        )


def counterexample(
    model: Transformer, task: Task, *, key: Any, starts: int = 16, rounds: int = 4
) -> Counterexample | None:
    """Two pasts that `model` confuses. None when the bound does not apply (`exemption` says why) or when the
    search finds none: then nothing is shown, though two such pasts exist."""
    architecture = model.architecture
    if (model.channels, model.outputs) != (task.d, task.outputs):
        raise BadInput("the model and the task differ in channels or outputs")
    if state(architecture) is None:
        raise BadInput(f"a counterexample needs weights that factorise: {exemption(architecture, task)}")
    if architecture.norm != "none":
        raise BadInput(f"norm {architecture.norm!r}: counterexamples are searched for without norms only")
    if exemption(architecture, task) is not None:
        return None
    require_precision("float64")
    wide = jnp.dtype("float64")
    exact = jax.tree.map(lambda leaf: leaf.astype(wide) if eqx.is_inexact_array(leaf) else leaf, model)
    n = state(architecture)
    assert n is not None
    how = "null space of what one layer recalls" if architecture.layers == 1 else "antipodal search"
    return _search(
        lambda x: recalled(exact, x),
        lambda x: model(x)[-1].astype(wide),
        n,
        task,
        model.W_E.dtype,
        how,
        key,
        starts,
        rounds,
    )


def counterexample_recurrent(
    step: Callable[[Any, Any], Any],
    readout: Callable[[Any, Any], Any],
    n: int,
    task: Task,
    *,
    key: Any,
    starts: int = 16,
    rounds: int = 4,
) -> Counterexample | None:
    """The same for state <- step(state, x_s), of n numbers, 0 at the start, and y_t = readout(state, x_t),
    where state has seen x_0, ..., x_{t-1}. Both are JAX functions of float64 arrays; None if n is enough."""
    if n >= len(questions(task).all):
        return None
    require_precision("float64")
    wide = jnp.dtype("float64")

    def after(past: Any) -> Any:
        return jax.lax.scan(lambda s, x: (step(s, x), None), jnp.zeros(n, wide), past)[0]

    answer = lambda x: jnp.atleast_1d(readout(after(x[:-1]), x[-1]))
    return _search(
        lambda x: after(x[:-1]), answer, n, task, wide, "antipodal search, recurrent", key, starts, rounds
    )


def recalled(model: Transformer, x: Any) -> Any:
    """S: the L H d_v numbers that reach the last position from its past; none depends on the last token."""
    with jax.default_matmul_precision("highest"):
        X, reached = model.embed(x), []

        def one(head: Head) -> tuple[Any, Any]:
            z, visible = head.past.pairs(X.shape[0])
            content, position = head.score.logits(head.encoding, X, z)
            kappa = head.normalisation.weights(
                jnp.zeros_like(position), position, visible, head.encoding, head.past
            )
            sums = kappa @ (X @ head.W_V.T)
            gate = jnp.exp(content[:, :1])  # the same for all s
            return sums[-1], gate * (sums @ head.W_O.T)

        for layer in model.layers:
            sums, written = eqx.filter_vmap(one)(layer.attention.heads)
            reached.append(sums.ravel())
            X = X + written.sum(axis=0)
            X = X if layer.ffn is None else X + layer.ffn(X)
        return jnp.concatenate(reached)


# -- pasts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pasts:
    """u in [-1, 1]^m -> a sequence: centre + radius u in m places of the past, symbols elsewhere."""

    base: np.ndarray  # (t + 1, channels)
    questions: tuple[Question, ...]  # of the first places
    rows: np.ndarray
    columns: np.ndarray
    ends: np.ndarray  # (m, 2)

    def __call__(self, u: Any) -> Any:
        centre, radius = self.ends.mean(axis=1), (self.ends[:, 1] - self.ends[:, 0]) / 2
        return jnp.asarray(self.base).at[self.rows, self.columns].set(centre + radius * u)

    def written(self, u: np.ndarray, query: Question, dtype: Any) -> np.ndarray:
        """The same in the model's numbers, with the query as last token."""
        x = np.array(self(jnp.asarray(u)))
        near = x[self.rows, self.columns].astype(dtype).astype(float)
        x[self.rows, self.columns] = np.clip(near, self.ends[:, 0], self.ends[:, 1])
        x[-1] = query.token
        return x


def _pasts(exam: Questions, n: int, older: int, dtype: Any) -> _Pasts:
    """Pasts for n + 1 questions and some to spare; `older` > 0 adds so many tokens, and frees what is not asked."""
    asks = exam.all[: n + 1 + SPARE]
    t = max(q.reach for q in asks) + older
    places = [(t - q.lag, q.channel) for q in asks]
    if older:
        real = [c for c, piece in enumerate(exam.box) if not piece.is_point]
        free = [(s, c) for s in reversed(range(t)) for c in real if (s, c) not in places]
        places += free[: n + SPARE]
    middle = [piece.lo if piece.is_point else (piece.lo + piece.hi) / 2 for piece in exam.box]
    rows, columns = np.array(places).T
    ends = np.array([inside(exam.box[c], dtype) for c in columns])
    base = np.tile(middle, (t + 1, 1))
    for q in asks:
        if q.key is not None:
            lag, token = q.key
            base[t - lag] = token
    return _Pasts(base, asks, rows, columns, ends)


def _search(
    S: Callable[[Any], Any],
    answer: Callable[[Any], Any],
    n: int,
    task: Task,
    dtype: Any,
    how: str,
    key: Any,
    starts: int,
    rounds: int,
) -> Counterexample | None:
    exam = questions(task)
    shown = jax.jit(lambda x: (answer(x), task.target(x)[-1]))
    for k, one in enumerate(jr.split(key, rounds)):
        pasts = _pasts(exam, n, min(n, 64) if k % 2 and exam.older else 0, dtype)
        zeros, left = antipodes(
            lambda u, pasts=pasts: S(pasts(u)), len(pasts.rows), len(pasts.questions), key=one, starts=starts
        )
        candidates = [
            _show(shown, pasts, u, task, dtype, f"{how}, {number(residual, 1)} left in float64")
            for u, residual in zip(zeros, left, strict=True)
        ]
        # Rounding makes the answers differ: prefer pasts with much error and little difference.
        best = max(candidates, key=lambda c: c.error - c.apart, default=None)
        if best is not None and best.error >= (1 - SHORT) * best.r:
            return best
    return None


def _show(
    readout: Callable[[Any], Any], pasts: _Pasts, u: np.ndarray, task: Task, dtype: Any, how: str
) -> Counterexample:
    query = pasts.questions[int(np.abs(u[: len(pasts.questions)]).argmax())]
    pair = [pasts.written(sign * u, query, dtype) for sign in (1.0, -1.0)]
    outputs, targets = (
        np.stack(both) for both in zip(*(map(np.asarray, readout(jnp.asarray(x))) for x in pair), strict=True)
    )
    return Counterexample(
        *pair,
        outputs=outputs,
        targets=targets,
        channel=task.channels[query.channel].name,
        lag=query.lag,
        r=query.r,
        error=Observed(np.abs(outputs - targets).max()),
        apart=Observed(np.abs(outputs[0] - outputs[1]).max()),
        how=how,
    )
