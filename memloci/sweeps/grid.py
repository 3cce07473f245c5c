"""A sweep file, and the runs it stands for.

    runs = samples of [random] x every combination of [grid],   each put over [architecture], [training] and task

The same run met twice is one run. Combinations that no architecture can be are collected with their reasons; the
others can run. The i-th draw of a setting depends on the seed, i and the setting's name only, so more samples, or
one more setting, keep what was drawn before.
"""

import itertools
import json
import math
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.files import read_bytes
from memloci.core.numbers import literal, to_digits
from memloci.core.specs import shorten
from memloci.model.architecture import Architecture
from memloci.tasks.gallery import GALLERY
from memloci.tasks.load import load_task, task_from_dict
from memloci.tasks.short import fields_of
from memloci.train.spec import DATA_KINDS, Run, Training

MAX_FILE = 1 << 20  # bytes
MAX_NAME = 200  # bytes; a file's name has at most 255, and some are added to this one
MAX_BOUND = 1e300  # of a distribution: differences of two are still numbers
MAX_RUNS = 100_000  # tuned: minutes to expand; more is a mistake
KEYS = ("name", "task", "architecture", "training", "grid", "random")
SECTIONS = {"architecture": Architecture, "training": Training}
DATA_SUFFIXES = (".npz", ".txt")

Settings = dict[str, Any]  # a path such as "training.rate" -> its value
Choices = dict[str, list[Any]]  # a path -> the values to try
Ask = Callable[[int], None]  # told how many runs there are before they are made; refuses by raising


@dataclass(frozen=True)
class Impossible:
    """Combinations that are refused for one reason."""

    reason: str
    count: int
    example: Settings

    def to_dict(self) -> dict[str, Any]:
        return {"reason": self.reason, "count": self.count, "example": self.example}


@dataclass(frozen=True)
class Sweep:
    name: str
    runs: tuple[Run, ...]
    impossible: tuple[Impossible, ...] = ()


def read_sweep(path: str | Path, confirm: Ask = lambda count: None) -> Sweep:
    """The sweep in a TOML file; its task and data files are looked for beside it."""
    path = Path(path)
    try:
        return make_sweep(_parse(path), path.parent, path.stem, confirm)
    except BadInput as error:
        raise error.within(str(path)) from None


def _parse(path: Path) -> dict[str, Any]:
    content = read_bytes(path.resolve(), MAX_FILE)
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise BadInput("not text in UTF-8; a sweep file is TOML") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not TOML: {error}") from None


def make_sweep(
    data: Mapping[str, Any],
    beside: Path = Path(),
    name: str = "sweep",
    confirm: Ask = lambda count: None,
) -> Sweep:
    """The sweep that a file's content describes."""
    _refuse_unknown(data, KEYS)
    name = data.get("name", name)
    check_name(name)
    base = {section: _section(data, section) for section in SECTIONS}
    grid, drawn = _grid(data.get("grid")), _random(data.get("random"))
    if both := sorted(grid.keys() & drawn.keys()):
        raise BadInput(f"{both[0]} is in [grid] and in [random]; leave it in one of them")
    if not grid and not drawn:
        raise BadInput("nothing varies: add a [grid] or a [random] table")
    tasks = _Tasks(data.get("task"), (grid | drawn).get("task"), beside)
    for path in (*grid, *drawn):
        _check_path(path, tasks)
    if (count := _count(grid, drawn)) > MAX_RUNS:
        raise BadInput(f"{count:,} combinations; a sweep has at most {MAX_RUNS:,}")
    confirm(count)
    return _expand(name, base, tasks, _combinations(grid, drawn))


def check_name(name: Any) -> None:
    """The page about a sweep is a file of its name, written when all is trained: refused now, not then."""
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= 100:
        raise BadInput(f"name: must be a printable line of 1 to 100 characters, found {shorten(name)}")
    if "/" in name or name.startswith("."):
        raise BadInput(f"name: names a file too, so it has no / and no dot in front, found {shorten(name)}")
    if len(name.encode()) > MAX_NAME:
        raise BadInput(
            f"name: names a file too, so it has at most {MAX_NAME} bytes, found {len(name.encode())}"
        )


def _refuse_unknown(table: Mapping[str, Any], keys: Any) -> None:
    for key in table:
        if key not in keys:
            raise BadInput(f"unknown key {shorten(key)}; the keys are {', '.join(keys)}")


