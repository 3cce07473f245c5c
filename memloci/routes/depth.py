"""Chains of short shifts: layer k brings the chain from lag (k - 1) step to k step, and lags in between branch off it.

    lag t = s + s + ... + r:   t / s layers, each an easy short lag

All lags share the chain. Kernels ride along in the first layer, as sums of lin heads. What limits it: rounding adds
up over the layers.
"""

import math

from memloci.approx.kernels.kernel_sums import fit
from memloci.approx.kernels.targets import SingleLag
from memloci.circuits.circuit import Circuit, DecayKernel, Head, Layer, purpose, shifted
from memloci.core.numbers import number
from memloci.core.proved import Proved
from memloci.routes.kernel_heads import fewest_heads, sum_heads
from memloci.routes.request import ROUNDING, Obstacle, Request
from memloci.routes.walls import refuse_far_lag

STEPS = (1, 2, 3, 4)  # shifts per layer that are tried
MOST_LAYERS = 256


def depth(request: Request, step: int, heads: int | None = None) -> Circuit:
    """`heads` asks for that many per layer, whatever they reach."""
    kernels = {(w.channel, w.target.lag) for w in request.fixed_kernels() if isinstance(w.target, SingleLag)}
    if not kernels:
        raise Obstacle("no single lag is recalled; shifts have nothing to bring")
    lags = sorted({lag for _, lag in kernels})
    L = math.ceil(lags[-1] / step)
    if L > MOST_LAYERS:
        raise Obstacle(f"lag {lags[-1]} in steps of {step} takes {L} layers; at most {MOST_LAYERS} are built")
    steps = sorted({step if lag % step == 0 else lag % step for lag in lags} | ({step} if L > 1 else set()))
    targets = [SingleLag(s) for s in steps]
    if heads is None:
        # Rough shifts could cancel over the layers, which is not proved either.
        loosest = max(request.loosest_for(target) for target in request.targets) / L
        refuse_far_lag("lin", step, request, loosest, f"each of {L} shifts by {step}", certain=L == 1)
        shift = fewest_heads("lin", targets, request, request.E_attn / L)
    else:
        shift = fit("lin", targets, heads, precision=request.precision, rounding=ROUNDING)
    row = {s: tuple(map(float, shift.coefficients[i])) for i, s in enumerate(steps)}
    layers = [_layer(k, step, kernels, row, shift.exponents) for k in range(1, L + 1)]
    slots = {
        w.name: shifted(w.channel, w.target.lag)
        for w in request.kernel_variables
        if isinstance(w.target, SingleLag)
    }
    what = "exact lag-1 shifts"
    if step > 1:
        what = f"shifts of up to {step}, l1 error {number(Proved(shift.error))} each"
    if request.kernels:
        layers[0], more = with_kernels(request, layers[0])
        slots |= {w.name: w.name for w in request.kernels}
        what += more
    return request.circuit(f"depth-{step}", f"{L} layers of {what}", layers, slots)


def with_kernels(request: Request, layer: Layer) -> tuple[Layer, str]:
    """The first layer, with heads that bring the kernels; and what to tell of them."""
    kernels = list(dict.fromkeys(w.target for w in request.kernels))
    best = fewest_heads("lin", kernels, request, request.E_attn)
    heads = (*layer.heads, *sum_heads(best, request.kernels))
    more = f"; kernels by {best.heads} lin heads of the first layer, l1 error {number(Proved(best.error))}"
    return Layer(layer.attention, layer.encoding, layer.normalisation, heads, layer.neurons), more


def _layer(
    k: int,
    step: int,
    variables: set[tuple[str, int]],
    row: dict[int, tuple[float, ...]],
    exponents: tuple[float, ...],
) -> Layer:
    """Layer k of the chain: from lag (k - 1) step on."""
    start, moves = (k - 1) * step, []  # (source, destination, gains)
    for channel in dict.fromkeys(channel for channel, _ in sorted(variables)):
        far = max(lag for c, lag in variables if c == channel)
        if k * step <= far:
            moves.append((shifted(channel, start), shifted(channel, k * step), row[step]))
        for c, lag in sorted(variables):
            if c == channel and start < lag < min(k * step, far + 1):
                moves.append((shifted(channel, start), shifted(channel, lag), row[lag - start]))
    reads = tuple(dict.fromkeys(source for source, _, _ in moves))
    heads = tuple(
        Head(
            purpose("shift", f"by up to {step}" if step > 1 else "by 1", len(exponents)),
            reads,
            {to: {source: gains[h]} for source, to, gains in moves},
            DecayKernel(p),
        )
        for h, p in enumerate(exponents)
    )
    return Layer("dpf", "lin", "infinite", heads)


ROUTES = {f"depth-{step}": (lambda request, step=step: depth(request, step)) for step in STEPS}
