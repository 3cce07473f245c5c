"""The norms that later stages consume dominate what is observed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memloci.core.errors import BadInput
from memloci.tasks.memories.kernel import Convolution, Kernel
from memloci.tasks.short import Essential, Fixed

from . import oracle
from .cases import CASES, draw

EPS = np.finfo(float).eps
PROVABLE = [name for name in CASES if not any(map(callable, CASES[name]().readout))]
TASKS = {name: CASES[name]() for name in CASES}


def _scale(*values: float) -> float:
    return 64 * EPS * (1 + max(map(abs, values)))


@pytest.mark.parametrize("name", PROVABLE)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_lip_f_dominates_difference_quotients(name, data):
    """|f(a) - f(b)| <= lip_f |a - b| for any values that memories can take, and between symbols too."""
    task = TASKS[name]
    ends = {v: (domain[0].lo, domain[-1].hi) for v, domain in task.domains.items()}
    here = {v: data.draw(st.floats(lo, hi), label=v) for v, (lo, hi) in ends.items()}
    moved = data.draw(st.sampled_from(sorted(ends)))
    there = {**here, moved: data.draw(st.floats(*ends[moved]))}
    lip = task.lip_f[moved]
    for f in task.readout:
        try:
            a, b = oracle.value(f, here), oracle.value(f, there)
        except (ValueError, ZeroDivisionError):  # between symbols f need not exist; it is steep there
            assert lip == math.inf
            continue
        distance = abs(here[moved] - there[moved])
        assert not abs(a - b) > lip * distance + _scale(a, b), (a, b, lip, distance)


@pytest.mark.long(8)
@pytest.mark.parametrize("name", PROVABLE)
def test_output_ranges_contain_sampled_outputs(name):
    task = TASKS[name]
    X = draw(task, np.random.default_rng(1), 20, 60)
    Y = np.asarray(task.target(X))
    for k, (lo, hi) in enumerate(task.output_ranges):
        assert lo - _scale(lo, hi) <= Y[..., k].min() and Y[..., k].max() <= hi + _scale(lo, hi)


LIPSCHITZ = {  # by hand
    "product": {"x0": 0, "x1": 1, "x2": 1},
    "echo": {"x0": 0, "x1": 0.5, "x2": 0.3, "x3": 0.2},
    "present-only": {"x0": 2, "x1": 0},
    "distance": {"x0": 0, "x1": 1, "x2": 1, "x3": 1},
    "majority": {"b0": 0, "b1": math.inf, "b2": math.inf, "b3": math.inf},
    "multiplexer": {"b0": 0, "b1": math.inf, "b2": 1, "b3": 1},
    "callable-readout": {"x0": 0, "x1": 1, "x2": 1},
}


@pytest.mark.parametrize("name", LIPSCHITZ)
def test_lip_f_by_hand(name):
    assert TASKS[name].lip_f == pytest.approx(LIPSCHITZ[name], rel=1e-2, abs=0)


RANGES = {  # by hand; a blank widens the range of a memory to 0
    "product": [(-1, 1)],
    "parity": [(-1, 1)],
    "logic": [(0, 1), (0, 1), (0, 3)],
    "constant": [(math.pi / 4, math.pi / 4)],
    "two-channels": [(-6, 9), (-1, 3), (0, 1)],
    "zero-symbol": [(-1, 1), (0, 2)],
    "exponential": [(-1 / math.expm1(0.3), 1 / math.expm1(0.3))],
}


@pytest.mark.parametrize("name", RANGES)
def test_output_ranges_by_hand(name):
    for found, (lo, hi) in zip(TASKS[name].output_ranges, RANGES[name], strict=True):
        assert found.lo <= lo + 4 * EPS * abs(lo) and hi - 4 * EPS * abs(hi) <= found.hi
        assert (found.lo, found.hi) == pytest.approx((lo, hi), rel=1e-2)


NORMS = {  # kernel, its l1 norm in closed form
    "z ** -2": math.pi**2 / 6,
    "exp(-0.3 * z)": 1 / math.expm1(0.3),
    "0.5 ** z": 1.0,
    "(-1) * z ** -4": math.pi**4 / 90,
    "where(z % 2 == 0, 1, -1) * z ** -2": math.pi**2 / 6,
    "where((-1) ** z > 0, 1, -1) * z ** -2": math.pi**2 / 6,
    "z * 0.5 ** z": 2.0,
    "where(z <= 3, 1, 0)": 3.0,
    "1 / (z * (z + 1))": 1.0,
    "0": 0.0,
}


@pytest.mark.parametrize("kernel", NORMS)
def test_kernel_norms_by_hand(kernel):
    (recall,) = Essential(kernels=[kernel], readout="x1").recalls
    assert isinstance(recall, Convolution)
    assert NORMS[kernel] <= recall.norm <= NORMS[kernel] * (1 + 1e-3)


@pytest.mark.long(3)
@pytest.mark.parametrize("name", [n for n in CASES if any(hasattr(m, "kernel") for m in TASKS[n].memories)])
def test_kernel_norms_dominate_a_long_sum(name):
    """Of a kernel with a horizon, the norm is the sum up to there."""
    for memory, recall in zip(TASKS[name].memories, TASKS[name].recalls, strict=True):
        if isinstance(memory, Kernel):
            assert isinstance(recall, Convolution)
            last = memory.horizon or 20_000
            total = math.fsum(abs(oracle.value(memory.kernel, {"z": float(z)})) for z in range(1, last + 1))
            assert total <= recall.norm
            assert memory.horizon is None or recall.norm <= total * (1 + 1e-9)


CANCELLING = {  # kernels whose float64 values are wrong, and the kernels that they are
    "(z + 1e16 - 1e16) * exp(-z)": lambda z: z * math.exp(-z),
    "((1e-17 * z + 1) - 1) * 1e17 * exp(-z)": lambda z: z * math.exp(-z),
    "where(z * 0.1 * 10 > z, 1, 0) * exp(-z)": lambda z: math.exp(-z),
}


@pytest.mark.parametrize("kernel", CANCELLING)
def test_kernel_norms_do_not_rest_on_rounded_values(kernel):
    """The range of a convolution is a theorem, so what is undefined beyond a rounded range is refused."""
    truth = math.fsum(CANCELLING[kernel](z) for z in range(1, 700))
    (recall,) = Essential(kernels=[kernel], readout="x1").recalls
    assert isinstance(recall, Convolution) and recall.norm >= truth
    with pytest.raises(BadInput, match="log of a value that can be 0 or less"):
        Essential(kernels=[kernel], readout=f"log({0.999 * truth} - x1)")


def test_nothing_is_claimed_of_a_callable():
    task = Fixed(lags=[1], readout=lambda x1: x1)
    with pytest.raises(BadInput, match="nothing can be proved of the callable <lambda>"):
        _ = task.lip_f
    with pytest.raises(BadInput, match="the range of the callable <lambda> is unknown"):
        _ = task.output_ranges


def test_an_undeclared_variable_of_a_callable_has_no_constant():
    task = Fixed(lags=[1, 2], readout=lambda x1, x2: x1 + x2, lipschitz={"x1": 1.0})
    assert task.lip_f == {"x0": 0.0, "x1": 1.0, "x2": math.inf}
