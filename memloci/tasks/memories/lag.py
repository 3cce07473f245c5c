"""I. A fixed lag: the token `lag` steps back, x_{t - lag}; 0 is the present itself."""

import operator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from memloci.core.errors import BadInput
from memloci.core.specs import shorten
from memloci.tasks.memories.base import MAX_LAG, Memory, Scope
from memloci.tasks.memories.lag_table import LagTable


def whole_lag(value: Any) -> Any:
    try:
        lag = operator.index(value)  # NumPy's integers too, and no float
    except TypeError:
        lag = -1
    if isinstance(value, bool) or not 0 <= lag <= MAX_LAG:
        raise BadInput(f"a lag is a whole number from 0 to {MAX_LAG:,}, found {shorten(value)}")
    return lag


class Lag(Memory):
    """`ml.Lag(3)`, or `{ lag = 3 }` in a task file."""

    key = "lag"
    lag: Annotated[int, BeforeValidator(whole_lag)]

    if TYPE_CHECKING:  # the first argument may stand alone

        def __init__(self, *first: Any, **fields: Any): ...

    @classmethod
    def accepts(cls, value: Any) -> bool:
        return not isinstance(value, str) and not callable(value)

    def prepare(self, scope: Scope) -> LagTable:
        return LagTable((), (), [self.lag])
