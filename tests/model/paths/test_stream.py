"""A stream says what the batch model says, token by token, however it is fed, saved or stopped.

    |stream_t - model(x)_t| <= STEPS eps max |model(x)|         eps of the model's precision

The batch model in float64 is the reference for both precisions; STEPS covers the roundings of its layers.
Programs are compiled per structure, so tests share the models of VALID and LONG, and most have one layer.
"""

import json
from itertools import cycle
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from memloci.core.errors import BadInput
from memloci.model.paths import memories, stream
from memloci.model.paths.exponentials import grid, relative_error
from memloci.model.paths.memories import LONGEST, Fading
from memloci.model.paths.recurrence import CHUNK
from memloci.model.paths.stream import Stream, fingerprint
from memloci.model.transformer import Transformer
from tests.model.cases import NORMS, VALID, build, name, same_bits, tokens

from .agreement import some

STEPS = 64
EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
STRIDED = dict(window=None, stride=3)


def case(attention: str, encoding: str, normalisation: str, **past: Any) -> dict[str, Any]:
    past = dict(window=None, stride=1) | past
    return dict(attention=attention, encoding=encoding, normalisation=normalisation) | past


LONG = {  # every kind of memory
    "lin": case("dpf", "lin", "softmax"),
    "log": case("dpf", "log", "softmax"),
    "t5": case("dpf", "t5", "softmax", stride=2),
    "window": case("dp", "lin", "softmax", window=50, stride=4),
    "lin, gated": case("tmx", "lin", "infinite", **STRIDED),
    "log, gated": case("tmx", "log", "infinite", **STRIDED),
    "t5, gated": case("tmx", "t5", "none"),
    "rope": case("dp", "rope", "softmax", **STRIDED),
}
SMALL: dict[str, Any] = dict(layers=1, width=0, precision="float32")
BOTH_PRECISIONS = ("lin", "log", "t5", "window")


@pytest.fixture
def chunks_of_32(monkeypatch):
    """Without the programs for long chunks, which would only take longer to compile."""
    monkeypatch.setattr(stream, "CHUNKS", (32,))


def followed(stream: Stream, x: Any) -> np.ndarray:
    """One call per token."""
    return np.stack([np.asarray(stream(x_t)) for x_t in x])


def in_float64(model: Transformer, x: np.ndarray) -> np.ndarray:
    exact = jax.tree.map(lambda a: a.astype("float64") if eqx.is_inexact_array(a) else a, model)
    return np.asarray(exact(x.astype("float64")))


def assert_same(found: Any, expected: Any, precision: str = "float64") -> None:
    """Equal up to rounding, and broken where the other is."""
    found, expected = np.asarray(found, "float64"), np.asarray(expected)
    assert found.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    error = np.abs(found[finite] - expected[finite]).max(initial=0.0)
    size = np.abs(expected[finite]).max(initial=0.0)
    assert error <= STEPS * EPS[precision] * size, (error, size)


@pytest.mark.long
@pytest.mark.parametrize(("case", "norm"), some(list(zip(VALID, cycle(NORMS), strict=False))), ids=name)
def test_every_architecture_streams(case, norm):
    """Fed and called, with all tokens finite, and with broken ones among them."""
    model = build(case, layers=1, norm=norm, width=5 if case["window"] is None else 0)
    x = tokens(n=10)
    for place, broken in [(0, x[0, 0]), (2, np.nan), (3, np.inf)]:
        x[place, 0] = broken
        found = model.stream()
        y = [found.feed(x[:5]), followed(found, x[5:])]
        assert found.position == 10
        assert_same(np.concatenate(y), model(x))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "precision"),
    [(kind, "float32") for kind in LONG] + [(kind, "float64") for kind in BOTH_PRECISIONS],
)
def test_long_streams_agree_and_keep_their_size(kind, precision, chunks_of_32):
    model = build(LONG[kind], **SMALL | dict(precision=precision))
    x = tokens(n=320, dtype=precision)
    found = model.stream()
    size = found.nbytes
    y = [found.feed(x[:0]), found.feed(x[:160]), found.feed(x[160:])]
    assert found.position == 320 and y[0].dtype == precision
    assert_same(np.concatenate(y), in_float64(model, x), precision)
    assert found.nbytes == size


def test_two_layers_and_long_chunks():
    model = build(LONG["lin"], norm="pre", precision="float32")
    x = tokens(n=270, dtype="float32")
    assert_same(model.stream().feed(x), in_float64(model, x), "float32")


def with_slopes(model: Transformer, *p: float) -> Transformer:
    slopes = jnp.asarray(p, model.W_E.dtype)
    return eqx.tree_at(lambda m: m.layers[0].attention.heads.encoding.p, model, slopes)


