"""3b. Language needs the dot product; tmx comes close with fewer parameters."""

from collections.abc import Sequence

from memloci.core.numbers import decimals
from memloci.study.arms import BITS, balanced, parameter_count, series, text
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.claims.language import BYTES, MARGIN, budget, if_learned, reader, training
from memloci.study.statistics import Part, combination, difference

LAYERS, HEADS = 2, 4
DP, TMX, DPF, DPF_EQUAL = "dp", "tmx", "dpf", "dpf, as many parameters as dp"
TMX_MUL = "tmx-mul"  # beside the claim, in the full profile


def arms(profile: Profile) -> Sequence[Arm]:
    task = text(profile.text or "")
    softmax = {"normalisation": "softmax"}
    dp = reader(profile, LAYERS, HEADS, **softmax, attention="dp")
    equal = balanced(reader(profile, LAYERS, HEADS, **softmax), BYTES, parameter_count(dp, BYTES))
    # Over an infinite past: a constant in place of softmax, which would cancel the query term.
    tmx, dpf = (reader(profile, LAYERS, HEADS, attention=each) for each in ("tmx", "dpf"))
    architectures = {DP: dp, TMX: tmx, DPF: dpf, DPF_EQUAL: equal}
    if profile.name == "full":
        architectures[TMX_MUL] = reader(profile, LAYERS, HEADS, **softmax, attention="tmx-mul")
    return [
        Arm(name, task, architecture, training(profile), context=name == TMX_MUL)
        for name, architecture in architectures.items()
    ]


def judge(evidence: Evidence) -> Judgement:
    level = evidence.level(2)
    values = {name: evidence[name].values(BITS) for name in (DP, TMX, DPF, DPF_EQUAL)}
    need = difference(values[DPF_EQUAL], values[DP], level)
    close = combination([(1.0, values[DPF]), (1.0, values[DP]), (-2.0, values[TMX])], level)
    (need, close), learned = if_learned(evidence, list(values), [need, close])
    sizes = ", ".join(f"{name} {evidence[name].parameters or 0:,}" for name in (DP, TMX, DPF_EQUAL))
    dots = series(evidence, "held-out text", [(name, name) for name in evidence.results], BITS)
    text = lambda x: "no number" if x.value is None else f"{decimals(x.value, 3, sign=True)}"
    return Judgement(
        parts=(
            Part("dpf needs more bits than dp at equal parameters", need, MARGIN, "bits per byte"),
            Part("tmx is below the middle of dp and dpf of its own size", close, 0.0, "bits per byte"),
        ),
        summary=(
            f"dpf needs {text(need)} bits per byte more than dp; dpf + dp - 2 tmx is {text(close)} (positive: tmx is below "
            f"the middle of the two). Parameters: {sizes}."
        ),
        notes=learned,
        panels=(Panel("Bits per byte of held-out text", "", "bits per byte", (dots,), log_y=False),),
    )


CLAIM = Claim(
    id="3b",
    title="Language needs the dot product; tmx comes close",
    statement="On language dot products help, and tmx, whose logits read the query alone, comes close with fewer parameters.",
    source="arXiv 2402.00522, insight 3",
    design=(
        "Next-byte prediction as in 1a. dpf is given a wider FFN, so that it has as many parameters as dp within 3 %. tmx "
        "has its own, smaller size: to come close means to be below the middle of dp and of dpf with the same sizes and switches. Both "
        "are normalised over an infinite past, for under softmax the query term of tmx would cancel. The claim fails if dpf does as well as dp, "
        "or tmx is nearer to dpf. It stays open while no arm beats a table of two bytes, which knows one memory and relates none."
    ),
    measure=BITS,
    arms=arms,
    judge=judge,
    budget=budget,
    untried=(
        "other texts: intervals are over seeds, for one text and one part of it held out",
        "tmx without any normalisation",
        "models and data of a useful size",
    ),
)
