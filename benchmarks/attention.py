"""Attention without dot products over long sequences, against PyTorch's softmax attention and a bare copy.

8 heads of 16, batch 1, float32, one thread on one core, contenders in turn (benchmarks/attention_peers.py).
Required ratios are to PyTorch's SDPA over blocks of queries with slices of a prebuilt band of biases; the table
also has the ratio to the fastest form of SDPA that we found, the same numbers from a bias that fits the cache.
All compute the same numbers: `error` is the largest difference from a float64 reference at some positions,
over the largest number there. `growth` is the slope of log time against log length, by least squares.
PyTorch is optional: without it, what remains is the comparison with the copy.
"""

import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks.attention_peers import Case, inputs, positions, slopes
from benchmarks.table import Table
from benchmarks.turns import Answer, in_turn, started
from memloci.views.figures.drawing import BLUE, GREEN, INK, ORANGE, PURPLE, RED, SOFT, style

LENGTHS = (1_024, 4_096, 16_384, 65_536)
GRADIENT_LENGTH = 16_384
OURS = ("recurrence", "convolution")
PEER, BEST, FLOOR = "band", "sdpa", "roofline"  # ratios are required to PEER
NAMES = {
    "recurrence": "memloci, recurrence",
    "convolution": "memloci, convolution",
    FLOOR: "read and write once",
    PEER: "PyTorch SDPA, band",
    BEST: "PyTorch SDPA, best form",
    "causal": "PyTorch SDPA, causal",
    "by hand": "PyTorch by hand",
    "flex": "PyTorch flex attention",
}
LOOKS: dict[str, tuple[str, str]] = {  # of the forward pass
    "recurrence": (BLUE, "o"),
    "convolution": (GREEN, "D"),
    FLOOR: (SOFT, "_"),
    PEER: (RED, "s"),
    BEST: (ORANGE, "^"),
    "flex": (PURPLE, "v"),
}
# How often each runs at each length; SDPA takes half a minute at the longest.
ROUNDS = {
    1_024: {"recurrence": 7, "convolution": 7, FLOOR: 7, PEER: 5, BEST: 5, "causal": 5, "flex": 3},
    4_096: {"recurrence": 7, "convolution": 7, FLOOR: 7, PEER: 5, BEST: 5, "causal": 5, "flex": 3},
    16_384: {"recurrence": 7, "convolution": 7, FLOOR: 7, PEER: 2, BEST: 2, "causal": 2, "flex": 1},
    65_536: {"recurrence": 5, "convolution": 5, FLOOR: 5, PEER: 1, BEST: 1, "causal": 1},
}
GRADIENT_ROUNDS = {"recurrence": 5, "convolution": 5, PEER: 2, BEST: 2, "causal": 2, "by hand": 1}
LIN_ONLY = ("causal", "flex")  # flex costs a compilation per kind, and is never the fastest
FASTER = {  # than PEER, at least
    Case("lin", "forward", 4_096): 200,
    Case("lin", "forward", 65_536): 2_000,
    Case("lin", "gradient", 16_384): 500,
    Case("log", "forward", 65_536): 350,
    Case("log", "gradient", 16_384): 100,
}
SLOWER = {Case("lin", "forward", 65_536): 3}  # than the copy, at most

Results = dict[Case, dict[str, Answer]]


def cases() -> list[Case]:
    forward = [Case(kind, "forward", n) for kind in ("lin", "log") for n in LENGTHS]
    return forward + [Case(kind, "gradient", GRADIENT_LENGTH) for kind in ("lin", "log")]


def measure() -> tuple[Results, dict[str, str]]:
    """The best answers, and who did not run at all."""
    results: Results = {}
    with started("benchmarks.attention_peers", NAMES) as workers:
        missing = {name: worker.error for name, worker in workers.items() if worker.error is not None}
        for case in cases():
            rounds = GRADIENT_ROUNDS if case.work == "gradient" else ROUNDS[case.n]
            present = {
                name: count
                for name, count in rounds.items()
                if name not in missing and not (case.kind == "log" and name in LIN_ONLY)
            }
            results[case] = in_turn(workers, str(case), present)
    for case, answers in results.items():
        add_errors(case, answers)
    return results, missing


