"""A group is all runs that differ in their seed only; what is wrong with it is found once."""

import statistics

from memloci.sweeps import summary as module
from memloci.sweeps.summary import summary
from memloci.train.diagnosis import Diagnosis
from memloci.train.spec import Run

SIZES = {
    "layers": 1,
    "heads": 2,
    "width": 0,
    "attention": "dpf",
    "encoding": "lin",
    "normalisation": "infinite",
}
TASK = {"kind": "fixed", "lags": [2], "readout": "x1"}


def swept(heads: int, seed: int, error: float | None) -> dict:
    run = Run(task=TASK, architecture={**SIZES, "heads": heads}, training={"seed": seed})
    record = {"status": "done", "err_sup": error, "err_mean_square": error and error**2, "seconds": 2.0}
    return {"config": run.to_dict(), "record": record if error is not None else None, "history": None}


def test_groups_are_ordered_by_their_median_and_diagnosed_once(monkeypatch):
    asked = []
    diagnosis = lambda run, record, thorough: (
        asked.append(run) or Diagnosis(f"heads {run.architecture.heads}", "")
    )
    monkeypatch.setattr(module, "diagnose", diagnosis)
    errors = {2: [0.3, 0.1, 0.5], 4: [0.2, 0.4, 0.25], 8: [None, None, None]}
    found = summary("s", [swept(h, k, e) for h, own in errors.items() for k, e in enumerate(own)])
    assert found.fields == ("architecture.heads",) and [measure.name for measure in found.measures] == [
        "err_sup",
        "root",
    ]
    assert len(asked) == 2, "one search per group, and none for runs that have not run"
    assert [group.settings["architecture.heads"] for group in found.groups] == [4, 2, 8]
    spread = found.groups[1].spreads[0]
    assert spread is not None and (spread.median, spread.low, spread.high) == (0.3, 0.1, 0.5)
    assert found.groups[2].spreads == (None, None) and found.groups[2].reasons == {"no result": 3}
    assert found.counts == {"heads 2": 3, "heads 4": 3, "no result": 3} and found.seconds == 12.0
    everything = [e for own in errors.values() for e in own if e is not None]
    assert found.spread is not None and found.spread.median == statistics.median(everything)
