"""The certificate: a worst-case error that is proved, its terms, and what it assumes.

    sup over t and X of |H_t(X) - TF_t(X)|  <=  bound

Proved and observed numbers are different types: `Proved` comes out of ball or interval arithmetic only,
`Observed` out of evaluating a model (observe/).
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from memloci.core.proved import Proved

VERSION = 3  # 1 had no float16 among its precisions; bounds of 2 were larger, and it said nothing of streams


@dataclass(frozen=True)
class Term:
    """One summand of the bound, with the name of its formula."""

    name: str
    formula: str
    E: Proved


@dataclass(frozen=True)
class Level:
    """Memories that are recalled together and that later lags read: their error, and how large it may be."""

    memories: tuple[int, ...]
    E: Proved
    margin: float

    @property
    def within(self) -> bool:
        return self.E <= self.margin


@dataclass(frozen=True)
class Certificate:
    status: str  # met or missed
    tolerance: float
    precision: str
    bound: Proved  # worst case in that precision
    exact_bound: Proved  # in exact arithmetic
    bound_by_precision: dict[str, Proved]
    terms: tuple[Term, ...]
    mass: float  # the largest sum over heads of |coefficients| in a layer
    mass_lower_bound: (
        float | None
    )  # no heads of this kind do with less, for this error, embedding and readout
    bits: (
        int | None
    )  # the fewest significand bits, 8 or more, that meet the tolerance; None if no number does
    assumptions: tuple[str, ...]
    arithmetic: str
    levels: tuple[Level, ...] = ()  # of nested memories

    @property
    def met(self) -> bool:
        return self.status == "met"

    @property
    def outside(self) -> tuple[Level, ...]:
        """The levels whose error may reach their margin: lags that read them may be wrong."""
        return tuple(level for level in self.levels if not level.within)

    def to_dict(self) -> dict[str, Any]:
        """JSON: numbers are numbers, an infinite bound is null."""
        data = asdict(self)
        data["version"] = VERSION
        return _plain(data)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case float():
            return float(value) if math.isfinite(value) else None
        case _:
            return value
