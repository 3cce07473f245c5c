"""PyTorch computes what we compute: outputs, gradients, files, and the way back."""

import ast
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.core.tensors import pack, unpack
from memloci.exchange import layout, to_torch
from memloci.exchange.agreement import Disagreement, sequences
from memloci.exchange.formats import export
from memloci.exchange.subject import subject_of
from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from tests.commands import memloci
from tests.exchange.cases import REASON, built
from tests.model.cases import NORMS, SIZES, VALID

torch = pytest.importorskip("torch", reason=REASON)
from memloci.exchange import modeling  # noqa: E402

KINDS = ["echo", "pointer", "exponential", "power-law", "ringing"]


def module_of(model: Transformer):
    return to_torch.module_of(subject_of(model))


def relative(found, expected) -> float:
    return float(np.abs(found - expected).max() / max(float(np.abs(expected).max()), 1e-300))


@pytest.mark.long
@pytest.mark.parametrize("i", range(len(VALID)), ids=lambda i: "-".join(map(str, VALID[i].values())))
def test_every_switch_gives_our_outputs_in_any_block(i):
    model = Transformer(
        Architecture(**{**SIZES, **VALID[i], "norm": NORMS[i % 4], "path": "plain"}), 2, 3, key=jr.key(i)
    )
    module = module_of(model)
    x = 0.3 * np.random.default_rng(i).normal(size=(3, 12, 2))
    whole = np.asarray(eqx.filter_jit(eqx.filter_vmap(model))(jnp.asarray(x)))
    for n in (0, 1, 2, 12):
        ours = whole[:, :n]  # the future does not matter
        for pairs in (None, 7, modeling.PAIRS) if n else (modeling.PAIRS,):
            for block in module.blocks:
                block.attn.pairs = pairs
            theirs = module(torch.from_numpy(x[:, :n])).detach().numpy()
            assert theirs.shape == ours.shape
            assert n == 0 or relative(theirs, ours) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("i", range(0, len(VALID), 2), ids=lambda i: "-".join(map(str, VALID[i].values())))
def test_gradients_are_ours_also_in_blocks(i):
    model = Transformer(
        Architecture(**{**SIZES, **VALID[i], "norm": NORMS[i % 4], "path": "plain"}), 2, 3, key=jr.key(i)
    )
    module = module_of(model)
    for block in module.blocks:
        block.attn.pairs = 50
    x = 0.3 * np.random.default_rng(i).normal(size=(12, 2))
    given = torch.tensor(x, requires_grad=True)
    (module(given) ** 2).sum().backward()
    loss = lambda both: (both[0](both[1]) ** 2).sum()
    weights, inputs = eqx.filter_jit(eqx.filter_grad(loss))((model, jnp.asarray(x)))
    assert given.grad is not None
    assert relative(given.grad.numpy(), np.asarray(inputs)) < 1e-5
    ours = layout.state(weights)
    theirs = {name: p.grad for name, p in module.named_parameters()}
    for name, gradient in ours.items():
        found = theirs[name]
        if gradient.any():
            assert relative(found.numpy(), gradient) < 1e-5, name
        else:
            assert found is None or not found.any(), name


SINGLE = [i for i in range(len(VALID)) if VALID[i]["normalisation"] != "none"]


@pytest.mark.long
@pytest.mark.parametrize("i", SINGLE, ids=lambda i: "-".join(map(str, VALID[i].values())))
def test_gradients_are_ours_in_float32(i):
    """Relative to the largest of an array; heads that are not normalised lose digits in both."""
    switches = {**SIZES, **VALID[i], "norm": NORMS[i % 4], "path": "plain", "precision": "float32"}
    model = Transformer(Architecture(**switches), 2, 3, key=jr.key(i))
    module = module_of(model)
    x = 0.3 * np.random.default_rng(i).normal(size=(12, 2)).astype(np.float32)
    given = torch.tensor(x, requires_grad=True)
    (module(given) ** 2).sum().backward()
    loss = lambda both: (both[0](both[1]) ** 2).sum()
    weights, inputs = eqx.filter_jit(eqx.filter_grad(loss))((model, jnp.asarray(x)))
    assert given.grad is not None and relative(given.grad.numpy(), np.asarray(inputs)) < 1e-5
    theirs = {name: p.grad for name, p in module.named_parameters()}
    largest = max(float(np.abs(g).max(initial=0.0)) for g in layout.state(weights).values())
    for name, gradient in layout.state(weights).items():
        if gradient.any():
            assert np.abs(theirs[name].numpy() - gradient).max() < 1e-5 * largest, name


