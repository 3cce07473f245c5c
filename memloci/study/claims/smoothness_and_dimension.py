"""10. Smoothness and dimension of the target: what the same model makes of them."""

from collections.abc import Sequence
from typing import Any

from memloci.study.arms import MEAN_SQUARE, essential, factor, gain, model, series
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Part

KERNEL, WIDTH = "exp(-0.7 * z)", 32
MARGIN = 0.3  # decades
CHANNELS = "abcd"
CHANNEL = {"name": "a", "range": [-1, 1]}
SMOOTH, ROUGH, KINK = "1 variable, smooth", "1 variable, with a cusp", "1 variable, with a kink"


def _dimension(d: int) -> str:
    return SMOOTH if d == 1 else f"{d} variables, smooth"


def _dimensions(profile: Profile) -> tuple[int, ...]:
    return profile.pick((1, 3), (1, 2, 3, 4))


def arms(profile: Profile) -> Sequence[Arm]:
    training = {"steps": profile.pick(1000, 2000), "batch": 64, "length": 32, "held_out": 128}
    by_dimension = [Arm(_dimension(d), _waves(d), model(4, WIDTH), training) for d in _dimensions(profile)]
    rough = {ROUGH: "2 * sqrt(abs(a1)) - 1", KINK: "2 * abs(a1) - 1"}
    return by_dimension + [
        Arm(name, essential(KERNEL, f, CHANNEL), model(4, WIDTH), training, context=name == KINK)
        for name, f in rough.items()
    ]


def _waves(d: int) -> dict[str, Any]:
    """A product of waves: all variables matter at once, and no single direction tells them."""
    channels = [{"name": name, "range": [-1, 1]} for name in CHANNELS[:d]]
    return essential(KERNEL, " * ".join(f"cos(pi * {name}1)" for name in CHANNELS[:d]), *channels)


def judge(evidence: Evidence) -> Judgement:
    level, last = evidence.level(2), _dimensions(evidence.profile)[-1]
    rough = gain(evidence, ROUGH, SMOOTH, level)
    high = gain(evidence, _dimension(last), SMOOTH, level)
    beside = (
        f" With a kink, which two neurons hold, it is multiplied by {factor(gain(evidence, KINK, SMOOTH, level))}."
        if KINK in evidence
        else ""
    )
    return Judgement(
        parts=(
            Part("a target with a cusp is harder than a smooth one", rough, MARGIN, "decades"),
            Part(f"{last} variables are harder than one", high, MARGIN, "decades"),
        ),
        summary=f"A cusp multiplies the error by {factor(rough)}, {last} variables in place of one by {factor(high)}.{beside}",
        panels=(
            Panel(
                "The same model on targets of one kind",
                "",
                "mean square error",
                (series(evidence, "trained", [(n, n) for n in evidence.results]),),
            ),
        ),
    )


CLAIM = Claim(
    id="10",
    title="Smoother and lower-dimensional targets are easier",
    statement="The same model reaches a smaller error on a smooth target than on a rough one, and on few variables than on many.",
    source="ours",
    design=(
        f"One layer of 4 heads and {WIDTH} neurons learns products of waves, cos(pi u), of 1 to 4 remembered variables, and "
        "2 sqrt(|u|) - 1, as high as the wave, whose slope is unbounded at 0: no finite ReLU network holds it, nor the wave. The claim "
        "fails if the cusp is not harder by a factor of 2, or dimension does not matter as much. Errors are not divided by the "
        "variance, which falls with every variable: that favours many variables, against the claim. Beside it is 2 |u| - 1, "
        "as rough in theory, and piecewise linear as the network is."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=(
        "widths other than 32, where the order could change",
        "targets of finite smoothness between the two",
    ),
)
