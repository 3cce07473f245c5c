"""A sweep file stands for exactly the runs that it says, and a mistake in it gets one line."""

import math
from pathlib import Path

import pytest

from memloci.core.errors import BadInput
from memloci.sweeps.grid import MAX_RUNS, make_sweep, read_sweep
from memloci.tasks.gallery import GALLERY

FILE = """
name = "heads"
task = "delay"
[architecture]
layers = 1
heads = 4
width = 64
[training]
steps = 200
[grid]
"architecture.heads" = [1, 2, 4]
"training.rate" = [1e-3, 3e-3]
"training.seed" = [0, 1, 2]
"""
BASE = {"task": "delay", "architecture": {"layers": 1, "heads": 4, "width": 8}}
SEEDS = {"training.seed": [0, 1]}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return path


def drawn(count: int, seed: int = 0, **described):
    """Of one setting or several, what a random search draws."""
    table = {"samples": count, "seed": seed, **{f"training.{name}": d for name, d in described.items()}}
    runs = make_sweep({**BASE, "random": table}).runs
    return [tuple(getattr(run.training, name) for name in described) for run in runs]


def test_every_combination_once(tmp_path):
    sweep = read_sweep(write(tmp_path, FILE))
    heads = [run.to_dict()["architecture"]["heads"] for run in sweep.runs]
    found = [(h, run.training.rate, run.training.seed) for h, run in zip(heads, sweep.runs, strict=True)]
    assert found == [(h, r, s) for h in (1, 2, 4) for r in (1e-3, 3e-3) for s in (0, 1, 2)]
    assert sweep.name == "heads" and not sweep.impossible
    assert all(run.training.steps == 200 and run.training.batch == 128 for run in sweep.runs)
    assert len({run.key for run in sweep.runs}) == 18 and len({run.program for run in sweep.runs}) == 3


def test_quotes_do_not_matter_and_a_run_met_twice_is_one_run(tmp_path):
    plain = read_sweep(write(tmp_path, FILE))
    unquoted = FILE.replace('"training.rate"', "training.rate").replace('"training.seed"', "training.seed")
    assert read_sweep(write(tmp_path, unquoted)).runs == plain.runs
    assert len(make_sweep({**BASE, "grid": {"training.seed": [0, 1, 1, 0]}}).runs) == 2


def test_tasks_vary_whole_or_by_field(tmp_path):
    (tmp_path / "mine.toml").write_text('kind = "fixed"\nlags = [2]\nreadout = "x1"\n')
    inline = {"kind": "fixed", "lags": [9], "readout": "x1"}
    grid = {"task": ["delay", "mine.toml", inline], "task.lags": [[3], [5]]}
    runs = make_sweep({**BASE, "grid": grid}, tmp_path).runs
    assert [run.task["lags"] for run in runs] == [[3], [5]] * 2  # mine and inline differ in lags only
    whole = make_sweep({**BASE, "grid": {"task": ["delay", "mine.toml", inline]}}, tmp_path).runs
    assert [run.task["lags"] for run in whole] == [GALLERY["delay"]().to_dict()["lags"], [2], [9]]


def test_a_data_file_is_a_task(tmp_path):
    (tmp_path / "words.txt").write_text("to be or not to be, that is the question\n" * 50)
    for task in ("words.txt", {"text": "words.txt"}):
        (run,) = make_sweep({**BASE, "task": task, "grid": {"training.seed": [0]}}, tmp_path).runs
        assert run.task["kind"] == "text" and Path(run.task["path"]) == tmp_path / "words.txt"
    with pytest.raises(BadInput, match="has no fields to vary"):
        make_sweep({**BASE, "task": "words.txt", "grid": {"task.kind": ["arrays"]}}, tmp_path)


def test_random_search_draws_within_bounds_and_keeps_whole_numbers_whole():
    rates = [rate for (rate,) in drawn(200, rate={"low": 1e-4, "high": 1e-2, "scale": "log"})]
    assert all(1e-4 <= rate <= 1e-2 for rate in rates)
    assert (
        0.3 < sum(rate < 1e-3 for rate in rates) / len(rates) < 0.7
    )  # half of the decades, drawn from a seed
    for scale in ("linear", "log"):
        steps = {step for (step,) in drawn(300, steps={"low": 1, "high": 4, "scale": scale})}
        assert steps == {1, 2, 3, 4} and all(type(step) is int for step in steps)
    assert {rate for (rate,) in drawn(50, rate={"values": [0.1, 0.2]})} == {0.1, 0.2}


@pytest.mark.parametrize(("low", "high"), [(1e-9, 2e-9), (0.5, 0.75), (1234.5, 98765.4), (1e9, 1e12)])
def test_numbers_of_any_size_have_six_digits(low, high):
    for scale in ("linear", "log"):
        for (clip,) in drawn(20, clip={"low": low, "high": high, "scale": scale}):
            assert low <= clip <= high and clip == float(f"{clip:.5e}")


def test_more_samples_or_settings_keep_what_was_drawn():
    rate, warmup = {"low": 1e-4, "high": 1e-2}, {"low": 0, "high": 10**6}
    few, many = drawn(5, rate=rate), drawn(20, rate=rate)
    assert many[:5] == few and drawn(5, seed=1, rate=rate) != few
    assert [pair[:1] for pair in drawn(5, rate=rate, warmup=warmup)] == few


