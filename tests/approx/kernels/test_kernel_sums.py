"""Fits: what they promise is proved, and good enough for the memories that need them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

from memloci.approx.kernels.kernel_sums import KernelSum, fit, kernel_sum, pareto, round_to, sweep
from memloci.approx.kernels.lower_bounds import chebyshev_mass
from memloci.approx.kernels.residuals import residual_l1
from memloci.approx.kernels.targets import Exponential, Generic, Power, SingleLag, Sum
from memloci.core.errors import BadInput


def check(found: KernelSum) -> None:
    """The record says what its numbers say."""
    for target, row, (lower, upper) in zip(found.targets, found.coefficients, found.errors, strict=True):
        ball = residual_l1(found.rpe, found.exponents, row, target)
        assert lower <= ball.upper() and ball.lower() <= upper
        assert sum(abs(float(a)) for a in row) <= found.mass * (1 + 1e-12)


def test_a_shift_by_one_lag_is_one_head():
    found = fit("lin", SingleLag(1), 4)
    assert (found.heads, found.mass) == (1, pytest.approx(1.0))
    assert found.error < 1e-18


def test_sixteen_heads_recall_lag_four():
    # docs/theory.md measured 4e-4 at mass 1e6.
    found = fit("lin", SingleLag(4), 16, mass=1e6, moves=0)
    check(found)
    assert found.error < 1e-4 and found.mass <= 1e6


def test_moving_exponents_helps():
    still, moved = (fit("lin", SingleLag(3), 5, mass=1e3, moves=moves) for moves in (0, 10))
    assert moved.error < still.error


def test_memories_share_exponents():
    found = fit("lin", [SingleLag(1), SingleLag(3)], 10, precision="float32", moves=0)
    check(found)
    assert len(found.coefficients) == 2 and found.heads <= 10
    assert found.error < 5e-3


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_are_numbers_of_their_format(precision):
    found = fit("lin", SingleLag(2), 8, precision=precision, moves=0)
    check(found)
    numbers = [*found.exponents, *(a for row in found.coefficients for a in row)]
    assert all(round_to(float(number), precision) == number for number in numbers)
    if precision == "float32":
        assert all(float(np.float32(number)) == number for number in numbers)
        assert found.error < 1e-3


def test_rounding_keeps_the_mass_small():
    # float32 cannot use the mass that float64 can.
    coarse, fine = (fit("lin", SingleLag(4), 20, precision=p, moves=0) for p in ("float32", "float64"))
    assert coarse.mass < fine.mass and fine.error < coarse.error < 0.05


def test_log_heads_recall_lag_two():
    found = fit("log", SingleLag(2), 10, mass=1e3, moves=0)
    check(found)
    assert found.error < 0.05


@pytest.mark.parametrize(("p", "heads", "needed"), [(2.0, 16, 1e-4), (2.0, 24, 1e-5), (1.5, 32, 1e-3)])
def test_power_laws_by_lin_heads(p, heads, needed):
    found = fit("lin", Power(p), heads, moves=0)
    assert found.heads == heads and found.mass < 10
    assert found.relative_errors[0] <= needed


def test_sums_of_exponentials_are_exact_up_to_rounding():
    target = Sum((Exponential(0.3), Exponential(0.01, 2.0), Exponential(1.5, -0.7)))
    found = fit("lin", target, 3)
    assert found.heads == 3 and found.relative_errors[0] < 1e-15


def test_a_power_law_is_one_log_head():
    found = fit("log", Power(1.7), 8)
    assert found.heads == 1 and found.relative_errors[0] < 1e-15


def test_an_oscillating_kernel_as_far_as_the_wall_allows():
    target = Generic(lambda z: (-arb(0.5) * z).exp() * arb(z).cos(), ((1.0, 0.0, 0.5),), "damped cosine")
    found = fit("lin", target, 16, mass=1e6, moves=0)
    check(found)
    assert found.relative_errors[0] < 1e-2 and found.bits < 53


def test_exact_coefficients_are_fractions():
    found = fit("lin", SingleLag(3), 12, mass=1e4, precision="exact", moves=0)
    assert all(isinstance(a, Fraction) for row in found.coefficients for a in row)
    check(found)


@pytest.mark.slow
def test_a_far_lag_in_extended_precision():
    found = fit("lin", SingleLag(20), 64, mass=1e30, precision="exact", moves=0, bits=512)
    assert found.error < 0.05 and found.bits > 90


def assert_far_behind_the_wall(lag: int, heads: int, mass: float, needed: float):
    told = []
    found = fit(
        "lin",
        [SingleLag(lag)],
        heads,
        mass=mass,
        precision="exact",
        progress=lambda stage, part: told.append(part),
    )
    check(found)
    assert found.error < needed and found.mass <= mass and len(told) > 10
    assert math.log2(found.mass) >= chebyshev_mass(lag, found.error).log2
    assert found.bits > 4 * lag


def test_half_way_to_the_farthest_lag_in_extended_precision():
    assert_far_behind_the_wall(32, 64, 1e48, 0.02)


@pytest.mark.slow
def test_the_farthest_lag_in_extended_precision():
    # 2^332 of mass and 347 bits; 0.00004 in 20 seconds.
    assert_far_behind_the_wall(64, 128, 1e100, 1e-3)


@pytest.mark.parametrize("heads", [1, 2, 24])
def test_too_few_heads_for_a_far_lag_do_no_harm(heads):
    assert fit("lin", SingleLag(64), heads, mass=1e90, precision="exact").error <= 1 + 1e-6


def test_the_pareto_front_has_no_beaten_fit():
    fits = sweep("lin", SingleLag(2), [2, 4], [10.0, 100.0], moves=0)
    front = pareto(fits)
    assert 1 < len(front) <= 4
    for f in front:
        assert not any(g.heads <= f.heads and g.mass <= f.mass and g.error < f.error for g in fits)


def test_progress_is_told():
    told = []
    fit("lin", SingleLag(2), 4, mass=50.0, moves=3, progress=lambda stage, part: told.append((stage, part)))
    assert {"choosing exponents", "moving exponents", "proving the error"} <= {stage for stage, _ in told}
    assert all(0 <= part <= 1 for _, part in told)


def test_refusals():
    with pytest.raises(BadInput, match="at least one lag"):
        fit("lin", [], 4)
    with pytest.raises(BadInput, match="between 1 and"):
        fit("lin", SingleLag(2), 0)
    with pytest.raises(BadInput, match="give a mass budget"):
        fit("lin", SingleLag(2), 4, precision="exact")
    with pytest.raises(BadInput, match="above 1"):
        fit("log", SingleLag(2), 2, exponents=[0.5, 2.0])
    with pytest.raises(BadInput, match="one per target"):
        kernel_sum("lin", [1.0], [[1.0]], [SingleLag(1), SingleLag(2)])
