"""8. Robustness: every verdict again, with other switches.

A case is a claim and a change: all arms of the claim get the same switch, and the claim is judged by its own rule. A
verdict that is there with no change can

    hold           the same with the change
    turn around    confirmed without it and refuted with it, or the other way round
    be open        inconclusive with the change; or the case was not run

so the number of verdicts that a change turns around is in [turned, turned + open], and each change is a part that says
it is 0. Claims that are inconclusive with no change have no verdict to lose. Cases that no model can have, or that would
be another claim, are left out with their reasons.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from memloci.core.errors import BadInput
from memloci.study.arms import MEAN_SQUARE
from memloci.study.claim import Arm, Claim, Evidence, GridCell, Judgement, Profile, VerdictGrid
from memloci.study.claims import CLAIMS, load_claim
from memloci.study.statistics import NOTHING, Estimate, Part, Verdict, deciding, overall
from memloci.tasks.memories.kernel import Convolution

AS_IT_IS = "no change"
CHANGES: dict[str, dict[str, Any]] = {
    "layer norm": {"norm": "pre"},
    "local": {"window": 16},
    "strided": {"stride": 2},
    "log encoding": {"encoding": "log"},
    "t5 encoding": {"encoding": "t5"},
    "rotary encoding": {"encoding": "rope"},
}
YARDSTICKS = ("5a", "6b")  # these compare with what is proved or computed of the plain model
TEXT = ("1a", "3b")  # of which models of these sizes learn too little to have a verdict
JUDGED = tuple(name for name in CLAIMS if name not in ("8", *YARDSTICKS, *TEXT))
# With another encoding these would be other claims: encodings are what they compare, or what makes a memory simple or complex.
ABOUT_ENCODINGS = ("2a", "2b", "4a", "4b", "5b", "5c", "9")
ABOUT_TAILS = (
    "4a",
    "9",
)  # that a window cuts off; 2b has one too, and asks only what heads and neurons make of it
NO_SUM = ("t5", "rope")  # over an infinite past; softmax takes its place
DECIDED = ("confirmed", "refuted")
QUICK = (("2b", "layer norm"), ("2b", "local"))


@dataclass(frozen=True)
class Retried:
    """A case, judged; or the reason why it cannot be."""

    parts: tuple[Part, ...] = ()
    reason: str = ""

    @property
    def verdict(self) -> Verdict | None:
        return overall(self.parts) if self.parts else None


def _cases(profile: Profile) -> list[tuple[str, str]]:
    """Those that are run; no change comes first."""
    chosen = profile.pick(QUICK, [(claim, change) for claim in JUDGED for change in CHANGES])
    plain = [(claim, AS_IT_IS) for claim in dict.fromkeys(claim for claim, _ in chosen)]
    return [*plain, *chosen]


def _small(profile: Profile) -> Profile:
    """So many cases have the quick profile's sizes, and shorter grids of rates: tuned to less than an hour for all."""
    if profile.name == "quick":
        return profile
    return replace(profile, name="quick", pilots=1, rates=(3e-3, 1e-2, 3e-2))


@lru_cache(maxsize=256)
def _changed(profile: Profile, claim: str, change: str) -> tuple[tuple[Arm, ...], str]:
    """The arms that parts depend on, named as in their claim; or why there are none."""
    switches = {AS_IT_IS: {}, **CHANGES}[change]
    judged_arms = [arm for arm in load_claim(claim).arms(_small(profile)) if not arm.context]
    if reason := _another(claim, switches) or next(
        filter(None, (_unseen(arm, switches) for arm in judged_arms)), ""
    ):
        return (), reason
    try:
        arms = tuple(_varied(arm, switches) for arm in judged_arms)
        for arm in arms:
            arm.run(1e-3, 0)
    except BadInput as reason:
        return (), str(reason)
    return arms, ""


def _another(claim: str, switches: Mapping[str, Any]) -> str:
    """Why a change would make it another claim."""
    if claim in ABOUT_ENCODINGS and "encoding" in switches:
        return "it is about encodings, and with another one it would be another claim"
    if claim in ABOUT_TAILS and "window" in switches:
        return "the window cuts off the tail that it is about"
    if claim == "6a" and "norm" in switches:
        return "counterexamples are searched for without norms only"
    return ""


def _unseen(arm: Arm, switches: Mapping[str, Any]) -> str:
    """Why heads that see some lags only cannot hold the task, whatever they learn."""
    if not switches.keys() & {"stride", "window"}:
        return ""
    stride, window = switches.get("stride", 1), switches.get("window", math.inf)
    for recall in arm.run(1e-3, 0).record.recalls:
        if isinstance(recall, Convolution):
            if stride > 1:
                return "heads that skip tokens miss part of the kernel, whatever they learn"
            continue
        lags = [int(recall.bound)] if recall.kernel else range(1, int(recall.bound) + 1)
        hidden = [lag for lag in lags if lag % stride or lag > window]
        if hidden:
            return f"its heads do not see lag {hidden[0]}"
    return ""


def _varied(arm: Arm, switches: Mapping[str, Any]) -> Arm:
    sizes = arm.architecture or {}
    if switches.get("encoding") in NO_SUM and sizes.get("normalisation") == "infinite":
        switches = {**switches, "normalisation": "softmax"}
    return arm.varied(**switches)


def _prefix(claim: str, change: str) -> str:
    return f"{claim}, {change}: "


