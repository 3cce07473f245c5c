"""What pages are made of: cells, tables and figures. templates/components.html has the markup of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Span:
    """Something that looks as a class of page.css says."""

    content: Cell
    kind: str


@dataclass(frozen=True)
class Sup:
    """An exponent."""

    text: str


# A float is shown short, with all of its digits for machines; None is a dash; several cells stand in a row.
Cell = str | int | float | None | Code | Span | Sup | tuple["Cell", ...]


def badge(text: str, kind: Literal["met", "missed", "unsettled"]) -> Span:
    return Span(text, f"badge {kind}")


@dataclass(frozen=True)
class Table:
    heads: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[int] = ()  # columns of numbers
    wordy: Sequence[int] = ()  # columns of sentences
    marked: int | None = None  # the row that is set off

    def kind(self, column: int) -> str:
        return "n" if column in self.numeric else "why" if column in self.wordy else "mark"


@dataclass(frozen=True)
class Figure:
    svg: str  # by views/figures
    label: str
    caption: str = ""
    broad: bool = False
