"""The report of a training: did it learn, why not, how it went, and what the model does with the past.

The fits are one run with several seeds (or rates): curves have intervals over them, and what is looked at closely is
the best of them. Everything about trained models is observed; what is proved (the compiled weights beside them, and
some of the reasons) says so.
"""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any

import jax.random as jr
import numpy as np

from memloci.core.errors import BadInput
from memloci.core.proved import Proved
from memloci.model.architecture import Architecture
from memloci.observe import probes
from memloci.observe.lags import MOST_HEADS, head_lags, influence
from memloci.synthesize import Plan, Plans, plan
from memloci.tasks.inputs import sample
from memloci.tasks.load import task_from_dict
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.task import Task
from memloci.train.diagnose import diagnose
from memloci.train.diagnosis import Diagnosis, slow_readout
from memloci.train.spec import DATA_KINDS, NUMBERS, Run, Training, default_length
from memloci.train.train import Fit, best
from memloci.views import curves, figures, page
from memloci.views.sizes import sizes_text
from memloci.views.tables import task_toml
from memloci.views.write import memory_section, task_title

UNITS = {"mean-square": "mean square", "sup": "near the largest square", "cross-entropy": "nats per byte"}
EVIDENCE = {  # what diagnoses rest on, in words
    "err_sup": "largest error seen",
    "err_loss": "loss on its own samples",
    "err_held_out": "loss on other sequences",
    "E_least": "error at least",
    "err_least": "error at least",
    "E_own_least": "error with this encoding, rounding included, at least",
    "E_found": "error of the best fit found, at most",
    "E_own": "error of the best fit found with this encoding, at most",
    "E_other": "error of a fit with the other encoding, at most",
    "E_more": "error of a fit with more heads, at most",
    "E_compiled": "error of compiled weights, at most",
    "E_compiled_exact": "the same in exact arithmetic",
    "enough": "l1 error that the tolerance asks for",
    "log2_mass_least": "log₂ of the mass, at least",
    "bits": "bits of a float",
    "heads_that_do": "heads of that fit",
    "width_least": "width at least",
    "carried": "numbers that reach a position",
    "asked": "numbers that may be asked for",
    "layers_of_constructions": "layers of constructions",
    "K": "K, the paper's adaptivity",
    "levels": "recalls that wait for each other",
}
MAP_POSITIONS = 48
OPTIONS_OF_ARCHITECTURE = ("layers", "heads", "width", "attention", "encoding")  # of `memloci train`
OPTIONS_OF_TRAINING = ("steps", "batch", "rate", "start", "tolerance")
QUICK_MEMORIES = 2  # of an adaptive task


def training_html(fits: Sequence[Fit]) -> str:
    """The page about one training."""
    chosen = best(fits)
    run, data = chosen.run, chosen.run.task.get("kind") in DATA_KINDS
    title = data_title(run) if data else task_title(run.record)
    found = [diagnose(fit.run, fit.record) for fit in fits]
    histories = [fit.history for fit in fits]
    of_best = found[list(fits).index(chosen)]
    sections = [_reasons([of_best, *(one for one in found if one is not of_best)])]
    if not data:
        sections.append(memory_section(run.record))
    sections.append(_losses(histories, run))
    if not data or run.training.loss != "cross-entropy":
        sections.append(_errors(histories, run))
    sections.append(_table(fits, chosen, found))
    if not data and chosen.record["status"] != "diverged":
        sections += [_influence(chosen), _heads(chosen), _maps(chosen)]
    if not data:
        sections.append(_compared(fits, chosen))
    sections.append(settings_section(fits))
    head = f"""<header>
<p class="kicker">memloci training report · {escape(f"{run.task['kind']} data" if data else f"{run.record.kind} memory")}</p>
<h1>{escape(title)}</h1>
{_verdict(fits, chosen, of_best)}
{_tiles(fits, chosen)}
</header>"""
    cards = "\n".join(section for section in sections if section)
    return page.whole(title, f'{head}\n<main class="cards">\n{cards}\n</main>')


