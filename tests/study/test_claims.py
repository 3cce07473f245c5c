"""Every claim can be run as it stands, compares like with like, and could come out either way."""

import random
from dataclasses import replace

import pytest

from memloci.errors import BadInput
from memloci.study import arms as pieces
from memloci.study.claim import FULL, QUICK, Evidence, Result, finding_from_dict
from memloci.study.claims import CLAIMS, load_claim
from memloci.study.run import chosen
from memloci.study.statistics import overall
from memloci.training.spec import Run

TEXT = "def f(x):\n    return x + 1\n" * 400
FROM_BOUNDS = ("5a", "6b")  # these take half a minute to compute
FROM_MODELS = ("6a",)  # judged by what is found in the models themselves


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(TEXT)
    return {profile.name: replace(profile, text=str(file)) for profile in (QUICK, FULL)}


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize("name", CLAIMS)
def test_arms_are_runs(name, profile, profiles):
    claim = load_claim(name)
    found = claim.arms(profiles[profile])
    assert claim.id == name
    assert len(found) >= 2 and len({arm.name for arm in found}) == len(found)
    keys = {arm.run(1e-3, 0).key for arm in found}
    assert len(keys) == len(found), "two arms are one configuration"
    assert all(isinstance(arm.run(1e-3, 0), Run) for arm in found)


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize("name", CLAIMS)
def test_arms_have_equal_budgets(name, profile, profiles):
    """Steps, batches and held-out sequences are the same for all arms of a claim that see one task."""
    budgets: dict[str, set] = {}
    for arm in load_claim(name).arms(profiles[profile]):
        run = arm.run(1e-3, 0)
        of = run.training
        group = name if name in ("8", "9") else str(run.task)
        group = arm.name.partition(":")[0] if name in ("8", "9") else group
        budgets.setdefault(group, set()).add((of.steps, of.batch, of.length, of.held_out))
    assert all(len(found) == 1 for found in budgets.values())


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("1a", [("deep", "1 layer, many heads")]),
        ("3b", [("dp", "dpf, as many parameters as dp")]),
        ("3a", [("dp", "dpf, as many parameters as dp")]),
        ("1b", [("16 heads, 128 neurons", "3 layers, as large")]),
        ("5b", [("1 layer, lin", "4 layers, lin")]),
    ],
)
def test_parameters_are_balanced(name, pairs, profile, profiles):
    found = {arm.name: arm.architecture or {} for arm in load_claim(name).arms(profiles[profile])}
    channels = 256 if name in ("1a", "3b") else 1
    for first, second in pairs:
        sizes = [pieces.parameter_count(found[each], channels) for each in (first, second)]
        assert abs(sizes[0] - sizes[1]) <= 0.03 * sizes[0], sizes


def test_counted_parameters_are_those_of_the_model():
    import jax.random as jr

    import memloci as ml

    architecture = pieces.model(3, 7, attention="dp", normalisation="softmax")
    built = ml.Transformer(ml.Architecture(**architecture), 5, 5, key=jr.key(0))
    assert pieces.parameter_count(architecture, 5) == built.parameter_count


def _evidence(claim, profile, seed):
    """Made-up results: every arm has a level of its own, and seeds that differ little."""
    chance = random.Random(seed)
    results = {}
    for arm in claim.arms(profile):
        level = 10 ** chance.uniform(-4, 0.5)
        records = []
        for _ in range(profile.seeds):
            value = level * chance.uniform(0.95, 1.05)
            record = {"status": "done", "err_mean_square": value, "parameters": 100}
            record |= {"err_sup": value if seed % 2 else 1.0 / value, "bits_per_byte": value}
            records.append(record)
        results[arm.name] = Result(arm, 1e-2, {"0.01": 1.0}, tuple(records), ("",) * profile.seeds)
    return Evidence(profile, results, lambda key: b"")


@pytest.mark.parametrize("name", [name for name in CLAIMS if name not in (*FROM_MODELS, *FROM_BOUNDS)])
def test_a_claim_can_come_out_either_way(name, profiles):
    _either_way(name, profiles)


@pytest.mark.slow
@pytest.mark.parametrize("name", FROM_BOUNDS)
def test_a_claim_about_bounds_can_come_out_either_way(name, profiles):
    _either_way(name, profiles)


def _either_way(name, profiles):
    claim, verdicts = load_claim(name), set()
    # That layers recall exactly the lags up to the wall takes more luck than made-up numbers have, and the quick profile
    # looks at too few cases to confirm that all of them hold: tests of their own show those.
    expected = {"5a": {"refuted"}, "8": {"refuted", "inconclusive"}}.get(name, {"confirmed", "refuted"})
    for seed in range(400):
        judged = claim.judge(_evidence(claim, profiles["quick"], seed))
        assert judged.said and judged.panels and judged.parts
        verdicts.add(overall(judged.parts))
        if expected <= verdicts:
            return
    pytest.fail(f"only {verdicts}")


