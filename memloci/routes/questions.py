"""Questions about the past: present tokens that make an output equal to one real number of the past."""

from dataclasses import dataclass

from memloci.core.intervals import Interval


@dataclass(frozen=True)
class Question:
    """A present token that asks for one real number of the past."""

    output: int  # which returns it
    channel: int
    lag: int
    reach: int  # no memory that the answer depends on lies further back
    token: tuple[float, ...]
    r: float  # half the length of the channel's interval
    key: tuple[int, tuple[float, ...]] | None = (
        None  # (lag, token) that the past must have, to be found by it
    )


@dataclass(frozen=True)
class Questions:
    """All that can be asked of pasts whose tokens lie in one box: the longest intervals and least lags first."""

    box: tuple[Interval, ...]  # per channel, the piece of its domain; a point is a symbol
    all: tuple[Question, ...]
    older: bool = True  # tokens before all of these change no answer


def middle_of(piece: Interval) -> float:
    return piece.lo if piece.is_point else (piece.lo + piece.hi) / 2
