"""The command line keeps its promises: exit codes, one line for a mistake, JSON, no JAX for listings."""

import json
import os
import subprocess
import sys

import pytest

from memloci import __version__
from memloci.tasks.gallery import GALLERY
from memloci.tasks.load import load_task
from memloci.views.terminal.tasks import task_summary
from tests import commands

PRODUCT = 'kind = "fixed"\nlags = [3, 17]\nreadout = "x1 * x2"\n'


def memloci(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memloci.cli", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb", **environment},
        timeout=120,
    )


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of a refusal."""
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_version_and_help():
    assert memloci("--version").stdout.strip() == f"memloci {__version__}"
    text = memloci("--help").stdout
    assert "tasks" in text and "doctor" in text


@pytest.mark.parametrize("command", ["tasks", "doctor"])
def test_help_has_an_example(command):
    text = memloci(command, "--help").stdout
    assert "Example" in text and f"memloci {command}" in text and "--json" in text


def test_tasks_lists_the_whole_gallery():
    listed = json.loads(memloci("tasks", "--json").stdout)
    assert [row["name"] for row in listed] == list(GALLERY) and len(listed) >= 14
    for row in listed:  # the list takes short cuts; what it says is what the tasks say
        assert row == {"name": row["name"], **task_summary(load_task(row["name"]))}
    text = memloci("tasks").stdout
    assert all(name in text for name in GALLERY)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["tasks"], ["tasks", "nested-2"], ["tasks", "--json"], ["--version"], ["study", "--list"]],
)
def test_listings_do_not_import_jax(arguments):
    code = (
        "import sys, memloci.cli\n"
        "try:\n memloci.cli.main(sys.argv[1:])\n"
        "except SystemExit as end:\n assert end.code == 0, end\n"
        "heavy = {'jax', 'equinox', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_a_task_file_is_shown_with_its_example(tmp_path):
    path = tmp_path / "task.toml"
    path.write_text(PRODUCT)
    shown = json.loads(commands.memloci("tasks", str(path), "--sample", "20", "--json").stdout)
    assert shown["M"] == 2 and shown["lag_bounds"] == [3, 17]
    tokens, target = shown["sample"]["token"], shown["sample"]["target"]
    for t in range(20):
        expected = tokens[t - 3][0] * tokens[t - 17][0] if t >= 17 else 0.0
        assert target[t][0] == pytest.approx(expected, rel=1e-6)
    again = json.loads(commands.memloci("tasks", str(path), "--sample", "20", "--json").stdout)
    other = json.loads(commands.memloci("tasks", str(path), "--sample", "20", "--seed", "1", "--json").stdout)
    assert again == shown and other["sample"] != shown["sample"]


@pytest.mark.parametrize("name", ["nested-1", "switch", "trigram", "morlet"])
def test_toml_of_a_gallery_task_is_that_task(name, tmp_path):
    path = tmp_path / "task.toml"
    path.write_text(memloci("tasks", name, "--toml").stdout)
    assert load_task(path) == load_task(name)


def test_a_mistake_gets_one_line_and_status_2(tmp_path):
    assert "neither a file nor a gallery task" in refused(memloci("tasks", "nosuch"))
    path = tmp_path / "task.toml"
    path.write_text(PRODUCT.replace("x2", "x9"))
    line = refused(memloci("tasks", str(path)))
    assert "task.toml" in line and "readout" in line and "x9" in line
    assert "directory" in refused(memloci("tasks", str(tmp_path)))


def test_a_mistake_under_json_is_json_too():
    result = memloci("tasks", "nosuch", "--json")
    assert result.returncode == 2
    assert "nosuch" in json.loads(result.stdout)["error"]


def test_wrong_options_are_bad_input():
    for arguments in (["tasks", "--sample", "many"], ["nosuch-command"], ["tasks", "--seed", "-1"]):
        result = memloci(*arguments)
        assert result.returncode == 2 and "Traceback" not in result.stderr


def test_doctor_reports_versions_devices_and_extras():
    found = json.loads(memloci("doctor", "--json").stdout)
    assert found["memloci"] == __version__ and found["devices"]
    assert all(found["packages"].values())
    assert found["extras"]["dev"]["install"] == 'pip install "memloci[dev]"'
    assert memloci("doctor").returncode == 0


def test_completion_knows_the_gallery():
    program = os.path.join(os.path.dirname(sys.executable), "memloci")
    result = subprocess.run(
        [program],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "_MEMLOCI_COMPLETE": "complete_bash",
            "COMP_WORDS": "memloci tasks nest",
            "COMP_CWORD": "2",
        },
        timeout=60,
    )
    assert result.stdout.split() == ["nested-1", "nested-2", "nested-3"]


def test_a_reader_who_stops_early_is_no_error():
    command = f"{sys.executable} -m memloci.cli tasks --json | head -1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "Traceback" not in result.stderr
