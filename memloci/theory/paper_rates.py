"""The attention errors that the paper states, theorem by theorem, each with the n and the tasks that it holds for.

    E <= E_FFN + Lip(f) E_Attn,    E_Attn <= C(n) H^-n S(n),    E_FFN = O(||f||_B / sqrt(m)) up to logarithms

C(n) is not explicit, so what can be said of a task is S(n), the slope, and for which n the rate holds:

| result | memories | S(n), lin heads | S(n), log heads | n |
|---|---|---|---|---|
| 3.1, 4.1, 4.3 | lags up to T_i | (sum e^{0.01 T_i})^{n+1} | (sum T_i^{1.01})^{n+1} | every |
| 4.4 | K nested lags, then the others | sqrt(sum_{i<=K} e^{0.02 (n+1) T_i} + (sum_{i>K} e^{0.01 T_i})^{2n+2}) | the same of T_i^{2.02 (n+1)}, T_i^{1.01} | every |
| 4.5 | lags that read the present | sqrt(sum e^{0.02 (n+1) T_i}) | | every |
| 5.1 A | kernels O(e^{-beta t}) | M^{n+1} | | up to floor(99 beta) |
| 5.1 B | kernels O(t^{-beta}) | | M^{n+1} | up to floor(0.99 beta) - 1 |

A kernel that is O(t^{-beta}) for every beta, as an exponential, has every n in 5.1 B, and one that ends has every n in both.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from memloci.approx.readouts.ridge_certify import PAPER_SLOPE
from memloci.core.numbers import decimals, literal
from memloci.language.tails import TailTerm
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task

RATE = 0.01  # of the slowest head of Lemma F.1; 99 and 0.99 come from it
FFN = "m^-1/2"


@dataclass(frozen=True)
class HeadsRate:
    """E_Attn of one encoding: C(n) H^-n S(n) for n = 1, ..., `most`; no rate where `most` is 0."""

    encoding: str
    formula: str
    most: int | None  # None: every n
    log10_S: Callable[[int], float] = field(compare=False)
    condition: str = ""  # where `most` comes from

    @property
    def exists(self) -> bool:
        return self.most is None or self.most > 0

    @property
    def holds(self) -> str:
        """For which n."""
        if self.most is None:
            return "for every n"
        return f"for n up to {self.most} ({self.condition})" if self.most else f"for no n ({self.condition})"

    @property
    def text(self) -> str:
        return f"{self.formula}, {self.holds}"


@dataclass(frozen=True)
class Statement:
    """One theorem of the paper, as it reads for a task."""

    result: str
    attention: str
    layers: int
    rates: tuple[HeadsRate, ...]
    width: str  # the condition on m, beside E_FFN

    def rate(self, encoding: str) -> HeadsRate | None:
        return next((rate for rate in self.rates if rate.encoding == encoding), None)


@dataclass(frozen=True)
class PaperRates:
    """What the paper states of a task: its theorems, or why there is none."""

    statements: tuple[Statement, ...]
    why_none: str = ""
    width: str = FFN
    width_slope: float = PAPER_SLOPE

    def rate(self, encoding: str) -> tuple[Statement, HeadsRate] | None:
        """The first theorem that has a rate for this encoding, whether or not any n is left."""
        rates = ((statement, statement.rate(encoding)) for statement in self.statements)
        return next(((statement, rate) for statement, rate in rates if rate is not None), None)

    @property
    def heads(self) -> str:
        """One line: the results, and what they give each encoding."""
        if not self.statements:
            return f"no rate: {self.why_none}"
        first = self.statements[0]
        results = ", ".join(statement.result for statement in self.statements)
        rates = first.rates if len(self.statements) == 1 else [r for s in self.statements for r in s.rates]
        holds_for = {rate.encoding: rate.holds.split(" (")[0] for rate in reversed(rates)}
        each = {
            f"H^-n {holds}": [e for e in holds_for if holds_for[e] == holds] for holds in holds_for.values()
        }
        parts = [f"{' and '.join(sorted(names))} {text}" for text, names in each.items()]
        return f"{'; '.join(sorted(parts))} ({results})"

    def to_dict(self) -> dict[str, object]:
        return {
            "statements": [
                {
                    "result": statement.result,
                    "attention": statement.attention,
                    "layers": statement.layers,
                    "width": statement.width,
                    "rates": [_rate_dict(rate) for rate in statement.rates],
                }
                for statement in self.statements
            ],
            "heads": self.heads,
            "why_none": self.why_none or None,
            "width": self.width,
            "width_slope": self.width_slope,
        }


def paper_rates(task: Task) -> PaperRates:
    """The theorems of the paper that are about tasks of this kind."""
    kinds = {type(recall) for recall in task.recalls}
    if not kinds:
        return PaperRates((), "nothing is recalled")
    if not kinds <= {LagTable, Convolution}:
        return PaperRates((), "the paper has no memory that is found by content")
    if kinds == {Convolution}:
        return _essential(task)
    if Convolution in kinds:
        return PaperRates((), "the paper states none for lags and kernels in one task")
    T = [float(bound) for bound in task.lag_bounds]
    if task.stationary:
        return PaperRates((_shared("Theorem 3.1", "dpf", 1, T, "none beside E_FFN"),))
    return PaperRates(_adaptive(task, T))


# -- lags ------------------------------------------------------------------------------------------------


def _shared(result: str, attention: str, layers: int, T: list[float], width: str) -> Statement:
    """All memories share out the heads of one layer."""
    lin = HeadsRate(
        "lin", "C(n) H^-n (sum e^{0.01 T_i})^{n+1}", None, lambda n: (n + 1) * _log10_sum(_lin(T))
    )
    log = HeadsRate("log", "C(n) H^-n (sum T_i^{1.01})^{n+1}", None, lambda n: (n + 1) * _log10_sum(_log(T)))
    return Statement(result, attention, layers, (lin, log), width)


def _adaptive(task: Task, T: list[float]) -> tuple[Statement, ...]:
    if task.K:
        return (_nested(task, T),)
    width = "m >= O~(sum ||g_i||_B^2) for lin heads, O~(sum ||log g_i||_B^2 T_i^2) for log heads"
    each = HeadsRate(
        "lin",
        "C(n) H^-n sqrt(sum e^{0.02 (n+1) T_i})",
        None,
        lambda n: 0.5 * _log10_sum([2 * (n + 1) * x for x in _lin(T)]),
    )
    deep = "m >= O~(max ||g_i||_B^2): the largest in place of the sum"
    return (
        _shared("Theorem 4.1", "dp", 2, T, width),
        _shared("Theorem 4.3", "tmx", 2, T, width),
        Statement("Proposition 4.5", "dp", task.M + 1, (each,), deep),
    )


def _nested(task: Task, T: list[float]) -> Statement:
    K = task.K

    def log10_S(n: int, sizes: list[float]) -> float:
        nested = [2 * (n + 1) * x for x in sizes[:K]]
        rest = [(2 * n + 2) * _log10_sum(sizes[K:])] if sizes[K:] else []
        return 0.5 * _log10_sum([*nested, *rest])

    lin = HeadsRate(
        "lin",
        "C(n) H^-n sqrt(sum_{i<=K} e^{0.02 (n+1) T_i} + (sum_{i>K} e^{0.01 T_i})^{2n+2})",
        None,
        lambda n: log10_S(n, _lin(T)),
    )
    log = HeadsRate(
        "log",
        "C(n) H^-n sqrt(sum_{i<=K} T_i^{2.02 (n+1)} + (sum_{i>K} T_i^{1.01})^{2n+2})",
        None,
        lambda n: log10_S(n, _log(T)),
    )
    width = (
        "m >= O~(max(max_{i<=K} ||g_i||_B^2, sum_{i>K} ||g_i||_B^2)) for lin heads, with ||log g_i||_B^2 T_i^2 in "
        "their place for log heads"
    )
    return Statement("Theorem 4.4", "dp", task.paper_layers, (lin, log), width)


def _lin(T: Iterable[float]) -> list[float]:
    """log10 e^{0.01 T}."""
    return [RATE * t / math.log(10) for t in T]


def _log(T: Iterable[float]) -> list[float]:
    """log10 T^{1.01}; the present, lag 0, adds nothing."""
    return [(1 + RATE) * math.log10(t) for t in T if t >= 1]


def _log10_sum(logs: list[float]) -> float:
    """log10 of a sum, of the terms' logarithms: e^{0.01 T} is no float for lags beyond 70,000."""
    most = max(logs, default=-math.inf)
    if math.isinf(most):
        return most
    return most + math.log10(sum(10.0 ** (x - most) for x in logs))


