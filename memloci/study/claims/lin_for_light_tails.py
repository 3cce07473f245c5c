"""4b. Light tails: lin beats log."""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Profile
from memloci.study.claims.tails import tail_arms, tail_judge

KERNEL, OTHER = "exp(-0.3 * z)", "z * exp(-0.5 * z)"


def arms(profile: Profile) -> Sequence[Arm]:
    return tail_arms(KERNEL, OTHER, profile)


def judge(evidence: Evidence) -> Judgement:
    return tail_judge(KERNEL, OTHER, "lin", "log", evidence)


CLAIM = Claim(
    id="4b",
    title="Light tails: lin beats log",
    statement="A memory that decays exponentially is learned better by linear encodings than by log ones.",
    source="arXiv 2402.00522, insight 4",
    design=(
        f"One dpf layer without FFN learns the kernel {KERNEL}. The arms differ in the encoding alone, at equal numbers of "
        "heads, so of parameters. A lin head can hold the kernel exactly and a log head cannot; with several heads log "
        "could catch up, and training need not find what a head can hold. "
        f"The full profile has {OTHER} beside it, which no head holds exactly."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("other light tails", "rates of decay other than 0.3"),
)
