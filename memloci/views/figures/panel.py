"""The panels of a study: what was found for a claim.

At each x a trained arm is the mean of its seeds with a 95 % interval (of the logarithms, on a logarithmic axis), and
its seeds as faint dots. What is proved is a solid line with filled diamonds, a proved floor is grey with hatching
below, the paper's line is dotted and only its slope means something. Words for x make rows of dots.
"""

from memloci.study.panel import Panel
from memloci.views.figures.drawing import svg_of, wrapped
from memloci.views.figures.panel_curves import curves_panel
from memloci.views.figures.panel_parts import drawn_series, head_height, in_rows
from memloci.views.figures.panel_rows import rows_panel


def panel_figure(panel: Panel, name: str = "panel") -> str:
    """Curves over numbers, or rows of dots over words. A page with several of them gives each another name."""
    xs = list(dict.fromkeys(x for series in panel.series for x in series.x))
    if not in_rows(panel):
        drawn = drawn_series(panel, {x: float(x) for x in xs})
        height = 2.75 + head_height(panel, drawn)
        return svg_of(name, height, lambda f: curves_panel(f, panel, drawn))
    words = list(dict.fromkeys(map(str, xs)))
    drawn = drawn_series(panel, {x: float(words.index(str(x))) for x in xs})
    rows = [wrapped(word, 24, 3) for word in words]
    tallest = max(row.count("\n") + 1 for row in rows)
    places = [spot.x for one in drawn for spot in one.spots]
    each = max(0.3, 0.16 * max(map(places.count, places), default=1) + 0.12, 0.15 * tallest + 0.08)
    height = 0.6 + each * len(rows) + head_height(panel, drawn)
    return svg_of(name, height, lambda f: rows_panel(f, panel, drawn, rows))


def caption(panel: Panel) -> str:
    """How to read it, in words."""
    kinds = {series.kind for series in panel.series}
    seeds = any(len(values) > 1 for series in panel.series for values in series.values)
    sentences = []
    if seeds:
        how = ", both of the logarithms" if panel.log_y else ""
        sentences.append(
            f"Markers are means over seeds, bars their 95 % intervals{how}; faint dots are the seeds."
        )
    if "measured" in kinds:
        sentences.append("Open markers were observed, not proved.")
    if "certified" in kinds:
        sentences.append("Filled diamonds are proved: no input does worse.")
    if "bound" in kinds:
        sentences.append(
            "A grey line is a proved floor; the text says of what. It is hatched below where nothing in the figure is there."
        )
    if "paper" in kinds:
        sentences.append("Of the paper's dotted line only the slope means something.")
    return " ".join(sentences)
