"""Figures are valid XML, the same every time, and untouched by what a user set in matplotlib."""

import math
import xml.etree.ElementTree as ET
from fractions import Fraction

import equinox as eqx
import jax.random as jr
import matplotlib
import numpy as np
import pytest

from memloci.approx.kernels.lower_bounds import LowerBound
from memloci.core.proved import Observed, Proved
from memloci.observe import probes
from memloci.observe.sup_error import Measurement
from memloci.pipeline import Built, compile
from memloci.tasks.short import Essential, Fixed
from memloci.tradeoffs.rates import Fitted, HeadRates, Theorem, WidthRates
from memloci.views.figures import certificate, memory, model, tradeoffs


@pytest.fixture(scope="module")
def built() -> Built:
    return compile(Fixed(lags=[1, 3], readout="x1 - 0.5 * x2"), route="rotary")


@pytest.fixture(scope="module")
def chain() -> Built:
    return compile(Fixed(lags=[2, 3], readout="x1 + x2"), route="depth-1")


def _seen(value: float) -> Measurement:
    return Measurement(Observed(value**2), Observed(value), Observed(value), 8, 4, 2, np.zeros((8, 1)))


def _draw_all(built: Built) -> dict[str, str]:
    example = probes.example_run(built.model, built.task)
    maps, _ = probes.attention_maps(built.model, example.x)
    return {
        "memory": memory.memory_figure(built.task, probes.target_kernels(built.task)),
        "kernels": model.kernels_figure(probes.slot_kernels(built.model, built.task, built.plan.circuit)),
        "attention": model.attention_figure(maps),
        "terms": certificate.terms_figure(built.certificate),
        "wall": certificate.wall_figure(probes.wall(12), (3,), built.certificate.bits),
        "certified": certificate.certified_figure(built.certificate, _seen(1e-7)),
        "nothing-seen": certificate.certified_figure(built.certificate, _seen(0.0)),
        "example": model.example_figure(example),
    }


def test_figures_are_xml_labelled_and_deterministic(built):
    first = _draw_all(built)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        second = _draw_all(built)
    assert first == second
    for name, svg in first.items():
        root = ET.fromstring(svg)
        assert root.tag.endswith("svg") and "viewBox" in root.attrib, name
        assert "width" not in root.attrib  # the page decides
        assert "<metadata" not in svg and "<dc:date" not in svg
    said = {"memory": "lag z", "kernels": "target|", "attention": "position t", "wall": "bits"}
    for name, text in (said | {"nothing-seen": "none seen"}).items():
        assert text in first[name]


@pytest.mark.parametrize(
    "task",
    [
        Fixed(lags=[1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 4096, 60_000], readout="x1"),
        Essential(kernels=["exp(-z / 5) * cos(z)"], readout="x1"),
        Essential(kernels=["z ** -2", "exp(-z)"], readout="x1 * x2"),
    ],
    ids=["lags", "signed", "positive"],
)
def test_memories_of_every_kind_are_drawn(task):
    ET.fromstring(memory.memory_figure(task, probes.target_kernels(task)))


def test_a_dollar_in_a_name_starts_no_formula():
    z = np.arange(1, 5)
    kernel = probes.SlotKernel("x1", "x@1", "$\\frac{", z, np.ones(4), np.ones(4))
    assert "$\\frac{" in model.kernels_figure([kernel])


def test_far_kernels_keep_their_peak_and_stay_light():
    z = np.arange(1, 70_001)
    spike = (z == 65_537).astype(float)
    svg = model.kernels_figure([probes.SlotKernel("x1", "s", "lag", z, spike, spike)])
    assert len(svg) < 200_000


# -- probes -----------------------------------------------------------------------------------------------


def test_slot_kernels_are_what_the_model_does(chain):
    """The kernels, convolved with an input, give the model's output."""
    kernels = probes.slot_kernels(chain.model, chain.task, chain.plan.circuit, n=8)
    assert [kernel.variable for kernel in kernels] == ["x1", "x2"]
    K = np.sum([kernel.compiled for kernel in kernels], axis=0)
    x = np.asarray(jr.uniform(jr.key(1), (9, 1)), dtype=float)
    expected = sum(K[z - 1] * x[8 - z, 0] for z in range(1, 9))
    assert float(eqx.filter_jit(chain.model)(x)[8, 0]) == pytest.approx(expected, abs=1e-6)
    for kernel in kernels:
        assert kernel.residual.max() < 1e-6


