"""Strict settings for every test: float64 on, no silent promotion, shapes checked at run time."""

import os
import signal
from collections import Counter
from pathlib import Path

import jax
import jax.random as jr
import pytest
from jaxtyping import install_import_hook

os.environ.setdefault("MEMLOCI_CACHE", "off")  # nothing is written to the home of who runs the tests
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell's job in the background ignores Ctrl-C, and so would what
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests start and stop by it
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

MODEL = (
    Path(__file__).parent.parent / "memloci" / "model"
)  # its paths, inside programs, are compared with it instead
# Annotations are checked at run time wherever arrays pass; users do not pay for it. Not in approx/ and
# expressions/, whose inner loops run over single balls and intervals: checking each would double the time.
install_import_hook(
    [f"memloci.{part}" for part in ("certify.rounding", "certify.signals", "certify.readout")]
    + [f"memloci.{part}" for part in ("circuits", "observe", "routes", "synthesize", "tasks")]
    + [f"memloci.model.{part.stem}" for part in MODEL.glob("*.py")],
    "beartype.beartype",
)


_tests = {"run": 0}
MAPS = Path("/proc/self/maps")


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items):
    """Of a long test every sixteenth case runs with every change, all of them in `make test-all`."""
    met = Counter()
    for item in items:
        if item.get_closest_marker("long"):
            test = item.nodeid.partition("[")[0]
            if met[test] % 16:
                item.add_marker(pytest.mark.slow)
            met[test] += 1


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


@pytest.fixture(autouse=True)
def room_for_programs():
    """Every compiled program maps memory, and a process may have 65,530 maps: XLA ends with a fault beyond them."""
    yield
    _tests["run"] += 1
    if _tests["run"] % 40 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
