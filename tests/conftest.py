"""Strict settings for every test: float64 on, no silent promotion, shapes checked at run time."""

import ctypes
import gc
import os
import signal
from collections import Counter
from pathlib import Path

import jax
import jax.random as jr
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from tests.thorough import THOROUGH, few

QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_use_fusion_emitters=false",
)
if not THOROUGH:
    # Compilers take most of the time of small models. The theorems hold for every order of operations, so `make test`
    # compiles without optimisation, in half the time, and `make test-all` as users do.
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *QUICK_TO_COMPILE]).strip()
os.environ.setdefault("MEMLOCI_CACHE", "off")  # nothing is written to the home of who runs the tests
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(
        threads, "1"
    )  # each core has a worker already, and threads that wait for a core spin
# Without bytecode every worker, and every command that a test starts, would read all sources once more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's job in the background ignores Ctrl-C, and so would the processes that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

MODEL = (
    Path(__file__).parent.parent / "memloci" / "model"
)  # without its paths/, which are compared with it instead
# Annotations are checked at run time wherever arrays pass; users do not pay for it. Not in approx/, language/ and
# certify/, whose inner loops run over single numbers: checking each took a twentieth of all tests.
install_import_hook(
    [f"memloci.{part}" for part in ("circuits", "observe", "routes", "synthesize", "tasks")]
    + [f"memloci.model.{part.stem}" for part in MODEL.glob("*.py")],
    "beartype.beartype",
)


# The same examples in every run: a test that fails once in a hundred runs helps nobody to find the reason.
settings.register_profile("repeatable", max_examples=few(100), derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

STATUS = Path("/proc/self/statm")
MOST_PAGES = (9 << 27) // os.sysconf(
    "SC_PAGE_SIZE"
)  # 1.125 GiB, for one test may add a third of one; a laptop with 8 GiB runs two workers and more


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items):
    """Of a long test every n-th case runs with every change, all of them in `make test-all`."""
    met = Counter()
    for item in items:
        if marker := item.get_closest_marker("long"):
            test = item.nodeid.partition("[")[0]
            if met[test] % (marker.args[0] if marker.args else 16):
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
def drop_compiled_programs():
    """Compiled programs are kept for ever and map memory each: drop them all when a worker has grown to 1.125 GiB."""
    yield
    if STATUS.exists() and int(STATUS.read_text().split()[1]) > MOST_PAGES:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # freed pages stay with the process otherwise
