"""The one table of task cases, and the one table of refused tasks. A new kind of memory adds rows here."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from memloci.tasks.channel import Channel
from memloci.tasks.gallery import GALLERY
from memloci.tasks.memories import Kernel, Lag, Pointer
from memloci.tasks.short import Adaptive, Essential, Fixed
from memloci.tasks.task import Task

REAL = {"name": "u", "range": [-2, 3]}
TERNARY = {"name": "w", "values": [2, -1, 0]}
BIT = {"name": "b", "values": [0, 1]}
SENSOR = {"name": "s", "intervals": [[0.2, 1], [-1, -0.2]]}
POINTER = {"name": "a", "values": [1, 2, 3]}
PAYLOAD = {"name": "v"}

CASES: dict[str, Callable[[], Task]] = {
    **GALLERY,
    "two-channels": lambda: Fixed(
        channels=[REAL, TERNARY], lags=[1, 4], readout=["u1 * w2 + u0", "max(u1, u2, w0)", "w1 == w2"]
    ),
    "constant": lambda: Fixed(lags=[2], readout="0.25 * pi"),
    "beyond": lambda: Fixed(lags=[41, 1_000_000], readout="x1 + x2 - x0"),
    "same-lag-twice": lambda: Fixed(lags=[3, 3], readout="x1 - 2 * x2"),
    "present-only": lambda: Fixed(lags=[5], readout="x0 ** 2"),
    "callable-readout": lambda: Fixed(
        lags=[2, 9], readout=[lambda x1, x2: x1 * x2 + 0.5, "x1"], lipschitz={"x1": 1.0, "x2": 1.0}
    ),
    "guarded": lambda: Fixed(lags=[2], readout="where(abs(x1) > 0.5, 1 / x1, 2 * x1)"),
    "smooth": lambda: Fixed(
        lags=[1, 7],
        readout="tanh(x1) + sqrt(x2 + 2) * exp(-x1) - log(x1 + 3) + cos(2 * x2) * sin(x0) / (x1 ** 2 + 1)",
    ),
    "steps": lambda: Fixed(
        channels=[TERNARY],
        lags=[1, 3],
        readout=["floor(w1 / 2) + round(w2 / 4) - sign(w0)", "w1 % 3 + w2 // 2", "min(w0, w1, w2, 1)"],
    ),
    "logic": lambda: Fixed(
        channels=[BIT],
        lags=[1, 2, 6],
        readout=["b1 and not b2 or b3 > b0", "0 <= b1 < b2", "1 - (b1 != b2) + 2 * (b3 >= b0)"],
    ),
    "callable-lags": lambda: Adaptive(
        channels=[POINTER, PAYLOAD], lags=[lambda a0: 2 * a0, lambda a0, a1: a0 + a1], readout="v1 - v2"
    ),
    "tenths": lambda: Adaptive(
        channels=[{"name": "a", "values": [0.1, 0.2, 0.3]}, PAYLOAD],
        lags=["10 * a0", "a0 / 0.1 + a1 / 0.1"],
        readout="v1 + 2 * v2",
    ),
    # 0 is a symbol here, and a blank reads 0 too; what hangs on a blank is blank all the same.
    "zero-symbol": lambda: Adaptive(
        channels=[{"name": "a", "values": [0, 1, 2]}, PAYLOAD],
        lags=["3 * a0 + 4", "a1 + 1", "a2 + 1"],
        readout=["v3", "a2"],
    ),
    "two-levels-apart": lambda: Adaptive(
        channels=[POINTER, PAYLOAD], lags=["a0", "a0 + a1", "2 * a0 + a2"], readout="v3 + a1"
    ),
    "intervals-nested": lambda: Adaptive(
        channels=[SENSOR],
        lags=["where(s0 > 0, 2, 5)", "where(s1 > 0, 1, where(s0 > 0, 6, 9))"],
        readout="s1 * s2",
    ),
    "adaptive-beyond": lambda: Adaptive(
        channels=[{"name": "a", "values": [1, 50, 4096]}, PAYLOAD], lags=["a0 ** 2"], readout="v1"
    ),
    "adaptive-constant": lambda: Adaptive(lags=[4, "2 * 3"], readout="x1 - x2"),
    "two-pointers": lambda: Adaptive(
        channels=[POINTER, {"name": "c", "values": [0, 4]}, PAYLOAD],
        lags=["a0 + c0", "where(c1 > a0, 1, c1 + 2)"],
        readout=["v1", "v2 * a1"],
    ),
    "kernels-on-channels": lambda: Essential(
        channels=[REAL, TERNARY],
        kernels=["z ** -2", "exp(-z) * sin(z)"],
        readout=["u1 - w2", "u0 * w1"],
    ),
    "callable-kernel": lambda: Essential(
        kernels=[lambda z: 0.5**z, "where(z <= 3, 1, 0)"], majorants=["0.5 ** z", "0"], readout="x1 + x2"
    ),
    "zero-kernel": lambda: Essential(kernels=["0"], readout="x1 + x0"),
    "large-powers": lambda: Essential(kernels=["z ** 20 * exp(-z) / 1e18"], readout="tanh(x1)"),
    "stretched": lambda: Essential(
        kernels=["exp(-sqrt(z))", "log(z + 1) / z ** 2"], readout="max(x1, x2) ** 2"
    ),
    # The present itself, and nothing else.
    "lag-zero": lambda: Fixed(lags=[0, 2], readout="x1 * x2 + x0"),
    "lag-zero-at-a-symbol": lambda: Adaptive(
        channels=[POINTER, PAYLOAD], lags=["a0 - 1", "a0 + a1 - 2"], readout=["v1 - v2", "a2"]
    ),
    "no-memory": lambda: Task(memories=[], readout=["x0 ** 2", "0.5"]),
    # Mixtures.
    "mixed": lambda: Task(
        channels=[POINTER, PAYLOAD],
        memories=[Lag(3), Pointer("2 * a0"), Kernel("z ** -2"), Kernel("z ** -0.5", horizon=1000)],
        readout=["v1 * v2 - v3 + 0.1 * v4", "a1 - a2 + a3"],
    ),
    "mixed-nested": lambda: Task(
        channels=[POINTER, PAYLOAD],
        memories=[Kernel("exp(-z)"), Lag(2), Pointer("a2 + a0"), Pointer("a0 * a3"), Lag(0)],
        readout="v3 + v4 * v1 - v5 + where(a2 > 1, v2, 0)",
    ),
    "mixed-callables": lambda: Task(
        channels=[POINTER, PAYLOAD],
        memories=[Pointer(lambda a0: a0 + 1), Kernel(lambda z: 1 / z, horizon=7), Lag(1)],
        readout="v1 - v2 + v3",
    ),
    "moving-average": lambda: Task(memories=[Kernel("1 / 3", horizon=3)], readout="x1 - x0"),
    "growing-kernel": lambda: Task(
        channels=[REAL, TERNARY],
        memories=[Kernel("z ** 2", horizon=5), Kernel("(-1) ** z", horizon=1)],
        readout=["u1 + w2", "tanh(w1 * u2)"],
    ),
    "steps-of-a-kernel": lambda: Task(
        memories=[Kernel("where(z % 3 == 0, 1, floor(z / 7)) / z ** 3"), Lag(5)], readout="x1 + x2"
    ),
}

# Tasks that a file cannot hold, and the entry that is in the way.
CALLABLE = {
    "callable-readout": r"readout",
    "callable-lags": r"lags\[0\]",
    "callable-kernel": r"kernels\[0\]",
    "mixed-callables": r"memories\[0\]",
}

# M, K, levels (where a lag depends on the input) and lag bounds, by hand.
SHAPES: dict[str, tuple[int, int, tuple[int, ...] | None, tuple[float, ...]]] = {
    "delay": (1, 0, None, (8,)),
    "product": (2, 0, None, (3, 17)),
    "parity": (3, 0, None, (2, 5, 11)),
    "beyond": (2, 0, None, (41, 1_000_000)),
    "pointer": (1, 0, (0,), (8,)),
    "pointer-far": (1, 0, (0,), (256,)),
    "switch": (1, 0, (0,), (7,)),
    "nested-1": (2, 1, (0, 1), (8, 12)),
    "nested-2": (3, 2, (0, 1, 2), (4, 8, 12)),
    "nested-3": (4, 3, (0, 1, 2, 3), (3, 6, 9, 12)),
    "partly-nested": (4, 1, (0, 1, 0, 0), (4, 8, 5, 12)),
    "tenths": (2, 1, (0, 1), (3, 6)),
    "zero-symbol": (3, 2, (0, 1, 2), (10, 3, 3)),
    "two-levels-apart": (3, 2, (0, 1, 2), (3, 6, 9)),
    "intervals-nested": (2, 1, (0, 1), (5, 9)),
    "two-pointers": (2, 1, (0, 1), (7, 2)),
    "adaptive-constant": (2, 0, (0, 0), (4, 6)),
    "power-law": (1, 0, None, (math.inf,)),
    "mixed-kernels": (2, 0, None, (math.inf, math.inf)),
    "lag-zero": (2, 0, None, (0, 2)),
    "lag-zero-at-a-symbol": (2, 1, (0, 1), (2, 4)),
    "no-memory": (0, 0, None, ()),
    "mixed": (4, 0, (0, 0, 0, 0), (3, 6, math.inf, 1000)),
    "mixed-nested": (5, 3, (0, 0, 1, 2, 0), (math.inf, 2, 6, 9, 0)),
    "moving-average": (1, 0, None, (3,)),
    "growing-kernel": (2, 0, None, (5, 1)),
}


def draw(task: Task, rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random tokens, (..., channels), each channel over all that it can be."""
    return np.stack([_draw_channel(channel, rng, shape) for channel in task.channels], axis=-1)


