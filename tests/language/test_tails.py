"""A majorant bounds its kernel at every lag, and its tail sum bounds the kernel's tail."""

import time

import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.language.evaluate import evaluate
from memloci.language.parse import parse
from memloci.language.tails import Majorant, majorant

SUMMABLE = [
    "0",
    "z ** -2",
    "z ** -1.5",
    "-3 / z ** 2",
    "1 / (z * sqrt(z))",
    "1 / (z ** 2 + 3 * z + 1)",
    "1 / (z ** 2 - 3 * z + 5)",
    "1 / (z ** 2 - 100.5 * z)",
    "(z - 3) / (z ** 3 + 1)",
    "(z + 1) ** 3 / (z + 2) ** 5",
    "(2 * z - 7) ** -2",
    "abs(5.5 - z) ** -1.5",
    "log(z) / z ** 2",
    "log(z + 1) * z ** -1.5",
    "log(3 * z ** 2 - z) / z ** 1.5",
    "exp(-0.3 * z)",
    "exp(-z / 50)",
    "exp(2 - z)",
    "z ** 3 * exp(-0.5 * z)",
    "z ** 20 * exp(-z)",
    "exp(-z ** 2 / 8)",
    "exp(-(z - 16) ** 2 / 32) * cos(pi * (z - 16) / 4)",
    "exp(-sqrt(z))",
    "exp(sqrt(z) - z)",
    "exp(0.1 * sqrt(z) - 0.2 * z + 3)",
    "exp(-2 * log(z))",
    "exp(1 / z) / z ** 2",
    "exp(sin(z)) * 0.9 ** z",
    "0.5 ** z",
    "2 ** -z",
    "3 ** (1 - z)",
    "exp(-z) + z ** -3",
    "exp(-z) - z ** -3",
    "min(exp(-z), z ** -2)",
    "max(exp(-z), z ** -2)",
    "1 / (exp(z) + 1)",
    "z / exp(z)",
    "1 / (exp(0.5 * z) + z ** 4)",
    "tanh(z) / z ** 2",
    "sign(5 - z) * z ** -2",
    "floor(z / 2) / z ** 3",
    "round(10 * exp(-z)) / z ** 2",
    "(z % 3) * z ** -2",
    "where(z <= 10, 1, 0)",
    "where(z < 8, z, z ** -2)",
    "where(z % 2 == 0, z ** -2, -(z ** -3))",
    "where(z > 5 and z < 50, 1, exp(-z))",
    "where(not (z > 5), 7, 0)",
    "(z <= 4) * exp(-z)",
    "(z ** -2 + z ** -3) ** 8",
    "((z ** -2 + exp(-z)) ** 4) ** 3",
    "sqrt(z ** -4 + exp(-z))",
    "1 / (z + z ** 0.1) ** 2",
    "(z ** 2 + 1) ** -0.75",
    "exp(-0.0001 * z)",
    "1e100 * exp(-200 * z)",
]


def _values(text: str, z: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.abs(np.broadcast_to(evaluate(parse(text, {"z"}), {"z": z}, np), z.shape))


def _bound(m: Majorant, z: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.sum([t.C * np.exp(t.a * np.log(z) - t.b * z) for t in m.terms], axis=0)


@pytest.mark.parametrize("text", SUMMABLE)
def test_a_majorant_bounds_the_kernel(text):
    m = majorant(parse(text, {"z"}))
    z = m.start + np.concatenate([np.arange(3_000.0), np.floor(np.geomspace(3e3, 1e7, 500))])
    kernel = _values(text, z)
    known = np.isfinite(kernel)  # exp(z) leaves float64 beyond z = 709
    assert known[:600].all()
    underflow = 1e-250  # 1e58 times a subnormal exp(-z)
    assert (kernel[known] <= _bound(m, z)[known] * (1 + 1e-10) + underflow).all()


@pytest.mark.parametrize("n", [1, 40, 5_000])
@pytest.mark.parametrize("text", SUMMABLE)
def test_the_tail_sum_bounds_a_long_sum(text, n):
    m = majorant(parse(text, {"z"}))
    start = max(n, m.start)
    kernel = _values(text, np.arange(start + 1.0, start + 200_001.0))
    assert np.nansum(kernel) <= m.sum_beyond(n) * (1 + 1e-9)


@pytest.mark.parametrize("text", ["z ** -2", "exp(-0.3 * z)", "z ** -1.5", "0.5 ** z"])
def test_the_tail_sum_is_sharp_for_a_single_term(text):
    """Within two per cent of the truth at lag 100, else a norm would be no use."""
    long = np.sum(_values(text, np.arange(101.0, 10_000_001.0)))
    assert majorant(parse(text, {"z"})).sum_beyond(100) <= 1.02 * long


@pytest.mark.parametrize(
    "text", ["z ** -2 + exp(-z)", "z * exp(-z) + exp(-2 * z) * z ** 9", "1 + z + z ** 2"]
)
def test_one_term_bounds_the_sum_of_all(text):
    m = majorant(parse(f"({text}) * exp(-0.001 * z)", {"z"}))
    z = np.arange(1.0, 5_000.0)
    assert (_bound(m, z) <= _bound(Majorant((m.single(),)), z) * (1 + 1e-12)).all()


UNSUMMABLE = {
    "1": r"may behave like z \*\* 0",
    "z": r"may behave like z \*\* 1",
    "1 / z": r"may behave like z \*\* -1;",
    "z ** -1": r"may behave like z \*\* -1;",
    "z ** -0.5": r"may behave like z \*\* -0.5",
    "exp(0.1 * z)": r"may behave like exp\(0.1 \* z\)",
    "exp(-1 / z)": r"may behave like z \*\* 0",
    "exp(-log(z))": r"may behave like z \*\* -1",
    "sin(z)": r"may behave like z \*\* 0",
    "1 / log(z)": "cannot be shown",
    "1 / (z * log(z))": "cannot be shown",
    "1 / sin(z)": "cannot be shown",
    "exp(z ** 2)": "cannot be shown",
    "where(z > 10, 1, 0)": r"may behave like z \*\* 0",
    "where(sin(z) > 0, 1, z ** -2)": r"may behave like z \*\* 0",
    "tanh(z) - 1": r"may behave like z \*\* 0",
    "(-0.5) ** z": "cannot be shown",
    "exp(800 - z)": "cannot be shown",
    "(z - z) ** -2": "cannot be shown",
    "1e200 * exp(-400 * z) * (1e200 * exp(-400 * z))": "cannot be shown",
    "z + z ** 84 * exp(-0.000000001 * z)": "cannot be shown",
    "exp(-z ** 0.3)": "not in its tail before lag",
    "1 / (z ** 2 - 1000000 * z)": "not in its tail before lag",
    # Products of sums: the terms must not multiply without end.
    "(((z ** -2 + z ** -3) ** 8) ** 8 + 1) ** 8": r"may behave like z \*\* 0",
    "exp((((((z + 1) ** 8 + z) ** 8 + z) ** 8 + z) ** 8 + z) ** 8)": "cannot be shown",
}


@pytest.mark.parametrize("text", UNSUMMABLE)
def test_what_cannot_be_shown_summable_is_refused(text):
    began = time.process_time()
    with pytest.raises(BadInput, match=UNSUMMABLE[text]):
        majorant(parse(text, {"z"}))
    assert time.process_time() - began < 2
