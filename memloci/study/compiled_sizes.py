"""Compiled models of every size that is asked for: what is proved of each, what was seen, and what no size can do.

| varies | compiled | lower bound |
|---|---|---|
| heads | sums of at most H heads, in float32 and float64 | at one rounding of the mass; where a lag depends on content, the capacity bound |
| width | the readout with at most m neurons behind near exact recall | none |
| layers | chains of shifts; where a lag depends on content, a head per memory from K + 2 layers on | none |
| samples | one model for all: weights by construction need no samples | at one rounding of the mass |
| length | one model for all: its bound holds at every length | none |
| bits | kernel sums for each format, and heads that do not cancel | at one rounding of the mass |

More heads can be idle, and so can layers and neurons: a curve keeps the best model that is not larger.

Proved: every E; floors are in compiled_floors.py. Observed: every err. Tuned: which heads are fitted, and for how long.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from memloci.approx.kernels.kernel_sums import EXACT, KernelSum, fit
from memloci.approx.kernels.rpe import RpeName, as_rpe
from memloci.approx.kernels.targets import SingleLag
from memloci.approx.readouts.ridge_sums import readout_ridge
from memloci.certify.certificate import Certificate
from memloci.circuits.circuit import Circuit
from memloci.circuits.compile import compile_circuit
from memloci.core.errors import BadInput
from memloci.core.numbers import literal, number
from memloci.core.precision import DEFAULT, PRECISIONS
from memloci.core.proved import Proved
from memloci.model.transformer import Transformer
from memloci.routes.depth import depth
from memloci.routes.one_layer import kernel_circuit
from memloci.routes.registry import ROUTES
from memloci.routes.request import ROUNDING, Obstacle, Request
from memloci.routes.sums import sums
from memloci.study.compiled_curves import (
    DEFAULT_HEADS,
    FARTHEST_FIT,
    PRECISION_OF_BITS,
    SHOWN,
    TOLERANCE,
    CompiledCurves,
    CompiledResults,
    RatesRequest,
)
from memloci.study.compiled_floors import add_floors, floors_by_bits, note_form
from memloci.synthesize import request_of
from memloci.tasks.memories.lag_table import LagTable
from memloci.theory.lemma_f1 import heads_enough, lemma_heads

MOVES = {"lin": 8, "log": 0}  # tuned: of exponents
SLOW_HEADS = 4  # tuned: log heads fitted to kernels unlike them; 8 take half a minute
NEAR = 4  # lags that log heads are fitted to quickly

Built = tuple[Circuit, str]  # a circuit, and what to say of it


def compiled(
    request: RatesRequest, progress: Callable[[str, float], None] = lambda text, done: None
) -> CompiledResults:
    """Everything that needs no training."""
    done = 0.0

    def say(text: str) -> None:
        nonlocal done
        done += 0.1 * (1 - done)  # how many steps there will be depends on what they find
        progress(text, done)

    curves = CompiledCurves(request, say)
    try:
        match request.vary:
            case "heads":
                _heads(curves)
            case "width":
                _width(curves)
            case "layers":
                _layers(curves)
            case "bits":
                _bits(curves)
            case _:
                _one_for_all(curves)
    except (BadInput, Obstacle) as reason:
        curves.note(f"compiled models: {reason}")
    return curves.results()


def _recalled(rates: RatesRequest, precision: str) -> Request:
    """What is asked of routes, where something is to be recalled."""
    request = request_of(rates.task, TOLERANCE, precision)
    if not request.read:
        raise Obstacle("nothing is recalled")
    return request


# -- heads ------------------------------------------------------------------------------------------------


def _heads(curves: CompiledCurves) -> None:
    rates = curves.request
    of_heads = _kernel_heads if rates.task.stationary else _pointer_heads
    for precision in SHOWN:
        curve = f"compiled, {precision}"
        try:
            request = _recalled(rates, precision)
        except (BadInput, Obstacle) as reason:
            curves.note(f"{curve}: {reason}")
            continue
        for H in rates.values:
            curves.report(f"{curve}: {_count(H, 'head')}")
            try:
                circuit, what = of_heads(rates.rpe, request, H, precision)
                curves.add(curve, H, compile_circuit(circuit), what)
            except (BadInput, Obstacle) as reason:
                curves.note(f"{curve}: none of {_count(H, 'head')}: {reason}")
    if rates.task.stationary:
        _lemma(curves)
    (add_floors if rates.task.stationary else note_form)(curves, SHOWN)


def _lemma(curves: CompiledCurves) -> None:
    """The heads of the paper's own proof, beside ours: compiled in the formats, and with exact coefficients."""
    rates, request = curves.request, _recalled(curves.request, DEFAULT)
    lags = [target.lag for target in request.targets if isinstance(target, SingleLag)]
    if len(lags) < len(request.targets):
        return  # it is about lags
    needs = heads_enough(rates.rpe, max(lags), TOLERANCE)
    if needs is not None:
        curves.note(
            f"Lemma F.1: with its constant (docs/theory.md), {len(lags) * needs:,} {rates.encoding} heads are enough for an l1 "
            f"error of {literal(TOLERANCE)} at {'lag' if len(lags) == 1 else 'lags up to'} {max(lags):,}, in exact arithmetic"
        )
    if rates.rpe != "lin":
        curves.note("Lemma F.1: none of its log heads are fitted, for that takes minutes")
        return
    for precision in (*SHOWN, EXACT):
        curve = f"Lemma F.1, {precision}"
        for H in rates.values:
            curves.report(f"{curve}: {_count(H, 'head')}")
            try:
                lemma = lemma_heads(request.targets, H, precision)
                what = f"exponents 0.01 (k + 1), mass {number(lemma.mass, 2)}"
                if precision == EXACT:
                    curves.add_exact(curve, H, _through_the_readout(request, lemma), what)
                else:
                    circuit = kernel_circuit(_recalled(rates, precision), lemma)
                    curves.add(curve, H, compile_circuit(circuit), what)
            except (BadInput, Obstacle) as reason:
                curves.note(f"{curve}: none of {_count(H, 'head')}: {reason}")


