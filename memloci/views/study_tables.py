"""Findings as tables: for the terminal, and for the README."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from memloci.core.numbers import number
from memloci.study.claim import Claim, Finding, finding_from_dict, place
from memloci.study.statistics import Part
from memloci.views.run_tables import duration
from memloci.views.tables import plain_table

DASH = "–"
PROFILES = ("quick", "full")  # from small to large
STYLES = {"confirmed": "green", "refuted": "red", "inconclusive": "yellow"}
SIGNS = {"confirmed": "✓", "refuted": "✗", "inconclusive": "?"}


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
        effect = Text(told(deciding(finding)))
        cells = f"{finding.seeds:,}", duration(finding.seconds)
        table.add_row(Text(finding.id, "bold"), Text(finding.title), verdict, effect, *cells)
    return table


def claims_table(claims: Sequence[Claim]) -> Any:
    """What can be asked."""
    table = plain_table()
    table.add_column("id", no_wrap=True)
    table.add_column("claim")
    table.add_column("source")
    for claim in sorted(claims, key=lambda claim: place(claim.id)):
        table.add_row(Text(claim.id, "bold"), Text(claim.title), Text(claim.source))
    return table


def markdown_table(findings: Sequence[Mapping[str, Any] | Finding]) -> str:
    """The verdicts for the README; of findings, or of what their `to_dict` gave.

    A column for every profile; effect and seeds are of the larger one that a claim was studied in.
    """
    known = [each if isinstance(each, Finding) else finding_from_dict(each) for each in findings]
    by_claim: dict[str, dict[str, Finding]] = {}
    for finding in in_order(known):
        by_claim.setdefault(finding.id, {})[finding.profile] = finding
    profiles = [name for name in PROFILES if any(name in found for found in by_claim.values())]
    head = ["id", "claim", *profiles, "what decides: effect [interval]", "seeds"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * (len(head) - 1)}---:|"]
    for found in by_claim.values():
        last = next(found[name] for name in reversed(profiles) if name in found)
        verdicts = [found[name].verdict if name in found else DASH for name in profiles]
        cells = [last.id, last.title, *verdicts, told(deciding(last)), f"{last.seeds:,}"]
        lines.append(f"| {' | '.join(map(_markdown, cells))} |")
    return "\n".join(lines) + "\n"


def _markdown(text: str) -> str:
    """On one line, in one cell, and no HTML."""
    flat = " ".join(text.split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def deciding(finding: Finding) -> Part | None:
    return finding.effect if finding.parts else None


def told(part: Part | None) -> str:
    """Which part, and its effect."""
    return DASH if part is None else f"{part.says}: {effect_text(part)}"


def effect_text(part: Part | None) -> str:
    """1.3 decades [1.1, 1.5], margin 0.3"""
    if part is None:
        return DASH
    side = "" if part.side == "above" else ", should be below"
    margin = f"margin {number(part.margin)}{side}"
    value = part.effect.value
    if value is None or not math.isfinite(value):
        return f"no number, {margin}"
    interval = interval_text(part)
    unit = f" {part.unit}" if part.unit else ""
    return f"{number(value)}{unit}{f' {interval}' if interval else ''}, {margin}"


def interval_text(part: Part) -> str:
    if part.rests_on == "proof":
        return "(proved)"
    low, high = part.effect.low, part.effect.high
    return "" if low is None or high is None else f"[{number(low)}, {number(high)}]"


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: place(finding.id))
