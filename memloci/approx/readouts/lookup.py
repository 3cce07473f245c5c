"""Tables in one ReLU layer: a finite function of recalled symbols, exact and deaf to small errors.

    y = A relu(B v + c)

A lag function is a table over symbols. The variables that it reads come in two kinds:

fresh   a symbol as it arrived, perhaps with an error: one direction kappa = <u, v> lays the symbols out on a
        line, and a staircase with a plateau around each reads them; an error below a quarter of the gap
        between neighbours changes nothing, exactly. Symbols that arrive exactly (the present token) need
        no plateaus: one neuron per symbol, a broken line through the values.
old     a symbol that an earlier layer has already compared with each letter: the stream holds distances
        d_i = 0 at letter i (exactly, within the margin) and d_i >= 1 at every other. A neuron gets - big d_i
        and so lives for its own letter only: old variables cost no cancellation, however many cells.

A blank memory (presence 0) silences every neuron, so everything that reads it is 0.

Width: neurons of neighbours with the same value are not built; directions along which a table needs fewer
steps (a lag like 2 a + b is a function of itself) are tried first. Rounding: on a line of n symbols the
neurons reach n and cancel to 1, which costs about n^2 roundings; `longest` says where that is still small.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memloci.core.errors import BadInput
from memloci.core.numbers import literal
from memloci.core.precision import PRECISIONS
from memloci.language.domain import Domain

PLATEAU = 0.25  # of the free gap on either side of a symbol that may be in error
MOST_SYMBOLS = 8_192  # symbols on one line, whatever the precision
CANCELLED = 48**2 * 2.0**-24  # tuned: n^2 u before rounding shows; 48 symbols in float32
ROOM = 1.25  # a gated value may exceed its size by a quarter, and no neuron is near 0
MAX_WIDTH = 1 << 17


def longest(precision: str) -> int:
    """Symbols on one line before rounding shows."""
    return max(2, min(MOST_SYMBOLS, math.isqrt(int(CANCELLED / PRECISIONS[precision].u))))


class TooLong(BadInput):
    """More symbols on one line than the precision tells apart."""


@dataclass(frozen=True)
class Fresh:
    """A variable read from slot `name`; `presence` is the slot that is 1 unless the memory is blank."""

    name: str
    pieces: Domain
    exact: bool = False  # it arrives without error, like the present token
    presence: str | None = None


@dataclass(frozen=True)
class Old:
    """A variable whose distance from each letter is in the slots `distances`; `absence` is >= 1 if blank."""

    pieces: Domain
    distances: tuple[str, ...]
    absence: str | None = None


@dataclass(frozen=True)
class LookupNeurons:
    """A ReLU layer between named slots."""

    inputs: tuple[str, ...]
    B: np.ndarray  # (m, inputs)
    c: np.ndarray  # (m,)
    outputs: tuple[str, ...]
    A: np.ndarray  # (outputs, m)
    purposes: tuple[str, ...] = ()  # of each neuron

    @property
    def width(self) -> int:
        return len(self.c)

    def __call__(self, values: Mapping[str, float]) -> dict[str, float]:
        v = np.array([values[name] for name in self.inputs])
        return dict(zip(self.outputs, self.A @ np.maximum(self.B @ v + self.c, 0.0), strict=True))


@dataclass(frozen=True)
class _Neuron:
    B: tuple[tuple[str, float], ...]
    c: float


class LookupLayer:
    """Neurons under construction; equal ones are built once."""

    def __init__(self):
        self.outputs_of: dict[_Neuron, dict[str, float]] = {}
        self.purposes: dict[_Neuron, dict[str, None]] = {}
        self.purpose = "table"  # of the neurons that are being added
        self.origins: dict[str, tuple[str, float]] = {}  # slot -> (slot, number that was taken off it)

    def measured_from(self, name: str, origin: float) -> str:
        """A slot that holds another one's number, less an origin: small where it matters rounds little."""
        if not origin:
            return name
        slot = f"{name} - {literal(origin)}"
        self.origins[slot] = (name, origin)
        return slot

    def add(self, B: Mapping[str, float], c: float, out: Mapping[str, float]) -> None:
        neuron = _Neuron(tuple(sorted((k, float(w)) for k, w in B.items() if w)), float(c))
        outputs = self.outputs_of.setdefault(neuron, {})
        self.purposes.setdefault(neuron, {})[self.purpose] = None
        for name, gain in out.items():
            outputs[name] = outputs.get(name, 0.0) + float(gain)

    def neurons(self) -> LookupNeurons:
        used = [(n, out) for n, out in self.outputs_of.items() if any(out.values())]
        if len(used) > MAX_WIDTH:
            raise BadInput(f"a table needs {len(used):,} neurons; at most {MAX_WIDTH:,} are built")
        inputs = tuple(dict.fromkeys(name for n, _ in used for name, _ in n.B))
        outputs = tuple(dict.fromkeys(name for _, out in used for name in out))
        B, A = np.zeros((len(used), len(inputs))), np.zeros((len(outputs), len(used)))
        row, column = {n: i for i, n in enumerate(inputs)}, {n: i for i, n in enumerate(outputs)}
        for k, (neuron, out) in enumerate(used):
            for name, w in neuron.B:
                B[k, row[name]] = w
            for name, gain in out.items():
                A[column[name], k] = gain
        purposes = tuple(", ".join(self.purposes[n]) for n, _ in used)
        return LookupNeurons(inputs, B, np.array([n.c for n, _ in used]), outputs, A, purposes)