# -- the numbers they should find -------------------------------------------------------------------------


def recalled(kind: str, p: float, V: np.ndarray, G: np.ndarray) -> dict[str, np.ndarray]:
    """One head in float64 by FFT: what it recalls, and the gradient of <G, recalled> in V and p.

    With w(z) = e^{p phi(z) - p phi(1)} and Z_t = sum_{z<=t} w(z),

        recalled_t = (w * V)_t / Z_t,    dV_s = sum_{t>s} w(t - s) G_t / Z_t,
        dp = sum_t G_t ((w phi * V)_t - recalled_t sum_{z<=t} w(z) phi(z)) / Z_t
    """
    from scipy.signal import fftconvolve

    V, G, n = V.astype(np.float64), G.astype(np.float64), len(V)
    z = np.arange(1.0, n)
    phi = -z if kind == "lin" else -np.log(z)
    w = np.exp(p * (phi - phi[0]))
    past = lambda kernel, A: fftconvolve(np.concatenate([[0.0], kernel])[:, None], A, axes=0)[:n]
    Z = np.concatenate([[np.inf], np.cumsum(w)])[:, None]  # nothing is seen at t = 0
    Y = past(w, V) / Z
    of_p = (past(w * phi, V) - Y * np.concatenate([[0.0], np.cumsum(w * phi)])[:, None]) / Z
    of_V = past(w, (G / Z)[::-1])[::-1]
    return {"recalled": Y, "V": of_V, "p": (G * of_p).sum()}


def add_errors(case: Case, answers: dict[str, Answer]) -> None:
    V, G = inputs(case.n)
    at = positions(case.n)
    heads = [
        recalled(case.kind, float(p), V[:, h], G[:, h]) for h, p in enumerate(slopes(case.kind))
    ]  # the slopes as rounded to float32
    right = {
        "recalled": np.stack([head["recalled"][at] for head in heads], 1),
        "V": np.stack([head["V"][at - 1] for head in heads], 1),
        "p": np.array([head["p"] for head in heads]),
    }
    for answer in answers.values():
        off = [
            np.abs(np.asarray(found) - right[key]).max() / np.abs(right[key]).max()
            for key, found in answer.get("found", {}).items()
        ]
        answer["error of numbers"] = float(max(off)) if off else None


def growth(results: Results, name: str, kind: str) -> float | None:
    """The exponent e of time ~ n^e over the forward lengths."""
    times = {
        case.n: answers[name]["seconds"]
        for case, answers in results.items()
        if (case.kind, case.work) == (kind, "forward") and "seconds" in answers.get(name, {})
    }
    if len(times) < 3:
        return None
    return float(np.polyfit(np.log(list(times)), np.log(list(times.values())), 1)[0])


# -- the table and the figure -----------------------------------------------------------------------------


def run() -> Table:
    results, missing = measure()
    cells: list[list[str | float]] = []
    for case, answers in results.items():
        seconds = {name: answer["seconds"] for name, answer in answers.items() if "seconds" in answer}
        best = min((name for name in OURS if name in seconds), key=lambda name: seconds[name], default=None)
        for name in seconds:
            cells.append(_row(results, case, name, seconds, best))
    columns = ["work", "contender", "ms", "band / this", "required", "best SDPA / this"]
    columns += ["this / copy", "at most", "error", "growth", "form"]
    notes = ["required ratios stand with the faster path of memloci", "best SDPA: the faster of both forms"]
    notes += [f"skipped {NAMES[name]}: {why}" for name, why in missing.items()]
    notes += [
        f"no {NAMES[name]} for {case}: {answer['error']}"
        for case, answers in results.items()
        for name, answer in answers.items()
        if "error" in answer
    ]
    return Table(
        "Attention without dot products",
        columns,
        cells,
        "; ".join(notes),
        lambda path: draw(results, path),
    )


