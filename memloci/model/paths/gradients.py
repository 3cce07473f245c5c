"""Linear maps and attention over a batch, each with the gradient that is fast on a CPU.

    linear   Y = W X,  X' = W^T Y',  W' = Y' X^T   with a column for every token: all three are then fast, while
             with a row for every token W' is twice as slow
    recall   r_t = sum_{s<t} a(t, s) v_s,   a = softmax over s of  <q_t, k_s> + table(s, t),  or exp of it

Scores are kept [key, query], so a softmax runs over a major axis and all loops along queries. In `recall_shared`
all heads read the same few keys and values, which get no gradient: a column is a (query, head), and a product
over the features is a few multiplications in the same loop as the exponential. `recall_own_values` has keys and
values per head. Queries come in blocks, which skip the keys after them.

Softmax is exact. `table` has a largest entry of 0 for every query, and the largest logit is subtracted unless
|<q, k>| <= C everywhere, C = SAFE log(largest float). Then the sum of a query lies in [e^-C, n e^C]: it does not
overflow, what is too small for a float is far below eps of it, and relative errors do not depend on the shift.

Under softmax p phi(z) = p s + (a term of t, which cancels) for lin: the slope's gradient is that of one more
key feature, s, and the table needs none. Otherwise the table's gradient is summed over the batch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from memloci.core.arrays import PerHead, Scalar

SAFE = 0.6  # proved, see above: e^-53 and e^53 in float32, what is lost is below e^-34 of the sum
BLOCKS, LEAST_COLUMNS = 4, 128  # tuned
UNROLLED = 16  # tuned: products over so few features join the loop over pairs

Columns = Float[Array, "batch nH"]  # a number per (query, head)

einsum = partial(jnp.einsum, precision=lax.Precision.HIGHEST)


class Map(eqx.Module):
    """A matrix, and a copy of its transpose for the gradient of X: a product that must transpose is slow."""

    W: Float[Array, "o i"]
    T: Float[Array, "i o"]

    @classmethod
    def of(cls, W: Float[Array, "o i"]) -> "Map":
        return cls(W, lax.stop_gradient(W).T)

    def __call__(self, X: Float[Array, "i *tokens"]) -> Float[Array, "o *tokens"]:
        return linear(self.W, self.T, X)


@jax.custom_vjp
def linear(
    W: Float[Array, "o i"], T: Float[Array, "i o"], X: Float[Array, "i *tokens"]
) -> Float[Array, "o *tokens"]:
    return _product(W, _flat(X), (1, 0)).reshape(W.shape[0], *X.shape[1:])


def _linear_forward(W, T, X):
    return linear(W, T, X), (T, X)


def _linear_backward(residuals, Y_):
    T, X = residuals
    Y_ = _flat(Y_)
    return _product(Y_, _flat(X), (1, 1)), jnp.zeros_like(T), _product(T, Y_, (1, 0)).reshape(X.shape)


linear.defvjp(_linear_forward, _linear_backward)


def _flat(X: Float[Array, "i *tokens"]) -> Float[Array, "i columns"]:
    return X.reshape(X.shape[0], -1)


def _product(A: Array, B: Array, axes: tuple[int, int]) -> Array:
    return lax.dot_general(A, B, (((axes[0],), (axes[1],)), ((), ())), precision=lax.Precision.HIGHEST)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def recall_shared(
    softmax: bool,
    q: tuple[Columns, ...],
    u: Float[Array, "batch n J"],
    table: Float[Array, "n nH"],
    p: PerHead | None,
    bound: Scalar,
) -> tuple[Columns, ...]:
    """The J features of what each head recalls. Keys and values are `u`; `table` is -inf where s >= t.

    `bound` >= |<q, u>|, over all positions and heads: from the weights it costs nothing.
    """
    return _shared_forward(softmax, q, u, table, p, bound)[0]


def _shared_forward(softmax, q, u, table, p, bound):
    n, J = u.shape[1:]
    H = table.shape[1] // n
    q = _apart(q[0][0, 0] == q[0][0, 0], q)
    logits = lambda hi, columns: _products([a[:, columns] for a in q], u[:, :hi]) + table[None, :hi, columns]
    shift, v = None, u
    if softmax:
        shift = _shift(bound, q[0], lambda: logits(n, slice(None)).max(axis=1))
        v = jnp.concatenate([u, jnp.ones_like(u[:, :, :1])], axis=2)
    weights, sums = [], []
    for lo, hi in _blocks(n, H):
        columns = slice(lo * H, hi * H)
        x = logits(hi, columns)
        weights.append(jnp.exp(x if shift is None else x - shift[:, None, columns]))
        sums.append(einsum("bsc,bsj->bjc", weights[-1], v[:, :hi]))
    sums = jnp.concatenate(sums, axis=2)
    inverse = None
    r = tuple(sums[:, j] for j in range(J))
    if softmax:
        inverse = 1 / jnp.where(sums[:, J] > 0, sums[:, J], 1.0)  # t = 0 sees nothing
        r = tuple(a * inverse for a in r)
    return r, (u, table, p, weights, r, inverse)


def _shared_backward(softmax, residuals, r_):
    u, table, p, weights, r, inverse = residuals
    n, J = u.shape[1:]
    H = table.shape[1] // n
    mean = None
    if softmax:
        r_ = tuple(a * inverse for a in r_)
        mean = sum(a * b for a, b in zip(r_, r, strict=True))
    r_, mean = _apart(r[0][0, 0] == r[0][0, 0], (r_, mean))
    q_, table_ = [], []
    for (lo, hi), a in zip(_blocks(n, H), weights, strict=True):
        columns = slice(lo * H, hi * H)
        a_ = _products([g[:, columns] for g in r_], u[:, :hi])
        x_ = a * (a_ if mean is None else a_ - mean[:, None, columns])
        q_.append(einsum("bsc,bsj->bjc", x_, u[:, :hi] if p is None else _placed(u[:, :hi], 1, 2)))
        if p is None:
            table_.append(jnp.pad(x_.sum(axis=0), [(0, n - hi), (0, 0)]))
    q_ = jnp.concatenate(q_, axis=2)
    p_ = None if p is None else _total(q_[:, J].reshape(-1, H))
    table_ = jnp.concatenate(table_, axis=1) if p is None else jnp.zeros_like(table)
    return tuple(q_[:, j] for j in range(J)), jnp.zeros_like(u), table_, p_, jnp.zeros((), u.dtype)


recall_shared.defvjp(_shared_forward, _shared_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def recall_own_values(
    softmax: bool,
    q: Float[Array, "H d_k batch n"],
    k: Float[Array, "H d_k batch n"],
    v: Float[Array, "H d_v batch n"],
    table: Float[Array, "H n n"],
    p: PerHead | None,
) -> Float[Array, "H d_v batch n"]:
    """What each head recalls, from keys and values of its own."""
    return _own_values_forward(softmax, q, k, v, table, p)[0]


def _own_values_forward(softmax, q, k, v, table, p):
    q, k, v = _apart(q[0, 0, 0, 0] == q[0, 0, 0, 0], (q, k, v))
    logits = lambda: _own_values_products(q, k) + table[:, None]
    if not softmax:
        weights = jnp.exp(logits())
        r = _recalled(v, weights)
        return r, (q, k, v, table, p, weights, r, None)
    squares = lambda k: sum(k[:, j] ** 2 for j in range(k.shape[1]))
    bound = jnp.sqrt(jnp.max(squares(q)) * jnp.max(squares(k)))
    shift = _shift(bound, q[:, 0], lambda: logits().max(axis=2))
    weights = jnp.exp(logits() - shift[:, :, None])
    sums = _recalled(jnp.concatenate([v, jnp.ones_like(v[:, :1])], axis=1), weights)
    inverse = 1 / jnp.where(sums[:, -1:] > 0, sums[:, -1:], 1.0)
    r = sums[:, :-1] * inverse
    return r, (q, k, v, table, p, weights, r, inverse)


def _own_values_backward(softmax, residuals, r_):
    q, k, v, table, p, weights, r, inverse = residuals
    mean = None
    if softmax:
        r_ = r_ * inverse
        mean = sum(r_[:, j] * r[:, j] for j in range(r.shape[1]))
    r_, mean = _apart(r[0, 0, 0, 0] == r[0, 0, 0, 0], (r_, mean))
    a_ = _own_values_products(r_, v)
    x_ = weights * (a_ if mean is None else a_ - mean[:, :, None])
    q_ = _recalled(k if p is None else _placed(k, 3, 1), x_)
    p_ = None if p is None else q_[:, -1].sum(axis=(1, 2))
    table_ = x_.sum(axis=1) if p is None else jnp.zeros_like(table)
    k_ = einsum("hbst,hjbt->hbsj", x_, q).transpose(
        0, 3, 1, 2
    )  # tuned: this order of the product, then a copy
    v_ = einsum("hbst,hjbt->hbsj", weights, r_).transpose(0, 3, 1, 2)
    return q_[:, : k.shape[1]], k_, v_, table_, p_


recall_own_values.defvjp(_own_values_forward, _own_values_backward)


def _recalled(
    v: Float[Array, "H j batch n"], weights: Float[Array, "H batch n n"]
) -> Float[Array, "H j batch n"]:
    return einsum("hjbs,hbst->hbjt", v, weights).swapaxes(
        1, 2
    )  # tuned: else it is the weights that are copied


def _blocks(n: int, H: int) -> list[tuple[int, int]]:
    """Ranges of queries; those of a block see the keys before its end."""
    count = min(BLOCKS, max(1, n * H // LEAST_COLUMNS), max(1, n))
    edges = [n * i // count for i in range(count + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def _placed(k: Array, s: int, j: int) -> Array:
    """Keys and one more feature, their position counted from the last: most weight is there, and small
    numbers round less. `s` and `j` are the axes of keys and features."""
    one = lax.slice_in_dim(k, 0, 1, axis=j)
    return jnp.concatenate([k, lax.broadcasted_iota(k.dtype, one.shape, s) - (k.shape[s] - 1)], axis=j)


def _products(a: Sequence[Columns], u: Float[Array, "batch s J"]) -> Float[Array, "batch s nH"]:
    """sum_j a_j u_j, to be part of a larger loop."""
    return sum(a[j][:, None, :] * u[:, :, j, None] for j in range(len(a)))  # pyright: ignore[reportReturnType]


def _own_values_products(
    q: Float[Array, "H j batch n"], k: Float[Array, "H j batch n"]
) -> Float[Array, "H batch n n"]:
    if k.shape[1] > UNROLLED:
        return einsum("hjbs,hjbt->hbst", k, q)
    return sum(q[:, j, :, None, :] * k[:, j, :, :, None] for j in range(k.shape[1]))  # pyright: ignore[reportReturnType]


def _total(rows: Float[Array, "rows H"]) -> PerHead:
    """The sum over rows, as a product: sums over a major axis are slow."""
    return _product(jnp.ones((1, rows.shape[0]), rows.dtype), rows, (1, 0))[0]


def _shift(bound: Scalar, like: Array, largest: Callable[[], Array]) -> Array:
    """What to subtract from the logits of a query: 0 if that is proved safe, else the largest of them."""
    safe = bound <= SAFE * float(np.log(jnp.finfo(like.dtype).max))

    def found() -> Array:
        top = largest()
        return jnp.where(jnp.isfinite(top), top, 0.0)  # t = 0 sees nothing

    return lax.cond(safe, lambda: jnp.zeros_like(like), found)


def _apart(finite: Bool[Array, ""], values: Any) -> Any:
    """The same values, computed once: XLA would repeat them in the loop over all pairs that reads them.

    It ignores barriers there, but not a condition; where it fails, all is NaN anyway.
    """
    return lax.cond(finite, lambda: values, lambda: jax.tree.map(lambda x: x + jnp.nan, values))
