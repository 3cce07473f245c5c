"""Findings to files: a page each, the index, the table in the README.

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
from memloci.errors import BadInput
from memloci.model.files import replace_together
from memloci.study import kept
from memloci.study.claim import Finding, finding_from_dict
from memloci.study.claims import CLAIMS
from memloci.study.run import FINDINGS

DOCS, VERDICTS = "docs", "verdicts.json"
BEGIN, END = "<!-- verdicts: written by `make verdicts` -->", "<!-- end of verdicts -->"


def write(out: Path, findings: Sequence[Finding]) -> list[Finding]:
    """All pages of a directory; the findings that they show."""
    from memloci.report.study import study_pages

    shown = _all(out, findings)
    all_of = "all" if len(shown) == len(CLAIMS) else " ".join(finding.id for finding in shown)
    about = {
        "command": shown[0].settings.replace(" study ", f" study {all_of} ", 1),
        "version": f"memloci {__version__}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    replace_together(out, study_pages(shown, about))
    return shown


def _all(out: Path, findings: Sequence[Finding]) -> list[Finding]:
    profile = findings[0].profile
    found = {finding.id: finding for finding in findings}
    for name in CLAIMS:
        older = kept.read(out / FINDINGS / f"{name}-{profile}.json") if name not in found else None
        if older is not None and (finding := finding_from_dict(older)).settings == findings[0].settings:
            found[name] = finding
    return [found[name] for name in CLAIMS if name in found]


def update_readme(readme: Path, findings: Sequence[Finding]) -> None:
    """The table of verdicts between its marks, and in docs/ the records that it is made from.

    Those of the other profile stay as they are.
    """
    from memloci.report.study_tables import place

    if not readme.is_file():
        raise BadInput(f"readme: {readme} is no file")
    new = [{**finding.to_dict(), "panels": [], "arms": []} for finding in findings]  # what the table needs
    replaced = {(record["profile"], record["id"]) for record in new}
    old = [each for each in _records(readme) if (each["profile"], each["id"]) not in replaced]
    records = sorted(old + new, key=lambda record: (record["profile"] == "full", *place(record["id"])))
    text = with_table(readme.read_text(), records)
    if text is None:
        raise BadInput(f"readme: {readme} lacks the lines {BEGIN} and {END}")
    replace_together(readme.parent / DOCS, {VERDICTS: (json.dumps(records, indent=1) + "\n").encode()})
    replace_together(readme.parent, {readme.name: text.encode()})


def _records(readme: Path) -> list[dict[str, Any]]:
    path = readme.parent / DOCS / VERDICTS
    try:
        return [finding_from_dict(record).to_dict() for record in json.loads(path.read_bytes())]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a table of verdicts: {error}; delete it and study again") from None


def with_table(text: str, records: Sequence[Mapping[str, Any]]) -> str | None:
    """A README with the table of these records; None if it has no place for it."""
    from memloci.report.study_tables import markdown_table

    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown_table(records)}\n{END}{after}" if begin and end else None
