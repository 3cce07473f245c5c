"""What a claim is, what is run for it, and what comes out.

Claim -> arms -> runs (tuned, then fresh seeds) -> Evidence -> judge -> Finding

An arm is one configuration: task, architecture, settings. Its learning rate is tuned on pilot seeds, alike for all arms,
and the claim is judged on other seeds, which nobody looks at before. A claim may compute more than it trains: proved
bounds, compiled weights, counterexamples.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from memloci.study.panel import Curve, Panel
from memloci.study.statistics import Estimate, Part, Verdict, deciding, overall, shared_level
from memloci.train.record import RunRecord
from memloci.train.spec import Run

if TYPE_CHECKING:  # a list of claims needs no arrays
    from memloci.model.transformer import Transformer

Progress = Callable[[str, float], None]
PILOT = 1_000_000  # seeds from here on tune
EARLIER_NAMES = {"said": "summary", "says": "statement"}  # of fields, in stored findings
JUDGING = 3_000  # seeds from here on judge; those below were looked at when the claims were designed


@dataclass(frozen=True)
class Profile:
    """How much work a study may be."""

    name: Literal["quick", "full"]
    seeds: int
    pilots: int
    rates: tuple[float, ...]
    wider: int = 0  # times that a grid of rates is made longer where its best one is at an end
    text: str | None = None  # the file of the claims about language

    def pick(self, quick: Any, full: Any) -> Any:
        return quick if self.name == "quick" else full


QUICK = Profile("quick", seeds=5, pilots=1, rates=(3e-3, 1e-2, 3e-2, 1e-1))
FULL = Profile("full", seeds=10, pilots=2, rates=(1e-3, 3e-3, 1e-2, 3e-2, 1e-1), wider=2)


@dataclass(frozen=True)
class Arm:
    """One configuration of a claim."""

    name: str
    task: dict[str, Any]
    architecture: dict[str, Any] | None
    training: dict[str, Any] = field(default_factory=dict)
    context: bool = False  # shown beside the claim; no part depends on it, and 8 and 9 leave it out

    def run(self, rate: float, seed: int) -> Run:
        settings = {**self.training, "rate": rate, "seed": seed}
        return Run(task=self.task, architecture=self.architecture, training=settings)

    def varied(self, **changes: Any) -> "Arm":
        """The same arm with other switches."""
        return replace(self, architecture={**(self.architecture or {}), **changes})


@dataclass(frozen=True)
class Result:
    """An arm after its runs."""

    arm: Arm
    rate: float
    tuning: dict[str, float | None]  # rate -> median held-out loss of the pilots
    records: tuple[RunRecord, ...]  # of the judging seeds, in their order
    keys: tuple[str, ...]
    seconds: float = 0.0  # that workers spent on all its runs, tuning included

    def values(self, measure: str) -> list[float]:
        """Over seeds; empty if any run has none, for a mean over the survivors would flatter the arm."""
        values = [record.get(measure) for record in self.records]
        return (
            []
            if any(value is None for value in values)
            else [float(value) for value in values if value is not None]
        )

    def logs(self, measure: str) -> list[float]:
        """log10 of an error over seeds."""
        return [math.log10(max(value, 1e-300)) for value in self.values(measure)]

    @property
    def parameters(self) -> int | None:
        return next((record.parameters for record in self.records if record.parameters), None)


@dataclass(frozen=True)
class Evidence:
    """All that a claim is judged by."""

    profile: Profile
    results: Mapping[str, Result]
    weights: Callable[[str], bytes]  # of a run's key
    progress: Progress = lambda text, done: None
    family: float = 1.0  # claims that are judged together and share the 5 %

    def level(self, parts: int) -> float:
        """Of every interval of a claim with so many parts."""
        return shared_level(parts * self.family)

    def __getitem__(self, name: str) -> Result:
        return self.results[name]

    def __contains__(self, name: str) -> bool:
        """Arms that no part depends on may be missing."""
        return name in self.results

    def models(self, name: str) -> "list[Transformer]":
        """The trained models of an arm."""
        from memloci.model.store import from_weights

        models, result = [], self.results[name]
        for key, record in zip(result.keys, result.records, strict=True):
            if record.status == "done":
                models.append(from_weights(*record.sizes, self.weights(key)))
        return models


@dataclass(frozen=True)
class GridCell:
    """What came of a claim in one case, and the part that decided it."""

    verdict: Verdict | Literal["not run", "cannot be"]
    part: Part | None


@dataclass(frozen=True)
class VerdictGrid:
    """A figure of verdicts: claims in rows, what was changed in columns."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cases: tuple[tuple[GridCell, ...], ...]


