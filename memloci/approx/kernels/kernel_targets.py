"""Memories that are kernels, as targets of kernel sums: values and tails in Arb.

    c z^-p -> Power,  c e^{-b z} -> Exponential,  sums of these -> Sum,  anything else -> Generic

The first three have closed tails, so heads that match them leave exactly nothing. The others carry the
majorant that made the task summable (language/tails.py).
"""

import dataclasses

from flint import arb

from memloci.approx.kernels.rpe import AbstractRPE
from memloci.approx.kernels.targets import (
    AbstractTarget,
    Exponential,
    Generic,
    Power,
    SingleLag,
    Spectrum,
    Sum,
)
from memloci.core.balls import above, below
from memloci.core.errors import BadInput
from memloci.core.numbers import literal
from memloci.language.balls import value_at
from memloci.language.expression import Apply, Constant, Expression, Variable
from memloci.language.tails import TailTerm
from memloci.tasks.memories.base import Recall
from memloci.tasks.memories.kernel import NORM_LAGS, Convolution
from memloci.tasks.memories.lag_table import LagTable


def recall_target(recall: Recall) -> AbstractTarget:
    """The kernel over lags that a memory is, at every position."""
    match recall:
        case LagTable() if recall.kernel and recall.bound:
            return SingleLag(recall.bound)
        case Convolution():
            return kernel_target(recall)
    raise BadInput(f"{recall.text} is no kernel over past lags that is known here")


def kernel_target(memory: Convolution) -> AbstractTarget:
    """The kernel of an essential memory."""
    expression, tail = memory.rho.expression, memory.tail
    if expression is None:
        raise BadInput("nothing can be proved of a callable; write the kernel as an expression")
    value = lambda z: value_at(expression, {"z": z})
    if memory.horizon is not None:
        last = memory.horizon
        return Generic(lambda z: value(z) if z <= last else arb(0), (), memory.text, last)
    parts = _parts(expression, 1.0)
    if parts is not None:
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))
    # A term that grows like a power times a decaying exponential is bounded by half of its decay.
    terms = tuple(_falling(term) for term in tail.terms if not term.C.is_zero())
    return Generic(value, terms, memory.text, tail.start - 1)


def norm_above(target: AbstractTarget) -> float:
    """sum_z |rho(z)|, from above."""
    n = max(target.start, NORM_LAGS)
    total = sum((abs(target.value(z)) for z in range(1, n + 1)), arb(0)) + target.tail_bound(n)
    return above(total)


def _falling(term: TailTerm) -> tuple[float, float, float]:
    """(C, power, rate) with C z^-power e^(-rate z) at least the term, power >= 0."""
    if term.a <= 0:
        return above(term.C), max(below(-term.a), 0.0), max(below(term.b), 0.0)
    peak = 2 * term.a / term.b  # z^a e^(-b z / 2) is largest there
    return above(term.C * (term.a * peak.log() - term.a).exp()), 0.0, below(term.b / 2)


@dataclasses.dataclass(frozen=True)
class _Scaled(AbstractTarget):
    """c rho, where c and the factor of rho multiply to no float."""

    rho: AbstractTarget
    c: float

    @property
    def label(self) -> str:
        return f"{literal(self.c)} {self.rho.label}"

    def value(self, z: int) -> arb:
        return self.c * self.rho.value(z)

    def tail_bound(self, n: int) -> arb:
        return abs(self.c) * self.rho.tail_bound(n)

    def tail_sum(self, n: int) -> arb:
        return self.c * self.rho.tail_sum(n)

    def spectrum(self, rpe: AbstractRPE) -> Spectrum | None:
        unscaled = self.rho.spectrum(rpe)
        if unscaled is None:
            return None
        times_c = lambda terms: tuple((nu, self.c * a) for nu, a in terms)
        return Spectrum(times_c(unscaled.exponentials), times_c(unscaled.powers))

    @property
    def start(self) -> int:
        return self.rho.start

    def tail_is_signed(self) -> bool:
        return self.rho.tail_is_signed()


def scaled(target: AbstractTarget, c: float) -> AbstractTarget:
    """c rho, for c != 0."""
    match target:
        case Power() | Exponential():
            try:
                return dataclasses.replace(target, c=_exact_product(target.c, c))
            except BadInput:  # a product of two floats often is none; balls hold it
                return _Scaled(target, c)
        case _Scaled():
            return _Scaled(target, c)
        case Sum():
            return Sum(tuple(scaled(part, c) for part in target.parts))
        case Generic():
            terms = tuple((abs(c) * C * (1 + 1e-12), a, b) for C, a, b in target.majorant)
            return Generic(
                lambda z: arb(c) * target.value(z), terms, f"{literal(c)} {target.name}", target.start
            )
        case _:
            raise BadInput(f"{target.label} cannot be scaled")


def _exact_product(x: float, y: float) -> float:
    from fractions import Fraction

    product = x * y
    if Fraction(product) != Fraction(x) * Fraction(y):
        raise BadInput(f"{x} * {y} is not a float64 number")
    return product


def _parts(f: Expression, c: float) -> list[AbstractTarget] | None:
    """c f as powers and exponentials, or None."""
    try:
        return _split(f, c)
    except BadInput:
        return None


def _split(f: Expression, c: float) -> list[AbstractTarget] | None:
    match f:
        case Apply("+", (x, y)):
            left, right = _split(x, c), _split(y, c)
            return None if left is None or right is None else left + right
        case Apply("-", (x, y)):
            left, right = _split(x, c), _split(y, -c)
            return None if left is None or right is None else left + right
        case Apply("neg", (x,)):
            return _split(x, -c)
        case Apply("*", (Constant(k), x)) | Apply("*", (x, Constant(k))) if k:
            return _split(x, _exact_product(c, k))
        case Apply("**", (Variable(), Constant(p))) if p < -1:
            return [Power(-p, c)]
        case Apply("/", (Constant(k), Apply("**", (Variable(), Constant(p))))) if p > 1 and k:
            return [Power(p, _exact_product(c, k))]
        case Apply("exp", (u,)):
            rate = _rate(u)
            return None if rate is None else [Exponential(rate, c)]
        case _:
            return None


def _rate(u: Expression) -> float | None:
    """b, if u = -b z exactly."""
    match u:
        case Apply("neg", (Variable(),)):
            return 1.0
        case Apply("*", (Constant(k), Variable())) | Apply("*", (Variable(), Constant(k))) if k < 0:
            return -k
        case Apply(
            "neg", (Apply("*", (Constant(k), Variable())) | Apply("*", (Variable(), Constant(k))),)
        ) if k > 0:
            return k
        case _:
            return None
