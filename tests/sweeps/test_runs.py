"""Stored runs can be filtered, compared and exported, and a mistake gets one line."""

import csv
import json
import statistics
import sys
from types import ModuleType

import pytest

from memloci.core.errors import BadInput
from memloci.sweeps.runs import Runs
from memloci.sweeps.store import Store
from memloci.sweeps.worker import Job, Worker

from . import fake
from .cases import FAKE, make_run, make_runs


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Two batches of five seeds, one run that diverged and one that failed."""
    path = tmp_path_factory.mktemp("runs") / "runs.sqlite"
    runs = [*make_runs(range(5), batches=(1, 2)), make_run(fake.DIVERGE, 1), make_run(fake.CRASH, 2)]
    with Store(path) as store:
        sweep = store.enqueue("all", runs)
        store.enqueue("few", runs[:3])
        Worker(Job(str(path), sweep, FAKE), "me", store, fake.execute).work()
    return path


def test_all_runs_or_those_of_a_sweep(path):
    runs = Runs(path)
    assert len(runs) == 12 and len(Runs(path, sweep="few")) == 3
    assert runs.counts() == {"done": 10, "diverged": 1, "failed": 1, "running": 0, "waiting": 0}
    assert runs[0]["sweeps"] == ["all", "few"] and runs[-1]["sweeps"] == ["all"]
    assert runs[0]["task.lags"] == [3] and runs[0]["training.batch"] == 1
    assert runs.history(runs[0]["key"])["step"] == [0, 40]
    assert runs.weights(runs[0]["key"]) == runs[0]["value"].encode()
    with pytest.raises(BadInput, match="no sweep 'none'; there are all, few"):
        Runs(path, sweep="none")
    with pytest.raises(BadInput, match="no run 0000"):
        runs.weights("0000")


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        (["training.batch=1"], 6),
        (["training.batch==1", "training.seed<3"], 3),
        (["training.batch = 1, training.seed <= 3"], 4),
        (["training.batch=1 and training.seed>=3 and training.seed!=4"], 2),
        (["task.lags=[3]"], 12),
        (["task.lags=[3,5]"], 0),
        (["task.kind=fixed,status=failed"], 1),
        (["task.kind='fixed'", 'status!="done"'], 2),
        (["training.samples=null"], 12),
        (["err_sup>=0"], 10),  # what has no such number is on no side of it
        (["err_sup=null"], 2),
    ],
)
def test_conditions_are_met(path, conditions, count):
    assert len(Runs(path).where(*conditions)) == count


@pytest.mark.parametrize(
    ("condition", "line"),
    [
        ("batch=1", "where: no run has the field 'batch'; perhaps training.batch is meant"),
        ("nosuch<1", "where: no run has the field 'nosuch'; there are key, status"),
        ("training.batch", "where: 'training.batch' is no condition; write FIELD=VALUE"),
        ("training.batch<many", "where: training.batch < takes a number, found 'many'"),
    ],
)
def test_a_mistake_in_a_condition_gets_one_line(path, condition, line):
    with pytest.raises(BadInput, match=line):
        Runs(path).where(condition)


def test_a_comparison_has_intervals_over_seeds(path):
    first, second = Runs(path).compare("training.batch", measure="err_sup")
    values = [fake.execute([run])[0].record["err_sup"] for run in make_runs(range(5))]
    assert (first["training.batch"], first["runs"], first["diverged"], first["failed"]) == (1, 5, 1, 0)
    assert (second["training.batch"], second["runs"], second["diverged"], second["failed"]) == (2, 5, 0, 1)
    assert first["median"] == statistics.median(values) and first["mean"] == statistics.fmean(values)
    half = 2.7764451 * statistics.stdev(values) / 5**0.5  # t of 4 degrees of freedom, from a table
    assert (first["low"], first["high"]) == pytest.approx((first["mean"] - half, first["mean"] + half))
    assert first["also"] == []


def test_a_comparison_says_what_else_differs_and_what_cannot_be_known(path):
    (line,) = Runs(path).where("training.seed=0").compare("task.kind")
    assert line["also"] == ["training.batch"] and line["runs"] == 2
    alone = Runs(path).where("training.seed=0").compare("training.batch")[0]
    assert alone["low"] is None and alone["mean"] == alone["median"]
    with pytest.raises(BadInput, match="by: no run has the field 'heads'"):
        Runs(path).compare("heads")
    with pytest.raises(BadInput, match="measure: value is no number"):
        Runs(path).compare("training.batch", measure="value")
    assert Runs(path).where("training.seed=77").compare("training.batch") == []


def test_csv_and_jsonl_hold_every_field(path, tmp_path):
    runs = Runs(path)
    runs.export(tmp_path / "runs.csv")
    with open(tmp_path / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["key"] for row in rows] == [row["key"] for row in runs]
    assert float(rows[0]["err_sup"]) == runs[0]["err_sup"] and json.loads(rows[0]["task.lags"]) == [3]
    assert rows[-1]["status"] == "failed" and rows[-1]["err_sup"] == ""
    runs.export(tmp_path / "runs.jsonl")
    assert [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()] == list(runs)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["runs.csv", "runs.jsonl"]


def test_parquet_needs_pyarrow_and_says_so(path, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="Parquet needs pyarrow: pip install pyarrow"):
        Runs(path).export(tmp_path / "runs.parquet")
    assert not list(tmp_path.iterdir())


def test_parquet_gets_columns_of_one_type(path, tmp_path, monkeypatch):
    written = {}
    pyarrow, parquet = ModuleType("pyarrow"), ModuleType("pyarrow.parquet")
    pyarrow.table = dict  # type: ignore[attr-defined]
    parquet.write_table = lambda table, file: written.update(table) or file.write(b"PAR1")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", pyarrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    Runs(path).export(tmp_path / "runs.parquet")
    assert (tmp_path / "runs.parquet").read_bytes() == b"PAR1"
    for values in written.values():
        assert len(values) == 12 and len({type(value) for value in values if value is not None} - {int}) <= 1


def test_an_export_that_cannot_be_gets_one_line(path, tmp_path):
    with pytest.raises(BadInput, match="unknown kind of file; use .csv, .jsonl, .parquet"):
        Runs(path).export(tmp_path / "runs.xlsx")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        Runs(path).export(tmp_path / "file" / "runs.csv")


def test_a_store_without_runs_is_no_mistake(tmp_path):
    Store(tmp_path / "runs.sqlite").close()
    runs = Runs(tmp_path / "runs.sqlite")
    assert len(runs) == 0 and len(runs.where("training.seed=1")) == 0 and runs.compare("training.seed") == []
