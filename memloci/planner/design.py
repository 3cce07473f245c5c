"""A design: everything a route decided, the frozen record that the compiler turns into weights.

The residual stream is a row of named slots. The first layers only move: head h of a layer has a kernel
w_h, and a move from slot a to slot b adds sum_h alpha_h (w_h * a) to b. The last FFN and the linear
readout compute f from the slots that hold its variables.
"""

from dataclasses import dataclass
from functools import cached_property

from memloci.approx.ridge_sums import RidgeSum
from memloci.model.architecture import Architecture


@dataclass(frozen=True)
class Decay:
    """A lin or log head: slope p."""

    p: float


@dataclass(frozen=True)
class Turn:
    """A rotary head that peaks at one lag: logit c sum_j cos(pi 2^-j (z - lag)), j < frequencies."""

    lag: int
    c: float
    frequencies: int


@dataclass(frozen=True)
class Bucket:
    """A t5 head that peaks at one lag, which is a bucket of its own: bias 0 there, -c elsewhere."""

    lag: int
    c: float


@dataclass(frozen=True)
class Table:
    """A t5 head with any kernel over the lags 1, 2, ..., each a bucket of its own: w(z) = e^{logits[z-1]} / sum."""

    logits: tuple[float, ...]


Kernel = Decay | Turn | Bucket | Table


@dataclass(frozen=True)
class Move:
    source: str
    destination: str
    alpha: tuple[float, ...]  # one per head of the layer


@dataclass(frozen=True)
class Layer:
    heads: tuple[Kernel, ...]
    moves: tuple[Move, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(move.source for move in self.moves))

    @property
    def mass(self) -> float:
        return max((sum(map(abs, move.alpha)) for move in self.moves), default=0.0)


@dataclass(frozen=True)
class Design:
    route: str  # a key of ROUTES
    why: str  # one sentence for the reader of the plan
    channels: tuple[str, ...]  # the slots that the embedding fills, in order
    layers: tuple[Layer, ...]
    holds: dict[str, str]  # variable of the task -> slot that holds it after the last layer
    readout: RidgeSum  # f, for all outputs
    encoding: str
    precision: str
    window: int | None = None
    buckets: int = 32

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The residual stream: inputs, what is moved, and one slot per output that has neurons."""
        moved = [
            slot for layer in self.layers for move in layer.moves for slot in (move.source, move.destination)
        ]
        return tuple(dict.fromkeys([*self.channels, *moved, *map(output_slot, self.outputs_with_neurons)]))

    @property
    def outputs_with_neurons(self) -> tuple[int, ...]:
        return tuple(o for o, row in enumerate(self.readout.A) if row.any())

    @property
    def heads(self) -> int:
        return max(len(layer.heads) for layer in self.layers)

    @property
    def width(self) -> int:
        return self.readout.width

    @property
    def mass(self) -> float:
        return max(layer.mass for layer in self.layers)

    def architecture(self) -> Architecture:
        turning = [
            head.frequencies for layer in self.layers for head in layer.heads if isinstance(head, Turn)
        ]
        return Architecture(
            layers=len(self.layers),
            heads=self.heads,
            width=self.width,
            attention="dpf",
            encoding=self.encoding,
            normalisation="infinite",
            dim=len(self.slots),
            key_dim=2 * max(turning, default=1),
            value_dim=max(len(layer.sources) for layer in self.layers),
            window=self.window,
            precision=self.precision,  # type: ignore[arg-type]
            path="certified",
            buckets=self.buckets,
            max_distance=max(128, self.buckets) if self.window is None else max(self.window, self.buckets),
            max_length=1,
        )


def output_slot(o: int) -> str:
    return f"output {o}"


def shifted(channel: str, lag: int) -> str:
    """The slot of a channel moved by a lag."""
    return f"{channel}@{lag}" if lag else channel
