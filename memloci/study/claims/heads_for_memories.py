"""2b. A simple readout of a complex memory: heads help, FFN width does not.

The memory is a power law, which no number of lin heads holds exactly; the readout is linear. It is the mirror image of
2a, with the same sizes.
"""

from collections.abc import Sequence

from memloci.study.arms import MEAN_SQUARE, decades, essential, gain, model, series
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Part

FEW_HEADS, MANY_HEADS, NARROW, WIDE = 1, 8, 8, 64
MARGIN = 0.3  # decades: a factor of 2


def _name(heads: int, width: int) -> str:
    return f"{heads} heads, {width} neurons"


def _grid(profile: Profile) -> list[tuple[int, int]]:
    heads, widths = profile.pick(
        ((FEW_HEADS, MANY_HEADS), (NARROW, WIDE)), ((1, 2, 4, MANY_HEADS, 16), (0, NARROW, WIDE))
    )
    return [(H, m) for H in heads for m in widths]


def arms(profile: Profile) -> Sequence[Arm]:
    task = essential("z ** -1.5")
    training = {"steps": profile.pick(800, 10_000), "batch": 32, "length": 32, "held_out": 128}
    return [Arm(_name(H, m), task, model(H, m), training) for H, m in _grid(profile)]


def judge(evidence: Evidence) -> Judgement:
    level, base = evidence.level(2), _name(FEW_HEADS, NARROW)
    by_heads = gain(evidence, base, _name(MANY_HEADS, NARROW), level)
    by_width = gain(evidence, base, _name(FEW_HEADS, WIDE), level)
    grid = _grid(evidence.profile)
    widths = sorted({m for _, m in grid})
    lines = tuple(
        series(evidence, f"{m} neurons", [(H, _name(H, m)) for H, w in grid if w == m]) for m in widths
    )
    return Judgement(
        parts=(
            Part(f"{MANY_HEADS} heads in place of {FEW_HEADS} lower the error", by_heads, MARGIN, "decades"),
            Part(f"{WIDE} neurons in place of {NARROW} do not", by_width, MARGIN, "decades", "below"),
        ),
        said=f"Heads lower the error by {decades(by_heads)}, width by {decades(by_width)}.",
        panels=(Panel("Error against heads", "heads H", "mean square error", lines, log_x=True),),
    )


CLAIM = Claim(
    id="2b",
    title="Simple readout, complex memory: heads help, width does not",
    statement="When the memory is complex and the readout simple, more heads lower the error and more neurons do not.",
    source="arXiv 2402.00522, insight 2",
    design=(
        "One layer of lin heads learns the past weighed by z ** -1.5, which takes many exponentials, read out as it is. "
        f"From one small model two larger ones are made: {MANY_HEADS} heads in place of {FEW_HEADS}, or {WIDE} "
        f"neurons in place of {NARROW}, with about as many parameters. The claim fails if neurons lower the error by a "
        "factor of 2 or more, or if heads do not."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=(
        "several memories with exponents of their own",
        "more than one layer",
        "optimisers other than Adam",
    ),
)
