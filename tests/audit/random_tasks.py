"""Random task files, as text: every kind and mixture, each with a route that may serve it.

Which kinds a route serves is listed here (SERVES); the route itself may still refuse a task, and then another is drawn. Tasks
that take a linear program of many seconds are rare (HARD), the same routes get easier ones more often.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

HARD = 0.08  # of the tasks of a route that fits kernels

SERVES = {
    "one-layer-lin": ("fixed-one", "essential-lin", "mixed-kernels"),
    "one-layer-log": ("fixed-one", "essential-log"),
    "rotary": ("fixed", "adaptive", "nested", "mixed"),
    "rotary-deep": ("adaptive-pair",),
    "t5": ("fixed",),
    "bias-table": ("essential-table", "mixed-table"),
    "depth-1": ("fixed",),
    "depth-2": ("fixed-one",),
    "depth-3": ("fixed-one",),
    "depth-4": ("fixed-one",),
    "chain": ("adaptive-near", "nested-near"),
    "lin-tmx": ("adaptive-two",),
    "lin-dp": ("adaptive-two",),
    "log-tmx": ("adaptive-two",),
    "log-dp": ("adaptive-two",),
    "lin-dp-deep": ("adaptive-twin",),
    "log-dp-deep": ("adaptive-twin",),
    "lin-tmx-direct": ("adaptive-two",),
    "lin-dp-direct": ("adaptive-two", "adaptive-present"),
    "match": ("matched-alone", "matched-hop", "matched-beside", "matched-letters"),
}

Draw = np.random.Generator


@dataclass(frozen=True)
class Request:
    """A task file, and what is asked of the model."""

    text: str
    tolerance: float
    precision: str


def random_task(rng: Draw, route: str) -> Request:
    """A task that the route may serve."""
    family, _, detail = str(rng.choice(SERVES[route])).partition("-")
    hard = rng.random() < HARD
    precision = str(rng.choice(["float32", "float64"], p=[0.75, 0.25]))
    tolerance = float(rng.choice([1e-2, 1e-3, 1e-4], p=[0.6, 0.3, 0.1]))
    if hard and (data := _hard(rng, route)) is not None:
        return Request(toml(data), 1e-2, "float32")
    if route.startswith(
        ("lin-", "log-")
    ):  # their fits take seconds and are kept: few different ones are asked for
        tolerance, precision = 1e-2, "float32"
    return Request(toml(FAMILIES[family](rng, detail)), tolerance, precision)


def _hard(rng: Draw, route: str) -> dict[str, Any] | None:
    """Tasks that take a linear program of seconds; affine readouts alone, which ask for one fit."""
    lags = {"one-layer-lin": [1, 2], "depth-2": [2], "depth-3": [2], "depth-4": [2]}.get(route)
    if lags is None:
        return None
    return {
        "kind": "fixed",
        "channels": [{"name": "x", "range": [-1, 1]}],
        "lags": lags,
        "readout": f"{_number(rng)} * x1 + x0",
    }


def toml(data: dict[str, Any]) -> str:
    """Numbers, texts, lists and inline tables, which is all that a task file has."""

    def value(v: Any) -> str:
        if isinstance(v, dict):
            return "{ " + ", ".join(f"{k} = {value(w)}" for k, w in v.items()) + " }"
        if isinstance(v, list):
            return "[" + ", ".join(map(value, v)) + "]"
        return json.dumps(v) if isinstance(v, str) else repr(v)

    return "".join(f"{k} = {value(v)}\n" for k, v in data.items())


# -- channels and readouts ----------------------------------------------------------------------------------


def _number(rng: Draw) -> float:
    return float(rng.choice([0.5, -1.0, 2.0, 0.3, -0.25, 1.7, float(np.round(rng.normal(), 2)) or 1.0]))


def _channel(rng: Draw, name: str) -> dict[str, Any]:
    """A channel of numbers or of symbols."""
    kind = rng.integers(6)
    if kind == 0:
        return {"name": name, "values": [-1, 1]}
    if kind == 1:
        return {"name": name, "values": [-1, 0.5, 2]}
    if kind == 2:
        return {"name": name, "intervals": [[-1, -0.25], [0.5, 1.5]]}
    ranges = [[-1, 1], [0, 1], [-3, 0.5], [-1, 1]]
    return {"name": name, "range": ranges[int(rng.integers(len(ranges)))]}


def _readout(rng: Draw, names: list[str], symbols: set[str]) -> str:
    """A function of some variables; `symbols` are those with finitely many values."""
    x = [str(v) for v in rng.permutation(names)]
    y = x[1 % len(x)]
    a, b = _number(rng), _number(rng)
    affine = [
        f"{x[0]}",
        f"{a} * {x[0]}",
        f"{x[0]} - 0.5 * {y}",
        f"{a} * {x[0]} + {b} * {y} + 0.1",
        f"{a} * ({' + '.join(x)})",
    ]
    smooth = [
        f"{x[0]} * {y}",
        f"{x[0]} ** 2 - {b} * {y}",
        f"tanh({a} * {x[0]}) + {y}",
        f"abs({x[0]}) + {b} * {y}",
    ]
    smooth += [f"max({x[0]}, {y})", f"min({x[0]}, {y}, 0.25)", f"sin({x[0]}) * {a}"]
    jumps = [
        f"sign({x[0]})",
        f"where({x[0]} > 0.2, {a}, {b})",
        f"{a} * {x[0]} * {y}",
        f"({x[0]} > {y}) - 0.5",
    ]
    if set(x[:2]) <= symbols:
        return str(rng.choice(jumps + smooth[:2] + affine[:2]))
    return str(rng.choice(affine if rng.random() < 0.6 else smooth))


def _outputs(rng: Draw, names: list[str], symbols: set[str]) -> Any:
    if rng.random() < 0.15:
        return [_readout(rng, names, symbols), str(rng.choice(["0.5", names[0]]))]
    return _readout(rng, names, symbols)


def _symbols(channels: list[dict[str, Any]], M: int) -> set[str]:
    return {f"{c['name']}{i}" for c in channels if "values" in c for i in range(M + 1)}


# -- kinds ----------------------------------------------------------------------------------------------------


def _fixed(rng: Draw, detail: str) -> dict[str, Any]:
    if detail == "one":
        lags = [1]
    else:
        lags = sorted(rng.choice(np.arange(1, 13), int(rng.integers(1, 4)), replace=False).tolist())
    channels = [_channel(rng, "x")] + ([_channel(rng, "b")] if rng.random() < 0.3 else [])
    names = [f"{c['name']}{i}" for c in channels for i in range(1, len(lags) + 1)]
    if rng.random() < 0.4:
        names.append("x0")
    return {
        "kind": "fixed",
        "channels": channels,
        "lags": lags,
        "readout": _outputs(rng, names, _symbols(channels, len(lags))),
    }


def _pointer_channels(rng: Draw, values: list[int]) -> list[dict[str, Any]]:
    second = {"name": "v", "range": [-1, 1]} if rng.random() < 0.7 else _channel(rng, "v")
    return [{"name": "a", "values": values}, second]


def _adaptive(rng: Draw, detail: str) -> dict[str, Any]:
    if detail == "two":
        values, lags = [1, 2], ["a0"]
        if rng.random() < 0.3:
            values, lags = [0, 1], ["where(a0 > 0.5, 1, 2)"]
    elif detail == "twin":
        values, lags = [1, 2], [["a0", "3 - a0"], ["3 - a0", "a0", 1]][int(rng.integers(2))]
    elif detail == "present":
        values, lags = [-1, 0, 1], ["a0 + 1"]
    elif detail == "pair":
        values, lags = [0, 1, 3], [str(rng.choice(["a0", "4 - a0"])), "a0 + 1", int(rng.integers(1, 9))]
    elif detail == "near":
        values, lags = [1, 2, 3], [str(rng.choice(["a0", "4 - a0", "where(a0 == 2, 3, 1)"]))]
    else:
        lags: list[Any]
        values = sorted(rng.choice(np.arange(1, 10), int(rng.integers(2, 5)), replace=False).tolist())
        lags = [str(rng.choice(["a0", "2 * a0", "12 - a0"]))]
        if rng.random() < 0.4:
            lags.append(int(rng.integers(1, 9)))
    channels = _pointer_channels(rng, values)
    names = [f"v{i}" for i in range(1, len(lags) + 1)] + (["v0"] if rng.random() < 0.3 else [])
    return {
        "kind": "adaptive",
        "channels": channels,
        "lags": lags,
        "readout": _outputs(rng, names, _symbols(channels, len(lags))),
    }


def _nested(rng: Draw, detail: str) -> dict[str, Any]:
    values = [1, 2] if detail == "near" else [1, 2, 3]
    lags = [["a0", "a0 + a1"], ["2 * a0", "2 * a0 + a1"]][0 if detail == "near" else int(rng.integers(2))]
    channels = _pointer_channels(rng, values)
    names = ["v2"] if rng.random() < 0.6 else ["v1", "v2"]
    return {
        "kind": "adaptive",
        "channels": channels,
        "lags": lags,
        "readout": _readout(rng, names, _symbols(channels, 2)),
    }


LIGHT = ("exp(-0.5 * z)", "exp(-z)", "0.7 * exp(-0.2 * z)", "exp(-0.3 * z) - 0.5 * exp(-1.5 * z)")
HEAVY = ("z ** -2", "z ** -1.5", "0.5 * z ** -3", "z ** -2.5 - z ** -4")
SHORT = ("exp(-z / 5) * cos(z)", "0.3 * (-1) ** z / z", "1 / (1 + z)", "sin(z)", "z ** -0.5")


def _essential(rng: Draw, detail: str) -> dict[str, Any]:
    if detail == "table":
        kernel: dict[str, Any] = {"kernel": str(rng.choice(SHORT)), "horizon": int(rng.integers(2, 20))}
        memories = [kernel]
    else:
        pool = LIGHT if detail == "lin" else HEAVY
        memories = [{"kernel": str(k)} for k in rng.choice(pool, int(rng.integers(1, 3)), replace=False)]
    channels = [_channel(rng, "x")]
    names = [f"x{i + 1}" for i in range(len(memories))]
    readout = f"{_number(rng)} * {names[0]}" + (
        f" + {_number(rng)} * {names[-1]}" if rng.random() < 0.5 else ""
    )
    if rng.random() < 0.25:
        readout = f"{names[0]} * {names[-1]} + 0.5 * x0"
    return {"channels": channels, "memories": memories, "readout": readout}


def _mixed(rng: Draw, detail: str) -> dict[str, Any]:
    if detail == "kernels":
        memories = [{"kernel": str(rng.choice(LIGHT))}, {"lag": 1}]
        return {
            "channels": [_channel(rng, "x")],
            "memories": memories,
            "readout": f"x1 + {_number(rng)} * x2",
        }
    if detail == "table":
        memories = [
            {"kernel": str(rng.choice(SHORT)), "horizon": int(rng.integers(2, 12))},
            {"lag": int(rng.integers(1, 9))},
        ]
        return {
            "channels": [_channel(rng, "x")],
            "memories": memories,
            "readout": f"{_number(rng)} * x1 + x2 - 0.5 * x0",
        }
    channels = _pointer_channels(rng, [1, 2, 4])
    memories = [{"lag": int(rng.integers(1, 8))}, {"lag": "a0"}, {"lag": "a0 + a2"}][
        : int(rng.integers(2, 4))
    ]
    names = [f"v{i}" for i in range(1, len(memories) + 1)]
    return {
        "channels": channels,
        "memories": memories,
        "readout": _readout(rng, names, _symbols(channels, len(memories))),
    }


def _matched(rng: Draw, detail: str) -> dict[str, Any]:
    letters = int(rng.choice([2, 3, 5, 8]))
    keys = (
        list(range(letters))
        if rng.random() < 0.7
        else sorted(rng.choice(np.arange(-9, 30), letters, False).tolist())
    )
    channels: list[dict[str, Any]] = [{"name": "k", "values": keys}, _channel(rng, "v")]
    memory: dict[str, Any] = {
        "match": "k1 == k0",
        "which": str(rng.choice(["latest", "earliest", "mean"], p=[0.5, 0.25, 0.25])),
        "offset": int(rng.choice([0, 0, 0, 1, 2, 3])),
    }
    if rng.random() < 0.3:  # a table of classes, in place of an equality
        tables = ("k1 > k0", f"k1 + k0 == {keys[0] + keys[1]}", "k1 != k0", "abs(k1 - k0) < 2")
        memory["match"] = str(rng.choice(tables))
    memories, names = [memory], ["v1"]
    if detail == "hop":
        channels.insert(1, {"name": "a", "values": keys})
        memory["which"] = str(rng.choice(["latest", "earliest"]))
        memories, names = [memory, {"match": "k2 == a1"}], ["v2"] if rng.random() < 0.7 else ["v1", "v2"]
    elif detail == "beside":  # a memory at a lag, a kernel, or another match
        others: list[dict[str, Any]] = [
            {"lag": int(rng.integers(1, 6))},
            {"match": f"k2 == {keys[0]}", "which": str(rng.choice(["latest", "earliest", "mean"]))},
            {"kernel": str(rng.choice(SHORT)), "horizon": int(rng.integers(2, 10))},
        ]
        memories, names = [memory, others[int(rng.integers(3))]], ["v1", "v2"]
    elif detail == "letters":  # two channels are compared
        channels.insert(1, {"name": "a", "values": [0, 1]})
        memory["match"] = str(
            rng.choice(["k1 == k0 and a1 == a0", "k1 == k0 and a1 == 1", "a1 == 1 or k1 == k0"])
        )
    if rng.random() < 0.3:
        names.append("v0")
    readout = _readout(rng, names, _symbols(channels, len(memories)))
    return {"channels": channels, "memories": memories, "readout": readout}


FAMILIES = {
    "matched": _matched,
    "fixed": _fixed,
    "adaptive": _adaptive,
    "nested": _nested,
    "essential": _essential,
    "mixed": _mixed,
}
