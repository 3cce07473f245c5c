"""Adaptive recall without normalisation: what is promised is proved, for every lag the query may ask for."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from memloci.approx.kernels.adaptive_sums import (
    AdaptiveSum,
    _play,
    _prove_sup,
    adaptive_sum,
    adaptive_sum_of,
    coefficients,
    floor,
    undominated,
)
from memloci.approx.kernels.kernel_sums import fit
from memloci.approx.kernels.residuals import residual_l1
from memloci.approx.kernels.targets import SingleLag
from memloci.core.errors import BadInput

PRICE = 64 * 2.0**-53


def direct(found: AdaptiveSum, g: int, horizon: int = 120) -> float:
    """E_g up to a horizon straight from the definition, in 100 digits of an arithmetic other than Arb."""
    with localcontext(prec=100):
        alpha = [Decimal(Fraction(a).numerator) / Fraction(a).denominator for a in found.alpha]
        heads = [(a, Decimal(beta)) for a, beta in zip(alpha, found.exponents, strict=True)]
        total = Decimal(0)
        for z in range(1, horizon + 1):
            x = Decimal(z - g) if found.rpe == "lin" else (Decimal(z) / g).ln()
            total += abs(sum((a * (-beta * x).exp() for a, beta in heads), Decimal(0)) - (z == g))
        return float(total)


@pytest.fixture(scope="module")
def lin_five() -> AdaptiveSum:
    return adaptive_sum("lin", range(1, 6), 16)


@pytest.fixture(scope="module")
def log_three() -> AdaptiveSum:
    return adaptive_sum("log", [1, 2, 3], 16, moves=0)


def test_lin_recalls_up_to_five_in_float64(lin_five):
    # docs/theory.md measured 3e-5 at mass 1e9.
    assert lin_five.heads <= 16 and lin_five.paid <= 1e-5
    assert lin_five.paid == lin_five.error + PRICE * lin_five.mass


def test_log_recalls_up_to_three_in_float64(log_three):
    # docs/theory.md measured 1e-4 at mass 1e9.
    assert log_three.heads <= 16 and log_three.paid <= 5e-5


@pytest.mark.parametrize("name", ["lin_five", "log_three"])
def test_errors_are_those_of_the_definition(name, request):
    found: AdaptiveSum = request.getfixturevalue(name)
    for g in found.lags:
        seen = direct(found, g)
        assert seen <= found.errors[g] <= seen * (1.001 if found.rpe == "lin" else 1.1)  # the rest is tail


@pytest.mark.parametrize("name", ["lin_five", "log_three"])
def test_the_floor_lies_below_and_near(name, request):
    found: AdaptiveSum = request.getfixturevalue(name)
    bound = floor(found.rpe, found.lags, PRICE)
    assert bound <= found.paid <= 2.5 * bound


def test_lin_costs_what_the_largest_fixed_lag_costs(lin_five):
    a = coefficients("lin", lin_five.exponents, lin_five.alpha, 5)
    assert float(residual_l1("lin", lin_five.exponents, a, SingleLag(5)).lower()) <= lin_five.error
    assert list(lin_five.errors.values()) == sorted(lin_five.errors.values())
    fixed = fit("lin", SingleLag(5), 16, rounding=64.0, moves=0)
    assert lin_five.paid <= 1.1 * (fixed.error + PRICE * fixed.mass)


@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_dominated_lags_have_smaller_errors_whatever_the_weights(rpe):
    rng = np.random.default_rng(5)
    for _ in range(5):
        beta, alpha = rng.uniform(2.5, 6.0, 4), rng.normal(size=4)
        found = adaptive_sum_of(rpe, range(1, 7), beta.tolist(), alpha.tolist())
        for g in found.lags:
            above = [h for h in found.lags if (h > g if rpe == "lin" else h % g == 0)]
            assert all(found.errors[g] <= found.errors[h] * (1 + 1e-8) for h in above)
            assert found.masses[g] <= found.masses[6]


def test_lags_that_decide():
    assert undominated("lin", [1, 2, 3, 4]) == (4,)
    assert undominated("log", [1, 2, 3, 4]) == (3, 4)
    assert undominated("log", [2, 4, 8]) == (8,)


def test_lags_are_balanced(log_three):
    # Lags 2 and 3 share alpha: at the best choice neither can gain without the other losing.
    assert log_three.errors[2] == pytest.approx(log_three.errors[3], rel=0.1)


def test_only_the_lags_asked_for_are_paid_for(log_three):
    fewer = adaptive_sum("log", [1, 3], 16, moves=0)
    assert set(fewer.errors) == {1, 3} and fewer.paid < 0.7 * log_three.paid


@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_lag_one_is_one_head(rpe):
    found = adaptive_sum(rpe, [1], 8)
    assert found.heads == 1 and found.error < 1e-18


def test_more_bits_reach_further():
    short, long = (adaptive_sum("lin", range(1, 9), 24, precision=p, moves=0) for p in ("float64", 80))
    assert short.paid > 1e-3 > 1e-6 > long.paid
    assert 53 < long.bits <= 80 and all(isinstance(a, Fraction) for a in long.alpha)
    for a in long.alpha:  # 80 bits and no more
        assert isinstance(a, Fraction)
        odd = a.numerator // (a.numerator & -a.numerator)
        assert odd.bit_length() <= 80 and a.denominator & (a.denominator - 1) == 0
    assert direct(long, 8) <= long.errors[8]


def test_float32_weights_and_gates_are_float32():
    found = adaptive_sum("lin", [1, 2, 3], 12, precision="float32")
    assert found.paid < 0.05
    tiny = float(np.finfo(np.float32).tiny)
    for beta, a in zip(found.exponents, found.alpha, strict=True):
        assert float(np.float32(beta)) == beta and float(np.float32(a)) == a and abs(a) > tiny
        assert math.isfinite(np.float32(math.exp(3 * beta)))


def test_out_of_reach_is_no_head_at_all():
    found = adaptive_sum("log", [2, 7], 8, moves=0)
    assert found.error == pytest.approx(1.0) and found.mass == 0


def test_the_supremum_covers_every_exponent():
    rng = np.random.default_rng(7)
    c, x = rng.normal(size=40), np.concatenate([[1.0], rng.uniform(1.3, 60, 39)])
    with ctx.workprec(128):
        sup = float(_prove_sup([(arb(float(v)).log(), arb(float(w))) for v, w in zip(x, c, strict=True)]))
    from scipy.special import zeta

    beta = 1 + np.geomspace(1e-6, 200, 20_000)
    seen = np.abs((c[:, None] * x[:, None] ** -beta).sum(axis=0) / zeta(beta, 1.0)).max()
    assert seen <= sup <= seen * 1.01


def test_a_game_with_a_known_value():
    # Matching pennies, shifted: both sides mix evenly.
    mixture, weights, value = _play(np.array([[3.0, 1.0], [1.0, 3.0]]))
    assert mixture == pytest.approx([0.5, 0.5]) and weights == pytest.approx([0.5, 0.5])
    assert value == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lags": []}, "no lags"),
        ({"lags": [0, 1]}, "lag"),
        ({"heads": 0}, "heads 0"),
        ({"precision": "exact"}, "number of bits"),
        ({"precision": 1}, "number of bits"),
        ({"rpe": "rope"}, "rope"),
    ],
)
def test_refusals(change, said):
    given = {"rpe": "lin", "lags": [1, 2], "heads": 4} | change
    with pytest.raises(BadInput, match=said):
        adaptive_sum(**given)


def test_progress_is_told():
    told = []
    adaptive_sum("lin", [1, 2], 6, moves=3, progress=lambda stage, part: told.append((stage, part)))
    assert {"choosing exponents", "moving exponents", "proving the error"} <= {stage for stage, _ in told}
    assert all(0 <= part <= 1 for _, part in told)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rpe", "T", "heads", "bits", "needed"),
    [
        ("lin", 10, 32, 96, 1e-7),
        ("lin", 12, 32, 96, 1e-5),
        ("log", 4, 24, 72, 1e-4),
        ("log", 5, 32, 96, 1e-3),
    ],
)
def test_extended_precision(rpe, T, heads, bits, needed):
    found = adaptive_sum(rpe, range(1, T + 1), heads, precision=bits)
    assert found.paid <= needed and 53 < found.bits <= bits
    assert floor(rpe, found.lags, 64 * 2.0**-bits) <= found.paid


@pytest.mark.slow
def test_log_up_to_four_is_proved_out_of_reach_of_float64():
    assert floor("log", range(1, 5), PRICE) > 1e-3
    assert adaptive_sum("log", range(1, 5), 16).paid < 1e-2
