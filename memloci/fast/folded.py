"""Training many small models: a batch at once, the first layer folded.

The first layer reads W_E x + b_E, so everything in it is a matrix of d + 1 rows times [x, 1] (d channels):

    <W_Q X_t, W_K X_s> = [x_t, 1] A^h [x_s, 1]^T        A^h = (W_Q E)^T (W_K E),  E = [W_E, b_E]
    sum_s a(t, s) W_O W_V X_s = (W_O W_V E) r_t         r_t = sum_s a(t, s) [x_s, 1]

Keys and values are the raw input, shared by all heads and without a gradient, and r_t goes straight into what
reads it: the FFN's B and, in the last layer, the readout. Under softmax the constant drops out of the keys,
and its recall is 1 (0 at t = 0) for all heads. dpf has one matrix per head for the whole batch, tmx the same
and a gate. Later layers are not folded. All use the gradients of gradients.py.

The products of weights are formed once per step (`fold`), outside the loop over micro-batches, and their
gradients return to the original parameters by autodiff.

Assumed: finite inputs (model/attention.py also isolates those that are not). Windows, strides, norms and
vectors per position do not fold: such models run their own code, in micro-batches.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from memloci.arrays import LagPairs, PerHead, VisiblePairs
from memloci.errors import BadInput
from memloci.fast.gradients import einsum, linear, recall_own, recall_shared
from memloci.model.attention import Head
from memloci.model.encodings import Lin, Rope
from memloci.model.normalisation import whole_past
from memloci.model.rotation import angles, rotate
from memloci.model.scores import DotProduct, Tmx, TmxMul
from memloci.model.transformer import Block, Transformer

MICRO_BATCH = 4  # tuned: the scores of a micro-batch stay in cache

Batch = Float[Array, "batch n d"]
Outputs = Float[Array, "batch n outputs"]
Loss = Callable[[Any, Any], Array]


def mean_square(found: Outputs, y: Outputs) -> Float[Array, ""]:
    return jnp.mean((found - y) ** 2)


def outputs(model: Transformer, x: Batch) -> Outputs:
    """The same as `jax.vmap(model)(x)`; gradients reach the model's arrays, not x."""
    x = _batch(model, x)
    return fold(model, x.shape[1])(x)


def loss_and_gradient(
    model: Transformer, x: Batch, y: Any, loss: Loss = mean_square, *, micro_batch: int = MICRO_BATCH
) -> tuple[Float[Array, ""], Transformer]:
    """The mean over micro-batches of loss(outputs, y), and its gradient as `eqx.filter_grad` gives it.

    `y` is an array, or a tree of arrays, with the batch as first axis. `loss` must be a mean over the batch:
    then the size of a micro-batch does not matter. It is the largest divisor of the batch up to `micro_batch`.
    """
    x = _batch(model, x)
    n = x.shape[1]
    folded, pull_back = eqx.filter_vjp(lambda model: fold(model, n), model)
    size = max(size for size in range(1, max(1, micro_batch) + 1) if x.shape[0] % size == 0)
    parts = jax.tree.map(lambda rows: rows.reshape(-1, size, *rows.shape[1:]), (x, y))
    one = eqx.filter_value_and_grad(lambda folded, x, y: loss(folded(x), y))

    def add(total: Any, part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, one(folded, *part)), None

    shapes = eqx.filter_eval_shape(one, folded, *jax.tree.map(lambda rows: rows[0], parts))
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    total = lax.scan(add, zero, parts)[0]
    value, gradient = jax.tree.map(lambda sum: sum * (size / x.shape[0]), total)
    return value, pull_back(gradient)[0]


def fold(model: Transformer, n: int) -> "Folded":
    """The same function of a batch of sequences of length n; differentiable in the model's arrays."""
    a = model.architecture
    foldable = a.norm == "none" and a.window is None and a.stride == 1 and model.positions is None
    if not foldable or n == 0:
        return Folded((Whole(model),), None)
    readouts = [None] * (a.layers - 1) + [model.W_U.T]
    if model.channels < max(a.key_dim, a.value_dim):
        first = First.of(model, n, readouts[0])
        rest = [Later.of(*pair, n) for pair in zip(model.layers[1:], readouts[1:], strict=True)]
    else:
        first = Embed(model.W_E.T, model.b_E)
        rest = [Later.of(*pair, n) for pair in zip(model.layers, readouts, strict=True)]
    return Folded((first, *rest), model.b_U)


