"""From numbers over seeds to intervals, and from intervals to a verdict.

    effect = sum_k w_k mean(values_k),    interval = effect +- t_{nu, 1 - alpha / 2} sqrt(sum_k w_k^2 s_k^2 / n_k)

with Welch and Satterthwaite's nu: the arms of a comparison may spread differently. It covers the effect with
probability 1 - alpha where the values of an arm are about normal; errors are therefore taken as logarithms.

The rule, fixed before the seeds that judge are run. A claim has parts; a part says that an effect is above (or below) a margin:

    confirmed      its whole interval is on the side that the claim says
    refuted        its whole interval is on the other side
    inconclusive   the interval holds the margin, or an arm has no numbers

A claim is refuted if any of its parts is, confirmed if all of them are, else inconclusive. The parts of a claim share
its 5 % (alpha = 0.05 / parts, Bonferroni), so a false verdict of either kind is as rare as stated.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from memloci.core.errors import BadInput

ALPHA = 0.05

Verdict = Literal["confirmed", "refuted", "inconclusive"]
Term = tuple[float, Sequence[float]]  # a weight, and the values of an arm


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None where there are too few values to tell."""

    value: float | None
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


NOTHING = Estimate(None, None, None)


def mean(values: Sequence[float], level: float = 1 - ALPHA) -> Estimate:
    return combination([(1.0, values)], level)


def difference(a: Sequence[float], b: Sequence[float], level: float = 1 - ALPHA) -> Estimate:
    """How much larger a is than b."""
    return combination([(1.0, a), (-1.0, b)], level)


def combination(terms: Sequence[Term], level: float = 1 - ALPHA) -> Estimate:
    """A weighted sum of the means of several arms. An arm of one value is taken as exact: a computed number."""
    if not terms or any(not values for _, values in terms):
        return NOTHING
    value = sum(w * statistics.fmean(values) for w, values in terms)
    shares = [(w * w * statistics.variance(v) / len(v), len(v) - 1) for w, v in terms if len(v) > 1]
    total = sum(share for share, _ in shares)
    if total == 0.0:
        return Estimate(value, value, value)
    nu = total**2 / sum(share**2 / df for share, df in shares)
    half = _t(nu, level) * math.sqrt(total)
    return Estimate(value, value - half, value + half)


def slope(x: Sequence[float], y: Sequence[float], level: float = 1 - ALPHA) -> Estimate:
    """Of the line through (log10 x, y), by least squares; y are logarithms already."""
    points = [(math.log10(a), b) for a, b in zip(x, y, strict=True)]
    if len({a for a, _ in points}) < 2:
        return NOTHING
    centre = statistics.fmean(a for a, _ in points), statistics.fmean(b for _, b in points)
    spread = sum((a - centre[0]) ** 2 for a, _ in points)
    value = sum((a - centre[0]) * (b - centre[1]) for a, b in points) / spread
    nu = len(points) - 2
    if nu < 1:
        return Estimate(value, None, None)
    rest = sum((b - centre[1] - value * (a - centre[0])) ** 2 for a, b in points)
    half = _t(nu, level) * math.sqrt(rest / nu / spread)
    return Estimate(value, value - half, value + half)


def kendall(a: Sequence[float], b: Sequence[float], pairs: Sequence[tuple[int, int]] | None = None) -> float:
    """Kendall's tau of two rankings of the same things, over all pairs or these: 1 the same order, -1 the reverse."""
    pairs = [(i, j) for j in range(len(a)) for i in range(j)] if pairs is None else pairs
    if not pairs:
        raise BadInput("a ranking needs two things or more")
    sign = lambda x: (x > 0) - (x < 0)
    return sum(sign(a[i] - a[j]) * sign(b[i] - b[j]) for i, j in pairs) / len(pairs)


def _t(nu: float, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(nu, (1 + level) / 2))


@dataclass(frozen=True)
class Part:
    """One comparison of a claim: the effect should be above, or below, the margin."""

    statement: str
    effect: Estimate
    margin: float
    unit: str
    side: Literal["above", "below"] = "above"
    rests_on: Literal["seeds", "proof", "counts"] = "seeds"  # what its interval is about

    @property
    def verdict(self) -> Verdict:
        low, high = self.effect.low, self.effect.high
        if low is None or high is None:
            return "inconclusive"
        over, under = low > self.margin, high < self.margin
        if not over and not under:
            return "inconclusive"
        return "confirmed" if over == (self.side == "above") else "refuted"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def overall(parts: Sequence[Part]) -> Verdict:
    verdicts = {part.verdict for part in parts}
    if "refuted" in verdicts:
        return "refuted"
    return "confirmed" if verdicts == {"confirmed"} else "inconclusive"


def deciding(parts: Sequence[Part]) -> Part:
    """One that refutes, else one that is open, else the first."""
    order = ("refuted", "inconclusive", "confirmed")
    return min(parts, key=lambda part: order.index(part.verdict))


def shared_level(parts: float) -> float:
    """Of every interval of a claim with so many parts."""
    return 1 - ALPHA / parts
