"""3a. Unrelated memories do not need the dot product."""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, balanced, factor, gain, model, parameter_count, series
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.claims.boolean import NEAR, SOLVED, boolean, training
from memloci.study.statistics import Part

MARGIN = 0.3  # decades
DP, DPF, DPF_EQUAL = "dp", "dpf", "dpf, as many parameters as dp"


def arms(profile: Profile) -> Sequence[Arm]:
    softmax = {"normalisation": "softmax"}
    dp = model(8, 64, **{**softmax, "attention": "dp"})
    dpf = model(8, 64, **softmax)
    same = balanced(dpf, 1, parameter_count(dp, 1))
    architectures = {DP: dp, DPF: dpf, DPF_EQUAL: same}
    return [
        Arm(name, boolean(), architecture, training(profile)) for name, architecture in architectures.items()
    ]


def judge(evidence: Evidence) -> Judgement:
    level = evidence.level(2)
    same, smaller = gain(evidence, DPF_EQUAL, DP, level), gain(evidence, DPF, DP, level)
    dots = series(evidence, "trained", [(name, name) for name in (DP, DPF, DPF_EQUAL)])
    return Judgement(
        parts=(
            Part("dp is no better than dpf of its size", same, MARGIN, "decades", "below"),
            Part(
                "dp is no better than dpf of as many heads and neurons", smaller, MARGIN, "decades", "below"
            ),
        ),
        summary=f"The error of dpf is that of dp times {factor(same)}, at equal parameters.",
        panels=(
            Panel("A sparse Boolean function", "", "mean square error", (dots,), marks=(("solved", SOLVED),)),
        ),
        notes=("The parts do not ask whether any of them solves it; the figure shows it.",),
    )


CLAIM = Claim(
    id="3a",
    title="Unrelated memories do not need the dot product",
    statement="On memories that are unrelated, attention without dot products learns as well as with them.",
    source="arXiv 2402.00522, insight 3",
    design=(
        f"The sparse Boolean function of 1b, lags {list(NEAR)}, learned by one softmax layer of 8 heads with and without "
        "dot products: once with as many heads and neurons, once with a wider FFN that makes up for the parameters within "
        "3 %. The claim fails if dp is better by a factor of 2 or more."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("more heads for dpf in place of neurons", "several layers"),
)
