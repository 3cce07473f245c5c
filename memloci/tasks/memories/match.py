"""IV. A token that is found by its content: the latest past one that satisfies a predicate, or one some steps after it.

    s(t) = max { s <= t - 1 - o : P(x_s, x_t, m_1(t), ..., m_{i-1}(t)) },      memory i is x_{s(t) + o}

`which = "earliest"` takes the min, "mean" averages x_{s + o} over all such s. In the predicate a channel with the memory's
own number is the candidate token x_s: `k1 == k0` for memory 1. In every other place that variable is what was recalled,
x_{s + o}; the two differ where o > 0. Channels that are compared have finitely many values, payloads are any numbers.

Conventions. The present token is no candidate, and neither is it ever recalled: s + o <= t - 1, so both tokens lie
strictly in the past. A token that satisfies P too late for its successor to lie in the past (s + o >= t) is passed over,
and the latest earlier one counts. Where no token is left the memory is blank, 0 in every channel, and so is a memory whose
predicate reads a blank one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from memloci.core.errors import BadInput
from memloci.core.intervals import Interval
from memloci.core.specs import shorten
from memloci.language.domain import Domain
from memloci.language.formula import make_formula
from memloci.tasks.channel import Channel
from memloci.tasks.memories.base import MAX_LAG, Memory, Recall, Scope, refuse_later
from memloci.tasks.memories.lag import whole_lag
from memloci.tasks.memories.occurrences import HIDDEN, NOWHERE, mean, occurrence
from memloci.tasks.memories.predicate import Predicate, make_predicate, pieces_of
from memloci.tasks.names import memory_of, variable

WHICH = ("latest", "earliest", "mean")


def _predicate(value: Any) -> Any:
    if isinstance(value, str) or callable(value):
        return value
    raise BadInput(f"a match is a condition in quotes or a callable, found {shorten(value)}")


def _which(value: Any) -> Any:
    if value in WHICH:
        return value
    raise BadInput(f"which is one of {', '.join(WHICH)}, found {shorten(value)}")


def _offset(value: Any) -> Any:
    try:
        return whole_lag(value)
    except BadInput:
        raise BadInput(f"an offset is a whole number from 0 to {MAX_LAG:,}, found {shorten(value)}") from None


class Match(Memory):
    """`ml.Match("k1 == k0")`, or `{ match = "k1 == k0", which = "latest", offset = 1 }` in a task file."""

    key = "match"
    match: Annotated[str | Callable[..., Any], BeforeValidator(_predicate)]
    which: Annotated[Literal["latest", "earliest", "mean"], BeforeValidator(_which)] = "latest"
    offset: Annotated[int, BeforeValidator(_offset)] = 0

    if TYPE_CHECKING:  # the first argument may stand alone

        def __init__(self, *first: Any, **fields: Any): ...

    def prepare(self, scope: Scope) -> "Occurrence":
        candidate_domains = {
            variable(channel.name, scope.index): channel.domain for channel in scope.channels
        }
        earlier = scope.earlier
        refuse_later(self.match, scope, scope.index + 1, "match")
        formula = make_formula(self.match, earlier | candidate_domains)
        for name in formula.variables:
            j = memory_of(name)
            if 0 < j < scope.index and not scope.before[j - 1].token:
                raise BadInput(
                    f"{formula} compares {name}, but memory {j} is no token: {scope.before[j - 1].text} takes every value "
                    "in a range; a match may read the present and memories that are tokens"
                )
        predicate = make_predicate(
            formula, earlier | candidate_domains, frozenset(candidate_domains), scope.room
        )
        return Occurrence(predicate, self.which, self.offset, formula.text, scope.channels)


@dataclass(frozen=True, eq=False)  # it holds a table; tasks are compared by what the user wrote
class Occurrence(Recall):
    """A match in its task."""

    predicate: Predicate
    which: str
    offset: int
    formula: str
    channels: tuple[Channel, ...]

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.predicate.reads

    @property
    def cells(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.predicate.condition.cells

    @property
    def token(self) -> bool:
        return self.which != "mean"

    @property
    def bound(self) -> float:
        return float("inf")

    @property
    def text(self) -> str:
        steps = f"{self.offset:,} step{'s' if self.offset > 1 else ''} after " if self.offset else ""
        which = "the mean of all tokens" if self.which == "mean" else f"the {self.which} token"
        return f"{steps}{which} with {self.formula}"

    def values_of(self, channel: Channel) -> Domain:
        if self.token:
            return channel.domain
        return (Interval(channel.domain[0].lo, channel.domain[-1].hi),)

    def letters(self, values: dict[str, Any], X: Any, xp: Any) -> tuple[Any, Any, Any, Any]:
        """(letters of the candidates, of the queries, columns and rows of R) at every position."""
        P, domains = self.predicate, self.predicate.domains
        names = [channel.name for channel in self.channels]
        tokens = {v: X[:, names.index(v.rstrip("0123456789"))] for v in P.keys}
        pieces = pieces_of({**{v: values[v] for v in P.reads}, **tokens}, domains, xp)
        per_token = lambda index: xp.broadcast_to(xp.asarray(index, dtype="int32"), X.shape[:1])
        return (
            per_token(P.letter(pieces, True, xp)),
            per_token(P.letter(pieces, False, xp)),
            per_token(P.column(pieces, True)),
            per_token(P.column(pieces, False)),
        )

    def recall(self, values: dict[str, Any], blank: list[Any], X: Any, xp: Any) -> tuple[Any, Any]:
        import jax.numpy as jnp

        X = jnp.asarray(X)
        n = X.shape[0]
        missing = jnp.zeros(n, dtype=bool)
        if n == 0:
            return X, missing
        for j in self.parents:
            missing = missing | blank[j]
        candidate, query, columns, rows = self.letters(values, X, jnp)
        query = jnp.where(missing, NOWHERE, query)
        if self.which == "mean":
            token, count = self._by_rows(
                rows, lambda R: mean(jnp.where(R[columns], candidate, HIDDEN), query, X, self.offset)
            )
            missing = count == 0
        else:
            latest = self.which == "latest"
            (s,) = self._by_rows(
                rows,
                lambda R: (occurrence(jnp.where(R[columns], candidate, HIDDEN), query, self.offset, latest),),
            )
            missing = s < 0
            token = X[jnp.where(missing, 0, s + self.offset)]
        return jnp.where(missing[:, None], jnp.zeros_like(token), token), missing

    def _by_rows(self, rows: Any, find: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
        """What `find` gives for the row of R that each query asks with; queries with equal rows are asked together."""
        import jax
        import jax.numpy as jnp
        import numpy as np

        distinct, which = np.unique(self.predicate.table, axis=0, return_inverse=True)
        if len(distinct) == 1:
            return find(jnp.asarray(distinct[0]))
        group = jnp.asarray(np.asarray(which).reshape(-1), jnp.int32)[rows]

        def step(best: tuple[Any, ...], given: Any) -> tuple[tuple[Any, ...], None]:
            k, R = given
            new = find(R)
            pick = lambda a, b: jnp.where((group == k).reshape(-1, *[1] * (a.ndim - 1)), a, b)
            return tuple(map(pick, new, best)), None

        start = find(jnp.asarray(distinct[0]))
        given = (jnp.arange(1, len(distinct), dtype=jnp.int32), jnp.asarray(distinct[1:]))
        return jax.lax.scan(step, start, given)[0]
