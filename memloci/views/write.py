"""Assembles the report: one HTML page that needs nothing beside it.

No script, no font, no image from elsewhere; its content security policy says so to the browser. Every text
that a user wrote is escaped. Proved numbers are rounded up when they are shortened, and the whole number is
in the `value` of its <data> element.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol, runtime_checkable

from memloci.certify.certificate import Certificate, Level
from memloci.core.errors import BadInput
from memloci.core.numbers import decimals, number, power_of_two
from memloci.core.proved import Proved
from memloci.model.transformer import Transformer
from memloci.observe import probes
from memloci.observe.sup_error import Measurement
from memloci.observe.trace import memory_slots, told_positions, traces
from memloci.synthesize import Plan, Plans
from memloci.tasks.memories.base import Recall
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from memloci.tradeoffs.rates import Fitted, HeadRates, Rates, Theorem, measured
from memloci.views import figures, page
from memloci.views.drawing import MOST_SERIES
from memloci.views.follow import follow_html
from memloci.views.mechanism import doings
from memloci.views.plan_tables import outside
from memloci.views.sizes import sizes_text
from memloci.views.tables import task_toml

TOLD_LAG = 128  # the wall of farther lags takes longer to compute than a page should
MOST_DOINGS = 24  # rows of what heads do


@runtime_checkable
class Record(Protocol):
    """What a report is about: `memloci.pipeline.Built`."""

    @property
    def task(self) -> Task: ...
    @property
    def model(self) -> Transformer: ...
    @property
    def certificate(self) -> Certificate: ...
    @property
    def plan(self) -> Plan: ...


@dataclass(frozen=True)
class Entry:
    """One row of an index: a compiled task and where its report lies."""

    name: str
    href: str
    built: Record
    seen: Measurement | None = None


# -- pages ------------------------------------------------------------------------------------------------


def report_html(
    built: Record, plans: Plans | None = None, seen: Measurement | None = None, rates: Rates | None = None
) -> str:
    """The page about one compiled model; rates that are not given are measured with little effort."""
    title = task_title(built.task)
    rates = measured(built.task, [built.plan]) if rates is None else rates
    example = probes.example_run(built.model, built.task)
    sections = [
        memory_section(built.task),
        _certified(built.certificate, seen),
        _follow(built, example),
        _plan(built, plans, rates),
        *map(_heads, rates.heads),
        _width(rates),
        _mechanism(built),
        _kernels(built),
        _attention(built, example),
        _terms(built.certificate),
        _wall(built),
        _example(example),
        _assumptions(built.certificate),
        _reproduce(built),
    ]
    head = f"""<header>
<p class="kicker">memloci report · {escape(built.task.kind)} memory</p>
<h1>{escape(title)}</h1>
{_verdict(built.certificate)}
{_tiles(built, seen)}
</header>"""
    cards = "\n".join(section for section in sections if section)
    return page.whole(title, f'{head}\n<main class="cards">\n{cards}\n</main>')


def index_html(entries: Sequence[Entry], title: str = "Compiled memories") -> str:
    """A page that lists compiled tasks, each with a link to its report."""
    heads = ["task", "status", "route", "layers", "heads", "parameters", "certified", "measured"]
    rows = []
    for entry in entries:
        certificate, architecture = entry.built.certificate, entry.built.model.architecture
        rows.append(
            [
                f'<a href="{escape(entry.href)}"><strong>{escape(entry.name)}</strong></a><br>'
                f'<span class="note">{escape(task_title(entry.built.task))}</span>',
                _badge(certificate),
                f"<code>{escape(entry.built.plan.route)}</code>",
                f"{architecture.layers:,}",
                sizes_text(architecture, "heads"),
                f"{entry.built.model.parameter_count:,}",
                page.data(certificate.bound),
                "–" if entry.seen is None else page.data(entry.seen.err_sup),
            ]
        )
    met = sum(entry.built.certificate.met for entry in entries)
    body = f"""<header>
