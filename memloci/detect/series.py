"""A recording made ready: standardised, laid out on one axis of time, with the steps whose target counts.

    [T zeros] sequence 1 [T zeros] sequence 2 [T zeros] ...

The zeros keep sequences apart at every lag z <= T, so one shift of one array gives x_{t-z} everywhere. Zero is the mean
of a channel, which stands for what is missing or blank. Where sequences are long, only steps with a whole past count.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from memloci.core.errors import BadInput
from memloci.detect.data import Recording

FOLDS = 5
MOST_SYMBOLS = 4_096  # of a channel that can be a key
MOST_POINTER_SYMBOLS = 32  # of a channel that can choose a lag
MOST_STEPS = 400_000  # that are searched; of a longer recording, evenly spaced stretches
STRETCHES = 8
CLIP = 4.0  # standard deviations; heavier tails would hand the test to a few steps


@dataclass(frozen=True, eq=False)
class Series:
    """Standardised channels `X`, target `y`, and the `rows` whose target counts."""

    X: np.ndarray  # (N, d)
    raw: np.ndarray  # (N, d), in the user's units
    y: np.ndarray  # (rows,), standardised
    rows: np.ndarray  # positions in 0..N-1
    T: int
    least: int  # 0 where the present may be read, 1 where it is the target
    names: tuple[str, ...]
    centre: np.ndarray  # (d,)
    scale: np.ndarray  # (d,)
    y_centre: float
    y_scale: float
    steps: int  # of the whole recording
    symbols: tuple[np.ndarray | None, ...]  # per channel, its values if they are few
    words: tuple[bool, ...]  # per channel: its symbols are words, whose numbers mean nothing
    self_channel: int | None
    y_symbols: np.ndarray | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def d(self) -> int:
        return self.X.shape[1]

    @cached_property
    def clipped(self) -> np.ndarray:
        """X with its tails cut off, for tests."""
        return np.clip(self.X, -CLIP, CLIP)

    @cached_property
    def inside(self) -> np.ndarray:
        """1 where there is a token, 0 in the gaps."""
        return np.isfinite(self.raw[:, 0]).astype(float)

    @cached_property
    def blocks(self) -> np.ndarray:
        """For each row, its block: up to 50 stretches of time, over which sums are compared."""
        count = int(np.clip(self.n // 20, 6, 50))
        return np.arange(self.n) * count // self.n

    @cached_property
    def folds(self) -> np.ndarray:
        return np.arange(self.n) * FOLDS // self.n

    @cached_property
    def held_out(self) -> np.ndarray:
        """The last fifth of the rows, which no class and no reference is fitted on."""
        return self.folds == FOLDS - 1

    def lagged(self, c: int, z: int) -> np.ndarray:
        """x_{t-z} of channel c at every row."""
        return self.X[self.rows - z, c]

    def raw_lagged(self, c: int, z: int) -> np.ndarray:
        values = self.raw[self.rows - z, c]
        return np.where(np.isfinite(values), values, self.centre[c])

    def scatter(self, values: np.ndarray) -> np.ndarray:
        """A value per row, on the axis of time."""
        scattered = np.zeros(len(self.X))
        scattered[self.rows] = values
        return scattered

    def pointer_channels(self) -> Iterator[int]:
        for c, values in enumerate(self.symbols):
            if values is not None and 2 <= len(values) <= MOST_POINTER_SYMBOLS:
                yield c

    def autocorrelation(self, c: int) -> float:
        """Of channel c at lag 1."""
        a, b = self.X[1:, c], self.X[:-1, c]
        both = (self.inside[1:] * self.inside[:-1]) > 0
        return float(np.mean(a[both] * b[both])) if both.any() else 0.0


def prepare(recording: Recording, max_lag: int) -> Series:
    """The series of a recording; lags reach as far as its sequences allow."""
    notes = list(recording.notes)
    xs, ys = recording.x, recording.y
    if recording.steps > MOST_STEPS * 1.5 and len(xs) <= STRETCHES:
        xs, ys = _stretches(xs, ys)
        notes.append(
            f"{recording.steps:,} steps: {sum(map(len, ys)):,} of them, in evenly spaced stretches, are searched."
        )
    elif recording.steps > MOST_STEPS * 1.5:
        sampled = np.linspace(0, len(xs) - 1, max(1, int(len(xs) * MOST_STEPS / recording.steps))).astype(int)
        xs, ys = tuple(xs[k] for k in sampled), tuple(ys[k] for k in sampled)
        notes.append(f"{recording.steps:,} steps: {len(xs):,} of the sequences, evenly spaced, are searched.")
    longest = max(map(len, ys))
    reach = longest // 4 if len(ys) < 4 else longest - 1
    T = max(1, min(max_lag, reach))
    if max_lag < 1:
        raise BadInput(f"max_lag must be 1 or more, found {max_lag}")
    if T < max_lag:
        notes.append(f"Lags are searched up to {T:,}: the longest sequence has {longest:,} steps.")
    # Of long sequences, the first T steps have no whole past and are left out.
    lengths = np.array([len(y) for y in ys])
    skip = T if np.median(lengths) >= 4 * T else 1 if recording.self_channel is not None else 0
    raw, target, rows = _laid_out(xs, ys, T, skip)
    centre, scale = _standard(raw)
    X = np.where(np.isfinite(raw), (raw - centre) / scale, 0.0)
    y = target[rows]
    y_scale = float(y.std())
    if not y_scale:
        raise BadInput("the target is constant over the steps that have a whole past")
    symbols = tuple(_alphabet(raw[:, c]) for c in range(raw.shape[1]))
    own_words = (
        recording.self_channel is not None
        and bool(recording.alphabets)
        and recording.alphabets[recording.self_channel] is not None
    )
    return Series(
        X,
        raw,
        (y - y.mean()) / y_scale,
        rows,
        T,
        1 if recording.self_channel is not None else 0,
        recording.names,
        centre,
        scale,
        float(y.mean()),
        y_scale,
        recording.steps,
        symbols,
        tuple(a is not None for a in recording.alphabets) or (False,) * recording.d,
        recording.self_channel,
        np.unique(y) if own_words else None,
        tuple(notes),
    )


def _stretches(xs: tuple, ys: tuple) -> tuple[tuple, tuple]:
    """Evenly spaced parts of few and long sequences."""
    each = MOST_STEPS // STRETCHES
    share = max(1, STRETCHES // len(xs))
    new_x, new_y = [], []
    for x, y in zip(xs, ys, strict=True):
        starts = np.linspace(0, max(0, len(y) - each), share).astype(int)
        new_x += [x[s : s + each] for s in starts]
        new_y += [y[s : s + each] for s in starts]
    return tuple(new_x), tuple(new_y)


def _laid_out(xs: tuple, ys: tuple, T: int, skip: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    d = xs[0].shape[1]
    N = T + sum(len(y) + T for y in ys)
    raw, target = np.full((N, d), np.nan), np.full(N, np.nan)
    counted = np.zeros(N, bool)
    at = T
    for x, y in zip(xs, ys, strict=True):
        raw[at : at + len(x)], target[at : at + len(y)] = x, y
        counted[at + skip : at + len(y)] = True
        at += len(y) + T
    rows = np.flatnonzero(counted & np.isfinite(target))
    if len(rows) < 20:
        raise BadInput(f"{len(rows)} steps have a target and a past; at least 20 are needed")
    return raw, target, rows


def _standard(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre = np.nanmean(raw, axis=0)
    scale = np.nanstd(raw, axis=0)
    return centre, np.where(scale > 1e-12 * np.maximum(1.0, np.abs(centre)), scale, 1.0)


def _alphabet(values: np.ndarray) -> np.ndarray | None:
    """The distinct values, where they are few and each is seen often; only whole numbers can be many."""
    finite = values[np.isfinite(values)]
    some = np.unique(finite[:: max(1, len(finite) // 20_000)])
    if len(some) > MOST_SYMBOLS:
        return None
    symbols = np.unique(finite)
    few = len(symbols) <= MOST_POINTER_SYMBOLS and len(symbols) * 8 <= len(finite)
    whole_numbers = (
        len(symbols) * 8 <= len(finite)
        and len(symbols) <= MOST_SYMBOLS
        and bool((symbols == np.round(symbols)).all())
    )
    return symbols if few or whole_numbers else None
