"""5c. Rotary encoding breaks the wall."""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, model
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Profile
from memloci.study.claims.beyond_the_wall import BESIDE, FAR, wall_arms, wall_judge

ROTARY, ROUTE = "1 layer, rotary", "rotary"


def arms(profile: Profile) -> Sequence[Arm]:
    # Slowest turn of about 100 tokens: the sequences are short.
    switches = {"attention": "dp", "encoding": "rope", "normalisation": "softmax", "rope_base": 100.0}
    return wall_arms(ROTARY, ROUTE, model(4, 0, **{**switches, "key_dim": 16}), profile)


def judge(evidence: Evidence) -> Judgement:
    return wall_judge(ROTARY, ROUTE, evidence)


CLAIM = Claim(
    id="5c",
    title="Rotary encoding breaks the wall, compiled and trained",
    statement="A layer with rotary encoding recalls lags that a layer of lin heads cannot, compiled and trained.",
    source="ours",
    design=(
        f"At lag {FAR}. Compiled: the certified error of a rotary head against the proved floor of one lin layer, both in float32. "
        f"Trained: 4 rotary heads (6,241 parameters) against 16 lin heads (8,305). The claim fails if the compiled head is not "
        f"at least ten times below the floor, or if rotary heads do not lower the trained error by a factor of 2. {BESIDE}"
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("other bases", "rotary heads in several layers"),
)
