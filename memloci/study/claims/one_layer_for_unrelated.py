"""1b. Unrelated memories: one layer suffices, with enough heads and width.

The precision wall stands in the way at far lags, whatever the heads: both sides are shown, and the verdict is about
lags that float32 can reach.
"""

import math
from collections.abc import Sequence

from memloci.core.numbers import number, percent
from memloci.study.arms import MEAN_SQUARE, changed, gain, model, series
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.claims.boolean import FAR, NEAR, SOLVED, boolean, training
from memloci.study.statistics import Part, combination

MARGIN = 0.3  # decades
SMALL, LARGE, DEEP, BEYOND = (
    "1 head, 8 neurons",
    "16 heads, 128 neurons",
    "3 layers, as large",
    "16 heads, far lags",
)


def arms(profile: Profile) -> Sequence[Arm]:
    settings = training(profile)
    return [
        Arm(SMALL, boolean(), model(1, 8), settings),
        Arm(LARGE, boolean(), model(16, 128), settings),
        Arm(DEEP, boolean(), model(5, 44, layers=3), settings, context=True),
        Arm(BEYOND, boolean(FAR), model(16, 128), settings, context=True),
    ]


def judge(evidence: Evidence) -> Judgement:
    level = evidence.level(2)
    solved = combination([(1.0, evidence[LARGE].logs(MEAN_SQUARE))], level)
    enough = gain(evidence, SMALL, LARGE, level)
    dots = series(evidence, "trained", [(name, name) for name in evidence.results])
    return Judgement(
        parts=(
            Part(
                "one layer with 16 heads and 128 neurons solves it",
                solved,
                math.log10(SOLVED),
                "log10 error",
                "below",
            ),
            Part("1 head and 8 neurons are worse", enough, MARGIN, "decades"),
        ),
        summary=(
            f"At lags {list(NEAR)} more heads and neurons {changed(enough)}."
            f"{_beside(evidence, level) if DEEP in evidence and BEYOND in evidence else ''}"
        ),
        panels=(
            Panel("A sparse Boolean function", "", "mean square error", (dots,), marks=(("solved", SOLVED),)),
        ),
        notes=(
            "The parts do not ask whether depth would be better: the claim is that one layer is enough.",
            *evidence.profile.pick(
                ("With half the steps one layer is not there yet: the verdict is about this budget.",), ()
            ),
        ),
    )


def _beside(evidence: Evidence, level: float) -> str:
    deeper, beyond = gain(evidence, LARGE, DEEP, level), evidence[BEYOND].values(MEAN_SQUARE)
    far = f"{number(sum(beyond) / len(beyond), 2)}" if beyond else "no number"
    return (
        f" Three layers of the same size {changed(deeper)} once more. At lags {list(FAR)}, beyond the precision "
        f"wall, one layer leaves {far} of a variance of 1."
    )


CLAIM = Claim(
    id="1b",
    title="Unrelated memories: one layer suffices",
    statement="One layer learns a function of unrelated memories, if it has enough heads and neurons.",
    source="arXiv 2402.00522, insight 1",
    design=(
        f"A sign at one lag chooses between signs at two others, lags {list(NEAR)}. The claim fails if one layer with 16 "
        f"heads and 128 neurons leaves more than {percent(SOLVED)} of the variance, or if it is not better than 1 head and 8 "
        f"neurons by a factor of 2. A deep model with the same parameters, and lags {list(FAR)}, beyond the precision wall of one "
        "lin layer in float32, are shown beside it."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("parity, which gradient descent finds hard at any depth", "more than three memories"),
)