@dataclass(frozen=True)
class _Line:
    """kappa = <u, fresh> and the symbols on it: node k is [lo_k, hi_k] and holds some cells."""

    u: tuple[float, ...]
    lo: np.ndarray
    hi: np.ndarray
    first: np.ndarray  # one cell of each node
    exact: bool

    @property
    def n(self) -> int:
        return len(self.lo)

    def gap(self, k: int) -> float:
        return float(self.lo[k + 1] - self.hi[k])

    def steps(self, k: int) -> tuple[float, float]:
        """Where the way from node k to node k + 1 begins and ends."""
        flat = 0.0 if self.exact else PLATEAU * self.gap(k)
        return float(self.hi[k]) + flat, float(self.lo[k + 1]) - flat


def place(layer: LookupLayer, variable: Fresh, distances: Sequence[str], absence: str | None) -> None:
    """Compare a fresh variable with each letter, for the layers after this one: d_i, and absence."""
    pieces = variable.pieces
    for i, name in enumerate(distances):
        for sign, edge, near in (
            (1.0, pieces[i].hi, [p.lo - pieces[i].hi for p in pieces[i + 1 : i + 2]]),
            (-1.0, -pieces[i].lo, [pieces[i].lo - p.hi for p in pieces[:i][-1:]]),
        ):
            for gap in near:
                flat = 0.0 if variable.exact else PLATEAU * gap
                scale = 1.0 / (gap - 2 * flat)
                layer.add({variable.name: sign * scale}, -(edge + flat) * scale, {name: 1.0})
    if absence is not None and variable.presence is not None:
        layer.add({variable.presence: -4.0}, 3.0, {absence: 1.0})  # 3 when blank, 0 from 3/4 upwards


def lookup(
    layer: LookupLayer,
    fresh: Sequence[Fresh],
    old: Sequence[Old],
    values: np.ndarray,
    outputs: Sequence[str],
    lags: np.ndarray | None = None,
    longest: int = MOST_SYMBOLS,
) -> int:
    """Add the table `values`, of shape (letters of old..., letters of fresh..., outputs). Returns the number
    of symbols on its line. `lags`, of the shape of the cells, proposes a direction."""
    cells = [range(len(variable.pieces)) for variable in old]
    shape = tuple(len(variable.pieces) for variable in fresh)
    flat = values.reshape(*map(len, cells), math.prod(shape), len(outputs))
    line = best_line(fresh, np.moveaxis(flat, -2, 0).reshape(math.prod(shape), -1), lags, longest)
    for cell in itertools.product(*cells):
        F = flat[cell][line.first]
        if not F.any():
            continue
        living = _living(fresh, old, cell)
        if F[0].any():
            out = dict(zip(outputs, F[0], strict=True))
            if living and not _offset(fresh):  # distances are exactly 0 here, or at least 1
                layer.add(_scaled(living, -1.0), 1.0, out)
            elif living:
                layer.add(_scaled(living, -2.0), 1.5 - 2.0 * _offset(fresh), out)
                layer.add(_scaled(living, -2.0), 0.5 - 2.0 * _offset(fresh), _negative(out))
            else:
                layer.add({}, 1.0, out)
        for k in range(line.n - 1):
            step = F[k + 1] - F[k]
            if not step.any():
                continue
            begin, end = line.steps(k)
            slope = dict(zip(outputs, step / (end - begin), strict=True))
            _add_ramp(layer, line, fresh, living, begin, slope)
            if not (line.exact and k == line.n - 2 and line.lo[-1] == line.hi[-1]):
                _add_ramp(layer, line, fresh, living, end, _negative(slope))
    return line.n