<p class="kicker">memloci</p>
<h1>{escape(title)}</h1>
<p>Weights by construction, without training. <strong>Certified</strong> is a bound on the error that no
input of any length exceeds, rounding included: it is proved. <strong>Measured</strong> is the largest error that
sampling and adversarial search found. {met} of {len(entries)} meet their tolerance.</p>
</header>
<main class="cards"><section class="wide index">
{page.table(heads, rows, numeric=(3, 4, 5, 6, 7), wordy=(0,))}
</section></main>"""
    return page.whole(title, body)


# -- the top ----------------------------------------------------------------------------------------------


def task_title(task: Task) -> str:
    labels = [recall.label for recall in task.recalls]
    more = f" and {len(labels) - 4} more" if len(labels) > 5 else ""
    told = f"{task.kind} memory: {', '.join(labels[:4] if more else labels)}{more}" if labels else "no memory"
    return task.description or told


def _badge(certificate: Certificate) -> str:
    text = "met" if certificate.met else "missed"
    return f'<span class="badge {text}">{text}</span>'


def _verdict(certificate: Certificate) -> str:
    if math.isinf(certificate.bound):
        said = f"No bound could be proved in {escape(certificate.precision)}."
    else:
        said = (
            f"No input in its range, of any length, makes it err by more than {page.data(certificate.bound)} "
            f"in {escape(certificate.precision)}."
        )
    beside = "within" if certificate.met else "above"
    lost = "" if certificate.met else "".join(f" {_outside(level)}" for level in outside(certificate))
    return (
        f'<div class="verdict">{_badge(certificate)}<span>{said} '
        f"That is {beside} the tolerance of {page.data(certificate.tolerance)}.{lost}</span></div>"
    )


def _outside(level: Level) -> str:
    return (
        f"{_memories(level).capitalize()} may err by {page.data(level.E)}, which is not within the margin of "
        f"{page.below(level.margin)}: lags that read it are not certain."
    )


def _memories(level: Level) -> str:
    return ("memories " if len(level.memories) > 1 else "memory ") + ", ".join(map(str, level.memories))


def _tiles(built: Record, seen: Measurement | None) -> str:
    c, a = built.certificate, built.model.architecture
    return page.tiles(
        {
            "certified bound": page.data(c.bound),
            "largest error seen": "–" if seen is None else page.data(seen.err_sup),
            "route": escape(built.plan.route),
            "layers": f"{a.layers:,}",
            "heads per layer": sizes_text(a, "heads"),
            "FFN width": sizes_text(a, "width"),
            "parameters": f"{built.model.parameter_count:,}",
            "bits that suffice": "none do" if c.bits is None else f"{c.bits}",
        }
    )


# -- sections ---------------------------------------------------------------------------------------------


def memory_section(task: Task) -> str:
    f, lags = ", ".join(formula.text for formula in task.readouts), task.fixed_lags
    if len(lags) == task.M > 4:
        memories = f"memories 1 to {task.M} lie at the lags {', '.join(f'{lag:,}' for lag in lags.values())}"
    else:
        memories = ", ".join(f"memory {i} is {_what(recall)}" for i, recall in enumerate(task.recalls, 1))
    text = (
        f"<p>At each position the target is <code>{escape(f)}</code>, "
        f"{f'where {escape(memories)}' if memories else 'and nothing is remembered'}. "
        "A variable is a channel followed by the number of the memory; 0 is the present token.</p>"
    )
    if not task.stationary:
        text += f"<p>{_nesting(task)}</p>"
    svg = figures.memory_figure(task)
    drawn = page.figure(svg, "What is remembered", _memory_caption(task)) if svg else ""
    return page.section("The memory", text + drawn)


def _what(recall: Recall) -> str:
    if isinstance(recall, LagTable):
        return f"the token at {recall.label}"
    return f"the past weighed by {recall.label}" if recall.kernel else recall.label


def _memory_caption(task: Task) -> str:
    parts = []
    tables = [recall for recall in task.recalls if isinstance(recall, LagTable)]
    if any(not table.kernel for table in tables):
        parts.append(
            "Time runs to the right. Each dot is a lag that the memory may have, large where many symbols "
            "lead to it; the colour is the level."
        )
    elif tables:
        parts.append("Time runs to the right. Each stem is a token that must be recalled at every position.")
    if any(isinstance(recall, Convolution) for recall in task.recalls):
        parts.append("Kernels over the past: how much each lag counts.")
    return " ".join(parts)


def _nesting(task: Task) -> str:
    """Which lags wait for which memories."""
    waits = [(i, parents) for i, parents in enumerate(task.parents, start=1) if parents]
    if not waits:
        return "Every lag that is not fixed is read off the present token (the warm-up, K = 0)."
    told = "; ".join(f"memory {i} waits for {' and '.join(map(str, own))}" for i, own in waits[:6])
    return (
        f"Some lags are known only when an earlier memory has been recalled (K = {task.K}): {told}. "
        "A memory before the start is blank, and so is one whose lag asks a blank memory."
    )


def _follow(built: Record, example: probes.Example) -> str:
    task, circuit = built.task, built.plan.circuit
    if task.stationary or not memory_slots(task, circuit):
        return ""
    found = traces(built.model, task, circuit, example.x, told_positions(task, example.x))
    nested = ", and what it recalls says how far the next one looks" if task.K else ""
    text = (
        f"<p>Choose a position t and read downwards: each layer looks back from t{nested}. Solid arrows are where "
        "attention looks, dotted ones lead to the token that is read, faint ones are heads at rest. This is one "
        "sequence, observed; what holds for every sequence is in the certificate.</p>"
    )
    return page.section("Follow one query", text + follow_html(found, task, built.certificate), wide=True)


def _example(example: probes.Example) -> str:
    n, shown = len(example.x), figures.MOST_POSITIONS
    which = f"The last {shown} positions of a sequence" if n > shown else "A sequence"
    caption = f"{which} drawn from the task's input distribution. Errors of exactly 0 are not drawn."
    body = page.figure(figures.example_figure(example), "An example sequence", caption, kind=' class="broad"')
    return page.section("An example", body, wide=True)


def _plan(built: Record, plans: Plans | None, rates: Rates) -> str:
    chosen = built.plan
    others = [built.plan] if plans is None else [*plans.met, *plans.missed]
    heads = ["route", "status", "bound", "layers", "heads", "parameters", "bits", "why"]
    rows, marked = [], None
    for k, plan in enumerate(others):
        a, c = plan.model.architecture, plan.certificate
        if plan is chosen or (plan.route, plan.certificate) == (chosen.route, chosen.certificate):
            marked = k
        rows.append(
            [
                f"<code>{escape(plan.route)}</code>",
                _badge(c),
                page.data(c.bound),
                f"{a.layers:,}",
                sizes_text(a, "heads"),
                f"{plan.model.parameter_count:,}",
                "–" if c.bits is None else f"{c.bits}",
                escape(plan.why),
            ]
        )
    obstacles: Mapping[str, str] = {} if plans is None else plans.obstacles
    rows += [
        [f"<code>{escape(route)}</code>", "cannot serve", *["–"] * 5, escape(reason)]
        for route, reason in obstacles.items()
    ]
    text = (
        f"<p>Built: <code>{escape(chosen.route)}</code>, {escape(chosen.why)}. Plans that meet the tolerance "
        "come first, the cheapest on top: fewest heads in all, then layers, parameters and bits. Then those "
        "that missed it, the nearest first, and the routes that cannot serve, with the reason.</p>"
    )
    if len(rows) == 1:
        text += '<p class="note">Only this route was asked for.</p>'
    table = page.table(heads, rows, numeric=(2, 3, 4, 5, 6), wordy=(7,), marked=marked)
    return page.section("The plan, and why", text + table + _slopes(rates), wide=True)


def _slopes(rates: Rates) -> str:
    """The paper's rates and ours: slopes, for its constants are not explicit."""
    said, factors = rates.said, rates.paper.lag_factors
    where = "" if factors else " (stated for fixed lags)"
    rows = [
        ["attention error, heads H", f"H<sup>−n</sup> for every n{where}", _powers(said["heads"])],
        ["readout error, width m", "m<sup>−1/2</sup>", _powers(said["width"])],
    ]
    note = "Slopes only: the constants C(n) of the paper are not explicit."
    if factors:
        lin = number(factors["lin"]) if "lin" in factors else "no float"
        note += (
            f" The lags enter its attention rates as C(n) H<sup>−n</sup> S<sup>n+1</sup>, where S is {lin} for "
            f"lin heads (Σ e<sup>0.01 t</sup>) and {number(factors['log'])} for log heads (Σ t<sup>1.01</sup>)."
        )
    table = page.table(["what falls", "the paper's rate", "measured here"], rows, wordy=(2,))
    return f'<h3>The paper\'s rates</h3>{table}<p class="note">{note}</p>'


