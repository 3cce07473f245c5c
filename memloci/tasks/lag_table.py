"""A lag function on a finite alphabet, as a table: the only way a lag is ever computed.

    g(v_1, ..., v_k) = table[i_1, ..., i_k],   i_j the piece of v_j's domain nearest to v_j

The table is filled once, from the user's formula, and every entry is checked to be a lag. Looking it up
is exact in any precision, which evaluating "a0 / 3" is not. On intervals the formula must be shown
constant on each piece.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memloci.errors import BadInput
from memloci.expressions.domain import Domain, bounds
from memloci.expressions.evaluate import enclose
from memloci.expressions.formula import Formula
from memloci.expressions.interval import WHOLE_LINE, Undefined
from memloci.specs import shorten
from memloci.tasks.base import MAX_LAG

MAX_CELLS = 1 << 20  # of all the tables of a task together
WHOLE = 1e-9  # 10 * 0.3 is not exactly 3; this close counts as a whole number


@dataclass(frozen=True, eq=False)  # it holds an array; tasks are compared by what the user wrote
class LagTable:
    variables: tuple[str, ...]
    domains: tuple[Domain, ...]
    lags: Any  # int array, one axis per variable

    @property
    def bound(self) -> int:
        """T: the largest lag."""
        return int(self.lags.max())

    def __call__(self, values: Mapping[str, Any], xp: Any) -> Any:
        """The lag for arrays of values; a value between two pieces counts as the nearer one."""
        table = xp.asarray(self.lags.astype("int32"))
        if not self.variables:
            return table
        return table[
            tuple(piece_index(values[v], d, xp) for v, d in zip(self.variables, self.domains, strict=True))
        ]


def piece_index(values: Any, domain: Domain, xp: Any) -> Any:
    """Which piece of the domain each value is nearest to."""
    cuts = [(left.hi + right.lo) / 2 for left, right in zip(domain[:-1], domain[1:], strict=True)]
    return xp.searchsorted(xp.asarray(cuts, dtype=values.dtype), values)


def make_lag_table(formula: Formula, domains: Mapping[str, Domain], room: int = MAX_CELLS) -> LagTable:
    """Tabulate a lag function in at most `room` cells, or refuse it."""
    import numpy as np

    pieces = [domains[name] for name in formula.variables]
    for name, domain in zip(formula.variables, pieces, strict=True):
        if len(domain) == 1 and not domain[0].is_point:
            raise BadInput(
                f"{formula} reads {name}, which takes every value in [{domain[0].lo:g}, {domain[0].hi:g}]: a "
                "whole-number lag must jump there, with no margin; give the channel finite values, or "
                "intervals with a gap around each jump"
            )
    shape = tuple(map(len, pieces))
    if math.prod(shape) > room:
        raise BadInput(
            f"the table of {formula} has {math.prod(shape):,} cells and there is room for {room:,}; "
            f"all lags together have at most {MAX_CELLS:,}"
        )
    if all(piece.is_point for domain in pieces for piece in domain):
        numbers = _at_points(formula, pieces, shape)
    else:
        numbers = _on_intervals(formula, pieces, shape, room >> 8)
    lags = np.rint(numbers)
    with np.errstate(invalid="ignore"):  # infinity minus infinity is wrong, too
        wrong = ~((np.abs(numbers - lags) <= WHOLE) & (lags >= 1) & (lags <= MAX_LAG))
    if wrong.any():
        cell = tuple(int(k[0]) for k in np.nonzero(wrong)) if shape else ()
        at = _place(formula.variables, [domain[k] for domain, k in zip(pieces, cell, strict=True)])
        value = numbers[cell]
        raise BadInput(f"{formula} gives {value:.10g}{at}; a lag is a whole number from 1 to {MAX_LAG:,}")
    return LagTable(formula.variables, tuple(pieces), lags.astype(np.int64))


def _place(names: Sequence[str], pieces: Sequence[Any]) -> str:
    if not names:
        return ""
    shown = [
        f"{n} = {p.lo:g}" if p.is_point else f"{n} in [{p.lo:g}, {p.hi:g}]"
        for n, p in zip(names, pieces, strict=True)
    ]
    return " at " + ", ".join(shown)


def _at_points(formula: Formula, pieces: list[Domain], shape: tuple[int, ...]) -> Any:
    import numpy as np

    points = [np.array([piece.lo for piece in domain]) for domain in pieces]
    if formula.expression is not None:
        grids = np.meshgrid(*points, indexing="ij")
        with np.errstate(all="ignore"):  # a value that is not a number is refused by the caller
            values = formula(dict(zip(formula.variables, grids, strict=True)), np)
        return np.broadcast_to(np.asarray(values, dtype=float), shape)
    numbers = np.empty(shape)
    for cell in itertools.product(*map(range, shape)):
        arguments = {name: float(p[k]) for name, p, k in zip(formula.variables, points, cell, strict=True)}
        try:
            numbers[cell] = float(formula(arguments, np))
        except Exception as error:
            at = _place(formula.variables, [d[k] for d, k in zip(pieces, cell, strict=True)])
            raise BadInput(f"{formula}{at} raised {type(error).__name__}: {shorten(str(error))}") from None
    return numbers


def _on_intervals(formula: Formula, pieces: list[Domain], shape: tuple[int, ...], room: int) -> Any:
    import numpy as np

    if formula.expression is None:
        raise BadInput(
            f"a callable lag needs finite values; {formula} reads intervals, write it as an expression"
        )
    if math.prod(shape) > room:
        raise BadInput(
            f"the table of {formula} has {math.prod(shape):,} boxes of intervals; too many to prove"
        )
    numbers = np.empty(shape)
    for cell in itertools.product(*map(range, shape)):
        chosen = [domain[k] for domain, k in zip(pieces, cell, strict=True)]
        box = dict(zip(formula.variables, chosen, strict=True))
        try:
            value = enclose(formula.expression, box)
        except Undefined:
            value = WHOLE_LINE
        if not value.width <= WHOLE:  # splitting the box costs more, and may sharpen it
            value = bounds(formula.expression, {name: (piece,) for name, piece in box.items()})
        if not value.width <= WHOLE:
            at = _place(formula.variables, chosen)
            raise BadInput(
                f"{formula} is not shown to be constant{at}: it lies in [{value.lo:.6g}, {value.hi:.6g}]"
            )
        numbers[cell] = value.lo + value.width / 2
    return numbers
