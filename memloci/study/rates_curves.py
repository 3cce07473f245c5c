"""The curves of `memloci rates`: panels, rows and slopes, and what the paper says."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memloci.study.claim import Result
from memloci.study.compiled_curves import CompiledResults, CurveFloor, RatesRequest
from memloci.study.panel import Curve, Panel, over_seeds
from memloci.study.statistics import NOTHING, Estimate, slope
from memloci.theory.paper_rates import PaperRates, paper_rates
from memloci.tradeoffs.rates import FALLING

MEASURES = {"err_sup": "largest error", "err_mean_square": "mean square error"}
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

    @property
    def what(self) -> str:
        """The error that falls, in words."""
        return MEASURES[self.measure]


# -- the paper --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paper:
    """A slope of the largest error, and what the paper says."""

    slope: float
    label: str
    statement: str


def paper_of(request: RatesRequest, notes: list[str]) -> Paper | None:
    stated = paper_rates(request.task)
    match request.vary:
        case "heads":
            return _paper_of_heads(request, stated, notes)
        case "width":
            return Paper(
                stated.width_slope, f"the paper's {stated.width}", f"E_ffn falls like {stated.width}"
            )
        case "layers":
            notes.append("paper: no rate in layers; it counts those that suffice, K + 1 + 1{M >= K + 1}")
        case other:
            notes.append(f"paper: no rate in {other}")
    return None


def _paper_of_heads(request: RatesRequest, paper: PaperRates, notes: list[str]) -> Paper | None:
    """A line of slope -1 stands for H^-n, where n = 1 is among those that the theorem allows."""
    stated_rate = paper.rate(request.encoding)
    if stated_rate is None:
        why = paper.why_none or f"its theorem for {request.encoding} heads is about other tails"
        notes.append(f"paper: no rate in {request.encoding} heads: {why}")
        return None
    statement, rate = stated_rate
    if not rate.exists:
        notes.append(
            f"paper: {statement.result} gives {request.encoding} heads no rate here: {rate.condition}"
        )
        return None
    steep = ": steeper than any line" if rate.most is None else ""
    text = f"{statement.result}: E_attn <= {rate.text}, in exact arithmetic and with free mass{steep}"
    return Paper(-1.0, f"n = 1 of the paper's H^-n ({statement.result})", text)


# -- curves -----------------------------------------------------------------------------------------------


def panel_of(
    request: RatesRequest,
    measure: str,
    built: CompiledResults,
    floors: Sequence[CurveFloor],
    results: Mapping[int, Result],
    paper: Paper | None,
    notes: list[str],
) -> Panel:
    square = measure == "err_mean_square"
    series: list[Curve] = []
    for name, points in built.curves.items():
        x = tuple(point.x for point in points)
        bounds = [_squared(point.E) if square else float(point.E) for point in points]
        proved = tuple(map(_finite, bounds))
        if not all(proved):
            notes.append(f"{name}: no bound below infinity at {_listed(x, proved)}")
        series.append(Curve(name, x, proved, "certified"))
        if request.vary not in ONE_MODEL and len(_falling(_positive(series[-1]))) < 2:
            notes.append(f"{name}: its bound does not fall with {request.vary}, so it has no slope")
        if any(point.err_sup is not None for point in points):
            errors = [point.err_mean_square if square else point.err_sup for point in points]
            series.append(Curve(name, x, tuple(map(_finite, errors)), "measured"))
    if results:
        values = tuple(tuple(result.values(measure)) for result in results.values())
        series.append(Curve(TRAINED, tuple(results), values, "trained"))
    if floors and square:
        notes.append("lower bound: proved of the largest error only; none of the mean square")
    series += [] if square else map(_bound, floors)
    if paper is not None and (guide := _guide(request, series, paper, 2 if square else 1)):
        series.append(guide)
    what = MEASURES[measure]
    return Panel(
        title=f"{what[0].upper()}{what[1:]} against {request.vary}",
        x=AXES.get(request.vary, request.vary),
        y=what,
        series=tuple(series),
        log_x=request.vary != "bits",
    )


def _squared(E: float) -> float:
    """A bound on the mean square, rounded up."""
    return math.nextafter(float(E) * float(E), math.inf)


def _finite(value: float | None) -> tuple[float, ...]:
    return () if value is None or not math.isfinite(value) else (float(value),)


def _listed(x: Sequence[int], values: Sequence[tuple[float, ...]]) -> str:
    return ", ".join(f"{a:,}" for a, row in zip(x, values, strict=True) if not row)


def _bound(floor: CurveFloor) -> Curve:
    return Curve(
        floor.name, tuple(floor.E_least), tuple((value,) for value in floor.E_least.values()), "bound"
    )


def _guide(request: RatesRequest, series: Sequence[Curve], paper: Paper, power: int) -> Curve | None:
    """A line of the paper's slope through the first point of the first curve that falls, if there is one."""
    curves = [(one, _positive(one)) for one in series if one.kind in ("certified", "trained")]
    curves.sort(key=lambda curve: curve[0].kind == "certified" and len(_falling(curve[1])) < 2)
    points = next((points for _, points in curves if points), None)
    if points is None:
        return None
    x, values = points[0]
    start = 10 ** (sum(map(math.log10, values)) / len(values))
    at = tuple(value for value in request.values if value >= x)
    line = tuple((start * (value / x) ** (power * paper.slope),) for value in at)
    return Curve(paper.label if power == 1 else f"{paper.label}, squared", at, line, "paper")


def _positive(series: Curve) -> list[Spot]:
    """The points that logarithms can show."""
    pairs = zip(series.x, series.values, strict=True)
    return [(x, values) for x, values in pairs if x > 0 and values and min(values) > 0]


# -- numbers ----------------------------------------------------------------------------------------------


def rows_of(
    built: CompiledResults, floors: Sequence[CurveFloor], results: Mapping[int, Result]
) -> list[dict[str, Any]]:
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
            estimate = over_seeds(result.values(measure))
            row |= {measure: estimate.value, f"{measure}_low": estimate.low, f"{measure}_high": estimate.high}
        rows.append({**row, "parameters": result.parameters})
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def slopes_of(request: RatesRequest, panels: Sequence[Panel]) -> list[Slope]:
    kinds = ("trained",) if request.vary in ONE_MODEL else ("certified", "measured", "trained")
    return [
        _slope(request, measure, series)
        for measure, panel in zip(MEASURES, panels, strict=True)
        for series in panel.series
        if series.kind in kinds
    ]


def _slope(request: RatesRequest, measure: str, series: Curve) -> Slope:
    size: Callable[[int], float] = (lambda bits: 2.0**bits) if request.vary == "bits" else float
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
