"""Ridge sums: exact where they claim it, and never further from the readout than E_ffn."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from memloci.approx.readouts.ridge_certify import certify_readout, certify_ridge, width_against_error
from memloci.approx.readouts.ridge_sums import RidgeSum, readout_ridge, ridge_sum
from memloci.core.errors import BadInput
from memloci.core.intervals import Interval, point
from memloci.language.evaluate import evaluate
from memloci.language.parse import parse
from memloci.tasks.gallery import GALLERY
from memloci.tasks.short import Fixed

UNIT = Interval(-1.0, 1.0)
CUBE = {f"x{i}": UNIT for i in range(7)}


def alphabet(*symbols: float):
    return tuple(point(float(s)) for s in symbols)


def exact_value(ridge: RidgeSum, v: dict[str, Fraction], output: int = 0) -> Fraction:
    """The network in rational arithmetic: what E_ffn speaks of."""
    row = lambda weights: sum(
        (Fraction(w) * v[n] for w, n in zip(weights, ridge.variables, strict=True)), Fraction(0)
    )
    hidden = [max(row(B) + Fraction(c), Fraction(0)) for B, c in zip(ridge.B, ridge.c, strict=True)]
    out = sum((Fraction(a) * h for a, h in zip(ridge.A[output], hidden, strict=True)), Fraction(0))
    return out + row(ridge.W[output]) + Fraction(ridge.b[output])


def sampled_error(ridge: RidgeSum, text: str, *, n: int = 40_000, output: int = 0) -> float:
    """The largest error on random points, each of the worst improved by local search."""
    rng = np.random.default_rng(1)
    names = ridge.variables
    lo, hi = np.array([ridge.box[k].lo for k in names]), np.array([ridge.box[k].hi for k in names])
    f = parse(text, names)

    def error(v):
        y = np.asarray(evaluate(f, {k: v[:, i] for i, k in enumerate(names)}, np))
        return np.abs(ridge(v)[:, output] - y)

    v = lo + (hi - lo) * rng.random((n, len(names)))
    v = np.concatenate([v, np.array(list(itertools.product(*zip(lo, hi, strict=True))))])
    found = error(v)
    best = v[np.argsort(-found)[:100]]
    worst = float(found.max())
    for step in np.geomspace(0.1, 1e-5, 30):
        trial = np.clip(best[:, None] + step * (hi - lo) * rng.normal(size=(100, 8, len(names))), lo, hi)
        trial = np.concatenate([best[:, None], trial], axis=1)
        errors = error(trial.reshape(-1, len(names))).reshape(100, 9)
        best = trial[np.arange(100), errors.argmax(axis=1)]
        worst = max(worst, float(errors.max()))
    return worst


# Exact routes.


def test_affine_costs_no_neurons():
    ridge = ridge_sum("0.5 * x1 + 0.3 * x2 - (x3 - 2) / 4", CUBE)
    assert (ridge.width, ridge.E_ffn, ridge.how) == (0, (0.0,), ("affine",))
    assert ridge([0.1, 0.2, 0.3])[0] == pytest.approx(0.5 * 0.1 + 0.3 * 0.2 + 1.7 / 4, abs=1e-15)


def test_rounding_of_an_affine_readout_is_in_its_error():
    ridge = ridge_sum("x1 / 3 + 0.1 * (x1 + x1 + x1)", CUBE)
    truth = Fraction(1, 3) + 3 * Fraction(0.1)
    assert 0 < abs(Fraction(ridge.W[0, 0]) - truth) <= Fraction(ridge.E_ffn[0]) <= Fraction(1, 10**15)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("abs(x1)", 1),
        ("max(x1, x2)", 1),
        ("min(x1, 2 * x2 - x3)", 1),
        ("max(min(x1, 0.5), -0.5)", 2),
        ("abs(abs(x1) - 0.5)", 3),
        ("where(x1 > 0, x1, 0) + abs(x2 - x1) / 4", 2),
        ("where(x1 + x2 <= 0.5, 0.5 - x1 - x2, 0)", 1),
        ("max(x1, x2, x3) - min(x1, x2, x3)", 3),
        ("max(abs(x1), abs(x2))", 2),
        ("max(x1, 2)", 0),
    ],
)
def test_piecewise_linear_readouts_are_exact(text, width):
    ridge = ridge_sum(text, CUBE)
    assert (ridge.width, ridge.E_ffn) == (width, (0.0,))
    v = np.random.default_rng(0).uniform(-1, 1, (2_000, len(ridge.variables)))
    truth = evaluate(parse(text, CUBE), {n: v[:, i] for i, n in enumerate(ridge.variables)}, np)
    assert np.abs(ridge(v)[:, 0] - truth).max() <= 1e-15
    assert certify_ridge(ridge, text, CUBE) <= (1e-5 if "where" in text else 0.0)  # no vertices for where


TABLES = {
    "parity": ("x1 * x2 * x3", {f"x{i}": alphabet(-1, 1) for i in (1, 2, 3)}, 6),
    "majority": ("sign(x1 + x2 + x3)", {f"x{i}": alphabet(-1, 1) for i in (1, 2, 3)}, 2),
    "multiplexer": ("where(x1, x2, x3)", {f"x{i}": alphabet(0, 1) for i in (1, 2, 3)}, 6),
    "threshold": ("x1 + x2 + x3 + x4 + x5 >= 3", {f"x{i}": alphabet(0, 1) for i in range(1, 6)}, 2),
    "parity of 6": ("(x1 + x2 + x3 + x4 + x5 + x6) % 2", {f"x{i}": alphabet(0, 1) for i in range(1, 7)}, 12),
    "powers": ("floor(x1 / 3) % 2", {"x1": alphabet(1, 2, 4, 8, 16, 0.5)}, 6),
    "transcendental": ("exp(x1) * sign(x2)", {"x1": alphabet(0, 1, 2), "x2": alphabet(-1, 1)}, 10),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_exact_within_their_margins(name):
    text, domains, width = TABLES[name]
    ridge = ridge_sum(text, domains, snap=True)
    assert ridge.width <= width and ridge.E_ffn[0] <= 1e-14 and ridge.how == ("table",)
    rng = np.random.default_rng(0)
    margins = [Fraction(ridge.margins[n]) for n in ridge.variables]
    assert min(margins) > 0.01
    for symbols in itertools.product(*(domains[n] for n in ridge.variables)):
        centre = [Fraction(s.lo) for s in symbols]
        truth = evaluate(
            parse(text, domains), {n: s.lo for n, s in zip(ridge.variables, symbols, strict=True)}, np
        )
        at = exact_value(ridge, dict(zip(ridge.variables, centre, strict=True)))
        assert float(at) == pytest.approx(float(truth), abs=2e-15)
        for shift in [
            *itertools.product((-1, 1), repeat=min(3, len(centre))),
            rng.uniform(-1, 1, len(centre)),
        ]:
            shift = [Fraction(float(x)) for x in (*shift, *[1.0] * (len(centre) - len(shift)))]
            moved = [c + m * x for c, m, x in zip(centre, margins, shift, strict=True)]
            assert (
                exact_value(ridge, dict(zip(ridge.variables, moved, strict=True))) == at
            )  # not a single bit
            floats = ridge([float(x) for x in moved])[0]
            assert floats == pytest.approx(float(truth), abs=1e-12)
    assert certify_ridge(ridge, text, domains) <= 1e-9


@pytest.mark.parametrize(
    "text", ["where(a1 > 1, x1, x2)", "a1 * x1", "where(a1 == 2, x1 + 0.5, 0)", "where(a1 % 2, x1, -x2 / 3)"]
)
def test_switches_pass_an_affine_function_on_exactly(text):
    domains = {"a1": alphabet(0, 1, 2, 3), "x1": UNIT, "x2": UNIT}
    ridge = ridge_sum(text, domains)
    assert ridge.how == ("switch",) and ridge.E_ffn[0] <= 1e-14 and ridge.margins["a1"] > 0.2
    rng = np.random.default_rng(0)
    for _ in range(300):
        a = int(rng.integers(4))
        values = {"a1": float(a), "x1": rng.uniform(-1, 1), "x2": rng.uniform(-1, 1)}
        moved = {**values, "a1": a + ridge.margins["a1"] * rng.uniform(-1, 1)}
        truth = evaluate(parse(text, domains), values, np)
        assert ridge([moved[n] for n in ridge.variables])[0] == pytest.approx(float(truth), abs=1e-13)
    assert certify_ridge(ridge, text, domains) <= 1e-11


def test_intervals_with_a_gap_are_symbols_too():
    domains = {"x1": (Interval(-1.0, -0.2), point(0.0), Interval(0.2, 1.0))}
    ridge = ridge_sum("where(x1 > 0, 1, -1)", domains)
    assert ridge.width == 2 and ridge.E_ffn == (0.0,)
    margin = ridge.margins["x1"]
    assert ridge([0.2 - margin])[0] == ridge([1.0])[0] == 1.0
    assert ridge([margin])[0] == ridge([-1.0])[0] == -1.0


def test_a_requested_margin_is_kept_or_refused():
    domains = {"x1": alphabet(0, 1, 2)}
    assert ridge_sum("x1 == 1", domains, margins=0.45).margins == {"x1": 0.45}
    assert ridge_sum("x1 == 1", domains, reach=0.4).margins == {"x1": 0.4}
    with pytest.raises(BadInput, match="no margin"):
        ridge_sum("x1 == 1", domains, margins=0.6)


def test_blank_memories_that_cannot_occur_save_neurons():
    task = GALLERY["parity"]()
    assert readout_ridge(task).width < readout_ridge(task, possible=None).width
    possible = task.occur_together
    assert possible is not None
    assert possible({"b1": 1.0, "b2": -1.0, "b3": 0.0}) and not possible({"b1": 0.0, "b2": 1.0, "b3": 1.0})


# Approximate routes.

SMOOTH = [
    "x1 * x2",
    "x1 * x2 + 0.5 * x1",
    "x1 ** 2 * x2 - x2 ** 3",
    "x1 * x2 * x3",
    "tanh(3 * x1)",
    "sin(2 * x1 + x2) + exp(x2 / 2)",
    "x1 * x2 + abs(x1 - x2)",
    "(x1 + x2) * exp(-(x1 + x2) / 3)",
    "sqrt(x1 + 1)",
]


@pytest.mark.parametrize("text", SMOOTH)
def test_proved_error_is_above_the_sampled_one_and_close(text):
    ridge = ridge_sum(text, CUBE, tolerance=4e-3)
    err, E = sampled_error(ridge, text), ridge.E_ffn[0]
    assert err <= E <= 4e-3
    assert E <= 1.5 * err
    again = certify_ridge(ridge, text, CUBE)
    assert err <= again <= 1.1 * E


def test_a_reach_enlarges_the_box():
    near, far = ridge_sum("x1 * x2", CUBE, max_width=30), ridge_sum("x1 * x2", CUBE, max_width=30, reach=0.5)
    assert far.box["x1"].hi >= 1.5 and far.E_ffn[0] == pytest.approx(2.25 * near.E_ffn[0], rel=0.05)
    assert sampled_error(far, "x1 * x2") <= far.E_ffn[0]


@pytest.mark.parametrize(
    ("text", "d", "width"),
    [("x1 * exp(x2)", 2, 24), ("max(x1, x2, x3)", 3, 16), ("x1 * tanh(x2 * x3 + x4)", 4, 16)],
)
def test_fits_are_certified_by_branch_and_bound(text, d, width):
    ridge = ridge_sum(text, CUBE, max_width=width)
    assert ridge.how == ("fit",) and ridge.width <= width
    err, E = sampled_error(ridge, text), ridge.E_ffn[0]
    assert err <= E <= 1.5 * err


def test_separate_parts_are_fitted_separately():
    ridge = ridge_sum("x1 * exp(x2) + x3 * sin(2 * x4) + x5 * x6", CUBE, tolerance=0.3)
    assert ridge.how == ("ridges + fit",) and len(ridge.variables) == 6
    err = sampled_error(ridge, "x1 * exp(x2) + x3 * sin(2 * x4) + x5 * x6")
    assert err <= ridge.E_ffn[0] <= 0.3
    again = certify_ridge(ridge, "x1 * exp(x2) + x3 * sin(2 * x4) + x5 * x6", CUBE)
    assert err <= again <= 1.1 * ridge.E_ffn[0]


def test_outputs_share_one_layer():
    texts = ["x1 * x2", "abs(x1)", "x1 + x2", "abs(x1) - x2"]
    ridge = ridge_sum(texts, CUBE, tolerance=1e-2)
    assert ridge.E_ffn[1:] == (0.0, 0.0, 0.0)
    assert ridge.width == ridge_sum(texts[0], CUBE, tolerance=1e-2).width + 1  # abs(x1) once
    for k, text in enumerate(texts):
        assert sampled_error(ridge, text, output=k) <= ridge.E_ffn[k] + 1e-15


@pytest.mark.parametrize("text", ["x1 * x2", "x1 ** 3 * x2", "cos(3 * x1)"])
def test_the_error_falls_like_the_square_of_the_pieces(text):
    table = width_against_error(text, CUBE, [32, 64, 128, 256])
    assert -2.25 < table.slope < -1.85 < table.paper_slope
    assert all(m <= w for (m, _), w in zip(table.rows, [32, 64, 128, 256], strict=True))


def test_a_product_takes_the_pieces_that_theory_says():
    ridge = ridge_sum("x1 * x2", CUBE, max_width=62)  # 32 pieces of width h = 1/8 for each square: 2 h^2 / 32
    assert ridge.width == 62 and ridge.E_ffn[0] == pytest.approx(4 / 64**2, rel=0.01)


@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    st.lists(
        st.tuples(st.integers(-4, 4), st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([(-1.0, 1.0), (0.0, 1.0), (-2.0, 3.0)]),
)
def test_random_polynomials_keep_their_promise(terms, ends):
    text = " + ".join(f"{k} * x1 ** {i} * x2 ** {j} * x3 ** {l}" for k, i, j, l in terms) + " + x1"
    domains = {f"x{i}": Interval(*ends) for i in (1, 2, 3)}
    ridge = ridge_sum(text, domains, tolerance=0.1)
    err = sampled_error(ridge, text, n=2_000)
    assert err <= ridge.E_ffn[0] * (1 + 1e-12) + 1e-12
    assert ridge.E_ffn[0] <= 0.1


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 12))
def test_any_weights_can_be_certified(seed, d, m):
    rng = np.random.default_rng(seed)
    text = ["sin(2 * x1)", "x1 * exp(x2)", "x1 * x2 - tanh(x3)"][d - 1]
    names = tuple(f"x{i}" for i in range(1, d + 1))
    weights = rng.normal(size=(m, d)), rng.normal(size=m), rng.normal(size=(1, m)), rng.normal(size=(1, d))
    B, c, A, W = weights
    ridge = RidgeSum(
        names, B, c, A, W, rng.normal(size=1), (math.inf,), ("trained",), dict.fromkeys(names, UNIT)
    )
    bound, err = certify_ridge(ridge, text, CUBE), sampled_error(ridge, text, n=4_000)
    assert err <= bound <= (1.05 if d <= 2 else 1.3) * err


def test_a_changed_weight_is_seen():
    ridge = ridge_sum("x1 * x2", CUBE, tolerance=1e-3)
    ridge.A[0, 5] += 0.01
    assert certify_ridge(ridge, "x1 * x2", CUBE) > 5 * ridge.E_ffn[0]


# The gallery, and refusals.


@pytest.mark.parametrize("name", GALLERY)
def test_every_gallery_readout_has_a_ridge_sum(name):
    task = GALLERY[name]()
    ridge = readout_ridge(task, tolerance=1e-3, reach=1e-4)
    assert max(ridge.E_ffn) <= 1e-3 and ridge.width <= 160
    assert certify_readout(ridge, task, reach=1e-4)[0] <= max(1.05 * ridge.E_ffn[0], 1e-10)


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        ("sign(x1)", {}, "jumps by 2 near x1"),
        ("where(x1 > 0.3, x2, x1 * x2)", {}, "jumps"),
        ("log(x1 + 0.5)", {}, "log of a value that can be 0 or less"),
        ("1 / x1", {}, "the divisor can be 0"),
        ("sqrt(x1 + 1)", {"reach": 0.1}, "sqrt of a value that can be negative"),
        ("exp(x0 * x1 * x2) * sin(x3 * x4)", {}, "reads 5 variables"),
        ("abs(x1)", {"max_width": 0}, "needs 1 neurons, and max_width is 0"),
        ("x1", {"tolerance": 0.0}, "tolerance must be positive"),
        ("x1 * x2", {"reach": -1.0}, "reach must be"),
    ],
)
def test_refusals_say_why(text, options, match):
    with pytest.raises(BadInput, match=match) as refusal:
        ridge_sum(text, CUBE, **options)
    assert "\n" not in str(refusal.value)


def test_a_callable_cannot_be_proved():
    task = Fixed(lags=[1], readout=lambda x1: x1)
    with pytest.raises(BadInput, match="callable"):
        readout_ridge(task)
