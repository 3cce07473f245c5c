"""Memories that are known are found, and nothing is found where there is nothing."""

# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportOptionalOperand=false
import json
from typing import Any

import numpy as np
import pytest

import memloci as ml
from benchmarks import detect_tasks as cases
from memloci.detect.detect import detect
from tests.commands import memloci

QUICK: Any = {"max_lag": 64, "with_reference": False}


@pytest.mark.parametrize("kind", cases.FIXED)
@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_fixed_lags_are_exact(kind, rho):
    case = cases.fixed(np.random.default_rng(11), kind, n=4_000, T=64, rho=rho)
    found = detect(case.x, case.y, **QUICK)
    assert found.kind == "fixed" and found.lags == case.lags
    assert found.task is not None and tuple(found.task.fixed_lags.values()) == case.lags


def test_a_series_predicts_itself_and_lag_one_is_the_value_before():
    rng = np.random.default_rng(0)
    x = np.zeros(4_000)
    for t in range(7, 4_000):
        x[t] = 0.5 * x[t - 1] - 0.4 * x[t - 7] + rng.standard_normal()
    assert detect(x, **QUICK).lags == (1, 7)


def test_the_channel_of_a_lag_is_named():
    x = np.random.default_rng(1).normal(size=(3_000, 3))
    y = np.roll(x[:, 2], 5) + np.roll(x[:, 0], 9) * x[:, 1]
    found = detect(x, y, **QUICK)
    assert found.lags == (5, 9)
    assert [m.channels for m in found.memories] == [("xc",), ("xa",)]
    assert "xb0" in found.task_data["readout"]


def test_many_sequences_count_lags_within_each():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (60, 100))
    y = np.roll(x, 4, axis=1) + 0.1 * rng.standard_normal(x.shape)
    y[:, :4] = 0.0
    assert detect(x[..., None], y, **QUICK).lags == (4,)


def test_adaptive_and_nested_tables():
    case = cases.adaptive(np.random.default_rng(3), n=6_000, T=32)
    found = detect(case.x, case.y, **QUICK)
    assert found.kind == "adaptive"
    assert list(found.memories[0].lag_table.values()) == case.table.tolist()
    assert found.task.K == 0 and found.task.M == 1
    case = cases.nested(np.random.default_rng(3), n=6_000, T=16)
    found = detect(case.x, case.y, **QUICK)
    assert found.task.K == 1
    table = [list(row.values()) for row in found.memories[1].lag_table.values()]
    assert table == case.table[1].tolist()


@pytest.mark.parametrize("seed", [0, 2])
def test_kernels_have_a_tail_and_an_interval(seed):
    case = cases.essential(np.random.default_rng(seed), n=10_000)
    found = detect(case.x, case.y, **QUICK)
    assert found.kind == "essential" and found.tail.kind == case.tail
    low, high = found.tail.interval or (1.0, 0.0)
    assert case.rate is not None and low < case.rate < high and high - low < 0.2 * case.rate


def test_match_by_key():
    case = cases.matched(np.random.default_rng(0), n=6_000)
    found = detect(case.x, case.y, **QUICK)
    assert found.kind == "matched" and found.memories[0].offset == case.offset


def test_parity_of_five_signs_is_found_by_elimination():
    case = cases.parity(np.random.default_rng(4), n=3_000, T=60)
    found = detect(case.x, case.y, **QUICK)
    assert found.lags == case.lags
    case = cases.parity(np.random.default_rng(4), n=3_000, T=60, flips=0.1)
    found = detect(case.x, case.y, **QUICK)
    assert found.kind == "none" and "parity" in found.notes[-1]


def test_nothing_is_found_in_noise():
    """At the stated rate of 5 % per series, more than 4 of 24 are found once in 200 runs of this test."""
    seen = 0
    for seed in range(24):
        case = cases.null(np.random.default_rng(seed), n=1_500)
        seen += bool(detect(case.x, case.y, **QUICK).memories)
    assert seen <= 4


def test_bad_settings_are_refused():
    wrong: Any = (({"max_lag": 0}, "max_lag"), ({"fdr": 1.5}, "fdr"))
    for settings, match in wrong:
        with pytest.raises(ml.BadInput, match=match):
            detect(np.random.default_rng(0).normal(size=100), **settings)


def test_command_writes_a_task_that_loads(tmp_path):
    case = cases.fixed(np.random.default_rng(5), "linear", n=3_000, T=40, rho=0.0)
    np.savez(tmp_path / "d.npz", x=case.x, y=np.asarray(case.y))
    ended = memloci("detect", tmp_path / "d.npz", "--max-lag", "64", "--out", tmp_path / "out", "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert set(told) >= {
        "kind",
        "memories",
        "fdr",
        "explained",
        "tail",
        "periods",
        "task_file",
        "notes",
        "seconds",
    }
    assert told["lags"] == list(case.lags) and told["explained"]["share"] > 0.9
    assert tuple(ml.load_task(told["task_file"]).fixed_lags.values()) == case.lags
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()
    assert memloci("detect", tmp_path / "none.csv").returncode == 2


def test_object_shows_itself():
    case = cases.fixed(np.random.default_rng(5), "linear", n=2_000, T=20, rho=0.0)
    found = ml.detect(case.x, case.y, max_lag=32, with_reference=False)
    assert "fixed" in str(found) and "<svg" in (found._repr_html_() or "")


def test_plan_detects_first_and_keeps_what_is_proved_apart(tmp_path):
    case = cases.fixed(np.random.default_rng(5), "linear", n=3_000, T=20, rho=0.0)
    np.savez(tmp_path / "d.npz", x=case.x, y=np.asarray(case.y))
    ended = memloci("plan", tmp_path / "d.npz", "--max-lag", "32", "--route", "rotary", "--json")
    told = json.loads(ended.stdout)
    assert told["learnt"]["lags"] == list(case.lags) and told["proved"]["met"]
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).normal(size=1_000))
    ended = memloci("plan", tmp_path / "noise.npy")
    assert ended.returncode == 2 and "no task to plan for" in ended.stderr


@pytest.mark.slow
def test_trials_put_the_suggestion_beside_simple_predictors(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 12_000)
    np.savez(tmp_path / "d.npz", x=x, y=np.roll(x, 3) + 0.05 * rng.standard_normal(12_000))
    ended = memloci("plan", tmp_path / "d.npz", "--max-lag", "32", "--route", "rotary", "--try", "--json")
    rows = {row["name"]: row["r2"] for row in json.loads(ended.stdout)["tried"]}
    assert len(rows) == 7 and rows["linear, 4 lags"] > 0.98 and abs(rows["mean"]) < 0.01
    assert max(r2 for name, r2 in rows.items() if "heads" in name) > 0.5


def test_words_that_follow_a_chain_and_text_that_is_dense(tmp_path):
    rng = np.random.default_rng(0)
    letters = [0]
    for _ in range(6_000):
        letters.append((letters[-1] + 1) % 4 if rng.random() < 0.8 else int(rng.integers(4)))
    (tmp_path / "chain.txt").write_text("".join("abcd"[k] for k in letters))
    found = detect(tmp_path / "chain.txt", max_lag=32)
    assert found.kind == "fixed" and found.lags == (1,)
    (tmp_path / "noise.txt").write_text("".join("abcd"[k] for k in rng.integers(0, 4, 6_000)))
    assert detect(tmp_path / "noise.txt", max_lag=32).kind == "none"
