"""Claims to findings: train the arms of all of them, judge each, keep.

claims -> arms -> tuned runs (tuned_runs.py) -> Evidence -> judge -> Finding

All arms of all claims that are asked for go into one queue, so claims share runs, a study that was stopped goes on, and one
that is done only draws. A finding is kept under a hash of its runs and of the code that judged them.
"""

import shlex
import sysconfig
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.files import replace_together
from memloci.study import finding_cache
from memloci.study.arms import BITS, MEAN_SQUARE, SUP
from memloci.study.claim import (
    FULL,
    JUDGING,
    PILOT,
    QUICK,
    Arm,
    Claim,
    Evidence,
    Finding,
    Profile,
    Progress,
    Result,
    finding_from_dict,
)
from memloci.study.claims import CLAIMS, load_claim
from memloci.study.statistics import mean
from memloci.study.tuned_runs import seconds_of, tuned_runs
from memloci.sweeps.store import Store

PROFILES = {profile.name: profile for profile in (QUICK, FULL)}
STORE, FINDINGS, CORPUS = "runs.sqlite", "findings", "corpus.txt"
APART = 100  # seeds of one study and the next; none has as many
MOST_SEED = (PILOT - JUDGING) // APART - 1  # beyond, seeds that judge would be those that tune
LEAST_TEXT = 4096  # bytes, a tenth of which is held out
CORPUS_BYTES = 2_000_000  # of the standard library; tuned: more than any profile reads twice


def study(
    names: Sequence[str],
    *,
    profile: str = "quick",
    out: str | Path = "out/study",
    store: str | Path | None = None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    text: str | Path | None = None,
    seed: int = 0,
    progress: Progress = lambda text, done: None,
) -> list[Finding]:
    """The findings of these claims ("all" for every one), in the order of the list of claims.

    `seed` moves all seeds, those that tune and those that judge, to others: a study of its own.
    """
    claims = chosen(names)
    if profile not in PROFILES:
        raise BadInput(f"profile: unknown {profile!r}; use {', '.join(PROFILES)}")
    if not 0 <= seed <= MOST_SEED:
        raise BadInput(f"seed: must be from 0 to {MOST_SEED:,}, found {seed}")
    if text is not None and not Path(text).is_file():
        raise BadInput(f"text: {text} is no file")
    if text is not None and (size := Path(text).stat().st_size) < LEAST_TEXT:
        raise BadInput(f"text: needs at least {LEAST_TEXT:,} bytes, found {size:,} in {text}")
    place = Path(out)
    store = Path(store or place / STORE)
    settings = replace(PROFILES[profile], text=str(text or _corpus(place)))
    arms = {(claim.id, arm.name): arm for claim in claims for arm in claim.arms(settings)}
    where = {"workers": workers, "engine": engine, "address": address}
    results = _trained(
        claims, arms, settings, store, seed, lambda text, done: progress(text, 0.9 * done), where
    )
    findings = []
    for k, claim in enumerate(claims):
        progress(f"{claim.id}: {claim.title}", 0.9 + 0.1 * k / len(claims))
        provided = {
            name: replace(results[f"{claim.id}/{name}"], arm=arm)
            for (of, name), arm in arms.items()
            if of == claim.id
        }
        command = _command(claim.id, settings, text, seed)
        findings.append(_find(claim, provided, settings, store, place, command, progress))
    return findings


def _trained(
    claims: Sequence[Claim],
    arms: Mapping[tuple[str, str], Arm],
    settings: Profile,
    store: Path,
    seed: int,
    progress: Progress,
    places: Mapping[str, Any],
) -> dict[str, Result]:
    """The results of all arms; claims of one budget share a queue."""
    budgets: dict[Profile, set[str]] = {}
    for claim in claims:
        budgets.setdefault(claim.budget(settings), set()).add(claim.id)
    results: dict[str, Result] = {}
    for k, (budget, names) in enumerate(budgets.items()):
        first, span = k / len(budgets), 1 / len(budgets)
        tuned, _ = tuned_runs(
            [replace(arm, name=f"{of}/{name}") for (of, name), arm in arms.items() if of in names],
            name=f"study-{settings.name}",
            store=store,
            seeds=range(JUDGING + APART * seed, JUDGING + APART * seed + budget.seeds),
            rates=budget.rates,
            pilots=range(PILOT + APART * seed, PILOT + APART * seed + budget.pilots),
            wider=budget.wider,
            progress=lambda text, done, first=first, span=span: progress(text, first + span * done),
            **places,
        )
        results |= tuned
    return results


def chosen(names: Sequence[str]) -> list[Claim]:
    """The claims that a user asks for."""
    ids = list(CLAIMS) if "all" in names else list(dict.fromkeys(names))
    for name in ids:
        if name not in CLAIMS:
            raise BadInput(f"unknown claim {name!r}; there are {', '.join(CLAIMS)}, and all")
    if not ids:
        raise BadInput(f"no claim is named; use {', '.join(CLAIMS)}, or all; --list describes them")
    return [load_claim(name) for name in CLAIMS if name in ids]


