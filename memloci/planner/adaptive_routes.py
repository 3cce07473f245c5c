"""The routes of adaptive memories: lags computed by neurons, tokens recalled by attention.

| route | layers | heads | what limits it |
|---|---|---|---|
| rotary | K + 2 | one per memory of a level | nothing: any lag, any length |
| chain | T + K | 1 | layers: it attains the capacity bound |
| lin-tmx, lin-dp, log-tmx, log-dp | K + 2 | several per memory | the precision wall |

tmx-mul alone serves no lag between the first and the last: its logit <w, x_t> phi(z) rises or falls with z, so a head
finds the nearest token or the farthest.

K counts nested levels; the paper's L = K + 1 + 1{M >= K + 1} is K + 2 where the levels are as many as K says.

Rotary. Softmax attends to something even when the memory lies before the start. So the first layer brings
each token its predecessor, and a memory at lag g >= 2 is read from its successor, position t - g + 1, as
"the token before". Position 0 has no predecessor, so it is blank there: a sink, whose key attends a little less than
a match does and far more than anything else. Lag 1 is the token's own predecessor, gated by the neurons
that compute the lag, while the head rests on the sink. Position, lag and length are unlimited: the
frequencies pi 2^-j, j < 31, tell all lags below 2^31 apart.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from flint import arb, ctx

from memloci.approx.adaptive_sums import AdaptiveSum, adaptive_sum, coefficients, floor
from memloci.approx.lookup import TooLong
from memloci.approx.lower_bounds import chebyshev_mass
from memloci.approx.ridge_exact import affine
from memloci.approx.ridge_sums import RidgeSum
from memloci.approx.rpe import as_rpe
from memloci.certifier.rounding import UNIT
from memloci.errors import BadInput
from memloci.planner.capacity import capacity
from memloci.planner.design import shifted
from memloci.planner.routes import ROUNDING, Obstacle
from memloci.planner.symbols import Symbols, memory_slot, presence_slot
from memloci.planner.wiring import ONE, Reader, Stage, Wiring, writes_each
from memloci.tasks.adaptive import Adaptive

FREQUENCIES = 31  # pi 2^-j: every lag below 2^31, which no position exceeds
SHARP = {"float32": 28.0, "float64": 56.0}  # c: e^-c is below the roundoff


@dataclass(frozen=True)
class AdaptiveDemand:
    """What must be recalled, and what is computed from it."""

    task: Adaptive
    readout: RidgeSum
    E_attn: float  # the error that the readout can bear, per unit of a memory's size
    precision: str
    say: Callable[[str], None] = field(default=lambda text: None)

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.task.channels)

    @property
    def size(self) -> dict[str, float]:
        return {channel.name: channel.magnitude for channel in self.task.channels} | {ONE: 1.0}

    @property
    def levels(self) -> int:
        return max(self.task.levels[i - 1] for i in self.read) + 1

    @property
    def read(self) -> list[int]:
        """The memories that the readout or a lag reads."""
        used = {*self.readout.variables, *(v for table in self.task.lag_tables for v in table.variables)}
        names = {i: {f"{channel}{i}" for channel in self.channels} for i in range(1, self.task.M + 1)}
        found = [i for i in names if names[i] & used]
        if not found:
            raise Obstacle("nothing is recalled")
        return found

    def memories_of(self, level: int) -> list[int]:
        return [i for i in self.read if self.task.levels[i - 1] == level]

    def holds(self) -> dict[str, str]:
        return {
            f"{channel}{i}": memory_slot(channel, i)
            for i in range(self.task.M + 1)
            for channel in self.channels
        }

    def count(self, layers: int) -> str:
        """How the layers compare with the paper's count."""
        task = self.task
        paper = task.K + 1 + (task.M >= task.K + 1)
        if layers == paper:
            return f"{layers} layers, the paper's K + 1 + 1{{M >= K + 1}}"
        if layers < paper:
            return (
                f"{layers} layers, {paper - layers} less than the paper's count: no chain of lags is deeper"
            )
        return f"{layers} layers, {layers - paper} more than the paper's count"


def _destinations(symbols: Symbols, demand: AdaptiveDemand, i: int) -> tuple[list[str], list[str]]:
    """(what is read of a token, where it goes) for memory i: channels, then presence where a lag needs it."""
    channels = symbols.channels_needed(i, demand.readout.variables)
    read, to = list(channels), [memory_slot(channel, i) for channel in channels]
    if symbols.presence_needed(i):
        read.append(ONE)
        to.append(presence_slot(i))
    return read, to


def _stages(symbols: Symbols, heads: list[tuple[Reader, ...]]) -> tuple[Stage, ...]:
    return tuple(
        Stage(own, symbols.stages[s].neurons() if s in symbols.stages else None)
        for s, own in enumerate(heads)
    )


