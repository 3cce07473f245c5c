"""Compiled models of every size that is asked for: what is proved of each, what was seen, and what no size can do.

| varies | compiled | lower bound |
|---|---|---|
| heads | kernel sums of at most H heads, in float32 and float64 | at one rounding of the mass; of adaptive memories, the capacity bound |
| width | the readout with at most m neurons behind near exact recall | none |
| layers | chains of shifts (fixed), a head per memory from K + 2 layers on (adaptive) | none |
| samples | one model for all: weights by construction need no samples | at one rounding of the mass |
| length | one model for all: its bound holds at every length | at one rounding of the mass |
| bits | kernel sums for each format, and heads that do not cancel | at one rounding of the mass |

More heads can be idle, and so can layers and neurons: a curve keeps the best model that is not larger.

"At one rounding of the mass": for any number of heads of the encoding whose coefficients have mass B,

    E_attn + u B >= floor(u)      (lower_bounds.py),      sup error = |c| E_attn

for fixed and essential memories and outputs that are c times one of them plus what the present adds, with tokens from
[-1, 1] or such: the worst input is sign r(z). It is proved over sequences of any length; short ones do not show what lies
beyond them.

Proved: every E. Observed: every err. Tuned: which heads are fitted, and for how long.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from memloci.approx.adaptive_sums import floor as floor_of_form
from memloci.approx.kernel_sums import KernelSum, Precision, fit
from memloci.approx.kernel_targets import memory_target
from memloci.approx.lower_bounds import lower_bound
from memloci.approx.ridge_exact import affine
from memloci.approx.ridge_sums import readout_ridge
from memloci.approx.rpe import RpeName, as_rpe
from memloci.approx.targets import AbstractTarget, SingleLag
from memloci.certifier.certificate import Certificate, Observed, Proved
from memloci.certifier.certify import certify
from memloci.certifier.rounding import UNIT
from memloci.compiler.design_to_model import design_to_model
from memloci.compiler.wiring_to_model import wiring_to_model
from memloci.errors import BadInput
from memloci.model.transformer import Transformer
from memloci.observer.sup_error import Measurement, measure
from memloci.planner.adaptive_routes import ADAPTIVE_ROUTES, AdaptiveDemand, sums
from memloci.planner.capacity import questions
from memloci.planner.design import Design
from memloci.planner.make_plan import PRECISIONS, demand_of
from memloci.planner.routes import ROUNDING, ROUTES, Demand, Obstacle, depth, kernel_layer
from memloci.tasks.adaptive import Adaptive
from memloci.tasks.base import Task
from memloci.tasks.fixed import Fixed

TOLERANCE = 1e-3  # that readouts and heads are made for, where they do not vary
HEADS = 8  # where they do not vary
FORMATS = {8: "bfloat16", 24: "float32", 53: "float64"}  # by the bits of their significand
MOVES = {"lin": 8, "log": 0}  # tuned: of exponents
SLOW_HEADS = 4  # tuned: log heads fitted to kernels unlike them; 8 take half a minute
NEAR = 4  # lags that log heads are fitted to quickly
FARTHEST = 128  # tuned: lags that heads are fitted to
FARTHEST_FORM = 16  # tuned: lags of adaptive sums that a floor is computed for
DIGITS = "0123456789"
SEEN: dict[str, int] = {"sequences": 32, "steps": 20, "starts": 4}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What varies, and all that does not."""

    task: Task
    vary: str
    values: tuple[int, ...]
    encoding: str
    length: int  # of sequences, where it does not vary
    seed: int = 0
    heads: int = HEADS

    @property
    def rpe(self) -> RpeName:
        return cast(RpeName, self.encoding)

    def length_at(self, value: int) -> int:
        return value if self.vary == "length" else self.length

    @cached_property
    def far(self) -> float:
        return max(self.task.lag_bounds)


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
class Floor:
    """Proved: what no model of a kind gets below."""

    name: str
    E_least: Mapping[int, float]  # by what varies
    says: str


@dataclass(frozen=True)
class Compiled:
    curves: Mapping[str, tuple[Point, ...]]
    floors: tuple[Floor, ...]
    notes: tuple[str, ...]  # what is missing, and why


