"""A study from its claims to its pages, with an engine that trains nothing."""

import json
from dataclasses import replace

import pytest

from memloci.core.errors import BadInput
from memloci.pipeline import write_study, write_verdicts
from memloci.study import finding_cache, pages, run
from memloci.study.claim import JUDGING, PILOT, QUICK, finding_from_dict
from memloci.study.claims import CLAIMS
from memloci.study.run import chosen
from memloci.study.tuned_runs import best, widened
from memloci.sweeps.database import checksum
from memloci.sweeps.store import Store

from ..commands import memloci

FAKE = "tests.study.fake:execute"


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr("memloci.sweeps.start.EXECUTE", FAKE)


def _study(place, names, **settings):
    return run.study(names, out=place, workers=1, **settings)


def _rows(place):
    with Store(place / run.STORE, create=False) as store:
        return store.rows()


def test_a_study_tunes_then_judges_on_other_seeds(fake, tmp_path):
    (found,) = _study(tmp_path, ["2b"])
    rows = _rows(tmp_path)
    seeds = {row["config"]["training"]["seed"] for row in rows}
    assert seeds == {*range(JUDGING, JUDGING + QUICK.seeds), *(PILOT + k for k in range(QUICK.pilots))}
    judged = [row["config"]["training"] for row in rows if row["config"]["training"]["seed"] < PILOT]
    assert {training["rate"] for training in judged} == {1e-2}, "the best rate of the fake engine"
    assert all(arm["rate"] == 1e-2 and arm["seeds"] == QUICK.seeds for arm in found.arms)
    # The fake engine likes heads and does not care for neurons, as the claim says.
    assert found.verdict == "confirmed"
    assert found.seconds >= 0 and found.command == "memloci study 2b --quick"


def test_a_seed_makes_a_study_of_its_own(fake, tmp_path):
    (first,), (second,) = _study(tmp_path, ["4a"]), _study(tmp_path, ["4a"], seed=100)
    assert second.command == "memloci study 4a --quick --seed 100"
    assert first.parts != second.parts
    with pytest.raises(BadInput, match="seed: must be from 0"):
        _study(tmp_path, ["4a"], seed=10**6)


def test_claims_share_runs(fake, tmp_path):
    _study(tmp_path, ["2a", "2b", "4a", "4b"])
    before = len(_rows(tmp_path))
    (found,) = _study(tmp_path, ["9"])
    assert len(_rows(tmp_path)) == before and len(found.arms) == 16


def test_a_second_study_only_draws(fake, tmp_path, monkeypatch):
    (first,) = _study(tmp_path, ["4a"])
    monkeypatch.setattr("memloci.sweeps.start.EXECUTE", "tests.study.fake:no_such_engine")
    monkeypatch.setattr(run, "Evidence", None)  # judging again would need it
    assert _study(tmp_path, ["4a"]) == [first]


def test_a_finding_is_made_anew_when_its_rule_changes(fake, tmp_path, monkeypatch):
    _study(tmp_path, ["4a"])
    kept = tmp_path / run.FINDINGS / "4a-quick.json"
    content = json.loads(kept.read_bytes())
    content["content"]["summary"] = "an older sentence"
    kept.write_text(json.dumps(content))
    assert _study(tmp_path, ["4a"])[0].summary == "an older sentence"
    kept.write_text(json.dumps({**content, "fingerprint": "of other code"}))
    assert _study(tmp_path, ["4a"])[0].summary != "an older sentence"
    kept.write_text("{")
    assert _study(tmp_path, ["4a"])[0].summary != "an older sentence"


@pytest.mark.slow
def test_a_grid_grows_where_its_best_rate_is_at_an_end(fake, tmp_path):
    from memloci.study.tuned_runs import tuned_runs

    claim = chosen(["4a"])[0]
    arms = claim.arms(QUICK)[:1]
    ask = lambda rates, wider: tuned_runs(
        arms, name="x", store=tmp_path / "s", seeds=[1], rates=rates, wider=wider, workers=1
    )
    tried = lambda found: list(next(iter(found[0].values())).tuning)
    # The best rate of the fake engine is 0.01.
    assert tried(ask([0.1, 0.3], 0)) == ["0.1", "0.3"]
    assert tried(ask([0.1, 0.3], 1)) == ["0.03", "0.1", "0.3"]
    assert tried(ask([0.1, 0.3], 9)) == ["0.003", "0.01", "0.03", "0.1", "0.3"]
    assert tried(ask([0.001], 9)) == ["0.0003", "0.001", "0.003", "0.01", "0.03"]
    assert tried(ask([0.003, 0.01, 0.03], 9)) == ["0.003", "0.01", "0.03"]


