"""Where the extra is not installed, export says how to get it, and nothing else needs it."""

import sys

import pytest

import memloci as ml
from memloci.exchange import formats
from tests.exchange.cases import built


def test_export_says_how_to_get_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        ml.BadInput, match=r'needs the package torch: pip install "torch==2\.13\.0" "memloci\[torch\]"'
    ):
        ml.export(built("exponential"), "torch", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ml.BadInput, match="format 'keras' is unknown; use " + ", ".join(formats.FORMATS)):
        ml.export(built("exponential"), "keras", tmp_path / "out")
