"""Compiled models of every size that is asked for: what is proved of each, what was seen, and what no size can do.

| varies | compiled | lower bound |
|---|---|---|
| heads | kernel sums of at most H heads, in float32 and float64 | at one rounding of the mass; of adaptive memories, the capacity bound |
| width | the readout with at most m neurons behind near exact recall | none |
| layers | chains of shifts (fixed), a head per memory from K + 2 layers on (adaptive) | none |
| samples | one model for all: weights by construction need no samples | at one rounding of the mass |
| length | one model for all: its bound holds at every length | none |
| bits | kernel sums for each format, and heads that do not cancel | at one rounding of the mass |

More heads can be idle, and so can layers and neurons: a curve keeps the best model that is not larger.

Proved: every E; floors are in compiled_floors.py. Observed: every err. Tuned: which heads are fitted, and for how long.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

from memloci.approx.kernel_sums import KernelSum, Precision, fit
from memloci.approx.ridge_sums import readout_ridge
from memloci.approx.rpe import RpeName, as_rpe
from memloci.approx.targets import AbstractTarget, SingleLag
from memloci.certifier.certificate import Certificate, Proved
from memloci.compiler.design_to_model import design_to_model
from memloci.compiler.wiring_to_model import wiring_to_model
from memloci.errors import BadInput
from memloci.model.transformer import Transformer
from memloci.numbers import number
from memloci.planner.adaptive_routes import ADAPTIVE_ROUTES, AdaptiveDemand, sums
from memloci.planner.make_plan import PRECISIONS, demand_of
from memloci.planner.routes import ROUNDING, ROUTES, Demand, Obstacle, depth, kernel_layer
from memloci.study.compiled_book import FARTHEST, FORMATS, HEADS, TOLERANCE, Asked, Book, Compiled
from memloci.study.compiled_floors import add_floors, floors_by_bits, note_form
from memloci.tasks.adaptive import Adaptive
from memloci.tasks.base import Task
from memloci.tasks.fixed import Fixed

MOVES = {"lin": 8, "log": 0}  # tuned: of exponents
SLOW_HEADS = 4  # tuned: log heads fitted to kernels unlike them; 8 take half a minute
NEAR = 4  # lags that log heads are fitted to quickly


def compiled(asked: Asked, progress: Callable[[str, float], None] = lambda text, done: None) -> Compiled:
    """Everything that needs no training."""
    told = 0.0

    def say(text: str) -> None:
        nonlocal told
        told += 0.1 * (1 - told)  # how many steps there will be depends on what they find
        progress(text, told)

    book = Book(asked, say)
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


def _heads(book: Book) -> None:
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
                book.add(curve, H, design_to_model(kernel_layer(demand, found)), _sum_text(found))
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: {reason}")
    add_floors(book, PRECISIONS)


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


def _of_as_many(book: Book, curve: str, demand: Demand, precision: str) -> KernelSum:
    """Of as many heads as are trained, or of fewer where that would take long."""
    asked, heads = book.asked, book.asked.heads
    if reason := _slow(asked.rpe, demand, heads):
        heads = min(heads, SLOW_HEADS)
        if again := _slow(asked.rpe, demand, heads):
            raise Obstacle(again)
        book.note(f"{curve}: {_count(heads, 'head')} in place of {asked.heads}: {reason}")
    return _fitted(asked.rpe, demand, heads, precision)


def _sum_text(found: KernelSum) -> str:
    return f"one layer of {_count(found.heads, f'{found.rpe} head')}, mass {found.mass:.2g}"


def _adaptive_heads(book: Book) -> None:
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
    note_form(book)


# -- width ------------------------------------------------------------------------------------------------


def _width(book: Book) -> None:
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
            what = (
                f"{route}, {_count(ridge.width, 'neuron')}, E_ffn at most {number(Proved(max(ridge.E_ffn)))}"
            )
            book.add(curve, m, model, what)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: at {_count(m, 'neuron')}: {reason}")


def _recalling(asked: Asked, demand: Demand | AdaptiveDemand) -> tuple[Transformer, str]:
    """A model whose recall is as good as any route's, so that the readout decides."""
    if isinstance(demand, AdaptiveDemand):
        return wiring_to_model(ADAPTIVE_ROUTES["rotary"](demand)), "rotary recall"
    if isinstance(asked.task, Fixed):
        return design_to_model(ROUTES["rotary"](demand)), "rotary recall"
    # Whatever is trained: lin heads fit every tail well (THEORY.md, section 5).
    found = _fitted("lin", demand, 2 * HEADS, demand.precision)
    return design_to_model(kernel_layer(demand, found)), _sum_text(found)