def _table(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{key}: must be a table, found {shorten(value)}")
    return value


def _section(data: Mapping[str, Any], section: str) -> dict[str, Any]:
    table = _table(data.get(section, {}), section)
    try:
        _refuse_unknown(table, SECTIONS[section].model_fields)
    except BadInput as error:
        raise error.within(section) from None
    return table


def _grid(table: Any) -> Choices:
    if table is None:
        return {}
    values = _unquoted(_table(table, "grid"))
    if not values:
        raise BadInput('grid: is empty; write a line such as "training.seed" = [0, 1, 2]')
    for path, choices in values.items():
        _check_choices(choices, f"grid: {path}")
    return values


def _check_choices(choices: Any, key: str) -> None:
    if not isinstance(choices, list):
        raise BadInput(f"{key}: must be a list of values, found {shorten(choices)}")
    if not choices:
        raise BadInput(f"{key}: the list is empty; name the values to try")


def _unquoted(table: Mapping[str, Any]) -> dict[str, Any]:
    """TOML reads training.rate without quotes as a table in a table; here both mean the same."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        nested = key in (*SECTIONS, "task") and isinstance(value, dict) and not {"values", "low"} & set(value)
        flat |= {f"{key}.{field}": v for field, v in value.items()} if nested else {key: value}
    return flat


# Random search.


def _random(table: Any) -> Choices:
    """The values of every setting, sample by sample."""
    if table is None:
        return {}
    rest = dict(_unquoted(_table(table, "random")))
    samples, seed = rest.pop("samples", None), rest.pop("seed", 0)
    if type(samples) is not int or not 1 <= samples <= MAX_RUNS:
        raise BadInput(
            f"random: samples: must be a whole number from 1 to {MAX_RUNS:,}, found {shorten(samples)}"
        )
    if type(seed) is not int or seed < 0:
        raise BadInput(f"random: seed: must be a whole number, 0 or more, found {shorten(seed)}")
    if not rest:
        raise BadInput(
            'random: no setting; write a line such as "training.rate" = { low = 1e-4, high = 1e-2 }'
        )
    drawn = {}
    for path, described in rest.items():
        draw = _distribution(described, f"random: {path}")
        drawn[path] = [draw(random.Random(f"{seed}/{path}/{i}")) for i in range(samples)]
    return drawn


def _distribution(described: Any, key: str) -> Callable[[random.Random], Any]:
    if not isinstance(described, dict) or not {"values", "low"} & set(described):
        raise BadInput(
            f"{key}: must be {{ low = .., high = .. }} or {{ values = [..] }}, found {shorten(described)}"
        )
    try:
        if "values" in described:
            _refuse_unknown(described, ("values",))
            _check_choices(described["values"], "values")
            return lambda source: source.choice(described["values"])
        _refuse_unknown(described, ("low", "high", "scale"))
        return _interval(described["low"], described.get("high"), described.get("scale", "linear"))
    except BadInput as error:
        raise error.within(key) from None


def _interval(low: Any, high: Any, scale: Any) -> Callable[[random.Random], Any]:
    """Uniform between the ends, or their logarithms; whole numbers when both ends are."""
    for end in (low, high):
        if type(end) not in (int, float) or end in (math.inf, -math.inf) or end != end:
            raise BadInput(f"low and high must be numbers, found {shorten(end)}")
        if abs(end) > MAX_BOUND:
            raise BadInput(f"low and high must lie within +-{literal(MAX_BOUND)}, found {shorten(end)}")
    if not low < high:
        raise BadInput(f"low must be below high, found {shorten(low)} and {shorten(high)}")
    if scale not in ("linear", "log"):
        raise BadInput(f'scale: must be "linear" or "log", found {shorten(scale)}')
    if scale == "log" and low <= 0:
        raise BadInput(f'low must be above 0 where scale = "log", found {shorten(low)}')
    inward, outward = (math.log, math.exp) if scale == "log" else (float, float)
    if type(low) is int and type(high) is int:
        # Every whole number owns the stretch from itself to the next one.
        draw = lambda source: int(outward(source.uniform(inward(low), inward(high + 1))))
        return lambda source: min(max(draw(source), low), high)
    # Six digits are as random as seventeen, and can be read.
    return lambda source: to_digits(outward(source.uniform(inward(low), inward(high))), 6)


# Expansion.


def _count(grid: Choices, drawn: Choices) -> int:
    samples = len(next(iter(drawn.values()))) if drawn else 1
    return samples * math.prod(len(choices) for choices in grid.values())


def _combinations(grid: Choices, drawn: Choices) -> Iterator[Settings]:
    samples = zip(*drawn.values(), strict=True) if drawn else [()]
    for sample in samples:
        fixed = dict(zip(drawn, sample, strict=True))
        for choice in itertools.product(*grid.values()):
            yield {**fixed, **dict(zip(grid, choice, strict=True))}


def _expand(name: str, base: dict[str, Settings], tasks: "_Tasks", combinations: Iterator[Settings]) -> Sweep:
    runs: dict[str, Run] = {}
    refused: dict[str, Impossible] = {}
    for settings in combinations:
        try:
            run = _make_run(base, tasks, settings)
            runs[run.key] = run
        except BadInput as error:
            counted = refused.get(str(error), Impossible(str(error), 0, settings))
            refused[str(error)] = Impossible(counted.reason, counted.count + 1, counted.example)
    if not runs:
        reasons = [f"{r.reason} (as with {shorten(r.example)})" for r in list(refused.values())[:3]]
        raise BadInput("no combination is possible: " + "; ".join(reasons))
    return Sweep(name, tuple(runs.values()), tuple(refused.values()))


def _make_run(base: dict[str, Settings], tasks: "_Tasks", settings: Settings) -> Run:
    parts = {section: dict(fields) for section, fields in base.items()}
    task = tasks.of(settings)
    for path, value in settings.items():
        section, _, field = path.partition(".")
        if section in parts:
            parts[section][field] = value
        elif field:
            task = {**task, field: value}
    if task.get("kind") not in DATA_KINDS:
        _checked("task", _text(task))
    # Without such a table the architecture is that of the compiled weights.
    architecture = _checked("architecture", _text(parts["architecture"])) if parts["architecture"] else None
    return Run(task=task, architecture=architecture, training=_checked("training", _text(parts["training"])))


@lru_cache(maxsize=4096)
def _checked(section: str, fields: str) -> Any:
    """A part of a run; a refusal names the section."""
    try:
        return (
            task_from_dict(json.loads(fields))
            if section == "task"
            else SECTIONS[section](**json.loads(fields))
        )
    except BadInput as error:
        raise error.within(section) from None


class _Tasks:
    """What `task` may be, each looked up once."""

    def __init__(self, base: Any, varied: list[Any] | None, beside: Path):
        if base is None and varied is None:
            raise BadInput("task is missing; write a gallery name, a task file or a table")
        self.by_source = {_text(source): _task(source, beside) for source in varied or [base]}
        self.base = base

    def of(self, settings: Settings) -> dict[str, Any]:
        return self.by_source[_text(settings.get("task", self.base))]

    @property
    def fields(self) -> set[str]:
        known = set()
        for task in self.by_source.values():
            data = task.get("kind") in DATA_KINDS
            known |= set(task) if data else {"kind", *fields_of(task.get("kind"))}
        return known


def _text(source: Any) -> str:
    return json.dumps(source, sort_keys=True, default=str)


def _task(source: Any, beside: Path) -> dict[str, Any]:
    try:
        if isinstance(source, dict):
            return _data(beside / str(source["text"])) if set(source) == {"text"} else source
        if not isinstance(source, str):
            raise BadInput(f"must be a gallery name, a task file or a table, found {shorten(source)}")
        if source in GALLERY:
            return load_task(source).to_dict()
        if source.endswith(DATA_SUFFIXES):
            return _data(beside / source)
        return load_task(beside / source).to_dict()
    except BadInput as error:
        raise error.within("task") from None


def _data(path: Path) -> dict[str, Any]:
    from memloci.train.data import describe

    return describe(path.resolve())  # the run may be started from another directory


def _check_path(path: str, tasks: _Tasks) -> None:
    section, _, field = path.partition(".")
    if path == "task":
        return
    known = tasks.fields if section == "task" else getattr(SECTIONS.get(section), "model_fields", None)
    if known is None:
        raise BadInput(
            f"{shorten(path)} names no setting; write task, task.FIELD, architecture.FIELD or training.FIELD"
        )
    if field not in known:
        raise BadInput(f"{shorten(path)} names no setting; {section} has {', '.join(sorted(known))}")
    if section == "task" and any(task.get("kind") in DATA_KINDS for task in tasks.by_source.values()):
        raise BadInput(f"{path}: a data file has no fields to vary; list several files under task")
