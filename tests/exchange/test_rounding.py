"""What a restated certificate assumes of another runtime's library functions, measured: within 8 units of roundoff."""

import numpy as np
import pytest

from memloci.certify.rounding import LIBRARY
from tests.exchange.cases import REASON

torch = pytest.importorskip("torch", reason=REASON)

SAMPLES = 200_000
RANGES = {
    "exp": (-87.0, 88.0),
    "expm1": (-1.0, 0.0),
    "log": (1.0, 2.0**31),
    "sin": (-np.pi, np.pi),
    "cos": (-np.pi, np.pi),
}


@pytest.mark.parametrize("name", RANGES)
def test_pytorch_functions_are_within_the_units_that_are_assumed(name):
    lo, hi = RANGES[name]
    x = np.random.default_rng(7).uniform(lo, hi, SAMPLES).astype(np.float32)
    found = getattr(torch, name)(torch.from_numpy(x)).numpy().astype(float)
    exact = getattr(np, name)(x.astype(float))
    size = 1.0 if name in ("sin", "cos") else np.abs(exact)
    assert (np.abs(found - exact) / size).max() <= LIBRARY * 2.0**-24


def test_pytorch_is_exact_where_it_is_assumed():
    assert torch.exp(torch.zeros(1)).item() == 1.0 and torch.log(torch.ones(1)).item() == 0.0
