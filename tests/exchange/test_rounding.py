"""What a restated certificate assumes of another runtime's library functions, measured: within 8 units of roundoff."""

import numpy as np
import pytest

from memloci.certify.rounding import LIBRARY
from tests.exchange.cases import REASON

torch = pytest.importorskip("torch", reason=REASON)

SAMPLES = 200_000
RANGES = {
    "exp": (-87.0, 88.0),
    "expm1": (-1.0, 0.0),
    "log": (1.0, 2.0**31),
    "sin": (-np.pi, np.pi),
    "cos": (-np.pi, np.pi),
}


@pytest.mark.parametrize("name", RANGES)
def test_pytorch_functions_are_within_the_units_that_are_assumed(name):
    lo, hi = RANGES[name]
    x = np.random.default_rng(7).uniform(lo, hi, SAMPLES).astype(np.float32)
    found = getattr(torch, name)(torch.from_numpy(x)).numpy().astype(float)
    exact = getattr(np, name)(x.astype(float))
    size = 1.0 if name in ("sin", "cos") else np.abs(exact)
    assert (np.abs(found - exact) / size).max() <= LIBRARY * 2.0**-24


@pytest.mark.parametrize(
    "name", [name for name in RANGES if name != "expm1"]
)  # ONNX has none, and graphs hold none
def test_onnxruntime_functions_are_within_the_units_that_are_assumed(name):
    helper = pytest.importorskip("onnx", reason=REASON).helper
    runtime = pytest.importorskip("onnxruntime", reason=REASON)
    value = lambda text: helper.make_tensor_value_info(text, 1, ["n"])
    node = helper.make_node(name.capitalize(), ["x"], ["y"])
    graph = helper.make_graph([node], "one", [value("x")], [value("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    lo, hi = RANGES[name]
    x = np.random.default_rng(7).uniform(lo, hi, SAMPLES).astype(np.float32)
    found = session.run(None, {"x": x})[0].astype(float)
    exact = getattr(np, name)(x.astype(float))
    size = 1.0 if name in ("sin", "cos") else np.abs(exact)
    assert (np.abs(found - exact) / size).max() <= LIBRARY * 2.0**-24


def test_pytorch_is_exact_where_it_is_assumed():
    assert torch.exp(torch.zeros(1)).item() == 1.0 and torch.log(torch.ones(1)).item() == 0.0
