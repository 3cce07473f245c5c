"""Every claim can be run as it stands, compares like with like, and could come out either way."""

import random
from dataclasses import replace

import pytest

from memloci.core.errors import BadInput
from memloci.study import arms as pieces
from memloci.study.claim import FULL, QUICK, Evidence, Result, finding_from_dict
from memloci.study.claims import CLAIMS, capacity, load_claim, robustness
from memloci.study.run import chosen
from memloci.study.statistics import overall
from memloci.train.record import RunRecord, record_from_dict
from memloci.train.spec import Run

TEXT = "def f(x):\n    return x + 1\n" * 400
FROM_BOUNDS = ("5a",)  # takes half a minute to compute
FROM_MODELS = ("6a",)  # judged by what is found in the models themselves


def _done(**measures: float) -> RunRecord:
    return RunRecord("done", measures=measures)


def _but(record: RunRecord, **measures: float) -> RunRecord:
    return replace(record, measures={**record.measures, **measures})


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
    runs = [arm.run(1e-3, 0) for arm in found]
    assert all(isinstance(run, Run) for run in runs)
    if name != "8":  # it judges 9 too, which has the arms of others
        assert len({run.key for run in runs}) == len(found), "two arms are one configuration"


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize("name", CLAIMS)
def test_arms_have_equal_budgets(name, profile, profiles):
    """Steps, batches and held-out sequences are the same for all arms of a claim that see one task."""
    budgets: dict[str, set] = {}
    for arm in load_claim(name).arms(profiles[profile]):
        run = arm.run(1e-3, 0)
        of = run.training
        group = arm.name.rpartition(":")[0] if name in ("8", "9") else str(run.task)
        budgets.setdefault(group, set()).add((of.steps, of.batch, of.length, of.held_out))
    assert all(len(found) == 1 for found in budgets.values())


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("1a", [("3 layers", "1 layer")]),
        ("3b", [("dp", "dpf, as many parameters as dp")]),
        ("3a", [("dp", "dpf, as many parameters as dp")]),
        ("1b", [("16 heads, 128 neurons", "3 layers, as large")]),
        ("5b", [("1 layer, lin", "8 layers, lin")]),
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
    lowest = -15 if claim.id == "6b" else -4  # where what heads can express is
    results = {}
    for arm in claim.arms(profile):
        level = 10 ** chance.uniform(lowest, 0.5)
        records = []
        for _ in range(profile.seeds):
            value = level * chance.uniform(0.95, 1.05)
            record = {"status": "done", "err_mean_square": value, "parameters": 100}
            record |= {"err_sup": value if seed % 2 else 1.0 / value, "bits_per_byte": value}
            records.append(record_from_dict(record))
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
    # looks at too few cases to confirm that all of them hold: tests of their own show that these can be.
    expected = {"5a": {"refuted"}, "8": {"refuted", "inconclusive"}}.get(name, {"confirmed", "refuted"})
    for seed in range(400):
        judged = claim.judge(_evidence(claim, profiles["quick"], seed))
        assert judged.summary and (judged.panels or judged.grid) and judged.parts
        verdicts.add(overall(judged.parts))
        if expected <= verdicts:
            return
    pytest.fail(f"only {verdicts}")


@pytest.mark.parametrize("name", [name for name in CLAIMS if name not in (*FROM_MODELS, *FROM_BOUNDS)])
def test_missing_numbers_leave_a_claim_open(name, profiles):
    claim = load_claim(name)
    evidence = _evidence(claim, profiles["quick"], 1)
    lost = {
        key: replace(result, records=(RunRecord("diverged"), *result.records[1:]))
        for key, result in evidence.results.items()
    }
    judged = claim.judge(replace(evidence, results=lost))
    trained = [part for part in judged.parts if not part.statement.startswith("compiled")]
    assert "confirmed" not in {overall(judged.parts)}
    assert trained and all(part.verdict == "inconclusive" for part in trained)


@pytest.mark.parametrize(
    ("pair", "sup", "verdict"),
    [(1.0, 0.2, "confirmed"), (None, 1.2, "confirmed"), (None, 0.2, "refuted"), (None, None, "inconclusive")],
)
def test_capacity_is_judged_by_the_largest_error_found(pair, sup, verdict, profiles, monkeypatch):
    """6a: by two pasts that a model confuses, or where none were found by what the adversary found."""
    claim, quick = load_claim("6a"), profiles["quick"]
    monkeypatch.setattr(capacity, "_counterexamples", lambda evidence, name: [pair] * quick.seeds)
    monkeypatch.setattr(capacity, "_compiled", lambda: 1e-6)
    evidence = _evidence(claim, quick, 0)
    results = {
        name: replace(result, records=(_done(err_sup=sup, err_mean_square=0.1),) * quick.seeds)
        for name, result in evidence.results.items()
    }
    assert overall(claim.judge(replace(evidence, results=results)).parts) == verdict


