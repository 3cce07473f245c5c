"""1a. Intricately related memories: depth matters more than heads.

Text is the example of such memories. At equal parameters a deep and narrow model stands against one layer with all
the heads and neurons; if the flat one predicts as well or better, the claim is refuted. The full profile also has depths
between and beyond.
"""

from collections.abc import Sequence

from memloci.core.numbers import decimals
from memloci.study.arms import BITS, balanced, parameter_count, series, text
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.claims.language import BYTES, MARGIN, budget, if_learned, reader, training
from memloci.study.statistics import Estimate, Part, difference

ALL_HEADS, DEEP, FLAT = 6, 3, 1  # heads of all layers together, and layers


def _depths(profile: Profile) -> tuple[int, ...]:
    return profile.pick((FLAT, DEEP), (1, 2, 3, 6))


def _name(layers: int) -> str:
    return "1 layer" if layers == 1 else f"{layers} layers"


def arms(profile: Profile) -> Sequence[Arm]:
    task, softmax = text(profile.text or ""), {"attention": "dp", "normalisation": "softmax"}
    architectures = {L: reader(profile, L, ALL_HEADS // L, **softmax) for L in _depths(profile)}
    equal = parameter_count(architectures[DEEP], BYTES)
    return [
        Arm(
            _name(L),
            task,
            balanced(architecture, BYTES, equal),
            training(profile),
            context=L not in (FLAT, DEEP),
        )
        for L, architecture in architectures.items()
    ]


def judge(evidence: Evidence) -> Judgement:
    deep, flat = evidence[_name(DEEP)], evidence[_name(FLAT)]
    depths = _depths(evidence.profile)
    effect = difference(flat.values(BITS), deep.values(BITS), evidence.level(1))
    (effect,), learned = if_learned(evidence, [_name(FLAT), _name(DEEP)], [effect])
    sizes = (
        f"{deep.parameters:,} against {flat.parameters:,} parameters"
        if deep.parameters and flat.parameters
        else "sizes unknown"
    )
    curve = series(evidence, "held-out text", [(L, _name(L)) for L in depths], BITS)
    return Judgement(
        parts=(
            Part(
                f"{_name(FLAT)} needs more bits than {_name(DEEP)} with as many heads",
                effect,
                MARGIN,
                "bits per byte",
            ),
        ),
        summary=f"At {sizes}, {_compared(effect)}.",
        notes=learned,
        panels=(
            Panel(
                f"Bits per byte of held-out text, {ALL_HEADS} heads in all",
                "layers L",
                "bits per byte",
                (curve,),
                log_x=True,
                log_y=False,
            ),
        ),
    )


def _compared(effect: Estimate) -> str:
    if effect.value is None:
        return "an arm has no number to compare"
    more = "more" if effect.value >= 0 else "fewer"
    return f"{_name(FLAT)} needs {decimals(abs(effect.value), 3)} bits per byte {more} than {_name(DEEP)}"


CLAIM = Claim(
    id="1a",
    title="Related memories: depth matters more than heads",
    statement="Where memories depend on each other, as in language, layers help more than heads at equal parameters.",
    source="arXiv 2402.00522, insight 1",
    design=(
        f"Next-byte prediction of the source of Python's standard library (its first 2 MB), or of a file of your own. {ALL_HEADS} heads are in {DEEP} layers or in "
        f"one (full: also in 2 and in 6), whose FFN width brings the parameters within 3 % of each other. The claim fails if the flat model needs fewer bits, or "
        f"not at least {MARGIN} more. It stays open while no arm beats a table of two bytes, which knows one memory and "
        "relates none."
    ),
    measure=BITS,
    arms=arms,
    judge=judge,
    budget=budget,
    untried=(
        "other texts: intervals are over seeds, for one text and one part of it held out",
        "other shares of heads and neurons, and widths of the stream",
        "models and data of a useful size",
    ),
)
