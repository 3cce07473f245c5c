"""The page about data: influence against lag, what each class explains, the memories, what is left, the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memloci.core.numbers import decimals, percent
from memloci.views.figures.detection import classes_figure, influence_figure
from memloci.views.html.parts import Cell, Code, Figure, Table
from memloci.views.html.render import render
from memloci.views.terminal.detection import KIND_TEXT, explained_text, tail_text
from memloci.views.text.tasks import data_toml

if TYPE_CHECKING:
    from memloci.detect.detection import Detection


@dataclass(frozen=True)
class DetectionPage:
    title: str
    detection: Detection
    tiles: dict[str, Cell]
    explained: str
    tail: str | None
    memories: Table
    periods: Table | None
    influence: Figure | None
    residual: Figure | None
    classes: Figure | None
    toml: str | None
    command: str | None


def detection_html(detection: Detection) -> str:
    """The whole page, to be opened offline."""
    return render("detection.html", _page(detection))


def detection_fragment(detection: Detection) -> str:
    """The same, for a notebook's cell."""
    return render("detection_fragment.html", _page(detection))


def _page(detection: Detection) -> DetectionPage:
    lags = detection.lags
    residual = _profile("residual", detection.residual, (), "What is left once the memories are taken out.")
    return DetectionPage(
        f"Memory in data: {KIND_TEXT[detection.kind]}",
        detection,
        _tiles(detection),
        explained_text(detection),
        None if detection.tail.kind == "none" else tail_text(detection),
        _memories(detection),
        _periods(detection),
        _profile(
            "influence",
            detection.influence,
            lags,
            "The target's correlation with each lag; the band holds 95 % of chance.",
        ),
        residual,
        _classes(detection),
        None if detection.task_data is None else data_toml(detection.task_data),
        None if detection.task_data is None else "memloci plan task.toml",
    )


def _tiles(detection: Detection) -> dict[str, Cell]:
    return {
        "kind": detection.kind,
        "steps": detection.steps,
        "largest lag searched": detection.max_lag,
        "false discovery rate": detection.fdr,
        "share of the reference": detection.explained.share,
        "seconds": round(detection.seconds, 1),
    }


def _memories(detection: Detection) -> Table:
    heads = ["memory", "of", "effect", "p-value"]
    rows: list[Sequence[Cell]] = [
        [
            Code(m.text),
            ", ".join(m.channels),
            float(m.effect),
            None if m.p_value is None else float(min(m.p_value, 1.0)),
        ]
        for m in detection.memories
    ]
    return Table(heads, rows, [2, 3])


def _periods(detection: Detection) -> Table | None:
    if not detection.periods:
        return None
    rows: list[Sequence[Cell]] = [[p.period, percent(p.share), float(p.p_value)] for p in detection.periods]
    return Table(["period", "share of the variance", "p-value"], rows, [0, 1, 2])


def _profile(name: str, profile, lags: Sequence[int], caption: str) -> Figure | None:
    if not profile:
        return None
    return Figure(influence_figure(name, profile, lags), f"{name} against lag", caption, broad=True)


def _classes(detection: Detection) -> Figure | None:
    if not detection.candidates:
        return None
    svg = classes_figure(detection.candidates, detection.explained.reference_r2)
    seconds = decimals(detection.seconds, 1)
    return Figure(
        svg, "What each class explains", f"In brackets, the number of memories. {seconds} s in all."
    )