@pytest.mark.parametrize("name", KINDS)
def test_an_export_is_within_its_bound_and_reproducible(name, tmp_path):
    done = export(built(name), "torch", tmp_path / "a")
    export(built(name), "torch", tmp_path / "b")
    assert done.proved.bound is not None and done.observed[-1].length == 512
    for file in done.files:
        data = (tmp_path / "a" / file).read_bytes()
        assert data == (tmp_path / "b" / file).read_bytes(), file
        assert str(tmp_path).encode() not in data and b"/home/" not in data and b"site-packages" not in data
    back = ml.from_torch(tmp_path / "a")
    pairs = zip(jax.tree.leaves(back), jax.tree.leaves(built(name).model), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_a_changed_weight_is_noticed_when_an_export_is_checked(tmp_path, monkeypatch):
    from memloci.exchange import to_torch

    def spoiled(subject):
        written = layout.files(subject.model, subject.task)
        tensors, _ = unpack(written[layout.WEIGHTS])
        tensors["unembed.b_U"] = tensors["unembed.b_U"] + np.float32(0.01)
        return written | {layout.WEIGHTS: pack(tensors)}

    monkeypatch.setattr(to_torch, "files", spoiled)
    with pytest.raises(Disagreement, match="differs from ours by"):
        export(built("echo"), "torch", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_modeling_imports_torch_and_the_standard_library_only(tmp_path):
    export(built("echo"), "torch", tmp_path)
    tree = ast.parse((tmp_path / "modeling.py").read_text())
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {"torch"}


def test_long_sequences_run_in_blocks(tmp_path):
    export(built("echo"), "torch", tmp_path, lengths=[1])
    module = modeling.load(tmp_path)
    sizes = []
    hook = module.blocks[0].attn.hook_pattern.register_forward_hook(lambda m, i, y: sizes.append(y.numel()))
    x = sequences(built("echo").model, built("echo").task, 4096)[:1]
    with torch.no_grad():
        theirs = module(torch.from_numpy(x)).numpy()
    hook.remove()
    assert max(sizes) <= modeling.PAIRS < sum(sizes)
    bound = float(built("echo").certificate.bound)
    assert np.abs(theirs[0] - np.asarray(built("echo").model(x[0]))).max() <= 2 * bound


def test_a_model_trained_elsewhere_comes_back(tmp_path):
    export(built("exponential"), "torch", tmp_path, lengths=[1])
    module = modeling.load(tmp_path)
    with torch.no_grad():
        module.unembed.b_U += 0.25
    task = built("exponential").task
    again = ml.certify(ml.from_torch(module), task)
    assert 0.25 <= again.bound <= 0.26


REFUSALS = {
    "missing": (lambda t: t.pop("embed.W_E"), "tensor embed.W_E is missing"),
    "extra": (lambda t: t.update(other=np.zeros(2, np.float32)), "'other' does not belong"),
    "misshapen": (lambda t: t.update({"embed.b_E": np.zeros(1, np.float32)}), "embed.b_E must have shape"),
    "nan": (lambda t: t.update({"embed.b_E": t["embed.b_E"] * np.float32("nan")}), "embed.b_E holds NaN"),
    "type": (lambda t: t.update({"embed.b_E": t["embed.b_E"].astype(np.float64)}), "must be float32"),
}


def folder_with(directory, changed):
    """An exported folder with some of its files replaced."""
    for file, data in (layout.files(built("echo").model, built("echo").task) | changed).items():
        (directory / file).write_bytes(data)
    return directory


def refusals(folder):
    """What our loader and that of `modeling.py` say of a folder; one line each."""
    for loader, kind in ((ml.from_torch, ml.BadInput), (modeling.load, ValueError)):
        with pytest.raises(kind) as error:
            loader(folder)
        assert "\n" not in str(error.value)
        yield str(error.value)


@pytest.mark.parametrize("name", REFUSALS)
def test_wrong_tensors_are_refused_in_one_line_by_both_loaders(name, tmp_path):
    change, message = REFUSALS[name]
    tensors, _ = unpack(layout.files(built("echo").model, None)[layout.WEIGHTS])
    change(tensors)
    for told in refusals(folder_with(tmp_path, {layout.WEIGHTS: pack(tensors)})):
        assert message in told.replace("torch.", "")


def test_damaged_files_are_refused_in_one_line_by_both_loaders(tmp_path):
    whole = layout.files(built("echo").model, None)
    weights, config = whole[layout.WEIGHTS], json.loads(whole[layout.CONFIG])
    lies = b'{"embed.W_E":{"dtype":"F32","shape":[9,9],"data_offsets":[0,99999]}}'
    architecture = config["architecture"]
    damaged = [
        {layout.WEIGHTS: weights[: len(weights) // 2]},
        {layout.WEIGHTS: b""},
        {layout.WEIGHTS: b"\xff" * 64},
        {layout.WEIGHTS: len(lies).to_bytes(8, "little") + lies},
        {layout.CONFIG: b"[]"},
        {layout.CONFIG: b"{"},
        {layout.CONFIG: b"{}"},
        {layout.CONFIG: json.dumps(config | {"version": 1}).encode()},
        {layout.CONFIG: json.dumps(config | {"architecture": architecture | {"precision": "int8"}}).encode()},
        {layout.CONFIG: json.dumps(config | {"architecture": architecture | {"heads": "3"}}).encode()},
        {layout.CONFIG: json.dumps(config | {"architecture": architecture | {"heads": 2}}).encode()},
    ]
    for changed in damaged:
        assert len(list(refusals(folder_with(tmp_path, changed)))) == 2


def test_modules_and_folders_that_are_not_ours_are_refused(tmp_path):
    with pytest.raises(ml.BadInput, match="module of its modeling.py"):
        ml.from_torch(torch.nn.Linear(2, 2))
    with pytest.raises(ml.BadInput, match=r"config\.json: no such file"):
        ml.from_torch(tmp_path)
    config = layout.config(built("echo").model, None) | {"version": 99}
    with pytest.raises(ml.BadInput, match="version 99 is not known"):
        ml.from_torch(folder_with(tmp_path, {"config.json": json.dumps(config).encode()}))


def test_loading_executes_nothing_of_a_folder(tmp_path):
    export(built("echo"), "torch", tmp_path, lengths=[1])
    (tmp_path / "modeling.py").write_text("raise SystemExit('executed')\n")
    ml.from_torch(tmp_path)
    modeling.load(tmp_path)


def test_the_command_exports_and_refuses(tmp_path):
    ml.write(built("exponential"), tmp_path / "model")
    done = memloci("export", tmp_path / "model", "--to", "torch", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["certificate"]["bound"] >= told["check"][0]["err_from_target"]
    wrong = memloci("export", tmp_path / "model", "--to", "keras", "--out", tmp_path / "out")
    assert wrong.returncode == 2 and "use torch" in wrong.stderr
