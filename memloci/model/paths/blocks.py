"""Blocks of queries against blocks of keys: every architecture, without an n x n array.

    logit(t, s) = <q_t, k_s> + r_t T(z)               z = t - s, counted in strides
    recalled_t  = sum_s e^{logit - top_t} v_s / total_t,     total_t = sum_s e^{logit - top_t}

    dp     q, k from the tokens, turned by rope       tmx        q_t = <w, x_t>, k_s = 1
    dpf    neither q nor k                            tmx-mul    r_t = <w, x_t>, T = phi       (else r = 1)

top_t is the largest logit under softmax; otherwise top = 0 and total = 1 here, and `infinite` divides last.

T is a table over lags, made once by the encoding's own code, so it is as accurate as the plain logits. It
is -inf at lags that are not visible. All pairs of blocks that are d blocks apart share one Toeplitz block of T:
the outer loop runs over d, the inner one over the queries. Blocks in the future, or beyond the window, are not
visited. Sums grow block by block; when a new block raises top_t, the sums so far are scaled down. Where nothing is scaled
the sums come with their own rounding errors, so that a long past costs no more than one block (certify/past_sums.py).

Scores are stored [key, query]: maxima and sums over keys then run along the fast axis. A group is one head of
one sequence. `vmap` makes more groups, and as many are worked on at a time as a core's cache holds.

The gradient is written out, y' being the one that arrives, and weights are made again from top and total:

    a = e^{logit - top} / total,   v'_s = sum_t a(t, s) y'_t,   logit'(t, s) = a(t, s) <y'_t, v_s - recalled_t>

(without `- recalled_t` if the weights are not normalised here). It cannot be differentiated once more.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from memloci.core.arrays import Scalar, Stream
from memloci.model.encodings import silent_with_dot
from memloci.model.normalisation import unlimited_past
from memloci.model.paths.base import AbstractPath, Serves, Values
from memloci.model.paths.decay import two_sum
from memloci.model.rotation import angles, rotate

if TYPE_CHECKING:  # it stands above
    from memloci.model.attention import Head

BLOCK = 128  # tuned: positions in a block
SMALL_BLOCK = 32  # tuned: for windows shorter than this
LANES = 8  # blocks are multiples of this, because a core works on so many numbers at once
RUN = 8  # keys that one product adds up where nothing is scaled: it rounds once per term
CACHED = 2**15  # tuned: scores at a time; four arrays of that size stay in a core's cache

Index = Int[Array, ""] | int
PerGroup = Float[Array, "G n f"]
Cut = Float[Array, "b G B f"]  # b blocks of B positions
CutTurned = Float[Array, "b G f B"]
Scores = Float[Array, "c G B B"]  # (key, query) of c pairs of blocks


class Parts(NamedTuple):
    """What the logits of every group are made of."""

    q: PerGroup | None
    k: PerGroup | None
    r: PerGroup | None  # None: 1
    table: Float[Array, "G lags"] | None  # T(1), T(2), ...; None: 0


class Blocks(AbstractPath):
    name = "blocks"
    growth = "n min(n, w) time, n memory"
    serves = Serves()
    block: ClassVar[int] = BLOCK
    cached: ClassVar[int] = CACHED

    @classmethod
    def recall(cls, heads: "Head", X: Stream, V: Values) -> Values:
        n, past = X.shape[0], heads.past
        lags = n - 1 if past.window is None else min(n - 1, past.window // past.stride)
        if lags < 1:
            return jnp.zeros_like(V)
        softmax = heads.normalisation.name == "softmax"
        plan = Plan(n, lags, block_size(n, lags, cls.block), softmax, cls.cached)
        split = eqx.filter_vmap(partial(_parts, lags=lags), in_axes=(eqx.if_array(0), None))
        parts, divisor = split(heads, X)
        recalled = jnp.moveaxis(_recall(plan, parts, jnp.moveaxis(V, 1, 0)), 0, 1)
        return recalled if divisor is None else recalled / divisor[None, :, None]


def _parts(head: "Head", X: Stream, *, lags: int) -> tuple[Parts, Scalar | None]:
    """The logits of one head, taken apart, and what `infinite` divides by."""
    score: Any = head.score
    encoding: Any = head.encoding
    past, dtype = head.past, X.dtype
    z = past.stride * jnp.arange(1, lags + 1, dtype=jnp.int32)
    if score.multiplies:
        return Parts(None, None, (X @ score.w)[:, None], encoding.phi(z, dtype)), None
    q = k = divisor = None
    if score.dot:
        q, k = X @ score.W_Q.T, X @ score.W_K.T
        if encoding.rotates:
            theta = angles(encoding.turns, past.stride * jnp.arange(X.shape[0], dtype=jnp.int32), dtype)
            q, k = rotate(q, theta), rotate(k, theta)
    elif score.name == "tmx":
        q = (X @ score.w)[:, None]
        k = jnp.ones_like(q)
    if not head.normalisation.sums_position:
        silent = score.dot and silent_with_dot(encoding)  # then the lag is in q and k, or nowhere
        table = None if silent else encoding.position(z, dtype)
    elif past.window is None:
        anchor, divisor = unlimited_past(encoding, past, dtype)
        table = encoding.position(z, dtype) - anchor
    else:  # logits from the table that is summed: model/normalisation.py says why
        table = encoding.position(past.admitted(), dtype)
        anchor = jax.lax.stop_gradient(table.max())
        divisor = jnp.exp(table - anchor).sum()
        table = table[:lags] - anchor
    return Parts(q, k, None, table), divisor


# -- what is visited -------------------------------------------------------------------------------------------


def block_size(n: int, lags: int, largest: int = BLOCK) -> int:
    """Blocks of nearly the same size, and not much longer than the window."""
    size = min(largest, max(lags, SMALL_BLOCK))
    even = -(-n // -(-n // size))
    return min(size, -(-even // LANES) * LANES)


class Plan(NamedTuple):
    """How n positions that see `lags` lags are visited."""

    n: int
    lags: int
    B: int
    softmax: bool
    cached: int

    @property
    def blocks(self) -> int:
        return -(-self.n // self.B)

    @property
    def distances(self) -> int:
        """Blocks d = 0, 1, ... apart that see each other: their shortest lag is d B - (B - 1)."""
        return min(self.blocks, (self.lags + self.B - 1) // self.B + 1)

    def groups(self, G: int) -> int:
        """How many of G groups to work on at a time: a divisor of G."""
        fit = max(1, self.cached // self.B**2)
        return max(g for g in range(1, min(G, fit) + 1) if G % g == 0)

    def pairs_at_once(self, g: int) -> int:
        """How many neighbouring pairs of blocks to work on at a time, for g groups."""
        return min(self.blocks, max(1, self.cached // (g * self.B**2)))


def _visit(plan: Plan, d: Index, c: int, visit: Callable, state: Any) -> Any:
    """visit(i, j, state) for all pairs of query blocks i and key blocks j = i - d, c neighbours at a time."""
    steps = (plan.blocks - d + c - 1) // c
    return jax.lax.fori_loop(0, steps, lambda step, state: visit(d + step * c, step * c, state), state)


def _at(x: Any, start: Index, c: int) -> Any:
    return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, c), x)


def _put(x: Array, new: Array, start: Index) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(x, new, start, 0)


def _add(x: Array, new: Array, start: Index) -> Array:
    return _put(x, _at(x, start, new.shape[0]) + new, start)


# -- groups ----------------------------------------------------------------------------------------------------


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recall(plan: Plan, parts: Parts, V: PerGroup) -> PerGroup:
    return _recall_keeping(plan, parts, V)[0]


def _recall_keeping(plan: Plan, parts: Parts, V: PerGroup) -> tuple[PerGroup, tuple]:
    recalled, top, total = _by_groups(plan, _forward)(parts, V)
    return recalled, (parts, V, recalled, top, total)


def _gradient(plan: Plan, residuals: tuple, arriving: PerGroup) -> tuple[Parts, PerGroup]:
    return _by_groups(plan, _backward)(*residuals, arriving)


_recall.defvjp(_recall_keeping, _gradient)


def _by_groups(plan: Plan, function: Callable) -> Callable:
    """`function` on a cacheful of groups after the other; a batch is more groups."""

    @jax.custom_batching.custom_vmap
    def run(*arguments):
        G = jax.tree.leaves(arguments)[0].shape[0]
        g = plan.groups(G)
        if g == G:
            return function(plan, *arguments)
        some = jax.tree.map(lambda a: a.reshape(G // g, g, *a.shape[1:]), arguments)
        results = jax.lax.map(lambda some: function(plan, *some), some)
        return jax.tree.map(lambda a: a.reshape(G, *a.shape[2:]), results)

    @run.def_vmap
    def _(size, batched, *arguments):
        every = lambda a, batched: a if batched else jnp.broadcast_to(a, (size, *a.shape))
        arguments = jax.tree.map(every, arguments, tuple(batched))
        results = run(*jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), arguments))
        results = jax.tree.map(lambda a: a.reshape(size, -1, *a.shape[1:]), results)
        return results, jax.tree.map(lambda _: True, results)

    return run


# -- blocks ----------------------------------------------------------------------------------------------------


def _cut(plan: Plan, c: int, x: PerGroup, fill: float = 0.0) -> Cut:
    """Blocks that lead; the last one, and c - 1 more that the last step may touch, are filled up."""
    G, n, f = x.shape
    b = plan.blocks + c - 1
    x = jnp.pad(x, [(0, 0), (0, b * plan.B - n), (0, 0)], constant_values=fill)
    return jnp.moveaxis(x.reshape(G, b, plan.B, f), 1, 0)


def _joined(plan: Plan, x: Cut) -> PerGroup:
    """The inverse of `_cut`."""
    return jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, x.shape[3])[:, : plan.n]


def _turned(x: Any) -> Any:
    return jax.tree.map(jnp.matrix_transpose, x)


def _with_ones(x: PerGroup) -> PerGroup:
    return jnp.concatenate([x, jnp.ones_like(x[:, :, :1])], axis=2)


def _extended(plan: Plan, parts: Parts, dtype: Any) -> Float[Array, "G lags_and_hidden"]:
    """T, starting at lag 1 - B, with -inf where nothing is visible."""
    table = jnp.zeros((1, plan.lags), dtype) if parts.table is None else parts.table
    beyond = (plan.distances + 1) * plan.B
    return jnp.pad(table, [(0, 0), (plan.B, beyond)], constant_values=-jnp.inf)


def _lag_table(plan: Plan, extended: Float[Array, "G u"], d: Index) -> Float[Array, "G 2B-1"]:
    """T at the lags d B - (B - 1), ..., d B + (B - 1) that blocks d apart have."""
    return jax.lax.dynamic_slice_in_dim(extended, d * plan.B, 2 * plan.B - 1, axis=1)


def _toeplitz(lags: Float[Array, "G 2B-1"]) -> Float[Array, "1 G B B"]:
    """Entry (key b, query a) is the one of lag a - b: rows that are read one further each time."""
    G, width = lags.shape
    B = (width + 1) // 2
    rows = jnp.broadcast_to(lags[:, None, :], (G, B, width)).reshape(G, -1)
    rows = jnp.pad(rows, [(0, 0), (0, B)]).reshape(G, B, width + 1)
    return rows[None, :, ::-1, :B]


def _logits(k: Cut | None, queries: tuple[CutTurned | None, CutTurned | None], T: Scores) -> Scores:
    q, r = queries
    x = T if r is None else r * T
    if k is not None and q is not None:
        x = k @ q + x
    return jnp.where(T == -jnp.inf, -jnp.inf, x)  # the token at a hidden place may be NaN


def _forward(plan: Plan, parts: Parts, V: PerGroup) -> tuple[PerGroup, PerGroup, PerGroup | None]:
    """(recalled, top, total)."""
    G, n, d_v = V.shape
    c = plan.pairs_at_once(G)
    cut = partial(jax.tree.map, partial(_cut, plan, c))
    queries, k = _turned(cut((parts.q, parts.r))), cut(parts.k)
    v = _turned(cut(_with_ones(V) if plan.softmax else V))  # the sum of the ones is the total
    extended = _extended(plan, parts, V.dtype)

    def at_distance(d, state):
        T = _toeplitz(_lag_table(plan, extended, d))
        top_before = state[0]  # read here, written there: XLA then copies it once per d, not once per block

        def visit(i, j, state):
            top, sums, missed = state
            x = _logits(_at(k, j, c), _at(queries, i, c), T)
            if not plan.softmax:
                total, low = _added(_at(sums, i, c), _at(missed, i, c), _in_runs(_at(v, j, c), jnp.exp(x)))
                return top, _put(sums, total, i), _put(missed, low, i)
            before = _at(top_before, i, c)
            now = jnp.maximum(before, x.max(axis=2, keepdims=True))
            finite = jnp.where(now == -jnp.inf, 0.0, now)  # where nothing is visible so far
            new = _at(v, j, c) @ jnp.exp(x - finite)
            sums = _put(sums, _at(sums, i, c) * jnp.exp(before - finite) + new, i)
            return _put(top, now, i), sums, missed

        return _visit(plan, d, c, visit, state)

    top = jnp.full_like(v[:, :, :1], -jnp.inf if plan.softmax else 0.0)
    missed = jnp.zeros_like(top if plan.softmax else v)
    top, sums, _ = jax.lax.fori_loop(0, plan.distances, at_distance, (top, jnp.zeros_like(v), missed))
    top, sums = (_joined(plan, _turned(x)) for x in (top, sums))
    if not plan.softmax:
        return sums, top, None
    some = (jnp.arange(n) > 0)[None, :, None]
    total = jnp.where(some, sums[:, :, d_v:], 1.0)
    return sums[:, :, :d_v] / total, jnp.where(some, top, 0.0), total


def _in_runs(v: CutTurned, a: Scores) -> CutTurned:
    """v a, a run of keys at a time; runs are added two by two, so that few roundings meet one term."""
    (c, G, f, B), more = v.shape, -v.shape[-1] % RUN
    v = jnp.pad(v, [(0, 0)] * 3 + [(0, more)]).reshape(c, G, f, -1, RUN)
    a = jnp.pad(a, [(0, 0)] * 2 + [(0, more), (0, 0)]).reshape(a.shape[0], a.shape[1], -1, RUN, B)
    parts = jnp.einsum("cgfrk,cgrkq->rcgfq", v, a)
    while (n := parts.shape[0]) > 1:
        parts = jnp.concatenate([parts[: n - 1 : 2] + parts[1::2], parts[n - n % 2 :]])
    return parts[0]


def _added(sums: Array, missed: Array, new: Array) -> tuple[Array, Array]:
    """sums + missed + new as such a pair again: `missed` stays below half a unit in the last place of the sums."""
    total, error = two_sum(sums, new)
    low = missed + error
    high = total + low
    return high, low - (high - total)


def _backward(
    plan: Plan,
    parts: Parts,
    V: PerGroup,
    recalled: PerGroup,
    top: PerGroup,
    total: PerGroup | None,
    arriving: PerGroup,
) -> tuple[Parts, PerGroup]:
    """The gradients of the parts and of V."""
    c = plan.pairs_at_once(V.shape[0])
    cut = partial(jax.tree.map, partial(_cut, plan, c))
    y = arriving if total is None else arriving / total
    v_read, y_read = V, y
    if plan.softmax:  # <y', v - recalled> as one product: v gets a 1, y' gets - <y', recalled>
        v_read = _with_ones(V)
        y_read = jnp.concatenate([y, -(y * recalled).sum(axis=2, keepdims=True)], axis=2)
    q, k, r, v_read, y = cut((parts.q, parts.k, parts.r, v_read, y))
    q_turned, k_turned, r_turned, y_read = _turned((q, k, r, cut(y_read)))
    top = _turned(_cut(plan, c, top, fill=jnp.inf))  # no weight at positions that were filled up
    extended = _extended(plan, parts, V.dtype)

    def at_distance(d, state):
        to_q, to_k, to_r, to_lags, to_v = state
        T, to_seen = jax.vjp(_toeplitz, _lag_table(plan, extended, d))
        to_T = None if to_lags is None else jnp.zeros_like(T)

        def visit(i, j, state):
            to_q, to_k, to_r, to_T, to_v = state
            x = _logits(_at(k, j, c), _at((q_turned, r_turned), i, c), T)
            a = jnp.exp(x - _at(top, i, c))
            to_x = a * (_at(v_read, j, c) @ _at(y_read, i, c))
            to_v = _add(to_v, a @ _at(y, i, c), j)
            if q is not None:
                to_q = _add(to_q, _at(k_turned, j, c) @ to_x, i)
                to_k = _add(to_k, to_x @ _at(q, i, c), j)
            if r is not None:
                phi = jnp.where(T == -jnp.inf, 0.0, T)
                to_r = _add(to_r, (to_x * phi).sum(axis=2, keepdims=True), i)
                to_x = to_x * _at(r_turned, i, c)
            if to_T is not None:
                to_T = to_T + to_x.sum(axis=0, keepdims=True)
            return to_q, to_k, to_r, to_T, to_v

        to_q, to_k, to_r, to_T, to_v = _visit(plan, d, c, visit, (to_q, to_k, to_r, to_T, to_v))
        if to_lags is not None:
            new = _lag_table(plan, to_lags, d) + to_seen(to_T)[0]
            to_lags = jax.lax.dynamic_update_slice_in_dim(to_lags, new, d * plan.B, 1)
        return to_q, to_k, to_r, to_lags, to_v

    to_lags = None if parts.table is None else jnp.zeros_like(extended)
    zeros = jax.tree.map(jnp.zeros_like, (q_turned, k, r_turned))
    state = (*zeros, to_lags, jnp.zeros_like(y))
    to_q, to_k, to_r, to_lags, to_v = jax.lax.fori_loop(0, plan.distances, at_distance, state)
    joined = partial(jax.tree.map, partial(_joined, plan))
    to_table = None if to_lags is None else to_lags[:, plan.B : plan.B + plan.lags]
    return Parts(joined(_turned(to_q)), joined(to_k), joined(_turned(to_r)), to_table), joined(to_v)
