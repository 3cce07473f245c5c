"""Antipodal points of a box on which a map agrees: the zeros that Borsuk-Ulam promises, searched for.

    F(u) = S(u) - S(-u) = 0,    u in [-1, 1]^m,    max_{j < asked} |u_j| = 1

S: R^m -> R^n is continuous and n < asked, so a zero exists. Levenberg-Marquardt from many starts at once: the
largest asked coordinate stays at +-1 (a face of the box), the others take the damped Gauss-Newton step of
least length, and a step that leaves the box is scaled back to its boundary, on another face. A linear S is
solved by the first step, which projects the start on the null space. With ReLU networks in S the map has
kinks where steps can stall; other starts do not stall there. Nothing is claimed when all of them do.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

AGREED = 1e-9  # of the size that F has at random points, in each of its n numbers
ENOUGH = 4  # zeros; rounding may spoil one of them


def antipodes(
    S: Callable[[Any], Any], m: int, free: int, *, key: Any, starts: int = 16, steps: int = 80
) -> tuple[np.ndarray, np.ndarray]:
    """The zeros found, (k, m), and what is left of F at each, relative to its size at the starts."""
    F = lambda u: S(u) - S(-u)
    both = jax.jit(jax.vmap(lambda u: (F(u), jax.jacfwd(F)(u))))

    def evaluate(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        value, slope = (np.array(a) for a in both(jnp.asarray(u)))
        together = np.concatenate([value[:, :, None], slope], axis=2).reshape(len(u), -1)
        return value, slope, np.asarray(np.isfinite(together).all(axis=1))

    u = _to_boundary(np.asarray(jr.uniform(key, (starts, m), jnp.dtype("float64"), -1, 1)), free)
    value, slope, finite = evaluate(u)
    u, value, slope = u[finite], value[finite], slope[finite]
    if not len(u):
        return u, np.zeros(0)
    # The n numbers may differ in size by many orders, and each of them matters to what follows.
    size = np.sqrt(np.square(value).mean(axis=0)) + np.finfo(float).tiny
    value, slope = value / size[None, :], slope / size[None, :, None]
    damping = np.full(len(u), 1e-3)
    for _ in range(steps):
        left = np.abs(value).max(axis=1)
        if (left <= AGREED).sum() >= min(ENOUGH, len(u)):
            break
        tried = _to_boundary(u + _step(value, slope, damping, np.abs(u[:, :free]).argmax(axis=1)), free)
        new_value, new_slope, finite = evaluate(tried)
        new_value, new_slope = new_value / size[None, :], new_slope / size[None, :, None]
        with np.errstate(all="ignore"):
            better = finite & (np.square(new_value).sum(axis=1) < np.square(value).sum(axis=1))
        u[better], value[better], slope[better] = tried[better], new_value[better], new_slope[better]
        damping = np.where(better, 0.1 * damping, np.minimum(5 * damping + 1e-12, 1e6))
    left = np.abs(value).max(axis=1)
    return u[left <= AGREED], left[left <= AGREED]


def _step(value: np.ndarray, slope: np.ndarray, damping: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """-J^T (J J^T + damping^2 |J|^2)^-1 F with the held coordinate left out; by SVD, for J may lack rank."""
    J = slope.copy()
    J[np.arange(len(J)), :, fixed] = 0.0
    U, s, V = np.linalg.svd(J, full_matrices=False)
    largest = s[:, :1]
    inverse = s / (s**2 + (damping[:, None] * largest) ** 2 + np.finfo(float).tiny)
    inverse = np.where(s > 1e-13 * largest, inverse, 0.0)
    return -np.einsum("bkm,bk,bnk,bn->bm", V, inverse, U, value)


def _to_boundary(u: np.ndarray, free: int) -> np.ndarray:
    """Asked coordinates scaled to sup norm 1, the others kept in the box."""
    front = u[:, :free] / np.abs(u[:, :free]).max(axis=1, keepdims=True)
    return np.concatenate([front, np.clip(u[:, free:], -1.0, 1.0)], axis=1)
