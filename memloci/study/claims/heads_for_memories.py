"""2b. A simple readout of a complex memory: heads help, FFN width does not.

The memory is a power law, which no number of lin heads holds exactly; the readout is linear. It is the mirror image of
2a, with the same sizes.
"""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, essential
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Profile
from memloci.study.claims.heads_or_width import FEW_HEADS, MANY_HEADS, NARROW, WIDE, size_arms, size_judge

FULL = ((FEW_HEADS, 2, 4, MANY_HEADS, 16), (NARROW, WIDE))


def arms(profile: Profile) -> Sequence[Arm]:
    task = essential("z ** -1.5")
    training = {"steps": profile.pick(800, 3000), "batch": 32, "length": 32, "held_out": 128}
    return size_arms(task, training, profile, FULL)


def judge(evidence: Evidence) -> Judgement:
    return size_judge("heads", evidence, FULL)


CLAIM = Claim(
    id="2b",
    title="Simple readout, complex memory: heads help, width does not",
    statement="When the memory is complex and the readout simple, more heads lower the error and more neurons do not.",
    source="arXiv 2402.00522, insight 2",
    design=(
        "One layer of lin heads learns the past weighed by z ** -1.5, which takes many exponentials, read out as it is. "
        f"From one small model two larger ones are made: {MANY_HEADS} heads in place of {FEW_HEADS}, or {WIDE} "
        f"neurons in place of {NARROW}, with about as many parameters. The claim fails if neurons lower the error by a "
        "factor of 2 or more, or if heads do not."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=(
        "several memories with exponents of their own",
        "more than one layer",
        "optimisers other than Adam",
    ),
)