def _powers(text: str) -> str:
    """H^-3.0 as it is written by hand."""
    return re.sub(r"\^-([\d.]+)", r"<sup>−\1</sup>", escape(text))


def _heads(rates: HeadRates) -> str:
    if len(rates.front) < 2:  # the model alone: nothing to draw
        note = '<p class="note">Other heads and masses take minutes: <code>memloci plan --rates</code>.</p>'
        return page.section("Error against heads and mass", _theorem(rates.theorem) + note, wide=True)
    caption = (
        "Left: more heads, each fit at the mass that pays in its precision. Right: less mass, with the model's "
        "number of heads. Shaded: proved to be out of reach, whatever the heads and exponents."
    )
    figure = page.figure(
        figures.heads_figure(rates), "Error against heads and against mass", caption, kind=' class="broad"'
    )
    rows, marked = [], None
    for k, point in enumerate(rates.front):
        if point == rates.built:
            marked = k
        rows.append([f"{point.heads}", page.data(point.mass), page.data(point.E), _least(rates, point)])
    heads = ["heads", "mass", "error at most", "any heads of this mass: at least"]
    table = page.table(heads, rows, numeric=(0, 1, 2, 3), marked=marked)
    front = "<p>The Pareto front: none of the fits above has as few heads, as little mass and as small an error.</p>"
    return page.section(
        "Error against heads and mass", _theorem(rates.theorem) + figure + front + table, wide=True
    )


