"""The page about a compiled model: what is remembered, what is proved, what was observed, and how to get it again.

Proved numbers are rounded up when they are shortened, and the whole number is in the `value` of its <data> element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memloci.certify.certificate import Certificate
from memloci.core.numbers import decimals
from memloci.core.proved import ProvedLeast
from memloci.tasks.memories.kernel import Convolution
from memloci.views.figures import certificate as proved
from memloci.views.figures.drawing import MOST_SERIES
from memloci.views.figures.model import MOST_POSITIONS, attention_figure, example_figure, kernels_figure
from memloci.views.figures.tradeoffs import heads_figure, width_figure
from memloci.views.html.follow import Followed, followed
from memloci.views.html.memory import MemoryCard, memory_card
from memloci.views.html.parts import Cell, Code, Figure, Span, Sup, Table, badge
from memloci.views.html.render import render
from memloci.views.text.mechanism import doings
from memloci.views.text.sizes import sizes_text
from memloci.views.text.tasks import memories_text, task_title, toml_or_none
from memloci.views.text.theory import model_text, rate_text

if TYPE_CHECKING:
    from memloci.observe.portrait import Portrait
    from memloci.observe.probes import Example, SlotKernel
    from memloci.observe.sup_error import Measurement
    from memloci.synthesize import Built, Plan, Plans
    from memloci.tradeoffs.rates import HeadRates, Rates, Theorem, WidthRates

MOST_DOINGS = 24  # rows of what heads do


@dataclass(frozen=True)
class IndexEntry:
    """One row of an index: a compiled task and where its report lies."""

    name: str
    href: str
    built: Built
    measurement: Measurement | None = None


@dataclass(frozen=True)
class CompiledIndexPage:
    title: str
    entries: Sequence[IndexEntry]
    titles: list[str]
    statuses: list[Span]
    heads: list[str]
    met: int


@dataclass(frozen=True)
class HeadsCard:
    """Error against heads and mass."""

    theorem: Theorem
    figure: Figure | None  # None: there is the model alone, so nothing to draw
    front: Table
    lemma: Table | None
    lemma_needs: int | None
    E: float


@dataclass(frozen=True)
class WidthCard:
    rates: WidthRates
    figure: Figure
    table: Table


@dataclass(frozen=True)
class WallCard:
    figure: Figure
    beyond: Mapping[int, int | None]
    mixed: bool  # log heads are among those that sum
    kernels: bool


@dataclass(frozen=True)
class CompiledPage:
    title: str
    built: Built
    measurement: Measurement | None
    rates: Rates
    status: Span
    tiles: dict[str, Cell]
    memory: MemoryCard
    certified: Figure
    tightness: float | None  # the largest error seen over the bound
    followed: list[Followed]
    plans: Table
    slopes: Table
    statements: Table | None  # the paper's theorems about this task
    heads: list[HeadsCard]
    width: WidthCard | None
    mechanism: Table
    doings: int
    kernels: Figure | None
    maps: Figure | None
    outputs: int  # that the error terms speak of
    terms: Table
    terms_figure: Figure
    levels: Table
    levels_figure: Figure | None
    wall: WallCard | None
    example: Figure
    precisions: Table
    toml: str | None  # None: it cannot be written


def report_html(
    built: Built,
    portrait: Portrait,
    rates: Rates,
    plans: Plans | None = None,
    measurement: Measurement | None = None,
) -> str:
    """The page about one compiled model."""
    task, certificate = built.task, built.certificate
    doings_of_circuit = doings(built.plan.circuit)
    outputs = {term.name.rsplit("output ", 1)[-1] for term in certificate.terms if "output " in term.name}
    ratio = (
        measurement.err_sup / certificate.bound if measurement and 0 < certificate.bound < math.inf else 0.0
    )
    page = CompiledPage(
        title=task_title(task),
        built=built,
        measurement=measurement,
        rates=rates,
        status=_status(certificate),
        tiles=_tiles(built, measurement),
        memory=memory_card(task, portrait.targets),
        certified=_certified(certificate, measurement),
        tightness=ratio if ratio > 0 else None,
        followed=followed(portrait.traces, task, certificate),
        plans=_plans(built.plan, plans),
        slopes=_slopes(rates),
        statements=_statements(rates),
        heads=[_heads(heads) for heads in rates.heads],
        width=rates.width and _width(rates.width),
        mechanism=Table(
            ["layer", "heads", "what for", "weigh the past by", "read", "write to", "then neurons compute"],
            [
                [d.layers, d.heads, d.purpose, d.sees, d.reads, d.writes, d.neurons]
                for d in doings_of_circuit[:MOST_DOINGS]
            ],
            numeric=(1,),
            wordy=(2, 4, 6),
        ),
        doings=len(doings_of_circuit),
        kernels=_kernels(portrait.kernels),
        maps=_maps(built, portrait),
        outputs=len(outputs),
        terms=_terms(certificate),
        terms_figure=Figure(proved.terms_figure(certificate), "Error terms", "All of these are proved."),
        levels=_levels(certificate),
        levels_figure=_levels_figure(certificate),
        wall=_wall(built, portrait),
        example=_example(portrait.example),
        precisions=Table(
            ["computed in", "error at most"],
            [*certificate.bound_by_precision.items(), ("exact arithmetic", certificate.exact_bound)],
            numeric=(1,),
        ),
        toml=toml_or_none(task),
    )
    return render("compiled.html", page)


def index_html(entries: Sequence[IndexEntry], title: str = "Compiled memories") -> str:
    """A page that lists compiled tasks, each with a link to its report."""
    page = CompiledIndexPage(
        title,
        entries,
        [task_title(entry.built.task) for entry in entries],
        [_status(entry.built.certificate) for entry in entries],
        [sizes_text(entry.built.model.architecture, "heads") for entry in entries],
        sum(entry.built.certificate.met for entry in entries),
    )
    return render("compiled_index.html", page)


def _status(certificate: Certificate) -> Span:
    return badge("met", "met") if certificate.met else badge("missed", "missed")


def _tiles(built: Built, measurement: Measurement | None) -> dict[str, Cell]:
    c, a = built.certificate, built.model.architecture
    return {
        "certified bound": c.bound,
        "largest error seen": measurement and measurement.err_sup,
        "route": built.plan.route,
        "layers": a.layers,
        "heads per layer": sizes_text(a, "heads"),
        "FFN width": sizes_text(a, "width"),
        "parameters": built.model.parameter_count,
        "bits that suffice": "none do" if c.bits is None else c.bits,
    }


# -- plans and rates --------------------------------------------------------------------------------------


def _plans(chosen: Plan, plans: Plans | None) -> Table:
    others = [chosen] if plans is None else [*plans.met, *plans.missed]
    rows: list[list[Cell]] = []
    marked = None
    for k, plan in enumerate(others):
        a, c = plan.model.architecture, plan.certificate
        if plan is chosen or (plan.route, plan.certificate) == (chosen.route, chosen.certificate):
            marked = k
        sizes = a.layers, sizes_text(a, "heads"), plan.model.parameter_count
        rows.append([Code(plan.route), _status(c), c.bound, *sizes, c.bits, plan.why])
    for route, reason in ({} if plans is None else plans.obstacles).items():
        rows.append([Code(route), "cannot serve", *[None] * 5, reason])
    heads = ["route", "status", "bound", "layers", "heads", "parameters", "bits", "why"]
    return Table(heads, rows, (2, 3, 4, 5, 6), (7,), marked)


def _slopes(rates: Rates) -> Table:
    """The paper's rates and ours: slopes, for its constants are not explicit."""
    rows: list[list[Cell]] = [
        ["attention error, heads H", _powers(rates.paper.heads), _powers(rates.measured["heads"])],
        ["readout error, width m", ("m", Sup("−1/2")), _powers(rates.measured["width"])],
    ]
    return Table(["what falls", "the paper's rate", "measured here"], rows, wordy=(2,))


