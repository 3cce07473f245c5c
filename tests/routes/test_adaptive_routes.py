"""Adaptive memories compiled and certified: pointers of any reach, chains at the capacity bound, the paper's sums."""

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.pipeline import Built, certify, compile, measure, plan
from memloci.routes.capacity import capacity, obstacle
from memloci.routes.registry import ROUTES
from memloci.tasks.inputs import sample
from memloci.tasks.load import load_task
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.short import Adaptive
from memloci.tasks.task import Task
from memloci.tradeoffs.depth_table import depth_table

from .adaptive_tasks import random_adaptive

ORACLE = 1e-13
DRAWN = 2_048  # tokens
FIXED_KERNELS = [
    "one-layer-lin",
    "one-layer-log",
    "t5",
    "bias-table",
    "depth-1",
    "depth-2",
    "depth-3",
    "depth-4",
]
SUMS = [
    "lin-tmx",
    "lin-dp",
    "log-tmx",
    "log-dp",
    "lin-dp-deep",
    "log-dp-deep",
    "lin-tmx-direct",
    "lin-dp-direct",
]
SERVING = ["rotary", "rotary-deep", "chain", *SUMS, "match"]
V = {"name": "v", "range": [-1, 1]}
TOLERANCES = {"partly-nested": 1e-3}  # the readouts of the others are linear
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("nested-2", "nested-3")]
ALL = ["pointer", "pointer-far", "switch", "nested-1", "partly-nested", *SLOW]


def pointer(*letters: float, lags: str | list[str] = "a0", readout: str = "v1", **payload) -> Task:
    return Adaptive(
        channels=[{"name": "a", "values": list(letters)}, {**V, **payload}],
        lags=lags if isinstance(lags, list) else [lags],
        readout=readout,
    )


def build(task: Task, route: str, tolerance: float, precision: str = "float32") -> Built:
    built = compile(task, tolerance=tolerance, precision=precision, route=route)
    assert built.plan.route == route
    return built


@lru_cache
def from_gallery(name: str) -> Built:
    task = load_task(name)
    return build(task, "rotary", TOLERANCES.get(name, 1e-6))


@eqx.filter_jit
def _outputs(model, x):
    return jax.vmap(model)(x)


def error(built_or_model, task: Task, length: int, sequences: int = 16) -> float:
    """The largest error over random sequences; all models of one architecture share a compilation."""
    model = built_or_model.model if isinstance(built_or_model, Built) else built_or_model
    # Tokens are independent: cut from one draw, so that every length shares the programs that draw.
    tokens = np.asarray(sample(task, jr.key(length), DRAWN, model.W_E.dtype))
    x = tokens[: sequences * length].reshape(sequences, length, task.d)
    y = np.stack([np.asarray(task._target(one.astype(float), np)) for one in x])
    return float(np.abs(np.asarray(_outputs(model, jnp.asarray(x))) - y).max())


# -- rotary -----------------------------------------------------------------------------------------------


@pytest.mark.long(2)
@pytest.mark.parametrize("name", ALL)
def test_rotary_meets_the_tolerance_with_the_layers_of_the_theorem(name):
    """L = K + 1 + 1{M >= K + 1}, and one head per memory of a level."""
    built = from_gallery(name)
    task, a = built.task, built.model.architecture
    assert built.certificate.met and built.certificate.bound <= TOLERANCES.get(name, 1e-6)
    assert built.certificate.exact_bound <= built.certificate.bound
    assert a.layers == task.K + 1 + (task.M >= task.K + 1)
    assert a.heads == max(task.levels.count(level) for level in task.levels)


@pytest.mark.parametrize("name", ["nested-1"])
def test_no_input_beats_the_certificate_of_a_gallery_task(name):
    built = from_gallery(name)
    T = int(max(built.task.lag_bounds))
    seen = measure(built.model, built.task, key=jr.key(0), length=2 * T + 4, sequences=2, steps=8, starts=2)
    assert seen.err_sup <= built.certificate.bound + ORACLE


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["pointer", "pointer-far", "switch", "nested-2", "nested-3", "partly-nested"]
)
def test_no_input_beats_the_certificate_of_the_other_gallery_tasks(name):
    built = from_gallery(name)
    seen = measure(built.model, built.task, key=jr.key(0), sequences=4, steps=8, starts=2)
    assert seen.err_sup <= built.certificate.bound + ORACLE


