"""Small runs, shared by the tests of training."""

from typing import Any

from memloci.train.spec import Run

TASK: dict[str, Any] = {"kind": "fixed", "lags": [1, 3], "readout": "x1 - 0.5 * x2"}
SIZES: dict[str, Any] = {"layers": 1, "heads": 2, "width": 8, "dim": 8, "key_dim": 4, "value_dim": 4}
SETTINGS: dict[str, Any] = {"steps": 30, "batch": 8, "length": 12, "evaluate_every": 10, "held_out": 16}


def small_run(task: Any = None, architecture: dict[str, Any] | None = None, **training: Any) -> Run:
    return Run(
        task=task or TASK,
        architecture=None if training.get("start") == "compiled" else {**SIZES, **(architecture or {})},
        training={**SETTINGS, **training},
    )
