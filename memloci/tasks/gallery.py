"""Named tasks, one line each; `memloci tasks` lists them, and a name serves wherever a task file does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memloci.tasks.short import Adaptive, Essential, Fixed, Matched
from memloci.tasks.task import Task

SIGN: dict[str, Any] = {"name": "b", "values": [-1, 1]}
BIT: dict[str, Any] = {"name": "b", "values": [0, 1]}
PAYLOAD: dict[str, Any] = {"name": "v", "range": [-1, 1]}


VALUES = tuple(f"v_{letter}" for letter in "abcdefghijklmnop")  # sixteen real channels


def _keyed(keys: int, *more: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "k", "values": list(range(keys))}, *more, PAYLOAD]


def _pointer(*values: int) -> list[dict[str, Any]]:
    return [{"name": "a", "values": list(values)}, PAYLOAD]


@dataclass(frozen=True)
class GalleryEntry:
    """A task to be made when it is asked for: `GALLERY["delay"]()`."""

    make: Callable[..., Task]
    description: str
    fields: dict[str, Any]

    def __call__(self) -> Task:
        return self.make(description=self.description, **self.fields)


def _task(make: Callable[..., Task], description: str, **fields: Any) -> GalleryEntry:
    return GalleryEntry(make, description, fields)


GALLERY: dict[str, GalleryEntry] = {
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
    "look-back": _task(
        Adaptive,
        "Proposition 4.2: the token 0, 1 or 2 steps back, as the present token says",
        channels=[{"name": "x", "values": [-1, 0, 1]}],
        lags=["x0 + 1"],
        readout="x1",
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
    # Tokens found by their content.
    "mqar": _task(
        Matched,
        "associative recall (MQAR): 16 numbers last stored under one of 64 keys",
        channels=[
            {"name": "k", "values": list(range(64))},
            *({"name": name, "range": [-1, 1]} for name in VALUES),
        ],
        matches=["k1 == k0"],
        readout=[f"{name}1" for name in VALUES],
    ),
    "induction": _task(
        Matched,
        "induction: the symbol of 256 that followed the last occurrence of this one",
        channels=[{"name": "w", "values": list(range(256))}],
        matches=["w1 == w0"],
        offset=1,
        readout="w1",
    ),
    "needle": _task(
        Matched,
        "a needle in a haystack: the payload of the latest marked token",
        channels=[{"name": "m", "values": [0, 1]}, PAYLOAD],
        matches=["m1 == 1"],
        readout="v1",
    ),
    "two-hop": _task(
        Matched,
        "two hops: this key's entry names another key, whose payload is recalled",
        channels=_keyed(16, {"name": "a", "values": list(range(16))}),
        matches=["k1 == k0", "k2 == a1"],
        readout="v2",
    ),
    "selective-copy": _task(
        Matched,
        "selective copying by rank: the payload of the marked token with this rank",
        channels=[{"name": "m", "values": [0, 1]}, {"name": "i", "values": list(range(1, 9))}, PAYLOAD],
        matches=["m1 == 1 and i1 == i0"],
        readout="v1",
    ),
    "most-frequent": _task(
        Matched,
        "the mean sign under this key so far: its sign is the most frequent one",
        channels=[{"name": "k", "values": [0, 1, 2, 3]}, SIGN],
        matches=["k1 == k0"],
        which="mean",
        readout="b1",
    ),
    "what-came-next": _task(
        Matched,
        "the last time this event happened, the payload that came next",
        channels=[{"name": "e", "values": list(range(8))}, PAYLOAD],
        matches=["e1 == e0"],
        offset=1,
        readout="v1",
    ),
}

# What users ask for that no memory here expresses: name -> the reason.
OUTSIDE: dict[str, str] = {
    "counting": "how many tokens match depends on all of them at once, and grows without a bound; a memory recalls one token, "
    'or a mean. A count within a horizon is a kernel: { kernel = "1", horizon = 100 }',
    "sorting": "the rank of a token among all others compares every pair of tokens; a memory compares the past with the present "
    "only. The largest of a few memories is a readout: max(x1, x2)",
    "parity-of-everything": "the parity of all tokens changes with each one of them, so that no few memories determine it; it is the "
    "standard task that needs a state which is updated at every step. The parity of a few lags is the gallery task parity",
    "ordered-copying": "the j-th marked token is found by counting marks, and a match does not count; where tokens carry their rank, "
    "the gallery task selective-copy does it",
}
