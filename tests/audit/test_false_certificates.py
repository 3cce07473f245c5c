"""Certificates that were false once: the class that each belonged to, as a theorem.

1  constants      a subexpression of numbers is its exact value, rounded once
2  kernel tails   the branch that a tail takes is decided in exact arithmetic
3  mass           no model has less mass than its certificate calls necessary
4  precision      a claim is about the precision in which the model is evaluated
5  arithmetic     a float64 model is never evaluated in float32
6  obstacles      what a floor refuses, no certificate reaches

The cases in which they were found are in test_violations.py.
"""

import ast
import dataclasses
import json
import math
import re
import shutil
from fractions import Fraction
from functools import cache
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

import memloci as ml
from memloci import pipeline
from memloci.approx.kernels.kernel_sums import fit
from memloci.approx.kernels.kernel_targets import recall_target
from memloci.approx.kernels.lower_bounds import LEAST_CHARGE, chebyshev_mass_of, lower_bound
from memloci.approx.kernels.targets import SingleLag
from memloci.circuits.compile import compile_circuit
from memloci.core.precision import EVALUATED, PRECISIONS
from memloci.core.proved import Proved
from memloci.language.expression import Apply, Constant, Variable
from memloci.language.parse import parse
from memloci.model.transformer import Transformer
from memloci.routes.one_layer import kernel_circuit
from memloci.synthesize import request_of
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from tests.language.exact import Unsure, exact
from tests.language.texts import NUMBERS, _grow
from tests.thorough import few

# -- 1. constants -----------------------------------------------------------------------------------------

constant_texts = st.recursive(st.sampled_from((*NUMBERS, "1e10", "12345.678", "0.3")), _grow, max_leaves=6)


def _unfolded(text: str):
    """The tree with every number as a variable, so that nothing is computed while it is read."""
    numbers: dict[str, float] = {}

    def name(match: re.Match[str]) -> str:
        key = f"n{len(numbers)}"
        numbers[key] = math.pi if match[0] == "pi" else float(ast.literal_eval(match[0]))
        return key

    renamed = re.sub(r"(?<![A-Za-z0-9_.])(\d+\.?\d*(?:e[+-]?\d+)?|pi)(?![A-Za-z0-9_(])", name, text)
    return parse(renamed, {"z", *numbers}), numbers


@settings(deadline=None, max_examples=few(300))
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


@eqx.filter_jit
def _outputs(model, x):
    return model(x)


@pytest.mark.parametrize(
    "text",
    [
        "sin(1e10)",
        "cos(1e22)",
        "tanh(sin(12345678.9))",
        "(0.1 + 0.2 - 0.3) * 1e16",
        "(1e16 + 1.1 - 1e16) / 3",
        "(0.3 % 0.1) * 10",
        "floor(10 * 0.3) // 1",
        "round(2.675 * 100) / 100",
        "where(0.1 + 0.2 == 0.3, 1, -1)",
        "max(sqrt(2) ** 2 - 2, 0 - 1e-300)",
        "(1 / 49) * 49 - 1 + 0.5",
        "exp(log(3)) - 2",
    ],
)
def test_the_certificate_of_a_constant_holds(text):
    """The gain of the one memory: at x = 1 it is the output, and the certificate bounds how far it is off."""
    tree, numbers = _unfolded(text)
    gain = exact(tree, numbers)
    built = ml.compile(ml.Fixed(lags=[1], readout=f"({text}) * x1"), route="t5")
    y = np.asarray(_outputs(built.model, jnp.ones((4, 1))), dtype=float)
    assert abs(arb(float(y[-1, 0])) - gain) <= arb(float(built.certificate.bound))
    if (read := parse(text, ())) and isinstance(read, Constant) and not abs(gain - arb(read.value)) == 0:
        assert any("is read as" in assumption for assumption in built.certificate.assumptions)


def test_lag_tables_do_not_round_at_a_jump():
    """floor(10 * 0.3) is 2 in a lag too, whether the table is small or large."""
    few = {"name": "a", "values": [1, 2, 3]}
    many = {"name": "a", "values": list(range(1, 4_097))}
    for channel, extra in ((few, ""), (many, " + 0 * a0")):
        task = ml.Adaptive(
            channels=[channel], lags=[f"1 + floor(10 * (0.1 * min(a0, 3))){extra}"], readout="a1"
        )
        exactly = [1 + math.floor(10 * (Fraction(0.1) * min(a, 3))) for a in channel["values"]]
        (table,) = task.recalls
        assert isinstance(table, LagTable) and table.cells == exactly


# -- 2. kernel tails --------------------------------------------------------------------------------------

CANCELLING = "0.1*z**4 + 0.2*z**4 - 0.30000000000000004*z**4 + 1e-3"


