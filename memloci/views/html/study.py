"""The report of a study: a page with all verdicts, one for every claim, and the numbers of every figure.

All of it is made from findings; nothing is computed again. The pages link to each other by their names, so they stay
together in one folder, and need nothing else.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memloci.core.numbers import number
from memloci.study.claim import Finding
from memloci.study.statistics import Part, Verdict
from memloci.views.figures.drawing import standalone
from memloci.views.figures.effects import effects_figure
from memloci.views.figures.panel import caption, panel_figure
from memloci.views.figures.verdict_grid import CAPTION, grid_figure
from memloci.views.html.parts import Cell, Figure, Span, Table, badge
from memloci.views.html.render import render
from memloci.views.text.csv_files import effects_csv, grid_csv, panel_csv
from memloci.views.text.sizes import duration
from memloci.views.text.study import DASH, SIGNS, deciding, in_order, interval_text

OWN = 5  # claims from this number on are not the paper's
BADGES: dict[Verdict, Literal["met", "missed", "unsettled"]] = {
    "confirmed": "met",
    "refuted": "missed",
    "inconclusive": "unsettled",
}
BARS = {
    "seeds": "Bars are {level} intervals over seeds.",
    "proof": "An effect without a bar is proved.",
    "counts": "Bars go from the cases that are certain to those that may be.",
}
FIRST = ("arm", "parameters", "rate", "tuning", "seeds", "mean")
TOLD_ELSEWHERE = ("low", "high", "at_edge")  # with the mean and the rate
WORDY = ("arm", "tuning")
MOST_ARMS = 60  # that a page shows without being asked


@dataclass(frozen=True)
class VerdictRow:
    """A line of the index."""

    finding: Finding
    verdict: Span
    part: Part | None  # that decided
    interval: str
    time: str


@dataclass(frozen=True)
class StudyIndexPage:
    title: str
    count: int
    summary: str  # how many have which verdict
    groups: dict[str, list[VerdictRow]]
    facts: dict[str, str]
    commands: str


@dataclass(frozen=True)
class ClaimPage:
    title: str
    finding: Finding
    previous: Finding | None
    following: Finding | None
    verdict: Span
    tiles: dict[str, Cell]
    grid: Figure | None
    figures: list[Figure]
    effects: Figure | None
    parts: Table
    arms: Table
    notes_on_arms: str
    folded: bool
    time: str
    files: list[str]  # of numbers, without their endings


def study_pages(findings: Sequence[Finding], about: Mapping[str, str]) -> dict[str, bytes]:
    """The files of the report, by name: pages, and for every panel its numbers and its figure."""
    ordered = in_order(findings)
    files = {"index.html": index_html(ordered, about).encode()}
    for k, finding in enumerate(ordered):
        figures = [panel_figure(panel, f"panel-{j}") for j, panel in enumerate(finding.panels, start=1)]
        before = ordered[k - 1] if k else None
        after = ordered[k + 1] if k + 1 < len(ordered) else None
        files[f"{finding.id}.html"] = finding_html(finding, figures, before, after).encode()
        for j, (panel, svg) in enumerate(zip(finding.panels, figures, strict=True), start=1):
            files[f"{finding.id}-{j}.csv"] = panel_csv(panel)
            files[f"{finding.id}-{j}.svg"] = standalone(svg)
        if finding.parts:
            files[f"{finding.id}-effects.csv"] = effects_csv(finding.parts)
            files[f"{finding.id}-effects.svg"] = standalone(effects_figure(finding.parts))
        if finding.grid is not None:
            files[f"{finding.id}-grid.csv"] = grid_csv(finding.grid)
            files[f"{finding.id}-grid.svg"] = standalone(grid_figure(finding.grid))
    return files


def _badge(verdict: Verdict) -> Span:
    return badge(f"{SIGNS[verdict]} {verdict}", BADGES[verdict])


# -- all claims -------------------------------------------------------------------------------------------


def index_html(findings: Sequence[Finding], about: Mapping[str, str]) -> str:
    groups = {
        "Claims of the paper": [_row(finding) for finding in findings if finding.order[0] < OWN],
        "Claims of our own": [_row(finding) for finding in findings if finding.order[0] >= OWN],
    }
    counts = Counter(finding.verdict for finding in findings)
    profiles = ", ".join(dict.fromkeys(finding.profile for finding in findings))
    seconds = sum(finding.seconds for finding in findings)
    facts = {"profile": profiles or DASH, "time of one core": duration(seconds)}
    commands = [about["command"]] if "command" in about else [finding.command for finding in findings]
    page = StudyIndexPage(
        "Study",
        len(findings),
        ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in BADGES if counts[verdict]),
        {title: rows for title, rows in groups.items() if rows},
        facts | {name: text for name, text in about.items() if name != "command"},
        "\n".join(dict.fromkeys(commands)),
    )
    return render("study_index.html", page)


def _row(finding: Finding) -> VerdictRow:
    part = deciding(finding)
    interval = (part and interval_text(part)) or "no interval"
    return VerdictRow(finding, _badge(finding.verdict), part, interval, duration(finding.seconds))


# -- one claim --------------------------------------------------------------------------------------------


def finding_html(
    finding: Finding,
    figures: Sequence[str],
    previous: Finding | None = None,
    following: Finding | None = None,
) -> str:
    """The page of a claim: the verdict, what it rests on, and how to check it; `figures` are its panels, drawn."""
    arms, notes = _arms(finding)
    names = [f"{finding.id}-{k + 1}" for k in range(len(finding.panels))]
    names += [f"{finding.id}-grid"] if finding.grid is not None else []
    names += [f"{finding.id}-effects"] if finding.parts else []
    page = ClaimPage(
        f"{finding.id}: {finding.title}",
        finding,
        previous,
        following,
        _badge(finding.verdict),
        _tiles(finding),
        finding.grid and Figure(grid_figure(finding.grid), finding.grid.title, CAPTION, broad=True),
        [
            Figure(svg, f"{panel.title}: {panel.y}{f' over {panel.x}' if panel.x else ''}", caption(panel))
            for panel, svg in zip(finding.panels, figures, strict=True)
        ],
        _effects(finding),
        _parts(finding),
        arms,
        notes,
        len(arms.rows) > MOST_ARMS,
        duration(finding.seconds),
        names,
    )
    return render("study_claim.html", page)


def _tiles(finding: Finding) -> dict[str, Cell]:
    part = deciding(finding)
    return {
        "effect": part and part.effect.value,
        "interval": (part and interval_text(part)) or None,
        "should be": part and (f"{part.side} ", part.margin),
        "parts": len(finding.parts),
        "arms": len(finding.arms),
        "seeds": finding.seeds,
        "profile": finding.profile,
        "time of one core": duration(finding.seconds),
    }


def _effects(finding: Finding) -> Figure | None:
    if not finding.parts:
        return None
    kinds = dict.fromkeys(BARS[part.rests_on].format(level=_level(finding)) for part in finding.parts)
    words = f"{' '.join(kinds)} Upright lines are margins. The side that the claim says is shaded."
    return Figure(effects_figure(finding.parts), "Effects against their margins", words)


def _level(finding: Finding) -> str:
    return f"{number(100 * finding.level)} %"


def _parts(finding: Finding) -> Table:
    rows: list[list[Cell]] = [
        [
            part.statement,
            None if part.effect.value is None else (part.effect.value, f" {part.unit}"),
            "proved" if part.rests_on == "proof" else _interval(part.effect.low, part.effect.high),
            (f"{part.side} ", part.margin),
            _badge(part.verdict),
        ]
        for part in finding.parts
    ]
    counts = all(part.rests_on == "counts" for part in finding.parts)
    interval = "from, to" if counts else f"{_level(finding)} interval"
    return Table(["part", "effect", interval, "should be", "verdict"], rows, wordy=(0,))


def _interval(low: float | None, high: float | None) -> Cell:
    return None if low is None or high is None else ("[", float(low), ", ", float(high), "]")


def _arms(finding: Finding) -> tuple[Table, str]:
    """A row per arm, with whatever is known of it; and what to know about the columns."""
    keys = list(dict.fromkeys(key for row in finding.arms for key in row))
    beside_mean = "mean" in keys
    hidden = [key for key in TOLD_ELSEWHERE if beside_mean or key == "at_edge"]
    if all(row.get("measure", finding.measure) == finding.measure for row in finding.arms):
        hidden.append("measure")  # told below
    shown = [key for key in FIRST if key in keys]
    shown += [key for key in keys if key not in shown and key not in hidden]
    interval = beside_mean and ("low" in keys or "high" in keys)
    heads = ["mean [95 % interval]" if key == "mean" and interval else key.replace("_", " ") for key in shown]
    rows = [[_arm_cell(row, key, interval) for key in shown] for row in finding.arms]
    texts = [
        j
        for j, key in enumerate(shown)
        if any(isinstance(row.get(key), str | dict | list) for row in finding.arms)
    ]
    notes = [f"Compared by {finding.measure}."]
    if beside_mean and finding.measure.startswith("err_"):
        notes.append("Means of errors, and their intervals, are of the logarithms.")
    if any(row.get("tuning") for row in finding.arms):
        notes.append("Rates were tuned on other seeds: beside each rate its median held-out loss.")
    if any(row.get("at_edge") for row in finding.arms):
        notes.append("A rate at the end of the grid may not be the best there is.")
    wordy = [j for j in texts if shown[j] in WORDY]
    numeric = [j for j in range(len(shown)) if j not in texts]
    return Table(heads, rows, numeric, wordy), " ".join(notes)


def _arm_cell(row: Mapping[str, Any], key: str, interval: bool) -> Cell:
    value = row.get(key)
    if key == "mean" and interval and value is not None:
        return (_cell(value), " ", _interval(row.get("low"), row.get("high")))
    if key == "rate" and row.get("at_edge"):
        return (_cell(value), " ", Span("end of the grid", "small"))
    if key == "tuning" and isinstance(value, Mapping):
        texts = [Span((f"{_rate(rate)}: ", _cell(loss)), "mark") for rate, loss in value.items()]
        return tuple(part for each in texts for part in (", ", each))[1:]
    return _cell(value)


def _rate(rate: Any) -> str:
    try:
        return number(float(rate))
    except ValueError:
        return str(rate)


def _cell(value: Any) -> Cell:
    match value:
        case float():
            return value if value == value else None
        case None | int() | str():
            return value
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)
