"""How long a user waits for the command line, beyond a bare Python start. Target: under 0.4 s."""

import subprocess
import sys

from benchmarks.table import Table, best_seconds

LIMIT = 0.4  # seconds more than a bare start

COMMANDS = {
    "bare python": ["-c", "pass"],
    "memloci --help": ["-m", "memloci.cli", "--help"],
    "memloci tasks": ["-m", "memloci.cli", "tasks"],
    "memloci tasks nested-2": ["-m", "memloci.cli", "tasks", "nested-2"],
    "import memloci": ["-c", "import memloci"],
    "import jax, equinox": ["-c", "import jax, equinox"],
}


def run() -> Table:
    def job(arguments: list[str]):
        return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    best = best_seconds({name: job(arguments) for name, arguments in COMMANDS.items()}, rounds=5)
    bare = best["bare python"]
    rows: list[list[str | float]] = [
        [name, seconds, seconds - bare, "" if "jax" in name else "yes" if seconds - bare < LIMIT else "NO"]
        for name, seconds in best.items()
    ]
    return Table("Start-up", ["command", "seconds", "beyond bare", f"under {LIMIT} s"], rows)