# -- rotary -----------------------------------------------------------------------------------------------


def rotary(demand: AdaptiveDemand) -> Wiring:
    """One softmax head per memory: logit c sum_j cos(pi 2^-j (z - (g - 1)))."""
    try:
        return _rotary(demand, lead=0)
    except TooLong:  # one layer more, in which the present token is compared with its letters
        return _rotary(demand, lead=1)


def _rotary(demand: AdaptiveDemand, lead: int) -> Wiring:
    task, c = demand.task, SHARP[demand.precision]
    symbols = Symbols(task, lambda j: task.levels[j - 1] + 1 + lead, demand.precision, lead)
    reads: dict[int, tuple[list[str], list[str]]] = {}
    everything: list[str] = []
    for i in demand.read:
        reads[i] = _destinations(symbols, demand, i)
        everything += reads[i][0]
        cos, sin = _query_slots(i)
        symbols.table(
            i, lambda lags: _phases(np.asarray(lags - 1), c) * np.asarray(lags > 1)[..., None], (*cos, *sin)
        )
        symbols.gate(
            i,
            lambda lags: lags == 1,
            [(shifted(slot, 1), to, demand.size[slot]) for slot, to in zip(*reads[i], strict=True)],
        )
    carried = list(dict.fromkeys([*everything, ONE]))
    heads: list[tuple[Reader, ...]] = [(_predecessor(carried, c),), *[()] * lead]
    for level in range(demand.levels):
        heads.append(tuple(_pointer(i, reads[i], c) for i in demand.memories_of(level)))
    count = max(len(own) for own in heads[1:])
    more = ", to compare the token with its letters first" if lead else ""
    why = f"{demand.count(len(heads))}{more}; {count} softmax head{'s' if count > 1 else ''}, any lag, any length"
    return Wiring(
        "rotary",
        why,
        demand.channels,
        _stages(symbols, heads),
        demand.holds(),
        demand.readout,
        "dp",
        "rope",
        "softmax",
        demand.precision,
        key_dim=2 * (FREQUENCIES + 1),
        origins=symbols.origins,
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


TURNS = (*(1 << (31 - j) for j in range(FREQUENCIES)), 0)
_PAIRS = FREQUENCIES + 1


def _unit(j: int) -> np.ndarray:
    """Coordinate j of a query or key; the second halves of the pairs start at _PAIRS."""
    e = np.zeros(2 * _PAIRS)
    e[j] = 1.0
    return e


def _predecessor(carried: list[str], c: float) -> Reader:
    """The first layer: what was there one step before, and whether there was anything."""
    phase = _phases(np.array(1), c)
    query = sum(phase[j] * _unit(j) + phase[FREQUENCIES + j] * _unit(_PAIRS + j) for j in range(FREQUENCIES))
    key = sum(_unit(j) for j in range(FREQUENCIES))
    writes = writes_each(carried, [shifted(slot, 1) for slot in carried])
    return Reader(tuple(carried), writes, {ONE: np.asarray(query)}, {ONE: np.asarray(key)}, turns=TURNS)


def _pointer(i: int, reads: tuple[list[str], list[str]], c: float) -> Reader:
    """The head of memory i: asks for the lag in its query slots, rests on position 0 otherwise."""
    cos, sin = _query_slots(i)
    query = {slot: _unit(j) for j, slot in enumerate(cos)}
    query |= {slot: _unit(_PAIRS + j) for j, slot in enumerate(sin)}
    query[ONE] = c * (FREQUENCIES - 1) * _unit(FREQUENCIES)  # c below a match, c above all else
    rotating, sink = sum(_unit(j) for j in range(FREQUENCIES)), _unit(FREQUENCIES)
    key = {shifted(ONE, 1): np.asarray(rotating) - sink, ONE: sink}
    values = tuple(shifted(slot, 1) for slot in reads[0])
    return Reader(values, writes_each(values, reads[1]), query, key, turns=TURNS)


# -- chain ------------------------------------------------------------------------------------------------


def chain(demand: AdaptiveDemand) -> Wiring:
    """T exact lag-1 shifts bring the last T tokens; neurons pick one."""
    task = demand.task
    T = int(max(task.lag_bounds))
    # What picks a token has no room for a readout that is more than affine.
    formulas = [formula.expression for formula in task.readouts]
    extra = 0 if all(f is not None and affine(f) is not None for f in formulas) else 1
    L = T + demand.levels - 1 + extra
    if L > 256:
        raise Obstacle(f"the farthest lag is {T:,}, one layer each; at most 256 layers are built")
    p = 40.0 if demand.precision == "float32" else 60.0  # e^-p is below the roundoff
    symbols = Symbols(
        task, lambda j: T + task.levels[j - 1], demand.precision
    )  # chosen by the neurons before
    carried: list[str] = []
    for i in demand.read:
        read, to = _destinations(symbols, demand, i)
        carried += read
        for lag in np.unique(task.lag_tables[i - 1].lags).tolist():
            payloads = [
                (shifted(slot, lag), there, demand.size[slot]) for slot, there in zip(read, to, strict=True)
            ]
            symbols.gate(i, lambda lags, lag=lag: lags == lag, payloads, after=T - 1 + task.levels[i - 1])
    carried = list(dict.fromkeys(carried))
    heads = []
    for k in range(L):
        values = tuple(shifted(slot, k) for slot in carried)
        to = [shifted(slot, k + 1) for slot in carried]
        heads.append((Reader(values, writes_each(values, to), p=p),) if k < T else ())
    why = f"{T} exact shifts by 1, then a choice: {demand.count(L)}"
    return Wiring(
        "chain",
        why,
        demand.channels,
        _stages(symbols, heads),
        demand.holds(),
        demand.readout,
        "dpf",
        "lin",
        "infinite",
        demand.precision,
        origins=symbols.origins,
    )


# -- lin and log without normalisation --------------------------------------------------------------------


def sums(demand: AdaptiveDemand, rpe: str, attention: str, heads_each: int | None = None) -> Wiring:
    """The paper's construction: weights e^{beta_h (phi(z) - phi(g))}, whose sum over the heads singles out g.

    The logit is beta_h (g - T) - beta_h (z - 1) for lin, beta_h (log g - log T) - beta_h log z for log, so
    that no weight exceeds 1. tmx adds the query term as it is, dp multiplies it by a constant key.
    `heads_each` asks for that many per memory, whatever they reach.
    """
    task = demand.task
    asked, most = capacity(task), (demand.levels + 1) * max(HEADS) * task.M * (task.d + 1)
    if asked > most:
        raise Obstacle(
            f"weights that factorise carry L H d_v numbers per position, here at most {most:,}; the task asks for "
            f"{asked:,}: two pasts agree on all of them (proved)"
        )
    symbols = Symbols(task, lambda j: task.levels[j - 1] + 1, demand.precision)
    heads: list[list[Reader]] = [[] for _ in range(demand.levels + 1)]
    found: dict[tuple[int, ...], AdaptiveSum] = {}
    for i in demand.read:
        read, to = _destinations(symbols, demand, i)
        table = task.lag_tables[i - 1]
        lags = tuple(np.unique(table.lags).tolist())
        if lags not in found:
            fewest = lambda i=i, lags=lags: _fewest_heads(demand, rpe, lags, _enough(demand, i))
            found[lags] = _sum(rpe, lags, heads_each, demand.precision) if heads_each else fewest()
        best, slot = found[lags], f"lag of {i}"
        lift = LIFT if task.parents[i - 1] else 0.0
        value_of = (lambda g: g * 1.0) if rpe == "lin" else (lambda g, lift=lift: np.log(g) + lift)
        symbols.table(i, lambda lags, value_of=value_of: value_of(lags)[..., None], (slot,))
        for beta, gain in zip(best.exponents, _gains(best), strict=True):
            anchor = lags[-1] - 1.0 if rpe == "lin" else lift + math.log(lags[-1])
            asks = {slot: beta, ONE: -beta * anchor}
            reader = Reader(tuple(read), {b: {a: gain} for a, b in zip(read, to, strict=True)}, p=beta)
            if attention == "tmx":
                reader = replace(reader, w=asks)
            else:
                one = np.ones(1)
                reader = replace(reader, query={s: w * one for s, w in asks.items()}, key={ONE: one})
            heads[task.levels[i - 1] + 1].append(reader)
    worst = max(found.values(), key=lambda one: one.paid)
    H = max(map(len, heads))
    why = (
        f"{demand.count(len(heads))}; {H} head{'s' if H > 1 else ''}, mass {worst.mass:.2g}: l1 error {worst.error:.2g} in exact "
        f"arithmetic, {worst.bits} bits"
    )
    return Wiring(
        f"{rpe}-{attention}",
        why,
        demand.channels,
        _stages(symbols, [tuple(own) for own in heads]),
        demand.holds(),
        demand.readout,
        attention,
        rpe,
        "none",
        demand.precision,
        origins=symbols.origins,
        window=max(WINDOW, 4 * int(max(task.lag_bounds))),
    )


WINDOW = 256  # what lies beyond is 0 up to the error; leaving it out keeps sums, and their roundings, short
PAID = 512.0  # tuned: roundings of the mass when heads are chosen; slow heads sum over the whole window
LIFT = 40.0  # log: a blank memory asks for e^-LIFT, which is nowhere
HEADS = (1, 2, 4, 6, 8, 12, 16, 24, 32)


def _enough(demand: AdaptiveDemand, i: int) -> float:
    """The l1 error that memory i may have: for the readout, and to keep symbols within their margin."""
    task, bound = demand.task, math.inf
    names = {f"{channel}{i}" for channel in demand.channels}
    if names & set(demand.readout.variables):
        bound = demand.E_attn
    if any(i in parents for parents in task.parents):
        read = {name for table in task.lag_tables for name in table.variables}
        for channel in task.channels:
            if f"{channel.name}{i}" in read:
                gaps = [b.lo - a.hi for a, b in zip(channel.domain[:-1], channel.domain[1:], strict=True)]
                bound = min([bound, 0.1, *(0.2 * gap / channel.magnitude for gap in gaps)])
    return bound if math.isfinite(bound) else 0.1


def _fewest_heads(demand: AdaptiveDemand, rpe: str, lags: tuple[int, ...], enough: float) -> AdaptiveSum:
    if lags != (1,):
        _refuse_beyond_the_wall(demand, rpe, lags, enough)
    best = None
    for heads in HEADS if lags != (1,) else (1,):
        demand.say(f"{rpe}, {heads} heads")
        try:
            found = _sum(rpe, lags, heads, demand.precision)
        except BadInput as error:
            raise Obstacle(str(error)) from None
        if best is not None and heads > 8 and found.paid > 0.8 * best.paid:
            break
        best = found if best is None or found.paid < best.paid else best
        if best.paid <= 0.5 * enough:
            break
    assert best is not None
    return best


def _refuse_beyond_the_wall(demand: AdaptiveDemand, rpe: str, lags: tuple[int, ...], enough: float) -> None:
    """Error plus what the least rounding of the mass costs has a floor that no heads get under."""
    u = UNIT[demand.precision]
    what = f"lags up to {lags[-1]} with {rpe} heads without normalisation"
    if rpe == "lin" and lags[-1] > FAR:  # adaptive recall costs what recalling the farthest lag costs
        mass = chebyshev_mass(lags[-1], min(enough, 0.5)).log2
        if mass + math.log2(ROUNDING * u) > math.log2(enough):
            raise Obstacle(
                f"{what} need at least 2^{mass:.1f} of mass, whatever the heads (proved), and {demand.precision} has "
                f"{-math.log2(u):.0f} bits"
            )
    demand.say(f"{rpe}, lags up to {lags[-1]}: the least that any heads leave")
    few = tuple(g for g in lags if g <= FEW[rpe])  # what is impossible for some of the lags is for all
    least = _floor(rpe, few if len(few) > 1 else lags, ROUNDING * u)
    if least > enough:
        raise Obstacle(
            f"{what}: error and {ROUNDING:g} roundings of the mass in {demand.precision} leave at least "
            f"{least:.2g}, whatever the heads (proved); {enough:.2g} is asked{_with_more_bits(rpe, lags, enough)}"
        )


def _with_more_bits(rpe: str, lags: tuple[int, ...], enough: float) -> str:
    """What extended precision would reach, where it can be said within seconds."""
    if lags[-1] > EXTENDED[rpe]:
        return ""
    for bits in (64, 80, 96, 128):
        found = adaptive_sum(rpe, lags, 32, precision=bits, rounding=PAID)  # type: ignore[arg-type]
        if found.paid <= enough:
            return f"; numbers of {bits} bits reach {found.paid:.2g} with {found.heads} heads"
    return ""


FAR = 16
EXTENDED = {"lin": 12, "log": 4}
FEW = {"lin": 16, "log": 6}


# tmx and dp ask the same.
@lru_cache(maxsize=64)
def _sum(rpe: str, lags: tuple[int, ...], heads: int, precision: str) -> AdaptiveSum:
    return adaptive_sum(rpe, lags, heads, precision=precision, rounding=PAID)  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def _floor(rpe: str, lags: tuple[int, ...], price: float) -> float:
    return floor(rpe, lags, price)  # type: ignore[arg-type]


def _gains(found: AdaptiveSum) -> list[float]:
    """alpha_h e^{-beta_h phi(T)}, anchored so that the largest weight is 1."""
    rpe, T = as_rpe(found.rpe), found.lags[-1]
    gains = []
    for a, beta in zip(coefficients(rpe, found.exponents, found.alpha, T), found.exponents, strict=True):
        with ctx.workprec(256):
            scale = rpe.scale_arb(arb(beta))
            gains.append(float((a * scale * (arb(-beta).exp() if rpe.name == "lin" else arb(1))).mid()))
    return gains


ADAPTIVE_ROUTES: dict[str, Callable[[AdaptiveDemand], Wiring]] = {
    "rotary": rotary,
    "chain": chain,
    **{
        f"{rpe}-{form}": (lambda demand, rpe=rpe, form=form: sums(demand, rpe, form))
        for rpe in ("lin", "log")
        for form in ("tmx", "dp")
    },
}
