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
vectors per position do not fold, nor do long sequences: such models run their own code, in micro-batches.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from memloci.core.arrays import LagPairs, PerHead, VisiblePairs
from memloci.core.errors import BadInput
from memloci.model.attention import Head
from memloci.model.encodings import Lin, Rope
from memloci.model.normalisation import unlimited_past
from memloci.model.paths.base import Serves
from memloci.model.paths.gradients import Map, einsum, recall_own_values, recall_shared
from memloci.model.rotation import angles, rotate
from memloci.model.scores import DotProduct, Tmx, TmxMul
from memloci.model.transformer import Block, Transformer

FOLDS = Serves()
LONGEST = 384  # tuned: tables of n^2 weights win at 256; at 512 the model's own paths do
MICRO_BATCH = 4  # tuned: the scores of a micro-batch stay in cache

Batch = Float[Array, "batch n d"]
Outputs = Float[Array, "batch n outputs"]
Tokens = Float[Array, "e batch n"]  # as columns: gradients.py says why
Loss = Callable[[Any, Any], Array]


def mean_square(outputs: Outputs, y: Outputs) -> Float[Array, ""]:
    return jnp.mean((outputs - y) ** 2)


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


def fold(model: Transformer, n: int) -> "Folded | Unfolded":
    """The same function of a batch of sequences of length n; differentiable in the model's arrays."""
    a = model.architecture
    foldable = (
        a.norm == "none"
        and a.window is None
        and a.stride == 1
        and model.positions is None
        and a.blocks is None
    )
    if not foldable or not 0 < n <= LONGEST or FOLDS.refusal("folding", a) is not None:
        return Unfolded(model)
    readouts = [None] * (a.layers - 1) + [model.W_U]
    if model.channels < max(a.key_dim, a.value_dim):
        first = First.of(model, n, readouts[0])
        rest = [Later.of(*pair, n) for pair in zip(model.layers[1:], readouts[1:], strict=True)]
    else:
        first = Embed(Map.of(model.W_E), model.b_E)
        rest = [Later.of(*pair, n) for pair in zip(model.layers, readouts, strict=True)]
    return Folded((first, *rest), model.b_U)


def _batch(model: Transformer, x: Any) -> Batch:
    x = jnp.asarray(x, model.W_E.dtype)
    if x.ndim != 3 or x.shape[2] != model.channels or x.shape[0] == 0:
        shape = "(" + ", ".join(map(str, x.shape)) + ")"
        raise BadInput(f"a batch must have shape (batch, n, {model.channels}), found {shape}")
    return x


class Unfolded(eqx.Module):
    """A model that does not fold."""

    model: Transformer

    def __call__(self, x: Batch) -> Outputs:
        return jax.vmap(self.model)(x)


class Folded(eqx.Module):
    layers: tuple[Callable[[Any], Array], ...]
    bias: Float[Array, " outputs"]

    def __call__(self, x: Batch) -> Outputs:
        X = x.transpose(2, 0, 1)
        for layer in self.layers:
            X = layer(X)
        return X.transpose(1, 2, 0) + self.bias[None, None, :]


class Embed(eqx.Module):
    W: Map
    b: Float[Array, " D"]

    def __call__(self, x: Tokens) -> Tokens:
        return self.W(x) + self.b[:, None, None]


class First(eqx.Module):
    """The first layer, as maps of the features [x, 1, 1{t > 0} (softmax only), r^1, ..., r^H]."""

    attend: "Attend"
    S: Map  # to the stream or, in the last layer, the outputs
    B: Map | None
    A: Map | None

    @classmethod
    def of(cls, model: Transformer, n: int, readout: Float[Array, "to D"] | None) -> "First":
        block, heads = model.layers[0], model.layers[0].attention.heads
        E = jnp.concatenate([model.W_E, model.b_E[:, None]], axis=1)
        attend = Attend.of(heads, E, n)
        M = einsum("hdv,hve->deh", heads.W_O, einsum("hvd,de->hve", heads.W_V, E))
        row_sums = M[:, -1].sum(axis=1, keepdims=True)
        M = M[:, :-1] if attend.softmax else M
        parts = [E, *([row_sums] if attend.softmax else []), M.reshape(E.shape[0], -1)]
        S = jnp.concatenate(parts, axis=1)
        to = lambda W: Map.of(W if readout is None else readout @ W)
        if block.ffn is None:
            return cls(attend, to(S), None, None)
        B = (block.ffn.B @ S).at[:, model.channels].add(block.ffn.c)
        return cls(attend, to(S), Map.of(B), to(block.ffn.A))

    def __call__(self, x: Tokens) -> Tokens:
        ones = jnp.ones_like(x[:1])
        tokens = jnp.concatenate([x, ones])
        features = [tokens]
        if self.attend.softmax:
            features.append(ones.at[:, :, 0].set(0.0))
        features.append(self.attend.shared(tokens, x if self.attend.softmax else tokens))
        F = jnp.concatenate(features)
        X = self.S(F)
        return X if self.B is None or self.A is None else X + self.A(jax.nn.relu(self.B(F)))