def _row(
    results: Results, case: Case, name: str, seconds: dict[str, float], best: str | None
) -> list[str | float]:
    answer = results[case][name]
    faster = seconds[PEER] / seconds[name] if PEER in seconds and name != PEER else None
    strongest = min((seconds[peer] for peer in (PEER, BEST) if peer in seconds), default=None)
    slower = seconds[name] / seconds[FLOOR] if FLOOR in seconds and name != FLOOR else None
    exponent = growth(results, name, case.kind) if case.work == "forward" and case.n == LENGTHS[-1] else None
    off = answer["error of numbers"]
    return [
        f"{case.kind} {case.work} {case.n:,}",
        NAMES[name],
        1e3 * seconds[name],
        "" if faster is None else faster,
        _kept(faster, FASTER.get(case), 1) if name == best else "",
        "" if strongest is None or name in (PEER, BEST) else strongest / seconds[name],
        "" if slower is None else slower,
        _kept(slower, SLOWER.get(case), -1) if name == best else "",
        "" if off is None else f"{off:.0e}",
        "" if exponent is None else f"n^{exponent:.2f}",
        "" if name in (*OURS, FLOOR) else answer["form"],
    ]


def _kept(ratio: float | None, limit: float | None, sign: int) -> str:
    """The limit and if it is kept: from above with sign 1, from below with -1."""
    if limit is None or ratio is None:
        return "" if limit is None else f"{limit:,}"
    return f"{limit:,} {'yes' if sign * ratio >= sign * limit else 'NO'}"


def draw(results: Results, path: Path) -> None:
    """Milliseconds against length, lin and log side by side; each line says how it grows."""
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(10.4, 4.4), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        panels: Any = figure.subplots(1, 2, sharey=True)
        for axes, kind in zip(panels, ("lin", "log"), strict=True):
            lines = _panel(axes, results, kind)
            axes.set_title(f"{kind}, 8 heads of 16, forward", loc="left")
            axes.set_xlabel("length, tokens")
            _label(axes, lines)
        panels[0].set_ylabel("milliseconds")
        figure.savefig(path, metadata={"Software": None})


def _panel(axes: Axes, results: Results, kind: str) -> list[tuple[float, float, str, str]]:
    """Draw one line per contender; returns its end, its label and its colour."""
    ends = []
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, (color, marker) in LOOKS.items():
        points = [
            (case.n, 1e3 * answers[name]["seconds"])
            for case, answers in results.items()
            if (case.kind, case.work) == (kind, "forward") and "seconds" in answers.get(name, {})
        ]
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), color=color, marker=marker, markersize=5, clip_on=False)
        exponent = growth(results, name, kind)
        label = NAMES[name] if exponent is None else f"{NAMES[name]}  $n^{{{exponent:.2f}}}$"
        ends.append((*points[-1], label, color))
    axes.set_xlim(LENGTHS[0] * 0.85, LENGTHS[-1] * 1.15)
    axes.set_xticks(LENGTHS, [f"{n:,}" for n in LENGTHS])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    return ends


def _label(axes: Axes, ends: list[tuple[float, float, str, str]], apart: float = 0.06) -> None:
    """Names to the right of the lines' ends, moved apart where they would overlap."""
    low, high = (math.log10(y) for y in axes.get_ylim())
    height = -math.inf
    for x, y, label, color in sorted(ends, key=lambda end: end[1]):
        height = max((math.log10(y) - low) / (high - low), height + apart)
        axes.annotate(
            label,
            (x, y),
            (1.03, height),
            textcoords="axes fraction",
            va="center",
            color=INK,
            fontsize=8,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.8, "relpos": (0, 0.5)},
        )
