"""The Transformer in float64 NumPy, loop by loop, straight from the theory.

Every number is a `Rounded`, so the oracle also says how far another computation may honestly be off.
Zeta comes from rigorous ball arithmetic, angles from Python's integers.
"""

import math
from typing import Any

import flint
import jax
import numpy as np

from memloci.model.transformer import Transformer

from .rounding import Rounded, apply, dot, exact, nearly


def transformer(model: Transformer, x) -> tuple[np.ndarray, np.ndarray]:
    """y of shape (n, outputs), and its rounding error in units of eps."""
    a = model.architecture
    model = jax.tree.map(np.asarray, model)
    x = np.asarray(x, np.float64)
    X = [apply(model.W_E, exact(x_t)) + exact(model.b_E) for x_t in x]
    if a.encoding == "learned":
        X = [X_t + exact(at(model.positions, "table")[t]) for t, X_t in enumerate(X)]
    if a.encoding == "sin":
        X = [X_t + wave(at(model.positions, "turns"), t, a.dim) for t, X_t in enumerate(X)]
    for layer in model.layers:
        heard = attend(layer.attention.heads, a, [norm(layer.before_attention, X_t) for X_t in X])
        X = [norm(layer.after_attention, X_t + y_t) for X_t, y_t in zip(X, heard, strict=True)]
        if layer.ffn is not None:
            f = layer.ffn
            for t, X_t in enumerate(X):
                hidden = (apply(f.B, norm(layer.before_ffn, X_t)) + exact(f.c)).relu()
                X[t] = norm(layer.after_ffn, X_t + apply(f.A, hidden))
    y = [apply(model.W_U, norm(model.before_readout, X_t)) + exact(model.b_U) for X_t in X]
    value, error = ([getattr(y_t, field) for y_t in y] for field in ("value", "error"))
    return np.reshape(value, (len(x), model.outputs)), np.reshape(error, (len(x), model.outputs))


def attend(heads: Any, a: Any, X: list[Rounded]) -> list[Rounded]:
    """Attn(X)_t = sum_h W_O^h W_V^h sum_s a^h(t, s) x_s."""
    out = []
    for t in range(len(X)):
        total = exact(np.zeros(a.dim))
        for h in range(a.heads):
            visible = [s for s in range(t) if admitted(a, t - s)]
            weights = [logit(heads, a, h, X[t], X[s], t - s).exp() for s in visible]
            if a.normalisation == "infinite":
                Z = normaliser(heads, a, h)
                weights = [w / Z for w in weights]
            if a.normalisation == "softmax" and visible:
                Z = sum(weights[1:], weights[0])
                weights = [w / Z for w in weights]
            recalled = exact(np.zeros(a.value_dim))
            for s, w in zip(visible, weights, strict=True):
                recalled = recalled + w * apply(heads.W_V[h], X[s])
            total = total + apply(heads.W_O[h], recalled)
        out.append(total)
    return out


def admitted(a: Any, z: int) -> bool:
    return z >= 1 and z % a.stride == 0 and (a.window is None or z <= a.window)


def logit(heads: Any, a: Any, h: int, x_t: Rounded, x_s: Rounded, z: int) -> Rounded:
    match a.attention:
        case "dp":
            q, k = apply(heads.score.W_Q[h], x_t), apply(heads.score.W_K[h], x_s)
            if a.encoding == "rope":
                return turned(q, k, heads.encoding.turns[h], z)
            return dot(q, k) + position(heads, a, h, z)
        case "dpf":
            return position(heads, a, h, z)
        case "tmx":
            return dot(exact(heads.score.w[h]), x_t) + position(heads, a, h, z)
        case "tmx-mul":
            return dot(exact(heads.score.w[h]), x_t) * phi(heads, a, h, z)
    raise AssertionError(a.attention)


def position(heads: Any, a: Any, h: int, z: int) -> Rounded:
    match a.encoding:
        case "lin" | "log":
            return exact(heads.encoding.p[h]) * phi(heads, a, h, z)
        case "t5":
            return phi(heads, a, h, z)
        case "rope":
            encoding = heads.encoding
            return turned(exact(encoding.q[h]), exact(encoding.k[h]), encoding.turns[h], z)
    return exact(0.0)


def phi(heads: Any, a: Any, h: int, z: int) -> Rounded:
    match a.encoding:
        case "lin":
            return exact(-z)
        case "log":
            return nearly(-math.log(z))
        case "t5":
            E, M = a.buckets // 2, a.max_distance
            q = a.buckets - E - 1
            beyond = sum(z > E * (M / E) ** (j / q) for j in range(1, q + 1))
            return exact(heads.encoding.table[h][z - 1 if z <= E else E + beyond])
    raise AssertionError(a.encoding)


def normaliser(heads: Any, a: Any, h: int) -> Rounded:
    """Z = sum over all admitted lags of e^{position part}."""
    if a.window is not None:
        terms = [position(heads, a, h, z).exp() for z in range(1, a.window + 1) if admitted(a, z)]
        return sum(terms[1:], terms[0])
    p, k = float(heads.encoding.p[h]), a.stride
    if a.encoding == "lin":
        return nearly(1 / math.expm1(p * k))
    return nearly(k**-p * zeta(p))


def zeta(p: float, shift: int = 1) -> float:
    """zeta(p, shift), correctly rounded."""
    return float(flint.arb(p).zeta(flint.arb(shift)))


def turned(q: Rounded, k: Rounded, turns: Any, z: int) -> Rounded:
    """<R_t q, R_s k> = sum_j cos(omega_j z) (q1 k1 + q2 k2) + sin(omega_j z) (q1 k2 - q2 k1)."""
    f = len(turns)
    total = exact(0.0)
    for j in range(f):
        q1, q2, k1, k2 = q[j], q[j + f], k[j], k[j + f]
        cos, sin = cos_sin(int(turns[j]) * z)
        total = total + (q1 * k1 + q2 * k2) * cos + (q1 * k2 - q2 * k1) * sin
    return total


def cos_sin(count: int) -> tuple[Rounded, Rounded]:
    """Of `count` 2^-32 turns; the angle is off by as much as half a turn's rounding."""
    angle = 2 * math.pi * (count % 2**32 / 2**32)
    unit = np.asarray(1 + math.pi)
    return Rounded(np.asarray(math.cos(angle)), unit), Rounded(np.asarray(math.sin(angle)), unit)


def wave(turns: Any, t: int, D: int) -> Rounded:
    """(sin omega_j t)_j, then (cos omega_j t)_j, D numbers in all."""
    pairs = [cos_sin(int(count) * t) for count in turns]
    numbers = [sin for _, sin in pairs] + [cos for cos, _ in pairs]
    value, error = ([getattr(number, field) for number in numbers] for field in ("value", "error"))
    return Rounded(np.array(value), np.array(error))[:D]


def norm(layer: Any, x: Rounded) -> Rounded:
    match type(layer).__name__:
        case "LayerNorm":
            centred = x - x.mean()
            deviation = ((centred * centred).mean() + 1e-5).sqrt()
            return centred / deviation * exact(layer.gain) + exact(layer.bias)
        case "RMSNorm":
            return x / ((x * x).mean() + 1e-5).sqrt() * exact(layer.gain)
    return x


def at(module: Any, field: str) -> np.ndarray:
    return np.asarray(getattr(module, field))