def gate(
    layer: LookupLayer,
    fresh: Sequence[Fresh],
    old: Sequence[Old],
    passes: np.ndarray,
    payloads: Sequence[tuple[str, str, float]],
    lags: np.ndarray | None = None,
    longest: int = MOST_SYMBOLS,
) -> None:
    """For each (slot, destination, size): add the slot's value to the destination where `passes`, else 0.

    v 1{kappa < theta} = relu(v + C (theta - kappa)) - relu(C (theta - kappa)) with C (gap / 2) > size.
    """
    if not passes.any():
        return
    cells = [range(len(variable.pieces)) for variable in old]
    shape = tuple(len(variable.pieces) for variable in fresh)
    flat = passes.reshape(*map(len, cells), math.prod(shape))
    line = best_line(
        fresh, np.moveaxis(flat, -1, 0).reshape(math.prod(shape), -1).astype(float), lags, longest
    )
    for cell in itertools.product(*cells):
        on = flat[cell][line.first]
        living = _living(fresh, old, cell)
        for first, last in _runs(on):
            for slot, destination, size in payloads:
                for sign, side, k in _boundaries(first, last, line.n):
                    _add_gate(layer, line, fresh, living, slot, destination, size, sign, side, k)


# -- lines ------------------------------------------------------------------------------------------------


def best_line(
    fresh: Sequence[Fresh], values: np.ndarray, lags: np.ndarray | None = None, longest: int = 8_192
) -> _Line:
    """The direction along which the cells (rows of `values`) need the fewest steps."""
    exact = all(variable.exact for variable in fresh)
    candidates = list(_directions(fresh))
    if lags is not None and len(fresh) > 1:
        candidates += _affine(fresh, lags)
    lines = [line for u in candidates if (line := _line(fresh, u, values, exact)) is not None]
    if not lines:
        raise BadInput("the symbols of a lag table cannot be told apart along one direction")
    short = [line for line in lines if line.n <= longest]
    if not short:
        n = min(line.n for line in lines)
        raise TooLong(f"a table of {n:,} symbols on one line; at most {longest:,} survive the rounding")
    return min(short, key=lambda line: (_width(line, values), line.n))


def _width(line: _Line, values: np.ndarray) -> int:
    F = values[line.first]
    return int((F[1:] != F[:-1]).any(axis=1).sum())


def _directions(fresh: Sequence[Fresh]) -> Iterable[tuple[float, ...]]:
    """Mixed radix, in every order of up to four variables."""
    k = len(fresh)
    if k == 0:
        yield ()
    orders = itertools.permutations(range(k)) if k <= 4 else [tuple(range(k))]
    for order in orders if k else []:
        u, span, apart = [0.0] * k, 0.0, 0.0
        for v in order:
            pieces = fresh[v].pieces
            gap = min((b.lo - a.hi for a, b in itertools.pairwise(pieces)), default=1.0)
            u[v] = (span + apart) / gap if span else 1.0
            apart = apart or gap
            span += u[v] * (pieces[-1].hi - pieces[0].lo)
        yield tuple(u)


def _affine(fresh: Sequence[Fresh], lags: np.ndarray) -> list[tuple[float, ...]]:
    """The direction of a lag that is affine in its symbols."""
    middles = [[p.lo + p.width / 2 for p in variable.pieces] for variable in fresh]
    grid = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, len(fresh))
    ones = np.ones((len(grid), 1))
    rows = lags.reshape(-1, len(grid)).astype(float)
    solution, *_ = np.linalg.lstsq(np.hstack([grid, ones]), rows[0], rcond=None)
    u = np.rint(solution[:-1] * 2**20) / 2**20
    left = rows - grid @ u
    if np.ptp(left, axis=1).max() > 1e-6 or not u.all():
        return []
    return [tuple(u.tolist())]


def _line(fresh: Sequence[Fresh], u: Sequence[float], values: np.ndarray, exact: bool) -> _Line | None:
    """The nodes of a direction, or None if two different cells meet on it."""
    lo, hi = np.zeros(1), np.zeros(1)
    for w, variable in zip(u, fresh, strict=True):
        ends = np.array([[w * p.lo, w * p.hi] for p in variable.pieces])
        lo = (lo[:, None] + ends.min(axis=1)).ravel()
        hi = (hi[:, None] + ends.max(axis=1)).ravel()
    order = np.argsort(lo, kind="stable")
    nodes: list[list[float]] = []
    first: list[int] = []
    tiny = 1e-9 * max(1.0, float(np.abs(lo).max()), float(np.abs(hi).max()))
    for i in order.tolist():
        if nodes and lo[i] <= nodes[-1][1] + tiny:
            if (values[i] != values[first[-1]]).any():
                return None
            nodes[-1][1] = max(nodes[-1][1], float(hi[i]))
        else:
            nodes.append([float(lo[i]), float(hi[i])])
            first.append(i)
    ends = np.array(nodes)
    return _Line(tuple(map(float, u)), ends[:, 0], ends[:, 1], np.array(first), exact)


