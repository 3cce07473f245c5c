"""The whole story as one short file; read this first.

    task -> plan -> compile -> certify -> measure -> report

Below it, what is written to files: each function takes records and has the pages about them drawn (views/).
"""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from memloci.certify.certificate import VERSION, Certificate
from memloci.certify.certify import certify
from memloci.circuits.circuit_file import CIRCUIT, circuit_dict
from memloci.circuits.graph import Design, graph_of
from memloci.core.errors import BadInput
from memloci.core.files import parse_json, read_bytes, replace_together
from memloci.core.limits import positive
from memloci.core.precision import DEFAULT
from memloci.core.specs import shorten
from memloci.model.store import read, save, task_of, unchanged
from memloci.observe.sup_error import Measurement, measure
from memloci.synthesize import Built, Plan, Plans, Progress, plan
from memloci.tasks.task import Task

if TYPE_CHECKING:  # a compilation needs none of these
    from memloci.detect.detection import Detection
    from memloci.detect.trial import Trial
    from memloci.exchange.formats import Export
    from memloci.study.claim import Finding
    from memloci.sweeps.runs import Runs
    from memloci.tradeoffs.rates import Rates
    from memloci.train.spec import Run
    from memloci.train.train import Fit

CERTIFICATE, REPORT, TASK = "certificate.json", "report.html", "task.toml"
AGREEMENT = 1e-9  # relative; the same weights give the same numbers, up to the platform's library


def compile(
    task: Task,
    chosen: Plan | None = None,
    *,
    tolerance: float = 1e-3,
    precision: str = DEFAULT,
    route: str | None = None,
    path: str | None = None,
    progress: Progress | None = None,
) -> Built:
    """The model of a plan; without one, of the cheapest plan, or of the best where none meets the tolerance.

    `path` is how it is to be evaluated (memloci/model/paths/choice.py), if not by the fastest that certificates cover
    without more ado; it is certified for that one.
    """
    if chosen is None:
        routes = [route] if route else None
        chosen = plan(task, tolerance, precision, routes=routes, progress=progress).best
    if path is None:
        return Built(task, chosen.model, chosen.certificate, chosen)
    model = chosen.model.using(path)
    return Built(task, model, certify(model, task, tolerance=chosen.certificate.tolerance), chosen)


def write(
    built: Built, directory: str | Path, plans: Plans | None = None, measurement: Measurement | None = None
) -> None:
    """model.safetensors, model.json, circuit.json and certificate.json, all of them or none; then report.html."""
    certificate, circuit = built.certificate, built.plan.circuit
    graph = graph_of(built.plan.model, Design.of(circuit))
    extra = {
        "route": circuit.route,
        "slots": list(circuit.slots),
        "tolerance": certificate.tolerance,
        "precision": certificate.precision,
    }
    beside = {
        CIRCUIT: (json.dumps(circuit_dict(circuit, graph), indent=1, allow_nan=False) + "\n").encode(),
        CERTIFICATE: certificate.to_json().encode(),
    }
    # The page takes longest and can be drawn again: what is interrupted there has its model.
    save(built.model, directory, task=built.task, extra=extra, beside=beside, remove=[REPORT])
    replace_together(Path(directory), {REPORT: report(built, plans, measurement).encode()})


def report(
    built: Built,
    plans: Plans | None = None,
    measurement: Measurement | None = None,
    rates: "Rates | None" = None,
) -> str:
    """The page about one compiled model; rates that are not given are measured with little effort."""
    from memloci.observe.portrait import portrait
    from memloci.tradeoffs.rates import measured
    from memloci.views.html.compiled import report_html

    looks = portrait(built.model, built.task, built.plan.circuit)
    curves = measured(built.task, [built.plan]) if rates is None else rates
    return report_html(built, looks, curves, plans, measurement)


# -- verify -----------------------------------------------------------------------------------------------


def verify(directory: str | Path, path: str | None = None) -> Certificate:
    """The certificate, computed anew from the weights and the task in a directory; nothing else is read.

    `path`: of the model as evaluated by this one.
    """
    stored = read(directory, changed=True)  # what holds of changed weights is told, not refused
    task = task_of(stored, directory)
    if task is None:
        raise BadInput(f"{directory}: the model was saved without a task; there is nothing to verify against")
    model = stored.model.using(path) if path else stored.model
    tolerance = positive(stored.extra.get("tolerance", 1e-3), f"{directory}: model.json: extra.tolerance")
    return certify(model, task, tolerance=tolerance, precision=stored.extra.get("precision"))