def test_random_search_times_the_grid():
    table = {"samples": 4, "training.rate": {"low": 0.1, "high": 0.2}}
    runs = make_sweep({**BASE, "random": table, "grid": SEEDS}).runs
    rates = [run.training.rate for run in runs]
    assert len(runs) == 8 and rates[0::2] == rates[1::2] and len(set(rates)) == 4


def test_impossible_combinations_are_told_together_and_the_rest_can_run():
    grid = {"architecture.attention": ["dp", "tmx", "nosuch"], **SEEDS}
    sweep = make_sweep({**BASE, "grid": grid})
    assert [run.training.seed for run in sweep.runs] == [0, 1]
    cancels, unknown = sweep.impossible
    assert cancels.count == unknown.count == 2
    assert "the query term cancels" in cancels.reason and cancels.example["architecture.attention"] == "tmx"
    assert unknown.reason.startswith("architecture: attention: unknown 'nosuch'")


def test_the_number_is_asked_about_before_the_runs_are_made():
    def refuse(count):
        raise BadInput(f"{count} are too many")

    with pytest.raises(BadInput, match="6 are too many"):
        make_sweep({**BASE, "grid": {**SEEDS, "training.rate": ["a", "b", "c"]}}, confirm=refuse)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"grids": {}}, "unknown key 'grids'; the keys are name, task,"),
        ({"name": 3}, "name: must be a printable line"),
        ({"task": None}, "task is missing"),
        ({"task": "nosuch"}, "task: .* is neither a file nor a gallery task"),
        ({"task": 3}, "task: must be a gallery name, a task file or a table, found 3"),
        ({"task": {"kind": "fixed", "lags": [3]}}, "no combination is possible: task: readout is missing"),
        ({"architecture": {"layer": 1}}, "architecture: unknown key 'layer'"),
        ({"architecture": 3}, "architecture: must be a table, found 3"),
        ({"architecture": {}}, "no combination is possible: architecture is missing"),
        ({"training": {"steps": "many"}}, "no combination is possible: training: steps: input should be"),
        ({"grid": None}, "nothing varies"),
        ({"grid": {}}, "grid: is empty"),
        ({"grid": []}, "grid: must be a table"),
        ({"grid": {"training.seed": []}}, "grid: training.seed: the list is empty"),
        ({"grid": {"training.seed": 3}}, "grid: training.seed: must be a list of values, found 3"),
        ({"grid": {"training.sed": [3]}}, "'training.sed' names no setting; training has batch, clip"),
        ({"grid": {"seed": [3]}}, "'seed' names no setting; write task, task.FIELD"),
        ({"grid": {"task.kernels": [["z"]]}}, "'task.kernels' names no setting; task has channels"),
        ({"grid": {"architecture": [{}]}}, "'architecture' names no setting"),
        (
            {"grid": {"training.seed": list(range(1001)), "training.rate": [0.1] * 1000}},
            "1,001,000 combinations",
        ),
        ({"random": {"training.rate": {"low": 1, "high": 2}}}, "random: samples: must be a whole number"),
        ({"random": {"samples": MAX_RUNS + 1}}, "random: samples: must be a whole number"),
        ({"random": {"samples": 3}}, "random: no setting"),
        ({"random": {"samples": 3, "seed": 0.5}}, "random: seed: must be a whole number"),
        ({"random": {"samples": 3, "training.seed": {"low": 0, "high": 9}}}, "is in .grid. and in .random."),
    ],
)
def test_a_mistake_gets_one_line(change, line):
    data = {**BASE, "grid": SEEDS, **change}
    with pytest.raises(BadInput, match=line) as refusal:
        make_sweep({key: value for key, value in data.items() if value is not None})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("described", "line"),
    [
        (3, "must be { low = .., high = .. } or { values"),
        ({"high": 3}, "must be { low = .., high = .. } or { values"),
        ({"low": 3}, "low and high must be numbers, found None"),
        ({"low": 3, "high": "x"}, "low and high must be numbers, found 'x'"),
        ({"low": 3, "high": math.inf}, "low and high must be numbers, found inf"),
        ({"low": 3, "high": 3}, "low must be below high"),
        ({"low": 0, "high": 3, "scale": "log"}, "low must be above 0"),
        ({"low": 1, "high": 3, "scale": "cubic"}, 'scale: must be "linear" or "log"'),
        ({"low": 1, "high": 3, "steps": 2}, "unknown key 'steps'; the keys are low, high, scale"),
        ({"values": 3}, "values: must be a list of values"),
        ({"values": [1], "low": 0}, "unknown key 'low'; the keys are values"),
    ],
)
def test_a_mistake_in_a_random_setting_names_it(described, line):
    with pytest.raises(BadInput, match=f"^random: training.rate: {line}"):
        drawn(3, rate=described)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"name = ", "not TOML"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b"a = " + b"[" * 5000, "not TOML"),
        (b"x" * (1 << 21), "at most"),
        (b'task = "delay"\n', "nothing varies"),
    ],
)
def test_a_file_that_is_no_sweep_gets_one_line_with_its_name(tmp_path, content, line):
    path = tmp_path / "sweep.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=f"sweep.toml: .*{line}"):
        read_sweep(path)


def test_a_missing_file_and_a_directory_get_one_line(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        read_sweep(tmp_path / "nosuch.toml")
    with pytest.raises(BadInput, match="cannot be read|not a regular file"):
        read_sweep(tmp_path)
