"""Claims to findings: tune every arm, run fresh seeds, judge, keep.

claims -> arms -> pilot runs -> a rate for every arm -> judging runs -> Evidence -> Finding

All arms of all claims that are asked for go into one queue of the sweep store, so workers share compiled programs,
claims share runs, a study that was stopped goes on, and one that is done only draws. A finding is kept under a hash
of its runs and of the code that judged them.
"""

import hashlib
import json
import shlex
import statistics
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memloci.errors import BadInput
from memloci.model.files import replace_together
from memloci.study.claim import (
    FULL,
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
from memloci.sweeps.grid import Sweep
from memloci.sweeps.start import sweep
from memloci.sweeps.store import Store
from memloci.training.spec import Run

PROFILES = {profile.name: profile for profile in (QUICK, FULL)}
HERE = Path(__file__).parent
STORE, FINDINGS, CORPUS = "runs.sqlite", "findings", "corpus.txt"
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
    progress: Progress = lambda text, done: None,
) -> list[Finding]:
    """The findings of these claims ("all" for every one), in the order of the list of claims."""
    claims = chosen(names)
    if profile not in PROFILES:
        raise BadInput(f"profile: unknown {profile!r}; use {', '.join(PROFILES)}")
    place = Path(out)
    place.mkdir(parents=True, exist_ok=True)
    store = Path(store or place / STORE)
    settings = replace(PROFILES[profile], text=str(text or _corpus(place)))
    if text is not None and not Path(text).is_file():
        raise BadInput(f"text: {text} is no file")
    arms = {claim.id: list(claim.arms(settings)) for claim in claims}
    for claim in claims:
        _check(claim, arms[claim.id])
    unique = list({_identity(arm): arm for mine in arms.values() for arm in mine}.values())
    where = {"store": store, "workers": workers, "engine": engine, "address": address}

    pilots = {
        (_identity(arm), rate): _pilots(arm, rate, settings) for arm in unique for rate in settings.rates
    }
    _work("tuning", settings, [run for runs in pilots.values() for run in runs], where, progress, 0.0, 0.35)
    seen = _stored(store)
    tuned = {_identity(arm): _tuning(arm, pilots, seen, settings) for arm in unique}
    judging = {
        name: _judging(arm, best(tuned[name]), settings) for arm in unique for name in [_identity(arm)]
    }
    _work("judging", settings, [run for runs in judging.values() for run in runs], where, progress, 0.35, 0.9)
    seen = _stored(store)

    findings = []
    for k, claim in enumerate(claims):
        progress(f"{claim.id}: {claim.title}", 0.9 + 0.1 * k / len(claims))
        names_of = {arm.name: _identity(arm) for arm in arms[claim.id]}
        results = {
            arm.name: _result(arm, tuned[names_of[arm.name]], judging[names_of[arm.name]], seen)
            for arm in arms[claim.id]
        }
        command = _command(claim.id, settings, text)
        runs = [run for arm in arms[claim.id] for run in _all_runs(arm, pilots, judging, settings)]
        findings.append(_find(claim, results, settings, runs, seen, store, place, command, progress))
    return findings


def chosen(names: Sequence[str]) -> list[Claim]:
    """The claims that a user asks for."""
    wanted = list(CLAIMS) if "all" in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in CLAIMS:
            raise BadInput(f"unknown claim {name!r}; there are {', '.join(CLAIMS)}, and all")
    if not wanted:
        raise BadInput(f"which claim? There are {', '.join(CLAIMS)}, and all; --list says what they are")
    return [load_claim(name) for name in CLAIMS if name in wanted]


# -- runs -------------------------------------------------------------------------------------------------


def _check(claim: Claim, arms: Sequence[Arm]) -> None:
    if len({arm.name for arm in arms}) < len(arms):
        raise AssertionError(f"{claim.id}: two arms have one name")


def _identity(arm: Arm) -> str:
    """Arms of different claims that are the same configuration are run once."""
    return arm.run(1.0, 0).key


def _pilots(arm: Arm, rate: float, profile: Profile) -> list[Run]:
    return [arm.run(rate, PILOT + k) for k in range(profile.pilots)]


def _judging(arm: Arm, rate: float, profile: Profile) -> list[Run]:
    return [arm.run(rate, k) for k in range(profile.seeds)]


def _all_runs(
    arm: Arm, pilots: Mapping[Any, list[Run]], judging: Mapping[str, list[Run]], profile: Profile
) -> list[Run]:
    name = _identity(arm)
    return [*(run for rate in profile.rates for run in pilots[name, rate]), *judging[name]]


def _work(
    stage: str,
    profile: Profile,
    runs: Sequence[Run],
    where: Mapping[str, Any],
    progress: Progress,
    low: float,
    high: float,
) -> None:
    if not runs:
        return
    unique = tuple({run.key: run for run in runs}.values())
    tell = lambda text, done: progress(f"{stage}: {text}", low + (high - low) * done)
    sweep(Sweep(f"study-{profile.name}-{stage}", unique), progress=tell, **where)


def _stored(store: Path) -> dict[str, dict[str, Any]]:
    if not store.exists():
        return {}
    with Store(store, create=False) as opened:
        return {row["key"]: row for row in opened.rows()}


def _loss(run: Run, seen: Mapping[str, Any]) -> float | None:
    record = (seen.get(run.key) or {}).get("record") or {}
    return record.get("held_out")