# -- kernels ---------------------------------------------------------------------------------------------


def _essential(task: Task) -> PaperRates:
    """5.1 A and 5.1 B, with the n that the tails leave."""
    M = task.M
    log10_S = lambda n: (n + 1) * math.log10(M)
    formula = "C(n) H^-n M^{n+1}"
    memories = [recall for recall in task.recalls if isinstance(recall, Convolution)]
    light = [decay(memory) for memory in memories]
    statements = []
    if all(beta > 0 for beta in light):
        beta = min(light)
        most = None if beta == math.inf else math.floor(99 * Fraction(beta))
        condition = f"n <= floor(99 beta), beta = {_beta(beta)}"
        rate = HeadsRate("lin", formula, most, log10_S, condition)
        statements.append(Statement("Theorem 5.1 A", "dpf", 1, (rate,), "none beside E_FFN"))
    heavy = [power(memory) for memory in memories]
    if all(beta > 1 for beta in heavy):
        beta = min(heavy)
        most = None if beta == math.inf else max(0, math.floor(Fraction(99, 100) * Fraction(beta)) - 1)
        condition = f"n <= floor(0.99 beta) - 1, beta = {_beta(beta)}"
        rate = HeadsRate("log", formula, most, log10_S, condition)
        statements.append(Statement("Theorem 5.1 B", "dpf", 1, (rate,), "none beside E_FFN"))
    return PaperRates(tuple(statements), "" if statements else "no tail is shown to be light or heavy")