@dataclass(frozen=True)
class Judgement:
    """What a claim makes of its evidence."""

    parts: tuple[Part, ...]
    summary: str  # what was found, in a sentence or two
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()
    grid: VerdictGrid | None = None


@dataclass(frozen=True)
class Claim:
    """A statement that can be wrong, and the experiment that would show it."""

    id: str
    title: str
    statement: str
    source: str
    design: str  # how the experiment works, and how it could come out against the claim
    measure: str  # that the arms are compared by
    arms: Callable[[Profile], Sequence[Arm]]
    judge: Callable[[Evidence], Judgement]
    untried: tuple[str, ...] = ()
    budget: Callable[[Profile], Profile] = lambda profile: (
        profile
    )  # seeds and rates, where a claim has its own

    @property
    def order(self) -> tuple[float, str]:
        return claim_order(self.id)


@dataclass(frozen=True)
class Finding:
    """The answer to "is it true?", with everything that is needed to check it."""

    id: str
    title: str
    statement: str
    source: str
    design: str
    measure: str
    profile: str
    seeds: int
    parts: tuple[Part, ...]
    summary: str
    panels: tuple[Panel, ...]
    arms: tuple[dict[str, Any], ...]  # rows of a table
    notes: tuple[str, ...]
    untried: tuple[str, ...]
    seconds: float  # of one core, for runs, compilations and computations
    command: str
    grid: VerdictGrid | None = None

    @cached_property
    def verdict(self) -> Verdict:
        return overall(self.parts)

    @property
    def settings(self) -> str:
        """What the command has beside the claim: profile, seed and text."""
        return self.command.replace(f" study {self.id} ", " study ", 1)

    @property
    def order(self) -> tuple[float, str]:
        """Where it stands among the claims."""
        return claim_order(self.id)

    @property
    def effect(self) -> Part:
        """The part that decided."""
        return deciding(self.parts)

    @property
    def level(self) -> float:
        """Of the interval of every part."""
        return shared_level(len(self.parts))

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        return {**fields, "parts": [part.to_dict() for part in self.parts], "verdict": self.verdict}


def finding_from_dict(data: Mapping[str, Any]) -> Finding:
    lists = {name: tuple(data[name]) for name in ("arms", "notes", "untried")}
    made = {
        "parts": tuple(map(_part, data["parts"])),
        "panels": tuple(map(_panel, data["panels"])),
        "grid": _grid(data["grid"]) if data.get("grid") else None,
    }
    return Finding(**{**_fields(data), **lists, **made})


def _part(data: Mapping[str, Any]) -> Part:
    return Part(**{**_fields(data), "effect": Estimate(**data["effect"])})


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """What is computed again is left out, and names of earlier versions are read as today's."""
    return {EARLIER_NAMES.get(name, name): value for name, value in data.items() if name != "verdict"}


def _panel(data: Mapping[str, Any]) -> Panel:
    made = {"series": tuple(map(_series, data["series"])), "marks": tuple(map(tuple, data["marks"]))}
    return Panel(**{**data, **made})


def _series(data: Mapping[str, Any]) -> Curve:
    return Curve(**{**data, "x": tuple(data["x"]), "values": tuple(map(tuple, data["values"]))})


def _grid(data: Mapping[str, Any]) -> VerdictGrid:
    case = lambda data: GridCell(data["verdict"], _part(data["part"]) if data["part"] else None)
    cases = tuple(tuple(map(case, row)) for row in data["cases"])
    return VerdictGrid(data["title"], tuple(data["rows"]), tuple(data["columns"]), cases)


def claim_order(id: str) -> tuple[float, str]:
    """2a is before 10a."""
    leading = re.match(r"\d+", id)
    return (int(leading[0]) if leading else math.inf, id)
