"""What was found in data, for the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from memloci.core.numbers import decimals, number, percent
from memloci.detect.detection import Detection
from memloci.views.terminal.tasks import plain_table
from memloci.views.text.tasks import data_toml

if TYPE_CHECKING:  # it would import JAX
    from memloci.detect.trial import Trial

KIND_TEXT = {
    "none": "no memory was found",
    "fixed": "fixed lags",
    "adaptive": "lags that depend on the input",
    "essential": "a kernel over the past",
    "matched": "a match by key",
    "mixed": "memories of several kinds",
    "outside": "outside the classes that have a name here",
}


def detection_view(name: str, detection: Detection) -> Any:
    target = "the next value" if detection.target == "next" else detection.target
    title = (
        f"{name}: {detection.kind} ({KIND_TEXT[detection.kind]}); {detection.steps:,} steps, target {target}"
    )
    parts: list[Any] = [Text(title, style="bold")]
    if detection.memories:
        table = plain_table()
        for heading in ("memory", "of", "effect", "p-value"):
            table.add_column(heading, justify="left" if heading in ("memory", "of") else "right")
        for m in detection.memories:
            p = "-" if m.p_value is None else number(min(m.p_value, 1.0)) if m.p_value > 1e-300 else "0"
            table.add_row(m.text, ", ".join(m.channels), number(m.effect), p)
        parts.append(table)
    parts.append(Text(explained_text(detection)))
    if detection.tail.kind != "none":
        parts.append(Text(tail_text(detection)))
    if detection.periods:
        periods = ", ".join(f"{p.period:,} ({percent(p.share)})" for p in detection.periods)
        parts.append(Text(f"Periods, apart from lags: {periods}."))
    parts += [Text(note) for note in detection.notes]
    if detection.task_data is not None:
        parts += [Text("\nThe task", style="bold"), Text(data_toml(detection.task_data))]
    last = f"False discoveries: at most {percent(detection.fdr)} of such runs. {decimals(detection.seconds, 1)} s."
    return Group(*parts, Text(f"\nLearnt from data; nothing here is proved. {last}"))


def explained_text(detection: Detection) -> str:
    """A sentence about the held-out steps."""
    e = detection.explained
    text = f"Explained on held-out steps: {percent(max(e.r2, 0.0))} of the variance"
    if e.reference_r2 is not None:
        text += f"; the reference (gradient-boosted trees) {percent(max(e.reference_r2, 0.0))}"
    if e.share is not None and e.interval is not None:
        low, high = e.interval
        text += f"; share {decimals(e.share, 3)}, 95 % interval {decimals(low, 3)} to {decimals(high, 3)}"
    return text + "."


def tail_text(detection: Detection) -> str:
    tail = detection.tail
    assert tail.rate is not None
    text = f"Tail: {tail.kind}, rate {number(tail.rate, 4)}"
    if tail.interval is not None:
        text += f", 95 % interval {number(tail.interval[0], 4)} to {number(tail.interval[1], 4)}"
    return text + "."


def trials_table(rows: "Sequence[Trial]") -> Any:
    table = plain_table("Tried briefly: share of the variance on held-out windows")
    table.add_column("predictor")
    table.add_column("explained", justify="right")
    table.add_column("parameters", justify="right")
    for row in rows:
        table.add_row(row.name, decimals(row.r2, 3), "-" if row.parameters is None else f"{row.parameters:,}")
    return table
