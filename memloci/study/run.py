"""Claims to findings: train the arms of all of them, judge each, keep.

claims -> arms -> tuned runs (tuned_runs.py) -> Evidence -> judge -> Finding

All arms of all claims that are asked for go into one queue, so claims share runs, a study that was stopped goes on, and one
that is done only draws. A finding is kept under a hash of its runs and of the code that judged them.
"""

import hashlib
import json
import shlex
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
    JUDGING,
    PILOT,
    QUICK,
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
from memloci.study.tuned_runs import tuned_runs
from memloci.sweeps.store import Store

PROFILES = {profile.name: profile for profile in (QUICK, FULL)}
HERE = Path(__file__).parent
STORE, FINDINGS, CORPUS = "runs.sqlite", "findings", "corpus.txt"
JUDGES = ("arms.py", "claim.py", "statistics.py")  # the code that judges, beside the claims
MOST_SEED = PILOT - JUDGING - 1000  # beyond, seeds that judge would be those that tune
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

    `seed` moves all seeds, those that tune and those that judge: a study of its own.
    """
    claims = chosen(names)
    if profile not in PROFILES:
        raise BadInput(f"profile: unknown {profile!r}; use {', '.join(PROFILES)}")
    if not 0 <= seed <= MOST_SEED:
        raise BadInput(f"seed: must be from 0 to {MOST_SEED:,}, found {seed}")
    if text is not None and not Path(text).is_file():
        raise BadInput(f"text: {text} is no file")
    place = Path(out)
    store = Path(store or place / STORE)
    settings = replace(PROFILES[profile], text=str(text or _corpus(place)))
    arms = {(claim.id, arm.name): arm for claim in claims for arm in claim.arms(settings)}
    results, _ = tuned_runs(
        [replace(arm, name=f"{claim}/{arm.name}") for (claim, _), arm in arms.items()],
        name=f"study-{settings.name}",
        store=store,
        seeds=range(JUDGING + seed, JUDGING + seed + settings.seeds),
        rates=settings.rates,
        pilots=range(PILOT + seed, PILOT + seed + settings.pilots),
        progress=lambda text, done: progress(text, 0.9 * done),
        workers=workers,
        engine=engine,
        address=address,
    )
    findings = []
    for k, claim in enumerate(claims):
        progress(f"{claim.id}: {claim.title}", 0.9 + 0.1 * k / len(claims))
        own = {
            name: replace(results[f"{claim.id}/{name}"], arm=arm)
            for (of, name), arm in arms.items()
            if of == claim.id
        }
        command = _command(claim.id, settings, text, seed)
        findings.append(_find(claim, own, settings, store, place, command, progress))
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


# -- findings ---------------------------------------------------------------------------------------------


def _find(
    claim: Claim,
    results: Mapping[str, Result],
    profile: Profile,
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
    trained = sum(result.seconds for result in results.values())
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
        arms=_rows(results, claim.measure, profile),
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
    for file in (*sorted((HERE / "claims").glob("*.py")), *(HERE / name for name in JUDGES)):
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


def _rows(results: Mapping[str, Result], measure: str, profile: Profile) -> tuple[dict[str, Any], ...]:
    """A line for every arm; how many runs were lost, only where some were."""
    rows = [_row(result, measure, profile) for result in results.values()]
    none = [name for name in ("diverged", "failed") if not any(row[name] for row in rows)]
    return tuple({name: value for name, value in row.items() if name not in none} for row in rows)


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


def _command(name: str, profile: Profile, text: str | Path | None, seed: int) -> str:
    own = [] if text is None else ["--text", str(text)]
    own += ["--seed", str(seed)] if seed else []
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