class Later(eqx.Module):
    attend: "Attend"
    O: Map
    B: Map | None
    c: Float[Array, " m"] | None
    A: Map | None
    readout: Map | None  # in the last layer

    @classmethod
    def of(cls, block: Block, readout: Float[Array, "to D"] | None, n: int) -> "Later":
        heads, ffn = block.attention.heads, block.ffn
        O = heads.W_O.transpose(1, 0, 2)
        attend, O = Attend.of(heads, None, n), Map.of(O.reshape(O.shape[0], -1))
        to = lambda W: Map.of(W if readout is None else readout @ W)
        B, c, A = (None, None, None) if ffn is None else (Map.of(ffn.B), ffn.c, to(ffn.A))
        return cls(attend, O, B, c, A, None if readout is None else Map.of(readout))

    def __call__(self, X: Tokens) -> Tokens:
        return self.after(X, self.attend.recall_own_values(X))

    def after(self, X: Tokens, r: Float[Array, "H d_v batch n"]) -> Tokens:
        """What follows, once the heads have recalled r."""
        X = X + self.O(r.reshape(-1, *X.shape[1:]))
        out = X if self.readout is None else self.readout(X)
        if self.B is None or self.c is None or self.A is None:
            return out
        return out + self.A(jax.nn.relu(self.B(X) + self.c[:, None, None]))


