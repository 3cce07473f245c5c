"""What a task remembers, in words and as a figure: a card that several pages have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memloci.tasks.memories.base import Recall
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from memloci.views.figures.memory import memory_figure
from memloci.views.html.parts import Figure


@dataclass(frozen=True)
class MemoryCard:
    readout: str
    memories: str  # empty where nothing is remembered
    nesting: str  # empty where every lag is fixed
    figure: Figure | None


def memory_card(task: Task, targets: Mapping[int, Any]) -> MemoryCard:
    """`targets`: the kernel of every memory that has one, at the lags 1, 2, ..."""
    lags, svg = task.fixed_lags, memory_figure(task, targets)
    if len(lags) == task.M > 4:
        memories = f"memories 1 to {task.M} lie at the lags {', '.join(f'{lag:,}' for lag in lags.values())}"
    else:
        memories = ", ".join(f"memory {i} is {_what(recall)}" for i, recall in enumerate(task.recalls, 1))
    return MemoryCard(
        ", ".join(formula.text for formula in task.readouts),
        memories,
        "" if task.stationary else _nesting(task),
        Figure(svg, "What is remembered", _caption(task)) if svg else None,
    )


def _what(recall: Recall) -> str:
    if isinstance(recall, LagTable):
        return f"the token at {recall.label}"
    return f"the past weighed by {recall.label}" if recall.kernel else recall.label


def _caption(task: Task) -> str:
    parts = []
    tables = [recall for recall in task.recalls if isinstance(recall, LagTable)]
    if any(not table.kernel for table in tables):
        parts.append(
            "Time runs to the right. Each dot is a lag that the memory may have, large where many symbols "
            "lead to it; the colour is the level."
        )
    elif tables:
        parts.append("Time runs to the right. Each stem is a token that must be recalled at every position.")
    if any(isinstance(recall, Convolution) for recall in task.recalls):
        parts.append("Kernels over the past: how much each lag counts.")
    return " ".join(parts)


def _nesting(task: Task) -> str:
    """Which lags wait for which memories."""
    waits = [(i, parents) for i, parents in enumerate(task.parents, start=1) if parents]
    if not waits:
        return "Every lag that is not fixed is read off the present token (the warm-up, K = 0)."
    waiting = "; ".join(f"memory {i} waits for {' and '.join(map(str, awaited))}" for i, awaited in waits[:6])
    return (
        f"Some lags are known only when an earlier memory has been recalled (K = {task.K}): {waiting}. "
        "A memory before the start is blank, and so is one whose lag asks a blank memory."
    )
