"""II. A lag that adapts to the input, and to what was already recalled.

    t_i = g_i(x_t, x_{t-t_1}, ..., x_{t-t_{i-1}}),   0 <= g_i <= T_i,   counted from t

A memory before the start is blank, and so is one whose lag depends on a blank memory. The lag function is
tabulated over the symbols that it reads (lag_table.py), so these channels are finite, or intervals with margins.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from memloci.core.errors import BadInput
from memloci.core.specs import shorten
from memloci.language.formula import make_formula
from memloci.tasks.memories.base import Memory, Scope, refuse_later
from memloci.tasks.memories.lag_table import LagTable, make_lag_table
from memloci.tasks.names import memory_of


def _function(value: Any) -> Any:
    if isinstance(value, str) or callable(value):
        return value
    raise BadInput(f"a lag function is an expression in quotes or a callable, found {shorten(value)}")


class Pointer(Memory):
    """`ml.Pointer("2 * a0 + a1")`, or `{ lag = "2 * a0 + a1" }` in a task file."""

    key = "lag"
    lag: Annotated[str | Callable[..., Any], BeforeValidator(_function)]

    if TYPE_CHECKING:  # the first argument may stand alone

        def __init__(self, *first: Any, **fields: Any): ...

    @classmethod
    def accepts(cls, value: Any) -> bool:
        return isinstance(value, str) or callable(value)

    def prepare(self, scope: Scope) -> LagTable:
        earlier = scope.earlier
        refuse_later(self.lag, scope, scope.index, "lag")
        formula = make_formula(self.lag, earlier)
        for name in formula.variables:
            if (j := memory_of(name)) and not scope.before[j - 1].token:
                raise BadInput(
                    f"{formula} reads {name}, but memory {j} is no token: {scope.before[j - 1].text} takes every value in "
                    "a range, and a whole-number lag must jump there; a lag may read the present and memories that are tokens"
                )
        return make_lag_table(formula, earlier, scope.room)
