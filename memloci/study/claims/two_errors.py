"""9. Mean square or sup: does the ranking of architectures change?"""

import statistics
from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, SUP
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile, Result, Series
from memloci.study.claims import (
    heads_for_memories,
    lin_for_light_tails,
    log_for_heavy_tails,
    width_for_readouts,
)
from memloci.study.statistics import Part, kendall, mean

SOURCES = {
    "2a": width_for_readouts,
    "2b": heads_for_memories,
    "4a": log_for_heavy_tails,
    "4b": lin_for_light_tails,
}
MARGIN = 0.5  # Kendall's tau: three of four pairs in the same order


def arms(profile: Profile) -> Sequence[Arm]:
    """Those of other claims: nothing is trained for this one alone."""
    return [
        Arm(f"{name}: {arm.name}", arm.task, arm.architecture, arm.training)
        for name, module in SOURCES.items()
        for arm in module.arms(profile)
    ]


def judge(evidence: Evidence) -> Judgement:
    groups = {
        name: [result for key, result in evidence.results.items() if key.startswith(f"{name}: ")]
        for name in SOURCES
    }
    taus = {name: _taus(results) for name, results in groups.items()}
    complete = all(taus.values())
    by_seed = [statistics.fmean(each) for each in zip(*taus.values(), strict=True)] if complete else []
    effect = mean(by_seed, evidence.level(1))
    points = tuple(
        Series(
            name,
            tuple(
                statistics.fmean(result.values(MEAN_SQUARE))
                for result in results
                if result.values(MEAN_SQUARE)
            ),
            tuple(tuple(result.values(SUP)) for result in results if result.values(MEAN_SQUARE)),
        )
        for name, results in groups.items()
    )
    told = ", ".join(f"{name} {statistics.fmean(each):.2f}" for name, each in taus.items() if each)
    return Judgement(
        parts=(Part("both errors rank the architectures alike", effect, MARGIN, "Kendall's tau"),),
        said=f"Kendall's tau between the two rankings, by claim: {told}.",
        panels=(
            Panel(
                "Sup against mean square error, one point per architecture",
                "mean square error",
                "sup error",
                points,
                log_x=True,
            ),
        ),
    )


def _taus(results: Sequence[Result]) -> list[float]:
    """One for every seed; empty where a run is missing."""
    squares = [result.values(MEAN_SQUARE) for result in results]
    sups = [result.values(SUP) for result in results]
    if not all(squares) or not all(sups):
        return []
    return [kendall(a, b) for a, b in zip(zip(*squares, strict=True), zip(*sups, strict=True), strict=True)]


CLAIM = Claim(
    id="9",
    title="Mean square and sup error rank architectures alike",
    statement="Which architecture is better does not depend on whether errors are averaged or the worst one counts.",
    source="ours; THEORY.md section 6, further questions",
    design=(
        "The architectures of 2a, 2b, 4a and 4b are ranked by both errors, seed by seed; the sup error is the largest that "
        "samples and an adversary found. Kendall's tau is 1 for the same order, 0 for no relation. The claim fails below "
        f"{MARGIN}."
    ),
    measure=SUP,
    arms=arms,
    judge=judge,
    untried=("models that are trained for the sup error",),
)