@pytest.mark.long
@pytest.mark.parametrize("normalisation", ["softmax", "none"])
@pytest.mark.parametrize(
    ("encoding", "p"), [("lin", (-0.3, 0.0)), ("lin", (1e-9, 40.0)), ("log", (-0.7, 0.0))]
)
def test_any_slope(encoding, p, normalisation, chunks_of_32):
    """Slopes below 0 weigh the oldest most; only log then needs a cache."""
    model = with_slopes(build(case("dpf", encoding, normalisation), layers=1, width=0), *p)
    x = tokens(n=64)
    assert_same(model.stream().feed(x), model(x))


def test_t5_weights_may_differ_by_more_than_a_float_holds(chunks_of_32):
    """Softmax is relative to the largest weight seen so far, not to the one that is still to come."""
    model = build(LONG["t5"], layers=1, width=0)
    table = jnp.asarray([[-900.0, 0.0, 1.0, -900.0], [0.0, -900.0, 900.0, 0.0]])
    model = eqx.tree_at(lambda m: m.layers[0].attention.heads.encoding.table, model, table)
    x = tokens(n=64)
    assert_same(model.stream().feed(x), model(x))


@pytest.mark.long
@pytest.mark.parametrize("u", [0.0, 1e-7, 1e-4, 0.3, 2.0])
def test_sums_do_not_drift(u):
    """sum_{j<n} e^-uj, to a few roundings, after as many steps as float32 alone would not survive."""
    n = 300_000
    fading = Fading.at(np.array([u], "float32"), np.dtype("float32"))
    step = lambda sums, _: (fading.add(sums, jnp.ones(1, "float32")), None)
    sums, _ = jax.jit(lambda start: jax.lax.scan(step, start, length=n))(jnp.zeros((2, 1), "float32"))
    u = float(np.float32(u))
    expected = np.expm1(-u * n) / np.expm1(-u) if u else n
    assert abs(float(sums[0, 0]) - expected) <= 4 * EPS["float32"] * expected


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("p", [0.5, 1.5, 4.0])
def test_powers_are_exponentials_up_to_the_last_position(p, precision):
    assert relative_error(grid(precision, CHUNK + 1, LONGEST), p) <= 2 * EPS[precision]


@pytest.mark.long(2)
@pytest.mark.parametrize("kind", ["lin", "log", "window", "rope"])
def test_a_saved_stream_goes_on_bit_by_bit(kind, tmp_path, chunks_of_32):
    model = build(LONG[kind], **SMALL)
    x = tokens(n=90, dtype="float32")
    x[10] = np.nan
    unbroken = model.stream()
    unbroken.feed(x[:37])
    unbroken.save(tmp_path / "new" / "stream")
    again = model.stream(tmp_path / "new" / "stream")
    assert again.position == 37
    for part in (x[37:40], x[40:]):
        assert same_bits(again.feed(part), unbroken.feed(part))
    again.save(tmp_path / "new" / "stream")  # in place of the other
    assert model.using("plain").stream(tmp_path / "new" / "stream").position == 90  # the same numbers
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["stream"]


@pytest.mark.parametrize("window", [None, 12])
def test_caches_grow_by_doubling(window, tmp_path, monkeypatch):
    monkeypatch.setattr(memories, "ROWS", 8)
    model = build(case("dp", "none", "softmax", window=window), layers=1)
    x = tokens(n=24)
    found, sizes = model.stream(), set()
    y = [found.feed(x[:15])]
    found.save(tmp_path / "stream")
    for part in (x[15:19], x[19:]):
        y.append(found.feed(part))
        sizes.add(found.nbytes)
    assert_same(np.concatenate(y), model(x))
    assert same_bits(model.stream(tmp_path / "stream").feed(x[15:]), np.concatenate(y[1:]))
    assert len(sizes) == 1  # 32 rows, or the 12 + 1 of the window


def test_a_window_forgets_a_broken_token():
    model = build(case("dpf", "lin", "softmax", window=4, stride=2), layers=1)
    x = tokens(n=12)
    whole = model.stream().feed(x)
    x[3] = np.nan
    y = np.asarray(model.stream().feed(x))
    assert np.flatnonzero(np.isnan(y).all(axis=1)).tolist() == [3, 5, 7]  # itself, and what sees it
    assert_same(y[8:], whole[8:])


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (np.zeros(3), r"a token must have shape \(2,\), found \(3,\)"),
        (np.zeros((1, 2)), r"found \(1, 2\); `feed` takes several"),
        (0.5, r"found \(\)"),
        ([1.0, [2.0]], "not an array of numbers"),
        (np.zeros(2, complex), "holds complex128, not real numbers"),
        (["a", "b"], "holds <U1, not real numbers"),
    ],
)
def test_wrong_tokens_are_refused_and_nothing_happens(token, reason):
    found = build(LONG["lin"], **SMALL).stream()
    with pytest.raises(BadInput, match=reason) as refusal:
        found(token)
    assert found.position == 0 and "\n" not in str(refusal.value)


