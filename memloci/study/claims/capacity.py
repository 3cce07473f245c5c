"""6a. The capacity bound: below it dpf and tmx have a counterexample, dp with rotary encoding has none."""

from collections.abc import Sequence
from typing import Any

from memloci.study.arms import MEAN_SQUARE, PAYLOAD, adaptive, model, series
from memloci.study.claim import Arm, Claim, Evidence, Judgement, Panel, Profile, Series
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
    found = {name: _counterexamples(evidence, name) for name in (DPF, TMX)}
    E = _compiled()
    level = evidence.level(3)
    all_of = lambda name: found[name] if len(found[name]) == len(evidence[name].records) else []
    parts = [
        Part(
            f"{name}: two pasts that every trained model confuses",
            mean(all_of(name), level),
            WRONG,
            "sup error",
        )
        for name in found
    ]
    parts.append(Part(f"{DP}: proved for every past", Estimate(E, E, E), RIGHT, "sup error", "below"))
    dots = Series("counterexample", tuple(found), tuple(map(tuple, found.values())), "measured")
    proved = Series("certified", (DP,), ((E,),), "certified")
    trained = series(evidence, "mean square", [(name, name) for name in (DPF, TMX)])
    return Judgement(
        tuple(parts),
        f"Counterexamples were found in {sum(map(len, found.values()))} of {sum(len(evidence[n].records) for n in found)} trained models. Compiled rotary heads are proved to "
        f"be within {E:.1e} on every past.",
        (
            Panel(f"Recall of lag 1 to {T}, asked by the token", "", "sup error", (dots, proved)),
            Panel("The same models, on sampled sequences", "", "mean square error", (trained,)),
        ),
        (
            "The search for counterexamples is in float64; their errors are the model's own, in its precision.",
        ),
    )


def _counterexamples(evidence: Evidence, name: str) -> list[float]:
    """The error of the pasts found, for every trained model that has some."""
    import jax.random as jr

    from memloci.observer.counterexample import counterexample
    from memloci.tasks.load import task_from_dict

    task, errors = task_from_dict(_task()), []
    models = evidence.models(name)
    for k, trained in enumerate(models):
        evidence.progress(f"6a: searching for pasts that {name} confuses", 0.95)
        found = counterexample(trained, task, key=jr.key(k))
        if found is not None:
            errors.append(float(found.error))
    return errors


def _compiled() -> float:
    from memloci import pipeline
    from memloci.tasks.load import task_from_dict

    return float(pipeline.compile(task_from_dict(_task()), tolerance=RIGHT, route="rotary").certificate.bound)


CLAIM = Claim(
    id="6a",
    title="Below the capacity bound dpf and tmx fail, dp with rotary does not",
    statement="Weights that factorise and carry fewer than T d numbers confuse two pasts, whatever the training; dot products with rotary encoding do not.",
    source="ours",
    design=(
        f"The token says how far back to look, 1 to {T}, for a real number. Models of one head with {VALUES} values are "
        "trained; then two pasts are searched for that they answer alike and the task does not. The bound promises an "
        "error of 1 in exact arithmetic, so with these sizes only the search, or the arithmetic, could fail: the claim does if trained "
        "models are better than 0.9 on the pasts found, or if rotary heads are not proved within 0.001."
    ),
    measure=MEAN_SQUARE,
    arms=arms,
    judge=judge,
    untried=("trained dp models: proofs are about compiled ones", "states that nearly meet the bound"),
)
