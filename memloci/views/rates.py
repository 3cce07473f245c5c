"""The page of error against one size: two figures, the numbers, slopes, and what is missing."""

from collections.abc import Iterable
from html import escape

from memloci.study.claim import Panel
from memloci.study.rates import RatesFinding
from memloci.views import page
from memloci.views.drawing import standalone
from memloci.views.rates_tables import panel_cells, power_of, slope_cells
from memloci.views.run_tables import duration
from memloci.views.study import files_of, panel_csv
from memloci.views.study_figures import panel_figure

NAMES = ("sup", "mean-square")  # of files, panel by panel
READING = {
    "certified": "Filled diamonds are proved: no input does worse. Of the mean square, the square of that is proved.",
    "measured": "Open markers were observed.",
    "bound": "A grey line is a proved floor: the text below says of what. It is hatched below where nothing in the figure is there.",
    "trained": "Bars are 95 % intervals over seeds, of logarithms; faint dots are the seeds.",
    "paper": "Of the dotted line only the slope means something: it starts at a point of another curve.",
}


def rates_files(finding: RatesFinding) -> dict[str, bytes]:
    """rates.html, and for either panel its figure and its numbers."""
    files = {"rates.html": rates_html(finding).encode()}
    for name, panel in zip(NAMES, finding.panels, strict=True):
        files[f"rates-{name}.svg"] = standalone(panel_figure(panel, f"rates-{name}"))
        files[f"rates-{name}.csv"] = panel_csv(panel)
    return files


def rates_html(finding: RatesFinding) -> str:
    title = f"{finding.task}: error against {finding.vary}"
    figures = [_figure(name, panel) for name, panel in zip(NAMES, finding.panels, strict=True)]
    pair = f'<div class="pair even">{"".join(figures)}</div>{_reading(finding)}'
    sections = [page.section("Error", pair, wide=True)]
    for panel in finding.panels:
        heads, rows = panel_cells(panel)
        body = page.table(list(map(escape, heads)), _escaped(rows), numeric=range(1, len(heads)))
        sections.append(page.section(escape(panel.title), body, wide=True))
    sections += [_slopes(finding), _models(finding), _notes(finding), _command(finding)]
    head = f"""<header>
<p class="kicker">memloci rates</p>
<h1>{escape(title)}</h1>
<p>{escape(finding.description)}</p>
{_tiles(finding)}
</header>"""
    cards = "\n".join(section for section in sections if section)
    return page.whole(title, f'{head}\n<main class="cards">\n{cards}\n</main>')


def _tiles(finding: RatesFinding) -> str:
    return page.tiles(
        {
            "memory": escape(finding.kind),
            "varies": escape(finding.vary),
            "from": f"{finding.values[0]:,}",
            "to": f"{finding.values[-1]:,}",
            "encoding": escape(finding.encoding),
            "seeds": f"{finding.seeds:,}" if finding.seeds else "none trained",
            "steps": f"{finding.steps:,}" if finding.seeds else "–",
            "time on one core": duration(finding.seconds),
        }
    )


def _figure(name: str, panel: Panel) -> str:
    drawn = page.figure(panel_figure(panel, f"rates-{name}"), panel.title, "")
    return f"<div>{drawn}{files_of(f'rates-{name}')}</div>"


def _reading(finding: RatesFinding) -> str:
    kinds = {series.kind for panel in finding.panels for series in panel.series}
    return f'<p class="note">{escape(" ".join(text for kind, text in READING.items() if kind in kinds))}</p>'


def _slopes(finding: RatesFinding) -> str:
    heads, rows = slope_cells(finding)
    body = "" if rows else "<p>No curve has two points that fall.</p>"
    body += page.table(list(map(escape, heads)), _escaped(rows), numeric=(2, 3, 4, 5)) if rows else ""
    body += (
        f'<p class="note">log10 of the error against log10 of {power_of(finding)}, by least squares. Compiled curves: the '
        "part that falls; their intervals say how straight it is. Trained: all points and seeds.</p>"
    )
    body += f"<p>The paper: {escape(finding.paper)}.</p>" if finding.paper else ""
    body += "".join(f"<p>{escape(name)}: {escape(says)}.</p>" for name, says in finding.floors.items())
    return page.section("Slopes", body, wide=True)


def _models(finding: RatesFinding) -> str:
    """What was built: a line for every model that a compiled curve uses."""
    seen = dict.fromkeys((row["curve"], row["what"]) for row in finding.rows if row.get("what"))
    if not seen:
        return ""
    return page.section("Compiled models", page.table(["curve", "model"], _escaped(seen), wordy=(1,)))


def _notes(finding: RatesFinding) -> str:
    if not finding.notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in finding.notes)
    return page.section("What is missing, and why", f"<ul>{items}</ul>")


def _command(finding: RatesFinding) -> str:
    return page.section("Again", f"<pre><code>{escape(finding.command)}</code></pre>", wide=True)


def _escaped(rows: Iterable[Iterable[str]]) -> list[list[str]]:
    return [[escape(cell) for cell in row] for row in rows]