def _least(rates: HeadRates, point: Fitted) -> str:
    floor = rates.floor(point.mass)
    return page.below(floor) if floor > 0 else "–"


def _theorem(theorem: Theorem) -> str:
    exponents = "p &gt; 0" if theorem.rpe == "lin" else "p &gt; 1"
    what = f"one-layer {theorem.rpe} architecture, whatever its heads and exponents ({exponents}),"
    # Numbers are shortened to the side on which the printed sentence is still proved.
    memory, mass = escape(theorem.memory), page.below(theorem.mass)
    if theorem.E_least > 0:
        said = (
            f"no {what} with mass at most {mass} has an l1 error below {page.below(theorem.E_least)} for {memory} "
            f"(proved). This one has {page.data(theorem.E)}, {number(Proved(theorem.ratio))} times that."
        )
    elif theorem.mass_least > 0:
        ratio = number(Proved(theorem.mass / theorem.mass_least))
        said = (
            f"no {what} with mass below {page.below(theorem.mass_least)} has an l1 error of {page.below(theorem.E)} or less "
            f"for {memory} (proved). This one has mass {mass}, {ratio} times that; at its own mass no bound "
            "on the error was found."
        )
    else:
        return f"<p>Nothing is proved of the least error that heads of mass {mass} leave for {memory}.</p>"
    return f'<p class="theorem"><strong>Theorem:</strong> {said}</p>'


def _width(rates: Rates) -> str:
    width = rates.width
    if width is None:
        return ""
    slope = (
        "no slope can be fitted"
        if math.isnan(width.slope)
        else "the slope is " + f"{decimals(width.slope, 2)}".replace("-", "−")
    )
    text = (
        f"<p>ReLU neurons for <code>{escape(width.readout)}</code>, as {escape(width.how)}: {slope}; the paper's "
        f"rate is −1/2. This model has {width.built[0]:,} neurons and an error of at most {page.data(width.built[1])}.</p>"
    )
    rows = [[f"{m:,}", page.data(E)] for m, E in width.rows]
    table = page.table(["neurons", "readout error at most"], rows, numeric=(0, 1))
    figure = page.figure(figures.width_figure(width), "Readout error against width", "Every point is proved.")
    return page.section(
        "Readout: width against error", f'{text}<div class="pair">{figure}{table}</div>', wide=True
    )


def _mechanism(built: Record) -> str:
    """What each head is for."""
    found = doings(built.plan.circuit)
    rows = [
        [escape(text) for text in (d.layers, d.heads, d.purpose, d.sees, d.reads, d.writes, d.neurons)]
        for d in found[:MOST_DOINGS]
    ]
    heads = ["layer", "heads", "what for", "weigh the past by", "read", "write to", "then neurons compute"]
    more = (
        f'<p class="note">The first {MOST_DOINGS} of {len(found)} lines.</p>'
        if len(found) > len(rows)
        else ""
    )
    text = "<p>As the circuit was designed; <code>circuit.json</code> has the same for every slot and neuron.</p>"
    table = page.table(heads, rows, numeric=(1,), wordy=(2, 4, 6))
    return page.section("What the heads do", text + table + more, wide=True)