def data_title(run: Run) -> str:
    what = "next-byte prediction" if run.task.get("kind") == "text" else "sequences to sequences"
    path = str(run.task.get("path") or "")
    return f"{what}: {path.replace(chr(92), '/').rsplit('/', 1)[-1] or 'arrays in memory'}"


# -- the top ----------------------------------------------------------------------------------------------


def _verdict(fits: Sequence[Fit], chosen: Fit, why: Diagnosis) -> str:
    record, tolerance = chosen.record, chosen.run.training.tolerance
    learned = sum(fit.learned for fit in fits)
    if "bits_per_byte" in record:
        bits = record["bits_per_byte"]
        said = "no number" if bits is None else f"{page.data(bits)} bits per byte"
        badge, text = "", f"On held-out text the best model needs {said}."
    elif chosen.run.task.get("kind") in DATA_KINDS:
        badge, text = "", f"Held-out mean square of the best model: {page.optional(record['held_out'])}."
    elif record["status"] == "diverged":
        badge = '<span class="badge missed">diverged</span>'
        text = escape(why.sentence)
    else:
        word = "learned" if chosen.learned else "not learned"
        badge = f'<span class="badge {"met" if chosen.learned else "missed"}">{word}</span>'
        beside = "within" if chosen.learned else "above"
        text = (
            f"The largest error seen is {page.optional(record['err_sup'])}, {beside} the tolerance of "
            f"{page.data(tolerance)}."
        )
        if len(fits) > 1:
            text += f" {learned} of {len(fits)} runs learned."
        if not chosen.learned:
            text += f" Why: <strong>{escape(why.name)}</strong>."
    return f'<div class="verdict">{badge}<span>{text}</span></div>'


def _tiles(fits: Sequence[Fit], chosen: Fit) -> str:
    record, a = chosen.record, Architecture(**chosen.record["architecture"])
    bits = "bits_per_byte" in record
    return page.tiles(
        {
            "bits per byte" if bits else "largest error seen": page.optional(
                record.get("bits_per_byte" if bits else "err_sup")
            ),
            "held-out loss": page.optional(record["held_out"]),
            "runs": f"{len(fits)}",
            "layers": f"{a.layers:,}",
            "heads per layer": sizes_text(a, "heads"),
            "FFN width": sizes_text(a, "width"),
            "parameters": f"{record['parameters']:,}",
            "steps": f"{record['steps']:,}",
        }
    )


# -- sections ---------------------------------------------------------------------------------------------


def _reasons(found: Sequence[Diagnosis]) -> str:
    """Every diagnosis once, with how many runs have it and what it rests on; the best run comes first."""
    counts = Counter(one.name for one in found)
    parts = []
    for name, count in counts.most_common():
        one = next(d for d in found if d.name == name)
        runs = f' <span class="note">{count} of {len(found)} runs</span>' if len(found) > 1 else ""
        parts.append(f"<h3>{escape(name).capitalize()}{runs}</h3><p>{escape(one.sentence)}</p>")
        parts.append(evidence_table(one))
    return page.section("Why", "".join(parts))


def evidence_table(one: Diagnosis) -> str:
    """Proved numbers (E_...) and observed ones (err_...) each say which they are."""
    rows = []
    for key, value in one.evidence.items():
        if value is None:
            continue
        kind = "observed" if key.startswith("err_") else ""
        kind = "proved" if key.startswith("E_") or key == "log2_mass_least" else kind
        kind = "computed" if key in ("err_least", "width_least") else kind  # witness.py
        shown = escape(f"{value:,}" if isinstance(value, int) else str(value))
        if isinstance(value, float):
            shown = page.below(value) if key.endswith("_least") else page.data(value)
            shown = page.data(Proved(value)) if kind == "proved" and not key.endswith("_least") else shown
        rows.append([escape(EVIDENCE.get(key, key)), shown, kind])
    return page.table(["what it rests on", "", ""], rows, numeric=(1,), wordy=(0,)) if rows else ""


def _losses(histories: Sequence[curves.History], run: Run) -> str:
    caption = _band_text(histories) + " Held-out sequences are never trained on."
    svg = curves.loss_figure(histories, UNITS.get(run.training.loss, run.training.loss))
    return page.section("Loss", page.figure(svg, "Loss over steps", caption))


