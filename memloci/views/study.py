"""The report of a study: a page with all verdicts, one for every claim, and the numbers of every figure.

All of it is made from findings; nothing is computed again. The pages link to each other by their names, so they stay
together in one folder, and need nothing else.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from memloci.core.numbers import number
from memloci.study.claim import Finding, Panel, place
from memloci.study.statistics import Part, Verdict, shared_level
from memloci.views import page
from memloci.views.drawing import standalone
from memloci.views.effects_figure import effects_figure
from memloci.views.run_tables import duration
from memloci.views.study_figures import caption, panel_figure
from memloci.views.study_tables import DASH, SIGNS, deciding, in_order, interval_text
from memloci.views.verdict_grid import CAPTION, PART_COLUMNS, grid_csv, grid_figure, part_cells

OWN = 5  # claims from this number on are not the paper's
BADGES: dict[Verdict, str] = {"confirmed": "met", "refuted": "missed", "inconclusive": "unsettled"}
STYLE = """
.unsettled { color: var(--ink); background: var(--code); box-shadow: inset 0 0 0 1px var(--soft); }
.study td .badge { font-size: .84rem; padding: .08rem .65rem; }
.study td { vertical-align: middle; }
.study td:nth-child(1) { width: 3.2rem; font-weight: 650; }
.study td:nth-child(3) { width: 9.5rem; }
.study td:nth-child(4) { width: 27rem; }
.study td:nth-child(5) { width: 3.5rem; }
.study td:nth-child(6) { width: 4.5rem; }
.study .n + .mark, .arms .n + :not(.n) { padding-left: 1.2rem; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.1rem; margin: .4rem 0; font-size: .92rem; }
.facts dt { color: var(--soft); } .facts dd { margin: 0; overflow-wrap: anywhere; }
.said { font-size: 1.08rem; margin: 0; max-width: 62rem; }
.small { color: var(--soft); font-size: .88rem; }
"""
RULE = """<p>A claim has parts. Each part says that an effect is above, or below, a margin that was fixed before
the seeds that judge were run.</p>
<ul>
<li><strong>Confirmed</strong>: the whole interval of every part is on the side that the claim says.</li>
<li><strong>Refuted</strong>: the whole interval of some part is on the other side. An effect as large as the margin is ruled out; a smaller one may be there.</li>
<li><strong>Inconclusive</strong>: neither. An interval holds its margin, an arm has no numbers, or too little was learned to judge.</li>
</ul>
<p>Intervals are over seeds that no setting was tuned on. The parts of a claim share its 5 %, so each interval is the
wider the more parts there are. The tables show the part that decided.</p>"""


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


def panel_csv(panel: Panel) -> bytes:
    """A row for every value; where an x has none, a row without a value says so."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["panel", "series", "kind", "x", "seed_index", "value"])
    for series in panel.series:
        for x, values in zip(series.x, series.values, strict=True):
            named = [panel.title, series.name, series.kind, x]
            rows.writerows(
                [*named, k, "" if value is None else repr(value)] for k, value in enumerate(values)
            )
            if not values:
                rows.writerow([*named, "", ""])
    rows.writerows([panel.title, name, "line", "", "", repr(value)] for name, value in panel.marks)
    return out.getvalue().encode()


def effects_csv(parts: Sequence[Part]) -> bytes:
    """A row for every part."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow([*PART_COLUMNS, "verdict"])
    rows.writerows([*part_cells(part), part.verdict] for part in parts)
    return out.getvalue().encode()


def _whole(title: str, body: str) -> str:
    return page.whole(title, body).replace("</style>", STYLE + "</style>", 1)


def _badge(verdict: Verdict) -> str:
    return f'<span class="badge {BADGES[verdict]}">{SIGNS[verdict]} {verdict}</span>'


# -- all claims -------------------------------------------------------------------------------------------


def index_html(findings: Sequence[Finding], about: Mapping[str, str]) -> str:
    groups = {
        "Claims of the paper": [finding for finding in findings if place(finding.id)[0] < OWN],
        "Claims of our own": [finding for finding in findings if place(finding.id)[0] >= OWN],
    }
    sections = [page.section(title, _verdicts(group), wide=True) for title, group in groups.items() if group]
    if not findings:
        sections.append(page.section("Claims", "<p>No claim has been studied.</p>", wide=True))
    sections.append(page.section("How a verdict is reached", RULE))
    sections.append(page.section("About this study", _facts(findings, about) + _again(findings, about)))
    counts = Counter(finding.verdict for finding in findings)
    kinds: tuple[Verdict, ...] = ("confirmed", "refuted", "inconclusive")
    said = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in kinds if counts[verdict])
    head = f"""<header>
