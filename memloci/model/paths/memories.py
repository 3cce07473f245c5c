"""What a layer keeps of the past, so that the next token can be answered without it.

| heads | memory | what is kept |
|---|---|---|
| dpf, tmx with lin, no window | Decay | one decaying sum per value |
| dpf, tmx with log (p >= 0) or t5, no window | NearFar | near values one by one, the others in a few sums |
| all others | Cache | values and keys: as many as the window has lags, or all of them |

With a stride k, position t = m k + r sees only its class r, where it is the m-th: every array has a leading axis
of k classes, and lags j count strides.

*A broken value* (not finite) arrives as NaN, and whatever sees it becomes NaN, as `Past.sees_any` says. In a sum
it stays NaN for ever, since even 0 NaN = NaN; a window forgets it with its lag.

*Rows are written before they are read*: then the compiler can write where they lie, and copies nothing. So there
is a row for lag 0 too, which is never seen.

*A sum over 10^9 positions* would lose digits, so each comes with its own rounding error, S + e (`decay.Fading`).
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from memloci.core.arrays import PerHead, Stream
from memloci.model.attention import Head
from memloci.model.encodings import T5, Lin, Log, silent_with_dot
from memloci.model.normalisation import Past, unlimited_past
from memloci.model.paths import decay
from memloci.model.paths.base import Serves, Values
from memloci.model.paths.decay import SMALL, faded
from memloci.model.paths.exponentials import grid, weights
from memloci.model.paths.factors import Table, positions
from memloci.model.paths.recurrence import CHUNK, gain
from memloci.model.rotation import angles, rotate

LONGEST = 2**31 - 1  # positions are 32-bit integers
ROWS = 256  # tuned: a cache starts with so many rows

State = dict[str, Array]
Positions = Int[Array, " n"]
Gate = Float[Array, "D H"]


class AbstractMemory(eqx.Module):
    """Of one layer. What it is made of is constant; what it keeps is a `State`."""

    @abstractmethod
    def start(self) -> State:
        """Before the first token."""

    @abstractmethod
    def read(self, state: State, t: Positions, X: Stream, V: Values) -> tuple[State, Values]:
        """What the heads recall at n consecutive positions t, and the state after them."""


STREAMS = Serves()


def remember(heads: Head, rows: int) -> AbstractMemory:
    """The memory these heads need. It looks at the slopes, so not inside jit; only a cache has `rows`."""
    if heads.past.window is None and heads.score.name in ("dpf", "tmx"):
        kind = type(heads.encoding)  # exactly: a class derived from one of these may have another kernel
        if kind is Lin:
            return Decay.of(heads)
        if kind is Log and bool((np.asarray(heads.encoding.slope()) >= 0).all()):
            return NearFar.of_log(heads)
        if kind is T5:
            return NearFar.of_t5(heads)
    return Cache.of(heads, rows)


def rows_for(past: Past, position: int) -> int:
    """The rows of a cache that has seen `position` tokens: they double, until the window is held."""
    needed = max(1, -(-position // past.stride))
    return min(max(ROWS, 1 << (needed - 1).bit_length()), most_rows(past))


def most_rows(past: Past) -> int:
    return LONGEST + 1 if past.window is None else past.window // past.stride + 1


# -- pieces ----------------------------------------------------------------------------------------------------


class Fading(eqx.Module):
    """e^-u, taken apart: S <- hold S + (decay S + ...)."""

    parts: Float[Array, "3 *sums"]  # hold: 1 or 0; decay: expm1(-u) or e^-u; e^-u itself

    @classmethod
    def at(cls, u: np.ndarray, dtype: np.dtype) -> "Fading":
        small, u = u < SMALL, u.astype("float64")
        left = np.exp(-u)
        return cls(jnp.asarray(np.stack([small, np.where(small, np.expm1(-u), left), left]), dtype))

    def add(self, sums: Float[Array, "2 *sums"], v: Float[Array, "*sums"]) -> Float[Array, "2 *sums"]:
        """S + e after one step; e is exact because additions are not reordered."""
        S, e = sums
        parts = (jnp.broadcast_to(part, S.shape) for part in self.parts)
        return jnp.stack(faded(decay.Fading(*parts), S, e, v))


class Scale(eqx.Module):
    """What a kernel sum relative to e^anchor is multiplied by, without softmax."""

    w: Gate | None  # tmx: the gate is <w, x_t>
    anchor: PerHead
    total: PerHead

    @classmethod
    def of(cls, heads: Head, anchor: np.ndarray) -> "Scale | None":
        if heads.normalisation.name == "softmax":
            return None
        w = heads.score.w.T if heads.score.name == "tmx" else None  # pyright: ignore[reportAttributeAccessIssue]
        total = jnp.ones(anchor.shape, anchor.dtype)
        if heads.normalisation.name == "infinite":
            # The anchor of the sum is the first lag's position part, and so is ours: they cancel.
            anchor, total = np.zeros_like(anchor), _unlimited_past(heads, anchor.dtype)[1]
        return cls(w, jnp.asarray(anchor), total)

    def __call__(self, X: Stream, Y: Values, more: Float[Array, "n H"]) -> Values:
        """Y e^{gate + anchor + more} / total, in two steps: one factor may be as large as the other is small."""
        exponent = self.anchor[None, :] + more
        if self.w is not None:
            exponent = exponent + X @ self.w
        half = jnp.exp(exponent / 2)[:, :, None]
        return Y / self.total[None, :, None] * half * half


@eqx.filter_jit
def _unlimited_past(heads: Head, dtype: np.dtype) -> tuple[PerHead, PerHead]:
    return eqx.filter_vmap(lambda encoding: unlimited_past(encoding, heads.past, dtype))(heads.encoding)


def _scan(step: Callable, state: State, inputs: Any) -> tuple[State, Any]:
    """One token after the other. A single one needs no loop."""
    if jax.tree.leaves(inputs)[0].shape[0] > 1:
        return jax.lax.scan(step, state, inputs)
    state, output = step(state, jax.tree.map(lambda a: a[0], inputs))
    return state, jax.tree.map(lambda a: a[None], output)


def _of_class(x: Array, r: Int[Array, ""]) -> Array:
    return jax.lax.dynamic_index_in_dim(x, r, keepdims=False)


def _put_class(x: Array, new: Array, r: Int[Array, ""]) -> Array:
    return jax.lax.dynamic_update_index_in_dim(x, new, r, 0)


def _lag(m: Int[Array, ""], rows: int) -> Int[Array, " rows"]:
    """The lag at which each row of a ring was written last."""
    return (m - jnp.arange(rows, dtype=jnp.int32)) % rows


def _around(table: Table) -> Float[Array, "H twice"]:
    """A table over lags 0, 1, ..., backwards and twice, for `_by_row`."""
    return jnp.concatenate([table[:, ::-1], table[:, ::-1]], axis=1)


def _by_row(around: Float[Array, "H twice"], m: Int[Array, ""]) -> Table:
    """The table in the order of a ring's rows: at `_lag`."""
    rows = around.shape[1] // 2
    return jax.lax.dynamic_slice_in_dim(around, (-m - 1) % rows, rows, axis=1)


