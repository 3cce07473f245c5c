"""A channel of the input: its name and the values it can take.

    { name = "v", range = [-1, 1] }                       any number in the range
    { name = "a", values = [1, 2, 3, 4] }                 a finite alphabet
    { name = "s", intervals = [[-1, -0.2], [0.2, 1]] }    intervals with a margin between them

A lag function is integer valued, so it must jump; it may read only channels on which jumps have a
margin: alphabets and separate intervals (docs/theory.md, section 1).
"""

import math
import re
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, field_validator, model_validator

from memloci.core.errors import BadInput
from memloci.core.intervals import Interval, point
from memloci.core.numbers import literal
from memloci.core.specs import Spec, shorten
from memloci.language.domain import Domain
from memloci.language.operations import CONSTANTS, functions

MAX_PIECES = 4_096  # values or intervals of one channel

T = TypeVar("T")


def as_tuple(value: Any) -> tuple[Any, ...]:
    """The entries of a list, of a NumPy array or of the like, unless there are very many."""
    items = value
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | dict):
        items = getattr(value, "tolist", lambda: list(value))()
    if not isinstance(items, list):  # nor is a NumPy array without axes
        raise BadInput(f"must be a list, found {shorten(value)}")
    if len(items) > MAX_PIECES:
        raise BadInput(f"has {len(items):,} entries; at most {MAX_PIECES:,}")
    return tuple(items)


def _as_pair(value: Any) -> Any:
    pair = as_tuple(value)
    if len(pair) != 2:
        raise BadInput(f"must be two numbers, found {shorten(value)}")
    return pair


Many = Annotated[tuple[T, ...], BeforeValidator(as_tuple)]
Pair = Annotated[tuple[float, float], BeforeValidator(_as_pair)]


class Channel(Spec):
    name: str = "x"
    range: Pair | None = None
    values: Many[float] | None = None
    intervals: Many[Pair] | None = None

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z_]([A-Za-z0-9_]{0,30}[A-Za-z_])?", name):
            raise BadInput(
                f"{shorten(name)} cannot name a channel; use letters, and no digit at the end "
                "(the digits that follow a name count memories)"
            )
        if name in functions() or name in CONSTANTS:
            raise BadInput(f"{name!r} is a function or a constant of the language; choose another name")
        return name

    @model_validator(mode="before")
    @classmethod
    def _default_range(cls, data: Any) -> Any:
        if isinstance(data, dict) and not {"range", "values", "intervals"} & data.keys():
            return {**data, "range": (-1.0, 1.0)}
        return data

    @model_validator(mode="after")
    def _check(self) -> "Channel":
        given = [key for key in ("range", "values", "intervals") if getattr(self, key) is not None]
        if len(given) != 1:
            raise BadInput(f"channel {self.name!r} needs one of range, values, intervals; found {given}")
        pieces = self.domain
        if not pieces:
            raise BadInput(f"{given[0]} of channel {self.name!r} is empty")
        if len(pieces) > MAX_PIECES:
            raise BadInput(f"channel {self.name!r} has {len(pieces):,} {given[0]}; at most {MAX_PIECES:,}")
        for piece in pieces:
            if piece.lo > piece.hi or (given[0] == "range" and piece.is_point):
                raise BadInput(
                    f"{given[0]} of channel {self.name!r} must rise, found [{literal(piece.lo)}, {literal(piece.hi)}]"
                )
            if not math.isfinite(piece.width) or piece.magnitude > 1e6:
                raise BadInput(f"{given[0]} of channel {self.name!r} must lie within +-1e6")
        for left, right in zip(pieces[:-1], pieces[1:], strict=True):
            if left.hi >= right.lo:
                what = "repeats" if left == right else "overlap or touch: leave a margin"
                raise BadInput(f"{given[0]} of channel {self.name!r} {what} at {literal(right.lo)}")
        return self

    @property
    def domain(self) -> Domain:
        """The values as disjoint intervals, in order."""
        if self.values is not None:
            return tuple(point(float(v)) for v in sorted(self.values))
        if self.intervals is not None:
            return tuple(sorted(Interval(float(a), float(b)) for a, b in self.intervals))
        assert self.range is not None
        return (Interval(float(self.range[0]), float(self.range[1])),)

    @property
    def finite(self) -> bool:
        return self.values is not None

    @property
    def magnitude(self) -> float:
        return max(piece.magnitude for piece in self.domain)


def with_blank(domain: Domain) -> Domain:
    """The domain of a recalled token: a token before the start reads 0."""
    if any(piece.contains(0.0) for piece in domain):
        return domain
    return tuple(sorted((*domain, point(0.0))))
