"""Findings as tables: for the terminal, and for the README."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from memloci.study.claim import Claim, Finding
from memloci.views.terminal.tasks import plain_table
from memloci.views.text.sizes import duration
from memloci.views.text.study import DASH, SIGNS, deciding, in_order, part_text

PROFILES = ("quick", "full")  # from small to large
STYLES = {"confirmed": "green", "refuted": "red", "inconclusive": "yellow"}


def findings_table(findings: Sequence[Finding]) -> Any:
    """What was found, a line for every claim."""
    table = plain_table()
    table.add_column("id", no_wrap=True)
    table.add_column("claim")
    table.add_column("verdict", no_wrap=True)
    table.add_column("what decides")
    table.add_column("seeds", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for finding in in_order(findings):
        verdict = Text(f"{SIGNS[finding.verdict]} {finding.verdict}", STYLES[finding.verdict])
        effect = Text(part_text(deciding(finding)))
        cells = f"{finding.seeds:,}", duration(finding.seconds)
        table.add_row(Text(finding.id, "bold"), Text(finding.title), verdict, effect, *cells)
    return table


def claims_table(claims: Sequence[Claim]) -> Any:
    """What can be asked."""
    table = plain_table()
    table.add_column("id", no_wrap=True)
    table.add_column("claim")
    table.add_column("source")
    for claim in sorted(claims, key=lambda claim: claim.order):
        table.add_row(Text(claim.id, "bold"), Text(claim.title), Text(claim.source))
    return table


def markdown_table(findings: Sequence[Finding]) -> str:
    """The verdicts for the README.

    A column for every profile; effect and seeds are of the larger one that a claim was studied in.
    """
    by_claim: dict[str, dict[str, Finding]] = {}
    for finding in in_order(findings):
        by_claim.setdefault(finding.id, {})[finding.profile] = finding
    profiles = [name for name in PROFILES if any(name in by_profile for by_profile in by_claim.values())]
    head = ["id", "claim", *profiles, "what decides: effect [interval]", "seeds"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * (len(head) - 1)}---:|"]
    for by_profile in by_claim.values():
        last = next(by_profile[name] for name in reversed(profiles) if name in by_profile)
        verdicts = [by_profile[name].verdict if name in by_profile else DASH for name in profiles]
        cells = [last.id, last.title, *verdicts, part_text(deciding(last)), f"{last.seeds:,}"]
        lines.append(f"| {' | '.join(map(_markdown, cells))} |")
    return "\n".join(lines) + "\n"


def _markdown(text: str) -> str:
    """On one line, in one cell, and no HTML."""
    flat = " ".join(text.split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