class _Book:
    """Curves, floors and reasons, as they come."""

    def __init__(self, asked: Asked, say: Say):
        self.asked, self.say = asked, say
        self.curves: dict[str, list[Point]] = {}
        self.floors: list[Floor] = []
        self.notes: list[str] = []
        self._seen: dict[tuple[int, int], Measurement] = {}

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
        asked = self.asked
        proved = proved or certify(model, asked.task, tolerance=TOLERANCE, precision=precision)
        own = model.architecture.precision
        bound = proved.bound_by_precision[precision or own]
        points = self.curves.setdefault(curve, [])
        if points and not bound < points[-1].E:
            points.append(replace(points[-1], x=x))
            return proved
        runs_in_it = precision in (None, own)
        seen = self.measured(model, asked.length_at(x)) if runs_in_it else None
        if not runs_in_it:
            self.note(f"{curve}: nothing measured in {precision}; models run in {' and '.join(PRECISIONS)}")
        err = (None, None) if seen is None else (seen.err_sup, seen.err_mean_square)
        points.append(Point(x, bound, proved.exact_bound, *err, what))
        return proved

    def measured(self, model: Transformer, length: int) -> Measurement | None:
        import jax.random as jr

        where = id(model), length
        try:
            if where not in self._seen:
                key = jr.key(self.asked.seed)
                self._seen[where] = measure(model, self.asked.task, key=key, length=length, **SEEN)
            return self._seen[where]
        except BadInput as reason:
            self.note(f"compiled models: nothing measured: {reason}")
            return None

    def found(self) -> Compiled:
        return Compiled({k: tuple(v) for k, v in self.curves.items()}, tuple(self.floors), tuple(self.notes))


def compiled(asked: Asked, progress: Callable[[str, float], None] = lambda text, done: None) -> Compiled:
    """Everything that needs no training."""
    told = 0.0

    def say(text: str) -> None:
        nonlocal told
        told += 0.1 * (1 - told)  # how many steps there will be depends on what they find
        progress(text, told)

    book = _Book(asked, say)
    adaptive = isinstance(asked.task, Adaptive)
    try:
        match asked.vary:
            case "heads":
                (_adaptive_heads if adaptive else _heads)(book)
            case "width":
                _width(book)
            case "layers":
                (_adaptive_layers if adaptive else _layers)(book)
            case "bits":
                (_adaptive_bits if adaptive else _bits)(book)
            case _:
                _one_for_all(book)
    except (BadInput, Obstacle) as reason:
        book.note(f"compiled models: {reason}")
    return book.found()


# -- heads ------------------------------------------------------------------------------------------------


def _heads(book: _Book) -> None:
    asked = book.asked
    for precision in PRECISIONS:
        curve = f"compiled, {precision}"
        try:
            demand = _demand(asked.task, precision)
            for H in asked.values:
                book.say(f"{curve}: {_count(H, 'head')}")
                if reason := _slow(asked.rpe, demand, H):
                    book.note(f"{curve}: none from {_count(H, 'head')} on: {reason}")
                    break
                found = _fitted(asked.rpe, demand, H, precision)
                book.add(curve, H, _model(kernel_layer(demand, found)), _sum_text(found))
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: {reason}")
    _add_floors(book, PRECISIONS)


def _demand(task: Task, precision: str) -> Demand:
    demand = demand_of(task, TOLERANCE, precision)
    assert isinstance(demand, Demand)
    if not demand.memories:
        raise Obstacle("nothing is recalled")
    return demand


def _targets(demand: Demand) -> list[AbstractTarget]:
    return list(dict.fromkeys(target for _, _, target in demand.memories))


def _slow(rpe: RpeName, demand: Demand, heads: int) -> str | None:
    """Why a fit would take longer than a reader waits."""
    far = max((t.lag for t in _targets(demand) if isinstance(t, SingleLag)), default=0)
    if far > FARTHEST:
        return f"lag {far:,} takes long to fit; lags up to {FARTHEST} are fitted"
    if rpe == "lin" or heads <= SLOW_HEADS:
        return None
    for target in _targets(demand):
        spectrum = target.spectrum(as_rpe(rpe))
        quick = target.lag <= NEAR if isinstance(target, SingleLag) else spectrum and not spectrum.powers
        if not quick:
            return f"so many log heads take long to fit to {target.label}"
    return None


def _fitted(rpe: RpeName, demand: Demand, heads: int, precision: str) -> KernelSum:
    kind = cast(Precision, precision)
    return fit(rpe, _targets(demand), heads, precision=kind, rounding=ROUNDING, moves=MOVES[rpe])


def _model(design: Design) -> Transformer:
    return design_to_model(design)


def _sum_text(found: KernelSum) -> str:
    return f"one layer of {_count(found.heads, f'{found.rpe} head')}, mass {found.mass:.2g}"


