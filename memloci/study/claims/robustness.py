"""8. Robustness: the verdicts again, with other switches.

Every arm of a claim gets the same change; the claim is then judged as before. Combinations that no model can have are
left out, with their reasons.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from memloci.errors import BadInput
from memloci.study.arms import MEAN_SQUARE
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile
from memloci.study.claims import (
    heads_for_memories,
    lin_for_light_tails,
    log_for_heavy_tails,
    no_dot_product_needed,
    one_layer_for_unrelated,
    width_for_readouts,
)
from memloci.study.statistics import Estimate, Part

JUDGES = {
    "1b": one_layer_for_unrelated,
    "2a": width_for_readouts,
    "2b": heads_for_memories,
    "3a": no_dot_product_needed,
    "4a": log_for_heavy_tails,
    "4b": lin_for_light_tails,
}
CHANGES: dict[str, dict[str, Any]] = {
    "layer norm": {"norm": "pre"},
    "local": {"window": 16},
    "root mean square norm": {"norm": "rms"},
    "strided": {"stride": 2},
    "softmax": {"normalisation": "softmax"},
    "log encoding": {"encoding": "log"},
    "t5 encoding": {"encoding": "t5", "normalisation": "softmax"},
}
ABOUT_ENCODINGS = ("4a", "4b")  # another encoding would be another claim


QUICK = (("2b", "layer norm"), ("2b", "local"))


def _all() -> Iterator[tuple[str, str]]:
    for claim in JUDGES:
        for change in CHANGES:
            if not (claim in ABOUT_ENCODINGS and "encoding" in CHANGES[change]):
                yield claim, change


def _chosen(profile: Profile) -> tuple[tuple[str, str], ...]:
    return profile.pick(QUICK, tuple(_all()))


def _changed(profile: Profile, claim: str, change: str) -> tuple[list[Arm], str]:
    """The arms, or why there are none."""
    try:
        arms = [arm.varied(**CHANGES[change]) for arm in JUDGES[claim].arms(profile)]
        for arm in arms:
            arm.run(1e-3, 0)
    except BadInput as reason:
        return [], str(reason)
    return [replace(arm, name=f"{claim}, {change}: {arm.name}") for arm in arms], ""


def arms(profile: Profile) -> Sequence[Arm]:
    return [arm for claim, change in _chosen(profile) for arm in _changed(profile, claim, change)[0]]


def judge(evidence: Evidence) -> Judgement:
    cases = [
        (claim, change, *_changed(evidence.profile, claim, change))
        for claim, change in _chosen(evidence.profile)
    ]
    possible = [case for case in cases if case[2]]
    parts: list[Part] = []
    panels: list[Panel] = []
    for claim, change, mine, _ in possible:  # each has two parts, and one is about all of them
        prefix = f"{claim}, {change}: "
        results = {arm.name.removeprefix(prefix): evidence[arm.name] for arm in mine}
        judged = JUDGES[claim].judge(replace(evidence, results=results, family=len(possible) + 0.5))
        parts += [replace(part, says=prefix + part.says) for part in judged.parts]
        panels += [replace(panel, title=f"{panel.title} ({claim}, {change})") for panel in judged.panels[:1]]
    verdicts = [part.verdict for part in parts]
    parts.append(_covered(len(cases), len(tuple(_all()))))
    told = ", ".join(f"{verdicts.count(v)} {v}" for v in ("confirmed", "inconclusive", "refuted"))
    left = [f"{claim} with {change} cannot be: {reason}" for claim, change, mine, reason in cases if not mine]
    return Judgement(
        tuple(parts), f"Of {len(verdicts)} parts judged again: {told}.", tuple(panels), tuple(left)
    )


def _covered(looked_at: int, there_are: int) -> Part:
    """A claim about all cases is not confirmed by some of them, though one can refute it."""
    share = looked_at / there_are
    effect = Estimate(share, share, share) if looked_at == there_are else Estimate(share, None, None)
    return Part(f"{looked_at} of {there_are} cases were looked at", effect, 0.99, "of the cases")


CLAIM = Claim(
    id="8",
    title="The verdicts hold with layer norm, local and strided attention, other encodings",
    statement="What the paper's claims say is not an accident of its plain model.",
    source="ours",
    design=(
        "The arms of the paper's claims about tasks are trained again with one switch changed in all of them: layer norm, "
        "root mean square norm, a window, a stride, softmax over the visible past, other encodings (quick: 2b with layer norm "
        "and with a window). Each is judged by its claim's own rule; together they share the 5 %. Any part that turns "
        "around refutes the claim; only all cases together can confirm it."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("the claims about language", "two changes at once"),
)
