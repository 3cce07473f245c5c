"""The sizes and switches of an architecture whose layers may differ, as text."""

from memloci.model.architecture import Architecture


def sizes_text(architecture: Architecture, name: str) -> str:
    """One number where layers are alike, else from the least to the largest of them; of a switch, all its values."""
    values = list(dict.fromkeys(getattr(architecture.block(l), name) for l in range(architecture.layers)))
    if len(values) > 1 and all(isinstance(value, int) for value in values):
        return f"{min(values):,} to {max(values):,}"
    return ", ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in values)