def _kernel(text: str) -> Convolution:
    (memory,) = ml.Essential(kernels=[text], readout="x1").recalls
    assert isinstance(memory, Convolution)
    return memory


@pytest.mark.long(5)  # the diagonal of the grid: every condition and every relation
@pytest.mark.parametrize("relation", ["<", "<=", ">", ">="])
@pytest.mark.parametrize(
    "condition", [CANCELLING, f"-({CANCELLING})", "0.1*z + 0.2*z - 0.3*z + 1", "z ** 2 / 3 - 100 * z"]
)
def test_the_branch_of_a_tail_is_decided_exactly(condition, relation):
    """At every lag, far ones too, the majorant bounds the kernel, whose branch Fractions decide."""
    _check_tail(f"{condition} {relation} 0", lambda value: _holds(value, relation), condition)


@pytest.mark.long(4)
@pytest.mark.parametrize(
    "text, truth",
    [
        (f"not ({CANCELLING} >= 0)", lambda value: value < 0),
        (f"({CANCELLING} < 0) and (z > 3)", lambda value: value < 0),
        (f"({CANCELLING} < 0) or (z < 3)", lambda value: value < 0),
        (f"({CANCELLING} > 0) or not ({CANCELLING} != 0)", lambda value: value >= 0),
    ],
)
def test_the_branch_of_joint_conditions_is_decided_exactly(text, truth):
    _check_tail(text, truth, CANCELLING, least=4)


def _check_tail(text: str, truth, condition: str, least: int = 1) -> None:
    memory = _kernel(f"where({text}, 1/z**1.05, exp(-z))")
    target, tail = recall_target(memory), memory.tail
    start = max(tail.start, least)
    for z in (*range(start, start + 50), 10**4 + start, 10**5 + start):
        with ctx.workprec(200):
            bound = sum((t.C * arb(z) ** t.a * (-t.b * z).exp() for t in tail.terms), arb(0))
            value = _kernel_value(truth(_fraction_at(condition, z)), z)
            assert abs(target.value(z) - value) < 1e-40
            assert value <= bound * (1 + arb(2) ** -90)


def test_a_tail_that_begins_too_late_is_refused():
    with pytest.raises(ml.BadInput, match="not in its tail before lag"):
        ml.Essential(kernels=["where(z/3 - z*(1/3) - 1e-9 < 0, 1/z**1.05, exp(-z))"], readout="x1")


def _holds(value: Fraction, relation: str) -> bool:
    return {"<": value < 0, "<=": value <= 0, ">": value > 0, ">=": value >= 0}[relation]


def _kernel_value(holds: bool, z: int) -> arb:
    return arb(z) ** arb(-1.05) if holds else arb(-z).exp()


def _fraction_at(condition: str, z: int) -> Fraction:
    tree, numbers = _unfolded_once(condition)
    return _fraction(tree, {**{k: Fraction(v) for k, v in numbers.items()}, "z": Fraction(z)})


_unfolded_once = cache(_unfolded)


def _fraction(f, point):
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
    y = np.asarray(task.target(np.ones((4_000, 1))))[:, 0]
    kernel = [float(_kernel_value(_fraction_at(CANCELLING, z) < 0, z)) for z in range(1, 4_000)]
    assert y[-1] == pytest.approx(math.fsum(kernel), rel=1e-9)


# -- 3. mass ----------------------------------------------------------------------------------------------


def test_an_unread_memory_needs_no_mass():
    built = ml.compile(ml.Fixed(lags=[1, 8], readout="x1"), route="one-layer-lin")
    assert built.certificate.mass_lower_bound is not None
    assert built.certificate.mass_lower_bound <= built.certificate.mass == 1.0


def _effective_mass(model: Transformer, o: int, c: int) -> float:
    heads = model.layers[0].attention.heads
    W_E, W_V, W_O, W_U = (np.asarray(a, dtype=float) for a in (model.W_E, heads.W_V, heads.W_O, model.W_U))
    return float(np.abs(np.einsum("j,hjv,hvi,i->h", W_U[o], W_O, W_V, W_E[:, c])).sum())


def _one_layer(task: Task, rpe: str, heads: int, precision: str, rounding: float = 1.0) -> Transformer:
    """So many heads, fitted to what the task recalls, however well."""
    request = request_of(task, 1e-2, precision)
    targets = request.targets or [SingleLag(1)]
    best = fit(rpe, targets, heads, precision=precision, rounding=rounding)  # type: ignore[arg-type]
    return compile_circuit(kernel_circuit(request, best))


