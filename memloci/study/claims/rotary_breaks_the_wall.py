"""5c. Rotary encoding breaks the wall."""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, model
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Profile
from memloci.study.claims.beyond_the_wall import FAR, LAG, wall_arms, wall_judge

ROTARY = "1 layer, rotary"


def arms(profile: Profile) -> Sequence[Arm]:
    # Slowest turn of about 100 tokens: the sequences are short. Four heads have the parameters of sixteen lin heads.
    switches = {"attention": "dp", "encoding": "rope", "normalisation": "softmax", "rope_base": 100.0}
    return wall_arms(ROTARY, model(4, 0, **{**switches, "key_dim": 16}), profile)


def judge(evidence: Evidence) -> Judgement:
    return wall_judge(ROTARY, "rotary", evidence)


CLAIM = Claim(
    id="5c",
    title="Rotary encoding breaks the wall, compiled and trained",
    statement="A layer with rotary encoding recalls lags that a layer of lin heads cannot, compiled and trained.",
    source="ours",
    design=(
        f"Compiled: at lag {FAR} the certified error of a rotary head against the proved floor of one lin layer, both in float32. "
        f"Trained: at lag {LAG}, 4 rotary heads against 16 lin heads. The claim fails if the compiled head is not at least "
        "ten times below the floor, or if rotary heads do not lower the trained error by a factor of 2."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("training at lags beyond the wall", "other bases", "rotary heads in several layers"),
)
