"""`memloci check`: the certificate again, by the one-file checker that shares no code with the rest."""

import json
import subprocess
import sys

import typer

from memloci.commands.shared import DONE, FAILED, Json, Model, progress_bar, write_text
from memloci.core.errors import BadInput

EXAMPLE = "memloci check out/echo"


def check(directory: Model, as_json: Json = False) -> None:
    """Confirm or refuse the certificate on file by a second derivation, in exact rational arithmetic."""
    from memloci import check as checker

    # In a process of its own, without this package on its path: nothing of memloci can reach it.
    words = [sys.executable, "-I", "-S", str(checker.__file__), str(directory), "--json"]
    with progress_bar() as progress:
        progress("checking", 0.1)
        done = subprocess.run(words, capture_output=True, text=True)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise typer.Exit(FAILED) from RuntimeError(done.stderr)
    if not answer["confirmed"] and "claimed" not in answer:
        raise BadInput(f"{directory}: {answer['problem']}")
    write_text(done.stdout if as_json else checker.sentence(answer) + "\n")
    if done.returncode != DONE:
        raise typer.Exit(done.returncode)
