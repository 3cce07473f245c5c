"""The README's first lines do their job, and its snippets run."""

import json
import re
import subprocess
import sys
from pathlib import Path

from memloci.study.claim import finding_from_dict
from memloci.study.claims import CLAIMS
from memloci.study.pages import with_table
from memloci.views.terminal.study import markdown_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_first_twenty_lines_say_show_and_start():
    first = "\n".join(README.splitlines()[:20])
    assert "make demo" in first and "make test" in first
    picture = re.search(r"!\[[^\]]+\]\(([^)]+)\)", first)
    assert picture and (ROOT / picture.group(1)).is_file()


def test_python_snippets_run():
    snippets = re.findall(r"```python\n(.*?)```", README, re.S)
    assert snippets
    for snippet in snippets:
        result = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(("met", "all steps", "fixed (3, 17)"))


def test_the_tree_names_what_is_there():
    for name in re.findall(r"^  (\w+(?:/|\.py))", README, re.M):
        assert (ROOT / "memloci" / name).exists(), name


def test_the_map_names_what_is_there():
    text = (ROOT / "docs" / "map.md").read_text()
    for path in re.findall(r"`((?:memloci|tests)/[^`]+)`", text):
        assert (ROOT / path).exists(), path


def test_the_verdicts_are_those_that_were_found():
    records = json.loads((ROOT / "docs" / "verdicts.json").read_text())
    assert [record["id"] for record in records if record["profile"] == "quick"] == list(CLAIMS)
    assert with_table(README, markdown_table(list(map(finding_from_dict, records)))) == README, (
        "make verdicts writes the table"
    )
