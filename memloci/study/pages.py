"""What the pages of a study and the table in the README are made of; memloci/pipeline.py has them drawn.

The index has every claim whose finding is kept in the directory, with those that were just made in place of older ones, so
claims can be studied one at a time. Findings of another source, seed or text are left out: their claims are studied anew when
asked for.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memloci import __version__
from memloci.core.errors import BadInput
from memloci.core.files import parse_json, replace_together
from memloci.study import finding_cache
from memloci.study.claim import Finding, claim_order, finding_from_dict
from memloci.study.claims import CLAIMS
from memloci.study.run import FINDINGS

DOCS, VERDICTS = "docs", "verdicts.json"
BEGIN, END = "<!-- verdicts: written by `make verdicts` -->", "<!-- end of verdicts -->"


def about(findings: Sequence[Finding]) -> dict[str, str]:
    """How these findings come about again, and with what they were made."""
    all_of = "all" if len(findings) == len(CLAIMS) else " ".join(finding.id for finding in findings)
    return {
        "command": findings[0].settings.replace(" study ", f" study {all_of} ", 1),
        "version": f"memloci {__version__}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def with_stored(findings: Sequence[Finding], out: Path) -> list[Finding]:
    """The findings that the pages of a directory show: these, and those kept there."""
    profile = findings[0].profile
    by_id = {finding.id: finding for finding in findings}
    for name in CLAIMS:
        older = finding_cache.read(out / FINDINGS / f"{name}-{profile}.json") if name not in by_id else None
        if older is not None and (finding := finding_from_dict(older)).settings == findings[0].settings:
            by_id[name] = finding
    return [by_id[name] for name in CLAIMS if name in by_id]


def records_with(findings: Sequence[Finding], readme: Path) -> list[dict[str, Any]]:
    """The records that the table in a README is made from, in its order; those of the other profile stay as they are."""
    if not readme.is_file():
        raise BadInput(f"readme: {readme} is no file")
    new = [{**finding.to_dict(), "panels": [], "arms": []} for finding in findings]  # what the table needs
    replaced = {(record["profile"], record["id"]) for record in new}
    old = [each for each in _records(readme) if (each["profile"], each["id"]) not in replaced]
    return sorted(old + new, key=lambda record: (record["profile"] == "full", *claim_order(record["id"])))


def write_readme(readme: Path, records: Sequence[Mapping[str, Any]], table: str) -> None:
    """The table of verdicts between its marks, and in docs/ the records that it is made from."""
    text = with_table(readme.read_text(), table)
    if text is None:
        raise BadInput(f"readme: {readme} lacks the lines {BEGIN} and {END}")
    replace_together(readme.parent / DOCS, {VERDICTS: (json.dumps(records, indent=1) + "\n").encode()})
    replace_together(readme.parent, {readme.name: text.encode()})


def _records(readme: Path) -> list[dict[str, Any]]:
    path = readme.parent / DOCS / VERDICTS
    try:
        return [finding_from_dict(record).to_dict() for record in parse_json(path.read_bytes())]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a table of verdicts: {error}; delete it and study again") from None


def with_table(text: str, table: str) -> str | None:
    """A README with this table; None if it has no place for it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}" if begin and end else None
