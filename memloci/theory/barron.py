"""Barron norms from above: those of networks that memloci compiles for a readout or for a lag.

    ||f||_B = inf sum_k |a_k| (||b_k||_1 + |c_k|)   over all   f(v) = sum_k a_k relu(<b_k, v> + c_k)

Any such network gives an upper bound, in exact rational arithmetic of its float64 weights. A linear form is relu(l) - relu(-l),
so an affine part W v + b that costs no neurons in a Transformer costs 2 ||W||_1 + |b| here. Where a network is only near to f,
the bound is that of a function within E of it, which is what the paper's rate E_FFN = O(||f||_B / sqrt(m)) needs as well.

Lags are tables over symbols, and any function that agrees with the table will do: an affine one, where there is one, else
the broken line that lookup.py builds. The logarithm is that of the lags above 0.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from memloci.approx.readouts.lookup import Fresh, LookupLayer, lookup
from memloci.approx.readouts.ridge_sums import RidgeSum
from memloci.core.errors import BadInput
from memloci.core.proved import Proved
from memloci.tasks.memories.lag_table import LagTable


@dataclass(frozen=True)
class BarronNorm:
    """An upper bound on a Barron norm, and how far the function it is of is from the one that was asked for."""

    norm: Proved
    E: Proved = Proved(0.0)


def of_readout(ridge: RidgeSum, output: int) -> BarronNorm:
    """Of one output of a readout's network."""
    neurons = _of_neurons(ridge.B, ridge.c, ridge.A[output])
    flat = 2 * sum((abs(Fraction(float(w))) for w in ridge.W[output]), Fraction(0))
    return BarronNorm(
        above(neurons + flat + abs(Fraction(float(ridge.b[output])))), Proved(ridge.E_ffn[output])
    )


def of_lag(table: LagTable, logarithm: bool = False) -> BarronNorm:
    """Of a lag function, or of its logarithm."""
    norms = [_of_table(table, logarithm)]
    if not logarithm and table.affine is not None:
        slopes, constant = table.affine
        norms.append(2 * sum(map(abs, slopes.values()), Fraction(0)) + abs(constant))
    known = [norm for norm in norms if norm is not None]
    if not known:
        raise BadInput(
            f"no network for {table.text} was found: its symbols cannot be told apart along one direction"
        )
    return BarronNorm(above(min(known)))


def _of_table(table: LagTable, logarithm: bool) -> Fraction | None:
    """Of the broken line through the table, in its symbols."""
    lags = np.asarray(table.lags, dtype=float)
    values = np.where(lags > 0, np.log(np.maximum(lags, 1.0)), 0.0) if logarithm else lags
    layer = LookupLayer()
    fresh = [Fresh(name, pieces, exact=True) for name, pieces in zip(table.reads, table.domains, strict=True)]
    try:
        lookup(layer, fresh, [], values[..., None], ("g",), table.lags)
    except BadInput:
        return None
    neurons = layer.neurons()
    if not len(neurons.c):
        return Fraction(0)
    return _of_neurons(neurons.B, neurons.c, neurons.A[0])


def _of_neurons(B: Any, c: Any, a: Any) -> Fraction:
    total = Fraction(0)
    for row, shift, gain in zip(B, c, a, strict=True):
        inner = sum((abs(Fraction(float(w))) for w in row), abs(Fraction(float(shift))))
        total += abs(Fraction(float(gain))) * inner
    return total


def above(x: Fraction) -> Proved:
    """The float64 number at or above it."""
    near = float(x)
    return Proved(near if Fraction(near) >= x else math.nextafter(near, math.inf))
