"""2a. A complex readout of a simple memory: FFN width helps, heads do not.

The memory is one exponential kernel, which a single lin head holds exactly; the readout waves. If heads helped as much
as neurons, or neurons did not help, the claim would be refuted.
"""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, essential
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Profile
from memloci.study.claims.heads_or_width import FEW_HEADS, MANY_HEADS, NARROW, WIDE, size_arms, size_judge

FULL = ((FEW_HEADS, MANY_HEADS), (NARROW, 16, 32, WIDE, 128))


def arms(profile: Profile) -> Sequence[Arm]:
    task = essential("exp(-0.7 * z)", "cos(pi * x1)")
    training = {"steps": profile.pick(1000, 3000), "batch": 64, "length": 32, "held_out": 128}
    return size_arms(task, training, profile, FULL)


def judge(evidence: Evidence) -> Judgement:
    return size_judge("neurons", evidence, FULL)


CLAIM = Claim(
    id="2a",
    title="Complex readout, simple memory: width helps, heads do not",
    statement="When the readout is complex and the memory simple, more neurons lower the error and more heads do not.",
    source="arXiv 2402.00522, insight 2",
    design=(
        "One layer learns cos(pi u), where u is the past weighed by exp(-0.7 z). From one small model two larger ones "
        f"are made: {WIDE} neurons in place of {NARROW}, or {MANY_HEADS} heads in place of {FEW_HEADS}, with about "
        "as many parameters. All have the same steps, batches and seeds. The claim fails if heads lower the error by "
        "a factor of 2 or more, or if neurons do not."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("readouts of several memories at once", "more than one layer", "optimisers other than Adam"),
)
