"""Every combination of switches is possible, or refused with its reasons."""

import json
import re
import subprocess
import sys
from itertools import product

import pytest

from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.encodings import ENCODINGS, bucket_starts
from memloci.model.normalisation import NORMALISATIONS
from memloci.model.scores import SCORES

from .cases import NO_PHI, NORMALISATION_NAMES, RATE, REFUSED, SIZES, TABLE, VALID, name


def test_the_table_covers_the_registries():
    assert set(TABLE) == set(product(SCORES, ENCODINGS))
    assert set(NORMALISATION_NAMES) == set(NORMALISATIONS)


@pytest.mark.parametrize("case", VALID, ids=name)
def test_a_possible_architecture_survives_json(case):
    architecture = Architecture(**SIZES, **case)
    assert Architecture(**json.loads(json.dumps(architecture.model_dump(mode="json")))) == architecture


@pytest.mark.parametrize(("case", "reason"), REFUSED, ids=name)
def test_an_impossible_pairing_is_refused(case, reason):
    with pytest.raises(BadInput, match=reason) as refusal:
        Architecture(**SIZES, **case)
    assert "\n" not in str(refusal.value)


def test_all_reasons_are_told_at_once():
    with pytest.raises(BadInput) as refusal:
        Architecture(
            **SIZES, attention="tmx-mul", encoding="rope", normalisation="infinite", window=2, stride=3
        )
    for reason in (NO_PHI, RATE, "no lag is visible"):
        assert re.search(reason, str(refusal.value))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (dict(attention="dot"), "unknown 'dot', use one of dp, dpf, tmx, tmx-mul"),
        (dict(encoding="alibi", normalisation="l2"), "unknown 'alibi'.*unknown 'l2'"),
        (dict(norm="batch"), "norm: .*'batch'"),
        (dict(precision="bfloat16"), "precision"),
        (dict(layers=0), "layers"),
        (dict(heads=True), "heads"),
        (dict(heads=2.0), "heads"),
        (dict(width=-1), "width"),
        (dict(rope_base=float("inf")), "rope_base"),
        (dict(window=0), "window"),
        (dict(window=2, stride=3), "window 2 is shorter than stride 3"),
        (dict(encoding="rope", key_dim=3), "key_dim must be even, found 3"),
        (dict(encoding="t5", buckets=8, max_distance=7), "max_distance >= buckets, found 7 < 8"),
        (dict(layers=10**9), "layers"),
        (dict(dim=2**16, width=2**22), r"parameters, at most 268,435,456"),
        (dict(colour="red"), "unknown key 'colour'"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_in_one_line(changes, reason):
    with pytest.raises(BadInput, match=reason) as refusal:
        Architecture(**(SIZES | changes))
    assert "\n" not in str(refusal.value)


def test_naming_an_architecture_does_not_import_jax():
    code = "import sys, memloci.model.architecture; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("buckets", "farthest"), [(4, 4), (8, 20), (32, 128), (32, 32), (33, 100), (64, 2**20)]
)
def test_t5_buckets_partition_the_lags(buckets, farthest):
    starts = bucket_starts(buckets, farthest)
    assert len(starts) == buckets and starts[0] == 1 and starts[-1] == farthest + 1
    assert all(a < b for a, b in zip(starts, starts[1:], strict=False))
    assert starts[: buckets // 2] == tuple(range(1, buckets // 2 + 1))
