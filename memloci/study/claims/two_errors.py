"""9. Mean square or sup: does the ranking of architectures change?"""

import statistics
from collections.abc import Sequence

from memloci.core.numbers import decimals
from memloci.study.arms import MEAN_SQUARE, SUP
from memloci.study.claim import Arm, Claim, Curve, Evidence, Judgement, Panel, Profile, Result
from memloci.study.claims import (
    heads_for_memories,
    lin_for_light_tails,
    log_for_heavy_tails,
    width_for_readouts,
)
from memloci.study.statistics import NOTHING, Estimate, Part, kendall, mean

SOURCES = {
    "2a": width_for_readouts,
    "2b": heads_for_memories,
    "4a": log_for_heavy_tails,
    "4b": lin_for_light_tails,
}
MARGIN = 0.5  # Kendall's tau: three of four pairs in the same order
DIFFERENT = 0.3  # decades


def arms(profile: Profile) -> Sequence[Arm]:
    """Those of other claims: nothing is trained for this one alone."""
    return [
        Arm(f"{name}: {arm.name}", arm.task, arm.architecture, arm.training)
        for name, module in SOURCES.items()
        for arm in module.arms(profile)
        if not arm.context
    ]


def judge(evidence: Evidence) -> Judgement:
    groups = {
        name: [result for key, result in evidence.results.items() if key.startswith(f"{name}: ")]
        for name in SOURCES
    }
    level = evidence.level(len(SOURCES))
    taus = {name: _tau(results, level) for name, results in groups.items()}
    text = lambda tau: "no number" if tau.value is None else f"{decimals(tau.value, 2)}"
    return Judgement(
        parts=tuple(
            Part(f"the architectures of {name} are ranked alike", tau, MARGIN, "Kendall's tau")
            for name, tau in taus.items()
        ),
        summary=f"Kendall's tau between the two rankings: {', '.join(f'{name} {text(tau)}' for name, tau in taus.items())}.",
        panels=(
            Panel(
                "Sup against mean square error, one point per architecture",
                "mean square error",
                "sup error",
                tuple(_points(name, results) for name, results in groups.items()),
                log_x=True,
            ),
        ),
    )


def _points(name: str, results: Sequence[Result]) -> Curve:
    complete = [result for result in results if result.values(MEAN_SQUARE)]
    x = tuple(statistics.fmean(result.values(MEAN_SQUARE)) for result in complete)
    return Curve(name, x, tuple(tuple(result.values(SUP)) for result in complete))


def _tau(results: Sequence[Result], level: float) -> Estimate:
    """Over seeds, one pair wider on each side: rankings of few architectures often agree to the last digit."""
    squares = [result.values(MEAN_SQUARE) for result in results]
    sups = [result.values(SUP) for result in results]
    if not all(squares) or not all(sups):
        return NOTHING
    apart = _apart([result.logs(MEAN_SQUARE) for result in results], [result.logs(SUP) for result in results])
    if not apart:
        return NOTHING
    ranked = zip(zip(*squares, strict=True), zip(*sups, strict=True), strict=True)
    estimate = mean([kendall(a, b, apart) for a, b in ranked], level)
    if estimate.low is None or estimate.high is None:
        return estimate
    pair = 2 / len(apart)
    return Estimate(estimate.value, max(estimate.low - pair, -1.0), min(estimate.high + pair, 1.0))


def _apart(*measures: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Pairs whose means differ by a factor of 2 in some measure: between others the order is chance."""
    means = [[statistics.fmean(values) for values in logs] for logs in measures]
    return [
        (i, j)
        for j in range(len(means[0]))
        for i in range(j)
        if max(abs(means_of[i] - means_of[j]) for means_of in means) >= DIFFERENT
    ]


CLAIM = Claim(
    id="9",
    title="Mean square and sup error rank architectures alike",
    statement="Which architecture is better does not depend on whether errors are averaged or the worst one counts.",
    source="ours",
    design=(
        "The architectures of 2a, 2b, 4a and 4b are ranked by both errors, seed by seed; the sup error is the largest that "
        "samples and an adversary found. Kendall's tau is 1 for the same order, 0 for no relation; it counts the pairs that differ "
        "by a factor of 2 in either error, for the order of others is chance; its interval is one pair wider than seeds say. Each of the four is a "
        f"part of its own, for an average would hide a ranking that changes; the claim fails where one is below {MARGIN}."
    ),
    measure=SUP,
    arms=arms,
    judge=judge,
    untried=("models that are trained for the sup error",),
)
