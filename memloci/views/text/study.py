"""Findings in words: what decided, and its effect."""

import math
from collections.abc import Sequence

from memloci.core.numbers import number
from memloci.study.claim import Finding
from memloci.study.statistics import Part

DASH = "–"
SIGNS = {"confirmed": "✓", "refuted": "✗", "inconclusive": "?"}


def deciding(finding: Finding) -> Part | None:
    return finding.effect if finding.parts else None


def part_text(part: Part | None) -> str:
    """Which part, and its effect."""
    return DASH if part is None else f"{part.statement}: {effect_text(part)}"


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
    return sorted(findings, key=lambda finding: finding.order)
