"""2a. A complex readout of a simple memory: FFN width helps, heads do not.

The memory is one exponential kernel, which a single lin head holds exactly; the readout waves. If heads helped as much
as neurons, or neurons did not help, the claim would be refuted.
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
        ((FEW_HEADS, MANY_HEADS), (NARROW, WIDE)), ((1, 2, 4, MANY_HEADS), (4, NARROW, 16, 32, WIDE, 128))
    )
    return [(H, m) for H in heads for m in widths]


def arms(profile: Profile) -> Sequence[Arm]:
    task = essential("exp(-0.7 * z)", "cos(pi * x1)")
    training = {"steps": profile.pick(1000, 10_000), "batch": 64, "length": 32, "held_out": 128}
    return [Arm(_name(H, m), task, model(H, m), training) for H, m in _grid(profile)]


def judge(evidence: Evidence) -> Judgement:
    level, base = evidence.level(2), _name(FEW_HEADS, NARROW)
    by_width = gain(evidence, base, _name(FEW_HEADS, WIDE), level)
    by_heads = gain(evidence, base, _name(MANY_HEADS, NARROW), level)
    grid = _grid(evidence.profile)
    heads = sorted({H for H, _ in grid})
    lines = tuple(
        series(evidence, f"{H} heads", [(m, _name(H, m)) for h, m in grid if h == H]) for H in heads
    )
    return Judgement(
        parts=(
            Part(f"{WIDE} neurons in place of {NARROW} lower the error", by_width, MARGIN, "decades"),
            Part(f"{MANY_HEADS} heads in place of {FEW_HEADS} do not", by_heads, MARGIN, "decades", "below"),
        ),
        said=f"Width lowers the error by {decades(by_width)}, heads by {decades(by_heads)}.",
        panels=(Panel("Error against width", "FFN width m", "mean square error", lines, log_x=True),),
    )


CLAIM = Claim(
    id="2a",
    title="Complex readout, simple memory: width helps, heads do not",
    statement="When the readout is complex and the memory simple, more neurons lower the error and more heads do not.",
    source="arXiv 2402.00522, insight 2",
    design=(
        "One layer learns cos(pi u), where u is the past weighed by exp(-0.7 z). From one small model two larger ones "
        f"are made: {WIDE} neurons in place of {NARROW}, or {MANY_HEADS} heads in place of {FEW_HEADS}, with about "
        "as many parameters. All have the same steps, batches and seeds. The claim fails if heads lower the error by "
        "a factor of 2 or more, or if neurons do not."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("readouts of several memories at once", "more than one layer", "optimisers other than Adam"),
)