# -- layers -----------------------------------------------------------------------------------------------


def _layers(book: Book) -> None:
    asked, curve = book.asked, "compiled, float32"
    book.note("lower bound: none is proved against the number of layers")
    if not isinstance(asked.task, Fixed):
        book.note(
            f"{curve}: shifts by layers recall lags; {asked.task.kind} memories spread over all of them"
        )
        return
    if asked.encoding != "lin":
        book.note(f"{curve}: with shifts by lin heads, for no route has them of {asked.encoding} heads")
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
            book.add(curve, L, design_to_model(design), what)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: at {_count(L, 'layer')}: {reason}")


def _adaptive_layers(book: Book) -> None:
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


def _one_for_all(book: Book) -> None:
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
    elif asked.vary == "length":
        book.note("lower bound: proved over sequences of any length together, and of no single length")
    else:
        add_floors(book, ("float32",))


def _of_the_sizes(book: Book) -> Iterator[tuple[str, Transformer, str]]:
    """Models in float32: one layer of as many heads as are trained, and a head for every memory."""
    asked = book.asked
    demand = demand_of(asked.task, TOLERANCE, "float32")
    if isinstance(demand, Demand):
        curve = f"compiled, {asked.encoding} heads"
        try:
            if not demand.memories:
                raise Obstacle("nothing is recalled")
            found = _of_as_many(book, curve, demand, "float32")
            yield curve, design_to_model(kernel_layer(demand, found)), _sum_text(found)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: {reason}")
    if isinstance(demand, AdaptiveDemand) or isinstance(asked.task, Fixed):
        try:
            if isinstance(demand, AdaptiveDemand):
                wiring = ADAPTIVE_ROUTES["rotary"](demand)
                yield "compiled, rotary", wiring_to_model(wiring), wiring.why
            else:
                design = ROUTES["rotary"](demand)
                yield "compiled, rotary", design_to_model(design), design.why
        except (BadInput, Obstacle) as reason:
            book.note(f"compiled, rotary: {reason}")


# -- bits -------------------------------------------------------------------------------------------------


def _bits(book: Book) -> None:
    asked = book.asked
    curve = f"compiled, {asked.encoding} heads"
    for bits in asked.values:
        name = FORMATS[bits]
        own = "float64" if name == "float64" else "float32"  # numbers of bfloat16 are numbers of float32
        book.say(f"{curve}: {name}")
        try:
            demand = _demand(asked.task, own)
            found = _of_as_many(book, curve, demand, name)
            book.add(
                curve, bits, design_to_model(kernel_layer(demand, found)), _sum_text(found), precision=name
            )
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: in {name}: {reason}")
    _bits_of_rotary(book)
    floors_by_bits(book)


def _adaptive_bits(book: Book) -> None:
    book.note("lower bound: none is proved of dot products against bits")
    _bits_of_rotary(book)


def _bits_of_rotary(book: Book) -> None:
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
                book.add(curve, bits, design_to_model(design), design.why, precision=name)
        except (BadInput, Obstacle) as reason:
            book.note(f"{curve}: in {name}: {reason}")


def _count(n: int, what: str) -> str:
    return f"1 {what}" if n == 1 else f"{n:,} {what}s"
