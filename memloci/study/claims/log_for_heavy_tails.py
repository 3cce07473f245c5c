"""4a. Heavy tails: log beats lin."""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Profile
from memloci.study.claims.tails import tail_arms, tail_judge

KERNEL, OTHER = "z ** -1.5", "(z + 3) ** -1.5"


def arms(profile: Profile) -> Sequence[Arm]:
    return tail_arms(KERNEL, OTHER, profile)


def judge(evidence: Evidence) -> Judgement:
    return tail_judge(KERNEL, OTHER, "log", "lin", evidence)


CLAIM = Claim(
    id="4a",
    title="Heavy tails: log beats lin",
    statement="A memory that decays as a power law is learned better by log encodings than by linear ones.",
    source="arXiv 2402.00522, insight 4",
    design=(
        f"One dpf layer without FFN learns the kernel {KERNEL}. The arms differ in the encoding alone, at equal numbers of "
        "heads, so of parameters. A log head can hold the kernel exactly and a lin head cannot; but a sum of lin heads "
        "comes close (claim 6b), so with several heads lin could win, and training need not find what a head can hold. "
        f"The full profile has {OTHER} beside it, which no head holds exactly."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=(
        "powers other than 1.5",
        "lags beyond the sequence length",
    ),
)
