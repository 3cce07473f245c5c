"""The theory of one task: which theorems are about it, their rates and width conditions in numbers, and the paper's advice."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.proved import Proved
from memloci.synthesize import request_of
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from memloci.theory.advice import Advice, advice_for
from memloci.theory.barron import BarronNorm, above, of_lag, of_readout
from memloci.theory.paper_rates import PaperRates, paper_rates
from memloci.theory.results import RESULTS

TOLERANCE = 1e-3  # of the readout's network, where it is not exact


@dataclass(frozen=True)
class LagNorms:
    """Upper bounds on the Barron norms of one lag function and of its logarithm, and T."""

    memory: int
    lag: str
    T: int
    g: Proved
    log_g: Proved


@dataclass(frozen=True)
class WidthNumber:
    """A width condition m >= O~(...) in numbers: what the paper's theorem asks, for heads of one encoding."""

    result: str
    encoding: str
    condition: str
    value: Proved


@dataclass(frozen=True)
class AboutTask:
    """What one result says of the task."""

    result: str
    by: str
    text: str
    command: str


@dataclass(frozen=True)
class TaskTheory:
    task: str
    kind: str
    K: int
    M: int
    paper: PaperRates
    readouts: tuple[BarronNorm, ...]  # one per output
    lags: tuple[LagNorms, ...]
    widths: tuple[WidthNumber, ...]
    results: tuple[AboutTask, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "paper": self.paper.to_dict()}


def theory_of(task: Task, name: str) -> TaskTheory:
    """Everything that can be said without compiling a model."""
    notes: list[str] = []
    paper = paper_rates(task)
    lags = tuple(_lag_norms(task, notes))
    return TaskTheory(
        task=name,
        kind=task.kind,
        K=task.K,
        M=task.M,
        paper=paper,
        readouts=_readout_norms(task, notes),
        lags=lags,
        widths=tuple(_widths(task, paper, lags)),
        results=tuple(
            AboutTask(result.name, result.by, text, result.command)
            for result in RESULTS
            if (text := result.about(task)) is not None
        ),
        advice=advice_for(task),
        notes=tuple(notes),
    )


def _readout_norms(task: Task, notes: list[str]) -> tuple[BarronNorm, ...]:
    try:
        ridge = request_of(task, TOLERANCE, "float64").readout
    except BadInput as reason:
        notes.append(f"Barron norm of the readout: {reason}")
        return ()
    return tuple(of_readout(ridge, o) for o in range(task.outputs))


def _lag_norms(task: Task, notes: list[str]) -> Sequence[LagNorms]:
    norms = []
    for i, recall in enumerate(task.recalls, start=1):
        if task.stationary or not isinstance(recall, LagTable):
            continue
        try:
            g, log_g = of_lag(recall), of_lag(recall, logarithm=True)
            norms.append(LagNorms(i, recall.text.removeprefix("lag "), recall.bound, g.norm, log_g.norm))
        except BadInput as reason:
            notes.append(f"Barron norm of the lag of memory {i}: {reason}")
    return norms


def _widths(task: Task, paper: PaperRates, lags: Sequence[LagNorms]) -> list[WidthNumber]:
    """The conditions of the theorems of section 4, where the norms of all lags are known."""
    if len(lags) < task.M or not lags:
        return []
    lin = [Fraction(float(lag_norm.g)) ** 2 for lag_norm in lags]
    log = [Fraction(float(lag_norm.log_g)) ** 2 * lag_norm.T**2 for lag_norm in lags]
    sizes = {"lin": (lin, "||g_i||_B^2"), "log": (log, "||log g_i||_B^2 T_i^2")}
    numbers = []
    for statement in paper.statements:
        for rate in statement.rates:
            lag_norm, what = sizes[rate.encoding]
            condition, value = _condition(statement.result, lag_norm, what, task.K)
            numbers.append(WidthNumber(statement.result, rate.encoding, condition, above(value)))
    return numbers


def _condition(result: str, squares: Sequence[Fraction], what: str, K: int) -> tuple[str, Fraction]:
    match result:
        case "Theorem 4.4":
            rest = sum(squares[K:], Fraction(0))
            return f"max(max_{{i<=K}} {what}, sum_{{i>K}} {what})", max([rest, *squares[:K]])
        case "Proposition 4.5":
            return f"max {what}", max(squares)
        case _:
            return f"sum {what}", sum(squares, Fraction(0))
