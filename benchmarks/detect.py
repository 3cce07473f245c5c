"""The table of detection: how often each kind of memory is found exactly, and how often nothing becomes something.

    python -m benchmarks.detect --rows fixed null --n 100 --seed 0

Every row draws its own data (benchmarks/detect_tasks.py); seeds count up from --seed, so a run can be repeated. CPU seconds are
of one thread, without the reference predictor, whose own time is a row.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import detect_tasks as tasks
from benchmarks.detect_tasks import Case
from memloci.detect.detect import detect
from memloci.detect.detection import Detection

Check = Callable[[Case, Detection], bool]


def exact_lags(case: Case, found: Detection) -> bool:
    return found.kind == "fixed" and found.lags == case.lags


def nothing(case: Case, found: Detection) -> bool:
    return not found.memories


def same_table(case: Case, found: Detection) -> bool:
    tables = [m.lag_table for m in found.memories if m.lag_table is not None]
    return len(tables) == 1 and list(tables[0].values()) == np.asarray(case.table).tolist()


def same_nested(case: Case, found: Detection) -> bool:
    """Up to equivalence: where the second level does not depend on the first memory, the first cannot be known."""
    tables = [m.lag_table for m in found.memories if m.lag_table is not None]
    if len(tables) != 2:
        return False
    first, second = (np.asarray(t) for t in case.table)
    own = list(tables[0].values())
    rows = [list(row.values()) if isinstance(row, dict) else None for row in tables[1].values()]
    return all(
        rows[s] == second[s].tolist() and (own[s] == first[s] or len(set(second[s])) == 1)
        for s in range(len(first))
    )


def same_tail(case: Case, found: Detection) -> bool:
    return found.tail.kind == case.tail and found.lags == case.lags


def same_offset(case: Case, found: Detection) -> bool:
    return found.kind == "matched" and found.memories[0].offset == case.offset


def same_mixture(case: Case, found: Detection) -> bool:
    if case.tail is not None:
        return same_tail(case, found)
    tables = sorted(list(m.lag_table.values()) for m in found.memories if m.lag_table is not None)
    return tables == sorted(np.asarray(t).tolist() for t in case.table) and found.lags == case.lags


ROWS: dict[str, tuple[Callable[[np.random.Generator], Case], Check]] = {
    "fixed": (lambda g: tasks.fixed(g), exact_lags),
    "outside-family": (lambda g: tasks.outside_family(g), exact_lags),
    "noise-as-signal": (lambda g: tasks.fixed(g, noise=1.0), exact_lags),
    "one-percent": (lambda g: tasks.weak(g), exact_lags),
    "hard-products": (lambda g: tasks.hard_products(g), exact_lags),
    "adaptive": (lambda g: tasks.adaptive(g), same_table),
    "nested": (lambda g: tasks.nested(g), same_nested),
    "kernels": (lambda g: tasks.essential(g), same_tail),
    "kernel-and-lag": (lambda g: tasks.essential(g, link="linear", spike=True), same_tail),
    "matched": (lambda g: tasks.matched(g), same_offset),
    "parity": (lambda g: tasks.parity(g), exact_lags),
    "parity-flipped": (lambda g: tasks.parity(g, flips=0.02), nothing),
    "null": (lambda g: tasks.null(g), nothing),
    "mixtures": (lambda g: tasks.mixture(g), same_mixture),
}


def run_row(name: str, n: int, seed: int, reference: bool = False, verbose: bool = True) -> dict[str, Any]:
    draw, check = ROWS[name]
    right = covered = intervals = false_lags = reported = 0
    seconds = []
    for k in range(seed, seed + n):
        case = draw(np.random.default_rng(k))
        began = time.process_time()
        found = detect(
            case.x, case.y, max_lag=350 if name == "null" else 512, with_reference=reference, seed=k
        )
        seconds.append(time.process_time() - began)
        ok = check(case, found)
        right += ok
        reported += len(found.lags)
        false_lags += len(set(found.lags) - set(case.lags))
        if case.rate is not None and found.tail.interval is not None and found.tail.kind == case.tail:
            intervals += 1
            covered += found.tail.interval[0] <= case.rate <= found.tail.interval[1]
        if not ok and verbose:
            told = f"{found.kind} {[m.text for m in found.memories]}"
            print(f"  {name} seed {k}: {' '.join(case.text.split())} -> {told}", file=sys.stderr, flush=True)
    return {
        "row": name,
        "right": right,
        "of": n,
        "false_lags": false_lags,
        "reported_lags": reported,
        "covered": covered,
        "intervals": intervals,
        "cpu_mean": float(np.mean(seconds)),
        "cpu_max": float(np.max(seconds)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reference", action="store_true", help="fit the reference predictor as well")
    arguments = parser.parse_args()
    print("row                right        false lags   covered      CPU s mean, max")
    for name in arguments.rows:
        r = run_row(name, arguments.n, arguments.seed, arguments.reference)
        cover = f"{r['covered']}/{r['intervals']}" if r["intervals"] else "-"
        print(
            f"{name:18s} {r['right']:4d}/{r['of']:<6d} {r['false_lags']:4d}/{r['reported_lags']:<6d} {cover:>9s}   "
            f"{r['cpu_mean']:6.2f} {r['cpu_max']:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
