"""One layer of a model, followed: what its heads find in each case, and what its neurons add.

A layer's heads are fixed kernels (dpf), pointers (rotary dot products under softmax, pointers.py), or
unnormalised exponentials and powers of the query (unnormalised.py). What they bring back is the value at one place, and a
share of all other values as an error.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from flint import arb

from memloci.approx.rpe import LIN, LOG
from memloci.certifier.anywhere import Anywhere
from memloci.certifier.carried import EXACT, OWN, Carried, add, add_all, folded, linear, relu
from memloci.certifier.cases import FOREVER, Cases
from memloci.certifier.kernels import SMALL, HeadKernels, SumKernels, Taps, layer_kernels
from memloci.certifier.pointers import MATCH, SINK, UNKNOWN, Ball, find
from memloci.certifier.rounding import LENGTH, LIBRARY, Format, gamma, times
from memloci.certifier.signals import above
from memloci.certifier.unnormalised import Asked, Sums
from memloci.errors import BadInput
from memloci.model.encodings import Rope
from memloci.model.scores import AbstractScore, DotProduct, Tmx
from memloci.model.transformer import Block

MOST_UNKNOWNS = 24


@dataclass
class Extent:
    """How large the values, queries and keys of a layer become: every position is the query of some case."""

    query: float = 0.0
    key: float = 0.0

    def see(self, layer: "Layer", X: Carried, precision: Format) -> None:
        most = X.size.max(axis=0)
        precision.expect(np.abs(layer.W_V) @ most)  # of every head, also of one that writes nothing
        if layer.W_Q is not None:
            self.query = max(self.query, float((np.abs(layer.W_Q) @ most).sum(axis=1).max()))
            precision.expect(np.abs(layer.W_Q) @ most)
        if layer.W_K is not None:
            self.key = max(self.key, float((np.abs(layer.W_K) @ most).sum(axis=1).max()))
            precision.expect(np.abs(layer.W_K) @ most)

    @property
    def logit(self) -> float:
        return 2 * self.query * self.key


@dataclass(frozen=True)
class Layer:
    """A layer's weights, in float64."""

    W_V: np.ndarray  # (H, d_v, D)
    W_O: np.ndarray  # (H, D, d_v)
    kernels: HeadKernels | None  # fixed kernels
    W_Q: np.ndarray | None
    W_K: np.ndarray | None
    turns: np.ndarray | None
    sums: Sums | None  # unnormalised kernels
    B: np.ndarray
    c: np.ndarray
    A: np.ndarray
    asleep: tuple[np.ndarray, np.ndarray]  # B and c of neurons that write nothing, unless they overflow
    taps: dict[int, "_Fixed"] = field(default_factory=dict)
    shares: dict[tuple[int, Format, bool], float] = field(default_factory=dict)

    @classmethod
    def read(cls, block: Block, l: int, recurrent: bool) -> "Layer":
        exact = lambda array: np.asarray(array, dtype=float)
        heads = block.attention.heads
        kernels = W_Q = W_K = turns = sums = None
        if heads.score.name == "dpf" and heads.normalisation.name == "infinite":
            try:
                kernels = layer_kernels(block.attention, recurrent)
            except BadInput as error:
                raise error.within(f"layer {l}") from None
        elif (heads.score.name, heads.encoding.name, heads.normalisation.name) == ("dp", "rope", "softmax"):
            if heads.past.window is not None or heads.past.stride != 1:
                raise BadInput(f"layer {l}: certificates of pointers need an unlimited past and stride 1")
            assert isinstance(heads.encoding, Rope)
            W_Q, W_K = _query_and_key(heads.score)
            turns = np.asarray(heads.encoding.turns)
        elif heads.encoding.name in ("lin", "log") and heads.normalisation.name == "none":
            W_Q, W_K = _query_and_key(heads.score)
            sums = Sums(_slopes(heads, l), exact(heads.W_V), exact(heads.W_O), heads.past.window)
        else:
            what = f"{heads.score.name} with {heads.encoding.name} under {heads.normalisation.name}"
            raise BadInput(f"layer {l}: {what} is not followed by the certificates of adaptive memories")
        D = heads.W_V.shape[-1]
        ffn = block.ffn
        B, c, A = (
            (np.zeros((0, D)), np.zeros(0), np.zeros((D, 0)))
            if ffn is None
            else (exact(ffn.B), exact(ffn.c), exact(ffn.A))
        )
        awake = (A != 0).any(axis=0)
        asleep = ~awake & ((B != 0).any(axis=1) | (c != 0))
        return cls(
            exact(heads.W_V),
            exact(heads.W_O),
            kernels,
            W_Q,
            W_K,
            turns,
            sums,
            B[awake],
            c[awake],
            A[:, awake],
            (B[asleep], c[asleep]),
        )

    @property
    def heads(self) -> list[int]:
        """Heads that write something."""
        return [h for h in range(len(self.W_O)) if self.W_O[h].any()]

    # the query's position

    def attend(
        self, X: Carried, past: Anywhere, shape: tuple[int, int], precision: Format, stored: bool
    ) -> Carried:
        if self.sums is not None:
            asked = self._contents(X, past, precision, stored)
            return add(X, self.sums.recall(asked, past, X, shape, precision, stored), precision)
        self._expect_sums(past, precision, stored)
        parts, terms = [], []
        matched = 0.0 if self.kernels is not None else _MATCHED * precision.u
        for h in self.heads:
            value = past.linear(self.W_V[h], precision, stored)
            found, share = self._find(h, X, past, precision, stored)
            recalled = _recall(found, share, matched, value, X.cases, shape)
            parts.append(linear(self.W_O[h], recalled, precision, stored=stored))
            terms.append((self.W_O[h] != 0).sum(axis=1))
        return add(X, add_all(parts, terms, precision), precision) if parts else X

    def _expect_sums(self, past: Anywhere, precision: Format, stored: bool) -> None:
        """Fast paths add values up before they normalise them: no such sum may overflow, read or not."""
        swell = np.full(len(self.W_V), LENGTH) if self.kernels is None else self.kernels.swell
        for h in np.flatnonzero(self.W_V.any(axis=(1, 2))).tolist():
            value = past.linear(self.W_V[h], precision, stored)
            precision.expect(swell[h] * value.size, swell[h] * value.size_first)

    def _find(
        self, h: int, X: Carried, past: Anywhere, precision: Format, stored: bool
    ) -> tuple["_Finding", np.ndarray]:
        """What head h finds in each case, and its error per unit of value."""
        cases, n = X.cases, len(X.cases)
        if self.kernels is not None:
            finding, share = self._fixed(h, precision, stored)
            return finding.for_cases(n), np.full(n, share)
        assert self.W_Q is not None and self.turns is not None
        q, keys = linear(self.W_Q[h], X, precision, stored=stored), self._keys(h, past, precision, stored)
        asked = Ball(q.middle, q.radius)
        found = find(asked, *keys, self.turns[h], cases.t_min, cases.t_max, precision)
        return _Finding(found.what, found.z, np.ones(n)), _softmax_share(found.beside, precision)

    def _fixed(self, h: int, precision: Format, stored: bool) -> tuple["_Fixed", float]:
        """A fixed kernel and its error per unit of value; asked for again and again, so remembered."""
        assert self.kernels is not None
        if h not in self.taps:
            self.taps[h] = _fixed(self.kernels, h)
        key = (h, precision, stored)
        if key not in self.shares:
            self.shares[key] = self.taps[h].share(self.kernels, h, precision, stored)
        return self.taps[h], self.shares[key]

    def _contents(self, X: Carried, past: Anywhere, precision: Format, stored: bool) -> Asked:
        """The query term of every head; a key that depends on s has no such term, and its error says so."""
        W_Q = self.W_Q
        assert W_Q is not None
        H, n = len(self.W_O), len(X.cases)
        used = np.flatnonzero((W_Q != 0).any(axis=(0, 1)))
        # Numbers that are known exactly are multiplied in Arb; float64 would cost 2^-53 of the mass.
        known = (X.E[:, used] == 0).all(axis=1) & ~np.isin(used, X.bent).any()
        middle, error, keys = np.zeros((n, H)), np.zeros((n, H)), []
        for h in range(H):
            q, own = linear(W_Q[h], X, precision, stored=stored), linear(W_Q[h], X, EXACT)
            k, apart = np.ones(len(W_Q[h])), np.zeros(len(W_Q[h]))
            if self.W_K is not None:
                key, first = self._keys(h, past, precision, stored)
                k, apart = key.middle, np.abs(key.middle - first.middle) + key.radius + first.radius
            keys.append(k)
            size = np.abs(q.middle) + q.radius
            rounded = np.maximum(q.E - own.E, 0.0) * (1 + 1e-9) + 2.0**-50 * own.E
            beyond = np.where(known[:, None], rounded, q.radius)
            wrong = beyond * (np.abs(k) + apart) + size * apart
            if self.W_K is not None:
                wrong = wrong + gamma(len(k), precision.u) * size * (np.abs(k) + apart)
            middle[:, h] = q.middle @ k
            float64 = 2.0**-50 * (1 + len(k)) * (size @ np.abs(k))
            error[:, h] = wrong.sum(axis=1) * (1 + 1e-9) + np.where(known, 0.0, float64)
        keep = np.concatenate([np.where(known[:, None], X.const[:, used], 0.0), middle], axis=1)

        def exactly(row: int) -> list[arb]:
            if not known[row]:
                return [arb(float(x)) for x in middle[row]]
            x = [arb(float(value)) for value in X.const[row, used]]
            return [_bilinear(W_Q[h][:, used], x, keys[h]) for h in range(H)]

        return Asked(keep, error, exactly)

    def _keys(self, h: int, past: Anywhere, precision: Format, stored: bool) -> tuple[Ball, Ball]:
        assert self.W_K is not None
        key = past.linear(self.W_K[h], precision, stored)
        return key.ball(first=False), key.ball(first=True)

    def ffn(self, X: Carried, precision: Format, stored: bool) -> Carried:
        if len(self.asleep[1]):
            precision.expect(X.size @ np.abs(self.asleep[0]).T + np.abs(self.asleep[1]))
        if not len(self.c):
            return X
        # The error of a coordinate reaches several neurons at once, and a staircase cancels it: while they
        # are computed it is an unknown like the others.
        largest = np.where(np.isfinite(X.E), X.E, 0.0).max(axis=0, initial=0.0)
        readers = (self.B != 0).sum(axis=0) * largest
        read = np.argsort(-readers, kind="stable")[: min(MOST_UNKNOWNS, np.count_nonzero(readers))]
        lifted = _lift(X, read)
        argument = linear(self.B, lifted, precision, self.c, stored)
        added = linear(self.A, relu(argument), precision, stored=stored)
        return _lower(add(lifted, added, precision), X.cases)

    # any position

    def anywhere(self, X: Anywhere, precision: Format, stored: bool) -> Anywhere:
        """The stream after this layer, at a position of which nothing is known."""
        result = X
        if self.sums is not None:
            unknown = np.zeros(len(X.E))
            unknown[self.sums.written] = np.inf
            return self._neurons_anywhere(result.worse(unknown), precision)
        t_min, t_max = np.array([1]), np.array([FOREVER])
        writers, reach = np.zeros(len(self.W_O[0])), np.zeros(len(self.W_O[0]))
        for h in self.heads:
            value = X.linear(self.W_V[h], precision, stored)
            writes = np.flatnonzero(self.W_O[h].any(axis=1))
            writers += (self.W_O[h] != 0).sum(axis=1)  # all of W_O may be one product
            if self.kernels is not None:
                finding, share = self._fixed(h, precision, stored)
                what, z, gain = MATCH, finding.lag, finding.weight
            else:
                assert self.W_Q is not None and self.turns is not None
                q = X.linear(self.W_Q[h], precision, stored).ball(first=False)
                q0 = X.linear(self.W_Q[h], precision, stored).ball(first=True)
                if not (q0.middle == q.middle).all():  # position 0 sees nothing, whatever it asks
                    q = Ball(q.middle, np.maximum(q.radius, q0.radius))
                asked = Ball(q.middle[None], q.radius[None])
                found = find(
                    asked, *self._keys(h, X, precision, stored), self.turns[h], t_min, t_max, precision
                )
                share = float(_softmax_share(found.beside, precision)[0]) + _MATCHED * precision.u
                what, z, gain = int(found.what[0]), int(found.z[0]), 1.0
            out = value.linear(self.W_O[h], precision, stored)
            reach = reach + (1 + share) * out.size
            if what == MATCH:
                error = np.abs(self.W_O[h]) @ (share * value.size)
                result = result.later(writes, z, out.rows(writes), gain, (error + out.E)[writes])
            else:
                result = result.worse((1 + share) * out.size)
        # The sum over heads, in any order, and the residual addition; adding to 0 is exact.
        summed = times(gamma(np.maximum(writers - 1, 0), precision.u), reach)
        joined = np.where((writers > 0) & (X.size > 0), 1.05 * precision.u * (X.size + reach), 0.0)
        return self._neurons_anywhere(
            result.worse(summed + joined + 4 * writers * precision.least), precision
        )

    def _neurons_anywhere(self, X: Anywhere, precision: Format) -> Anywhere:
        if not len(self.c):
            return X
        added = X.relu_added(self.B, self.c, self.A, precision)
        added = np.where(added > 0, added + precision.u * (X.size + added), 0.0)
        return X.worse(added, at_first=True)


