"""Proposition 4.2, sharpened: what an affine function of the past cannot do, whatever its coefficients.

    two present tokens ask for two numbers of the past, each anywhere between -r and r about its middle
                                                                        =>  sup error >= r

A model without a dot product and without neurons computes such a function: with `dpf` heads every weight a(t, s) depends
on the positions alone, for every encoding, normalisation, number of heads and number of layers. It attains r by the
middle of the channel's range, so the bound is sharp.

Proof. At one position t, beyond both lags, write the output as c_q + sum_s a_s x_{t-s} for the present token q, all other
tokens of the past being held fixed; c_q takes up what the present token adds. Move the two numbers, at lags z_1 and z_2, to
the ends of their range, which leaves which one is asked for as it is: the token q_1 that asks for the first errs by at
least r (|1 - a_1| + |a_2|) on one choice of ends, the token q_2 by at least r (|1 - a_2| + |a_1|). The sum of the two is
2 r or more, so one of them is at least r.

On the target of Proposition 4.2, x_{t-g(x_t)} with g = x_t + 1 on {-1, 0, 1}, r is 1; the paper proves 2/3. Compare the
capacity bound (capacity.py): it allows any neurons and tmx, but counts real numbers only, and needs L H d_v < N. Neither
implies the other.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from memloci.core.numbers import lower_number
from memloci.core.proved import ProvedLeast
from memloci.language.expression import Variable
from memloci.model.architecture import Architecture
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.names import channel_of, memory_of
from memloci.tasks.task import Task


@dataclass(frozen=True)
class AffineFloor:
    """Proved: any affine function of the past errs by `E_least` or more on `output`, which returns `variable`."""

    E_least: ProvedLeast
    output: int
    variable: str
    lags: tuple[int, int]  # two that present tokens ask for

    @property
    def text(self) -> str:
        return (
            f"present tokens ask for {channel_of(self.variable)} at lag {self.lags[0]:,} and at lag {self.lags[1]:,}, so every affine "
            f"function of the past errs by {lower_number(self.E_least)} or more, with any heads and any encoding (proved)"
        )


def affine_floor(task: Task) -> AffineFloor | None:
    """The largest floor that the theorem gives, over the outputs; None where it says nothing."""
    floors = [floor for o in range(task.outputs) if (floor := _of_output(task, o)) is not None]
    return max(floors, key=lambda floor: floor.E_least, default=None)


def _of_output(task: Task, o: int) -> AffineFloor | None:
    f = task.readouts[o].expression
    if not isinstance(f, Variable) or not (i := memory_of(f.name)):
        return None
    table = task.recalls[i - 1]
    if not isinstance(table, LagTable) or table.parents:
        return None  # the past would decide which number is asked for
    lags = [lag for lag in np.unique(table.lags).tolist() if lag]
    domain = task.channel(f.name).domain
    r = (domain[-1].hi - domain[0].lo) / 2
    if 2 * Fraction(r) > Fraction(domain[-1].hi) - Fraction(domain[0].lo):
        r = math.nextafter(r, 0.0)
    return AffineFloor(ProvedLeast(r), o, f.name, (lags[0], lags[1])) if len(lags) > 1 and r > 0 else None


def is_affine(architecture: Architecture) -> bool:
    """Whether the output is an affine function of the sequence at every position, whatever the weights."""
    blocks = [architecture.block(l) for l in range(architecture.layers)]
    return architecture.norm == "none" and all(b.attention == "dpf" and not b.width for b in blocks)


def affine_obstacle(architecture: Architecture, task: Task) -> str | None:
    """Why this architecture cannot do this task, whatever its weights; None if the floor does not say so."""
    floor = affine_floor(task) if is_affine(architecture) else None
    if floor is None:
        return None
    return f"without a dot product and without neurons the output is affine in the past; {floor.text}"
