"""Random adaptive tasks: letters of every kind, lags by expressions and by tables, nested up to K = 2."""

import inspect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from memloci.core.errors import BadInput
from memloci.tasks.memories.base import Memory, Recall
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.memories.pointer import Pointer
from memloci.tasks.short import Adaptive
from memloci.tasks.task import Task

RANGES = ([-1, 1], [0, 1], [-3, 2], [0.1, 0.9], [-0.5, -0.25])
MOST_CASES = 200  # of symbols that lags read, for a certificate in seconds


@dataclass(frozen=True)
class Drawn:
    """A task, and what is asked of a plan."""

    task: Task
    route: str
    tolerance: float
    precision: str

    @property
    def length(self) -> int:
        return min(300, 2 * int(max(self.task.lag_bounds)) + 8)

    def __str__(self) -> str:
        t = self.task
        lags = [_told(memory, recall) for memory, recall in zip(t.memories, t.recalls, strict=True)]
        channels = [channel.model_dump(exclude_none=True) for channel in t.channels]
        return f"{self.route} {self.precision} {self.tolerance:g}: {channels} lags={lags} readout={t.readout}"


def _told(memory: Memory, recall: Recall) -> Any:
    """A lag as it was written; the table of one that is no text."""
    if isinstance(memory, Pointer) and isinstance(memory.lag, str):
        return memory.lag
    assert isinstance(recall, LagTable)
    return recall.cells


def random_adaptive(seed: int) -> Drawn:
    """The first task of this seed that is one; a formula may be no lag, or undefined."""
    rng = np.random.default_rng(seed)
    while True:
        route = str(rng.choice(["rotary"] * 7 + ["chain", "chain", "lin-tmx", "lin-dp", "log-tmx", "log-dp"]))
        farthest = {"rot": rng.choice([3, 16, 64, 256]), "cha": 9, "lin": rng.choice([2, 3, 4]), "log": 3}
        T = int(farthest[route[:3]])
        paper = route[:3] in ("lin", "log")
        precision = "float64" if paper or rng.random() < 0.3 else "float32"
        try:
            task = _task(rng, T, most_letters=4 if paper else 32)
        except BadInput:
            continue
        if task is not None:
            return Drawn(task, route, float(rng.choice([1e-1, 1e-2, 1e-3])), precision)


def _task(rng: np.random.Generator, T: int, most_letters: int) -> Task | None:
    names = ["a", "b", "c"][: int(rng.choice([1, 1, 1, 2, 2, 3]))]
    M = int(rng.choice([1, 2, 2, 3, 3, 4]))
    K = min(int(rng.choice([0, 0, 1, 1, 2, 2])), M - 1)
    letters = [_letters(rng, name, min(most_letters, [32, 8, 4][K])) for name in names]
    symbols: dict[str, Any] = {"name": "w", "values": [-1, 0.5, 2]}
    payload: dict[str, Any] = {"name": "v", "range": RANGES[rng.integers(len(RANGES))]}
    pieces = {channel["name"]: len(channel.get("values") or channel["intervals"]) for channel in letters}
    read: set[str] = set()
    lags = []
    for i in range(1, M + 1):
        parents = [j for j in range(1, min(i, K + 1)) if rng.random() < 0.8]
        own = [f"{rng.choice(names)}{j}" for j in parents]
        if not own or rng.random() < 0.6:
            own.append(f"{rng.choice(names)}0")
        own = list(dict.fromkeys(own))
        read |= set(own)
        lags.append(_lag(rng, own, {channel["name"]: channel for channel in letters}, T))
    if math.prod(pieces[name[0]] for name in read) > MOST_CASES:
        return None
    task = Adaptive(channels=[*letters, symbols, payload], lags=lags, readout=_readout(rng, M, names))
    return task if max(task.lag_bounds) <= T else None


def _letters(rng: np.random.Generator, name: str, most: int) -> dict[str, Any]:
    n = int(rng.integers(2, rng.choice([3, 5, most]) + 1))
    kind = rng.choice(["whole", "whole", "spread", "powers", "real", "negative", "intervals"])
    if kind == "powers":
        return {"name": name, "values": [2**k for k in range(min(n, 9))]}
    if kind == "spread":
        return {"name": name, "values": sorted(rng.choice(np.arange(-20, 60), n, replace=False).tolist())}
    if kind == "real":
        return {"name": name, "values": (np.cumsum(rng.uniform(0.1, 1, n)) - 2).round(3).tolist()}
    if kind == "negative":
        return {"name": name, "values": (-0.5 * np.arange(1, n + 1)).tolist()}
    if kind == "intervals":
        n = min(n, 4)
        ends = (np.cumsum(rng.uniform(0.2, 1, 2 * n)) - 2).round(2).reshape(n, 2)
        return {"name": name, "intervals": ends.tolist()}
    return {"name": name, "values": list(range(1, n + 1))}


def _lag(rng: np.random.Generator, own: list[str], channels: dict[str, Any], T: int) -> Any:
    """An expression, a whole number or a callable."""
    if rng.random() < 0.08:
        return int(rng.integers(1, T + 1))
    values = [channels[name[0]].get("values") for name in own]
    if any(v is None for v in values):  # intervals: constant on each
        name = own[int(np.argmax([v is None for v in values]))]
        ends = channels[name[0]]["intervals"]
        far, near = rng.integers(1, T + 1, 2).tolist()
        cut = (ends[0][1] + ends[1][0]) / 2
        return f"where({name} > {cut}, {far}, {near})"
    whole = all(float(x).is_integer() and x > 0 for v in values for x in v)
    reach = sum(max(v) for v in values)
    kind = rng.random()
    if whole and reach <= T and kind < 0.5:
        times = int(rng.integers(1, T // reach + 1))
        return " + ".join(f"{times} * {name}" for name in own)
    if kind < 0.7:
        total = " + ".join(f"{rng.integers(1, 7)} * {name}" for name in own)
        return f"1 + floor(abs({total})) % {T}"
    shape = tuple(map(len, values))
    table = rng.integers(1, T + 1, shape)
    if rng.random() < 0.3:
        table = np.where(rng.random(shape) < 0.5, 1, T)  # long runs, and lag 1
    sides = [sorted(v) for v in values]

    def look_up(**at: float) -> int:
        return int(table[tuple(side.index(at[name]) for name, side in zip(own, sides, strict=True))])

    # A callable names its variables by its parameters, and these are only known here.
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in own]
    look_up.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return look_up


def _readout(rng: np.random.Generator, M: int, names: list[str]) -> Any:
    i, j = (int(k) for k in rng.integers(1, M + 1, 2))
    a, b = rng.uniform(-1, 1, 2).round(3).tolist()
    linear = " + ".join(f"{rng.uniform(-1, 1):.3f} * v{k}" for k in range(1, M + 1))
    some = [
        f"v{M}",
        linear,
        f"{linear} + {a} * {names[0]}{i} - {b} * v0 + 0.25",
        f"{a} * v{i} * v{j} + {b} * v0",
        f"max(v{i}, {a} * v{j}) - {b}",
        f"where(w{i} > 0, w{j}, {a})",
        f"w{i} * w{j} + {b} * v{M}",
        f"tanh({a} * v{i}) + v{j}",
        f"{names[-1]}{i} + {a} * v{j}",
    ]
    if rng.random() < 0.15:
        return [f"v{i}", linear]
    return str(rng.choice(some))
