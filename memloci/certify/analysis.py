"""A model on a task, followed through every layer, roundings included.

    stream of any position (position_forms.py)  ->  stream at the query, case by case (affine_forms.py)  ->  outputs

Any weights can be followed whose heads are of a known kind (layer.py); weights that do something else than recall get a
bound that is true and large. Where nothing depends on content or position, the stream of any position is the stream at
the query, and one case covers all: `CaseAnalysis.uniform`.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import equinox as eqx
import jax
import numpy as np

from memloci.certify.affine_forms import EXACT, AffineForms, folded, linear, taken_for_0, zeros
from memloci.certify.candidates import Candidates
from memloci.certify.cases import FOREVER, Cases, cases_of, one_case
from memloci.certify.fixed_kernels import FixedKernelHeads
from memloci.certify.layer import Extent, LayerHeads, LayerWeights
from memloci.certify.match_heads import MatchHeads
from memloci.certify.neglected import SharpHeads, neglects, refuse_averages, refuse_illegible
from memloci.certify.position_forms import Inputs, PositionForms, embedded
from memloci.certify.rounding import Format, Watched, format_of, product_error, underflow
from memloci.certify.slacks import OWN, evaluation
from memloci.model.paths.choice import possible_paths
from memloci.model.transformer import Transformer
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.task import Task

CHUNK = 512  # cases at once


@dataclass(frozen=True)
class StreamBounds:
    """The stream that the last FFN reads, and the outputs, in every case."""

    stream: list[AffineForms]
    outputs: list[AffineForms]
    size: np.ndarray  # of the stream that the last FFN reads
    fits: bool  # nothing overflows


@dataclass(frozen=True)
class UniformBounds:
    """The same where one case covers all, in one precision; the outputs are left to readout.py."""

    stream: PositionForms
    fits: bool


class CaseAnalysis:
    """One model on one task; `bounds(precision)` follows all cases in that precision."""

    def __init__(self, model: Transformer, task: Task):
        self.model, self.task, self.inputs = model, task, Inputs.of(task)
        exact = lambda array: np.asarray(array, dtype=float)
        self.W_E, self.b_E = exact(model.W_E), exact(model.b_E)
        self.W_U, self.b_U = exact(model.W_U), exact(model.b_U)
        self.layers = [
            LayerWeights.read(block, l, possible_paths(model.architecture.block(l)))
            for l, block in enumerate(model.layers)
        ]
        self.neglects = neglects(model)
        if self.neglects:
            refuse_illegible(model)
        weights = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
        self.largest = max(float(np.abs(np.asarray(leaf)).max(initial=0.0)) for leaf in weights)

    @property
    def shape(self) -> tuple[int, int]:
        return self.task.M + 1, self.task.d

    @property
    def slack(self) -> float:
        """What float64 may take from a bound of this model."""
        a = self.model.architecture
        return evaluation(a.layers, most_terms(self.model))

    @property
    def uniform(self) -> bool:
        """One case covers all: memories and heads are fixed kernels, and neurons act in the last layer only."""
        kernels = all(isinstance(layer.heads, FixedKernelHeads) for layer in self.layers)
        return (
            self.task.stationary and kernels and not any(len(layer.neurons.c) for layer in self.layers[:-1])
        )

    def heads(self, l: int) -> LayerHeads:
        """The heads of a layer, as they are evaluated."""
        layer = self.layers[l]
        if not self.neglects:
            return layer.heads
        if isinstance(layer.heads, MatchHeads):  # the bound of plain attention holds
            refuse_averages(layer.heads.p, layer.heads.writing, l)
            return layer.heads
        return SharpHeads.of(layer.heads, (layer.neurons.B, layer.neurons.A))

    @cached_property
    def cases(self) -> Cases:
        return cases_of(self.task)

    def stored(self, precision: Format) -> bool:
        """The weights are rounded too, where the precision is below theirs."""
        return precision.u > format_of(self.model.architecture.precision).u

    # Where one case covers all.

    def uniform_bounds(self, precision: Format) -> UniformBounds:
        watched = Watched(precision.u, precision.least, precision.most)
        with np.errstate(all="ignore"):
            before = self.positions(watched)[-1]
            X = self.layers[-1].heads.at_any_position(before, watched, self.stored(watched))
        return UniformBounds(X, not watched.broken)

    def _watch_largest(self, precision: Format) -> PositionForms:
        if self.stored(precision):
            precision.expect(self.largest)
        return self._embedded_position(precision)

    def functionals(self, rows: np.ndarray) -> list[PositionForms]:
        """Linear functionals of the stream after the last attention, in exact arithmetic, each followed as one; in one
        way or two."""
        last = self.layers[-1].heads
        assert isinstance(last, FixedKernelHeads)
        return last.functionals(rows, self.positions(EXACT)[-1])

    @cached_property
    def only_case(self) -> Cases:
        return one_case(self.task)

    # Case by case.

    def bounds(
        self, precision: Format, injected_errors: dict[int, dict[int, float]] | None = None
    ) -> StreamBounds:
        """`injected_errors`: layer -> {coordinate: error added to it after that layer's attention}."""
        watched = Watched(precision.u, precision.least, precision.most)
        with np.errstate(all="ignore"):  # an error that is infinite or not a number counts as infinite
            return self._bounds(watched, injected_errors or {})

    def _bounds(self, precision: Watched, injected: dict[int, dict[int, float]]) -> StreamBounds:
        stored, past = self.stored(precision), self.positions(precision)
        heads = self._among_candidates(past, precision, stored)
        extents = [Extent() for _ in self.layers]
        streams, outputs, size = [], [], np.zeros(len(self.W_E))
        for start in range(0, len(self.cases), CHUNK):
            cases = self.cases.take(slice(start, start + CHUNK))
            X = self._embedded_query(cases, precision, stored)
            for l, layer in enumerate(self.layers):
                extents[l].include(heads[l], X, precision)
                X = heads[l].attend(X, past[l], self.shape, precision, stored)
                if precision.broken:
                    return StreamBounds([], [], size, False)
                X = _injected(X, injected.get(l, {}))
                if l == len(self.layers) - 1:
                    streams.append(X)
                    size = np.maximum(size, X.size.max(axis=0))
                X = layer.neurons(X, precision, stored)
            outputs.append(linear(self.W_U, X, precision, self.b_U, stored))
        for extent in extents:
            precision.expect(extent.logit)
        return StreamBounds(streams, outputs, size, not precision.broken)

    def _among_candidates(
        self, past: list[PositionForms], precision: Format, stored: bool
    ) -> list[LayerHeads]:
        """The heads of every layer; those that compare content know what they look among."""
        heads = [self.heads(l) for l in range(len(self.layers))]
        matches = [i for i, recall in enumerate(self.task.recalls, start=1) if isinstance(recall, Occurrence)]
        if not any(isinstance(layer_heads, MatchHeads) for layer_heads in heads) or not matches:
            return heads
        forms = [
            Candidates.of(self.task, i, lambda cases: self._embedded_query(cases, precision, stored))
            for i in matches
        ]
        result: list[LayerHeads] = []
        for l, layer_heads in enumerate(heads):
            if isinstance(layer_heads, MatchHeads):
                result.append(layer_heads.with_candidates(self.task, forms))
                move = lambda X, layer_heads=layer_heads, l=l: layer_heads.at_unknown_position(
                    X, past[l], precision, stored
                )
            else:
                result.append(layer_heads)
                move = lambda X, layer_heads=layer_heads, l=l: layer_heads.attend(
                    X, past[l], (2, self.task.d), precision, stored
                )
            forms = [
                each.through(move, lambda X, l=l: self.layers[l].neurons(X, precision, stored))
                for each in forms
            ]
        return result

    @property
    def longest(self) -> int | None:
        """The longest sequence of which anything is proved; None if there is no limit. Known after `bounds`."""
        limits = [layer.heads.longest[0] for layer in self.layers if isinstance(layer.heads, MatchHeads)]
        shortest = min(limits, default=float(FOREVER))
        return None if shortest >= FOREVER else int(max(shortest, 0))

    def positions(self, precision: Format) -> list[PositionForms]:
        """The stream of any position before each layer."""
        streams = [self._watch_largest(precision)]
        for l, layer in enumerate(self.layers[:-1]):
            heads = layer.heads if self.uniform else self.heads(l)
            moved = heads.at_any_position(streams[-1], precision, self.stored(precision))
            streams.append(layer.neurons.at_any_position(moved, precision))
        return streams

    # The embedding.

    def _input_errors(self, precision: Format) -> np.ndarray:
        """x itself is rounded in channels that have values between the precision's numbers."""
        between = [not all(map(precision.has_number_in, c.domain)) for c in self.task.channels]
        return np.where(between, precision.u * np.array(self.inputs.sizes) + precision.least, 0.0)

    def _embedded_position(self, precision: Format) -> PositionForms:
        sizes, error = np.array(self.inputs.sizes), self._input_errors(precision)
        rounded = product_error(self.W_E, sizes, error, precision.u, self.b_E, self.stored(precision))
        rounded = rounded + underflow(self.W_E, sizes + error, precision)
        alone = taken_for_0(self.b_E, precision)
        rounded = np.where(self.W_E.any(axis=1) | self.stored(precision), rounded, alone)
        precision.expect(np.abs(self.W_E) @ sizes + np.abs(self.b_E) + rounded)
        return embedded(self.W_E, self.b_E, self.inputs, rounded)

    def _embedded_query(self, cases: Cases, precision: Format, stored: bool) -> AffineForms:
        d = self.task.d
        x = zeros(cases, d)
        x.coef[:, np.arange(d), np.arange(d)] = 1.0
        x.E[:] = self._input_errors(precision)
        x = folded(cases, x.const, x.coef, x.E)
        return linear(self.W_E, x, precision, self.b_E, stored)


def most_terms(model: Transformer) -> int:
    """Of any sum in a bound: over channels, coordinates, neurons, or the value coordinates of all heads of a layer."""
    a = model.architecture
    blocks = [a.block(l) for l in range(a.layers)]
    return max(model.channels, a.dim, *(max(b.width, b.heads * b.value_dim) for b in blocks))


def _injected(X: AffineForms, errors: dict[int, float]) -> AffineForms:
    if not errors:
        return X
    E = X.E.copy()
    for j, error in errors.items():
        E[:, j] += error
    return replace(X, E=E)


def deviations(bounds: StreamBounds, variables: int, d: int, scales: np.ndarray | None = None) -> np.ndarray:
    """(D, variables): sup over all cases of |X_j / k - v|, for every coordinate and variable; k = 1 without `scales`."""
    worst = np.zeros((len(bounds.size), variables))
    for X in bounds.stream:
        for v in range(variables):
            coef, centre, r = _share_of(X, v, d)
            k = np.ones(len(worst)) if scales is None else scales[:, v]
            apart = np.abs(X.middle - k * centre)
            deviation = apart + X.radius + (np.abs(coef - k) - np.abs(coef)) * r
            deviation += 2.0**-48 * (X.weight + np.abs(k) * (np.abs(centre) + r))
            deviation = np.where(np.isnan(deviation), np.inf, deviation) / np.abs(k) * (1 + 4 * OWN)
            worst[:, v] = np.maximum(worst[:, v], deviation.max(axis=0))
    return worst


def held_scales(bounds: StreamBounds, variables: int, d: int) -> np.ndarray:
    """(D, variables): k with X_j ~ k v over all cases, by least squares; 1 where it is as good as 1, or of no use.

    A proposal: `deviations` proves what it is worth. A slot may hold a multiple of its variable, also a negative one, when
    what reads it undoes that.
    """
    product, square = np.zeros((len(bounds.size), variables)), np.zeros(variables)
    for X in bounds.stream:
        for v in range(variables):
            coef, centre, r = _share_of(X, v, d)
            part = coef * r**2 + np.where(np.isfinite(X.middle), X.middle, 0.0) * centre
            product[:, v] += part.sum(axis=0)
            square[v] += float((r**2 + centre**2).sum())
    scales = product / np.where(square > 0, square, 1.0)
    usable = np.isfinite(scales) & (np.abs(scales) > LEAST_SCALE) & (np.abs(scales) < 1 / LEAST_SCALE)
    return np.where(usable & (np.abs(scales - 1) > NEAR_ONE), scales, 1.0)


LEAST_SCALE = 2.0**-20  # tuned: a slot that holds less of a variable holds something else
NEAR_ONE = 0.01  # tuned: a scale this near to 1 is meant to be 1, and the difference is error


def _share_of(X: AffineForms, v: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n, D) the coefficient of variable v, and its centre and radius, (n, 1) each."""
    cases, rows = X.cases, np.arange(len(X.cases))
    a = cases.same[:, v // d] * d + v % d  # two memories at one lag are one unknown
    return X.coef[rows, :, a], cases.centre[rows, a][:, None], cases.radius[rows, a][:, None]