def _errors(histories: Sequence[curves.History], run: Run) -> str:
    caption = (
        f"Of {run.training.held_out:,} held-out sequences: the largest error at any position, and the root of the "
        "mean square. " + _band_text(histories)
    )
    svg = curves.errors_figure(histories, run.training.tolerance)
    return page.section("Error", page.figure(svg, "Errors over steps", caption))


def _band_text(histories: Sequence[Any]) -> str:
    if len(histories) == 1:
        return "One run."
    return f"Median of {len(histories)} runs; the band is from the least to the largest of them."


def _table(fits: Sequence[Fit], chosen: Fit, found: Sequence[Diagnosis]) -> str:
    """A row per run; of the settings, those that differ."""
    vary = [
        name for name in ("seed", *NUMBERS) if len({repr(getattr(f.run.training, name)) for f in fits}) > 1
    ]
    vary = list(dict.fromkeys(vary)) or ["seed"]
    columns = {
        "held_out": "held-out loss",
        "err_mean_square": "mean square",
        "err_sampled": "largest, drawn",
        "err_adversarial": "largest, sought",
        "err_sup": "largest error",
        "bits_per_byte": "bits per byte",
        "seconds": "seconds",
    }
    if chosen.run.training.loss == "mean-square":
        del columns["err_mean_square"]  # it is the held-out loss
    columns = {key: text for key, text in columns.items() if any(key in fit.record for fit in fits)}
    heads = [*vary, "steps", *columns.values(), "ended", "diagnosis"]
    rows = [
        [
            *(escape(str(getattr(fit.run.training, name))) for name in vary),
            f"{fit.record['steps']:,}",
            *(page.optional(fit.record.get(key)) for key in columns),
            escape(fit.record["stopped"]),
            escape(one.name),
        ]
        for fit, one in zip(fits, found, strict=True)
    ]
    numeric = tuple(range(len(vary) + 1 + len(columns)))
    marked = list(fits).index(chosen)
    table = page.table(heads, rows, numeric=numeric, wordy=(len(heads) - 2, len(heads) - 1), marked=marked)
    note = '<p class="note">Marked: the run with the lowest held-out loss, which is kept.</p>'
    return page.section("Runs", table + (note if len(fits) > 1 else ""), wide=True)


def _influence(chosen: Fit) -> str:
    found = influence(chosen.model, chosen.run.record, chosen.run.training.length or 2)
    beyond = "" if chosen.run.record.farthest <= found.z[-1] else " Farther lags are not shown."
    text = (
        "<p>How much the output at the last position changes, as root mean square, when the token z steps back is "
        "drawn anew. Where the model's bars reach the circles, it remembers what it should.</p>"
    )
    caption = f"Observed on {found.sequences} drawn sequences.{beyond}"
    svg = curves.influence_figure(found, chosen.run.record)
    return page.section("Which lags matter", text + page.figure(svg, "Influence of each lag", caption))


def _heads(chosen: Fit) -> str:
    task, a = chosen.run.record, chosen.model.architecture
    heads = head_lags(chosen.model, task, chosen.run.training.length or 2)
    shown = len({head.layer for head in heads})
    blocks = [a.block(l) for l in range(a.layers)]
    many = any(block.heads > MOST_HEADS for block in blocks)
    parts = [f"Of each layer the {MOST_HEADS} heads that write most." if many else ""]
    parts.append(f"The first {shown} of {a.layers} layers." if a.layers > shown else "")
    if all(block.attention == "dpf" for block in blocks):
        parts.append("Without a dot product the weights are the same for every sequence.")
    else:
        parts.append("Lines are means over drawn sequences and positions; 8 of 10 weights lie in the bands.")
    if any(isinstance(recall, Convolution) for recall in task.recalls):
        parts.append("Circles: the size of the target's kernel, scaled to the sum 1.")
    svg = curves.heads_figure(heads, task)
    caption = " ".join(part for part in parts if part)
    return page.section("Where heads look", page.figure(svg, "Weight of each head over lags", caption))


