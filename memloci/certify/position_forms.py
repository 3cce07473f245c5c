"""What the stream holds at any position: the keys and values that attention finds in the past.

    X_s = sum_a coef_a a(s) + e,   |e| <= E

The atoms a are a channel of the input some lags back, the task's own kernels over the past, and the constant 1 (blank
before the start, like any token). A position that is attended to is described by its own recent tokens, whatever they
are. What neurons and content-dependent heads add there is only bounded: each neuron, and each value of a head, is an
unknown in [-1, 1] times its size, an atom like the others, so that what does not read it is not disturbed, in whatever
basis the stream is written. Where no coordinate holds both, the sum of their sizes says as much, as part of E.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from memloci.approx.kernels.kernel_targets import kernel_target, norm_above
from memloci.approx.kernels.targets import AbstractTarget
from memloci.certify.balls import Ball
from memloci.certify.cases import KERNEL, UNSEEN, Cases
from memloci.certify.rounding import Format, dot, product_error, underflow
from memloci.certify.slacks import OWN, SUMMED, own_product
from memloci.core.errors import BadInput
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.task import Task

ONE = -1  # in place of a channel: the constant 1
UNKNOWN = -2  # in place of a channel: a number in [-1, 1]; which one, the atom's `kernel` says
MOST_UNKNOWNS = 512  # tuned: of one layer that are followed apart


class Atom(NamedTuple):
    channel: int
    lag: int  # 0 is the present
    kernel: int = 0  # the number of the memory whose kernel it is; 0 for the token itself


@dataclass(frozen=True)
class Inputs:
    """How large the channels are, the task's fixed lags, and its kernels with their norms, by the number of the memory."""

    sizes: tuple[float, ...]
    lags: tuple[int, ...]
    kernels: dict[int, AbstractTarget]
    norms: dict[int, float]
    _samples: dict[int, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task) -> "Inputs":
        recalls = dict(enumerate(task.recalls, start=1))
        for i, recall in recalls.items():
            if not isinstance(recall, LagTable | Convolution | Occurrence):
                raise BadInput(f"memory {i}, {recall.text}: no certificate follows this kind of memory")
        kernels = {
            i: kernel_target(recall) for i, recall in recalls.items() if isinstance(recall, Convolution)
        }
        norms = {i: norm_above(target) for i, target in kernels.items()}
        lags = tuple(sorted({lag for lag in task.fixed_lags.values() if lag}))
        return cls(tuple(channel.magnitude for channel in task.channels), lags, kernels, norms)

    def sampled(self, i: int, n: int) -> np.ndarray:
        """The first n values of a kernel, in float64, for proposals."""
        if i not in self._samples:
            self._samples[i] = np.array([float(self.kernels[i].value(z)) for z in range(1, n + 1)])
        return self._samples[i]

    def size(self, atom: Atom) -> float:
        if atom.channel in (ONE, UNKNOWN):
            return 1.0
        return self.sizes[atom.channel] * (self.norms[atom.kernel] if atom.kernel else 1.0)