CASES = [
    (dict(lags=[2], readout="x1"), 6),
    (dict(lags=[2], readout="1000 * x1"), 6),
    (dict(lags=[2], readout="0.001 * x1"), 6),
    (dict(lags=[1, 3], readout=["x2", "x1 - 0.25 * x2"]), 8),
    (dict(lags=[2, 3], readout="x1 + x2", channels=[{"name": "x", "range": [0, 1]}]), 8),
    (dict(lags=[3, 3], readout="x1 - x2"), 8),
    (dict(lags=[2, 4], readout="3 * x1", channels=[{"name": "x", "range": [-0.01, 0.01]}]), 8),
    (dict(lags=[2, 12], readout="x1 + 0 * x2"), 6),
    (dict(lags=[0, 2], readout="x1 + x2"), 6),
]


@pytest.mark.long(3)
@pytest.mark.parametrize("fields, heads", CASES)
def test_no_model_has_less_mass_than_is_called_necessary(fields, heads):
    """Also when embedding and readout are scaled, which moves mass between them and the heads."""
    task = ml.Fixed(**fields)
    model = _one_layer(task, "lin", heads, "float64", rounding=64.0)
    known = 0
    for scale in (1.0, 1e-3, 1e4):
        for grown in ("W_U", "W_E"):
            where = lambda m, grown=grown: (getattr(m, grown), m.layers[0].attention.heads.W_O)
            if grown == "W_E" and "x0" in str(task.readout):
                continue
            changed = eqx.tree_at(where, model, (where(model)[0] * scale, where(model)[1] / scale))
            found = ml.certify(changed, task)
            if found.mass_lower_bound is not None:
                assert found.mass_lower_bound <= found.mass * (1 + 1e-12)
                known += 1
    assert known or task.readout == ("x1 - x2",)  # nothing is recalled there: x1 and x2 are one token


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
NUMBERS_OF_ALL = np.linspace(-1, 1, 65)[:, None]  # multiples of 1 / 32: numbers of every precision


@cache
def _built(precision: str) -> pipeline.Built:
    return ml.compile(AFFINE, precision=precision, route="t5")


@pytest.mark.parametrize("asked", PRECISIONS)
@pytest.mark.parametrize("own", EVALUATED)
def test_a_claim_about_another_precision_is_refused(own, asked):
    model = _built(own).model
    if asked == own:
        assert ml.certify(model, AFFINE, precision=asked).precision == own
        return
    with pytest.raises(ml.BadInput, match="astype"):
        ml.certify(model, AFFINE, precision=asked)


