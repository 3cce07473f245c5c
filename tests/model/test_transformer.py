"""Shapes, precision, gradients, counts and refusals of the whole model."""

import os
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer

from .cases import CHANNELS, NORMS, ONCE, OUTPUTS, SIZES, build, name, tokens


@pytest.mark.long
@pytest.mark.parametrize("case", ONCE, ids=name)
def test_gradients_are_finite_and_every_parameter_matters(case):
    model = build(case, layers=1, norm=NORMS[ONCE.index(case) % 4])
    gradients = eqx.filter_grad(lambda model: (model(tokens()) ** 2).sum())(model)
    for path, leaf in jax.tree_util.tree_flatten_with_path(gradients)[0]:
        assert np.isfinite(leaf).all() and (np.asarray(leaf) != 0).any(), jax.tree_util.keystr(path)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("case", ONCE[::12], ids=name)
def test_empty_and_single_sequences(case, n):
    y = build(case)(tokens(n=n))
    assert y.shape == (n, OUTPUTS) and np.isfinite(y).all()


@pytest.mark.parametrize("case", ONCE, ids=name)
def test_parameter_count_by_formula(case):
    norm, width = NORMS[ONCE.index(case) % 4], 5 * (ONCE.index(case) // 4 % 2)
    model = build(case, width=width, norm=norm)
    a = model.architecture
    D, d_k, d_v = a.dim, a.key_dim, a.value_dim
    head = 2 * D * d_v + {"dp": 2 * D * d_k, "dpf": 0, "tmx": D, "tmx-mul": D}[a.attention]
    slope = int(a.attention != "tmx-mul")
    constants = 0 if a.attention == "dp" else 2 * d_k
    head += {"lin": slope, "log": slope, "t5": a.buckets, "rope": constants}.get(a.encoding, 0)
    per_norm = {"none": 0, "pre": 2 * D, "post": 2 * D, "rms": D}[norm]
    layer = a.heads * head + (2 * D + 1) * width + per_norm * (2 if width else 1)
    ends = D * CHANNELS + D + OUTPUTS * D + OUTPUTS + (per_norm if norm in ("pre", "rms") else 0)
    table = a.max_length * D if a.encoding == "learned" else 0
    assert model.parameter_count == a.layers * layer + ends + table
    assert a.layers * layer + table <= a.parameter_limit()


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (np.zeros(4), r"shape \(n, 2\), found \(4\)"),
        (np.zeros((4, 3)), r"found \(4, 3\)"),
        (np.zeros((2, 4, 2)), r"found \(2, 4, 2\); vmap over a batch"),
        (3.0, r"found \(\)"),
        (np.zeros((4, 2), complex), "complex128, not real"),
        ([["a", "b"]], "not real"),
        ([[1.0, 2.0], [3.0]], "not an array"),
        (None, "not real"),
    ],
    ids=str,
)
def test_a_wrong_input_is_refused_in_one_line(x, reason):
    with pytest.raises(BadInput, match=reason):
        build({})(x)


def test_the_learned_table_has_an_end():
    model = build(dict(encoding="learned"))
    with pytest.raises(BadInput, match="12 positions, the sequence 13; raise max_length"):
        model(tokens(n=13))


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 1), (True, 1), (1, 10**9)])
def test_wrong_channels_and_outputs_are_refused(sizes):
    with pytest.raises(BadInput, match="must be a whole number from 1 to"):
        eqx.filter_eval_shape(lambda: Transformer(Architecture(**SIZES), sizes[0], sizes[1], key=jr.key(0)))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_model_keeps_its_precision(precision):
    model = build({}, precision=precision)
    for dtype in ("float32", "float64", "float16", "int64", "bool"):
        assert model(tokens(dtype=dtype)).dtype == precision
    assert model(jnp.asarray(tokens())).dtype == precision


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["lin", "log", "t5", "rope", "sin", "learned", "none"])
def test_a_fresh_model_is_of_unit_size_and_repeats_from_its_key(encoding):
    fields: dict[str, Any] = SIZES | dict(layers=1, encoding=encoding, precision="float32")
    architecture = Architecture(**fields)
    key = jr.key(7, impl="rbg")  # compiles faster
    model, again = (Transformer(architecture, CHANNELS, OUTPUTS, key=key) for _ in range(2))
    assert eqx.tree_equal(model, again)
    model.check()
    y = model(tokens())
    assert y.dtype == jnp.float32 and 0.01 < float(jnp.abs(y).mean()) < 20


def test_batches_by_vmap_and_compiled_calls_agree_with_single_ones():
    model = build({})
    batch = np.stack([tokens(seed) for seed in range(3)])
    together = eqx.filter_jit(eqx.filter_vmap(model))(jnp.asarray(batch))
    for x, y in zip(batch, together, strict=True):
        assert np.allclose(model(x), y, rtol=1e-12, atol=1e-13)


FLOAT64 = """
import equinox as eqx, jax.random as jr
from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
architecture = Architecture(layers=1, heads=1, width=0, precision="float64")
print(eqx.filter_eval_shape(lambda: Transformer(architecture, 1, 1, key=jr.key(0))).W_E.dtype)
"""


@pytest.mark.parametrize(("setting", "expected"), [(None, "float64"), ("0", "JAX_ENABLE_X64 forbids it")])
def test_float64_switches_jax_on_unless_forbidden(setting, expected):
    environment = {key: value for key, value in os.environ.items() if key != "JAX_ENABLE_X64"}
    environment |= {} if setting is None else {"JAX_ENABLE_X64": setting}
    run = subprocess.run(
        [sys.executable, "-c", FLOAT64], env=environment, capture_output=True, text=True, check=False
    )
    assert expected in run.stdout + run.stderr
