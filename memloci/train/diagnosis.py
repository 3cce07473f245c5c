"""What a diagnosis is: a reason by name, a sentence, and the numbers it rests on; and what every reason looks at."""

import json
from dataclasses import dataclass, field
from typing import Any

from memloci.approx.readouts.ridge_exact import affine
from memloci.certify.certificate import Certificate
from memloci.core.numbers import number, upper_number
from memloci.model.architecture import Architecture
from memloci.tasks.names import channel_of
from memloci.tasks.task import Task
from memloci.train.spec import Run

LEARNED, DIVERGED, NO_TARGET = "learned", "diverged", "nothing to compare with"
TOO_SHORT = "sequences shorter than the lags"
OUT_OF_SIGHT = "memories out of sight"
NO_DOT_PRODUCT = "no dot product: below the capacity bound"
START = "one softmax layer cannot see the start"
NO_FFN, NARROW = "no FFN for a readout that is not affine", "FFN too narrow"
BITS, TAIL, HEADS = "too few bits", "a tail that does not match the encoding", "too few heads"
NOT_FOUND = "expressible but not found by training"
SAMPLES = "the samples were learned, the task was not"
LAYERS = "too few layers for the nesting"
UNKNOWN = "not known"

QUICK_VARIABLES = 2  # tuned: readouts of more real variables take minutes to approximate
OTHER = {"lin": "log", "log": "lin"}


@dataclass(frozen=True)
class Diagnosis:
    """A reason by name, the sentence for a reader, and the numbers it rests on."""

    name: str
    sentence: str
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def learned(self) -> bool:
        return self.name == LEARNED

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "sentence": self.sentence, "evidence": self.evidence}


@dataclass(frozen=True)
class DiagnosedRun:
    """A run and what became of it."""

    run: Run
    architecture: Architecture
    task: Task
    err_sup: float
    loss: float | None
    held_out: float | None

    @property
    def n(self) -> int:
        return self.run.training.length or 2

    @property
    def tolerance(self) -> float:
        return self.run.training.tolerance

    @property
    def text(self) -> str:
        return json.dumps(self.task.to_dict(), sort_keys=True)


def expressible(case: DiagnosedRun, certificate: Certificate) -> Diagnosis:
    start = " Training started there and left." if case.run.training.start == "compiled" else ""
    if certificate.met:
        proved = (
            f"at most {upper_number(certificate.bound)}, proved in {certificate.precision} for every input"
        )
    else:  # sums over a past without end are charged with rounding that a short sequence does not have
        proved = (
            f"at most {upper_number(certificate.exact_bound)} in exact arithmetic (proved; with the rounding of "
            f"{certificate.precision}, at most {upper_number(certificate.bound)} for any length)"
        )
    return Diagnosis(
        NOT_FOUND,
        f"Weights of these sizes exist whose error is {proved}; training reached {number(case.err_sup)}.{start} Other "
        "seeds or rates, more steps, or start = 'exponents' may find them.",
        {
            "E_compiled": float(certificate.bound),
            "E_compiled_exact": float(certificate.exact_bound),
            "tolerance": case.tolerance,
        },
    )


def slow_readout(task: Task) -> str | None:
    """Why the readout's neurons would take minutes to find; None if seconds."""
    if any(formula.expression is None for formula in task.readouts):
        return "nothing can be proved of a callable"
    if all(affine(formula.expression) is not None for formula in task.readouts if formula.expression):
        return None
    real = {channel.name for channel in task.channels if not channel.finite}
    read = {name for formula in task.readouts for name in formula.variables}
    count = sum(channel_of(name) in real for name in read)
    return f"a readout of {count} real variables" if count > QUICK_VARIABLES else None


def inside(small: Architecture, large: Architecture) -> bool:
    """Whether every model of `small` is one of `large`, with zeros in the rest."""
    shared = (small.norm, small.precision) == (large.norm, large.precision) and small.dim <= large.dim
    return (
        shared
        and small.layers <= large.layers
        and all(_block_inside(small.block(l), large.block(l)) for l in range(small.layers))
    )


def _block_inside(small: Architecture, large: Architecture) -> bool:
    same = ["encoding", "normalisation", "window", "stride"]
    least = ["heads", "width", "value_dim"]
    if small.attention != "dpf":
        least.append("key_dim")
    if small.encoding == "t5":
        same += ["buckets", "max_distance"]
    wider = small.attention == "dpf" and large.attention in ("dp", "tmx")  # with queries of 0
    return (
        (wider or small.attention == large.attention)
        and all(getattr(small, name) == getattr(large, name) for name in same)
        and all(getattr(small, name) <= getattr(large, name) for name in least)
    )


def layers_text(a: Architecture) -> str:
    return "one layer" if a.layers == 1 else f"{a.layers} layers"


def heads_text(count: int, rpe: str) -> str:
    return f"one {rpe} head" if count == 1 else f"{count} {rpe} heads"
