"""Every slack of certify/slacks.py: its derivation once more, in rational arithmetic, and what happens without it.

A tenth of a slack does not do, where the slack is a bound that is nearly attained: `tenth` is tried each time.
"""

import ctypes
import ctypes.util
import math
from contextlib import contextmanager
from fractions import Fraction
from itertools import accumulate

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from flint import ctx

from memloci.certify.analysis import CaseAnalysis, most_terms
from memloci.certify.certify import certify, fewest_bits
from memloci.certify.fixed_kernels import FixedKernelHeads
from memloci.certify.readout import ReadoutWeights
from memloci.certify.rounding import format_of
from memloci.certify.slacks import (
    FEWEST_BITS,
    IN_A_ROW,
    MOST_TERMS,
    OWN,
    ROUNDED,
    ROUNDED_BEFORE,
    SUMMED,
    evaluation,
    own_product,
)
from memloci.core.errors import BadInput
from memloci.core.precision import PRECISIONS
from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from memloci.tasks.short import Fixed
from memloci.tasks.task import Task

from .cases import drawn_model

U = Fraction(1, 2**53)
TERMS = (1, 2, 3, 7, 64, 1_000, 2**14, MOST_TERMS)


def gamma(n: int) -> Fraction:
    return n * U / (1 - n * U)


def tenth(slack: float) -> Fraction:
    """The slack with a tenth of what it has beyond 1."""
    return 1 + (Fraction(slack) - 1) / 10


# -- the unit of float64 -----------------------------------------------------------------------------------


def test_own_is_what_one_rounding_can_change():
    """1 + u is a tie and becomes 1; no quotient of small whole numbers errs by more."""
    assert Fraction(OWN) == U == Fraction(np.finfo(np.float64).eps) / 2
    exact = 1 + U
    assert abs(Fraction(float(exact)) - exact) == U > U / 10 * exact
    for a in range(1, 60):
        for b in range(1, 60):
            x = Fraction(a, b)
            assert abs(Fraction(a / b) - x) <= Fraction(OWN) * x


# -- one sum ----------------------------------------------------------------------------------------------


def test_a_sum_is_below_its_slack():
    """s_hat >= s (1 - gamma(n)), and s_hat SUMMED is rounded once more."""
    for n in TERMS:
        assert Fraction(SUMMED) * (1 - gamma(n)) * (1 - U) >= 1
    assert tenth(SUMMED) * (1 - gamma(MOST_TERMS)) < 1
    assert Fraction(SUMMED) * (1 - gamma(2 * MOST_TERMS)) < 1  # it is for no more terms than it says


def test_a_sum_that_needs_its_slack():
    """1 and many u: each is lost when it is added to 1, in this order."""
    terms = [1.0] + [OWN] * (MOST_TERMS - 1)
    *_, computed = accumulate(terms)
    exact = 1 + (MOST_TERMS - 1) * U
    assert computed == 1.0 and Fraction(computed * SUMMED) >= exact > Fraction(computed) * tenth(SUMMED)


def test_a_product_with_a_matrix_is_within_its_slack():
    """gamma(n) of |W| |x| for n products and n - 1 additions, n <= MOST_TERMS."""
    for n in TERMS:
        assert gamma(n + 1) <= Fraction(own_product(n))
        assert Fraction(own_product(n)) / 10 < gamma(n + 1)
    rng = np.random.default_rng(0)
    for n in (2, 8, 100):
        W, x = rng.normal(size=n), rng.normal(size=n)
        exact = sum(
            (Fraction(w) * Fraction(y) for w, y in zip(W.tolist(), x.tolist(), strict=True)), Fraction(0)
        )
        size = sum(
            (abs(Fraction(w) * Fraction(y)) for w, y in zip(W.tolist(), x.tolist(), strict=True)), Fraction(0)
        )
        assert abs(Fraction(float(W @ x)) - exact) <= Fraction(own_product(n)) * size


def test_a_product_that_needs_its_slack():
    n = 64
    W, x = [1.0] * n, [1.0] + [OWN] * (n - 1)
    computed = 0.0
    for w, y in zip(W, x, strict=True):
        computed += w * y
    exact = 1 + (n - 1) * U
    wrong = abs(Fraction(computed) - exact)
    assert Fraction(own_product(n)) / 10 * exact < wrong <= Fraction(own_product(n)) * exact


