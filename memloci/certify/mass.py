"""Mass: what the heads of a model weigh, and what no heads of its kind could do with less."""

import sys
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from flint import arb, fmpq

from memloci.approx.kernels.lower_bounds import chebyshev_mass_of
from memloci.approx.readouts.ridge_exact import affine
from memloci.certify.readout import ReadoutWeights
from memloci.core.balls import below
from memloci.model.transformer import Transformer
from memloci.tasks.names import variable
from memloci.tasks.task import Task

FARTHEST_MASS_LAG = 256  # tuned: lags for which a lower bound on the mass takes less than a second


def mass_of(model: Transformer) -> float:
    """The largest sum_h |(W_O W_V)_ji| over layers and pairs of coordinates."""
    masses = []
    for layer in model.layers:
        heads = layer.attention.heads
        W_V, W_O = np.asarray(heads.W_V, dtype=float), np.asarray(heads.W_O, dtype=float)
        masses.append(float(np.abs(W_O @ W_V).sum(axis=0).max(initial=0.0)))
    return max(masses)


def mass_lower_bound(model: Transformer, task: Task, errors: Sequence[float]) -> float | None:
    """What `mass_of` cannot be less than in a layer of lin heads with this embedding, readout and error; None if unknown.

    Output o of a model without neurons is sum_c sum_z K_c(z) x_{t-z,c} plus what the present adds, and
    K_c = sum_h G_h w_h with G_h = (W_U[o] W_O[h] W_V[h] W_E)_c. Let f be affine with the taps T_c and let it be met
    within `errors[o]`. Past tokens of channel c move freely over a range of length 2 r, so r ||K_c - T_c||_1 is at
    most the error, and sum_h |G_h| at least what `chebyshev_mass_of` says. Further,

        sum_h |G_h| <= ||W_U[o]||_1 ||W_E[:, c]||_1 max_ij sum_h |(W_O[h] W_V[h])_ji|,

    the last factor being the mass; of W_U only the coordinates count that heads write.
    """
    layer, *others = model.layers
    block, lags = model.architecture.block(0), task.fixed_lags
    kind = block.attention, block.encoding, block.normalisation
    if others or kind != ("dpf", "lin", "infinite") or task.kind != "fixed":
        return None
    readout, W_O = ReadoutWeights.of(model), np.asarray(layer.attention.heads.W_O, dtype=float)
    best, W_E, written = Fraction(0), np.asarray(model.W_E, dtype=float), W_O.any(axis=(0, 2))
    for o, formula in enumerate(task.readouts):
        f = affine(formula.expression) if formula.expression is not None else None
        if f is None or readout.live(o).any() or not np.isfinite(errors[o]):
            continue
        scale = _l1(np.where(written, readout.W_U[o], 0.0))
        for c, channel in enumerate(task.channels):
            taps: dict[int, Fraction] = {}
            for i, lag in lags.items():
                taps[lag] = taps.get(lag, Fraction(0)) + f.a.get(variable(channel.name, i), Fraction(0))
            taps = {lag: gain for lag, gain in taps.items() if gain and lag}
            r = (Fraction(channel.domain[-1].hi) - Fraction(channel.domain[0].lo)) / 2
            read = scale * _l1(W_E[:, c])
            if taps and max(taps) <= FARTHEST_MASS_LAG and r and read:
                best = max(best, chebyshev_mass_of(taps, Fraction(errors[o]) / r).mass / read)
    least = below(arb(fmpq(best.numerator, best.denominator)))
    return min(least, sys.float_info.max) if least > 0 else None


def _l1(row: np.ndarray) -> Fraction:
    """The sum of absolute values, exactly."""
    return sum((abs(Fraction(float(x))) for x in row), Fraction(0))
