"""Stored runs as fits: the best of a sweep can be looked at as if it had just been trained."""

import statistics
from collections.abc import Mapping
from typing import Any

from memloci.model.store import from_weights
from memloci.sweeps.runs import Runs
from memloci.train.record import record_from_dict
from memloci.train.spec import Run
from memloci.train.train import Fit


def best_fits(runs: Runs) -> list[Fit]:
    """The runs that differ in their seed only and have the lowest held-out loss between them, by median.

    Runs that have no model, because they failed or diverged, are passed over.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in runs.complete():
        if (row["record"] or {}).get("held_out") is not None:
            groups.setdefault(_but_seed(row["config"]), []).append(row)
    loss = lambda rows: statistics.median(row["record"]["held_out"] for row in rows)
    best = min(groups.values(), key=loss, default=[])
    return [_fit(runs, row) for row in best if row["record"]["status"] == "done"]


def _but_seed(config: Mapping[str, Any]) -> str:
    return repr({**config, "training": {**config["training"], "seed": None}})


def _fit(runs: Runs, row: Mapping[str, Any]) -> Fit:
    record = record_from_dict(row["record"])
    model = from_weights(*record.sizes, runs.weights(row["key"]))
    return Fit(Run(**row["config"]), model, record, row["history"])
