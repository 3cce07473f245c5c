"""A certificate, restated for another runtime's rounding.

    |theirs - H| <= exact terms + rounding,       rounding: that of the plain definition, each row of weights one sum in any order

What a certificate proves has two parts. The terms of the kernels and of the neurons are about the weights, so they hold
wherever the same weights are multiplied. The rounding term is about how numbers are added: an exported model computes
the plain definition, whose sums may be made in any order, so its term is that of `certify(model.using("plain"))`. That
proof assumes of library functions that they are within 8 units; of another runtime this is measured
(tests/exchange/test_rounding.py), and the export says so.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from memloci.certify.certificate import Certificate
from memloci.certify.certify import certify
from memloci.certify.rounding import LIBRARY
from memloci.core.errors import BadInput
from memloci.core.numbers import number
from memloci.core.proved import Proved
from memloci.exchange.subject import Subject
from memloci.model.paths.plain import longest_plain


@dataclass(frozen=True)
class Restated:
    """What is proved of an exported model, and on which condition; `bound` is None where nothing is."""

    runtime: str
    bound: Proved | None
    certificate: Certificate | None
    conditions_met: tuple[str, ...]
    measured_only: tuple[str, ...]
    conditions_missed: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        certificate = None if self.certificate is None else self.certificate.to_dict()
        return {
            "runtime": self.runtime,
            "bound": None if certificate is None else certificate["bound"],
            "holds": list(self.conditions_met),
            "measured_only": list(self.measured_only),
            "not_held": list(self.conditions_missed),
            "certificate": certificate,
        }


def restated(subject: Subject, runtime: str) -> Restated:
    """The certificate for a runtime that computes the plain definition in IEEE arithmetic."""
    if subject.task is None:
        return Restated(runtime, None, None, (), (), ("no task: there is nothing to be proved",))
    try:
        plain = _plain_certificate(subject)
    except BadInput as reason:
        return Restated(runtime, None, None, (), (), (f"no certificate: {reason}",))
    a = subject.model.architecture
    longest = longest_plain(max(a.block(l).heads for l in range(a.layers)))
    exact = [f"{term.name}: {term.formula}" for term in plain.terms if term.name != "rounding"]
    return Restated(
        runtime=runtime,
        bound=plain.bound,
        certificate=plain,
        conditions_met=(
            *(f"{name}; it is about the weights" for name in exact),
            "rounding of sums and products: every sum in any order, with or without fused operations",
        ),
        measured_only=(
            f"exp, expm1, log, sin and cos of {runtime}, where the graph has them, within {number(LIBRARY)} units of roundoff: "
            "measured on samples, not proved",
            f"{runtime} rounds +, -, * and / to nearest in {a.precision}: true of its CPU kernels unless a "
            "user allows reduced precision",
        ),
        conditions_missed=(
            f"sequences of more than {longest:,} tokens: one sum over a longer past is not covered",
            "streams: an exported model reads whole sequences",
        ),
    )


@lru_cache(maxsize=1)  # the formats of one model are written one after the other
def _plain_certificate(subject: Subject) -> Certificate:
    assert subject.task is not None
    return certify(subject.model.using("plain"), subject.task, tolerance=subject.tolerance)
