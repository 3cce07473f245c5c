"""5b. Depth breaks the wall."""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, model
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Profile
from memloci.study.claims.beyond_the_wall import BESIDE, FAR, wall_arms, wall_judge

DEEP, ROUTE = "8 layers, lin", "depth-1"


def arms(profile: Profile) -> Sequence[Arm]:
    return wall_arms(DEEP, ROUTE, model(2, 0, layers=FAR), profile)


def judge(evidence: Evidence) -> Judgement:
    return wall_judge(DEEP, ROUTE, evidence)


CLAIM = Claim(
    id="5b",
    title="Depth breaks the wall, compiled and trained",
    statement="Several layers of lin heads recall lags that one layer cannot, compiled and trained.",
    source="ours",
    design=(
        f"At lag {FAR}. Compiled: the certified error of a chain of shifts against the proved floor of one layer, both in float32. "
        f"Trained: 16 heads in one layer against the same heads in {FAR}, which could each shift by one, at equal parameters. The "
        f"claim fails if the chain is not at least ten times below the floor, or if depth does not lower the trained error by "
        f"a factor of 2. {BESIDE}"
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("other depths", "slopes that start steeper than ALiBi's"),
)
