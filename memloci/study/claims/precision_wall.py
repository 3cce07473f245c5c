"""5a. The precision wall: where trained one-layer models stop, and where the mass bound says they must."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from memloci.study.arms import SUP, fixed, model, series
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile, Series
from memloci.study.statistics import Part, mean

HEADS = 16
ENCODINGS = ("lin", "log")
RECALLED = 0.5  # sup error: half of what answering 0 leaves
UNIT = 2.0**-24  # float32
NEAR = 1.5  # lags: one less than predicted is still near


def _lags(profile: Profile) -> tuple[int, ...]:
    return profile.pick((1, 2, 4, 6), (1, 2, 3, 4, 5, 6, 8))


def _name(encoding: str, lag: int) -> str:
    return f"{encoding}, lag {lag}"


def arms(profile: Profile) -> Sequence[Arm]:
    training = {"steps": profile.pick(1000, 10_000), "batch": 32, "length": 24, "held_out": 128}
    return [
        Arm(_name(encoding, lag), fixed([lag], "x1"), model(HEADS, 0, encoding=encoding), training)
        for encoding in ENCODINGS
        for lag in _lags(profile)
    ]


def judge(evidence: Evidence) -> Judgement:
    parts, lines, told = [], [], []
    for encoding in ENCODINGS:
        floors = _floors(encoding, evidence.profile)
        wall = max((lag for lag, floor in floors.items() if floor < RECALLED), default=0)
        stops = _stops(evidence, encoding)
        level = evidence.level(2 * len(ENCODINGS))
        parts += [
            Part(
                f"{encoding}: training recalls no lag beyond {wall}",
                mean(stops, level),
                wall + 0.5,
                "lag",
                "below",
            ),
            Part(f"{encoding}: it comes near lag {wall}", mean(stops, level), wall - NEAR, "lag"),
        ]
        lines.append(
            series(
                evidence,
                f"trained, {encoding}",
                [(lag, _name(encoding, lag)) for lag in _lags(evidence.profile)],
                SUP,
            )
        )
        lines.append(
            Series(f"proved floor, {encoding}", tuple(floors), tuple((e,) for e in floors.values()), "bound")
        )
        reached = f"{sum(stops) / len(stops):.1f}" if stops else "no number"
        told.append(f"{encoding}: training stops at lag {reached}, the bound at {wall}")
    return Judgement(
        tuple(parts),
        f"{'; '.join(told)}.",
        (
            Panel(
                f"One layer of {HEADS} heads, one lag",
                "lag",
                "sup error",
                tuple(lines),
                marks=(("recalled", RECALLED),),
            ),
        ),
        ("The floor is proved for any number of heads: error + mass 2^-24 is at least this.",),
    )


def _stops(evidence: Evidence, encoding: str) -> list[float]:
    """For every seed the largest lag up to which all are recalled."""
    lags = _lags(evidence.profile)
    columns = [evidence[_name(encoding, lag)].values(SUP) for lag in lags]
    if not all(columns):
        return []
    stops = []
    for errors in zip(*columns, strict=True):
        reached = 0
        for lag, error in zip(lags, errors, strict=True):
            if error > RECALLED:
                break
            reached = lag
        stops.append(float(reached))
    return stops


def _floors(encoding: str, profile: Profile) -> dict[int, float]:
    return {lag: _floor(encoding, lag) for lag in sorted({*_lags(profile), 4, 6})}


@lru_cache(maxsize=64)
def _floor(encoding: Any, lag: int) -> float:
    """Proved: error + 2^-24 mass of any heads; 1e-12 stands for all that is smaller."""
    from memloci.approx.lower_bounds import lower_bound
    from memloci.approx.targets import SingleLag

    return max(lower_bound(encoding, SingleLag(lag), price=UNIT).error, 1e-12)


CLAIM = Claim(
    id="5a",
    title="The precision wall: trained one-layer models stop where the mass bound says",
    statement="Trained layers of lin or log heads recall single lags up to about the one that the mass bound allows in float32.",
    source="ours",
    design=(
        f"One layer of {HEADS} heads without FFN learns to repeat the token at one lag. A lag is recalled if no error above "
        f"{RECALLED} was found; a seed stops at the first that is not. The mass bound proves that error + mass 2^-24 has a "
        f"floor, and predicts the last lag whose floor is below {RECALLED}. The claim fails if training gets beyond it, or "
        "stops more than one lag before it."
    ),
    measure=SUP,
    arms=arms,
    judge=judge,
    untried=(
        "float64",
        "other starts than ALiBi's slopes (6b has them for kernels)",
        "optimisers that suit ill-conditioned problems",
    ),
)
