"""`--track tensorboard` writes the curves of every seed, number for number; without the extra it is refused."""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

from memloci.core.errors import BadInput
from memloci.train.options import tracker

from ..commands import memloci_apart

SMALL = "--heads 1 --width 4 --steps 20 --batch 4 --seeds 2 --set architecture.dim=4 --set training.length=12"
FEW = "--set training.held_out=4 --set training.evaluate_every=10"


def records(content: bytes) -> Iterator[bytes]:
    """Each has its length in 8 bytes and a checksum of it before, a checksum of itself after it."""
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield content[12 : 12 + length]
        content = content[12 + length + 4 :]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What a reader of event files finds: the steps and values of every curve."""
    (path,) = folder.glob("events.out.tfevents.*")
    found: dict[str, list[tuple[int, float]]] = {}
    for record in records(path.read_bytes()):
        event = Event.FromString(record)
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


@pytest.mark.slow
def test_tensorboard_gets_the_curves_of_every_seed(tmp_path):
    options = (*SMALL.split(), *FEW.split(), "--out", str(tmp_path), "--track", "tensorboard", "--json")
    result = memloci_apart("train", "delay", *options)
    assert result.returncode == 0, result.stderr
    assert len(fits := json.loads(result.stdout)["fits"]) == 2
    for seed, fit in enumerate(fits):
        curves = scalars(tmp_path / "tensorboard" / f"seed-{seed}")
        assert set(curves) == {"loss", "held_out", "err_mean_square", "err_sup"}
        assert [step for step, _ in curves["held_out"]] == [10, 20]
        # Event files have single precision.
        assert curves["held_out"][-1][1] == pytest.approx(fit["record"]["held_out"], rel=1e-6)


def test_without_the_extra_it_is_refused_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(BadInput, match=r'^[^\n]*pip install "memloci\[track\]"$'):
        tracker("tensorboard", tmp_path)
    with pytest.raises(BadInput, match="needs --out"):
        tracker("tensorboard", None)
