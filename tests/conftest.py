"""Strict settings for every test: float64 on, no silent promotion, shapes checked at run time."""

from collections import Counter
from pathlib import Path

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


# Ten seconds and more each, beside others of their kind that run with every change.
LONG = {
    "test_a_batch",
    "test_a_chain_attains_the_bound_and_one_layer_less_fails_where_it_must",
    "test_a_fresh_model_is_of_unit_size_and_repeats_from_its_key",
    "test_a_power_that_grows_takes_the_blocks",
    "test_a_saved_model_is_certified_anew",
    "test_an_affine_random_model_is_its_own_task",
    "test_compiled_models_give_the_plain_numbers_up_to_what_is_neglected",
    "test_depth_breaks_the_wall",
    "test_gradients_are_finite_and_every_parameter_matters",
    "test_measure_records_it_and_is_deterministic",
    "test_memory_is_linear",
    "test_micro_batches_do_not_matter",
    "test_every_length",
    "test_no_input_beats_the_certificate_of_a_random_task",
    "test_no_input_beats_the_certificate_of_disturbed_weights",
    "test_no_input_beats_the_certificate_of_random_tables",
    "test_no_input_beats_the_certificate_of_random_weights",
    "test_power_laws_have_a_theorem_too",
    "test_rotary_reads_nothing_before_the_start_and_is_right_at_every_length",
    "test_the_bound_holds_and_has_the_term",
    "test_the_difference_is_at_most_the_mass_outside_the_places_that_are_kept",
    "test_the_gains_and_their_slope_near_p_0",
    "test_the_heads_have_the_kernel",
    "test_the_recurrence_costs_rounding",
    "test_the_recurrence_is_covered",
    "test_the_shortest_sequences_are_right",
}
_tests = {"run": 0}
MAPS = Path("/proc/self/maps")


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items):
    """Of a long test every fourth case runs with every change, all of them in `make test-all`."""
    met = Counter()
    for item in items:
        name = item.originalname if isinstance(item, pytest.Function) else item.name
        if name in LONG and met[item.path, name] % 4:
            item.add_marker(pytest.mark.slow)
        met[item.path, name] += 1


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
