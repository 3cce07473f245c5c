"""A number that becomes text stays true: bounds are rounded to the side on which they are still bounds."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memloci.core.numbers import (
    coordinate,
    decimals,
    literal,
    lower_number,
    number,
    percent,
    power_of_two,
    upper_number,
)
from memloci.core.proved import Observed, Proved, ProvedLeast
from tests.thorough import few

finite = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-2, 2),
    st.builds(lambda m, e: m * 10.0**e, st.integers(-9999, 9999), st.integers(-300, 300)),
    st.builds(lambda m, e: m / 10.0**e, st.integers(-9999, 9999), st.integers(0, 12)),
    st.builds(
        lambda m, e, side: math.nextafter(m / 10.0**e, side),
        st.integers(1, 9999),
        st.integers(0, 12),
        st.sampled_from([-math.inf, math.inf]),
    ),
)

SIGNS, GROUPS, KINDS = ("", "+", " "), ("", ",", "_"), ("", "e", "E", "f", "F", "g", "G", "n", "%")
specs = st.builds(
    lambda align, sign, width, group, places, kind: (
        align + sign + (width if align else "") + (group if kind != "n" else "") + places + kind
    ),
    st.sampled_from(["", "<", ">", "^", "*>"]),
    st.sampled_from(SIGNS),
    st.sampled_from(["", "12", "3"]),
    st.sampled_from(GROUPS),
    st.one_of(st.just(""), st.integers(0, 25).map(".{}".format)),
    st.sampled_from(KINDS),
)


def told(text: str) -> Fraction:
    """The number that a text says, exactly."""
    text = text.strip(" *").replace(",", "").replace("_", "")
    if text.endswith("%"):
        return Fraction(Decimal(text[:-1])) / 100
    return Fraction(Decimal(text))


def _percent_of_nearly_infinity(x: float, spec: str) -> bool:
    return spec.endswith("%") and abs(x) > 1e305


@settings(max_examples=few(1500))
@example(x=0.0001234, spec=".3f")
@example(x=0.0001, spec=".0%")
@example(x=1e-9, spec="f")
@example(x=0.1, spec="")
@example(x=0.1, spec=".17g")
@example(x=0.3, spec=".20g")
@example(x=9.999999, spec=".2e")
@example(x=1e300, spec=".3f")
@example(x=5e-324, spec="")
@example(x=1.7976931348623157e308, spec=".2e")
@example(x=-0.00123, spec=".0f")
@given(x=finite, spec=specs)
def test_every_format_of_a_bound_is_a_bound(x, spec):
    """Upper bounds are not below the number that they are told of, lower bounds not above it, compared exactly."""
    if _percent_of_nearly_infinity(x, spec):
        return
    for bound, safe in (
        (Proved(x), lambda t: t >= Fraction(x)),
        (ProvedLeast(x), lambda t: t <= Fraction(x)),
    ):
        text = format(bound, spec).lower()
        if "inf" in text:  # more than the largest number
            assert text.strip(" *+") == ("inf" if isinstance(bound, Proved) else "-inf")
        else:
            assert safe(told(text)), (bound, spec, text)


@settings(max_examples=few(500))
@given(x=finite, spec=specs)
def test_a_format_of_a_bound_gives_nothing_away(x, spec):
    """It is the number itself, or less than two units of the last digit shown away from it."""
    if _percent_of_nearly_infinity(x, spec) or not 1e-290 < abs(x) < 1e290:
        return
    text, plain = format(Proved(x), spec), format(x, spec or ".3g")
    places = int(spec.partition(".")[2].rstrip("eEfFgGn%") or 6) if "." in spec else (6 if spec else 3)
    kind = spec[-1:].lower() if spec[-1:].isalpha() or spec.endswith("%") else "g"
    size = math.floor(math.log10(abs(x))) + 1
    last = {"f": -places, "%": -places - 2, "e": size - places}.get(kind, size - max(places, 1) + 1)
    unit = max(Fraction(10) ** last, 2 * Fraction(math.ulp(x)))
    assert 0 <= told(text) - Fraction(x) <= 2 * unit, (x, spec, text, plain)


@given(finite, st.sampled_from(["", ".3g", ".2e", ".3f", ".0f", ".1%", ",.2f", "+.4E", ">12.3g"]))
def test_what_is_only_observed_is_told_as_any_number(x, spec):
    assert format(Observed(x), spec) == format(x, spec or ".3g")


@pytest.mark.parametrize("kind", [Proved, ProvedLeast, Observed])
def test_what_has_no_digits_is_told_as_it_is(kind):
    for spec in ("", ".3g", ".2f", ".1%", "e"):
        for x in (math.inf, -math.inf, math.nan, 0.0, -0.0):
            assert format(kind(x), spec) == format(x, spec or ".3g")
    assert str(kind(math.inf)) == "inf" and str(kind(math.nan)) == "nan"


@pytest.mark.parametrize("spec", ["d", "x", "s", ".2q", "%%", "..2f"])
def test_a_format_that_floats_do_not_have_is_an_error(spec):
    with pytest.raises(ValueError):
        format(Proved(1.5), spec)


def test_bounds_are_told_by_their_sides():
    """0.1 in float64 is a little more than a tenth, 0.3 a little less than three tenths."""
    assert (str(Proved(0.1)), str(ProvedLeast(0.1))) == ("0.101", "0.1")
    assert (str(Proved(0.3)), str(ProvedLeast(0.3))) == ("0.3", "0.299")
    assert (f"{Proved(0.0001234):.3f}", f"{ProvedLeast(0.0001234):.3f}") == ("0.001", "0.000")
    assert (f"{Proved(0.123):.0%}", f"{ProvedLeast(0.123):.0%}") == ("13%", "12%")
    assert (f"{Proved(-2.345):.1f}", f"{ProvedLeast(-2.345):.1f}") == ("-2.3", "-2.4")
    assert (f"{Proved(9.999):.2g}", f"{ProvedLeast(9.999):.2g}") == ("10", "9.9")
    assert (f"{Proved(1234.5):,.0f}", f"{ProvedLeast(1234.5):>8.0f}") == ("1,235", "    1234")
    assert repr(Proved(1 / 3)) == "Proved(0.333334)" and repr(ProvedLeast(1 / 3)) == "ProvedLeast(0.333333)"
    assert repr(Observed(2 / 3)) == "Observed(0.666667)"


def test_arithmetic_with_a_bound_proves_nothing():
    assert type(Proved(1.0) + 1) is float and type(2 * ProvedLeast(1.0)) is float


@settings(max_examples=few(1000))
@given(finite, st.integers(1, 12))
def test_number_rounds_bounds_to_their_sides(x, digits):
    """And what is no bound to nearest; the text is the number to so many digits."""
    upper, lower, near = (told(number(kind(x), digits)) for kind in (Proved, ProvedLeast, float))
    assert lower <= Fraction(x) <= upper and lower <= near <= upper
    if x:
        unit = Fraction(10) ** (Decimal(x).adjusted() - digits + 1)
        assert upper - lower in (0, unit) and abs(near - Fraction(x)) <= unit / 2
    if digits == 3:
        assert number(x) == number(x, 3)
        assert told(upper_number(x)) == upper and told(lower_number(x)) == lower


NUMBERS = {
    0.0: "0",
    math.inf: "infinite",
    -math.inf: "minus infinite",
    1.0: "1",
    -1.0: "-1",
    0.1: "0.1",
    0.001: "0.001",
    0.000999: "9.99e-4",
    12345.0: "12,300",
    99949.0: "99,900",
    99950.0: "1e5",
    100000.0: "1e5",
    1234567.0: "1.23e6",
    -0.00012344: "-1.23e-4",
    5e-324: "4.94e-324",
    65504.0: "65,500",
    2.5: "2.5",
    0.5: "0.5",
    10.04: "10",
    -3.14159: "-3.14",
}


@pytest.mark.parametrize("x", NUMBERS)
def test_number_by_hand(x):
    assert number(x) == NUMBERS[x]


def test_what_is_no_number_says_so():
    for kind in (float, Proved, ProvedLeast, Observed):
        assert number(kind(math.nan)) == "not a number" and number(kind(math.inf)) == "infinite"
        assert number(kind(-math.inf)) == "minus infinite"
        assert number(kind(0.0)) == number(kind(-0.0)) == "0"


@given(st.floats(allow_nan=False))
def test_a_literal_reads_as_the_number(x):
    """To the last digit, whatever kind of number it is, and as short as Python writes it."""
    assert float(literal(x)) == x and len(literal(x)) <= len(repr(x))
    assert literal(Proved(x)) == literal(ProvedLeast(x)) == literal(x)


def test_literals_by_hand():
    texts = {3.0: "3", 0.1: "0.1", -2.5: "-2.5", 1e22: "1e+22", 1e-7: "1e-07", 0.0: "0", math.inf: "inf"}
    assert {x: literal(x) for x in texts} == texts
    assert literal(3) == "3" and literal(math.nan) == "nan"


@settings(max_examples=few(300))
@given(st.floats(-1e12, 1e12), st.integers(0, 6))
def test_decimals_have_so_many_digits_behind_the_point(x, places):
    """A bound keeps its side."""
    text = decimals(x, places)
    assert len(text.partition(".")[2]) == places and abs(told(text) - Fraction(x)) <= Fraction(10) ** -places
    assert told(decimals(ProvedLeast(x), places)) <= Fraction(x) <= told(decimals(Proved(x), places))


def test_decimals_by_hand():
    assert decimals(1234.5678, 2) == "1,234.57" and decimals(1234.5678) == "1,235"
    assert decimals(0.25, 1, sign=True) == "+0.2" and decimals(-0.25, 2, sign=True) == "-0.25"
    assert decimals(Proved(0.0001), 2) == "0.01" and decimals(ProvedLeast(0.0001), 2) == "0.00"
    assert decimals(math.inf, 2) == "inf" and decimals(math.nan, 2) == "nan" and decimals(0, 1) == "0.0"


def test_coordinates_and_percentages_by_hand():
    assert coordinate(1 / 3) == "0.333333" and coordinate(1234567.0) == "1.23457e+06"
    assert (
        percent(0.123) == "12%" and percent(Proved(0.123)) == "13%" and percent(ProvedLeast(0.999)) == "99%"
    )


@given(st.floats(-1e9, 1e9))
@example(0.7)
@example(123456.78)
def test_a_power_of_two_is_rounded_down(log2):
    """By less than a tenth in the exponent."""
    assert power_of_two(log2).startswith("2^")
    shown = Fraction(Decimal(power_of_two(log2)[2:]))
    assert shown <= Fraction(log2) < shown + Fraction(1, 10)


def test_powers_of_two_by_hand():
    assert [power_of_two(x) for x in (12.34, 16.0, -3.21)] == ["2^12.3", "2^16", "2^-3.3"]
