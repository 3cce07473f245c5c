"""Certificates that were false once, each as a theorem about its class.

1  constants      a subexpression of numbers is its exact value, rounded once
2  kernel tails   the branch that a tail takes is decided in exact arithmetic
3  mass           no model has less mass than its certificate calls necessary
4  precision      a claim is about the precision in which the model is evaluated
5  arithmetic     a float64 model is never evaluated in float32
6  obstacles      what a floor refuses, no certificate reaches
"""

import dataclasses
import json
import math
from fractions import Fraction
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from memloci.circuits.design_to_model import design_to_model
from memloci.routes.fixed import Demand, kernel_layer

import memloci as ml
from memloci import pipeline
from memloci.approx.kernels.kernel_sums import fit
from memloci.approx.kernels.kernel_targets import kernel_target
from memloci.approx.kernels.lower_bounds import LEAST_CHARGE, chebyshev_mass_of, lower_bound
from memloci.approx.kernels.targets import SingleLag
from memloci.certify.certify import certify
from memloci.core.precision import PRECISIONS
from memloci.language.expression import Constant
from memloci.language.parse import parse
from memloci.synthesize import demand_of
from tests.language.exact import Unsure, exact
from tests.language.texts import NUMBERS, _grow

# -- 1. constants -----------------------------------------------------------------------------------------

constant_texts = st.recursive(st.sampled_from((*NUMBERS, "1e10", "12345.678", "0.3")), _grow, max_leaves=6)


def _unfolded(text: str):
    """The tree with every number as a variable, so that nothing is computed while it is read."""
    import ast
    import re

    numbers: dict[str, float] = {}

    def name(match: re.Match[str]) -> str:
        key = f"n{len(numbers)}"
        numbers[key] = math.pi if match[0] == "pi" else float(ast.literal_eval(match[0]))
        return key

    renamed = re.sub(r"(?<![A-Za-z0-9_.])(\d+\.?\d*(?:e[+-]?\d+)?|pi)(?![A-Za-z0-9_(])", name, text)
    return parse(renamed, {"z", *numbers}), numbers


@settings(deadline=None, max_examples=300)
@given(constant_texts)
def test_a_constant_is_its_exact_value_rounded_once(text):
    tree, numbers = _unfolded(text)
    try:
        value = exact(tree, numbers)
        read = parse(text, ())
    except (Unsure, ml.BadInput):
        return
    assert isinstance(read, Constant)
    with ctx.workprec(300):
        ulp = arb(math.ulp(read.value))
        assert not abs(value - arb(read.value)) > ulp / 2 * (1 + arb(2) ** -40)


def test_constants_that_were_misread():
    reads = {
        "sin(1e10)": float.fromhex("-0x1.f334c7896a4e3p-2"),
        "0.1 + 0.2 - 0.3": 2.0**-55,
        "floor(10 * 0.3)": 2.0,  # 0.3 is a little less than 3 / 10
        "1 / 3": 1 / 3,
        "cos(1e300)": None,
        "exp(1) - exp(1)": 0.0,
    }
    for text, value in reads.items():
        read = parse(text, ())
        assert isinstance(read, Constant)
        assert value is None or read.value == value, text


def test_a_jump_that_no_precision_decides_is_refused():
    with pytest.raises(ml.BadInput, match="too close"):
        parse("floor(sqrt(2) ** 2)", ())


def test_the_certificate_of_a_large_angle_holds():
    built = ml.compile(ml.Fixed(lags=[1], readout="sin(1e10) * x1"), route="t5")
    y = np.asarray(built.model(np.ones((4, 1))), dtype=float)
    assert abs(y[-1, 0] - math.sin(1e10)) <= built.certificate.bound
    assert any("sin(1e10) is read as" in text for text in built.certificate.assumptions)


