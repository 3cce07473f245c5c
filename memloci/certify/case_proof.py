"""The proof case by case: every case followed (analysis.py), then compared with f.

Two ways from the stream to a bound, the better one per output:

slots    before the last FFN each coordinate that is read holds one variable in every case, up to E: then
         readout.py compares FFN and readout with f, as where one case covers all
affine   f is affine, and the outputs are affine in the unknowns of each case: their difference is bounded

Each level of nesting carries its error and its margin: how far recalled symbols are off, and how far they
may be before the next lookup goes wrong. Below the margin errors vanish, so only the last level's counts.
"""

import math
from functools import cached_property, lru_cache

import numpy as np

from memloci.approx.readouts.ridge_exact import affine
from memloci.certify.affine_forms import EXACT, AffineForms
from memloci.certify.analysis import CaseAnalysis, StreamBounds, deviations, held_scales
from memloci.certify.certificate import Level, Term
from memloci.certify.neglected import NEGLECTED
from memloci.certify.readout import ReadoutWeights, Slots, Variables, by_slots, require_expression
from memloci.certify.rounding import Format
from memloci.certify.slacks import OWN
from memloci.certify.symbol_rounding import at_symbols
from memloci.core.errors import BadInput
from memloci.core.proved import Proved
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.names import variable

SHARPEST = 6  # halvings in the search for a margin