def test_numbers_in_the_text_of_claims_are_right(profiles):
    count = lambda arm: f"{pieces.parameter_count(arm.architecture or {}, 1):,}"
    arms = {arm.name: arm for arm in load_claim("5c").arms(profiles["quick"])}
    for name in ("1 layer, rotary", "1 layer, lin"):
        assert count(arms[name]) in load_claim("5c").design
    normed = robustness._changed(profiles["full"], "5b", "layer norm")[0]
    sizes = [pieces.parameter_count(arm.architecture or {}, 1) for arm in normed]
    assert "the eight layers of 5b have 5 % more parameters than its one" in load_claim("8").design
    assert round(100 * (sizes[1] / sizes[0] - 1)) == 5, sizes


@pytest.mark.slow
def test_the_wall_is_where_training_stops(profiles):
    """5a, with results that recall every lag up to 6 and none beyond: confirmed for lin."""
    claim = load_claim("5a")
    evidence = _evidence(claim, profiles["quick"], 0)
    records = lambda name: _done(err_sup=0.1 if int(name.split()[-1]) <= 6 else 1.0)
    results = {
        name: replace(result, records=(records(name),) * profiles["quick"].seeds)
        for name, result in evidence.results.items()
    }
    evidence = replace(evidence, results=results)
    parts = {part.statement: part.verdict for part in claim.judge(evidence).parts}
    assert parts["lin: training recalls no lag beyond 6"] == "confirmed", parts
    assert parts["lin: training comes near lag 6"] == "confirmed", parts


@pytest.fixture
def few(monkeypatch):
    """Claim 8 about claims that need no models and no bounds; none of them can be with strided attention."""
    monkeypatch.setattr(robustness, "JUDGED", tuple(GOOD))
    changes = {name: switches for name, switches in robustness.CHANGES.items() if name != "strided"}
    monkeypatch.setattr(robustness, "CHANGES", changes)
    robustness._changed.cache_clear()
    return load_claim("8")


def test_verdicts_that_hold_in_all_cases_are_robust(few, profiles):
    for name, verdict in (("quick", "inconclusive"), ("full", "confirmed")):
        judged = few.judge(_held(few, profiles[name]))
        assert overall(judged.parts) == verdict, judged.parts
    assert judged.grid is not None and judged.grid.rows == tuple(GOOD)
    at = dict(zip(judged.grid.columns, judged.grid.cases[-1], strict=True))  # of 4b
    assert at["layer norm"].verdict == "confirmed" and at["log encoding"].verdict == "cannot be"
    assert any("4b with log encoding cannot be: it is about encodings" in note for note in judged.notes)


def test_a_verdict_that_turns_around_is_counted(few, profiles):
    """2b's neurons help too: refuted. With one change alone, that refutes the claim; with no change alone, likewise."""
    evidence = _held(few, profiles["full"])
    worse = {
        name: result
        if not (name.startswith("2b") and name.endswith("1 head, 64 neurons"))
        else replace(result, records=tuple(_but(r, err_mean_square=1e-6) for r in result.records))
        for name, result in evidence.results.items()
    }
    mixed = lambda which: {n: worse[n] if which in n else evidence.results[n] for n in worse}
    for results, turned in ((worse, 0), (mixed("local"), 1), (mixed("no change"), 1)):
        judged = few.judge(replace(evidence, results=results))
        local = next(part for part in judged.parts if "local" in part.statement)
        assert local.effect.value == turned and local.verdict == ("refuted" if turned else "confirmed")
        assert overall(judged.parts) == ("refuted" if turned else "confirmed")
        assert ("2b with local" in judged.summary) == (turned > 0)


def test_a_case_without_numbers_leaves_its_change_open(few, profiles):
    evidence = _held(few, profiles["full"])
    name = next(name for name in evidence.results if name.startswith("2a, layer norm"))
    lost = replace(evidence.results[name], records=(RunRecord("diverged"),))
    judged = few.judge(replace(evidence, results={**evidence.results, name: lost}))
    open_ = [part.statement for part in judged.parts if part.verdict == "inconclusive"]
    assert open_ == [f"with layer norm no verdict turns around, of {len(GOOD)} that are there"]