def _batch(model: Transformer, x: Any) -> Batch:
    x = jnp.asarray(x, model.W_E.dtype)
    if x.ndim != 3 or x.shape[2] != model.channels or x.shape[0] == 0:
        found = "(" + ", ".join(map(str, x.shape)) + ")"
        raise BadInput(f"a batch must have shape (batch, n, {model.channels}), found {found}")
    return x


class Folded(eqx.Module):
    layers: tuple[Callable[[Any], Array], ...]
    bias: Float[Array, " outputs"] | None

    def __call__(self, x: Batch) -> Outputs:
        for layer in self.layers:
            x = layer(x)
        return x if self.bias is None else x + self.bias[None, None, :]


class Whole(eqx.Module):
    """A model that does not fold."""

    model: Transformer

    def __call__(self, x: Batch) -> Outputs:
        return jax.vmap(self.model)(x)


class Embed(eqx.Module):
    W: Float[Array, "d D"]
    b: Float[Array, " D"]

    def __call__(self, x: Batch) -> Batch:
        return linear(x, self.W) + self.b[None, None, :]


class First(eqx.Module):
    """The first layer, as maps of the features [x, 1, 1{t > 0} (softmax only), r^1, ..., r^H]."""

    attend: "Attend"
    S: Float[Array, "features to"]  # to the stream or, in the last layer, the outputs
    B: Float[Array, "features m"] | None
    A: Float[Array, "m to"] | None

    @classmethod
    def of(cls, model: Transformer, n: int, readout: Float[Array, "D to"] | None) -> "First":
        block, heads = model.layers[0], model.layers[0].attention.heads
        E = jnp.concatenate([model.W_E, model.b_E[:, None]], axis=1)
        attend = Attend.of(heads, E, n, folded=True)
        M = einsum("hdv,hve->ehd", heads.W_O, einsum("hvd,de->hve", heads.W_V, E))
        seen = M[-1].sum(axis=0, keepdims=True)
        M = M[:-1] if attend.softmax else M
        rows = [E.T, *([seen] if attend.softmax else []), M.reshape(-1, E.shape[0])]
        S = jnp.concatenate(rows)
        to = lambda W: W if readout is None else W @ readout
        if block.ffn is None:
            return cls(attend, to(S), None, None)
        B = S @ block.ffn.B.T
        one = model.channels
        return cls(attend, to(S), B.at[one].add(block.ffn.c), to(block.ffn.A.T))

    def __call__(self, x: Batch) -> Batch:
        ones = jnp.ones_like(x[:, :, :1])
        tokens = jnp.concatenate([x, ones], axis=2)
        features = [tokens]
        if self.attend.softmax:
            features.append(ones.at[:, :1].set(0.0))
        features.append(self.attend.shared(tokens, x if self.attend.softmax else tokens))
        F = jnp.concatenate(features, axis=2)
        X = linear(F, self.S)
        if self.B is None or self.A is None:
            return X
        return X + linear(jax.nn.relu(linear(F, self.B)), self.A)


class Later(eqx.Module):
    attend: "Attend"
    V: Float[Array, "D H d_v"]
    O: Float[Array, "Hd_v D"]
    B: Float[Array, "D m"] | None
    c: Float[Array, " m"] | None
    A: Float[Array, "m to"] | None
    readout: Float[Array, "D to"] | None  # in the last layer

    @classmethod
    def of(cls, block: Block, readout: Float[Array, "D to"] | None, n: int) -> "Later":
        heads, ffn = block.attention.heads, block.ffn
        V, O = heads.W_V.transpose(2, 0, 1), heads.W_O.transpose(0, 2, 1)
        attend = Attend.of(heads, None, n, folded=False)
        B, c, A = (None, None, None) if ffn is None else (ffn.B.T, ffn.c, ffn.A.T)
        if A is not None and readout is not None:
            A = A @ readout
        return cls(attend, V, O.reshape(-1, O.shape[2]), B, c, A, readout)

    def __call__(self, X: Batch) -> Batch:
        r = self.attend.own(X, self.V)
        X = X + linear(r.transpose(0, 3, 1, 2).reshape(*X.shape[:2], -1), self.O)
        out = X if self.readout is None else linear(X, self.readout)
        if self.B is None or self.c is None or self.A is None:
            return out
        return out + linear(jax.nn.relu(linear(X, self.B) + self.c[None, None, :]), self.A)