<p class="kicker">memloci study</p>
<h1>What holds, and what does not</h1>
<p>{len(findings):,} claim{"" if len(findings) == 1 else "s"} about what Transformers remember{": " + said if said else ""}.</p>
</header>"""
    cards = "\n".join(sections)
    return _whole("Study", f'{head}\n<main class="cards">\n{cards}\n</main>')


def _verdicts(findings: Sequence[Finding]) -> str:
    rows = []
    for finding in findings:
        to = f"{escape(finding.id)}.html"
        rows.append(
            [
                escape(finding.id),
                f'<a href="{to}">{escape(finding.title)}</a>',
                _badge(finding.verdict),
                _effect(deciding(finding)),
                f"{finding.seeds:,}",
                escape(duration(finding.seconds)),
            ]
        )
    heads = ["id", "claim", "verdict", "what decides: effect [interval]", "seeds", "time"]
    return f'<div class="study">{page.table(heads, rows, numeric=(4, 5), wordy=(1, 3))}</div>'


def _effect(part: Part | None) -> str:
    if part is None:
        return DASH
    margin = f"{part.side} {page.data(part.margin)}"
    says = f'<span class="small">{escape(part.says)}</span><br>'
    if part.effect.value is None:
        return f'{says}no number <span class="small">should be {margin} {escape(part.unit)}</span>'
    return (
        f"{says}{page.data(part.effect.value)} {escape(part.unit)} {escape(interval_text(part) or 'no interval')}"
        f' <span class="small">should be {margin}</span>'
    )


def _facts(findings: Sequence[Finding], about: Mapping[str, str]) -> str:
    profiles = ", ".join(dict.fromkeys(finding.profile for finding in findings))
    seconds = sum(finding.seconds for finding in findings)
    facts = {"profile": profiles or DASH, "time of one core": duration(seconds)}
    facts |= {name: text for name, text in about.items() if name != "command"}
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
    return f'<dl class="facts">{rows}</dl>'


def _again(findings: Sequence[Finding], about: Mapping[str, str]) -> str:
    commands = [about["command"]] if "command" in about else [finding.command for finding in findings]
    if not commands:
        return ""
    lines = "\n".join(dict.fromkeys(commands))
    return f"<h3>To do it again</h3>\n<pre><code>{escape(lines)}</code></pre>"


# -- one claim --------------------------------------------------------------------------------------------


def finding_html(
    finding: Finding, figures: Sequence[str], before: Finding | None = None, after: Finding | None = None
) -> str:
    """The page of a claim: the verdict, what it rests on, and how to check it; `figures` are its panels, drawn."""
    sections = [_grid(finding), *(_panel(finding, k, svg) for k, svg in enumerate(figures))]
    # With an odd number of figures one place in two columns is free, and the effects have it.
    sections += [_forest(finding, wide=len(finding.panels) % 2 == 0), _parts(finding), _arms(finding)]
    asides = [
        page.section("How it could come out against the claim", f"<p>{escape(finding.design)}</p>"),
        _listed("Notes", finding.notes),
        _listed("What was not tried", finding.untried),
    ]
    asides = [each for each in asides if each]
    if len(asides) % 2:  # one would stand alone
        asides[0] = asides[0].replace("<section>", '<section class="wide">', 1)
    sections += [*asides, _check(finding)]
    cards = "\n".join(section for section in sections if section)
    return _whole(
        f"{finding.id}: {finding.title}",
        f'{_head(finding, before, after)}\n<main class="cards">\n{cards}\n</main>',
    )


def _head(finding: Finding, before: Finding | None, after: Finding | None) -> str:
    links = ['<a href="index.html">all claims</a>']
    for arrow, other in (("← {}", before), ("{} →", after)):
        if other is not None:
            links.append(f'<a href="{escape(other.id)}.html">{arrow.format(escape(other.id))}</a>')
    return f"""<header>
