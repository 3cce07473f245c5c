"""Rules about numbers that lie on a grid, attacked: sums of float32 in every order, with and without fused operations.

The truth is computed in Fractions, which share nothing with the bounds.
"""

from fractions import Fraction

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import memloci as ml
from memloci.certify.affine_forms import EXACT, AffineForms, Matrix, linear, near_grid, relu
from memloci.certify.affine_forms import _own_rounding as own_roundings
from memloci.certify.cases import Cases
from memloci.certify.match_heads import _logit_errors
from memloci.certify.rounding import format_of
from tests.thorough import few

FLOAT32 = format_of("float32")
U = 2.0**-24


def forms(const, coef, E, radius) -> AffineForms:
    """Affine forms of one case, in unknowns around 0."""
    A = len(radius)
    zero, t = np.zeros((1, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
    cases = Cases(np.zeros((1, A)), np.array([radius], dtype=float), zero, t, t + 1, zero)
    return AffineForms(
        cases, np.array([const]), np.array([coef], dtype=float).reshape(1, -1, A), np.array([E])
    )


def rounded(x: Fraction) -> Fraction:
    """To the nearest number of 24 bits, ties to even."""
    if not x:
        return x
    size, e = abs(x), 0
    while size >= 2:
        size, e = size / 2, e + 1
    while size < 1:
        size, e = size * 2, e - 1
    step = Fraction(2) ** (e - 23)
    return round(x / step) * step


def computed(w, x, b, rng) -> Fraction:
    """sum w x + b in float32: any tree of additions, products fused into them or not."""
    terms = [(Fraction(float(a)), Fraction(float(c))) for a, c in zip(w, x, strict=True)]
    parts = [rounded(a * c) for a, c in terms] if rng.random() < 0.6 else [a * c for a, c in terms]
    if rng.random() < 0.6:
        rng.shuffle(parts)
    parts = ([Fraction(float(b))] if b or rng.random() < 0.5 else []) + parts
    total = rounded(parts[0])
    if rng.random() < 0.5:  # one after the other; a product that is not rounded is fused
        for part in parts[1:]:
            total = rounded(total + part)
        return total
    parts = [rounded(part) for part in parts]
    while len(parts) > 1:
        i = int(rng.integers(len(parts) - 1))
        parts[i : i + 2] = [rounded(parts[i] + parts[i + 1])]
    return parts[0]


def small_number(rng, largest: float) -> float:
    """A number of float32 of at most this size, often just below it."""
    share = rng.choice([0.0, 1.0, 0.999, rng.random(), 2.0 ** -int(rng.integers(1, 30))])
    found = np.float32(share * largest)
    return float(rng.choice([-1, 1])) * float(min(found, np.float32(largest * (1 - 1e-7))))


def attempt(rng) -> tuple[Fraction, Fraction, bool]:
    """(how far a computed sum is from its form, the form's error, whether the rule of grids gave it)."""
    n, scale = int(rng.integers(1, 7)), 2.0 ** int(rng.integers(-20, 9))
    w = rng.choice([1.0, -1.0, 0.5, 2.0, 3.0, -1.5], n)
    k = rng.integers(-3, 4, n) * scale
    k[rng.random(n) < 0.5] = 0.0
    b = float(rng.integers(-2, 3)) * scale
    room = rng.choice([0.44, 0.2, 1e-3, 3.0]) * U * scale / 2 / np.abs(w).sum()
    x = np.where(k != 0, k, [small_number(rng, room) for _ in range(n)])
    # The form: x = const + v + e, with the difference from the grid in any of the three.
    v = np.where(rng.random(n) < 0.5, [small_number(rng, room / 2) for _ in range(n)], 0.0)
    e = np.where(rng.random(n) < 0.5, [small_number(rng, room / 2) for _ in range(n)], 0.0)
    const = x - v - e
    E = np.array([float(abs(Fraction(x[j]) - Fraction(v[j]) - Fraction(const[j]))) for j in range(n)])
    X = forms(const, np.diag(np.ones(n)) * (v != 0), np.nextafter(E, np.inf) * (E > 0), np.abs(v))
    found = linear(w[None, :], X, FLOAT32, np.array([b]))
    y = computed(w, x, b, rng)
    says = Fraction(float(found.const[0, 0]))
    says += sum(
        (Fraction(float(a)) * Fraction(float(c)) for a, c in zip(found.coef[0, 0], v, strict=True)),
        Fraction(0),
    )
    used = bool(np.isfinite(near_grid(Matrix(w[None, :]), X, np.array([b]), U)).all())
    return abs(y - says), Fraction(float(found.E[0, 0])), used


def test_sums_near_a_grid_stay_within_their_error():
    """What is lost where a small number is added to a large one counts, also where the form knows the small number."""
    rng, used = np.random.default_rng(0), 0
    for _ in range(few(4000)):
        off, E, near = attempt(rng)
        assert off <= E
        used += near
    assert used > few(1000)


def test_a_small_number_that_the_form_knows_is_lost_beside_a_large_one():
    """1 + v computes to 1; the form says 1 + v, so that v is the error: it was taken for 0.2 v."""
    X = forms([1.0, 0.0], [[0.0], [1.0]], [0.0, 0.0], [2.0**-30])
    assert linear(np.ones((1, 2)), X, FLOAT32).E[0, 0] >= 2.0**-30
    known = forms([1.0, 2.0**-60], [[0.0], [0.0]], [0.0, 0.0], [0.0])
    assert linear(np.ones((1, 2)), known, FLOAT32).E[0, 0] >= 2.0**-60


def test_sums_of_float64_that_are_called_exact_are():
    """Midpoints are sums of multiples of a power of 2 below 2^52 of it; subnormal grids and large scales too."""
    rng, whole = np.random.default_rng(1), 0
    for _ in range(1500):
        n = int(rng.integers(1, 6))
        bits, scale = (
            int(rng.choice([3, 12, 25, 30, 52])),
            2.0 ** int(rng.choice([-1070, -540, -60, 0, 60, 400])),
        )
        W = np.ldexp(rng.integers(-(2**bits), 2**bits, (1, n)).astype(float), int(rng.choice([-3, 0, -530])))
        const = rng.integers(-(2 ** min(bits, 27)), 2 ** min(bits, 27), n) * scale
        b = np.array([float(rng.integers(-3, 4)) * rng.choice([scale, 1.0, 2.0**-1074])])
        X, M = forms(const, np.zeros((n, 1)), np.zeros(n), [0.0]), Matrix(W)
        own = Fraction(float(own_roundings(M, X, b, np.zeros(0, dtype=int))[0, 0]))
        y = Fraction(float((M(X.const) + b)[0, 0]))
        exact = sum((Fraction(a) * Fraction(c) for a, c in zip(W[0], const, strict=True)), Fraction(b[0]))
        assert abs(y - exact) <= own
        whole += not own
    assert whole > 300


def test_relu_of_numbers_around_0_holds_every_value():
    rng = np.random.default_rng(2)
    for _ in range(3000):
        size = 10.0 ** rng.uniform(-45, 2)
        const, v = rng.normal(size=2) * size * rng.choice([1.0, 1e-3, 1.0])
        E = abs(rng.normal()) * size * rng.choice([0.0, 1.0, 1e-9])
        X = forms([const], [[1.0]], [E], [abs(v)])
        found = relu(X)
        for xi in (-1.0, 1.0, rng.uniform(-1, 1)):
            for e in (-E, E):
                x = Fraction(const) + Fraction(abs(v)) * Fraction(xi) + Fraction(e)
                says = Fraction(float(found.const[0, 0])) + Fraction(float(found.coef[0, 0, 0])) * Fraction(
                    abs(v)
                ) * Fraction(xi)
                assert abs(max(x, Fraction(0)) - says) <= Fraction(float(found.E[0, 0])) * (
                    1 + Fraction(1, 2**45)
                )


@pytest.mark.parametrize("b", [1e-39, -3e-42, 2.0**-149, 1.0, 2.0**-126])
def test_a_subnormal_bias_may_be_taken_for_0(b):
    b = float(np.float32(b))
    X = forms([0.0], [[0.0]], [0.0], [0.0])
    E = linear(np.ones((1, 1)), X, FLOAT32, np.array([b])).E[0, 0]
    assert E == (abs(b) if abs(b) < FLOAT32.least else 0.0)


def test_a_subnormal_bias_of_a_model_is_part_of_its_bound():
    task = ml.Fixed(lags=[1], readout="x1")
    model = ml.compile(task, route="t5").model
    changed = eqx.tree_at(lambda m: m.b_U, model, jnp.full_like(model.b_U, 1e-39))
    assert ml.certify(changed, task).bound >= 1e-39


def test_logits_on_a_grid_are_as_exact_as_they_are_called():
    """Queries and keys with small errors, any slope that is a power of 2: content - p z in float32 in any order."""
    rng, near = np.random.default_rng(3), 0
    for _ in range(1500):
        d, p = int(rng.integers(1, 6)), 2.0 ** int(rng.integers(-6, 6)) * float(rng.choice([1, -1, 3]))
        high = 2.0 ** int(rng.integers(0, 22))
        asked, key = rng.choice([0.0, 1.0, -1.0, high], d) * abs(p), rng.choice([0.0, 1.0, -1.0, 2.0], d)
        tiny = rng.choice([0.0, 1e-9, 1e-12]) * U * abs(p)
        q = np.where(asked != 0, asked, [small_number(rng, tiny) for _ in range(d)])
        k = np.where(key != 0, key, [small_number(rng, tiny) for _ in range(d)])
        blank = np.zeros((d, 1))
        Q = forms(asked, blank, np.where(asked == 0, tiny, 0.0), [0.0])
        K = forms(key, blank, np.where(key == 0, tiny, 0.0), [0.0])
        reach = float(rng.choice([8, 1000, 2**20, 2**23, 2**25]))
        off = float(_logit_errors(Q, K, p, FLOAT32, False, np.array([reach]))[0])
        z = int(rng.integers(1, int(reach) + 1))
        content = computed(q, k, 0.0, rng)
        position = rounded(rounded(Fraction(p)) * rounded(Fraction(z)))
        exact = (
            sum((Fraction(a) * Fraction(c) for a, c in zip(asked, key, strict=True)), Fraction(0))
            - Fraction(p) * z
        )
        assert abs(rounded(content - position) - exact) <= Fraction(off)
        near += off < U * abs(p)
    assert near > 300


def test_exact_arithmetic_loses_nothing_on_a_grid():
    X = forms([3.0, 0.25], [[0.0], [0.0]], [0.0, 0.0], [0.0])
    assert linear(np.array([[2.0, -0.5]]), X, EXACT).E[0, 0] == 0
