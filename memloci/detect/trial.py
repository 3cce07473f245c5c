"""Advice that is checked: the suggested architecture and its two nearest alternatives, trained briefly on the data.

    held-out mean square, as a share of the target's variance, beside the mean, the last value, a linear autoregression and
    the reference predictor

Sequences are cut into windows; the last fifth of them is held out. Steps whose longest memory lies before their window do
not count. Where a series predicts itself, the input at t is the value at t - 1, so that nobody reads the answer.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from memloci.core.errors import BadInput
from memloci.detect.data import Recording
from memloci.detect.detection import Detection
from memloci.model.architecture import Architecture
from memloci.train.train import train

LONGEST_WINDOW = 256  # steps of a window; longer ones take minutes
MOST_WINDOWS = 2_048
RIDGE = 1e-6
# kind -> (layers, attention, encoding), the suggestion first; an exponential tail asks for lin, a power for log.
SUGGESTED: dict[str, tuple[tuple[int, str, str], ...]] = {
    "fixed": ((1, "dpf", "t5"), (1, "dp", "rope"), (1, "dpf", "lin")),
    "adaptive": ((2, "dp", "rope"), (2, "dpf", "t5"), (2, "dp", "lin")),
    "exponential": ((1, "dpf", "lin"), (1, "dpf", "log"), (1, "dpf", "t5")),
    "power": ((1, "dpf", "log"), (1, "dpf", "lin"), (1, "dpf", "t5")),
    "matched": ((2, "dp", "lin"), (2, "dp", "rope"), (2, "dpf", "lin")),
    "mixed": ((2, "dp", "rope"), (2, "dpf", "t5"), (2, "dp", "lin")),
}


@dataclass(frozen=True)
class Trial:
    """A predictor on held-out windows: the share of the variance that it explains."""

    name: str
    r2: float
    parameters: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "r2": self.r2, "parameters": self.parameters}


def trials(detection: Detection, data: Recording, *, steps: int = 300, seed: int = 0) -> tuple[Trial, ...]:
    """The rows of the comparison, the suggestion first."""
    if detection.kind not in SUGGESTED and detection.tail.kind not in SUGGESTED:
        raise BadInput(
            f"--try needs a memory to suggest an architecture for; the data has kind {detection.kind!r}"
        )
    longest = _longest(detection)
    if longest >= LONGEST_WINDOW:
        raise BadInput(
            f"--try trains on windows of {LONGEST_WINDOW} steps, but the longest lag is {longest:,}"
        )
    X, Y = _windows(data, min(LONGEST_WINDOW, max(64, 2 * longest)))
    cut = len(X) - max(1, len(X) // 5)
    counted = slice(longest + 1, None)
    rows = []
    kind = detection.tail.kind if detection.kind == "essential" else detection.kind
    heads = max(2, min(8, 2 * len(detection.memories)))
    for layers, attention, encoding in SUGGESTED[kind]:
        fields: Any = {
            "layers": layers,
            "heads": heads,
            "width": 64,
            "attention": attention,
            "encoding": encoding,
        }
        settings: Any = {"steps": steps, "batch": min(32, cut), "seed": seed, "length": X.shape[1]}
        # The held-out windows are not shown: training keeps a tenth of its own apart.
        fit = train((X[:cut], Y[:cut]), Architecture(dim=32, **fields), **settings)
        f = _predictions(fit.model, X[cut:])
        name = f"{layers} layer{'s' if layers > 1 else ''}, {heads} heads, {attention}, {encoding}"
        rows.append(Trial(name, _share(Y[cut:, counted], f[:, counted]), fit.model.parameter_count))
    return (
        *rows,
        *_baselines(X, Y, cut, counted, longest, data.self_channel is not None),
        *_reference(detection),
    )


def _longest(detection: Detection) -> int:
    lags = list(detection.lags)
    for memory in detection.memories:
        for value in (memory.lag_table or {}).values():
            lags += list(value.values()) if isinstance(value, dict) else [value]
    return max(lags, default=32)


def _windows(data: Recording, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(windows, length, d) and (windows, length, 1), standardised."""
    late = int(data.self_channel is not None)
    xs, ys = [], []
    for x, y in zip(data.x, data.y, strict=True):
        x, y = (x[:-1], y[1:]) if late else (x, y)
        for start in range(0, len(y) - length + 1, length):
            xs.append(x[start : start + length])
            ys.append(y[start : start + length])
    if len(xs) < 10:
        raise BadInput(f"--try needs 10 windows of {length} steps, the data has {len(xs)}")
    some = np.linspace(0, len(xs) - 1, min(len(xs), MOST_WINDOWS)).astype(int)
    X, Y = np.stack([xs[k] for k in some]), np.stack([ys[k] for k in some])[..., None]
    X = (X - np.nanmean(X, (0, 1))) / (np.nanstd(X, (0, 1)) + 1e-12)
    Y = (Y - np.nanmean(Y)) / (np.nanstd(Y) + 1e-12)
    return np.nan_to_num(X).astype(np.float32), np.nan_to_num(Y).astype(np.float32)


def _predictions(model: Any, X: np.ndarray) -> np.ndarray:
    import jax

    return np.asarray(jax.vmap(model)(X))


def _share(y: np.ndarray, f: np.ndarray) -> float:
    return 1 - float(np.mean((y - f) ** 2) / max(float(np.var(y)), 1e-12))


def _baselines(
    X: np.ndarray, Y: np.ndarray, cut: int, counted: slice, longest: int, own_past: bool
) -> tuple[Trial, ...]:
    """The mean of the training windows, the last value, and a ridge over all lags up to the longest."""
    y = Y[cut:, counted]
    mean = np.full_like(y, Y[:cut, counted].mean())
    rows = [Trial("mean", _share(y, mean))]
    last = X[cut:, counted, :1] if own_past else np.roll(Y, 1, axis=1)[cut:, counted]
    rows.append(Trial("last value", _share(y, last)))
    order = min(longest + 1, 64)
    F = np.concatenate([np.roll(X, z, axis=1)[:, counted] for z in range(order)], axis=2).astype(float)
    A, b = F[:cut].reshape(-1, F.shape[2]), Y[:cut, counted].reshape(-1)
    beta = np.linalg.solve(A.T @ A + RIDGE * len(A) * np.eye(A.shape[1]), A.T @ b)
    f = (F[cut:].reshape(-1, F.shape[2]) @ beta).reshape(y.shape)
    return (*rows, Trial(f"linear, {order} lags", _share(y, f), A.shape[1]))


def _reference(detection: Detection) -> tuple[Trial, ...]:
    r2 = detection.explained.reference_r2
    return () if r2 is None else (Trial("reference (boosted trees)", r2),)
