"""One query followed through the layers, as a card a reader can turn: pick a position, read from top to bottom.

The buttons are radio buttons and CSS, so that the page needs no script and prints the position that is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memloci.certify.certificate import Certificate
from memloci.tasks.task import Task
from memloci.views.figures.lanes import colour_of, picture, short_number, visible

if TYPE_CHECKING:
    from memloci.observe.trace import Trace, TracedRecall


@dataclass(frozen=True)
class RecallRow:
    """What became of one memory."""

    recall: TracedRecall
    colour: str
    text: str
    attended: str
    recalled: str
    margin: float | None  # of its error, where later lags read it


@dataclass(frozen=True)
class Followed:
    """What the model does at one position."""

    trace: Trace
    first: bool  # shown before a reader chooses
    blank: int  # memories
    svg: str
    rows: list[RecallRow]
    output: str
    target: str


def followed(traces: Sequence[Trace], task: Task, certificate: Certificate) -> list[Followed]:
    first = max(traces, key=_interest, default=None)
    margins = {i: level.margin for level in reversed(certificate.levels) for i in level.memories}
    return [
        Followed(
            trace,
            trace is first,
            sum(recall.blank for recall in trace.recalls),
            picture(trace),
            [
                RecallRow(
                    recall,
                    colour_of(recall),
                    task.recalls[recall.memory - 1].text,
                    _attended_text(trace, recall),
                    _recalled_text(recall),
                    margins.get(recall.memory),
                )
                for recall in trace.recalls
            ],
            ", ".join(map(short_number, trace.output)),
            ", ".join(map(short_number, trace.target)),
        )
        for trace in traces
    ]


def _interest(trace: Trace) -> tuple[int, int, int]:
    """What is shown first: a position where all is recalled, by attention, from far away."""
    present = [recall for recall in trace.recalls if not recall.blank]
    lags = [recall.lag or 0 for recall in present]
    return len(present), sum(lag > 1 for lag in lags), sum(lags)


def _recalled_text(recall: TracedRecall) -> str:
    texts = []
    for channel, value in recall.recalled.items():
        target = recall.target[channel]
        other = "" if abs(value - target) < 5e-4 else f" for {short_number(target)}"
        texts.append(f"{channel} = {short_number(value)}{other}")
    return ", ".join(texts)


def _attended_text(trace: Trace, recall: TracedRecall) -> str:
    attended, read = recall.attended, recall.read
    if trace.t == 0:
        return "at nothing: there is no past"
    if recall.lag == 0:
        return "at nothing: it is the token itself"
    heads = sum(recall.memory in head.memories for head in trace.heads)
    if not heads:
        return "one step at a time; neurons pick"
    if not recall.single:
        return f"everywhere ({heads} head{'s' if heads > 1 else ''})"
    if attended is None or (read is None and not visible(attended)):
        return "nowhere" if heads == 1 else f"nowhere: {heads} heads cancel"
    where = f"{attended.lag} back, weight {short_number(attended.weight)}"
    if heads > 1:
        return f"{where} ({heads} heads together)"
    if read and read.lag == attended.lag + 1:
        return f"{where}; reads the token before"
    if read is None or read.lag < attended.lag:
        rest = f"rests at position {trace.t - attended.lag}"
        return f"{rest}; the token before is here already" if read else rest
    return where