def test_tokens_of_other_types_are_cast_as_the_model_does():
    model = build(LONG["lin"], **SMALL)
    x = np.array([[1, 0], [0, 1], [1, 1]])
    expected = model.stream().feed(x)
    for same in (x.astype(bool), x.astype("float64"), jnp.asarray(x, "float32"), x.tolist()):
        assert same_bits(followed(model.stream(), same), expected)
    with pytest.raises(BadInput, match=r"must have shape \(n, 2\), found \(3, 1\)"):
        model.stream().feed(x[:, :1])


def test_positions_end():
    model = build(case("dp", "learned", "softmax"), layers=1)
    found = model.stream()
    found.feed(tokens(n=12))
    for ask in (lambda: found(tokens()[0]), lambda: found.feed(tokens(n=1))):
        with pytest.raises(BadInput, match="'learned' has 12 positions, the stream 13; raise max_length"):
            ask()
    found = build(LONG["lin"], **SMALL).stream()
    found._position = LONGEST - 1
    with pytest.raises(BadInput, match="at most 2,147,483,647 positions, these tokens end at 2,147,483,648"):
        found.feed(tokens(n=2))
    found(tokens()[0])
    with pytest.raises(BadInput, match="at most 2,147,483,647 positions"):
        found(tokens()[0])


def test_weights_that_define_no_function_are_refused():
    model = with_slopes(build(case("dpf", "lin", "infinite"), layers=1), 1.0, -1.0)
    with pytest.raises(BadInput, match="layer 0: attention: head 1 has slope p = -1"):
        model.stream()


# -- files from strangers --------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    found = build(LONG["lin"], **SMALL).stream()
    found.feed(tokens(n=3))
    found.save(tmp_path / "stream")
    return tmp_path / "stream"


def edit(metadata: dict[str, str] | None = None, **tensors: Any):
    """Tensors put in place of others, or taken out."""

    def change(path):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        kept = {key.replace("__", "."): tensor for key, tensor in tensors.items()}
        kept = {
            key: tensor for key, tensor in (safetensors.numpy.load(data) | kept).items() if tensor is not None
        }
        words = {key: word for key, word in header["__metadata__"].items() if key != "sha256"}
        safetensors.numpy.save_file(kept, path, metadata=words | (metadata or {}))

    return change


def replace_by_link(path):
    path.rename(path.parent / "elsewhere")
    path.symlink_to("elsewhere")


sums = np.zeros((1, 2, 2, 3), "float32")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_bytes(b""), "not a whole safetensors file"),
        (lambda path: path.write_bytes(b"pickle?" * 9), "not a whole safetensors file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "not a whole safetensors file"),
        (lambda path: path.write_bytes(b" " * 2**22), "bytes, but at most"),
        (lambda path: safetensors.numpy.save_file({"x": sums}, path), "its format is None"),
        (replace_by_link, "a symbolic link, not a file"),
        (edit({"format": "memloci stream 9"}), "its format is 'memloci stream 9'"),
        (edit({"model": "0"}), "the stream of another model"),
        (edit(position=None), "position is not a whole number"),
        (edit(position=np.array(-1, "int32")), "position is not a whole number"),
        (edit(position=np.array(3.0)), "position is not a whole number"),
        (edit(layers__0__sums=None), "tensor layers.0.sums is missing"),
        (edit(more=sums), "tensor 'more' does not belong"),
        (
            edit(layers__0__sums=sums[..., :2]),
            r"layers.0.sums must be float32 of shape \(1, 2, 2, 3\), found float32",
        ),
        (edit(layers__0__sums=sums.astype("float64")), "found float64"),
    ],
)
def test_a_spoilt_file_is_refused_in_one_line(stored, spoil, reason):
    spoil(stored)
    with pytest.raises(BadInput, match=reason) as refusal:
        build(LONG["lin"], **SMALL).stream(stored)
    assert "\n" not in str(refusal.value) and str(refusal.value).startswith(str(stored))


def test_another_model_is_refused(stored, tmp_path):
    model = build(LONG["lin"], **SMALL)
    for other in (
        with_slopes(model, 1.0, 2.0),
        build(LONG["lin"], **SMALL, norm="pre"),
    ):
        assert fingerprint(other) != fingerprint(model)
        with pytest.raises(BadInput, match="the stream of another model"):
            other.stream(stored)
    with pytest.raises(BadInput, match="cannot be written"):
        model.stream().save(tmp_path)
    with pytest.raises(BadInput, match="names no file"):
        model.stream().save("/")
