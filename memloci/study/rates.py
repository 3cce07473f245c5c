"""Error against one size at a time: the paper's slope, what is proved, what is built, what is trained.

    slope = d log10 error / d log10 size

| curve | where it comes from |
|---|---|
| paper | a slope: constants are not explicit, so the line starts at the first point of another curve |
| proved floor | what no model of the kind gets below (compiled_floors.py) |
| compiled | weights by construction: the certified worst case, and what `measure` saw |
| trained | gradient descent from random weights: a rate tuned on a pilot seed, then fresh seeds |

Both errors are shown. The mean square has the square of the certified worst case as its bound, and twice the paper's
slope. A trained point is the mean over seeds of log10 error, with its 95 % interval. Slopes of compiled curves are those
of the part that falls: beyond it a wall is met, not a rate. Their intervals say how straight a line is; only those of
trained curves are about chance.

A curve that is missing has a note that says why.
"""

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from memloci.approx.ridge_exact import affine
from memloci.errors import BadInput
from memloci.planner.rates import FALLING, stated
from memloci.specs import shorten
from memloci.study import kept
from memloci.study.claim import PILOT, Arm, Panel, Progress, Result, Series
from memloci.study.compiled_book import FORMATS, HEADS, Asked, Compiled, Floor, compiled_from_dict
from memloci.study.compiled_floors import capacity_floor
from memloci.study.compiled_sizes import compiled
from memloci.study.statistics import NOTHING, Estimate, mean, slope
from memloci.study.tuned_runs import RATES, tuned_runs
from memloci.tasks.adaptive import Adaptive
from memloci.tasks.base import Task
from memloci.tasks.essential import Essential
from memloci.tasks.fixed import Fixed
from memloci.tasks.load import load_task
from memloci.training.cache import place
from memloci.training.spec import MAX_TOKENS, default_length

VARIES = ("heads", "width", "layers", "samples", "length", "bits")
ENCODINGS = ("lin", "log")
MEASURES = {"err_sup": "largest error", "err_mean_square": "mean square error"}
STEPS, SEEDS, BATCH = 600, 5, 64
WIDER = 2  # times that the two rates of tuned_runs.py are followed up where the better one is at an end
WIDTH = 64  # of FFNs, where it does not vary
LONGEST = 64  # tuned: tokens that kernels are trained on, where the length does not vary
VALUES: dict[str, tuple[int, ...]] = {
    "heads": (1, 2, 4, 8, 16),
    "width": (4, 8, 16, 32, 64),
    "samples": (16, 64, 256, 1024),
    "bits": tuple(FORMATS),
}
MOST = {"heads": 256, "width": 65_536, "layers": 64, "samples": 2**20, "length": 4_096, "bits": 53}
TRAINED = "trained"
ONE_MODEL = ("samples", "length")  # compiled for all of them, so there is no slope
AXES = {"width": "FFN width, neurons", "samples": "training sequences", "length": "length, tokens"}
AXES |= {"bits": "bits of the significand"}

Spot = tuple[int, tuple[float, ...]]  # of a curve: where, and the values there


@dataclass(frozen=True)
class Slope:
    """A fitted slope: of which curve, in which measure, from where to where."""

    curve: str
    kind: str
    measure: str
    estimate: Estimate
    first: int | None
    last: int | None


