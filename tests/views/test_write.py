"""The page is whole, asks for nothing, shows what was certified, and lets no text of a user become HTML."""

import math
import re
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser

import jax.random as jr
import pytest

from memloci.approx.kernels.lower_bounds import LowerBound
from memloci.certify.certificate import Level
from memloci.core.numbers import lower_number, number
from memloci.core.proved import Proved
from memloci.observe.sup_error import Measurement, measure
from memloci.pipeline import Built, compile, plan, report, write
from memloci.synthesize import Plans
from memloci.tasks.short import Adaptive, Essential, Fixed
from memloci.theory.paper_rates import paper_rates
from memloci.tradeoffs.rates import Fitted, HeadRates, Rates, Theorem, WidthRates
from memloci.views.html.compiled import IndexEntry, index_html

HOSTILE = """<script>alert('1')</script><img src=x onerror="y">&amp;</h1>$x$"""
VOID = {"meta", "br", "img", "link", "hr", "input"}


class Checked(HTMLParser):
    """Every tag that opens closes, in order; attributes and ids are remembered."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.data: list[tuple[float, str]] = []
        self._value: float | None = None
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "data":
            self._value = float(dict(attrs)["value"] or "nan")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self._value is not None:
            self.data.append((self._value, data))
            self._value = None


@pytest.fixture(scope="module")
def made() -> tuple[Built, Plans, Measurement]:
    task = Fixed(description="a short delay", lags=[3], readout="x1")
    plans = plan(task, routes=["rotary", "depth-1"])
    built = compile(task, plans.best)
    return built, plans, measure(built.model, task, key=jr.key(0), sequences=4, steps=4, starts=1, length=16)


@pytest.fixture(scope="module")
def page(made) -> str:
    return report(*made)


def test_page_is_well_formed_and_its_ids_are_distinct(page):
    found = Checked(page)
    ids = [value for _, name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 50
    used = re.findall(r"url\(#([^)]+)\)", page) + [
        value[1:] for _, name, value in found.attributes if name.endswith("href") and value[:1] == "#"
    ]
    assert set(used) <= set(ids)
    assert found.tags.count("svg") == 7


def test_page_asks_for_nothing(page):
    found = Checked(page)
    assert not {"script", "link", "iframe", "object", "base", "form"} & set(found.tags)
    for _, name, value in found.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert value.startswith(("#", "data:image/png;base64,"))
    style = re.sub(r"url\(#[^)]*\)", "", page)
    assert "url(" not in style and "@import" not in style
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {
        "http://www.w3.org/2000/svg",  # names of formats, never fetched
        "http://www.w3.org/1999/xlink",
    }
    assert "default-src 'none'" in page


def test_page_contains_the_numbers_of_the_certificate(made, page):
    built, plans, seen = made
    c = built.certificate
    values = {value for value, _ in Checked(page).data}
    assert {float(c.bound), float(c.exact_bound), c.tolerance, c.mass} <= values
    assert {float(term.E) for term in c.terms} <= values
    assert {float(E) for E in c.bound_by_precision.values()} <= values
    assert float(seen.err_sup) in values and float(seen.err_mean_square) in values
    assert {float(p.certificate.bound) for p in (*plans.met, *plans.missed)} <= values
    for text in (built.plan.route, built.plan.why, *c.assumptions, "memloci verify DIR"):
        assert text in page


def test_a_printed_bound_is_still_a_bound(page):
    for x in (1.23456e-7, 0.0011111, 0.9999, 1.0, 123.41, 99.999, 123456.7, 3e-300):
        assert float(number(Proved(x)).replace(",", "")) >= x
        assert float(number(x).replace(",", "")) == pytest.approx(x, rel=5e-3)
        assert float(lower_number(x).replace(",", "")) <= x
    assert number(Proved(math.inf)) == "infinite" and number(0.0) == "0"


def test_status_is_shown(made, page):
    assert '<span class="badge met">met</span><span>No input' in page
    built = made[0]
    missed = replace(built, certificate=replace(built.certificate, status="missed"))
    assert '<span class="badge missed">missed</span>' in index_html([IndexEntry("one", "one.html", missed)])


def test_infinite_bounds_and_no_bits_are_told(made):
    built = made[0]
    nothing = Proved(math.inf)
    c = replace(
        built.certificate,
        status="missed",
        bound=nothing,
        exact_bound=nothing,
        bits=None,
        bound_by_precision=dict.fromkeys(built.certificate.bound_by_precision, nothing),
        terms=tuple(replace(term, E=nothing) for term in built.certificate.terms),
    )
    html = report(replace(built, certificate=c))
    Checked(html)
    assert "No bound could be proved" in html and "none do" in html


def test_hostile_texts_are_escaped(made):
    built, plans, seen = made
    task = Fixed(description=HOSTILE, lags=[3], readout="x1")
    chosen = replace(built.plan, circuit=replace(built.plan.circuit, why=HOSTILE))
    c = replace(built.certificate, assumptions=(HOSTILE,), arithmetic=HOSTILE)
    c = replace(c, terms=(replace(c.terms[0], name=HOSTILE, formula=HOSTILE), *c.terms[1:]))
    hostile = replace(plans, obstacles={HOSTILE: HOSTILE})
    made = Built(task, built.model, c, chosen)
    html = report(made, hostile, seen)
    index = index_html([IndexEntry(HOSTILE, HOSTILE, made, seen)], HOSTILE)
    for text in (html, index):
        found = Checked(text)
        assert not {"script", "img"} & set(found.tags)
        assert not any(name.startswith("on") for _, name, _ in found.attributes)


# -- pointers ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pointer() -> tuple[Built, Plans]:
    channels = [{"name": "a", "values": [1, 2]}, {"name": "v", "range": [-1, 1]}]
    task = Adaptive(channels=channels, lags=["a0", "a0 + a1"], readout="v2")
    plans = plan(task, routes=["rotary", "chain"])
    return compile(task, plans.best), plans


@pytest.fixture(scope="module")
def pointer_page(pointer) -> str:
    return report(*pointer)


def test_a_query_can_be_followed_without_script(pointer_page):
    found = Checked(pointer_page)
    assert "Follow one query" in pointer_page and not {"script", "form", "button"} & set(found.tags)
    buttons = [value for tag, name, value in found.attributes if (tag, name) == ("input", "id")]
    labels = [value for tag, name, value in found.attributes if (tag, name) == ("label", "for")]
    assert buttons == labels and buttons[:2] == ["follow-0", "follow-1"] and 6 <= len(buttons) <= 12
    assert [name for tag, name, _ in found.attributes if tag == "input"].count("checked") == 1
    assert pointer_page.count('<div class="panel">') == len(buttons)
    # The rule that shows the panel of the button that is chosen, and only that.
    assert ".follow input:checked + label + .panel { display: block; }" in pointer_page
    ids = [value for _, name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_pages_of_pointers_have_no_kernels_and_no_wall(pointer, pointer_page):
    titles = re.findall(r"<h2>(.*?)</h2>", pointer_page)
    assert "What the heads do" in titles and "Attention maps" in titles
    assert not {"Kernels against targets", "The wall"} & set(titles)
    assert "memory 2 is the token at lag a0 + a1 (at most 4)" in pointer_page and "K = 1" in pointer_page
    level = pointer[0].certificate.levels[0]
    assert {float(level.E), level.margin} <= {value for value, _ in Checked(pointer_page).data}
    assert 'met">within</span>' in pointer_page and "not within the margin" not in pointer_page


def test_a_level_outside_its_margin_is_named(pointer):
    built = pointer[0]
    lost = Level((1,), Proved(0.375), 0.25)
    c = replace(built.certificate, status="missed", levels=(lost,))
    html = report(replace(built, certificate=c))
    verdict = re.sub(r"<[^>]+>", "", html[html.index('class="verdict"') : html.index('class="tiles"')])
    assert "Memory 1 may err by 0.375, which is not within the margin of 0.25" in verdict
    assert 'missed">outside</span>' in html


def test_the_chosen_route_is_marked_though_circuits_hold_arrays(pointer):
    built, plans = pointer
    again = replace(built.plan, circuit=replace(built.plan.circuit))
    html = report(replace(built, plan=again), plans)
    assert html.count('<tr class="chosen">') == 1


# -- rates ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rated() -> Rates:
    """A theorem and a floor, made up; what they are is tested where they are proved."""
    model = Fitted(4, 1257.0, Proved(0.0147))
    line = LowerBound("lin", "lag 3", 1257.0, 0.0, 0.0021789, 0.9, 0.0007, (0,), (Fraction(1),))
    theorem = Theorem("lin", "lag 3", 1257.0, model.E, 0.0021789, 989.0)
    heads = HeadRates(
        "one-layer-lin",
        "lin",
        "float32",
        model,
        {"float32": (Fitted(3, 9.0, Proved(0.05)), model)},
        (Fitted(4, 32.0, Proved(0.9)), model),
        (Fitted(4, 32.0, Proved(0.9)), model),
        (line,),
        -4.25,
        theorem,
        1.0,
        {"exact": (Fitted(16, 1e20, Proved(0.75)),), "float32": (Fitted(16, 2.0, Proved(1.0)),)},
        3_210,
    )
    width = WidthRates("x1 < x2", ((4, Proved(0.1)), (8, Proved(0.03))), (6, Proved(0.05)), -1.74, "ridges")
    return Rates(paper_rates(Fixed(lags=[3], readout="x1")), (heads,), width)


def test_the_heads_of_the_papers_proof_are_told(made, rated):
    text = re.sub(r"<[^>]+>", " ", report(*made, rates=rated))
    assert "The heads of the paper's own proof (Lemma F.1)" in text and "error, exact" in text
    assert "3,210" in text and "0.75" in text


def test_the_theorem_the_floor_and_the_slopes_are_told(made, rated):
    html = report(*made, rates=rated)
    found = Checked(html)
    assert found.tags.count("svg") == 9
    text = re.sub(r"<[^>]+>", "", html)
    # The mass and the least error are rounded down: what is printed is proved.
    assert (
        "Theorem: no one-layer lin architecture, whatever its heads and exponents (p &gt; 0), with mass at most "
        "1,250 has an l1 error below 0.00217 for lag 3 (proved). This one has 0.0147, 6.75 times that."
        in text
    )
    assert "H<sup>−n</sup> for every n (Theorem 3.1)" in html and "m<sup>−1/2</sup>" in html
    assert "lin: H<sup>−4.2</sup> from 3 to 4 heads" in html and "the slope is −1.74" in html
    assert "x1 &lt; x2" in html and {0.0021789, 0.1, 0.03, 1257.0} <= {value for value, _ in found.data}


@pytest.mark.slow
def test_a_theorem_about_mass_and_none_at_all(made, rated):
    heads = rated.heads[0]
    told = {}
    for name, change in {"mass": {"E_least": 0.0}, "none": {"E_least": 0.0, "mass_least": 0.0}}.items():
        theorem = replace(heads.theorem, **change)
        html = report(*made, rates=replace(rated, heads=(replace(heads, theorem=theorem),)))
        told[name] = re.sub(r"<[^>]+>", "", html)
    E = lower_number(heads.theorem.E)
    assert f"with mass below 989 has an l1 error of {E} or less for lag 3 (proved)" in told["mass"]
    alone = replace(rated, heads=(replace(heads, front=heads.front[-1:]),), width=None)
    assert Checked(report(*made, rates=alone)).tags.count("svg") == 7  # one point is not drawn
    assert "Nothing is proved of the least error" in told["none"] and "Theorem:" not in told["none"]


def test_rates_that_were_not_measured_are_only_stated(page):
    assert "The paper's rates" in page and "not measured: no model of one lin or log layer" in page
    assert "exact, no neurons" in page and "Theorem:" not in page and "Theorem 3.1" in page


@pytest.mark.slow
def test_a_one_layer_page_has_its_theorem():
    """From a compiled model to the sentence: the numbers are the circuit's and the floor's."""
    built = compile(Fixed(lags=[2], readout="x1"), tolerance=0.1, route="one-layer-lin")
    html = report(built)
    Checked(html)
    assert (
        "Theorem:</strong> no one-layer lin architecture" in html and "Error against heads and mass" in html
    )


def test_index_links_every_entry(made):
    built, _, seen = made
    html = index_html(
        [IndexEntry("one", "one/report.html", built, seen), IndexEntry("two", "two/report.html", built)]
    )
    found = Checked(html)
    assert [value for tag, name, value in found.attributes if (tag, name) == ("a", "href")] == [
        "one/report.html",
        "two/report.html",
    ]
    assert {float(built.certificate.bound), float(seen.err_sup)} <= {value for value, _ in found.data}


def test_page_of_a_kernel_that_was_not_measured():
    task = Essential(kernels=["exp(-0.3 * z)"], readout="0.5 * x1")
    plans = plan(task, routes=["one-layer-lin"])
    html = report(compile(task, plans.best), plans)
    Checked(html)
    assert "Nothing was measured" in html and "exp(-0.3 * z)" in html


def test_write_puts_the_same_page_beside_the_model(made, page, tmp_path):
    write(made[0], tmp_path / "model", made[1], made[2])
    assert (tmp_path / "model" / "report.html").read_text() == page
