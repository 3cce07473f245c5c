"""No text becomes markup, on any page: what a user, a task, a run or a finding says is shown as it was written."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError

from memloci import pipeline
from memloci.observe.lags import HeadLags, TokenInfluence
from memloci.observe.portrait import Portrait, portrait
from memloci.observe.probes import AttentionMap
from memloci.study.claim import Finding
from memloci.study.panel import Curve, Panel
from memloci.study.rates import RatesFinding
from memloci.study.rates_curves import Slope
from memloci.study.statistics import Estimate, Part
from memloci.sweeps.summary import summary
from memloci.synthesize import Built, Plans
from memloci.tasks.short import Adaptive, Fixed
from memloci.tradeoffs.rates import stated
from memloci.train.diagnosis import Diagnosis
from memloci.train.portrait import CompiledReference, TrainingPortrait, Uses
from memloci.train.reproduce import Reproduction
from memloci.views.html import render
from memloci.views.html.compiled import IndexEntry, index_html, report_html
from memloci.views.html.parts import Code, Figure, Span, Sup, Table
from memloci.views.html.rates import rates_html
from memloci.views.html.study import study_pages
from memloci.views.html.sweep import sweep_html
from memloci.views.html.training import training_html
from tools import purity

from .checked import Checked
from .test_follow import _trace
from .test_training_report import diverged, fit_of, swept

HOSTILE = """<script>alert('1')</script><img src=x onerror="y">&amp;{{ 7*7 }}"'"""
COMPARES = "where(x1 < 0.5, x1, 0.5)"


def told(page: str | bytes, files=()) -> str:
    """The text of a page that is whole: its tags are known ones and close, and it runs and fetches nothing."""
    found = Checked(page, files)
    assert not {"script", "img"} & set(found.tags)
    return found.text


def panel(title: str = HOSTILE) -> Panel:
    trained = Curve(HOSTILE, (1, 2), ((0.5, 0.6), (0.1, 0.2)))
    return Panel(title, HOSTILE, HOSTILE, (trained,), marks=((HOSTILE, 0.7),))


def finding() -> Finding:
    words = ("title", "statement", "source", "design", "measure", "profile", "summary", "command")
    arm = {HOSTILE: HOSTILE, "arm": HOSTILE, "tuning": {HOSTILE: 1.0}, "other": {HOSTILE: [HOSTILE]}}
    return Finding(
        id="1a",
        seeds=3,
        parts=(Part(HOSTILE, Estimate(1.0, 0.5, 1.5), 0.3, HOSTILE),),
        panels=(panel(),),
        arms=(arm,),
        notes=(HOSTILE,),
        untried=(HOSTILE,),
        seconds=1.0,
        **dict.fromkeys(words, HOSTILE),  # type: ignore[arg-type]
    )


# -- pages ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled() -> tuple[Built, Portrait]:
    built = pipeline.compile(Fixed(lags=[1], readout="x1"), route="rotary")
    return built, portrait(built.model, built.task, built.plan.circuit)


def test_a_report_of_weights(compiled):
    built, looked = compiled
    task = Fixed(description=HOSTILE, lags=[1], readout=COMPARES)
    c = replace(built.certificate, assumptions=(HOSTILE,), arithmetic=HOSTILE, precision=HOSTILE)
    c = replace(c, terms=(replace(c.terms[0], name=HOSTILE, formula=HOSTILE), *c.terms[1:]))
    chosen = replace(built.plan, circuit=replace(built.plan.circuit, why=HOSTILE, route=HOSTILE))
    hostile = Built(task, built.model, c, chosen)
    plans = Plans(task, 1e-3, HOSTILE, (chosen,), (), {HOSTILE: HOSTILE})
    rates = replace(stated(task), notes={"heads": HOSTILE, "width": HOSTILE})
    page = told(report_html(hostile, looked, rates, plans))
    assert page.count(HOSTILE) >= 14 and page.count(COMPARES) == 2
    index = index_html([IndexEntry(HOSTILE, HOSTILE, hostile)], HOSTILE)
    assert told(index, [HOSTILE]).count(HOSTILE) == 5  # the title twice, the name, the description, the route


