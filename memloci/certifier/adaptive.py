"""The certificate of an adaptive task: every case followed (walk.py), then compared with f.

Two ways from the stream to a bound, the better one per output:

slots    before the last FFN each coordinate that is read holds one variable in every case, up to E: then
         readout.py compares FFN and readout with f, as for fixed memories
affine   f is affine, and the outputs are affine in the unknowns of each case: their difference is bounded

Each level of nesting carries its error and its margin: how far recalled symbols are off, and how far they
may be before the next lookup goes wrong. Below the margin errors vanish, so only the last level's counts.
"""

import math

import numpy as np
from flint import ctx

from memloci.approx.ridge_exact import affine
from memloci.certifier.carried import EXACT, Carried
from memloci.certifier.certificate import Certificate, Level, Proved, Term
from memloci.certifier.certify import BITS, after, assumptions, fewest_bits, mass_of, readout_of
from memloci.certifier.neglected import FORMULA, NAME, SharpWalk, neglects
from memloci.certifier.readout import Slots, Variables, by_slots
from memloci.certifier.rounding import FORMATS, SLACK, Format
from memloci.certifier.signals import Atom
from memloci.certifier.walk import Ends, Walk, deviations
from memloci.errors import BadInput
from memloci.model.transformer import Transformer
from memloci.tasks.adaptive import Adaptive

SHARPEST = 6  # halvings in the search for a margin


def certify_adaptive(model: Transformer, task: Adaptive, tolerance: float, precision: str) -> Certificate:
    """The certificate of `model` for an adaptive task."""
    with ctx.workprec(BITS), np.errstate(all="ignore"):
        judge = _Judge(model, task)
        terms, exact, levels = judge.exact(tolerance)
        if neglects(model):  # the plain definition, and what the path is away from it
            plain = _Judge(model.using("plain"), task)
            terms, alone = plain.proved(plain.walk.ends(EXACT))
            terms = (*terms, Term(NAME, FORMULA, Proved(max(exact - alone, 0.0))))
        ends = {name: judge.walk.ends(known) for name, known in FORMATS.items()}
        bounds = {name: Proved(max(judge.bound(ends[name], FORMATS[name]), exact)) for name in FORMATS}
        errors = judge.level_errors(ends[precision])
        meets = lambda u: judge.bound(judge.walk.ends(Format(u)), Format(u)) <= tolerance
        bits = fewest_bits(meets) if exact <= tolerance else None
    # A bound that is met proves that the level's own error is within its margin, however short the search fell.
    met = bounds[precision] <= tolerance
    levels = tuple(
        Level(level.memories, Proved(E), max(level.margin, E) if met else level.margin)
        for level, E in zip(levels, errors, strict=True)
    )
    rounding = Term("rounding", f"rounding model in {precision}", Proved(bounds[precision] - exact))
    return Certificate(
        status="met" if met else "missed",
        tolerance=tolerance,
        precision=precision,
        bound=bounds[precision],
        exact_bound=Proved(exact),
        bound_by_precision=bounds,
        terms=(*terms, rounding),
        mass=mass_of(model),
        mass_lower_bound=None,
        bits=bits,
        assumptions=assumptions(model, task),
        arithmetic="float64 balls: midpoints with their own roundings bounded, every case of the lags; "
        "intervals with outward rounding for the readout",
        levels=levels,
    )