@pytest.mark.parametrize("name", [name for name in CLAIMS if name not in (*FROM_MODELS, *FROM_BOUNDS)])
def test_missing_numbers_leave_a_claim_open(name, profiles):
    claim = load_claim(name)
    evidence = _evidence(claim, profiles["quick"], 1)
    lost = {
        key: replace(result, records=({"status": "diverged"}, *result.records[1:]))
        for key, result in evidence.results.items()
    }
    judged = claim.judge(replace(evidence, results=lost))
    trained = [part for part in judged.parts if not part.says.startswith("compiled")]
    assert "confirmed" not in {overall(judged.parts)}
    assert trained and all(part.verdict == "inconclusive" for part in trained)


@pytest.mark.slow
def test_the_wall_is_where_training_stops(profiles):
    """5a, with results that recall every lag up to 5 and none beyond: confirmed for lin."""
    claim = load_claim("5a")
    evidence = _evidence(claim, profiles["quick"], 0)
    recalled = ({"status": "done", "err_sup": 0.1},) * profiles["quick"].seeds
    results = {name: replace(result, records=recalled) for name, result in evidence.results.items()}
    evidence = replace(evidence, results=results)
    parts = {part.says: part.verdict for part in claim.judge(evidence).parts}
    assert parts["lin: training recalls no lag beyond 6"] == "confirmed", parts
    assert parts["lin: it comes near lag 6"] == "confirmed", parts


def test_only_all_cases_confirm_that_verdicts_are_robust(profiles):
    claim = load_claim("8")
    for name, verdict in (("quick", "inconclusive"), ("full", "confirmed")):
        judged = claim.judge(_held(claim, profiles[name]))
        assert {part.verdict for part in judged.parts[:-1]} == {"confirmed"}
        assert judged.parts[-1].verdict == verdict


def test_a_verdict_that_was_never_there_is_not_lost(profiles):
    """2b's second part fails with no change as well: that leaves claim 8 open and does not refute it."""
    claim = load_claim("8")
    evidence = _held(claim, profiles["full"])
    worse = {
        name: result
        if not (name.startswith("2b") and name.endswith("1 head, 64 neurons"))
        else replace(result, records=tuple({**r, "err_mean_square": 1e-6} for r in result.records))
        for name, result in evidence.results.items()
    }
    judged = claim.judge(replace(evidence, results=worse))
    assert overall(judged.parts) == "inconclusive"
    assert any("2b, layer norm" in note and "refuted with no change" in note for note in judged.notes)
    lost = {name: result if "no change" in name else evidence.results[name] for name, result in worse.items()}
    assert overall(claim.judge(replace(evidence, results=lost)).parts) == "inconclusive"
    only = {name: evidence.results[name] if "no change" in name else result for name, result in worse.items()}
    assert overall(claim.judge(replace(evidence, results=only)).parts) == "refuted"


def _held(claim, profile):
    """Results with which every claim that 8 looks at is confirmed, with every change."""
    good = {
        "1b": {"16 heads, 128 neurons": 1e-3},
        "2a": {"1 head, 64 neurons": 1e-2, "8 heads, 64 neurons": 1e-2},
        "2b": {"8 heads, 8 neurons": 1e-2, "8 heads, 64 neurons": 1e-2},
        "4a": {"log, 1 head": 1e-2, "log, 4 heads": 1e-2},
        "4b": {"lin, 1 head": 1e-2, "lin, 4 heads": 1e-2},
    }
    evidence = _evidence(claim, profile, 0)
    results = {}
    for name, result in evidence.results.items():
        case, _, arm = name.partition(": ")
        error = good.get(case.partition(",")[0], {}).get(arm, 1.0)
        values = [error * (1 + 0.01 * k) for k in range(len(result.records))]
        records = tuple(
            {**r, "err_mean_square": v, "err_sup": v} for r, v in zip(result.records, values, strict=True)
        )
        results[name] = replace(result, records=records)
    return replace(evidence, results=results)


def test_unknown_claims_are_named():
    with pytest.raises(BadInput, match="unknown claim '12z'; there are 1a"):
        chosen(["12z"])
    with pytest.raises(BadInput, match="which claim"):
        chosen([])
    assert [claim.id for claim in chosen(["4b", "4a"])] == ["4a", "4b"]
    assert [claim.id for claim in chosen(["all"])] == list(CLAIMS)


def test_nothing_else_calls_a_finding_back(profiles):
    import json

    from memloci.study.claim import Finding

    claim = load_claim("4a")
    judged = claim.judge(_evidence(claim, profiles["quick"], 3))
    rest = {
        name: getattr(claim, name) for name in ("id", "title", "statement", "source", "design", "measure")
    }
    found = Finding(
        **rest, profile="quick", seeds=5, parts=judged.parts, said=judged.said, panels=judged.panels,
        arms=({"arm": "x"},), notes=judged.notes, untried=claim.untried, seconds=1.0, command="memloci study 4a",
    )  # fmt: skip
    assert finding_from_dict(json.loads(json.dumps(found.to_dict()))) == found