# -- findings ---------------------------------------------------------------------------------------------


def _find(
    claim: Claim,
    results: Mapping[str, Result],
    profile: Profile,
    store: Path,
    directory: Path,
    command: str,
    progress: Progress,
) -> Finding:
    name = _fingerprint(claim, profile, results)
    file = directory / FINDINGS / f"{claim.id}-{profile.name}.json"
    if (cached := _cached(file, name)) is not None:
        return cached

    def weights(key: str) -> bytes:
        with Store(store, create=False) as opened:
            return opened.weights(key)

    began = time.process_time()
    judged = claim.judge(Evidence(profile, results, weights, progress))
    computed = time.process_time() - began
    finding = Finding(
        id=claim.id,
        title=claim.title,
        statement=claim.statement,
        source=claim.source,
        design=claim.design,
        measure=claim.measure,
        profile=profile.name,
        seeds=claim.budget(profile).seeds if results else 0,
        parts=judged.parts,
        summary=judged.summary,
        panels=judged.panels,
        arms=_rows(results, claim.measure),
        notes=(*judged.notes, *_warnings(results.values(), claim.measure)),
        untried=claim.untried,
        seconds=round(computed + seconds_of(results.values()), 1),
        command=command,
        grid=judged.grid,
    )
    finding_cache.write(file, name, finding.to_dict())
    return finding


def _fingerprint(claim: Claim, profile: Profile, results: Mapping[str, Result]) -> str:
    """Of all that a finding depends on beside the code: runs with their numbers, and profile."""
    numbers = lambda record: [str(record.get(name)) for name in ("status", MEAN_SQUARE, SUP, BITS)]
    keys = {name: [*result.keys, *map(numbers, result.records)] for name, result in results.items()}
    return finding_cache.fingerprint([claim.id, profile.name, profile.seeds, profile.rates, keys])


def _cached(file: Path, name: str) -> Finding | None:
    stored = finding_cache.read(file, name)
    try:
        return None if stored is None else finding_from_dict(stored)
    except (KeyError, TypeError):
        return None


def _rows(results: Mapping[str, Result], measure: str) -> tuple[dict[str, Any], ...]:
    """A line for every arm; how many runs were lost, only where some were."""
    rows = [_row(result, measure) for result in results.values()]
    none = [name for name in ("diverged", "failed") if not any(row[name] for row in rows)]
    return tuple({name: value for name, value in row.items() if name not in none} for row in rows)


def _row(result: Result, measure: str) -> dict[str, Any]:
    errors = measure != BITS
    estimate = mean(result.logs(measure) if errors else result.values(measure))
    back = lambda value: 10**value if errors and value is not None else value
    return {
        "arm": result.arm.name,
        "parameters": result.parameters,
        "rate": result.rate,
        "at_edge": _at_edge(result),
        "tuning": result.tuning,
        "seeds": len(result.records),
        "measure": measure,
        "mean": back(estimate.value),
        "low": back(estimate.low),
        "high": back(estimate.high),
        "diverged": sum(record.diverged for record in result.records),
        "failed": sum(record.status == "failed" for record in result.records),
    }


def _at_edge(result: Result) -> bool:
    rates = [float(rate) for rate in result.tuning]
    return result.rate in (min(rates), max(rates))


def _warnings(results: Iterable[Result], measure: str) -> list[str]:
    """What a referee would ask."""
    warnings = []
    results = list(results)
    edge = [result.arm.name for result in results if _at_edge(result)]
    if edge:
        warnings.append(
            f"the best rate is at the end of the grid for {', '.join(edge)}; a wider one might do better"
        )
    for result in results:
        without_result = [record for record in result.records if record.get(measure) is None]
        if without_result:
            why = next((f" ({record.error})" for record in without_result if record.error), "")
            warnings.append(
                f"{result.arm.name}: {len(without_result)} of {len(result.records)} runs have no result{why}, so it has no interval"
            )
    return warnings


def _command(name: str, profile: Profile, text: str | Path | None, seed: int) -> str:
    options = [] if text is None else ["--text", str(text)]
    options += ["--seed", str(seed)] if seed else []
    return shlex.join(["memloci", "study", name, f"--{profile.name}", *options])


def _corpus(directory: Path) -> Path:
    """The source of Python's standard library, as one file: text that is everywhere."""
    path = directory / CORPUS
    if not path.exists():
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        content = b"".join(file.read_bytes() for file in files)[:CORPUS_BYTES]
        if not content:
            raise BadInput("this Python has no source of its standard library; give a file with --text")
        replace_together(directory, {CORPUS: content})
    return path
