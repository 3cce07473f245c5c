"""Rotary heads: one per memory, whatever the lag.

    c sum_j cos(pi 2^-j (z - lag)):   two lags differ by an odd multiple of some 2^b, and there cos(pi 2^-b y) = -1,
                                      so every other lag loses at least 2 c of the logit

Fixed lags. A constant query and key in a window, log2(window) frequencies, normalised over the window.

Lags that neurons compute. The query carries the phases of the lag, softmax heads recall, one layer per level of
nesting. Softmax attends to something even when the memory lies before the start. So a first layer brings each token its
predecessor, and a memory at lag g >= 2 is read from its successor, position t - g + 1, as "the token before". Position
0 has no predecessor, so it is blank there: a sink, whose key attends a little less than a match does and far more than
anything else. Lags 1 and 0 are the token's own predecessor and the token itself, gated by the neurons that compute the
lag, while the head rests on the sink. Position, lag and length are unlimited: the frequencies pi 2^-j, j < 31, tell all
lags below 2^31 apart. Kernels are brought by a layer of their own in front.
"""

from dataclasses import replace

import numpy as np

from memloci.approx.readouts.lookup import TooLong
from memloci.circuits.circuit import ONE, Circuit, Head, Layer, PeakKernel, Turns, shifted, writes_each
from memloci.model.architecture import MAX_LAG
from memloci.routes.front import kernel_front
from memloci.routes.request import Obstacle, Request
from memloci.routes.single_lags import one_head_per_lag
from memloci.routes.symbols import Symbols, destinations, layer_count, memory_slots, recall_layers
from memloci.tasks.memories.lag_table import LagTable

FREQUENCIES = 31  # pi 2^-j: every lag below 2^31, which no position exceeds
SHARPER = 1.75  # tuned: c of a pointer, in units of the precision's own gap; e^-c is below the roundoff


def rotary(request: Request) -> Circuit:
    if request.task.stationary:
        return fixed(request)
    try:
        return pointers(request, lead=0)
    except TooLong:  # one layer more, in which the present token is compared with its letters
        return pointers(request, lead=1)


def fixed(request: Request) -> Circuit:
    """One head per lag, in a window."""
    lags = request.lags()
    if lags[-1] >= MAX_LAG:
        raise Obstacle(f"lag {lags[-1]:,} does not fit a window of {MAX_LAG:,}")
    frequencies = max(4, (lags[-1]).bit_length())
    window, c = 1 << frequencies, request.format.sharp  # e^-2c is below the roundoff
    heads = f"{len(lags)} rotary head{'s' if len(lags) > 1 else ''}"
    why = f"{heads} with {frequencies} frequencies, window {window:,}"
    peak = lambda lag: PeakKernel(lag, c, frequencies)
    return one_head_per_lag(request, "rotary", why, peak, "rope", window, key_dim=2 * frequencies)


def deep(request: Request) -> Circuit:
    """The same, one memory per layer: more layers, and in each of them one head and the neurons of one lag."""
    try:
        return pointers(request, lead=0, one_each=True)
    except TooLong:
        return pointers(request, lead=1, one_each=True)


def pointers(request: Request, lead: int, one_each: bool = False) -> Circuit:
    """One softmax head per memory: logit c sum_j cos(pi 2^-j (z - (g - 1)))."""
    tables, c = request.tables(), SHARPER * request.format.sharp
    place = recall_layers(request, tables, 1 + lead, one_each)
    late = {i: layer - 1 for i, layer in place.items()} if one_each else {}
    symbols = Symbols(request, place.__getitem__, lead, late)
    passed_on: list[str] = []
    reads = {i: destinations(symbols, i) for i in tables}
    for i, table in tables.items():
        read, to = reads[i]
        passed_on += read
        symbols.layer_for(i).purpose = f"query of memory {i}"
        cos, sin = _query_slots(i)
        symbols.table(
            i, lambda lags: _phases(np.asarray(lags - 1), c) * np.asarray(lags > 1)[..., None], (*cos, *sin)
        )
        for lag in (0, 1):
            if lag in table.cells:
                symbols.layer_for(i).purpose = f"memory {i} at lag {lag}"
                payloads = [
                    (shifted(s, lag), target, request.sizes[s]) for s, target in zip(read, to, strict=True)
                ]
                symbols.gate(i, lambda lags, lag=lag: lags == lag, payloads)
    passed_on = list(dict.fromkeys([*passed_on, ONE]))
    heads: list[tuple[Head, ...]] = [(_predecessor(passed_on, c),), *[()] * lead]
    for layer in range(1 + lead, max(place.values()) + 1):
        heads.append(tuple(_pointer(i, reads[i], c, tables[i]) for i in tables if place[i] == layer))
    layers = [
        Layer("dp", "rope", "softmax", layer_heads, symbols.neurons(s), key_dim=2 * _PAIRS)
        for s, layer_heads in enumerate(heads)
    ]
    count = max(len(layer_heads) for layer_heads in heads[1:])
    more = ", to compare the token with its letters first" if lead else ""
    any_lag = f"{count} softmax head{'s' if count > 1 else ''}, any lag, any length"
    front = kernel_front(request)
    why = f"{layer_count(request, len(layers) + len(front.layers), one_each)}{more}; {any_lag}{front.text}"
    slots = memory_slots(request, tables) | front.slots
    return request.circuit(
        "rotary-deep" if one_each else "rotary", why, [*front.layers, *layers], slots, symbols.origins
    )


