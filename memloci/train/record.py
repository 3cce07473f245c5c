"""What is kept of a finished run: how it ended, its sizes, and what was measured.

In files a record is one flat JSON object, and it reads as that mapping too: `record["err_sup"]` is `record.err_sup`. A
measure that the task does not have is no key; one that was taken and is no number is None.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from memloci.model.architecture import Architecture

Status = Literal["done", "diverged", "failed"]
MEASURES = ("err_mean_square", "err_sampled", "err_adversarial", "err_sup", "bits_per_byte")


@dataclass(frozen=True, eq=False)
class RunRecord(Mapping[str, Any]):
    """Equal to any mapping with the same keys and values, as mappings are."""

    status: Status
    stopped: str | None = None  # why training ended, in words
    steps: int | None = None
    seconds: float | None = None
    loss: float | None = None
    held_out: float | None = None
    parameters: int | None = None
    architecture: Architecture | None = None
    channels: int | None = None
    outputs: int | None = None
    diverged_at: int | None = None  # the step
    error: str | None = None  # why a run failed
    measures: Mapping[str, float | None] = field(default_factory=dict)  # by names of MEASURES

    @property
    def diverged(self) -> bool:
        return self.status == "diverged"

    @property
    def err_mean_square(self) -> float | None:
        return self.measures.get("err_mean_square")

    @property
    def err_sup(self) -> float | None:
        return self.measures.get("err_sup")

    @property
    def bits_per_byte(self) -> float | None:
        return self.measures.get("bits_per_byte")

    @property
    def sizes(self) -> tuple[Architecture, int, int]:
        """What weights need to become a model again."""
        assert self.architecture is not None and self.channels is not None and self.outputs is not None
        return self.architecture, self.channels, self.outputs

    def __getitem__(self, name: str) -> Any:
        if name in self.measures:
            return self.measures[name]
        if name not in _always(self) and getattr(self, name, None) is None:
            raise KeyError(name)
        value = getattr(self, name)
        return value.to_dict() if isinstance(value, Architecture) else value

    def __iter__(self) -> Iterator[str]:
        names = (one.name for one in fields(self) if one.name != "measures")
        always = _always(self)
        yield from (name for name in names if name in always or getattr(self, name) is not None)
        yield from self.measures

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def to_dict(self) -> dict[str, Any]:
        return dict(self)


def _always(record: RunRecord) -> tuple[str, ...]:
    """Keys that are written even where they are None: a loss that is no number is told."""
    return ("status",) if record.status == "failed" else ("status", "loss", "held_out")


def record_from_dict(data: Mapping[str, Any]) -> RunRecord:
    """Of a file or store; what earlier versions did not write stays unknown."""
    names = {one.name for one in fields(RunRecord)} - {"measures", "architecture"}
    return RunRecord(
        **{name: data[name] for name in names if name in data},
        architecture=Architecture(**data["architecture"]) if data.get("architecture") else None,
        measures={name: data[name] for name in MEASURES if name in data},
    )