def test_the_shortest_sequences_are_right():
    """Blank memories, the first lag that is not, and the sink at position 0: T = 3, so all happens within 4 positions."""
    task = pointer(1, 2, 3)
    built = build(task, "rotary", 1e-6)
    assert built.certificate.met
    for length in (1, 4):
        assert error(built, task, length) <= built.certificate.bound + ORACLE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pointer", "nested-1"])
def test_the_shortest_sequences_of_the_gallery_are_right(name):
    built = from_gallery(name)
    T = int(max(built.task.lag_bounds))
    for length in (1, 2, 3, T, T + 1):
        assert error(built, built.task, length) <= built.certificate.bound + ORACLE


def test_one_model_serves_every_length():
    """Pointers have no positions to run out of: what is compiled does not know how long sequences are."""
    built = from_gallery("pointer")
    for length in (24, 700):
        assert (
            error(built, built.task, length, sequences=16 if length == 24 else 2)
            <= built.certificate.bound + ORACLE
        )


def test_far_lags_cost_no_parameters_and_no_accuracy():
    near = build(pointer(2, 3, 4, 5), "rotary", 1e-6)
    far = build(pointer(512, 1024, 2048, 4096), "rotary", 1e-6)
    assert near.model.parameter_count == far.model.parameter_count
    assert near.certificate.met and far.certificate.met


def test_sixteen_letters_reach_4096_positions_in_float32():
    built = build(pointer(*range(256, 4097, 256)), "rotary", 1e-6)
    assert built.certificate.met and built.task.lag_bounds == (4096,)


def test_lag_1_comes_from_the_predecessor():
    """Alone, beside other lags, and nested."""
    for task in (pointer(1), pointer(1, 2), pointer(1, 3, lags=["a0", "a1"], readout="v2")):
        built = build(task, "rotary", 1e-5)
        assert built.certificate.met
    assert error(built, task, 8) <= built.certificate.bound + ORACLE


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_letters_that_are_no_numbers_of_the_precision(precision):
    task = pointer(-0.3, 0.1, 0.7, lags="where(a0 > 0, 2, 5)")
    built = build(task, "rotary", 1e-6, precision)
    assert built.certificate.met
    if precision == "float32":
        assert error(built, task, 12) <= built.certificate.bound + ORACLE


# -- levels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "levels"),
    [("nested-1", 1), ("partly-nested", 1), pytest.param("nested-2", 2, marks=pytest.mark.slow)],
)
def test_levels_carry_errors_far_below_their_margins(name, levels):
    """A staircase is flat for a quarter of the gap around each symbol, and the gap is 1."""
    found = from_gallery(name).certificate.levels
    assert len(found) == levels and [level.memories for level in found] == [(i + 1,) for i in range(levels)]
    for level in found:
        assert level.E < 1e-5 and level.margin == pytest.approx(0.25, abs=0.02)


def test_tasks_without_nesting_have_no_levels():
    assert from_gallery("pointer").certificate.levels == ()


def test_the_margin_follows_the_gap():
    built = build(
        pointer(0.5, 1.0, 1.5, lags=["2 * a0", "2 * a0 + 2 * a1"], readout="v2"), "rotary", 1e-6, "float64"
    )
    (level,) = built.certificate.levels
    assert built.certificate.met and level.margin == pytest.approx(0.125, abs=0.01)


@pytest.mark.long(3)
@pytest.mark.parametrize("route", ["rotary", "chain", "lin-tmx"])
def test_a_lag_that_is_a_symbol_has_a_margin(route):
    """Other coordinates may hold the same number as the symbol; its own must be found."""
    built = build(pointer(1, 2, lags=["a0", "a1"], readout="v2"), route, 1e-3, "float64")
    (level,) = built.certificate.levels
    assert built.certificate.met and 0.24 <= level.margin <= 0.31  # a gate is flat a little longer


