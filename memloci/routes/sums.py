"""lin and log heads without normalisation: the paper's construction for adaptive lags.

    weights e^{beta_h (phi(z) - phi(g))}, whose sum over the heads singles out the lag g

The logit is beta_h (g - T) - beta_h (z - 1) for lin, beta_h (log g - log T) - beta_h log z for log, so that no weight
exceeds 1. tmx adds the query term as it is, dp multiplies it by a constant key. What limits it is the precision wall.

tmx-mul alone serves no lag between the first and the last: its logit <w, x_t> phi(z) rises or falls with z, so a head
finds the nearest token or the farthest.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

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
from memloci.routes.symbols import Symbols, destinations, layer_count, memory_slots
from memloci.tasks.names import variable

WINDOW = 256  # what lies beyond is 0 up to the error; leaving it out keeps sums, and their roundings, short
PAID = 512.0  # tuned: roundings of the mass when heads are chosen; slow heads sum over the whole window
LIFT = 40.0  # log: a blank memory asks for e^-LIFT, which is nowhere
SUM_HEAD_COUNTS = (1, 2, 4, 6, 8, 12, 16, 24, 32)
FARTHEST_SUM_LAG = 16
EXTENDED = {"lin": 12, "log": 4}
NEAR_LAGS = {"lin": 16, "log": 6}


def sums(request: Request, rpe: str, attention: str, heads_each: int | None = None) -> Circuit:
    """`heads_each` asks for that many heads per memory, whatever they reach."""
    task, tables, levels = request.task, request.tables(), request.task.levels
    if request.kernels:
        raise Obstacle(
            f"it sees a window of the past, and {request.kernels[0].target.label} spreads over all of it"
        )
    count = max(levels[i - 1] for i in tables) + 1
    asked, most = capacity(task), (count + 1) * max(SUM_HEAD_COUNTS) * task.M * (task.d + 1)
    if asked > most:
        raise Obstacle(
            f"weights that factorise carry L H d_v numbers per position, here at most {most:,}; the task asks for "
            f"{asked:,}: two pasts agree on all of them (proved)"
        )
    symbols = Symbols(request, lambda j: levels[j - 1] + 1)
    heads: list[list[Head]] = [[] for _ in range(count + 1)]
    found: dict[tuple[int, ...], AdaptiveSum] = {}
    for i, table in tables.items():
        read, to = destinations(symbols, i)
        lags = tuple(lag for lag in np.unique(table.lags).tolist() if lag)
        if 0 in table.cells:
            symbols.layer_for(i).purpose = f"memory {i} at lag 0"
            payloads = [(s, there, request.sizes[s]) for s, there in zip(read, to, strict=True)]
            symbols.gate(i, lambda lags: lags == 0, payloads)
        if not lags:
            continue
        if lags not in found:
            found[lags] = (
                _sum(rpe, lags, heads_each, request.precision)
                if heads_each
                else _fewest_heads(request, rpe, lags, _tolerated_error(request, i))
            )
        symbols.layer_for(i).purpose = f"lag of memory {i}"
        heads[levels[i - 1] + 1] += _heads(symbols, found[lags], i, attention, read, to)
    worst = max(found.values(), key=lambda one: one.paid)
    H = max(map(len, heads))
    why = (
        f"{layer_count(request, len(heads))}; {H} head{'s' if H > 1 else ''}, mass {upper_number(worst.mass)}: l1 error "
        f"{upper_number(worst.error)} in exact arithmetic, {worst.bits} bits"
    )
    window = max(WINDOW, 4 * max(table.bound for table in tables.values()))
    layers = [
        Layer(attention, rpe, "none", tuple(own), symbols.neurons(s), window=window)
        for s, own in enumerate(heads)
    ]
    return request.circuit(f"{rpe}-{attention}", why, layers, memory_slots(request, tables), symbols.origins)


def _heads(
    symbols: Symbols, best: AdaptiveSum, i: int, attention: str, read: list[str], to: list[str]
) -> list[Head]:
    """The neurons that compute the lag of memory i, and the heads that it steers."""
    slot, nested = f"lag of {i}", bool(symbols.request.task.parents[i - 1])
    lift = LIFT if nested or 0 in symbols.table_of(i).cells else 0.0
    if best.rpe == "lin":
        value: Callable[[np.ndarray], np.ndarray] = lambda g: g * 1.0
    else:
        value = lambda g: np.where(g > 0, np.log(np.maximum(g, 1)) + lift, 0.0)
    symbols.table(i, lambda lags: value(lags)[..., None], (slot,))
    anchor = best.lags[-1] - 1.0 if best.rpe == "lin" else lift + math.log(best.lags[-1])
    found = []
    for beta, gain in zip(best.exponents, _gains(best), strict=True):
        asks = {slot: beta, ONE: -beta * anchor}
        writes = {there: {slot: gain} for slot, there in zip(read, to, strict=True)}
        head = Head(purpose("recall", f"memory {i}", best.heads), tuple(read), writes, DecayKernel(beta))
        if attention == "tmx":
            found.append(replace(head, gate=asks))
        else:
            one = np.ones(1)
            found.append(replace(head, query={s: w * one for s, w in asks.items()}, key={ONE: one}))
    return found


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
            found = _sum(rpe, lags, heads, request.precision)
        except BadInput as error:
            raise Obstacle(str(error)) from None
        if best is not None and heads > 8 and found.paid > 0.8 * best.paid:
            break
        best = found if best is None or found.paid < best.paid else best
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
        found = adaptive_sum(rpe, lags, 32, precision=bits, rounding=PAID)  # type: ignore[arg-type]
        if found.paid <= enough:
            return f"; numbers of {bits} bits reach {number(found.paid)} with {found.heads} heads"
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
    f"{rpe}-{form}": (lambda request, rpe=rpe, form=form: sums(request, rpe, form))
    for rpe in ("lin", "log")
    for form in ("tmx", "dp")
}
