"""What compiling adaptive memories costs: against the farthest lag T, and against the size of the alphabet.

Each row plans one route, makes the weights and proves their certificate; ratios are to the first row of the run.
"""

from benchmarks.compile import seconds
from benchmarks.table import Table
from memloci.pipeline import compile
from memloci.tasks.short import Adaptive
from memloci.tasks.task import Task

LAGS = {"rotary": (16, 256, 4_096), "chain": (16, 32)}
LETTERS = (4, 8, 16, 32)
NESTED = (4, 8, 16)


def task(letters: int, T: int, nested: bool = False) -> Task:
    """A pointer whose letters are spread evenly up to T."""
    step = T // letters
    channels = [
        {"name": "a", "values": [step * k for k in range(1, letters + 1)]},
        {"name": "v", "range": [-1, 1]},
    ]
    lags = ["a0", "a0 + a1"] if nested else ["a0"]
    return Adaptive(channels=channels, lags=lags, readout=f"v{len(lags)}")


def run() -> Table:
    wanted = [(route, "T", T, task(16, T)) for route, some in LAGS.items() for T in some]
    wanted += [("rotary", "letters", letters, task(letters, 256)) for letters in LETTERS]
    wanted += [("rotary", "letters, nested", letters, task(letters, 256, nested=True)) for letters in NESTED]
    cells: list[list[str | float]] = []
    unit = None
    for route, against, x, one in wanted:
        took, built = seconds(lambda route=route, one=one: compile(one, tolerance=1e-3, route=route))
        unit = unit or took
        count, bound = built.model.parameter_count, float(built.certificate.bound)
        cells.append([route, f"{against} {x:,}", took, took / unit, f"{count:,}", bound])
    columns = ["route", "size", "seconds", "ratio", "parameters", "error, proved"]
    note = "16 letters against T, T = 256 against letters; nested: two levels, letters^2 cells; float32"
    return Table("Compiling adaptive memories", columns, cells, note)
