"""What 2a and 2b share: from one small model two larger ones of about equal size, by heads or by neurons."""

from collections.abc import Sequence
from typing import Any

from memloci.study.arms import changed, gain, in_heads, model, series
from memloci.study.claim import Arm, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Part

FEW_HEADS, MANY_HEADS, NARROW, WIDE = 1, 8, 8, 64
MARGIN = 0.3  # decades: a factor of 2

Sizes = tuple[Sequence[int], Sequence[int]]  # numbers of heads, and of neurons


def _name(heads: int, width: int) -> str:
    return f"{in_heads(heads)}, {width} neurons"


def _grid(profile: Profile, full: Sizes) -> Sizes:
    return profile.pick(((FEW_HEADS, MANY_HEADS), (NARROW, WIDE)), full)


def size_arms(task: dict[str, Any], training: dict[str, Any], profile: Profile, full: Sizes) -> list[Arm]:
    heads, widths = _grid(profile, full)
    return [Arm(_name(H, m), task, model(H, m), training) for H in heads for m in widths]


def size_judge(helps: str, evidence: Evidence, full: Sizes) -> Judgement:
    """`helps` is what should: heads or neurons."""
    level, base = evidence.level(2), _name(FEW_HEADS, NARROW)
    effects = {
        "heads": gain(evidence, base, _name(MANY_HEADS, NARROW), level),
        "neurons": gain(evidence, base, _name(FEW_HEADS, WIDE), level),
    }
    growth = {
        "heads": f"{MANY_HEADS} heads in place of {FEW_HEADS}",
        "neurons": f"{WIDE} neurons in place of {NARROW}",
    }
    (other,) = effects.keys() - {helps}
    heads, widths = _grid(evidence.profile, full)
    if helps == "heads":
        lines = [series(evidence, f"{m} neurons", [(H, _name(H, m)) for H in heads]) for m in widths]
    else:
        lines = [series(evidence, in_heads(H), [(m, _name(H, m)) for m in widths]) for H in heads]
    axis = {"heads": "heads H", "neurons": "FFN width m"}[helps]
    return Judgement(
        parts=(
            Part(f"{growth[helps]} lower the error", effects[helps], MARGIN, "decades"),
            Part(f"{growth[other]} do not lower the error", effects[other], MARGIN, "decades", "below"),
        ),
        summary=f"More {helps} {changed(effects[helps])}, more {other} {changed(effects[other])}.",
        panels=(Panel(f"Error against {helps}", axis, "mean square error", tuple(lines), log_x=True),),
    )