def _some(m: Positions, recalled: Values) -> Values:
    """0 where nothing has been seen yet."""
    return jnp.where((m > 0)[:, None, None], recalled, 0.0)


# -- lin -------------------------------------------------------------------------------------------------------


class Decay(AbstractMemory):
    """Y_m = sum_j e^{-P (j-1)} v_{m-j},  P = p k.  For P < 0 relative to the oldest weight: sum_s e^{-|P| s} v_s."""

    fading: Fading  # of shape (H, 1)
    P: PerHead
    scale: Scale | None  # None: softmax
    shape: tuple[int, ...] = eqx.field(static=True)  # (k, 2, H, d_v)

    @classmethod
    def of(cls, heads: Head) -> "Decay":
        p, k = np.asarray(heads.encoding.slope()), heads.past.stride
        P = p * p.dtype.type(k)
        H, d_v = heads.W_V.shape[:2]
        return cls(
            fading=Fading.at(np.maximum(P, 0)[:, None], p.dtype),
            P=jnp.asarray(P),
            scale=Scale.of(heads, -np.maximum(P, 0)),
            shape=(k, 2, H, d_v),
        )

    def start(self) -> State:
        return {"sums": jnp.zeros(self.shape, self.P.dtype)}

    def read(self, state: State, t: Positions, X: Stream, V: Values) -> tuple[State, Values]:
        m, r = jnp.divmod(t, self.shape[0])
        M, P = m.astype(V.dtype)[:, None], self.P[None, :]
        rise = jnp.minimum(P, 0.0)
        weighed = V * jnp.exp(rise * M)[:, :, None]

        def step(before, given):
            r, v = given
            sums = _of_class(before["sums"], r)
            return {"sums": _put_class(before["sums"], self.fading.add(sums, v), r)}, sums[0]

        state, Y = _scan(step, state, (r, weighed))
        if self.scale is None:
            return state, _some(m, Y * gain(P, jnp.maximum(M, 1.0))[:, :, None])
        return state, _some(m, self.scale(X, Y, -rise * M))