def _kernels(built: Record) -> str:
    """Kernels against their targets, where heads have one."""
    kernels = probes.slot_kernels(built.model, built.task, built.plan.circuit)
    if not kernels:
        return ""
    more = len(kernels) - MOST_SERIES
    caption = (
        "Lines: the kernel with which the weights weigh the past, through all layers. Circles: what it should "
        "be. Below: the difference at each lag, evaluated in float64."
        + (f" The first {MOST_SERIES} of {len(kernels)} memories are shown." if more > 0 else "")
    )
    svg = figures.kernels_figure(kernels)
    return page.section(
        "Kernels against targets", page.figure(svg, "Compiled kernels and their targets", caption)
    )


def _attention(built: Record, example: probes.Example) -> str:
    maps, count = probes.attention_maps(built.model, example.x, figures.SHOWN_MAPS)
    if not maps:
        return ""
    shown = f"The first {len(maps)} of {count} heads. " if count > len(maps) else ""
    far = [lag for lag in built.task.lag_bounds if len(example.x) <= lag < math.inf]
    beyond = f" Lags of {len(example.x):,} or more do not fit the picture." if far else ""
    points, layers = "", built.plan.circuit.layers
    if any(layer.attention != "dpf" for layer in layers):
        points = "Pointers leave the diagonals: each position looks where its own lag says. "
    if any(layer.normalisation == "softmax" for layer in layers):
        points += "Heads with nothing to recall rest at position 0. "
    caption = (
        f"{shown}Row t shows where position t reads from; a lag is a diagonal. {points}The colour follows the "
        f"square root of the weight, so that small weights are seen.{beyond}"
    )
    return page.section(
        "Attention maps", page.figure(figures.attention_figure(maps), "Attention weights", caption)
    )


def _terms(certificate: Certificate) -> str:
    rows = [
        [escape(term.name), escape(term.formula), page.data(term.E), _share(term.E, certificate.bound)]
        for term in certificate.terms
    ]
    outputs = {term.name.rsplit("output ", 1)[-1] for term in certificate.terms if "output " in term.name}
    note = (
        "The bound is the largest sum of an output's terms, plus rounding."
        if len(outputs) > 1
        else "The bound is the sum of its terms."
    )
    table = page.table(["term", "formula", "at most", "of the bound"], rows, numeric=(2, 3), wordy=(1,))
    svg = figures.terms_figure(certificate)
    figure = page.figure(svg, "Error terms", "All of these are proved.")
    return page.section("Error terms", f"<p>{note}</p>" + table + figure + _levels(certificate))


def _levels(certificate: Certificate) -> str:
    """Errors of memories that later lags read: within the margin they vanish."""
    if not certificate.levels:
        return ""
    heads = ["level", "read by later lags", "may err by", "margin", ""]
    rows = [
        [
            f"{k}",
            _memories(level),
            page.data(level.E),
            page.below(level.margin),
            '<span class="badge missed">outside</span>'
            if level in outside(certificate)
            else '<span class="badge met">within</span>',
        ]
        for k, level in enumerate(certificate.levels)
    ]
    text = (
        "<p>A symbol recalled within its margin is taken for the right one, so its error goes no further: the "
        "bound is that of the last level, provided that every earlier level stays within its margin.</p>"
    )
    table = page.table(heads, rows, numeric=(2, 3))
    figure = ""
    if any(0 < v < math.inf for level in certificate.levels for v in (level.E, level.margin)):
        svg = figures.levels_figure(certificate)
        figure = page.figure(svg, "Errors of nested levels", "Bars: what is proved of the error.")
    return f"<h3>Levels</h3>{text}{table}{figure}"


def _share(E: float, bound: float) -> str:
    if not 0 < bound < math.inf:
        return "–"
    percent = 100 * E / bound
    return "&lt; 0.1%" if 0 < percent < 0.1 else f"{decimals(min(percent, 100), 1)}%"


