"""The whole story as one short file; read this first.

task -> plan -> compile -> certify -> measure -> report
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloci.certifier.certificate import Certificate
from memloci.certifier.certify import certify
from memloci.errors import BadInput
from memloci.model.files import read_bytes
from memloci.model.store import load, read, save
from memloci.model.transformer import Transformer
from memloci.observer.sup_error import Measurement, measure
from memloci.planner.make_plan import Plan, Plans, plan
from memloci.planner.routes import Progress
from memloci.specs import shorten
from memloci.tasks.base import Task

CERTIFICATE, REPORT = "certificate.json", "report.html"
AGREEMENT = 1e-9  # relative; the same weights give the same numbers, up to the platform's library


@dataclass(frozen=True)
class Built:
    """Weights by construction, and what is proved of them."""

    task: Task
    model: Transformer
    certificate: Certificate
    plan: Plan


def compile(
    task: Task,
    chosen: Plan | None = None,
    *,
    tolerance: float = 1e-3,
    precision: str = "float32",
    route: str | None = None,
    path: str | None = None,
    progress: Progress | None = None,
) -> Built:
    """The model of a plan; without one, of the cheapest plan, or of the best where none meets the tolerance.

    `path` is how it is to be evaluated (memloci/fast/choice.py), if not by the fastest that certificates cover
    without more ado; it is certified for that one.
    """
    if chosen is None:
        plans = plan(task, tolerance, precision, routes=[route] if route else None, progress=progress)
        chosen = best(plans)
    if path is None:
        return Built(task, chosen.model, chosen.certificate, chosen)
    model, old = chosen.model.using(path), chosen.certificate
    return Built(task, model, certify(model, task, tolerance=old.tolerance, precision=old.precision), chosen)


def best(plans: Plans) -> Plan:
    """The cheapest plan that meets the tolerance, else the one that comes nearest."""
    if plans.met:
        return plans.met[0]
    if plans.missed:
        return plans.missed[0]
    reasons = "; ".join(f"{route}: {reason}" for route, reason in plans.obstacles.items())
    raise BadInput(f"no route serves this task: {reasons}")


def write(
    built: Built, directory: str | Path, plans: Plans | None = None, seen: Measurement | None = None
) -> None:
    """model.safetensors, model.json, certificate.json and report.html, all of them or none."""
    from memloci.report.write import report_html

    certificate = built.certificate
    extra = {
        "route": built.plan.route,
        "slots": list(built.plan.design.slots),
        "tolerance": certificate.tolerance,
        "precision": certificate.precision,
    }
    page = report_html(built, plans, seen)
    beside = {CERTIFICATE: certificate.to_json().encode(), REPORT: page.encode()}
    save(built.model, directory, task=built.task, extra=extra, beside=beside)


def verify(directory: str | Path, path: str | None = None) -> Certificate:
    """The certificate, computed anew from the weights and the task in a directory; nothing else is read.

    `path`: of the model as evaluated by this one.
    """
    stored = read(directory)
    model, task = load(directory)
    if task is None:
        raise BadInput(f"{directory}: the model was saved without a task; there is nothing to verify against")
    model = model.using(path) if path else model
    tolerance, precision = stored.extra.get("tolerance", 1e-3), stored.extra.get("precision")
    return certify(model, task, tolerance=_number(tolerance, directory), precision=precision)


def disagreement(directory: str | Path, found: Certificate) -> str | None:
    """How the certificate on file differs from the one just computed; None if it does not.

    The file is not trusted: every field of it is compared. Bounds may differ in the last digits, where
    branch and bound stops; weights that were changed move them by more, or move their terms.
    """
    try:
        claimed = json.loads(read_bytes(Path(directory) / CERTIFICATE, 2**24))
    except BadInput as error:
        raise error.within(f"{directory}: {CERTIFICATE}") from None
    except (ValueError, RecursionError):
        claimed = None
    if not isinstance(claimed, dict) or not claimed.keys() >= {"bound", "terms"}:
        raise BadInput(f"{directory}: {CERTIFICATE} is not a certificate; compile again")
    return _difference("certificate", claimed, found.to_dict())


def _difference(place: str, claim: Any, value: Any) -> str | None:
    """The first place where a claim is not what the weights give."""
    if isinstance(claim, dict) and isinstance(value, dict) and claim.keys() == value.keys():
        parts = [(f"{place}.{key}", claim[key], value[key]) for key in value]
    elif isinstance(claim, list) and isinstance(value, list) and len(claim) == len(value):
        parts = [(f"{place}[{k}]", c, v) for k, (c, v) in enumerate(zip(claim, value, strict=True))]
    else:
        if claim == value:
            return None
        if isinstance(claim, int | float) and isinstance(value, int | float):
            if abs(claim - value) <= AGREEMENT * abs(value):
                return None
        return f"the file claims {place} = {shorten(claim)}, the weights give {shorten(value)}"
    return next((found for part in parts if (found := _difference(*part)) is not None), None)


def _number(value: Any, directory: str | Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{directory}: model.json: extra.tolerance must be a number, found {value!r}")
    return float(value)


__all__ = ["Built", "best", "certify", "compile", "measure", "plan", "verify", "write"]
