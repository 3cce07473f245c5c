"""Softmax heads whose query says how far to look: rotary keys, and a sink at position 0.

    logit(z) = sum_b A_b cos(pi 2^-b (z - z*)) + rest,   b = 0, ..., 30

Two lags below 2^31 differ by y = 2^b (odd), so cos(pi 2^-b y) = -1. Of the angles at the next frequency, a
half turn apart for the next bit of y, at least one has cos <= 0. Summing over the bits of y,

    sum_{y != 0} e^{logit(z* + y) - logit(z*)}  <=  e^{slack} sum_b e^{-2 A_b} prod_{k > b} (1 + e^{-A_k}),

which holds for every length. A frequency that is missing has A_b = 0, and the bound then says nothing.
Position 0 may have a key of its own. Which of the three a query finds is decided here, for each case:

    match   position t - z* (not 0, if 0 is different)
    start   position 0, because t <= z*
    rest    position 0, because it beats everything, wherever t is
"""

from dataclasses import dataclass

import numpy as np

from memloci.certify.balls import Ball
from memloci.certify.rounding import LIBRARY, Format, gamma

LAG_BITS = 31
# math.cos and exp of float64 err by less than 2^-50, relative or absolute; this is far above.
LIBM = 1e-9
UNKNOWN, MATCH, SINK = 0, 1, 2


@dataclass(frozen=True)
class QueryTargets:
    """What each query finds: `beside` is all the weight that lies elsewhere."""

    what: np.ndarray  # (n,) UNKNOWN, MATCH or SINK
    z: np.ndarray  # (n,) lag of the match
    beside: np.ndarray  # (n,)


def find(
    q: Ball, k: Ball, k0: Ball, turns: np.ndarray, t_min: np.ndarray, t_max: np.ndarray, precision: Format
) -> QueryTargets:
    """Queries (n, d_k) against the key k (d_k,) of positions s >= 1 and the key k0 of position 0."""
    (q1, q2), (k1, k2), (z1, z2) = q.pairs(), k.pairs(), k0.pairs()
    C = q1.middle * k1.middle + q2.middle * k2.middle
    S = q1.middle * k2.middle - q2.middle * k1.middle
    size = (np.abs(q1.middle) + q1.radius + np.abs(q2.middle) + q2.radius) * (
        np.abs(k1.middle) + k1.radius + np.abs(k2.middle) + k2.radius
    )
    known = (np.abs(q1.middle) + np.abs(q2.middle)) * (np.abs(k1.middle) + np.abs(k2.middle))
    wrong = (size - known) + 2.0**-40 * size  # what the radii add, and the rounding of these products
    # Angles carry 5 roundings of up to pi each, cosines the library's, turning 3; then a sum over the pairs.
    turned = 2 * (16 + LIBRARY + 3) + q.middle.shape[-1] + 2
    rounded = size.sum(axis=1) * gamma(turned, precision.u)
    precision.expect(size.sum(axis=1))
    slack = 2 * wrong.sum(axis=1) + 2 * rounded + LIBM * size.sum(axis=1)

    still = turns == 0
    where = {int(turn): j for j, turn in enumerate(turns)}
    rotating = [where.get(1 << (LAG_BITS - b)) for b in range(LAG_BITS)]
    strange = [j for j, turn in enumerate(turns) if turn and j not in rotating]
    slack = slack + 2 * (np.abs(C[:, strange]) + np.abs(S[:, strange])).sum(axis=1)
    z = _decode(C, S, rotating)
    A, aside = _amplitudes(C, S, rotating, z)
    slack = slack + 2 * aside
    others = _log_cross_terms(A)  # relative to the match, a logarithm
    top = A.sum(axis=1) + C[:, still].sum(axis=1)

    phases = z1.middle * q1.middle + z2.middle * q2.middle
    reach0 = (np.abs(q1.middle) + q1.radius + np.abs(q2.middle) + q2.radius) * (
        np.abs(z1.middle) + z1.radius + np.abs(z2.middle) + z2.radius
    )
    sharp0 = (np.abs(q1.middle) + np.abs(q2.middle)) * (np.abs(z1.middle) + np.abs(z2.middle))
    rounded0 = reach0.sum(axis=1) * gamma(turned, precision.u)
    precision.expect(reach0.sum(axis=1))
    loose = np.where(still, reach0 - sharp0 + 2.0**-40 * reach0, reach0).sum(axis=1) + rounded0 + rounded
    at0 = phases[:, still].sum(axis=1)
    same = bool((k0.middle == k.middle).all())
    slack = slack + (2 * (reach0 - sharp0).sum(axis=1) + 2 * rounded0 if same else 0.0)

    # Sizes of sums of exponentials as logarithms; one that is not below 1 says nothing, and neither does NaN.
    below = lambda x: np.where(x < 0, np.exp(np.clip(x, -700.0, 0.0)) * (1 + LIBM), np.inf)
    match = below(others + slack) + (0.0 if same else below(at0 + loose - top + slack))
    match = np.where((t_min >= z + (not same)) & (z >= 1), match, np.inf)
    start = np.where(t_max <= z, below(others + slack + top - at0 + loose), np.inf)
    highest = C[:, still].sum(axis=1) + (np.abs(C) + np.abs(S))[:, ~still].sum(axis=1)
    rest = below(np.log(np.maximum(t_max, 1)) + highest - at0 + loose + slack)
    sink = np.where((t_min >= 1) & (not same), np.minimum(start, rest), np.inf)
    match, sink = (np.where(np.isnan(beside), np.inf, beside) for beside in (match, sink))
    what = np.where(np.minimum(match, sink) >= 0.5, UNKNOWN, np.where(match <= sink, MATCH, SINK))
    return QueryTargets(what, z, np.minimum(np.minimum(match, sink), 1.0))


def _decode(C: np.ndarray, S: np.ndarray, rotating: list[int | None]) -> np.ndarray:
    """z* from the phases, bit by bit; a proposal, the amplitudes say if it is right."""
    z = np.zeros(len(C), dtype=np.int64)
    for b, j in enumerate(rotating):
        if j is None:
            continue
        angle = np.pi * ((z % (1 << (b + 1))) / 2.0**b)
        z = np.where(C[:, j] * np.cos(angle) + S[:, j] * np.sin(angle) < 0, z + (1 << b), z)
    return z


def _amplitudes(
    C: np.ndarray, S: np.ndarray, rotating: list[int | None], z: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A_b >= 0, and the sum of what is out of phase."""
    A, aside = np.zeros((len(C), LAG_BITS)), np.zeros(len(C))
    for b, j in enumerate(rotating):
        if j is None:
            continue
        angle = np.pi * ((z % (1 << (b + 1))) / 2.0**b)
        cos, sin = np.cos(angle), np.sin(angle)
        along = C[:, j] * cos + S[:, j] * sin
        A[:, b] = np.maximum(along, 0.0)
        aside += np.abs(S[:, j] * cos - C[:, j] * sin) + np.maximum(-along, 0.0)
    return A, aside


def _log_cross_terms(A: np.ndarray) -> np.ndarray:
    """log sum_b e^{-2 A_b} prod_{k > b} (1 + e^{-A_k}), which would underflow."""
    total, product = np.full(len(A), -np.inf), np.zeros(len(A))
    for b in reversed(range(LAG_BITS)):
        total = np.logaddexp(total, product - 2 * A[:, b])
        product = product + np.log1p(np.exp(-A[:, b]))
    return total + LIBM * (1 + np.abs(total))
