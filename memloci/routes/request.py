"""What a route is asked for: the memories to bring, how well, and what is computed from them.

A route takes a `Request` and returns a circuit, or raises `Obstacle` with the reason why it cannot serve. How good the
circuit is, the certificate says: a route only proposes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from memloci.approx.kernels.kernel_targets import recall_target
from memloci.approx.kernels.targets import AbstractTarget, SingleLag
from memloci.approx.readouts.ridge_sums import RidgeSum
from memloci.circuits.circuit import ONE, Circuit, Layer
from memloci.core.precision import PRECISIONS, Precision
from memloci.routes.match_capacity import match_questions
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.names import memory_of, variable
from memloci.tasks.task import Task

ROUNDING = 64.0  # tuned: what a unit of mass costs in roundoffs, when heads are chosen


class Obstacle(Exception):
    """This route cannot serve; the text says why."""


class KernelVariable(NamedTuple):
    """One variable that a fixed kernel over lags brings."""

    name: str  # of the variable, and of the slot it goes to
    channel: str
    target: AbstractTarget


@dataclass(frozen=True)
class Request:
    task: Task
    readout: RidgeSum
    E_attn: float  # the l1 error that the readout can bear, per memory and unit of its size
    loosest: Mapping[str, float]  # variable -> the l1 error that alone takes the whole tolerance
    precision: str
    report: Callable[[str], None] = field(default=lambda text: None)  # what is being done
    only_kernels: bool = False

    def of_kernels(self) -> "Request":
        """The same, with nothing wanted but the kernels."""
        return replace(self, only_kernels=True)

    @property
    def format(self) -> Precision:
        return PRECISIONS[self.precision]

    @property
    def u(self) -> float:
        return self.format.u

    @property
    def channels(self) -> tuple[str, ...]:
        return self.task.channel_names

    @property
    def sizes(self) -> dict[str, float]:
        """How large the slots of the input are."""
        return {channel.name: channel.magnitude for channel in self.task.channels} | {ONE: 1.0}

    @cached_property
    def used(self) -> frozenset[str]:
        """The variables that the readout or a memory reads."""
        return frozenset(self.readout.variables) | self.task.lag_variables

    @cached_property
    def read(self) -> tuple[int, ...]:
        """The memories of which something is used."""
        return tuple(sorted({memory_of(name) for name in self.used} - {0}))

    @property
    def only_present(self) -> bool:
        """Nothing of the past is used: at most memories at lag 0, which are the present."""
        recalls = (self.task.recalls[i - 1] for i in self.read)
        return all(recall.kernel and not recall.bound for recall in recalls)

    def channels_of(self, i: int) -> tuple[str, ...]:
        """The channels of memory i that are used."""
        return tuple(name for name in self.channels if variable(name, i) in self.used)

    @cached_property
    def kernel_variables(self) -> tuple[KernelVariable, ...]:
        """What fixed kernels must bring; one target for all channels of a memory, so that they share its heads."""
        variables = []
        for i in self.read:
            recall = self.task.recalls[i - 1]
            if recall.kernel and recall.bound:
                target = recall_target(recall)
                if self.only_kernels and isinstance(target, SingleLag):
                    continue
                variables += [KernelVariable(variable(name, i), name, target) for name in self.channels_of(i)]
        return tuple(variables)

    @property
    def targets(self) -> list[AbstractTarget]:
        return list(dict.fromkeys(target for _, _, target in self.kernel_variables))

    @property
    def kernels(self) -> tuple[KernelVariable, ...]:
        """The wanted variables that spread over many lags."""
        return tuple(w for w in self.kernel_variables if not isinstance(w.target, SingleLag))

    def _state_bound(self, i: int) -> str:
        """What a match asks of any model whose state does not grow."""
        count = len(match_questions(self.task).all)
        if not isinstance(self.task.recalls[i - 1], Occurrence) or count < 2:
            return ""
        return (
            f"; without a dot product, any state of fewer than {count:,} numbers confuses two pasts, whatever the weights "
            f"(proved), and {count:,} suffice, one per key and real channel"
        )

    def fixed_kernels(self) -> tuple[KernelVariable, ...]:
        """All that is wanted, by a route whose heads are fixed kernels; refused if a memory depends on content."""
        for i in self.read if not self.only_kernels else ():
            recall = self.task.recalls[i - 1]
            if not recall.kernel:
                where = recall.text if isinstance(recall, Occurrence) else f"at {recall.text}"
                raise Obstacle(
                    f"its heads look at the same lags everywhere, and memory {i} is {where}{self._state_bound(i)}"
                )
        if not self.kernel_variables:
            raise Obstacle("nothing is recalled")
        return self.kernel_variables

    def lags(self) -> tuple[int, ...]:
        """The distinct lags, rising, by a route that recalls single lags only."""
        lags = set()
        for _, _, target in self.fixed_kernels():
            if not isinstance(target, SingleLag):
                raise Obstacle(f"it recalls single lags, and {target.label} spreads over all of them")
            lags.add(target.lag)
        return tuple(sorted(lags))

    def tables(self) -> dict[int, LagTable]:
        """The memories that are single tokens, at lags that a table gives: number -> table; others are refused
        unless they are kernels."""
        tables = {}
        for i in self.read:
            recall = self.task.recalls[i - 1]
            if isinstance(recall, LagTable):
                tables[i] = recall
            elif not recall.kernel:
                raise Obstacle(
                    f"it recalls tokens at lags, and memory {i} is {recall.text}{self._state_bound(i)}"
                )
        if all(table.kernel for table in tables.values()):
            raise Obstacle("no lag depends on the input; routes with fixed kernels serve, with fewer parts")
        return tables

    def loosest_for(self, target: AbstractTarget) -> float:
        """The l1 error with which this target alone takes the whole tolerance."""
        errors = [
            self.loosest.get(name, math.inf)
            for name, _, of_variable in self.kernel_variables
            if of_variable == target
        ]
        return max(errors, default=math.inf)

    @property
    def alone(self) -> bool:
        """One variable is recalled and the readout is affine: its residual is the error, nothing can cancel it."""
        return len(self.kernel_variables) == 1 and not self.readout.width

    def variable_slots(self, slots: Mapping[str, str]) -> dict[str, str]:
        """Where each variable is: the present in the channels, a memory at lag 0 too, others where `slots` says."""
        of_kernels = {variable(name, 0): name for name in self.channels}
        for i, recall in enumerate(self.task.recalls, start=1):
            if recall.kernel and recall.bound == 0:
                of_kernels |= {variable(name, i): name for name in self.channels}
        return of_kernels | dict(slots)

    def circuit(
        self,
        route: str,
        why: str,
        layers: Sequence[Layer],
        slots: Mapping[str, str],
        origins: Mapping[str, tuple[str, float]] | None = None,
    ) -> Circuit:
        return Circuit(
            route,
            why,
            self.channels,
            tuple(layers),
            self.variable_slots(slots),
            self.readout,
            self.precision,
            origins or {},
        )
