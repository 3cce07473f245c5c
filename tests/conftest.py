"""Strict settings for every test: float64 on, no silent promotion, shapes checked at run time."""

import jax
import jax.random as jr
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Shape annotations are checked while the package is imported by a test; users do not pay for it.
install_import_hook("memloci", "beartype.beartype")


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