# -- a rounding of what was rounded ------------------------------------------------------------------------


def test_a_rounding_after_others_is_within_its_slack():
    """u (1 + u)^k <= ROUNDED u for k up to ROUNDED_BEFORE, in the coarsest precision, and for no more."""
    coarsest = Fraction(1, 2**FEWEST_BITS)
    assert all(Fraction(own.u) <= coarsest for own in PRECISIONS.values())
    assert (1 + coarsest) ** ROUNDED_BEFORE <= Fraction(ROUNDED) < (1 + coarsest) ** (ROUNDED_BEFORE + 1)
    assert tenth(ROUNDED) < (1 + coarsest) ** ROUNDED_BEFORE
    assert Fraction(ROUNDED) < (1 + 2 * coarsest) ** ROUNDED_BEFORE  # with a bit less nothing is claimed


@pytest.mark.parametrize("enough", [1, 2, 7, 8, 9, 11, 24, 100])
def test_no_claim_is_about_fewer_bits_than_the_slacks_hold_for(enough):
    asked = []

    def meets(u: float) -> bool:
        asked.append(u)
        return u <= 2.0**-enough

    assert fewest_bits(meets) == max(enough, FEWEST_BITS) and max(asked) <= 2.0**-FEWEST_BITS


# -- a whole bound ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 12, 256])
@pytest.mark.parametrize("terms", [1, 2, 64, 4_096, MOST_TERMS])
def test_a_bound_is_below_its_slack(layers, terms):
    """x_hat >= x (1 - u)^m >= x (1 - m u) after m roundings, and x_hat times the slack is rounded once more."""
    m = IN_A_ROW * (layers + 2) * terms
    slack = Fraction(evaluation(layers, terms))
    assert slack * (1 - (m + 1) * U) >= 1  # Bernoulli: (1 - u)^(m + 1) is no less
    if m < 2_000:
        assert slack * (1 - U) ** (m + 1) >= 1
    assert tenth(float(slack)) * (1 - m * U) < 1
    assert slack - 1 < Fraction(1, 10**6)  # and nobody minds it


def test_products_in_a_row_that_need_their_slack():
    """Numbers just below a power of two, multiplied: every rounding is downwards, by up to u each."""
    layers, terms = 1, 1
    m = IN_A_ROW * (layers + 2) * terms
    computed, exact = 1.0, Fraction(1)
    rng = np.random.default_rng(0)
    for _ in range(m):
        # of some factors the one whose product loses most
        factors = (1 + rng.uniform(0, 2.0**-20, 40)).tolist()
        lost = [Fraction(computed) * Fraction(f) / Fraction(computed * f) for f in factors]
        best = factors[int(np.argmax([float(x - 1) for x in lost]))]
        computed, exact = computed * best, exact * Fraction(best)
    slack = evaluation(layers, terms)
    assert Fraction(computed) * tenth(slack) < exact <= Fraction(computed * slack)


TO_NEAREST = 0
DIRECTED = {"x86_64": {"down": 0x400, "up": 0x800}, "aarch64": {"down": 0x800000, "up": 0x400000}}


@contextmanager
def rounded(way: str):
    """All float64 arithmetic of this thread rounded one way."""
    import platform

    modes, library = DIRECTED.get(platform.machine()), ctypes.util.find_library("m")
    if modes is None or library is None:
        pytest.skip("the rounding mode of this machine is not known")
    libm = ctypes.CDLL(library)
    assert libm.fesetround(modes[way]) == 0
    try:
        one, little = np.ones(9), np.full(9, 2.0**-60)
        assert ((one + little > 1) == (way == "up")).all() and ((one - little < 1) == (way == "down")).all()
        yield
    finally:
        assert libm.fesetround(TO_NEAREST) == 0


def drawn(task: Task, **changes) -> Transformer:
    """Random weights, biases too."""
    fields = {"layers": 1, "width": 0, "attention": "dpf", "encoding": "lin", "normalisation": "infinite"}
    sizes = {"heads": 2, "dim": 3, "key_dim": 4, "value_dim": 2, "window": None, "precision": "float32"}
    architecture = Architecture(**{**fields, **sizes, **changes})
    bias = np.random.default_rng(1).normal(size=architecture.dim)
    model = drawn_model(architecture, task.d, task.outputs, seed=1)
    return eqx.tree_at(lambda m: m.b_E, model, jnp.asarray(bias, architecture.precision))


