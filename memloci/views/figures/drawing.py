"""What all figures share: colours, style, ticks, and SVG that is the same for the same numbers.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; in the SVG they are CSS variables, so that a page
may change them for dark mode. Proved numbers are filled diamonds, observed ones hollow circles, everywhere.
"""

import io
import math
import re
import textwrap
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from memloci.core.numbers import decimals, literal

INK, SOFT, GRID = "#1a1c1f", "#6b7078", "#d9dce1"
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"

SERIES = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)
VARIABLES = {
    INK: "currentColor",
    SOFT: f"var(--soft, {SOFT})",
    GRID: f"var(--grid, {GRID})",
    BLUE: f"var(--blue, {BLUE})",
    ORANGE: f"var(--orange, {ORANGE})",
    GREEN: f"var(--green, {GREEN})",
    RED: f"var(--red, {RED})",
    PURPLE: f"var(--purple, {PURPLE})",
    SKY: f"var(--sky, {SKY})",
}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "memloci",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.4,
    "axes.unicode_minus": True,
}


def style() -> dict[Any, Any]:
    """Matplotlib's own defaults and ours: what a user has set does not change a figure."""
    return {**matplotlib.rcParamsDefault, **STYLE, "backend": "svg"}


WIDTH = 5.6  # inches; pages scale it
FLOAT_BITS = {"float32": 24, "float64": 53}
MOST_SERIES = len(SERIES)
DOWN, LEFT, RIGHT = 7, 4, 5  # matplotlib's carets, with the tip where they are put
PROVED = {"marker": "D", "markersize": 7, "linestyle": "none", "color": BLUE}
OBSERVED = {
    "marker": "o",
    "markersize": 8,
    "linestyle": "none",
    "color": RED,
    "markerfacecolor": "none",
    "markeredgewidth": 1.8,
}


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _decade(x: float, _: Any = None) -> str:
    exponent = round(math.log10(x)) if x > 0 else 0
    return "10" + str(exponent).translate(_RAISED) if exponent not in (0, 1) else f"{literal(10**exponent)}"


def decade_ticks(axis: Any, ticks: int = 5) -> None:
    axis.set_major_locator(LogLocator(10, numticks=ticks + 1))
    axis.set_major_formatter(FuncFormatter(_decade))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(which="minor", length=0)


def lag_ticks(axes: Axes) -> None:
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if high < 500 * max(low, 1) else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{decimals(x)}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_tick_params(which="minor", length=0)


def note_on(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=SOFT)
    if axes.get_yscale() == "linear":
        axes.set_yticks([])


def plain_text(text: str) -> str:
    """A user's text: a dollar starts no formula."""
    return text.replace("$", r"\$")


def svg_of(name: str, height: float, draw: Callable[[Figure], None], width: float = WIDTH) -> str:
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        draw(figure)
        for axes in figure.axes:
            axes.patch.set_alpha(0)
        out = io.StringIO()
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", metadata=metadata, transparent=True)  # type: ignore[arg-type]
    return _tidy(out.getvalue(), name)


def _tidy(svg: str, name: str) -> str:
    """Only the <svg> element, scalable, its ids its own, its colours variables of the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = re.sub(r"\n *<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    # Matplotlib names clip paths by memory addresses; numbers in order are the same in every run.
    names = {old: f"{name}-{k}" for k, old in enumerate(dict.fromkeys(re.findall(r' id="([^"]+)"', svg)))}
    renamed = lambda match: match[1] + names.get(match[2], match[2]) + match[3]
    svg = re.sub(r'( id=")([^"]+)(")', renamed, svg)
    svg = re.sub(r"(url\(#)([^)]+)(\))", renamed, svg)
    svg = re.sub(r'(href="#)([^"]+)(")', renamed, svg)
    svg = re.sub(r"font: ([^;\"]*?)(\d[\d.]*px)[^;\"]*", r"font-size: \2", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    for color, variable in VARIABLES.items():
        svg = re.sub(rf"(?<=: ){color}\b", variable, svg)
    return svg.replace("<svg ", '<svg role="img" ', 1).rstrip() + "\n"


def wrapped(text: str, width: int, lines: int) -> str:
    """At most so many lines; a dollar starts no formula."""
    rows = textwrap.wrap(" ".join(text.split()), width)
    if len(rows) > lines:
        rows = [*rows[: lines - 1], rows[lines - 1][: width - 1].rstrip() + "…"]
    return plain_text("\n".join(rows))


def standalone(svg: str) -> bytes:
    """A file that slides and drawing programs read: colours and a font of its own, and a size."""
    svg = re.sub(r"var\(--\w+, (#\w+)\)", r"\1", svg).replace("currentColor", INK)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    size = f' width="{box[1]}pt" height="{box[2]}pt"' if box else ""
    font = ' font-family="Helvetica, Arial, DejaVu Sans, sans-serif"'
    return svg.replace("<svg ", f"<svg{size}{font} ", 1).encode()
