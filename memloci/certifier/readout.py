"""From the stream to the output: how far FFN and readout are from the task's function f.

    y = W_U S + b_U + sum_k (W_U A)_k relu(B_k S + c_k),     S = what the memory signals carry

Two ways, the first that applies:

slots       each coordinate read carries one variable of the task, S_j = v_j + e_j, |e_j| <= E_j. Variables
            with finitely many values: f at the symbol against the network on the whole box symbol +- E,
            so errors within a staircase's margin vanish. Others: sup |f - N| on the wider box, plus
            sum_j Lip_j E_j.
functionals any stream: neuron k has argument Gamma_k v + e_k, and |e_k| costs |(W_U A)_k| each. Exact for a
            linear readout: its error is one joint l1 norm.

sup |f - N| comes from approx/ridge_bounds.py: branch and bound in interval arithmetic.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from memloci.approx.ridge_bounds import Span, Target, expression_target, supremum
from memloci.approx.ridge_certify import certify_ridge
from memloci.approx.ridge_sums import RidgeSum
from memloci.certifier.certificate import Proved, Term
from memloci.certifier.rounding import roundings
from memloci.certifier.signals import Atom, Memory, Signal
from memloci.errors import BadInput
from memloci.expressions.domain import Domain, lipschitz
from memloci.expressions.evaluate import enclose
from memloci.expressions.formula import Formula
from memloci.expressions.interval import Interval, down, point, up
from memloci.expressions.parse import Expression

MAX_BOXES = 50_000  # combinations of symbols looked at one by one


@dataclass(frozen=True)
class Readout:
    """The last layer's FFN (perhaps absent) and the linear readout, in float64, exactly."""

    B: np.ndarray  # (m, D)
    c: np.ndarray  # (m,)
    A: np.ndarray  # (D, m)
    W_U: np.ndarray  # (outputs, D)
    b_U: np.ndarray  # (outputs,)

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

    def boxes(self, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The end points of every combination of pieces that can occur, (n, variables) each."""
        pieces = [self.domains[name] for name in names]
        count = math.prod(map(len, pieces))
        if count > MAX_BOXES:
            raise BadInput(
                f"the readout has {count:,} combinations of symbols; at most {MAX_BOXES:,} are proved"
            )
        kept = [box for box in itertools.product(*pieces) if self._possible(names, box)]
        ends = [np.array([[piece[side] for piece in box] for box in kept]) for side in (0, 1)]
        return ends[0].reshape(len(kept), len(names)), ends[1].reshape(len(kept), len(names))

    def _possible(self, names: Sequence[str], box: tuple[Interval, ...]) -> bool:
        points = {name: piece.lo for name, piece in zip(names, box, strict=True) if piece.is_point}
        return self.occur_together(points)


def bound_output(
    o: int,
    formula: Formula,
    readout: Readout,
    stream: Sequence[Signal],
    functionals: Sequence[Signal],
    variables: Variables,
    memory: Memory,
) -> list[Term]:
    """The terms of output o's bound in exact arithmetic. `functionals`: the rows of B, then of W_U."""
    if formula.expression is None:
        raise BadInput(f"nothing can be proved of the callable {formula}; write the readout as an expression")
    if readout.live(o).any() and (slots := _slots(readout, o, stream, variables, memory)):
        return by_slots(o, formula, readout, slots, variables)
    return _by_functionals(o, formula, readout, functionals, variables, memory)


# -- slots ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slots:
    coordinates: tuple[int, ...]
    names: tuple[str, ...]
    errors: tuple[float, ...]


def _slots(
    readout: Readout, o: int, stream: Sequence[Signal], variables: Variables, memory: Memory
) -> Slots | None:
    live = readout.live(o)
    used = np.nonzero((readout.B[live] != 0).any(axis=0) | (readout.W_U[o] != 0))[0]
    coordinates, names, errors = [], [], []
    for j in used.tolist():
        signal = stream[j]
        if signal.silent:
            continue
        main = [a for a in signal.coefficients if a in variables.atoms]
        if len(main) != 1:
            return None
        name = variables.names[variables.atoms.index(main[0])]
        if name in names:
            return None
        stray = Signal(dict(signal.coefficients), signal.E)
        stray.add(main[0], arb(-1))
        coordinates.append(j)
        names.append(name)
        errors.append(memory.bound(stray))
    return Slots(tuple(coordinates), tuple(names), tuple(errors)) if names else None


def by_slots(
    o: int,
    formula: Formula,
    readout: Readout,
    slots: Slots,
    variables: Variables,
    known: dict[tuple, float] | None = None,
) -> list[Term]:
    """`known` keeps distances of earlier calls: one that was proved on a larger box holds on a smaller one."""
    f = formula.expression
    assert f is not None
    columns, names, E = list(slots.coordinates), slots.names, np.array(slots.errors)
    missing = [name for name in formula.variables if name not in names]
    all_names = (*names, *missing)
    d, m = len(all_names), len(readout.c)
    W, B = np.zeros(d), np.zeros((m, d))
    W[: len(names)] = readout.W_U[o, columns]
    B[:, : len(names)] = readout.B[:, columns]
    gain = readout.W_U[o] @ readout.A
    E = np.concatenate([E, np.zeros(len(missing))])

    pieces = [variables.domains[name] for name in all_names]
    finite = [all(piece.is_point for piece in domain) for domain in pieces]
    lo, hi = variables.boxes(all_names)
    wide_lo, wide_hi = _wider(lo, hi, E)

    weights = (W, float(readout.b_U[o]), B, readout.c, gain)
    if known is None:
        found = _distance(formula, all_names, pieces, weights, E, (lo, hi))
    else:
        coarse = np.where(E > 0, 32.0 ** np.ceil(np.log(np.maximum(E, 1e-6)) / np.log(32.0)), 0.0)
        coarse = np.maximum(coarse, E)
        key = (o, slots.coordinates, all_names, tuple(coarse.tolist()))
        if key not in known:
            known[key] = _distance(formula, all_names, pieces, weights, coarse, (lo, hi))
        found = known[key]
    found += _gain_slack(readout, o, B, np.maximum(np.abs(wide_lo), np.abs(wide_hi)).max(axis=0))
    terms = [Term(f"FFN, output {o}", "sup |f - N| on the box that attention reaches", Proved(found))]
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

    def target(centre: np.ndarray, radius: np.ndarray, label: np.ndarray) -> tuple[Span, Span, Span]:
        # A symbol stays itself while the network reads it with an error.
        centre = np.where(fixed, lo[label], centre)
        radius = np.where(fixed, 0.0, radius)
        value, slopes, whole = at(centre, radius, label)
        flat = Span(np.where(fixed, 0.0, slopes.lo), np.where(fixed, 0.0, slopes.hi))
        return value, flat, whole

    return supremum(target, W, b, B, c, A, wide_lo, wide_hi, rtol=0.02, atol=1e-15).bound


def _table(f: Expression, names: tuple[str, ...], symbols: np.ndarray) -> Target:
    """f at each combination of symbols, one by one: a jump at a symbol, as in w1 % 7, stays decided."""
    values = [enclose(f, {n: point(float(x)) for n, x in zip(names, row, strict=True)}) for row in symbols]
    lo, hi = (np.array([value[side] for value in values]) for side in (0, 1))

    def target(centre: np.ndarray, radius: np.ndarray, label: np.ndarray) -> tuple[Span, Span, Span]:
        value = Span(lo[label], hi[label])
        return value, Span(np.zeros_like(centre), np.zeros_like(centre)), value

    return target


def _wider(lo: np.ndarray, hi: np.ndarray, E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Boxes enlarged by E, outwards."""
    return np.where(E > 0, np.nextafter(lo - E, -np.inf), lo), np.where(
        E > 0, np.nextafter(hi + E, np.inf), hi
    )


def _gain_slack(readout: Readout, o: int, B: np.ndarray, reach: np.ndarray) -> float:
    """W_U A was multiplied in float64: what its rounding can change of the output."""
    wrong = roundings(readout.W_U[o]) * 2.0**-52 * (np.abs(readout.W_U[o]) @ np.abs(readout.A))
    return float(wrong @ (np.abs(B) @ reach + np.abs(readout.c)))


# -- functionals ------------------------------------------------------------------------------------------


def _by_functionals(
    o: int,
    formula: Formula,
    readout: Readout,
    functionals: Sequence[Signal],
    variables: Variables,
    memory: Memory,
) -> list[Term]:
    f = formula.expression
    assert f is not None
    m = len(readout.c)
    gain = readout.W_U[o] @ readout.A
    live = np.nonzero(readout.live(o))[0].tolist()
    direct, W, shift = _expand(functionals[m + o], variables, memory)
    rows = [_expand(functionals[k], variables, memory) for k in live]
    B = np.array([row for _, row, _ in rows]).reshape(len(live), len(variables.names))
    c = np.array([readout.c[k] + extra for k, (_, _, extra) in zip(live, rows, strict=True)])
    used = np.array(
        [name in formula.variables or W[i] or B[:, i].any() for i, name in enumerate(variables.names)],
        dtype=bool,
    )
    names = tuple(name for name, use in zip(variables.names, used, strict=True) if use)
    lo, hi = variables.boxes(names)
    found = supremum(
        expression_target(f, names),
        W[used],
        float(readout.b_U[o]) + shift,
        B[:, used],
        c,
        gain[live],
        lo,
        hi,
        rtol=0.01,
        atol=1e-16,
    )
    # b_U + shift and c + extra were rounded once each.
    sizes = np.array([memory.bound(functionals[k]) + abs(readout.c[k]) for k in live])
    wrong = roundings(readout.W_U[o]) * 2.0**-52 * (np.abs(readout.W_U[o]) @ np.abs(readout.A))[live]
    slack = float(wrong @ sizes) + 2.0**-52 * (
        abs(readout.b_U[o]) + abs(shift) + float(np.abs(gain[live]) @ np.abs(c))
    )
    terms = [
        Term(f"readout, output {o}", "sup |f - N| over the task's variables", Proved(found.bound + slack)),
        Term(f"attention, output {o}", "||r||_1 of the joint kernel", Proved(direct)),
    ]
    if len(live):
        through = math.fsum(abs(gain[k]) * e for k, (e, _, _) in zip(live, rows, strict=True)) * (1 + 1e-12)
        terms.append(Term(f"attention through the FFN, output {o}", "sum_k |A_k| E_k", Proved(through)))
    return terms


def _expand(signal: Signal, variables: Variables, memory: Memory) -> tuple[float, np.ndarray, float]:
    """(error, coefficients of the variables, constant) with float64 coefficients; what they miss is error."""
    rest = Signal(dict(signal.coefficients), signal.E)
    row, shift = np.zeros(len(variables.names)), 0.0
    for i, atom in enumerate(variables.atoms):
        if atom in signal.coefficients and not row[[k for k in range(i) if variables.atoms[k] == atom]].any():
            row[i] = float(signal.coefficients[atom].mid())
            rest.add(atom, arb(-row[i]))
    constant = Atom(-1, 0)
    if constant in signal.coefficients:
        shift = float(signal.coefficients[constant].mid())
        rest.add(constant, arb(-shift))
    return memory.bound(rest), row, shift