# -- neurons ----------------------------------------------------------------------------------------------


def _living(fresh: Sequence[Fresh], old: Sequence[Old], cell: tuple[int, ...]) -> dict[str, float]:
    """s = <living, v> + offset is 0 in this cell of the old variables when no memory is blank, else >= 1."""
    s: dict[str, float] = {}
    for variable, i in zip(old, cell, strict=True):
        s[variable.distances[i]] = 1.0
        if variable.absence is not None:
            s[variable.absence] = 1.0
    for variable in fresh:
        if variable.presence is not None:
            s[variable.presence] = -1.0
    return s


def _offset(fresh: Sequence[Fresh]) -> float:
    return float(len({variable.presence for variable in fresh if variable.presence is not None}))


def _scaled(terms: Mapping[str, float], by: float) -> dict[str, float]:
    return {name: by * w for name, w in terms.items()}


def _negative(out: Mapping[str, float]) -> dict[str, float]:
    return _scaled(out, -1.0)


def _kappa(line: _Line, fresh: Sequence[Fresh], by: float) -> dict[str, float]:
    terms: dict[str, float] = {}
    for w, variable in zip(line.u, fresh, strict=True):
        terms[variable.name] = terms.get(variable.name, 0.0) + by * w
    return terms


def _reach(line: _Line, fresh: Sequence[Fresh]) -> tuple[float, float]:
    """Where kappa can be, also when memories are blank and read 0."""
    lo = hi = 0.0
    for w, variable in zip(line.u, fresh, strict=True):
        ends = [w * variable.pieces[0].lo, w * variable.pieces[-1].hi]
        ends += [0.0] if variable.presence is not None else []
        lo, hi = lo + min(ends), hi + max(ends)
    return lo, hi


def _add_ramp(
    layer: LookupLayer,
    line: _Line,
    fresh: Sequence[Fresh],
    living: Mapping[str, float],
    begin: float,
    out: Mapping[str, float],
) -> None:
    """relu(kappa - begin - big s), with one big for the whole line: then a small error of s cancels too."""
    lo, hi = _reach(line, fresh)
    big = 1.25 * (hi - lo) if living else 0.0
    terms = _kappa(line, fresh, 1.0)
    for name, w in living.items():
        terms[name] = terms.get(name, 0.0) - big * w
    layer.add(terms, -begin - big * _offset(fresh), out)


def _add_gate(
    layer: LookupLayer,
    line: _Line,
    fresh: Sequence[Fresh],
    living: Mapping[str, float],
    slot: str,
    destination: str,
    size: float,
    sign: float,
    side: int,
    k: int,
) -> None:
    """sign v 1{kappa on the side of the middle of gap k}; side 0 passes always."""
    lo, hi = _reach(line, fresh)
    if side:
        begin, end = line.steps(k)
        theta, C = (begin + end) / 2, 2 * ROOM * size / (end - begin)
        terms = _kappa(line, fresh, side * C)
        c = -side * C * theta
        if len(fresh) == 1 and line.exact:
            origin = begin if side < 0 else end  # the last symbol that passes
            terms = {layer.measured_from(fresh[0].name, origin): side * C}
            c = ROOM * size
        most = size + C * (hi - theta if side > 0 else theta - lo)
    else:
        terms, c, most = {}, ROOM * size, (1 + ROOM) * size
    big = 1.25 * most if living else 0.0
    for name, w in living.items():
        terms[name] = terms.get(name, 0.0) - big * w
    c -= big * _offset(fresh)
    with_value = dict(terms)
    with_value[slot] = with_value.get(slot, 0.0) + 1.0
    layer.add(with_value, c, {destination: sign})
    layer.add(terms, c, {destination: -sign})


def _runs(on: np.ndarray) -> list[tuple[int, int]]:
    """The maximal runs [first, last] of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on.astype(bool), [False]]).astype(int)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _boundaries(first: int, last: int, n: int) -> list[tuple[float, int, int]]:
    """(sign, side, gap): a run at an end needs one boundary, and then its neurons are small where it passes."""
    if first == 0 and last == n - 1:
        return [(1.0, 0, 0)]
    if first == 0:
        return [(1.0, -1, last)]
    if last == n - 1:
        return [(1.0, 1, first - 1)]
    return [(1.0, 1, first - 1), (-1.0, 1, last)]
