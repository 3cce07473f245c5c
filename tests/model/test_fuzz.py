"""Model directories from strangers: each gives a model or one clear line, never anything else."""

import json
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from memloci.core.errors import BadInput
from memloci.model.store import RECORD, WEIGHTS, read, save, task_of
from memloci.tasks.load import load_task

from .cases import ONCE, build

ROUNDS = 250
CASE = next(case for case in ONCE if case["encoding"] == "t5")
STRANGE = [
    None,
    True,
    -1,
    0,
    1.5,
    1e308,
    10**40,
    "",
    "x",
    "\u0000",
    [],
    {},
    [[]],
    {"a": 1},
    "dp",
    "rope",
    2**31,
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    save(build(CASE, layers=1), directory, task=load_task("delay"))
    return directory


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    match rng.randrange(6):
        case 0:
            return data[: rng.randrange(len(data))]
        case 1:
            return data + rng.randbytes(rng.randrange(1, 64))
        case 2:
            return rng.randbytes(rng.randrange(200))
        case 3:  # the length of the header, which a reader must not trust
            return rng.choice([0, 1, len(data), 2**32, 2**63]).to_bytes(8, "little") + data[8:]
        case _:
            changed = bytearray(data)
            for _ in range(rng.randrange(1, 6)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            return bytes(changed)


def mutate_record(data: bytes, rng: random.Random) -> bytes:
    record = json.loads(data)
    place = rng.choice([record, record["architecture"], record["task"]])
    key = rng.choice([*place, "surprise"])
    if rng.random() < 0.2:
        place.pop(key, None)
    else:
        place[key] = rng.choice(STRANGE)
    text = json.dumps(record)
    if rng.random() < 0.1:
        text = text.replace(": 1", ": NaN", 1)
    return text.encode()


def mutate_directory(directory: Path, rng: random.Random) -> None:
    name = rng.choice([WEIGHTS, RECORD])
    path = directory / name
    match rng.randrange(8):
        case 0:
            path.unlink()
        case 1:
            path.unlink()
            path.mkdir()
        case 2:
            path.unlink()
            path.symlink_to("/etc/hostname")
        case 3 | 4:
            (directory / WEIGHTS).write_bytes(mutate_bytes((directory / WEIGHTS).read_bytes(), rng))
        case 5:
            (directory / RECORD).write_bytes(mutate_bytes((directory / RECORD).read_bytes(), rng))
        case _:
            (directory / RECORD).write_bytes(mutate_record((directory / RECORD).read_bytes(), rng))


def test_mutated_directories_are_read_or_refused_in_one_line(whole, tmp_path):
    """With the checksum, which finds nearly every change, and without it, as who changes a file could make it right."""
    rng = random.Random(0)
    outcomes = Counter()
    for k in range(ROUNDS):
        directory = tmp_path / str(k)
        shutil.copytree(whole, directory)
        for _ in range(rng.randrange(1, 3)):
            try:
                mutate_directory(directory, rng)
            except (OSError, ValueError, KeyError, TypeError):
                pass  # a second change to what the first one broke
        before = sorted(path.name for path in directory.iterdir())
        start = time.process_time()
        for changed in (True, False):
            try:
                stored = read(directory, changed=changed)
                stored.model.check()
                task_of(stored, directory)
                outcomes["read" if changed else "loaded"] += 1
            except BadInput as error:
                outcomes["refused"] += 1
                assert "\n" not in str(error) and 0 < len(str(error)) < 600
        assert time.process_time() - start < 5
        assert sorted(path.name for path in directory.iterdir()) == before  # reading writes nothing
        shutil.rmtree(directory)
    assert outcomes["refused"] > ROUNDS and outcomes["read"] > outcomes["loaded"], outcomes