def _maps(chosen: Fit) -> str:
    n = min(MAP_POSITIONS, chosen.run.training.length or MAP_POSITIONS)
    x = np.asarray(sample(chosen.run.record, jr.key(0), n, chosen.model.W_E.dtype))
    maps, count = probes.attention_maps(chosen.model, x, figures.SHOWN_MAPS)
    if not maps:
        return ""
    shown = f"The first {len(maps)} of {count} heads. " if count > len(maps) else ""
    caption = (
        f"{shown}Row t shows where position t reads from, on one drawn sequence; a lag is a diagonal. The colour "
        "follows the square root of the weight, so that small weights are seen."
    )
    return page.section(
        "Attention maps", page.figure(figures.attention_figure(maps), "Attention weights", caption)
    )


# -- trained against compiled -----------------------------------------------------------------------------


def _compared(fits: Sequence[Fit], chosen: Fit) -> str:
    """What weights by construction achieve for the same task, whatever their sizes."""
    task, tolerance = chosen.run.record, chosen.run.training.tolerance
    precision = chosen.record["architecture"]["precision"]
    built, note = _quick_plan(task, tolerance, precision)
    heads = ["", "trained"] + ([] if built is None else [f"compiled ({escape(built.route)})"])
    columns = [_sizes(Architecture(**chosen.record["architecture"]), chosen.record["parameters"])]
    columns[0]["largest error"] = f"{page.optional(chosen.record.get('err_sup'))} seen"
    if built is not None:
        columns.append(_sizes(built.model.architecture, built.model.parameter_count))
        columns[1]["largest error"] = f"{page.data(built.certificate.bound)} proved"
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    table = page.table(heads, rows, numeric=(1, 2))
    seen = [fit.record["err_sup"] for fit in fits if fit.record.get("err_sup")]
    bound = None if built is None else Proved(built.certificate.bound)
    figure = ""
    if seen:
        caption = "Circles: the largest error seen of each run. Diamond: a bound that no input exceeds."
        svg = curves.compared_figure(seen, bound, tolerance)
        figure = page.figure(svg, "Trained and compiled errors", caption)
    return page.section("Trained against compiled", f"<p>{escape(note)}</p>{table}{figure}")


def _sizes(a: Architecture, parameters: int) -> dict[str, str]:
    kinds = {name: escape(sizes_text(a, name)) for name in ("attention", "encoding", "normalisation")}
    numbers = {"layers": f"{a.layers:,}", **{name: sizes_text(a, name) for name in ("heads", "width")}}
    return kinds | numbers | {"parameters": f"{parameters:,}"}


def _quick_plan(task: Task, tolerance: float, precision: str) -> tuple[Plan | None, str]:
    if reason := _slow(task):
        return None, f"Compiled weights for this task take minutes ({reason}): memloci plan shows them."
    try:
        found = _planned(json.dumps(task.to_dict()), tolerance, precision)
    except BadInput as error:
        return None, f"Nothing can be compiled for this task: {error}."
    plans = [*found.met, *found.missed]
    if not plans:
        reasons = "; ".join(f"{route}: {reason}" for route, reason in found.obstacles.items())
        return None, f"The quick routes do not serve this task ({reasons}); memloci plan tries them all."
    best_one = plans[0]
    return best_one, (
        f"Weights by construction for the same task, of the route that is quickest to try ({best_one.route}). Their "
        "error is a bound that is proved for every input of any length; that of trained weights was seen on "
        "sequences like those of training."
    )


@lru_cache(maxsize=32)
def _planned(text: str, tolerance: float, precision: str) -> Plans:
    task = task_from_dict(json.loads(text))
    return plan(task, tolerance, precision, routes=[_quick_route(task)])


def _quick_route(task: Task) -> str:
    """The route that is quickest to try."""
    if not task.M:
        return "one-layer-lin"
    kernels = any(isinstance(recall, Convolution) for recall in task.recalls)
    return "bias-table" if task.stationary and kernels else "rotary"


def _slow(task: Task) -> str | None:
    if not task.stationary and (task.M > QUICK_MEMORIES or max(task.levels) > 1):
        return f"{task.M} memories, of which some adapt"
    return slow_readout(task)


