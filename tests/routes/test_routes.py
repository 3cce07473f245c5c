"""Each route, compiled and certified: what docs/theory.md promises of it holds for the weights."""

import jax.random as jr
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.pipeline import compile, measure, plan
from memloci.tasks.load import load_task
from memloci.tasks.short import Essential, Fixed
from memloci.tasks.task import Task
from memloci.tradeoffs.depth_table import depth_table

ORACLE = 1e-13


def build(task, route, tolerance=1e-3, precision="float32"):
    built = compile(task, tolerance=tolerance, precision=precision, route=route)
    assert built.plan.route == route
    return built


def assert_sound(built, **effort):
    seen = measure(
        built.model, built.task, key=jr.key(0), **{"sequences": 4, "steps": 8, "starts": 2, **effort}
    )
    assert seen.err_sup <= built.certificate.bound + ORACLE
    return seen.err_sup


@pytest.mark.long
@pytest.mark.parametrize("route", ["rotary", "t5", "depth-1"])
@pytest.mark.parametrize("name", ["delay", "distance"])
def test_gallery_tasks_meet_the_tolerance(name, route):
    built = build(load_task(name), route)
    assert built.certificate.met
    assert_sound(built)


@pytest.mark.long
@pytest.mark.parametrize("name", ["product", "parity", "majority", "multiplexer", "trigram", "echo"])
def test_readouts_of_every_kind_meet_the_tolerance(name):
    built = build(load_task(name), "rotary")
    assert built.certificate.met
    assert_sound(built)


def test_one_lin_layer_is_tight():
    """The worst input of a linear readout is known, and it attains nearly all of the bound."""
    built = build(Fixed(lags=[3], readout="x1"), "one-layer-lin", 1e-2, "float64")
    assert built.certificate.met
    assert assert_sound(built, length=2_000, starts=1) >= 0.9 * built.certificate.exact_bound


@pytest.mark.slow
def test_several_memories_share_the_heads_of_one_layer():
    built = build(Fixed(lags=[1, 2, 3], readout="x1 - x2 + 0.5 * x3"), "one-layer-lin", 1e-2, "float64")
    assert built.certificate.met and built.model.architecture.heads <= 24
    assert assert_sound(built, length=2_000, starts=1) >= 0.9 * built.certificate.exact_bound


def test_the_wall_is_an_obstacle_with_a_reason():
    plans = plan(
        Fixed(lags=[8], readout="x1"), 1e-3, "float32", routes=["one-layer-lin", "one-layer-log", "depth-4"]
    )
    assert not plans.met and not plans.missed
    for route in ("one-layer-lin", "one-layer-log", "depth-4"):
        assert "mass" in plans.obstacles[route] and "proved" in plans.obstacles[route]


@pytest.mark.slow
def test_depth_breaks_the_wall():
    """Lag 64, which one layer needs 2^250 of mass for, by exact shifts in float32."""
    built = build(Fixed(lags=[64], readout="x1"), "depth-1")
    a = built.model.architecture
    assert (a.layers, a.heads) == (64, 1) and built.certificate.met
    assert built.certificate.exact_bound < 1e-12 and built.certificate.mass == 1
    assert_sound(built)


@pytest.mark.slow
def test_depth_shares_its_chain_among_lags():
    one, three = (
        Fixed(lags=lags, readout=readout) for lags, readout in (([64], "x1"), ([4, 16, 64], "x1 + x2 + x3"))
    )
    for step in ("depth-1", "depth-2"):
        alone, together = (build(task, step, 1e-2, "float64") for task in (one, three))
        assert alone.certificate.met and together.certificate.met
        assert alone.model.architecture.layers == together.model.architecture.layers
    assert together.model.architecture.dim == alone.model.architecture.dim  # the other lags lie on the way
    assert together.certificate.mass == pytest.approx(alone.certificate.mass, rel=0.5)
    assert_sound(together)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_depth_table_of_lag_64_has_no_beaten_row(precision):
    rows = depth_table(Fixed(lags=[64], readout="x1"), precision)
    assert {row.layers for row in rows} >= {64, 32} and not any(a.beats(b) for a in rows for b in rows)
    assert min(row.bound for row in rows) < 1e-3 and all(row.exact_bound <= row.bound for row in rows)


@pytest.mark.slow
def test_lags_between_the_steps_branch_off():
    built = build(Fixed(lags=[3, 7], readout="x1 + x2"), "depth-2", 1e-2, "float64")
    assert built.certificate.met and built.model.architecture.layers == 4
    assert_sound(built)


@pytest.mark.parametrize("lags", [[1], [65_535], [1, 2, 4, 32_768, 65_534]])
def test_rotary_reaches_far(lags):
    built = build(Fixed(lags=lags, readout=[f"x{i + 1}" for i in range(len(lags))]), "rotary", 1e-6)
    assert built.certificate.met and built.certificate.bound <= 1e-6
    assert built.model.architecture.heads == len(lags)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_rotary_recalls_any_sixteen_lags_within_65536_positions(seed):
    lags = sorted(np.random.default_rng(seed).choice(np.arange(1, 65_536), 16, replace=False).tolist())
    built = build(Fixed(lags=lags, readout=[f"x{i + 1}" for i in range(16)]), "rotary", 1e-6)
    assert built.certificate.met and built.certificate.bound <= 1e-6


