"""The page of error against one size: two figures, the numbers, slopes, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memloci.views.figures.drawing import standalone
from memloci.views.figures.panel import panel_figure
from memloci.views.html.parts import Cell, Figure, Table
from memloci.views.html.render import render
from memloci.views.text.csv_files import panel_csv
from memloci.views.text.rates import panel_cells, power_of, slope_cells
from memloci.views.text.sizes import duration

if TYPE_CHECKING:
    from memloci.study.rates import RatesFinding

NAMES = ("sup", "mean-square")  # of files, panel by panel
READING = {
    "certified": "Filled diamonds are proved: no input does worse. Of the mean square, the square of that is proved.",
    "measured": "Open markers were observed.",
    "bound": "A grey line is a proved floor: the text below says of what. It is hatched below where nothing in the figure is there.",
    "trained": "Bars are 95 % intervals over seeds, of logarithms; faint dots are the seeds.",
    "paper": "Of the dotted line only the slope means something: it starts at a point of another curve.",
}


@dataclass(frozen=True)
class RatesPage:
    title: str
    finding: RatesFinding
    tiles: dict[str, Cell]
    figures: dict[str, Figure]  # by the name of their files
    reading: str
    panels: dict[str, Table]
    slopes: Table
    power: str
    models: Table  # what was built: a line for every model that a compiled curve uses


def rates_files(finding: RatesFinding) -> dict[str, bytes]:
    """rates.html, and for either panel its figure and its numbers."""
    files = {"rates.html": rates_html(finding).encode()}
    for name, panel in zip(NAMES, finding.panels, strict=True):
        files[f"rates-{name}.svg"] = standalone(panel_figure(panel, f"rates-{name}"))
        files[f"rates-{name}.csv"] = panel_csv(panel)
    return files


def rates_html(finding: RatesFinding) -> str:
    named = {f"rates-{name}": panel for name, panel in zip(NAMES, finding.panels, strict=True)}
    kinds = {series.kind for panel in finding.panels for series in panel.series}
    cells = {panel.title: panel_cells(panel) for panel in finding.panels}
    models = dict.fromkeys((row["curve"], row["what"]) for row in finding.rows if row.get("what"))
    page = RatesPage(
        f"{finding.task}: error against {finding.vary}",
        finding,
        _tiles(finding),
        {name: Figure(panel_figure(panel, name), panel.title) for name, panel in named.items()},
        " ".join(text for kind, text in READING.items() if kind in kinds),
        {title: Table(heads, rows, numeric=range(1, len(heads))) for title, (heads, rows) in cells.items()},
        Table(*slope_cells(finding), numeric=(2, 3, 4, 5)),
        power_of(finding),
        Table(["curve", "model"], list(models), wordy=(1,)),
    )
    return render("rates.html", page)


def _tiles(finding: RatesFinding) -> dict[str, Cell]:
    return {
        "memory": finding.kind,
        "varies": finding.vary,
        "from": finding.values[0],
        "to": finding.values[-1],
        "encoding": finding.encoding,
        "seeds": finding.seeds or "none trained",
        "steps": finding.steps if finding.seeds else None,
        "time on one core": duration(finding.seconds),
    }