@dataclass(frozen=True)
class RatesFinding:
    """Error against one size: two panels, their numbers, slopes, and what is missing."""

    task: str
    description: str
    kind: str
    vary: str
    values: tuple[int, ...]
    encoding: str
    seeds: int  # 0: nothing was trained
    steps: int
    panels: tuple[Panel, ...]  # the largest error, the mean square
    rows: tuple[dict[str, Any], ...]  # one for every point of every curve
    slopes: tuple[Slope, ...]
    paper: str  # its rate in words; empty where it states none
    floors: dict[str, str]  # what each floor says
    notes: tuple[str, ...]
    seconds: float  # of one core, for runs, compilations and computations
    command: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rates(
    task: str | Path | Task,
    vary: str,
    *,
    values: Sequence[int] | None = None,
    encoding: str = "lin",
    seeds: int = SEEDS,
    steps: int = STEPS,
    seed: int = 0,
    store: str | Path = "runs.sqlite",
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    trained: bool = True,
    progress: Progress | None = None,
) -> RatesFinding:
    """Error against `vary`. Runs go through the store, so a second call trains nothing."""
    record = task if isinstance(task, Task) else load_task(task)
    name = record.description or record.kind if isinstance(task, Task) else str(task)
    asked = _asked(record, vary, values, encoding, seeds, steps, seed)
    tell, began = progress or (lambda text, done: None), time.process_time()
    share = 0.4 if trained else 1.0
    built = _compiled(asked, lambda text, done: tell(text, share * done))
    computed = time.process_time() - began
    results, cost = dict[int, Result](), 0.0
    notes = list(built.notes)
    arms = _arms(asked, steps, notes)
    if not trained:
        notes.append("trained: nothing, as asked")
    elif arms:
        where = {"workers": workers, "engine": engine, "address": address}
        named, cost = tuned_runs(
            list(arms.values()),
            name=f"rates-{vary}",
            store=store,
            seeds=range(seed, seed + seeds),
            wider=WIDER,
            progress=lambda text, done: tell(text, share + (1 - share) * done),
            **where,
        )
        results = {value: named[arm.name] for value, arm in arms.items()}
        notes += _warnings(results)
    floors = list(built.floors)
    if arms and (floor := capacity_floor(asked, next(iter(arms.values())).architecture or {})) is not None:
        floors.append(floor)
    paper = _paper(asked, notes)
    panels = tuple(_panel(asked, measure, built, floors, results, paper, notes) for measure in MEASURES)
    return RatesFinding(
        task=name,
        description=record.description,
        kind=record.kind,
        vary=vary,
        values=asked.values,
        encoding=encoding,
        seeds=seeds if results else 0,
        steps=steps,
        panels=panels,
        rows=tuple(_rows(built, floors, results)),
        slopes=tuple(_slopes(asked, panels)),
        paper=paper.says if paper else "",
        floors={floor.name: floor.says for floor in floors},
        notes=tuple(dict.fromkeys(notes)),
        seconds=round(computed + cost, 1),
        command=_command(task, asked, seeds, steps, seed, trained, values),
    )


# -- what is asked ----------------------------------------------------------------------------------------


def _asked(
    task: Task, vary: str, values: Sequence[int] | None, encoding: str, seeds: int, steps: int, seed: int
) -> Asked:
    if vary not in VARIES:
        raise BadInput(f"vary: unknown {shorten(vary)}; use {', '.join(VARIES)}")
    if encoding not in ENCODINGS:
        raise BadInput(f"encoding: unknown {shorten(encoding)}; use {', '.join(ENCODINGS)}")
    if not (1 <= seeds <= 1000 and 1 <= steps <= 10**8 and 0 <= seed < PILOT - 1000):
        raise BadInput(f"cannot train {seeds} seeds from {seed} on with {steps} steps")
    task.to_dict()  # a task that no run can hold is refused before the work
    length = _length(task)
    chosen = tuple(sorted(set(values if values is not None else _defaults(task, vary))))
    least = {"width": 0, "length": 2}.get(vary, 1)
    for value in chosen:
        if type(value) is not int or not least <= value <= MOST[vary]:
            raise BadInput(
                f"values: {vary} must be whole numbers from {least} to {MOST[vary]:,}, found {shorten(value)}"
            )
        if vary == "bits" and value not in FORMATS:
            known = ", ".join(f"{bits} ({name})" for bits, name in FORMATS.items())
            raise BadInput(f"values: no format has {value} bits; there are {known}")
    if vary == "length" and chosen[-1:] <= (max(task.lag_bounds),) and max(task.lag_bounds) < math.inf:
        raise BadInput(
            f"values: no length up to {MOST['length']:,} has room for lag {max(task.lag_bounds):,}"
            if values is None
            else f"values: some length must have room for lag {max(task.lag_bounds):,}"
        )
    if len(chosen) < 2:
        raise BadInput(f"values: give two or more numbers of {vary} to compare")
    if vary == "samples" and chosen[-1] * length > MAX_TOKENS:
        raise BadInput(f"values: {chosen[-1]:,} samples of {length:,} tokens are too many")
    return Asked(task, vary, chosen, encoding, length, seed, 2 * HEADS if vary == "bits" else HEADS)


