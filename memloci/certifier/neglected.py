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

Roundings: a sum over fewer places, whose logits turn once instead of twice, loses no more than the plain one.
"""

import math
from dataclasses import fields, replace

import numpy as np

from memloci.certifier.anywhere import Anywhere
from memloci.certifier.carried import Carried, linear
from memloci.certifier.cases import FOREVER
from memloci.certifier.kernels import HeadKernels, PeakKernels, TableKernels
from memloci.certifier.layer import Layer
from memloci.certifier.pointers import BITS as LAG_BITS
from memloci.certifier.pointers import LIBM, MATCH, SINK, Ball, find
from memloci.certifier.rounding import LIBRARY, Format, dot, gamma, roundings, times
from memloci.certifier.walk import Walk
from memloci.errors import BadInput
from memloci.fast.sharp import Sharp, legible
from memloci.model.attention import Attention
from memloci.model.encodings import Rope
from memloci.model.transformer import Transformer
from memloci.tasks.adaptive import Adaptive

NAME = "neglected"
FORMULA = "what path 'sharp' leaves out: its mass, times the largest value"


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
        beside = [math.fsum(row) * (1 + 1e-9) for row in rows]
        logits = [one.largest for one in kernels.logits]
    else:
        raise BadInput("path 'sharp' leaves out what these heads are made of: their weights fall off slowly")
    d = [float(one.error(precision.u, stored)) for one in logits]
    return np.array(
        [min(1.0, b * math.exp(min(2 * e, 700.0)) * (1 + 1e-9)) for b, e in zip(beside, d, strict=True)]
    )


def left_out(
    attention: Attention, kernels: HeadKernels, size: np.ndarray, precision: Format, stored: bool
) -> np.ndarray:
    """Per coordinate, |plain - sharp| of a layer of fixed kernels, for |X| <= size."""
    W_V = np.asarray(attention.heads.W_V, dtype=float)
    W_O = np.asarray(attention.heads.W_O, dtype=float)
    N, total = outside(kernels, precision, stored), np.zeros(len(size))
    for h in range(kernels.H):
        total += _written(W_V[h], W_O[h], N[h] * size, precision)
    return total


def _written(W_V: np.ndarray, W_O: np.ndarray, size: np.ndarray, precision: Format) -> np.ndarray:
    """|W_O W_V x| for |x| <= size, roundings included."""
    count = roundings(W_V).max(initial=0) + roundings(W_O) + 4
    return times(dot(np.abs(W_O), dot(np.abs(W_V), size)), 1 + gamma(count, precision.u))


# -- lags that the query spells ----------------------------------------------------------------------------


class SharpWalk(Walk):
    """A walk whose heads are evaluated by `sharp`: what they leave out is added to every error."""

    def __init__(self, model: Transformer, task: Adaptive):
        super().__init__(model, task)
        _refuse_illegible(model)
        own = lambda layer: {field.name: getattr(layer, field.name) for field in fields(layer)}
        layers: list[Layer] = [_SharpLayer(**own(layer)) for layer in self.layers]
        self.layers = layers


class _SharpLayer(Layer):
    def attend(
        self, X: Carried, past: Anywhere, shape: tuple[int, int], precision: Format, stored: bool
    ) -> Carried:
        result = super().attend(X, past, shape, precision, stored)
        E = result.E.copy()
        for h in self.heads:
            q = None
            if self.W_Q is not None:
                asked = linear(self.W_Q[h], X, precision, stored=stored)
                q = Ball(asked.middle, asked.radius)
            share = self._share(h, q, past, X.cases.t_min, X.cases.t_max, precision, stored)
            share = np.where(X.cases.t_max == 0, 0.0, share)  # position 0 sees nothing
            E += times(share[:, None], self._most(h, past, precision, stored)[None, :])
        precision.expect(replace(result, E=E).size)
        return replace(result, E=E)

    def anywhere(self, X: Anywhere, precision: Format, stored: bool) -> Anywhere:
        result = super().anywhere(X, precision, stored)
        added = np.zeros(len(X.E))
        for h in self.heads:
            q = None
            if self.W_Q is not None:
                asked = X.linear(self.W_Q[h], precision, stored).ball(first=False)
                q = Ball(asked.middle[None], asked.radius[None])
            share = self._share(h, q, X, np.array([1]), np.array([FOREVER]), precision, stored)
            added += times(share, self._most(h, X, precision, stored))
        # The neurons that follow are Lipschitz: |A relu(B (X + e) + c) - A relu(B X + c)| <= |A| |B| |e|.
        count = roundings(self.A) + roundings(self.B).max(initial=0) + 4
        through = times(dot(np.abs(self.A), dot(np.abs(self.B), added)), 1 + gamma(count, precision.u))
        return result.worse((added + through) * (1 + 4 * precision.u))

    def _share(
        self,
        h: int,
        q: Ball | None,
        past: Anywhere,
        t_min: np.ndarray,
        t_max: np.ndarray,
        precision: Format,
        stored: bool,
    ) -> np.ndarray:
        """|plain - sharp| of head h, per unit of the largest value."""
        if self.kernels is not None:
            return np.full(len(t_min), outside(self.kernels, precision, stored)[h])
        assert q is not None and self.turns is not None
        k, k0 = self._keys(h, past, precision, stored)
        found = find(q, k, k0, self.turns[h], t_min, t_max, precision)
        kept = (found.what == SINK) | (
            (found.what == MATCH) & spells(q, k, self.turns[h], found.z, precision)
        )
        return 2 * np.where(kept, found.beside, 1.0)

    def _most(self, h: int, past: Anywhere, precision: Format, stored: bool) -> np.ndarray:
        """The largest that head h can write, per coordinate."""
        value = past.linear(self.W_V[h], precision, stored)
        identity = np.eye(len(self.W_V[h]))
        return _written(identity, self.W_O[h], np.maximum(value.size, value.size_first), precision)


def spells(q: Ball, k: Ball, turns: np.ndarray, z: np.ndarray, precision: Format) -> np.ndarray:
    """Whether every query of the ball, against every key of the ball, spells z (fast/sharp.py, `spelled`)."""
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


def _refuse_illegible(model: Transformer) -> None:
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
