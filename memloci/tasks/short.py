"""Short ways to write common tasks: the kinds of the paper, and matches, whose memories are all alike.

    Fixed(lags=[3, 17], ...)            = Task(memories=[Lag(3), Lag(17)], ...)
    Adaptive(lags=["a0", 5], ...)       = Task(memories=[Pointer("a0"), Lag(5)], ...)
    Essential(kernels=["z ** -2"], ...) = Task(memories=[Kernel("z ** -2")], ...)
    Matched(matches=["k1 == k0"], ...)  = Task(memories=[Match("k1 == k0")], ...)

A task file says `kind = "fixed"` and has the key of that kind in place of `memories`. To add a short form, write its
function and list it in SHORT.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.specs import joined, missing, unknown
from memloci.tasks.channel import as_tuple
from memloci.tasks.memories.base import Memory
from memloci.tasks.memories.kernel import Kernel
from memloci.tasks.memories.lag import Lag
from memloci.tasks.memories.match import Match
from memloci.tasks.memories.pointer import Pointer
from memloci.tasks.task import Task, at_most, plain


def Fixed(**fields: Any) -> Task:
    """Lags that are known in advance: `ml.Fixed(lags=[3, 17], readout="x1 * x2")`."""
    _check_keys(fields, "fixed")
    return _task(fields, "lags", _each_memory("lags", Lag, _listed(fields, "lags")))


def Adaptive(**fields: Any) -> Task:
    """Lags that depend on the input: `ml.Adaptive(channels=[...], lags=["2 * a0", "2 * a0 + a1"], readout="v2")`."""
    _check_keys(fields, "adaptive")
    return _task(fields, "lags", _each_memory("lags", _pointer, _listed(fields, "lags")))


def Essential(**fields: Any) -> Task:
    """Kernels over the past: `ml.Essential(kernels=["z ** -2"], readout="x1")`.

    `majorants`, for callables: expressions with |rho_i(z)| <= majorants[i](z) at every lag, taken on trust.
    """
    _check_keys(fields, "essential")
    memories = _each_memory("kernels", Kernel, _listed(fields, "kernels"))
    if fields.get("majorants") is not None:
        bounds = _listed(fields, "majorants")
        if len(bounds) != len(memories):
            raise BadInput(
                f"majorants: needs one for each of the {len(memories)} kernels, found {len(bounds)}"
            )
        kernels = iter(memories)
        memories = _each_memory(
            "majorants", lambda bound: Kernel(next(kernels).kernel, majorant=bound), bounds
        )
    return _task(fields, "kernels", memories)


def Matched(**fields: Any) -> Task:
    """Tokens found by content: `ml.Matched(channels=[...], matches=["k1 == k0"], offset=1, readout="v1")`.

    `offset` and `which` are those of every match.
    """
    _check_keys(fields, "matched")
    shared = {key: fields[key] for key in ("offset", "which") if fields.get(key) is not None}
    Match("x1 == x0", **shared)  # a wrong offset is said once, not of every match
    memories = _each_memory("matches", lambda match: Match(match, **shared), _listed(fields, "matches"))
    return _task(fields, "matches", memories)


SHORT: dict[str, Callable[..., Task]] = {
    "fixed": Fixed,
    "adaptive": Adaptive,
    "essential": Essential,
    "matched": Matched,
}
KEYS = {
    "fixed": ("lags",),
    "adaptive": ("lags",),
    "essential": ("kernels", "majorants"),
    "matched": ("matches", "offset", "which"),
}
LISTED = ("memories",)  # where there is no short form


def fields_of(kind: str | None) -> tuple[str, ...]:
    """The keys of a task file of this kind, `kind` aside; those of one that lists its memories, for any other."""
    memory_keys = KEYS.get(str(kind), LISTED)
    return tuple(
        key for name in Task.model_fields for key in (memory_keys if name == "memories" else (name,))
    )


def _pointer(lag: Any) -> Memory:
    return Pointer(lag) if Pointer.accepts(lag) else Lag(lag)


def _check_keys(fields: dict[str, Any], kind: str) -> None:
    """Refuse what is missing or unknown."""
    keys = fields_of(kind)
    problems = [missing(key) for key in (KEYS[kind][0], "readout") if key not in fields]
    problems += [unknown(key, keys) for key in fields if key not in keys]
    if problems:
        raise BadInput(joined(problems))


def _listed(fields: dict[str, Any], key: str) -> tuple[Any, ...]:
    try:
        return at_most(as_tuple(fields[key]))
    except BadInput as error:
        raise error.within(key) from None


def _each_memory(key: str, make: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """A memory of each value; a refusal names the entry, not the field of the memory that it becomes."""
    memories = []
    for k, value in enumerate(values):
        try:
            memories.append(make(value))
        except BadInput as error:
            raise BadInput(f"{key}[{k}]: {re.sub(r'^[a-z]+: ', '', str(error))}") from None
    return memories


def _task(fields: dict[str, Any], key: str, memories: Sequence[Memory]) -> Task:
    """The task; what it refuses of a memory is said of the entry that the user wrote."""
    shared = {name: value for name, value in fields.items() if name in Task.model_fields}
    try:
        return Task(memories=tuple(memories), **shared)
    except BadInput as error:
        raise BadInput(re.sub(r"^memories(?=\[)", key, str(error))) from None


def kind_of(task: Task) -> str:
    """One word for a task's memories: a key of SHORT, or `mixed`."""
    kinds = {type(memory) for memory in task.memories}  # exactly: a derived class is another memory
    if kinds <= {Lag}:
        return "fixed"
    if kinds <= {Lag, Pointer}:
        return "adaptive"
    return "essential" if kinds == {Kernel} else "matched" if kinds == {Match} else "mixed"


def shortened(task: Task, fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` with the memories in their short form, or as a list of tables where there is none."""
    kind = kind_of(task)
    (key, *_) = KEYS.get(kind, LISTED)
    tables = [plain(memory, f"{key}[{k}]") for k, memory in enumerate(task.memories)]
    shared = [
        {name: value for name, value in table.items() if name in KEYS.get(kind, ())} for table in tables
    ]
    if shared and all(
        each == shared[0] for each in shared
    ):  # what all memories have in common is written once
        fields = {**fields, **shared[0]}
        tables = [{name: value for name, value in table.items() if name not in shared[0]} for table in tables]
    if kind not in KEYS or any(len(table) > 1 for table in tables):
        return {**fields, "memories": tables}
    return {"kind": kind, **fields, key: [value for table in tables for value in table.values()]}