def _compiled(asked: Asked, progress: Progress) -> Compiled:
    """Kept beside the compiled programs (training/cache.py), so the same question again only draws."""
    settings = [asked.task.to_dict(), *(getattr(asked, f.name) for f in fields(asked) if f.name != "task")]
    name, where = kept.fingerprint(settings), place()
    file = where / "curves" / f"{name[:32]}.json" if where else None
    if file is not None and (found := kept.read(file, name)) is not None:
        return compiled_from_dict(found)
    built = compiled(asked, progress)
    if file is not None:
        try:
            kept.write(file, name, asdict(built))
        except BadInput:  # nothing can be written there: it is computed again next time
            pass
    return built


def _length(task: Task) -> int:
    """Room for every lag; kernels are cut."""
    far = max(task.lag_bounds)
    if far == math.inf:
        return LONGEST
    return max(default_length(task.to_dict()) if far < LONGEST else 0, int(far) + 16)


def _defaults(task: Task, vary: str) -> tuple[int, ...]:
    if vary == "layers":
        return (1, 2, 4, 8) if isinstance(task, Fixed) else (1, 2, 3, 4)
    if vary == "length":
        far = max(task.lag_bounds)
        first = 16 if far == math.inf else max(16, 2 ** math.ceil(math.log2(far + 2)))
        return tuple(first * 2**k for k in range(4) if first * 2**k <= MOST["length"])
    return VALUES[vary]


def _arms(asked: Asked, steps: int, notes: list[str]) -> dict[int, Arm]:
    """What is trained at every value; notes say what is not."""
    arms: dict[int, Arm] = {}
    for value in asked.values:
        architecture, training = _sizes(asked), _training(asked, steps)
        if asked.vary in ("heads", "width", "layers"):
            architecture[asked.vary] = value
        elif asked.vary in ("samples", "length"):
            training[asked.vary] = value
        elif (reason := _format(FORMATS[value])) is not None:
            notes.append(reason)
            continue
        else:
            architecture["precision"] = FORMATS[value]
        arm = Arm(f"{asked.vary} {value:,}", asked.task.to_dict(), architecture, training)
        try:
            arm.run(RATES[0], asked.seed)
        except BadInput as reason:
            notes.append(f"trained: none with {asked.vary} {value:,}: {reason}")
            continue
        arms[value] = arm
    if not arms:
        notes.append(f"trained: nothing, for no {asked.vary} can be")
    return arms


def _sizes(asked: Asked) -> dict[str, Any]:
    task = asked.task
    sizes: dict[str, Any] = {"layers": 1, "heads": asked.heads, "encoding": asked.encoding, "dim": 32}
    if isinstance(task, Adaptive):
        sizes |= {"layers": task.K + 1 + (task.M >= task.K + 1), "width": WIDTH}
        if asked.vary == "heads":  # the form that is compiled, and that the capacity bound is about
            real = sum(not channel.finite for channel in task.channels)
            sizes |= {"attention": "tmx", "normalisation": "none", "value_dim": max(1, real)}
            return sizes | {"norm": "rms"}  # without it most runs on `pointer` diverged
        return sizes | {"attention": "dp", "normalisation": "softmax", "key_dim": 16, "value_dim": task.d}
    forms = [formula.expression and affine(formula.expression) for formula in task.readouts]
    width = WIDTH if any(form is None for form in forms) else 0
    return sizes | {
        "width": width,
        "attention": "dpf",
        "normalisation": "infinite",
        "value_dim": task.d,
        "key_dim": 1,
    }


def _training(asked: Asked, steps: int) -> dict[str, Any]:
    every = max(1, math.ceil(steps / 4))
    return {"steps": steps, "batch": BATCH, "length": asked.length, "evaluate_every": every}


def _format(name: str) -> str | None:
    """Why nothing is trained in a format."""
    if name == "bfloat16":
        return "trained: none in bfloat16; models are float32 or float64"
    from memloci.model.transformer import require_precision

    try:
        require_precision(name)
    except BadInput as reason:
        return f"trained: none in {name}: {reason}"
    return None


