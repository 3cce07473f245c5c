"""What a benchmark returns, and how it times: interleaved, the best of several rounds."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Table:
    title: str
    columns: list[str]
    rows: list[list[str | float]]
    note: str = ""
    draw: Callable[[Path], None] | None = None  # writes the figure, where there is one

    def to_dict(self) -> dict[str, Any]:
        return {"title": self.title, "columns": self.columns, "rows": self.rows, "note": self.note}


def best_seconds(jobs: Mapping[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """Run the jobs in turn, round after round, and keep each one's best: neighbours disturb all alike."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
