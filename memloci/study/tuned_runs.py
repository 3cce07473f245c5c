"""Arms to results: tune every arm on pilot seeds, then train fresh ones; what the store holds is not trained again.

arms -> pilot runs -> a rate for every arm -> judging runs -> results

All arms begin with the same rates. An arm whose best one is at an end of its grid gets the next rate beyond it, up to
`wider` times: nobody's best rate should be out of reach. Rates are 1 and 3 times powers of ten.

All arms go into one queue of the sweep store: workers share compiled programs, and arms that are the same configuration
are run once.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memloci.core.numbers import literal
from memloci.study.claim import PILOT, Arm, Progress, Result
from memloci.sweeps.grid import Sweep
from memloci.sweeps.start import sweep
from memloci.sweeps.store import Store
from memloci.train.record import RunRecord, record_from_dict
from memloci.train.spec import Run

RATES = (3e-3, 1e-2)
LEAST, MOST = 1e-6, 10.0  # rates that anybody would try


def tuned_runs(
    arms: Sequence[Arm],
    *,
    name: str,
    store: str | Path,
    seeds: Sequence[int],
    rates: Sequence[float] = RATES,
    pilots: Sequence[int] | None = None,
    wider: int = 0,
    progress: Progress = lambda text, done: None,
    **where: Any,
) -> tuple[dict[str, Result], float]:
    """The result of every arm, by its name, and the seconds that all runs took; `where` is as for `sweep`.

    `pilots` are the seeds that tune; without them it is one.
    """
    pilots = [PILOT + seeds[0]] if pilots is None else pilots
    rows: dict[str, dict[str, Any]] = {}

    def train(stage: str, runs: Sequence[Run], low: float, high: float) -> None:
        unique = tuple({run.key: run for run in runs}.values())
        tell = lambda text, done: progress(f"{stage}: {text}", low + (high - low) * done)
        sweep(Sweep(f"{name}-{stage}", unique), store=store, progress=tell, **where)
        with Store(store, create=False) as opened:
            rows.update({row["key"]: row for row in opened.rows()})

    def tune(grids: Mapping[str, Sequence[float]], stage: int) -> dict[str, dict[str, float | None]]:
        trials = {(arm.name, rate): _trials(arm, rate, pilots) for arm in arms for rate in grids[arm.name]}
        train("tuning", _flat(trials.values()), *(0.4 * k / (wider + 1) for k in (stage, stage + 1)))
        losses = {place: _median_loss(rows, runs) for place, runs in trials.items()}
        return {arm: {f"{literal(rate)}": losses[arm, rate] for rate in grid} for arm, grid in grids.items()}

    grids = {arm.name: sorted(rates) for arm in arms}
    tuning = tune(grids, 0)
    for stage in range(1, wider + 1):
        longer = {arm: widened(grid, best(tuning[arm])) for arm, grid in grids.items()}
        if longer == grids:
            break
        grids, tuning = longer, tune(longer, stage)
    chosen = {arm: best(losses) for arm, losses in tuning.items()}
    runs = {arm.name: [arm.run(chosen[arm.name], seed) for seed in seeds] for arm in arms}
    train("training", _flat(runs.values()), 0.4, 1.0)
    results = {}
    for arm in arms:
        runs_of_arm = [*_flat(_trials(arm, rate, pilots) for rate in grids[arm.name]), *runs[arm.name]]
        results[arm.name] = Result(
            arm,
            chosen[arm.name],
            tuning[arm.name],
            tuple(_record(rows, run) for run in runs[arm.name]),
            tuple(run.key for run in runs[arm.name]),
            sum(_seconds(rows, run) for run in runs_of_arm),
        )
    return results, seconds_of(results.values())


def seconds_of(results: Iterable[Result]) -> float:
    """Of all their runs; arms may share some."""
    return sum({result.keys: result.seconds for result in results}.values())


def _trials(arm: Arm, rate: float, pilots: Sequence[int]) -> list[Run]:
    return [arm.run(rate, seed) for seed in pilots]


def _flat(groups: Iterable[Iterable[Run]]) -> list[Run]:
    return [run for group in groups for run in group]


def widened(rates: Sequence[float], chosen: float) -> list[float]:
    """The grid, one rate longer where the chosen one is at its end."""
    place, longer = round(2 * math.log10(chosen)), set(rates)
    if chosen == min(rates):
        longer.add(_rate(place - 1))
    if chosen == max(rates):
        longer.add(_rate(place + 1))
    return sorted(rate for rate in longer if LEAST <= rate <= MOST)


def _rate(half_decades: int) -> float:
    """..., 0.01, 0.03, 0.1, ..."""
    tens, odd = divmod(half_decades, 2)
    return float(f"{3 if odd else 1}e{tens}")


def _record(rows: Mapping[str, Any], run: Run) -> RunRecord:
    row = rows.get(run.key) or {}
    if not row.get("record"):
        return RunRecord("failed", error=row.get("error"))
    return record_from_dict(row["record"])


def _seconds(rows: Mapping[str, Any], run: Run) -> float:
    """A run that was stopped and went on has no cost of its own; its record knows the time of its steps."""
    cost = (rows.get(run.key) or {}).get("cost")
    return _record(rows, run).seconds or 0.0 if cost is None else cost


def _median_loss(rows: Mapping[str, Any], runs: Sequence[Run]) -> float | None:
    """None where a pilot diverged or failed."""
    losses = [_record(rows, run).held_out for run in runs]
    numbers = [loss for loss in losses if loss is not None]
    return statistics.median(numbers) if len(numbers) == len(losses) else None


def best(tuning: Mapping[str, float | None]) -> float:
    """The rate with the least loss; where none has a number, the smallest."""
    order = {rate: (loss is None, loss or 0.0, float(rate)) for rate, loss in tuning.items()}
    return float(min(order, key=lambda rate: order[rate]))