def _tuning(
    arm: Arm, pilots: Mapping[Any, list[Run]], seen: Mapping[str, Any], profile: Profile
) -> dict[str, float | None]:
    """The median held-out loss of every rate; none where a pilot diverged or failed."""
    found: dict[str, float | None] = {}
    for rate in profile.rates:
        losses = [_loss(run, seen) for run in pilots[_identity(arm), rate]]
        numbers = [loss for loss in losses if loss is not None]
        found[f"{rate:g}"] = statistics.median(numbers) if len(numbers) == len(losses) else None
    return found


def best(tuning: Mapping[str, float | None]) -> float:
    """The rate with the least loss; where none has a number, the smallest."""
    order = {rate: (loss is None, loss or 0.0, float(rate)) for rate, loss in tuning.items()}
    return float(min(order, key=lambda rate: order[rate]))


def _result(
    arm: Arm, tuning: dict[str, float | None], runs: Sequence[Run], seen: Mapping[str, Any]
) -> Result:
    rows = [seen.get(run.key) or {} for run in runs]
    records = tuple(row.get("record") or {"status": "failed", "error": row.get("error")} for row in rows)
    return Result(arm, best(tuning), tuning, records, tuple(run.key for run in runs))


# -- findings ---------------------------------------------------------------------------------------------


def _find(
    claim: Claim,
    results: Mapping[str, Result],
    profile: Profile,
    runs: Sequence[Run],
    seen: Mapping[str, Any],
    store: Path,
    place: Path,
    command: str,
    progress: Progress,
) -> Finding:
    name = _fingerprint(claim, profile, results)
    kept = place / FINDINGS / f"{claim.id}-{profile.name}.json"
    if (found := _kept(kept, name)) is not None:
        return found

    def weights(key: str) -> bytes:
        with Store(store, create=False) as opened:
            return opened.weights(key)

    began = time.process_time()
    judged = claim.judge(Evidence(profile, results, weights, progress))
    computed = time.process_time() - began
    trained = sum(
        (seen.get(run.key) or {}).get("cost") or 0.0 for run in {run.key: run for run in runs}.values()
    )
    finding = Finding(
        id=claim.id,
        title=claim.title,
        statement=claim.statement,
        source=claim.source,
        design=claim.design,
        measure=claim.measure,
        profile=profile.name,
        seeds=profile.seeds if results else 0,
        parts=judged.parts,
        said=judged.said,
        panels=judged.panels,
        arms=tuple(_row(result, claim.measure, profile) for result in results.values()),
        notes=(*judged.notes, *_warnings(results.values(), profile)),
        untried=claim.untried,
        seconds=round(computed + trained, 1),
        command=command,
    )
    content = {"fingerprint": name, "finding": finding.to_dict()}
    replace_together(kept.parent, {kept.name: (json.dumps(content, indent=1) + "\n").encode()})
    return finding


def _fingerprint(claim: Claim, profile: Profile, results: Mapping[str, Result]) -> str:
    """Of all that a finding depends on: runs, profile, and the code that judges."""
    code = hashlib.sha256()
    for file in (*sorted((HERE / "claims").glob("*.py")), HERE / "statistics.py"):
        code.update(file.read_bytes())
    keys = {
        name: [*result.keys, *(str(r.get("status")) for r in result.records)]
        for name, result in results.items()
    }
    text = json.dumps(
        [claim.id, profile.name, profile.seeds, profile.rates, keys, code.hexdigest()], sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _kept(path: Path, fingerprint: str) -> Finding | None:
    try:
        content = json.loads(path.read_bytes())
        return finding_from_dict(content["finding"]) if content["fingerprint"] == fingerprint else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there, or not ours: it is made anew


def _row(result: Result, measure: str, profile: Profile) -> dict[str, Any]:
    values = result.values(measure)
    found = mean(values)
    return {
        "arm": result.arm.name,
        "parameters": result.parameters,
        "rate": result.rate,
        "at_edge": _at_edge(result, profile),
        "tuning": result.tuning,
        "seeds": len(result.records),
        "measure": measure,
        "mean": found.value,
        "low": found.low,
        "high": found.high,
        "diverged": sum(record.get("status") == "diverged" for record in result.records),
        "failed": sum(record.get("status") == "failed" for record in result.records),
    }


def _at_edge(result: Result, profile: Profile) -> bool:
    return len(profile.rates) > 1 and result.rate in (min(profile.rates), max(profile.rates))


def _warnings(results: Any, profile: Profile) -> list[str]:
    """What a referee would ask."""
    found = []
    results = list(results)
    edge = [result.arm.name for result in results if _at_edge(result, profile)]
    if edge and len(profile.rates) > 2:
        found.append(
            f"the best rate is at the end of the grid for {', '.join(edge)}; a wider one might do better"
        )
    elif edge:
        found.append(f"only the rates {', '.join(f'{rate:g}' for rate in profile.rates)} were tried")
    for result in results:
        lost = sum(record.get("status") != "done" for record in result.records)
        if lost:
            found.append(
                f"{result.arm.name}: {lost} of {len(result.records)} runs have no result, so it has no interval"
            )
    return found


def _command(name: str, profile: Profile, text: str | Path | None) -> str:
    own = [] if text is None else ["--text", str(text)]
    return shlex.join(["memloci", "study", name, f"--{profile.name}", *own])


def _corpus(place: Path) -> Path:
    """The source of Python's standard library, as one file: text that is everywhere."""
    path = place / CORPUS
    if not path.exists():
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        content = b"".join(file.read_bytes() for file in files)[:CORPUS_BYTES]
        if not content:
            raise BadInput("this Python has no source of its standard library; give a file with --text")
        replace_together(place, {CORPUS: content})
    return path