LAGS = Fixed(lags=[1, 3], readout="x1 - x2")
MODELS = {
    "one layer": {},
    "neurons": {"width": 40, "dim": 4},
    "two layers": {"layers": 2},
    "a table": {"encoding": "t5", "window": 16, "buckets": 16, "max_distance": 32, "layers": 2},
}


def rounding_parts(model: Transformer, task: Task, precision: str) -> list[np.ndarray]:
    """What is added up for a bound where one case covers all: sizes and errors of the stream, and of the outputs."""
    with ctx.workprec(128), np.errstate(all="ignore"):
        analysis = CaseAnalysis(model, task)
        form = format_of(precision)
        stream = analysis.uniform_bounds(form).stream
        outputs = ReadoutWeights.of(model).rounding(stream.size, stream.E, form, analysis.stored(form))
        return [stream.size, stream.E, outputs]


@pytest.mark.long(2)
@pytest.mark.parametrize("name", MODELS)
def test_a_bound_rounded_down_is_within_its_slack_of_the_same_rounded_up(name):
    """Sums and products of non-negative numbers lie between the two, whatever is the case in between."""
    model = drawn(LAGS, **MODELS[name])
    slack = Fraction(evaluation(model.architecture.layers, most_terms(model)))
    with rounded("down"):
        below = rounding_parts(model, LAGS, "float32")
    with rounded("up"):
        above = rounding_parts(model, LAGS, "float32")
    nearest = rounding_parts(model, LAGS, "float32")
    apart = 0
    for down, near, up in zip(below, nearest, above, strict=True):
        for x, y, z in zip(down.tolist(), near.tolist(), up.tolist(), strict=True):
            assert x <= y <= z and math.isfinite(z)
            assert Fraction(z) <= Fraction(x) * slack
            apart += x < z
    assert apart  # the two ways do differ


def test_the_terms_of_all_heads_are_counted():
    """The loop over heads adds up a number per value coordinate, however narrow the stream: it does not do to count
    the coordinates of the stream."""
    many = drawn(LAGS, heads=4_000, value_dim=1, dim=2)
    assert most_terms(many) == 4_000 and most_terms(drawn(LAGS, width=100)) == 100
    heads, size = FixedKernelHeads.of(many.layers[0].attention, {"plain": 1_000}), np.array([1.0, 0.3])
    with rounded("down"):
        below = heads.rounding(size, format_of("float32"), False)
    with rounded("up"):
        above = heads.rounding(size, format_of("float32"), False)
    for down, up in zip(below, above, strict=True):
        assert (up <= down * evaluation(1, 4_000)).all() and (up > down * evaluation(1, 2)).any()
    assert CaseAnalysis(many, LAGS).slack == evaluation(1, 4_000)


def test_a_sum_of_more_terms_than_the_slacks_cover_is_refused():
    task = Fixed(lags=[1], readout="x1")
    wide = drawn(task, dim=1, value_dim=1, heads=1, width=MOST_TERMS + 1)
    with pytest.raises(BadInput, match="sums of 131,073 terms"):
        certify(wide, task)


# -- case by case -----------------------------------------------------------------------------------------


def test_errors_of_cases_rounded_down_are_within_their_slack_of_the_same_rounded_up():
    """Neurons in a layer that is not the last: midpoints move with the rounding, errors by no more than the slack."""
    model = drawn(LAGS, layers=2, width=8)
    analysis, slack = CaseAnalysis(model, LAGS), Fraction(evaluation(2, most_terms(model)))
    assert not analysis.uniform

    def errors() -> list[float]:
        with ctx.workprec(128):
            bounds = CaseAnalysis(model, LAGS).bounds(format_of("float32"))
        return np.concatenate([part.E for part in (*bounds.stream, *bounds.outputs)], axis=1).ravel().tolist()

    with rounded("down"):
        below = errors()
    with rounded("up"):
        above = errors()
    assert below != above
    for x, z in zip(below, above, strict=True):
        assert x <= z and Fraction(z) <= Fraction(x) * slack