def disagreement(directory: str | Path, certificate: Certificate) -> str | None:
    """How the certificate on file differs from the one just computed; None if it does not.

    The file is not trusted: every field of it is compared. Bounds may differ in the last digits, where
    branch and bound stops; weights that were changed move them by more, or move their terms. Of a file of an earlier
    version, whose bounds were larger, every bound must still be proved.
    """
    try:
        claimed = parse_json(read_bytes(Path(directory) / CERTIFICATE, 2**24))
    except BadInput as error:
        raise error.within(f"{directory}: {CERTIFICATE}") from None
    if not isinstance(claimed, dict) or not claimed.keys() >= {"bound", "terms"}:
        raise BadInput(f"{directory}: {CERTIFICATE} is not a certificate; compile again")
    version = claimed.get("version")
    if type(version) is int and 1 <= version < VERSION:
        problem = _no_longer_proved(claimed, certificate.to_dict())
    else:
        problem = _difference("", claimed, certificate.to_dict())
    if problem is None and not unchanged(directory):
        return "the certificate holds of these weights, but a file was changed since they were saved (the checksum differs)"
    return problem


def _difference(place: str, claim: Any, value: Any) -> str | None:
    """The first place where a claim is not what the weights give."""
    if isinstance(claim, dict) and isinstance(value, dict) and claim.keys() == value.keys():
        parts = [(f"{place}.{key}".lstrip("."), claim[key], value[key]) for key in value]
    elif isinstance(claim, list) and isinstance(value, list) and len(claim) == len(value):
        parts = [(f"{place}[{k}]", c, v) for k, (c, v) in enumerate(zip(claim, value, strict=True))]
    else:
        if _is_number(claim) and _is_number(value) and abs(claim - value) <= AGREEMENT * abs(value):
            return None
        if claim == value and isinstance(claim, bool) == isinstance(value, bool):
            return None
        return _claims(place, claim, value)
    return next((difference for part in parts if (difference := _difference(*part)) is not None), None)


def _is_number(value: Any) -> TypeGuard[float]:
    """A number that a float can hold; JSON has larger ones."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and abs(value) <= sys.float_info.max


def _no_longer_proved(claimed: dict[str, Any], certificate: dict[str, Any]) -> str | None:
    """The first claim of an older version that the weights do not bear out. Its terms may be others, but must add up to
    a bound that holds."""
    if claimed.keys() != certificate.keys():
        return f"the file has the fields {', '.join(claimed)}, a certificate has {', '.join(certificate)}"
    for name in ("status", "tolerance", "precision", "mass"):
        if problem := _difference(name, claimed[name], certificate[name]):
            return problem
    least = claimed["mass_lower_bound"]
    if least is not None and not _at_most(least, certificate["mass_lower_bound"]):
        return _claims("mass_lower_bound", least, certificate["mass_lower_bound"])
    try:
        levels = [(level["memories"], level["E"]) for level in claimed["levels"]]
        upper = {name: (claimed[name], certificate[name]) for name in ("bound", "exact_bound", "bits")}
        upper |= {
            f"bound_by_precision.{name}": (E, certificate["bound_by_precision"][name])
            for name, E in claimed["bound_by_precision"].items()
        }
        upper |= {
            f"levels[{k}].E": (E if memories == anew["memories"] else 0.0, anew["E"])
            for k, ((memories, E), anew) in enumerate(zip(levels, certificate["levels"], strict=True))
        }
        terms = [term["E"] for term in claimed["terms"]]
        upper["terms"] = (None if None in terms else math.fsum(terms), certificate["bound"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return "the file is no certificate of this model: its terms, levels or precisions are others"
    broken = [(name, *pair) for name, pair in upper.items() if not _at_most(*reversed(pair))]
    return _claims(*broken[0]) if broken else None


def _at_most(x: Any, y: Any) -> bool:
    """x <= y of two bounds, up to the agreement; null is infinite."""
    if y is None or x is None:
        return y is None
    return _is_number(x) and _is_number(y) and x <= y + AGREEMENT * abs(y)


def _claims(name: str, claim: Any, value: Any) -> str:
    place = f"certificate.{name}" if name else "certificate"
    return f"the file claims {place} = {shorten(claim)}, the weights give {shorten(value)}"


# -- trainings, sweeps and studies, with the pages about them ---------------------------------------------


def train(
    task: Any,
    architecture: Any = None,
    *,
    key: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> "Fit":
    """One model. `task` is a task, a gallery name, a file, or a pair of arrays (x, y); `settings` are `Training`'s.

    `key` is a JAX key in place of `seed`. With `out`, a directory holds the model, its curves and a report.
    """
    from memloci.train.train import train

    written: Any = {"out": out, "resume": resume, "progress": progress, "page": _training_page}
    return train(task, architecture, key=key, **written, **settings)


def train_together(
    runs: "Sequence[Run]",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> "list[Fit]":
    """Runs that differ in numbers only (seed, rate, ...), in one compiled program; the fits in their order."""
    from memloci.train.train import train_together

    return train_together(runs, out=out, resume=resume, progress=progress, page=_training_page)


def _training_page(fits: "Sequence[Fit]") -> bytes:
    from memloci.train.portrait import portrait
    from memloci.views.html.training import training_html

    return training_html(portrait(fits)).encode()


def export(source: Any, to: str, out: str | Path) -> "Export":
    """A model for another runtime (exchange/formats.py), checked as it is written."""
    from memloci.exchange.formats import export

    return export(source, to, out)


def write_sweep(name: str, runs: "Runs", page: Path) -> None:
    """The page about the runs of a sweep and, where they left a model, one about the best of them."""
    from memloci.sweeps.fits import best_fits
    from memloci.sweeps.summary import summary
    from memloci.views.html.sweep import sweep_html

    pages = {page.name: sweep_html(summary(name, runs.complete())).encode()}
    if fits := best_fits(runs):
        pages[f"{page.stem}-best.html"] = _training_page(fits)
    replace_together(page.parent, pages)


def write_study(findings: "Sequence[Finding]", out: Path) -> "list[Finding]":
    """All pages of a study's directory; the findings that they show."""
    from memloci.study import pages
    from memloci.views.html.study import study_pages

    shown = pages.with_stored(findings, out)
    replace_together(out, study_pages(shown, pages.about(shown)))
    return shown


