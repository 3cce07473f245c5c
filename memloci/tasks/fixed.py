"""I. Fixed memory: y_t = f(x_t, x_{t-t_1}, ..., x_{t-t_M}), lags known in advance."""

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from memloci.errors import BadInput
from memloci.specs import shorten
from memloci.tasks.base import MAX_LAG, Task
from memloci.tasks.channel import Many


def whole_lag(value: Any) -> Any:
    try:
        lag = operator.index(value)  # NumPy's integers too, and no float
    except TypeError:
        lag = 0
    if isinstance(value, bool) or not 1 <= lag <= MAX_LAG:
        raise BadInput(f"a lag is a whole number from 1 to {MAX_LAG:,}, found {shorten(value)}")
    return lag


Lag = Annotated[int, BeforeValidator(whole_lag)]


class Fixed(Task):
    """`ml.Fixed(lags=[3, 17], readout="x1 * x2")`."""

    lags: Many[Lag]

    if TYPE_CHECKING:  # lists, one readout, dictionaries for channels: wider than the fields they become

        def __init__(self, **fields: Any): ...

    @property
    def M(self) -> int:
        return len(self.lags)

    @property
    def lag_bounds(self) -> tuple[int | float, ...]:
        return self.lags

    def recall(self, X: Any, xp: Any) -> list[Any]:
        n = X.shape[0]
        blank = xp.zeros_like(X)
        return [xp.concatenate([blank[: min(lag, n)], X[: max(n - lag, 0)]]) for lag in self.lags]

    def occur_together(self, values: Mapping[str, float]) -> bool:
        """While a memory is blank, every older one is blank too."""
        own = {channel.name: channel.domain for channel in self.channels}
        first_blank, last_seen = float("inf"), 0
        for variable, value in values.items():
            name = variable.rstrip("0123456789")
            memory = int(variable[len(name) :])
            lag = self.lags[memory - 1] if memory else 0
            if not any(piece.contains(value) for piece in own[name]):
                first_blank = min(first_blank, lag)
            elif value:
                last_seen = max(last_seen, lag)
        return last_seen < first_blank
