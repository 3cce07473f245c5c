"""What 5b and 5c share: a lag that one lin layer does not reach, and a model that does, compiled and trained."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from memloci.study.arms import decades, fixed, gain, model, series
from memloci.study.claim import Arm, Evidence, Judgement, Panel, Profile, Series
from memloci.study.statistics import Estimate, Part

FAR = 8  # proved: no lin heads recall it in float32
LAG = 4  # that is trained: one layer is stuck already (5a)
MARGIN = 0.3  # decades
WITHIN = 1e-3
LAYER = "1 layer, lin"


def wall_arms(name: str, other: dict[str, Any], profile: Profile) -> Sequence[Arm]:
    training = {"steps": profile.pick(1000, 4000), "batch": 32, "length": 24, "held_out": 128}
    task = fixed([LAG], "x1")
    return [Arm(LAYER, task, model(16, 0), training), Arm(name, task, other, training)]


def wall_judge(name: str, route: str, evidence: Evidence) -> Judgement:
    floor, E = _proved(route)
    proved = math.log10(floor / E)
    effect = gain(evidence, LAYER, name, evidence.level(2))
    dots = series(evidence, "trained", [(each, each) for each in (LAYER, name)])
    return Judgement(
        parts=(
            Part(
                f"compiled: proved below one layer's floor at lag {FAR}",
                Estimate(proved, proved, proved),
                1.0,
                "decades",
            ),
            Part(f"trained: below one layer at lag {LAG}", effect, MARGIN, "decades"),
        ),
        said=(
            f"At lag {FAR} no lin layer gets below {floor:.2g} in float32, and {name} compiled is proved within {E:.1e}. "
            f"Trained at lag {LAG}, it lowers the mean square error by {decades(effect)}."
        ),
        panels=(
            Panel(f"Trained, lag {LAG}", "", "mean square error", (dots,)),
            Panel(
                f"Proved, lag {FAR}",
                "",
                "sup error",
                (
                    Series("floor", (LAYER,), ((floor,),), "bound"),
                    Series("compiled", (name,), ((E,),), "certified"),
                ),
            ),
        ),
    )


@lru_cache(maxsize=4)
def _proved(route: str) -> tuple[float, float]:
    """The floor of one lin layer at the far lag, and the certified error of a route, in float32."""
    from memloci import pipeline
    from memloci.approx.lower_bounds import lower_bound
    from memloci.approx.targets import SingleLag
    from memloci.study.claims.precision_wall import UNIT
    from memloci.tasks.load import task_from_dict

    task = task_from_dict(fixed([FAR], "x1"))
    built = pipeline.compile(task, tolerance=WITHIN, route=route)
    return lower_bound("lin", SingleLag(FAR), price=UNIT).error, float(built.certificate.bound)