def test_a_report_that_follows_a_query(compiled):
    built, looked = compiled
    channels = [{"name": "a", "values": [1, 2]}, {"name": "v", "range": [-1, 1]}]
    task = Adaptive(channels=channels, lags=["where(a0 < 2, 1, 2)"], readout="v1")
    trace = _trace(9, [2])
    recall = replace(trace.recalls[0], recalled={HOSTILE: 1.0}, target={HOSTILE: 1.0})
    looks = tuple(replace(look, purpose=HOSTILE) for look in trace.heads)
    trace = replace(trace, channels=(HOSTILE, "v"), recalls=(recall,), heads=looks)
    page = report_html(replace(built, task=task), replace(looked, traces=(trace,)), stated(task))
    assert "Follow one query" in page and told(page).count(HOSTILE) >= 3
    assert "where(a0 < 2, 1, 2)" in told(page)


def test_a_report_of_training():
    task = Fixed(description=HOSTILE, lags=[2], readout=COMPARES)
    fit = fit_of(Fixed(lags=[2], readout="x1"))
    z, weights = np.arange(1, 5), np.full(4, 0.25)
    hostile = TrainingPortrait(
        fits=(replace(fit, record=replace(fit.record, stopped=HOSTILE)),),
        best=0,
        diagnoses=(Diagnosis(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}),),
        architecture=fit.model.architecture,
        reproduction=Reproduction({HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}, (HOSTILE,)),
        task=task,
        targets={},
        uses=Uses(
            TokenInfluence(z, weights, weights, 2),
            (HeadLags(0, 0, z, weights, weights, weights),),
            (AttentionMap(0, 0, np.eye(4)),),
            2,
        ),
        compiled=CompiledReference(None, HOSTILE),
    )
    page = told(training_html(hostile))
    assert page.count(HOSTILE) >= 15 and page.count(COMPARES) == 2
    lost = replace(hostile, fits=(diverged(fit),), uses=None)
    assert told(training_html(lost)).count(HOSTILE) >= 10
    name = HOSTILE.replace("/", "")
    data = fit_of({"kind": "text", "path": name, "sha256": "0", "length": 24})
    data = replace(data, record=replace(data.record, measures={**data.record.measures, "bits_per_byte": 1.0}))
    text = replace(hostile, fits=(data,), task=None, uses=None, compiled=None)
    assert told(training_html(text)).count(name) == 2


def test_a_report_of_a_sweep():
    tasks = [Fixed(description=f"{HOSTILE}{k}", lags=[k], readout="x1 * (x0 < 1)") for k in (1, 2)]
    runs = [swept(2, seed, 0.1, task=task) for task in tasks for seed in (0, 1)]
    runs.append({**swept(2, 2, 0.1), "record": None, "history": None, "error": HOSTILE})
    found = summary(HOSTILE, runs)
    reasons = tuple(one and replace(one, name=HOSTILE, sentence=HOSTILE) for one in found.reasons)
    page = told(sweep_html(replace(found, reasons=reasons)))
    assert page.count(HOSTILE) >= 5


def test_a_report_of_a_study():
    files = study_pages([finding()], {HOSTILE: HOSTILE, "command": HOSTILE})
    assert told(files["1a.html"], files).count(HOSTILE) >= 15
    assert told(files["index.html"], files).count(HOSTILE) >= 6


def test_a_report_of_rates():
    slope = Slope(HOSTILE, "trained", "err_sup", Estimate(-1.0, -2.0, 0.0), 1, 2)
    found = RatesFinding(
        task=HOSTILE,
        description=HOSTILE,
        kind=HOSTILE,
        vary=HOSTILE,
        values=(1, 2),
        encoding=HOSTILE,
        seeds=2,
        steps=3,
        panels=(panel(), panel("mean square")),
        rows=({"curve": HOSTILE, "what": HOSTILE},),
        slopes=(slope,),
        paper=HOSTILE,
        floors={HOSTILE: HOSTILE},
        notes=(HOSTILE,),
        seconds=1.0,
        command=HOSTILE,
    )
    files = [f"rates-{name}.{kind}" for name in ("sup", "mean-square") for kind in ("csv", "svg")]
    assert told(rates_html(found), files).count(HOSTILE) >= 15


# -- components -------------------------------------------------------------------------------------------

