"""lin and log heads without normalisation: the paper's construction for adaptive lags.

    weights e^{beta_h (phi(z) - phi(g))}, whose sum over the heads singles out the lag g

The logit is beta_h (g - T) - beta_h (z - 1) for lin, beta_h (log g - log T) - beta_h log z for log, so that no weight
exceeds 1. tmx adds the query term as it is, dp multiplies it by a constant key. What limits it is the precision wall.

| route | layers | how lags are known |
|---|---|---|
| lin-dp, log-dp, lin-tmx, log-tmx | a level of memories each, after one | neurons of the layer before compute them |
| lin-dp-deep, log-dp-deep | a memory each, after one: Theorem 4.4, Proposition 4.5 | the same, those of one memory per layer |
| lin-dp-direct, lin-tmx-direct | a level of memories each | they are affine in the present token, so the query reads them off it: Proposition 4.2 |

tmx-mul alone serves no lag between the first and the last: its logit <w, x_t> phi(z) rises or falls with z, so a head
finds the nearest token or the farthest.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from flint import arb, ctx

from memloci.approx.kernels.adaptive_sums import AdaptiveSum, adaptive_sum, coefficients, floor
from memloci.approx.kernels.lower_bounds import LEAST_CHARGE, chebyshev_mass
from memloci.approx.kernels.rpe import as_rpe
from memloci.circuits.circuit import ONE, Circuit, DecayKernel, Head, Layer, purpose
from memloci.core.errors import BadInput
from memloci.core.numbers import lower_number, number, power_of_two, upper_number
from memloci.routes.capacity import capacity
from memloci.routes.request import Obstacle, Request
from memloci.routes.symbols import Symbols, destinations, layer_count, memory_slots, recall_layers
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.names import channel_of, variable

WINDOW = 256  # what lies beyond is 0 up to the error; leaving it out keeps sums, and their roundings, short
PAID = 512.0  # tuned: roundings of the mass when heads are chosen; slow heads sum over the whole window
LIFT = 40.0  # log: a blank memory asks for e^-LIFT, which is nowhere
SUM_HEAD_COUNTS = (1, 2, 4, 6, 8, 12, 16, 24, 32)
FARTHEST_SUM_LAG = 16
EXTENDED = {"lin": 12, "log": 4}
NEAR_LAGS = {"lin": 16, "log": 6}


def sums(
    request: Request, rpe: str, attention: str, heads_each: int | None = None, form: str = ""
) -> Circuit:
    """`heads_each` asks for that many heads per memory, whatever they reach; `form`: "", "deep" or "direct"."""
    task, tables = request.task, request.tables()
    if request.kernels:
        raise Obstacle(
            f"it sees a window of the past, and {request.kernels[0].target.label} spreads over all of it"
        )
    place = recall_layers(request, tables, lead=0 if form == "direct" else 1, one_each=form == "deep")
    if form == "direct":
        _require_affine(request, tables)
    count = max(place.values()) + 1
    questions, most = capacity(task), count * max(SUM_HEAD_COUNTS) * task.M * (task.d + 1)
    if questions > most:
        raise Obstacle(
            f"weights that factorise carry L H d_v numbers per position, here at most {most:,}; the task asks for "
            f"{questions:,}: two pasts agree on all of them (proved)"
        )
    late = {i: layer - 1 for i, layer in place.items()} if form == "deep" else {}
    symbols = Symbols(request, place.__getitem__, late=late)
    heads: list[list[Head]] = [[] for _ in range(count)]
    fits: dict[tuple[int, ...], AdaptiveSum] = {}
    for i, table in tables.items():
        read, to = destinations(symbols, i)
        lags = tuple(lag for lag in np.unique(table.lags).tolist() if lag)
        if 0 in table.cells:
            symbols.layer_for(i).purpose = f"memory {i} at lag 0"
            payloads = [(s, target, request.sizes[s]) for s, target in zip(read, to, strict=True)]
            symbols.gate(i, lambda lags: lags == 0, payloads)
        if not lags:
            continue
        if lags not in fits:
            fits[lags] = (
                _sum(rpe, lags, heads_each, request.precision)
                if heads_each
                else _fewest_heads(request, rpe, lags, _tolerated_error(request, i))
            )
        symbols.layer_for(i).purpose = f"lag of memory {i}"
        asks = (
            _lag_read_off(table)
            if form == "direct" and not table.parents
            else _lag_by_neurons(symbols, rpe, i)
        )
        heads[place[i]] += _heads(fits[lags], i, attention, asks, read, to)
    worst = max(fits.values(), key=lambda one: one.paid)
    H = max(map(len, heads))
    reason = layer_count(request, len(heads), one_each=form == "deep")
    if form == "direct":
        reason = (
            f"{len(heads)} layer{'s' if len(heads) > 1 else ''}, for queries read lags off the present token"
        )
    why = (
        f"{reason}; {H} head{'s' if H > 1 else ''}, mass {upper_number(worst.mass)}: l1 error "
        f"{upper_number(worst.error)} in exact arithmetic, {worst.bits} bits"
    )
    window = max(WINDOW, 4 * max(table.bound for table in tables.values()))
    layers = [
        Layer(attention, rpe, "none", tuple(layer_heads), symbols.neurons(s), window=window)
        for s, layer_heads in enumerate(heads)
    ]
    route = f"{rpe}-{attention}" + (f"-{form}" if form else "")
    return request.circuit(route, why, layers, memory_slots(request, tables), symbols.origins)


def _require_affine(request: Request, tables: Mapping[int, LagTable]) -> None:
    for i, table in tables.items():
        if not table.parents and table.affine is None:
            raise Obstacle(
                f"the lag of memory {i}, {table.formula}, is not an affine function of the present token's symbols, so neurons "
                "must compute it"
            )


class Query(NamedTuple):
    """The lag in the stream, or its logarithm with a lift: slot -> coefficient, and what is added."""

    slots: dict[str, float]
    constant: float
    lift: float = 0.0  # log: of what a blank memory asks for


def _lag_read_off(table: LagTable) -> Query:
    """A lag that is affine in the present token."""
    assert table.affine is not None
    slopes, constant = table.affine
    return Query({channel_of(name): float(a) for name, a in slopes.items() if a}, float(constant))


def _lag_by_neurons(symbols: Symbols, rpe: str, i: int) -> Query:
    """The slot in which neurons compute the lag of memory i."""
    slot, nested = f"lag of {i}", bool(symbols.request.task.parents[i - 1])
    lift = LIFT if rpe == "log" and (nested or 0 in symbols.table_of(i).cells) else 0.0
    if rpe == "lin":
        value: Callable[[np.ndarray], np.ndarray] = lambda g: g * 1.0
    else:
        value = lambda g: np.where(g > 0, np.log(np.maximum(g, 1)) + lift, 0.0)
    symbols.table(i, lambda lags: value(lags)[..., None], (slot,))
    return Query({slot: 1.0}, 0.0, lift)


def _heads(
    best: AdaptiveSum, i: int, attention: str, lag: Query, read: list[str], to: list[str]
) -> list[Head]:
    """The heads that the lag of memory i steers."""
    anchor = best.lags[-1] - 1.0 if best.rpe == "lin" else lag.lift + math.log(best.lags[-1])
    made = []
    for beta, gain in zip(best.exponents, _gains(best), strict=True):
        asks = {slot: beta * a for slot, a in lag.slots.items()} | {ONE: beta * (lag.constant - anchor)}
        writes = {target: {slot: gain} for slot, target in zip(read, to, strict=True)}
        head = Head(purpose("recall", f"memory {i}", best.heads), tuple(read), writes, DecayKernel(beta))
        if attention == "tmx":
            made.append(replace(head, gate=asks))
        else:
            one = np.ones(1)
            made.append(replace(head, query={s: w * one for s, w in asks.items()}, key={ONE: one}))
    return made


def _tolerated_error(request: Request, i: int) -> float:
    """The l1 error that memory i may have: for the readout, and to keep symbols within their margin."""
    task, bound = request.task, math.inf
    if any(variable(name, i) in request.readout.variables for name in request.channels):
        bound = request.E_attn
    if any(i in parents for parents in task.parents):
        for channel in task.channels:
            if variable(channel.name, i) in task.lag_variables:
                gaps = [b.lo - a.hi for a, b in zip(channel.domain[:-1], channel.domain[1:], strict=True)]
                bound = min([bound, 0.1, *(0.2 * gap / channel.magnitude for gap in gaps)])
    return bound if math.isfinite(bound) else 0.1


def _fewest_heads(request: Request, rpe: str, lags: tuple[int, ...], enough: float) -> AdaptiveSum:
    if lags != (1,):
        _refuse_beyond_the_wall(request, rpe, lags, enough)
    best = None
    for heads in SUM_HEAD_COUNTS if lags != (1,) else (1,):
        request.report(f"{rpe}, {heads} heads")
        try:
            candidate = _sum(rpe, lags, heads, request.precision)
        except BadInput as error:
            raise Obstacle(str(error)) from None
        if best is not None and heads > 8 and candidate.paid > 0.8 * best.paid:
            break
        best = candidate if best is None or candidate.paid < best.paid else best
        if best.paid <= 0.5 * enough:
            break
    assert best is not None
    return best


def _refuse_beyond_the_wall(request: Request, rpe: str, lags: tuple[int, ...], enough: float) -> None:
    """Error plus the least that a certificate charges for the mass has a floor that no heads get under."""
    what = f"lags up to {lags[-1]} with {rpe} heads without normalisation"
    if (
        rpe == "lin" and lags[-1] > FARTHEST_SUM_LAG
    ):  # adaptive recall costs what recalling the farthest lag costs
        mass = chebyshev_mass(lags[-1], min(enough, 0.5)).log2
        if mass + math.log2(LEAST_CHARGE * request.u) > math.log2(enough):
            raise Obstacle(
                f"not tried: {what} need at least {power_of_two(mass)} of mass, whatever the heads (proved), and "
                f"{request.precision} has {request.format.bits} bits"
            )
    request.report(f"{rpe}, lags up to {lags[-1]}: the least that any heads leave")
    few = tuple(g for g in lags if g <= NEAR_LAGS[rpe])  # what is impossible for some of the lags is for all
    least = _floor(rpe, few if len(few) > 1 else lags, LEAST_CHARGE * request.u)
    if least > enough:
        raise Obstacle(
            f"not tried: {what}: error and one rounding of the mass in {request.precision}, less than any certificate "
            f"charges, leave at least {lower_number(least)}, whatever the heads (proved); {number(enough)} is asked"
            f"{_with_more_bits(rpe, lags, enough)}"
        )


def _with_more_bits(rpe: str, lags: tuple[int, ...], enough: float) -> str:
    """What extended precision would reach, where it can be said within seconds."""
    if lags[-1] > EXTENDED[rpe]:
        return ""
    for bits in (64, 80, 96, 128):
        finer = adaptive_sum(rpe, lags, 32, precision=bits, rounding=PAID)  # type: ignore[arg-type]
        if finer.paid <= enough:
            return f"; numbers of {bits} bits reach {number(finer.paid)} with {finer.heads} heads"
    return ""


# tmx and dp ask the same.
@lru_cache(maxsize=64)
def _sum(rpe: str, lags: tuple[int, ...], heads: int, precision: str) -> AdaptiveSum:
    return adaptive_sum(rpe, lags, heads, precision=precision, rounding=PAID)  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def _floor(rpe: str, lags: tuple[int, ...], price: float) -> float:
    return floor(rpe, lags, price)  # type: ignore[arg-type]


def _gains(adaptive_sum: AdaptiveSum) -> list[float]:
    """alpha_h e^{-beta_h phi(T)}, anchored so that the largest weight is 1."""
    rpe, T = as_rpe(adaptive_sum.rpe), adaptive_sum.lags[-1]
    gains = []
    for a, beta in zip(
        coefficients(rpe, adaptive_sum.exponents, adaptive_sum.alpha, T), adaptive_sum.exponents, strict=True
    ):
        with ctx.workprec(256):
            scale = rpe.scale_arb(arb(beta))
            gains.append(float((a * scale * (arb(-beta).exp() if rpe.name == "lin" else arb(1))).mid()))
    return gains


ROUTES = {
    f"{rpe}-{attention}{form and '-' + form}": (
        lambda request, rpe=rpe, attention=attention, form=form: sums(request, rpe, attention, form=form)
    )
    for rpe, attention, form in (
        *itertools.product(("lin", "log"), ("tmx", "dp"), ("",)),
        *itertools.product(("lin", "log"), ("dp",), ("deep",)),
        *itertools.product(("lin",), ("tmx", "dp"), ("direct",)),
    )
}
