"""Every way a position can find its memories: the cases that a certificate runs through.

    case = the symbols that lags read, the lags they give, which memories are blank, and t_min <= t <= t_max

What a lag does not read stays an unknown in its range: value = centre + radius xi, |xi| <= 1. A symbol has
radius 0, an interval of values its half width, a kernel the sum of its sizes. A memory at a lag is blank where
t < lag, and where a memory that its lag reads is blank. A match is blank, or has found a token with symbols that satisfy
its predicate; where that token lies does not matter. Together the cases cover every position of every sequence.

Where nothing that a model does depends on content or position, one case covers them all (`one_case`): a blank token
is 0, and so is what a fixed kernel makes of it.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from memloci.core.errors import BadInput
from memloci.language.domain import Domain
from memloci.tasks.memories.base import Recall
from memloci.tasks.memories.lag_table import LagTable, piece_index
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.memories.predicate import Predicate
from memloci.tasks.names import variable
from memloci.tasks.task import Task

MAX_CASES = 1 << 18
MOST_PAIRS = 1 << 26  # of queries and candidates of a match
FOREVER = 2**31  # positions are 32-bit integers
BLANK = -1  # in place of a lag
KERNEL = -2  # in place of a lag: the memory is a kernel over all of them
UNSEEN = -3  # no memory has this lag
FOUND = -4  # in place of a lag: a token that a match has found, wherever it is


@dataclass(frozen=True)
class Cases:
    """n cases of a task with M memories and d channels; variable (i, c) has index i d + c."""

    centre: np.ndarray  # (n, (M + 1) d)
    radius: np.ndarray
    lag: np.ndarray  # (n, M + 1), 0 for the present, BLANK for a blank memory, KERNEL for a kernel
    t_min: np.ndarray  # (n,)
    t_max: np.ndarray
    same: np.ndarray  # (n, M + 1), the first memory at the same lag: the same token
    # (n, M + 1), which symbols the token has that a match has found; -1 elsewhere, and everywhere if it is left out
    key: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if self.key.shape != self.lag.shape:
            object.__setattr__(self, "key", np.full(self.lag.shape, -1, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.t_min)

    @property
    def _parts(self) -> tuple[np.ndarray, ...]:
        return self.centre, self.radius, self.lag, self.t_min, self.t_max, self.same, self.key

    def take(self, rows: np.ndarray | slice) -> "Cases":
        return Cases(*(part[rows] for part in self._parts))

    def join(self, other: "Cases") -> "Cases":
        return Cases(*(np.concatenate(pair) for pair in zip(self._parts, other._parts, strict=True)))


@dataclass(frozen=True)
class _Growing:
    cases: Cases
    piece: np.ndarray  # (n, variables), which piece of its domain, for the variables that lags read

    def take(self, rows: np.ndarray) -> "_Growing":
        return _Growing(self.cases.take(rows), self.piece[rows])


def one_case(task: Task) -> Cases:
    """Any position of any sequence, where every memory is a fixed kernel; blank tokens are 0, like their values."""
    size = (task.M + 1) * task.d
    centre, radius = np.zeros((1, size)), np.zeros((1, size))
    for k, name in enumerate(task.variables):
        domain = task.domains[name]
        centre[0, k], radius[0, k] = _ball(domain[0].lo, domain[-1].hi)
    lags = [0, *(_fixed_lag(recall) for recall in task.recalls)]
    same = [lags.index(lag) if lag != KERNEL else i for i, lag in enumerate(lags)]
    t = np.zeros(1, dtype=np.int64), np.full(1, FOREVER, dtype=np.int64)
    return Cases(centre, radius, np.array([lags]), *t, np.array([same]))


def _fixed_lag(recall: Recall) -> int:
    return recall.bound if isinstance(recall, LagTable) else KERNEL


def cases_of(task: Task) -> Cases:
    """All cases of a task."""
    size, read = (task.M + 1) * task.d, task.lag_variables
    # Position 0 sees nothing; every other sees at least one step back.
    zeros = np.zeros((2, size))
    lag = np.full((2, task.M + 1), BLANK, dtype=np.int64)
    t = np.array([0, 1], dtype=np.int64), np.array([0, FOREVER], dtype=np.int64)
    same = np.tile(np.arange(task.M + 1), (2, 1))
    growing = _Growing(Cases(zeros, zeros.copy(), lag, *t, same), np.zeros((2, size), dtype=np.int64))
    growing = _appear(growing, task, 0, np.zeros(2, dtype=np.int64))
    for i, recall in enumerate(task.recalls, start=1):
        if isinstance(recall, LagTable):
            growing = _one_token(_recall(growing, task, i, recall), task, i, read)
        elif isinstance(recall, Occurrence):
            growing = _matched(growing, task, i, recall)
        elif recall.kernel:
            growing = _summed(growing, task, i, recall)
        else:
            raise BadInput(f"memory {i}, {recall.text}: no certificate follows this kind of memory")
    return growing.cases


def _summed(growing: _Growing, task: Task, i: int, recall: Recall) -> _Growing:
    """A kernel: an unknown within its range, and 0 at position 0, which has no past."""
    growing.cases.lag[:, i] = KERNEL
    some = growing.cases.t_max > 0
    for c, channel in enumerate(task.channels):
        (reach,) = recall.domain(channel)
        k = i * task.d + c
        growing.cases.centre[some, k], growing.cases.radius[some, k] = _ball(reach.lo, reach.hi)
    return growing


def candidates(predicate: Predicate) -> dict[str, np.ndarray]:
    """The pieces of the compared channels, for every combination of them: variable -> (combinations,)."""
    domains = predicate.domains
    names = list(predicate.keys)
    grids = np.meshgrid(*(np.arange(len(domains[name])) for name in names), indexing="ij")
    return {name: grid.ravel() for name, grid in zip(names, grids, strict=True)}


def satisfied(predicate: Predicate, query_pieces: dict[str, np.ndarray]) -> np.ndarray:
    """(queries, combinations of `candidates`): where the predicate holds; `query_pieces`: the pieces of the query's variables."""
    by_name = candidates(predicate)
    n, m = len(next(iter(query_pieces.values()), np.zeros(1))), len(next(iter(by_name.values())))
    if n * m > MOST_PAIRS:
        raise BadInput(
            f"a match has {n:,} queries against {m:,} candidates; a certificate looks at every pair"
        )
    pieces = {name: piece[:, None] for name, piece in query_pieces.items()}
    pieces |= {name: piece[None, :] for name, piece in by_name.items()}
    return np.broadcast_to(predicate.holds(pieces, np), (n, m))


