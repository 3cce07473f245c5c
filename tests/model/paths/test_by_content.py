"""The token with the largest logit, found by its key: the plain definition where heads are sharp, and in little time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memloci as ml
from memloci.certify.certify import certify
from memloci.core.errors import BadInput
from memloci.model.architecture import Architecture
from memloci.model.paths import by_content
from memloci.tasks.inputs import sample

PAYLOAD = {"name": "v", "range": [-1, 1]}


def store(keys, **fields):
    channels = [{"name": "k", "values": list(range(keys))}, PAYLOAD]
    return ml.Matched(channels=channels, matches=["k1 == k0"], readout="v1", **fields)


@pytest.fixture(scope="module")
def built():
    return ml.compile(store(12), route="match", tolerance=1e-5)


@pytest.mark.parametrize("p", [1.5, -1.5])
@pytest.mark.parametrize("U", [3, 150])
def test_the_winner_has_the_largest_logit_of_the_past(p, U):
    rng = np.random.default_rng(U)
    K = rng.integers(-3, 4, (U, 4)).astype("float32")[rng.integers(U, size=2_100)]
    Q = rng.normal(size=K.shape).astype("float32")
    s = np.asarray(by_content.winners(jnp.asarray(Q), jnp.asarray(K), jnp.float32(p)))
    z = np.arange(len(K))[:, None] - np.arange(len(K))[None, :]
    logits = np.where(z > 0, Q.astype(float) @ K.T.astype(float) - p * z, -np.inf)
    assert s[0] == by_content.NOWHERE
    rows = np.arange(1, len(K))
    assert (s[1:] < rows).all() and np.allclose(logits[rows, s[1:]], logits[1:].max(axis=1), rtol=1e-6)


def test_distinct_keys_are_told_apart_exactly():
    K = jnp.asarray([[1, 0], [0, 1], [1, 0], [np.nextafter(np.float32(1), 2), 0], [0, 1]], jnp.float32)
    same, first, U = by_content.distinct(K)
    assert (
        int(U) == 3 and same[0] == same[2] and same[1] == same[4] and len(set(np.asarray(same).tolist())) == 3
    )
    assert sorted(np.asarray(first)[:3].tolist()) == [0, 1, 3]


def test_it_agrees_with_the_plain_definition(built):
    X = sample(built.task, jax.random.key(2), 700)
    plain, sharp = (np.asarray(built.model.using(path)(X)) for path in ("plain", "sharp"))
    assert np.abs(plain - sharp).max() <= 2 * built.certificate.bound


def test_the_certificate_covers_it(built):
    certificate = certify(built.model.using("sharp"), built.task, tolerance=1e-5)
    assert certificate.met and certificate.bound >= built.certificate.bound * (1 - 1e-12)
    X = sample(built.task, jax.random.key(3), 3_000)
    y, target = built.model.using("sharp")(X), built.task.target(X)
    assert np.abs(np.asarray(y) - np.asarray(target)).max() <= certificate.bound


def test_heads_that_average_are_refused():
    built = ml.compile(store(3, which="mean"), route="match")
    with pytest.raises(BadInput, match="averages all matches"):
        certify(built.model.using("sharp"), built.task)


def test_gradients_reach_the_values(built):
    X = sample(built.task, jax.random.key(4), 40)
    model = built.model.using("sharp")
    slope = eqx.filter_grad(lambda x: model(x)[-1, 0])(X)
    (found,) = np.flatnonzero(np.asarray(slope)[:, 1])
    assert X[found, 0] == X[-1, 0] and slope[found, 1] == 1


@pytest.mark.parametrize("changes", [{"attention": "dpf"}, {"normalisation": "none"}, {"window": 8}])
def test_other_heads_are_refused(changes):
    switches = {"attention": "dp", "encoding": "lin", "normalisation": "softmax", "path": "sharp"} | changes
    with pytest.raises(BadInput, match="sharp"):
        Architecture(layers=1, heads=1, width=0, **switches)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mqar", "induction", "two-hop"])
def test_65536_tokens(name):
    task = ml.load_task(name)
    built = ml.compile(task, tolerance=1e-5)
    X = np.asarray(sample(task, jax.random.key(5), 65_536))
    assert built.certificate.met and built.model.parameter_count < 20_000
    y = np.asarray(built.model.using("sharp")(X))
    assert np.abs(y - np.asarray(task.target(X))).max() <= built.certificate.bound