@pytest.mark.slow
def test_rotary_reads_nothing_before_the_start_and_is_right_at_every_length():
    built = build(Fixed(lags=[5], readout="x1"), "rotary", 1e-6)
    for n in (1, 2, 5, 6, 7, 100):
        assert (
            measure(built.model, built.task, key=jr.key(n), length=n, sequences=2, steps=4, starts=1).err_sup
            <= 1e-6
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernels", "route", "heads", "bound"),
    [
        (["exp(-0.3 * z)"], "one-layer-lin", 1, 1e-6),
        (["z ** -2"], "one-layer-log", 1, 1e-6),
        (["exp(-0.3 * z)", "0.5 * exp(-1.5 * z)"], "one-layer-lin", 2, 1e-6),
    ],
)
def test_kernels_that_heads_have_are_compiled_as_such(kernels, route, heads, bound):
    readout = " + ".join(f"x{i + 1}" for i in range(len(kernels)))
    built = build(Essential(kernels=kernels, readout=readout), route, 1e-5, "float64")
    assert built.certificate.met and built.model.architecture.heads == heads
    assert built.certificate.exact_bound <= bound
    assert_sound(built, length=300)


@pytest.mark.slow
def test_lin_heads_fit_a_heavy_tail():
    built = build(load_task("power-law"), "one-layer-lin", 1e-3, "float64")
    assert built.certificate.met and built.model.architecture.heads <= 16
    assert_sound(built, length=600)


def test_routes_for_single_lags_refuse_kernels():
    plans = plan(load_task("power-law"), 1e-3, "float32", routes=["rotary", "t5", "depth-1"])
    assert not plans.met and not plans.missed
    for route in ("rotary", "t5"):
        assert "it recalls single lags, and z^-2 spreads over all of them" in plans.obstacles[route]
    assert "no single lag is recalled" in plans.obstacles["depth-1"]


def test_plans_are_ranked_by_cost():
    plans = plan(load_task("delay"), 1e-3, "float32", routes=["depth-1", "t5", "rotary"])
    assert len(plans) == 3 and [p.cost for p in plans] == sorted(p.cost for p in plans)
    assert all(p.why for p in plans)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"precision": "float128"}, "precision 'float128' is unknown"),
        ({"precision": "bfloat16"}, "precision 'bfloat16': models are built in float64 or float32"),
        (
            {"routes": ["nosuch"]},
            "route 'nosuch' is unknown; the routes are one-layer-lin, one-layer-log, rotary",
        ),
    ],
)
def test_bad_requests_are_refused(options, match):
    with pytest.raises(BadInput, match=match):
        plan(load_task("delay"), **options)


def test_what_cannot_be_planned_is_refused():
    plans = plan(load_task("pointer"), routes=["depth-1"])
    assert "the same lags everywhere" in plans.obstacles["depth-1"]
    with pytest.raises(BadInput, match="no route serves this task: depth-1: its heads look at the same lags"):
        compile(load_task("pointer"), route="depth-1")
    with pytest.raises(BadInput, match="callable"):
        plan(Fixed(lags=[2], readout=lambda x1: x1, lipschitz={"x1": 1.0}))


def random_task(rng: np.random.Generator) -> Task:
    M = int(rng.integers(1, 4))
    lags = sorted(rng.choice(np.arange(1, 24), M, replace=False).tolist())
    a, b = rng.uniform(-1, 1, 2).round(3).tolist()
    names = [f"x{i + 1}" for i in range(M)]
    readouts = [
        " + ".join(f"{a} * {name}" for name in names),
        f"{a} * x1 * {names[-1]} + {b} * x0",
        f"max({names[0]}, {names[-1]}) - {b}",
        f"tanh({a} * x1) + {names[-1]}",
    ]
    channels = [{"name": "x", "range": [-1, 1]}]
    if rng.random() < 0.3:
        readouts = [f"where(x1 > {a}, 1, {names[-1]})", f"x1 * {names[-1]}"]
        channels = [{"name": "x", "values": [-1, 0.5, 2]}]
    return Fixed(lags=lags, readout=str(rng.choice(readouts)), channels=channels)


def assert_random_is_sound(seed):
    rng = np.random.default_rng(seed)
    task, precision = random_task(rng), str(rng.choice(["float32", "float64"]))
    route = str(rng.choice(["one-layer-lin", "rotary", "t5", "depth-1", "depth-2", "depth-3", "depth-4"]))
    plans = plan(task, float(rng.choice([1e-1, 1e-2, 1e-3])), precision, routes=[route])
    for p in (*plans.met, *plans.missed):
        seen = measure(p.model, task, key=jr.key(seed), sequences=4, steps=8, starts=2)
        assert seen.err_sup <= p.certificate.bound + ORACLE, (route, precision, task.to_dict())
    return len(plans.met) + len(plans.missed)


@pytest.mark.long
@pytest.mark.parametrize("seed", [4, 0, 1, 2, 3])  # the first is the one that runs with every change
def test_no_input_beats_the_certificate_of_a_random_task(seed):
    assert_random_is_sound(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))  # in parts of 25, so that the workers share them
def test_no_input_beats_any_of_500_certificates(first):
    built, seed = 0, first
    while built < 25:
        built, seed = built + assert_random_is_sound(seed), seed + 1


def test_a_far_lag_is_planned_in_a_moment():
    """What takes the square of the lag is not tried, and says so."""
    plans = plan(Fixed(lags=[300_000], readout="x1"), tolerance=1e-3)
    assert plans[0].route == "rotary"
    assert "heads are fitted to lags up to 1,024" in plans.obstacles["one-layer-lin"]
