"""A training step of one small model, against PyTorch at its best.

Fixed memory y_t = a_{t-3} b_{t-9}, length 64, 2 channels, batch 128; dp with lin encoding and learnable slopes,
exact softmax over s < t, no norm; D = 64 split among the heads (d_k = d_v = 64 / H), m = 128, Adam, float32.
Two questions, two ratios: to the fastest of three PyTorch programs of the same model (training_peers.py), where
folding the first layer counts, and to PyTorch folded by hand, where only the code counts.

All contenders start from the same weights and must agree on the loss of the batch. They take turns (turns.py),
and the best round counts.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.table import Table
from benchmarks.training_peers import FOLDED, OURS, PEERS, STEPS, model
from benchmarks.turns import Worker, in_turn, started
from memloci.views.figures.drawing import BLUE, GREEN, RED, style

SIZES = ((1, 1), (1, 4), (1, 16), (2, 4), (2, 16))  # (L, H)
REQUIRED = {(1, 1): 7.0, (1, 4): 7.0, (1, 16): 7.0, (2, 4): 2.5, (2, 16): 4.0}
REQUIRED_FOLDED = 1.5  # L = 1
BATCH, LENGTH, RATE = 128, 64, 1e-3
ROUNDS = 7
SAME = 1e-4  # relative, of the loss


@dataclass(frozen=True)
class Row:
    L: int
    H: int
    seconds: dict[str, float]  # of a step, by contender
    variants: dict[str, str]
    errors: dict[str, str]

    def ratio(self, *peers: str) -> float:
        """How many times faster ours is than the best of `peers`; NaN without any."""
        best = min((self.seconds[peer] for peer in peers if peer in self.seconds), default=math.nan)
        return best / self.seconds[OURS]


def job(L: int, H: int) -> dict[str, Any]:
    """The weights and the batch, as numbers that every contender reads."""
    import jax.random as jr

    from memloci.tasks.short import Fixed

    made = model(L, H)
    channels = [{"name": name, "range": [-1, 1]} for name in "ab"]
    task = Fixed(channels=channels, lags=[3, 9], readout="a1 * b2")
    x = np.asarray(jr.uniform(jr.key(1), (BATCH, LENGTH, 2), minval=-1.0), "float32")
    y = np.stack([np.asarray(task.target(sequence), "float32") for sequence in x])
    numbers = lambda array: np.asarray(array, "float64").tolist()
    layers = [
        {
            "W_Q": numbers(block.attention.heads.score.W_Q),
            "W_K": numbers(block.attention.heads.score.W_K),
            "W_V": numbers(block.attention.heads.W_V),
            "W_O": numbers(block.attention.heads.W_O),
            "p": numbers(block.attention.heads.encoding.p),
            "B": numbers(block.ffn.B),
            "c": numbers(block.ffn.c),
            "A": numbers(block.ffn.A),
        }
        for block in made.layers
    ]
    weights = {name: numbers(getattr(made, name)) for name in ("W_E", "b_E", "W_U", "b_U")}
    return {
        "L": L,
        "H": H,
        "rate": RATE,
        "x": numbers(x),
        "y": numbers(y),
        "weights": weights | {"layers": layers},
    }


def measure(workers: Mapping[str, Worker], L: int, H: int) -> Row:
    present = [name for name in workers if not (name == FOLDED and L > 1)]
    answers = in_turn(workers, json.dumps(job(L, H)), dict.fromkeys(present, ROUNDS))
    found = {name: answer for name, answer in answers.items() if "error" not in answer}
    if OURS not in found:
        raise RuntimeError(f"{OURS}: {answers[OURS]['error']}")
    own = found[OURS]["loss"]
    for name, answer in found.items():
        if not abs(answer["loss"] - own) <= SAME * own:
            raise RuntimeError(f"{name} has loss {answer['loss']}, {OURS} {own}: not the same model")
    return Row(
        L,
        H,
        {name: answer["seconds"] for name, answer in found.items()},
        {name: answer["variant"] for name, answer in found.items()},
        {name: answer["error"] for name, answer in answers.items() if "error" in answer},
    )


def run() -> Table:
    with started("benchmarks.training_peers", (OURS, *PEERS)) as workers:
        rows = [measure(workers, *size) for size in SIZES]
    plain = [peer for peer in PEERS if peer != FOLDED]
    shown = lambda x: "-" if math.isnan(x) else x
    cells: list[list[str | float]] = [
        [
            f"{row.L} layers, {row.H} heads".replace("1 layers", "1 layer").replace(" 1 heads", " 1 head"),
            *(shown(1e3 * row.seconds.get(name, math.nan)) for name in (OURS, *PEERS)),
            shown(row.ratio(*plain)),
            REQUIRED[row.L, row.H],
            shown(row.ratio(FOLDED)),
            REQUIRED_FOLDED if row.L == 1 else "-",
        ]
        for row in rows
    ]
    columns = ["model", f"{OURS}, ms", *(f"{peer}, ms" for peer in PEERS)]
    columns += ["to the best", "required", "to folded", "required"]
    notes = [f"CPU milliseconds per step, one thread each, best of {ROUNDS} rounds of {STEPS} steps"]
    for row in rows:
        notes += [f"L = {row.L}, H = {row.H}, {name}: {kind}" for name, kind in row.variants.items() if kind]
    skipped = {f"skipped {name}: {why}" for row in rows for name, why in row.errors.items()}
    note = "; ".join(notes + sorted(skipped))
    return Table("Training a small model", columns, cells, note, lambda path: draw(rows, path))


def draw(rows: list[Row], path: Path) -> None:
    """How many times faster, against what is required."""
    plain = [peer for peer in PEERS if peer != FOLDED]
    x = np.arange(len(rows))
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(7, 3.4), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.bar(
            x - 0.2, [row.ratio(*plain) for row in rows], 0.4, color=BLUE, label="to the best of PyTorch"
        )
        axes.bar(
            x + 0.2, [row.ratio(FOLDED) for row in rows], 0.4, color=GREEN, label="to PyTorch, folded by hand"
        )
        for i, row in enumerate(rows):
            marks = {-0.2: REQUIRED[row.L, row.H]} | ({0.2: REQUIRED_FOLDED} if row.L == 1 else {})
            for shift, value in marks.items():
                label = "required" if i == 0 and shift < 0 else None
                axes.plot([i + shift - 0.2, i + shift + 0.2], [value] * 2, color=RED, label=label)
        axes.set_xticks(x, [f"L = {row.L}, H = {row.H}" for row in rows])
        axes.set_ylabel("times faster per step")
        axes.legend()
        figure.savefig(path, metadata={"Software": None})
