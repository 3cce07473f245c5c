"""What the stream holds at any position: the keys and values that attention finds in the past.

    X_s = sum_a coef_a a(s) + e,   a = (channel, lag), blank before the start; channel -1 is the constant 1

A position that is attended to is described by its own recent tokens, whatever they are. What neurons and
content-dependent heads add there is only bounded.
"""

from dataclasses import dataclass

import numpy as np

from memloci.certifier.cases import FOREVER, Cases
from memloci.certifier.pointers import Ball
from memloci.certifier.rounding import Format, dot, gamma, lost, product_error, roundings

Place = tuple[int, int]  # channel, lag
ONE = -1


@dataclass(frozen=True)
class Anywhere:
    places: tuple[Place, ...]
    coef: np.ndarray  # (D, places)
    E: np.ndarray  # (D,)
    E_first: np.ndarray  # (D,) the same at position 0, where attention adds nothing
    sizes: tuple[float, ...]  # of the channels

    @property
    def reach(self) -> np.ndarray:
        """How large each place can be."""
        return np.array([1.0 if c == ONE else self.sizes[c] for c, _ in self.places])

    @property
    def size(self) -> np.ndarray:
        return np.abs(self.coef) @ self.reach * (1 + 1e-12) + self.E

    @property
    def size_first(self) -> np.ndarray:
        ball = self.ball(first=True)
        return np.abs(ball.middle) + ball.radius

    def linear(self, W: np.ndarray, precision: Format, stored: bool) -> "Anywhere":
        """W X, as computed."""
        none = np.zeros(W.shape[1])

        def error(E: np.ndarray, size: np.ndarray) -> np.ndarray:
            rounded = product_error(W, size, none, precision.u, stored=stored)
            underflow = np.where(W.any(axis=1), lost(W, size, precision), 0.0)
            own = np.where(plain, 0.0, 2.0**-50 * len(none) * dot(np.abs(W), size))
            return dot(np.abs(W), E) + rounded + underflow + own

        # Each row picks one coordinate, as it is: nothing is added up.
        plain = ((W != 0).sum(axis=1) <= 1) & ((W == 0) | (np.abs(W) == 1)).all(axis=1)

        first, coef = error(self.E_first, self.size_first), W @ self.coef
        kept = np.flatnonzero(coef.any(axis=0))
        places = tuple(self.places[k] for k in kept)
        return Anywhere(places, coef[:, kept], error(self.E, self.size), first, self.sizes)

    def later(
        self, coordinates: np.ndarray, z: int, added: "Anywhere", gain: float, error: np.ndarray
    ) -> "Anywhere":
        """X plus `gain` times what `added` held z steps before, up to `error`; `coordinates` maps its rows."""
        places = dict.fromkeys([*self.places, *((c, lag + z) for c, lag in added.places)])
        at = {place: k for k, place in enumerate(places)}
        coef = np.zeros((len(self.coef), len(at)))
        coef[:, [at[p] for p in self.places]] = self.coef
        for k, (c, lag) in enumerate(added.places):
            coef[coordinates, at[c, lag + z]] += gain * added.coef[:, k]
        E = self.E.copy()
        E[coordinates] += error + 2.0**-50 * np.abs(gain) * (np.abs(added.coef) @ added.reach)
        kept = [(place, k) for place, k in at.items() if coef[:, k].any()]
        places = tuple(place for place, _ in kept)
        return Anywhere(places, coef[:, [k for _, k in kept]], E, self.E_first, self.sizes)

    def worse(self, by: np.ndarray, at_first: bool = False) -> "Anywhere":
        first = self.E_first + by if at_first else self.E_first
        return Anywhere(self.places, self.coef, self.E + by, first, self.sizes)

    def rows(self, which: np.ndarray) -> "Anywhere":
        return Anywhere(self.places, self.coef[which], self.E[which], self.E_first[which], self.sizes)

    def ball(self, first: bool) -> Ball:
        """At position 0 (`first`), or at any position after it."""
        middle, radius = np.zeros(len(self.coef)), (self.E_first if first else self.E).copy()
        for k, (c, lag) in enumerate(self.places):
            column = self.coef[:, k]
            if c == ONE and (lag == 0 or (lag == 1 and not first)):
                middle = middle + column
            elif c == ONE and not first:
                middle, radius = middle + column / 2, radius + np.abs(column) / 2
            elif lag == 0 or (c != ONE and not first):
                radius = radius + np.abs(column) * self.sizes[c]
        return Ball(middle, radius * (1 + 1e-12))

    def relu_added(self, B: np.ndarray, c: np.ndarray, A: np.ndarray, precision: Format) -> np.ndarray:
        """A bound on |A relu(B X + c)|, roundings included."""
        rows = self.linear(B, precision, stored=True)
        most = np.maximum(rows.size + np.abs(c), 0.0) * (1 + 4 * precision.u) * (1 + 1e-12)
        count = roundings(A) + 1
        return dot(np.abs(A), most) * (1 + gamma(count, precision.u))

    def recalled(
        self, z: np.ndarray, cases: Cases, variables: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(const, coef, E) of this, z steps before the position of each case. `variables` = (M + 1, d)."""
        n, D = len(cases), len(self.coef)
        const, E = np.zeros((n, D)), np.tile(self.E, (n, 1))
        coef = np.zeros((n, D, variables[0] * variables[1]))
        for k, (c, lag) in enumerate(self.places):
            column, there = self.coef[:, k], z + lag
            never, always = cases.t_max < there, cases.t_min >= there
            if c == ONE:
                const += np.where(always, 1.0, np.where(never, 0.0, 0.5))[:, None] * column
                E += np.where(always | never, 0.0, 0.5)[:, None] * np.abs(column)
                continue
            open_ = ~never
            for i in range(variables[0]):
                match = open_ & (cases.lag[:, i] == there)
                coef[match, :, i * variables[1] + c] += column
                open_ &= ~match
            E += open_[:, None] * (np.abs(column) * self.sizes[c])
        return const, coef, E

    def at_start(self, n: int, A: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(const, coef, E) of this at position 0, where only the token itself is there."""
        ball = self.ball(first=True)
        return np.tile(ball.middle, (n, 1)), np.zeros((n, len(self.coef), A)), np.tile(ball.radius, (n, 1))


def embedded(W_E: np.ndarray, b_E: np.ndarray, sizes: tuple[float, ...], rounded: np.ndarray) -> Anywhere:
    d = W_E.shape[1]
    places = (*((c, 0) for c in range(d)), (ONE, 0))
    return Anywhere(places, np.concatenate([W_E, b_E[:, None]], axis=1), rounded, rounded, sizes)


__all__ = ["FOREVER", "ONE", "Anywhere", "embedded"]
