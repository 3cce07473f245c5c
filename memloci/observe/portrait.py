"""What a page shows of a compiled model, looked up once: kernels, maps, traced queries, an example, the wall.

Observed, for pictures, but for the wall, which is proved (approx/kernels/lower_bounds.py).
"""

import math
from dataclasses import dataclass

import numpy as np

from memloci.circuits.circuit import Circuit
from memloci.model.transformer import Transformer
from memloci.observe.probes import (
    AttentionMap,
    Example,
    SlotKernel,
    WallPoint,
    attention_maps,
    example_run,
    slot_kernels,
    target_kernels,
    wall,
    wall_point,
)
from memloci.observe.trace import Trace, memory_slots, positions_to_show, traces
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task

TOLD_LAG = 128  # the wall of farther lags takes longer to compute than a page should
STRICT = 0.001  # the error for which bits of lags beyond the picture are told
SHOWN_MAPS = 8


@dataclass(frozen=True)
class Wall:
    """The mass that one lin layer needs, and the lags of a task before it."""

    points: tuple[WallPoint, ...]
    lags: tuple[int, ...]
    beyond: dict[int, int | None]  # lag -> the bits that it takes at least; None where that was not computed


@dataclass(frozen=True)
class Portrait:
    """What is looked up in a compiled model."""

    targets: dict[int, np.ndarray]  # memory -> its kernel at the lags 1, 2, ...
    kernels: tuple[SlotKernel, ...]
    example: Example
    traces: tuple[Trace, ...]  # of the example; none where every lag is fixed
    maps: tuple[AttentionMap, ...]  # of the first heads
    heads: int  # that write anything
    wall: Wall | None  # None where it does not stand before this circuit


def portrait(model: Transformer, task: Task, circuit: Circuit) -> Portrait:
    example = example_run(model, task)
    followed: tuple[Trace, ...] = ()
    if not task.stationary and memory_slots(task, circuit):
        followed = traces(model, task, circuit, example.x, positions_to_show(task, example.x))
    maps, heads = attention_maps(model, example.x, SHOWN_MAPS)
    return Portrait(
        target_kernels(task),
        slot_kernels(model, task, circuit),
        example,
        followed,
        maps,
        heads,
        _wall(task, circuit),
    )


def _wall(task: Task, circuit: Circuit) -> Wall | None:
    """Pointers that turn or step never meet it."""
    if not task.M or not (task.stationary or any(layer.normalisation == "none" for layer in circuit.layers)):
        return None
    points = wall()
    far = max(point.lag for point in points)
    tables = [recall for recall in task.recalls if isinstance(recall, LagTable)]
    lags = tuple(sorted({lag for table in tables for lag in table.cells}))
    bits = lambda lag: math.floor(wall_point(lag, STRICT).log2_mass) if lag <= TOLD_LAG else None
    return Wall(points, lags, {lag: bits(lag) for lag in lags if lag > far})
