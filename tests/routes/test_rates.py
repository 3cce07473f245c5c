"""The paper's slopes are stated and ours measured; floors and theorems are below every fit."""

import json
import math
from dataclasses import replace

import pytest

from memloci.approx.kernels.kernel_sums import fit
from memloci.approx.kernels.targets import Power, SingleLag
from memloci.core.errors import BadInput
from memloci.pipeline import Built, compile
from memloci.tasks.short import Essential, Fixed
from memloci.theory.paper_rates import paper_rates
from memloci.tradeoffs import rates

QUICK = replace(
    rates.BRIEF,
    heads={"lin": 2, "log": 2},
    moves={"lin": 0, "log": 0},
    budgets={"lin": 1, "log": 1},
    widths=(4, 8, 16),
)


@pytest.fixture(scope="module")
def lag() -> Built:
    return compile(Fixed(lags=[2], readout="x1"), tolerance=1e-2, route="one-layer-lin")


@pytest.fixture(scope="module")
def found(lag) -> rates.HeadRates:
    return rates.measured(lag.task, [lag.plan], QUICK).heads[0]


def test_the_paper_is_stated_without_constants():
    """Theorems and S(n), and no number for C(n); what they are is in tests/theory."""
    told = rates.stated(Fixed(lags=[3, 17], readout="x1 * x2")).to_dict()
    (own,) = told["paper"]["statements"]
    assert own["result"] == "Theorem 3.1" and [rate["encoding"] for rate in own["rates"]] == ["lin", "log"]
    assert told["paper"]["width_slope"] == -0.5 and told["heads"] == [] and told["width"] is None


def test_slopes_are_those_of_power_laws_and_stop_at_a_plateau():
    falling = [(H, 5.0 * H**-3.0) for H in (2, 4, 8)]
    assert rates.fitted_slope(falling) == pytest.approx(-3)
    assert rates.fitted_slope([*falling, (16, falling[-1][1])]) == pytest.approx(-3)
    assert math.isnan(rates.fitted_slope(falling[:1])) and math.isnan(rates.fitted_slope([]))
    assert math.isnan(rates.fitted_slope([(2, 0.1), (4, 0.1)]))
    assert rates.fitted_slope([(2, 0.1), (4, 0.1), (8, 0.01)]) < -1  # a plateau on the way is part of it


def test_the_model_is_what_its_certificate_says(lag, found):
    """For the readout x1 the l1 error is the certified error in exact arithmetic."""
    assert found.built.heads == lag.model.architecture.heads
    assert found.built.mass == pytest.approx(lag.certificate.mass)
    assert float(found.built.E) == pytest.approx(float(lag.certificate.exact_bound), rel=1e-6)


def test_no_fit_lies_below_the_floor(found):
    """Bounds of the floor's own fits, and of fits it has never seen."""
    others = [fit("lin", SingleLag(2), H, mass=m, moves=0) for H, m in ((3, 5.0), (4, 20.0), (3, 60.0))]
    seen = [(p.mass, float(p.E)) for p in (*found.by_mass, *found.front)] + [
        (k.mass, k.error) for k in others
    ]
    for mass, E in seen:
        assert found.floor(mass) <= E
    assert found.floor(5.0) > 0.3  # and it is no empty statement
    assert found.floor(5.0) >= found.floor(20.0) >= found.floor(60.0) >= 0


def test_the_theorem_is_about_this_mass(lag, found):
    theorem = found.theorem
    assert theorem.memory == "lag 2" and theorem.mass == found.built.mass
    assert 0 < theorem.E_least <= theorem.E and theorem.ratio >= 1
    assert 0 < theorem.mass_least <= theorem.mass


def test_the_front_is_beaten_by_none(found):
    points = [*found.front, *found.by_mass, *(p for points in found.by_heads.values() for p in points)]
    for p in found.front:
        assert not any(q.heads <= p.heads and q.mass <= p.mass and q.E < p.E for q in points)
    assert len(set(found.front)) == len(found.front)


@pytest.mark.slow
def test_power_laws_have_a_theorem_too():
    """Positive kernels: mass B < ||rho||_1 leaves at least ||rho||_1 - B."""
    built = compile(
        Essential(kernels=["z ** -2"], readout="x1"),
        tolerance=0.3,
        precision="float64",
        route="one-layer-lin",
    )
    found = rates.head_rates(built.task, built.plan.circuit, QUICK)
    norm = math.pi**2 / 6
    assert found.norm == pytest.approx(norm)
    mass = found.by_mass[0].mass
    assert norm - mass - 1e-4 <= found.floor(mass) <= norm - mass + 1e-12 or found.floor(mass) > norm - mass
    assert fit("lin", Power(2.0), 4, mass=mass, moves=0).error >= found.floor(mass)


@pytest.mark.parametrize(
    ("task", "route", "why"),
    [
        (Fixed(lags=[1], readout="x1"), "one-layer-lin", "exact up to the rounding"),
        (Essential(kernels=["z ** -2"], readout="x1"), "one-layer-log", "exact up to the rounding"),
        (Fixed(lags=[3], readout="x1"), "rotary", "no model of one lin or log layer"),
    ],
    ids=["shift", "own-kernel", "rotary"],
)
def test_where_nothing_is_measured_the_reason_is_told(task, route, why):
    built = compile(task, tolerance=1e-2, route=route)
    found = rates.measured(task, [built.plan])
    assert found.heads == () and why in found.measured["heads"]
    assert found.width is None and found.measured["width"] == "exact, no neurons"


def test_width_against_error_is_steeper_than_the_paper():
    task = Fixed(lags=[3, 17], readout="x1 * x2")
    built = compile(task, route="rotary", tolerance=1e-2)
    found = rates.measured(task, [built.plan], QUICK)
    assert found.width is not None
    assert [m for m, _ in found.width.rows] == [4, 8, 16]
    errors = [E for _, E in found.width.rows]
    assert errors == sorted(errors, reverse=True) and found.width.slope < found.width.paper_slope
    assert found.width.built == (built.model.architecture.width, max(built.plan.circuit.readout.E_ffn))
    json.dumps(found.to_dict(), allow_nan=False)


def test_json_has_every_number(found):
    told = rates.Rates(paper_rates(Fixed(lags=[2], readout="x1")), (found,)).to_dict()
    text = json.dumps(told, allow_nan=False)
    for number in (found.built.E, found.theorem.E_least, found.slope):
        assert math.isnan(number) or repr(float(number)) in text


def test_exact_tables_have_no_slope():
    task = Fixed(channels=[{"name": "b", "values": [-1, 1]}], lags=[2, 5], readout="b1 * b2")
    built = compile(task, route="rotary")
    with pytest.raises(BadInput, match="exact with"):
        rates.width_rates(task, built.plan.circuit)