def test_lag_tables_do_not_round_at_a_jump():
    """floor(10 * 0.3) is 2 in a lag too, whether the table is small or large."""
    few = {"name": "a", "values": [1, 2, 3]}
    many = {"name": "a", "values": list(range(1, 4_097))}
    for channel, extra in ((few, ""), (many, " + 0 * a0")):
        task = ml.Adaptive(
            channels=[channel], lags=[f"1 + floor(10 * (0.1 * min(a0, 3))){extra}"], readout="a1"
        )
        exactly = [1 + math.floor(10 * (Fraction(0.1) * min(a, 3))) for a in channel["values"]]
        assert task.lag_tables[0].cells == exactly


# -- 2. kernel tails --------------------------------------------------------------------------------------

CANCELLING = "0.1*z**4 + 0.2*z**4 - 0.30000000000000004*z**4 + 1e-3"


@pytest.mark.parametrize("relation", ["<", "<=", ">", ">="])
@pytest.mark.parametrize(
    "condition", [CANCELLING, f"-({CANCELLING})", "0.1*z + 0.2*z - 0.3*z + 1", "z ** 2 / 3 - 100 * z"]
)
def test_the_branch_of_a_tail_is_decided_exactly(condition, relation):
    """At every lag, far ones too, the majorant bounds the kernel, whose branch Fractions decide."""
    heavy = ml.Essential(kernels=[f"where({condition} {relation} 0, 1/z**1.05, exp(-z))"], readout="x1")
    target, tail = kernel_target(heavy, 0), heavy.tails[0]
    for z in (*range(tail.start, tail.start + 50), 10**4 + tail.start, 10**5 + tail.start):
        with ctx.workprec(200):
            bound = sum((t.C * arb(z) ** t.a * (-t.b * z).exp() for t in tail.terms), arb(0))
            value = _value_by_fractions(condition, relation, z)
            assert abs(target.value(z) - value) < 1e-40
            assert value <= bound * (1 + arb(2) ** -90)


def test_a_tail_that_begins_too_late_is_refused():
    with pytest.raises(ml.BadInput, match="not in its tail before lag"):
        ml.Essential(kernels=["where(z/3 - z*(1/3) - 1e-9 < 0, 1/z**1.05, exp(-z))"], readout="x1")


def _value_by_fractions(condition: str, relation: str, z: int) -> arb:
    tree, numbers = _unfolded(condition)
    value = _fraction(tree, {**{k: Fraction(v) for k, v in numbers.items()}, "z": Fraction(z)})
    holds = {"<": value < 0, "<=": value <= 0, ">": value > 0, ">=": value >= 0}[relation]
    return arb(z) ** arb(-1.05) if holds else arb(-z).exp()


def _fraction(f, point):
    from memloci.language.expression import Apply, Variable

    match f:
        case Variable(name):
            return point[name]
        case Apply("**", (x, y)):
            return _fraction(x, point) ** int(_fraction(y, point))
        case Apply(op, (x, y)):
            a, b = _fraction(x, point), _fraction(y, point)
            return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[op]()
        case Apply("neg", (x,)):
            return -_fraction(x, point)
    raise AssertionError(f)


def test_the_kernel_of_a_cancelling_tail_is_evaluated_exactly():
    task = ml.Essential(kernels=[f"where({CANCELLING} < 0, 1/z**1.05, exp(-z))"], readout="x1")
    y = np.asarray(task.target(np.ones((6_000, 1))))[:, 0]
    kernel = [float(_value_by_fractions(CANCELLING, "<", z)) for z in range(1, 6_000)]
    assert y[-1] == pytest.approx(math.fsum(kernel), rel=1e-9)


# -- 3. mass ----------------------------------------------------------------------------------------------


def test_an_unread_memory_needs_no_mass():
    built = ml.compile(ml.Fixed(lags=[1, 8], readout="x1"), route="one-layer-lin")
    assert built.certificate.mass_lower_bound is not None
    assert built.certificate.mass_lower_bound <= built.certificate.mass == 1.0


def _effective_mass(model, o: int, c: int) -> float:
    heads = model.layers[0].attention.heads
    W_E, W_V, W_O, W_U = (np.asarray(a, dtype=float) for a in (model.W_E, heads.W_V, heads.W_O, model.W_U))
    return float(np.abs(np.einsum("j,hjv,hvi,i->h", W_U[o], W_O, W_V, W_E[:, c])).sum())