@pytest.mark.parametrize("which", ["built", "chain"])
def test_head_kernels_agree_with_attention(which, request):
    found: Built = request.getfixturevalue(which)
    attention = found.model.layers[0].attention
    w = probes.head_kernels(attention, 6)
    X = found.model.embed(np.zeros((7, 1)))
    np.testing.assert_allclose(
        np.asarray(eqx.filter_jit(attention.weights)(X))[:, 6, ::-1][:, 1:], w, atol=1e-6
    )


def test_example_runs_the_model(built):
    example = probes.example_run(built.model, built.task, n=20)
    np.testing.assert_allclose(
        example.output, np.asarray(eqx.filter_jit(built.model)(example.x), dtype=float), atol=1e-6
    )
    assert example.error.max() <= built.certificate.bound


def test_attention_maps_show_the_lags(built):
    example = probes.example_run(built.model, built.task, n=12)
    maps, count = probes.attention_maps(built.model, example.x, most=1)
    assert len(maps) == 1 and count == 2
    assert {int(t - s) for t, s in np.argwhere(maps[0].weights > 0.5)} == {1}


def test_wall_is_the_table_of_the_theory():
    bits = {(p.lag, p.error): p.log2_mass for p in probes.wall()}
    for (lag, error), expected in {
        (2, 0.1): 3.7,
        (8, 0.1): 29.2,
        (16, 0.001): 72.2,
        (32, 0.001): 140.1,
    }.items():
        assert math.isclose(bits[lag, error], expected, abs_tol=0.06)


# -- rates ------------------------------------------------------------------------------------------------


def _head_rates(masses: tuple[float, ...], E_least: float = 1e-3) -> HeadRates:
    """Made up, but for the floor E >= 1 - B / 100, which is a line."""
    errors = [0.5, 0.1, 0.01][: len(masses)]
    points = tuple(Fitted(4, mass, Proved(E)) for mass, E in zip(masses, errors, strict=True))
    line = LowerBound("lin", "lag 3", masses[-1], 0.0, E_least, 1.0, 0.01, (0,), (Fraction(1),))
    heads = {"float32": tuple(Fitted(H, 10.0, Proved(0.5 / H**2)) for H in (3, 4, 6))}
    theorem = Theorem("lin", "lag 3", masses[-1], points[-1].E, E_least, 5.0)
    return HeadRates(
        "one-layer-lin",
        "lin",
        "float32",
        points[-1],
        heads,
        points,
        points,
        (line,),
        -2.0,
        theorem,
        1.0,
        {"exact": (Fitted(16, 1e20, Proved(0.75)), Fitted(32, 1e30, Proved(0.01)))},
    )


@pytest.mark.parametrize("masses", [(10.0, 1e3, 1e5), (50.0, 70.0, 90.0)], ids=["decades", "near"])
def test_heads_and_mass_are_drawn_with_their_floor(masses):
    rates = _head_rates(masses)
    svg = tradeoffs.heads_figure(rates)
    ET.fromstring(svg)
    assert svg == tradeoffs.heads_figure(rates)
    for text in ("heads H", "mass B", "no heads err less (proved)", "in float32 (proved)", "this model"):
        assert text in svg
    assert "Lemma F.1, exact" in svg
    assert ("floor at this model" in svg) == (rates.theorem.E_least > 0)
    assert "floor at this model" not in tradeoffs.heads_figure(_head_rates(masses, 0.0))


def test_width_is_drawn_beside_the_papers_slope():
    rows = tuple((m, Proved(m**-2.0)) for m in (4, 8, 16))
    svg = tradeoffs.width_figure(WidthRates("x1 * x2", rows, (12, Proved(0.007)), -2.0, "ridges"))
    ET.fromstring(svg)
    for text in ("width m, neurons", "slope, −1/2", "E_ffn"):
        assert text in svg
