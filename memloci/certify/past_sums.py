"""What one head loses when it adds up the past, path by path: the rounding model applied to what the paths really do.

    recalled = sum_z w(z) v(z),      sum_z w(z) <= 1,  |v| <= 1

| path | how it adds |
|---|---|
| plain | one sum of at most n - 1 terms in any order, n being the longest sequence that takes this path |
| blocks | sums of RUN terms in any order; these two by two; blocks one after the other, as a pair of numbers (`blocks._added`) |
| recurrence | chunks of CHUNK steps from 0; these one after the other, with their own rounding error (`decay.Fading`) |

*Any order.* Call k terms large and the others small. An addition whose operands both hold large terms happens k - 1 times
at most and errs by u of its result. One that joins small terms to large ones errs by no more than its small operand, for
the large one is a number of the precision already; each small term is joined once. Small terms among themselves err by
gamma(n) of their sum. So for every k, with M the sum of all weights and R that of the small ones,

    error <= (k - 1) u (M + error) + (1 + 2 gamma(n)) R.

Where gamma(n) says nothing, for long sums or few bits, sums are taken to be running sums of running sums. Per unit of R:
1 in its running sum, which is then 2 at most, 2 when that is added to others, which are then 4 at most, and 4 when those
meet the first large term: JOINED in all.

*Pairs.* sums + missed + new, as a pair again: only `missed + error` and the renormalisation round, each number there being
at most 2.1 u of M. That is PAIR u^2 M per step; `missed`, at most 1.1 u M, is left out in the end.

*Recurrence.* q = e^-p, theta = LIBRARY u. A step S' = S + (expm1(-p) S + v) for p < 1/2, S' = e^-p S + v else, errs by

    small   (1 - q) |S| (theta + 2 u) + u |v| + u |S'|          large   q |S| (theta + u) + min(u |S'|, q |S|)

and errors decay like S. S starts anew in every chunk: summed over all steps of the past and divided by the sum of all
weights, |S| is busy = 1 / (1 - q) - C q^C / (1 - q^C) <= (C + 1) / 2, C = CHUNK. The sum over chunks decays by q^C:

    small   y = expm1(-p C) S + (v + e^{-p C} e) errs by (1 - q^C) |S| (theta + 2 u) + 2 u |v| + |e| (theta + 3 u), |e| <= u |S|;
            S + y = S' + e' exactly; divided by 1 - q^C, for all steps
    large   as above, with q^C

Last, old_i S + within: old_i = exp(-p i) errs by theta + u p i, and is exactly 1 at i = 0.

A stream of a lin head (model/paths/memories.py, `Decay`) is that sum over chunks with chunks of one step.

The factors 1.1 are for products of these small numbers, which are below 2^-5 each (`ROUNDED` has the derivation for u).
"""

import math
from collections.abc import Callable, Iterable

import numpy as np

from memloci.certify.rounding import LENGTH, LIBRARY, gamma, times
from memloci.model.encodings import STEEP
from memloci.model.paths.blocks import BLOCK, RUN
from memloci.model.paths.decay import CHUNK, SMALL

JOINED = 7.0
PAIR = 4.5  # 2.1 for `missed + error`, 2.1 for what renormalising rounds, the rest for u^3
MOST_BLOCKS = (
    LENGTH / BLOCK + 4
)  # blocks.block_size cuts n positions into no more than n / BLOCK blocks, rounded up
CUTS = (1, *(2**k for k in range(1, 60)))
NEAR = 0.01  # a slope this near to a switch may, once it is stored in fewer bits, lie on either side

# k -> the sum of the computed weights beyond lag k, per head, from above.
Beyond = Callable[[int], np.ndarray]


def joined(terms: float, u: float) -> float:
    """What small terms cost when they are added to large ones, per unit of their sum, in a sum of so many terms."""
    return min(1 + 2 * float(gamma(terms, u)), JOINED)


def any_order(
    terms: float, mass: np.ndarray, beyond: Beyond, u: float, cuts: Iterable[int] = ()
) -> np.ndarray:
    """The additions of one sum of so many terms, per unit of the largest value; the best of several k."""
    bounds = [times(gamma(max(terms - 1, 0.0), u), mass)]
    for k in sorted({*CUTS, *cuts}):
        if k < terms and (k - 1) * u < 0.5:
            small = joined(terms, u) * np.minimum(beyond(k), mass)
            bounds.append((times((k - 1) * u, mass) + small) / (1 - (k - 1) * u))
    return np.min(bounds, axis=0) * (1 + 1e-9)


