"""Affine arithmetic over many cases at once: what the computed stream holds, and how far it may be off.

    computed X_j = const_j + sum_a coef_ja v_a + e_j,   |e_j| <= E_j

v_a are the variables of the task that a case leaves unknown. E_j holds everything else: what attention
mixes in, and, for a precision with unit roundoff u, all its roundings. Midpoints are computed in float64,
and their own roundings are bounded and added to E: these are balls, in float64.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from memloci.certify.cases import Cases
from memloci.certify.rounding import Format, gamma, inexact, underflow
from memloci.certify.slacks import OWN, ROUNDED, SUMMED

EXACT = Format(0.0)
SMALLEST = 2.0**-1074  # of float64
FAINT = 1e-24  # tuned: errors of this size come from underflow alone


@dataclass(frozen=True)
class AffineForms:
    cases: Cases
    const: np.ndarray  # (n, D)
    coef: np.ndarray  # (n, D, A)
    E: np.ndarray  # (n, D)

    @cached_property
    def dependent(self) -> np.ndarray:
        """The coordinates that depend on an unknown; most do not."""
        return np.flatnonzero(self.coef.any(axis=(0, 2)))

    @cached_property
    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        part = self.coef[:, self.dependent]
        return part, np.abs(part)

    def spread(self, by: np.ndarray, absolute: bool = False) -> np.ndarray:
        """sum_a coef_a by_a."""
        total = np.zeros_like(self.const)
        if len(self.dependent):
            total[:, self.dependent] = (self._parts[absolute] @ by[:, :, None])[:, :, 0]
        return total

    def spread_of(self, unknowns: slice) -> np.ndarray:
        """(n, D): how far some of the unknowns alone can take each coordinate from 0."""
        reach = np.abs(self.cases.centre[:, unknowns]) + self.cases.radius[:, unknowns]
        return np.einsum("nda,na->nd", np.abs(self.coef[:, :, unknowns]), reach) * (1 + 2.0**-40)

    @cached_property
    def weight(self) -> np.ndarray:
        """The sum of the sizes of all parts: what roundings of the midpoints are relative to."""
        spread = self.spread(np.abs(self.cases.centre) + self.cases.radius, absolute=True)
        return np.abs(self.const) + spread + self.E

    @cached_property
    def middle(self) -> np.ndarray:
        return self.const + self.spread(self.cases.centre)

    @cached_property
    def radius(self) -> np.ndarray:
        rounding = np.zeros_like(self.E)  # a number alone is its own midpoint
        rounding[:, self.dependent] = 2 * (self.coef.shape[2] + 4) * OWN * self.weight[:, self.dependent]
        return self.spread(self.cases.radius, absolute=True) + self.E + rounding

    @cached_property
    def size(self) -> np.ndarray:
        return np.abs(self.middle) + self.radius

    @cached_property
    def nonzero(self) -> np.ndarray:
        """(n, D): what may differ from an exact 0."""
        present = (self.const != 0) | (self.E > 0)
        present[:, self.dependent] |= (self.coef[:, self.dependent] != 0).any(axis=2)
        return present

    def take(self, rows: np.ndarray) -> "AffineForms":
        """Some of the cases, in any order and as often as wanted."""
        return AffineForms(self.cases.take(rows), self.const[rows], self.coef[rows], self.E[rows])

    def columns(self, which: np.ndarray) -> "AffineForms":
        return AffineForms(self.cases, self.const[:, which], self.coef[:, which], self.E[:, which])


def folded(cases: Cases, const: np.ndarray, coef: np.ndarray, E: np.ndarray) -> AffineForms:
    """Variables that a case knows become part of the number."""
    known = np.where((cases.radius == 0)[:, None, :], coef, 0.0)
    if not known.any():
        return AffineForms(cases, const, coef, E)
    terms = known * cases.centre[:, None, :]
    total = const + terms.sum(axis=2)
    size = np.abs(const) + np.abs(terms).sum(axis=2)
    alone = ((terms != 0).sum(axis=2) + (const != 0) <= 1) & ((known == 0) | (np.abs(known) == 1)).all(axis=2)
    rounding = np.where(alone, 0.0, (coef.shape[2] + 2) * 2 * OWN * size)
    return AffineForms(cases, total, np.where((cases.radius == 0)[:, None, :], 0.0, coef), E + rounding)


def zeros(cases: Cases, D: int) -> AffineForms:
    n, A = cases.centre.shape
    return AffineForms(cases, np.zeros((n, D)), np.zeros((n, D, A)), np.zeros((n, D)))


def linear(
    W: np.ndarray,
    X: AffineForms,
    precision: Format,
    bias: np.ndarray | None = None,
    stored: bool = False,
) -> AffineForms:
    """W X + bias as the model computes it."""
    used = np.flatnonzero((W != 0).any(axis=0) & X.nonzero.any(axis=0))
    if len(used) < W.shape[1]:
        W, X = W[:, used], X.columns(used)
    b = np.zeros(len(W)) if bias is None else bias
    M = Matrix(W)
    precision.expect(M.absolute(X.size) + np.abs(b))
    const = M(X.const) + b
    coef = np.zeros((*const.shape, X.coef.shape[2]))
    rows = np.flatnonzero((W[:, X.dependent] != 0).any(axis=1))
    coef[:, rows] = np.einsum(
        "nda,md->nma", X.coef[:, X.dependent], W[np.ix_(rows, X.dependent)], optimize=True
    )
    rounding = _own_rounding(M, X, b, rows)
    E = M.absolute(X.E) + np.where(rounding > 0, rounding * (1 + 1e-6), 0.0)
    result = AffineForms(X.cases, const, coef, np.where(np.isnan(E), np.inf, E))
    rounded = _rounding(M, X, b, result, precision, stored) if precision.u else 0.0
    below = np.where(M.count(X.nonzero) > 0, _underflow(W, X, precision), taken_for_0(b, precision))
    E = result.E + rounded + below
    return AffineForms(
        X.cases, const, coef, _within(np.where(np.isnan(E), np.inf, E), result.size, precision)
    )


class Matrix:
    """x -> x W^T, and the same for |W| and for patterns of W; sparse where W is wide and mostly 0."""

    def __init__(self, W: np.ndarray):
        self.W = W
        self.sparse = W.size > 1 << 14 and np.count_nonzero(W) < 0.1 * W.size

    def _apply(self, x: np.ndarray, W: np.ndarray) -> np.ndarray:
        if not self.sparse:
            return x @ W.T
        from scipy.sparse import csr_array

        return np.ascontiguousarray((csr_array(W) @ x.T).T)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self._apply(x, self.W)

    def absolute(self, x: np.ndarray) -> np.ndarray:
        return self._apply(x, np.abs(self.W))

    def count(self, which: np.ndarray, pattern: np.ndarray | None = None) -> np.ndarray:
        """How many entries of a row that are not 0 (or in `pattern`) meet one of `which`."""
        counted = (self.W != 0) if pattern is None else pattern
        return self._apply(which.astype(float), np.asarray(counted, dtype=float))


def _own_rounding(M: Matrix, X: AffineForms, b: np.ndarray, dependent: np.ndarray) -> np.ndarray:
    """What the midpoints of W X + b lose in float64: a rounding per term of the number, more for coefficients.

    Nothing where all terms are multiples of a power of 2, g, and their sizes add up to less than g 2^52: every product and
    every partial sum is then a multiple of g below g 2^53, which float64 holds. A g that underflows to 0 proves nothing, and
    each product that underflows loses half of the smallest number.
    """
    terms = M.count(X.const != 0) + (b != 0) + 1
    size = M.absolute(np.abs(X.const)) + np.abs(b)
    at = np.where(M.W != 0, grid_of(M.W) * grid_of(X.const).min(axis=0, initial=np.inf)[None, :], np.inf)
    negligible = 2 * OWN * size < np.minimum(
        at.min(axis=1, initial=np.inf), grid_of(b)
    )  # multiples of one power of 2
    rounding = np.where(
        negligible | adds_exactly(M, X, b, OWN), 0.0, 1.01 * terms * OWN * size + terms * SMALLEST
    )
    if len(dependent):
        reach = X.spread(np.abs(X.cases.centre) + X.cases.radius, absolute=True)
        rounding[:, dependent] += 2 * (len(X.dependent) + 4) * OWN * (reach @ np.abs(M.W[dependent]).T)
    return rounding


def adds_exactly(M: Matrix, X: AffineForms, b: np.ndarray, u: float) -> np.ndarray:
    """(n, m): W X + b adds known numbers that are all multiples of a coarse grid: nothing is rounded."""
    known = X.E == 0
    known[:, X.dependent] &= ((X.coef[:, X.dependent] == 0) | (X.cases.radius == 0)[:, None, :]).all(axis=2)
    touched = M.count(X.nonzero & ~(known & _on_grid(X.middle, GRID))) > 0
    coarse = _on_grid(M.W, GRID).all(axis=1) & _on_grid(b, GRID**2)
    sizes = M.absolute(X.weight) + np.abs(b)
    return ~touched & coarse & (sizes * u < GRID**2 / 2)


def _rounding(
    M: Matrix, X: AffineForms, b: np.ndarray, result: AffineForms, precision: Format, stored: bool
) -> np.ndarray:
    """What W X + b loses: gamma(additions + products) of the sum of sizes, in any order of additions.

    Adding an exact 0 and multiplying by a power of 2 round nothing, and a single addition rounds its result.
    """
    u = precision.u
    rounds = M.count(X.nonzero, inexact(M.W)) > 0
    products = rounds + 1.0 * (stored & (rounds | inexact(b)))
    additions = np.maximum(M.count(X.nonzero) + (b != 0) - 1, 0)
    rounded = gamma(additions + products, u) * (M.absolute(X.size) + np.abs(b))
    single = (additions <= 1) & (products == 0)
    rounded = np.where(single, np.where(additions > 0, ROUNDED * u * result.size, 0.0), rounded)
    if stored:
        return rounded
    rounded = np.minimum(rounded, near_grid(M, X, b, u))
    return np.where(adds_exactly(M, X, b, u), 0.0, rounded)


def near_grid(M: Matrix, X: AffineForms, b: np.ndarray, u: float) -> np.ndarray:
    """(n, m): what W X + b rounds where known numbers, up to small errors, are multiples of a power of 2; else infinite.

    Theorem. Let X_j = k_j + c_j + e_j be numbers of the precision, |e_j| <= E_j, c_j what the form says beyond the multiple
    k_j; let all w_j k_j and b be multiples of g, all sizes add up to less than g / (4 u), and let D = sum |w_j| (|c_j| + E_j)
    be below 0.45 u g and below 0.45 u |w_j k_j| for every k_j != 0. Then the computed W X + b differs from what the form
    says, sum w_j (k_j + c_j) + b, by at most sum |w_j| E_j + sum over k_j = 0 of |w_j c_j| + 0.02 D.
    Proof. If k_j != 0, then k_j is a number of the precision, X_j lies nearer to it than any other, so X_j = k_j and
    c_j = -e_j. Where k_j = 0, the term is w_j X_j (1 + r), |r| <= 0.01. Partial sums are P + d' (symbol_rounding.py): if
    P != 0 the result is P and these terms are gone, else they stay with relative roundings. A term that stays is off by
    E_j + 0.01 (|c_j| + E_j), one that is gone by |c_j|, each times |w_j|.
    """
    # Unknowns around 0 are errors; what depends on others, or on symbols that are not folded in, is no multiple of anything.
    placed = np.zeros(X.const.shape, dtype=bool)
    placed[:, X.dependent] = ((X.coef[:, X.dependent] != 0) & (X.cases.centre != 0)[:, None, :]).any(axis=2)
    on_grid = np.where(np.abs(X.const) < 2.0**11, np.rint(X.const * 2.0**40) * 2.0**-40, X.const)
    beyond = (np.abs(X.const - on_grid) + X.spread(X.cases.radius, absolute=True)) * (1 + 1e-9)
    reads = M.W != 0
    free = M.count(placed) > 0
    column_grid = grid_of(on_grid).min(axis=0, initial=np.inf)  # per column, in all cases
    at = np.where(reads, grid_of(M.W) * column_grid[None, :], np.inf).min(axis=1, initial=np.inf)
    at = np.minimum(at, grid_of(b))
    d = M.absolute(X.E + beyond)
    few = gamma(M.count(X.nonzero).max(initial=0.0) + 2, u) < 0.01
    representable = (np.abs(M.W) * u <= grid_of(M.W)).all(axis=1) & (np.abs(b) * u <= grid_of(b))
    apart = np.where(reads, np.abs(M.W), np.inf).min(axis=1, initial=np.inf)  # each error, by its own product
    finest = np.where(reads, column_grid[None, :], np.inf).min(axis=1, initial=np.inf)
    small = (d < 0.45 * u * at) & (d <= 0.45 * u * finest * apart)
    sizes = M.absolute(X.weight) + np.abs(b)
    swallowed = M.absolute(np.where(on_grid == 0, beyond, 0.0))
    error = (swallowed + 0.02 * d) * (1 + 1e-6)
    return np.where(~free & representable & few & small & (4 * u * sizes < at), error, np.inf)


def grid_of(x: np.ndarray) -> np.ndarray:
    """The largest power of 2 of which each number is a whole multiple; infinite for 0."""
    mantissa, exponent = np.frexp(np.abs(np.asarray(x, dtype=float)))
    integer = np.ldexp(mantissa, 53).astype(np.int64)
    return np.where(integer == 0, np.inf, np.ldexp((integer & -integer).astype(float), exponent - 53))


GRID = 2.0**-6


def _on_grid(x: np.ndarray, grid: float) -> np.ndarray:
    return np.rint(x / grid) * grid == x


def _underflow(W: np.ndarray, X: AffineForms, precision: Format) -> np.ndarray:
    if not precision.least or not len(X.const):
        return np.zeros((1, len(W)))
    below = underflow(W, X.size.max(axis=0), precision)
    return np.where((W != 0).any(axis=1), below, 0.0)[None, :]


def taken_for_0(b: np.ndarray, precision: Format) -> np.ndarray:
    """What 0 + b loses: nothing, unless b is below the smallest normal number and taken for 0."""
    return np.where(np.abs(b) < precision.least, np.abs(b), 0.0)


def _within(E: np.ndarray, size: np.ndarray, precision: Format) -> np.ndarray:
    """Infinite where a number may overflow."""
    return np.where(2.0 * (size + E) < precision.most, E, np.inf)


def add(X: AffineForms, Y: AffineForms, precision: Format) -> AffineForms:
    """X + Y; adding an exact 0 is exact."""
    precision.expect(X.size + Y.size)
    total = AffineForms(X.cases, X.const + Y.const, X.coef + Y.coef, X.E + Y.E)
    both = (X.weight > 0) & (Y.weight > 0)
    known = (X.E == 0) & (Y.E == 0) & _on_grid(X.const, GRID**2) & _on_grid(Y.const, GRID**2)
    known[:, total.dependent] = False
    rounded = np.where(known & (total.weight * OWN < GRID**2 / 2), 0.0, 4 * OWN * total.weight)
    coarse = known & (total.weight * precision.u < GRID**2 / 2)
    rounded = rounded + np.where(coarse, 0.0, ROUNDED * precision.u * total.size + precision.least)
    E = total.E + np.where(both, rounded, 0.0)
    return AffineForms(X.cases, total.const, total.coef, np.where(np.isnan(E), np.inf, E))


def add_all(parts: list[AffineForms], terms: list[np.ndarray], precision: Format) -> AffineForms:
    """The sum over heads, in any order: head by head, or all their `terms` per row in one product."""
    total, size = parts[0], parts[0].size
    writers = np.where(parts[0].weight > 0, terms[0], 0)
    for part, more in zip(parts[1:], terms[1:], strict=True):
        total = AffineForms(total.cases, total.const + part.const, total.coef + part.coef, total.E + part.E)
        size, writers = size + part.size, writers + np.where(part.weight > 0, more, 0)
    precision.expect(size)
    more = np.maximum(writers - 1, 0)
    E = total.E + gamma(more, precision.u) * size + more * (2 * OWN * size + precision.least)
    return AffineForms(total.cases, total.const, total.coef, np.where(np.isnan(E), np.inf, E))


def relu(X: AffineForms) -> AffineForms:
    """relu(X); exact in any precision.

    Where the sign is known it is the identity or 0. Otherwise relu(x) lies between lambda x and lambda (x - lo)
    on [lo, hi], lambda = hi / (hi - lo): the middle of the two, and half their distance. Where hi is faint, the result is 0
    up to hi: as true, and 0 stays a multiple of every power of 2.
    """
    lo, hi = X.middle - X.radius, X.middle + X.radius
    slope = np.where(lo >= 0, 1.0, np.where(hi <= 0, 0.0, hi / np.where(hi > lo, hi - lo, 1.0)))
    half = np.where((lo < 0) & (hi > 0), -slope * lo / 2 * (1 + 8 * OWN), 0.0)
    unknown = ~np.isfinite(X.radius)
    faint = (lo < 0) & (hi > 0) & (hi < FAINT)
    slope, half = np.where(unknown | faint, 0.0, slope), np.where(unknown | faint, 0.0, half)
    E = np.where(slope > 0, slope * np.where(unknown, 0.0, X.E), 0.0) + half + np.where(faint, hi, 0.0)
    slack = np.where((slope > 0) & (slope < 1), 8 * OWN * X.weight, 0.0)
    E = np.where(unknown, np.inf, E + np.where(unknown, 0.0, slack))
    coef = np.zeros_like(X.coef)
    coef[:, X.dependent] = slope[:, X.dependent, None] * X.coef[:, X.dependent]
    return AffineForms(X.cases, slope * X.const + half, coef, E)


# -- errors as unknowns --------------------------------------------------------------------------------------

MOST_LIFTED = 128  # tuned: errors of one step that are followed apart
ROOM = 1 << 24  # tuned: numbers that they may take


def errors_as_unknowns(X: AffineForms, which: np.ndarray) -> AffineForms:
    """The errors of some coordinates as unknowns of their own."""
    n, D, k = *X.const.shape, len(which)
    coef, E = np.zeros((n, D, k)), X.E.copy()
    coef[:, which, np.arange(k)] = 1.0
    radius = np.where(np.isfinite(E[:, which]), E[:, which], 0.0)
    E[:, which] -= radius
    centre = np.concatenate([X.cases.centre, np.zeros((n, k))], axis=1)
    cases = replace(X.cases, centre=centre, radius=np.concatenate([X.cases.radius, radius], axis=1))
    return AffineForms(cases, X.const, np.concatenate([X.coef, coef], axis=2), E)


def unknowns_as_errors(X: AffineForms, cases: Cases) -> AffineForms:
    """The unknowns beyond those of `cases` as errors again."""
    A = cases.centre.shape[1]
    back = np.einsum("nda,na->nd", np.abs(X.coef[:, :, A:]), X.cases.radius[:, A:])
    return AffineForms(cases, X.const, X.coef[:, :, :A], X.E + back * SUMMED)


def widened(X: AffineForms, cases: Cases) -> AffineForms:
    """The same forms among more unknowns, of which the first are its own."""
    n, D, A = X.coef.shape
    more = np.zeros((n, D, cases.centre.shape[1] - A))
    return AffineForms(cases, X.const, np.concatenate([X.coef, more], axis=2), X.E)


def room_for(X: AffineForms, more: int) -> bool:
    """Whether forms of the stream and of so many other numbers, in twice MOST_LIFTED more unknowns, are no burden."""
    n, D, A = X.coef.shape
    return n * (D + more) * (A + 2 * MOST_LIFTED) <= ROOM