def test_a_level_outside_its_margin_is_named():
    built = from_gallery("nested-1")
    a1 = built.plan.circuit.slots.index("a1")
    place = lambda m: m.layers[1].attention.heads.W_O
    damaged = eqx.tree_at(place, built.model, place(built.model).at[:, a1].multiply(1.3))
    found = certify(damaged, built.task, tolerance=1e-6)
    assert found.status == "missed"
    assert [level.memories for level in found.levels if not level.E < level.margin] == [(1,)]


# -- changed weights --------------------------------------------------------------------------------------

DAMAGES = {
    "query": lambda m: m.layers[1].attention.heads.score.W_Q,
    "key": lambda m: m.layers[1].attention.heads.score.W_K,
    "values": lambda m: m.layers[1].attention.heads.W_V,
    "table": lambda m: m.layers[0].ffn.A,
    "steps": lambda m: m.layers[0].ffn.c,
    "predecessor": lambda m: m.layers[0].attention.heads.score.W_Q,
    "embedding": lambda m: m.W_E,
    "readout": lambda m: m.W_U,
}


@pytest.mark.long(3)
@pytest.mark.parametrize("factor", [0.5, 1.01, -1.0])
@pytest.mark.parametrize("what", DAMAGES)
def test_changed_weights_are_caught_or_harmless(what, factor):
    built, place = from_gallery("pointer"), DAMAGES[what]
    damaged = eqx.tree_at(place, built.model, place(built.model) * factor)
    found = certify(damaged, built.task, tolerance=1e-6)
    err = error(damaged, built.task, 24)
    assert err <= found.bound + ORACLE and (err <= 1e-6 or found.status == "missed")


def test_one_changed_number_of_a_table_is_caught_or_harmless():
    """A larger cosine only sharpens a pointer; others turn it away."""
    built, place, statuses = from_gallery("pointer"), DAMAGES["table"], set()
    for seed in range(8):
        rng = np.random.default_rng(seed)
        A = np.array(place(built.model))
        i, k = rng.choice(np.argwhere(np.abs(A) > 1))
        A[i, k] += rng.choice([-1, 1]) * 2.0 ** rng.integers(-6, 7)
        damaged = eqx.tree_at(place, built.model, jnp.asarray(A))
        found = certify(damaged, built.task, tolerance=1e-6)
        assert error(damaged, built.task, 24) <= found.bound + ORACLE
        statuses.add(found.status)
    assert "missed" in statuses


# -- chain ------------------------------------------------------------------------------------------------


def test_a_chain_attains_the_capacity_bound():
    """L H d_v = T d: with one number less, no weights at all could do it."""
    task = load_task("pointer")
    built = build(task, "chain", 1e-3)
    a = built.model.architecture
    assert built.certificate.met and a.layers * a.heads * a.value_dim == capacity(task) == 8
    assert obstacle(a, task) is None and obstacle(a.model_copy(update={"layers": a.layers - 1}), task)
    assert error(built, task, 20) <= built.certificate.bound + ORACLE


@pytest.mark.slow
def test_a_chain_for_nested_lags_takes_a_layer_more_per_level():
    task = pointer(1, 2, lags=["a0", "a0 + a1"], readout="v2")
    built = build(task, "chain", 1e-3)
    assert built.certificate.met and built.model.architecture.layers == 4 + 1
    assert error(built, task, 20) <= built.certificate.bound + ORACLE


def test_a_chain_serves_a_readout_that_is_nearly_linear():
    """f bends by less than the tolerance, so it needs no neurons; the choice still comes before it."""
    plans = plan(pointer(1, 2, readout="tanh(0.2 * v1) + v1"), 1e-2, routes=["chain"])
    assert plans.met and not plans.obstacles


def test_a_chain_has_an_end():
    plans = plan(pointer(1, 300), 1e-3, routes=["chain"])
    assert "at most 256 layers" in plans.obstacles["chain"]


# -- lin and log without normalisation --------------------------------------------------------------------


@pytest.mark.slow
def test_lin_sums_reach_lag_5_in_float64():
    built = build(pointer(1, 2, 3, 4, 5), "lin-tmx", 1e-3, "float64")
    a = built.model.architecture
    assert built.certificate.met and a.heads <= 16 and (a.layers, a.normalisation) == (2, "none")
    assert error(built, built.task, 20) <= built.certificate.bound + ORACLE


