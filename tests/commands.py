"""Commands, in this process or in one of their own: exit status and what they write."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from memloci.cli import main

TERMINAL = {"COLUMNS": "200", "TERM": "dumb"}


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def memloci(*arguments: str | Path) -> Ended:
    """A command in this process, which has the imports and the compiled programs already."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        for name, value in TERMINAL.items():
            patch.setenv(name, value)
        try:
            main([*map(str, arguments)])
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
    return Ended(status, out.getvalue(), err.getvalue())


def memloci_apart(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as users start it."""
    return subprocess.run(
        [sys.executable, "-m", "memloci.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **TERMINAL},
        timeout=600,
    )
