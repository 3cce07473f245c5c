"""The page about a training: did it learn, why not, how it went, and what the model does with the past.

The fits are one run with several seeds (or rates): curves have intervals over them, and what is looked at closely is
the best of them. Everything about trained models is observed; what is proved (the compiled weights beside them, and
some of the reasons) says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memloci.core.proved import Proved, ProvedLeast
from memloci.model.architecture import Architecture
from memloci.tasks.memories.kernel import Convolution
from memloci.train.diagnosis import Diagnosis
from memloci.train.spec import NUMBERS, Run
from memloci.views.figures.lags import heads_figure, influence_figure
from memloci.views.figures.model import attention_figure
from memloci.views.figures.training import compared_figure, errors_figure, loss_figure
from memloci.views.html.memory import MemoryCard, memory_card
from memloci.views.html.parts import Cell, Code, Figure, Table
from memloci.views.html.render import render
from memloci.views.text.sizes import sizes_text
from memloci.views.text.tasks import task_title, toml_or_none

if TYPE_CHECKING:
    from memloci.train.portrait import TrainingPortrait, Uses

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
MEASURES = {
    "held_out": "held-out loss",
    "err_mean_square": "mean square",
    "err_sampled": "largest, drawn",
    "err_adversarial": "largest, sought",
    "err_sup": "largest error",
    "bits_per_byte": "bits per byte",
    "seconds": "seconds",
}


@dataclass(frozen=True)
class TrainingReason:
    """A diagnosis, how many runs have it, and what it rests on."""

    diagnosis: Diagnosis
    runs: int
    evidence: Table


@dataclass(frozen=True)
class ComparedCard:
    """Trained against compiled."""

    note: str
    table: Table
    figure: Figure | None


@dataclass(frozen=True)
class UsesCard:
    """What the model does with the past."""

    influence: Figure
    heads: Figure
    maps: Figure | None


@dataclass(frozen=True)
class TrainingPage:
    title: str
    kicker: str
    training: TrainingPortrait
    tiles: dict[str, Cell]
    reasons: list[TrainingReason]
    memory: MemoryCard | None
    loss: Figure
    errors: Figure | None
    runs: Table
    uses: UsesCard | None
    compared: ComparedCard | None
    settings: Table
    usual: str  # settings as by default
    toml: str | None


def training_html(training: TrainingPortrait) -> str:
    """The page about one training."""
    run, task = training.chosen.run, training.task
    page = TrainingPage(
        data_title(run) if task is None else task_title(task),
        f"{run.task['kind']} data" if task is None else f"{task.kind} memory",
        training,
        _tiles(training),
        _reasons(training),
        task and memory_card(task, training.targets),
        _loss(training),
        None if task is None and run.training.loss == "cross-entropy" else _errors(training),
        _runs(training),
        training.uses and _uses(training, training.uses),
        _compared(training),
        Table(
            ["setting of training", "value"],
            [[Code(name), text] for name, text in training.reproduction.chosen.items()],
        ),
        ", ".join(f"{name} {text}" for name, text in training.reproduction.usual.items()),
        task and toml_or_none(task),
    )
    return render("training.html", page)


def data_title(run: Run) -> str:
    what = "next-byte prediction" if run.task.get("kind") == "text" else "sequences to sequences"
    path = str(run.task.get("path") or "")
    return f"{what}: {path.replace(chr(92), '/').rsplit('/', 1)[-1] or 'arrays in memory'}"


def _tiles(training: TrainingPortrait) -> dict[str, Cell]:
    record, a = training.chosen.record, training.architecture
    name, text = ("err_sup", "largest error seen")
    if record.bits_per_byte is not None:
        name, text = ("bits_per_byte", "bits per byte")
    return {
        text: _float(record.get(name)),
        "held-out loss": _float(record.held_out),
        "runs": len(training.fits),
        "layers": a.layers,
        "heads per layer": sizes_text(a, "heads"),
        "FFN width": sizes_text(a, "width"),
        "parameters": record.parameters,
        "steps": record.steps,
    }


def _float(x: Any) -> float | None:
    return None if x is None else float(x)


# -- why --------------------------------------------------------------------------------------------------


def _reasons(training: TrainingPortrait) -> list[TrainingReason]:
    """Every diagnosis once; that of the best run comes first among those of as many runs."""
    reasons = [
        training.diagnosis,
        *training.diagnoses[: training.best],
        *training.diagnoses[training.best + 1 :],
    ]
    first = {one.name: one for one in reversed(reasons)}
    counts = Counter(one.name for one in reasons)
    return [TrainingReason(first[name], runs, _evidence(first[name])) for name, runs in counts.most_common()]


def _evidence(one: Diagnosis) -> Table:
    """Proved numbers (E_...) and observed ones (err_...) each say which they are."""
    rows: list[list[Cell]] = []
    for key, value in one.evidence.items():
        if value is None:
            continue
        kind = "observed" if key.startswith("err_") else ""
        kind = "proved" if key.startswith("E_") or key == "log2_mass_least" else kind
        kind = "computed" if key in ("err_least", "width_least") else kind  # witness.py
        shown: Cell = value if isinstance(value, int) and not isinstance(value, bool) else str(value)
        if isinstance(value, float):
            upper = Proved(value) if kind == "proved" else value
            shown = ProvedLeast(value) if key.endswith("_least") else upper
        rows.append([EVIDENCE.get(key, key), shown, kind])
    return Table(["what it rests on", "", ""], rows, numeric=(1,), wordy=(0,))


# -- how it went ------------------------------------------------------------------------------------------


def _loss(training: TrainingPortrait) -> Figure:
    loss = training.chosen.run.training.loss
    caption = f"{_band(training)} Held-out sequences are never trained on."
    svg = loss_figure([fit.history for fit in training.fits], UNITS.get(loss, loss))
    return Figure(svg, "Loss over steps", caption)


def _errors(training: TrainingPortrait) -> Figure:
    settings = training.chosen.run.training
    caption = (
        f"Of {settings.held_out:,} held-out sequences: the largest error at any position, and the root of the "
        f"mean square. {_band(training)}"
    )
    svg = errors_figure([fit.history for fit in training.fits], settings.tolerance)
    return Figure(svg, "Errors over steps", caption)


def _band(training: TrainingPortrait) -> str:
    count = len(training.fits)
    if count == 1:
        return "One run."
    return f"Median of {count} runs; the band is from the least to the largest of them."


def _runs(training: TrainingPortrait) -> Table:
    """A row per run; of the settings, those that differ."""
    fits = training.fits
    differs = lambda name: len({repr(getattr(fit.run.training, name)) for fit in fits}) > 1
    vary = list(dict.fromkeys(name for name in ("seed", *NUMBERS) if differs(name))) or ["seed"]
    columns = {key: text for key, text in MEASURES.items() if any(key in fit.record for fit in fits)}
    if training.chosen.run.training.loss == "mean-square":
        columns.pop("err_mean_square", None)  # it is the held-out loss
    rows: list[list[Cell]] = [
        [
            *(str(getattr(fit.run.training, name)) for name in vary),
            fit.record.steps,
            *(_float(fit.record.get(key)) for key in columns),
            fit.record.stopped,
            one.name,
        ]
        for fit, one in zip(fits, training.diagnoses, strict=True)
    ]
    heads = [*vary, "steps", *columns.values(), "ended", "diagnosis"]
    last = len(heads) - 2
    return Table(heads, rows, range(last), (last, last + 1), training.best)


# -- what the model does ----------------------------------------------------------------------------------


def _uses(training: TrainingPortrait, uses: Uses) -> UsesCard:
    task = training.task
    assert task is not None  # without one nothing is looked up
    beyond = "" if task.farthest <= uses.influence.z[-1] else " Farther lags are not shown."
    caption = f"Observed on {uses.influence.sequences} drawn sequences.{beyond}"
    return UsesCard(
        Figure(influence_figure(uses.influence, task), "Influence of each lag", caption),
        _heads(training, uses),
        _maps(uses),
    )


def _heads(training: TrainingPortrait, uses: Uses) -> Figure:
    task, a = training.task, training.architecture
    assert task is not None
    blocks, shown = [a.block(l) for l in range(a.layers)], {head.layer for head in uses.heads}
    most = max(sum(head.layer == l for head in uses.heads) for l in shown)
    parts = [f"Of each layer the {most} heads that write most."] if _left_out(a, uses) else []
    parts += [f"The first {len(shown)} of {a.layers} layers."] if a.layers > len(shown) else []
    if all(block.attention == "dpf" for block in blocks):
        parts.append("Without a dot product the weights are the same for every sequence.")
    else:
        parts.append("Lines are means over drawn sequences and positions; 8 of 10 weights lie in the bands.")
    if any(isinstance(recall, Convolution) for recall in task.recalls):
        parts.append("Circles: the size of the target's kernel, scaled to the sum 1.")
    svg = heads_figure(uses.heads, task, training.targets)
    return Figure(svg, "Weight of each head over lags", " ".join(parts))


def _left_out(a: Architecture, uses: Uses) -> bool:
    """Some layer that is shown has more heads than are shown."""
    return any(
        a.block(l).heads > sum(head.layer == l for head in uses.heads) for l in {h.layer for h in uses.heads}
    )


def _maps(uses: Uses) -> Figure | None:
    if not uses.maps:
        return None
    shown = f"The first {len(uses.maps)} of {uses.writing} heads. " if uses.writing > len(uses.maps) else ""
    caption = (
        f"{shown}Row t shows where position t reads from, on one drawn sequence; a lag is a diagonal. The colour "
        "follows the square root of the weight, so that small weights are seen."
    )
    return Figure(attention_figure(uses.maps), "Attention weights", caption)


def _compared(training: TrainingPortrait) -> ComparedCard | None:
    """What weights by construction achieve for the same task, whatever their sizes."""
    if training.compiled is None:
        return None
    plan, chosen = training.compiled.plan, training.chosen
    heads, columns = ["", "trained"], [_sizes(training.architecture, chosen.model.parameter_count)]
    columns[0]["largest error"] = (_float(chosen.record.err_sup), " seen")
    bound = None
    if plan is not None:
        bound = Proved(plan.certificate.bound)
        heads.append(f"compiled ({plan.route})")
        columns.append(_sizes(plan.model.architecture, plan.model.parameter_count))
        columns[1]["largest error"] = (bound, " proved")
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    errors = [fit.record.err_sup for fit in training.fits if fit.record.err_sup]
    figure = None
    if errors:
        caption = "Circles: the largest error seen of each run. Diamond: a bound that no input exceeds."
        svg = compared_figure(errors, bound, chosen.run.training.tolerance)
        figure = Figure(svg, "Trained and compiled errors", caption)
    return ComparedCard(training.compiled.note, Table(heads, rows, numeric=(1, 2)), figure)


def _sizes(a: Architecture, parameters: int) -> dict[str, Cell]:
    names: Sequence[str] = ("attention", "encoding", "normalisation")
    return {
        **{name: sizes_text(a, name) for name in names},
        "layers": a.layers,
        **{name: sizes_text(a, name) for name in ("heads", "width")},
        "parameters": parameters,
    }
