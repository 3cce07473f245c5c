"""Batches: what the task says, what the file holds, and nothing that is held out."""

import hashlib

import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.train.data import Arrays, FromTask, Text, describe, in_memory, source_of
from memloci.train.device import make_key

from .cases import small_run

KEY = make_key(3)


def test_a_batch_is_sequences_of_the_task_with_their_targets():
    source = source_of(small_run())
    x, y = source.batch(KEY, source.data(0))
    assert isinstance(source, FromTask) and x.shape == (8, 12, 1) and x.dtype == "float32"
    np.testing.assert_array_equal(y, source.task.target(x))
    assert len(np.unique(np.asarray(x))) > 90 and float(abs(x).max()) <= 1


def test_a_fixed_set_is_the_same_at_every_step_and_other_for_other_seeds():
    source = source_of(small_run(samples=20))
    data = source.data(0)
    x, y = source.batch(KEY, data)
    assert isinstance(source, FromTask)
    rows = {row.tobytes() for row in np.asarray(data[0])}
    assert len(rows) == 20 and {row.tobytes() for row in np.asarray(x)} < rows
    np.testing.assert_array_equal(y, source.task.target(x))
    assert not rows & {row.tobytes() for row in np.asarray(source.data(1)[0])}
    assert not rows & {row.tobytes() for row in np.asarray(source.held_out()[0])}


def test_a_set_no_larger_than_a_batch_is_taken_whole():
    source = source_of(small_run(samples=5))
    data = source.data(0)
    assert source.batch(KEY, data)[0] is data[0]


def test_held_out_sequences_are_the_same_for_all_seeds():
    a, b = (source_of(small_run(seed=seed)).held_out()[0] for seed in (0, 1))
    np.testing.assert_array_equal(a, b)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(bytes(np.random.default_rng(0).integers(0, 256, 1000, dtype=np.uint8)))
    return path


def test_text_predicts_the_next_byte_and_holds_out_the_end(text):
    source = source_of(small_run(describe(text)))
    assert isinstance(source, Text)
    data, content = source.data(0), np.frombuffer(text.read_bytes(), np.uint8)
    x, y = source.batch(KEY, data)
    assert x.shape == (8, 12, 256) and len(data) == 900
    read = np.asarray(x.argmax(-1))
    np.testing.assert_array_equal(np.asarray(x).sum(-1), 1.0)
    np.testing.assert_array_equal(read[:, 1:], np.asarray(y)[:, :-1])
    assert all(bytes(row.astype(np.uint8)) in bytes(content[:900]) for row in read)
    held = np.asarray(source.held_out()[0].argmax(-1))
    assert all(bytes(row.astype(np.uint8)) in bytes(content[900:]) for row in held)


def test_arrays_come_from_a_file_or_from_memory(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 12, 3)), rng.normal(size=(30, 12, 2))
    np.savez(tmp_path / "a.npz", x=x, y=y)
    from_file = source_of(small_run(describe(tmp_path / "a.npz")))
    described, arrays = in_memory(x, y)
    run = small_run(described)
    for source in (from_file, Arrays(run, arrays)):
        assert (source.channels, source.outputs) == (3, 2)
        kept, held = source.data(0), source.held_out()
        assert len(kept[0]) == 27 and len(held[0]) == 3
        np.testing.assert_array_equal(np.concatenate([kept[1], held[1]]), y.astype("float32"))
        rows, targets = source.batch(KEY, kept)
        where = [int(np.flatnonzero((np.asarray(kept[0]) == row).all((1, 2)))[0]) for row in np.asarray(rows)]
        np.testing.assert_array_equal(np.asarray(kept[1])[where], targets)


@pytest.mark.parametrize(
    "arrays, said",
    [
        ({"x": np.zeros((3, 4, 1))}, "two arrays"),
        ({"x": np.zeros((3, 4)), "y": np.zeros((3, 4, 1))}, "shape"),
        ({"x": np.zeros((3, 4, 1)), "y": np.zeros((2, 4, 1))}, "same sequences"),
        ({"x": np.full((3, 4, 1), np.nan), "y": np.zeros((3, 4, 1))}, "finite"),
        ({"x": np.zeros((3, 4, 1), complex), "y": np.zeros((3, 4, 1))}, "finite numbers"),
        ({"x": np.array([["a"]]), "y": np.zeros((3, 4, 1))}, "finite numbers"),
    ],
)
def test_arrays_that_are_no_sequences_are_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(BadInput, match=said):
        describe(tmp_path / "a.npz")


def test_files_that_are_not_there_or_no_data_are_refused(tmp_path, text):
    with pytest.raises(BadInput, match="no such file"):
        describe(tmp_path / "none.txt")
    (tmp_path / "bad.npz").write_bytes(b"not a zip")
    with pytest.raises(BadInput, match="not an .npz"):
        describe(tmp_path / "bad.npz")
    described = describe(text)
    assert described["sha256"] == hashlib.sha256(text.read_bytes()).hexdigest()
    text.write_bytes(text.read_bytes() + b"x")
    with pytest.raises(BadInput, match="has changed"):
        source_of(small_run(described))
    text.write_bytes(b"short")
    with pytest.raises(BadInput, match="too few"):
        source_of(small_run(describe(text)))
