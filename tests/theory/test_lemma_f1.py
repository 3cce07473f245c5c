"""Lemma F.1 holds with the constant that docs/theory.md proves, and its heads are fitted as they are."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import eval_chebyu

import memloci as ml
from memloci.approx.kernels.kernel_sums import fit
from memloci.approx.kernels.targets import Power, SingleLag
from memloci.core.errors import BadInput
from memloci.study.compiled_curves import RatesRequest
from memloci.study.compiled_sizes import compiled
from memloci.theory.lemma_f1 import exponents, heads_enough, lemma_bound, lemma_heads


def test_the_exponents_are_those_of_the_paper():
    assert exponents("lin", 3) == [0.01, 0.02, 0.03]
    assert exponents("log", 2) == [1.01, 1.02]  # a log head needs a slope above 1


@pytest.mark.parametrize(("lag", "heads"), [(1, 12), (1, 24), (2, 48)])
def test_the_constant_is_large_enough(lag, heads):
    """With gamma = 1 in place of 0.01 the bound says something of few heads, and a fit must be below it."""
    own = exponents("lin", heads, Fraction(1))
    promised = lemma_bound("lin", lag, heads, Fraction(1))
    found = fit("lin", SingleLag(lag), heads, precision="exact", mass=1e60, exponents=own)
    assert found.error <= promised < 1


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_bump_of_the_proof_exists(n):
    """s^(n) = k sign U_{n-1}, k = 4^{n-1} (n-1)!, rises from 0 to 1 and is flat to order n at both ends."""
    k, u = 4 ** (n - 1) * math.factorial(n - 1), (np.arange(2_000_000) + 0.5) / 2_000_000
    sign = k * np.sign(eval_chebyu(n - 1, 2 * u - 1)) * (-1) ** (n - 1)
    at_end = [float((sign * (1 - u) ** (n - 1 - j) / math.factorial(n - 1 - j)).mean()) for j in range(n)]
    assert at_end == pytest.approx([1.0, *[0.0] * (n - 1)], abs=1e-4)


@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_the_fewest_heads_are_the_fewest(rpe):
    need = heads_enough(rpe, 5, 1e-3)
    assert need is not None and lemma_bound(rpe, 5, need) <= 1e-3 < lemma_bound(rpe, 5, need - 1)


def test_farther_lags_and_smaller_errors_take_more():
    counts = [heads_enough("lin", lag, error) or 0 for lag, error in [(2, 1e-2), (2, 1e-4), (64, 1e-4)]]
    assert counts == sorted(counts) and len(set(counts)) == 3


def test_rounding_undoes_what_exact_arithmetic_reaches():
    """Lag 2 with 32 of the proof's heads: half the error is left in exact arithmetic, and all of it in float32."""
    exact, rounded = (lemma_heads([SingleLag(2)], 32, precision) for precision in ("exact", "float32"))
    assert exact.error < 0.7 and rounded.error > 0.99 and exact.mass > 1e10
    assert exact.exponents == tuple(exponents("lin", 32))


def test_memories_share_the_heads_out():
    assert len(lemma_heads([SingleLag(1), SingleLag(2)], 9, "float32").exponents) == 4


def test_it_is_about_lags_alone():
    with pytest.raises(BadInput, match="about single lags"):
        lemma_heads([Power(2.0)], 8, "float32")
    with pytest.raises(BadInput, match="fewer than the 2 memories"):
        lemma_heads([SingleLag(1), SingleLag(2)], 1, "float32")


def test_rates_draw_it_beside_ours():
    """The certificate of the compiled heads, and Lip(f) E_attn of exact coefficients: 3 times the l1 error."""
    found = compiled(RatesRequest(ml.Fixed(lags=[1], readout="3 * x1"), "heads", (2, 4), "lin", 16))
    exact = found.curves["Lemma F.1, exact"]
    own = lemma_heads([SingleLag(1)], 4, "exact").error
    assert exact[-1].E == pytest.approx(3 * own) and exact[-1].err_sup is None
    for precision in ("float32", "float64"):
        last = found.curves[f"Lemma F.1, {precision}"][-1]
        assert last.err_sup is not None and last.err_sup <= last.E
    assert any("3,165 lin heads are enough" in note for note in found.notes)
