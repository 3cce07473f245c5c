"""One query followed through the layers, as a picture: read from top to bottom.

It is drawn by hand: a column per token, a lane per layer, a colour per level. Every text in it is escaped by `Drawing.text`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING

from memloci.core.numbers import coordinate, decimals, number

if TYPE_CHECKING:
    from memloci.observe.trace import HeadPeaks, Trace, TracedRecall, WeightPeak

COLOURS = ("blue", "red", "green", "purple", "orange", "sky")  # variables of the page
CELL, GAP, LANE, LINE = 48, 26, 30, 15
LEFT, RIGHT = 176, 210
LEAST_CELLS, MOST_CELLS, MOST_CHANNELS = 12, 22, 3
MOST_LETTERS = 26  # left of the cells


@dataclass(frozen=True)
class Lane:
    """A layer, or several alike."""

    first: int
    last: int
    purposes: tuple[str, ...]  # of its heads
    carriers: tuple[HeadPeaks, ...]  # heads that only carry
    recalls: tuple[TracedRecall, ...]  # memories that are complete after it

    @property
    def title(self) -> str:
        return (
            f"layers {self.first + 1} to {self.last + 1}"
            if self.last > self.first
            else f"layer {self.first + 1}"
        )

    @property
    def purposes_text(self) -> str:
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
        drawing.text(4, y + 33, lane.purposes_text, "soft")
        for k in range(lane.rows):
            at = y + 20 + LANE * k
            if lane.recalls:
                ends += _draw_recall(drawing, trace, lane.recalls[k], at, right)
            else:
                _draw_carry(drawing, trace, lane, at, right)
        y += LANE * lane.rows + 14
    drawing.line(4, y, right + RIGHT, y, "rule")
    drawing.text(4, y + 19, "output", "strong")
    for k, (value, target) in enumerate(zip(trace.output, trace.target, strict=True)):
        drawing.text(
            right + 8, y + 19 + LINE * k, f"{short_number(value)}, target {short_number(target)}", "strong"
        )
    y += 14 + LINE * len(trace.output)
    guides = Drawing(x)
    for at, end, kind in ends:
        guides.line(at, bottom, at, end - 5, f"{kind} guide")
    cells = _cells(trace, shown, x, top, box, channels)
    width, height = right + RIGHT, y + 4
    return (
        f'<svg role="img" viewBox="0 0 {coordinate(width)} {coordinate(height)}" width="{coordinate(width)}" '
        f'height="{coordinate(height)}" xmlns="http://www.w3.org/2000/svg">'
        + "".join([*guides.parts, *cells.parts, *drawing.parts])
        + "</svg>"
    )


def _columns(trace: Trace) -> list[int]:
    """The last positions, and what lies around every token that matters."""
    t = trace.t
    matter = {t}
    for recall in trace.recalls:
        matter |= {t - glance.lag for glance in (recall.read, visible(recall.attended)) if glance}
        if not recall.blank and recall.lag:
            matter.add(t - recall.lag)
    low = max(0, min(min(matter) - 1, t + 1 - LEAST_CELLS))
    if t + 1 - low <= MOST_CELLS:
        return list(range(low, t + 1))
    near = {p + k for p in matter for k in (-1, 0, 1)} | {t - 2, t - 3}
    return sorted(p for p in near if 0 <= p <= t)


def visible(glance: WeightPeak | None) -> WeightPeak | None:
    """A weight worth an arrow; where heads cancel each other there is none."""
    return glance if glance and glance.is_clear else None


def _lanes(trace: Trace) -> list[Lane]:
    """Layers in order; those that only carry, and carry alike, are one lane."""
    lanes: list[Lane] = []
    for l in range(trace.layers):
        layer_heads = [head for head in trace.heads if head.layer == l]
        lane = Lane(
            l,
            l,
            tuple(dict.fromkeys(head.purpose for head in layer_heads)),
            tuple(head for head in layer_heads if not head.memories),
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
    return [head.peaks[0].lag for head in lane.carriers if head.peaks]


def _cells(
    trace: Trace, positions: list[int], x: dict[int, float], top: float, box: float, channels: tuple[str, ...]
) -> Drawing:
    cells = Drawing(x)
    recalled_from: dict[int, list[TracedRecall]] = {}
    for recall in trace.recalls:
        if recall.read:
            recalled_from.setdefault(trace.t - recall.read.lag, []).append(recall)
    for c, channel in enumerate(channels):
        cells.text(LEFT - 10, top + 17 + LINE * c, channel, "soft", "end")
    cells.text(LEFT - 10, top - 7, "position", "soft", "end")
    for k, p in enumerate(positions):
        if k and p != positions[k - 1] + 1:
            cells.text(x[p] - CELL / 2 - GAP / 2, top + box / 2 + 4, "…", "soft", "middle")
        kind = (
            "cell now"
            if p == trace.t
            else f"cell {colour_of(recalled_from[p][-1])}"
            if p in recalled_from
            else "cell"
        )
        cells.parts.append(
            f'<rect x="{coordinate(x[p] - CELL / 2 + 2)}" y="{coordinate(top)}" width="{CELL - 4}" height="{coordinate(box)}" rx="5" class="{kind}"/>'
        )
        cells.text(x[p], top - 7, str(p), "soft", "middle")
        for recall, tag in [(r, f"m{r.memory}") for r in recalled_from.get(p, [])[-1:]]:
            more = "".join(f", m{r.memory}" for r in recalled_from[p][:-1])
            cells.text(x[p], top - 22, tag + more, f"{colour_of(recall)} strong", "middle")
        if p == trace.t:
            cells.text(x[p], top - 22, "now", "strong", "middle")
        for c in range(len(channels)):
            cells.text(x[p], top + 17 + LINE * c, _cell(trace.x[p, c]), "" if c else "strong", "middle")
    if positions[0] > 0:
        cells.text(LEFT - 3, top + box / 2 + 4, "…", "soft", "middle")
    return cells


def _draw_carry(drawing: Drawing, trace: Trace, lane: Lane, y: float, right: float) -> None:
    start, lags = drawing.x[trace.t], sorted(set(_lags(lane)))
    drawing.dot(start, y, "carry")
    for lag in lags:
        if trace.t - lag in drawing.x:
            drawing.arrow(start, drawing.x[trace.t - lag], y, "carry")
    if lane.carriers:
        steps = f"{lags[0]} step{'s' if lags[0] > 1 else ''} back" if lags else "nothing before it"
        drawing.text(right + 8, y + 4, ("each " if lane.last > lane.first else "") + steps, "soft")


def _draw_recall(
    drawing: Drawing, trace: Trace, recall: TracedRecall, y: float, right: float
) -> list[tuple[float, float, str]]:
    """Solid: where attention looks. Dotted: from there, or from here, to the token that is read."""
    t, colour, start = trace.t, colour_of(recall), drawing.x[trace.t]
    attended, read = visible(recall.attended), recall.read
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
    drawing.text(right + 8, y + 4, _recall_text(recall), f"{colour} strong")
    return ends


def _recall_text(recall: TracedRecall) -> str:
    name = f"m{recall.memory}: "
    values = ", ".join(
        f"{channel} = {short_number(value)}" for channel, value in list(recall.recalled.items())[:2]
    )
    if not recall.single:
        return f"{name}many tokens, {values}"
    if recall.read is None:
        return name + ("blank" if recall.blank else "nothing")
    return f"{name}lag {recall.read.lag}, {values}" + ("" if recall.is_right else " (wrong)")


def _cut(text: str, most: int = MOST_LETTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def colour_of(recall: TracedRecall) -> str:
    return COLOURS[recall.level % len(COLOURS)]


def short_number(x: float) -> str:
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
