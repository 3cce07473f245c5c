"""Named tasks, one line each; `memloci tasks` lists them, and a name serves wherever a task file does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memloci.tasks.short import Adaptive, Essential, Fixed
from memloci.tasks.task import Task

SIGN: dict[str, Any] = {"name": "b", "values": [-1, 1]}
BIT: dict[str, Any] = {"name": "b", "values": [0, 1]}
PAYLOAD: dict[str, Any] = {"name": "v", "range": [-1, 1]}


def _pointer(*values: int) -> list[dict[str, Any]]:
    return [{"name": "a", "values": list(values)}, PAYLOAD]


@dataclass(frozen=True)
class Entry:
    """A task to be made when it is asked for: `GALLERY["delay"]()`."""

    make: Callable[..., Task]
    description: str
    fields: dict[str, Any]

    def __call__(self) -> Task:
        return self.make(description=self.description, **self.fields)


def _task(make: Callable[..., Task], description: str, **fields: Any) -> Entry:
    return Entry(make, description, fields)


GALLERY: dict[str, Entry] = {
    # Fixed lags.
    "delay": _task(Fixed, "a delay line: repeat the token 8 steps back", lags=[8], readout="x1"),
    "delay-far": _task(Fixed, "a long delay line: repeat the token 64 steps back", lags=[64], readout="x1"),
    "echo": _task(
        Fixed, "three echoes that fade", lags=[4, 16, 64], readout="0.5 * x1 + 0.3 * x2 + 0.2 * x3"
    ),
    "product": _task(Fixed, "the product of two memories", lags=[3, 17], readout="x1 * x2"),
    "distance": _task(
        Fixed, "how far three memories lie apart", lags=[2, 5, 9], readout="max(x1, x2, x3) - min(x1, x2, x3)"
    ),
    "parity": _task(
        Fixed, "sparse parity of three signs", channels=[SIGN], lags=[2, 5, 11], readout="b1 * b2 * b3"
    ),
    "majority": _task(
        Fixed, "the majority of three signs", channels=[SIGN], lags=[1, 4, 9], readout="sign(b1 + b2 + b3)"
    ),
    "multiplexer": _task(
        Fixed,
        "one bit chooses between two others",
        channels=[BIT],
        lags=[2, 6, 13],
        readout="where(b1, b2, b3)",
    ),
    "trigram": _task(
        Fixed,
        "an n-gram table: a score for each pair of preceding symbols",
        channels=[{"name": "w", "values": [0, 1, 2, 3]}],
        lags=[1, 2],
        readout="((5 * w1 + 3 * w2 + w1 * w2) % 7) / 7",
    ),
    # Lags that adapt to the input.
    "pointer": _task(
        Adaptive,
        "warm-up: the token says how far back to look",
        channels=_pointer(*range(1, 9)),
        lags=["a0"],
        readout="v1",
    ),
    "pointer-far": _task(
        Adaptive,
        "warm-up with far lags: powers of two up to 256",
        channels=_pointer(*(2**k for k in range(9))),
        lags=["a0"],
        readout="v1",
    ),
    "switch": _task(
        Adaptive,
        "warm-up on intervals: the sign of a sensor chooses the lag",
        channels=[{"name": "s", "intervals": [[-1, -0.2], [0.2, 1]]}],
        lags=["where(s0 > 0, 3, 7)"],
        readout="s1",
    ),
    "nested-1": _task(
        Adaptive,
        "K = 1: the first memory says where the second is",
        channels=_pointer(1, 2, 3, 4),
        lags=["2 * a0", "2 * a0 + a1"],
        readout="v2",
    ),
    "nested-2": _task(
        Adaptive,
        "K = 2: a chain of two pointers, then the payload",
        channels=_pointer(1, 2, 3, 4),
        lags=["a0", "a0 + a1", "a0 + a1 + a2"],
        readout="v3",
    ),
    "nested-3": _task(
        Adaptive,
        "K = 3: a chain of three pointers, then the payload",
        channels=_pointer(1, 2, 3),
        lags=["a0", "a0 + a1", "a0 + a1 + a2", "a0 + a1 + a2 + a3"],
        readout="v4",
    ),
    "partly-nested": _task(
        Adaptive,
        "four memories of which only the second is nested",
        channels=_pointer(1, 2, 3, 4),
        lags=["a0", "a0 + a1", 5, "3 * a0"],
        readout="v2 + 0.5 * v3 * v4",
    ),
    # Kernels over the whole past.
    "power-law": _task(Essential, "a heavy tail: z ** -2", kernels=["z ** -2"], readout="x1"),
    "heavy-tail": _task(Essential, "a heavier tail: z ** -1.5", kernels=["z ** -1.5"], readout="x1"),
    "exponential": _task(Essential, "a light tail: exp(-0.3 z)", kernels=["exp(-0.3 * z)"], readout="x1"),
    "ringing": _task(
        Essential,
        "a damped oscillation of period 8",
        kernels=["exp(-z / 10) * cos(2 * pi * z / 8)"],
        readout="x1",
    ),
    "morlet": _task(
        Essential,
        "a wave packet around lag 16 (Morlet)",
        kernels=["exp(-(z - 16) ** 2 / 32) * cos(pi * (z - 16) / 4)"],
        readout="x1",
    ),
    "mixed-kernels": _task(
        Essential,
        "a heavy and a light tail, multiplied",
        kernels=["z ** -2", "exp(-0.3 * z)"],
        readout="x1 * x2 + 0.5 * x1",
    ),
}
