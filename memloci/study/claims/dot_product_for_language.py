"""3b. Language needs the dot product; tmx comes close with fewer parameters."""

from collections.abc import Sequence

from memloci.study.arms import BITS, balanced, model, parameter_count, series, text
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.claims.language import BYTES, MARGIN, if_learned, training
from memloci.study.statistics import Part, combination, difference

LAYERS, HEADS, WIDTH = 2, 4, 48
DP, TMX, DPF, DPF_EQUAL = "dp", "tmx", "dpf", "dpf, as many parameters as dp"


def arms(profile: Profile) -> Sequence[Arm]:
    task = text(profile.text or "")
    softmax = {"layers": LAYERS, "normalisation": "softmax"}
    dp = model(HEADS, WIDTH, **{**softmax, "attention": "dp"})
    dpf = model(HEADS, WIDTH, **softmax)
    tmx = model(HEADS, WIDTH, layers=LAYERS, attention="tmx", normalisation="none")
    found = {DP: dp, TMX: tmx, DPF: dpf, DPF_EQUAL: balanced(dpf, BYTES, parameter_count(dp, BYTES))}
    return [Arm(name, task, architecture, training(profile)) for name, architecture in found.items()]


def judge(evidence: Evidence) -> Judgement:
    level = evidence.level(2)
    values = {name: evidence[name].values(BITS) for name in (DP, TMX, DPF, DPF_EQUAL)}
    need = difference(values[DPF_EQUAL], values[DP], level)
    close = combination([(1.0, values[DPF]), (1.0, values[DP]), (-2.0, values[TMX])], level)
    (need, close), learned = if_learned(evidence, list(values), [need, close])
    sizes = ", ".join(f"{name} {evidence[name].parameters or 0:,}" for name in (DP, TMX, DPF_EQUAL))
    dots = series(evidence, "held-out text", [(name, name) for name in (DP, TMX, DPF_EQUAL, DPF)], BITS)
    told = lambda x: "no number" if x.value is None else f"{x.value:+.3f}"
    return Judgement(
        parts=(
            Part("dpf needs more bits than dp at equal parameters", need, MARGIN, "bits per byte"),
            Part("tmx is nearer to dp than to dpf of its own size", close, 0.0, "bits per byte"),
        ),
        said=(
            f"dpf needs {told(need)} bits per byte more than dp; dpf + dp - 2 tmx is {told(close)} (positive: tmx is nearer "
            f"to dp). Parameters: {sizes}."
        ),
        notes=(learned,),
        panels=(Panel("Bits per byte of held-out text", "", "bits per byte", (dots,), log_y=False),),
    )


CLAIM = Claim(
    id="3b",
    title="Language needs the dot product; tmx comes close",
    statement="On language dot products help, and tmx, whose logits read the query alone, comes close with fewer parameters.",
    source="arXiv 2402.00522, insight 3",
    design=(
        "Next-byte prediction as in 1a. dpf is given a wider FFN, so that it has as many parameters as dp within 3 %. tmx "
        "has its own, smaller size: to come close means to be nearer to dp than to the dpf of that size. tmx has no "
        "softmax, under which its query term would cancel. The claim fails if dpf does as well as dp, or tmx as badly as dpf. It stays open "
        "while no arm beats a table of two bytes, which knows one memory and relates none."
    ),
    measure=BITS,
    arms=arms,
    judge=judge,
    untried=("tmx-mul", "log encodings", "models and data of a useful size"),
)
