"""What 4a and 4b share: lin against log heads on one kernel, with nothing else in the model."""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, SUP, decades, essential, gain, in_heads, model, series
from memloci.study.claim import Arm, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Part

HEADS = (1, 4)  # a verdict at both: with one head, and with several, where the wrong kind could catch up
MARGIN = 0.3  # decades: a factor of 2


def name(encoding: str, heads: int) -> str:
    return f"{encoding}, {in_heads(heads)}"


def all_heads(profile: Profile) -> tuple[int, ...]:
    return profile.pick(HEADS, (1, 2, 4, 8, 16))


def tail_arms(kernel: str, profile: Profile) -> Sequence[Arm]:
    training = {
        "steps": profile.pick(1200, 3000),
        "batch": 32,
        "length": 64,
        "held_out": 128,
    }
    return [
        Arm(name(encoding, H), essential(kernel), model(H, 0, encoding=encoding), training)
        for encoding in ("lin", "log")
        for H in all_heads(profile)
    ]


def tail_judge(kernel: str, right: str, wrong: str, evidence: Evidence) -> Judgement:
    level = evidence.level(len(HEADS))
    effects = {H: gain(evidence, name(wrong, H), name(right, H), level) for H in HEADS}
    parts = tuple(
        Part(f"{right} below {wrong} with {in_heads(H)}", effect, MARGIN, "decades")
        for H, effect in effects.items()
    )
    lines = lambda measure: tuple(
        series(evidence, kind, [(H, name(kind, H)) for H in all_heads(evidence.profile)], measure)
        for kind in ("lin", "log")
    )
    heads = "; ".join(f"{decades(effect)} with {H}" for H, effect in effects.items())
    return Judgement(
        parts,
        f"On {kernel} the error of {wrong} heads is that of {right} heads times {heads}.".replace(
            "a factor of ", ""
        ),
        (
            Panel(
                "Mean square error against heads",
                "heads H",
                "mean square error",
                lines(MEAN_SQUARE),
                log_x=True,
            ),
            Panel("Largest error found against heads", "heads H", "sup error", lines(SUP), log_x=True),
        ),
    )