def _bilinear(W: np.ndarray, x: list[arb], k: np.ndarray) -> arb:
    """<W x, k>."""
    total = arb(0)
    for row, weight in zip(W, k, strict=True):
        for w, value in zip(row, x, strict=True):
            if w and weight:
                total += arb(float(w)) * value * arb(float(weight))
    return total


def _query_and_key(score: AbstractScore) -> tuple[np.ndarray | None, np.ndarray | None]:
    """tmx is a query with the key 1; without a dot product there is no query term."""
    exact = lambda array: np.asarray(array, dtype=float)
    if isinstance(score, DotProduct):
        return exact(score.W_Q), exact(score.W_K)
    if isinstance(score, Tmx):
        return exact(score.w)[:, None, :], None
    raise BadInput(
        f"{score.name} without normalisation is not followed by the certificates of adaptive memories"
    )


def _slopes(heads, l: int) -> SumKernels:
    if heads.past.stride != 1:
        raise BadInput(f"layer {l}: certificates of lin and log heads need stride 1")
    p, least = np.asarray(heads.encoding.p, dtype=float), heads.encoding.least_slope
    if not (p > least).all():
        raise BadInput(
            f"layer {l}: a slope of {p.min():.6g}; the sum over the past converges above {least:g}"
        )
    return SumKernels(LIN if heads.encoding.name == "lin" else LOG, p)