def _query_slots(i: int) -> tuple[list[str], list[str]]:
    return [f"cos {j} of {i}" for j in range(FREQUENCIES)], [f"sin {j} of {i}" for j in range(FREQUENCIES)]


def _phases(z: np.ndarray, c: float) -> np.ndarray:
    """c cos(omega_j z) and -c sin(omega_j z): the query whose logit is c sum_j cos(omega_j (lag - z))."""
    j = np.arange(FREQUENCIES)
    turns = (np.asarray(z, dtype=np.int64)[..., None] * (1 << (31 - j))) % 2**32 / 2.0**31  # in units of pi
    return np.concatenate([c * _cos_pi(turns), -c * _cos_pi(turns - 0.5)], axis=-1)


def _cos_pi(x: np.ndarray) -> np.ndarray:
    """cos(pi x), exact at multiples of a half."""
    return np.where(np.mod(x, 1.0) == 0.5, 0.0, np.cos(np.pi * x))


TURNS = Turns((*(1 << (31 - j) for j in range(FREQUENCIES)), 0))
_PAIRS = FREQUENCIES + 1


def _unit(j: int) -> np.ndarray:
    """Coordinate j of a query or key; the second halves of the pairs start at _PAIRS."""
    e = np.zeros(2 * _PAIRS)
    e[j] = 1.0
    return e


def _predecessor(slots: list[str], c: float) -> Head:
    """The first layer: what was there one step before, and whether there was anything."""
    phase = _phases(np.array(1), c)
    query = sum(phase[j] * _unit(j) + phase[FREQUENCIES + j] * _unit(_PAIRS + j) for j in range(FREQUENCIES))
    key = sum(_unit(j) for j in range(FREQUENCIES))
    writes = writes_each(slots, [shifted(slot, 1) for slot in slots])
    head = Head("recalls the token before", tuple(slots), writes, TURNS, lag=1)
    return replace(head, query={ONE: np.asarray(query)}, key={ONE: np.asarray(key)})


def _pointer(i: int, reads: tuple[list[str], list[str]], c: float, table: LagTable) -> Head:
    """The head of memory i: asks for the lag in its query slots, rests on position 0 otherwise."""
    cos, sin = _query_slots(i)
    query = {slot: _unit(j) for j, slot in enumerate(cos)}
    query |= {slot: _unit(_PAIRS + j) for j, slot in enumerate(sin)}
    query[ONE] = c * (FREQUENCIES - 1) * _unit(FREQUENCIES)  # c below a match, c above all else
    rotating, sink = sum(_unit(j) for j in range(FREQUENCIES)), _unit(FREQUENCIES)
    key = {shifted(ONE, 1): np.asarray(rotating) - sink, ONE: sink}
    slots = tuple(shifted(slot, 1) for slot in reads[0])
    lag = (
        max(table.bound - 1, 0) if table.kernel else None
    )  # that of its successor; 0 is the rest on position 0
    head = Head(f"recalls memory {i}", slots, writes_each(slots, reads[1]), TURNS, lag=lag)
    return replace(head, query=query, key=key)


ROUTES = {"rotary": rotary, "rotary-deep": deep}
