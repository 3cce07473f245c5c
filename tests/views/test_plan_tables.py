"""`memloci plan` states the paper's slopes, and measures ours when asked."""

import json
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from memloci.certify.certificate import Certificate, Level
from memloci.cli import app
from memloci.core.proved import Proved
from memloci.synthesize import Plans
from memloci.tasks.load import load_task
from memloci.tradeoffs.rates import Theorem
from memloci.views.terminal.plans import certificate_table, plans_table, theorem_text


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
    assert (
        told["paper"]["heads"] == "lin and log H^-n for every n (Theorem 3.1)"
        and told["paper"]["width"] == "m^-1/2"
    )
    assert told["width"] is None and told["heads"] == []
    table = run(arguments)
    assert (
        "for every n (Theorem 3.1)" in table and "m^-1/2" in table and "not measured: --rates does" in table
    )


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
    assert (
        "one-layer log architecture" in said
        and "mass at most 1,250 has" in said
        and "below 0.00217 for" in said
    )
    assert "mass below 590 has" in theorem_text(replace(theorem, E_least=0.0))
    nothing = theorem_text(replace(theorem, E_least=0.0, mass_least=0.0))
    assert nothing.startswith("Nothing is proved")


def _text(renderable) -> str:
    console = Console(width=110)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_levels_are_told_and_the_one_outside_its_margin():
    levels = (Level((1, 3), Proved(1e-6), 0.25), Level((2,), Proved(0.375), 0.2578))
    E = Proved(0.5)
    certificate = Certificate(
        "missed", 1e-3, "float32", E, E, {"float32": E}, (), 1.0, None, None, (), "balls", levels
    )
    assert certificate.outside == levels[1:]
    told = _text(certificate_table(certificate))
    assert "recall of 1, 3" in told and "within its margin of 0.25" in told
    assert "outside its margin of 0.257" in told  # a margin is rounded down
    unknown = replace(certificate, levels=(Level((1,), Proved("inf"), 0.25),))
    assert unknown.outside == unknown.levels


def test_routes_with_the_same_reason_share_a_line():
    plans = Plans(
        load_task("pointer"), 1e-3, "float32", (), (), {"lin-tmx": "no", "log-tmx": "not", "lin-dp": "no"}
    )
    told = _text(plans_table("pointer", plans))
    assert "lin-tmx, lin-dp  no" in told and "log-tmx" in told and "no route meets the tolerance" in told
