"""Power laws as sums of exponentials: the proved error holds, and is small."""

import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, ctx

from memloci.model.paths.exponentials import Grid, grid, relative_error, weights


def exact_sum(own: Grid, c: np.ndarray, z: int) -> arb:
    return sum(
        (arb(float(w)) * (-arb(float(u)) * z).exp() for w, u in zip(c, own.rates, strict=True)), arb(0)
    )


@pytest.mark.parametrize("p", [1e-3, 0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("n", [300, 65_536, 2**31])
def test_the_proved_error_holds(p, n):
    own = grid("float32", 65, n)
    c = np.asarray(weights(own, jnp.asarray([p], "float64")))[0]
    proved = relative_error(own, p)
    with ctx.workprec(128):
        for z in np.unique(np.geomspace(65, n, 25).round().astype(int)).tolist():
            seen = abs(float(exact_sum(own, c, z) * arb(z) ** arb(p) - 1))
            assert seen <= proved + 1e-13  # the weights are rounded to float64


@pytest.mark.parametrize(("precision", "least"), [("float32", 2.0**-22), ("float64", 2.0**-50)])
def test_it_is_below_rounding(precision, least):
    for p in (1e-6, 0.1, 1.0, 2.0, 4.0):
        assert 0 <= relative_error(grid(precision, 65, 10**6), p) < least


def test_fewer_rates_are_noticed():
    """A grid that is too coarse, or stops too soon, has a larger proved error."""
    own = grid("float32", 65, 65_536)
    worse = [
        Grid(own.h * 2, own.r, own.reach, own.last, own.first, own.n),
        Grid(own.h, 3, own.reach, own.last, own.first, own.n),
        Grid(own.h, own.r, own.reach, 6.0, own.first, own.n),
    ]
    for other in worse:
        assert relative_error(other, 2.0) > 10 * relative_error(own, 2.0)


def test_p_0_is_a_constant():
    own = grid("float32", 65, 1000)
    c = np.asarray(weights(own, jnp.zeros(1, "float32")))[0]
    assert abs(c[0] - 1) < 1e-6 and not c[1:].any() and relative_error(own, 0.0) == 0  # log Gamma is rounded