GOOD = {  # errors with which a claim is confirmed; all others are 1
    "1b": {"16 heads, 128 neurons": 1e-3},
    "2a": {"1 head, 64 neurons": 1e-2, "8 heads, 64 neurons": 1e-2},
    "2b": {"8 heads, 8 neurons": 1e-2, "8 heads, 64 neurons": 1e-2},
    "3a": {},
    "4a": {"log, 1 head": 1e-2, "log, 4 heads": 1e-2},
    "4b": {"lin, 1 head": 1e-2, "lin, 4 heads": 1e-2},
}


def _held(claim, profile):
    """Results with which every claim that 8 looks at is confirmed, with every change."""
    evidence = _evidence(claim, profile, 0)
    results = {}
    for name, result in evidence.results.items():
        case, _, arm = name.partition(": ")
        error = GOOD[case.partition(",")[0]].get(arm, 1.0)
        values = [error * (1 + 0.01 * k) for k in range(len(result.records))]
        records = tuple(
            _but(r, err_mean_square=v, err_sup=v) for r, v in zip(result.records, values, strict=True)
        )
        results[name] = replace(result, records=records)
    return replace(evidence, results=results)


def test_heads_that_cannot_see_a_memory_are_not_judged(profiles):
    reason = lambda claim, change: robustness._changed(profiles["full"], claim, change)[1]
    assert reason("1b", "strided") == reason("6a", "strided") == "its heads do not see lag 1"
    assert "skip tokens" in reason("2a", "strided")
    assert "cuts off the tail" in reason("4a", "local")
    assert reason("5b", "strided") == reason("7", "local") == ""
    assert "without norms" in reason("6a", "layer norm")


def test_rankings_are_of_one_task_each(profiles):
    """9 compares architectures on the same target, in every profile."""
    for profile in profiles.values():
        tasks = {}
        for arm in load_claim("9").arms(profile):
            tasks.setdefault(arm.name.partition(":")[0], set()).add(str(arm.task))
        assert {len(found) for found in tasks.values()} == {1}


def test_changes_keep_parameters_balanced(profiles):
    """8: what a switch adds to one arm of 3a it adds to the other, within 3 %."""
    seen = 0
    for change in robustness.CHANGES:
        found = {arm.name: arm for arm in robustness._changed(profiles["full"], "3a", change)[0]}
        if found:
            equal = found["dp"], found["dpf, as many parameters as dp"]
            sizes = [pieces.parameter_count(arm.architecture or {}, 1) for arm in equal]
            assert abs(sizes[0] - sizes[1]) <= 0.03 * sizes[0], (change, sizes)
            seen += 1
    assert seen > 3


def test_what_lin_heads_can_express_is_reached_in_float32():
    """6b: the exponents, with coefficients by least squares, as numbers that float32 has."""
    import numpy as np
    from scipy.optimize import nnls

    from memloci.study.claims.exponents_not_found import LEAST, POWER, expressed

    n = 64
    least, exponents = expressed(n)
    z, p = np.arange(1, n), np.array(exponents)
    heads = (-np.expm1(-p) * np.exp(-p * (z - 1)[:, None])).astype("float32").astype(float)
    weight = np.sqrt((1 - z / n) / 3)
    a = nnls(heads * weight[:, None], z**POWER * weight)[0].astype("float32").astype(float)
    wrong = weight * (heads @ a - z**POWER)
    assert wrong @ wrong < 10 * max(least, LEAST) < 1e-12


def test_unknown_claims_are_named():
    with pytest.raises(BadInput, match="unknown claim '12z'; there are 1a"):
        chosen(["12z"])
    with pytest.raises(BadInput, match="no claim is named"):
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
        **rest, profile="quick", seeds=5, parts=judged.parts, summary=judged.summary, panels=judged.panels,
        arms=({"arm": "x"},), notes=judged.notes, untried=claim.untried, seconds=1.0, command="memloci study 4a",
    )  # fmt: skip
    stored = json.loads(json.dumps(found.to_dict()))
    assert finding_from_dict(stored) == found
    stored["said"] = stored.pop("summary")  # as earlier versions wrote it
    for part in stored["parts"]:
        part["says"] = part.pop("statement")
    assert finding_from_dict(stored) == found