def arms(profile: Profile) -> Sequence[Arm]:
    """A name for every case; arms that several claims share are trained once."""
    return [
        replace(arm, name=_prefix(*case) + arm.name)
        for case in _cases(profile)
        for arm in _changed(profile, *case)[0]
    ]


def judge(evidence: Evidence) -> Judgement:
    cases = _cases(evidence.profile)
    judged = sum(bool(_changed(evidence.profile, *case)[0]) for case in cases)
    cells = {case: _again(evidence, *case, judged) for case in cases}
    parts = tuple(_part(cells, change) for change in CHANGES)
    columns = (AS_IT_IS, *CHANGES)
    grid = VerdictGrid(
        "Every claim, with every change",
        tuple(claim for claim in JUDGED if (claim, AS_IT_IS) in cells),
        columns,
        tuple(
            tuple(_cell(cells.get((claim, change))) for change in columns)
            for claim in JUDGED
            if (claim, AS_IT_IS) in cells
        ),
    )
    return Judgement(parts, _summary(cells), (), tuple(_notes(cells)), grid)


def _again(evidence: Evidence, claim: str, change: str, cases: int) -> Retried:
    """A claim judged with one change; all cases together share the 5 %."""
    mine, reason = _changed(evidence.profile, claim, change)
    if not mine:
        return Retried(reason=reason)
    evidence.progress(f"8: {claim} with {change}", 0.95)
    results = {arm.name: evidence[_prefix(claim, change) + arm.name] for arm in mine}
    retried = replace(evidence, profile=_small(evidence.profile), results=results, family=cases)
    return Retried(tuple(load_claim(claim).judge(retried).parts))


def _part(cases: Mapping[tuple[str, str], Retried], change: str) -> Part:
    """How many verdicts the change turns around."""
    pairs = [(plain, again) for _, changed, plain, again in _pairs(cases) if changed == change]
    turned = sum(again not in (plain, "inconclusive") for plain, again in pairs)
    open_ = sum(again == "inconclusive" for _, again in pairs)
    open_ += sum((claim, change) not in cases for claim in JUDGED)  # not run
    effect = Estimate(turned, turned, turned + open_) if pairs else NOTHING
    return Part(
        f"with {change} no verdict turns around, of {len(pairs)} that are there",
        effect,
        0.5,
        "verdicts",
        "below",
        "counts",
    )


def _cell(again: Retried | None) -> GridCell:
    if again is None:
        return GridCell("not run", None)
    if again.verdict is None:
        return GridCell("cannot be", None)
    return GridCell(again.verdict, deciding(again.parts))


def _summary(cases: Mapping[tuple[str, str], Retried]) -> str:
    pairs = list(_pairs(cases))
    stable = sum(plain == again for *_, plain, again in pairs)
    turned = [
        f"{claim} with {change} (now {again})"
        for claim, change, plain, again in pairs
        if again not in (plain, "inconclusive")
    ]
    opened = len(pairs) - stable - len(turned)
    names = f": {', '.join(turned)}" if turned else ""
    return (
        f"Of {len(pairs)} verdicts that a change could turn around, {stable} hold, {opened} {'is' if opened == 1 else 'are'} left open, and "
        f"{len(turned)} {'turns' if len(turned) == 1 else 'turn'} around{names}."
    )


def _pairs(cases: Mapping[tuple[str, str], Retried]) -> Iterable[tuple[str, str, Verdict, Verdict]]:
    """(claim, change, verdict with no change, verdict with it) wherever there was a verdict to lose."""
    for (claim, change), again in cases.items():
        plain = cases[claim, AS_IT_IS].verdict
        if change != AS_IT_IS and plain in DECIDED and again.verdict is not None:
            yield claim, change, plain, again.verdict


def _notes(cases: Mapping[tuple[str, str], Retried]) -> Iterable[str]:
    yield "An interval is from the verdicts that turn around to those that may; its ends are counts."
    yield "Verdicts with no change are of the same small sizes, and may differ from those of the claims' own pages."
    for (claim, change), again in cases.items():
        if again.reason:
            yield f"{claim} with {change} cannot be: {again.reason}"
        elif change == AS_IT_IS and again.verdict == "inconclusive":
            yield f"{claim} is inconclusive with no change, so it has no verdict to lose"


CLAIM = Claim(
    id="8",
    title="The verdicts hold with layer norm, local and strided attention, other encodings",
    statement="What is true of the claims, and what is not, is no accident of the paper's plain model.",
    source="ours",
    design=(
        "The arms of the other claims are trained again with one switch changed in all of them: layer norm, a window of 16 "
        "tokens, every second token only, log, t5 and rotary encodings (quick: 2b with layer norm and with a window). t5 and rotary "
        "biases have no sum over an infinite past, so softmax takes its place; with a window slopes are trained as they are and not by "
        "their logarithm; with norms the eight layers of 5b have 5 % more parameters than its one. Models have the quick profile's sizes. Cases that would be other claims, or whose heads cannot "
        "see what is to be recalled, are left out: strided attention is judged on even lags. Each claim is judged by its "
        "own rule with the change and with none; all together share the 5 %. A verdict that turns around refutes the claim; that "
        "none does is confirmed only if no case is open."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    budget=_small,
    untried=(
        "5a and 6b, whose yardsticks are proved or computed of the plain model",
        "1a and 3b: on text, models of these sizes learn too little to have a verdict to lose",
        "root mean square norm, sinusoidal and learned positions",
        "two changes at once",
    ),
)
