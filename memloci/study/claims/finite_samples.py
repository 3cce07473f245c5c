"""7. Finite samples: error against the number of training sequences, adaptive against fixed lags."""

import statistics
from collections.abc import Sequence
from typing import Any

from memloci.study.arms import (
    MEAN_SQUARE,
    PAYLOAD,
    SIGNS,
    adaptive,
    changed,
    factor,
    fixed,
    gain,
    model,
    series,
)
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Part, combination

FEW, MANY = 16, 256
MARGIN = 0.3  # decades
KINDS = ("fixed", "adaptive")


def _tasks() -> dict[str, dict[str, Any]]:
    """The same channels and the same farthest lag; in one the sign decides between two lags, in the other it is idle."""
    return {
        "fixed": fixed([2], "v1", SIGNS, PAYLOAD),
        "adaptive": adaptive(["where(b0 > 0, 1, 2)"], "v1", SIGNS, PAYLOAD),
    }


def _name(kind: str, samples: int | None) -> str:
    return f"{kind}, fresh sequences" if samples is None else f"{kind}, {samples} sequences"


def _samples(profile: Profile) -> tuple[int, ...]:
    return profile.pick((FEW, MANY), (FEW, 64, MANY, 1024))


def arms(profile: Profile) -> Sequence[Arm]:
    training = {"steps": profile.pick(800, 2000), "batch": 64, "length": 16, "held_out": 512}
    architecture = model(8, 64, attention="dp", normalisation="softmax")
    return [
        Arm(_name(kind, N), task, architecture, {**training, "samples": N})
        for kind, task in _tasks().items()
        for N in (*_samples(profile), None)
    ]


def judge(evidence: Evidence) -> Judgement:
    level = evidence.level(3)
    gains = {kind: gain(evidence, _name(kind, FEW), _name(kind, MANY), level) for kind in KINDS}
    logs = lambda kind, samples: evidence[_name(kind, samples)].logs(MEAN_SQUARE)
    excess = lambda kind, sign: [(sign, logs(kind, MANY)), (-sign, logs(kind, None))]
    harder = combination([*excess("adaptive", 1.0), *excess("fixed", -1.0)], level)
    fresh = tuple(
        (f"{kind}, fresh sequences", statistics.geometric_mean(values))
        for kind in KINDS
        if (values := evidence[_name(kind, None)].values(MEAN_SQUARE)) and min(values) > 0
    )
    lines = tuple(
        series(evidence, kind, [(N, _name(kind, N)) for N in _samples(evidence.profile)]) for kind in KINDS
    )
    return Judgement(
        parts=(
            *(
                Part(f"{kind}: {MANY} sequences in place of {FEW} lower the error", effect, MARGIN, "decades")
                for kind, effect in gains.items()
            ),
            Part(
                f"{MANY} sequences in place of fresh ones cost adaptive lags more than a fixed one",
                harder,
                MARGIN,
                "decades",
            ),
        ),
        summary=(
            f"{MANY} sequences in place of {FEW} {changed(gains['fixed'])} (fixed) and {changed(gains['adaptive'])} (adaptive). "
            f"What {MANY} sequences in place of fresh ones cost the fixed lag, adaptive lags pay times {factor(harder)}."
        ),
        panels=(
            Panel(
                "Error against the number of sequences",
                "training sequences",
                "mean square error",
                lines,
                log_x=True,
                marks=fresh,
            ),
        ),
    )


CLAIM = Claim(
    id="7",
    title="Finite samples: adaptive lags need more of them",
    statement="The error falls with the number of training sequences, and too few of them cost adaptive lags at least twice what they cost fixed ones.",
    source="ours",
    design=(
        "One dp layer of 8 heads and 64 neurons learns to return a number at lag 2, or at the lag 1 or 2 that a sign chooses; "
        "both tasks have the same channels, architecture and steps, and fixed data sets; a batch is 64 sequences, or all where there are "
        "fewer. Fresh sequences at every step tell how hard "
        f"each task is anyway; what {MANY} sequences cost is compared above that. The claim fails if data does not help by a factor "
        "of 2, or if adaptive lags do not pay twice what the fixed one pays."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("nested lags", "early stopping and weight decay, which fight overfitting", "longer sequences"),
)
