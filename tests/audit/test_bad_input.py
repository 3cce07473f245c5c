"""Bad input gets one line, never a traceback: what a user may type, and what a stranger may put into a file."""

import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.approx.kernels import lower_bounds
from memloci.approx.kernels.lower_bounds import chebyshev_mass, chebyshev_mass_of
from memloci.approx.readouts.ridge_sums import readout_ridge
from memloci.certify.rounding import format_of
from memloci.commands.shared import progress_lines
from memloci.core.errors import BadInput
from memloci.core.intervals import Interval
from memloci.core.limits import positive, too_much_memory
from memloci.model.store import RECORD
from memloci.pipeline import disagreement, verify
from memloci.sweeps.grid import make_sweep
from memloci.synthesize import plan_route, request_of, too_large
from memloci.tasks.inputs import require_inputs, sample
from memloci.train.train import runs_in, train_together

ROOT = Path(__file__).parents[2]
DELAY = ml.Fixed(lags=[1], readout="x1")


def one_line(error) -> bool:
    return "\n" not in str(error.value) and len(str(error.value)) < 600


# -- tasks at the edge ------------------------------------------------------------------------------------


@pytest.mark.long(4)
@pytest.mark.parametrize(
    "readout, route",
    [
        (["x1", "0.5"], "rotary"),
        ("0.5", "one-layer-lin"),
        ("0", "one-layer-lin"),
        (["0.25", "x0", "x1 * 0"], None),
    ],
    ids=str,
)
def test_constant_outputs_are_computed_like_others(readout, route):
    task = ml.Fixed(lags=[2], readout=readout)
    built = ml.compile(task, route=route)
    assert built.certificate.met
    x = sample(task, jr.key(0), 40, built.model.W_E.dtype)
    error = float(jnp.abs(built.model(x) - task.target(x)).max())
    assert error <= built.certificate.bound


def test_a_constant_is_a_ridge_sum_without_neurons():
    ridge = readout_ridge(ml.Fixed(lags=[1], readout=["0.5", "x1"]), tolerance=1e-3)
    assert ridge.width == 0 and not any(ridge.E_ffn)


@pytest.mark.parametrize(
    "channel",
    [{"range": [1e-308, 1]}, {"values": [5e-324, 1.0]}, {"values": [5e-324]}, {"range": [0, 5e-324]}],
    ids=str,
)
def test_the_smallest_numbers_have_a_certificate(channel):
    task = ml.Fixed(lags=[1], readout="x1", channels=[{"name": "x", **channel}])
    built = ml.compile(task, route="rotary")
    x = sample(task, jr.key(1), 20, built.model.W_E.dtype)
    assert float(jnp.abs(built.model(x) - task.target(x)).max()) <= built.certificate.bound


def test_a_format_knows_whether_it_has_a_number_in_an_interval():
    single = format_of("float32")
    for lo, hi in [(5e-324, 5e-324), (1e-46, 2e-46), (0.1, 0.1), (-1e-320, -1e-322)]:
        assert not single.has_number_in(Interval(lo, hi))
    for lo, hi in [(1e-46, 1e-44), (2.0**-149, 2.0**-149), (0.1, 0.2), (0.0, 5e-324), (-1.0, -0.5)]:
        assert single.has_number_in(Interval(lo, hi))
    assert format_of("float64").has_number_in(Interval(5e-324, 5e-324))


@pytest.mark.parametrize("encoding", ["rope", "lin", "log", "t5", "none"])
@pytest.mark.parametrize("normalisation", ["softmax", "infinite", "none"])
def test_a_model_of_zeros_is_certified_or_refused(encoding, normalisation):
    attention = "dp" if normalisation == "softmax" else "dpf"
    switches = {"attention": attention, "encoding": encoding, "normalisation": normalisation}
    try:
        shape = ml.Architecture(layers=1, heads=2, width=3, dim=4, key_dim=2, value_dim=2, **switches)
    except BadInput:
        return
    model = ml.Transformer(shape, 1, 1, key=jr.key(0))
    zeros = jax.tree.map(jnp.zeros_like, model)
    slopes = lambda m: getattr(m.layers[0].attention.heads.encoding, "p", None)
    kept = zeros if slopes(model) is None else _with_slopes(zeros)
    for each in (zeros, kept):
        try:
            certificate = ml.certify(each.using("certified"), DELAY)
        except BadInput as error:
            assert "\n" not in str(error)
        else:
            assert certificate.bound >= 1  # it says 0, and the answer may be 1


def _with_slopes(model):
    import equinox as eqx

    p = model.layers[0].attention.heads.encoding.p
    return eqx.tree_at(lambda m: m.layers[0].attention.heads.encoding.p, model, jnp.full_like(p, 2.0))


