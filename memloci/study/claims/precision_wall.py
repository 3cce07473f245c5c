"""5a. The precision wall: where trained one-layer models stop, and where the mass bound says they must."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from memloci.core.numbers import decimals
from memloci.core.precision import PRECISIONS
from memloci.study.arms import SUP, fixed, model, series
from memloci.study.claim import Arm, Claim, Curve, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Estimate, Part, mean

WALL_HEADS = 16
ENCODINGS = ("lin", "log")
RECALLED = 0.5  # sup error: half of what answering 0 leaves
UNIT = PRECISIONS["float32"].u
NEAR = 1.5  # lags: one less than predicted is still near


def _lags(profile: Profile) -> tuple[int, ...]:
    return profile.pick((1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 5, 6, 8))


def _name(encoding: str, lag: int) -> str:
    return f"{encoding}, lag {lag}"


def arms(profile: Profile) -> Sequence[Arm]:
    training = {"steps": profile.pick(1000, 10_000), "batch": 32, "length": 24, "held_out": 128}
    return [
        Arm(_name(encoding, lag), fixed([lag], "x1"), model(WALL_HEADS, 0, encoding=encoding), training)
        for encoding in ENCODINGS
        for lag in _lags(profile)
    ]


def judge(evidence: Evidence) -> Judgement:
    parts, panels, sentences = [], [], []
    for encoding in ENCODINGS:
        floors = _floors(encoding, evidence.profile)
        wall = max((lag for lag, floor in floors.items() if floor < RECALLED), default=0)
        stops = _stops(evidence, encoding)
        stop = _wider(mean(stops, evidence.level(2 * len(ENCODINGS))))
        parts += [
            Part(
                f"{encoding}: training recalls no lag beyond {wall}",
                stop,
                wall + 0.5,
                "lag",
                "below",
            ),
            Part(f"{encoding}: training comes near lag {wall}", stop, wall - NEAR, "lag"),
        ]
        trained = [(lag, _name(encoding, lag)) for lag in _lags(evidence.profile)]
        built = {lag: _built(encoding, lag) for lag in floors if lag <= wall}
        lines = (
            series(evidence, "trained", trained, SUP),
            Curve("compiled", tuple(built), tuple((E,) for E in built.values()), "certified"),
            Curve("any heads: floor", tuple(floors), tuple((e,) for e in floors.values()), "bound"),
        )
        recalled = (("recalled", RECALLED),)
        panels.append(
            Panel(
                f"One layer of {WALL_HEADS} {encoding} heads, one lag",
                "lag",
                "sup error",
                lines,
                marks=recalled,
            )
        )
        reached = f"{decimals(sum(stops) / len(stops), 1)}" if stops else "no number"
        last = max((lag for lag, E in built.items() if E < RECALLED), default=0)
        sentences.append(
            f"{encoding}: training stops at lag {reached}, weights by construction at {last} (proved), the bound at {wall}"
        )
    return Judgement(
        tuple(parts),
        f"{'; '.join(sentences)}.",
        tuple(panels),
        (
            "The floor is proved for any number of heads: error + mass 2^-24 is at least this.",
            f"Lags {', '.join(map(str, _lags(evidence.profile)))} were tried. Intervals are half a lag wider on each side than seeds say.",
        ),
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


def _wider(estimate: Estimate) -> Estimate:
    """Lags are whole numbers, so seeds often agree to the last digit; half a lag is not known."""
    if estimate.low is None or estimate.high is None:
        return estimate
    return Estimate(estimate.value, estimate.low - 0.5, estimate.high + 0.5)


def _floors(encoding: str, profile: Profile) -> dict[int, float]:
    return {lag: _floor(encoding, lag) for lag in _lags(profile)}


@lru_cache(maxsize=64)
def _built(encoding: Any, lag: int) -> float:
    """Proved: the error of compiled weights with as many heads, rounding in float32 included."""
    from memloci.approx.kernels.kernel_sums import fit
    from memloci.approx.kernels.targets import SingleLag
    from memloci.certify.certify import certify
    from memloci.circuits.compile import compile_circuit
    from memloci.routes.one_layer import kernel_circuit
    from memloci.routes.request import ROUNDING
    from memloci.synthesize import request_of
    from memloci.tasks.load import task_from_dict

    task = task_from_dict(fixed([lag], "x1"))
    request = request_of(task, RECALLED, "float32")
    fitted = fit(encoding, [SingleLag(lag)], WALL_HEADS, precision="float32", rounding=ROUNDING, moves=0)
    if fitted.error >= RECALLED:
        return 1.0  # answering 0 does as well
    return float(certify(compile_circuit(kernel_circuit(request, fitted)), task, tolerance=RECALLED).bound)


@lru_cache(maxsize=64)
def _floor(encoding: Any, lag: int) -> float:
    """Proved: error + 2^-24 mass of any heads; 1e-12 stands for all that is smaller."""
    from memloci.approx.kernels.lower_bounds import lower_bound
    from memloci.approx.kernels.targets import SingleLag

    return max(lower_bound(encoding, SingleLag(lag), price=UNIT).error, 1e-12)


CLAIM = Claim(
    id="5a",
    title="The precision wall: trained one-layer models stop where the mass bound says",
    statement="Trained layers of lin or log heads recall single lags up to about the one that the mass bound allows in float32.",
    source="ours",
    design=(
        f"One layer of {WALL_HEADS} heads without FFN learns to repeat the token at one lag. A lag is recalled if no error above "
        f"{RECALLED} was found; a seed stops at the first that is not. The mass bound proves that error + mass 2^-24 has a "
        f"floor, and predicts the last lag whose floor is below {RECALLED}. The claim fails if training gets beyond it, or "
        f"stops more than one lag before it. Compiled layers of {WALL_HEADS} heads are shown beside it: where training stops earlier than they "
        "do, it is not the precision that stops it."
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
