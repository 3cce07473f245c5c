"""Strict settings for every test: float64 on, no silent promotion, shapes checked at run time."""

import jax
import jax.random as jr
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Annotations are checked at run time wherever arrays pass; users do not pay for it. Not in approx/ and
# expressions/, whose inner loops run over single balls and intervals: checking each would double the time.
install_import_hook(
    [f"memloci.{part}" for part in ("certifier.rounding", "certifier.signals", "certifier.readout")]
    + [f"memloci.{part}" for part in ("compiler", "model", "observer", "planner", "tasks")],
    "beartype.beartype",
)


@pytest.fixture
def getkey(request):
    """Fresh keys, the same in every run of the same test."""
    seed = sum(map(ord, request.node.nodeid))
    print(f"getkey seed: {seed}")  # pytest shows it when the test fails
    state = {"key": jr.key(seed)}

    def get():
        state["key"], key = jr.split(state["key"])
        return key

    return get