def _lift(X: Carried, which: np.ndarray) -> Carried:
    """The errors of some coordinates as unknowns of their own."""
    n, D, k = *X.const.shape, len(which)
    coef, E = np.zeros((n, D, k)), X.E.copy()
    coef[:, which, np.arange(k)] = 1.0
    radius = np.where(np.isfinite(E[:, which]), E[:, which], 0.0)
    E[:, which] -= radius
    centre = np.concatenate([X.cases.centre, np.zeros((n, k))], axis=1)
    cases = replace(X.cases, centre=centre, radius=np.concatenate([X.cases.radius, radius], axis=1))
    return Carried(cases, X.const, np.concatenate([X.coef, coef], axis=2), E)


def _lower(X: Carried, cases: Cases) -> Carried:
    """The unknowns beyond those of `cases` as errors again."""
    A = cases.centre.shape[1]
    back = np.einsum("nda,na->nd", np.abs(X.coef[:, :, A:]), X.cases.radius[:, A:])
    return Carried(cases, X.const, X.coef[:, :, :A], X.E + back * (1 + 1e-12))


@dataclass(frozen=True)
class _Finding:
    what: np.ndarray
    z: np.ndarray
    weight: np.ndarray  # of the place that is found


@dataclass(frozen=True)
class _Fixed:
    """A head of a fixed kernel: one tap, and the l1 norm of the rest."""

    lag: int
    weight: float
    beside: float

    def for_cases(self, n: int) -> _Finding:
        return _Finding(np.full(n, MATCH), np.full(n, self.lag), np.full(n, self.weight))

    def share(self, kernels: HeadKernels, h: int, precision: Format, stored: bool) -> float:
        if not precision.u:
            return self.beside
        weight = float(kernels.weight_error(precision, stored)[h])
        summed = float(kernels.sum_error(precision, stored)[h])
        u = precision.u
        return self.beside + weight + 1.05 * u * (1 + weight) + (1 + 1.05 * u) * summed


