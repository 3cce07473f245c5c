"""II. Adaptive memory: lags that depend on the input, and on what was already recalled.

    t_i = g_i(x_t, x_{t-t_1}, ..., x_{t-t_{min(i-1, K)}}),   1 <= g_i <= T_i,   all counted from t

K = 0 is the warm-up, t_i = g_i(x_t). A memory before the start is blank, and so is one whose lag
depends on a blank memory.
"""

import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from memloci.errors import BadInput
from memloci.expressions.formula import make_formula
from memloci.tasks.base import MAX_MEMORIES, Task
from memloci.tasks.channel import Many
from memloci.tasks.fixed import whole_lag
from memloci.tasks.lag_table import MAX_CELLS, LagTable, make_lag_table


def _lag_function(value: Any) -> Any:
    return value if isinstance(value, str) or callable(value) else whole_lag(value)


LagFunction = Annotated[int | str | Callable[..., Any], BeforeValidator(_lag_function)]


class Adaptive(Task):
    """`ml.Adaptive(channels=[...], lags=["2 * a0", "2 * a0 + a1"], readout="v2")`."""

    lags: Many[LagFunction]

    if TYPE_CHECKING:  # lists, one readout, dictionaries for channels: wider than the fields they become

        def __init__(self, **fields: Any): ...

    @property
    def M(self) -> int:
        return len(self.lags)

    @property
    def lag_bounds(self) -> tuple[int | float, ...]:
        return tuple(table.bound for table in self.lag_tables)

    @property
    def K(self) -> int:
        """The largest memory that any lag reads: the paper's count (see `Task.K`)."""
        return max((i for parents in self.parents for i in parents), default=0)

    @cached_property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """For each memory, the earlier memories that its lag reads."""
        return tuple(tuple(sorted({_memory(v) for v in table.variables} - {0})) for table in self.lag_tables)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """For each memory, how many recalls must come before it: 0 when its lag reads the present only."""
        found: list[int] = []
        for parents in self.parents:
            found.append(max((found[j - 1] + 1 for j in parents), default=0))
        return tuple(found)

    @cached_property
    def lag_tables(self) -> tuple[LagTable, ...]:
        alphabets = {c.name: c.domain for c in self.channels}
        tables: list[LagTable] = []
        for i, source in enumerate(self.lags, start=1):
            earlier = {f"{name}{j}": domain for j in range(i) for name, domain in alphabets.items()}
            try:
                text = str(source) if isinstance(source, int) else source
                _refuse_later(text, i, alphabets, self.M)
                room = MAX_CELLS - sum(len(table.cells) for table in tables)
                tables.append(make_lag_table(make_formula(text, earlier), earlier, room))
            except BadInput as error:
                raise error.within(f"lags[{i - 1}]") from None
        return tuple(tables)

    def _check_memories(self) -> None:
        self.lag_tables  # noqa: B018  tabulating is the check

    def recall(self, X: Any, xp: Any) -> list[Any]:
        if X.shape[0] == 0:
            return [X] * self.M
        t = xp.arange(X.shape[0], dtype="int32")
        tokens, blank = [X], [t < 0]
        for table, parents in zip(self.lag_tables, self.parents, strict=True):
            values = {
                f"{channel.name}{j}": token[:, c]
                for j, token in enumerate(tokens)
                for c, channel in enumerate(self.channels)
            }
            s = t - table(values, xp)
            lost = s < 0
            for j in parents:
                lost = lost | blank[j]
            token = X[xp.where(lost, 0, s)]
            tokens.append(xp.where(lost[:, None], xp.zeros_like(token), token))
            blank.append(lost)
        return tokens[1:]


def _memory(variable: str) -> int:
    return int(re.findall(r"\d+$", variable)[0])


def _refuse_later(source: Any, i: int, names: dict[str, Any], M: int) -> None:
    """A clearer refusal than "unknown name" for a lag that reads its own or a later memory."""
    if not isinstance(source, str) or len(source) > 4_000 or M > MAX_MEMORIES:
        return
    for name, number in re.findall(r"\b([A-Za-z_]\w*?)(\d{1,4})\b", source):
        if name in names and i <= int(number) <= M:
            raise BadInput(
                f"{name}{number} is memory {number}, which is not recalled before the lag of memory {i}; "
                f"a lag may read {name}0 to {name}{i - 1}"
            )
