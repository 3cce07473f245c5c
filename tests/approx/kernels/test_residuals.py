"""The proved l1 error, against exact rational arithmetic, long sums and closed forms."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from memloci.approx.kernels.residuals import residual, residual_l1
from memloci.approx.kernels.rpe import LIN, LOG, as_rpe
from memloci.approx.kernels.targets import Exponential, Generic, Power, SingleLag, Sum
from memloci.core.errors import BadInput

rationals = st.fractions(min_value=Fraction(1, 50), max_value=Fraction(3, 4), max_denominator=50)
coefficients = st.fractions(min_value=-9, max_value=9, max_denominator=40)


def exponent_of(q: Fraction) -> arb:
    """beta with e^-beta = q, as a narrow ball."""
    with ctx.workprec(600):
        return -arb(fmpq(q.numerator, q.denominator)).log()


@settings(derandomize=True, deadline=None, max_examples=25)
@given(
    heads=st.lists(
        st.tuples(rationals, coefficients), min_size=1, max_size=5, unique_by=lambda head: head[0]
    ),
    lag=st.integers(1, 9),
)
def test_the_ball_contains_the_exact_rational_sum(heads, lag):
    n = 120  # beyond it the triangle inequality leaves less than 0.75^120 * 45 < 1e-13
    total = Fraction(0)
    powers = [a * (1 - q) for q, a in heads]
    for z in range(1, n + 1):
        total += abs(sum(powers, Fraction(0)) - (z == lag))
        powers = [p * q for p, (q, _) in zip(powers, heads, strict=True)]
    tail = sum(abs(a) * q**n for q, a in heads)
    ball = residual_l1("lin", [exponent_of(q) for q, _ in heads], [a for _, a in heads], SingleLag(lag))
    with ctx.workprec(600):  # or the fractions below would be rounded more than the ball is wide
        assert not ball > arb(fmpq((total + tail).numerator, (total + tail).denominator))
        assert not ball < arb(fmpq(total.numerator, total.denominator))
    assert ball.rad() < 1e-6


@pytest.mark.parametrize("rpe", [LIN, LOG], ids=["lin", "log"])
@pytest.mark.parametrize(
    "target",
    [
        SingleLag(1),
        SingleLag(7),
        Power(2.5),
        Exponential(0.3, -2.0),
        Sum((Exponential(0.2), Power(3.0, 0.5))),
    ],
    ids=lambda target: target.label,
)
def test_the_ball_agrees_with_a_long_sum(rpe, target):
    rng = np.random.default_rng(5)
    beta, a = rng.uniform(3.0, 6.0, 6), rng.normal(size=6)
    z = np.arange(1.0, 20_001.0)
    rho = np.array([float(target.value(int(k))) for k in z])
    long = np.abs(a @ rpe.kernel(beta, z) - rho).sum()
    ball = residual_l1(rpe, list(beta), list(a), target)
    assert float(ball.mid()) == pytest.approx(long, abs=1e-6)
    assert ball.rad() < 1e-8


@pytest.mark.parametrize("name", ["lin", "log"])
def test_slow_tails_are_summed_to_infinity(name):
    # One slow head and nothing to cancel it: ||r||_1 = 2 - 2 w(3), half of it beyond any window.
    rpe = as_rpe(name)
    beta = 1e-9 if name == "lin" else 1.0 + 1e-6
    ball = residual_l1(name, [beta], [1.0], SingleLag(3))
    w = float(rpe.kernel(np.array([beta]), np.array([3.0]))[0, 0])
    assert float(ball.mid()) == pytest.approx(1 - w + 1 - w, rel=1e-9)
    assert ball.rad() < 1e-8


def test_a_power_law_against_slow_heads_changes_sign_far_out():
    beta = list(np.geomspace(1e-6, 5, 24))
    a = list(0.3 * np.exp(-(np.log(beta) ** 2) / 20))
    ball = residual_l1("lin", beta, a, Power(1.5))
    n = 1 << 22
    z = np.arange(1.0, n + 1)
    r = -(z**-1.5)
    for a_h, b_h in zip(a, beta, strict=True):
        r += a_h * -math.expm1(-b_h) * np.exp(-b_h * (z - 1))
    assert float(ball.lower()) >= np.abs(r).sum() * (1 - 1e-9)
    assert float(ball.upper()) <= np.abs(r).sum() + sum(
        np.array(a) * np.exp(-np.array(beta) * n)
    ) + 2 / math.sqrt(n)
    assert ball.rad() < 1e-9


def test_an_oscillating_target_of_no_known_kind():
    target = Generic(
        lambda z: (-arb(0.3) * z).exp() * (arb(2) * z).cos(), ((1.0, 0.0, 0.3),), "damped cosine"
    )
    z = np.arange(1.0, 2000.0)
    for rpe, beta in ((LIN, [1.5, 1e-7]), (LOG, [1.7, 2.5])):
        a = [1.0, -0.5]
        r = np.array(a) @ rpe.kernel(np.array(beta), z) - np.exp(-0.3 * z) * np.cos(2 * z)
        ball = residual_l1(rpe, beta, a, target)
        tail = float(abs(sum(a_h * rpe.tail_arb(arb(b), 1999) for a_h, b in zip(a, beta, strict=True))))
        assert float(ball.mid()) == pytest.approx(np.abs(r).sum() + tail, rel=1e-9)


def test_what_a_float_solver_calls_optimal():
    # "Optimal, 0.0111" for a residual of 0.2757: entries below 1e-9 are dropped.
    from scipy.optimize import linprog

    beta, z = np.linspace(0.05, 3, 16), np.arange(1, 61)
    W = np.exp(-beta * z[:, None])
    rho = (z == 5) * 1.0
    n, H = W.shape
    program = linprog(
        np.r_[np.zeros(H), np.ones(n)],
        A_ub=np.block([[W, -np.eye(n)], [-W, -np.eye(n)]]),
        b_ub=np.r_[rho, -rho],
        bounds=[(None, None)] * H + [(0, None)] * n,
        method="highs",
    )
    a = [Fraction(x) for x in program.x[:H]]
    exact = sum(
        abs(sum(a_h * Fraction(w) for a_h, w in zip(a, row, strict=True)) - Fraction(t))
        for row, t in zip(W.tolist(), rho.tolist(), strict=True)
    )
    with ctx.workprec(200):
        scaled = [x / arb(b).expm1() for x, b in zip(program.x[:H].tolist(), beta.tolist(), strict=True)]
        window = sum((abs(r) for r in residual("lin", beta.tolist(), scaled, SingleLag(5), 60)), arb(0))
    # W holds rounded exponentials: 1e-16 relative, on coefficients of 3e8.
    assert float(window.mid()) == pytest.approx(float(exact), abs=1e-6)
    assert program.fun < 0.5 * float(exact)
    assert residual_l1("lin", beta.tolist(), scaled, SingleLag(5)) >= window.lower()


def test_it_is_fast():
    beta, a = list(np.geomspace(0.01, 5, 64)), list(np.random.default_rng(0).normal(size=64))
    residual_l1("lin", beta, a, SingleLag(5))
    started = time.perf_counter()
    with ctx.workprec(128):
        residual("lin", beta, a, SingleLag(5), 10_000)
    assert time.perf_counter() - started < 1.0  # 0.03 s alone on a core; the limit allows for company


@pytest.mark.parametrize(
    ("rpe", "beta", "a", "says"),
    [
        ("lin", 0.0, 1.0, "above 0"),
        ("lin", -1.0, 1.0, "above 0"),
        ("log", 1.0, 1.0, "above 1"),
        ("lin", math.nan, 1.0, "finite exponent"),
        ("lin", math.inf, 1.0, "finite exponent"),
        ("lin", 1.0, math.nan, "not finite"),
    ],
)
def test_refusals(rpe, beta, a, says):
    with pytest.raises(BadInput, match=says):
        residual_l1(rpe, [beta], [a], SingleLag(2))


def test_more_refusals():
    with pytest.raises(BadInput, match="one per head"):
        residual_l1("lin", [1.0, 2.0], [1.0], SingleLag(2))
    for lag in (0, -3, 1 << 30):
        with pytest.raises(BadInput, match="lags run from 1"):
            SingleLag(lag)
    with pytest.raises(BadInput, match="summable for p > 1"):
        Power(1.0)
    with pytest.raises(BadInput, match="summable for b > 0"):
        Exponential(0.0)
    with pytest.raises(BadInput, match="factor"):
        Power(2.0, math.nan)
    with pytest.raises(BadInput, match="to be summable"):
        Generic(lambda z: arb(0), ((1.0, 1.0, 0.0),))
    with pytest.raises(BadInput, match="at least one part"):
        Sum(())


@pytest.mark.parametrize("rpe", [LIN, LOG], ids=["lin", "log"])
def test_kernels_sum_to_one(rpe):
    beta = np.array([1.3, 2.0, 7.0])
    z = np.arange(1.0, 51.0)
    assert rpe.kernel(beta, z).sum(axis=1) + rpe.tail(beta, 50) == pytest.approx(np.ones(3), rel=1e-12)
    for b in beta.tolist():
        with ctx.workprec(100):
            values = rpe.mixture_arb([arb(1)], [arb(b)], 50)
            assert (sum(values, arb(0)) + rpe.tail_arb(arb(b), 50)).contains(1)
            assert all(v.overlaps(rpe.kernel_arb(arb(b), k)) for k, v in enumerate(values, start=1))
            assert rpe.tails_arb(arb(b), [3, 50])[1].overlaps(rpe.tail_arb(arb(b), 50))
            assert [float(v) for v in values] == pytest.approx(rpe.kernel(np.array([b]), z)[0].tolist())