CELLS = {
    "text": HOSTILE,
    "code": Code(HOSTILE),
    "span": Span(HOSTILE, "note"),
    "class": Span("x", '"><script>'),
    "sup": Sup(HOSTILE),
    "several": (HOSTILE, 1, None, (Code(HOSTILE),)),
}
USES = {
    "show(cell)": CELLS.values(),
    "section(cell)": CELLS.values(),
    "badge(cell, cell)": [HOSTILE],
    "code_block(cell)": [HOSTILE],
    "listed([cell])": [HOSTILE],
    "files_of(cell)": [HOSTILE],
    "table(cell)": [Table([cell], [[cell]]) for cell in CELLS.values()],
    "tiles(cell)": [{HOSTILE: cell} for cell in CELLS.values()],
    "figure(cell)": [Figure('<svg role="img"></svg>', HOSTILE, HOSTILE)],
}


@pytest.mark.parametrize("use", USES)
def test_a_component_shows_a_text_as_it_is(use):
    call = f"{{% call ui.{use} %}}{{% endcall %}}" if use.startswith("section") else f"{{{{ ui.{use} }}}}"
    template = render.ENVIRONMENT.from_string(f'{{% import "components.html" as ui %}}{call}')
    for cell in USES[use]:
        found = Checked(f"<div>{template.render(cell=cell)}</div>", [f"{HOSTILE}.csv", f"{HOSTILE}.svg"])
        assert not {"script", "img"} & set(found.tags)
        assert HOSTILE in found.text or "x" in found.text


def test_what_a_template_lacks_is_an_error_not_a_blank():
    with pytest.raises(UndefinedError, match="has no attribute"):
        render.ENVIRONMENT.from_string("{{ page.nothing }}").render(page=finding())


# -- purity -----------------------------------------------------------------------------------------------


def test_pages_are_rendered_without_jax():
    """Rendering evaluates no model: the library that could is not even loaded."""
    code = (
        "import sys, pkgutil, importlib\n"
        "import memloci.views.html as html, memloci.views.figures as figures, memloci.views.text as text\n"
        "for part in (html, figures, text):\n"
        "    for module in pkgutil.iter_modules(part.__path__, part.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "from memloci.study.claim import Finding\n"
        "from memloci.views.html.study import study_pages\n"
        "words = ('title', 'statement', 'source', 'design', 'measure', 'profile', 'summary', 'command')\n"
        "empty = dict.fromkeys(('parts', 'panels', 'arms', 'notes', 'untried'), ())\n"
        "pages = study_pages([Finding(id='1a', seeds=1, seconds=1.0, **empty, **dict.fromkeys(words, 'x'))], {})\n"
        "assert b'nothing is decided' in pages['1a.html']\n"
        "assert 'jax' not in sys.modules and 'equinox' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("from memloci.certify.certificate import Certificate", None),
        ("from memloci.train.spec import NUMBERS", None),
        ("from memloci.core.numbers import number", None),
        ("from memloci.study.claim import Panel", None),  # defined elsewhere, and a class there
        ("from memloci.synthesize import plan", "is a function"),
        ("from memloci.pipeline import certify", "is a function"),
        ("from memloci.observe import probes", "is a module"),
        ("import memloci.observe.probes", "is a module"),
        ("def late():\n    from memloci.train.diagnose import diagnose", "is a function"),
        ("from markupsafe import Markup", "only memloci/views/html/render.py"),
    ],
)
def test_a_view_imports_records_and_constants_only(line, problem, tmp_path):
    root = Path(purity.__file__).parent.parent
    for floor in root.joinpath("memloci").iterdir():
        if floor.name != "views":
            (tmp_path / "memloci").mkdir(exist_ok=True)
            (tmp_path / "memloci" / floor.name).symlink_to(floor)
    (tmp_path / "memloci" / "views").mkdir()
    (tmp_path / "memloci" / "views" / "page.py").write_text(line + "\n")
    found = purity.impure_imports(tmp_path)
    assert len(found) == (problem is not None) and (problem or "") in "".join(found)


def test_the_views_are_pure():
    root = Path(purity.__file__).parent.parent
    assert purity.impure_imports(root) == [] and purity.unescaped(root) == []


def test_a_template_that_trusts_a_text_is_refused(tmp_path):
    (tmp_path / "memloci" / "views").mkdir(parents=True)
    template = tmp_path / "memloci" / "views" / "page.html"
    for text in ("{{ x|safe }}", "{{ x | safe }}", "{% autoescape false %}"):
        template.write_text(f"<p>{{{{ x }}}}</p>\n{text}\n")
        assert len(purity.unescaped(tmp_path)) == 1