def test_a_directory_of_zeros_is_verified_and_measured(tmp_path):
    built = ml.compile(DELAY, route="rotary")
    zeros = jax.tree.map(jnp.zeros_like, built.model)
    ml.save(zeros, tmp_path, task=DELAY)
    assert not verify(tmp_path).met
    assert ml.measure(ml.load(tmp_path)[0], DELAY, key=jr.key(0), sequences=2).err_adversarial >= 0.9


def test_what_no_float_holds_is_a_bound_all_the_same():
    """Lag 400 with one lin layer takes a mass of 2^1556, which no float64 number is."""
    found = chebyshev_mass(400, 1e-3)
    assert 1500 < found.log2 < 1600 and found.as_float == sys.float_info.max
    assert chebyshev_mass(3, 0.1).as_float <= chebyshev_mass(3, 0.1).mass


# -- sizes ------------------------------------------------------------------------------------------------


def test_the_coefficients_of_chebyshev_polynomials_are_those_of_the_definition():
    from flint import fmpz_poly

    for n in range(1, 40):
        y = [abs(int(c)) for c in fmpz_poly.chebyshev_t(n)(fmpz_poly([-1, 2])).coeffs()]
        assert y == [lower_bounds._chebyshev_coefficient(n, j) for j in range(n + 1)]
        assert max(y) == lower_bounds._largest_coefficient(n)


def test_far_lags_take_at_least_the_mass_of_near_ones(monkeypatch):
    """Moved together, taps need no more mass: the bound of the moved ones is one of the others."""
    whole = {t: chebyshev_mass(t, 0.01).mass for t in (5, 12, 40)}
    assert sorted(whole.values()) == list(whole.values())
    taps = {3: Fraction(1), 40: Fraction(-2)}
    exact = chebyshev_mass_of(taps, 0.01).mass
    monkeypatch.setattr(lower_bounds, "FARTHEST_BOUND_LAG", 12)
    assert chebyshev_mass(40, 0.01).mass == whole[12]
    assert 0 < chebyshev_mass_of(taps, 0.01).mass <= exact


def test_a_far_nested_lag_is_refused_at_once_with_the_size():
    channels = [{"name": "a", "values": [1, 2, 3, 284810]}, {"name": "v", "range": [-1, 1]}]
    task = ml.Adaptive(channels=channels, lags=["a0", "a0 + a1", "a0 + a1 + a2"], readout="v3")
    began = time.process_time()
    found = ml.plan(task, routes=["lin-tmx", "lin-dp", "chain"])
    assert not (*found.met, *found.missed) and "of mass" in found.obstacles["lin-tmx"]
    assert time.process_time() - began < 20


def test_what_would_not_fit_into_memory_is_refused_with_its_size(monkeypatch):
    values = list(range(1, 4097))
    channels = [{"name": "a", "values": values}, {"name": "v", "range": [-1, 1]}]
    task = ml.Adaptive(channels=channels, lags=["a0"], readout="v1")
    found = ml.plan(task, routes=["rotary"])
    assert "parameters would take about 9.2" in found.obstacles["rotary"]
    assert "set MEMLOCI_MEMORY_GB=10" in found.obstacles["rotary"]
    small = ml.Architecture(layers=1, heads=1, width=4)
    assert too_large(small) is None
    monkeypatch.setenv("MEMLOCI_MEMORY_GB", "1e-6")
    assert "parameters would take" in (too_large(small) or "")
    assert too_much_memory(2**30, "it") == (
        "it would take about 1 GB of memory, above the limit of 1e-6 GB; set MEMLOCI_MEMORY_GB=1 if there is so much"
    )


def test_a_certificate_of_too_many_cases_is_refused_with_its_size(monkeypatch):
    task = ml.load_task("pointer")
    model = plan_route("rotary", request_of(task, 1e-3, "float32"), 1e-3).model
    monkeypatch.setenv("MEMLOCI_MEMORY_GB", "1e-4")
    with pytest.raises(
        BadInput, match="a certificate of 23 cases with .* numbers each would take about"
    ) as error:
        ml.certify(model, task)
    assert one_line(error)


@pytest.mark.parametrize("lag", [400])
def test_depths_that_cannot_serve_are_left_out_of_the_table(lag):
    from memloci.tradeoffs.depth_table import depth_table

    with pytest.raises(BadInput, match="no depth serves these lags: lag 400 in steps of 1 takes 400 layers"):
        depth_table(ml.Fixed(lags=[lag], readout="x1"), "float32", steps=(1,))


# -- what is typed ----------------------------------------------------------------------------------------

NOT_POSITIVE = [0, -1, 10**400, -(10**400), float("nan"), float("inf"), True, "1", None, [1], {}]


