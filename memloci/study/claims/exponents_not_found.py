"""6b. Heavy tails with lin heads: expressible, yet not found; and whether good exponents close the gap.

What can be expressed is computed for the error that arms are judged by. Inputs are independent, so the mean square error of
heads whose sum misses the kernel by r(z) is, on sequences of n tokens,

    E x^2 sum_z (1 - z / n) r(z)^2

which least squares minimise: coefficients for given exponents, and the exponents around them. Coefficients that are not
negative suffice (docs/theory.md, section 5), and have no precision wall.
"""

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from memloci.core.numbers import number, to_digits
from memloci.study.arms import MEAN_SQUARE, changed, essential, factor, gain, model, series
from memloci.study.claim import Arm, Claim, Curve, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Part, combination, difference

POWER, HEADS = -1.5, 8
KERNEL = f"z ** {POWER}"
MARGIN = 0.5  # decades: a factor of 3
RANDOM, EXPONENTS = "ALiBi's slopes", "best exponents"
FAR, LOG = "exponents for all lags", "log heads"  # beside the claim
SQUARE_OF_INPUTS = 1 / 3  # E x^2 of uniform numbers on [-1, 1]
LEAST = 1e-14  # what float32 resolves of numbers of this size, squared


def _length(profile: Profile) -> int:
    return profile.pick(64, 128)


def arms(profile: Profile) -> Sequence[Arm]:
    training: dict[str, Any] = {
        "steps": profile.pick(1200, 6000),
        "batch": 32,
        "length": _length(profile),
        "held_out": 128,
    }
    task, architecture, given = essential(KERNEL), model(HEADS, 0), {"start": "exponents"}
    best = {**given, "exponents": expressed(_length(profile))[1]}
    return [
        Arm(RANDOM, task, architecture, training),
        Arm(EXPONENTS, task, architecture, {**training, **best}),
        Arm(FAR, task, architecture, {**training, **given}, context=True),
        Arm(LOG, task, model(HEADS, 0, encoding="log"), training, context=True),
    ]


def judge(evidence: Evidence) -> Judgement:
    level = evidence.level(2)
    least = max(expressed(_length(evidence.profile))[0], LEAST)
    compiled, random, best = (
        [math.log10(least)],
        *(evidence[n].logs(MEAN_SQUARE) for n in (RANDOM, EXPONENTS)),
    )
    missed, helped = difference(random, compiled, level), gain(evidence, RANDOM, EXPONENTS, level)
    closed = combination([(1.0, random), (1.0, compiled), (-2.0, best)], level)
    dots = series(evidence, "trained", [(name, name) for name in evidence.results])
    yardstick = Curve("computed", ("the same heads, by least squares",), ((least,),), "measured")
    return Judgement(
        parts=(
            Part("training stays above what the heads can express", missed, MARGIN, "decades"),
            Part("the best exponents as a start close more than half of the gap", closed, 0.0, "decades"),
        ),
        summary=(
            f"{HEADS} lin heads can hold {KERNEL} with a mean square error of {number(least, 1)} on these sequences. Trained from ALiBi's "
            f"slopes they have {factor(missed)} times that. The best exponents as a start {changed(helped)}.{_with_log(evidence)}"
        ),
        panels=(Panel(f"{HEADS} lin heads on {KERNEL}", "", "mean square error", (dots, yardstick)),),
        notes=(
            "Exponents for all lags are those of a sum whose l1 error is least over an infinite past: slower ones, that such short "
            "sequences do not need.",
        ),
    )


def _with_log(evidence: Evidence) -> str:
    """A single log head holds the kernel: what the same training leaves then is not for want of exponents."""
    errors = evidence[LOG].values(MEAN_SQUARE) if LOG in evidence else []
    if not errors:
        return ""
    return f" {HEADS} log heads, one of which would hold it exactly, are trained to {number(statistics.median(errors), 2)}."


@lru_cache(maxsize=4)
def expressed(n: int) -> tuple[float, tuple[float, ...]]:
    """The least mean square error that was found for so many heads on n tokens, and the exponents that have it."""
    import numpy as np
    from scipy.optimize import least_squares, nnls

    z = np.arange(1, n)
    weight = np.sqrt(SQUARE_OF_INPUTS * (1 - z / n))

    def residual(u: Any) -> Any:
        p = np.exp(u)
        heads = -np.expm1(-p) * np.exp(-p * (z - 1)[:, None])
        a, _ = nnls(heads * weight[:, None], z**POWER * weight)
        return weight * (heads @ a - z**POWER)

    evenly = np.log(np.geomspace(1 / n, 3, HEADS))  # tuned: from the whole length to one token
    solved = least_squares(residual, evenly, xtol=1e-12, ftol=1e-12, gtol=1e-12)
    left = residual(solved.x)
    return float(left @ left), tuple(to_digits(p, 6) for p in np.exp(solved.x))


CLAIM = Claim(
    id="6b",
    title="Lin heads could hold heavy tails: training misses it, and good exponents close half of the gap",
    statement="Lin heads express power laws well; training from ALiBi's slopes misses it, and the best exponents as a start close more than half of the gap.",
    source="ours",
    design=(
        f"{HEADS} lin heads without FFN learn {KERNEL}, from ALiBi's slopes and from the best exponents; all weights are trained in "
        "both. The yardstick is what heads can express on these sequences, by least squares for coefficients and exponents, or "
        f"{number(LEAST, 1)} where that is more, which is about what float32 resolves. The "
        "claim fails if training comes within a factor of 3 of it, or if the exponents close less than half of the gap, counted in "
        "decades: then it is not the exponents that training misses. Log heads are trained beside it, one of which holds the kernel."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("other schedules for the slopes", "more steps than the profile's", "second-order optimisers"),
)