def query_pieces(task: Task, predicate: Predicate, centre: np.ndarray) -> dict[str, np.ndarray]:
    """The pieces of the variables that a predicate reads, in cases whose variables are `centre`."""
    where = {name: task.variables.index(name) for name in predicate.reads}
    return {name: piece_index(centre[:, k], predicate.domains[name], np) for name, k in where.items()}


def _matched(growing: _Growing, task: Task, i: int, recall: Occurrence) -> _Growing:
    """Split every case by what the match finds: nothing, or a token with symbols that satisfy the predicate."""
    cases, parents, P = growing.cases, list(recall.parents), recall.predicate
    unknown = (cases.lag[:, parents] == BLANK).any(axis=1) if parents else np.zeros(len(cases), dtype=bool)
    late = np.flatnonzero(~unknown & (cases.t_max > recall.offset))
    holds = satisfied(P, query_pieces(task, P, cases.centre[late]))
    if not P.reads:
        holds = np.broadcast_to(holds, (len(late), holds.shape[1]))
    if recall.token:
        row, key = np.nonzero(holds)
    else:  # of a mean, only that there is a match
        row, key = np.flatnonzero(holds.any(axis=1)), np.full(int(holds.any(axis=1).sum()), -1)
    if len(row) + len(cases) > MAX_CASES:
        raise BadInput(f"the matches have more than {MAX_CASES:,} cases; a certificate looks at each of them")
    matching = growing.take(late[row])
    matching.cases.key[:, i] = key
    matching = replace(
        matching, cases=replace(matching.cases, t_min=np.maximum(matching.cases.t_min, recall.offset + 1))
    )
    if recall.token:
        known = candidates(P) if not recall.offset else {}
        pieces = {name: piece[key] for name, piece in known.items()}
        matching = _appear(matching, task, i, np.full(len(row), FOUND), pieces)
    else:
        matching.cases.lag[:, i] = FOUND
        for c, channel in enumerate(task.channels):
            ends = _ball(channel.domain[0].lo, channel.domain[-1].hi)
            matching.cases.centre[:, i * task.d + c], matching.cases.radius[:, i * task.d + c] = ends
    return _join(matching, growing)  # growing has memory i blank