@pytest.mark.slow
def test_a_dot_product_does_the_same_with_more_parameters():
    tmx, dp = (build(pointer(1, 2, 3), route, 1e-3, "float64") for route in ("lin-tmx", "lin-dp"))
    assert dp.model.parameter_count > tmx.model.parameter_count and dp.certificate.met
    x = np.asarray(sample(tmx.task, jr.key(0), 20, jnp.dtype("float64")))[None]
    rounding = tmx.certificate.bound - tmx.certificate.exact_bound
    assert (
        np.abs(np.asarray(_outputs(tmx.model, x)) - np.asarray(_outputs(dp.model, x))).max() <= 2 * rounding
    )


def test_nested_lin_sums():
    """Presence and symbol arrive with the error of a sum, and neither may reach the next lag."""
    task = pointer(1, 2, lags=["a0", "3 - a1"], readout="v2")
    built = build(task, "lin-tmx", 1e-3, "float64")
    assert built.certificate.met
    assert error(built, task, 12) <= built.certificate.bound + ORACLE


@pytest.mark.slow
def test_log_sums_reach_lag_3_in_float64():
    built = build(pointer(1, 2, 3), "log-tmx", 1e-3, "float64")
    assert built.certificate.met
    seen = measure(built.model, built.task, key=jr.key(0), length=24, sequences=4, steps=8, starts=2)
    assert seen.err_sup <= built.certificate.bound + ORACLE


@pytest.mark.parametrize(("letters", "precision"), [((1, 2, 3, 4), "float32"), (range(1, 10), "float64")])
def test_the_wall_of_sums_is_an_obstacle_with_a_reason(letters, precision):
    plans = plan(pointer(*letters), 1e-3, precision, routes=["lin-tmx"])
    assert "whatever the heads (proved)" in plans.obstacles["lin-tmx"]


# -- one memory per layer, and lags read off the token ------------------------------------------------------

UNRELATED = Adaptive(
    channels=[{"name": "a", "values": [1, 2, 3]}, {"name": "b", "values": [1, 2, 3]}, V],
    lags=["a0", "4 - b0", "1 + (a0 * b0) % 3"],
    readout=["v1", "v2 + v3"],
)


@pytest.mark.parametrize(
    ("wide", "deep"),
    [("rotary", "rotary-deep"), pytest.param("lin-dp", "lin-dp-deep", marks=pytest.mark.slow)],
)
def test_depth_buys_heads_and_width(wide, deep):
    """Proposition 4.5: M + 1 layers, each with the heads and the neurons of one memory in place of all."""
    both = [build(UNRELATED, route, 1e-3, "float64") for route in (wide, deep)]
    flat, tall = (built.model.architecture for built in both)
    assert (flat.layers, tall.layers) == (2, UNRELATED.M + 1)
    assert flat.heads == 3 * tall.heads and flat.width > tall.width
    for built in both:
        assert built.certificate.met
        assert error(built, UNRELATED, 8) <= built.certificate.bound + ORACLE


@pytest.mark.slow
def test_nested_memories_go_one_by_one_too():
    """Theorem 4.4: what is nested waits for its parents, wherever they are recalled."""
    task = load_task("partly-nested")
    built = build(task, "rotary-deep", 1e-3)
    assert built.certificate.met and built.model.architecture.layers == task.M + 1
    assert error(built, task, 24) <= built.certificate.bound + ORACLE


def test_one_memory_per_layer_is_refused_where_it_changes_nothing():
    found = plan(load_task("nested-1"), routes=["rotary-deep", "lin-dp-deep"]).obstacles
    assert all("every level has a single memory" in reason for reason in found.values()) and len(found) == 2


def test_a_lag_that_is_not_affine_in_the_token_is_no_query():
    (reason,) = plan(UNRELATED, routes=["lin-dp-direct"]).obstacles.values()
    assert "the lag of memory 3, 1 + (a0 * b0) % 3, is not an affine function" in reason