@pytest.mark.parametrize("value", NOT_POSITIVE, ids=lambda value: repr(value)[:12])
def test_a_tolerance_is_a_positive_number(value):
    with pytest.raises(BadInput, match="tolerance must be a positive number") as error:
        positive(value, "tolerance")
    assert one_line(error)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_plans_and_certificates_take_such_a_tolerance_only(value):
    model = ml.Transformer(ml.Architecture(layers=1, heads=1, width=1), 1, 1, key=jr.key(0))
    for ask in (lambda: ml.plan(DELAY, value), lambda: ml.certify(model, DELAY, tolerance=value)):
        with pytest.raises(BadInput, match="tolerance must be a positive number"):
            ask()


SWEEP = {"task": "delay", "architecture": {"layers": 1, "heads": 1, "width": 1}}


@pytest.mark.parametrize("bounds", [(1, 10**400), (-(10**400), 1), (1e300, 1e308), (10**5000, 10**5001)])
def test_bounds_of_a_sweep_that_no_float_holds_are_refused(bounds):
    low, high = bounds
    asked = {**SWEEP, "random": {"samples": 2, "training.seed": {"low": low, "high": high}}}
    with pytest.raises(BadInput, match="low and high must lie within") as error:
        make_sweep(asked)
    assert one_line(error)


@pytest.mark.parametrize(
    "name", ["a/b", "/etc/x", "..", ".hidden", "\u00e9" * 100 + "/", "\U0001f600" * 60, "a\0b", ""]
)
def test_a_sweep_has_a_name_that_a_file_can_have(name):
    with pytest.raises(BadInput, match="^name: ") as error:
        make_sweep({**SWEEP, "name": name, "grid": {"training.seed": [0]}})
    assert one_line(error)


# -- files of strangers -----------------------------------------------------------------------------------


def test_pipes_and_devices_are_no_task_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "good.toml").write_text('kind = "fixed"\nlags = [1]\nreadout = "x1"\n')
    (tmp_path / "link.toml").symlink_to("good.toml")
    assert ml.load_task(tmp_path / "link.toml") == ml.load_task(tmp_path / "good.toml")
    for path, why in [
        (tmp_path / "pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (tmp_path / "loop", "cannot be read"),
        ("a\0b", "cannot be read"),
        (tmp_path, "is a directory"),
    ]:
        with pytest.raises(BadInput, match=why) as error:
            ml.load_task(path)
        assert one_line(error)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    place = tmp_path_factory.mktemp("written")
    built = ml.compile(DELAY, route="rotary")
    ml.save(built.model, place, task=DELAY, extra={"tolerance": 1e-3, "precision": "float32"})
    (place / "certificate.json").write_text(built.certificate.to_json())
    return place


def edited(written, place, path, value):
    record = json.loads((written / RECORD).read_text())
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    for file in written.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    (place / RECORD).write_text(json.dumps(record))
    return place


STRANGE = [None, True, 7, -1, 10**400, 1.5, "x", "", [], ["float32"], {}, {"a": 1}]
PLACES = [
    *(
        ("version",),
        ("format",),
        ("id",),
        ("channels",),
        ("outputs",),
        ("task",),
        ("extra",),
        ("architecture",),
    ),
    *(
        ("extra", "tolerance"),
        ("extra", "precision"),
        ("task", "kind"),
        ("task", "lags"),
        ("task", "readout"),
    ),
    *(
        ("architecture", name)
        for name in ("layers", "heads", "width", "attention", "encoding", "normalisation")
    ),
    *(("architecture", name) for name in ("norm", "dim", "precision", "path", "blocks", "window", "stride")),
]


@pytest.mark.parametrize("path", PLACES, ids=".".join)
def test_no_value_in_a_record_of_a_model_is_a_traceback(written, tmp_path, path):
    for value in STRANGE:
        edited(written, tmp_path, path, value)
        try:
            found = verify(tmp_path)
            assert disagreement(tmp_path, found) is not None  # it was changed, if to something harmless
        except BadInput as error:
            assert "\n" not in str(error) and len(str(error)) < 900


def test_a_version_is_text(written, tmp_path):
    with pytest.raises(BadInput, match="version must be text, found True"):
        ml.load(edited(written, tmp_path, ("version",), True))


def test_a_key_that_appears_twice_is_refused_wherever_json_is_read(written, tmp_path):
    for file in written.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    certificate = (tmp_path / "certificate.json").read_text()
    found = verify(tmp_path)
    assert disagreement(tmp_path, found) is None
    bound = json.loads(certificate)["bound"]
    (tmp_path / "certificate.json").write_text(certificate.replace("{", f'{{"bound": {bound / 2},', 1))
    with pytest.raises(BadInput, match="certificate.json: .*the key 'bound' appears twice"):
        disagreement(tmp_path, found)
    record = (tmp_path / RECORD).read_text()
    (tmp_path / RECORD).write_text(record.replace("{", '{"format": 1,', 1))
    with pytest.raises(BadInput, match="model.json: .*the key 'format' appears twice"):
        ml.load(tmp_path)
    (tmp_path / "runs.json").write_text('{"format": 1, "runs": [], "runs": []}')
    with pytest.raises(BadInput, match="runs.json: .*the key 'runs' appears twice"):
        runs_in(tmp_path)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": 1}', '{"format": 1, "runs": []}', '{"format": true, "runs": [{}]}']
    + [
        '{"format": 1, "runs": [3]}',
        '{"format": 1, "runs": {"a": 1}}',
        '{"format": 1, "runs": [{"task": 3}]}',
    ],
)
def test_runs_of_an_interrupted_training_are_runs(tmp_path, content):
    (tmp_path / "runs.json").write_text(content)
    with pytest.raises(BadInput, match="runs.json: ") as error:
        runs_in(tmp_path)
    assert one_line(error)