CASES = [
    (dict(lags=[2], readout="x1"), 6),
    (dict(lags=[2], readout="1000 * x1"), 6),
    (dict(lags=[2], readout="0.001 * x1"), 6),
    (dict(lags=[1, 3], readout=["x2", "x1 - 0.25 * x2"]), 8),
    (dict(lags=[2, 3], readout="x1 + x2", channels=[{"name": "x", "range": [0, 1]}]), 8),
    (dict(lags=[3, 3], readout="x1 - x2"), 8),
    (dict(lags=[2, 4], readout="3 * x1", channels=[{"name": "x", "range": [-0.01, 0.01]}]), 8),
    (dict(lags=[2, 12], readout="x1 + 0 * x2"), 6),
]


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e4])
@pytest.mark.parametrize("fields, heads", CASES)
def test_no_model_has_less_mass_than_is_called_necessary(fields, heads, scale):
    """Also when embedding and readout are scaled, which moves mass between them and the heads."""
    task = ml.Fixed(**fields)
    demand = demand_of(task, 1e-2, "float64")
    assert isinstance(demand, Demand)
    targets = list(dict.fromkeys(target for _, _, target in demand.memories)) or [SingleLag(1)]
    model = design_to_model(
        kernel_layer(demand, fit("lin", targets, heads, precision="float64", rounding=64.0))
    )
    for grown in ("W_U", "W_E"):
        where = lambda m, grown=grown: (getattr(m, grown), m.layers[0].attention.heads.W_O)
        if grown == "W_E" and "x0" in str(task.readout):
            continue
        changed = eqx.tree_at(where, model, (where(model)[0] * scale, where(model)[1] / scale))
        found = certify(changed, task)
        if found.mass_lower_bound is not None:
            assert found.mass_lower_bound <= found.mass * (1 + 1e-12)


def test_the_chebyshev_bound_by_hand():
    """The same bound from the recurrence of Chebyshev polynomials, in Fractions, for joint targets."""
    taps, eps = {2: Fraction(3), 5: Fraction(-1, 2)}, Fraction(1, 100)
    rows = [[Fraction(1)], [Fraction(-1), Fraction(2)]]  # T_n(2 q - 1)
    best = Fraction(0)
    for n in range(2, 60):
        twice = [Fraction(0)] * (n + 1)
        for k, y in enumerate(rows[n - 1]):
            twice[k] -= 2 * y
            twice[k + 1] += 4 * y
        rows.append([t - (rows[n - 2][k] if k < n - 1 else 0) for k, t in enumerate(twice)])
        y = rows[n]
        q = [Fraction(k, 64) for k in range(65)]
        assert all(abs(sum((c * x**j for j, c in enumerate(y)), Fraction(0))) <= 1 for x in q)
        if n >= 4:
            best = max(best, abs(3 * y[1] - y[4] / 2) - eps * max(map(abs, y)))
    assert chebyshev_mass_of(taps, eps).mass == best


# -- 4. precision -----------------------------------------------------------------------------------------

AFFINE = ml.Fixed(lags=[1], readout="0.3 * x1 + 0.1 * x0")


def test_a_claim_about_another_precision_is_refused():
    model = ml.compile(AFFINE, route="t5").model
    with pytest.raises(ml.BadInput, match="astype"):
        ml.certify(model, AFFINE, precision="float64")
    moved = model.astype("float64")
    assert moved.architecture.precision == "float64" and moved.W_E.dtype == jnp.float64
    certificate = ml.certify(moved, AFFINE, precision="float64")
    x = np.linspace(-1, 1, 64)[:, None]
    assert np.abs(np.asarray(moved(x)) - np.asarray(AFFINE.target(x))).max() <= certificate.bound


