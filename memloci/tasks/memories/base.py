"""What a memory is: a spec that a user writes, and the same memory in its task.

    Memory.prepare(scope) -> Recall         checked once, when the task is made

A `Memory` is what is typed: `Lag(3)`, `Pointer("2 * a0")`, `Kernel("z ** -2")`. It knows nothing of the task. A `Recall`
knows the channels and the memories before it, and says what later stages ask: what it reads, how far back it reaches,
which values it takes, and what it is at every position.

To add a kind of memory, write its file here and list its class in `__init__.py`. Routes and certificates refuse a
`Recall` that they do not know, with a reason.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from memloci.core.errors import BadInput
from memloci.core.specs import Spec
from memloci.language.domain import Domain
from memloci.language.formula import Formula
from memloci.tasks.channel import Channel, with_blank
from memloci.tasks.names import memory_of, variable

MAX_LAG = 1 << 24


@dataclass(frozen=True)
class Scope:
    """What a memory of a task may refer to: the present, and the memories before it."""

    channels: tuple[Channel, ...]
    before: tuple["Recall", ...]
    count: int  # memories of the task
    room: int  # cells that its tables may still take

    @property
    def index(self) -> int:
        """The memory's own number, from 1."""
        return len(self.before) + 1

    @property
    def earlier(self) -> dict[str, Domain]:
        """The variables of the present and of earlier memories, and what they can be where they are not blank."""
        now = {variable(c.name, 0): c.domain for c in self.channels}
        past = {
            variable(c.name, j): recall.values_of(c)
            for j, recall in enumerate(self.before, start=1)
            for c in self.channels
        }
        return now | past


class Recall(ABC):
    """A memory in its task. What takes a `LagTable` takes it for the token at a lag, so no class is derived from one."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if Recall not in cls.__bases__:
            raise TypeError(
                f"{cls.__name__}: derive a recall from Recall itself, not from another kind of it"
            )

    reads: tuple[str, ...]  # the variables that say where it lies
    cells: Sequence[int]  # of its table; empty if it has none

    @property
    def parents(self) -> tuple[int, ...]:
        """The earlier memories that it reads."""
        return tuple(sorted({memory_of(name) for name in self.reads} - {0}))

    @property
    def kernel(self) -> bool:
        """It is a fixed kernel over lags: the same at every position, whatever the input."""
        return False

    @property
    def token(self) -> bool:
        """It is one token of the past, or blank: its symbols are symbols, so that later memories may read them."""
        return False

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """The formulas of a kernel, whose constants certificates list."""
        return ()

    @property
    @abstractmethod
    def bound(self) -> int | float:
        """The farthest lag at which it can lie; infinite if there is none."""

    @property
    @abstractmethod
    def text(self) -> str:
        """In a few words, for tables: `lag 3`."""

    @property
    def label(self) -> str:
        """The same, with how far back it reaches where that is not said."""
        reach = (
            "" if math.isinf(self.bound) or f"{self.bound:,}" in self.text else f" (at most {self.bound:,})"
        )
        return self.text + reach

    def values_of(self, channel: Channel) -> Domain:
        """The values of one channel of it where it is not blank: those of a token, if it is one."""
        return channel.domain

    def domain(self, channel: Channel) -> Domain:
        """All values of one channel of it. A token before the start is blank, that is 0."""
        return with_blank(self.values_of(channel))

    @abstractmethod
    def recall(self, values: dict[str, Any], blank: list[Any], X: Any, xp: Any) -> tuple[Any, Any]:
        """(memory, blank): the memory at every position, (length, channels), and where it is blank.

        `values` holds the variables so far, `blank[j]` where memory j is blank; X is the sequence (length, channels).
        """


class Memory(Spec, ABC):
    """What a user writes; `key` names it in a task file, and is the field of the first argument."""

    key: ClassVar[str]

    def __init__(self, /, *first: Any, **fields: Any):
        if len(first) > 1:
            raise TypeError(f"{type(self).__name__} takes one positional argument, found {len(first)}")
        super().__init__(**({self.key: first[0]} if first else {}), **fields)

    @classmethod
    def accepts(cls, value: Any) -> bool:
        """Whether the value of `key` in a task file means this class; several may share a key."""
        return True

    @abstractmethod
    def prepare(self, scope: Scope) -> Recall:
        """The memory in its task, or a refusal."""


def refuse_later(source: Any, scope: Scope, first: int, what: str) -> None:
    """A clearer refusal than "unknown name" for a lag or match that reads memory `first` or a later one."""
    if not isinstance(source, str) or len(source) > 4_000:
        return
    names = {channel.name for channel in scope.channels}
    for name, number in re.findall(r"\b([A-Za-z_]\w*?)(\d{1,4})\b", source):
        if name in names and first <= int(number) <= scope.count:
            raise BadInput(
                f"{name}{number} is memory {number}, which is not recalled before the {what} of memory {scope.index}; "
                f"a {what} may read {name}0 to {name}{first - 1}"
            )
