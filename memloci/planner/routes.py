"""The routes: ways to bring memories to the present with fixed kernels.

| route | layers | heads | what limits it |
|---|---|---|---|
| one-layer (lin, log) | 1 | shared by all memories | the precision wall: mass grows by 4 bits per lag |
| depth | farthest lag / step | heads of one short shift | rounding adds up over layers |
| rotary | 1 | one per memory | the window, a power of 2 |
| t5 | 1 | one per memory | one bucket per lag, up to 2,048 |
| bias-table | 1 | two per kernel | the same, and the kernel's tail beyond |

A route takes a `Demand` and returns a design, or raises `Obstacle` with a proved reason where there is
one. How good the design is, the certificate says: a route only proposes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from flint import ctx

from memloci.approx.kernel_sums import KernelSum, fit
from memloci.approx.lower_bounds import chebyshev_mass, lower_bound
from memloci.approx.ridge_sums import RidgeSum
from memloci.approx.rpe import as_rpe
from memloci.approx.targets import AbstractTarget, SingleLag
from memloci.certifier.rounding import UNIT
from memloci.model.architecture import MAX_LAG
from memloci.planner.design import Bucket, Decay, Design, Kernel, Layer, Move, Table, Turn, shifted

ROUNDING = 64.0  # tuned: what a unit of mass costs in roundoffs, when heads are chosen
HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
STEPS = (1, 2, 3, 4)  # shifts per layer that depth tries
FARTHEST = 1_024  # tuned: lags that lin and log heads are fitted to; the bound takes seconds there, and memory as its square
LONGEST = 2_048  # lags with a bucket of their own: half of the most buckets that are built

Progress = Callable[[str, float], None]  # what is being done, and the part of the work before it


class Obstacle(Exception):
    """This route cannot serve; the text says why."""


@dataclass(frozen=True)
class Demand:
    """What must be recalled, how well, and what is computed from it."""

    channels: tuple[str, ...]
    # (variable, channel, target): a lag, or a kernel
    memories: tuple[tuple[str, str, AbstractTarget], ...]
    E_attn: float  # the l1 error that the readout can bear, per memory
    readout: RidgeSum
    precision: str
    say: Callable[[str], None] = field(default=lambda text: None)  # what is being done

    @property
    def lags(self) -> tuple[int, ...]:
        """The distinct lags, rising; refused when a memory is a kernel, or there is none."""
        lags = set()
        for _, _, target in self.memories:
            if not isinstance(target, SingleLag):
                raise Obstacle(f"it recalls single lags, and {target.label} spreads over all of them")
            lags.add(target.lag)
        if not lags:
            raise Obstacle("nothing is recalled")
        return tuple(sorted(lags))

    @property
    def u(self) -> float:
        return UNIT[self.precision]

    def present(self) -> dict[str, str]:
        return {f"{channel}0": channel for channel in self.channels}

    def design(
        self,
        route: str,
        why: str,
        layers: Sequence[Layer],
        holds: dict[str, str],
        encoding: str,
        window: int | None = None,
        buckets: int = 32,
    ) -> Design:
        everything = self.present() | holds
        return Design(
            route,
            why,
            self.channels,
            tuple(layers),
            everything,
            self.readout,
            encoding,
            self.precision,
            window,
            buckets,
        )


# -- one layer --------------------------------------------------------------------------------------------


def one_layer(demand: Demand, rpe: str) -> Design:
    """The paper's construction, improved: all memories share the heads, mass is paid for."""
    targets = list(dict.fromkeys(target for _, _, target in demand.memories))
    if not targets:
        raise Obstacle("nothing is recalled")
    far = max((t.lag for t in targets if isinstance(t, SingleLag)), default=1)
    _refuse_beyond_the_wall(rpe, far, demand, demand.E_attn, f"lag {far} with one {rpe} layer")
    return kernel_layer(demand, fewest_heads(rpe, targets, demand, demand.E_attn))


def kernel_layer(demand: Demand, best: KernelSum) -> Design:
    """The layer whose heads are those of a kernel sum for the memories, however good it is."""
    moves = tuple(
        Move(channel, name, tuple(map(float, best.coefficients[best.targets.index(target)])))
        for name, channel, target in demand.memories
    )
    layer = Layer(tuple(Decay(p) for p in best.exponents), moves)
    why = f"{best.heads} shared heads, mass {best.mass:.2g}: l1 error {best.error:.2g} in exact arithmetic"
    holds = {name: name for name, _, _ in demand.memories}
    return demand.design(f"one-layer-{best.rpe}", why, [layer], holds, best.rpe)


