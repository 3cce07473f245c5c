"""A chain of exact shifts by one: T of them bring the last T tokens, and neurons pick one.

It attains the capacity bound, with one head of d values per layer. Kernels ride along in the first layer, as sums of
lin heads. What limits it is the number of layers.
"""

import numpy as np

from memloci.approx.readouts.ridge_exact import affine
from memloci.circuits.circuit import Circuit, DecayKernel, Head, Layer, shifted, writes_each
from memloci.routes.depth import MOST_LAYERS, with_kernels
from memloci.routes.request import Obstacle, Request
from memloci.routes.symbols import Symbols, destinations, layer_count, memory_slots


def chain(request: Request) -> Circuit:
    tables, levels = request.tables(), request.task.levels
    T = max(table.bound for table in tables.values())
    # What picks a token has no room for a readout that is more than affine.
    formulas = [formula.expression for formula in request.task.readouts]
    extra = 0 if all(f is not None and affine(f) is not None for f in formulas) else 1
    L = T + max(levels[i - 1] for i in tables) + extra
    if L > MOST_LAYERS:
        raise Obstacle(f"the farthest lag is {T:,}, one layer each; at most {MOST_LAYERS} layers are built")
    p = 2.5 * request.format.sharp  # e^-p is below the roundoff
    symbols = Symbols(request, lambda j: T + levels[j - 1])  # chosen by the neurons before
    passed_on: list[str] = []
    for i, table in tables.items():
        read, to = destinations(symbols, i)
        passed_on += read
        stage = T - 1 + levels[i - 1]
        symbols.layer(stage).purpose = f"memory {i} chosen"
        for lag in np.unique(table.lags).tolist():
            payloads = [
                (shifted(s, lag), target, request.sizes[s]) for s, target in zip(read, to, strict=True)
            ]
            symbols.gate(i, lambda lags, lag=lag: lags == lag, payloads, least_stage=stage)
    passed_on = list(dict.fromkeys(passed_on))
    layers = []
    for k in range(L):
        reads = tuple(shifted(slot, k) for slot in passed_on)
        writes = writes_each(reads, [shifted(slot, k + 1) for slot in passed_on])
        heads = (Head("shifts by 1", reads, writes, DecayKernel(p)),) if k < T else ()
        layers.append(Layer("dpf", "lin", "infinite", heads, symbols.neurons(k)))
    why = f"{T} exact shifts by 1, then a choice: {layer_count(request, L)}"
    slots = memory_slots(request, tables)
    if request.kernels:
        layers[0], more = with_kernels(request, layers[0])
        slots |= {w.name: w.name for w in request.kernels}
        why += more
    return request.circuit("chain", why, layers, slots, symbols.origins)


ROUTES = {"chain": chain}
