"""What is inside a model: the kernel of each memory, attention maps, a run on one sequence, the wall.

    K_slot(z) = what the slot holds z steps after a unit impulse, when only attention acts
    S_0 = W_E,   S_l = S_{l-1} + sum_h W_O^h W_V^h (w_h * S_{l-1}),   K = S_L - S_0 at z >= 1

Observed in float64 from the stored weights, for pictures. Nothing here is proved but the wall, which is
Chebyshev's lower bound on mass (approx/kernels/lower_bounds.py).
"""

from dataclasses import dataclass
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from memloci.approx.kernels.lower_bounds import chebyshev_mass
from memloci.circuits.circuit import Circuit
from memloci.core.errors import BadInput
from memloci.model.attention import Attention, Head
from memloci.model.normalisation import unlimited_past
from memloci.model.transformer import Block, Transformer, require_precision
from memloci.tasks.inputs import sample
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.names import variable
from memloci.tasks.task import Task

KERNEL_LAGS = 64  # tuned: lags shown of a kernel that never ends
MOST_LAGS = 1 << 17  # of a kernel
MOST_PAIRS = 384  # positions of an attention map
DIRECT = 2_048  # lags up to which convolutions are summed term by term


@dataclass(frozen=True)
class SlotKernel:
    """The kernel with which one slot remembers one channel, beside the kernel it should have."""

    variable: str
    slot: str
    label: str  # the memory in words
    z: np.ndarray
    compiled: np.ndarray
    target: np.ndarray

    @property
    def residual(self) -> np.ndarray:
        return np.abs(self.compiled - self.target)


@dataclass(frozen=True)
class AttentionMap:
    layer: int
    head: int
    weights: np.ndarray  # (t, s)


@dataclass(frozen=True)
class Example:
    """One drawn sequence, the target in float64 and what the model makes of it."""

    channels: tuple[str, ...]
    x: np.ndarray  # (n, channels)
    target: np.ndarray  # (n, outputs)
    output: np.ndarray

    @property
    def error(self) -> np.ndarray:
        return np.abs(self.output - self.target)


@dataclass(frozen=True)
class WallPoint:
    """Proved: one lin layer recalls `lag` to within `error` only with mass 2^log2_mass or more."""

    lag: int
    error: float
    log2_mass: float


# -- kernels ----------------------------------------------------------------------------------------------