def _refuse_beyond_the_wall(rpe: str, lag: int, demand: Demand, enough: float, what: str) -> None:
    """Lag 1 needs no cancelling. Beyond it, error plus rounding has a floor that no heads get under."""
    if lag == 1 or enough >= 1:
        return
    if lag > FARTHEST:
        raise Obstacle(f"{what}: not tried, for heads are fitted to lags up to {FARTHEST:,}")
    demand.say(f"{rpe}, lag {lag}: the least that any heads leave")
    floor = lower_bound(rpe, SingleLag(lag), price=ROUNDING * demand.u)  # type: ignore[arg-type]
    if floor.error <= enough:
        return
    bits = f"{demand.precision} has {-math.log2(demand.u):.0f} bits"
    mass = chebyshev_mass(lag, enough).log2 if rpe == "lin" else math.log2(max(floor.mass_for(enough), 1.0))
    raise Obstacle(
        f"{what} to within {enough:.2g} needs at least 2^{mass:.1f} of mass, whatever the heads (proved), and {bits}: "
        f"at {ROUNDING:g} roundings of the mass, no heads leave less than {floor.error:.2g}"
    )


def _refuse_kernels_beyond_reach(rpe: str, target: AbstractTarget, demand: Demand, enough: float) -> None:
    """A kernel has a floor too: e^(-b z) in log heads, or one that rings. A second, where fits take minutes.

    At one rounding of the mass, less than a certificate charges, so nothing that could be met is refused.
    One head pays no price (`_paid`), but weights that sum to 1 keep its mass below ||rho||_1 + enough.
    """
    if isinstance(target, SingleLag) or enough >= float(target.norm().lower()):
        return
    spectrum = target.spectrum(as_rpe(rpe))  # type: ignore[arg-type]
    if spectrum is not None and not spectrum.powers:  # it is a sum of heads already
        return
    demand.say(f"{rpe}, {target.label}: the least that any heads leave")
    quick = {"bits": 128, "alone": 24, "last": 100, "ratio": 1.3, "rounds": 3}  # tuned: weaker, not less true
    floor = lower_bound(rpe, target, price=demand.u, **quick)  # type: ignore[arg-type]
    if floor.error - demand.u * (float(target.norm().upper()) + enough) <= enough:
        return
    raise Obstacle(
        f"{target.label} in one {rpe} layer to within {enough:.2g}: at one rounding of the mass in "
        f"{demand.precision}, no heads leave less than {floor.error:.2g}, however many (proved)"
    )


def fewest_heads(rpe: str, targets: Sequence[AbstractTarget], demand: Demand, enough: float) -> KernelSum:
    """The smallest of HEADS whose error, with what rounding will cost, is `enough`; else the best found."""
    for target in targets:
        _refuse_kernels_beyond_reach(rpe, target, demand, enough)

    @cache
    def found(heads: int) -> KernelSum:
        demand.say(f"{rpe}, {heads} heads")
        return fit(rpe, targets, heads, precision=demand.precision, rounding=ROUNDING)  # type: ignore[arg-type]

    paid = lambda heads: _paid(found(heads), demand.u)
    few = [heads for heads in HEADS if heads <= 4]
    for heads in few:  # exact matches need few, and cost little to try
        if paid(heads) <= enough:
            return found(heads)
    low, high = len(few), len(few)
    while paid(HEADS[high]) > enough:  # more heads, while they help
        if high + 1 == len(HEADS) or (high > low and paid(HEADS[high]) > 0.8 * paid(HEADS[high - 1])):
            return min(
                (found(heads) for heads in (*few, *HEADS[low : high + 1])), key=lambda k: _paid(k, demand.u)
            )
        high += 1
    return found(HEADS[high])


def _paid(found: KernelSum, u: float) -> float:
    """Error, and what rounding costs when heads cancel; a single head does not cancel."""
    return found.error + (ROUNDING * u * found.mass if found.heads > 1 else 0.0)


# -- depth ------------------------------------------------------------------------------------------------


