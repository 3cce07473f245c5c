"""6a. The capacity bound: below it dpf and tmx have a counterexample, dp with rotary encoding has none."""

from collections.abc import Mapping, Sequence
from typing import Any

from memloci.core.numbers import number
from memloci.core.proved import Proved
from memloci.study.arms import PAYLOAD, SUP, adaptive, model, series
from memloci.study.claim import Arm, Claim, Curve, Evidence, Judgement, Panel, Profile
from memloci.study.statistics import Estimate, Part, mean

T, VALUES = 8, 4  # lags that can be asked for, and the numbers that the state of one head of this width holds
WRONG, RIGHT = 0.9, 1e-3  # sup errors; the bound is 1
DPF, TMX, DP = "dpf", "tmx", "dp, rotary, compiled"


def _task() -> dict[str, Any]:
    return adaptive(["a0"], "v1", {"name": "a", "values": list(range(1, T + 1))}, PAYLOAD)


def arms(profile: Profile) -> Sequence[Arm]:
    training = {"steps": profile.pick(800, 3000), "batch": 64, "length": 32, "held_out": 128}
    sizes = {"value_dim": VALUES}
    return [
        Arm(DPF, _task(), model(1, 64, **sizes), training),
        Arm(TMX, _task(), model(1, 64, **{**sizes, "attention": "tmx", "normalisation": "none"}), training),
    ]


def judge(evidence: Evidence) -> Judgement:
    pairs = {name: _counterexamples(evidence, name) for name in (DPF, TMX)}
    largest = {name: _largest(evidence[name].values(SUP), errors) for name, errors in pairs.items()}
    E = _compiled()
    level = evidence.level(3)
    parts = [
        Part(
            f"{name}: trained models are wrong on pasts that were found",
            mean(errors, level),
            WRONG,
            "sup error",
        )
        for name, errors in largest.items()
    ]
    parts.append(
        Part(f"{DP}: proved for every past", Estimate(E, E, E), RIGHT, "sup error", "below", "proof")
    )
    dots = Curve("largest error found", tuple(largest), tuple(map(tuple, largest.values())), "measured")
    proved = Curve("certified", (DP,), ((E,),), "certified")
    trained = series(evidence, "mean square", [(name, name) for name in (DPF, TMX)])
    return Judgement(
        tuple(parts),
        f"Two pasts that a model confuses were found for {_sentence(pairs)} trained models. Compiled rotary heads are proved to be within "
        f"{number(Proved(E))} on every past.",
        (
            Panel(f"Recall of lag 1 to {T}, asked by the token", "", "sup error", (dots, proved)),
            Panel("The same models, on sampled sequences", "", "mean square error", (trained,)),
        ),
        (
            "The search for counterexamples is in float64; their errors are the model's own, in its precision.",
        ),
    )


def _largest(sups: Sequence[float], pairs: Sequence[float | None]) -> list[float]:
    """For every model the larger of what pasts and adversary found; none where a run is missing."""
    return [max(sup, pair or 0.0) for sup, pair in zip(sups, pairs, strict=True)] if sups else []


def _sentence(pairs: Mapping[str, Sequence[float | None]]) -> str:
    every_error = [error for errors in pairs.values() for error in errors]
    return f"{sum(error is not None for error in every_error)} of {len(every_error)}"


def _counterexamples(evidence: Evidence, name: str) -> list[float | None]:
    """The error of the pasts found, for every trained model; None where the search failed."""
    import jax.random as jr

    from memloci.observe.counterexample import counterexample
    from memloci.tasks.load import task_from_dict

    task, errors = task_from_dict(_task()), []
    for k, trained in enumerate(evidence.models(name)):
        evidence.progress(f"6a: searching for pasts that {name} confuses", 0.95)
        pasts = counterexample(trained, task, key=jr.key(k))
        errors.append(None if pasts is None else float(pasts.error))
    return errors


def _compiled() -> float:
    from memloci.synthesize import plan
    from memloci.tasks.load import task_from_dict

    return float(plan(task_from_dict(_task()), RIGHT, routes=["rotary"]).best.certificate.bound)


CLAIM = Claim(
    id="6a",
    title="Below the capacity bound dpf and tmx fail, dp with rotary does not",
    statement="Weights that factorise and carry fewer than T d numbers confuse two pasts, whatever the training; dot products with rotary encoding do not.",
    source="ours",
    design=(
        f"The token says how far back to look, 1 to {T}, for a real number. Models of one head with {VALUES} values are "
        "trained; then two pasts are searched for that they answer alike and the task does not, and an adversary looks for large errors. "
        "The bound promises an error of 1 in exact arithmetic, so with these sizes only the search, or the arithmetic, could fail: the "
        "claim does if the largest errors found are below 0.9, or if rotary heads are not proved within 0.001."
    ),
    measure=SUP,
    arms=arms,
    judge=judge,
    untried=("trained dp models: proofs are about compiled ones", "states that nearly meet the bound"),
)
