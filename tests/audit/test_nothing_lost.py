"""Nothing that was computed is lost, mixed up or changed in silence: kills, interrupts, bit flips, many writers."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import memloci as ml
from memloci.core import files
from memloci.core.errors import BadInput
from memloci.core.files import parse_json, reading, replace_together, require_writable
from memloci.core.tensors import pack, unpack
from memloci.model.store import RECORD, WEIGHTS, load, read, save, unchanged
from memloci.train import train as training
from memloci.train.cache import delete_oldest
from memloci.train.data import describe
from memloci.train.spec import Run

ROOT = Path(__file__).parents[2]
TASK = {"kind": "fixed", "lags": [2], "readout": "x1"}
SIZES = {"layers": 1, "heads": 1, "width": 4, "dim": 4}
SETTINGS = {"steps": 20, "batch": 4, "length": 8, "held_out": 4, "evaluate_every": 5}


def small_run(seed=0, **settings):
    return Run(task=TASK, architecture=SIZES, training={**SETTINGS, "seed": seed, **settings})


def small_model():
    return ml.Transformer(ml.Architecture.model_validate(SIZES), 1, 1, key=jr.key(0))


# -- sets of files ----------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
WRITER = """
import sys
from pathlib import Path
from memloci.core.files import replace_together
directory, who, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for k in range(rounds):
    replace_together(directory, {name: f"{who} {k}".encode() * 50 for name in "abcd"}, remove=["gone"])
"""


def start_writer(directory, who, rounds):
    command = [sys.executable, "-c", WRITER, str(directory), str(who), str(rounds)]
    return subprocess.Popen(command, cwd=ROOT)


def contents(directory):
    return {(directory / name).read_bytes() for name in NAMES}


def test_four_writers_and_a_reader_never_see_a_mixed_set(tmp_path):
    writers = [start_writer(tmp_path, who, 25) for who in range(4)]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        with reading(tmp_path):
            if (tmp_path / "a").exists():
                assert len(contents(tmp_path)) == 1
                seen += 1
    assert all(writer.returncode == 0 for writer in writers) and seen
    assert len(contents(tmp_path)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == list(NAMES)


@pytest.mark.parametrize("kills", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_a_writer_that_is_killed_leaves_one_whole_set_and_no_litter(tmp_path, kills):
    choose = random.Random(7)
    replace_together(tmp_path, dict.fromkeys(NAMES, b"first"))
    for k in range(kills):
        writer = start_writer(tmp_path, k, 100_000)
        before = contents(tmp_path)
        while contents_or_none(tmp_path) == before:
            time.sleep(0.002)
        time.sleep(choose.uniform(0, 0.02))
        writer.kill()
        writer.wait()
        with reading(tmp_path):
            assert len(contents(tmp_path)) == 1
        replace_together(tmp_path, {"e": b"another set"})
        assert sorted(path.name for path in tmp_path.iterdir()) == [*NAMES, "e"]
        (tmp_path / "e").unlink()


def contents_or_none(directory):
    try:
        return contents(directory)
    except FileNotFoundError:
        return None


@pytest.mark.parametrize("moved", range(5))
def test_a_move_that_a_kill_cut_short_is_completed_or_undone(tmp_path, moved):
    """The process ends at the given step of the move, for sure."""
    code = f"""
import os
from pathlib import Path
from memloci.core import files
replace, calls = os.replace, []
def dying(*paths):
    calls.append(paths)
    if len(calls) > {moved}:
        os._exit(9)
    replace(*paths)
os.replace = dying
if {moved} == 4:
    files._write_through = lambda path, data, write=files._write_through: os._exit(9) if path.suffix == ".moving" else write(path, data)