@pytest.mark.parametrize(
    ("lag", "slopes"),
    [
        ("a0", {"a0": 1}),
        ("3 * a0 - b0 + 2", {"a0": 3, "b0": -1}),
        ("a0 * b0", None),
        ("where(a0 > 2, 2, 1)", None),
    ],
)
def test_tables_know_whether_they_are_affine(lag, slopes):
    task = Adaptive(
        channels=[{"name": "a", "values": [1, 2, 4]}, {"name": "b", "values": [1, 2, 3]}, V],
        lags=[lag],
        readout="v1",
    )
    (table,) = task.recalls
    assert isinstance(table, LagTable)
    found = table.affine
    assert (found is None) == (slopes is None) and (found is None or found[0] == slopes)


@pytest.mark.slow
def test_the_depth_table_of_lags_of_content_has_no_beaten_row():
    rows = depth_table(UNRELATED, "float64", heads=(4,))
    assert {"lin-dp", "lin-dp-deep"} <= {row.route for row in rows}
    assert not any(a.beats(b) for a in rows for b in rows)
    by_route = {row.route: row for row in rows}
    wide, deep = by_route["lin-dp"], by_route["lin-dp-deep"]
    assert (wide.layers, wide.heads) == (2, 12) and (deep.layers, deep.heads) == (4, 4)
    assert deep.width < wide.width and max(wide.bound, deep.bound) < 1e-3


# -- requests ---------------------------------------------------------------------------------------------


def test_routes_with_fixed_kernels_refuse_pointers_and_say_why():
    """The routes that serve a pointer are exactly those that are not refused here."""
    plans = plan(load_task("pointer"), routes=FIXED_KERNELS)
    assert not plans.met and not plans.missed and list(plans.obstacles) == FIXED_KERNELS
    for reason in plans.obstacles.values():
        assert reason == "its heads look at the same lags everywhere, and memory 1 is at lag a0"
    others = [name for name in ROUTES if name not in FIXED_KERNELS]
    assert others == SERVING
    (reason,) = plan(load_task("pointer"), routes=["match"]).obstacles.values()
    assert reason.startswith("memory 1 is at lag a0, a lag that depends on the input")


def test_routes_with_pointers_refuse_tasks_that_have_none():
    plans = plan(load_task("delay"), routes=["chain", *SUMS])
    assert not plans.met and not plans.missed and len(plans.obstacles) == 1 + len(SUMS)
    assert all("no lag depends on the input" in reason for reason in plans.obstacles.values())


def test_a_callable_readout_is_refused():
    task = Adaptive(
        channels=[{"name": "a", "values": [1, 2]}, V], lags=["a0"], readout=lambda v1: v1, lipschitz={"v1": 1}
    )
    with pytest.raises(BadInput, match="callable"):
        plan(task)


def test_symbols_in_the_readout_beside_far_letters():
    """How far the letters of one channel reach says nothing of the margin of another's."""
    channels = [{"name": "a", "values": [45, 55]}, {"name": "w", "values": [-1, 0.5, 2]}]
    task = Adaptive(channels=channels, lags=["a0 - 40"], readout="where(w1 > 0.25, w1, 0.205)")
    assert plan(task, 0.1, routes=["rotary"]).met


def test_two_memories_that_are_always_one_token():
    """Two coordinates hold the same number; each still serves its own variable."""
    task = pointer(1, 2, lags=["a0", "a0"], readout="max(v2, -0.5 * v1)")
    assert plan(task, 1e-2, routes=["rotary"]).met


# -- soundness --------------------------------------------------------------------------------------------


def assert_random_is_sound(seed: int) -> int:
    drawn = random_adaptive(seed)
    try:
        plans = plan(drawn.task, drawn.tolerance, drawn.precision, routes=[drawn.route])
    except BadInput:  # a readout that no ReLU layer has
        return 0
    for p in (*plans.met, *plans.missed):
        seen = measure(
            p.model, drawn.task, key=jr.key(seed), length=drawn.length, sequences=4, steps=8, starts=2
        )
        assert seen.err_sup <= p.certificate.bound + ORACLE, f"seed {seed}: {drawn}"
    return len(plans.met) + len(plans.missed)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1005, 1024, 1025, 1087, 1089, 1116])  # a few routes, and fast
def test_no_input_beats_the_certificate_of_a_random_task(seed):
    assert_random_is_sound(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))  # in parts of 15, so that the workers share them
def test_no_input_beats_any_of_300_certificates(first):
    built, seed = 0, first
    while built < 15:
        built, seed = built + assert_random_is_sound(seed), seed + 1
