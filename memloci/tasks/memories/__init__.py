"""The kinds of memory; the list below is all that a task knows of them."""

from typing import Any

from memloci.core.errors import BadInput
from memloci.core.specs import shorten
from memloci.tasks.memories.base import Memory
from memloci.tasks.memories.kernel import Kernel
from memloci.tasks.memories.lag import Lag
from memloci.tasks.memories.match import Match
from memloci.tasks.memories.pointer import Pointer

MEMORIES: list[type[Memory]] = [Lag, Pointer, Kernel, Match]


def memory_from(value: Any) -> Memory:
    """The memory that a table of a task file describes: `{ lag = 3 }`."""
    if isinstance(value, Memory):
        return value
    keys = list(dict.fromkeys(kind.key for kind in MEMORIES))
    if not isinstance(value, dict):
        raise BadInput(f"a memory is a table with one of the keys {', '.join(keys)}, found {shorten(value)}")
    value = {str(key): entry for key, entry in value.items()}
    named = [key for key in keys if key in value]
    if len(named) != 1:
        raise BadInput(f"a memory has exactly one of the keys {', '.join(keys)}, found {shorten(value)}")
    kinds = [kind for kind in MEMORIES if kind.key == named[0]]
    chosen = next((kind for kind in kinds if kind.accepts(value[named[0]])), kinds[0])
    return chosen(**value)