# -- log and t5 ------------------------------------------------------------------------------------------------


class NearFar(AbstractMemory):
    """Y_m = sum_{j<=N} e^{near_j} v_{m-j} + e^far sum_i c_i S_i,      S_i = sum_{j>N} e^{-u_i (j-N-1)} v_{m-j}

    in a ring of N + 2 rows, for the lags 0, ..., N + 1; the last one enters the sums.

    Softmax sums a 1 along with each value. All weights are relative to the largest visible one, `top`; without
    softmax, to the largest one.
    """

    fading: Fading  # of shape (J, 1, 1)
    near: Float[Array, "H twice"]  # its lags 0 and N + 1 are not read
    far: PerHead
    c: Float[Array, "J H"]
    top: Float[Array, "lags H"]  # after 1, 2, ..., N + 1 lags
    scale: Scale | None  # None: softmax
    stride: int = eqx.field(static=True)
    d_v: int = eqx.field(static=True)

    @classmethod
    def of_log(cls, heads: Head) -> "NearFar":
        """Powers as exponentials, for every lag that a stream can have: model/paths/exponentials.py."""
        p = np.asarray(heads.encoding.slope())
        rates = grid(str(p.dtype), CHUNK + 1, LONGEST)
        lags = np.arange(1, CHUNK + 1)
        faded = np.exp(-rates.rates * (CHUNK + 1)).astype(p.dtype)
        return cls._of(
            heads,
            near=(-p.astype("float64")[:, None] * np.log(lags)).astype(p.dtype),
            far=np.zeros_like(p),
            rates=rates.rates,
            c=np.asarray(weights(rates, jnp.asarray(p))) * faded,
            anchor=np.asarray(positions(heads, np.array([1]), p.dtype))[:, 0],
        )

    @classmethod
    def of_t5(cls, heads: Head) -> "NearFar":
        """The last bucket is a running sum."""
        assert isinstance(heads.encoding, T5)
        N = max(1, -(-heads.encoding.starts[-1] // heads.past.stride) - 1)
        table = np.asarray(positions(heads, np.arange(1, N + 2), heads.W_V.dtype))
        ones = np.ones_like(table[:, :1])
        return cls._of(heads, table[:, :N], table[:, N], np.zeros(1), ones, np.zeros_like(table[:, 0]))

    @classmethod
    def _of(
        cls,
        heads: Head,
        near: np.ndarray,
        far: np.ndarray,
        rates: np.ndarray,
        c: np.ndarray,
        anchor: np.ndarray,
    ) -> "NearFar":
        top = np.maximum.accumulate(np.concatenate([near, far[:, None]], axis=1), axis=1)
        if heads.normalisation.name != "softmax":
            top = np.broadcast_to(top[:, -1:], top.shape)
        return cls(
            fading=Fading.at(rates[:, None, None], near.dtype),
            near=_around(jnp.pad(jnp.asarray(near), ((0, 0), (1, 1)))),
            far=jnp.asarray(far),
            c=jnp.asarray(c.T),
            top=jnp.asarray(top.T),
            scale=Scale.of(heads, anchor + top[:, -1]),
            stride=heads.past.stride,
            d_v=heads.W_V.shape[1],
        )

    def start(self) -> State:
        (J, H), rows, k = self.c.shape, self.near.shape[1] // 2, self.stride
        d = self.d_v + (self.scale is None)
        zeros = partial(jnp.zeros, dtype=self.far.dtype)
        return {"near": zeros((k, rows, H, d)), "sums": zeros((k, 2, J, H, d))}

    def read(self, state: State, t: Positions, X: Stream, V: Values) -> tuple[State, Values]:
        rows = self.near.shape[1] // 2
        N = rows - 2
        m, r = jnp.divmod(t, self.stride)
        if self.scale is None:
            V = jnp.concatenate([V, jnp.ones_like(V[:, :, :1])], axis=2)

        def step(before, given):
            m, r, v = given
            zero = jnp.zeros_like(r)
            written = jax.lax.dynamic_update_slice(before["near"], v[None, None], (r, m % rows, zero, zero))
            near, lag = _of_class(written, r), _lag(m, rows)
            leaving = _of_class(near, (m + 1) % rows)  # its lag is N + 1
            sums = self.fading.add(
                _of_class(before["sums"], r), jnp.broadcast_to(leaving[None], before["sums"].shape[2:])
            )
            top = _of_class(self.top, jnp.clip(m - 1, 0, N))
            # A row that was never written holds 0, but its weight may be larger than the largest visible one.
            a = jnp.exp(jnp.minimum(_by_row(self.near, m) - top[:, None], 0.0)).T[:, :, None]
            b = self.c * jnp.exp(jnp.minimum(self.far - top, 0.0))[None, :]
            in_table = ((lag >= 1) & (lag <= N))[:, None, None]
            Y = jnp.where(in_table, a * near, 0.0).sum(axis=0) + (b[:, :, None] * sums[0]).sum(axis=0)
            return {"near": written, "sums": _put_class(before["sums"], sums, r)}, Y

        state, Y = _scan(step, state, (m, r, V))
        if self.scale is None:
            some = (m > 0)[:, None, None]
            return state, _some(m, Y[:, :, :-1] / jnp.where(some, Y[:, :, -1:], 1.0))
        return state, _some(m, self.scale(X, Y, jnp.zeros(Y.shape[:2], Y.dtype)))


# -- everything else -------------------------------------------------------------------------------------------


class Cache(AbstractMemory):
    """Values, and keys if there are any, in rows: a ring once they are as many as the window has lags.

    The table holds the position part of the logits, or phi for tmx-mul; nothing if it is 0 at every lag.
    """

    table: Float[Array, "H twice"] | None
    turns: Any  # of rope, (H, f)
    W_Q: Float[Array, "D Hd_k"] | None
    W_K: Float[Array, "D Hd_k"] | None
    w: Gate | None
    total: PerHead  # what `infinite` divides by
    score: str = eqx.field(static=True)
    softmax: bool = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)  # (k, H, rows, d_v)

    @classmethod
    def of(cls, heads: Head, rows: int) -> "Cache":
        score: Any = heads.score
        encoding, past, (H, d_v, D) = heads.encoding, heads.past, heads.W_V.shape
        dtype = heads.W_V.dtype
        lags = np.maximum(np.arange(rows), 1)  # lag 0 is not read
        total = jnp.ones(H, dtype)
        if score.multiplies:
            z = jnp.asarray(lags * past.stride, jnp.int32)
            phi = lambda encoding: encoding.phi(z, dtype)
            table = eqx.filter_vmap(phi, axis_size=H)(encoding)  # lin and log have no array of their own here
        elif score.dot and silent_with_dot(encoding):
            table = None
        elif not heads.normalisation.sums_position:
            table = positions(heads, lags, dtype)
        elif past.window is None:
            anchor, total = _unlimited_past(heads, dtype)
            table = positions(heads, lags, dtype) - anchor[:, None]
        else:
            table = positions(heads, np.arange(1, past.window // past.stride + 1), dtype)
            table = table - table.max(axis=1, keepdims=True)
            total = jnp.exp(table).sum(axis=1)
            table = table[:, lags - 1]
        flat = lambda W: jnp.asarray(np.asarray(W).reshape(-1, D).T)
        return cls(
            table=None if table is None else _around(table),
            turns=encoding.turns if score.dot and encoding.rotates else None,  # pyright: ignore[reportAttributeAccessIssue]
            W_Q=flat(score.W_Q) if score.dot else None,
            W_K=flat(score.W_K) if score.dot else None,
            w=score.w.T if score.name in ("tmx", "tmx-mul") else None,
            total=total,
            score=score.name,
            softmax=heads.normalisation.name == "softmax",
            shape=(past.stride, H, rows, d_v),
        )

    def start(self) -> State:
        # Classes and heads share an axis: what is written is then what is read, without a change of shape, and the
        # compiler writes in place.
        k, H, rows, d_v = self.shape
        zeros = partial(jnp.zeros, dtype=self.total.dtype)
        state = {"values": zeros((k * H, rows, d_v)), "broken": jnp.zeros((k * H, rows), bool)}
        if self.W_K is not None:
            state["keys"] = zeros((k * H, rows, self.W_K.shape[1] // H))
        return state

    def read(self, state: State, t: Positions, X: Stream, V: Values) -> tuple[State, Values]:
        _, H, rows, _ = self.shape
        m, r = jnp.divmod(t, self.shape[0])
        broken = jnp.isnan(V[:, :, 0])

        def step(before, given):
            m, r, query, new = given
            put = lambda array, new: jax.lax.dynamic_update_slice(
                array, new[:, None], (r * H, m % rows, *[jnp.zeros_like(r)] * (new.ndim - 1))
            )
            before = {name: put(before[name], new[name]) for name in new}
            residue = {name: jax.lax.dynamic_slice_in_dim(array, r * H, H) for name, array in before.items()}
            lag = _lag(m, rows)
            visible = ((lag >= 1) & (lag <= m))[None, :]
            position = None if self.table is None else _by_row(self.table, m)
            a = self._weights(self._logits(query, residue.get("keys"), position), visible)
            recalled = jnp.einsum("hj,hjv->hv", a, residue["values"])
            return before, jnp.where((residue["broken"] & visible).any(axis=1)[:, None], jnp.nan, recalled)

        query, key = self._queries(t, X)
        new = {"values": jnp.where(broken[:, :, None], 0.0, V), "broken": broken}
        if key is not None:
            new["keys"] = key
        state, recalled = _scan(step, state, (m, r, query, new))
        return state, _some(m, recalled)

    def _queries(self, t: Positions, X: Stream) -> tuple[Array | None, Array | None]:
        """What tokens bring to the logits: (query, key), of shape (n, H, d_k), or (gate, None), of shape (n, H)."""
        if self.W_Q is None or self.W_K is None:
            return None if self.w is None else X @ self.w, None
        n, H = X.shape[0], self.shape[1]
        q, k = ((X @ W).reshape(n, H, -1) for W in (self.W_Q, self.W_K))
        if self.turns is not None:
            turn = lambda turns, x: rotate(x, angles(turns, t, x.dtype))
            q, k = (jax.vmap(turn, in_axes=(0, 1), out_axes=1)(self.turns, x) for x in (q, k))
        return q, k

    def _logits(self, query: Array | None, keys: Array | None, position: Array | None) -> Table:
        if keys is not None:
            assert query is not None
            content = jnp.einsum("hjd,hd->hj", keys, query)
            return content if position is None else content + position
        assert position is not None
        if query is None:
            return position
        gate = query[:, None]
        return gate * position if self.score == "tmx-mul" else gate + position

    def _weights(self, logits: Table, visible: Array) -> Table:
        """As in model/normalisation.py, for one t."""
        if self.softmax:
            top = jnp.max(jnp.where(visible, logits, -jnp.inf), axis=1, keepdims=True)
            logits = logits - jnp.where(visible.any(), top, 0.0)
        a = jnp.where(visible, jnp.exp(jnp.where(visible, logits, 0.0)), 0.0)
        total = a.sum(axis=1) if self.softmax else self.total
        return a / jnp.where(visible.any(), total, 1.0)[:, None]
