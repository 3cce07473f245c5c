"""Every result names a file that exists and a command that there is, and says of tasks what holds of them."""

import json
import re
import shlex
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import typer

import memloci as ml
from memloci.cli import app
from memloci.study.published import published
from memloci.tasks.gallery import GALLERY
from memloci.tasks.memories.lag_table import LagTable
from memloci.theory import barron
from memloci.theory.of_task import theory_of
from memloci.theory.paper_rates import paper_rates
from memloci.theory.results import OURS, PAPER, RESULTS
from tests.commands import memloci

ROOT = Path(__file__).parents[2]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
V = {"name": "v", "range": [-1, 1]}


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.name)
def test_what_proves_and_shows_a_result_exists(result):
    assert result.by in (PAPER, OURS)
    places = re.findall(r"[\w/]+\.(?:py|md)", result.proved)
    assert all((ROOT / place).exists() or (ROOT / "memloci" / place).exists() for place in places)
    assert places or result.proved.startswith("paper")
    program, name, *arguments = shlex.split(result.command)
    assert program == "memloci"
    context = COMMANDS[name].make_context(name, arguments)  # refuses options that there are none of
    task = context.params.get("task")
    assert task is None or task in GALLERY


def test_results_are_named_once():
    assert len({result.name for result in RESULTS}) == len(RESULTS)


def test_every_theorem_that_is_told_of_a_task_is_a_result():
    told = {s.result for name in GALLERY for s in paper_rates(GALLERY[name]()).statements}
    assert told <= {result.name for result in RESULTS} and len(told) == 7


@pytest.mark.parametrize("name", ["look-back", "nested-1", "delay", "heavy-tail", "mqar"])
def test_the_theory_of_a_task_is_told_in_any_width(name):
    ended = memloci("theory", name)
    assert ended.returncode == 0 and ended.stdout.count("applies") >= 1
    told = json.loads(memloci("theory", name, "--json").stdout)
    assert [own["claim"] for own in told["advice"]] == ["1a", "1b", "2a", "2b", "3a", "3b", "4a", "4b"]
    assert all(own["command"].startswith("memloci study") for own in told["advice"])


def test_the_list_is_json_too():
    told = json.loads(memloci("theory", "--json").stdout)
    assert {"name", "by", "states", "assumes", "proved", "command"} == set(told[0])
    assert "Precision wall" in memloci("theory").stdout


def test_memories_that_are_the_present_have_no_logarithm(tmp_path):
    (tmp_path / "now.toml").write_text('kind = "fixed"\nlags = [0]\nreadout = "x1"\n')
    told = json.loads(memloci("theory", tmp_path / "now.toml", "--json").stdout)
    assert told["paper"]["statements"][0]["rates"][1]["log10_S"]["1"] is None


def test_advice_follows_the_task():
    applies = lambda name: [own.claim for own in theory_of(ml.load_task(name), name).advice if own.applies]
    assert applies("nested-2") == ["1a", "2b"]
    assert applies("product") == ["1b", "2a", "2b", "3a"]
    assert applies("heavy-tail") == ["1b", "3a", "4a"]
    assert applies("exponential") == ["1b", "3a", "4b"]
    assert applies("induction") == ["3b"]


def test_the_published_verdicts_are_those_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    found = published()
    assert found
    for name, own in found.items():
        (row,) = re.findall(rf"^\| {name} \|.*$", readme, flags=re.MULTILINE)
        assert f"| {own.verdict} |" in row


# -- Barron norms ------------------------------------------------------------------------------------------


def lag_table(task) -> LagTable:
    (table,) = task.recalls
    assert isinstance(table, LagTable)
    return table


def test_the_norm_of_a_sum_of_ridges_is_that_of_its_weights():
    ridge = ml.compile(ml.Fixed(lags=[1], readout="abs(x1) - 0.5"), route="rotary").plan.circuit.readout
    own = sum(
        abs(Fraction(float(a))) * (abs(Fraction(float(b))) + abs(Fraction(float(c))))
        for a, (b,), c in zip(ridge.A[0], ridge.B, ridge.c, strict=True)
    )
    flat = 2 * abs(Fraction(float(ridge.W[0, 0]))) + abs(Fraction(float(ridge.b[0])))
    assert Fraction(barron.of_readout(ridge, 0).norm) >= own + flat
    assert barron.of_readout(ridge, 0).norm == pytest.approx(float(own + flat))


@pytest.mark.parametrize(
    "lag", ["a0", "9 - a0", "a0 * a0", "where(a0 > 2, 1, 7)", "a0 + b0", "1 + (a0 * b0) % 3"]
)
@pytest.mark.parametrize("logarithm", [False, True])
def test_the_network_of_a_lag_agrees_with_its_table(lag, logarithm):
    """No function of a smaller norm does where the norm is that of the steepest step: |g(u) - g(v)| <= ||g||_B |u - v|_inf."""
    task = ml.Adaptive(
        channels=[{"name": "a", "values": [1, 2, 3]}, {"name": "b", "values": [1, 2]}, V],
        lags=[lag],
        readout="v1",
    )
    table = lag_table(task)
    norm = barron.of_lag(table, logarithm).norm
    g = np.log(table.lags) if logarithm else table.lags
    steepest = max(np.abs(np.diff(g, axis=axis)).max() for axis in range(g.ndim))
    assert norm >= steepest - 1e-12 and norm >= np.abs(g).max() / 4 - 1e-12
    assert norm < 100


def test_an_affine_lag_costs_its_slopes_twice():
    task = ml.Adaptive(channels=[{"name": "a", "values": [1, 2, 3]}, V], lags=["3 * a0 + 1"], readout="v1")
    assert barron.of_lag(lag_table(task)).norm == 7.0


def test_width_conditions_are_sums_and_maxima_of_squares():
    channels = [{"name": "a", "values": [1, 2, 3]}, V]
    told = theory_of(ml.Adaptive(channels=channels, lags=["a0", "2 * a0"], readout="v1 + v2"), "two")
    values = {(own.result, own.encoding): float(own.value) for own in told.widths}
    assert values["Theorem 4.1", "lin"] == 4 + 16 and values["Proposition 4.5", "lin"] == 16
    assert values["Theorem 4.1", "log"] >= np.log(3) ** 2 * 9