class Attend(eqx.Module):
    """The heads of a layer, as maps of its tokens of e = d + 1 or D numbers. Pairs are [key, query]."""

    softmax: bool = eqx.field(static=True)
    sizes: tuple[tuple[int, int], ...] = eqx.field(
        static=True
    )  # (H, k) of the maps that `recall_own_values` stacks
    own_maps: Map | None = None  # W_Q, W_K (dp) and W_V (not folded), those of a kind head by head
    A: Map | None = None  # dp, folded: the rows A^h_j, heads within features
    table: Float[Array, "H n n"] | Float[Array, "n nH"] | None = None  # dp: the position part
    scale: PerHead | None = None  # dp, infinite: 1 / normaliser
    p: PerHead | None = None  # dp with lin under softmax: has the table's gradient
    theta: Float[Array, "H n f"] | None = None  # dp with rope
    w: Map | None = None  # tmx and tmx-mul
    phi: Float[Array, "H n n"] | None = None  # tmx-mul
    kernel: Float[Array, "H n n"] | None = None  # dpf and tmx: the weights, up to tmx's gate

    @classmethod
    def of(cls, heads: Head, E: Float[Array, "D e"] | None, n: int) -> "Attend":
        """With E the tokens are [x, 1], and `shared` is to be called; else `recall_own_values`."""
        softmax = heads.normalisation.name == "softmax"
        z, visible = heads.past.pairs(n)
        on_tokens = lambda W: W if E is None else W @ E  # (..., D) -> (..., e)
        score, dtype = heads.score, heads.W_V.dtype
        values = [heads.W_V] if E is None else []
        if not isinstance(score, DotProduct):
            w = Map.of(on_tokens(score.w)) if isinstance(score, Tmx | TmxMul) else None
            if isinstance(score, TmxMul):
                phi = eqx.filter_vmap(lambda head: head.encoding.phi(z.T, dtype))(heads)
                return cls(softmax, *_stacked(values), w=w, phi=phi)
            kernel = eqx.filter_vmap(lambda head: _kernel(head, z, visible).T)(heads)
            return cls(softmax, *_stacked(values), w=w, kernel=kernel)
        Q, K = on_tokens(score.W_Q), on_tokens(score.W_K)
        table, scale = eqx.filter_vmap(lambda head: _table(head, z, visible))(heads)
        p = None
        if softmax and type(heads.encoding) is Lin:  # exactly: a derived class may have another phi
            table, p = lax.stop_gradient(table), heads.encoding.p
        common: dict[str, Any] = {"scale": None if softmax else scale, "p": p}
        if isinstance(heads.encoding, Rope):
            t = jnp.arange(n, dtype=jnp.int32)
            theta = jax.vmap(lambda turns: angles(turns, t, dtype))(heads.encoding.turns)
            return cls(softmax, *_stacked([Q, K, *values]), table=table, theta=theta, **common)
        if E is None:
            return cls(softmax, *_stacked([Q, K, *values]), table=table, **common)
        A = einsum("hke,hkj->jhe", Q, K[:, :, :-1] if softmax else K)
        A = Map.of(A.reshape(-1, A.shape[2]))
        return cls(softmax, (), A=A, table=table.transpose(1, 2, 0).reshape(n, -1), **common)

    def shared(self, tokens: Tokens, u: Float[Array, "J batch n"]) -> Float[Array, "JH batch n"]:
        """What the heads recall if all have the values `u`; the features of a head are H apart."""
        if self.A is not None:
            r = self._dot_shared(self.A, tokens, u)
        elif self.kernel is not None:
            r = einsum("hst,jbs->jhbt", self.kernel, u)
            r = r if self.w is None else r * jnp.exp(self.w(tokens))[None]
        elif self.phi is not None:
            r = einsum("hbst,jbs->jhbt", self._multiplied(tokens), u)
        else:  # rope: own keys
            q, k = self._per_head(tokens)
            r = self._dot(q, k, jnp.broadcast_to(u[None], (q.shape[0], *u.shape))).swapaxes(0, 1)
        return r.reshape(-1, *u.shape[1:])

    def recall_own_values(self, tokens: Tokens) -> Float[Array, "H d_v batch n"]:
        """What the heads recall of values of their own."""
        if self.table is not None:
            return self._dot(*self._per_head(tokens))
        (v,) = self._per_head(tokens)
        if self.kernel is None:
            return einsum("hbst,hjbs->hjbt", self._multiplied(tokens), v)
        r = einsum("hst,hjbs->hjbt", self.kernel, v)
        return r if self.w is None else r * jnp.exp(self.w(tokens))[:, None]

    def _per_head(self, tokens: Tokens) -> list[Float[Array, "H k batch n"]]:
        """All maps of the tokens as one product, then apart."""
        assert self.own_maps is not None
        parts = jnp.split(self.own_maps(tokens), np.cumsum([H * k for H, k in self.sizes])[:-1])
        return [part.reshape(*size, *tokens.shape[1:]) for part, size in zip(parts, self.sizes, strict=True)]

    def _dot_shared(self, A: Map, tokens: Tokens, u: Tokens) -> Float[Array, "J H batch n"]:
        assert self.table is not None
        J, batch, n = u.shape
        q = A(tokens).reshape(J, -1, batch, n).transpose(0, 2, 3, 1).reshape(J, batch, -1)
        size = jnp.abs(tokens).max(axis=(1, 2))
        bound = einsum("jhe,e,j->h", jnp.abs(A.W).reshape(J, -1, len(size)), size, size[:J]).max()
        r: Any = recall_shared(
            self.softmax, tuple(q), u.transpose(1, 2, 0), self.table, self.p, lax.stop_gradient(bound)
        )
        return self._scaled(jnp.stack(r).reshape(J, batch, n, -1).transpose(0, 3, 1, 2), 1)

    def _dot(self, q: Array, k: Array, v: Array) -> Float[Array, "H d_v batch n"]:
        assert self.table is not None
        if self.theta is not None:
            one = lambda x, theta: rotate(x.T, theta).T  # (d_k, n), (n, f)
            turn = jax.vmap(jax.vmap(one, in_axes=(1, None), out_axes=1))
            q, k = turn(q, self.theta), turn(k, self.theta)
        return self._scaled(recall_own_values(self.softmax, q, k, v, self.table, self.p), 0)

    def _scaled(self, r: Array, axis: int) -> Array:
        """`axis` is that of the heads."""
        if self.scale is None:
            return r
        return r * self.scale.reshape([-1 if i == axis else 1 for i in range(r.ndim)])

    def _multiplied(self, tokens: Tokens) -> Float[Array, "H batch n n"]:
        assert self.phi is not None and self.w is not None
        return _weights(self.w(tokens)[:, :, None, :] * self.phi[:, None], self.softmax)


def _stacked(Ws: list[Float[Array, "H k e"]]) -> tuple[tuple[tuple[int, int], ...], Map | None]:
    """(H, k) of each, and all as one map."""
    sizes = tuple((W.shape[0], W.shape[1]) for W in Ws)
    return sizes, Map.of(jnp.concatenate([W.reshape(-1, W.shape[2]) for W in Ws])) if Ws else None


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
            largest = jnp.where(visible, position, -jnp.inf).max(axis=1, keepdims=True, initial=-jnp.inf)
            position = position - lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0.0))
        case "infinite":
            anchor, total = unlimited_past(head.encoding, head.past, dtype)
            position, scale = position - anchor, 1 / total
    return jnp.where(visible, position, -jnp.inf).T, scale


def _weights(logits: Float[Array, "H batch n n"], softmax: bool) -> Float[Array, "H batch n n"]:
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