def _certified(certificate: Certificate, seen: Measurement | None) -> str:
    if seen is None:
        text = "<p>Nothing was measured. <code>memloci measure DIR</code> looks for bad inputs.</p>"
    else:
        ratio = seen.err_sup / certificate.bound if 0 < certificate.bound < math.inf else math.nan
        tight = f" The largest error seen is {number(ratio, 2)} of the bound." if ratio > 0 else ""
        text = (
            f"<p>{seen.sequences:,} sequences of length {seen.length:,} were drawn, and {seen.steps:,} steps "
            f"of ascent looked for worse ones. The mean square error was {page.data(seen.err_mean_square)}.{tight}</p>"
        )
    caption = (
        "A search can only find errors up to the bound; where the two are far apart, the proof was generous."
    )
    svg = figures.certified_figure(certificate, seen)
    return page.section(
        "Certified against measured", text + page.figure(svg, "Proved and observed errors", caption)
    )


def _wall(built: Record) -> str:
    task, certificate = built.task, built.certificate
    sums = [layer for layer in built.plan.circuit.layers if layer.normalisation == "none"]
    if not task.M or not (task.stationary or sums):
        return ""  # pointers that turn or step never meet it
    points = probes.wall()
    far = max(point.lag for point in points)
    tables = [recall for recall in task.recalls if isinstance(recall, LagTable)]
    lags = sorted({lag for table in tables for lag in table.cells})
    text = [
        "To recall one lag, a single layer of lin heads must cancel large coefficients against each other. "
        "The sum of their sizes, the mass B, has a proved lower bound of about 4 bits per lag, however many "
        "heads there are. Rounding costs about u B, so a float with fewer bits than log₂ B keeps nothing.",
        f"This model has mass {page.data(certificate.mass)}"
        + (
            f"; with its error, one lin layer needs at least {power_of_two(math.log2(certificate.mass_lower_bound))}"
            if certificate.mass_lower_bound and certificate.mass_lower_bound > 0
            else ""
        )
        + (
            "; no number of bits meets the tolerance."
            if certificate.bits is None
            else f"; {certificate.bits} bits suffice for the tolerance."
        ),
    ]
    if not task.stationary:
        # z^-b = int u^{b-1} e^{-uz} du / Gamma(b), and e^{-u} u^{b-1} / Gamma(b) integrates to 1.
        log = any(layer.encoding == "log" for layer in sums)
        mixed = " A log head is a mixture of lin heads of the same mass." if log else ""
        text.append(
            "Heads that serve every lag of a table serve the farthest one, so the lower bound holds for them too, "
            f"at each lag that is asked.{mixed}"
        )
    if any(isinstance(recall, Convolution) for recall in task.recalls):
        text.append("Kernels that decay need little cancellation: the wall stands before single lags.")
    if beyond := sorted({lag for lag in lags if lag > far}):
        text.append("Beyond the picture: " + ", ".join(map(_beyond, beyond)) + ".")
    round_it = "Depth, rotary and t5 heads" if task.stationary else "Rotary heads and chains of shifts"
    caption = f"Shaded: out of reach for one lin layer. {round_it} go round the wall."
    svg = figures.wall_figure(points, lags, certificate.bits)
    return page.section(
        "The wall", "".join(f"<p>{part}</p>" for part in text) + page.figure(svg, "Bits against lag", caption)
    )


def _beyond(lag: int) -> str:
    if lag > TOLD_LAG:
        return f"lag {lag:,}"
    point = probes.wall_point(lag, 0.001)
    return f"lag {lag:,}, which takes at least {math.floor(point.log2_mass):,} bits"


def _assumptions(certificate: Certificate) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in certificate.assumptions)
    rows = [[escape(name), page.data(E)] for name, E in certificate.bound_by_precision.items()]
    rows.append(["exact arithmetic", page.data(certificate.exact_bound)])
    table = page.table(["computed in", "error at most"], rows, numeric=(1,))
    proof = f'<p class="note">Proved with {escape(certificate.arithmetic)}.</p>'
    return page.section("What is assumed", f"<ul>{items}</ul>{table}{proof}")


def _reproduce(built: Record) -> str:
    certificate = built.certificate
    commands = "\n".join(
        [
            f"memloci compile task.toml --out DIR --route {built.plan.route} \\",
            f"    --tolerance {certificate.tolerance!r} --precision {certificate.precision}",
            "memloci verify DIR     # the certificate again, from the weights",
            "memloci measure DIR    # the errors found, beside it",
        ]
    )
    try:
        toml = f"<p><code>task.toml</code></p><pre><code>{escape(task_toml(built.task))}</code></pre>"
    except BadInput:
        toml = "<p>The task has a Python callable, which a task file cannot hold.</p>"
    return page.section("How to reproduce", f"{toml}<pre><code>{escape(commands)}</code></pre>")