def _warnings(results: Mapping[int, Result]) -> list[str]:
    """Runs that have no number."""
    found = []
    for result in results.values():
        kinds = [str(record.get("status")) for record in result.records]
        for status in ("diverged", "failed"):
            if count := kinds.count(status):
                errors = {str(record.get("error")) for record in result.records if record.get("error")}
                why = f" ({shorten(min(errors))})" if errors else ""
                found.append(
                    f"trained, {result.arm.name}: {count} of {len(kinds)} runs {status}{why}, so it has no mean"
                )
    return found


# -- the paper --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paper:
    """A slope of the largest error, and what the paper says."""

    slope: float
    label: str
    says: str


def _paper(asked: Asked, notes: list[str]) -> Paper | None:
    said = stated(asked.task).paper
    match asked.vary:
        case "heads" if (
            asked.encoding == "lin" and isinstance(asked.task, Essential) and not _light(asked.task)
        ):
            notes.append("paper: its rate in lin heads is for kernels that decay exponentially")
        case "heads":
            says = f"E_attn falls like {said.heads}, in exact arithmetic and with free mass: steeper than any line"
            return Paper(-1.0, "n = 1 of the paper's H^-n", says)
        case "width":
            return Paper(said.width_slope, f"the paper's {said.width}", f"E_ffn falls like {said.width}")
        case "layers":
            notes.append("paper: no rate in layers; it counts those that suffice, K + 1 + 1{M >= K + 1}")
        case other:
            notes.append(f"paper: no rate in {other}")
    return None


def _light(task: Essential) -> bool:
    """Whether every kernel is below an exponential, as far as can be shown."""
    return all(term.b > 0 for tail in task.tails for term in tail.terms)


# -- curves -----------------------------------------------------------------------------------------------


def _panel(
    asked: Asked,
    measure: str,
    built: Compiled,
    floors: Sequence[Floor],
    results: Mapping[int, Result],
    paper: Paper | None,
    notes: list[str],
) -> Panel:
    square = measure == "err_mean_square"
    series: list[Series] = []
    for name, points in built.curves.items():
        x = tuple(point.x for point in points)
        bounds = [_squared(point.E) if square else float(point.E) for point in points]
        proved = tuple(map(_finite, bounds))
        if not all(proved):
            notes.append(f"{name}: no bound below infinity at {_listed(x, proved)}")
        series.append(Series(name, x, proved, "certified"))
        if asked.vary not in ONE_MODEL and len(_falling(_positive(series[-1]))) < 2:
            notes.append(f"{name}: its bound does not fall with {asked.vary}, so it has no slope")
        if any(point.err_sup is not None for point in points):
            seen = [point.err_mean_square if square else point.err_sup for point in points]
            series.append(Series(name, x, tuple(map(_finite, seen)), "measured"))
    if results:
        values = tuple(tuple(result.values(measure)) for result in results.values())
        series.append(Series(TRAINED, tuple(results), values, "trained"))
    if floors and square:
        notes.append("lower bound: proved of the largest error only; none of the mean square")
    series += [] if square else map(_bound, floors)
    if paper is not None and (guide := _guide(asked, series, paper, 2 if square else 1)):
        series.append(guide)
    what = MEASURES[measure]
    return Panel(
        title=f"{what[0].upper()}{what[1:]} against {asked.vary}",
        x=AXES.get(asked.vary, asked.vary),
        y=what,
        series=tuple(series),
        log_x=asked.vary != "bits",
    )


def _squared(E: float) -> float:
    """A bound on the mean square, rounded up."""
    return math.nextafter(float(E) * float(E), math.inf)


def _finite(value: float | None) -> tuple[float, ...]:
    return () if value is None or not math.isfinite(value) else (float(value),)


def _listed(x: Sequence[int], values: Sequence[tuple[float, ...]]) -> str:
    return ", ".join(f"{a:,}" for a, own in zip(x, values, strict=True) if not own)


def _bound(floor: Floor) -> Series:
    return Series(
        floor.name, tuple(floor.E_least), tuple((value,) for value in floor.E_least.values()), "bound"
    )