class _Judge:
    """A walk, and what it proves of the outputs."""

    def __init__(self, model: Transformer, task: Adaptive):
        self.model, self.task = model, task
        self.walk = SharpWalk(model, task) if neglects(model) else Walk(model, task)
        self.readout = readout_of(model)
        atoms = tuple(Atom(c, i) for i in range(task.M + 1) for c in range(task.d))
        self.distances: dict[tuple, float] = {}
        self.variables = Variables(task.variables, atoms, dict(task.domains), task.occur_together)

    def exact(self, tolerance: float) -> tuple[tuple[Term, ...], float, tuple[Level, ...]]:
        ends = self.walk.ends(EXACT)
        return *self.proved(ends), self._levels(ends, tolerance)

    def proved(self, ends: Ends) -> tuple[tuple[Term, ...], float]:
        """In exact arithmetic: the terms of all outputs, and the worst output."""
        outputs = [self._output(o, ends, EXACT) for o in range(self.task.outputs)]
        return tuple(term for terms in outputs for term in terms), max(map(_total, outputs))

    def bound(self, ends: Ends, precision: Format) -> float:
        if not ends.fits:
            return math.inf
        return max(_total(self._output(o, ends, precision)) for o in range(self.task.outputs)) * SLACK

    def _output(self, o: int, ends: Ends, precision: Format) -> list[Term]:
        ways = [way for way in (self._by_slots(o, ends, precision), self._by_affine(o, ends)) if way]
        if not ways and precision.u:
            return [Term(f"output {o}", "nothing is known in this precision", Proved(math.inf))]
        if not ways:
            raise BadInput(
                f"output {o}: the stream does not hold the variables of {self.task.readouts[o]} one by one, "
                "and it is not affine; nothing is proved"
            )
        return min(ways, key=_total)

    def _by_slots(self, o: int, ends: Ends, precision: Format) -> list[Term] | None:
        r, formula = self.readout, self.task.readouts[o]
        if formula.expression is None:
            raise BadInput(
                f"nothing can be proved of the callable {formula}; write the readout as an expression"
            )
        if (slots := self._slots(o, ends)) is None:
            return None
        terms = by_slots(o, formula, r, slots, self.variables, self.distances)
        if precision.u:
            stored = precision.u > FORMATS[self.model.architecture.precision].u
            rounded = after(r, ends.size, np.zeros_like(ends.size), precision, stored)[o]
            terms.append(Term(f"rounding of output {o}", "last FFN and readout", Proved(float(rounded))))
        return terms

    def _slots(self, o: int, ends: Ends, labels: dict[int, int] | None = None) -> Slots | None:
        """What the coordinates hold that output o reads; `labels` says it, if it is known."""
        r = self.readout
        used = (r.B[r.live(o)] != 0).any(axis=0) | (r.W_U[o] != 0)
        coordinates = [j for j in np.flatnonzero(used).tolist() if ends.size[j] != 0]
        worst = deviations(ends, len(self.task.variables), self.task.d)
        holds: dict[int, int] = {}
        for j in coordinates if labels is None else ():
            # Two memories at one lag are the same number: the second slot may be the second variable.
            order = np.argsort(worst[j], kind="stable").tolist()
            least = worst[j, order[0]] * (1 + 1e-9) + 1e-12
            free = [v for v in order if v not in holds.values() and worst[j, v] <= least]
            holds[j] = free[0] if free else order[0]
        holds = holds if labels is None else {j: labels[j] for j in coordinates if j in labels}
        coordinates = [j for j in coordinates if j in holds]
        errors = tuple(float(worst[j, holds[j]]) for j in coordinates)
        names = tuple(self.task.variables[holds[j]] for j in coordinates)
        if len(set(names)) < len(names) or not all(map(math.isfinite, errors)):
            return None
        return Slots(tuple(coordinates), names, errors)

    def _by_affine(self, o: int, ends: Ends) -> list[Term] | None:
        expression = self.task.readouts[o].expression
        f = affine(expression) if expression is not None else None
        if f is None:
            return None
        worst = 0.0
        for Y in ends.after:
            cases = Y.cases
            const, coef = Y.const[:, [o]] - float(f.b), Y.coef[:, [o]].copy()
            slack = 2.0**-52 * abs(float(f.b))
            for name, value in f.a.items():
                k, rows = self.task.variables.index(name), np.arange(len(cases))
                coef[rows, 0, cases.same[:, k // self.task.d] * self.task.d + k % self.task.d] -= float(value)
                slack += 2.0**-52 * abs(float(value)) * self.walk.sizes[k % self.task.d]
            found = Carried(cases, const, coef, Y.E[:, [o]]).size.max()
            worst = math.inf if math.isnan(found) else max(worst, float(found) + slack)
        return [Term(f"memories, output {o}", "sup |f - output| over all cases", Proved(worst))]

    # levels

    def level_errors(self, ends: Ends) -> list[float]:
        return [max(self._errors(ends, memories).values(), default=0.0) for memories in self._nested()]

    def _nested(self) -> list[tuple[int, ...]]:
        """The memories that later lags read, level by level."""
        task = self.task
        read = {j for parents in task.parents for j in parents}
        levels = sorted({task.levels[j - 1] for j in read})
        return [tuple(j for j in sorted(read) if task.levels[j - 1] == level) for level in levels]

    def _errors(self, ends: Ends, memories: tuple[int, ...]) -> dict[int, float]:
        """coordinate -> error, of the slots that hold the symbols of these memories that lags read."""
        read = {name for table in self.task.lag_tables for name in table.variables}
        found: dict[int, float] = {}
        worst = deviations(ends, len(self.task.variables), self.task.d)
        for k, name in enumerate(self.task.variables):
            if name in read and k // self.task.d in memories:
                near = np.flatnonzero(
                    worst[:, k] <= max(2 * worst[:, k].min(), self._gap((k // self.task.d,)) / 4)
                )
                layer = self.walk.layers[self._recalled_at(k // self.task.d)]
                written = (layer.W_O != 0).any(axis=(0, 2))  # other coordinates may hold the same number
                best = int(min(near, key=lambda j: (not written[j], worst[j, k])))
                found[best] = float(worst[best, k])
        return found

    def _gap(self, memories: tuple[int, ...]) -> float:
        """The least distance between letters of these memories that a lag reads."""
        read = {name for table in self.task.lag_tables for name in table.variables}
        gaps = [
            right.lo - left.hi
            for channel in self.task.channels
            if any(f"{channel.name}{j}" in read for j in memories)
            for left, right in zip(channel.domain[:-1], channel.domain[1:], strict=True)
        ]
        return min(gaps, default=1.0)

    def _recalled_at(self, memory: int) -> int:
        """The layer whose attention brings a memory, or after which neurons have chosen it."""
        return 1 + self.task.levels[memory - 1] + self._late()

    def _levels(self, ends: Ends, tolerance: float) -> tuple[Level, ...]:
        return tuple(
            Level(memories, Proved(0.0), self._margin(ends, memories, tolerance))
            for memories in self._nested()
        )

    def _margin(self, ends: Ends, memories: tuple[int, ...], tolerance: float) -> float:
        """The largest error of these symbols that leaves the outputs as they are, up to a hundredth of the
        tolerance; by halving the gap."""
        slots = self._errors(ends, memories)
        high = self._gap(memories) / 2
        layer = self._recalled_at(memories[0])
        labels = self._labels(ends)
        sound, low = self._quality(ends, labels), 0.0
        for _ in range(SHARPEST):
            middle = (low + high) / 2
            spoiled = self.walk.ends(EXACT, spoil={layer: dict.fromkeys(slots, middle)})
            holds = self._quality(spoiled, labels) <= 2 * sound + 0.01 * tolerance
            low, high = (middle, high) if holds else (low, middle)
        return low

    def _labels(self, ends: Ends) -> dict[int, int]:
        """coordinate -> variable, of all that the outputs read."""
        found: dict[int, int] = {}
        for o in range(self.task.outputs):
            if (slots := self._slots(o, ends)) is not None:
                numbers = [self.task.variables.index(name) for name in slots.names]
                found |= dict(zip(slots.coordinates, numbers, strict=True))
        return found

    def _quality(self, ends: Ends, labels: dict[int, int]) -> float:
        """How well the last memories arrive: what a level's error must not touch."""
        worst = 0.0
        for o in range(self.task.outputs):
            ways = [math.inf]
            if labels and (slots := self._slots(o, ends, labels)) is not None:
                held = zip(slots.names, slots.errors, strict=True)
                ways += [max((E for name, E in held if self._is_last(name)), default=math.inf)]
            if (terms := self._by_affine(o, ends)) is not None:
                ways += [_total(terms)]
            worst = max(worst, min(ways))
        return worst

    def _is_last(self, name: str) -> bool:
        """No lag reads this memory, so nothing was spoiled in it."""
        i = self.task.variables.index(name) // self.task.d
        return i > 0 and not any(i in parents for parents in self.task.parents)

    def _late(self) -> int:
        """Layers before the first recall, beyond the one that every route has."""
        return max(0, len(self.model.layers) - 2 - max(self.task.levels))


def _total(terms: list[Term]) -> float:
    total = math.fsum(term.E for term in terms) * SLACK
    return math.inf if math.isnan(total) else total