@pytest.mark.parametrize("to", EVALUATED)
@pytest.mark.parametrize("own", EVALUATED)
def test_a_model_that_is_moved_is_certified_where_it_is(own, to):
    """`astype` moves every weight, the certificate is about the precision it moved to, and holds there."""
    moved = _built(own).model.astype(to)
    leaves = jax.tree.leaves(eqx.filter(moved, eqx.is_inexact_array))
    assert moved.architecture.precision == to and {str(leaf.dtype) for leaf in leaves} == {to}
    certificate = ml.certify(moved, AFFINE)
    assert certificate.precision == to
    y = np.asarray(_outputs(moved, jnp.asarray(NUMBERS_OF_ALL, to)), dtype=float)
    assert np.abs(y - np.asarray(AFFINE.target(NUMBERS_OF_ALL))).max() <= certificate.bound
    assert certificate.bound >= _built(own).certificate.bound_by_precision[to] * (1 - 1e-9) or to != own


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A float32 model on file, to be copied."""
    ml.write(_built("float32"), directory := tmp_path_factory.mktemp("written"))
    return directory


def _rewritten(written: Path, directory: Path, change) -> Path:
    shutil.copytree(written, directory, dirs_exist_ok=True)
    record = json.loads((directory / "model.json").read_text())
    change(record)
    (directory / "model.json").write_text(json.dumps(record))
    return directory


@pytest.mark.parametrize("claimed", [name for name in PRECISIONS if name != "float32"])
def test_a_directory_that_claims_another_precision_is_refused(written, tmp_path, claimed):
    changed = _rewritten(written, tmp_path, lambda record: record["extra"].update(precision=claimed))
    with pytest.raises(ml.BadInput, match=f"{claimed}.*float32"):
        ml.verify(changed)


@pytest.mark.parametrize("claimed", [name for name in EVALUATED if name != "float32"])
def test_a_directory_whose_architecture_claims_another_precision_is_refused(written, tmp_path, claimed):
    """The weights on file are float32, whatever model.json says of them."""

    def change(record):
        record["architecture"]["precision"] = claimed
        record["extra"]["precision"] = claimed

    with pytest.raises(ml.BadInput):
        ml.verify(_rewritten(written, tmp_path, change))


def test_weights_of_another_precision_than_the_architecture_says_are_refused():
    model = _built("float32").model
    mixed = eqx.tree_at(lambda m: m.W_U, model, model.W_U.astype(jnp.float64))
    with pytest.raises(ml.BadInput, match="a weight is float64"):
        ml.certify(mixed, AFFINE)


# -- 5. arithmetic ----------------------------------------------------------------------------------------


def test_a_float64_model_is_not_evaluated_without_float64(tmp_path):
    """However it is called, and by whatever program that was compiled while there was float64."""
    built = _built("float64")
    ml.save(built.model, tmp_path)
    model, x = built.model, NUMBERS_OF_ALL[:16]
    stream = model.stream()
    many = lambda m, x: jax.vmap(m)(x)
    compiled = eqx.filter_jit(many)
    before = np.asarray(compiled(model, jnp.asarray(x[None])))
    assert before.dtype == np.float64
    with jax.enable_x64(False):
        for evaluate in (
            lambda: model(x),
            lambda: model.using("plain")(x),
            lambda: _outputs(model, x),
            lambda: many(model, x[None]),
            lambda: compiled(model, x[None]),
            lambda: stream(x[0]),
            lambda: stream.feed(x),
            lambda: model.stream()(x[0]),
            lambda: ml.measure(model, AFFINE, key=jr.key(0), sequences=1, length=16),
            lambda: ml.load(tmp_path),
            lambda: ml.compile(AFFINE, precision="float64", route="t5"),
            lambda: _built("float32").model.astype("float64"),
        ):
            with pytest.raises(ml.BadInput, match="64-bit"):
                evaluate()
    assert (np.asarray(compiled(model, jnp.asarray(x[None]))) == before).all()


def test_a_float64_model_is_not_evaluated_after_a_change_of_the_setting():
    model = _built("float64").model
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ml.BadInput, match="64-bit mode"):
            model(NUMBERS_OF_ALL)
    finally:
        jax.config.update("jax_enable_x64", True)
    assert np.asarray(_outputs(model, jnp.asarray(NUMBERS_OF_ALL))).dtype == np.float64


# -- 6. obstacles -----------------------------------------------------------------------------------------


@pytest.mark.long(2)
@pytest.mark.parametrize(
    "rpe, precision, lags",
    [
        ("lin", "float32", (2, 3)),
        ("log", "float32", (2,)),
        ("lin", "float64", (3,)),
        ("log", "float64", (3,)),
    ],
)
def test_every_certificate_charges_the_least_price(rpe, precision, lags):
    """Rounding is never charged with less than one rounding of the mass, so a floor at that price refuses nothing
    that a certificate meets."""
    u = PRECISIONS[precision].u
    for lag in lags:
        task = ml.Fixed(lags=[lag], readout="x1")
        floor = lower_bound(rpe, SingleLag(lag), price=LEAST_CHARGE * u).error
        for heads in (1, 2, 4):
            model = _one_layer(task, rpe, heads, precision)
            for p in (1.0, 2.0**-3):  # powers of 2 are multiplied without rounding
                W_O = model.layers[0].attention.heads.W_O
                rounded = jnp.exp2(jnp.round(jnp.log2(jnp.abs(W_O) + 1e-30))) * jnp.sign(W_O) * p
                for weights in (W_O, rounded):
                    changed = eqx.tree_at(lambda m: m.layers[0].attention.heads.W_O, model, weights)
                    found = ml.certify(changed, task)
                    charged = float(found.bound) - float(found.exact_bound)
                    assert charged >= LEAST_CHARGE * u * _effective_mass(changed, 0, 0) * (1 - 1e-9)
                    assert found.bound >= floor


def test_obstacles_that_are_no_theorems_say_so():
    plans = ml.plan(ml.Fixed(lags=[3, 17], readout="x1 * x2"), routes=["one-layer-lin"])
    assert plans.obstacles["one-layer-lin"].startswith("not tried: ")
    alone = ml.plan(ml.Fixed(lags=[17], readout="x1"), routes=["one-layer-lin"])
    assert alone.obstacles["one-layer-lin"].startswith("lag 17 with one lin layer")


# -- files ------------------------------------------------------------------------------------------------


def test_nothing_is_read_from_the_certificate_file(written, tmp_path):
    """A certificate with a smaller bound is found to disagree, whichever field was changed."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    own = _built("float32").certificate
    assert pipeline.disagreement(tmp_path, found := pipeline.verify(tmp_path)) is None
    for changes in (
        {"bound": Proved(own.bound / 2)},
        {"exact_bound": Proved(own.exact_bound / 2)},
        {"bound_by_precision": own.bound_by_precision | {"bfloat16": Proved(0.0)}},
        {"terms": own.terms[:-1]},
        {"precision": "float64"},
        {"status": "missed"},
        {"bits": 8},
        {"mass": 0.5},
        {"assumptions": ()},
    ):
        (tmp_path / "certificate.json").write_text(dataclasses.replace(own, **changes).to_json())
        assert pipeline.disagreement(tmp_path, found) is not None, changes
