"""`memloci plan` states the paper's slopes, and measures ours when asked."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from memloci.certifier.certificate import Proved
from memloci.cli import app
from memloci.planner.rates import Theorem
from memloci.report.plan_tables import theorem_text


@pytest.fixture
def arguments(tmp_path):
    path = tmp_path / "task.toml"
    path.write_text('kind = "fixed"\nlags = [3, 17]\nreadout = "x1 * x2"\n')
    return ["plan", str(path), "--route", "rotary", "--tolerance", "1e-2"]


def run(arguments) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_slopes_are_stated_and_nothing_is_measured_unasked(arguments):
    told = json.loads(run([*arguments, "--json"]))["rates"]
    assert told["paper"]["heads"] == "H^-n for every n" and told["paper"]["width"] == "m^-1/2"
    assert told["width"] is None and told["heads"] == []
    table = run(arguments)
    assert "H^-n for every n" in table and "m^-1/2" in table and "not measured: --rates does" in table


def test_slopes_are_measured_when_asked(arguments):
    told = json.loads(run([*arguments, "--rates", "--json"]))["rates"]
    width = told["width"]
    assert width["slope"] < width["paper_slope"] == -0.5 and len(width["rows"]) == 7
    assert "no model of one lin or log layer" in told["measured"]["heads"]
    table = run([*arguments, "--rates"])
    assert "x1 * x2: readout error against width" in table and "E_ffn" in table
    assert f"m^{width['slope']:.2f} from 4 to 256 neurons" in table


def test_a_printed_theorem_is_still_proved():
    """The mass and the least error are rounded down."""
    theorem = Theorem("log", "lag 2", 1257.0, Proved(0.00334), 0.0021789, 590.9)
    said = theorem_text(theorem)
    assert "one-layer log architecture" in said and "mass at most 1.25e+3" in said and "below 2.17e-3" in said
    assert "mass below 5.90e+2" in theorem_text(replace(theorem, E_least=0.0))
    nothing = theorem_text(replace(theorem, E_least=0.0, mass_least=0.0))
    assert nothing.startswith("Nothing is proved")