def write_verdicts(findings: "Sequence[Finding]", readme: Path) -> None:
    """The table of verdicts in a README, and in docs/ the records that it is made from."""
    from memloci.study import pages
    from memloci.study.claim import finding_from_dict
    from memloci.views.terminal.study import markdown_table

    records = pages.records_with(findings, readme)
    pages.write_readme(readme, records, markdown_table([finding_from_dict(record) for record in records]))


# -- detection --------------------------------------------------------------------------------------------


def detect(
    x: Any,
    y: Any = None,
    max_lag: int = 512,
    fdr: float = 0.05,
    *,
    target: str | None = None,
    seed: int = 0,
    own_past: bool = False,
    with_reference: bool = True,
    progress: Progress | None = None,
) -> "Detection":
    """Which memory arrays or a file have: `.kind`, `.lags`, `.memories`, `.task`, `.explained`, `.report`.

    `x` is an array of shape (T,), (T, d) or (n, T, d), a list of sequences, a table with columns, or a file. Without `y`
    and `target`, the next value is predicted: then lag 1 is the value just before it.
    """
    from memloci.detect.detect import detect
    from memloci.views.html.detection import detection_fragment

    options: Any = {"max_lag": max_lag, "fdr": fdr, "target": target, "seed": seed, "own_past": own_past}
    detection = detect(x, y, **options, with_reference=with_reference, progress=progress)
    return replace(detection, render=detection_fragment)


def write_detection(detection: "Detection", out: str | Path) -> "Detection":
    """task.toml, where there is a task, and report.html; the record that names the file."""
    from memloci.views.html.detection import detection_html
    from memloci.views.text.tasks import data_toml

    directory = Path(out)
    files: dict[str, bytes] = {}
    if detection.task_data is not None:
        files[TASK] = (data_toml(detection.task_data) + "\n").encode()
        detection = replace(detection, task_file=str(directory / TASK))
    files[REPORT] = detection_html(detection).encode()
    replace_together(directory, files, remove=[TASK] if detection.task_data is None else [])
    return detection


def try_architectures(
    detection: "Detection", data: Any, *, target: str | None = None, seed: int = 0
) -> "tuple[Trial, ...]":
    """The suggested architecture and two alternatives, trained briefly, beside simple predictors and the reference."""
    from memloci.detect.data import recording
    from memloci.detect.trial import trials

    return trials(detection, recording(data, target=target), seed=seed)


__all__ = [
    "Built",
    "certify",
    "compile",
    "detect",
    "disagreement",
    "export",
    "measure",
    "plan",
    "report",
    "train",
    "train_together",
    "try_architectures",
    "verify",
    "write",
    "write_detection",
    "write_study",
    "write_sweep",
    "write_verdicts",
]
