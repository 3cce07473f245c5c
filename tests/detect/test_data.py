"""Data files of every format become the same sequences, and what cannot be used is refused in one line."""

import json

import numpy as np
import pytest

import memloci as ml
from memloci.detect.data import NEXT, recording

x = np.linspace(-1, 1, 64) ** 3
y = np.roll(x, 1)


def files(root):
    np.save(root / "a.npy", np.stack([x, y], 1))
    np.savez(root / "b.npz", x=x, y=y)
    (root / "c.csv").write_text(
        "x,y\n" + "\n".join(f"{a!r},{b!r}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    )
    (root / "d.jsonl").write_text(
        "\n".join(json.dumps({"x": a, "y": b}) for a, b in zip(x.tolist(), y.tolist(), strict=True))
    )
    (root / "e.jsonl").write_text(json.dumps({"x": x.tolist(), "y": y.tolist()}))


@pytest.mark.parametrize("name", ["b.npz", "c.csv", "d.jsonl", "e.jsonl"])
def test_formats_agree(name, tmp_path):
    files(tmp_path)
    found = recording(tmp_path / name)
    assert np.allclose(found.x[0][:, 0], x) and np.allclose(found.y[0], y) and found.self_channel is None


def test_parquet_is_read(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    words = np.array(["low", "high"])[(x > 0).astype(int)]
    parquet.write_table(pa.table({"x": x, "w": words, "y": y}), tmp_path / "f.parquet")
    found = recording(tmp_path / "f.parquet")
    assert found.names == ("x", "w") and found.alphabets[1] == ("high", "low")
    assert np.allclose(found.y[0], y)


def test_text_and_next(tmp_path):
    (tmp_path / "t.txt").write_text("abracadabra " * 20)
    found = recording(tmp_path / "t.txt")
    assert (
        found.target == NEXT
        and found.self_channel == 0
        and found.alphabets[0] == (" ", "a", "b", "c", "d", "r")
    )
    assert np.array_equal(found.y[0], found.x[0][:, 0])


def test_shapes_and_unequal_lengths():
    many = np.random.default_rng(0).normal(size=(5, 40, 2))
    assert len(recording(many, many[..., 0]).x) == 5
    found = recording([many[0], many[1][:17]], [many[0][:, 0], many[1][:17, 0]])
    assert [len(part) for part in found.y] == [40, 17]
    last = recording(many, many[:, -1, 0])
    assert all(np.isfinite(part).sum() == 1 for part in last.y)


def test_missing_constant_and_mixed_columns(tmp_path):
    rows = [
        f"{k},{a!r},5,{'' if k == 7 else repr(b)},word{k}"
        for k, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True))
    ]
    (tmp_path / "m.csv").write_text("time,x,same,v,id\n" + "\n".join(rows))
    found = recording(tmp_path / "m.csv", target="x")
    assert found.names == ("v",) and np.isnan(found.x[0][7, 0])
    told = " ".join(found.notes)
    assert all(part in told for part in ("time", "same", "id", "misses 1 of 64"))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.csv", b"", "empty"),
        ("a.csv", b"x,y\n1,2\n3\n", "row 3 has 1 cells"),
        ("a.npy", b"nonsense", "not an array"),
        ("a.npz", b"nonsense", "not an archive"),
        ("a.jsonl", b"{]", "line 1"),
        ("a.txt", b"\xff\xfe\x00", "UTF-8"),
        ("a.xlsx", b"", "data is read from"),
        ("a.csv", b"x\n1\n2\n", "too few"),
        ("a.csv", b"x\n" + b"3\n" * 100, "constant"),
        ("a.parquet", b"nonsense", "Parquet"),
    ],
)
def test_bad_files_are_refused_in_one_line(name, content, match, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ml.BadInput, match=match) as caught:
        recording(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_pickles_and_bad_arrays_are_refused(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    with pytest.raises(ml.BadInput, match="without pickles"):
        recording(tmp_path / "o.npy")
    with pytest.raises(ml.BadInput, match="shape"):
        recording(np.zeros((2, 3, 4, 5)))
    with pytest.raises(ml.BadInput, match="one target per step"):
        recording(np.zeros((50, 2)), np.zeros(49))
    with pytest.raises(ml.BadInput, match="no column is called"):
        recording({"u": x, "v": y}, target="w")
