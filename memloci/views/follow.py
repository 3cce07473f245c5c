"""One query followed through the layers, as a picture a reader can turn: pick a position, read from top to bottom.

The buttons are radio buttons and CSS, so that the page needs no script and prints the position that is chosen.
The picture is drawn by hand: a column per token, a lane per layer, a colour per level.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape

from memloci.certify.certificate import Certificate, Level
from memloci.core.numbers import coordinate, decimals, lower_number, number
from memloci.observe.trace import FOUND, Glance, Look, Recall, Trace
from memloci.tasks.task import Task

COLOURS = ("blue", "red", "green", "purple", "orange", "sky")  # variables of the page
CELL, GAP, LANE, LINE = 48, 26, 30, 15
LEFT, RIGHT = 176, 210
LEAST_CELLS, MOST_CELLS, MOST_CHANNELS = 12, 22, 3
MOST_LETTERS = 26  # left of the cells


def follow_html(traces: Sequence[Trace], task: Task, certificate: Certificate) -> str:
    """A row of buttons, one per position, and what the model does at each."""
    first = max(traces, key=_interest)
    parts = []
    for trace in traces:
        t, chosen = trace.t, " checked" if trace is first else ""
        blank = sum(recall.blank for recall in trace.recalls)
        told = f", {blank} of {len(trace.recalls)} memories blank" if blank else ""
        kind = ' class="dim"' if blank else ""
        parts.append(
            f'<input type="radio" name="follow" id="follow-{t}"{chosen}>'
            f'<label for="follow-{t}"{kind} title="position {t}{told}">t = {t}</label>\n'
            f'<div class="panel"><figure class="lanes">{picture(trace)}</figure>\n'
            f"{_table(trace, task, certificate)}{_outcome(trace, certificate)}</div>"
        )
    return f'<div class="follow" role="radiogroup" aria-label="Position">{"".join(parts)}</div>'


def _interest(trace: Trace) -> tuple[int, int, int]:
    """What is shown first: a position where all is recalled, by attention, from far away."""
    there = [recall for recall in trace.recalls if not recall.blank]
    lags = [recall.lag or 0 for recall in there]
    return len(there), sum(lag > 1 for lag in lags), sum(lags)


# -- the picture ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lane:
    """A layer, or several alike."""

    first: int
    last: int
    purposes: tuple[str, ...]  # of its heads
    looks: tuple[Look, ...]  # heads that only carry
    recalls: tuple[Recall, ...]  # memories that are complete after it

    @property
    def title(self) -> str:
        return (
            f"layers {self.first + 1} to {self.last + 1}"
            if self.last > self.first
            else f"layer {self.first + 1}"
        )

    @property
    def said(self) -> str:
        """What its heads are for, as far as there is room; what neurons recall."""
        if not self.purposes:
            names = ", ".join(f"m{recall.memory}" for recall in self.recalls)
            return _cut(f"picks {names}" if names else "neurons only")
        first, *others = self.purposes
        more = f" and {len(others)} more" if others else ""
        return _cut(first, MOST_LETTERS - len(more)) + more

    @property
    def rows(self) -> int:
        return max(1, len(self.recalls))


@dataclass
class Drawing:
    """SVG elements, and where a position of the sequence is."""

    x: dict[int, float]
    parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(
            f'<line x1="{coordinate(x1)}" y1="{coordinate(y1)}" x2="{coordinate(x2)}" y2="{coordinate(y2)}" class="{kind}"/>'
        )

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        kind = f' class="{kind}"' if kind else ""
        self.parts.append(
            f'<text x="{coordinate(x)}" y="{coordinate(y)}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'
        )

    def dot(self, x: float, y: float, kind: str) -> None:
        self.parts.append(f'<circle cx="{coordinate(x)}" cy="{coordinate(y)}" r="4.5" class="{kind}"/>')

    def arrow(self, start: float, end: float, y: float, kind: str) -> None:
        """From start to end, which lies to the left."""
        self.line(start - 5, y, end + 6, y, kind)
        self.parts.append(f'<path d="M{coordinate(end + 1)} {coordinate(y)}l8 -4.5v9z" class="{kind} tip"/>')


def picture(trace: Trace) -> str:
    """The sequence as cells, and below, layer by layer, from where to where."""
    shown = _columns(trace)
    x, right = {}, float(LEFT)
    for k, p in enumerate(shown):
        right += GAP if k and p != shown[k - 1] + 1 else 0
        x[p] = right + CELL / 2
        right += CELL
    drawing = Drawing(x)
    channels = trace.channels[:MOST_CHANNELS]
    top, box = 38, 8 + LINE * len(channels)
    bottom, y = top + box, top + box + 12.0
    ends: list[tuple[float, float, str]] = []
    lanes = _lanes(trace)
    for lane in lanes:
        drawing.line(4, y, right + RIGHT, y, "rule")
        drawing.text(4, y + 19, lane.title, "strong")
        drawing.text(4, y + 33, lane.said, "soft")
        for k in range(lane.rows):
            at = y + 20 + LANE * k
            if lane.recalls:
                ends += _draw_recall(drawing, trace, lane.recalls[k], at, right)
            else:
                _draw_carry(drawing, trace, lane, at, right)
        y += LANE * lane.rows + 14
    drawing.line(4, y, right + RIGHT, y, "rule")
    drawing.text(4, y + 19, "output", "strong")
    for k, (value, wanted) in enumerate(zip(trace.output, trace.target, strict=True)):
        drawing.text(right + 8, y + 19 + LINE * k, f"{_short(value)}, target {_short(wanted)}", "strong")
    y += 14 + LINE * len(trace.output)
    guides = Drawing(x)
    for at, end, kind in ends:
        guides.line(at, bottom, at, end - 5, f"{kind} guide")
    cells = _cells(trace, shown, x, top, box, channels)
    width, height = right + RIGHT, y + 4
    label = f"Position {trace.t}, followed through the layers"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {coordinate(width)} {coordinate(height)}" width="{coordinate(width)}" '
        f'height="{coordinate(height)}" xmlns="http://www.w3.org/2000/svg">'
        + "".join([*guides.parts, *cells.parts, *drawing.parts])
        + "</svg>"
    )


def _columns(trace: Trace) -> list[int]:
    """The last positions, and what lies around every token that matters."""
    t = trace.t
    matter = {t}
    for recall in trace.recalls:
        matter |= {t - glance.lag for glance in (recall.read, _seen(recall.attended)) if glance}
        if not recall.blank and recall.lag:
            matter.add(t - recall.lag)
    low = max(0, min(min(matter) - 1, t + 1 - LEAST_CELLS))
    if t + 1 - low <= MOST_CELLS:
        return list(range(low, t + 1))
    near = {p + k for p in matter for k in (-1, 0, 1)} | {t - 2, t - 3}
    return sorted(p for p in near if 0 <= p <= t)


def _seen(glance: Glance | None) -> Glance | None:
    """A weight worth an arrow; where heads cancel each other there is none."""
    return glance if glance and abs(glance.weight) >= FOUND else None


def _lanes(trace: Trace) -> list[Lane]:
    """Layers in order; those that only carry, and carry alike, are one lane."""
    lanes: list[Lane] = []
    for l in range(trace.layers):
        own = [look for look in trace.looks if look.layer == l]
        lane = Lane(
            l,
            l,
            tuple(dict.fromkeys(look.purpose for look in own)),
            tuple(look for look in own if not look.memories),
            tuple(recall for recall in trace.recalls if recall.layer == l),
        )
        before = lanes[-1] if lanes else None
        alike = before and (lane.purposes, _lags(lane)) == (before.purposes, _lags(before))
        if before and alike and not (lane.recalls or before.recalls):
            lanes[-1] = replace(before, last=l)
        else:
            lanes.append(lane)
    return lanes


def _lags(lane: Lane) -> list[int]:
    return [look.peaks[0].lag for look in lane.looks if look.peaks]


def _cells(
    trace: Trace, shown: list[int], x: dict[int, float], top: float, box: float, channels: tuple[str, ...]
) -> Drawing:
    cells = Drawing(x)
    held: dict[int, list[Recall]] = {}
    for recall in trace.recalls:
        if recall.read:
            held.setdefault(trace.t - recall.read.lag, []).append(recall)
    for c, channel in enumerate(channels):
        cells.text(LEFT - 10, top + 17 + LINE * c, channel, "soft", "end")
    cells.text(LEFT - 10, top - 7, "position", "soft", "end")
    for k, p in enumerate(shown):
        if k and p != shown[k - 1] + 1:
            cells.text(x[p] - CELL / 2 - GAP / 2, top + box / 2 + 4, "…", "soft", "middle")
        kind = "cell now" if p == trace.t else f"cell {_colour(held[p][-1])}" if p in held else "cell"
        cells.parts.append(
            f'<rect x="{coordinate(x[p] - CELL / 2 + 2)}" y="{coordinate(top)}" width="{CELL - 4}" height="{coordinate(box)}" rx="5" class="{kind}"/>'
        )
        cells.text(x[p], top - 7, str(p), "soft", "middle")
        for recall, tag in [(r, f"m{r.memory}") for r in held.get(p, [])[-1:]]:
            more = "".join(f", m{r.memory}" for r in held[p][:-1])
            cells.text(x[p], top - 22, tag + more, f"{_colour(recall)} strong", "middle")
        if p == trace.t:
            cells.text(x[p], top - 22, "now", "strong", "middle")
        for c in range(len(channels)):
            cells.text(x[p], top + 17 + LINE * c, _cell(trace.x[p, c]), "" if c else "strong", "middle")
    if shown[0] > 0:
        cells.text(LEFT - 3, top + box / 2 + 4, "…", "soft", "middle")
    return cells


def _draw_carry(drawing: Drawing, trace: Trace, lane: Lane, y: float, right: float) -> None:
    start, lags = drawing.x[trace.t], sorted(set(_lags(lane)))
    drawing.dot(start, y, "carry")
    for lag in lags:
        if trace.t - lag in drawing.x:
            drawing.arrow(start, drawing.x[trace.t - lag], y, "carry")
    if lane.looks:
        steps = f"{lags[0]} step{'s' if lags[0] > 1 else ''} back" if lags else "nothing before it"
        drawing.text(right + 8, y + 4, ("each " if lane.last > lane.first else "") + steps, "soft")


def _draw_recall(
    drawing: Drawing, trace: Trace, recall: Recall, y: float, right: float
) -> list[tuple[float, float, str]]:
    """Solid: where attention looks. Dotted: from there, or from here, to the token that is read."""
    t, colour, start = trace.t, _colour(recall), drawing.x[trace.t]
    attended, read = _seen(recall.attended), recall.read
    drawing.dot(start, y, colour)
    ends: list[tuple[float, float, str]] = []
    if attended and recall.single:
        rests = read is None or read.lag < attended.lag
        drawing.arrow(start, drawing.x[t - attended.lag], y, f"{colour} rests" if rests else colour)
    if read:
        at = drawing.x[t - read.lag]
        if attended is None or read.lag != attended.lag:
            hop = drawing.x[t - attended.lag] if attended and read.lag > attended.lag else start - 5
            if read.lag:
                drawing.line(hop, y, at + 5, y, f"{colour} hop")
            drawing.dot(at, y, f"{colour} open")
        ends.append((at, y, colour))
    drawing.text(right + 8, y + 4, _said(recall), f"{colour} strong")
    return ends


def _said(recall: Recall) -> str:
    name = f"m{recall.memory}: "
    held = ", ".join(f"{channel} = {_short(value)}" for channel, value in list(recall.held.items())[:2])
    if not recall.single:
        return f"{name}many tokens, {held}"
    if recall.read is None:
        return name + ("blank" if recall.blank else "nothing")
    return f"{name}lag {recall.read.lag}, {held}" + ("" if recall.right else " (wrong)")


def _cut(text: str, most: int = MOST_LETTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _colour(recall: Recall) -> str:
    return COLOURS[recall.level % len(COLOURS)]


def _short(x: float) -> str:
    """Three digits, a true minus."""
    text = f"{number(0.0 if abs(x) < 5e-4 else x)}" if abs(x) < 1e4 else f"{number(x, 2)}"
    return text.replace("-", "−")


def _cell(x: float) -> str:
    """What fits into a cell."""
    text = (
        f"{decimals(x)}"
        if x == round(x) and abs(x) < 1e4
        else f"{decimals(x, 2)}"
        if abs(x) < 100
        else f"{number(x, 1)}"
    )
    return text.replace("-", "−")


# -- the numbers ------------------------------------------------------------------------------------------


def _table(trace: Trace, task: Task, certificate: Certificate) -> str:
    heads = [
        "memory",
        "what it is",
        "by the task",
        "by the network",
        "attention looks",
        "holds",
        "error",
        "margin",
    ]
    numeric = {2, 3, 6, 7}
    kind = lambda k: ' class="n"' if k in numeric else ""
    rows = []
    for recall in trace.recalls:
        level = _level(certificate, recall.memory)
        mark = "" if recall.right else ' class="wrong"'
        cells = [
            f'<strong class="{_colour(recall)}">m{recall.memory}</strong> <span class="note">level {recall.level}</span>',
            f"<code>{escape(task.recalls[recall.memory - 1].text)}</code>",
            _lag(recall),
            str(recall.read.lag) if recall.read else "–",
            _looked(trace, recall),
            ", ".join(
                f"{escape(channel)} = {_short(value)}"
                + (
                    ""
                    if abs(value - recall.wanted[channel]) < 5e-4
                    else f" for {_short(recall.wanted[channel])}"
                )
                for channel, value in recall.held.items()
            ),
            _number(recall.err),
            "–" if level is None else f'<data value="{level.margin!r}">{lower_number(level.margin)}</data>',
        ]
        rows.append(
            f"<tr{mark}>" + "".join(f"<td{kind(k)}>{cell}</td>" for k, cell in enumerate(cells)) + "</tr>"
        )
    top = "".join(f"<th{kind(k)}>{head}</th>" for k, head in enumerate(heads))
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead>\n<tbody>{"".join(rows)}</tbody></table></div>'


def _lag(recall: Recall) -> str:
    if not recall.single:
        return '– <span class="note">many of them</span>'
    if recall.lag is None:
        return '– <span class="note">asks a blank memory</span>'
    return f"{recall.lag}" + (' <span class="note">before the start</span>' if recall.blank else "")


def _looked(trace: Trace, recall: Recall) -> str:
    attended, read = recall.attended, recall.read
    if trace.t == 0:
        return "at nothing: there is no past"
    if recall.lag == 0:
        return "at nothing: it is the token itself"
    heads = sum(recall.memory in look.memories for look in trace.looks)
    if not heads:
        return "one step at a time; neurons pick"
    if not recall.single:
        return f"everywhere ({heads} head{'s' if heads > 1 else ''})"
    if attended is None or (read is None and not _seen(attended)):
        return "nowhere" if heads == 1 else f"nowhere: {heads} heads cancel"
    where = f"{attended.lag} back, weight {_short(attended.weight)}"
    if heads > 1:
        return f"{where} ({heads} heads together)"
    if read and read.lag == attended.lag + 1:
        return f"{where}; reads the token before"
    if read is None or read.lag < attended.lag:
        rest = f"rests at position {trace.t - attended.lag}"
        return f"{rest}; the token before is here already" if read else rest
    return where


def _outcome(trace: Trace, certificate: Certificate) -> str:
    values = ", ".join(map(_short, trace.output))
    wanted = ", ".join(map(_short, trace.target))
    proved = (
        f' No input errs by more than <data value="{float(certificate.bound)!r}">{number(certificate.bound)}</data> (proved).'
        if math.isfinite(certificate.bound)
        else ""
    )
    return f"<p>Output <strong>{values}</strong>, target <strong>{wanted}</strong>: error {_number(trace.err)}.{proved}</p>"


def _level(certificate: Certificate, memory: int) -> Level | None:
    return next((level for level in certificate.levels if memory in level.memories), None)


def _number(x: float) -> str:
    return f'<data value="{x!r}">{number(x)}</data>'
