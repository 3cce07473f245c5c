"""TransformerLens, onnxruntime and VNN-LIB compute what we compute."""

import re
from fractions import Fraction

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.exchange import to_torch
from memloci.exchange.formats import export
from memloci.exchange.subject import subject_of
from memloci.exchange.to_onnx import runner
from tests.exchange.cases import REASON, built

torch = pytest.importorskip("torch", reason=REASON)
pytest.importorskip("transformer_lens", reason=REASON)
pytest.importorskip("onnxruntime", reason=REASON)
pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # of the exporter and of TransformerLens, about their own parts


def test_a_compiled_model_has_a_cache_under_the_usual_names(tmp_path):
    from memloci.exchange.lens import ablate, load, patch

    done = export(built("pointer"), "transformer-lens", tmp_path, lengths=[1, 17])
    assert done.proved.bound is not None
    model = load(tmp_path)
    x = torch.ones((1, 6, 2))
    clean = torch.tensor([[[1.0, 0.1], [2.0, 0.2], [1.0, 0.3], [3.0, 0.4], [1.0, 0.5], [2.0, 0.6]]])
    y, cache = model.run_with_cache(clean)
    assert {"blocks.0.hook_resid_pre", "blocks.1.attn.hook_pattern", "blocks.1.attn.hook_z"} <= set(cache)
    assert torch.equal(y, model(clean))
    assert abs(y[0, 5, 0].item() - 0.4) < 1e-5  # the token says 2 back
    last = lambda out: out[0, -1, 0]
    found = patch(model, x, cache, "blocks.0.hook_resid_pre", last, positions=True)
    assert found.shape == (6,)
    assert abs(found[5 - 1].item() - 0.5) < 1e-5  # x recalls 1 back, where the clean value now stands
    off = ablate(model, clean, "blocks.1.attn.hook_z", (slice(None), slice(None), 0))
    assert abs(off[0, 5, 0].item()) < 1e-5


def test_patching_counts_positions_and_heads_along_their_own_axes(tmp_path):
    from memloci.exchange.lens import patch

    model = ml.lens(built("pointer"))
    clean, corrupt = torch.ones((2, 5, 2)), torch.full((2, 5, 2), 2.0)
    cache, metric = model.activations(clean), lambda out: out[:, -1, 0].mean()
    shape = lambda name, **each: tuple(patch(model, corrupt, cache, name, metric, **each).shape)
    assert shape("blocks.1.attn.hook_z", positions=True, heads=True) == (5, 1)
    assert shape("blocks.1.attn.hook_pattern", positions=True, heads=True) == (5, 1)
    assert shape("blocks.1.hook_resid_pre", positions=True) == (5,)
    assert shape("blocks.1.attn.hook_q", heads=True) == (1,)
    assert shape("hook_embed") == ()
    with pytest.raises(ValueError, match="has no heads"):
        shape("blocks.1.hook_resid_pre", heads=True)
    with pytest.raises(ValueError, match="in the cache"):
        patch(model, corrupt[:1], cache, "hook_embed", metric)


def test_the_cache_takes_the_stream_apart_as_transformer_lens_does():
    model = ml.lens(built("echo"))
    cache = model.activations(torch.rand(2, 70, 1))
    last = cache["blocks.0.hook_resid_post"]
    assert torch.allclose(cache.decompose_resid().sum(dim=0), last, atol=1e-6)
    assert torch.allclose(cache.stack_head_results().sum(dim=0), cache["blocks.0.hook_attn_out"], atol=1e-6)
    assert torch.allclose(cache.get_full_resid_decomposition().sum(dim=0), last, atol=1e-6)
    future = torch.ones(70, 70, dtype=torch.bool).triu()
    assert (cache["blocks.0.attn.hook_attn_scores"][..., future] == -torch.inf).all()


@pytest.mark.parametrize("name", ["echo", "pointer", "needle"])
def test_the_bridge_computes_the_same_and_has_the_usual_hooks(name):
    plain, bridge = ml.lens(built(name)), ml.lens(built(name), bridge=True)
    x = torch.ones((2, 9, plain.config["channels"]))
    y, cache = bridge.run_with_cache(x)
    assert torch.equal(y, plain(x))
    own = plain.run_with_cache(x)[1]
    for key in ("blocks.0.hook_resid_pre", "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_z"):
        assert torch.equal(cache[key], own[key])
    off = bridge.run_with_hooks(x, fwd_hooks=[("blocks.0.hook_resid_post", lambda a, hook: 0 * a)])
    ours = plain.run_with_hooks(x, fwd_hooks=[("blocks.0.hook_resid_post", lambda a, hook: 0 * a)])
    assert torch.equal(off, ours)


