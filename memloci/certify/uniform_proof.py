"""The proof where one case covers all: kernels over lags, a readout, and rounding added to the exact error.

weights -> kernels over lags -> what each coordinate carries -> readout against f -> rounding
"""

import math
from functools import cached_property

import numpy as np

from memloci.certify.affine_forms import EXACT
from memloci.certify.analysis import CaseAnalysis
from memloci.certify.certificate import Level, Term
from memloci.certify.neglected import NEGLECTED, neglected_at_any_position
from memloci.certify.position_forms import PositionForms
from memloci.certify.readout import ReadoutWeights, Variables, bound_output, by_slots, slots_of
from memloci.certify.rounding import Format
from memloci.certify.symbol_rounding import at_symbols
from memloci.core.proved import Proved


class UniformProof:
    """What is proved of a model whose heads, like the memories, are fixed kernels."""

    arithmetic = "Arb balls of 256 bits or more; intervals with outward rounding for the readout"

    def __init__(self, analysis: CaseAnalysis):
        self.analysis = analysis
        self.readout = ReadoutWeights.of(analysis.model)
        self.variables = Variables.of(analysis.task, analysis.inputs)
        self.slack = analysis.slack

    @cached_property
    def exact_stream(self):
        return self.analysis.uniform_bounds(EXACT).stream

    @cached_property
    def _outputs(self) -> list[list[Term]]:
        r, task = self.readout, self.analysis.task
        live = np.any([r.live(o) for o in range(task.outputs)], axis=0)
        rows = np.concatenate([np.where(np.atleast_1d(live)[:, None], r.B, 0.0), r.W_U])
        functionals = self.analysis.functionals(rows)
        return [
            bound_output(o, formula, r, self.exact_stream, functionals, self.variables)
            for o, formula in enumerate(task.readouts)
        ]

    @cached_property
    def errors(self) -> list[float]:
        """Per output, in exact arithmetic."""
        totals = [math.fsum(term.E for term in terms) * self.slack for terms in self._outputs]
        return [math.inf if math.isnan(total) else total for total in totals]

    def terms(self) -> list[Term]:
        """In exact arithmetic; what the path leaves out is the last."""
        terms = [term for output_terms in self._outputs for term in output_terms]
        if self.analysis.neglects:
            terms.append(Term(*NEGLECTED, Proved(self._neglected)))
        return terms

    def exact(self) -> float:
        return max(self.errors) + self._neglected

    @cached_property
    def _neglected(self) -> float:
        """What the path leaves out of any output."""
        if not self.analysis.neglects:
            return 0.0
        error = neglected_at_any_position(self.analysis, EXACT)
        rounding = self.readout.rounding(self.exact_stream.size, error, EXACT, False)
        return float(rounding.max(initial=0.0)) * self.slack

    def bound(self, precision: Format) -> float:
        """The largest error of any output in a precision."""
        bounds = self.analysis.uniform_bounds(precision)
        if not bounds.fits:
            return math.inf
        exact, stored = self.exact_stream, self.analysis.stored(precision)
        # What E of the precision has beyond the exact one, and what the difference itself was rounded by.
        error = np.maximum(bounds.stream.E - exact.E, 0.0) + (self.slack - 1) * bounds.stream.E
        if self.analysis.neglects:
            error = error + neglected_at_any_position(self.analysis, precision)
        rounded = np.full(len(self.errors), math.inf)
        if np.isfinite(error).all():
            rounded = self.readout.rounding(exact.size, error, precision, stored)
        totals = [
            min(exact_error + float(more), self._at_symbols(o, exact.worse(error), precision, stored))
            for o, (exact_error, more) in enumerate(zip(self.errors, rounded, strict=True))
        ]
        total = max(totals) * self.slack
        return math.inf if math.isnan(total) else total

    def _at_symbols(self, o: int, stream: PositionForms, precision: Format, stored: bool) -> float:
        """The bound of output o where all that it reads are symbols: errors within their margins vanish, whether they come
        from attention or from rounding. Infinite where it reads anything else."""
        formula = self.variables.merged(self.analysis.task.readouts[o])
        slots = slots_of(self.readout, o, stream, self.variables) if self.readout.live(o).any() else None
        if slots is None or not precision.u:
            return math.inf
        rounded = at_symbols(o, self.readout, slots, self.variables, precision, stored)
        if not math.isfinite(rounded):
            return math.inf
        terms = by_slots(o, formula, self.readout, slots, self.variables, self._distances)
        return math.fsum([*(term.E for term in terms), rounded])

    @cached_property
    def _distances(self) -> dict[tuple, float]:
        """What was proved on boxes around the symbols; precisions share it."""
        return {}

    def levels(self, precision: Format, tolerance: float, met: bool) -> tuple[Level, ...]:
        return ()