def depth(demand: Demand, step: int, heads: int | None = None) -> Design:
    """Chains of short shifts: layer k brings the chain from lag (k-1) step to k step, and lags in between
    branch off it. All lags share the chain. `heads` asks for that many per layer, whatever they reach."""
    lags = demand.lags
    L = math.ceil(lags[-1] / step)
    if L > 256:
        raise Obstacle(f"lag {lags[-1]} in steps of {step} takes {L} layers; at most 256 are built")
    steps = sorted({step if lag % step == 0 else lag % step for lag in lags} | ({step} if L > 1 else set()))
    share = demand.E_attn / L
    targets = [SingleLag(s) for s in steps]
    if heads is None:
        _refuse_beyond_the_wall("lin", step, demand, share, f"each of {L} shifts by {step}")
        found = fewest_heads("lin", targets, demand, share)
    else:
        found = fit("lin", targets, heads, precision=demand.precision, rounding=ROUNDING)  # type: ignore[arg-type]
    row = {s: tuple(map(float, found.coefficients[i])) for i, s in enumerate(steps)}
    kernels: tuple[Kernel, ...] = tuple(Decay(p) for p in found.exponents)
    wanted = {
        (channel, target.lag) for _, channel, target in demand.memories if isinstance(target, SingleLag)
    }
    farthest = {channel: max(lag for c, lag in wanted if c == channel) for channel, _ in wanted}
    layers = []
    for k in range(1, L + 1):
        moves = []
        for channel, far in farthest.items():
            start = (k - 1) * step
            if k * step <= far:
                moves.append(Move(shifted(channel, start), shifted(channel, k * step), row[step]))
            for c, lag in sorted(wanted):
                if c == channel and start < lag < min(k * step, far + 1):
                    moves.append(Move(shifted(channel, start), shifted(channel, lag), row[lag - start]))
        layers.append(Layer(kernels, tuple(moves)))
    holds = {name: shifted(channel, target.lag) for name, channel, target in demand.memories}  # type: ignore[union-attr]
    what = "exact lag-1 shifts" if step == 1 else f"shifts of up to {step}, l1 error {found.error:.2g} each"
    return demand.design(f"depth-{step}", f"{L} layers of {what}", layers, holds, "lin")


# -- rotary -----------------------------------------------------------------------------------------------


def rotary(demand: Demand) -> Design:
    """One head per memory: c sum_j cos(pi 2^-j (z - lag)).

    Two lags differ by an odd multiple of some 2^b, and there cos(pi 2^-b y) = -1: every other lag loses
    at least 2 c of the logit, whatever the window, with log2(window) frequencies.
    """
    lags = demand.lags
    if lags[-1] >= MAX_LAG:
        raise Obstacle(f"lag {lags[-1]:,} does not fit a window of {MAX_LAG:,}")
    frequencies = max(4, (lags[-1]).bit_length())
    window = 1 << frequencies
    c = 16.0 if demand.precision == "float32" else 32.0  # e^-2c is below the roundoff
    return _one_head_per_lag(
        demand,
        "rotary",
        f"{len(lags)} rotary head{'s' if len(lags) > 1 else ''} with {frequencies} frequencies, window {window:,}",
        lambda lag: Turn(lag, c, frequencies),
        "rope",
        window,
    )


def t5(demand: Demand) -> Design:
    """One head per memory: a bias that singles out the bucket of its lag."""
    lags = demand.lags
    buckets = max(32, 2 * lags[-1])
    if buckets > 2 * LONGEST:
        raise Obstacle(
            f"lag {lags[-1]:,} needs a bucket of its own, so {buckets:,} buckets; at most 4,096 are built"
        )
    c = 32.0 if demand.precision == "float32" else 64.0
    window = max(128, buckets)
    return _one_head_per_lag(
        demand, "t5", f"{buckets} buckets, one per lag", lambda lag: Bucket(lag, c), "t5", window, buckets
    )


def _one_head_per_lag(
    demand: Demand,
    route: str,
    why: str,
    kernel: Callable[[int], Kernel],
    encoding: str,
    window: int,
    buckets: int = 32,
) -> Design:
    lags = demand.lags
    moves, holds = {}, {}
    for name, channel, target in demand.memories:
        assert isinstance(target, SingleLag)
        slot = shifted(channel, target.lag)
        moves[slot] = Move(channel, slot, tuple(float(lag == target.lag) for lag in lags))
        holds[name] = slot
    layer = Layer(tuple(kernel(lag) for lag in lags), tuple(moves.values()))
    return demand.design(route, why, [layer], holds, encoding, window, buckets)


# -- bias tables ------------------------------------------------------------------------------------------


