"""What 4a and 4b share: lin against log heads on one kernel, with nothing else in the model."""

from collections.abc import Callable, Mapping, Sequence

from memloci.study.arms import MEAN_SQUARE, SUP, essential, factor, gain, in_heads, model, series
from memloci.study.claim import Arm, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Estimate, Part

TAIL_HEADS = (1, 4)  # a verdict at both: with one head, and with several, where the wrong kind could catch up
MARGIN = 0.3  # decades: a factor of 2
ENCODINGS = ("lin", "log")


def name(encoding: str, heads: int) -> str:
    return f"{encoding}, {in_heads(heads)}"


def _beside(encoding: str, heads: int) -> str:
    return f"{name(encoding, heads)}, the other kernel"


def all_heads(profile: Profile) -> tuple[int, ...]:
    return profile.pick(TAIL_HEADS, (1, 2, 4, 8, 16))


def tail_arms(kernel: str, other: str, profile: Profile) -> Sequence[Arm]:
    """`other` has the same tail and is held exactly by no head; the full profile shows it beside."""
    training = {
        "steps": profile.pick(1200, 3000),
        "batch": 32,
        "length": 64,
        "held_out": 128,
    }
    of_kernel = [
        Arm(name(encoding, H), essential(kernel), model(H, 0, encoding=encoding), training)
        for encoding in ENCODINGS
        for H in all_heads(profile)
    ]
    beside = [
        Arm(_beside(encoding, H), essential(other), model(H, 0, encoding=encoding), training, context=True)
        for encoding in ENCODINGS
        for H in TAIL_HEADS
    ]
    return of_kernel + profile.pick([], beside)


def tail_judge(kernel: str, other: str, expected: str, wrong: str, evidence: Evidence) -> Judgement:
    level = evidence.level(len(TAIL_HEADS))
    effects = {H: gain(evidence, name(wrong, H), name(expected, H), level) for H in TAIL_HEADS}
    parts = tuple(
        Part(f"{expected} below {wrong} with {in_heads(H)}", effect, MARGIN, "decades")
        for H, effect in effects.items()
    )
    heads = all_heads(evidence.profile)
    panels = [
        _panel("Mean square error", heads, name, evidence, MEAN_SQUARE, "mean square error"),
        _panel("Largest error found", heads, name, evidence, SUP, "sup error"),
    ]
    summary = f"On {kernel} {_sentence(expected, wrong, effects)}."
    if _beside(expected, TAIL_HEADS[0]) in evidence:
        others = {H: gain(evidence, _beside(wrong, H), _beside(expected, H), level) for H in TAIL_HEADS}
        summary += f" On {other}, which no head holds exactly, {_sentence(expected, wrong, others)}."
        panels.append(
            _panel(
                f"On {other}: mean square error",
                TAIL_HEADS,
                _beside,
                evidence,
                MEAN_SQUARE,
                "mean square error",
            )
        )
    return Judgement(parts, summary, tuple(panels))


def _sentence(expected: str, wrong: str, effects: Mapping[int, Estimate]) -> str:
    each = "; ".join(f"{factor(effect)} with {in_heads(H)}" for H, effect in effects.items())
    return f"the error of {wrong} heads is that of {expected} heads times {each}"


def _panel(
    what: str,
    heads: Sequence[int],
    of: Callable[[str, int], str],
    evidence: Evidence,
    measure: str,
    unit: str,
) -> Panel:
    lines = tuple(series(evidence, kind, [(H, of(kind, H)) for H in heads], measure) for kind in ENCODINGS)
    return Panel(f"{what} against heads", "heads H", unit, lines, log_x=True)
