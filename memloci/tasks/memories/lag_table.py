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
from fractions import Fraction
from functools import cached_property
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.intervals import WHOLE_LINE, Interval, Undefined
from memloci.core.numbers import literal, number
from memloci.core.specs import shorten
from memloci.language.balls import value_at
from memloci.language.domain import Domain, bounds
from memloci.language.evaluate import enclose
from memloci.language.expression import Expression
from memloci.language.formula import Formula
from memloci.tasks.channel import Channel
from memloci.tasks.memories.base import MAX_LAG, Recall

MAX_CELLS = 1 << 20  # of all the tables of a task together
FEW = 4_096  # cells filled one by one; more of them by NumPy, which takes longer to import than to use
WHOLE = 1e-9  # 10 * 0.3 is not exactly 3; this close counts as a whole number


@dataclass(frozen=True, eq=False)  # it holds an array; tasks are compared by what the user wrote
class LagTable(Recall):
    """The token at a lag that the symbols in `reads` decide; a fixed lag is a table that reads nothing."""

    reads: tuple[str, ...]
    domains: tuple[Domain, ...]
    cells: Sequence[int]  # the last variable runs fastest
    formula: str = ""

    @cached_property
    def lags(self) -> Any:
        """The table as an array, one axis per variable."""
        import numpy as np

        return np.array(self.cells, dtype=np.int64).reshape(tuple(map(len, self.domains)))

    @property
    def bound(self) -> int:
        """T: the largest lag."""
        return max(self.cells)

    @property
    def kernel(self) -> bool:
        return not self.reads

    @property
    def token(self) -> bool:
        return True

    @property
    def text(self) -> str:
        return f"lag {self.formula or format(self.bound, ',')}"

    @cached_property
    def affine(self) -> tuple[dict[str, Fraction], Fraction] | None:
        """(slopes, constant) with lag = sum of slopes times symbols + constant at every cell, exactly; None if there are none."""
        if not all(piece.is_point for domain in self.domains for piece in domain):
            return None
        symbols = [[Fraction(piece.lo) for piece in domain] for domain in self.domains]
        first, slopes = Fraction(int(self.lags.flat[0])), []
        for axis, axis_symbols in enumerate(symbols):
            second = tuple(int(k == axis) for k in range(len(symbols)))
            rise = Fraction(int(self.lags[second])) - first if len(axis_symbols) > 1 else Fraction(0)
            slopes.append(rise / (axis_symbols[1] - axis_symbols[0]) if rise else Fraction(0))
        constant = first - sum(
            (a * axis_symbols[0] for a, axis_symbols in zip(slopes, symbols, strict=True)), Fraction(0)
        )
        for cell, point in zip(self.cells, itertools.product(*symbols), strict=True):
            if sum((a * x for a, x in zip(slopes, point, strict=True)), constant) != cell:
                return None
        return dict(zip(self.reads, slopes, strict=True)), constant

    def domain(self, channel: Channel) -> Domain:
        return super().domain(channel) if any(self.cells) else channel.domain  # lag 0 is never blank

    def __call__(self, values: Mapping[str, Any], xp: Any) -> Any:
        """The lag for arrays of values; a value between two pieces counts as the nearer one."""
        table = xp.asarray(self.lags.astype("int32"))
        if not self.reads:
            return table
        return table[
            tuple(piece_index(values[v], d, xp) for v, d in zip(self.reads, self.domains, strict=True))
        ]

    def recall(self, values: dict[str, Any], blank: list[Any], X: Any, xp: Any) -> tuple[Any, Any]:
        n = X.shape[0]
        if n == 0:
            return X, xp.zeros((0,), dtype=bool)
        t = xp.arange(n, dtype="int32")
        s = t - self(values, xp)
        missing = s < 0
        for j in self.parents:
            missing = missing | blank[j]
        token = X[xp.where(missing, 0, s)]
        return xp.where(missing[:, None], xp.zeros_like(token), token), missing


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
                f"{formula} reads {name}, which takes every value in [{literal(domain[0].lo)}, {literal(domain[0].hi)}]: a "
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
        if not (abs(x - lag) <= WHOLE and 0 <= lag <= MAX_LAG):
            at = _place(formula.variables, next(itertools.islice(itertools.product(*pieces), k, None)))
            result = f"gives {number(x, 10)}" if math.isfinite(x) else "has no finite value"
            raise BadInput(f"{formula} {result}{at}; a lag is a whole number from 0 to {MAX_LAG:,}")
    return LagTable(formula.variables, tuple(pieces), cells, formula.text)


def _place(names: Sequence[str], pieces: Sequence[Any]) -> str:
    if not names:
        return ""
    shown = [
        f"{n} = {literal(p.lo)}" if p.is_point else f"{n} in [{literal(p.lo)}, {literal(p.hi)}]"
        for n, p in zip(names, pieces, strict=True)
    ]
    return " at " + ", ".join(shown)


def _at_points(formula: Formula, pieces: list[Domain], shape: tuple[int, ...]) -> list[float]:
    """The lag at every combination of symbols, exactly: what float64 cannot tell, balls decide."""
    count = math.prod(shape)
    numbers: list[float | None] = [None] * count
    if formula.expression is not None and count > FEW:
        numbers = _sure_numbers(formula, pieces, shape)
    for k, symbols in enumerate(itertools.product(*pieces)):
        if numbers[k] is not None:
            continue
        point = {name: symbol.lo for name, symbol in zip(formula.variables, symbols, strict=True)}
        try:
            if formula.expression is not None:
                numbers[k] = _at_point(formula.expression, point)
            else:
                numbers[k] = float(formula(point, math))
        except Exception as error:
            at = _place(formula.variables, symbols)
            if isinstance(error, BadInput):
                raise BadInput(f"{formula}{at}: {error}") from None
            raise BadInput(f"{formula}{at} raised {type(error).__name__}: {shorten(str(error))}") from None
    return [math.nan if number is None else number for number in numbers]


def _at_point(expression: Expression, point: Mapping[str, float]) -> float:
    """The value at one point; NaN where it has none, which the caller refuses with its place."""
    try:
        value = enclose(expression, {name: Interval(x, x) for name, x in point.items()})
        if value.width <= WHOLE:
            return value.lo + value.width / 2
        return float(value_at(expression, point))
    except Undefined:
        return math.nan


def _sure_numbers(formula: Formula, pieces: list[Domain], shape: tuple[int, ...]) -> list[float | None]:
    """By NumPy, for many cells at once; None where intervals leave a doubt."""
    import numpy as np

    from memloci.core.intervals import Interval
    from memloci.language.evaluate import enclose_boxes

    assert formula.expression is not None
    grids = np.meshgrid(*([piece.lo for piece in domain] for domain in pieces), indexing="ij")
    box = {name: Interval(grid, grid) for name, grid in zip(formula.variables, grids, strict=True)}
    lo, hi = (np.broadcast_to(end, shape).ravel() for end in enclose_boxes(formula.expression, box))
    with np.errstate(invalid="ignore"):
        sure = hi - lo <= WHOLE
        middle = lo + (hi - lo) / 2
    return [x if known else None for x, known in zip(middle.tolist(), sure.tolist(), strict=True)]


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
                f"{formula} is not shown to be constant{at}: it lies in [{number(value.lo, 6)}, {number(value.hi, 6)}]"
            )
        numbers.append(value.lo + value.width / 2)
    return numbers
