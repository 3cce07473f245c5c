"""The paper's rates hold for the tasks, and for the n, that its theorems say."""

import math

import pytest

import memloci as ml
from memloci.tasks.gallery import GALLERY
from memloci.theory.paper_rates import paper_rates

PAYLOAD = {"name": "v", "range": [-1, 1]}


def test_fixed_lags_have_both_rates_for_every_n():
    (own,) = paper_rates(ml.Fixed(lags=[3, 17], readout="x1 * x2")).statements
    lin, log = own.rates
    assert own.result == "Theorem 3.1" and lin.most is None and log.most is None
    for n in (1, 2, 5):
        assert lin.log10_S(n) == pytest.approx((n + 1) * math.log10(math.exp(0.03) + math.exp(0.17)))
        assert log.log10_S(n) == pytest.approx((n + 1) * math.log10(3**1.01 + 17**1.01))


def test_lags_beyond_the_range_of_floats_have_a_rate():
    lin, _ = paper_rates(ml.Fixed(lags=[2**20], readout="x1")).statements[0].rates
    assert lin.log10_S(1) == pytest.approx(2 * 0.01 * 2**20 / math.log(10))


def test_unnested_lags_have_the_theorems_of_section_4_and_their_conditions():
    found = paper_rates(GALLERY["pointer"]())
    assert [s.result for s in found.statements] == ["Theorem 4.1", "Theorem 4.3", "Proposition 4.5"]
    assert [s.layers for s in found.statements] == [2, 2, 2]
    first, _, deep = found.statements
    assert "sum ||g_i||_B^2" in first.width and "T_i^2" in first.width and "max" in deep.width
    (each,) = deep.rates
    assert each.log10_S(2) == pytest.approx(0.5 * 6 * 0.01 * 8 / math.log(10))


def test_nested_lags_have_theorem_4_4():
    task = GALLERY["partly-nested"]()
    (own,) = paper_rates(task).statements
    assert own.result == "Theorem 4.4" and own.layers == task.paper_layers and task.K == 1
    T, n = task.lag_bounds, 3
    lin = math.exp(0.02 * (n + 1) * T[0]) + sum(math.exp(0.01 * t) for t in T[1:]) ** (2 * n + 2)
    log = T[0] ** (2.02 * (n + 1)) + sum(t**1.01 for t in T[1:]) ** (2 * n + 2)
    for rate, factor in zip(own.rates, (lin, log), strict=True):
        assert rate.log10_S(n) == pytest.approx(0.5 * math.log10(factor))


@pytest.mark.parametrize(
    ("kernel", "lin", "log"),
    [
        ("exp(-0.3 * z)", 29, None),
        ("z * exp(-0.3 * z)", 29, None),
        ("exp(-0.01 * z)", 0, None),
        ("z ** -1.5", "no theorem", 0),
        ("z ** -2.02", "no theorem", 0),
        ("z ** -2.03", "no theorem", 1),
        ("z ** -4", "no theorem", 2),
        ("z ** -4 + exp(-z)", "no theorem", 2),
    ],
)
def test_kernels_have_rates_up_to_an_n_of_their_tails(kernel, lin, log):
    found = paper_rates(ml.Essential(kernels=[kernel], readout="x1"))
    for encoding, most in (("lin", lin), ("log", log)):
        own = found.rate(encoding)
        assert (own is None) == (most == "no theorem")
        if own is not None:
            assert own[1].most == most and own[1].exists == (most != 0)


def test_the_worst_kernel_of_a_task_decides():
    found = paper_rates(ml.Essential(kernels=["z ** -5", "z ** -2"], readout="x1 + x2"))
    assert [s.result for s in found.statements] == ["Theorem 5.1 B"] and found.statements[0].rates[
        0
    ].most == 0


def test_a_kernel_that_ends_is_below_every_tail():
    task = ml.Task(memories=[ml.Kernel("z ** -0.5", horizon=1000)], readout="x1")
    assert [own.rates[0].most for own in paper_rates(task).statements] == [None, None]


@pytest.mark.parametrize("name", ["induction", "mqar"])
def test_what_the_paper_does_not_treat_has_none(name):
    found = paper_rates(GALLERY[name]())
    assert not found.statements and "found by content" in found.heads


def test_mixed_memories_have_none():
    task = ml.Task(memories=[ml.Lag(3), ml.Kernel("z ** -3")], readout="x1 + x2")
    assert not paper_rates(task).statements


@pytest.mark.parametrize("name", GALLERY)
def test_every_task_of_the_gallery_is_told_something(name):
    found = paper_rates(GALLERY[name]())
    assert found.heads and found.to_dict()["why_none"] is None or not found.statements