<p class="kicker">memloci study, claim {escape(finding.id)} · {" · ".join(links)}</p>
<h1>{escape(finding.title)}</h1>
<div class="verdict">{_badge(finding.verdict)}<p class="said">{escape(finding.said)}</p></div>
<p class="theorem">{escape(finding.statement)}<br><span class="small">{escape(finding.source)}</span></p>
{_tiles(finding)}
</header>"""


def _tiles(finding: Finding) -> str:
    part = deciding(finding)
    value = part.effect.value if part else None
    content = {
        "effect": DASH if part is None or value is None else f"{page.data(value)}",
        "interval": escape(interval_text(part)) or DASH if part else DASH,
        "should be": DASH if part is None else f"{part.side} {page.data(part.margin)}",
        "parts": f"{len(finding.parts):,}",
        "arms": f"{len(finding.arms):,}",
        "seeds": f"{finding.seeds:,}",
        "profile": escape(finding.profile),
        "time of one core": escape(duration(finding.seconds)),
    }
    return page.tiles(content)


def _panel(finding: Finding, k: int, svg: str) -> str:
    panel, name = finding.panels[k], f"{escape(finding.id)}-{k + 1}"
    drawn = page.figure(
        svg, f"{panel.title}: {panel.y}{f' over {panel.x}' if panel.x else ''}", caption(panel)
    )
    return f"<section>\n{drawn}{files_of(name)}\n</section>"


def _grid(finding: Finding) -> str:
    if finding.grid is None:
        return ""
    drawn = page.figure(grid_figure(finding.grid), finding.grid.title, CAPTION, ' class="broad"')
    return f'<section class="wide">\n{drawn}{files_of(f"{escape(finding.id)}-grid")}\n</section>'


def files_of(name: str) -> str:
    return f'<p class="note">The numbers: <a href="{name}.csv">{name}.csv</a>, the figure: <a href="{name}.svg">{name}.svg</a></p>'


def _forest(finding: Finding, wide: bool) -> str:
    if not finding.parts:
        return page.section("What decides", "<p>There are no parts, so nothing is decided.</p>", wide=wide)
    kinds = dict.fromkeys(BARS[part.rests_on].format(level=_level(finding)) for part in finding.parts)
    words = f"{' '.join(kinds)} Upright lines are margins. The side that the claim says is shaded."
    svg = effects_figure(finding.parts)
    drawn = page.figure(svg, "Effects against their margins", words)
    return page.section("What decides", drawn + files_of(f"{escape(finding.id)}-effects"), wide=wide)


BARS = {
    "seeds": "Bars are {level} intervals over seeds.",
    "proof": "An effect without a bar is proved.",
    "counts": "Bars go from the cases that are certain to those that may be.",
}


def _level(finding: Finding) -> str:
    return f"{number(100 * shared_level(len(finding.parts)))} %"


def _parts(finding: Finding) -> str:
    if not finding.parts:
        return ""
    rows = []
    for part in finding.parts:
        value = part.effect.value
        rows.append(
            [
                escape(part.says),
                DASH if value is None else f"{page.data(value)} {escape(part.unit)}",
                "proved" if part.rests_on == "proof" else _interval(part.effect.low, part.effect.high),
                f"{part.side} {page.data(part.margin)}",
                _badge(part.verdict),
            ]
        )
    counts = all(part.rests_on == "counts" for part in finding.parts)
    interval = "from, to" if counts else f"{_level(finding)} interval"
    heads = ["part", "effect", interval, "should be", "verdict"]
    return page.section(
        "Parts of the claim", f'<div class="parts">{page.table(heads, rows, wordy=(0,))}</div>', wide=True
    )


def _interval(low: float | None, high: float | None) -> str:
    return DASH if low is None or high is None else f"[{page.data(low)}, {page.data(high)}]"


FIRST = ("arm", "parameters", "rate", "tuning", "seeds", "mean")
TOLD_ELSEWHERE = ("low", "high", "at_edge")  # with the mean and the rate
WORDY = ("arm", "tuning")
MOST_ARMS = 60  # that a page shows without being asked


def _arms(finding: Finding) -> str:
    """A row per arm, with whatever is known of it."""
    if not finding.arms:
        return ""
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
    wordy = [j for j in texts if shown[j] in WORDY]
    numeric = [j for j in range(len(shown)) if j not in texts]
    notes = [f"Compared by {finding.measure}."]
    if beside_mean and finding.measure.startswith("err_"):
        notes.append("Means of errors, and their intervals, are of the logarithms.")
    if any(row.get("tuning") for row in finding.arms):
        notes.append("Rates were tuned on other seeds: beside each rate its median held-out loss.")
    if any(row.get("at_edge") for row in finding.arms):
        notes.append("A rate at the end of the grid may not be the best there is.")
    table = page.table([escape(head) for head in heads], rows, numeric=numeric, wordy=wordy)
    if len(rows) > MOST_ARMS:
        table = f"<details><summary>All {len(rows):,} arms</summary>{table}</details>"
    body = f'<div class="arms">{table}</div><p class="note">{escape(" ".join(notes))}</p>'
    return page.section("Arms", body, wide=True)


def _arm_cell(row: Mapping[str, Any], key: str, interval: bool) -> str:
    value = row.get(key)
    if key == "mean" and interval and value is not None:
        return f"{_cell(value)} {_interval(row.get('low'), row.get('high'))}"
    if key == "rate" and row.get("at_edge"):
        return f'{_cell(value)} <span class="small">end of the grid</span>'
    if key == "tuning" and isinstance(value, Mapping):
        return ", ".join(
            f'<span class="mark">{escape(_rate(rate))}: {_cell(loss)}</span>' for rate, loss in value.items()
        )
    return _cell(value)


def _rate(rate: Any) -> str:
    try:
        return number(float(rate))
    except ValueError:
        return str(rate)


def _cell(value: Any) -> str:
    match value:
        case None:
            return DASH
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return page.data(value) if value == value else DASH
        case str():
            return escape(value)
        case _:
            return escape(json.dumps(value, ensure_ascii=False, default=str))


def _listed(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return page.section(title, "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>")


def _check(finding: Finding) -> str:
    names = [f"{finding.id}-{k + 1}" for k in range(len(finding.panels))]
    names += [f"{finding.id}-grid"] if finding.grid is not None else []
    names += [f"{finding.id}-effects"] if finding.parts else []
    links = ", ".join(f'<a href="{escape(name)}.csv">{escape(name)}.csv</a>' for name in names)
    numbers = f"<p>The numbers of the figures: {links}.</p>" if names else ""
    time = f"<p>It took {escape(duration(finding.seconds))} of one core, for runs, compilations and computations.</p>"
    body = f"<pre><code>{escape(finding.command)}</code></pre>\n{time}\n{numbers}"
    return page.section("To do it again", body, wide=True)