class Attend(eqx.Module):
    """The heads of a layer, as maps of its tokens of e = d + 1 or D numbers. Pairs are [key, query]."""

    softmax: bool = eqx.field(static=True)
    A: Float[Array, "J e H"] | None = None  # dp, folded
    Q: Float[Array, "e H d_k"] | None = None  # dp otherwise
    K: Float[Array, "e H d_k"] | None = None
    theta: Float[Array, "H n f"] | None = None  # dp with rope
    table: Float[Array, "H n n"] | Float[Array, "n nH"] | None = None  # dp: the position part
    scale: PerHead | None = None  # dp, infinite: 1 / normaliser
    p: PerHead | None = None  # dp with lin under softmax: has the table's gradient
    w: Float[Array, "e H"] | None = None  # tmx and tmx-mul
    phi: Float[Array, "H n n"] | None = None  # tmx-mul
    kernel: Float[Array, "H n n"] | None = None  # dpf and tmx: the weights, up to tmx's gate

    @classmethod
    def of(cls, heads: Head, E: Float[Array, "D e"] | None, n: int, folded: bool) -> "Attend":
        softmax = heads.normalisation.name == "softmax"
        z, visible = heads.past.pairs(n)
        on_tokens = lambda W: W if E is None else W @ E  # (..., D) -> (..., e)
        score, dtype = heads.score, heads.W_V.dtype
        if isinstance(score, TmxMul):
            phi = eqx.filter_vmap(lambda head: head.encoding.phi(z.T, dtype))(heads)
            return cls(softmax, w=on_tokens(score.w).T, phi=phi)
        if not isinstance(score, DotProduct):
            kernel = eqx.filter_vmap(lambda head: _kernel(head, z, visible).T)(heads)
            return cls(softmax, w=on_tokens(score.w).T if isinstance(score, Tmx) else None, kernel=kernel)
        Q, K = (on_tokens(W).transpose(2, 0, 1) for W in (score.W_Q, score.W_K))
        table, scale = eqx.filter_vmap(lambda head: _table(head, z, visible))(heads)
        p = None
        if softmax and isinstance(heads.encoding, Lin):
            table, p = lax.stop_gradient(table), heads.encoding.p
        common: dict[str, Any] = {"scale": None if softmax else scale, "p": p}
        if isinstance(heads.encoding, Rope):
            t = jnp.arange(n, dtype=jnp.int32)
            theta = jax.vmap(lambda turns: angles(turns, t, dtype))(heads.encoding.turns)
            return cls(softmax, Q=Q, K=K, theta=theta, table=table, **common)
        if not folded:
            return cls(softmax, Q=Q, K=K, table=table, **common)
        A = einsum("ehk,jhk->jeh", Q, K[:-1] if softmax else K)
        return cls(softmax, A=A, table=table.transpose(1, 2, 0).reshape(n, -1), **common)

    def shared(self, tokens: Batch, u: Float[Array, "batch n J"]) -> Float[Array, "batch n JH"]:
        """What the heads recall if all have the values `u`; the features of a head are H apart."""
        if self.A is not None:
            assert self.table is not None
            q = tuple(linear(tokens, A).reshape(tokens.shape[0], -1) for A in self.A)
            size = jnp.abs(tokens).max(axis=(0, 1))
            bound = einsum("jeh,e,j->h", jnp.abs(self.A), size, size[: u.shape[2]]).max()
            r: Any = recall_shared(self.softmax, q, u, self.table, self.p, lax.stop_gradient(bound))
            r = [a.reshape(*tokens.shape[:2], -1) for a in r]
            return jnp.concatenate([self._scaled(a, 2) for a in r], axis=2)
        if self.kernel is not None:
            r = einsum("hst,bsj->btjh", self.kernel, u)
            r = r if self.w is None else r * jnp.exp(linear(tokens, self.w))[:, :, None, :]
        elif self.phi is not None:
            r = einsum("bhst,bsj->btjh", self._multiplied(tokens), u)
        else:  # rope: own keys
            H = self.table.shape[0] if self.table is not None else 1
            v = jnp.broadcast_to(u.swapaxes(1, 2)[:, None], (u.shape[0], H, u.shape[2], u.shape[1]))
            q, k = _per_head(tokens, self.Q, self.K)
            r = self._dot(q, k, v).transpose(0, 3, 2, 1)
        return r.reshape(*u.shape[:2], -1)

    def own(self, tokens: Batch, V: Float[Array, "D H d_v"]) -> Float[Array, "batch H d_v n"]:
        """What the heads recall of values of their own, V applied to the tokens."""
        if self.Q is not None:
            q, k, v = _per_head(tokens, self.Q, self.K, V)
            return self._dot(q, k, v)
        (v,) = _per_head(tokens, V)
        if self.kernel is None:
            return einsum("bhst,bhjs->bhjt", self._multiplied(tokens), v)
        r = einsum("hst,bhjs->bhjt", self.kernel, v)
        return r if self.w is None else r * jnp.exp(self._gates(tokens))[:, :, None, :]

    def _dot(self, q: Array, k: Array, v: Array) -> Array:
        assert self.table is not None
        if self.theta is not None:
            turn = jax.vmap(jax.vmap(lambda x, theta: rotate(x.T, theta).T), in_axes=(0, None))
            q, k = turn(q, self.theta), turn(k, self.theta)
        return self._scaled(recall_own(self.softmax, q, k, v, self.table, self.p), 1)

    def _scaled(self, r: Array, axis: int) -> Array:
        """`axis` is that of the heads."""
        if self.scale is None:
            return r
        return r * self.scale.reshape([-1 if i == axis else 1 for i in range(r.ndim)])

    def _multiplied(self, tokens: Batch) -> Float[Array, "batch H n n"]:
        assert self.phi is not None
        return _weights(self._gates(tokens)[:, :, None, :] * self.phi[None], self.softmax)

    def _gates(self, tokens: Batch) -> Float[Array, "batch H n"]:
        """<w, x_t>."""
        assert self.w is not None
        return linear(tokens, self.w).swapaxes(1, 2)