files.replace_together(Path({str(tmp_path)!r}), {{name: b"new" for name in "abcd"}}, remove=["gone"])
"""
    replace_together(tmp_path, dict.fromkeys([*NAMES, "gone"], b"old"))
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 9
    with reading(tmp_path):
        whole = contents(tmp_path)
    undone = moved == 4  # before the note was written nothing was decided
    assert whole == ({b"old"} if undone else {b"new"}) and (tmp_path / "gone").exists() == undone
    replace_together(tmp_path, {})
    assert {path.name for path in tmp_path.iterdir()} == {*NAMES, *(["gone"] if undone else [])}


def test_a_note_from_a_stranger_reaches_nothing_outside(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.write_text("keep")
    for note in ({"files": [], "remove": ["../out"]}, {"files": ["../out"], "remove": []}, [1], {"files": 3}):
        (inside / ".0123abcd.moving").write_text(json.dumps(note))
        replace_together(inside, {"a": b"1"})
        assert outside.read_text() == "keep" and os.listdir(inside) == ["a"]


def test_a_failure_brings_back_what_was_to_be_removed(tmp_path, monkeypatch):
    replace_together(tmp_path, {"a": b"1", "gone": b"2"})
    unlink = Path.unlink

    def failing(path, *arguments, **options):
        unlink(path, *arguments, **options)
        if path.name == "gone":
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(BadInput, match="cannot be written"):
        replace_together(tmp_path, {"a": b"3"}, remove=["gone"])
    assert (tmp_path / "a").read_bytes() == b"1" and (tmp_path / "gone").read_bytes() == b"2"


def test_ctrl_c_waits_until_the_files_are_in_place(tmp_path, monkeypatch):
    write = files._write_through

    def interrupted(path, data):
        os.kill(os.getpid(), signal.SIGINT)
        write(path, data)

    monkeypatch.setattr(files, "_write_through", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_together(tmp_path, {"a": b"1", "b": b"2"})
    assert (tmp_path / "a").read_bytes() == b"1" and (tmp_path / "b").read_bytes() == b"2"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_writer_that_hangs_is_waited_for_and_then_told(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PATIENCE", 0.2)
    with files._locked(tmp_path, files.fcntl.LOCK_EX):
        with pytest.raises(BadInput, match="another process has been writing"):
            replace_together(tmp_path, {"a": b"1"})
    thread = threading.Thread(target=replace_together, args=(tmp_path, {"a": b"1"}))
    thread.start()
    thread.join()
    assert (tmp_path / "a").read_bytes() == b"1"


def test_a_directory_that_cannot_be_written_is_known_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    require_writable(tmp_path / "new" / "below")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BadInput, match="is not a directory"):
            require_writable(place)
    with pytest.raises(BadInput, match="cannot be written"):
        require_writable(Path("/proc/1/new"))


# -- checksums --------------------------------------------------------------------------------------------


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def bits_of(data: bytes, count: int, seed: int) -> list[int]:
    return random.Random(seed).sample(range(8 * len(data)), count)


def test_every_bit_flip_in_packed_arrays_is_noticed_or_harmless():
    arrays = {"w": np.linspace(0, 1, 7, dtype="float32"), "step": np.int32(3), "none": np.zeros((0, 2))}
    data = pack(arrays, {"about": "this"})
    assert {name: a.tolist() for name, a in unpack(data)[0].items()} == {
        "w": arrays["w"].tolist(),
        "step": 3,
        "none": [],
    }
    unnoticed = 0
    for bit in range(8 * len(data)):
        try:
            found, words = unpack(flipped(data, bit))
        except BadInput:
            continue
        unnoticed += "sha256" in words
        same = all(name in found and np.array_equal(found[name], a) for name, a in arrays.items())
        # Only a flip in the name of the checksum hides others, and then nothing else is flipped.
        assert same and ("sha256" not in words or words["about"] == "this")
    assert unnoticed <= 16  # spaces that pad the header


def test_a_flipped_bit_in_a_saved_model_is_refused(tmp_path):
    save(small_model(), tmp_path, extra={"about": [1, 2.5, "x"]})
    for name, seed in ((WEIGHTS, 1), (RECORD, 2)):
        data, refused, bits = (tmp_path / name).read_bytes(), 0, 30
        start = 8 + int.from_bytes(data[:8], "little") if name == WEIGHTS else 0
        for bit in bits_of(data[start:], bits, seed):
            (tmp_path / name).write_bytes(flipped(data, 8 * start + bit))
            try:
                load(tmp_path)
            except BadInput as error:
                assert "\n" not in str(error)
                refused += 1
        (tmp_path / name).write_bytes(data)
        assert refused == bits if name == WEIGHTS else refused >= bits - 3  # white space means nothing
    load(tmp_path)


def test_changed_weights_are_refused_by_load_and_told_by_verify(tmp_path):
    built = ml.compile(ml.Fixed(lags=[1], readout="x1"), route="rotary")
    ml.write(built, tmp_path)
    assert unchanged(tmp_path)
    data = bytearray((tmp_path / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (tmp_path / WEIGHTS).write_bytes(bytes(data))
    assert not unchanged(tmp_path)
    with pytest.raises(BadInput, match="checksum differs"):
        ml.load(tmp_path)
    read(tmp_path, changed=True)
    from memloci.pipeline import disagreement, verify

    assert disagreement(tmp_path, verify(tmp_path)) is not None


def test_a_flipped_bit_in_a_stream_is_refused(tmp_path):
    model = small_model()
    stream = model.stream()
    stream.feed(jnp.ones((3, 1), "float32"))
    stream.save(tmp_path / "stream")
    data = (tmp_path / "stream").read_bytes()
    for bit in bits_of(data, 20, 3):
        (tmp_path / "stream").write_bytes(flipped(data, bit))
        try:
            model.stream(tmp_path / "stream")
        except BadInput:
            continue
        assert bit // 8 < 8 + int.from_bytes(data[:8], "little")  # padding of the header


# -- training ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def programs():
    return {}


@pytest.fixture
def compiled_once(programs, monkeypatch):
    """The same program for all of these tests: what they are about happens around it."""
    from memloci.train import engine, program

    make = engine.Program
    once = lambda run, source=None: programs.setdefault(
        run.program, programs.get(run.program) or make(run, source)
    )
    monkeypatch.setattr(program, "Program", once)


def interrupt_at(part):
    def progress(text, done):
        if done >= part:
            raise KeyboardInterrupt

    return progress


def test_an_interrupt_while_the_report_is_written_keeps_the_model(tmp_path, compiled_once):
    def page(fits):
        raise KeyboardInterrupt

    with pytest.raises(training.Interrupted, match="has the model and its curves, but no report"):
        training.train_together([small_run()], out=tmp_path, page=page)
    assert {path.name for path in tmp_path.iterdir()} == {WEIGHTS, RECORD, "training.json"}
    model, task = ml.load(tmp_path)
    assert task is not None and np.isfinite(model(jnp.ones((3, 1), model.W_E.dtype))).all()


def test_an_interrupt_while_the_model_is_written_keeps_it_too(tmp_path, monkeypatch, compiled_once):
    from memloci.model import store

    replace = store.replace_together

    def interrupted(*arguments, **options):
        replace(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "replace_together", interrupted)
    with pytest.raises(training.Interrupted, match="has the model"):
        training.train_together([small_run()], out=tmp_path)
    ml.load(tmp_path)


def test_an_interrupt_before_the_model_is_written_keeps_every_step(tmp_path, monkeypatch, compiled_once):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "write", interrupted)
        with pytest.raises(training.Interrupted, match="at step 20 of 20; a checkpoint is saved"):
            training.train_together([small_run()], out=tmp_path)
    steps = []
    progress = lambda text, done: steps.append(text)
    (fit,) = training.train_together([small_run()], out=tmp_path, resume=True, progress=progress)
    assert fit.record["steps"] == 20 and not [text for text in steps if text.startswith("step")]


def test_resume_goes_on_with_what_was_interrupted_and_nothing_else(tmp_path, compiled_once):
    with pytest.raises(BadInput, match="no training was interrupted there, so leave out --resume"):
        training.train_together([small_run()], out=tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(training.Interrupted):
        training.train_together([small_run()], out=tmp_path, progress=interrupt_at(0.5))
    with pytest.raises(BadInput, match="holds another training"):
        training.train_together([small_run(seed=3)], out=tmp_path, resume=True)
    training.train_together([small_run()], out=tmp_path, resume=True)
    with pytest.raises(BadInput, match="the training there is finished"):
        training.train_together([small_run()], out=tmp_path, resume=True)


def test_a_flipped_bit_in_a_checkpoint_is_not_trained_on(tmp_path, compiled_once):
    with pytest.raises(training.Interrupted):
        training.train_together([small_run()], out=tmp_path, progress=interrupt_at(0.5))
    path = tmp_path / "checkpoint-0.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for bit in bits_of(data[start:], 5, 4):
        path.write_bytes(flipped(data, 8 * start + bit))
        with pytest.raises(BadInput, match="checkpoint-0.safetensors: damaged.*delete the file to train"):
            training.train_together([small_run()], out=tmp_path, resume=True)
    path.unlink()
    (fit,) = training.train_together([small_run()], out=tmp_path, resume=True)
    assert fit.history == training.train_together([small_run()])[0].history


def test_curves_of_different_length_and_of_other_steps_are_no_checkpoint():
    from memloci.train.checkpoint import Course, from_bytes, to_bytes
    from memloci.train.device import precision_mode
    from memloci.train.program import Program

    run = small_run()
    with precision_mode(run):
        state = Program(run).start(run)._replace(step=np.int32(5))
        values = {"step": [5], "loss": [1.0], "held_out": [1.0], "err_mean_square": [1.0], "err_sup": [None]}
        assert from_bytes(run, to_bytes(run, Course(state, values, 1.0)), state).step == 5
        spoilt = [
            {**values, name: value} for name, value in [("loss", []), ("loss", ["1"]), ("step", [True])]
        ]
        spoilt += [{**values, "step": [4]}, {name: [] for name in values}]
        for history in spoilt:
            with pytest.raises(BadInput, match="its curves do not fit"):
                from_bytes(run, to_bytes(run, Course(state, history, 1.0)), state)


TRAINER = [sys.executable, "-m", "memloci.cli", "train", "delay", "--steps", "6000", "--batch", "2"]
TRAINER += ["--heads", "1", "--width", "4"]
for _setting in (
    "architecture.dim=4",
    "training.length=12",
    "training.held_out=4",
    "training.evaluate_every=20",
):
    TRAINER += ["--set", _setting]


def steps_kept(out):
    data = (out / "checkpoint-0.safetensors").read_bytes()
    return json.loads(unpack(data)[1]["course"])["history"]["step"][-1]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_training_that_is_stopped_at_random_moments_ends_as_if_it_was_not(tmp_path, how):
    """After Ctrl-C no step is lost; after a kill, none that a checkpoint had."""
    choose, out = random.Random(11), tmp_path / "out"
    environment = {**os.environ, "MEMLOCI_CACHE": str(tmp_path / "cache")}
    kept, stops = 0, 0
    command = [*TRAINER, "--out", str(out)]
    while True:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            _, said = process.communicate(timeout=choose.uniform(4, 9))
        except subprocess.TimeoutExpired:
            process.send_signal(how)
            _, said = process.communicate(timeout=300)
            stops += 1
        if process.returncode == 0:
            break
        assert process.returncode == (1 if how is signal.SIGINT else -how), said
        if (out / "checkpoint-0.safetensors").exists():
            assert steps_kept(out) >= kept
            kept = steps_kept(out)
            if how is signal.SIGINT and "at step" in said:
                assert f"at step {kept:,} of 6,000" in said
        if (out / "runs.json").exists():
            command = [*TRAINER[:4], "--resume", "--out", str(out)]
        elif (out / "model.json").exists():
            break
    print(stops, "stops")
    once = tmp_path / "once"
    subprocess.run([*TRAINER, "--out", str(once)], cwd=ROOT, env=environment, check=True, capture_output=True)
    curves = [
        json.loads((place / "training.json").read_text())["fits"][0]["history"] for place in (out, once)
    ]
    assert stops and curves[0] == curves[1]
    assert (out / WEIGHTS).read_bytes() == (once / WEIGHTS).read_bytes()


# -- data, caches, names ----------------------------------------------------------------------------------


def test_an_archive_that_inflates_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "large.npz"
    np.savez_compressed(path, x=np.zeros((4, 2**17, 1)), y=np.zeros((4, 2**17, 1)))
    monkeypatch.setenv("MEMLOCI_DATA_GB", "0.001")
    with pytest.raises(BadInput, match=r"large.npz: x and y take 0.00781 GB .* set MEMLOCI_DATA_GB=1 "):
        describe(path)
    monkeypatch.setenv("MEMLOCI_DATA_GB", "0.01")
    assert describe(path)["length"] == 2**17
    monkeypatch.setenv("MEMLOCI_DATA_GB", "a lot")
    with pytest.raises(BadInput, match="MEMLOCI_DATA_GB must be a positive number, found 'a lot'"):
        describe(path)


def test_an_array_that_declares_more_than_it_has_is_refused(tmp_path):
    path = tmp_path / "liar.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x.npy", "y.npy"):
            with archive.open(name, "w") as file:
                header = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6, 10**6)}
                np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(BadInput, match="declares 8,000,000,000,000,000,000 bytes, but"):
        describe(path)


@pytest.mark.parametrize("name, value", [("x", 1e300), ("y", -1e300), ("y", 1e30)])
def test_a_number_that_the_precision_cannot_hold_is_refused_with_its_place(name, value):
    arrays = {"x": np.zeros((3, 8, 1)), "y": np.zeros((3, 8, 1))}
    arrays[name][1, 5, 0] = value
    sizes = {**SIZES, "precision": "float32"}
    with pytest.raises(BadInput, match=rf"data: {name}\[1, 5, 0\] = .* is too large for float32"):
        ml.train((arrays["x"], arrays["y"]), sizes, steps=1)


def test_the_cache_of_programs_keeps_what_was_used_last(tmp_path):
    for k in range(6):
        (tmp_path / str(k)).write_bytes(b"p" * 100)
        os.utime(tmp_path / str(k), (1000 + k, 1000 + k))
    (tmp_path / "folder").mkdir()
    os.utime(tmp_path / "0", (2000, 1000))  # read since
    assert delete_oldest(tmp_path, 250) == 4
    assert sorted(os.listdir(tmp_path)) == ["0", "5", "folder"]
    assert delete_oldest(tmp_path, 250) == 0


def test_json_has_one_meaning():
    assert parse_json(b'{"a": [1, 2.5, null, "\xc3\xa9"]}') == {"a": [1, 2.5, None, "\u00e9"]}
    for text, why in [
        (b'{"bound": 1, "bound": 2}', "the key 'bound' appears twice"),
        (b'[{"a": {"b": 1, "b": 1}}]', "the key 'b' appears twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "beyond float64"),
        (b'{"a": "\xff"}', "not JSON"),
        (b"[" * 10**5, "not JSON"),
        (b"", "not JSON"),
    ]:
        with pytest.raises(BadInput, match=why):
            parse_json(text)


def test_interrupted_commands_end_with_status_1():
    code = "import memloci.synthesize as s, memloci.cli as c; s.plan = lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt)\n"
    code += "c.main(['plan', 'delay'])"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1 and result.stderr == "memloci: interrupted\n"


def test_a_copy_of_a_model_of_before_loads(tmp_path):
    """Files of a version that wrote no id, and checkpoints and weights without checksums, are read as they are."""
    import safetensors.numpy

    save(small_model(), tmp_path / "new")
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    record = json.loads((tmp_path / "old" / RECORD).read_text())
    del record["id"]
    (tmp_path / "old" / RECORD).write_text(json.dumps(record))
    tensors = safetensors.numpy.load_file(tmp_path / "old" / WEIGHTS)
    safetensors.numpy.save_file(tensors, tmp_path / "old" / WEIGHTS)
    load(tmp_path / "old")
    found, words = unpack(safetensors.numpy.save(tensors))
    assert found.keys() == tensors.keys() and not words