def _fixed(kernels: HeadKernels, h: int) -> _Fixed:
    g = [arb(float(k == h)) for k in range(kernels.H)]
    lag = max(kernels.tap_lags(g), key=lambda z: float(abs(kernels.value(g, z)).mid()))
    weight = float(kernels.value(g, lag).mid())
    beside = above(kernels.residual(g, Taps(((lag, arb(weight)),))))
    return _Fixed(lag, weight, beside)


def _softmax_share(beside: np.ndarray, precision: Format) -> np.ndarray:
    """The error that all other values bring, per unit of their size; exact, the weight beside counts twice.

    Computed: the match is compared with itself, so its exponential is exactly 1 (kernels.py, PeakKernels),
    and its weight, the product with its value and the sum round by `_MATCHED` u of that value.
    """
    if not precision.u:
        return np.minimum(2.0 * beside, 2.0)
    beside = np.minimum(beside * (1 + 4 * LIBRARY * precision.u), 1.0)
    adding = SMALL * beside
    room = np.where(adding < 0.5, 1 - adding, 1.0)
    weight = np.where(adding < 0.5, (4.2 * beside + adding) / room, 3.0)
    return 1.1 * (weight + adding * (1 + weight)) + 4 * FOREVER * precision.least


_MATCHED = 3.4


