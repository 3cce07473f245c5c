"""1a. Intricately related memories: depth matters more than heads.

Text is the example of such memories. At equal parameters a deep and narrow model stands against one layer with all
the heads and neurons; if the flat one predicts as well or better, the claim is refuted.
"""

from collections.abc import Sequence

from memloci.study.arms import BITS, balanced, model, parameter_count, series, text
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.claims.language import BYTES, MARGIN, if_learned, training
from memloci.study.statistics import Part, difference

LAYERS, HEADS, WIDTH = 3, 2, 48
DEEP, FLAT = "deep", "1 layer, many heads"


def arms(profile: Profile) -> Sequence[Arm]:
    task = text(profile.text or "")
    switches = {"attention": "dp", "normalisation": "softmax"}
    deep = model(HEADS, WIDTH, **{**switches, "layers": LAYERS})
    flat = balanced(model(LAYERS * HEADS, LAYERS * WIDTH, **switches), BYTES, parameter_count(deep, BYTES))
    found = {DEEP: deep, FLAT: flat}
    return [Arm(name, task, architecture, training(profile)) for name, architecture in found.items()]


def judge(evidence: Evidence) -> Judgement:
    deep, flat = evidence[DEEP], evidence[FLAT]
    effect = difference(flat.values(BITS), deep.values(BITS), evidence.level(1))
    (effect,), learned = if_learned(evidence, (DEEP, FLAT), [effect])
    sizes = (
        f"{deep.parameters:,} against {flat.parameters:,} parameters"
        if deep.parameters and flat.parameters
        else "sizes unknown"
    )
    said = "no number" if effect.value is None else f"{effect.value:+.3f} bits per byte"
    dots = series(evidence, "held-out text", [(name, name) for name in (FLAT, DEEP)], BITS)
    return Judgement(
        parts=(Part("many heads in one layer need more bits than depth", effect, MARGIN, "bits per byte"),),
        said=f"At {sizes} the flat model needs {said} more than the deep one.",
        notes=(learned,),
        panels=(Panel("Bits per byte of held-out text", "", "bits per byte", (dots,), log_y=False),),
    )


CLAIM = Claim(
    id="1a",
    title="Related memories: depth matters more than heads",
    statement="Where memories depend on each other, as in language, layers help more than heads at equal parameters.",
    source="arXiv 2402.00522, insight 1",
    design=(
        "Next-byte prediction of Python's standard library, or of a file of your own. The heads and neurons of several "
        "layers are put into one; its FFN width brings the parameters within 3 % of each other. The claim fails if the "
        "flat model needs fewer bits, or not at least 0.02 more. It stays open while no arm beats a table of two bytes, which "
        "knows one memory and relates none."
    ),
    measure=BITS,
    arms=arms,
    judge=judge,
    untried=(
        "other languages than Python",
        "layer normalisation (claim 8)",
        "models and data of a useful size",
    ),
)
