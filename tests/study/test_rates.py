"""Error against a size: bounds above what is seen, floors below, slopes that are found again, nothing trained twice."""

import json
import math
from dataclasses import asdict

import pytest

import memloci as ml
from memloci.approx.kernels.lower_bounds import lower_bound
from memloci.approx.kernels.targets import SingleLag
from memloci.cli import main
from memloci.core.errors import BadInput
from memloci.core.proved import Observed, Proved
from memloci.study import compiled_curves, compiled_sizes
from memloci.study import rates as module
from memloci.study.claim import PILOT, Arm, Result
from memloci.study.rates import RatesFinding, rates
from memloci.study.rates_curves import MEASURES
from memloci.study.rates_request import VARIES, arms_of, read
from memloci.sweeps.store import Store
from memloci.train.record import RunRecord
from memloci.views.figures.panel import panel_figure
from memloci.views.html.rates import rates_files, rates_html

FAKE = "tests.study.fake:execute"
POINTER = [{"name": "a", "values": [1, 2, 3]}, {"name": "v", "range": [-1, 1]}]
TASKS = {
    "lag": ml.Fixed(lags=[2], readout="0.5 * x1 + x0"),
    "lags": ml.Fixed(lags=[2, 3], readout="x1 * x2"),
    "kernel": ml.Essential(kernels=["z ** -2"], readout="x1"),
    "kernels": ml.Essential(kernels=["exp(-z)", "exp(-0.5 * z)"], readout="x1 * x2"),
    "pointer": ml.Adaptive(channels=POINTER, lags=["a0"], readout="v1"),
    "nested": ml.Adaptive(channels=POINTER, lags=["a0", "a0 + a1"], readout="v2"),
}


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Fewer sequences to measure on: what is compared holds for any."""
    monkeypatch.setattr(compiled_curves, "SEEN", {"sequences": 4, "steps": 4, "starts": 2})
    monkeypatch.setattr(compiled_sizes, "MOVES", {"lin": 0, "log": 0})


@pytest.fixture
def nothing_compiled(monkeypatch):
    empty = compiled_curves.CompiledResults({}, (), ("compiled: left out",))
    monkeypatch.setattr(module, "compiled", lambda asked, progress: empty)


def compiled_only(task: str, vary: str, values=None, **settings) -> RatesFinding:
    return rates(TASKS[task], vary, values=values, trained=False, **settings)


def curves(finding: RatesFinding, kind: str, measure: str = "err_sup"):
    """name -> {x: value}, of the curves of a kind."""
    panel = finding.panels[list(MEASURES).index(measure)]
    return {
        series.name: {x: own[0] for x, own in zip(series.x, series.values, strict=True) if own}
        for series in panel.series
        if series.kind == kind
    }


# -- compiled ---------------------------------------------------------------------------------------------

CASES = [  # every fourth runs with every change: those that take seconds
    ("kernels", "width", [2, 4], "log"),
    ("lag", "bits", None, "log"),
    ("pointer", "heads", [2, 8], "log"),
    ("kernel", "heads", [1, 4], "lin"),
    ("lags", "layers", [1, 3], "lin"),
    ("kernel", "length", [16, 32], "log"),
    ("pointer", "bits", [24, 53], "lin"),
    ("lags", "width", [4, 16], "lin"),
    ("nested", "samples", [8, 16], "log"),
    ("lag", "samples", [8, 16], "lin"),
    ("nested", "width", [4, 8], "lin"),
    ("pointer", "layers", [1, 2, 3, 4], "lin"),
]


@pytest.mark.long
@pytest.mark.parametrize(("task", "vary", "values", "encoding"), CASES, ids=lambda value: str(value))
def test_bounds_are_above_what_is_seen_and_floors_below(task, vary, values, encoding):
    found = compiled_only(task, vary, values, encoding=encoding)
    for measure in MEASURES:
        proved, seen = (curves(found, kind, measure) for kind in ("certified", "measured"))
        assert proved and seen.keys() <= proved.keys()
        for name, points in seen.items():
            for x, value in points.items():
                assert 0 <= value <= proved[name].get(x, math.inf), (name, x, measure)
    if (task, vary) == ("lags", "layers"):
        (points,) = curves(found, "certified").values()
        assert points[3] < 0.1 * points[1], "depth breaks the wall"
    rows = [row for row in found.rows if "E_least" in row]
    for row in rows:
        own = [e for e in found.rows if e.get("E") and e["x"] == row["x"] and _same_kind(e, row, encoding)]
        assert all(row["E_least"] <= e["E"] for e in own)


def _same_kind(curve, floor, encoding) -> bool:
    """Floors are of lin or log heads, in the format of their name if there is one."""
    formats = [name for name in ("float32", "float64") if name in floor["curve"] and name in curve["curve"]]
    return "rotary" not in curve["curve"] and (bool(formats) or f"{encoding} heads" in curve["curve"])


@pytest.mark.slow
def test_more_heads_are_never_worse_and_no_heads_break_the_wall():
    found = compiled_only("lag", "heads", [1, 2, 4, 8])
    proved, floors = curves(found, "certified"), {row["curve"]: row for row in found.rows if "E_least" in row}
    for points in proved.values():
        errors = [points[x] for x in sorted(points)]
        assert errors == sorted(errors, reverse=True)
    assert proved["compiled, float64"][8] < 1e-3 * proved["compiled, float64"][1], (
        "heads help, where bits allow"
    )
    # Half of the memory is asked for: the floor of an error of recall is halved too.
    least = {name: floors[f"any lin heads, {name}"]["E_least"] for name in ("float32", "float64")}
    for name, u in (("float32", 2.0**-24), ("float64", 2.0**-53)):
        whole = lower_bound("lin", SingleLag(2), price=u).error
        assert 0.45 * whole < least[name] <= 0.5 * whole
        assert least[name] <= proved[f"compiled, {name}"][8]


@pytest.mark.slow
def test_a_floor_falls_with_bits_and_holds():
    found = compiled_only("lag", "bits")
    (floor,) = curves(found, "bound").values()
    assert floor[8] >= floor[24] >= floor[53] > 0
    lin = curves(found, "certified")["compiled, lin heads"]
    assert all(floor[bits] <= lin[bits] for bits in lin)
    assert 8 not in curves(found, "measured")["compiled, lin heads"]
    assert any("trained: none in bfloat16" in note for note in found.notes)
    assert any("nothing measured in bfloat16" in note for note in found.notes)


def test_a_floor_that_other_heads_pass_is_a_line_not_a_region():
    found = compiled_only("lag", "samples", [8, 16])
    floor = curves(found, "bound")["any lin heads, float32"]
    assert floor[8] > curves(found, "certified")["compiled, rotary"][8]
    assert "<pattern" not in panel_figure(found.panels[0])


def test_no_floor_is_claimed_of_single_lengths():
    found = compiled_only("lag", "length", [8, 16])
    assert not found.floors and any("of no single length" in note for note in found.notes)


def test_a_task_that_recalls_nothing_is_told_so():
    task = ml.Fixed(lags=[3], readout="x0 * x0")
    for vary in ("heads", "layers", "samples", "length", "bits"):
        found = rates(task, vary, trained=False)
        assert any("nothing is recalled" in note for note in found.notes) and not found.rows
    few, many = rates(task, "width", values=[2, 4], trained=False).rows  # what the readout alone leaves
    assert few["what"].startswith("no recall") and few["err_sup"] <= few["E"]
    assert many["err_sup"] <= many["E"] < 0.5 * few["E"]


def test_what_cannot_be_trained_is_a_note(nothing_compiled):
    far = ml.Fixed(lags=[300_000], readout="x1")
    found = rates(far, "heads", values=[1, 2], trained=False)
    assert any("tokens" in note for note in found.notes)
    with pytest.raises(BadInput, match="no length up to 4,096 has room for lag 300,000"):
        rates(far, "length", trained=False)
    with pytest.raises(BadInput, match="some length must have room for lag 3"):
        rates(ml.Fixed(lags=[3], readout="x1"), "length", values=[2, 3], trained=False)


def test_the_paper_has_rates_only_where_its_theorems_hold(nothing_compiled):
    """Lin heads for light tails, n <= floor(99 beta); log heads from beta = 2 / 0.99 on, n <= floor(0.99 beta) - 1."""
    found = lambda kernel, encoding: rates(
        ml.Essential(kernels=[kernel], readout="x1"), "heads", encoding=encoding, trained=False
    )
    drawn = lambda kernel, encoding: any(
        series.kind == "paper" for panel in found(kernel, encoding).panels for series in panel.series
    )
    light, heavy = "exp(-0.3 * z)", "z ** -2"
    assert found(light, "lin").paper and found(light, "log").paper and found("z ** -3", "log").paper
    for kernel, encoding in (
        (heavy, "lin"),
        (heavy, "log"),
        ("z ** -2.02", "log"),
        ("exp(-0.01 * z)", "lin"),
    ):
        assert not found(kernel, encoding).paper and not drawn(kernel, encoding)
    assert found("z ** -2.03", "log").paper
    notes = found("z ** -1.5", "log").notes
    assert any("Theorem 5.1 B" in note and "beta = 1.5" in note for note in notes)


def test_the_capacity_bound_is_of_the_sizes_that_are_trained(nothing_compiled):
    found = compiled_only("pointer", "heads", [1, 2])
    capacity = {row["x"]: row["E_least"] for row in found.rows if row["curve"] == "capacity"}
    assert capacity == {1: 1.0}, "2 layers of 1 head carry 2 numbers of 3 that are asked for; of 2 heads, 4"


# -- slopes -----------------------------------------------------------------------------------------------


def trained_as(law):
    """What stands for training: seeds that are a percent apart, around law(x)."""

    def runs(arms, *, seeds, **_):
        results = {}
        for arm in arms:
            x = arm.architecture["width"]
            records = tuple(
                RunRecord("done", measures={name: law(x) * (1 + 0.01 * k) for name in MEASURES})
                for k in seeds
            )
            results[arm.name] = Result(arm, 1e-2, {}, records, tuple(map(str, seeds)))
        return results, 1.0

    return runs


@pytest.mark.parametrize("power", [-2.0, -0.5, 0.0])
def test_the_slope_of_a_power_law_is_found(nothing_compiled, monkeypatch, power):
    monkeypatch.setattr(module, "tuned_runs", trained_as(lambda m: 3.0 * m**power))
    found = rates(TASKS["lag"], "width", values=[2, 4, 8, 16], seeds=3)
    for slope in found.slopes:
        assert slope.curve == "trained" and (slope.first, slope.last) == (2, 16)
        assert slope.estimate.value == pytest.approx(power, abs=1e-9)
        assert slope.estimate.low < power < slope.estimate.high
    row = next(row for row in found.rows if row["x"] == 4)
    assert row["err_sup_low"] < 3.0 * 4**power * 1.01 < row["err_sup_high"]
    paper = next(series for series in found.panels[0].series if series.kind == "paper")
    assert paper.values[-1][0] / paper.values[0][0] == pytest.approx(8**-0.5), (
        "the paper's m^-1/2, by its slope"
    )


def test_the_slope_of_a_compiled_curve_is_that_of_its_fall(monkeypatch):
    from memloci.core.proved import Proved

    point = lambda x, E: compiled_curves.Point(x, Proved(E), Proved(E), None, None, "")
    fall = [(1, 1.0), (2, 1.0), (4, 1.0 / 16), (8, 1.0 / 256), (16, 1.0 / 250), (32, 1.0 / 256)]
    built = compiled_curves.CompiledResults({"c": tuple(point(*p) for p in fall)}, (), ())
    monkeypatch.setattr(module, "compiled", lambda asked, progress: built)
    found = rates(TASKS["lag"], "heads", values=[1, 2, 4, 8, 16, 32], trained=False)
    one = next(slope for slope in found.slopes if slope.measure == "err_sup")
    assert (one.first, one.last) == (2, 8) and one.estimate.value == pytest.approx(-4)
    two = next(slope for slope in found.slopes if slope.measure == "err_mean_square")
    assert two.estimate.value == pytest.approx(-8), "the mean square falls twice as fast"


def test_runs_without_a_number_leave_a_gap_and_a_note(nothing_compiled, monkeypatch):
    def runs(arms, *, seeds, **_):
        record = lambda arm, k: RunRecord("done", measures={"err_sup": 0.1, "err_mean_square": 0.01})
        lost = RunRecord("diverged", measures={"err_sup": None, "err_mean_square": None})
        records = lambda arm: tuple(lost if k and arm is arms[0] else record(arm, k) for k in seeds)
        return {arm.name: Result(arm, 1e-2, {}, records(arm), ()) for arm in arms}, 1.0

    monkeypatch.setattr(module, "tuned_runs", runs)
    found = rates(TASKS["lag"], "heads", values=[1, 2], seeds=3)
    assert "trained, heads 1: 2 of 3 runs diverged, so it has no mean" in found.notes
    trained = next(series for series in found.panels[0].series if series.kind == "trained")
    assert trained.values == ((), (0.1, 0.1, 0.1)), "a mean over survivors would flatter it"
    assert next(row for row in found.rows if row["x"] == 1)["err_sup"] is None


# -- training ---------------------------------------------------------------------------------------------


def test_a_second_call_trains_nothing(nothing_compiled, monkeypatch, tmp_path):
    store = tmp_path / "runs.sqlite"
    ask = lambda: rates(TASKS["lag"], "heads", values=[1, 2], seeds=2, store=store, workers=1)
    monkeypatch.setattr("memloci.sweeps.start.EXECUTE", FAKE)
    first = ask()
    with Store(store, create=False) as opened:
        rows = opened.rows()
    seeds = sorted(row["config"]["training"]["seed"] for row in rows)
    assert seeds == sorted([0, 1] * 2 + [PILOT] * 6), "three rates on a pilot seed, then fresh seeds"
    judged = [row["config"]["training"] for row in rows if row["config"]["training"]["seed"] < 2]
    assert {training["rate"] for training in judged} == {1e-2}, "the best rate of the fake engine"
    monkeypatch.setattr("memloci.sweeps.start.EXECUTE", "tests.study.fake:no_such_engine")
    second = ask()
    assert second.panels == first.panels and second.rows == first.rows
    with Store(store, create=False) as opened:
        assert opened.rows() == rows


def test_compiled_curves_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("MEMLOCI_CACHE", str(tmp_path))
    first = compiled_only("lag", "heads", [1, 2])
    monkeypatch.setattr(module, "compiled", None)  # computing again would need it
    second = compiled_only("lag", "heads", [1, 2])
    assert second.panels == first.panels and second.rows == first.rows and second.floors == first.floors
    (file,) = (tmp_path / "curves").iterdir()
    file.write_text("{")
    with pytest.raises(TypeError):
        compiled_only("lag", "heads", [1, 2])


def test_kept_numbers_are_of_their_types_again():
    point = compiled_curves.Point(2, Proved(0.1 + 0.2), Proved(math.inf), Observed(1e-300), None, "two heads")
    floor = compiled_curves.CurveFloor("capacity", {1: 0.5, 16: 0.25}, "proved")
    whole = compiled_curves.CompiledResults({"compiled": (point,)}, (floor,), ("a note",))
    again = compiled_curves.compiled_from_dict(json.loads(json.dumps(asdict(whole))))
    assert again == whole
    (same,) = again.curves["compiled"]
    assert isinstance(same.E, Proved) and isinstance(same.err_sup, Observed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "vary"),
    [("lag", "bits"), ("kernel", "length"), ("pointer", "heads"), ("pointer", "samples")],
)
def test_every_size_can_be_trained(nothing_compiled, tmp_path, task, vary):
    values = {"samples": [4, 8], "length": [16, 20], "bits": [24, 53]}.get(vary, [1, 2])
    found = rates(
        TASKS[task], vary, values=values, seeds=2, steps=5, store=tmp_path / "runs.sqlite", workers=1
    )
    trained = next(series for series in found.panels[0].series if series.kind == "trained")
    assert trained.x == tuple(values) and all(len(own) == 2 for own in trained.values), found.notes


def test_arms_can_be_built_for_every_gallery_task():
    """Without training: the architecture is one, and sequences have room for every lag."""
    for name, entry in ml.GALLERY.items():
        task = entry()
        for vary in VARIES:
            asked = read(task, vary, None, "log", 5, 600, 0)
            notes: list[str] = []
            arms = arms_of(asked, 600, notes)
            assert len(arms) >= 2, (name, vary, notes)
            for value, arm in arms.items():
                assert isinstance(arm, Arm)
                run = arm.run(1e-2, 0)
                far = max(task.lag_bounds)
                assert far == math.inf or (run.training.length or 0) > far, (name, vary, value)


# -- what is missing --------------------------------------------------------------------------------------


def test_what_is_missing_has_a_reason():
    found = compiled_only("kernel", "layers", [1, 2])
    assert not found.panels[0].series
    told = "\n".join(found.notes)
    for start in ("compiled, float32: none of 1 layer: no single lag", "lower bound:", "trained:", "paper:"):
        assert start in told


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"vary": "depth"}, "vary: unknown 'depth'; use heads"),
        ({"vary": "heads", "encoding": "rope"}, "encoding: unknown 'rope'"),
        ({"vary": "heads", "values": [4]}, "two or more"),
        ({"vary": "heads", "values": [0, 4]}, "from 1 to"),
        ({"vary": "heads", "values": [1, 10**6]}, "from 1 to 256"),
        ({"vary": "heads", "values": [1, 2.5]}, "whole numbers"),
        ({"vary": "bits", "values": [8, 16]}, "no format has 16 bits"),
        ({"vary": "heads", "seeds": 0}, "cannot train 0 seeds"),
        ({"vary": "heads", "engine": "cloud"}, "engine: unknown 'cloud'"),
    ],
)
def test_mistakes_are_told(nothing_compiled, settings, match):
    with pytest.raises(BadInput, match=match):
        rates(TASKS["lag"], **settings)


# -- the command and the page -----------------------------------------------------------------------------


def run_command(capsys, *arguments) -> tuple[int, str, str]:
    try:
        main(["rates", *arguments])
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("echo", "--vary", "size"),
        ("echo", "--vary", "heads", "--values", "1,two"),
        ("echo", "--vary", "heads", "--values", ""),
        ("no-such-task", "--vary", "heads"),
        ("echo", "--vary", "bits", "--values", "8,9"),
    ],
)
def test_a_mistake_gets_one_line_and_status_2(capsys, arguments):
    status, out, err = run_command(capsys, *arguments)
    assert status == 2 and not out
    assert err.startswith("memloci: ") and err.count("\n") == 1


def test_the_command_writes_a_page_figures_and_data(nothing_compiled, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(module, "tuned_runs", trained_as(lambda m: 1.0 / m))
    common = ("product", "--vary", "width", "--values", "4,8,16", "--seeds", "2")
    status, out, _ = run_command(capsys, *common, "--out", str(tmp_path / "out"))
    assert status == 0 and "Largest error against width" in out and "slope in width" in out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "rates.html",
        *(f"rates-{m}.{e}" for m in ("sup", "mean-square") for e in ("svg", "csv")),
    }
    assert "trained,trained,4,0,0.25" in (tmp_path / "out" / "rates-sup.csv").read_text()
    status, out, _ = run_command(capsys, *common, "--json")
    told = json.loads(out)
    assert status == 0 and told["command"] == "memloci rates product --vary width --values 4,8,16 --seeds 2"
    assert {slope["measure"] for slope in told["slopes"]} == set(MEASURES)


def test_a_page_is_safe_and_says_all(nothing_compiled, monkeypatch):
    monkeypatch.setattr(module, "tuned_runs", trained_as(lambda m: 1.0 / m))
    task = ml.Fixed(lags=[2], readout="x1", description="<script>alert(1)</script>")
    found = rates(task, "width", values=[2, 4], seeds=2)
    page = rates_html(found)
    assert "<script" not in page and "&lt;script&gt;" in page
    for text in ("m^-1/2", "compiled: left out", "95 %", found.command):
        assert text in page
    assert rates_files(found).keys() >= {"rates.html", "rates-sup.svg"}
    json.dumps(found.to_dict(), allow_nan=False)
