"""Which path is taken, and that a model can be told."""

import equinox as eqx
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.paths.choice import PATHS, choose, covered, overview
from tests.model.cases import PLAIN, build, tokens

SIZES = dict(layers=1, heads=2, width=0)


def of(**fields) -> Architecture:
    return Architecture(**(SIZES | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "n", "path"),
    [
        (dict(attention="dpf"), 64, "plain"),
        (dict(attention="dpf"), 4096, "recurrence"),
        (dict(attention="dpf", encoding="log"), 4096, "recurrence"),
        (dict(attention="dpf", encoding="log", path="certified"), 4096, "blocks"),
        (dict(attention="dpf", normalisation="infinite", path="certified"), 4096, "recurrence"),
        (dict(attention="dpf", normalisation="none", path="certified"), 4096, "blocks"),
        (dict(attention="tmx", normalisation="none", path="certified"), 4096, "blocks"),
        (dict(attention="dp"), 64, "plain"),
        (dict(attention="dp"), 4096, "blocks"),
        (dict(attention="dpf", window=64), 100_000, "blocks"),
        (dict(attention="dp", path="plain"), 100_000, "plain"),
        (dict(attention="dpf", path="convolution"), 3, "convolution"),
    ],
)
def test_what_is_taken(fields, n, path):
    assert choose(of(**fields), n, "cpu") == path


def test_a_gpu_takes_the_plain_definition_for_longer():
    assert choose(of(attention="dpf"), 1024, "gpu") == "plain"
    assert choose(of(attention="dpf"), 65_536, "gpu") == "recurrence"


def test_a_model_says_and_can_be_told():
    model = build(PLAIN[0], layers=1)
    assert model.architecture.path == "auto" and model.path(9) == "plain"
    x, run = tokens(), eqx.filter_jit(lambda model, x: model(x))
    for path in ("plain", "blocks"):
        told = model.using(path)
        assert told.architecture.path == told.path(9) == path
        np.testing.assert_allclose(run(told, x), run(model, x), rtol=1e-12)
    with pytest.raises(BadInput, match="path: unknown 'fastest', use one of auto, certified, plain"):
        model.using("fastest")
    with pytest.raises(
        BadInput, match="'recurrence' does not serve attention 'dp'.*needs weights that are a kernel"
    ):
        model.using("recurrence")


def test_certificates_cover_no_transform():
    assert not covered("convolution", of(attention="dpf"))
    assert not covered("recurrence", of(attention="dpf", encoding="log"))


def test_the_overview_names_every_kind_once():
    told = dict(overview("cpu"))
    assert any("dp lin" in kinds for kinds in told)
    assert {path for changes in told.values() for path in changes.values()} <= set(PATHS)