def _statements(rates: Rates) -> Table | None:
    """The paper's theorems about this task, each with its conditions."""
    rows: list[list[Cell]] = [
        [statement.result, model_text(statement), rate.encoding, Code(rate_text(rate)), Code(statement.width)]
        for statement in rates.paper.statements
        for rate in statement.rates
    ]
    heads = ["theorem", "model", "encoding", "attention error", "condition on the width"]
    return Table(heads, rows, wordy=(3, 4)) if rows else None


def _powers(text: str) -> Cell:
    """H^-3.0 as it is written by hand."""
    parts = re.split(r"\^-(n|[\d.]+)", text)  # every second one is an exponent
    return tuple(Sup(f"−{part}") if k % 2 else part for k, part in enumerate(parts))


def _heads(rates: HeadRates) -> HeadsCard:
    caption = (
        "Left: more heads, each fit at the mass that pays in its precision. Right: less mass, with the model's "
        "number of heads. Shaded: proved to be out of reach, whatever the heads and exponents."
    )
    figure = None
    if len(rates.front) > 1:
        figure = Figure(heads_figure(rates), "Error against heads and against mass", caption, broad=True)
    rows: list[list[Cell]] = []
    for point in rates.front:
        floor = rates.floor(point.mass)
        rows.append([str(point.heads), float(point.mass), point.E, ProvedLeast(floor) if floor > 0 else None])
    heads = ["heads", "mass", "error at most", "any heads of this mass: at least"]
    marked = max((k for k, point in enumerate(rates.front) if point == rates.built), default=None)
    front = Table(heads, rows, (0, 1, 2, 3), marked=marked)
    return HeadsCard(rates.theorem, figure, front, _lemma(rates), rates.lemma_needs, rates.built.E)