def _per_head(X: Batch, *Ws: Any) -> list[Float[Array, "batch H k n"]]:
    """Several (e, H, k) maps of the same tokens, as one product."""
    rows = linear(X, jnp.concatenate([W.reshape(W.shape[0], -1) for W in Ws], axis=1))
    parts = jnp.split(rows, np.cumsum([W[0].size for W in Ws])[:-1], axis=2)
    return [
        part.reshape(*X.shape[:2], *W.shape[1:]).transpose(0, 2, 3, 1)
        for part, W in zip(parts, Ws, strict=True)
    ]


def _kernel(head: Head, z: LagPairs, visible: VisiblePairs) -> Float[Array, "n n"]:
    """The weights of a head without content."""
    position = head.encoding.position(z, head.W_V.dtype)
    zero = jnp.zeros_like(position)
    return head.normalisation.weights(zero, position, visible, head.encoding, head.past)


def _table(head: Head, z: LagPairs, visible: VisiblePairs) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """(position part of the logits as [key, query], 1 / normaliser); under softmax every row's largest is 0."""
    dtype = head.W_V.dtype
    position, scale = head.encoding.position(z, dtype), jnp.ones((), dtype)
    match head.normalisation.name:
        case "softmax":
            seen = jnp.where(visible, position, -jnp.inf).max(axis=1, keepdims=True, initial=-jnp.inf)
            position = position - lax.stop_gradient(jnp.where(jnp.isfinite(seen), seen, 0.0))
        case "infinite":
            anchor, total = whole_past(head.encoding, head.past, dtype)
            position, scale = position - anchor, 1 / total
    return jnp.where(visible, position, -jnp.inf).T, scale


def _weights(logits: Float[Array, "batch H n n"], softmax: bool) -> Float[Array, "batch H n n"]:
    """From [key, query] logits to weights; 0 where s >= t."""
    n = logits.shape[3]
    visible = jnp.asarray(np.triu(np.ones((n, n), bool), 1))[None, None]
    if softmax:
        largest = jnp.where(visible, logits, -jnp.inf).max(axis=2, keepdims=True, initial=-jnp.inf)
        logits = logits - lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0.0))
    e = jnp.where(visible, jnp.exp(jnp.where(visible, logits, 0.0)), 0.0)
    if not softmax:
        return e
    Z = e.sum(axis=2, keepdims=True)
    return e / jnp.where(Z > 0, Z, 1.0)
