"""Arms to results: tune every arm on pilot seeds, then train fresh ones; what the store holds is not trained again.

arms -> pilot runs -> a rate for every arm -> judging runs -> results

All arms go into one queue of the sweep store: workers share compiled programs, and arms that are the same configuration
are run once.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memloci.study.claim import PILOT, Arm, Progress, Result
from memloci.sweeps.grid import Sweep
from memloci.sweeps.start import sweep
from memloci.sweeps.store import Store
from memloci.training.spec import Run

RATES = (3e-3, 1e-2)


def tuned_runs(
    arms: Sequence[Arm],
    *,
    name: str,
    store: str | Path,
    seeds: Sequence[int],
    rates: Sequence[float] = RATES,
    pilots: Sequence[int] | None = None,
    progress: Progress = lambda text, done: None,
    **where: Any,
) -> tuple[dict[str, Result], float]:
    """The result of every arm, by its name, and the seconds that all runs took; `where` is as for `sweep`.

    `pilots` are the seeds that tune; without them it is one.
    """
    pilots = [PILOT + seeds[0]] if pilots is None else pilots
    trials = {(arm.name, rate): [arm.run(rate, seed) for seed in pilots] for arm in arms for rate in rates}
    tell = lambda stage, low, high: lambda text, done: progress(f"{stage}: {text}", low + (high - low) * done)
    seen = _trained(f"{name}-tuning", _flat(trials), store, tell("tuning", 0.0, 0.4), where)
    tuning = {
        arm.name: {f"{rate:g}": _median_loss(seen, trials[arm.name, rate]) for rate in rates} for arm in arms
    }
    chosen = {arm: best(losses) for arm, losses in tuning.items()}
    runs = {arm.name: [arm.run(chosen[arm.name], seed) for seed in seeds] for arm in arms}
    seen |= _trained(name, _flat(runs), store, tell("training", 0.4, 1.0), where)
    results = {}
    for arm in arms:
        own = [*_flat({rate: trials[arm.name, rate] for rate in rates}), *runs[arm.name]]
        results[arm.name] = Result(
            arm,
            chosen[arm.name],
            tuning[arm.name],
            tuple(_record(seen, run) for run in runs[arm.name]),
            tuple(run.key for run in runs[arm.name]),
            sum((seen.get(run.key) or {}).get("cost") or 0.0 for run in own),
        )
    return results, sum({result.keys: result.seconds for result in results.values()}.values())


def _flat(runs: Mapping[Any, Sequence[Run]]) -> list[Run]:
    return [run for own in runs.values() for run in own]


def _trained(
    name: str, runs: Sequence[Run], store: str | Path, progress: Progress, where: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    unique = tuple({run.key: run for run in runs}.values())
    sweep(Sweep(name, unique), store=store, progress=progress, **where)
    with Store(store, create=False) as opened:
        return {row["key"]: row for row in opened.rows()}


def _record(seen: Mapping[str, Any], run: Run) -> dict[str, Any]:
    row = seen.get(run.key) or {}
    return row.get("record") or {"status": "failed", "error": row.get("error")}


def _median_loss(seen: Mapping[str, Any], runs: Sequence[Run]) -> float | None:
    """None where a pilot diverged or failed."""
    losses = [_record(seen, run).get("held_out") for run in runs]
    numbers = [loss for loss in losses if loss is not None]
    return statistics.median(numbers) if len(numbers) == len(losses) else None


def best(tuning: Mapping[str, float | None]) -> float:
    """The rate with the least loss; where none has a number, the smallest."""
    order = {rate: (loss is None, loss or 0.0, float(rate)) for rate, loss in tuning.items()}
    return float(min(order, key=lambda rate: order[rate]))
