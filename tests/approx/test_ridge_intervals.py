"""Enclosures on many boxes contain what they should."""

import numpy as np
import pytest
from flint import arb, ctx

from memloci.approx import ridge_intervals as ri
from memloci.approx.ridge_intervals import Span, dual
from memloci.approx.ridge_pieces import Pieces, profile, proved_error
from memloci.expressions.evaluate import evaluate
from memloci.expressions.language import OPERATIONS
from memloci.expressions.parse import parse


def test_every_operation_has_a_rule():
    assert set(ri.RULES) == set(OPERATIONS)


@pytest.mark.parametrize(
    ("function", "lo", "hi", "slack"),
    [
        ("exp", -30.0, 30.0, 1e-13),
        ("exp", -700.0, 700.0, 1e-13),
        ("log", 1e-8, 50.0, 1e-9),
        ("cos", -20.0, 20.0, 1e-9),
        ("sin", -4e5, 4e5, 1e-3),
        ("tanh", -30.0, 30.0, 1e-9),
        ("sqrt", 0.0, 50.0, 1e-14),
    ],
)
def test_functions_agree_with_arb(function, lo, hi, slack):
    x = np.random.default_rng(0).uniform(lo, hi, 2_000)
    with np.errstate(all="ignore"):
        span = getattr(ri, function)(Span(x, x))
    with ctx.workprec(200):
        for at, low, high in zip(x, span.lo, span.hi, strict=True):
            value = getattr(arb(float(at)), function)().mid()
            assert arb(float(low)) <= value <= arb(float(high))
            assert high - low <= slack * max(abs(low), 1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "x1 * x2 - x1 / (x2 + 3)",
        "exp(x1) * sin(3 * x2) + cos(x1 * x2)",
        "tanh(x1) ** 3 + (x1 - x2) ** 2 + sqrt(x2 + 2)",
        "max(x1, x2) + min(x1 * x2, 0.2) + abs(x1 - 0.3)",
        "where(x1 > x2, x1, x2) + log(x1 + 2) * (x2 + 2) ** 1.5 + 2 ** x1",
    ],
)
def test_values_and_slopes_stay_inside(text):
    f = parse(text, ("x1", "x2"))
    rng = np.random.default_rng(0)
    centre, radius = rng.uniform(-0.8, 0.8, (400, 2)), rng.uniform(0, 0.2, (400, 2))
    spans = {f"x{i + 1}": Span(centre[:, i] - radius[:, i], centre[:, i] + radius[:, i]) for i in (0, 1)}
    value, slopes = dual(f, spans)
    for _ in range(20):
        v = centre + radius * rng.uniform(-1, 1, (400, 2))
        at = lambda v: evaluate(f, {"x1": v[:, 0], "x2": v[:, 1]}, np)
        assert np.all((value.lo <= at(v)) & (at(v) <= value.hi))
        w = centre + radius * rng.uniform(-1, 1, (400, 2))
        low, high = np.zeros(400), np.zeros(400)
        for i in (0, 1):
            ends = [slopes[f"x{i + 1}"].lo * (w - v)[:, i], slopes[f"x{i + 1}"].hi * (w - v)[:, i]]
            low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        change = at(w) - at(v)
        assert np.all((low - 1e-12 <= change) & (change <= high + 1e-12))


def test_an_undefined_value_is_unknown_not_wrong():
    value, slopes = dual(
        parse("log(x1) + 1 / x1", ("x1",)), {"x1": Span(np.array([-1.0, 1.0]), np.array([1.0, 2.0]))}
    )
    assert value.lo[0] == -np.inf and value.hi[0] == np.inf and np.isfinite(value.lo[1])
    assert slopes["x1"].hi[0] == np.inf


@pytest.mark.parametrize(
    "text", ["s ** 2", "s ** 3", "tanh(3 * s)", "exp(s)", "s ** 5 - s ** 2", "abs(s) ** 1.5"]
)
def test_pieces_are_nearly_the_best_that_their_number_allows(text):
    phi = parse(text, ("s",))
    along = profile(phi, -1.0, 1.0)
    for n in (8, 64):
        assert proved_error(phi, -1.0, 1.0, along.pieces(n)) <= 1.25 * (along.effort / n) ** 2


def test_the_error_of_a_chord_is_known():
    for h in (0.5, 0.25):  # s^2 on [0, h]: the chord lies h^2 / 4 above
        assert proved_error(parse("s ** 2", ("s",)), 0.0, h, Pieces(0.0, h, (), ())) == pytest.approx(
            h * h / 4, rel=0.01
        )
