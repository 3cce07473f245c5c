"""The capacity bound: what factorising weights cannot carry, and the questions that show it.

    weights a_h(x_t) kappa_h(z):  x_0, ..., x_{t-1}  ->  L H d_v numbers,  and y_t is a function of them and x_t
    L H d_v < N   =>   sup error >= r

N counts the real numbers of the past that a query can ask for: the pairs (channel, lag) such that some
present token makes some output equal to that channel at that lag. When the lag reads the present only and
takes the values 1..T, and d real channels are returned, N = T d. r is half the length of the interval that
such a channel ranges over: 1 for [-1, 1]. If the intervals differ, the n + 1 longest count, n = L H d_v.

Proved: hold all symbols of the past fixed and let the N numbers run over the boundary of their box, a
sphere of dimension N - 1. The map to the sums that attention recalls at t, one per layer, head and value
coordinate, is continuous, and none of the sums depends on x_t. By Borsuk-Ulam, if L H d_v <= N - 1, two
antipodal pasts agree on all of them. Some number is at an end of its interval in one and at the other end
in the other; the token that asks for it gets one answer to both, and is wrong by r or more on one. The same
holds for any recurrent state of n numbers that depends continuously on the past, and norms change nothing.

Which readouts: those that return a memory's real channel as it is (`v1`); others ask for nothing here, so N
is never too large. Nested lags: the past's symbols, equal in all tokens, are chosen so that most can be
asked for; a cleverer past might make it more. Fixed and essential tasks ask the same at every t: N = 0. Matches ask for one
number per key and channel (match_capacity.py).
"""

import itertools
import math

import numpy as np

from memloci.core.intervals import Interval
from memloci.core.numbers import literal
from memloci.language.expression import Variable
from memloci.model.architecture import Architecture
from memloci.routes.match_capacity import match_questions
from memloci.routes.questions import Question as Question
from memloci.routes.questions import Questions as Questions
from memloci.routes.questions import middle_of
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.names import channel_of, memory_of
from memloci.tasks.task import Task

FACTORISING = ("dpf", "tmx")  # the query's part of the logit does not depend on s
EXPONENTIAL = ("softmax", "infinite", "none")  # a sum of logits becomes a product of weights
MOST_PASTS = 256  # symbols of the past that are tried, for nested lags


def capacity(task: Task) -> int:
    """N: how many real numbers must be remembered."""
    return len(questions(task).all)


def state(architecture: Architecture) -> int | None:
    """n = L H d_v, the numbers that reach a position from its past; None if weights do not factorise."""
    blocks = [architecture.block(l) for l in range(architecture.layers)]
    if not all(_factorises(block) for block in blocks):
        return None
    return sum(block.heads * block.value_dim for block in blocks)


def _factorises(block: Architecture) -> bool:
    return block.attention in FACTORISING and block.normalisation in EXPONENTIAL


def obstacle(architecture: Architecture, task: Task) -> str | None:
    """Why this architecture cannot do this task, whatever its weights; None if the bound does not say so."""
    n, asks = state(architecture), questions(task).all
    if n is None or n >= len(asks):
        return None
    return (
        f"weights that factorise carry L H d_v = {n} numbers per position; the task asks for {len(asks)}: "
        f"two pasts agree on all of them (proved), so the error is at least {literal(asks[n].r)}"
    )


def exemption(architecture: Architecture, task: Task) -> str | None:
    """Why the bound says nothing about this architecture and task; None if it does."""
    n, N = state(architecture), capacity(task)
    if n is None:
        blocks = [architecture.block(l) for l in range(architecture.layers)]
        other = next(block for block in blocks if not _factorises(block))
        if other.attention not in FACTORISING:
            return f"attention {other.attention!r} does not factorise: its weights depend on x_t and x_s"
        return f"weights under normalisation {other.normalisation!r} are not known to factorise"
    if N == 0:
        return f"no real number of the past can be asked for in this {task.kind} task"
    if n >= N:
        return f"not below the bound: L H d_v = {n} numbers per position, and the task asks for {N}"
    return None


def questions(task: Task) -> Questions:
    """What can be asked, for the symbols of the past that allow most."""
    if task.stationary:
        return Questions(tuple(channel.domain[0] for channel in task.channels), ())
    nested = {name for name in task.lag_variables if memory_of(name) > 0}
    choices = []
    for channel in task.channels:
        # Where no lag reads the past any piece will do: the longest interval, or the smallest symbol.
        best = max(channel.domain, key=lambda piece: (piece.width, -piece.magnitude))
        read = any(channel_of(v) == channel.name for v in nested)
        choices.append(channel.domain if read else (best,))
    boxes = itertools.islice(itertools.product(*choices), MOST_PASTS)
    exams = [_questions(task, box) for box in boxes] + [match_questions(task)]
    return max(exams, key=lambda exam: len(exam.all))


def _questions(task: Task, box: tuple[Interval, ...]) -> Questions:
    names = task.channel_names
    by_place: dict[tuple[int, int], Question] = {}
    for output, formula in enumerate(task.readouts):
        if not isinstance(formula.expression, Variable):
            continue
        c, i = names.index(channel_of(formula.expression.name)), memory_of(formula.expression.name)
        if i == 0 or box[c].is_point:
            continue
        table = task.recalls[i - 1]
        if not isinstance(table, LagTable):
            continue
        reach = max((task.lag_bounds[j - 1] for j in _ancestors(task, i)), default=0)
        if math.isinf(reach):
            continue
        past = tuple(
            slice(None) if memory_of(v) == 0 else domain.index(box[names.index(channel_of(v))])
            for v, domain in zip(table.reads, table.domains, strict=True)
        )
        present = [(v, d) for v, d in zip(table.reads, table.domains, strict=True) if memory_of(v) == 0]
        lags = np.asarray(table.lags[past])
        values, first = np.unique(lags, return_index=True)
        for lag, at in zip(values.tolist(), first.tolist(), strict=True):
            if lag == 0:  # the present itself is not of the past
                continue
            token = [middle_of(piece) for piece in box]
            for (v, domain), k in zip(present, np.unravel_index(at, lags.shape), strict=True):
                token[names.index(channel_of(v))] = middle_of(domain[int(k)])
            one = Question(output, c, lag, int(max(lag, reach)), tuple(token), box[c].width / 2)
            by_place.setdefault((c, lag), one)
    return Questions(box, tuple(sorted(by_place.values(), key=lambda q: (-q.r, q.lag, q.channel))))


def _ancestors(task: Task, i: int) -> set[int]:
    """The memories that the lag of memory i depends on."""
    parents = task.parents[i - 1]
    return set(parents).union(*(_ancestors(task, j) for j in parents))
