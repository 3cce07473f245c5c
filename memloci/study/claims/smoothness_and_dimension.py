"""10. Smoothness and dimension of the target: what the same model makes of them."""

from collections.abc import Sequence
from typing import Any

from memloci.study.arms import MEAN_SQUARE, decades, essential, gain, model, series
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Part

KERNEL, WIDTH = "exp(-0.7 * z)", 32
MARGIN = 0.3  # decades
CHANNELS = "abcd"
SMOOTH, ROUGH = "1 variable, smooth", "1 variable, with kinks"


def _dimension(d: int) -> str:
    return SMOOTH if d == 1 else f"{d} variables, smooth"


def _dimensions(profile: Profile) -> tuple[int, ...]:
    return profile.pick((1, 3), (1, 2, 3, 4))


def arms(profile: Profile) -> Sequence[Arm]:
    training = {"steps": profile.pick(1000, 2000), "batch": 64, "length": 32, "held_out": 128}
    found = [Arm(_dimension(d), _waves(d), model(4, WIDTH), training) for d in _dimensions(profile)]
    return [*found, Arm(ROUGH, _saw(), model(4, WIDTH), training)]


def _waves(d: int) -> dict[str, Any]:
    """A product of waves: all variables matter at once, and no single direction tells them."""
    channels = [{"name": name, "range": [-1, 1]} for name in CHANNELS[:d]]
    return essential(KERNEL, " * ".join(f"cos(pi * {name}1)" for name in CHANNELS[:d]), *channels)


def _saw() -> dict[str, Any]:
    """As high and as long as the wave, with corners: a ReLU network could also like it better."""
    return essential(KERNEL, "2 * abs(a1 - 2 * round(a1 / 2)) - 1", {"name": "a", "range": [-1, 1]})


def judge(evidence: Evidence) -> Judgement:
    level, last = evidence.level(2), _dimensions(evidence.profile)[-1]
    rough = gain(evidence, ROUGH, SMOOTH, level)
    high = gain(evidence, _dimension(last), SMOOTH, level)
    names = [*(_dimension(d) for d in _dimensions(evidence.profile)), ROUGH]
    return Judgement(
        parts=(
            Part("a target with kinks is harder than a smooth one", rough, MARGIN, "decades"),
            Part(f"{last} variables are harder than one", high, MARGIN, "decades"),
        ),
        said=f"Kinks raise the error by {decades(rough)}, {last} variables in place of one by {decades(high)}.",
        panels=(
            Panel(
                "The same model on targets of one kind",
                "",
                "mean square error",
                (series(evidence, "trained", [(n, n) for n in names]),),
            ),
        ),
    )


CLAIM = Claim(
    id="10",
    title="Smoother and lower-dimensional targets are easier",
    statement="The same model reaches a smaller error on smooth targets than on ones with kinks, and on few variables than on many.",
    source="ours",
    design=(
        f"One layer of 4 heads and {WIDTH} neurons learns products of waves of 1 to 4 remembered variables, and a saw as high "
        "and as long as the wave. A saw is piecewise linear, as the network is, so kinks could as well help: the claim "
        "fails if they do, or if dimension does not matter by a factor of 2. Errors are not divided by the variance, which "
        "halves with every variable: that favours many variables, against the claim."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=(
        "widths other than 32, where the order could change",
        "targets of finite smoothness between the two",
    ),
)
