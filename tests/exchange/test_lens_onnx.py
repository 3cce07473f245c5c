"""TransformerLens, onnxruntime and VNN-LIB compute what we compute."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.exchange.formats import export
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
    assert f"(>= Y_0 {stated!r})" in text and text.count("declare-const Y_") == 1
    assert done.observed[0].within
    with pytest.raises(ml.BadInput, match="VNN-LIB cannot state its target"):
        export(built("pointer"), "vnnlib", tmp_path / "p")


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