def in_blocks(mass: np.ndarray, beyond: Beyond, u: float, cuts: Iterable[int] = ()) -> np.ndarray:
    """The additions of the path `blocks`: within runs in any order, of runs two by two, and of blocks as pairs."""
    pairs = []
    for blocks in CUTS:
        # Sequences of more than BLOCK tokens are cut into blocks of more than half of it; shorter ones into 4 at most.
        summed = (blocks - 1) * (BLOCK // 2 if blocks > 4 else 16)
        rest = 4 * np.minimum(beyond(summed), mass) if blocks < MOST_BLOCKS else 0.0
        pairs.append(times(1.1 * u + PAIR * min(blocks, MOST_BLOCKS) * u * u, mass) + rest)
    levels = math.ceil(math.log2(BLOCK / RUN))
    many = any_order(RUN, mass, beyond, u, cuts) + times(gamma(levels, u), mass) + np.min(pairs, axis=0)
    # Few large terms: they meet k - 1 times, within runs, among runs or among blocks, and cost a rounding each time. Small
    # ones cost no more than a few times what they are: once where they are joined, once in `missed`, which is left out.
    few = [
        times((k - 1) * 1.2 * u, mass) + 2 * joined(BLOCK, u) * np.minimum(beyond(k), mass)
        for k in sorted({1, 2, 3, 4, *CUTS, *cuts})
        if (k - 1) * u < 0.01
    ]
    return np.minimum(many, np.min(few, axis=0) * 1.02) * (1 + 1e-9)


def normaliser(p: np.ndarray, u: float) -> tuple[np.ndarray, np.ndarray]:
    """(relative error of the computed 1 - e^-p, whether it is exactly 1): model/encodings.py, `Lin.infinite_sum`.

    Below STEEP it is the library's expm1; above, 1 - exp(-p), which rounds to 1 where exp(-p) is below u / 2.
    """
    q, rest, theta = np.exp(-p), -np.expm1(-p), LIBRARY * u
    one = (q * (1 + theta) <= 0.49 * u) & (p >= STEEP * (1 + NEAR))
    steep = np.where(one, q / rest, q * theta / rest + 1.1 * u)
    return _switch(p, STEEP, np.full_like(p, theta), steep), one


def _switch(p: np.ndarray, at: float, below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """What holds below a switch and above it; the larger where both may hold."""
    near = np.abs(p - at) <= NEAR * at
    return np.where(near, np.maximum(below, above), np.where(p < at, below, above))


def recurrence(p: np.ndarray, u: float) -> np.ndarray:
    """Everything that the recurrence of a lin head loses, its normaliser included, per unit of the largest value."""
    theta, C = LIBRARY * u, float(CHUNK)
    q, rest, over, passed = np.exp(-p), -np.expm1(-p), np.exp(-p * C), -np.expm1(-p * C)
    busy = np.where(p < 1e-9, (C + 1) / 2, 1 / rest - C * over / passed + 1e-4)
    busy = np.minimum(busy, (C + 1) / 2)
    within = _switch(
        p,
        SMALL,
        busy * (1.1 * u + rest * (theta + 2.2 * u)) + 1.1 * u,
        np.minimum(1.1 * u * busy, 1.1 * q / rest) + q * busy * (theta + 1.1 * u),
    )
    chunks = _compensated(p * C, theta, u)
    bump = np.where(p < 1, 0.37, p * q)  # the largest x e^-x over x = p, 2 p, ...
    read = q * (theta + 1.1 * u) + 1.1 * u * bump + np.minimum(1.1 * u, 1.1 * q)
    total, one = normaliser(p, u)
    scaled = total + np.where(one, 0.0, 3.3 * u)  # 1 / (1 - q), its inverse, and the product with it
    first = within + chunks + read + scaled
    return np.where(first < 0.5, first / np.where(first < 0.5, 1 - first, 1.0), math.inf)


def stream(p: np.ndarray, u: float) -> np.ndarray:
    """The same of a stream: its rates are rounded from float64 once."""
    total, one = normaliser(p, u)
    first = _compensated(p, 1.1 * u, u) + total + np.where(one, 0.0, 2.2 * u)
    return np.where(first < 0.5, first / np.where(first < 0.5, 1 - first, 1.0), math.inf)


def _compensated(rate: np.ndarray, theta: float, u: float) -> np.ndarray:
    """A decaying sum of numbers that come with their own rounding error; theta: of the computed e^-rate."""
    left, passed = np.exp(-rate), -np.expm1(-rate)
    return _switch(
        rate,
        SMALL,
        (theta + 2.2 * u) + 1.1 * u * (theta + 3.3 * u) / passed + 3.3 * u,
        (left * (theta + 1.1 * u) + np.minimum(1.1 * u, 1.1 * left)) / passed,
    )