# -- settings ---------------------------------------------------------------------------------------------


def settings_section(fits: Sequence[Fit]) -> str:
    run = fits[0].run
    chosen = [(name, value) for name, value, default in _settings(run) if value != default]
    rows = [[f"<code>{escape(name)}</code>", escape(_text(value))] for name, value in chosen]
    table = page.table(["setting of training", "value"], rows) if rows else ""
    usual = ", ".join(f"{name} {_text(value)}" for name, value, default in _settings(run) if value == default)
    note = f'<p class="note">As by default: {escape(usual)}.</p>'
    try:
        toml = "" if run.task.get("kind") in DATA_KINDS else task_toml(run.record)
        before = f"<p><code>task.toml</code></p><pre><code>{escape(toml)}</code></pre>" if toml else ""
    except BadInput:
        before = "<p>The task has a Python callable, which a task file cannot hold.</p>"
    seeds = [fit.run.training.seed for fit in fits]
    told = [command(run, len(seeds)) if seeds == list(range(seeds[0], seeds[0] + len(seeds))) else ""]
    told.append(python_call(run))
    code = before + "".join(f"<pre><code>{escape(text)}</code></pre>" for text in told if text)
    body = f'<div class="pair top"><div>{code}</div><div>{table}{note}</div></div>'
    return page.section("Settings, and how to reproduce", body, wide=True)


def _settings(run: Run) -> list[tuple[str, Any, Any]]:
    """(name, value, default) of the settings of training, seeds aside."""
    fields = {name: field.default for name, field in Training.model_fields.items() if name != "seed"}
    fields |= {"length": default_length(run.task)}
    if run.task.get("kind") == "text":
        fields["loss"] = "cross-entropy"
    return [(name, getattr(run.training, name), default) for name, default in fields.items()]


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def command(run: Run, seeds: int = 1) -> str:
    """What gives these runs again, in a terminal."""
    words = ["memloci", "train", _source(run), "--out", "DIR"]
    a = run.architecture
    sizes = {} if a is None else _chosen(a)
    if a is not None:
        for name in OPTIONS_OF_ARCHITECTURE:
            words += [f"--{name}", str(getattr(a, name))]
    for name, value in sizes.items():
        if name not in OPTIONS_OF_ARCHITECTURE:
            words += ["--set", f"architecture.{name}={_text(value)}"]
    for name, value, default in _settings(run):
        if value != default:
            own = name in OPTIONS_OF_TRAINING
            words += [f"--{name}", str(value)] if own else ["--set", f"training.{name}={_text(value)}"]
    words += ["--seed", str(run.training.seed)] if run.training.seed else []
    words += ["--seeds", str(seeds)] if seeds > 1 else []
    return _wrapped([shlex.quote(word) for word in words])


def _chosen(a: Architecture) -> dict[str, Any]:
    """The sizes and switches that are not as by default."""
    return {name: value for name, value in a.to_dict().items() if value != type(a).model_fields[name].default}


def _source(run: Run) -> str:
    return str(run.task.get("path") or "data.npz") if run.task.get("kind") in DATA_KINDS else "task.toml"


def _wrapped(words: Sequence[str], width: int = 72) -> str:
    """One command over several lines, an option and its value on the same one."""
    lines = [""]
    for k, word in enumerate(words):
        new = (
            word.startswith("--") and len(lines[-1]) + len(word) + len("".join(words[k + 1 : k + 2])) > width
        )
        if new:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def python_call(run: Run) -> str:
    """What gives this run again, in Python."""
    lines = ["import memloci as ml", "", "fit = ml.train(", f"    {_source(run)!r},"]
    if run.architecture is not None:
        lines.append("    ml.Architecture(")
        lines += [f"        {k}={v!r}," for k, v in _chosen(run.architecture).items()]
        lines.append("    ),")
    for name, value, default in _settings(run):
        if value != default:
            lines.append(f"    {name}={value!r},")
    lines.append(f"    seed={run.training.seed},")
    return "\n".join([*lines, ")"])
