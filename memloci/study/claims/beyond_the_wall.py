"""What 5b and 5c share: a lag that one lin layer does not reach, and a model that does, compiled and trained."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from memloci.core.numbers import lower_number, number, percent
from memloci.core.proved import Proved
from memloci.study.arms import MEAN_SQUARE, factor, fixed, gain, model, series
from memloci.study.claim import Arm, Curve, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Estimate, Part

FAR = 8  # proved: of one layer of lin heads error + mass 2^-24 is at least the floor, 1 (precision_wall.py)
NEAR = 4  # one compiled layer still recalls it; shown beside the claim in the full profile
MARGIN = 0.3  # decades
WITHIN = 1e-3
NOISE = 0.3  # of every array's root mean square
LAYER, KEPT = "1 layer, lin", "trained from compiled, disturbed weights"
BESIDE = f"Beside it training starts from compiled weights, with noise of {percent(NOISE)} of every array's root mean square."


def wall_arms(name: str, route: str, other: dict[str, Any], profile: Profile) -> Sequence[Arm]:
    training = {"steps": profile.pick(1000, 4000), "batch": 32, "length": 24, "held_out": 128}
    far, near = fixed([FAR], "x1"), fixed([NEAR], "x1")
    compiled = {**training, "start": "compiled", "route": route, "noise": NOISE}
    arms = [
        Arm(LAYER, far, model(16, 0), training),
        Arm(name, far, other, training),
        Arm(KEPT, far, None, compiled, context=True),
    ]
    beside = [
        Arm(_near(LAYER), near, model(16, 0), training, context=True),
        Arm(_near(name), near, other, training, context=True),
    ]
    return arms + profile.pick([], beside)


def _near(name: str) -> str:
    return f"{name}, lag {NEAR}"


def wall_judge(name: str, route: str, evidence: Evidence) -> Judgement:
    floor, E = _proved(route)
    proved = math.log10(floor / E)
    effect = gain(evidence, LAYER, name, evidence.level(2))
    dots = series(evidence, "trained", [(each, each) for each in evidence.results])
    return Judgement(
        parts=(
            Part(
                f"compiled: {name} is proved below the floor of one lin layer",
                Estimate(proved, proved, proved),
                1.0,
                "decades",
                rests_on="proof",
            ),
            Part(f"trained: {name} is below one lin layer", effect, MARGIN, "decades"),
        ),
        summary=(
            f"At lag {FAR} one layer of lin heads has an error plus one rounding of its mass of at least {lower_number(floor)} in float32, "
            f"and {name} compiled is proved within {number(Proved(E))}. Trained, {name} has the mean square error of one lin layer "
            f"divided by {factor(effect)}.{_sentence(evidence)}"
        ),
        panels=(
            Panel(f"Trained, lag {FAR}", "", "mean square error", (dots,)),
            Panel(
                f"Proved, lag {FAR}",
                "",
                "sup error",
                (
                    Curve("floor", (LAYER,), ((floor,),), "bound"),
                    Curve("compiled", (name,), ((E,),), "certified"),
                ),
            ),
        ),
    )


def _sentence(evidence: Evidence) -> str:
    """Whether training returns to what it may not find."""
    errors = evidence[KEPT].values(MEAN_SQUARE) if KEPT in evidence else []
    if not errors:
        return ""
    return f" From compiled weights that were disturbed it comes to {number(max(errors), 2)} or below with every seed."


@lru_cache(maxsize=4)
def _proved(route: str) -> tuple[float, float]:
    """The floor of one lin layer at the far lag, and the certified error of a route, in float32."""
    from memloci.approx.kernels.lower_bounds import lower_bound
    from memloci.approx.kernels.targets import SingleLag
    from memloci.study.claims.precision_wall import UNIT
    from memloci.synthesize import plan
    from memloci.tasks.load import task_from_dict

    built = plan(task_from_dict(fixed([FAR], "x1")), WITHIN, routes=[route]).best
    return lower_bound("lin", SingleLag(FAR), price=UNIT).error, float(built.certificate.bound)
