"""How long until a small model has taken its first step, and its first thousand: compilation counts.

The model of benchmarks/training.py with one layer of 4 heads, trained by `memloci.train` with fresh batches, evaluation
included; PyTorch gets one batch for all steps. Time is CPU time since the process was started, compilers that it starts
included. "again" is a second process with what the first one kept on disk.
"""

# pyright: reportMissingImports=false
# The peers are optional.

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.table import Table
from benchmarks.training_peers import COMPILED, DIM, EAGER, OURS, STEPS, WIDTH

THOUSAND = 1000
HEADS = 4
ROOT = Path(__file__).parents[1]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
ONE_THREAD |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def run() -> Table:
    rows: list[list[str | float]] = []
    skipped = [] if find_spec("torch") else [EAGER, COMPILED]
    for name in (OURS, EAGER, COMPILED):
        if name in skipped:
            continue
        with tempfile.TemporaryDirectory() as kept:
            for label in (name, f"{name}, again"):
                rows.append([label, *_measure(name, kept)])
    note = "CPU seconds since the start of the process, one thread"
    note += f"; skipped: {', '.join(skipped)} (needs PyTorch)" if skipped else ""
    return Table("To the first steps", ["program", "first step, s", "1,000 steps, s"], rows, note)


def _measure(name: str, kept: str) -> tuple[float, float]:
    environment = {**os.environ, **ONE_THREAD, "MEMLOCI_CACHE": kept, "TORCHINDUCTOR_CACHE_DIR": kept}
    command = [sys.executable, "-m", "benchmarks.first_steps", name]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    first, last = json.loads(done.stdout.splitlines()[-1])
    return first, last


def _spent() -> float:
    return sum(os.times()[:4])


def _memloci() -> tuple[float, float]:
    from memloci.train.program import Program
    from memloci.train.spec import Run

    channels = [{"name": name, "range": [-1, 1]} for name in "ab"]
    task = {"kind": "fixed", "channels": channels, "lags": [3, 9], "readout": "a1 * b2"}
    each = DIM // HEADS
    sizes = {"layers": 1, "heads": HEADS, "width": WIDTH, "dim": DIM, "key_dim": each, "value_dim": each}
    asked = Run(task=task, architecture=sizes, training={"steps": THOUSAND, "length": 64, "batch": 128})
    program = Program(asked)
    numbers, data = [program.numbers(asked)], [program.data_of(asked)]
    states, _ = program.advance([program.start(asked)], numbers, data, [1])
    first = _spent()
    program.advance(states, numbers, data, [THOUSAND - 1])
    return first, _spent()


def _pytorch(name: str) -> tuple[float, float]:
    import torch

    imported = _spent()
    from benchmarks.training import job
    from benchmarks.training_peers import contender

    wanted = job(1, HEADS)
    others = _spent() - imported  # the weights come from memloci: not PyTorch's time
    torch.set_num_threads(1)
    x, y = torch.tensor(wanted["x"]), torch.tensor(wanted["y"])
    _, steps = contender(name, "sdpa", 1, wanted["weights"], x, y, wanted["rate"])
    steps()
    first = _spent() - others
    for _ in range(THOUSAND // STEPS - 1):
        steps()
    return first, _spent() - others


if __name__ == "__main__":
    chosen = sys.argv[1]
    print(json.dumps(_memloci() if chosen == OURS else _pytorch(chosen)))