@dataclass(frozen=True)
class PositionForms:
    inputs: Inputs
    atoms: tuple[Atom, ...]
    coef: np.ndarray  # (D, atoms)
    E: np.ndarray  # (D,)
    E_first: np.ndarray  # (D,) the same at position 0, where attention adds nothing

    @property
    def reach(self) -> np.ndarray:
        """How large each atom can be."""
        return np.array([self.inputs.size(atom) for atom in self.atoms])

    @property
    def size(self) -> np.ndarray:
        return np.abs(self.coef) @ self.reach * SUMMED + self.E

    @property
    def size_first(self) -> np.ndarray:
        ball = self.ball(first=True)
        return np.abs(ball.middle) + ball.radius

    def linear(self, W: np.ndarray, precision: Format, stored: bool) -> "PositionForms":
        """W X, as computed."""
        none = np.zeros(W.shape[1])

        def error(E: np.ndarray, size: np.ndarray) -> np.ndarray:
            rounded = product_error(W, size, none, precision.u, stored=stored)
            below = np.where(W.any(axis=1), underflow(W, size, precision), 0.0)
            rounding = np.where(picks, 0.0, own_product(len(none)) * dot(np.abs(W), size))
            return dot(np.abs(W), E) + rounded + below + rounding

        # Each row picks one coordinate, as it is: nothing is added up.
        picks = ((W != 0).sum(axis=1) <= 1) & ((W == 0) | (np.abs(W) == 1)).all(axis=1)
        first = error(self.E_first, self.size_first)
        return self._with(W @ self.coef, error(self.E, self.size), first)

    def _with(self, coef: np.ndarray, E: np.ndarray, E_first: np.ndarray) -> "PositionForms":
        """The same atoms with other coefficients; atoms that nothing holds are dropped, but for unknowns."""
        unknown = np.array([atom.channel == UNKNOWN for atom in self.atoms], dtype=bool)
        used = np.flatnonzero(coef.any(axis=0) | unknown)
        atoms = tuple(self.atoms[k] for k in used)
        return PositionForms(self.inputs, atoms, coef[:, used], E, E_first)

    def plus(self, other: "PositionForms") -> "PositionForms":
        """The sum in exact arithmetic of its float64 coefficients; their own roundings are added to E."""
        atoms = tuple(dict.fromkeys([*self.atoms, *other.atoms]))
        at = {atom: k for k, atom in enumerate(atoms)}
        coef = np.zeros((len(self.coef), len(atoms)))
        coef[:, [at[a] for a in self.atoms]] = self.coef
        both = (coef[:, [at[a] for a in other.atoms]] != 0) & (other.coef != 0)
        coef[:, [at[a] for a in other.atoms]] += other.coef
        rounding = OWN * (
            np.where(both, np.abs(self._columns(other.atoms)) + np.abs(other.coef), 0.0) @ other.reach
        )
        joined = PositionForms(
            self.inputs, atoms, coef, self.E + other.E + 2 * rounding, self.E_first + other.E_first
        )
        return joined._with(coef, joined.E, joined.E_first)

    def _columns(self, atoms: Sequence[Atom]) -> np.ndarray:
        at = {atom: k for k, atom in enumerate(self.atoms)}
        columns = np.zeros((len(self.coef), len(atoms)))
        for k, atom in enumerate(atoms):
            if atom in at:
                columns[:, k] = self.coef[:, at[atom]]
        return columns

    def earlier(self, z: int) -> "PositionForms":
        """The same, z steps before."""
        return replace(self, atoms=tuple(atom._replace(lag=atom.lag + z) for atom in self.atoms))

    def worse(self, by: np.ndarray, at_first: bool = False) -> "PositionForms":
        first = self.E_first + by if at_first else self.E_first
        return replace(self, E=self.E + by, E_first=first)

    def rows(self, which: np.ndarray) -> "PositionForms":
        return replace(self, coef=self.coef[which], E=self.E[which], E_first=self.E_first[which])

    def ball(self, first: bool) -> Ball:
        """At position 0 (`first`), or at any position after it."""
        middle, radius = np.zeros(len(self.coef)), (self.E_first if first else self.E).copy()
        for k, atom in enumerate(self.atoms):
            column = self.coef[:, k]
            if atom.channel == ONE and (atom.lag == 0 or (atom.lag == 1 and not first)):
                middle = middle + column
            elif atom.channel == ONE and not first:
                middle, radius = middle + column / 2, radius + np.abs(column) / 2
            elif (atom.lag == 0 and (not atom.kernel or atom.channel == UNKNOWN)) or (
                atom.channel != ONE and not first
            ):
                radius = radius + np.abs(column) * self.inputs.size(atom)
        return Ball(middle, radius * SUMMED)

    def mixes(self, W: np.ndarray) -> bool:
        """Whether W n would share a coordinate with what is known; else the box of W n loses nothing."""
        few = W.shape[1] <= MOST_UNKNOWNS
        return few and bool((W.any(axis=1) & self.coef.any(axis=1)).any())

    def with_unknowns(self, W: np.ndarray, most: np.ndarray) -> "PositionForms":
        """X + W n with |n_k| <= most_k at every position, of which nothing else is known."""
        if not (self.mixes(W) and np.isfinite(most).all()):
            return self.worse(dot(np.abs(W), most), at_first=True)
        # Unknowns are never dropped (`_with`), so a new number is that of no other.
        last = max((atom.kernel for atom in self.atoms if atom.channel == UNKNOWN), default=0)
        atoms = tuple(Atom(UNKNOWN, 0, last + 1 + k) for k in range(len(most)))
        coef = np.concatenate([self.coef, W * most], axis=1)
        rounding = 2 * OWN * dot(np.abs(W), most)  # the products just made
        return PositionForms(
            self.inputs, (*self.atoms, *atoms), coef, self.E + rounding, self.E_first + rounding
        )

    def boxed(self) -> "PositionForms":
        """The same with every unknown as part of E."""
        unknown = np.array([atom.channel == UNKNOWN for atom in self.atoms], dtype=bool)
        if not unknown.any():
            return self
        size = np.abs(self.coef[:, unknown]).sum(axis=1) * SUMMED
        atoms = tuple(atom for atom in self.atoms if atom.channel != UNKNOWN)
        return PositionForms(self.inputs, atoms, self.coef[:, ~unknown], self.E + size, self.E_first + size)

    def relu_sizes(self, B: np.ndarray, c: np.ndarray, precision: Format) -> np.ndarray:
        """A bound on relu(B X + c), roundings included."""
        rows = self.linear(B, precision, stored=True)
        return np.maximum(rows.size + np.abs(c), 0.0) * (1 + 4 * precision.u) * SUMMED

    def at(
        self, z: np.ndarray, cases: Cases, shape: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(const, coef, E) of this, z steps before the position of each case, in the variables of the task.

        `shape` = (M + 1, d). What is none of the case's variables is only bounded.
        """
        n, D, (M1, d) = len(cases), len(self.coef), shape
        const, E = np.zeros((n, D)), np.tile(self.E, (n, 1))
        coef = np.zeros((n, D, cases.centre.shape[1]))  # the task's variables, then unknowns that were errors
        for k, atom in enumerate(self.atoms):
            column, back = self.coef[:, k], z + atom.lag
            never, always = cases.t_max < back, cases.t_min >= back
            if atom.channel == ONE:
                const += np.where(always, 1.0, np.where(never, 0.0, 0.5))[:, None] * column
                E += np.where(always | never, 0.0, 0.5)[:, None] * np.abs(column)
                continue
            left = ~never
            if atom.channel == UNKNOWN:
                continue  # all of them at once, below
            # The position of a candidate (candidates.py) has none of the task's kernels.
            for i in [i for i in (atom.kernel,) if i < M1] if atom.kernel else range(M1):
                lag = np.where(back == 0, KERNEL, UNSEEN) if atom.kernel else back
                match = left & (cases.lag[:, i] == lag)
                coef[match, :, i * d + atom.channel] += column
                left &= ~match
            E += left[:, None] * (np.abs(column) * self.inputs.size(atom))
        for lag in {atom.lag for atom in self.atoms if atom.channel == UNKNOWN}:
            which = [k for k, atom in enumerate(self.atoms) if atom.channel == UNKNOWN and atom.lag == lag]
            E += (cases.t_max >= z + lag)[:, None] * (np.abs(self.coef[:, which]).sum(axis=1) * SUMMED)
        return const, coef, E

    def at_start(self, n: int, variables: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(const, coef, E) of this at position 0, where only the token itself is there."""
        ball = self.ball(first=True)
        return (
            np.tile(ball.middle, (n, 1)),
            np.zeros((n, len(self.coef), variables)),
            np.tile(ball.radius, (n, 1)),
        )


def embedded(W_E: np.ndarray, b_E: np.ndarray, inputs: Inputs, rounded: np.ndarray) -> PositionForms:
    atoms = (*(Atom(c, 0) for c in range(W_E.shape[1])), Atom(ONE, 0))
    return PositionForms(inputs, atoms, np.concatenate([W_E, b_E[:, None]], axis=1), rounded, rounded)