def lags_to_show(task: Task) -> int:
    """How many lags show every memory, with some room beyond."""
    bounds = [KERNEL_LAGS if bound == float("inf") else int(bound) for bound in task.lag_bounds]
    far = max(bounds, default=1)
    return min(MOST_LAGS, far + max(4, far // 8))


def target_kernels(task: Task, n: int | None = None) -> dict[int, np.ndarray]:
    """rho_i(1), ..., rho_i(n) of every memory i that is a fixed kernel over the past; of a lag, a single 1."""
    n = n or lags_to_show(task)
    z, kernels = np.arange(1, n + 1), {}
    for i, recall in enumerate(task.recalls, start=1):
        if isinstance(recall, Convolution):
            kernels[i] = recall.at_lags(n)
        elif isinstance(recall, LagTable) and recall.kernel and recall.bound:
            kernels[i] = (z == recall.bound).astype(float)
    return kernels


def slot_kernels(
    model: Transformer, task: Task, circuit: Circuit, n: int | None = None
) -> tuple[SlotKernel, ...]:
    """The kernel of every slot to which attention alone brings a memory; none where weights depend on content."""
    n = n or lags_to_show(task)
    try:
        responses = impulse_responses(model, n)
    except BadInput:
        return ()
    computed = {slot for layer in circuit.layers if layer.neurons for slot in layer.neurons.outputs}
    kernels = []
    for i, target in target_kernels(task, n).items():
        for c, channel in enumerate(task.channel_names):
            name = variable(channel, i)
            slot = circuit.variable_slots.get(name)
            if slot in circuit.slots and slot not in computed:
                K, label = responses[c, circuit.slots.index(slot)], task.recalls[i - 1].label
                kernels.append(SlotKernel(name, slot, label, np.arange(1, n + 1), K, target))
    return tuple(kernels)


def impulse_responses(model: Transformer, n: int) -> np.ndarray:
    """(channels, D, n): what every coordinate holds z = 1..n steps after a unit in one channel."""
    W_E = np.asarray(model.W_E, dtype=float)
    responses = np.zeros((model.channels, model.architecture.dim, n + 1))
    responses[:, :, 0] = W_E.T
    for layer in model.layers:
        heads = layer.attention.heads
        W_V, W_O = np.asarray(heads.W_V, dtype=float), np.asarray(heads.W_O, dtype=float)
        w = np.pad(head_kernels(layer.attention, n), ((0, 0), (1, 0)))
        for S in responses:
            added = np.zeros_like(S)
            for h in range(len(w)):
                for v in np.flatnonzero(W_V[h].any(axis=1) & W_O[h].any(axis=0)):
                    added += W_O[h, :, v, None] * _convolve(w[h], W_V[h, v] @ S)[None, :]
            S += added
    return responses[:, :, 1:]


def head_kernels(attention: Attention, n: int) -> np.ndarray:
    """w_h(1), ..., w_h(n) of every head, in float64."""
    if attention.heads.score.name != "dpf" or attention.heads.normalisation.name != "infinite":
        raise BadInput("a head has a kernel of its own only under attention 'dpf', normalisation 'infinite'")
    require_precision("float64")
    wide = jnp.dtype("float64")
    heads = jax.tree.map(lambda leaf: leaf.astype(wide) if eqx.is_inexact_array(leaf) else leaf, attention)
    z = jnp.arange(1, n + 1, dtype=jnp.int32)

    def one(head: Head) -> jax.Array:
        past, encoding = head.past, head.encoding
        visible = z % past.stride == 0
        if past.window is None:
            anchor, total = unlimited_past(encoding, past, wide)
        else:
            table = encoding.position(past.admitted(), wide)
            anchor = table.max()
            total = jnp.exp(table - anchor).sum()
            visible &= z <= past.window
        logits = encoding.position(z, wide) - anchor
        return jnp.where(visible, jnp.exp(logits) / total, jnp.zeros((), wide))

    return np.asarray(eqx.filter_jit(eqx.filter_vmap(one))(heads.heads))


def _convolve(w: np.ndarray, signal: np.ndarray) -> np.ndarray:
    n = len(w)
    some = np.flatnonzero(signal)
    if len(some) <= 16 or n <= DIRECT:  # term by term: an FFT would blur what lies below 1e-16
        total = np.zeros(n)
        for s in some:
            total[s:] += signal[s] * w[: n - s]
        return total
    from scipy.signal import fftconvolve

    return fftconvolve(w, signal)[:n]


# -- on a sequence ----------------------------------------------------------------------------------------


def example_run(model: Transformer, task: Task, n: int | None = None, seed: int = 0) -> Example:
    """The model on a sequence from the task's input distribution."""
    require_precision("float64")
    wide = jnp.dtype("float64")
    n = n or min(MOST_PAIRS, max(48, lags_to_show(task) + 24))
    x = sample(task, jr.key(seed), n, model.W_E.dtype)
    with jax.default_matmul_precision("highest"):
        X = model.embed(x)
        for layer in model.layers:
            X = _through(layer, X)
        output = model.readout(X).astype(wide)
    target = jax.jit(task.target)(x.astype(wide))
    return Example(
        tuple(channel.name for channel in task.channels), *map(np.asarray, (x.astype(wide), target, output))
    )


def attention_maps(model: Transformer, x: np.ndarray, most: int = 8) -> tuple[tuple[AttentionMap, ...], int]:
    """The weights of the first heads that write anything, and how many such heads there are."""
    writing = [
        (l, int(h))
        for l, layer in enumerate(model.layers)
        for h in np.flatnonzero(np.asarray(layer.attention.heads.W_O).any(axis=(1, 2)))
    ]
    shown = writing[:most]
    last = max((l for l, _ in shown), default=-1)
    maps = []
    with jax.default_matmul_precision("highest"):
        X = model.embed(x)
        for l, layer in enumerate(model.layers[: last + 1]):
            weights = np.asarray(_weights(layer, X), dtype=float)
            maps += [AttentionMap(l, h, weights[h]) for k, h in shown if k == l]
            if l < last:
                X = _through(layer, X)
    return tuple(maps), len(writing)


# Layers have the same shapes, so each of these is compiled once for all of a model.


@eqx.filter_jit
def _through(layer: Block, X: jax.Array) -> jax.Array:
    return layer(X)


@eqx.filter_jit
def _weights(layer: Block, X: jax.Array) -> jax.Array:
    return layer.attention.weights(layer.before_attention(X))


# -- the wall ---------------------------------------------------------------------------------------------


@cache
def wall(farthest: int = 32, errors: tuple[float, ...] = (0.1, 0.001)) -> tuple[WallPoint, ...]:
    """The least log2 mass of one lin layer for the lags 2..farthest (docs/theory.md, section 2)."""
    return tuple(wall_point(lag, error) for error in errors for lag in range(2, farthest + 1))


@cache
def wall_point(lag: int, error: float) -> WallPoint:
    return WallPoint(lag, error, chebyshev_mass(lag, error).log2)