def test_rates_beyond_reason_are_not_tried():
    assert widened([1e-6, 1e-3], 1e-6) == [1e-6, 1e-3]
    assert widened([3.0, 10.0], 10.0) == [3.0, 10.0]


def test_a_claim_may_have_seeds_and_rates_of_its_own(fake, tmp_path, monkeypatch):
    """8 in the full profile, about one claim and one change: one pilot, and fewer rates than 2b."""
    from memloci.study.claims import robustness

    monkeypatch.setattr(robustness, "JUDGED", ("2b",))
    monkeypatch.setattr(robustness, "CHANGES", {"local": {"window": 16}})
    robustness._changed.cache_clear()
    (eight,) = _study(tmp_path, ["8"], profile="full")
    assert all(list(arm["tuning"]) == ["0.003", "0.01", "0.03"] for arm in eight.arms)
    assert eight.verdict == "confirmed" and eight.grid is not None
    pilots = {r["config"]["training"]["seed"] for r in _rows(tmp_path)} & {PILOT, PILOT + 1}
    assert pilots == {PILOT}
    assert finding_from_dict(json.loads(json.dumps(eight.to_dict()))) == eight


def test_rates_without_numbers_are_not_chosen():
    assert best({"0.001": 0.5, "0.01": 0.1, "0.1": None}) == 0.01
    assert best({"0.001": None, "0.01": None}) == 0.001
    assert best({"0.01": 0.0, "0.1": 0.2}) == 0.01


def test_lost_runs_are_told_and_leave_the_claim_open(fake, tmp_path, monkeypatch):
    _study(tmp_path, ["4a"])
    with Store(tmp_path / run.STORE) as store:
        key = next(r["key"] for r in store.rows() if r["config"]["training"]["seed"] == JUDGING)
        lost = json.dumps({"status": "diverged"})
        row = lost, checksum(lost), key
        store.db.execute("UPDATE runs SET record = ?, record_sum = ? WHERE key = ?", row)
        store.db.commit()
    (found,) = _study(tmp_path, ["4a"])
    assert [part.effect.value for part in found.parts].count(None) == 1, "the part that needs the lost run"
    assert any("1 of 5 runs have no result" in note for note in found.notes)


def test_pages_show_all_claims_of_a_directory(fake, tmp_path):
    write_study(_study(tmp_path, ["4a"]), tmp_path)
    shown = write_study(_study(tmp_path, ["4b"]), tmp_path)
    assert [finding.id for finding in shown] == ["4a", "4b"]
    index = (tmp_path / "index.html").read_text()
    for name in ("4a", "4b"):
        assert f'href="{name}.html"' in index and (tmp_path / f"{name}.html").exists()
        assert (tmp_path / f"{name}-1.csv").read_text().count("\n") > QUICK.seeds


def test_the_readme_gets_the_table_between_its_marks(fake, tmp_path):
    findings = _study(tmp_path / "study", ["4a"])
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n")
    write_verdicts(findings, readme)
    text = readme.read_text()
    assert text.startswith(f"before\n{pages.BEGIN}\n") and text.endswith(f"{pages.END}\nafter\n")
    assert "old" not in text and "Heavy tails: log beats lin" in text
    write_verdicts([replace(found, profile="full", seeds=10) for found in findings], readme)
    table = readme.read_text().partition("| 4a ")[2]
    assert table.count(findings[0].verdict) == 2, "the verdict of the quick profile stays beside the new one"
    readme.write_text("no marks")
    with pytest.raises(BadInput, match="lacks the lines"):
        write_verdicts(findings, readme)


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(BadInput, match="unknown 'huge'; use quick, full"):
        _study(tmp_path, ["4a"], profile="huge")
    with pytest.raises(BadInput, match="no file"):
        _study(tmp_path, ["4a"], text=tmp_path / "none.txt")


def test_a_study_that_is_stopped_says_what_is_kept(monkeypatch, capsys, tmp_path):
    from memloci.cli import main

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "study", stopped)
    with pytest.raises(SystemExit) as end:
        main(["study", "4a", "--out", str(tmp_path)])
    assert end.value.code == 1
    assert (
        f"{tmp_path / run.STORE} has all finished work, the same command continues it"
        in capsys.readouterr().err
    )


def test_the_command_line(fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(finding_cache.PACKAGE.parent))  # workers find the engine of tests
    listed = memloci("study", "--list", "--json")
    assert [claim["id"] for claim in json.loads(listed.stdout)] == list(CLAIMS), listed.stderr
    done = memloci("study", "4b", "--out", "here", "--workers", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["verdict"] in ("confirmed", "refuted", "inconclusive")
    assert (tmp_path / "here" / "4b.html").exists()
    refused = memloci("study", "99")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
