"""plan, compile, verify and measure from the command line: files, exit codes, and changed weights caught."""

import json

import numpy as np
import pytest
import safetensors.numpy

from .commands import memloci, memloci_apart

TASK = 'kind = "fixed"\nlags = [3]\nreadout = "x1"\n'


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    root = tmp_path_factory.mktemp("compiled")
    (root / "task.toml").write_text(TASK)
    arguments = "compile", root / "task.toml", "--out", root / "model", "--route", "rotary", "--json"
    result = memloci_apart(*arguments)
    assert result.returncode == 0, result.stderr
    return root / "model", json.loads(result.stdout)


def test_compile_writes_five_files(compiled):
    directory, told = compiled
    names = sorted(path.name for path in directory.iterdir())
    assert names == ["certificate.json", "circuit.json", "model.json", "model.safetensors", "report.html"]
    certificate = json.loads((directory / "certificate.json").read_text())
    assert certificate == told["certificate"] and certificate["status"] == "met"
    for key in ("tolerance", "precision", "bound", "exact_bound", "bound_by_precision", "terms", "mass"):
        assert key in certificate
    for key in ("mass_lower_bound", "bits", "assumptions", "arithmetic"):
        assert key in certificate
    circuit = json.loads((directory / "circuit.json").read_text())
    model = json.loads((directory / "model.json").read_text())
    assert circuit["route"] == "rotary" and circuit["layers"][0]["heads"][0]["writes"] == ["x@3"]
    assert [slot["name"] for slot in circuit["slots"]] == model["extra"]["slots"]


def test_verify_confirms_an_honest_directory(compiled):
    result = memloci_apart("verify", compiled[0], "--json")
    told = json.loads(result.stdout)
    assert result.returncode == 0 and told["agrees"] and told["problem"] is None


def test_measure_stays_below_the_certificate(compiled):
    result = memloci("measure", compiled[0], "--sequences", "4", "--json")
    told = json.loads(result.stdout)
    assert result.returncode == 0
    assert told["measured"]["err_adversarial"] <= told["certificate"]["bound"]


def copy_with(directory, where, change):
    where.mkdir()
    for path in directory.iterdir():
        (where / path.name).write_bytes(path.read_bytes())
    data = (where / "model.safetensors").read_bytes()
    tensors = safetensors.numpy.load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    changed = {name: np.array(tensor) for name, tensor in tensors.items()}
    change(changed)
    (where / "model.safetensors").write_bytes(
        safetensors.numpy.save(changed, metadata=header["__metadata__"])
    )
    return where


@pytest.mark.parametrize(
    "tensor", ["W_E", "W_U", "layers.0.attention.heads.W_O", "layers.0.attention.heads.encoding.k"]
)
def test_verify_catches_a_changed_weight(compiled, tmp_path, tensor):
    def change(tensors):
        tensors[tensor] *= 1 + 1e-3  # every number, so that one which matters is among them

    result = memloci("verify", copy_with(compiled[0], tmp_path / "changed", change), "--json")
    told = json.loads(result.stdout)
    assert result.returncode == 3 and not told["agrees"] and "the weights give" in told["problem"]


def test_a_forged_certificate_is_caught(compiled, tmp_path):
    where = copy_with(compiled[0], tmp_path / "forged", lambda tensors: None)
    certificate = json.loads((where / "certificate.json").read_text())
    for key, forged in [("bound", certificate["bound"] / 2), ("bits", 3), ("bound_by_precision", {})]:
        (where / "certificate.json").write_text(json.dumps({**certificate, key: forged}))
        caught = memloci("verify", where)
        assert caught.returncode == 3 and f"certificate.{key}" in caught.stdout
    (where / "certificate.json").write_text("{}")
    refused = memloci("verify", where)
    assert (
        refused.returncode == 2 and "not a certificate" in refused.stderr and refused.stderr.count("\n") == 1
    )


def test_a_missed_tolerance_is_status_3_and_still_written(tmp_path):
    (tmp_path / "task.toml").write_text(TASK)
    out = tmp_path / "missed"
    result = memloci(
        "compile", tmp_path / "task.toml", "--out", out, "--route", "rotary", "--tolerance", "1e-20"
    )
    assert result.returncode == 3 and (out / "certificate.json").is_file()


def test_mistakes_get_one_line(tmp_path):
    (tmp_path / "task.toml").write_text(TASK)
    for arguments, text in [
        (["plan", tmp_path / "task.toml", "--tolerance", "-1"], "tolerance"),
        (["plan", tmp_path / "task.toml", "--precision", "float8"], "precision"),
        (["plan", tmp_path / "task.toml", "--route", "teleport"], "unknown"),
        (["verify", tmp_path / "nothing"], "no such file"),
        (["measure", tmp_path], "no such file"),
    ]:
        result = memloci(*arguments)
        assert result.returncode == 2 and text in result.stderr and result.stderr.count("\n") == 1, (
            result.stderr
        )


def test_plan_tells_what_cannot_serve_and_why(tmp_path):
    (tmp_path / "task.toml").write_text(TASK.replace("3", "9"))
    result = memloci("plan", tmp_path / "task.toml", "--route", "one-layer-lin", "--json")
    told = json.loads(result.stdout)
    assert result.returncode == 3 and "proved" in told["obstacles"]["one-layer-lin"]
    result = memloci("plan", "pointer", "--route", "depth-1")
    assert result.returncode == 3 and "memory 1 is at" in result.stdout