def _recall(
    found: _Finding,
    share: np.ndarray,
    matched: float,
    value: Anywhere,
    cases: Cases,
    shape: tuple[int, int],
) -> Carried:
    """What comes back: the value at the place that was found, up to `matched` of it, and `share` of any value."""
    A = shape[0] * shape[1]
    const, coef, E = value.recalled(found.z, cases, shape)
    sink = found.what == SINK
    if sink.any():
        const0, coef0, E0 = value.at_start(len(cases), A)
        const = np.where(sink[:, None], const0, const)
        coef = np.where(sink[:, None, None], coef0, coef)
        E = np.where(sink[:, None], E0, E)
    w = found.weight[:, None]
    const, coef, E = w * const, w[:, :, None] * coef, np.abs(w) * E
    E = E + np.where(w == 1.0, 0.0, 4 * OWN * Carried(cases, const, coef, E).weight)
    most = value.size[None, :]
    E = E + matched * Carried(cases, const, coef, E).size + share[:, None] * most
    lost = (found.what == UNKNOWN)[:, None]
    const, coef = np.where(lost, 0.0, const), np.where(lost[:, :, None], 0.0, coef)
    E = np.where(lost, (1 + matched + share[:, None]) * most, E)
    first = (cases.t_max == 0)[:, None]  # position 0 sees nothing
    const, coef, E = (
        np.where(first, 0.0, const),
        np.where(first[:, :, None], 0.0, coef),
        np.where(first, 0.0, E),
    )
    return folded(cases, const, coef, E)