def _guide(asked: Asked, series: Sequence[Series], paper: Paper, power: int) -> Series | None:
    """A line of the paper's slope through the first point of the first curve that falls, if there is one."""
    curves = [(own, _positive(own)) for own in series if own.kind in ("certified", "trained")]
    curves.sort(key=lambda curve: curve[0].kind == "certified" and len(_falling(curve[1])) < 2)
    points = next((points for _, points in curves if points), None)
    if points is None:
        return None
    x, values = points[0]
    start = 10 ** (sum(map(math.log10, values)) / len(values))
    at = tuple(value for value in asked.values if value >= x)
    line = tuple((start * (value / x) ** (power * paper.slope),) for value in at)
    return Series(paper.label if power == 1 else f"{paper.label}, squared", at, line, "paper")


def _positive(series: Series) -> list[Spot]:
    """The points that logarithms can show."""
    pairs = zip(series.x, series.values, strict=True)
    return [(x, values) for x, values in pairs if x > 0 and values and min(values) > 0]


# -- numbers ----------------------------------------------------------------------------------------------


def _rows(built: Compiled, floors: Sequence[Floor], results: Mapping[int, Result]) -> list[dict[str, Any]]:
    """Every point of every curve; proved numbers are E_..., observed ones err_..."""
    rows: list[dict[str, Any]] = []
    for curve, points in built.curves.items():
        for point in points:
            plain = {k: _plain(v) for k, v in asdict(point).items()}
            rows.append({"curve": curve, **plain})
    rows += [
        {"curve": floor.name, "x": x, "E_least": value}
        for floor in floors
        for x, value in floor.E_least.items()
    ]
    for value, result in results.items():
        row: dict[str, Any] = {"curve": TRAINED, "x": value, "rate": result.rate, "runs": len(result.records)}
        for measure in MEASURES:
            found = over_seeds(result.values(measure))
            row |= {measure: found.value, f"{measure}_low": found.low, f"{measure}_high": found.high}
        rows.append({**row, "parameters": result.parameters})
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def over_seeds(values: Sequence[float]) -> Estimate:
    """10^mean of log10, with its interval; zeros have no logarithm."""
    if not values or min(values) <= 0:
        return NOTHING
    found = mean([math.log10(value) for value in values])
    power = lambda v: None if v is None or v > 300 else 10.0 ** max(v, -300.0)
    several = len(values) > 1  # one run has no interval
    return Estimate(
        power(found.value), power(found.low) if several else None, power(found.high) if several else None
    )


def _slopes(asked: Asked, panels: Sequence[Panel]) -> list[Slope]:
    kinds = ("trained",) if asked.vary in ONE_MODEL else ("certified", "measured", "trained")
    return [
        _slope(asked, measure, series)
        for measure, panel in zip(MEASURES, panels, strict=True)
        for series in panel.series
        if series.kind in kinds
    ]


def _slope(asked: Asked, measure: str, series: Series) -> Slope:
    size: Callable[[int], float] = (lambda bits: 2.0**bits) if asked.vary == "bits" else float
    points = _positive(series)
    if series.kind != "trained":
        points = _falling(points)
    if len(points) < 2:
        return Slope(series.name, series.kind, measure, NOTHING, None, None)
    x = [size(x) for x, values in points for _ in values]
    y = [math.log10(value) for _, values in points for value in values]
    return Slope(series.name, series.kind, measure, slope(x, y), points[0][0], points[-1][0])


def _falling(points: list[Spot]) -> list[Spot]:
    """Without the plateaus at both ends: too few heads for anything, and a wall."""
    falls = lambda before, after: after[1][0] < FALLING * before[1][0]
    while len(points) > 1 and not falls(*points[-2:]):
        points = points[:-1]
    while len(points) > 1 and not falls(*points[:2]):
        points = points[1:]
    return points


def _command(
    task: Any, asked: Asked, seeds: int, steps: int, seed: int, trained: bool, values: Sequence[int] | None
) -> str:
    words = ["memloci", "rates", "TASK.toml" if isinstance(task, Task) else str(task), "--vary", asked.vary]
    words += ["--encoding", asked.encoding] if asked.encoding != "lin" else []
    words += ["--values", ",".join(map(str, asked.values))] if values is not None else []
    words += ["--seeds", str(seeds)] if seeds != SEEDS else []
    words += ["--steps", str(steps)] if steps != STEPS else []
    words += ["--seed", str(seed)] if seed else []
    return shlex.join(words + ([] if trained else ["--no-train"]))
