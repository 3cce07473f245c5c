"""A stored model comes back bit by bit, or is refused in one line; a save happens whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from memloci.core.errors import BadInput
from memloci.model.store import RECORD, WEIGHTS, load, read, save
from memloci.tasks.load import load_task

from .cases import ONCE, PLAIN, build, name, same_bits, tokens

CASE = dict(attention="dp", encoding="rope")


@pytest.fixture
def stored(tmp_path) -> Path:
    directory = tmp_path / "model"
    save(build(CASE, layers=1), directory, task=load_task("delay"))
    return directory


@pytest.mark.long(4)
@pytest.mark.parametrize("case", ONCE, ids=name)
def test_a_model_comes_back_bit_by_bit(case, tmp_path):
    model = build(case, layers=1, norm="pre", precision="float32" if case in PLAIN else "float64")
    save(model, tmp_path / "a" / "b", task={"kind": "fixed"}, extra={"slots": {"x1": [0, 1]}})
    again, task, extra = read(tmp_path / "a" / "b")
    assert task == {"kind": "fixed"} and extra == {"slots": {"x1": [0, 1]}}
    assert again.architecture == model.architecture
    assert jax.tree.structure(again) == jax.tree.structure(model)
    assert all(map(same_bits, jax.tree.leaves(again), jax.tree.leaves(model)))
    assert sorted(os.listdir(tmp_path / "a" / "b")) == [RECORD, WEIGHTS]


def test_a_task_comes_back_or_is_absent(tmp_path):
    model = build(CASE, layers=1)
    pointer = load_task("nested-2")
    save(model, tmp_path, task=pointer)
    loaded, task = load(tmp_path)
    assert task == pointer
    assert same_bits(loaded(tokens()), model(tokens()))
    save(model, tmp_path)
    assert load(tmp_path)[1] is None


def edit(**changes: Any):
    def change(directory: Path):
        record = json.loads((directory / RECORD).read_text())
        (directory / RECORD).write_text(json.dumps(record | changes))

    return change


def edit_architecture(**changes: Any):
    def change(directory: Path):
        record = json.loads((directory / RECORD).read_text())
        record["architecture"] |= changes
        (directory / RECORD).write_text(json.dumps(record))

    return change


def edit_weights(change_tensors, metadata=None):
    def change(directory: Path):
        tensors = safetensors.numpy.load_file(directory / WEIGHTS)
        change_tensors(tensors)
        safetensors.numpy.save_file(tensors, directory / WEIGHTS, metadata=metadata)

    return change


def overwrite(file: str, data: bytes):
    return lambda directory: (directory / file).write_bytes(data)


def header(length: int, text: bytes = b"") -> bytes:
    return length.to_bytes(8, "little") + text


def replace_by_link(directory: Path):
    (directory / WEIGHTS).rename(directory / "elsewhere")
    (directory / WEIGHTS).symlink_to("elsewhere")


def replace_by_directory(directory: Path):
    (directory / RECORD).unlink()
    (directory / RECORD).mkdir()


def replace_by_pipe(directory: Path):
    (directory / WEIGHTS).unlink()
    os.mkfifo(directory / WEIGHTS)


def truncate(directory: Path):
    data = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(data[:-3])


def drop_version(directory: Path):
    record = json.loads((directory / RECORD).read_text())
    del record["version"]
    (directory / RECORD).write_text(json.dumps(record))


W = "layers.0.attention.heads.W_V"
huge = b'{"W_E":{"dtype":"F64","shape":[1000000,1000000],"data_offsets":[0,8000000000000]}}'


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda d: (d / RECORD).unlink(), "model.json: no such file"),
        (lambda d: (d / WEIGHTS).unlink(), "model.safetensors: no such file"),
        (overwrite(RECORD, b"{"), "model.json: not JSON"),
        (overwrite(RECORD, b"\xff\xfe"), "not JSON"),
        (overwrite(RECORD, b"[" * 100_000), "not JSON"),
        (overwrite(RECORD, b'{"format": NaN}'), "not JSON"),
        (overwrite(RECORD, b"[1]"), "no key 'format'"),
        (overwrite(RECORD, b" " * (2**24 + 1)), "at most 16,777,216 were expected"),
        (edit(format=2), "format 2 is not known, this version reads 1"),
        (edit(format=True), "format True is not known"),
        (edit(colour="red"), "unknown key 'colour'"),
        (drop_version, "version is missing"),
        (edit(task=[1]), r"task must be an object, found \[1\]"),
        (edit(extra="x"), "extra must be an object"),
        (edit(architecture=None), "architecture must be an object, found None"),
        (edit(channels=10**12), "channels must be a whole number"),
        (edit(outputs="3"), "outputs must be a whole number"),
        (edit_architecture(attention="tmx"), "is exactly dpf"),
        (edit_architecture(layers=10**12), "architecture: layers"),
        (edit_architecture(dim=2**16, width=2**22), "parameters, at most"),
        (edit_architecture(colour="red"), "unknown key 'colour'"),
        (edit_architecture(layers=2), "tensor layers.1.* is missing"),
        (edit_architecture(width=0), "tensor 'layers.0.ffn.A' does not belong"),
        (edit_architecture(value_dim=4), r"W_V must have shape \(2, 4, 6\), found \(2, 3, 6\)"),
        (edit_architecture(precision="float32"), "must be float32, found float64"),
        (overwrite(WEIGHTS, b""), "not a whole safetensors file"),
        (overwrite(WEIGHTS, b"pickle?" * 9), "not a whole safetensors file"),
        (overwrite(WEIGHTS, header(2**63)), "not a whole safetensors file"),
        (overwrite(WEIGHTS, header(len(huge), huge)), "not a whole safetensors file"),
        (overwrite(WEIGHTS, b" " * 10**6), "bytes, but at most"),
        (truncate, "not a whole safetensors file"),
        (edit_weights(lambda t: t.pop(W)), f"tensor {W} is missing"),
        (edit_weights(lambda t: t.update(more=np.zeros(1))), "tensor 'more' does not belong"),
        (edit_weights(lambda t: t.update({W: t[W][:1]})), "must have shape"),
        (edit_weights(lambda t: t.update({W: t[W].astype("float32")})), "must be float64, found float32"),
        (edit_weights(lambda t: t.update({W: t[W] * np.nan})), "holds NaN or infinity"),
        (edit_weights(lambda t: t.update({W: t[W] + np.inf})), "holds NaN or infinity"),
        (edit_weights(lambda t: None, metadata={"id": "0"}), "are from different models"),
        (replace_by_link, "a symbolic link, not a file"),
        (replace_by_directory, "model.json: not a regular file|cannot be read: Is a directory"),
        (replace_by_pipe, "not a regular file"),
    ],
)
def test_a_spoilt_model_is_refused_in_one_line(stored, spoil, reason):
    spoil(stored)
    with pytest.raises(BadInput, match=reason) as refusal:
        load(stored)
    assert "\n" not in str(refusal.value) and str(refusal.value).startswith(str(stored))
    assert len(str(refusal.value)) < 500


def test_a_pair_without_ids_is_accepted(stored):
    edit_weights(lambda tensors: None)(stored)
    load(stored)


@pytest.mark.parametrize("missing", ["nowhere", "file"])
def test_a_missing_directory_is_refused(tmp_path, missing):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="model.json: (no such file|cannot be read)"):
        load(tmp_path / missing)


def test_a_divergent_slope_is_neither_saved_nor_loaded(tmp_path):
    model = build(dict(attention="dpf", encoding="log", normalisation="infinite"), layers=1)
    save(model, tmp_path)
    p = "layers.0.attention.heads.encoding.p"
    edit_weights(lambda tensors: tensors.update({p: np.array([2.0, 0.5])}))(tmp_path)
    with pytest.raises(BadInput, match="layer 0: attention: head 1 has slope p = 0.5"):
        load(tmp_path)
    broken = eqx.tree_at(lambda m: m.layers[0].attention.heads.encoding.p, model, jnp.asarray([2.0, 0.5]))
    with pytest.raises(BadInput, match="head 1"):
        save(broken, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("fails_at", [1, 2])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_an_interrupted_save_leaves_the_old_files_whole(stored, monkeypatch, fails_at, failure):
    before = {path.name: path.read_bytes() for path in stored.iterdir()}
    calls, replace = [], os.replace

    def failing(*paths):
        calls.append(paths)
        if len(calls) == fails_at:
            raise failure
        replace(*paths)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises((BadInput, KeyboardInterrupt)):
        save(build(CASE, layers=2), stored)
    assert {path.name: path.read_bytes() for path in stored.iterdir()} == before
    load(stored)


@pytest.mark.parametrize("fails_at", ["replace", "fsync"])
def test_an_interrupted_first_save_leaves_nothing(tmp_path, monkeypatch, fails_at):
    def failing(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, fails_at, failing)
    with pytest.raises(BadInput, match="cannot be written: Input/output error"):
        save(build(CASE, layers=1), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_data_that_is_not_json_is_refused_before_writing(tmp_path):
    for extra in ({"x": float("nan")}, {"x": object()}):
        with pytest.raises(BadInput, match="cannot be written as JSON"):
            save(build(CASE, layers=1), tmp_path / "new", extra=extra)
    assert not (tmp_path / "new").exists()


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("keep")
    with pytest.raises(BadInput, match="cannot be written"):
        save(build(CASE, layers=1), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "keep"
