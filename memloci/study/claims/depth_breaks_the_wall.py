"""5b. Depth breaks the wall."""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, model
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Profile
from memloci.study.claims.beyond_the_wall import FAR, LAG, wall_arms, wall_judge

DEEP = "4 layers, lin"


def arms(profile: Profile) -> Sequence[Arm]:
    return wall_arms(DEEP, model(4, 0, layers=4), profile)


def judge(evidence: Evidence) -> Judgement:
    return wall_judge(DEEP, "depth-1", evidence)


CLAIM = Claim(
    id="5b",
    title="Depth breaks the wall, compiled and trained",
    statement="Several layers of lin heads recall lags that one layer cannot, compiled and trained.",
    source="ours",
    design=(
        f"Compiled: at lag {FAR} the certified error of a chain of shifts against the proved floor of one layer, both in float32. "
        f"Trained: at lag {LAG}, the heads of one layer against the same heads in four, which could each shift by one, at equal parameters. The claim "
        "fails if the chain is not at least ten times below the floor, or if depth does not lower the trained error by "
        "a factor of 2."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("training at lags beyond the wall", "other depths"),
)