def _one_token(growing: _Growing, task: Task, i: int, read: frozenset[str]) -> _Growing:
    """Two memories at one lag are one token: their symbols agree, and what is known of one is of the other."""
    d, keep = task.d, np.ones(len(growing.cases), dtype=bool)
    for j in range(i):
        cases = growing.cases
        both = (cases.lag[:, i] == cases.lag[:, j]) & (cases.lag[:, i] >= 0) & (cases.same[:, i] == i)
        for c, channel in enumerate(task.channels):
            mine, other = i * d + c, j * d + c
            known = [variable(channel.name, k) in read for k in (i, j)]
            if all(known):
                keep &= ~both | (growing.piece[:, mine] == growing.piece[:, other])
            elif any(known):
                source, unknown = (mine, other) if known[0] else (other, mine)
                for part in (cases.centre, cases.radius):
                    part[both, unknown] = part[both, source]
        cases.same[both, i] = j
    return growing.take(np.flatnonzero(keep))


def _recall(growing: _Growing, task: Task, i: int, table: LagTable) -> _Growing:
    """Split every case by what memory i is: at its lag, or blank."""
    where = [task.variables.index(name) for name in table.reads]
    lag = table.lags[tuple(growing.piece[:, k] for k in where)]
    lag = np.broadcast_to(np.asarray(lag, dtype=np.int64), len(growing.cases))
    cases, parents = growing.cases, list(table.parents)
    unknown = (cases.lag[:, parents] == BLANK).any(axis=1) if parents else np.zeros(len(cases), dtype=bool)
    in_reach = ~unknown & (cases.t_max >= lag)
    early = ~unknown & (cases.t_min < lag)
    recalling = growing.take(np.flatnonzero(in_reach))
    recalling = replace(
        recalling, cases=replace(recalling.cases, t_min=np.maximum(recalling.cases.t_min, lag[in_reach]))
    )
    recalling = _appear(recalling, task, i, lag[in_reach])
    out_of_reach = np.flatnonzero(unknown | early)
    blank = growing.take(out_of_reach)
    last = np.where(
        unknown[out_of_reach], blank.cases.t_max, np.minimum(blank.cases.t_max, lag[out_of_reach] - 1)
    )
    blank = replace(blank, cases=replace(blank.cases, t_max=last))
    return _join(recalling, blank)


def _appear(
    growing: _Growing, task: Task, i: int, lag: np.ndarray, pieces: dict[str, np.ndarray] | None = None
) -> _Growing:
    """Token i is at this lag: split by the pieces of the channels that lags read; `pieces`: those that are known."""
    pieces = pieces or {}
    lags = growing.cases.lag.copy()
    lags[:, i] = lag
    growing = replace(growing, cases=replace(growing.cases, lag=lags))
    for c, channel in enumerate(task.channels):
        k, name = i * task.d + c, variable(channel.name, i)
        if name in pieces:
            assert len(growing.cases) == len(pieces[name])
            balls = np.array([_ball(piece.lo, piece.hi) for piece in channel.domain])
            growing.cases.centre[:, k], growing.cases.radius[:, k] = balls[pieces[name]].T
            growing.piece[:, k] = pieces[name]
    for c, channel in enumerate(task.channels):
        k, name = i * task.d + c, variable(channel.name, i)
        if name in pieces:
            continue
        if name in task.lag_variables:
            growing = _split(growing, k, channel.domain)
        else:
            ball = _ball(channel.domain[0].lo, channel.domain[-1].hi)
            growing.cases.centre[:, k], growing.cases.radius[:, k] = ball
    return growing


def _split(growing: _Growing, k: int, domain: Domain) -> _Growing:
    n, pieces = len(growing.cases), len(domain)
    if n * pieces > MAX_CASES:
        raise BadInput(f"the lags have more than {MAX_CASES:,} cases; a certificate looks at each of them")
    many = growing.take(np.repeat(np.arange(n), pieces))
    which = np.tile(np.arange(pieces), n)
    balls = np.array([_ball(piece.lo, piece.hi) for piece in domain])
    many.cases.centre[:, k], many.cases.radius[:, k] = balls[which].T
    many.piece[:, k] = which
    return many


def _ball(lo: float, hi: float) -> tuple[float, float]:
    """A ball that contains [lo, hi]; radius 0 for a point."""
    if lo == hi:
        return lo, 0.0
    centre = lo + (hi - lo) / 2
    return centre, float(np.nextafter(max(hi - centre, centre - lo), np.inf))


def _join(a: _Growing, b: _Growing) -> _Growing:
    return _Growing(a.cases.join(b.cases), np.concatenate([a.piece, b.piece]))
