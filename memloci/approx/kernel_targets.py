"""An essential task's kernels as targets of kernel sums: values and tails in Arb.

    c z^-p -> Power,  c e^{-b z} -> Exponential,  sums of these -> Sum,  anything else -> Generic

The first three have closed tails, so heads that match them leave exactly nothing. The others carry the
majorant that made the task summable (expressions/tails.py).
"""

import dataclasses
from typing import Any

from flint import arb

from memloci.approx.rpe import AbstractRPE
from memloci.approx.targets import AbstractTarget, Exponential, Generic, Power, SingleLag, Spectrum, Sum
from memloci.errors import BadInput
from memloci.expressions.parse import Apply, Constant, Expression, Variable
from memloci.tasks.base import Task
from memloci.tasks.essential import NORM_LAGS, Essential
from memloci.tasks.fixed import Fixed


def memory_target(task: Task, i: int) -> AbstractTarget:
    """What the i-th memory (from 0) of a fixed or essential task is a kernel of."""
    if isinstance(task, Fixed):
        return SingleLag(task.lags[i])
    if isinstance(task, Essential):
        return kernel_target(task, i)
    raise BadInput(f"{task.kind} memories have no kernel of their own")


def kernel_target(task: Essential, i: int) -> AbstractTarget:
    """The i-th kernel of the task (from 0)."""
    formula = task.rho[i]
    if formula.expression is None:
        raise BadInput(
            f"kernels[{i}]: nothing can be proved of a callable; write the kernel as an expression"
        )
    parts = _parts(formula.expression, 1.0)
    if parts is not None:
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))
    tail = task.tails[i]
    # A term that grows like a power times a decaying exponential is bounded by half of its decay.
    terms = tuple(_falling(t.C, t.a, t.b) for t in tail.terms if t.C > 0)
    expression = formula.expression
    return Generic(lambda z: arb_value(expression, z), terms, str(formula), tail.start - 1)


def norm_above(target: AbstractTarget) -> float:
    """sum_z |rho(z)|, from above."""
    n = max(target.start, NORM_LAGS)
    total = sum((abs(target.value(z)) for z in range(1, n + 1)), arb(0)) + target.tail_bound(n)
    return float(total.upper()) * (1 + 1e-12)


def _falling(C: float, a: float, b: float) -> tuple[float, float, float]:
    """(C, power, rate) of a term C z^a e^(-b z), as C z^-power e^(-rate z) with power >= 0."""
    if a <= 0:
        return C * (1 + 1e-12), -a + 0.0, b + 0.0
    peak = 2 * a / b  # z^a e^(-b z / 2) is largest there
    return C * float((arb(a) * arb(peak).log() - arb(a)).exp().upper()) * (1 + 1e-9), 0.0, b / 2


@dataclasses.dataclass(frozen=True)
class _Scaled(AbstractTarget):
    """c rho, where c and the factor of rho multiply to no float."""

    rho: AbstractTarget
    c: float

    @property
    def label(self) -> str:
        return f"{self.c:g} {self.rho.label}"

    def value(self, z: int) -> arb:
        return self.c * self.rho.value(z)

    def tail_bound(self, n: int) -> arb:
        return abs(self.c) * self.rho.tail_bound(n)

    def tail_sum(self, n: int) -> arb:
        return self.c * self.rho.tail_sum(n)

    def spectrum(self, rpe: AbstractRPE) -> Spectrum | None:
        own = self.rho.spectrum(rpe)
        if own is None:
            return None
        times_c = lambda terms: tuple((nu, self.c * a) for nu, a in terms)
        return Spectrum(times_c(own.exponentials), times_c(own.powers))

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
            return Generic(lambda z: arb(c) * target.value(z), terms, f"{c:g} {target.name}", target.after)
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


def arb_value(f: Expression, z: int) -> arb:
    """The value of an expression in z at a lag, as a ball at flint's precision."""
    match f:
        case Constant(value):
            return arb(value)
        case Variable():
            return arb(z)
        case Apply("where", (condition, x, y)):
            return arb_value(x if _truth(condition, z) else y, z)
        case Apply("**", (x, Constant(p))):
            return arb_value(x, z) ** (int(p) if p.is_integer() else arb(p))
        case Apply(operation, operands):
            return _ARB[operation](*(arb_value(o, z) for o in operands))


def _truth(f: Expression, z: int) -> bool:
    match f:
        case Apply("and", (x, y)):
            return _truth(x, z) and _truth(y, z)
        case Apply("or", (x, y)):
            return _truth(x, z) or _truth(y, z)
        case Apply("not", (x,)):
            return not _truth(x, z)
        case Apply("<" | "<=" | ">" | ">=" | "==" | "!=" as relation, (x, y)):
            return _compare(relation, arb_value(x, z), arb_value(y, z))
        case _:
            return _compare("!=", arb_value(f, z), arb(0))


def _compare(relation: str, x: arb, y: arb) -> bool:
    decided = {
        "<": (x < y, x >= y),
        "<=": (x <= y, x > y),
        ">": (x > y, x <= y),
        ">=": (x >= y, x < y),
        "==": (x.is_exact() and y.is_exact() and x == y, x != y),
        "!=": (x != y, x.is_exact() and y.is_exact() and x == y),
    }[relation]
    if decided[0] == decided[1]:
        raise BadInput(f"a comparison of {x.str(8)} with {y.str(8)} is too close to decide")
    return bool(decided[0])


def _staircase(step: str) -> Any:
    def apply(x: arb) -> arb:
        value = getattr(x, step)()
        if not value.is_exact():
            raise BadInput(f"{step} of {x.str(8)} is too close to a jump to decide")
        return value

    return apply


def _round(x: arb) -> arb:
    low = _staircase("floor")(x)
    if _compare("==", x - low, arb(0.5)) if (x - low).is_exact() else False:
        return low if int(float(low)) % 2 == 0 else low + 1  # half to even, as everywhere in the language
    return low + 1 if _compare(">", x - low, arb(0.5)) else low


def _indicator(relation: str) -> Any:
    return lambda x, y: arb(int(_compare(relation, x, y)))


_ARB: dict[str, Any] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "**": lambda x, y: x**y,
    "//": lambda x, y: _staircase("floor")(x / y),
    "%": lambda x, y: x - y * _staircase("floor")(x / y),
    "neg": lambda x: -x,
    "abs": abs,
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "tanh": lambda x: x.tanh(),
    "sqrt": lambda x: x.sqrt(),
    "floor": _staircase("floor"),
    "round": _round,
    "sign": lambda x: arb(int(_compare(">", x, arb(0))) - int(_compare("<", x, arb(0)))),
    "min": lambda x, y: x.min(y),
    "max": lambda x, y: x.max(y),
    "and": lambda x, y: arb(int(_compare("!=", x, arb(0)) and _compare("!=", y, arb(0)))),
    "or": lambda x, y: arb(int(_compare("!=", x, arb(0)) or _compare("!=", y, arb(0)))),
    "not": lambda x: arb(int(_compare("==", x, arb(0)))),
    **{relation: _indicator(relation) for relation in ("<", "<=", ">", ">=", "==", "!=")},
}
