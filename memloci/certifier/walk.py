"""Every case of an adaptive task, followed through every layer of a model, roundings included.

    cases (cases.py) -> stream of a query (carried.py), stream of the past (anywhere.py), layer by layer (layer.py)

Any weights can be followed; weights that do something else than recall one place get a bound that is true and large.
"""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import numpy as np

from memloci.certifier.anywhere import Anywhere, embedded
from memloci.certifier.carried import Carried, folded, linear, nothing
from memloci.certifier.cases import Cases, cases_of
from memloci.certifier.layer import Extent, Layer
from memloci.certifier.rounding import FORMATS, Format, Watched, lost, product_error
from memloci.fast.choice import may_take
from memloci.model.transformer import Transformer
from memloci.tasks.adaptive import Adaptive

CHUNK = 512  # cases at once


@dataclass(frozen=True)
class Ends:
    """What is left when the last attention, or the last layer, is done."""

    before: list[Carried]  # the stream that the last FFN reads
    after: list[Carried]  # the outputs
    size: np.ndarray  # of the stream that the last FFN reads
    fits: bool  # nothing overflows


class Walk:
    """One model on one task; `ends(precision)` follows all cases in that precision."""

    def __init__(self, model: Transformer, task: Adaptive):
        self.model, self.task = model, task
        self.cases = cases_of(task)
        self.sizes = tuple(channel.magnitude for channel in task.channels)
        exact = lambda array: np.asarray(array, dtype=float)
        self.W_E, self.b_E = exact(model.W_E), exact(model.b_E)
        self.W_U, self.b_U = exact(model.W_U), exact(model.b_U)
        recurrent = may_take("recurrence", model.architecture)
        self.layers = [Layer.read(block, l, recurrent) for l, block in enumerate(model.layers)]
        weights = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
        self.largest = max(float(np.abs(np.asarray(leaf)).max(initial=0.0)) for leaf in weights)

    @property
    def shape(self) -> tuple[int, int]:
        return self.task.M + 1, self.task.d

    def ends(self, precision: Format, spoil: dict[int, dict[int, float]] | None = None) -> Ends:
        """`spoil`: layer -> {coordinate: error added to it after that layer's attention}."""
        watched = Watched(precision.u, precision.least, precision.most)
        with np.errstate(all="ignore"):  # an error that is infinite or not a number counts as infinite
            return self._ends(watched, spoil or {})

    def _ends(self, precision: Watched, spoil: dict[int, dict[int, float]]) -> Ends:
        stored = precision.u > FORMATS[self.model.architecture.precision].u
        if stored:
            precision.expect(self.largest)
        past = self._past(precision, stored)
        extents = [Extent() for _ in self.layers]
        before, after, size = [], [], np.zeros(len(self.W_E))
        for start in range(0, len(self.cases), CHUNK):
            cases = self.cases.take(slice(start, start + CHUNK))
            X = self._embedded(cases, precision, stored)
            for l, layer in enumerate(self.layers):
                extents[l].see(layer, X, precision)
                X = layer.attend(X, past[l], self.shape, precision, stored)
                if l in spoil:
                    E = X.E.copy()
                    for j, error in spoil[l].items():
                        E[:, j] += error
                    X = replace(X, E=E)
                if l == len(self.layers) - 1:
                    before.append(X)
                    size = np.maximum(size, X.size.max(axis=0))
                X = layer.ffn(X, precision, stored)
            after.append(linear(self.W_U, X, precision, self.b_U, stored))
        for extent in extents:
            precision.expect(extent.logit)
        return Ends(before, after, size, not precision.broken)

    def _input_errors(self, precision: Format) -> np.ndarray:
        """x itself is rounded in channels that have values between the precision's numbers."""
        between = [not all(map(precision.has_number_in, c.domain)) for c in self.task.channels]
        return np.where(between, precision.u * np.array(self.sizes), 0.0)

    def _embedded(self, cases: Cases, precision: Format, stored: bool) -> Carried:
        d = self.task.d
        x = nothing(cases, d)
        x.coef[:, np.arange(d), np.arange(d)] = 1.0
        x.E[:] = self._input_errors(precision)
        x = folded(cases, x.const, x.coef, x.E)
        return linear(self.W_E, x, precision, self.b_E, stored)

    def _past(self, precision: Format, stored: bool) -> list[Anywhere]:
        """The stream of any position before each layer."""
        sizes, error = np.array(self.sizes), self._input_errors(precision)
        rounded = product_error(self.W_E, sizes, error, precision.u, self.b_E, stored)
        rounded = rounded + lost(self.W_E, sizes + error, precision)
        rounded = np.where(self.W_E.any(axis=1) | stored, rounded, 0.0)  # 0 + b_E is exact
        X = embedded(self.W_E, self.b_E, self.sizes, rounded)
        found = [X]
        for layer in self.layers[:-1]:
            X = layer.anywhere(X, precision, stored)
            found.append(X)
        return found


def deviations(ends: Ends, variables: int, d: int) -> np.ndarray:
    """(D, variables): sup over all cases of |X_j - v|, for every coordinate and variable."""
    worst = np.zeros((len(ends.size), variables))
    for X in ends.before:
        cases, rows = X.cases, np.arange(len(X.cases))
        for v in range(variables):
            a = cases.same[:, v // d] * d + v % d  # two memories at one lag are one unknown
            coef, r = X.coef[rows, :, a], cases.radius[rows, a][:, None]
            apart = np.abs(X.middle - cases.centre[rows, a][:, None])
            found = apart + X.radius + (np.abs(coef - 1.0) - np.abs(coef)) * r
            found += 2.0**-48 * (X.weight + cases.radius[rows, a][:, None])
            worst[:, v] = np.maximum(worst[:, v], np.where(np.isnan(found), np.inf, found).max(axis=0))
    return worst
