"""The report of a study says what the findings say, in whole pages, tidy numbers and figures that never fail."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from memloci.study.claim import Claim, Finding, GridCell, Judgement, VerdictGrid, finding_from_dict
from memloci.study.panel import Curve, Panel, spot_of
from memloci.study.statistics import NOTHING, Estimate, Part, mean
from memloci.views.figures.drawing import standalone
from memloci.views.figures.effects import VERDICTS, effects_figure
from memloci.views.figures.panel import panel_figure
from memloci.views.figures.panel_curves import spread
from memloci.views.figures.panel_parts import drawn_series
from memloci.views.figures.verdict_grid import grid_figure
from memloci.views.html.study import index_html, study_pages
from memloci.views.terminal.study import claims_table, findings_table, markdown_table
from memloci.views.text.csv_files import grid_csv

from .checked import Checked

HOSTILE = """<script>alert('1')</script><img src=x onerror="y">&amp;</h1>$x$ | `"""


HEADS = (1, 2, 4)
CURVES = Panel(
    "Error over heads",
    "heads H",
    "largest error",
    (
        Curve("lin", HEADS, ((0.5, 0.6, 0.7), (0.2, 0.3, 0.2), (0.1, 0.1, 0.2))),
        Curve("lin", HEADS, ((0.4,), (0.1,), (0.01,)), "certified"),
        Curve("compiled", HEADS, ((0.3,), (0.05,), (0.004,)), "measured"),
        Curve("no heads err less", HEADS, ((0.1,), (0.01,), (0.001,)), "bound"),
        Curve("rate", HEADS, ((0.5,), (0.25,), (0.125,)), "paper"),
    ),
    log_x=True,
    marks=(("tolerance", 0.001), ("guess", 0.9)),
)
WORDS = Panel(
    "By encoding",
    "encoding",
    "share",
    (Curve("dp", ("lin", "log"), ((0.5, 0.6), ())), Curve("floor", ("lin",), ((0.1,),), "bound")),
    log_y=False,
    marks=(("chance", 0.2),),
)
GOOD = Part("more heads help", Estimate(1.3, 1.1, 1.5), 0.3, "decades")
BAD = Part("the slope is steep", Estimate(-0.1, -0.2, 0.0), -0.5, "slope", "below")
OPEN = Part("an arm has no numbers", NOTHING, 0.3, "decades")


GRID = VerdictGrid(
    "Every claim, with every change",
    ("1a", "2b"),
    ("no change", "layer norm", "rotary encoding"),
    (
        (GridCell("confirmed", GOOD), GridCell("refuted", BAD), GridCell("not run", None)),
        (GridCell("inconclusive", OPEN), GridCell("confirmed", GOOD), GridCell("cannot be", None)),
    ),
)


def found(id: str = "1a", parts: tuple[Part, ...] = (GOOD,), **fields: Any) -> Finding:
    arm = {"arm": "lin, H=4", "parameters": 1234, "rate": 0.03, "at_edge": True, "seeds": 3, "mean": -2.0}
    arm |= {
        "low": -2.5,
        "high": -1.5,
        "diverged": 1,
        "tuning": {"0.01": 0.5, "0.03": None},
        "odd": [1, "b"],
        "measure": "err_sup",
    }
    given: dict[str, Any] = {
        "id": id,
        "title": f"Title of {id}",
        "statement": "Heads help.",
        "source": "Theorem 1",
        "design": "If heads did not help, the slope would be 0.",
        "measure": "err_sup",
        "profile": "quick",
        "seeds": 3,
        "parts": parts,
        "summary": "They do help.",
        "panels": (CURVES, WORDS),
        "arms": (arm,),
        "notes": ("A note.",),
        "untried": ("Other optimisers.",),
        "seconds": 7200.0,
        "command": f"memloci study {id} --profile quick",
    }
    return Finding(**{**given, **fields})


# -- pages ------------------------------------------------------------------------------------------------


def test_the_files_are_whole_and_lead_to_each_other():
    findings = [found("10a", panels=(WORDS,)), found("1a"), found("2b", (GOOD, BAD), panels=())]
    files = study_pages(findings, {"machine": "two cores"})
    ids = ("1a", "2b", "10a")
    expected = {"index.html", *(f"{id}.html" for id in ids)}
    effects = [f"{id}-effects" for id in ids]
    expected |= {f"{name}.{kind}" for name in ("1a-1", "1a-2", "10a-1", *effects) for kind in ("csv", "svg")}
    assert set(files) == expected
    pages = {name: Checked(content, files) for name, content in files.items() if name.endswith(".html")}
    assert pages["index.html"].links == [f"{id}.html" for id in ids]
    assert {"index.html", "2b.html", "1a-1.csv", "1a-2.svg"} <= set(pages["1a.html"].links)
    assert files == study_pages(findings, {"machine": "two cores"})


def test_a_grid_of_verdicts_is_drawn_and_listed():
    files = study_pages([found("8", panels=(), grid=GRID)], {})
    assert {"8-grid.csv", "8-grid.svg"} <= set(files)
    page = Checked(files["8.html"], files)
    assert {"8-grid.csv", "8-grid.svg"} <= set(page.links)
    rows = list(csv.DictReader(io.StringIO(grid_csv(GRID).decode())))
    assert [row["verdict"] for row in rows] == [case.verdict for cases in GRID.cases for case in cases]
    assert rows[0]["effect"] == "1.3" and rows[1]["side"] == "below" and rows[2]["part"] == ""
    svg = grid_figure(GRID)
    ET.fromstring(svg)
    assert "layer norm" in svg and "1.3 decades" in svg and "no number" in svg
    hostile = replace(GRID, title=HOSTILE, rows=(HOSTILE, "b"))
    ET.fromstring(grid_figure(hostile))


def test_many_arms_are_folded_away():
    many = found(arms=tuple({"arm": f"arm {k}", "mean": 1.0} for k in range(100)))
    page = study_pages([many], {})["1a.html"].decode()
    assert "<details><summary>All 100 arms" in page and "arm 99" in page


def test_the_index_has_every_verdict_in_its_group():
    findings = [
        found("5a", panels=()),
        found("4b", (GOOD, BAD), panels=()),
        found("1a", (GOOD, OPEN), panels=()),
    ]
    files = study_pages(findings, {"machine": "two cores", "command": "memloci study all"})
    page, told = files["index.html"].decode(), Checked(files["index.html"], files).text
    paper, own = page.split("<h2>")[1:3]
    assert "Title of 1a" in paper and "Title of 4b" in paper and "Title of 5a" not in paper
    assert "Title of 5a" in own and "Title of 1a" not in own
    row = lambda id: next(line for line in page.splitlines() if f'href="{id}.html"' in line)
    assert (
        "confirmed" in row("5a") and "[1.1, 1.5]" in row("5a") and "1.3" in row("5a") and "0.3" in row("5a")
    )
    assert "refuted" in row("4b") and "[-0.2, 0]" in row("4b") and "below" in row("4b")
    assert "inconclusive" in row("1a") and "no number" in row("1a")
    assert "1 confirmed, 1 refuted, 1 inconclusive" in told
    assert "two cores" in told and "memloci study all" in told and "quick" in told
    assert "command" not in told  # it has a place of its own
    assert "memloci study 1a" not in told  # the command of the whole is enough
    assert "memloci study 1a" in Checked(index_html(findings, {}).encode(), files).text


def test_a_claim_s_page_has_all_that_is_needed_to_check_it():
    finding = found(parts=(GOOD, BAD))
    files = study_pages([finding], {})
    page, told = files["1a.html"].decode(), Checked(files["1a.html"], files).text
    assert page.index("✗ refuted") < page.index(finding.summary) < page.index(finding.statement)
    for text in ("Theorem 1", finding.design, "A note.", "Other optimisers.", finding.command, "2.0 h"):
        assert text in told
    for part in finding.parts:
        assert part.statement in told
    assert "97.5 % interval" in told  # two parts share 5 %
    assert "lin, H=4" in told and "1,234" in told and "-2 [-2.5, -1.5]" in told
    assert "end of the grid" in told and "0.01: 0.5" in told and "0.03: –" in told and '[1, "b"]' in told
    assert page.count("<svg") == 3
    assert "measure</th>" not in page and "Compared by err_sup." in told
    steady = found(arms=({"arm": "a", "rate": 0.01, "at_edge": False, "low": 1.0},))
    told = Checked(study_pages([steady], {})["1a.html"], files).text
    assert "end of the grid" not in told and "at edge" not in told
    assert "low" in told  # without a mean it has a column of its own


def test_no_text_of_a_finding_becomes_html():
    panel = Panel(
        HOSTILE, HOSTILE, HOSTILE, (Curve(HOSTILE, (HOSTILE,), ((0.5, 1.0),)),), marks=((HOSTILE, 0.7),)
    )
    curves = replace(panel, series=(Curve(HOSTILE, (1, 2), ((0.5,), (0.1,))),))
    words = {
        name: HOSTILE
        for name in ("title", "statement", "source", "design", "measure", "profile", "summary", "command")
    }
    arm = {HOSTILE: HOSTILE, "arm": HOSTILE, "tuning": {HOSTILE: 1.0}, "other": {HOSTILE: HOSTILE}}
    part = Part(HOSTILE, Estimate(1.0, 0.5, 1.5), 0.3, HOSTILE)
    finding = found(
        parts=(part,), panels=(panel, curves), arms=(arm,), notes=(HOSTILE,), untried=(HOSTILE,), **words
    )
    files = study_pages([finding], {HOSTILE: HOSTILE, "command": HOSTILE})
    for name in ("index.html", "1a.html"):
        assert Checked(files[name], files).text.count("alert('1')") >= 4
    ET.fromstring(files["1a-1.svg"])


@pytest.mark.parametrize(
    "fields",
    [{"parts": ()}, {"arms": ()}, {"panels": ()}, {"notes": (), "untried": ()}, {"panels": (CURVES,)}],
    ids=["parts", "arms", "panels", "notes", "one panel"],
)
def test_what_is_missing_leaves_a_whole_page(fields):
    files = study_pages([found(**fields)], {})
    told = Checked(files["1a.html"], files).text
    assert ("nothing is decided" in told) == (fields.get("parts") == ())
    Checked(files["index.html"], files)


def test_no_findings_make_an_index():
    assert "No claim" in Checked(study_pages([], {})["index.html"]).text


# -- numbers ----------------------------------------------------------------------------------------------


def test_every_value_of_a_panel_is_in_its_csv():
    files = study_pages([found()], {})
    rows = list(csv.DictReader(io.StringIO(files["1a-1.csv"].decode())))
    assert list(rows[0]) == ["panel", "series", "kind", "x", "seed_index", "value"]
    values = [
        (series.name, series.kind, str(x), str(k), value)
        for series in CURVES.series
        for x, all_values in zip(series.x, series.values, strict=True)
        for k, value in enumerate(all_values)
    ]
    values += [(name, "line", "", "", value) for name, value in CURVES.marks]
    assert [(r["series"], r["kind"], r["x"], r["seed_index"], float(r["value"])) for r in rows] == values
    rows = list(csv.DictReader(io.StringIO(files["1a-2.csv"].decode())))
    assert [(r["x"], r["seed_index"], r["value"]) for r in rows if r["x"] == "log"] == [("log", "", "")]


def test_every_part_is_in_the_csv_of_effects():
    parts = GOOD, replace(BAD, rests_on="proof"), OPEN
    files = study_pages([found(parts=parts)], {})
    rows = list(csv.DictReader(io.StringIO(files["1a-effects.csv"].decode())))
    assert [(r["part"], r["verdict"], r["rests_on"]) for r in rows] == [
        (part.statement, part.verdict, part.rests_on) for part in parts
    ]
    page = files["1a.html"].decode()
    assert ">proved</td>" in page and "An effect without a bar is proved." in page


# -- figures ----------------------------------------------------------------------------------------------


def test_only_what_nothing_reaches_is_hatched():
    floor = lambda *x: Curve("floor", x, ((0.1,),) * len(x), "bound")
    drawn = lambda value, *x: panel_figure(
        Panel("t", "x", "y", (Curve("a", (1, 2, 4), ((0.5,), (value,), (0.5,))), floor(*x)))
    )
    assert "<pattern" in drawn(0.2, 1, 2, 4) and "<pattern" not in drawn(0.05, 1, 2, 4)
    assert "<pattern" in drawn(0.05, 1), "a floor at one place says nothing about another"


def texts(svg: str) -> str:
    return " ".join(" ".join(ET.fromstring(svg).itertext()).split())


def test_a_figure_names_its_axes_series_and_lines():
    svg = panel_figure(CURVES)
    told = texts(svg)
    for text in ("Error over heads", "heads H", "largest error", "lin", "lin (proved)", "tolerance", "guess"):
        assert text in told
    assert "compiled (observed)" in told and "rate (slope only)" in told
    assert "no heads err less (floor, proved)" in told
    assert "<pattern" in svg  # the hatching below the floor
    assert svg == panel_figure(CURVES)
    told = texts(panel_figure(WORDS))
    for text in (
        "By encoding",
        "encoding",
        "share",
        "lin",
        "log",
        "dp",
        "chance",
        "no number",
        "floor (proved)",
    ):
        assert text in told


def test_means_and_intervals_are_of_logarithms_on_a_logarithmic_axis():
    spot = spot_of(1.0, [0.1, 1.0, 10.0], log=True, floor=0.0)
    expected = mean([-1.0, 0.0, 1.0])
    assert expected.low is not None and expected.high is not None
    assert (spot.centre, spot.low, spot.high) == pytest.approx((1.0, 10**expected.low, 10**expected.high))
    assert spot_of(1.0, [0.1, 1.0, 10.0], log=False, floor=0.0).centre == pytest.approx(3.7)


def test_a_zero_on_a_logarithmic_axis_is_marked_and_has_no_mean():
    spot = spot_of(1.0, [0.0, 1.0, 1e-300], log=True, floor=1e-20)
    assert spot.centre is None and spot.zeros == 2 and spot.seeds == (1.0,) and not spot.empty
    panel = Panel("t", "x", "y", (Curve("a", (1, 2), ((0.0, 0.1), (0.2, 0.3))),))
    assert "0 or nearly" in texts(panel_figure(panel))
    assert "0 or nearly" not in texts(panel_figure(replace(panel, log_y=False)))


def test_sizes_of_models_are_not_rounded():
    panel = Panel("t", "width", "y", (Curve("a", (8, 1024), ((0.5,), (0.1,))),), log_x=True)
    assert "1,024" in texts(panel_figure(panel))


@pytest.mark.parametrize("size", [1e-12, 1.0, 2_000.0, 1e9])
def test_values_close_together_have_ticks_at_any_size(size):
    panel = Panel("t", "x", "y", (Curve("a", (1, 2), ((1.3 * size,), (1.31 * size,))),))
    told = re.findall(r"\d[\d,.]*(?:e-?\d+)?", texts(panel_figure(panel)))
    near = {float(text.replace(",", "")) / size for text in told}
    assert sum(1.05 < tick < 1.65 for tick in near) >= 3, told


def test_only_points_that_belong_together_are_joined():
    values = ((0.1, 0.2), (0.2, 0.3), (0.4, 0.5))
    apart = (Curve("a", (0.31, 0.12, 0.23), values), Curve("b", (0.41, 0.52, 0.63), values))
    joined = (Curve("a", (3, 1, 2), values), Curve("b", (4, 5, 6), values))
    of = lambda series: drawn_series(
        Panel("t", "x", "y", series), {x: float(x) for one in series for x in one.x}
    )
    assert {one.line for one in of(apart)} == {"none"}
    assert "none" not in {one.line for one in of(joined)}
    assert [spot.x for spot in of(joined)[0].spots] == [1.0, 2.0, 3.0]  # no line goes back


NAN, INF = float("nan"), float("inf")
ODD = {
    "nothing": (),
    "empty": (Curve("a", (1, 2), ((), ())),),
    "empty words": (Curve("a", ("u", "v"), ((), ())),),
    "no x": (Curve("a", (), ()),),
    "one x": (Curve("a", (4,), ((0.1, 0.2),)), Curve("b", (4,), ((0.01,),), "bound")),
    "zeros": (Curve("a", (0, 1), ((0.0,), (0.0, 0.0))),),
    "zeros in words": (Curve("a", ("u", "v"), ((0.0,), (0.0, 1.0))),),
    "alike": (Curve("a", (1, 2), ((0.5, 0.5), (0.5, 0.5))),),
    "no numbers": (Curve("a", (1, 2), ((NAN, INF), (-INF, 0.5))),),
    "negative": (Curve("a", (-1, 2), ((-1.0, -2.0), (3.0,))),),
    "tiny": (Curve("a", (1, 2), ((1e-300,), (1e-299,))),),
    "wide": (Curve("a", (1, 2), ((1e-9, 1.0), (1e9,))), Curve("b", (1, 2), ((1e-90,), (1e-80,)), "bound")),
    "ten": tuple(Curve(f"{k} " * 40, (1, 2, 3), ((0.1 * k + 0.1, 0.2),) * 3) for k in range(10)),
    "scattered": tuple(
        Curve(f"{k}", tuple(0.01 * k + 0.13 * j for j in range(4)), ((0.1, 0.2),) * 4) for k in (1, 2, 3)
    ),
    "mixed x": (Curve("a", (1, "u", True), ((0.1,), (0.2,), (0.3,))),),
    "paper only": (
        Curve("a", (1, 2), ((0.5,), (0.1,)), "paper"),
        Curve("b", ("u",), ((0.1,),), "certified"),
    ),
}


@pytest.mark.long(3)
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("log_y", [True, False], ids=["log", "linear"])
def test_odd_panels_are_drawn(name, log_y):
    marks = (("low", 0.0), ("high", 0.5), ("a long name of a line that is close", 0.501))
    svg = panel_figure(Panel("title " * 30, "x", "y", ODD[name], log_y, log_y, marks))
    assert "title" in texts(svg) and not re.search(r"\b(nan|inf)\b", svg)


@pytest.mark.parametrize("name", ["nothing", "empty", "empty words"])
def test_a_panel_without_numbers_says_so(name):
    assert "no numbers" in texts(panel_figure(Panel("title", "x", "y", ODD[name])))


def test_effects_show_verdicts_as_words_and_shapes():
    told = texts(effects_figure([GOOD, BAD, OPEN]))
    for text in ("confirmed", "refuted", "inconclusive", "1.3 [1.1, 1.5]", "no number", "decades", "slope"):
        assert text in told
    for part in (GOOD, BAD, OPEN):
        assert part.statement in told
    shapes = [shape for _, shape, _ in VERDICTS.values()]
    assert len(set(shapes)) == 3
    assert "refuted" not in texts(effects_figure([GOOD]))


@pytest.mark.parametrize(
    "part",
    [
        replace(GOOD, effect=Estimate(0.5, None, None)),
        replace(GOOD, effect=Estimate(0.3, 0.3, 0.3)),
        replace(GOOD, effect=Estimate(0.5, -1e9, 1e9)),
        replace(GOOD, effect=Estimate(0.0, 0.0, 0.0), margin=0.0, unit=""),
        replace(GOOD, effect=Estimate(-1e-12, -2e-12, 0.0), margin=1e12, statement="long " * 200),
    ],
    ids=["no interval", "exact", "huge", "zeros", "far"],
)
def test_odd_effects_are_drawn(part):
    assert part.verdict in texts(effects_figure([part]))


def test_a_figure_on_its_own_needs_no_page():
    svg = standalone(panel_figure(CURVES)).decode()
    assert "var(" not in svg and "currentColor" not in svg
    root = ET.fromstring(svg)
    assert float((root.get("width") or "").removesuffix("pt")) > 300


def test_names_that_would_touch_are_moved_apart():
    assert spread([0.2, 0.8], [0.1, 0.1]) == pytest.approx([0.2, 0.8])
    assert spread([0.5, 0.5], [0.1, 0.1]) == pytest.approx([0.45, 0.55])
    placed = spread([0.1, 0.12, 0.13, 0.9], [0.1, 0.2, 0.1, 0.1])
    for k, (a, b) in enumerate(zip(placed, placed[1:], strict=False)):
        assert b - a >= ([0.1, 0.2, 0.1, 0.1][k] + [0.1, 0.2, 0.1, 0.1][k + 1]) / 2 - 1e-12


# -- tables -----------------------------------------------------------------------------------------------


def printed(table: Any) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_terminal_lists_findings_and_claims():
    told = printed(
        findings_table([found("2a", (GOOD, BAD)), found("1a", title="[bold]x[/bold]"), found("3a", ())])
    )
    assert told.index("1a") < told.index("2a") < told.index("3a")
    assert "[bold]x[/bold]" in told  # no markup
    assert "✗ refuted" in told and "1.3 decades [1.1, 1.5], margin 0.3" in told and "2.0 h" in told
    judge = lambda evidence: Judgement((), "", ())
    claims = [
        Claim(id, f"Title {id}", "s", f"Source {id}", "d", "err_sup", lambda profile: [], judge)
        for id in ("10a", "2a")
    ]
    told = printed(claims_table(claims))
    assert told.index("Title 2a") < told.index("Source 2a") < told.index("Title 10a")


def test_the_markdown_table_is_the_same_from_stored_findings():
    findings = [found("10a", (GOOD, BAD)), found("2a", title="a | b\nc <i>"), found("1a", (GOOD, OPEN))]
    table = markdown_table(findings)
    stored = [finding_from_dict(json.loads(json.dumps(finding.to_dict()))) for finding in findings]
    assert table == markdown_table(stored) == markdown_table(findings[::-1])
    assert table.splitlines() == [
        "| id | claim | quick | what decides: effect [interval] | seeds |",
        "|---|---|---|---|---:|",
        "| 1a | Title of 1a | inconclusive | an arm has no numbers: no number, margin 0.3 | 3 |",
        "| 2a | a \\| b c &lt;i> | confirmed | more heads help: 1.3 decades [1.1, 1.5], margin 0.3 | 3 |",
        "| 10a | Title of 10a | refuted | the slope is steep: -0.1 slope [-0.2, 0], margin -0.5, should be below | 3 |",
    ]


def test_the_markdown_table_has_a_column_for_every_profile():
    findings = [
        found("1a", (GOOD, OPEN)),
        found("2a"),
        replace(found("1a", (GOOD,)), profile="full", seeds=10),
    ]
    assert markdown_table(findings).splitlines() == [
        "| id | claim | quick | full | what decides: effect [interval] | seeds |",
        "|---|---|---|---|---|---:|",
        "| 1a | Title of 1a | inconclusive | confirmed | more heads help: 1.3 decades [1.1, 1.5], margin 0.3 | 10 |",
        "| 2a | Title of 2a | confirmed | – | more heads help: 1.3 decades [1.1, 1.5], margin 0.3 | 3 |",
    ]