def decay(memory: Convolution) -> float:
    """beta with rho(t) = O(e^{-beta t}): the largest that is shown; infinite where the kernel ends, 0 where no beta > 0 serves."""
    return min((_decay(term) for term in memory.tail.terms if not term.C.is_zero()), default=math.inf)


def power(memory: Convolution) -> float:
    """beta with rho(t) = O(t^{-beta}): infinite where the tail is exponential or ends."""
    return min((_power(term) for term in memory.tail.terms if not term.C.is_zero()), default=math.inf)


def _decay(term: TailTerm) -> float:
    """Of C z^a e^{-b z}: any beta below b where a > 0, and b itself where it is not."""
    b = max(float(term.b.mid()), 0.0) if term.b > 0 else 0.0
    return math.nextafter(b, 0.0) * (1 - 1e-6) if term.a > 0 and b else b


def _power(term: TailTerm) -> float:
    return math.inf if term.b > 0 else max(float((-term.a).mid()), 0.0)


def _beta(beta: float) -> str:
    if beta == math.inf:
        return "any"
    return literal(beta) if len(literal(beta)) < 8 else decimals(beta, 4)


def _rate_dict(rate: HeadsRate) -> dict[str, object]:
    return {
        "encoding": rate.encoding,
        "formula": rate.formula,
        "every_n": rate.most is None,
        "most_n": rate.most,
        "condition": rate.condition or None,
        "log10_S": {n: _or_none(rate.log10_S(n)) for n in (1, 2, 3)} if rate.exists else None,
    }


def _or_none(log10: float) -> float | None:
    """A sum of nothing has no logarithm: all memories are the present."""
    return log10 if math.isfinite(log10) else None
