"""What names a run, and what shares a program."""

import subprocess
import sys

import pytest

from memloci.core.errors import BadInput
from memloci.tasks.load import load_task
from memloci.train import spec
from memloci.train.spec import Run, Training, default_length

from .cases import SIZES, TASK, small_run

OTHER = {
    "steps": 31,
    "batch": 9,
    "length": 13,
    "samples": 5,
    "loss": "sup",
    "rate": 0.5,
    "schedule": "constant",
    "warmup": 2,
    "clip": 0.5,
    "weight_decay": 0.1,
    "patience": 3,
    "improvement": 0.5,
    "evaluate_every": 11,
    "held_out": 17,
    "start": "exponents",
    "exponents": (0.5, 0.25),
    "noise": 0.5,
    "route": "rotary",
    "tolerance": 0.5,
    "seed": 7,
}


def test_there_is_another_value_for_every_setting():
    assert OTHER.keys() == Training.model_fields.keys()


@pytest.mark.parametrize("name", OTHER)
def test_a_changed_setting_is_another_run(name):
    changed = small_run(**{name: OTHER[name], **({"start": "exponents"} if name == "exponents" else {})})
    assert changed.key != small_run().key
    assert (changed.program == small_run().program) == (name in spec.NUMBERS)


def test_a_changed_task_or_architecture_is_another_run_and_program():
    others = [small_run({**TASK, "lags": [1, 4]}), small_run(architecture={"heads": 3})]
    assert len({small_run().key, *(run.key for run in others)}) == 3
    assert len({small_run().program, *(run.program for run in others)}) == 3


def test_other_numerics_are_another_run(monkeypatch):
    before = small_run().key
    monkeypatch.setattr(spec, "NUMERICS", spec.NUMERICS + 1)
    assert small_run().key != before


def test_a_run_returns_from_json_as_the_same_run():
    run = small_run(clip=None, rate=1)
    assert Run(**run.to_dict()) == run
    assert Run(**run.to_dict()).key == run.key


def test_a_run_that_starts_from_compiled_weights_is_checked_without_jax():
    """Which weights these are is found out when it is trained; the processes of a sweep start quickly."""
    code = (
        "import sys; from memloci.train.spec import Run\n"
        f"run = Run(task={TASK!r}, training={{'start': 'compiled', 'loss': 'sup'}})\n"
        "assert Run(**run.to_dict()) == run and not {'jax', 'equinox', 'scipy'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_the_place_of_a_file_does_not_name_a_run_but_its_content_does():
    text = {"kind": "text", "path": "a.txt", "sha256": "00"}
    runs = [small_run(task) for task in (text, {**text, "path": "b.txt"}, {**text, "sha256": "01"})]
    assert runs[0].key == runs[1].key != runs[2].key
    assert runs[0].training.loss == "cross-entropy"


def test_sequences_have_room_for_every_memory():
    for name in ("delay", "delay-far", "echo", "pointer", "exponential"):
        task = load_task(name)
        reach = max(bound for bound in task.lag_bounds)
        length = default_length(task.to_dict())
        assert length > reach or reach == float("inf")


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"task": 3}, "must be a task"),
        ({"task": {"kind": "fixed"}}, "missing"),
        ({"architecture": None}, "architecture is missing"),
        ({"training": {"start": "compiled"}}, "brings its own architecture"),
        ({"training": {"loss": "cross-entropy"}}, "is for text"),
        ({"training": {"rate": -1}}, "greater than 0"),
        ({"training": {"rate": float("nan")}}, "rate"),
        ({"training": {"batch": 2**20, "length": 2**10}}, "tokens"),
        ({"training": {"speed": 1}}, "unknown key 'speed'"),
        ({"architecture": {**SIZES, "attention": "tmx"}}, "softmax"),
        ({"training": {"exponents": [0.5, 1.0]}}, "exponents are for start = 'exponents'"),
        ({"training": {"start": "exponents", "exponents": [0.5]}}, "each of 2 heads, found 1"),
        ({"training": {"start": "exponents", "exponents": [0.5, -1]}}, "greater than 0"),
        (
            {"task": {"kind": "text", "path": "a", "sha256": ""}, "training": {"samples": 3}},
            "samples is for tasks",
        ),
        ({"task": {"kind": "text", "path": "a", "sha256": ""}, "training": {"start": "exponents"}}, "random"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(fields, said):
    with pytest.raises(BadInput, match=said) as refused:
        Run(**{"task": TASK, "architecture": SIZES, **fields})
    assert "\n" not in str(refused.value)