def test_nnsight_traces_reads_and_ablates():
    nnsight = pytest.importorskip("nnsight", reason=REASON)
    module = to_torch.module_of(subject_of(built("echo")))
    x = torch.rand(1, 70, 1)
    model = nnsight.NNsight(module)
    with model.trace(x):
        z = model.blocks[0].attn.hook_z.output.save()
        y = model.output.save()
    with model.trace(x):
        model.blocks[0].attn.hook_z.output[:, :, 0] = 0
        off = model.output.save()
    assert z.shape == (1, 70, 3, 1) and torch.equal(y, module(x))
    assert abs((y - off)[0, -1, 0].item() - 0.5 * x[0, -5, 0].item()) < 1e-6  # lag 4, of weight 0.5


def test_onnx_runs_at_any_length_and_is_reproducible(tmp_path):
    done = export(built("exponential"), "onnx", tmp_path / "a", lengths=[1, 2, 17, 600])
    export(built("exponential"), "onnx", tmp_path / "b", lengths=[1])
    assert done.proved.bound is not None and all(each.within for each in done.observed)
    data = (tmp_path / "a" / "model.onnx").read_bytes()
    assert data == (tmp_path / "b" / "model.onnx").read_bytes()
    assert b"site-packages" not in data and b".py" not in data and str(tmp_path).encode() not in data


def test_vnnlib_states_the_bound_and_refuses_pointers(tmp_path):
    done = export(built("exponential"), "vnnlib", tmp_path)
    text = (tmp_path / "property.vnnlib").read_text()
    stated = float(text.split("at most ")[1].split()[0])
    assert float(done.proved.bound or 0) <= stated <= 1.01 * float(done.proved.bound or 0) + 1e-6
    assert f"(>= Y_0 {text.split('at most ')[1].split()[0]})" in text and text.count("declare-const Y_") == 1
    assert not re.search(r"[0-9][eE][-+0-9]", text)  # readers know no exponents
    assert done.observed[0].within
    with pytest.raises(ml.BadInput, match="VNN-LIB cannot state its target"):
        export(built("pointer"), "vnnlib", tmp_path / "p")


def test_readers_of_vnnlib_find_the_box_and_the_bound(tmp_path):
    """By a parser of the language, and by one that knows brackets only."""
    parser = pytest.importorskip("vnnlib", reason=REASON)
    done = export(built("exponential"), "vnnlib", tmp_path)
    onnx = pytest.importorskip("onnx", reason=REASON)
    given = onnx.load(tmp_path / "model.onnx").graph.input[0].type.tensor_type.shape.dim
    n = given[1].dim_value
    query = parser.parse_query_file(str(tmp_path / "property-2.0.vnnlib"))
    assert len(query.assertions) == n + 1
    assert "Real [1, 256, 1]" in str(query) and n == 256
    box: dict[str, list[float]] = {}
    for assertion in brackets((tmp_path / "property.vnnlib").read_text()):
        if assertion[0] == "assert" and assertion[1][0] != "or":
            sign, name, value = assertion[1]
            box.setdefault(name, [np.nan, np.nan])[sign == "<="] = float(value)
        elif assertion[0] == "assert":
            (_, above, below) = assertion[1]
    assert box == {f"X_{k}": [-1.0, 1.0] for k in range(n)}
    bound = Fraction(above[1][2])
    assert above[1][:2] == [">=", "Y_0"] and below == ["and", ["<=", "Y_0", f"-{above[1][2]}"]]
    assert bound >= Fraction(float(done.proved.bound or 0.0))


def brackets(text: str) -> list:
    """Nested lists of words."""
    words = re.sub(r";[^\n]*", "", text).replace("(", " ( ").replace(")", " ) ").split()
    stack: list[list] = [[]]
    for word in words:
        if word == "(":
            stack.append([])
        elif word == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    return stack[0]


def test_flat_heads_keep_their_digits_in_onnx(tmp_path):
    """ONNX has no expm1, and e^-p - 1 has an error of u/p: nearly a hundredth at this slope."""
    a = ml.Architecture(
        layers=1,
        heads=1,
        width=0,
        dim=2,
        value_dim=1,
        attention="dpf",
        encoding="lin",
        normalisation="infinite",
    )
    model = ml.Transformer(a, 1, 1, key=jr.key(0))
    slope = lambda model: model.layers[0].attention.heads.encoding.p
    values = lambda model: model.layers[0].attention.heads.W_V
    flat = eqx.tree_at(slope, model, jnp.full_like(slope(model), 1e-5))
    flat = eqx.tree_at(values, flat, 1e3 * values(flat))  # what is recalled is seen beside the token itself
    silent = eqx.tree_at(values, flat, 0 * values(flat))
    export(flat, "onnx", tmp_path, lengths=[17])
    x = np.linspace(-1, 1, 17, dtype=np.float32)[:, None]
    theirs, ours = runner(tmp_path)(x[None])[0], np.asarray(flat(x))
    recalled = ours[1:] - np.asarray(silent(x))[1:]
    assert np.abs(theirs[1:] - ours[1:]).max() <= 1e-3 * np.abs(recalled).max()