def _draw_channel(channel: Channel, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    pieces = np.array(channel.domain)
    lo, hi = (
        pieces[rng.integers(len(pieces), size=shape)].reshape(*shape, 2).transpose(-1, *range(len(shape)))
    )
    return lo + (hi - lo) * rng.random(shape)


# What is refused, and what the one line says.

Data = dict[str, Any]


def fixed(**changes: Any) -> Data:
    return {"kind": "fixed", "lags": [3], "readout": "x1", **changes}


def adaptive(**changes: Any) -> Data:
    base = {"kind": "adaptive", "channels": [POINTER, PAYLOAD], "lags": ["a0"], "readout": "v1"}
    return {**base, **changes}


def essential(**changes: Any) -> Data:
    return {"kind": "essential", "kernels": ["z ** -2"], "readout": "x1", **changes}


def general(*memories: Any, **changes: Any) -> Data:
    return {"channels": [POINTER, PAYLOAD], "memories": list(memories), "readout": "v0", **changes}


def channel(**fields: Any) -> Data:
    return fixed(channels=[{"name": "x", **fields}])


def without(data: Data, key: str) -> Data:
    return {k: v for k, v in data.items() if k != key}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


NAN, INF = math.nan, math.inf
A_LAG = r"a lag is a whole number from 0 to 16,777,216"
WIDE = [{"name": "c", "values": list(range(1, 129))}]

REFUSED: dict[str, tuple[Any, str]] = {
    # Keys and kinds.
    "no table": ([1], "a task is a table of keys, found \\[1\\]"),
    "no kind": (without(fixed(), "kind"), 'kind is missing; write kind = one of "fixed", "adaptive"'),
    "unknown kind": (fixed(kind="recurrent"), "kind: 'recurrent' is unknown; the kinds are"),
    "kind of a wrong type": (fixed(kind=["fixed"]), r"kind: \['fixed'\] is unknown"),
    "unknown key": (
        fixed(lag=3),
        "unknown key 'lag'; the keys are description, channels, lags, readout, lipschitz$",
    ),
    "key of another kind": (fixed(kernels=["z ** -2"]), "unknown key 'kernels'"),
    "key of the general form": (
        fixed(memories=[{"lag": 3}]),
        "^unknown key 'memories'; the keys are description, channels, lags, readout, lipschitz$",
    ),
    "unknown key of kernels": (
        essential(lags=[3]),
        "unknown key 'lags'; the keys are description, channels, kernels, majorants, readout, lipschitz$",
    ),
    "unknown key of a task": (
        general(lags=[3]),
        "unknown key 'lags'; the keys are description, channels, memories, readout, lipschitz$",
    ),
    "neither kind nor memories": (
        {"readout": "x0"},
        r"kind is missing; write kind = one of .*, or list memories = \[\{ lag = 3 \}\]",
    ),
    "key with a space": (fixed(**{"my key": 1}), "unknown key 'my key'"),
    "key called self": (fixed(self=1), "unknown key 'self'"),
    "long key": (fixed(**{"k" * 5000: 1}), r"unknown key 'k{56}\.\.\.;"),
    "key that is no text": ({**fixed(), 1: 2}, "unknown key '1'"),
    "many unknown keys": (fixed(**{f"k{i}": i for i in range(9)}), "; and 6 more$"),
    "unknown key of a channel": (
        channel(lag=3),
        r"channels\[0\]: unknown key 'lag'; the keys are name, range",
    ),
    "no lags": (without(fixed(), "lags"), "lags is missing"),
    "no readout": (without(fixed(), "readout"), "readout is missing"),
    "no kernels": (without(essential(), "kernels"), "kernels is missing"),
    "nothing": ({"kind": "adaptive"}, "^lags is missing; readout is missing$"),
    "a lag for lags": (
        {"kind": "fixed", "lag": 3},
        "^lags is missing; readout is missing; unknown key 'lag'; ",
    ),
    # Lags.
    "lag -1": (fixed(lags=[-1]), rf"^lags\[0\]: {A_LAG}, found -1$"),
    "negative lag": (fixed(lags=[3, -1]), rf"lags\[1\]: {A_LAG}, found -1"),
    "fractional lag": (fixed(lags=[2.5]), rf"lags\[0\]: {A_LAG}, found 2.5"),
    "float lag": (fixed(lags=[2.0]), rf"{A_LAG}, found 2.0"),
    "nan lag": (fixed(lags=[NAN]), rf"{A_LAG}, found nan"),
    "infinite lag": (fixed(lags=[INF]), rf"{A_LAG}, found inf"),
    "true as a lag": (fixed(lags=[True]), rf"{A_LAG}, found True"),
    "text as a lag": (fixed(lags=["3"]), rf"{A_LAG}, found '3'"),
    "nothing as a lag": (fixed(lags=[None]), rf"{A_LAG}, found None"),
    "list as a lag": (fixed(lags=[[3]]), rf"{A_LAG}, found \[3\]"),
    "enormous lag": (fixed(lags=[2**24 + 1]), rf"{A_LAG}, found 16777217"),
    "lag of thousands of digits": (fixed(lags=[10**5000]), rf"{A_LAG}, found a very large int"),
    "lags as a number": (fixed(lags=3), "^lags: must be a list, found 3$"),
    "lags as text": (fixed(lags="3"), "^lags: must be a list, found '3'$"),
    "lags as a table": (fixed(lags={"a": 3}), "^lags: must be a list, found {'a': 3}$"),
    "lags without axes": (fixed(lags=np.array(3)), "^lags: must be a list, found"),
    "lags nested deep": (fixed(lags=nested(5000)), "found a very large list"),
    "no memory to read": (fixed(lags=[]), "^readout: unknown name 'x1'"),
    "many lags": (fixed(lags=[1] * 257), "^lags: a task has at most 256 memories, found 257$"),
    "many lag functions": (
        adaptive(lags=["a0"] * 4096),
        "^lags: a task has at most 256 memories, found 4096$",
    ),
    "very many lags": (fixed(lags=[0] * 500_000), "^lags: has 500,000 entries; at most 4,096"),
    # Lag functions.
    "negative lag at a symbol": (
        adaptive(lags=["a0 - 2"]),
        rf"^lags\[0\]: 'a0 - 2' gives -1 at a0 = 1; {A_LAG}$",
    ),
    "negative lag at another symbol": (adaptive(lags=["2 - a0"]), "gives -1 at a0 = 3"),
    "half a lag": (adaptive(lags=["a0", "a0 / 2 + a1"]), r"lags\[1\]: .* gives 1.5 at a0 = 1, a1 = 1"),
    "nearly a lag": (adaptive(lags=["a0 + 0.00001"]), "gives 1.00001 at a0 = 1"),
    "enormous lag of a symbol": (adaptive(lags=["10 ** (3 * a0)"]), "gives 1e9 at a0 = 3"),
    "infinite lag of a symbol": (adaptive(lags=["exp(999 * a0)"]), "has no finite value at a0 = 1; a lag is"),
    "undefined lag": (adaptive(lags=["1 / (a0 - 2)"]), "'1 / \\(a0 - 2\\)' gives -1 at a0 = 1"),
    "lag that is not a number": (adaptive(lags=["sqrt(a0 - 2) + 1"]), "has no finite value at a0 = 1"),
    "lag without a value that does not matter": (
        adaptive(lags=["3 + 0 * log(a0 - 2)"]),
        r"lags\[0\]: '3 \+ 0 \* log\(a0 - 2\)' has no finite value at a0 = 1",
    ),
    "the same in a large table": (
        adaptive(channels=WIDE, lags=["c0", "3 + 0 * log(c0 - 2) * c1"], readout="c1"),
        r"lags\[1\]: '3 \+ 0 \* log\(c0 - 2\) \* c1' has no finite value at c0 = 1, c1 = 1",
    ),
    "constant lag -1": (adaptive(lags=["1 - 2"]), f"'1 - 2' gives -1; {A_LAG}"),
    "constant lag 2.5": (adaptive(lags=[2.5]), rf"{A_LAG}, found 2.5"),
    "constant lag true": (adaptive(lags=[True]), rf"{A_LAG}, found True"),
    "lag on a continuous channel": (
        adaptive(lags=["1 + (v0 > 0)"]),
        r"lags\[0\]: '1 \+ \(v0 > 0\)' reads v0, which takes every value in \[-1, 1\]: .* with no margin",
    ),
    "nested lag on a continuous channel": (adaptive(lags=["a0", "where(v1 > 0, 1, 2)"]), "reads v1, which"),
    "lag that jumps inside an interval": (
        adaptive(channels=[SENSOR], lags=["where(s0 > 0.5, 3, 7)"], readout="s1"),
        r"is not shown to be constant at s0 in \[0.2, 1\]: it lies in \[3, 7\]",
    ),
    "lag that slides along an interval": (
        adaptive(channels=[SENSOR], lags=["5 + s0"], readout="s1"),
        "is not shown to be constant",
    ),
    "callable lag on intervals": (
        adaptive(channels=[SENSOR], lags=[lambda s0: 3], readout="s1"),
        "a callable lag needs finite values",
    ),
    "own memory": (adaptive(lags=["a1"]), "a1 is memory 1, which is not recalled before the lag of memory 1"),
    "later memory": (
        adaptive(lags=["a0 + a2", "a0"]),
        r"lags\[0\]: a2 is memory 2, which is not recalled before .* memory 1; a lag may read a0 to a0",
    ),
    "circle": (adaptive(lags=["a0", "a3", "a2"]), r"lags\[1\]: a3 is memory 3"),
    "memory beyond the last": (adaptive(lags=["a7"]), "unknown name 'a7'"),
    "unknown name in a lag": (adaptive(lags=["q0"]), r"lags\[0\]: unknown name 'q0'"),
    "unknown parameter of a lag": (adaptive(lags=[lambda q0: 1]), "unknown name 'q0' in a callable"),
    "parameters that are not named": (adaptive(lags=[lambda *a: 1]), "parameter 'a' of a callable must be"),
    "callable lag that fails": (adaptive(lags=[lambda a0: 1 // 0]), "raised ZeroDivisionError"),
    "callable lag that gives text": (adaptive(lags=[lambda a0: "two"]), "at a0 = 1 raised ValueError"),
    "callable lag of a half": (adaptive(lags=[lambda a0: a0 / 2]), "gives 0.5 at a0 = 1"),
    "enormous lag table": (
        adaptive(channels=WIDE, lags=["c0", "c0 + c1", "c0 + c1 + c2"], readout="c1"),
        r"lags\[2\]: the table of 'c0 \+ c1 \+ c2' has 2,097,152 cells",
    ),
    "many lag tables": (
        adaptive(channels=WIDE, lags=["c0", *["c0 + c1"] * 80], readout="c1"),
        "has 16,384 cells and there is room for 16,256; all lags together",
    ),
    "many intervals": (
        adaptive(
            channels=[{"name": "s", "intervals": [[i, i + 0.5] for i in range(65)]}],
            lags=[1, "1 + 0 * s0 * s1"],
            readout="s1",
        ),
        "4,225 boxes of intervals; too many to prove",
    ),
    # Kernels.
    "constant kernel": (essential(kernels=["1"]), r"kernels\[0\]: 1 cannot be shown to be summable"),
    "harmonic kernel": (essential(kernels=["z ** -2", "1 / z"]), r"kernels\[1\]: '1 / z' cannot be shown"),
    "growing kernel": (essential(kernels=["exp(z)"]), r"may behave like exp\(1 \* z\)"),
    "kernel with a pole": (essential(kernels=["1 / (z - 3) ** 2"]), "has no finite value at lag z = 3"),
    "kernel with no value": (essential(kernels=["sqrt(z - 2) / z ** 3"]), "no finite value at lag z = 1"),
    "kernel whose sum is too large": (essential(kernels=["z ** 84 * exp(-0.01 * z)"]), "exceeds float64"),
    "kernel of another variable": (essential(kernels=["x0"]), "unknown name 'x0'; the variables are z"),
    "kernel as a number": (essential(kernels=[0.5]), r"kernels\[0\]: a kernel is an expression in z"),
    "kernels as text": (essential(kernels="z ** -2"), r"^kernels: must be a list, found 'z \*\* -2'$"),
    "no kernel to read": (essential(kernels=[]), "^readout: unknown name 'x1'"),
    "many kernels": (
        essential(kernels=["z ** -2"] * 257),
        "^kernels: a task has at most 256 memories, found 257$",
    ),
    "callable kernel alone": (
        essential(kernels=[lambda z: z**-2.0]),
        r"^kernels\[0\]: nothing can be proved of the callable <lambda>; declare a majorant, or end it at a horizon$",
    ),
    "callable kernel that fails": (
        essential(kernels=[lambda z: {}[0]], majorants=["z ** -2"]),
        "cannot be computed on an array of lags \\(KeyError",
    ),
    "majorant below its kernel": (
        essential(kernels=[lambda z: z**-1.5], majorants=["z ** -2"]),
        r"^kernels\[0\]: majorant: 'z \*\* -2' is below the kernel at lag z = 2$",
    ),
    "majorant without a value": (
        essential(kernels=[lambda z: 0 * z], majorants=["where(z < 9, sqrt(z - 2), z ** -2)"]),
        r"^kernels\[0\]: majorant: .* is below the kernel at lag z = 1$",
    ),
    "unsummable majorant": (
        essential(kernels=[lambda z: z**-2.0], majorants=["1 / z"]),
        r"^kernels\[0\]: majorant: '1 / z' cannot be shown to be summable",
    ),
    "unknown name in a majorant": (
        essential(kernels=[lambda z: z**-2.0], majorants=["q"]),
        r"^kernels\[0\]: majorant: unknown name 'q'; the variables are z$",
    ),
    "number as a majorant": (
        essential(kernels=["z ** -2", lambda z: z**-2.0], majorants=["0", 2]),
        r"^majorants\[1\]: a majorant is an expression in z, in quotes; found 2$",
    ),
    "majorants as text": (essential(majorants="z ** -2"), "^majorants: must be a list, found"),
    "too few majorants": (
        essential(majorants=[]),
        "^majorants: needs one for each of the 1 kernels, found 0$",
    ),
    # Memories in the general form.
    "memories as a number": (general(memories=3), "^memories: must be a list, found 3$"),
    "memories as a table": (general(memories={"lag": 3}), "^memories: must be a list, found {'lag': 3}$"),
    "memory as a number": (
        general(3),
        r"^memories\[0\]: a memory is a table with one of the keys lag, kernel, match, found 3$",
    ),
    "memory as text": (general({"lag": 3}, "a0"), r"^memories\[1\]: a memory is a table .*, found 'a0'$"),
    "memory as a list": (general([3]), r"^memories\[0\]: a memory is a table .*, found \[3\]$"),
    "memory without a key": (
        general({}),
        r"^memories\[0\]: a memory has exactly one of the keys lag, kernel, match, found {}$",
    ),
    "memory with two keys": (
        general({"lag": 3, "kernel": "z ** -2"}),
        r"^memories\[0\]: a memory has exactly one of the keys lag, kernel, match, found {'lag': 3, 'kernel': 'z \*\* -2'}$",
    ),
    "unknown key of a memory": (
        general({"lag": 3}, {"lags": [3]}),
        r"^memories\[1\]: a memory has exactly one of the keys lag, kernel, match, found {'lags': \[3\]}$",
    ),
    "unknown key beside a lag": (
        general({"lag": 3, "horizon": 5}),
        r"^memories\[0\]: unknown key 'horizon'; the keys are lag$",
    ),
    "unknown key beside a kernel": (
        general({"kernel": "z ** -2", "decay": 5}),
        r"^memories\[0\]: unknown key 'decay'; the keys are kernel, horizon, majorant$",
    ),
    "key of a memory called self": (general({"lag": 3, "self": 1}), r"^memories\[0\]: unknown key 'self'"),
    "key of a memory that is no text": (general({"lag": 3, 1: 1}), r"^memories\[0\]: unknown key '1'"),
    "negative lag of a memory": (general({"lag": -1}), rf"^memories\[0\]: lag: {A_LAG}, found -1$"),
    "fractional lag of a memory": (general({"lag": 2.5}), rf"^memories\[0\]: lag: {A_LAG}, found 2.5$"),
    "empty lag of a memory": (general({"lag": ""}), r"^memories\[0\]: the expression is empty$"),
    "later memory in the general form": (
        general({"lag": "a2"}, {"lag": 3}),
        r"^memories\[0\]: a2 is memory 2, which is not recalled before the lag of memory 1; a lag may read a0 to a0$",
    ),
    "lag that reads a kernel": (
        general({"kernel": "z ** -2"}, {"lag": "a1"}),
        r"^memories\[1\]: 'a1' reads a1, but memory 1 is no token: .* a lag may read the present and memories that are tokens$",
    ),
    "lag that reads a kernel with a horizon": (
        general({"lag": 1}, {"kernel": "1", "horizon": 2}, {"lag": "a1 + a2"}),
        r"^memories\[2\]: 'a1 \+ a2' reads a2, but memory 2 is no token",
    ),
    "callable lag that reads a kernel": (
        general({"kernel": "z ** -2"}, {"lag": lambda a1: 3}),
        r"^memories\[1\]: <lambda> reads a1, but memory 1 is no token",
    ),
    "lag of a memory on a continuous channel": (
        general({"lag": "1 + (v0 > 0)"}),
        r"^memories\[0\]: '1 \+ \(v0 > 0\)' reads v0, which takes every value in \[-1, 1\]: .* with no margin",
    ),
    "unsummable kernel of a memory": (
        general({"lag": 1}, {"kernel": "z ** -0.5"}),
        r"^memories\[1\]: 'z \*\* -0.5' cannot be shown to be summable over all lags",
    ),
    "number as the kernel of a memory": (
        general({"kernel": 1}),
        r"^memories\[0\]: kernel: a kernel is an expression in z, in quotes, or a callable; found 1$",
    ),
    "horizon 0": (
        general({"kernel": "1", "horizon": 0}),
        r"^memories\[0\]: horizon: a horizon is a whole number from 1 to 65,536, found 0$",
    ),
    "negative horizon": (
        general({"kernel": "1", "horizon": -3}),
        "a horizon is a whole number .*, found -3$",
    ),
    "fractional horizon": (
        general({"kernel": "1", "horizon": 2.0}),
        "a horizon is a whole number .*, found 2.0$",
    ),
    "true as a horizon": (
        general({"kernel": "1", "horizon": True}),
        "a horizon is a whole number .*, found True$",
    ),
    "text as a horizon": (
        general({"kernel": "1", "horizon": "9"}),
        "a horizon is a whole number .*, found '9'$",
    ),
    "enormous horizon": (
        general({"kernel": "1", "horizon": 65_537}),
        "a horizon is a whole number .*, found 65537$",
    ),
    "kernel with a pole before its horizon": (
        general({"kernel": "1 / (z - 3)", "horizon": 5}),
        r"^memories\[0\]: '1 / \(z - 3\)' has no finite value at lag z = 3$",
    ),
    "kernel too large before its horizon": (
        general({"kernel": "exp(z)", "horizon": 800}),
        r"^memories\[0\]: 'exp\(z\)' has no finite value at lag z = 710$",
    ),
    "kernel whose sum before its horizon is too large": (
        general({"kernel": "1e308", "horizon": 2}),
        r"^memories\[0\]: the sum of \|'1e308'\| over all lags exceeds float64$",
    ),
    "callable kernel above its majorant before its horizon": (
        general({"kernel": lambda z: z, "horizon": 9, "majorant": "4"}),
        r"^memories\[0\]: majorant: '4' is below the kernel at lag z = 5$",
    ),
    "many memories": (general(*[{"lag": 1}] * 257), "^memories: a task has at most 256 memories, found 257$"),
    "very many memories": (general(*[{"lag": 1}] * 5000), "^memories: has 5,000 entries; at most 4,096$"),
    "memories nested deep": (general(nested(5000)), "found a very large list$"),
    "channel called memories": (
        fixed(channels=[{"name": "memories"}], readout="memories2"),
        "^readout: unknown name 'memories2'; did you mean 'memories1'",
    ),
    # Readouts.
    "unknown name": (fixed(readout="x1 + y1"), "readout: unknown name 'y1'; the variables are x0, x1"),
    "memory that is not there": (fixed(readout="x2"), "readout: unknown name 'x2'"),
    "unknown name in the second output": (fixed(readout=["x1", "q"]), r"readout\[1\]: unknown name 'q'"),
    "no outputs": (fixed(readout=[]), "a task has 1 to 64 outputs, found 0"),
    "many outputs": (fixed(readout=["x1"] * 65), "a task has 1 to 64 outputs, found 65"),
    "empty readout": (fixed(readout=""), "readout: the expression is empty"),
    "number as a readout": (
        fixed(readout=1),
        "readout: must be an expression in quotes or a callable, found 1",
    ),
    "true as a readout": (fixed(readout=[True]), r"readout: \[0\] must be an expression"),
    "nothing as a readout": (
        fixed(readout=None),
        "must be an expression in quotes or a callable, found None",
    ),
    "table as a readout": (fixed(readout={"a": "x1"}), "must be an expression in quotes"),
    "readout nested deep": (fixed(readout=nested(5000)), "found a very large list"),
    "hostile readout": (fixed(readout="x1.__class__"), "'x1.__class__' is not allowed in an expression"),
    "enormous readout": (fixed(readout="x1 + " * 2000 + "x1"), "the expression has 10,002 characters"),
    "enormous number": (fixed(readout="x1 * 1e400"), "a number is too large for float64"),
    "division by a channel": (
        fixed(readout="1 / x1"),
        r"readout: the divisor can be 0 in '1 / x1' \(near x1 = 0",
    ),
    "division inside": (fixed(readout="x0 / (x1 + 0.5)"), "the divisor can be 0 in .* x1 = -0.5"),
    "division by a difference": (fixed(lags=[1, 2], readout="1 / (x1 - x2)"), "the divisor can be 0"),
    # The channel is never 0, but a blank memory is.
    "division by a blank": (
        fixed(channels=[{"name": "x", "range": [1, 2]}], readout="1 / x1"),
        r"the divisor can be 0 in '1 / x1' \(near x1 = 0\)",
    ),
    "division by a blank symbol": (
        adaptive(readout="v1 / a1"),
        r"the divisor can be 0 in 'v1 / a1' \(near a1 = 0",
    ),
    "log of a blank": (adaptive(readout="log(a1)"), "log of a value that can be 0 or less"),
    "division by a convolution": (essential(readout="1 / x1"), "the divisor can be 0"),
    "remainder by zero": (fixed(readout="x0 % x1"), "the divisor can be 0 in 'x0 % x1'"),
    "root of a negative": (
        fixed(readout="sqrt(x1)"),
        r"sqrt of a value that can be negative in 'sqrt\(x1\)'",
    ),
    "fractional power": (fixed(readout="x1 ** 0.5"), "needs a whole-number exponent"),
    "negative power": (fixed(readout="x1 ** -2"), "the divisor can be 0"),
    "overflow": (fixed(readout="exp(1000 * x1)"), "the value can exceed float64"),
    # Channels.
    "no channels": (fixed(channels=[]), "channels: a task has 1 to 64 channels, found 0"),
    "many channels": (
        fixed(channels=[{"name": f"c{chr(97 + i // 26)}{chr(97 + i % 26)}"} for i in range(65)]),
        "a task has 1 to 64 channels, found 65",
    ),
    "channels as a table": (fixed(channels={"name": "x"}), "^channels: must be a list, found"),
    "channel as text": (fixed(channels=["x"]), r"channels\[0\]: .*, found 'x'"),
    "duplicate channels": (fixed(channels=[{"name": "x"}] * 2), "channels: two channels are called 'x'"),
    "empty name": (channel(name=""), "name: '' cannot name a channel"),
    "name with a digit at the end": (channel(name="x1"), "name: 'x1' cannot name a channel; use letters"),
    "name with a space": (channel(name="a b"), "'a b' cannot name a channel"),
    "name with a newline": (channel(name="x\n"), r"'x\\n' cannot name a channel"),
    "name in another script": (channel(name="\u03b1"), "cannot name a channel"),
    "name of a function": (channel(name="sin"), "'sin' is a function or a constant of the language"),
    "name of a constant": (channel(name="pi"), "'pi' is a function or a constant"),
    "long name": (channel(name="x" * 5000), "cannot name a channel"),
    "number as a name": (channel(name=1), "name: input should be a valid string, found 1"),
    "two kinds of values": (channel(range=[0, 1], values=[0, 1]), "needs one of range, values, intervals"),
    "falling range": (channel(range=[1, -1]), r"range of channel 'x' must rise, found \[1, -1\]"),
    "range of one point": (channel(range=[1, 1]), "range of channel 'x' must rise"),
    "range of three": (
        channel(range=[0, 1, 2]),
        r"^channels\[0\]: range: must be two numbers, found \[0, 1, 2\]$",
    ),
    "range as a number": (channel(range=1), r"^channels\[0\]: range: must be a list, found 1$"),
    "range with text": (channel(range=["0", 1]), r"range\[0\]: input should be a valid number, found '0'"),
    "range with true": (
        channel(range=[False, True]),
        r"range\[0\]: input should be a valid number, found False",
    ),
    "nan range": (channel(range=[NAN, 1]), r"range\[0\]: input should be a finite number, found nan"),
    "infinite range": (channel(range=[-INF, 1]), "input should be a finite number, found -inf"),
    "enormous range": (channel(range=[-1e300, 1e300]), r"range of channel 'x' must lie within \+-1e6"),
    "empty values": (channel(values=[]), "values of channel 'x' is empty"),
    "nan values": (channel(values=[0, NAN]), r"values\[1\]: input should be a finite number"),
    "text values": (channel(values=["a", "b"]), r"values\[0\]: input should be a valid number, found 'a'"),
    "true values": (channel(values=[True, False]), "input should be a valid number, found True"),
    "nested values": (
        channel(values=[[1], [2]]),
        r"values\[0\]: input should be a valid number, found \[1\]",
    ),
    "repeated values": (channel(values=[1, 2, 1]), "values of channel 'x' repeats at 1"),
    "enormous values": (channel(values=[1, 10**400]), r"values\[1\]: .*, found 1000"),
    "many values": (channel(values=list(range(5000))), "values: has 5,000 entries; at most 4,096"),
    "empty intervals": (channel(intervals=[]), "intervals of channel 'x' is empty"),
    "intervals that touch": (channel(intervals=[[0, 1], [1, 2]]), "overlap or touch: leave a margin at 1"),
    "intervals that overlap": (channel(intervals=[[0, 1], [0.5, 2]]), "overlap or touch"),
    "falling interval": (channel(intervals=[[1, 0]]), "intervals of channel 'x' must rise"),
    "flat intervals": (channel(intervals=[0, 1]), r"intervals\[0\]: must be a list, found 0"),
    "intervals of three": (
        channel(intervals=[[0, 1, 2]]),
        r"intervals\[0\]: must be two numbers, found \[0, 1, 2\]",
    ),
    # Other fields.
    "number as a description": (fixed(description=1), "description: input should be a valid string, found 1"),
    "long description": (fixed(description="x" * 201), "must be one printable line of at most 200"),
    "two lines of description": (fixed(description="a\nb"), "must be one printable line"),
    "declared lipschitz of text": (fixed(lipschitz={"x1": 1.0}), "declare it for a callable only"),
    "lipschitz of an unknown name": (
        fixed(readout=lambda x1: x1, lipschitz={"q": 1.0}),
        "lipschitz: needs variables and bounds >= 0, found 'q' = 1",
    ),
    "negative lipschitz": (fixed(readout=lambda x1: x1, lipschitz={"x1": -1.0}), "found 'x1' = -1"),
    "lipschitz as a number": (fixed(lipschitz=1), "lipschitz: input should be a valid dictionary"),
}
