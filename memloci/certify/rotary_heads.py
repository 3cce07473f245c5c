"""Softmax heads with rotary queries and keys: each finds one place, and brings a share of all other values as an error.

What a query finds is decided in pointers.py, for every case: the position that it asks for, position 0, or nothing
that is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memloci.certify.affine_forms import (
    MOST_LIFTED,
    AffineForms,
    add,
    add_all,
    errors_as_unknowns,
    folded,
    linear,
    room_for,
    widened,
)
from memloci.certify.balls import Ball
from memloci.certify.cases import FOREVER
from memloci.certify.past_sums import JOINED
from memloci.certify.pointers import MATCH, SINK, UNKNOWN, QueryTargets, find
from memloci.certify.position_forms import PositionForms
from memloci.certify.rounding import LENGTH, LIBRARY, Format, gamma, times
from memloci.certify.slacks import ROUNDED
from memloci.core.errors import BadInput
from memloci.model.attention import Head
from memloci.model.encodings import Rope
from memloci.model.scores import DotProduct

# The weight of the match is 1 / (1 + what is beside it), so it rounds twice, and its product with the value once; the
# rest is for u^2.
MATCHED = 3.4


def matched(beside: np.ndarray, u: float) -> np.ndarray:
    """What the match itself loses, per unit of its value.

    Its exponential is exactly 1. If all that is added to it, JOINED times the computed weights beside it at most, is
    below u, half of the spacing of the numbers above 1, then the sum stays 1, and so does its weight: nothing is lost.
    """
    alone = JOINED * beside * (1 + 4 * LIBRARY * u) <= 0.9 * u
    return np.where(alone, 0.0, MATCHED * u)


@dataclass
class RotaryHeads:
    W_V: np.ndarray  # (H, d_v, D)
    W_O: np.ndarray  # (H, D, d_v)
    W_Q: np.ndarray  # (H, d_k, D)
    W_K: np.ndarray
    turns: np.ndarray  # (H, d_k / 2)

    @classmethod
    def of(cls, heads: Head) -> "RotaryHeads":
        if heads.past.window is not None or heads.past.stride != 1:
            raise BadInput("certificates of pointers need an unlimited past and stride 1")
        assert isinstance(heads.encoding, Rope) and isinstance(heads.score, DotProduct)
        exact = lambda array: np.asarray(array, dtype=float)
        score = heads.score
        return cls(
            W_V=exact(heads.W_V),
            W_O=exact(heads.W_O),
            W_Q=exact(score.W_Q),
            W_K=exact(score.W_K),
            turns=np.asarray(heads.encoding.turns),
        )

    @property
    def writing(self) -> list[int]:
        """Heads that write something."""
        return [h for h in range(len(self.W_O)) if self.W_O[h].any()]

    def streams(self, precision: Format) -> bool:
        """A stream keeps all keys and values, and adds them up in any order, as every path does."""
        return True

    def keys(self, h: int, past: PositionForms, precision: Format, stored: bool) -> tuple[Ball, Ball]:
        """Of any position but 0, and of position 0."""
        key = past.linear(self.W_K[h], precision, stored)
        return key.ball(first=False), key.ball(first=True)

    # The query's position.

    def attend(
        self, X: AffineForms, past: PositionForms, shape: tuple[int, int], precision: Format, stored: bool
    ) -> AffineForms:
        self._expect_sums(past, precision, stored)
        parts, terms = [], []
        for h, targets in list(self.finds(X, past, precision, stored)):
            value = past.linear(self.W_V[h], precision, stored)
            recalled = _recalled(targets, value, X, shape, precision)
            # A value that is written to several coordinates brings one error to all of them.
            spread = np.flatnonzero((self.W_O[h] != 0).sum(axis=0) > 1)
            if 0 < len(spread) <= MOST_LIFTED and np.isfinite(recalled.E).all() and room_for(X, 0):
                recalled = errors_as_unknowns(recalled, spread)
                X = widened(X, recalled.cases)
                parts = [widened(part, recalled.cases) for part in parts]
            parts.append(linear(self.W_O[h], recalled, precision, stored=stored))
            terms.append((self.W_O[h] != 0).sum(axis=1))
        return add(X, add_all(parts, terms, precision), precision) if parts else X

    def finds(
        self, X: AffineForms, past: PositionForms, precision: Format, stored: bool
    ) -> Iterator[tuple[int, QueryTargets]]:
        """What each head that writes finds in each case."""
        cases = X.cases
        for h in self.writing:
            q = linear(self.W_Q[h], X, precision, stored=stored)
            query, keys = Ball(q.middle, q.radius), self.keys(h, past, precision, stored)
            yield h, find(query, *keys, self.turns[h], cases.t_min, cases.t_max, precision)

    def _expect_sums(self, past: PositionForms, precision: Format, stored: bool) -> None:
        """Fast paths add values up before they normalise them: no such sum may overflow, read or not."""
        for h in np.flatnonzero(self.W_V.any(axis=(1, 2))).tolist():
            value = past.linear(self.W_V[h], precision, stored)
            precision.expect(LENGTH * value.size, LENGTH * value.size_first)

    # Any position.

    def at_any_position(self, past: PositionForms, precision: Format, stored: bool) -> PositionForms:
        D, u = self.W_O.shape[1], precision.u
        result, writers, reach = past, np.zeros(D), np.zeros(D)
        for h, targets in self.finds_at_any_position(past, precision, stored):
            value = past.linear(self.W_V[h], precision, stored)
            share = float((softmax_share(targets.beside, precision) + matched(targets.beside, u))[0])
            out = value.linear(self.W_O[h], precision, stored)
            writers += (self.W_O[h] != 0).sum(axis=1)  # all of W_O may be one product
            reach = reach + (1 + share) * out.size
            if int(targets.what[0]) == MATCH:
                moved = out.earlier(int(targets.z[0])).worse(np.abs(self.W_O[h]) @ (share * value.size))
                silent = np.zeros(D)
                result = result.plus(PositionForms(past.inputs, moved.atoms, moved.coef, moved.E, silent))
            elif result.mixes(self.W_O[h]):
                most = (1 + share) * value.size
                result = result.with_unknowns(self.W_O[h], most).worse((1 + share) * out.E)
            else:
                result = result.worse((1 + share) * out.size)
        # The sum over heads, in any order, and the residual addition; adding to 0 is exact.
        summed = times(gamma(np.maximum(writers - 1, 0), u), reach)
        joined = np.where((writers > 0) & (past.size > 0), ROUNDED * u * (past.size + reach), 0.0)
        return result.worse(summed + joined + 4 * writers * precision.least)

    def finds_at_any_position(
        self, past: PositionForms, precision: Format, stored: bool
    ) -> Iterator[tuple[int, QueryTargets]]:
        t_min, t_max = np.array([1]), np.array([FOREVER])
        for h in self.writing:
            asks = past.linear(self.W_Q[h], precision, stored)
            q, q0 = asks.ball(first=False), asks.ball(first=True)
            if not (q0.middle == q.middle).all():  # position 0 sees nothing, whatever it asks
                q = Ball(q.middle, np.maximum(q.radius, q0.radius))
            query, keys = Ball(q.middle[None], q.radius[None]), self.keys(h, past, precision, stored)
            yield h, find(query, *keys, self.turns[h], t_min, t_max, precision)


def softmax_share(beside: np.ndarray, precision: Format) -> np.ndarray:
    """The error that all other values bring, per unit of their size; exact, the weight beside counts twice.

    Computed: the match is compared with itself, so its exponential is exactly 1 (kernels.py, PeakKernels); what it loses
    itself is `matched`.
    """
    if not precision.u:
        return np.minimum(2.0 * beside, 2.0)
    beside = np.minimum(beside * (1 + 4 * LIBRARY * precision.u), 1.0)
    adding = JOINED * beside
    room = np.where(adding < 0.5, 1 - adding, 1.0)
    weight = np.where(adding < 0.5, (4.2 * beside + adding) / room, 3.0)
    return 1.1 * (weight + adding * (1 + weight)) + 4 * FOREVER * precision.least


def _recalled(
    targets: QueryTargets, value: PositionForms, X: AffineForms, shape: tuple[int, int], precision: Format
) -> AffineForms:
    """The value at the place that was found, up to what it loses itself, and a share of any value."""
    cases, share = X.cases, softmax_share(targets.beside, precision)
    unmatched = matched(targets.beside, precision.u)[:, None]
    const, coef, E = value.at(targets.z, cases, shape)
    sink = targets.what == SINK
    if sink.any():
        const0, coef0, E0 = value.at_start(len(cases), coef.shape[2])
        const = np.where(sink[:, None], const0, const)
        coef = np.where(sink[:, None, None], coef0, coef)
        E = np.where(sink[:, None], E0, E)
    most = value.size[None, :]
    E = E + unmatched * AffineForms(cases, const, coef, E).size + share[:, None] * most
    unknown = (targets.what == UNKNOWN)[:, None]
    const, coef = np.where(unknown, 0.0, const), np.where(unknown[:, :, None], 0.0, coef)
    E = np.where(unknown, (1 + unmatched + share[:, None]) * most, E)
    first = (cases.t_max == 0)[:, None]  # position 0 sees nothing
    const, coef, E = (
        np.where(first, 0.0, const),
        np.where(first[:, :, None], 0.0, coef),
        np.where(first, 0.0, E),
    )
    return folded(cases, const, coef, E)