def _adaptive_heads(book: _Book) -> None:
    asked = book.asked
    for precision in PRECISIONS:
        curve = f"compiled, {precision}"
        try:
            demand = demand_of(asked.task, TOLERANCE, precision)
            assert isinstance(demand, AdaptiveDemand)
            most = max(len(demand.memories_of(level)) for level in range(demand.levels))
            for H in asked.values:
                book.say(f"{curve}: {_count(H, 'head')}")
                if most > H:
                    book.note(f"{curve}: none of {_count(H, 'head')}: {most} memories are recalled at once")
                    continue
                wiring = sums(demand, asked.rpe, "tmx", H // most)
                book.add(curve, H, wiring_to_model(wiring), f"{asked.rpe}-tmx, {wiring.why}")
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: {reason}")
    _note_form(book)


def _note_form(book: _Book) -> None:
    """What sums of this form cannot do; not a floor of the figure, for other models of these sizes are no such sums."""
    asked = book.asked
    assert isinstance(asked.task, Adaptive)
    for precision in PRECISIONS:
        for i, level in enumerate(asked.task.levels, start=1):
            lags = sorted(set(asked.task.lag_tables[i - 1].lags.ravel().tolist()))
            if level == 0 and 1 < lags[-1] <= FARTHEST_FORM:
                book.say("the least that sums of this form leave")
                if (least := floor_of_form(asked.rpe, lags, UNIT[precision])) <= 0:
                    continue
                book.note(
                    f"compiled, {precision}: of all sums of this form, however many heads, none recalls memory {i} with an "
                    f"error plus one rounding of its mass below {_down(least)} (proved)"
                )
                break


# -- floors -----------------------------------------------------------------------------------------------


def _add_floors(book: _Book, precisions: Sequence[str]) -> None:
    """The same at every size: no number of heads gets below."""
    asked = book.asked
    for precision in precisions:
        least = _floor(book, UNIT[precision])
        if least is not None:
            name = f"any {asked.encoding} heads, {precision}"
            book.floors.append(Floor(name, dict.fromkeys(asked.values, least), _says(asked, precision)))


def _says(asked: Asked, what: str) -> str:
    return (
        f"proved: in one layer no {asked.encoding} heads, however many, have an error plus one rounding of their mass "
        f"in {what} below it, over sequences of any length"
    )


def _floor(book: _Book, u: float) -> float | None:
    """E_attn + u mass of any heads, as an error of the output; None, with a reason, where nothing is proved."""
    asked = book.asked
    try:
        i, factor = _one_memory(asked.task)
        book.say("the least that any heads leave")
        target = memory_target(asked.task, i - 1)
        found, norm = lower_bound(asked.rpe, target, price=u).error, float(target.norm().upper())
        # A single head is not charged for rounding, and its mass is at most ||rho||_1 + E <= 2 ||rho||_1.
        least = (found - 2 * u * norm) * factor * (1 - 1e-12)
    except (BadInput, Obstacle) as reason:
        book.note(f"lower bound: {reason}")
        return None
    if least <= 0:
        book.note(f"lower bound: none above 0 was found for {asked.encoding} heads")
        return None
    return least


def _one_memory(task: Task) -> tuple[int, float]:
    """(i, |c| sup |x|) where every output that recalls something is c x_i plus what the present adds."""
    best: tuple[int, float] | None = None
    for formula in task.readouts:
        form = affine(formula.expression) if formula.expression is not None else None
        if form is None:
            raise Obstacle("the readout is not affine, and what is proved is an error of recall")
        recalled = {v: c for v, c in form.a.items() if c and _memory(v)}
        if len(recalled) != 1:
            continue
        ((variable, c),) = recalled.items()
        name = variable.rstrip(DIGITS)
        channel = next(channel for channel in task.channels if channel.name == name)
        if channel.domain[0].lo != -channel.domain[-1].hi:
            continue
        factor = abs(float(c)) * channel.magnitude * (1 - 1e-15)
        if best is None or factor > best[1]:
            best = _memory(variable), factor
    if best is None:
        raise Obstacle(
            "no output returns a single memory with a symmetric range, and errors of several may cancel"
        )
    return best


def _memory(variable: str) -> int:
    return int(variable[len(variable.rstrip(DIGITS)) :])


def capacity_floor(asked: Asked, architecture: Mapping[str, Any]) -> Floor | None:
    """The capacity bound for models of these sizes as they vary; None where it says nothing."""
    if architecture.get("attention") not in ("tmx", "dpf"):
        return None
    least: dict[int, float] = {}
    for value in asked.values:
        sizes = {**architecture, **({asked.vary: value} if asked.vary in architecture else {})}
        carried = sizes["layers"] * sizes["heads"] * sizes["value_dim"]
        open_ = [q for q in questions(asked.task).asked if q.reach < asked.length_at(value)]
        if carried < len(open_):
            least[value] = float(open_[carried].r)
    if not least:
        return None
    return Floor(
        "capacity",
        least,
        f"proved: weights of attention {architecture['attention']} factorise, and fewer numbers reach a position than "
        "can be asked for, whatever the weights",
    )


# -- width ------------------------------------------------------------------------------------------------


def _width(book: _Book) -> None:
    asked, curve = book.asked, "compiled, float32"
    book.note("lower bound: none is proved against the width")
    demand = demand_of(asked.task, TOLERANCE, "float32")
    exact = not any(demand.readout.E_ffn)
    if exact:
        need = demand.readout.width
        book.note(
            f"{curve}: the readout is exact with {_count(need, 'neuron')}, so the error does not fall with more"
        )
    for m in asked.values:
        book.say(f"{curve}: {_count(m, 'neuron')}")
        try:
            if exact and m < demand.readout.width:
                book.note(f"{curve}: none is built with {_count(m, 'neuron')}")
                continue
            ridge = demand.readout
            if not exact:
                reach = {n: box.hi - asked.task.domains[n][-1].hi for n, box in ridge.box.items()}
                ridge = readout_ridge(asked.task, max_width=m, reach=reach)
            model, route = _recalling(asked, replace(demand, readout=ridge))
            what = f"{route}, {_count(ridge.width, 'neuron')}, E_ffn at most {max(ridge.E_ffn):.2g}"
            book.add(curve, m, model, what)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: at {_count(m, 'neuron')}: {reason}")


def _recalling(asked: Asked, demand: Demand | AdaptiveDemand) -> tuple[Transformer, str]:
    """A model whose recall is as good as any route's, so that the readout decides."""
    if isinstance(demand, AdaptiveDemand):
        return wiring_to_model(ADAPTIVE_ROUTES["rotary"](demand)), "rotary recall"
    if isinstance(asked.task, Fixed):
        return _model(ROUTES["rotary"](demand)), "rotary recall"
    # Whatever is trained: lin heads fit every tail well (THEORY.md, section 5).
    found = _fitted("lin", demand, 2 * HEADS, demand.precision)
    return _model(kernel_layer(demand, found)), _sum_text(found)


# -- layers -----------------------------------------------------------------------------------------------


def _layers(book: _Book) -> None:
    asked, curve = book.asked, "compiled, float32"
    book.note("lower bound: none is proved against the number of layers")
    if not isinstance(asked.task, Fixed):
        book.note(
            f"{curve}: shifts by layers recall lags; {asked.task.kind} memories spread over all of them"
        )
        return
    if asked.encoding != "lin":
        book.note(f"{curve}: its shifts are of lin heads; no route has them of {asked.encoding} heads")
    demand = _demand(asked.task, "float32")
    for L in asked.values:
        step = math.ceil(asked.far / L)
        book.say(f"{curve}: {_count(L, 'layer')}")
        if step > FARTHEST:
            book.note(f"{curve}: none of {_count(L, 'layer')}: shifts by {step:,} take long to fit")
            continue
        try:
            design = depth(demand, step, asked.heads)
            what = f"{_count(len(design.layers), 'layer')} of shifts by up to {step}, {_count(design.heads, 'head')}"
            book.add(curve, L, _model(design), what)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: at {_count(L, 'layer')}: {reason}")


def _adaptive_layers(book: _Book) -> None:
    asked = book.asked
    book.note("lower bound: dot products do not factorise, so the capacity bound says nothing about them")
    demand = demand_of(asked.task, TOLERANCE, "float32")
    assert isinstance(demand, AdaptiveDemand)
    for route in ("rotary", "chain"):
        curve = f"compiled, {route}"
        book.say(curve)
        try:
            wiring = ADAPTIVE_ROUTES[route](demand)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: {reason}")
            continue
        need = len(wiring.stages)
        fits = [L for L in asked.values if need <= L]
        if len(fits) < len(asked.values):
            book.note(f"{curve}: takes {_count(need, 'layer')}; nothing is built with fewer")
        if fits:
            model = wiring_to_model(wiring)
            proved = None
            for L in fits:
                proved = book.add(curve, L, model, wiring.why, proved=proved)


# -- samples and length -----------------------------------------------------------------------------------


def _one_for_all(book: _Book) -> None:
    """One model, whose bound holds for every length and needs no samples."""
    asked = book.asked
    for curve, model, what in _of_the_sizes(book):
        proved: Certificate | None = None
        for value in asked.values:
            book.say(f"{curve}: {asked.vary} {value:,}")
            if asked.vary == "length" and proved is not None:
                # Not `add`: the same bound, but another length is measured anew.
                seen = book.measured(model, value)
                err = (None, None) if seen is None else (seen.err_sup, seen.err_mean_square)
                last = book.curves[curve][-1]
                book.curves[curve].append(replace(last, x=value, err_sup=err[0], err_mean_square=err[1]))
            else:
                proved = book.add(curve, value, model, what, proved=proved)
    if isinstance(asked.task, Adaptive):
        book.note(f"lower bound: none is proved of dot products against {asked.vary}")
    else:
        _add_floors(book, ("float32",))


def _of_the_sizes(book: _Book) -> Iterator[tuple[str, Transformer, str]]:
    """Models in float32: one layer of as many heads as are trained, and a head for every memory."""
    asked = book.asked
    demand = demand_of(asked.task, TOLERANCE, "float32")
    if isinstance(demand, Demand):
        curve = f"compiled, {asked.encoding} heads"
        try:
            if not demand.memories:
                raise Obstacle("nothing is recalled")
            heads = asked.heads if _slow(asked.rpe, demand, asked.heads) is None else SLOW_HEADS
            if reason := _slow(asked.rpe, demand, heads):
                raise Obstacle(reason)
            found = _fitted(asked.rpe, demand, heads, "float32")
            yield curve, _model(kernel_layer(demand, found)), _sum_text(found)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: {reason}")
    if isinstance(demand, AdaptiveDemand) or isinstance(asked.task, Fixed):
        try:
            if isinstance(demand, AdaptiveDemand):
                wiring = ADAPTIVE_ROUTES["rotary"](demand)
                yield "compiled, rotary", wiring_to_model(wiring), wiring.why
            else:
                design = ROUTES["rotary"](demand)
                yield "compiled, rotary", _model(design), design.why
        except (BadInput, Obstacle) as reason:
            book.note(f"compiled, rotary: {reason}")


# -- bits -------------------------------------------------------------------------------------------------


def _bits(book: _Book) -> None:
    asked = book.asked
    curve = f"compiled, {asked.encoding} heads"
    for bits in asked.values:
        name = FORMATS[bits]
        own = "float64" if name == "float64" else "float32"  # numbers of bfloat16 are numbers of float32
        book.say(f"{curve}: {name}")
        try:
            demand = _demand(asked.task, own)
            heads = asked.heads if _slow(asked.rpe, demand, asked.heads) is None else SLOW_HEADS
            if reason := _slow(asked.rpe, demand, heads):
                raise Obstacle(reason)
            found = _fitted(asked.rpe, demand, heads, name)
            book.add(curve, bits, _model(kernel_layer(demand, found)), _sum_text(found), precision=name)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: in {name}: {reason}")
    _bits_of_rotary(book)
    _floors_by_bits(book)


def _adaptive_bits(book: _Book) -> None:
    book.note("lower bound: none is proved of dot products against bits")
    _bits_of_rotary(book)


def _bits_of_rotary(book: _Book) -> None:
    """Heads that do not cancel: a head for every memory."""
    asked, curve = book.asked, "compiled, rotary"
    if not isinstance(asked.task, Fixed | Adaptive):
        return
    for bits in asked.values:
        name = FORMATS[bits]
        own = "float64" if name == "float64" else "float32"
        book.say(f"{curve}: {name}")
        try:
            demand = demand_of(asked.task, TOLERANCE, own)
            if isinstance(demand, AdaptiveDemand):
                wiring = ADAPTIVE_ROUTES["rotary"](demand)
                book.add(curve, bits, wiring_to_model(wiring), wiring.why, precision=name)
            else:
                design = ROUTES["rotary"](demand)
                book.add(curve, bits, _model(design), design.why, precision=name)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: in {name}: {reason}")


def _floors_by_bits(book: _Book) -> None:
    """Mass costs less with more bits, so what is proved of a finer format holds for a coarser one."""
    asked, best, least = book.asked, 0.0, dict[int, float]()
    for bits in reversed(asked.values):
        best = max(best, _floor(book, UNIT[FORMATS[bits]]) or 0.0)
        if best > 0:
            least[bits] = best
    if least:
        by_size = dict(sorted(least.items()))
        book.floors.append(Floor(f"any {asked.encoding} heads", by_size, _says(asked, "so many bits")))


def _down(E: float) -> str:
    """A lower bound in three digits, rounded down."""
    digits = 2 - math.floor(math.log10(E))
    return f"{math.floor(E * 10**digits) / 10**digits:g}"


def _count(n: int, what: str) -> str:
    return f"1 {what}" if n == 1 else f"{n:,} {what}s"