def bias_table(demand: Demand) -> Design:
    """rho = ||rho+||_1 w+ - ||rho-||_1 w-: a head for each sign, whose biases are the kernel's logarithms.

    Heads do not cancel, so the mass is ||rho||_1 and there is no wall: what is left is the tail beyond the
    window, and rounding, about 2 u per lag of it. Parameters grow with the window. The gallery's oscillating
    kernels, asked for 1e-3 (certified errors; no number of bits saves those lin heads):

    | task | route | precision | heads | parameters | mass | error |
    |---|---|---|---|---|---|---|
    | ringing | one-layer-lin | float32 | 8 | 47 | 2.4e4 | 3.5 |
    | | one-layer-lin | float64 | 24 | 127 | 2.5e12 | 0.92 |
    | | bias-table | float32 | 2 | 371 | 5.6 | 7.7e-4 |
    | morlet | one-layer-lin | float32 | 8 | 47 | 2.7e3 | 6.4 |
    | | bias-table | float32 | 2 | 139 | 6.1 | 4.5e-4 |
    """
    targets = list(dict.fromkeys(target for _, _, target in demand.memories))
    if not targets:
        raise Obstacle("nothing is recalled")
    for target in targets:
        if isinstance(target, SingleLag):
            raise Obstacle(f"{target.label} needs no table: route t5 does that with one head")
    demand.say("the kernels, lag by lag")
    kernels = [_values(target) for target in targets]
    window = max(_window(*pair, demand) for pair in zip(targets, kernels, strict=True))
    heads: list[Table] = []
    alphas: list[dict[int, float]] = []  # per kernel, head -> alpha
    for rho in kernels:
        alphas.append({})
        for sign in (1.0, -1.0):
            part = np.maximum(sign * rho[:window], 0.0)
            if part.any():
                alphas[-1][len(heads)] = sign * float(part.sum())
                heads.append(Table(_logarithms(part, 32.0 if demand.precision == "float32" else 64.0)))
    if not heads:
        raise Obstacle("its kernels are 0 at every lag")
    moves = tuple(
        Move(channel, name, tuple(alphas[targets.index(target)].get(h, 0.0) for h in range(len(heads))))
        for name, channel, target in demand.memories
    )
    why = f"{len(heads)} table{'s' if len(heads) > 1 else ''} of {window:,} biases, one per lag"
    layer, holds = Layer(tuple(heads), moves), {name: name for name, _, _ in demand.memories}
    return demand.design("bias-table", why, [layer], holds, "t5", window, 2 * window)


def _values(target: AbstractTarget) -> np.ndarray:
    """rho(1), rho(2), ... in float64; in balls of 128 bits first, for kernels that are differences."""
    with ctx.workprec(128):
        return np.array([float(target.value(z).mid()) for z in range(1, LONGEST + 1)])


def _window(target: AbstractTarget, rho: np.ndarray, demand: Demand) -> int:
    """The fewest lags whose tail, with what rounding will cost, is small enough; else the best number."""
    size = np.abs(rho)
    beyond = float(target.tail_bound(LONGEST).upper())
    if not beyond <= demand.E_attn:
        raise Obstacle(
            f"beyond lag {LONGEST:,} the norm of {target.label} is up to {beyond:.2g}, more than the "
            f"{demand.E_attn:.2g} that it may be wrong by; at most {LONGEST:,} lags have a bucket of their own"
        )
    n = np.arange(2, LONGEST + 1)
    tail = beyond + np.append(np.cumsum(size[::-1])[::-1], 0.0)[n]
    paid = tail + (2.0 * n + ROUNDING) * demand.u * (size.sum() + beyond)
    enough = np.nonzero(paid <= demand.E_attn)[0]
    return int(n[enough[0] if len(enough) else paid.argmin()])


def _logarithms(part: np.ndarray, c: float) -> tuple[float, ...]:
    """log rho, 0 at its largest; -c where rho is 0, so that those lags weigh e^-c, below the roundoff."""
    with np.errstate(divide="ignore"):
        return tuple(map(float, np.maximum(np.log(part / part.max()), -c)))


ROUTES: dict[str, Callable[[Demand], Design]] = {
    "one-layer-lin": lambda demand: one_layer(demand, "lin"),
    "one-layer-log": lambda demand: one_layer(demand, "log"),
    "rotary": rotary,
    "t5": t5,
    "bias-table": bias_table,
    **{f"depth-{step}": (lambda demand, step=step: depth(demand, step)) for step in STEPS},
}
