"""Sizes as text: of an architecture whose layers may differ, and of a time."""

from memloci.core.numbers import decimals
from memloci.model.architecture import Architecture


def sizes_text(architecture: Architecture, name: str) -> str:
    """One number where layers are alike, else from the least to the largest of them; of a switch, all its values."""
    values = list(dict.fromkeys(getattr(architecture.block(l), name) for l in range(architecture.layers)))
    if len(values) > 1 and all(isinstance(value, int) for value in values):
        return f"{min(values):,} to {max(values):,}"
    return ", ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in values)


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{decimals(seconds)} s"
    return f"{decimals(seconds / 60)} min" if seconds < 5400 else f"{decimals(seconds / 3600, 1)} h"