def _lemma(rates: HeadRates) -> Table | None:
    """The heads of the paper's own proof: a row for every number of them."""
    if not rates.lemma:
        return None
    columns = {name: {p.heads: p for p in points} for name, points in rates.lemma.items()}
    counts = sorted({heads for points in columns.values() for heads in points})
    rows = [[str(H), *(column[H].E if H in column else None for column in columns.values())] for H in counts]
    return Table(["heads", *(f"error, {name}" for name in columns)], rows, tuple(range(len(columns) + 1)))


def _width(rates: WidthRates) -> WidthCard:
    figure = Figure(width_figure(rates), "Readout error against width", "Every point is proved.")
    return WidthCard(rates, figure, Table(["neurons", "readout error at most"], rates.rows, numeric=(0, 1)))


# -- what was looked up in the model ----------------------------------------------------------------------


def _kernels(kernels: Sequence[SlotKernel]) -> Figure | None:
    """Kernels against their targets, where heads have one."""
    if not kernels:
        return None
    caption = (
        "Lines: the kernel with which the weights weigh the past, through all layers. Circles: what it should "
        "be. Below: the difference at each lag, evaluated in float64."
    )
    if len(kernels) > MOST_SERIES:
        caption += f" The first {MOST_SERIES} of {len(kernels)} memories are shown."
    return Figure(kernels_figure(kernels), "Compiled kernels and their targets", caption)


def _maps(built: Built, portrait: Portrait) -> Figure | None:
    maps, n, layers = portrait.maps, len(portrait.example.x), built.plan.circuit.layers
    if not maps:
        return None
    parts = [f"The first {len(maps)} of {portrait.heads} heads."] if portrait.heads > len(maps) else []
    parts.append("Row t shows where position t reads from; a lag is a diagonal.")
    if any(layer.attention != "dpf" for layer in layers):
        parts.append("Pointers leave the diagonals: each position looks where its own lag says.")
    if any(layer.normalisation == "softmax" for layer in layers):
        parts.append("Heads with nothing to recall rest at position 0.")
    parts.append("The colour follows the square root of the weight, so that small weights are seen.")
    if any(n <= lag < math.inf for lag in built.task.lag_bounds):
        parts.append(f"Lags of {n:,} or more do not fit the picture.")
    return Figure(attention_figure(maps), "Attention weights", " ".join(parts))


def _example(example: Example) -> Figure:
    which = f"The last {MOST_POSITIONS} positions of a sequence"
    which = which if len(example.x) > MOST_POSITIONS else "A sequence"
    caption = f"{which} drawn from the task's input distribution. Errors of exactly 0 are not drawn."
    return Figure(example_figure(example), "An example sequence", caption, broad=True)


def _wall(built: Built, portrait: Portrait) -> WallCard | None:
    wall, task = portrait.wall, built.task
    if wall is None:
        return None
    sums = [layer for layer in built.plan.circuit.layers if layer.normalisation == "none"]
    round_it = "Depth, rotary and t5 heads" if task.stationary else "Rotary heads and chains of shifts"
    caption = f"Shaded: out of reach for one lin layer. {round_it} go round the wall."
    svg = proved.wall_figure(wall.points, wall.lags, built.certificate.bits)
    return WallCard(
        Figure(svg, "Bits against lag", caption),
        wall.beyond,
        any(layer.encoding == "log" for layer in sums),
        any(isinstance(recall, Convolution) for recall in task.recalls),
    )


# -- what is proved ---------------------------------------------------------------------------------------


def _certified(certificate: Certificate, measurement: Measurement | None) -> Figure:
    caption = (
        "A search can only find errors up to the bound; where the two are far apart, the proof was generous."
    )
    return Figure(proved.certified_figure(certificate, measurement), "Proved and observed errors", caption)


def _terms(certificate: Certificate) -> Table:
    rows = [
        [term.name, term.formula, term.E, _share(term.E, certificate.bound)] for term in certificate.terms
    ]
    return Table(["term", "formula", "at most", "of the bound"], rows, numeric=(2, 3), wordy=(1,))


def _share(E: float, bound: float) -> str | None:
    if not 0 < bound < math.inf:
        return None
    percent = 100 * E / bound
    return "< 0.1%" if 0 < percent < 0.1 else f"{decimals(min(percent, 100), 1)}%"


def _levels(certificate: Certificate) -> Table:
    """Errors of memories that later lags read: within the margin they vanish."""
    rows: list[list[Cell]] = [
        [
            str(k),
            memories_text(level.memories),
            level.E,
            ProvedLeast(level.margin),
            badge("within", "met") if level.within else badge("outside", "missed"),
        ]
        for k, level in enumerate(certificate.levels)
    ]
    return Table(["level", "read by later lags", "may err by", "margin", ""], rows, numeric=(2, 3))


def _levels_figure(certificate: Certificate) -> Figure | None:
    if not any(0 < v < math.inf for level in certificate.levels for v in (level.E, level.margin)):
        return None
    svg = proved.levels_figure(certificate)
    return Figure(svg, "Errors of nested levels", "Bars: what is proved of the error.")