def test_a_directory_that_claims_another_precision_is_refused(tmp_path):
    built = ml.compile(AFFINE, route="t5")
    ml.write(built, tmp_path)
    record = json.loads((tmp_path / "model.json").read_text())
    record["extra"]["precision"] = "float64"
    (tmp_path / "model.json").write_text(json.dumps(record))
    with pytest.raises(ml.BadInput, match="float64.*float32"):
        pipeline.verify(tmp_path)


def test_weights_of_another_precision_than_the_architecture_says_are_refused():
    model = ml.compile(AFFINE, route="t5").model
    mixed = eqx.tree_at(lambda m: m.W_U, model, model.W_U.astype(jnp.float64))
    with pytest.raises(ml.BadInput, match="a weight is float64"):
        ml.certify(mixed, AFFINE)


# -- 5. arithmetic ----------------------------------------------------------------------------------------


def test_a_float64_model_is_not_evaluated_without_float64():
    model = ml.compile(AFFINE, precision="float64", route="t5").model
    x = np.linspace(-1, 1, 16)[:, None]
    stream = model.stream()
    with jax.enable_x64(False):
        for evaluate in (
            lambda: model(x),
            lambda: stream(x[0]),
            lambda: stream.feed(x),
            lambda: model.stream()(x[0]),
        ):
            with pytest.raises(ml.BadInput, match="64-bit mode"):
                evaluate()
    assert np.asarray(model(x)).dtype == np.float64


# -- 6. obstacles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag, tolerance", [(2, 5e-4), (3, 0.0135)])
def test_what_was_refused_once_is_certified(lag, tolerance):
    plans = ml.plan(ml.Fixed(lags=[lag], readout="x1"), tolerance, routes=["one-layer-lin"])
    assert plans.met and plans.met[0].certificate.bound <= tolerance


@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_every_certificate_charges_the_least_price(rpe, precision):
    """Rounding is never charged with less than one rounding of the mass, so a floor at that price refuses nothing
    that a certificate meets."""
    u = PRECISIONS[precision].u
    for lag in (2, 3):
        task = ml.Fixed(lags=[lag], readout="x1")
        demand = demand_of(task, 1e-2, precision)
        assert isinstance(demand, Demand)
        floor = lower_bound(rpe, SingleLag(lag), price=LEAST_CHARGE * u).error
        for heads in (1, 2, 5):
            model = design_to_model(
                kernel_layer(demand, fit(rpe, SingleLag(lag), heads, precision=precision))
            )
            for p in (1.0, 2.0**-3):  # powers of 2 are multiplied without rounding
                W_O = model.layers[0].attention.heads.W_O
                rounded = jnp.exp2(jnp.round(jnp.log2(jnp.abs(W_O) + 1e-30))) * jnp.sign(W_O) * p
                for weights in (W_O, rounded):
                    changed = eqx.tree_at(lambda m: m.layers[0].attention.heads.W_O, model, weights)
                    found = certify(changed, task)
                    charged = float(found.bound) - float(found.exact_bound)
                    assert charged >= LEAST_CHARGE * u * _effective_mass(changed, 0, 0) * (1 - 1e-9)
                    assert found.bound >= floor or weights is rounded


def test_obstacles_that_are_no_theorems_say_so():
    plans = ml.plan(ml.Fixed(lags=[3, 17], readout="x1 * x2"), routes=["one-layer-lin"])
    assert plans.obstacles["one-layer-lin"].startswith("not tried: ")
    alone = ml.plan(ml.Fixed(lags=[17], readout="x1"), routes=["one-layer-lin"])
    assert alone.obstacles["one-layer-lin"].startswith("lag 17 with one lin layer")


def test_nothing_is_read_from_the_certificate_file(tmp_path: Path):
    """A certificate with a smaller bound is found to disagree, whichever field was changed."""
    built = ml.compile(AFFINE, route="t5")
    ml.write(built, tmp_path)
    claimed = dataclasses.replace(built.certificate, bound=built.certificate.bound / 2)
    (tmp_path / "certificate.json").write_text(claimed.to_json())
    assert pipeline.disagreement(tmp_path, pipeline.verify(tmp_path)) is not None
