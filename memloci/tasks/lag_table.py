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
from functools import cached_property
from typing import Any

from memloci.errors import BadInput
from memloci.expressions.domain import Domain, bounds
from memloci.expressions.evaluate import enclose
from memloci.expressions.formula import Formula
from memloci.expressions.interval import WHOLE_LINE, Undefined
from memloci.specs import shorten
from memloci.tasks.base import MAX_LAG

MAX_CELLS = 1 << 20  # of all the tables of a task together
FEW = 4_096  # cells filled one by one; more of them by NumPy, which takes longer to import than to use
WHOLE = 1e-9  # 10 * 0.3 is not exactly 3; this close counts as a whole number


@dataclass(frozen=True, eq=False)  # it holds an array; tasks are compared by what the user wrote
class LagTable:
    variables: tuple[str, ...]
    domains: tuple[Domain, ...]
    cells: list[int]  # the last variable runs fastest

    @cached_property
    def lags(self) -> Any:
        """The table as an array, one axis per variable."""
        import numpy as np

        return np.array(self.cells, dtype=np.int64).reshape(tuple(map(len, self.domains)))

    @property
    def bound(self) -> int:
        """T: the largest lag."""
        return max(self.cells)

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
    cells = [round(x) if math.isfinite(x) else 0 for x in numbers]
    for k, (x, lag) in enumerate(zip(numbers, cells, strict=True)):
        if not (abs(x - lag) <= WHOLE and 1 <= lag <= MAX_LAG):
            at = _place(formula.variables, next(itertools.islice(itertools.product(*pieces), k, None)))
            raise BadInput(f"{formula} gives {x:.10g}{at}; a lag is a whole number from 1 to {MAX_LAG:,}")
    return LagTable(formula.variables, tuple(pieces), cells)


def _place(names: Sequence[str], pieces: Sequence[Any]) -> str:
    if not names:
        return ""
    shown = [
        f"{n} = {p.lo:g}" if p.is_point else f"{n} in [{p.lo:g}, {p.hi:g}]"
        for n, p in zip(names, pieces, strict=True)
    ]
    return " at " + ", ".join(shown)


def _at_points(formula: Formula, pieces: list[Domain], shape: tuple[int, ...]) -> list[float]:
    if formula.expression is not None and math.prod(shape) > FEW:
        return _at_many_points(formula, pieces, shape)
    numbers = []
    for symbols in itertools.product(*pieces):
        point = dict(zip(formula.variables, symbols, strict=True))
        try:
            if formula.expression is not None:
                value = enclose(formula.expression, point)
                if value.width > WHOLE:  # a jump within rounding of the symbol: take what float64 gives
                    return _at_many_points(formula, pieces, shape)
                numbers.append(value.lo + value.width / 2)
            else:
                numbers.append(float(formula({name: symbol.lo for name, symbol in point.items()}, math)))
        except Undefined:
            numbers.append(math.nan)  # refused by the caller, with its place
        except Exception as error:
            at = _place(formula.variables, symbols)
            raise BadInput(f"{formula}{at} raised {type(error).__name__}: {shorten(str(error))}") from None
    return numbers


def _at_many_points(formula: Formula, pieces: list[Domain], shape: tuple[int, ...]) -> list[float]:
    import numpy as np

    grids = np.meshgrid(*([piece.lo for piece in domain] for domain in pieces), indexing="ij")
    with np.errstate(all="ignore"):  # a value that is not a number is refused by the caller
        values = formula(dict(zip(formula.variables, grids, strict=True)), np)
    return np.broadcast_to(np.asarray(values, dtype=float), shape).ravel().tolist()


def _on_intervals(formula: Formula, pieces: list[Domain], shape: tuple[int, ...], room: int) -> list[float]:
    if formula.expression is None:
        raise BadInput(
            f"a callable lag needs finite values; {formula} reads intervals, write it as an expression"
        )
    if math.prod(shape) > room:
        raise BadInput(
            f"the table of {formula} has {math.prod(shape):,} boxes of intervals; too many to prove"
        )
    numbers = []
    for chosen in itertools.product(*pieces):
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
        numbers.append(value.lo + value.width / 2)
    return numbers
