"""From the stream to the output: how far FFN and readout are from the task's function f.

    y = W_U S + b_U + sum_k (W_U A)_k relu(B_k S + c_k),     S = what the memory signals carry

Two ways, the first that applies:

slots       each coordinate read carries a multiple of one variable, S_j = k_j v_j + e_j, |e_j| <= E_j. Variables
            with finitely many values: f at the symbol against the network on the whole box symbol +- E,
            so errors within a staircase's margin vanish. Others: sup |f - N| on the wider box, plus
            sum_j Lip_j E_j.
functionals any stream: neuron k has argument Gamma_k v + e_k, and |e_k| costs |(W_U A)_k| each. Exact for a
            linear readout: its error is one joint l1 norm.

sup |f - N| comes from approx/readouts/ridge_bounds.py: branch and bound in interval arithmetic.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memloci.approx.readouts.ridge_affine import affine_supremum
from memloci.approx.readouts.ridge_bounds import Target, expression_target, supremum
from memloci.approx.readouts.ridge_certify import certify_ridge
from memloci.approx.readouts.ridge_sums import RidgeSum
from memloci.certify.certificate import Term
from memloci.certify.position_forms import ONE, Atom, Inputs, PositionForms
from memloci.certify.rounding import Format, dot, product_error, roundings, underflow
from memloci.certify.slacks import OWN, ROUNDED, SUMMED
from memloci.core.errors import BadInput
from memloci.core.intervals import Interval, down, point, up
from memloci.core.proved import Proved
from memloci.language.domain import Domain, lipschitz
from memloci.language.evaluate import enclose
from memloci.language.expression import Expression, renamed
from memloci.language.expression import variables as variables_of
from memloci.language.formula import Formula
from memloci.model.transformer import Transformer
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task

MAX_BOXES = 50_000  # combinations of symbols looked at one by one


@dataclass(frozen=True)
class ReadoutWeights:
    """The last layer's FFN (perhaps absent) and the linear readout, in float64, exactly."""

    B: np.ndarray  # (m, D)
    c: np.ndarray  # (m,)
    A: np.ndarray  # (D, m)
    W_U: np.ndarray  # (outputs, D)
    b_U: np.ndarray  # (outputs,)

    @classmethod
    def of(cls, model: Transformer) -> "ReadoutWeights":
        D, ffn = model.architecture.dim, model.layers[-1].ffn
        exact = lambda array: np.asarray(array, dtype=float)
        if ffn is None:
            B, c, A = np.zeros((0, D)), np.zeros(0), np.zeros((D, 0))
        else:
            B, c, A = exact(ffn.B), exact(ffn.c), exact(ffn.A)
        return cls(B, c, A, exact(model.W_U), exact(model.b_U))

    def rounding(self, size: np.ndarray, error: np.ndarray, precision: Format, stored: bool) -> np.ndarray:
        """What the last FFN and the readout lose, per output, for |X| <= size known up to `error`."""
        u, given = precision.u, size + error
        fits = True
        if len(self.c):
            argument = dot(np.abs(self.B), size) + np.abs(self.c)
            wrong = product_error(self.B, size, error, u, self.c, stored) + underflow(
                self.B, given, precision
            )
            reach = dot(np.abs(self.A), argument + wrong)
            added = product_error(self.A, argument, wrong, u, stored=stored)
            added += underflow(self.A, argument + wrong, precision)
            both = (given > 0) & (reach > 0)
            error = (
                error + added + np.where(both, ROUNDED * u * (given + reach + added), 0.0) + precision.least
            )
            size = size + dot(np.abs(self.A), argument)
            given = size + error
            fits = precision.represents(argument + wrong, given)
        total = dot(np.abs(self.W_U), given) + np.abs(self.b_U)
        rounding = product_error(self.W_U, size, error, u, self.b_U, stored) + underflow(
            self.W_U, given, precision
        )
        return (
            rounding if fits and precision.represents(total + rounding) else np.full_like(rounding, math.inf)
        )

    def live(self, o: int) -> np.ndarray:
        """Neurons that may reach output o. Their gain W_U A in float64 may round to 0, so it does not tell."""
        return ((self.W_U[o] != 0)[:, None] & (self.A != 0)).any(axis=0)


