"""Numbers to draw, and their means over seeds.

    trained at x    mean of the values over seeds, with a 95 % interval; on a logarithmic axis both are of log10

Zeros have no logarithm: a place that holds one has no mean on a logarithmic axis, and its zeros are counted instead.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from memloci.core.numbers import finite
from memloci.study.statistics import NOTHING, Estimate, mean

DEPTH = 1e-20  # of the largest value: what lies deeper counts as 0 on a logarithmic axis
LARGEST = 300.0  # power of ten: an interval of few seeds may reach anywhere


@dataclass(frozen=True)
class Curve:
    """Numbers to draw: at each x one value per seed, or a single one where it was proved or computed."""

    name: str
    x: tuple[Any, ...]
    values: tuple[tuple[float, ...], ...]
    kind: Literal["trained", "measured", "certified", "bound", "paper"] = "trained"

    def over_seeds(self) -> dict[Any, Estimate]:
        """x -> the mean of log10 over seeds, as a number, with its interval."""
        return {x: over_seeds(values) for x, values in zip(self.x, self.values, strict=True)}


@dataclass(frozen=True)
class Spot:
    """The values of a series at one x."""

    x: Any
    seeds: tuple[float, ...]
    centre: float | None  # None: no number, or zeros among them, whose logarithms have no mean
    low: float | None
    high: float | None
    zeros: int  # and what is as good as 0

    @property
    def empty(self) -> bool:
        return not self.seeds and not self.zeros


@dataclass(frozen=True)
class Panel:
    """A figure as data; words for x make it a row of dots, numbers make it curves."""

    title: str
    x: str
    y: str
    series: tuple[Curve, ...]
    log_x: bool = False
    log_y: bool = True
    marks: tuple[tuple[str, float], ...] = ()  # horizontal lines

    @cached_property
    def spots(self) -> tuple[tuple[Spot, ...], ...]:
        """Of every series, its spots in the order of x."""
        numbers = [v for series in self.series for values in series.values for v in finite(values)]
        numbers += finite(value for _, value in self.marks)
        floor = max(max(numbers, default=0.0) * DEPTH, 1e-250) if self.log_y else -math.inf
        return tuple(
            tuple(
                spot_of(x, values, self.log_y, floor)
                for x, values in zip(series.x, series.values, strict=True)
            )
            for series in self.series
        )


def spot_of(x: Any, values: Sequence[float | None], log: bool, floor: float) -> Spot:
    """The mean over seeds at one x; on a logarithmic axis, values up to `floor` count as zeros."""
    known = finite(values)
    seeds = [v for v in known if v > floor] if log else known
    zeros = len(known) - len(seeds)
    if zeros or not seeds:
        return Spot(x, tuple(seeds), None, None, None, zeros)
    estimate = mean([math.log10(v) for v in seeds] if log else seeds)
    back = lambda v: (
        None if v is None else 10.0 ** min(max(v, -LARGEST), LARGEST) if log else v
    )  # of a logarithm
    return Spot(x, tuple(seeds), back(estimate.value), back(estimate.low), back(estimate.high), 0)


def over_seeds(values: Sequence[float]) -> Estimate:
    """10^mean of log10, with its interval; zeros have no logarithm."""
    if not values or min(values) <= 0:
        return NOTHING
    estimate = mean([math.log10(value) for value in values])
    power = lambda v: None if v is None or v > LARGEST else 10.0 ** max(v, -LARGEST)
    several = len(values) > 1  # one run has no interval
    return Estimate(
        power(estimate.value),
        power(estimate.low) if several else None,
        power(estimate.high) if several else None,
    )
