"""Files, names and dictionaries give the same task, and mistakes name the file."""

import json
import tomllib

import jax.numpy as jnp
import numpy as np
import pytest

from memloci.core.errors import BadInput
from memloci.tasks.gallery import GALLERY
from memloci.tasks.load import MAX_FILE, load_task, task_from_dict
from memloci.tasks.memories import Kernel, Lag, Pointer
from memloci.tasks.short import Adaptive, Essential, Fixed
from memloci.tasks.task import Task

from .cases import CALLABLE, CASES, draw
from .files import as_toml

WRITABLE = [name for name in CASES if name not in CALLABLE]


@pytest.mark.long(6)
@pytest.mark.parametrize("name", WRITABLE)
def test_a_task_survives_dictionary_json_and_toml(name, tmp_path):
    task = CASES[name]()
    data = task.to_dict()
    file = tmp_path / "task.toml"
    file.write_text(as_toml(data))
    X = draw(task, np.random.default_rng(0), 15)
    for again in (task_from_dict(data), task_from_dict(json.loads(json.dumps(data))), load_task(file)):
        assert again == task and again.to_dict() == data
        np.testing.assert_array_equal(again.target(X), task.target(X))


@pytest.mark.parametrize("name", CALLABLE)
def test_a_callable_cannot_be_written(name):
    with pytest.raises(BadInput, match=f"^{CALLABLE[name]}: a callable cannot be written to a file"):
        CASES[name]().to_dict()


@pytest.mark.parametrize("name", GALLERY)
def test_a_gallery_name_serves_as_a_file(name):
    assert load_task(name) == GALLERY[name]()


DESIGN = [
    (
        Fixed(lags=[3, 17], readout="x1 * x2"),
        """
        kind = "fixed"
        lags = [3, 17]
        readout = "x1 * x2"
        """,
    ),
    (
        Adaptive(
            channels=[{"name": "a", "values": [1, 2, 3, 4]}, {"name": "v", "range": [-1, 1]}],
            lags=["2 * a0", "2 * a0 + a1"],
            readout="v2",
        ),
        """
        kind = "adaptive"                      # nested
        channels = [{ name = "a", values = [1, 2, 3, 4] }, { name = "v", range = [-1, 1] }]
        lags = ["2 * a0", "2 * a0 + a1"]
        readout = "v2"
        """,
    ),
    (
        Essential(kernels=["z ** -2", "exp(-0.3 * z)"], readout="x1 + 0.5 * x2"),
        """
        kind = "essential"
        kernels = ["z ** -2", "exp(-0.3 * z)"]
        readout = "x1 + 0.5 * x2"
        """,
    ),
    (
        Task(
            channels=[{"name": "k", "values": [1, 2, 3]}, {"name": "v"}],
            memories=[Lag(3), Pointer("2 * k0"), Kernel("z ** -2"), Kernel("z ** -0.5", horizon=1000)],
            readout="v1 + v2 * v3 - v4",
        ),
        """
        channels = [{ name = "k", values = [1, 2, 3] }, { name = "v" }]
        memories = [
            { lag = 3 }, { lag = "2 * k0" }, { kernel = "z ** -2" }, { kernel = "z ** -0.5", horizon = 1000 },
        ]
        readout = "v1 + v2 * v3 - v4"
        """,
    ),
]


@pytest.mark.parametrize(("task", "text"), DESIGN, ids=["fixed", "adaptive", "essential", "mixed"])
def test_the_documented_files_are_the_documented_tasks(task, text, tmp_path):
    file = tmp_path / "task.toml"
    file.write_text(text)
    assert load_task(str(file)) == task


MISTAKES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "kind is missing"),
    "not toml": (b"kind = fixed", "not TOML: Invalid value"),
    "not text": (b"\xff\xfe\x00", "is not text in UTF-8"),
    "null byte": (b'kind = "fixed"\x00', "not TOML"),
    "twice": (b'kind = "fixed"\nkind = "fixed"', "not TOML: Cannot overwrite a value"),
    "nested deep": (b"lags = " + b"[" * 20_000, "not TOML"),
    "long integer": (b"lags = [" + b"9" * 5_000 + b"]", "not TOML"),
    "date": (b'kind = "fixed"\nlags = [1979-05-27]\nreadout = "x1"', r"lags\[0\]: a lag is a whole number"),
    "nan": (b'kind = "fixed"\nlags = [nan]\nreadout = "x1"', "found nan"),
    "bad expression": (b'kind = "fixed"\nlags = [1]\nreadout = "x1 +"', "readout: 'x1 \\+' is not an expr"),
    "unknown key": (b'kind = "fixed"\nlag = [1]\nreadout = "x1"', "lags is missing; unknown key 'lag'"),
    "memory without a key": (
        b'memories = [{}]\nreadout = "x1"',
        r"memories\[0\]: a memory has exactly one of",
    ),
    "memory as a date": (b'memories = [1979-05-27]\nreadout = "x1"', r"memories\[0\]: a memory is a table"),
    "date as a lag": (
        b'memories = [{ lag = 1979-05-27 }]\nreadout = "x1"',
        r"memories\[0\]: lag: a lag is a whole",
    ),
    "too large": (b"#" * (MAX_FILE + 1), "has 1,048,577 bytes; a task file has at most 1,048,576"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_its_file(name, tmp_path):
    content, reason = MISTAKES[name]
    file = tmp_path / "mine.toml"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=reason) as refusal:
        load_task(file)
    assert str(refusal.value).startswith(str(file)) and str(refusal.value).isprintable()


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is neither a file nor a gallery task"):
        load_task("no-such-task")
    with pytest.raises(BadInput, match="is a directory; a task file is TOML"):
        load_task(tmp_path)
    with pytest.raises(BadInput, match="cannot be read"):
        load_task("a\x00b")
    with pytest.raises(BadInput, match="cannot be read: File name too long"):
        load_task("x" * 5_000)


def test_as_toml_writes_toml():
    data = {"text": 'a "b" \\ c', "list": [1, 2.5, [True]], "tables": [{"name": "x", "range": [-1.0, 1]}]}
    assert tomllib.loads(as_toml(data)) == data
    assert jnp.inf == tomllib.loads(as_toml({"x": float("inf")}))["x"]
