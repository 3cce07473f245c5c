"""What the path `sharp` leaves out, as a term of the certificate.

    |H_t - sharp_t|  <=  |H_t - plain_t| + |plain_t - sharp_t|

A head weighs the past by a(t, s), sum_s a <= 1, and `sharp` keeps some places. With the mass N of the others,

    infinite   the kept weights stay as they are: |plain - sharp| <= N max |v|
    softmax    they are normalised anew: plain = (1 - N) sharp + N (a mean of other values), so
               |plain - sharp| = N |that mean - sharp| <= 2 N max |v|

and N <= 1 always, so nothing has to be assumed of the weights: what cannot be shown to be kept is counted as
left out. Which places are kept is decided by computed numbers, and that is what has to be proved:

fixed    the lag with the largest computed logit. Logits are computed up to d, so a lag that is kept instead
         of the peak weighs at least e^{-2 d} times as much, and N <= e^{2 d} (1 - w(peak)).
asked    position 0, and t - z with the bits of z read from signs. Bit b is read right where the amplitude A_b
         exceeds all that the query, the key and the roundings can be off; then z is the match of pointers.py,
         and N is at most the weight beside it. Where the query finds position 0, that is kept anyway.
compared the token with the largest computed logit, weighed 1 (match_heads.py). Where that file shows what a head finds, logits
         are off by |p| / 8 at most and the next one is |p| lower, so the winner is the token that is found, and its value
         arrives as it is: nothing that plain attention loses of it, or adds to it, is lost or added here. Where it shows
         nothing, any value of the past is covered. So the bound of plain attention holds, without a term. Heads with p = 0
         average, which one token does not: they are refused.

Roundings: a sum over fewer places, whose logits turn once instead of twice, loses no more than the plain one.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memloci.certify.affine_forms import AffineForms, linear
from memloci.certify.balls import Ball
from memloci.certify.fixed_kernels import FixedKernelHeads
from memloci.certify.kernels import HeadKernels, PeakKernels, TableKernels
from memloci.certify.pointers import LAG_BITS as LAG_BITS
from memloci.certify.pointers import LIBM, MATCH, SINK, QueryTargets
from memloci.certify.position_forms import PositionForms
from memloci.certify.rotary_heads import RotaryHeads
from memloci.certify.rounding import LIBRARY, Format, dot, gamma, roundings, times
from memloci.certify.slacks import SUMMED
from memloci.core.errors import BadInput
from memloci.model.encodings import Rope
from memloci.model.paths.sharp import Sharp, legible
from memloci.model.transformer import Transformer

if TYPE_CHECKING:
    from memloci.certify.analysis import CaseAnalysis
    from memloci.certify.layer import LayerHeads

NEGLECTED = ("neglected", "what path 'sharp' leaves out: its mass, times the largest value")


def neglects(model: Transformer) -> bool:
    return model.architecture.path == Sharp.name


# -- lags that are the same everywhere ---------------------------------------------------------------------


def outside(kernels: HeadKernels, precision: Format, stored: bool) -> np.ndarray:
    """Per head, a bound on N."""
    if isinstance(kernels, PeakKernels):
        beside = [float(peak.beside.upper()) for peak in kernels.peaks]
        logits = [peak.logits for peak in kernels.peaks]
    elif isinstance(kernels, TableKernels):
        # The weights from above, less the largest of them: the others from above.
        rows = [np.sort([float(w.upper()) for w in row])[:-1] for row in kernels.w]
        beside = [math.fsum(row) * SUMMED for row in rows]
        logits = [one.largest for one in kernels.logits]
    else:
        raise BadInput("path 'sharp' leaves out what these heads are made of: their weights fall off slowly")
    d = [float(one.error(precision.u, stored)) for one in logits]
    return np.array(
        [min(1.0, b * math.exp(min(2 * e, 700.0)) * (1 + LIBM)) for b, e in zip(beside, d, strict=True)]
    )


def neglected(heads: FixedKernelHeads, size: np.ndarray, precision: Format, stored: bool) -> np.ndarray:
    """Per coordinate, |plain - sharp| of a layer of fixed kernels, for |X| <= size."""
    N, total = outside(heads.kernels, precision, stored), np.zeros(len(size))
    for h in range(heads.kernels.H):
        total += _written(heads.W_V[h], heads.W_O[h], N[h] * size, precision)
    return total


def neglected_at_any_position(analysis: "CaseAnalysis", precision: Format) -> np.ndarray:
    """Per coordinate of the stream after the last attention, where one case covers all."""
    error, stored = np.zeros(len(analysis.W_E)), analysis.stored(precision)
    for past, layer in zip(analysis.positions(precision), analysis.layers, strict=True):
        heads = layer.heads
        assert isinstance(heads, FixedKernelHeads)
        missing = neglected(heads, past.size + error, precision, stored)
        error = error + dot(heads.norms, error) + missing
    return error


def _written(W_V: np.ndarray, W_O: np.ndarray, size: np.ndarray, precision: Format) -> np.ndarray:
    """|W_O W_V x| for |x| <= size, roundings included."""
    count = roundings(W_V).max(initial=0) + roundings(W_O) + 4
    return times(dot(np.abs(W_O), dot(np.abs(W_V), size)), 1 + gamma(count, precision.u))


# -- case by case ------------------------------------------------------------------------------------------


@dataclass
class SharpHeads:
    """Heads that are evaluated by `sharp`: what they leave out is added to every error."""

    heads: FixedKernelHeads | RotaryHeads
    neurons: tuple[np.ndarray, np.ndarray]  # B and A of the layer, through which an error of the past goes on

    @classmethod
    def of(cls, heads: "LayerHeads", neurons: tuple[np.ndarray, np.ndarray]) -> "SharpHeads":
        if not isinstance(heads, FixedKernelHeads | RotaryHeads):
            raise BadInput("path 'sharp' leaves out what these heads are made of: every position counts")
        return cls(heads, neurons)

    def streams(self, precision: Format) -> bool:
        """A stream leaves nothing out, so that its error is less by that, and rounds no more than plain attention."""
        return self.heads.streams(precision)

    @property
    def W_V(self) -> np.ndarray:
        return self.heads.W_V

    @property
    def W_O(self) -> np.ndarray:
        return self.heads.W_O

    @property
    def W_Q(self) -> np.ndarray | None:
        return getattr(self.heads, "W_Q", None)

    @property
    def W_K(self) -> np.ndarray | None:
        return getattr(self.heads, "W_K", None)

    def attend(
        self, X: AffineForms, past: PositionForms, shape: tuple[int, int], precision: Format, stored: bool
    ) -> AffineForms:
        result = self.heads.attend(X, past, shape, precision, stored)
        E, first = result.E.copy(), X.cases.t_max == 0  # position 0 sees nothing
        for h, share in self._shares(X, past, precision, stored):
            E += times(np.where(first, 0.0, share)[:, None], self._most(h, past, precision, stored)[None, :])
        precision.expect(replace(result, E=E).size)
        return replace(result, E=E)

    def at_any_position(self, past: PositionForms, precision: Format, stored: bool) -> PositionForms:
        result, added = self.heads.at_any_position(past, precision, stored), np.zeros(len(past.E))
        if isinstance(self.heads, FixedKernelHeads):
            added = neglected(self.heads, past.size, precision, stored)
        else:
            for h, targets in self.heads.finds_at_any_position(past, precision, stored):
                query = past.linear(self.heads.W_Q[h], precision, stored).ball(first=False)
                q = Ball(query.middle[None], query.radius[None])
                share = self._rotary_share(h, q, targets, past, precision, stored)
                added += times(share, self._most(h, past, precision, stored))
        # The neurons that follow are Lipschitz: |A relu(B (X + e) + c) - A relu(B X + c)| <= |A| |B| |e|.
        B, A = self.neurons
        count = roundings(A) + roundings(B).max(initial=0) + 4
        through = times(dot(np.abs(A), dot(np.abs(B), added)), 1 + gamma(count, precision.u))
        return result.worse((added + through) * (1 + 4 * precision.u))

    def _shares(self, X: AffineForms, past: PositionForms, precision: Format, stored: bool):
        """(head, |plain - sharp| per unit of the largest value in each case)."""
        n = len(X.cases)
        if isinstance(self.heads, FixedKernelHeads):
            N = outside(self.heads.kernels, precision, stored)
            yield from ((h, np.full(n, N[h])) for h in range(self.heads.kernels.H))
            return
        for h, targets in self.heads.finds(X, past, precision, stored):
            query = linear(self.heads.W_Q[h], X, precision, stored=stored)
            q = Ball(query.middle, query.radius)
            yield h, self._rotary_share(h, q, targets, past, precision, stored)

    def _rotary_share(
        self, h: int, q: Ball, targets: QueryTargets, past: PositionForms, precision: Format, stored: bool
    ) -> np.ndarray:
        assert isinstance(self.heads, RotaryHeads)
        k, _ = self.heads.keys(h, past, precision, stored)
        match = (targets.what == MATCH) & spells(q, k, self.heads.turns[h], targets.z, precision)
        return 2 * np.where((targets.what == SINK) | match, targets.beside, 1.0)

    def _most(self, h: int, past: PositionForms, precision: Format, stored: bool) -> np.ndarray:
        """The largest that head h can write, per coordinate."""
        value = past.linear(self.W_V[h], precision, stored)
        identity = np.eye(len(self.W_V[h]))
        return _written(identity, self.W_O[h], np.maximum(value.size, value.size_first), precision)


def spells(q: Ball, k: Ball, turns: np.ndarray, z: np.ndarray, precision: Format) -> np.ndarray:
    """Whether every query of the ball, against every key of the ball, spells z (model/paths/sharp.py, `spelled`)."""
    (q1, q2), (k1, k2) = q.pairs(), k.pairs()
    C = q1.middle * k1.middle + q2.middle * k2.middle
    S = q1.middle * k2.middle - q2.middle * k1.middle
    known = (np.abs(q1.middle) + np.abs(q2.middle)) * (np.abs(k1.middle) + np.abs(k2.middle))
    size = (np.abs(q1.middle) + q1.radius + np.abs(q2.middle) + q2.radius) * (
        np.abs(k1.middle) + k1.radius + np.abs(k2.middle) + k2.radius
    )
    # Computed: products and their sum 2, the angle 3 of up to pi, cosines the library's, turning 2.
    computed = gamma(2 + 10 + LIBRARY + 2, precision.u) * size + 8 * precision.least
    off = (size - known) + (2.0**-40 + LIBM) * size + computed
    right = np.ones(len(z), dtype=bool)
    for j, turn in enumerate(turns.tolist()):
        if turn:
            b = LAG_BITS - (int(turn).bit_length() - 1)
            angle = np.pi * ((z % (1 << (b + 1))) / 2.0**b)
            right &= C[:, j] * np.cos(angle) + S[:, j] * np.sin(angle) > off[:, j]
    return right


def refuse_averages(p: np.ndarray, writing: list[int], l: int) -> None:
    for h in writing:
        if p[h] == 0:
            raise BadInput(
                f"layer {l}, head {h}: path 'sharp' reads one token, and a head with slope 0 averages all matches; "
                "use path 'certified'"
            )


def refuse_illegible(model: Transformer) -> None:
    for l, layer in enumerate(model.layers):
        heads = layer.attention.heads
        if not heads.score.dot or not isinstance(heads.encoding, Rope):
            continue
        for h, turns in enumerate(heads.encoding.turns):
            if not legible(turns):
                raise BadInput(
                    f"layer {l}, head {h}: path 'sharp' reads lags off the frequencies pi 2^-b, each at most once, "
                    "and this head has others; nothing is proved"
                )
