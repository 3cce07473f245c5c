"""Curves of compiled models as they come: a point for every size, with its certificate and what was measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from memloci.approx.kernels.rpe import RpeName
from memloci.certify.certificate import Certificate
from memloci.certify.certify import certify
from memloci.core.errors import BadInput
from memloci.core.precision import EVALUATED, PRECISIONS
from memloci.core.proved import Observed, Proved
from memloci.model.transformer import Transformer
from memloci.observe.sup_error import Measurement, measure
from memloci.tasks.task import Task

TOLERANCE = 1e-3  # that readouts and heads are made for, where they do not vary
DEFAULT_HEADS = 8  # where they do not vary
FARTHEST_FIT = 128  # tuned: lags that heads are fitted to, and floors computed for
SHOWN = ("float32", "float64")  # precisions of the models that are compiled for a curve
PRECISION_OF_BITS = {own.bits: name for name, own in PRECISIONS.items()}
SEEN: dict[str, int] = {"sequences": 32, "steps": 20, "starts": 4}

Report = Callable[[str], None]


@dataclass(frozen=True)
class RatesRequest:
    """What varies, and all that does not."""

    task: Task
    vary: str
    values: tuple[int, ...]
    encoding: str
    length: int  # of sequences, where it does not vary
    seed: int = 0
    heads: int = DEFAULT_HEADS

    @property
    def rpe(self) -> RpeName:
        return cast(RpeName, self.encoding)

    def length_at(self, value: int) -> int:
        return value if self.vary == "length" else self.length


@dataclass(frozen=True)
class Point:
    """A compiled model at one size."""

    x: int
    E: Proved  # worst case, rounding of the format included
    E_exact: Proved
    err_sup: Observed | None
    err_mean_square: Observed | None
    what: str  # the route and its size


@dataclass(frozen=True)
class CurveFloor:
    """Proved: what no model of a kind gets below."""

    name: str
    E_least: Mapping[int, float]  # by what varies
    statement: str


@dataclass(frozen=True)
class CompiledResults:
    curves: Mapping[str, tuple[Point, ...]]
    floors: tuple[CurveFloor, ...]
    notes: tuple[str, ...]  # what is missing, and why


def compiled_from_dict(data: Mapping[str, Any]) -> CompiledResults:
    """Of what `dataclasses.asdict` gave: proved and observed numbers have their types again."""
    observed = lambda value: None if value is None else Observed(value)

    def point(data: Mapping[str, Any]) -> Point:
        proved = {name: Proved(data[name]) for name in ("E", "E_exact")}
        return Point(**{**data, **proved, **{n: observed(data[n]) for n in ("err_sup", "err_mean_square")}})

    curves = {name: tuple(map(point, points)) for name, points in data["curves"].items()}
    by_size = lambda least: {int(x): value for x, value in least.items()}
    floors = tuple(CurveFloor(f["name"], by_size(f["E_least"]), f["statement"]) for f in data["floors"])
    return CompiledResults(curves, floors, tuple(data["notes"]))


class CompiledCurves:
    """Curves, floors and reasons, as they come."""

    def __init__(self, request: RatesRequest, report: Report):
        self.request, self.report = request, report
        self.curves: dict[str, list[Point]] = {}
        self.floors: list[CurveFloor] = []
        self.notes: list[str] = []
        self._seen: dict[
            tuple[int, int], tuple[Transformer, Measurement]
        ] = {}  # models are kept: their ids are keys

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def add(
        self,
        curve: str,
        x: int,
        model: Transformer,
        what: str,
        precision: str | None = None,
        proved: Certificate | None = None,
    ) -> Certificate:
        """A point of a curve: the new model, or the last one if that is better."""
        rates = self.request
        proved = proved or certify(model, rates.task, tolerance=TOLERANCE)
        evaluated_in = model.architecture.precision
        bound = proved.bound_by_precision[precision or evaluated_in]
        points = self.curves.setdefault(curve, [])
        if points and not bound < points[-1].E:
            points.append(replace(points[-1], x=x))
            return proved
        runs_in_it = precision in (None, evaluated_in)
        measurement = self.measured(model, rates.length_at(x)) if runs_in_it else None
        if not runs_in_it:
            self.note(f"{curve}: nothing measured in {precision}; models run in {' and '.join(EVALUATED)}")
        err = (None, None) if measurement is None else (measurement.err_sup, measurement.err_mean_square)
        points.append(Point(x, bound, proved.exact_bound, *err, what))
        return proved

    def add_exact(self, curve: str, x: int, E: Proved, what: str) -> None:
        """A point of what no format holds: an error in exact arithmetic alone."""
        points = self.curves.setdefault(curve, [])
        if points and not points[-1].E > E:
            points.append(replace(points[-1], x=x))
        else:
            points.append(Point(x, E, E, None, None, what))

    def measured(self, model: Transformer, length: int) -> Measurement | None:
        import jax.random as jr

        where = id(model), length
        try:
            if where not in self._seen:
                key = jr.key(self.request.seed)
                measurement = measure(model, self.request.task, key=key, length=length, **SEEN)
                self._seen[where] = model, measurement
            return self._seen[where][1]
        except BadInput as reason:
            self.note(f"compiled models: nothing measured: {reason}")
            return None

    def results(self) -> CompiledResults:
        return CompiledResults(
            {k: tuple(v) for k, v in self.curves.items()}, tuple(self.floors), tuple(self.notes)
        )