def _through_the_readout(request: Request, kernels: KernelSum) -> Proved:
    """Lip(f) E_attn: what these errors of recall make of the outputs, if f itself is exact."""
    errors = dict(zip(kernels.targets, (E for _, E in kernels.errors), strict=True))
    parts = [
        request.task.lip_f[name] * request.sizes[channel] * errors[target]
        for name, channel, target in request.kernel_variables
    ]
    return Proved(math.nextafter(math.fsum(parts) * (1 + 4 * 2.0**-52), math.inf))


def _kernel_heads(rpe: RpeName, request: Request, heads: int, precision: str) -> Built:
    """One layer of as many heads as a kernel sum may have; `precision` is that of its coefficients."""
    if reason := _slow(rpe, request, heads):
        raise Obstacle(reason)
    fitted = fit(rpe, request.targets, heads, precision=precision, rounding=ROUNDING, moves=MOVES[rpe])
    return kernel_circuit(request, fitted), _sum_text(fitted)


def _pointer_heads(rpe: RpeName, request: Request, heads: int, precision: str) -> Built:
    """The paper's sums of heads whose query is the lag, as many for each memory as there is room."""
    levels = [request.task.levels[i - 1] for i in request.tables()]
    most = max(levels.count(level) for level in levels)
    if most > heads:
        raise Obstacle(f"{most} memories are recalled at once")
    circuit = sums(request, rpe, "tmx", heads // most)
    return circuit, f"{circuit.route}, {circuit.why}"


def _slow(rpe: RpeName, request: Request, heads: int) -> str | None:
    """Why a fit would take longer than a reader waits."""
    far = max((t.lag for t in request.targets if isinstance(t, SingleLag)), default=0)
    if far > FARTHEST_FIT:
        return f"lag {far:,} takes long to fit; lags up to {FARTHEST_FIT} are fitted"
    if rpe == "lin" or heads <= SLOW_HEADS:
        return None
    for target in request.targets:
        spectrum = target.spectrum(as_rpe(rpe))
        quick = target.lag <= NEAR if isinstance(target, SingleLag) else spectrum and not spectrum.powers
        if not quick:
            return f"so many log heads take long to fit to {target.label}"
    return None


def _of_as_many(curves: CompiledCurves, curve: str, request: Request, precision: str) -> Built:
    """Of as many heads as are trained, or of fewer where that would take long."""
    rates, heads = curves.request, curves.request.heads
    if reason := _slow(rates.rpe, request, heads):
        heads = min(heads, SLOW_HEADS)
        curves.note(f"{curve}: {_count(heads, 'head')} in place of {rates.heads}: {reason}")
    return _kernel_heads(rates.rpe, request, heads, precision)


def _sum_text(kernel_sum: KernelSum) -> str:
    return f"one layer of {_count(kernel_sum.heads, f'{kernel_sum.rpe} head')}, mass {number(kernel_sum.mass, 2)}"


# -- width ------------------------------------------------------------------------------------------------


def _width(curves: CompiledCurves) -> None:
    rates, curve = curves.request, f"compiled, {DEFAULT}"
    curves.note("lower bound: none is proved against the width")
    request = request_of(rates.task, TOLERANCE, DEFAULT)
    need, exact = request.readout.width, not any(request.readout.E_ffn)
    if exact:
        curves.note(
            f"{curve}: the readout is exact with {_count(need, 'neuron')}, so the error does not fall with more"
        )
    for m in rates.values:
        curves.report(f"{curve}: {_count(m, 'neuron')}")
        try:
            if exact and m < need:
                curves.note(f"{curve}: none is built with {_count(m, 'neuron')}")
                continue
            ridge = request.readout
            if not exact:
                reach = {n: box.hi - rates.task.domains[n][-1].hi for n, box in ridge.box.items()}
                ridge = readout_ridge(rates.task, max_width=m, reach=reach)
            circuit, recall = _recalling(replace(request, readout=ridge))
            what = (
                f"{recall}, {_count(ridge.width, 'neuron')}, E_ffn at most {number(Proved(max(ridge.E_ffn)))}"
            )
            curves.add(curve, m, compile_circuit(circuit), what)
        except (BadInput, Obstacle) as reason:
            curves.note(f"{curve}: at {_count(m, 'neuron')}: {reason}")


def _recalling(request: Request) -> Built:
    """A circuit whose recall is as good as any route's, so that the readout decides."""
    if not request.read:
        return ROUTES["one-layer-lin"](request), "no recall"
    if request.kernels and request.task.stationary:
        # Whatever is trained: lin heads fit every tail well (docs/theory.md, section 5).
        return _kernel_heads("lin", request, 2 * DEFAULT_HEADS, request.precision)
    return ROUTES["rotary"](request), "rotary recall"


# -- layers -----------------------------------------------------------------------------------------------


def _layers(curves: CompiledCurves) -> None:
    if curves.request.task.stationary:
        curves.note("lower bound: none is proved against the number of layers")
        _shifts(curves)
        return
    curves.note("lower bound: dot products do not factorise, so the capacity bound says nothing about them")
    request = _recalled(curves.request, DEFAULT)
    for route in ("rotary", "chain"):
        _route(curves, request, route)


def _shifts(curves: CompiledCurves) -> None:
    """As many layers as there may be, each a shift that is as short as they allow."""
    rates, curve = curves.request, f"compiled, {DEFAULT}"
    if rates.encoding != "lin":
        curves.note(f"{curve}: with shifts by lin heads, for no route has them of {rates.encoding} heads")
    request = _recalled(rates, DEFAULT)
    far = max(rates.task.fixed_lags.values(), default=0)
    for L in rates.values:
        step = max(1, math.ceil(far / L))
        curves.report(f"{curve}: {_count(L, 'layer')}")
        if step > FARTHEST_FIT:
            curves.note(f"{curve}: none of {_count(L, 'layer')}: shifts by {step:,} take long to fit")
            continue
        try:
            circuit = depth(request, step, rates.heads)
            what = f"{_count(len(circuit.layers), 'layer')} of shifts by up to {step}, {_count(circuit.heads, 'head')}"
            curves.add(curve, L, compile_circuit(circuit), what)
        except (BadInput, Obstacle) as reason:
            curves.note(f"{curve}: none of {_count(L, 'layer')}: {reason}")


def _route(curves: CompiledCurves, request: Request, route: str) -> None:
    """The same model at every number of layers that is enough for it."""
    rates, curve = curves.request, f"compiled, {route}"
    curves.report(curve)
    try:
        circuit = ROUTES[route](request)
    except (BadInput, Obstacle) as reason:
        curves.note(f"{curve}: {reason}")
        return
    need = len(circuit.layers)
    fits = [L for L in rates.values if need <= L]
    if len(fits) < len(rates.values):
        curves.note(f"{curve}: takes {_count(need, 'layer')}; nothing is built with fewer")
    if fits:
        model, proved = compile_circuit(circuit), None
        for L in fits:
            proved = curves.add(curve, L, model, circuit.why, proved=proved)


# -- samples and length -----------------------------------------------------------------------------------


def _one_for_all(curves: CompiledCurves) -> None:
    """One model, whose bound holds for every length and needs no samples."""
    rates = curves.request
    for curve, (circuit, what) in _of_the_sizes(curves, DEFAULT, DEFAULT):
        model, proved = compile_circuit(circuit), None
        for value in rates.values:
            curves.report(f"{curve}: {rates.vary} {value:,}")
            proved = _again(curves, curve, value, model, what, proved)
    if not rates.task.stationary:
        curves.note(f"lower bound: none is proved of dot products against {rates.vary}")
    elif rates.vary == "length":
        curves.note("lower bound: proved over sequences of any length together, and of no single length")
    else:
        add_floors(curves, (DEFAULT,))


def _again(
    curves: CompiledCurves, curve: str, value: int, model: Transformer, what: str, proved: Certificate | None
) -> Certificate:
    """A point of a model that is the same at all of them; another length is measured anew."""
    if proved is None or curves.request.vary != "length":
        return curves.add(curve, value, model, what, proved=proved)
    measurement = curves.measured(model, value)
    err = (None, None) if measurement is None else (measurement.err_sup, measurement.err_mean_square)
    last = curves.curves[curve][-1]
    curves.curves[curve].append(replace(last, x=value, err_sup=err[0], err_mean_square=err[1]))
    return proved


def _of_the_sizes(
    curves: CompiledCurves, stored_precision: str, precision: str
) -> Iterator[tuple[str, Built]]:
    """Circuits in `stored_precision`, whose numbers are those of `precision`: one layer of as many heads as are
    trained, and a head for every memory, which need not cancel."""
    rates = curves.request
    made: dict[str, Callable[[str, Request], Built]] = {}
    if rates.task.stationary:
        made[f"compiled, {rates.encoding} heads"] = lambda curve, request: _of_as_many(
            curves, curve, request, precision
        )
    if any(isinstance(recall, LagTable) for recall in rates.task.recalls):
        made["compiled, rotary"] = lambda curve, request: _rotary(request)
    for curve, make in made.items():
        curves.report(f"{curve}: {precision}")
        try:
            yield curve, make(curve, _recalled(rates, stored_precision))
        except (BadInput, Obstacle) as reason:
            where = f" in {precision}:" if rates.vary == "bits" else ""
            curves.note(f"{curve}:{where} {reason}")


def _rotary(request: Request) -> Built:
    circuit = ROUTES["rotary"](request)
    return circuit, circuit.why


# -- bits -------------------------------------------------------------------------------------------------


def _bits(curves: CompiledCurves) -> None:
    rates = curves.request
    for bits in rates.values:
        name = PRECISION_OF_BITS[bits]
        evaluated_in = (
            name if PRECISIONS[name].evaluates else DEFAULT
        )  # whose numbers include those of the format
        for curve, (circuit, what) in _of_the_sizes(curves, evaluated_in, name):
            curves.add(curve, bits, compile_circuit(circuit), what, precision=name)
    if rates.task.stationary:
        floors_by_bits(curves)
    else:
        curves.note("lower bound: none is proved of dot products against bits")


def _count(n: int, what: str) -> str:
    return f"1 {what}" if n == 1 else f"{n:,} {what}s"