@dataclass(frozen=True)
class Variables:
    """The task's variables: which atom each is, and what values it takes."""

    names: tuple[str, ...]
    atoms: tuple[Atom, ...]
    domains: dict[str, Domain]
    occur_together: Callable[[Mapping[str, float]], bool]

    @classmethod
    def of(cls, task: Task, inputs: Inputs) -> "Variables":
        atoms, domains = [], dict(task.domains)
        for i in range(task.M + 1):
            for c in range(task.d):
                name = task.variables[len(atoms)]
                if i in inputs.kernels:
                    atoms.append(Atom(c, 0, i))
                    reach = inputs.size(atoms[-1])  # the task's own range is a float64 sum
                    domains[name] = (Interval(-reach, reach),)
                elif i == 0 or (isinstance(task.recalls[i - 1], LagTable) and task.recalls[i - 1].kernel):
                    atoms.append(Atom(c, int(task.lag_bounds[i - 1]) if i else 0))
                else:
                    atoms.append(
                        Atom(c, -i)
                    )  # a lag that depends on the case: nothing at any position holds it
        return cls(task.variables, tuple(atoms), domains, task.occur_together)

    def merged(self, formula: Formula) -> Formula:
        """The formula where memories at one lag, which are one token, have one name: the first."""
        first = {
            name: self.names[self.atoms.index(a)] for name, a in zip(self.names, self.atoms, strict=True)
        }
        expression = renamed(require_expression(formula), first)
        return replace(formula, expression=expression, variables=tuple(sorted(variables_of(expression))))

    def boxes(self, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The end points of every combination of pieces that can occur, (n, variables) each."""
        pieces = [self.domains[name] for name in names]
        count = math.prod(map(len, pieces))
        if count > MAX_BOXES:
            raise BadInput(
                f"the readout has {count:,} combinations of symbols; at most {MAX_BOXES:,} are proved"
            )
        boxes = [box for box in itertools.product(*pieces) if self._possible(names, box)]
        ends = [np.array([[piece[side] for piece in box] for box in boxes]) for side in (0, 1)]
        return ends[0].reshape(len(boxes), len(names)), ends[1].reshape(len(boxes), len(names))

    def _possible(self, names: Sequence[str], box: tuple[Interval, ...]) -> bool:
        points = {name: piece.lo for name, piece in zip(names, box, strict=True) if piece.is_point}
        return self.occur_together(points)


def bound_output(
    o: int,
    formula: Formula,
    readout: ReadoutWeights,
    stream: PositionForms,
    functionals: Sequence[PositionForms],
    variables: Variables,
) -> list[Term]:
    """The terms of output o's bound in exact arithmetic. `functionals`: the rows of B, then of W_U, in any ways that are
    known; the best counts."""
    formula = variables.merged(formula)
    if readout.live(o).any() and (slots := slots_of(readout, o, stream, variables)):
        return by_slots(o, formula, readout, slots, variables)
    ways = [_by_functionals(o, formula, readout, way, variables) for way in functionals]
    totals = [math.fsum(term.E for term in terms) for terms in ways]
    return ways[int(np.argmin(np.nan_to_num(totals, nan=math.inf, posinf=math.inf)))]


def require_expression(formula: Formula) -> Expression:
    if formula.expression is None:
        raise BadInput(f"nothing can be proved of the callable {formula}; write the readout as an expression")
    return formula.expression


# -- slots ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slots:
    coordinates: tuple[int, ...]
    names: tuple[str, ...]
    errors: tuple[float, ...]
    scales: tuple[float, ...] = ()  # k_j; all 1 if there are none

    @property
    def factors(self) -> np.ndarray:
        return np.array(self.scales or (1.0,) * len(self.names))


NEAR = 0.01  # tuned: a coefficient this near to 1 is meant to be 1, and the difference is error


def slots_of(readout: ReadoutWeights, o: int, stream: PositionForms, variables: Variables) -> Slots | None:
    live = readout.live(o)
    used = np.nonzero((readout.B[live] != 0).any(axis=0) | (readout.W_U[o] != 0))[0]
    coordinates, names, errors, scales = [], [], [], []
    weight = np.abs(stream.coef) * stream.reach
    for j in used.tolist():
        atoms = [k for k in np.flatnonzero(stream.coef[j]) if stream.atoms[k] in variables.atoms]
        if not atoms:
            if stream.size[j]:
                return None
            continue
        main = max(atoms, key=lambda k: weight[j, k])
        name = variables.names[variables.atoms.index(stream.atoms[main])]
        if name in names:
            return None
        coefficient = float(stream.coef[j, main])
        scale = 1.0 if abs(coefficient - 1) <= NEAR else coefficient
        stray = weight[j].sum() - weight[j, main] + abs(coefficient - scale) * stream.reach[main]
        coordinates.append(j)
        names.append(name)
        errors.append(float((stray * SUMMED + stream.E[j]) * SUMMED / abs(scale)))
        scales.append(scale)
    return Slots(tuple(coordinates), tuple(names), tuple(errors), tuple(scales)) if names else None


def by_slots(
    o: int,
    formula: Formula,
    readout: ReadoutWeights,
    slots: Slots,
    variables: Variables,
    distances: dict[tuple, float] | None = None,
) -> list[Term]:
    """`distances` keeps distances of earlier calls: one that was proved on a larger box holds on a smaller one."""
    f = formula.expression
    assert f is not None
    columns, names, E = list(slots.coordinates), slots.names, np.array(slots.errors)
    missing = [name for name in formula.variables if name not in names]
    all_names = (*names, *missing)
    d, m = len(all_names), len(readout.c)
    W, B = np.zeros(d), np.zeros((m, d))
    W[: len(names)] = readout.W_U[o, columns] * slots.factors
    B[:, : len(names)] = readout.B[:, columns] * slots.factors
    gain = readout.W_U[o] @ readout.A
    E = np.concatenate([E, np.zeros(len(missing))])

    pieces = [variables.domains[name] for name in all_names]
    finite = [all(piece.is_point for piece in domain) for domain in pieces]
    lo, hi = variables.boxes(all_names)
    wide_lo, wide_hi = _wider(lo, hi, E)

    weights = (W, float(readout.b_U[o]), B, readout.c, gain)
    if distances is None:
        distance = _distance(formula, all_names, pieces, weights, E, (lo, hi))
    else:
        coarse = np.where(E > 0, 32.0 ** np.ceil(np.log(np.maximum(E, 1e-6)) / np.log(32.0)), 0.0)
        coarse = np.maximum(coarse, E)
        key = (o, slots.coordinates, slots.scales, all_names, tuple(coarse.tolist()))
        if key not in distances:
            distances[key] = _distance(formula, all_names, pieces, weights, coarse, (lo, hi))
        distance = distances[key]
    distance += _weight_slack(
        readout, o, slots, W, B, np.maximum(np.abs(wide_lo), np.abs(wide_hi)).max(axis=0)
    )
    terms = [Term(f"FFN, output {o}", "sup |f - N| on the box that attention reaches", Proved(distance))]
    steep = dict.fromkeys(all_names, 0.0)
    if any(e > 0 and not fix for e, fix in zip(E, finite, strict=True)):
        wide = {
            name: tuple(Interval(down(piece.lo - e), up(piece.hi + e)) for piece in domain)
            for name, domain, e in zip(all_names, pieces, E, strict=True)
        }
        steep |= lipschitz(f, wide)
    for name, e, fix in zip(all_names, E, finite, strict=True):
        if fix:
            terms.append(
                Term(f"memory {name}, output {o}", "0: within the margin of its symbol", Proved(0.0))
            )
        elif steep[name]:
            product = math.nextafter(steep[name] * e, math.inf) if e else 0.0
            terms.append(Term(f"memory {name}, output {o}", "Lip(f) * E_attn", Proved(product)))
    return terms


def _distance(
    formula: Formula,
    names: tuple[str, ...],
    pieces: list[Domain],
    weights: tuple[np.ndarray, float, np.ndarray, np.ndarray, np.ndarray],
    E: np.ndarray,
    boxes: tuple[np.ndarray, np.ndarray],
) -> float:
    """sup |f - N|: f at the symbol for finite alphabets, both at the same point for ranges."""
    assert formula.expression is not None
    W, b, B, c, A = weights
    if all(len(domain) == 1 and not domain[0].is_point for domain in pieces):
        ridge = RidgeSum(names, B, c, A[None], W[None], np.array([b]), (math.inf,), ("weights",), {})
        domains = dict(zip(names, pieces, strict=True))
        reach = {name: float(e) for name, e in zip(names, E, strict=True)}
        return certify_ridge(ridge, formula, domains, reach=reach, margins={})
    lo, hi = boxes
    wide_lo, wide_hi = _wider(lo, hi, E)
    at = expression_target(formula.expression, names)
    fixed = np.array([all(piece.is_point for piece in domain) for domain in pieces])
    if fixed.all():
        at = _table(formula.expression, names, lo)

    def target(
        centre: np.ndarray, radius: np.ndarray, label: np.ndarray
    ) -> tuple[Interval, Interval, Interval]:
        # A symbol stays itself while the network reads it with an error.
        centre = np.where(fixed, lo[label], centre)
        radius = np.where(fixed, 0.0, radius)
        value, slopes, span = at(centre, radius, label)
        flat = Interval(np.where(fixed, 0.0, slopes.lo), np.where(fixed, 0.0, slopes.hi))
        return value, flat, span

    symbols = np.where(fixed, lo, np.nan)
    exact = affine_supremum(formula.expression, names, weights, wide_lo, wide_hi, symbols)
    if math.isfinite(exact):
        return exact
    return supremum(target, W, b, B, c, A, wide_lo, wide_hi, rtol=0.02, atol=1e-15).bound


def _table(f: Expression, names: tuple[str, ...], symbols: np.ndarray) -> Target:
    """f at each combination of symbols, one by one: a jump at a symbol, as in w1 % 7, stays decided."""
    values = [enclose(f, {n: point(float(x)) for n, x in zip(names, row, strict=True)}) for row in symbols]
    lo, hi = (np.array([value[side] for value in values]) for side in (0, 1))

    def target(
        centre: np.ndarray, radius: np.ndarray, label: np.ndarray
    ) -> tuple[Interval, Interval, Interval]:
        value = Interval(lo[label], hi[label])
        return value, Interval(np.zeros_like(centre), np.zeros_like(centre)), value

    return target


def _wider(lo: np.ndarray, hi: np.ndarray, E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Boxes enlarged by E, outwards."""
    return np.where(E > 0, np.nextafter(lo - E, -np.inf), lo), np.where(
        E > 0, np.nextafter(hi + E, np.inf), hi
    )


def _weight_slack(
    readout: ReadoutWeights, o: int, slots: Slots, W: np.ndarray, B: np.ndarray, reach: np.ndarray
) -> float:
    """W_U A, and the weights times the scales of the slots, were multiplied in float64: what that can change."""
    gain = np.abs(readout.W_U[o]) @ np.abs(readout.A)
    wrong = roundings(readout.W_U[o]) * 2 * OWN * gain
    total = float(wrong @ (np.abs(B) @ reach + np.abs(readout.c)))
    inexact = [math.frexp(abs(k))[0] != 0.5 for k in slots.factors]
    if any(inexact):
        total += 2 * OWN * float(np.abs(W) @ reach + gain @ (np.abs(B) @ reach))
    return total * SUMMED


# -- functionals ------------------------------------------------------------------------------------------


def _by_functionals(
    o: int, formula: Formula, readout: ReadoutWeights, functionals: PositionForms, variables: Variables
) -> list[Term]:
    f = require_expression(formula)
    m = len(readout.c)
    gain = readout.W_U[o] @ readout.A
    live = np.nonzero(readout.live(o))[0].tolist()
    direct, W, shift = _expand(functionals, m + o, variables)
    rows = [_expand(functionals, k, variables) for k in live]
    B = np.array([row for _, row, _ in rows]).reshape(len(live), len(variables.names))
    c = np.array([readout.c[k] + extra for k, (_, _, extra) in zip(live, rows, strict=True)])
    used = np.array(
        [name in formula.variables or W[i] or B[:, i].any() for i, name in enumerate(variables.names)],
        dtype=bool,
    )
    names = tuple(name for name, use in zip(variables.names, used, strict=True) if use)
    lo, hi = variables.boxes(names)
    weights = W[used], float(readout.b_U[o]) + shift, B[:, used], c, gain[live]
    distance = affine_supremum(f, names, weights, lo, hi)
    if not math.isfinite(distance):
        distance = supremum(expression_target(f, names), *weights, lo, hi, rtol=0.01, atol=1e-16).bound
    # b_U + shift and c + extra were rounded once each.
    sizes = functionals.size[live] + np.abs(readout.c[live])
    wrong = roundings(readout.W_U[o]) * 2 * OWN * (np.abs(readout.W_U[o]) @ np.abs(readout.A))[live]
    slack = float(wrong @ sizes) + 2 * OWN * (
        abs(readout.b_U[o]) + abs(shift) + float(np.abs(gain[live]) @ np.abs(c))
    )
    terms = [
        Term(f"readout, output {o}", "sup |f - N| over the task's variables", Proved(distance + slack)),
        Term(f"attention, output {o}", "||r||_1 of the joint kernel", Proved(direct)),
    ]
    if len(live):
        through = math.fsum(abs(gain[k]) * e for k, (e, _, _) in zip(live, rows, strict=True)) * SUMMED
        terms.append(Term(f"attention through the FFN, output {o}", "sum_k |A_k| E_k", Proved(through)))
    return terms


def _expand(forms: PositionForms, j: int, variables: Variables) -> tuple[float, np.ndarray, float]:
    """(error, coefficients of the variables, constant) of one functional."""
    row, shift, rest = np.zeros(len(variables.names)), 0.0, float(forms.E[j])
    for k in np.flatnonzero(forms.coef[j]).tolist():
        atom, c = forms.atoms[k], float(forms.coef[j, k])
        if atom in variables.atoms:
            row[variables.atoms.index(atom)] = c
        elif atom == Atom(ONE, 0):
            shift = c
        else:
            rest += abs(c) * forms.inputs.size(atom)
    return rest * SUMMED, row, shift
