"""8. Robustness: the verdicts again, with other switches.

Every arm of a claim gets the same change; the claim is then judged as before, and so it is with no change, for a part that
is not confirmed there has nothing to lose. Combinations that no model can have are left out, with their reasons.
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
AS_IT_IS = "no change"
CHANGES: dict[str, dict[str, Any]] = {
    "layer norm": {"norm": "pre"},
    "local": {"window": 16},
    "strided": {"stride": 2},
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


def _small(profile: Profile) -> Profile:
    """So many cases are of the quick profile's sizes, with the seeds and rates of the one that was asked for."""
    return replace(profile, name="quick")


def _changed(profile: Profile, claim: str, change: str) -> tuple[list[Arm], str]:
    """The arms that parts depend on, or why there are none."""
    context = getattr(JUDGES[claim], "CONTEXT", ())
    switches = {AS_IT_IS: {}, **CHANGES}[change]
    try:
        arms = [
            replace(arm.varied(**switches), name=f"{claim}, {change}: {arm.name}")
            for arm in JUDGES[claim].arms(_small(profile))
            if arm.name not in context
        ]
        for arm in arms:
            arm.run(1e-3, 0)
    except BadInput as reason:
        return [], str(reason)
    return arms, ""


def arms(profile: Profile) -> Sequence[Arm]:
    plain = [(claim, AS_IT_IS) for claim in dict.fromkeys(claim for claim, _ in _chosen(profile))]
    return [arm for case in (*plain, *_chosen(profile)) for arm in _changed(profile, *case)[0]]


def judge(evidence: Evidence) -> Judgement:
    parts: list[Part] = []
    panels: list[Panel] = []
    notes: list[str] = []
    open_ = 0
    for claim, change in _chosen(evidence.profile):
        mine, reason = _changed(evidence.profile, claim, change)
        if not mine:
            notes.append(f"{claim} with {change} cannot be: {reason}")
            continue
        plain, judged = (_again(evidence, claim, each) for each in (AS_IT_IS, change))
        for before, after in zip(plain.parts, judged.parts, strict=True):
            says = f"{claim}, {change}: {after.says}"
            if before.verdict == "confirmed":
                parts.append(replace(after, says=says))
            else:
                open_ += 1
                notes.append(f"{says}: {before.verdict} with no change, so there is nothing to hold")
        panels += [replace(panel, title=f"{panel.title} ({claim}, {change})") for panel in judged.panels[:1]]
    said = (
        f"Of what is confirmed with no change: {_told(parts)}."
        if parts
        else "Nothing is confirmed with no change."
    )
    parts.append(_covered(evidence.profile, len(parts), len(parts) + open_))
    return Judgement(tuple(parts), said, tuple(panels), tuple(notes))


def _again(evidence: Evidence, claim: str, change: str) -> Judgement:
    """A claim judged with one change; all cases together share the 5 %."""
    prefix = f"{claim}, {change}: "
    results = {
        name.removeprefix(prefix): result
        for name, result in evidence.results.items()
        if name.startswith(prefix)
    }
    cases = len(_chosen(evidence.profile))
    return JUDGES[claim].judge(
        replace(evidence, profile=_small(evidence.profile), results=results, family=cases)
    )


def _told(parts: Sequence[Part]) -> str:
    """How the verdicts are, change by change."""
    said = []
    for change in CHANGES:
        verdicts = [part.verdict for part in parts if part.says.split(": ")[0].endswith(f", {change}")]
        counts = [
            f"{verdicts.count(v)} {v}" for v in ("confirmed", "inconclusive", "refuted") if v in verdicts
        ]
        said += [f"{change} {', '.join(counts)}"] if counts else []
    return "; ".join(said)


def _covered(profile: Profile, judged: int, there_are: int) -> Part:
    """A claim about all verdicts is not confirmed by some of them, though one can refute it."""
    whole = profile.pick(False, 0 < judged == there_are)
    share = judged / there_are if there_are else 0.0
    effect = Estimate(share, share, share) if whole else Estimate(share, None, None)
    return Part(
        f"{judged} of {there_are} verdicts could be lost{profile.pick(', and not all were looked at', '')}",
        effect,
        0.99,
        "of the verdicts",
    )


CLAIM = Claim(
    id="8",
    title="The verdicts hold with layer norm, local and strided attention, other encodings",
    statement="What the paper's claims say is not an accident of its plain model.",
    source="ours",
    design=(
        "The arms of the paper's claims about tasks are trained again with one switch changed in all of them: layer norm, "
        "a window of 16 tokens, every second token only, log and t5 encodings (quick: 2b with layer norm and with a window). They have "
        "the quick profile's sizes. Each is judged by its claim's own rule, and so it is with no change; together they share the 5 %. A part that "
        "is confirmed with no change and refuted with one refutes the claim; only all of them together can confirm it."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("the claims about language", "root mean square norm, softmax, rotary", "two changes at once"),
)
