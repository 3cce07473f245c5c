"""What a position looks like as a candidate of a match: its stream, for every combination of the symbols that are compared.

    position r, whose token o steps ago has the compared symbols c        (o: the offset of the match)

Position forms (position_forms.py) know nothing of neurons, and codes are made by neurons. So candidates are cases like any
other, of a task with one memory at lag o, and are followed through the layers before the match. What heads that look at
content write there is only bounded.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from memloci.certify.affine_forms import AffineForms
from memloci.certify.cases import BLANK, FOREVER, MAX_CASES, Cases, candidates
from memloci.core.errors import BadInput
from memloci.language.domain import Domain
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.names import channel_of, variable
from memloci.tasks.task import Task

Step = Callable[[AffineForms], AffineForms]


@dataclass(frozen=True)
class Candidates:
    """The candidates of match i, as the stream of their position before some layer."""

    memory: int
    X: AffineForms
    key: np.ndarray  # (rows,) the combination of compared symbols; -1 where there was no token o steps ago
    token: dict[
        int, np.ndarray
    ]  # channel -> (rows,) the symbol of the position's own token, where later memories read it
    sizes: dict[int, int]  # channel -> its number of symbols
    channels: int  # unknowns of X: those of the token itself, of the compared token, and errors

    @classmethod
    def of(cls, task: Task, i: int, embed: Callable[[Cases], AffineForms]) -> "Candidates":
        cases, key, token = candidate_cases(task, i)
        return cls(i, embed(cases), key, token, {c: len(task.channels[c].domain) for c in token}, task.d)

    def through(self, attend: Step, neurons: Step) -> "Candidates":
        """After one more layer."""
        return replace(self, X=neurons(attend(self.X)))

    @cached_property
    def label(self) -> np.ndarray:
        """(rows,) key and token as one number."""
        return self.labelled(self.key, self.token)

    def labelled(self, key: np.ndarray, token: dict[int, np.ndarray]) -> np.ndarray:
        label = np.asarray(key, dtype=np.int64)
        for c, size in self.sizes.items():
            label = label * size + np.where(key < 0, 0, token[c])
        return label

    @cached_property
    def rows(self) -> dict[int, np.ndarray]:
        """label -> the rows that have it."""
        order = np.argsort(self.label, kind="stable")
        labels, starts = np.unique(self.label[order], return_index=True)
        return dict(zip(labels.tolist(), np.split(order, starts[1:]), strict=True))


def candidate_cases(task: Task, i: int) -> tuple[Cases, np.ndarray, dict[int, np.ndarray]]:
    """(cases, key, token): the position itself is token 0, the one with the compared symbols is memory 1 if o > 0."""
    recall = task.recalls[i - 1]
    assert isinstance(recall, Occurrence)
    P, o, d = recall.predicate, recall.offset, task.d
    keys, names = candidates(P), [channel.name for channel in task.channels]
    m = len(next(iter(keys.values())))
    # The symbols of the token itself that later memories read, unless they are those that are compared.
    channels = [c for c, name in enumerate(names) if variable(name, i) in task.lag_variables]
    channels = [c for c in channels if o or variable(names[c], i) not in keys]
    grids = np.meshgrid(
        np.arange(-1 if o else 0, m),
        *(np.arange(len(task.channels[c].domain)) for c in channels),
        indexing="ij",
    )
    key, *pieces = (np.tile(grid.ravel(), 2) for grid in grids)
    if len(key) > MAX_CASES:
        raise BadInput(f"a match has {len(key):,} kinds of candidates; at most {MAX_CASES:,} are followed")
    # Position 0 sees nothing, so it is a case of its own.
    first = np.arange(len(key)) >= len(key) // 2
    keep = ~(first & (key >= 0)) if o else np.ones(len(key), dtype=bool)
    if o == 1:  # only position 0 has no token before it
        keep &= first | (key >= 0)
    key, first, pieces = key[keep], first[keep], [piece[keep] for piece in pieces]
    n, some = len(key), key >= 0
    centre, radius = np.zeros((n, 2 * d)), np.zeros((n, 2 * d))
    for c, channel in enumerate(task.channels):
        for k in (c, d + c) if o else (c,):
            _put(centre, radius, k, np.ones(n, dtype=bool), channel.domain[0].lo, channel.domain[-1].hi)
    for name, piece in keys.items():
        _put_pieces(
            centre,
            radius,
            (d if o else 0) + names.index(channel_of(name)),
            some,
            P.domains[name],
            piece[key[some]],
        )
    for c, piece in zip(channels, pieces, strict=True):
        _put_pieces(centre, radius, c, np.ones(n, dtype=bool), task.channels[c].domain, piece)
    lag = np.tile(np.array([0, o if o else BLANK]), (n, 1))
    lag[~some, 1], centre[~some, d:], radius[~some, d:] = BLANK, 0.0, 0.0
    t_min = np.where(first, 0, np.where(some, max(o, 1), 1)).astype(np.int64)
    t_max = np.where(first, 0, np.where(some, FOREVER, max(o - 1, 1))).astype(np.int64)
    cases = Cases(centre, radius, lag, t_min, t_max, np.tile(np.arange(2), (n, 1)))
    return cases, key, dict(zip(channels, pieces, strict=True))


def _put_pieces(
    centre: np.ndarray, radius: np.ndarray, k: int, rows: np.ndarray, domain: Domain, which: np.ndarray
) -> None:
    lo, hi = (np.array([piece[side] for piece in domain])[which] for side in (0, 1))
    _put(centre, radius, k, rows, lo, hi)


def _put(centre: np.ndarray, radius: np.ndarray, k: int, rows: np.ndarray, lo, hi) -> None:
    """Variable k lies in [lo, hi]; a point has radius 0."""
    lo, hi = np.asarray(lo, dtype=float), np.asarray(hi, dtype=float)
    middle = np.where(lo == hi, lo, lo + (hi - lo) / 2)
    half = np.nextafter(np.maximum(hi - middle, middle - lo), np.inf)
    centre[rows, k], radius[rows, k] = middle, np.where(lo == hi, 0.0, half)
