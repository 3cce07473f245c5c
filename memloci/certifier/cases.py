"""Every way a position can find its adaptive memories: the cases that a certificate runs through.

    case = the symbols that lags read, the lags they give, which memories are blank, and t_min <= t <= t_max

What a lag does not read stays an unknown in its range: value = centre + radius xi, |xi| <= 1. A symbol has
radius 0, an interval of values its half width. A memory is blank where t < lag, and where a memory that
its lag reads is blank. Together the cases cover every position of every sequence.
"""

from dataclasses import dataclass, replace

import numpy as np

from memloci.errors import BadInput
from memloci.expressions.domain import Domain
from memloci.tasks.adaptive import Adaptive

MAX_CASES = 1 << 18
FOREVER = 2**31  # positions are 32-bit integers
BLANK = -1


@dataclass(frozen=True)
class Cases:
    """n cases of a task with M memories and d channels; variable (i, c) has index i d + c."""

    centre: np.ndarray  # (n, (M + 1) d)
    radius: np.ndarray
    lag: np.ndarray  # (n, M + 1), 0 for the present, BLANK for a blank memory
    t_min: np.ndarray  # (n,)
    t_max: np.ndarray
    same: np.ndarray  # (n, M + 1), the first memory at the same lag: the same token

    def __len__(self) -> int:
        return len(self.t_min)

    @property
    def _parts(self) -> tuple[np.ndarray, ...]:
        return self.centre, self.radius, self.lag, self.t_min, self.t_max, self.same

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


def cases_of(task: Adaptive) -> Cases:
    """All cases of a task."""
    d, read = task.d, {name for table in task.lag_tables for name in table.variables}
    size = (task.M + 1) * d
    # Position 0 sees nothing; every other sees at least one step back.
    zeros = np.zeros((2, size))
    lag = np.full((2, task.M + 1), BLANK, dtype=np.int64)
    t = np.array([0, 1], dtype=np.int64), np.array([0, FOREVER], dtype=np.int64)
    same = np.tile(np.arange(task.M + 1), (2, 1))
    growing = _Growing(Cases(zeros, zeros.copy(), lag, *t, same), np.zeros((2, size), dtype=np.int64))
    growing = _appear(growing, task, 0, read, np.ones(2, dtype=bool), np.zeros(2, dtype=np.int64))
    for i in range(1, task.M + 1):
        growing = _recall(growing, task, i, read)
        growing = _one_token(growing, task, i, read)
    return growing.cases


def _one_token(growing: _Growing, task: Adaptive, i: int, read: set[str]) -> _Growing:
    """Two memories at one lag are one token: their symbols agree, and what is known of one is of the other."""
    d, keep = task.d, np.ones(len(growing.cases), dtype=bool)
    for j in range(1, i):
        cases = growing.cases
        both = (cases.lag[:, i] == cases.lag[:, j]) & (cases.lag[:, i] > 0) & (cases.same[:, i] == i)
        for c, channel in enumerate(task.channels):
            mine, other = i * d + c, j * d + c
            known = [f"{channel.name}{k}" in read for k in (i, j)]
            if all(known):
                keep &= ~both | (growing.piece[:, mine] == growing.piece[:, other])
            elif any(known):
                source, there = (mine, other) if known[0] else (other, mine)
                for part in (cases.centre, cases.radius):
                    part[both, there] = part[both, source]
        cases.same[both, i] = j
    return growing.take(np.flatnonzero(keep))


def _recall(growing: _Growing, task: Adaptive, i: int, read: set[str]) -> _Growing:
    """Split every case by what memory i is: at its lag, or blank."""
    table, parents = task.lag_tables[i - 1], task.parents[i - 1]
    where = [task.variables.index(name) for name in table.variables]
    lag = table.lags[tuple(growing.piece[:, k] for k in where)]
    lag = np.broadcast_to(np.asarray(lag, dtype=np.int64), len(growing.cases))
    cases = growing.cases
    lost = (cases.lag[:, list(parents)] == BLANK).any(axis=1) if parents else np.zeros(len(cases), dtype=bool)
    seen = ~lost & (cases.t_max >= lag)
    early = ~lost & (cases.t_min < lag)
    here = growing.take(np.flatnonzero(seen))
    here = replace(here, cases=replace(here.cases, t_min=np.maximum(here.cases.t_min, lag[seen])))
    here = _appear(here, task, i, read, np.ones(len(here.cases), dtype=bool), lag[seen])
    gone = np.flatnonzero(lost | early)
    blank = growing.take(gone)
    last = np.where(lost[gone], blank.cases.t_max, np.minimum(blank.cases.t_max, lag[gone] - 1))
    blank = replace(blank, cases=replace(blank.cases, t_max=last))
    return _join(here, blank)


def _appear(
    growing: _Growing, task: Adaptive, i: int, read: set[str], rows: np.ndarray, lag: np.ndarray
) -> _Growing:
    """Token i is there, at this lag: split by the pieces of the channels that lags read."""
    lags = growing.cases.lag.copy()
    lags[rows, i] = lag
    growing = replace(growing, cases=replace(growing.cases, lag=lags))
    for c, channel in enumerate(task.channels):
        k = i * task.d + c
        if f"{channel.name}{i}" in read:
            growing = _split(growing, k, channel.domain)
        else:
            whole = _ball(channel.domain[0].lo, channel.domain[-1].hi)
            growing.cases.centre[:, k], growing.cases.radius[:, k] = whole
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
