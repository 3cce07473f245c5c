"""What is exported: a model, the task it is for, and what is proved of it.

source -> (model, task, certificate)            source: a compiled model, a model directory, or a bare Transformer
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memloci.certify.certificate import Certificate
from memloci.certify.certify import certify
from memloci.circuits.circuit import Circuit
from memloci.core.errors import BadInput
from memloci.core.limits import positive
from memloci.core.specs import shorten
from memloci.model.store import read, task_of
from memloci.model.transformer import Transformer
from memloci.tasks.task import Task


@dataclass(frozen=True, eq=False)  # it is itself, so that what is known of it can be kept
class Subject:
    """A model on its way to another runtime."""

    model: Transformer
    task: Task | None
    tolerance: float = 1e-3
    stored_certificate: Certificate | None = None
    circuit: Circuit | None = None

    @cached_property
    def certificate(self) -> Certificate | None:
        """Of our own evaluation; None where there is no task, or nothing can be proved."""
        if self.stored_certificate is not None or self.task is None:
            return self.stored_certificate
        try:
            return certify(self.model, self.task, tolerance=self.tolerance)
        except BadInput:
            return None


def subject_of(source: Any) -> Subject:
    """From whatever a user has of a model."""
    if isinstance(source, Subject):
        return source
    if isinstance(source, Transformer):
        return Subject(source, None)
    if isinstance(source, str | Path):
        stored = read(source)
        tolerance = positive(stored.extra.get("tolerance", 1e-3), f"{source}: model.json: extra.tolerance")
        return Subject(stored.model, task_of(stored, source), tolerance)
    model, task = getattr(source, "model", None), getattr(source, "task", None)
    if not isinstance(model, Transformer):
        raise BadInput(
            f"export takes what ml.compile gives, a model or a model directory, found {shorten(source)}"
        )
    certificate = getattr(source, "certificate", None)
    known = certificate if isinstance(certificate, Certificate) else None
    circuit = getattr(getattr(source, "plan", None), "circuit", None)
    return Subject(
        model, task if isinstance(task, Task) else None, known.tolerance if known else 1e-3, known, circuit
    )
