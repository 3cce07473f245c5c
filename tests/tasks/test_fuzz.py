"""Mutated and random task files: each is a task or one clear line, soon, and never anything else."""

import random
import time
from typing import Any

import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.tasks.gallery import GALLERY
from memloci.tasks.load import load_task, task_from_dict
from memloci.tasks.task import Task

from .cases import CASES, draw, nested
from .files import as_toml

BASES = {name: make().to_dict() for name, make in GALLERY.items()}
BASES |= {name: CASES[name]().to_dict() for name in ("mixed", "mixed-nested", "moving-average", "no-memory")}
SCRAPS = [b"[", b"]", b"{", b"}", b'"', b"'", b"=", b"\n", b",", b"0", b"-", b"1e999", b"nan", b"inf", b"#"]
SCRAPS += [
    b"\x00",
    b"\xff",
    b"\xc3\xa9",
    b"x9",
    b"**",
    b"/ 0",
    b"(",
    b")",
    b"99999999999",
    b"'''",
    b"\\u0000",
]
ATOMS: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**24,
    2**24 + 1,
    10**30,
    10**5000,
    0.5,
    -0.0,
    1e-320,
    1e308,
]
ATOMS += [float("nan"), float("inf"), "", "x1", "x0 / x1", "z ** -2", "a0", "\x00", "\n", "q" * 5000, "fixed"]
ATOMS += [
    {"lag": 3},
    {"lag": "a0"},
    {"kernel": "z ** -2"},
    {"kernel": "1", "horizon": 4},
    {"lag": 1, "kernel": "0"},
]
ATOMS += [[], {}, [[]], [1, 2], [-1, 1], [0.5, 0.5], {"name": "x"}, {"name": "a", "values": [1, 2]}, b"x", 2j]
ATOMS += [
    nested(50),
    nested(3000),
    list(range(300)),
    ["a0"] * 300,
    [{"name": "x"}] * 3,
    {"self": 1},
    object(),
]
KEYS = ["kind", "lags", "kernels", "readout", "channels", "description", "lipschitz", "majorants", "self", ""]
KEYS += ["memories", "lag", "kernel", "horizon", "majorant"]
LEAVES = ["x0", "x1", "x2", "a0", "a1", "v1", "z", "0", "1", "2", "0.5", "-3", "1e9", "pi", "1e-320", "y"]
FORMS = ["({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} ** {})", "({} // {})", "({} % {})"]
FORMS += ["({} < {})", "({} == {})", "({} and {})", "min({}, {})", "max({}, {}, 1)", "where({}, {}, 1)"]
FORMS += [
    "exp({})",
    "log({})",
    "sqrt({})",
    "sin({})",
    "tanh({})",
    "abs({})",
    "floor({})",
    "sign({})",
    "not {}",
]


def _bytes(choose: random.Random) -> bytes:
    """A valid file with a few bytes changed, dropped, repeated or inserted."""
    text = bytearray(as_toml(choose.choice(list(BASES.values()))).encode())
    for _ in range(choose.choice([1, 1, 2, 5, 20])):
        k = choose.randrange(len(text) + 1)
        match choose.randrange(5):
            case 0:
                text[k : k + 1] = bytes([choose.randrange(256)])
            case 1:
                del text[k : k + choose.choice([1, 1, 4, 30])]
            case 2:
                text[k:k] = choose.choice(SCRAPS)
            case 3:
                text[k:k] = text[k : k + choose.choice([1, 5, 40])]
            case 4:
                text[k:k] = str(choose.randrange(-5, 1000)).encode()
    return bytes(text)


def _structure(choose: random.Random) -> dict[str, Any]:
    """A valid dictionary with parts replaced, deleted, swapped or added at any depth."""
    data = _copied(choose.choice(list(BASES.values())))
    for _ in range(choose.choice([1, 1, 2, 4])):
        place: Any = data
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = choose.choice(keys)
            if isinstance(place[key], dict | list) and choose.random() < 0.6:
                place = place[key]
                continue
            match choose.randrange(4):
                case 0:
                    del place[key]
                case 1:
                    place[key] = [place[key]]
                case _:
                    place[key] = _copied(choose.choice(ATOMS))
            break
        if choose.random() < 0.3:
            (place if isinstance(place, dict) else data)[choose.choice(KEYS)] = _copied(choose.choice(ATOMS))
    return data


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list) and len(value) != 1:  # the deep ones are never changed inside
        return [_copied(part) for part in value]
    return list(value) if isinstance(value, list) else value


def _expression(choose: random.Random, depth: int) -> str:
    if depth == 0 or choose.random() < 0.2:
        return choose.choice(LEAVES)
    form = choose.choice(FORMS)
    return form.format(*(_expression(choose, depth - 1) for _ in range(form.count("{}"))))


def _formulas(choose: random.Random) -> dict[str, Any]:
    """A valid dictionary whose expressions are random ones."""
    data = _copied(choose.choice(list(BASES.values())))
    key = choose.choice([key for key in ("readout", "lags", "kernels", "memories") if data.get(key)])
    random_text = _expression(choose, choose.choice([1, 2, 3, 6]))
    if key == "memories":
        horizon = choose.choice([{}, {"horizon": 9}])
        form = choose.choice([{"lag": random_text}, {"kernel": random_text, **horizon}])
        data[key][choose.randrange(len(data[key]))] = form
    else:
        data[key] = random_text if key == "readout" else [random_text]
    return data


def _check(make: Any) -> Task | None:
    began = time.process_time()
    try:
        task = make()
    except BadInput as refusal:
        message = str(refusal)
        assert message and "\n" not in message and len(message) < 500, message
        task = None
    assert time.process_time() - began < 2
    return task


@pytest.mark.long(3)
@pytest.mark.parametrize(
    ("mutate", "count", "least"), [(_bytes, 700, 40), (_structure, 700, 20), (_formulas, 600, 80)]
)
def test_every_mutation_is_a_task_or_one_line(mutate, count, least, tmp_path):
    choose = random.Random(0)
    file = tmp_path / "task.toml"
    valid: list[Task] = []
    for _ in range(count):
        data = mutate(choose)
        if isinstance(data, bytes):
            file.write_bytes(data)
            task = _check(lambda: load_task(file))
        else:
            task = _check(lambda data=data: task_from_dict(data))
        valid += [task] if task else []
    assert least <= len(valid) <= count - least  # both outcomes are exercised
    rng = np.random.default_rng(0)
    for task in valid[::20]:
        X = draw(task, rng, 6)
        assert np.isfinite(task.target(X)).all()