def test_no_runs_are_not_trained():
    with pytest.raises(BadInput, match="no runs"):
        train_together([])


# -- inputs outside the ranges ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pointer():
    return ml.compile(ml.load_task("pointer"), route="rotary")


def test_strict_refuses_what_no_bound_is_about(pointer):
    task, dtype = pointer.task, pointer.model.W_E.dtype
    x = sample(task, jr.key(3), 12, dtype)
    np.testing.assert_array_equal(pointer.run(x, strict=True), pointer.model(x))
    for place, value, why in [
        ((5, 1), 1.5, "v"),
        ((2, 0), 2.5, "a"),
        ((0, 0), 99.0, "a"),
        ((7, 1), np.nan, "v"),
    ]:
        bad = x.at[place].set(value)
        assert pointer.run(bad).shape == (12, 1)  # as ever, without a claim
        with pytest.raises(
            BadInput, match=rf"x\[{place[0]}, {place[1]}\] = .* is no value of channel '{why}'"
        ) as error:
            pointer.run(bad, strict=True)
        assert one_line(error)
    with pytest.raises(BadInput, match="shape"):
        pointer.run(x[:, :1], strict=True)


def test_numbers_of_the_precision_are_inputs():
    task = ml.Fixed(lags=[1], readout="x1", channels=[{"name": "x", "values": [0.1, 0.3]}])
    single = np.array([[0.1], [0.3]], "float32")  # the numbers nearest to the symbols
    require_inputs(task, single)
    require_inputs(task, single[None])
    with pytest.raises(BadInput):
        require_inputs(task, single.astype("float64"))  # where the symbols have nearer ones
    ranged = ml.Fixed(lags=[1], readout="x1", channels=[{"name": "x", "range": [0, 0.1]}])
    with pytest.raises(BadInput):
        require_inputs(ranged, np.array([[0.1]], "float32"))  # above 0.1 by a rounding
    require_inputs(ranged, np.array([[np.nextafter(np.float32(0.1), np.float32(0))]]))


def test_a_certificate_says_that_it_is_about_these_ranges(pointer):
    (line,) = [text for text in pointer.certificate.assumptions if text.startswith("inputs:")]
    assert "of inputs outside these ranges nothing is claimed" in line


# -- long plans -------------------------------------------------------------------------------------------


def test_what_takes_long_says_which_step_it_is_in(capsys):
    with progress_lines(first=0.05) as progress:
        progress("rotary: the certificate", 0.5)
        time.sleep(0.3)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "memloci: after 0 s: rotary: the certificate (Ctrl-C stops it)" and 2 <= len(said) <= 4
    with progress_lines(first=60.0) as progress:
        progress("quick", 0.5)
    assert capsys.readouterr().err == ""


def test_a_plan_says_its_steps():
    said = []
    ml.plan(DELAY, routes=["rotary"], progress=lambda text, done: said.append(text))
    assert "the readout" in said and any(text.startswith("rotary: the certificate of") for text in said)


@pytest.mark.slow
def test_ctrl_c_ends_a_long_plan_with_one_line(tmp_path):
    task = tmp_path / "hard.toml"
    task.write_text(
        f'kind = "fixed"\nlags = [1, 2, 3, 4, 5, 6, 7, 8]\nreadout = "{" * ".join(f"x{i}" for i in range(1, 9))}"\n'
    )
    command = [sys.executable, "-m", "memloci.cli", "plan", str(task)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    try:
        time.sleep(20)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1 and said.endswith("memloci: interrupted\n") and "Traceback" not in said
