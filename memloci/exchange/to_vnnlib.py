"""VNN-LIB: the error of a model at one length as a network, and the property that its certificate states.

    E(x) = y_t(x) - H_t(x) at the last position t = n - 1,          x in the task's ranges  =>  |E| <= bound

The network computes E itself: the exported model, less the target in the same graph. So the property is a box on the
inputs and a box on the outputs, which every verifier reads. A file asks for a counterexample, as VNN-LIB does: `unsat`
confirms the bound. Targets whose lags depend on the input are refused: no such graph states them. Guards against
values that are not finite are left out; a box has none.

VNN-LIB means real arithmetic, but the numbers in the graph are rounded, those of the target too. So the property allows
more than the bound, by what this can move the target:

    |E - (y - H)| <= sum_i sup |df/da_i| |rounding of rho_i|_1 sup |x|  +  sum_c sup |df/dc| u |c|      over the constants c of f
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from memloci.core.errors import BadInput
from memloci.core.intervals import Interval, hull
from memloci.core.numbers import exact_decimal, number
from memloci.core.precision import PRECISIONS
from memloci.core.proved import Observed
from memloci.exchange import layout
from memloci.exchange.agreement import Difference, Disagreement, Run, sequences
from memloci.exchange.runtime import Restated, restated
from memloci.exchange.subject import Subject
from memloci.exchange.to_onnx import graph_module, onnx_bytes
from memloci.exchange.to_onnx import runner as onnx_runner
from memloci.language.evaluate import dual
from memloci.language.expression import Apply, Constant, Expression, Variable
from memloci.observe.inside import inside
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.names import memory_of
from memloci.tasks.task import Task

PROPERTY, PROPERTY_2 = "property.vnnlib", "property-2.0.vnnlib"  # the language of 1.0, and of 2.0
SLACK = 64.0  # tuned: units of roundoff of the target as this network computes it
MARGIN = 1 + 1e-6  # far more than the rounding of the few sums below, made in float64
SHORTEST = 8  # positions
LONGEST_NETWORK = 256  # tuned: verifiers take networks of this size


def files(subject: Subject) -> dict[str, bytes]:
    task = subject.task
    if task is None:
        raise BadInput("the model has no task, so there is no property to state; export to onnx")
    proved = restated(subject, "a verifier")
    if proved.bound is None:
        raise BadInput(f"there is no bound to state: {proved.conditions_missed[0]}")
    kernels, n = _kernels(task), length(task)
    if any(channel.finite or len(channel.domain) > 1 for channel in task.channels):
        raise BadInput(
            "VNN-LIB states boxes, but a channel of this task is no single interval; export to onnx"
        )
    allowed = _allowed(task, n, proved.bound, subject.model.architecture.precision)
    data = onnx_bytes(_error(subject, task, kernels, n), (1, n, task.d), free=False)
    precision = subject.model.architecture.precision
    return {
        "model.onnx": data,
        PROPERTY: statement(task, n, allowed, precision).encode(),
        PROPERTY_2: statement_2(task, n, allowed, precision).encode(),
        layout.CONFIG: layout.json_bytes(layout.config(subject.model, task)),
    }


def length(task: Task) -> int:
    """Long enough for every memory; kernels that never end are seen up to here."""
    return int(min(LONGEST_NETWORK, max(SHORTEST, 1 + min(task.farthest, LONGEST_NETWORK))))


def _kernels(task: Task) -> list[np.ndarray]:
    """rho_i(1), ..., rho_i(n - 1) of every memory."""
    lags, kernels = length(task) - 1, []
    for i, recall in enumerate(task.recalls, start=1):
        if isinstance(recall, Convolution):
            kernels.append(np.asarray(recall.at_lags(lags), float))
        elif isinstance(recall, LagTable) and recall.kernel and recall.bound and recall.bound <= lags:
            kernels.append((np.arange(1, lags + 1) == recall.bound).astype(float))
        else:
            raise BadInput(
                f"memory {i} is no fixed sum over the last {lags} tokens, so VNN-LIB cannot state its target; export to onnx"
            )
    return kernels


def _allowed(task: Task, n: int, bound: float, precision: str) -> float:
    """The bound, and what rounding the numbers of the target can add; rounded upward."""
    u = 2 * PRECISIONS[precision].u  # a number is rounded to float64 first, then to the precision
    least = PRECISIONS[precision].least
    moved = [0.0] * task.outputs
    for o, formula in enumerate(task.readouts):
        if formula.expression is None:
            raise BadInput(
                "nothing is known of a readout that is a callable, so VNN-LIB cannot state it; export to onnx"
            )
        constants: list[float] = []
        named = _named(formula.expression, constants)
        box = {name: hull(*domain) for name, domain in task.domains.items()}
        box |= {
            f"constant{k}": Interval(c - u * abs(c) - least, c + u * abs(c) + least)
            for k, c in enumerate(constants)
        }
        slopes = dual(named, box)[1]
        for name, slope in slopes.items():
            steep = max(abs(slope.lo), abs(slope.hi))
            moved[o] += steep * _rounded_by(name, task, n, constants, u, least)
    slack = max(moved)
    if not math.isfinite(slack):
        raise BadInput(
            "the readout jumps, so VNN-LIB cannot state its target with rounded numbers; export to onnx"
        )
    return float(bound) + MARGIN * slack


def _named(expression: Expression, constants: list[float]) -> Expression:
    """The same with a variable in place of every constant, which are listed."""
    match expression:
        case Constant(value):
            constants.append(value)
            return Variable(f"constant{len(constants) - 1}")
        case Apply(operands=operands):
            return replace(expression, operands=tuple(_named(each, constants) for each in operands))
        case _:
            return expression


def _rounded_by(name: str, task: Task, n: int, constants: list[float], u: float, least: float) -> float:
    """How far rounding moves one variable of the readout."""
    if name.startswith("constant"):
        return u * abs(constants[int(name.removeprefix("constant"))]) + least
    recall = task.recalls[memory_of(name) - 1] if memory_of(name) else None
    if not isinstance(recall, Convolution):
        return 0.0  # a token, which is multiplied by 1
    reach = max(channel.magnitude for channel in task.channels)
    return reach * (u * float(np.abs(np.asarray(recall.at_lags(n - 1), float)).sum()) + n * least)


def _error(subject: Subject, task: Task, kernels: list[np.ndarray], n: int) -> Any:
    """y - H at the last position, as a module."""
    import torch

    class Error(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = graph_module(subject)
            self.unembed = self.model.unembed
            for block in self.model.blocks:
                block.attn.guard = False
            dtype = self.unembed.W_U.dtype
            # Row i weighs the tokens oldest first, so that x @ row is the memory at the last position.
            past = np.array([[*kernel[::-1], 0.0] for kernel in kernels])
            self.register_buffer("past", torch.tensor(past, dtype=dtype))

        def forward(self, x: Any) -> Any:
            memories = torch.cat([x[:, -1:], self.past @ x], dim=1)  # (1, M + 1, d)
            names = [name for name in task.variables]
            flat = memories.flatten(1)
            values = {name: flat[:, k] for k, name in enumerate(names)}
            target = [torch.as_tensor(f(values, torch)).expand(1) for f in task.readouts]
            return self.model(x)[:, -1] - torch.stack(target, dim=-1)

    return Error().eval()


def statement(task: Task, n: int, bound: float, precision: str) -> str:
    """The property, negated: an input in the box whose error exceeds the bound."""
    lines = [f"; the error of a memloci model at position {n - 1} is at most {exact_decimal(bound)}"]
    lines += [f"(declare-const X_{k} Real)" for k in range(n * task.d)]
    lines += [f"(declare-const Y_{o} Real)" for o in range(task.outputs)]
    for k, (lo, hi) in enumerate(_box(task, n, precision)):
        lines += [f"(assert (>= X_{k} {exact_decimal(lo)}))", f"(assert (<= X_{k} {exact_decimal(hi)}))"]
    sides = [f"(and (>= Y_{o} {exact_decimal(bound)}))" for o in range(task.outputs)]
    sides += [f"(and (<= Y_{o} {exact_decimal(-bound)}))" for o in range(task.outputs)]
    return "\n".join([*lines, f"(assert (or {' '.join(sides)}))"]) + "\n"


def statement_2(task: Task, n: int, bound: float, precision: str) -> str:
    """The same in VNN-LIB 2.0, which declares the network's tensors."""
    lines = [
        "(vnnlib-version <2.0>)",
        f"; the error of a memloci model at position {n - 1} is at most {exact_decimal(bound)}",
        "(declare-network N",
        f"  (declare-input X Real [1, {n}, {task.d}])",
        f"  (declare-output Y Real [1, {task.outputs}])",
        ")",
    ]
    for k, (lo, hi) in enumerate(_box(task, n, precision)):
        x = f"X[0, {k // task.d}, {k % task.d}]"
        lines.append(f"(assert (and (>= {x} {exact_decimal(lo)}) (<= {x} {exact_decimal(hi)})))")
    sides = [f"(>= Y[0, {o}] {exact_decimal(bound)})" for o in range(task.outputs)]
    sides += [f"(<= Y[0, {o}] {exact_decimal(-bound)})" for o in range(task.outputs)]
    return "\n".join([*lines, f"(assert (or {' '.join(sides)}))"]) + "\n"


def _box(task: Task, n: int, precision: str) -> list[tuple[float, float]]:
    dtype = np.dtype(precision)
    ends = [inside(channel.domain[0], dtype) for channel in task.channels]
    return [ends[k % task.d] for k in range(n * task.d)]


def runner(folder: Path) -> Run:
    return onnx_runner(folder)


def observed(run: Run, subject: Subject, proved: Restated) -> tuple[Difference, ...]:
    """The error that the network computes on random and hostile sequences; it is compared with the bound itself."""
    assert subject.task is not None and proved.bound is not None
    n, bound = length(subject.task), float(proved.bound)
    x = sequences(subject.model, subject.task, n)
    # The target is rounded too in this network: a few units of its size.
    slack = SLACK * PRECISIONS[subject.model.architecture.precision].u
    worst = Observed(max(float(np.abs(run(one[None])).max()) for one in x))
    if not worst <= bound + slack:
        raise Disagreement(f"the network's error is {number(worst)}, above the bound of {number(bound)}")
    return (Difference(n, len(x), worst, worst, bound + slack, bound + slack),)