class CaseProof:
    """What is proved of a model whose memories depend on content, or are found by content."""

    arithmetic = (
        "float64 balls: midpoints with their own roundings bounded, every case of the lags; intervals with outward "
        "rounding for the readout"
    )

    def __init__(self, analysis: CaseAnalysis):
        self.analysis, self.model, self.task = analysis, analysis.model, analysis.task
        self.readout = ReadoutWeights.of(self.model)
        self.distances: dict[tuple, float] = {}
        self.variables = Variables.of(self.task, analysis.inputs)
        self.slack = analysis.slack

    @cached_property
    def exact_bounds(self) -> StreamBounds:
        return self.analysis.bounds(EXACT)

    @cached_property
    def _scales(self) -> np.ndarray:
        """How much of a variable each coordinate holds; precisions share it, and with it what is proved on boxes."""
        return held_scales(self.exact_bounds, len(self.task.variables), self.task.d)

    @cached_property
    def _exact_outputs(self) -> list[list[Term]]:
        return [self._output(o, self.exact_bounds, EXACT) for o in range(self.task.outputs)]

    @property
    def errors(self) -> list[float]:
        return [self._total(terms) for terms in self._exact_outputs]

    def exact(self) -> float:
        return max(self.errors)

    def terms(self) -> list[Term]:
        """In exact arithmetic; what the path leaves out is the last."""
        if not self.analysis.neglects:
            return [term for terms in self._exact_outputs for term in terms]
        plain = CaseProof(CaseAnalysis(self.model.using("plain"), self.task))
        return [*plain.terms(), Term(*NEGLECTED, Proved(max(self.exact() - plain.exact(), 0.0)))]

    def bound(self, precision: Format) -> float:
        """The largest error of any output in a precision."""
        bounds = self._in_precision(precision)
        if not bounds.fits:
            return math.inf
        worst = max(self._total(self._output(o, bounds, precision)) for o in range(self.task.outputs))
        return max(worst * self.slack, self.exact())

    @lru_cache(maxsize=8)  # noqa: B019  a proof lives as long as one certificate is made
    def _in_precision(self, precision: Format) -> StreamBounds:
        return self.analysis.bounds(precision)

    def levels(self, precision: Format, tolerance: float, met: bool) -> tuple[Level, ...]:
        """The errors of nested memories in a precision, and how large they may be.

        A bound that is met proves that the level's own error is within its margin, however short the search fell.
        """
        levels, bounds = [], self._in_precision(precision)
        for memories in self._nested():
            E = max(self._errors(bounds, memories).values(), default=0.0)
            margin = self._margin(self.exact_bounds, memories, tolerance)
            levels.append(Level(memories, Proved(E), max(margin, E) if met else margin))
        return tuple(levels)

    def _total(self, terms: list[Term]) -> float:
        total = math.fsum(term.E for term in terms) * self.slack
        return math.inf if math.isnan(total) else total

    def _output(self, o: int, bounds: StreamBounds, precision: Format) -> list[Term]:
        affine_way = self._by_affine(o, bounds)
        if affine_way is not None and any(isinstance(recall, Occurrence) for recall in self.task.recalls):
            return affine_way  # what passes is gated by neurons, whose slots hold no variable
        ways = [way for way in (self._by_slots(o, bounds, precision), affine_way) if way]
        if not ways and precision.u:
            return [Term(f"output {o}", "nothing is known in this precision", Proved(math.inf))]
        if not ways:
            raise BadInput(
                f"output {o}: the stream does not hold the variables of {self.task.readouts[o]} one by one, "
                "and it is not affine; nothing is proved"
            )
        return min(ways, key=self._total)

    def _by_slots(self, o: int, bounds: StreamBounds, precision: Format) -> list[Term] | None:
        r, formula = self.readout, self.task.readouts[o]
        require_expression(formula)
        if (slots := self._slots(o, bounds)) is None:
            return None
        terms = by_slots(o, formula, r, slots, self.variables, self.distances)
        if precision.u:
            stored = self.analysis.stored(precision)
            rounded = float(r.rounding(bounds.size, np.zeros_like(bounds.size), precision, stored)[o])
            rounded = min(rounded, at_symbols(o, r, slots, self.variables, precision, stored))
            terms.append(Term(f"rounding of output {o}", "last FFN and readout", Proved(rounded)))
        return terms

    def _slots(self, o: int, bounds: StreamBounds, labels: dict[int, int] | None = None) -> Slots | None:
        """What the coordinates hold that output o reads; `labels` says it, if it is known."""
        r = self.readout
        used = (r.B[r.live(o)] != 0).any(axis=0) | (r.W_U[o] != 0)
        coordinates = [j for j in np.flatnonzero(used).tolist() if bounds.size[j] != 0]
        worst, scales = deviations(bounds, len(self.task.variables), self.task.d, self._scales), self._scales
        holds: dict[int, int] = {}
        for j in coordinates if labels is None else ():
            # Two memories at one lag are the same number: the second slot may be the second variable, and a slot holds
            # the one that is read rather than the other.
            order = np.argsort(worst[j], kind="stable").tolist()
            least = worst[j, order[0]] * (1 + 1e-9) + 1e-12
            free = [v for v in order if v not in holds.values() and worst[j, v] <= least]
            free.sort(key=lambda v: self.task.variables[v] not in self.task.readouts[o].variables)
            holds[j] = free[0] if free else order[0]
        holds = holds if labels is None else {j: labels[j] for j in coordinates if j in labels}
        coordinates = [j for j in coordinates if j in holds]
        errors = tuple(float(worst[j, holds[j]]) for j in coordinates)
        names = tuple(self.task.variables[holds[j]] for j in coordinates)
        if len(set(names)) < len(names) or not all(map(math.isfinite, errors)):
            return None
        return Slots(
            tuple(coordinates), names, errors, tuple(float(scales[j, holds[j]]) for j in coordinates)
        )

    def _by_affine(self, o: int, bounds: StreamBounds) -> list[Term] | None:
        expression = self.task.readouts[o].expression
        f = affine(expression) if expression is not None else None
        if f is None:
            return None
        worst = 0.0
        for Y in bounds.outputs:
            cases = Y.cases
            const, coef = Y.const[:, [o]] - float(f.b), Y.coef[:, [o]].copy()
            slack = 2 * OWN * abs(float(f.b))
            for name, value in f.a.items():
                k, rows = self.task.variables.index(name), np.arange(len(cases))
                coef[rows, 0, cases.same[:, k // self.task.d] * self.task.d + k % self.task.d] -= float(value)
                reach = np.abs(cases.centre[:, k]) + cases.radius[:, k]
                slack += 2 * OWN * abs(float(value)) * float(reach.max())
            distance = AffineForms(cases, const, coef, Y.E[:, [o]]).size.max()
            worst = math.inf if math.isnan(distance) else max(worst, float(distance) + slack)
        return [Term(f"memories, output {o}", "sup |f - output| over all cases", Proved(worst))]

    # Levels of nesting.

    def _nested(self) -> list[tuple[int, ...]]:
        """The memories that later lags read, level by level. A match compares bits, whose margin is built in."""
        task = self.task
        read = {j for recall in task.recalls if isinstance(recall, LagTable) for j in recall.parents}
        levels = sorted({task.levels[j - 1] for j in read})
        return [tuple(j for j in sorted(read) if task.levels[j - 1] == level) for level in levels]

    def _errors(self, bounds: StreamBounds, memories: tuple[int, ...]) -> dict[int, float]:
        """coordinate -> error, of the slots that hold the symbols of these memories that lags read."""
        read = self.task.lag_variables
        errors: dict[int, float] = {}
        worst = deviations(bounds, len(self.task.variables), self.task.d)
        for k, name in enumerate(self.task.variables):
            if name in read and k // self.task.d in memories:
                near = np.flatnonzero(
                    worst[:, k] <= max(2 * worst[:, k].min(), self._gap((k // self.task.d,)) / 4)
                )
                layer = self.analysis.layers[self._recalled_at(k // self.task.d)]
                written = (layer.heads.W_O != 0).any(
                    axis=(0, 2)
                )  # other coordinates may hold the same number
                best = int(min(near, key=lambda j: (not written[j], worst[j, k])))
                errors[best] = float(worst[best, k])
        return errors

    def _gap(self, memories: tuple[int, ...]) -> float:
        """The least distance between letters of these memories that a lag reads."""
        read = self.task.lag_variables
        gaps = [
            right.lo - left.hi
            for channel in self.task.channels
            if any(variable(channel.name, j) in read for j in memories)
            for left, right in zip(channel.domain[:-1], channel.domain[1:], strict=True)
        ]
        return min(gaps, default=1.0)

    def _recalled_at(self, memory: int) -> int:
        """The layer whose attention brings a memory, or after which neurons have chosen it; the last one of a model that
        has too few layers for it."""
        return min(1 + self.task.levels[memory - 1] + self._late(), len(self.model.layers) - 1)

    def _margin(self, bounds: StreamBounds, memories: tuple[int, ...], tolerance: float) -> float:
        """The largest error of these symbols that leaves the outputs as they are, up to a hundredth of the
        tolerance; by halving the gap."""
        slots = self._errors(bounds, memories)
        high = self._gap(memories) / 2
        layer = self._recalled_at(memories[0])
        labels = self._labels(bounds)
        sound, low = self._quality(bounds, labels), 0.0
        for _ in range(SHARPEST):
            middle = (low + high) / 2
            disturbed = self.analysis.bounds(EXACT, {layer: dict.fromkeys(slots, middle)})
            holds = self._quality(disturbed, labels) <= 2 * sound + 0.01 * tolerance
            low, high = (middle, high) if holds else (low, middle)
        return low

    def _labels(self, bounds: StreamBounds) -> dict[int, int]:
        """coordinate -> variable, of all that the outputs read."""
        labels: dict[int, int] = {}
        for o in range(self.task.outputs):
            if (slots := self._slots(o, bounds)) is not None:
                numbers = [self.task.variables.index(name) for name in slots.names]
                labels |= dict(zip(slots.coordinates, numbers, strict=True))
        return labels

    def _quality(self, bounds: StreamBounds, labels: dict[int, int]) -> float:
        """How well the last memories arrive: what a level's error must not touch."""
        worst = 0.0
        for o in range(self.task.outputs):
            ways = [math.inf]
            if labels and (slots := self._slots(o, bounds, labels)) is not None:
                slot_errors = zip(slots.names, slots.errors, strict=True)
                ways += [max((E for name, E in slot_errors if self._is_last(name)), default=math.inf)]
            if (terms := self._by_affine(o, bounds)) is not None:
                ways += [self._total(terms)]
            worst = max(worst, min(ways))
        return worst

    def _is_last(self, name: str) -> bool:
        """No lag reads this memory, so no error was injected into it."""
        i = self.task.variables.index(name) // self.task.d
        return i > 0 and not any(i in parents for parents in self.task.parents)

    def _late(self) -> int:
        """Layers before the first recall, beyond the one that every route has."""
        return max(0, len(self.model.layers) - 2 - max(self.task.levels))
