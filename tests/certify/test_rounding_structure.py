"""Rounding bounds that follow what the paths really add, attacked: no input, order or length does worse.

The truth is computed apart: by Fractions, or in numpy's longdouble, whose 64 bits leave float32 no say.
"""

import math
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, ctx

from memloci.approx.kernels.rpe import LIN, LOG
from memloci.certify.certify import certify
from memloci.certify.kernels import ANY_ORDER, SumKernels, layer_kernels
from memloci.certify.past_sums import any_order, recurrence, stream
from memloci.certify.readout import ReadoutWeights, Slots
from memloci.certify.rounding import LIBRARY, format_of
from memloci.certify.symbol_rounding import at_symbols, grid, representable
from memloci.core.intervals import point
from memloci.core.precision import PRECISIONS
from memloci.model.architecture import Architecture
from memloci.model.paths.blocks import _added
from memloci.model.paths.choice import LONGEST, PATHS, choose, possible_paths
from memloci.model.paths.decay import CHUNK, two_sum
from memloci.model.zeta import zeta
from memloci.pipeline import compile
from memloci.tasks.short import Essential, Fixed

from .cases import blank_model
from .test_certify import one_head

FLOAT32 = format_of("float32")
LONG = np.longdouble
EXTENDED = np.finfo(LONG).nmant >= 63
needs_extended = pytest.mark.skipif(not EXTENDED, reason="longdouble is no wider than float64 here")


def inputs(n: int, seed: int = 0) -> np.ndarray:
    """(n, k): sequences whose roundings add up, or cancel late; all of them numbers of float32 in [-1, 1]."""
    rng, t = np.random.default_rng(seed), np.arange(n)
    columns = [
        np.ones(n),
        np.full(n, 1 / 3),
        np.full(n, 1 - 2.0**-24),
        (-1.0) ** t,
        np.where(t < n // 2, 1.0, -1.0),
        np.sin(t / 1000),
        rng.choice([-1.0, 1.0], n),
        rng.uniform(0.5, 1.0, n),
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def heads_of(encoding: str, slopes, **fields):
    """The stacked heads of a dot-product-free layer with these slopes."""
    a = Architecture(
        layers=1, heads=len(slopes), width=0, attention="dpf", encoding=encoding, normalisation="infinite", dim=2,
        value_dim=len(inputs(2)[0]), precision="float32", **fields,
    )  # fmt: skip
    model = blank_model(a, 1, 1)
    place = lambda m: m.layers[0].attention.heads.encoding.p
    return eqx.tree_at(place, model, jnp.asarray(slopes, "float32")).layers[0].attention.heads


def recalled(heads, path: str, x: np.ndarray) -> np.ndarray:
    """(n, H, k): what the path computes, every column of x being a value coordinate."""
    H, n = heads.W_V.shape[0], len(x)
    V = jnp.broadcast_to(jnp.asarray(x)[:, None, :], (n, H, x.shape[1]))
    run = eqx.filter_jit(lambda heads, V: PATHS[path].recalled(heads, jnp.zeros((n, 2), "float32"), V))
    return np.asarray(run(heads, V)).astype(LONG)


# -- lin ----------------------------------------------------------------------------------------------------

LIN_SLOPES = np.array(
    [1e-7, 1e-5, 1e-3, 0.02, 0.3, 0.499, 0.51, 0.999, 1.01, 3.0, 9.0, 17.5, 40.0], dtype=np.float32
)


def lin_exactly(x: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    p = slopes.astype(LONG)[:, None]
    q, S, found = np.exp(-p), np.zeros((len(slopes), x.shape[1]), LONG), []
    for row in x.astype(LONG):
        found.append(S)
        S = q * S + row
    return np.stack(found) * -np.expm1(-p)


@needs_extended
@pytest.mark.parametrize(
    "path, n", [("plain", 300), ("blocks", 1_500), ("recurrence", 100), ("recurrence", 12_000)]
)
def test_no_sequence_beats_the_bound_of_lin_heads(path, n):
    found = recalled(heads_of("lin", LIN_SLOPES), path, inputs(n))
    error = np.abs(found - lin_exactly(inputs(n), LIN_SLOPES)).max(axis=(0, 2)).astype(float)
    kernels = SumKernels(LIN, LIN_SLOPES.astype(float), paths={path: n if path == "plain" else LONGEST})
    bound = kernels.recall_error(FLOAT32, False)
    assert (error <= bound).all(), np.stack([LIN_SLOPES, error, bound])
    assert (
        bound < (30 if path == "blocks" else 120 if path == "recurrence" else n + 40) * 1.3 * FLOAT32.u
    ).all()


def rounded_upwards(p: np.float32, n: int) -> np.ndarray:
    """Values near 1, chosen one by one so that the recurrence rounds up at every step."""
    rng, x, S = np.random.default_rng(0), np.zeros(n, np.float32), np.float32(0)
    decay = np.float32(np.expm1(-float(p)))
    for t in range(n):
        S = np.float32(0) if t % CHUNK == 0 else S
        tried = (1 - rng.uniform(0, 0.1, 64)).astype(np.float32)
        new = S + (decay * S + tried)
        k = int(np.argmax(new.astype(float) - ((1 + float(decay)) * float(S) + tried.astype(float))))
        x[t], S = tried[k], new[k]
    return x


@needs_extended
@pytest.mark.parametrize("p", [0.003, 0.02])
def test_an_adversary_who_knows_every_rounding_comes_near_the_bound(p):
    slopes = np.array([p], dtype=np.float32)
    x = np.repeat(rounded_upwards(slopes[0], 2_500)[:, None], inputs(2).shape[1], axis=1)
    error = float(np.abs(recalled(heads_of("lin", slopes), "recurrence", x) - lin_exactly(x, slopes)).max())
    bound = recurrence(slopes.astype(float), FLOAT32.u)[0]
    assert 0.2 * bound < error <= bound


@needs_extended
@pytest.mark.slow
def test_the_recurrence_holds_at_length_65536():
    found = recalled(heads_of("lin", LIN_SLOPES), "recurrence", inputs(65_536))
    error = np.abs(found - lin_exactly(inputs(65_536), LIN_SLOPES)).max(axis=(0, 2)).astype(float)
    assert (error <= recurrence(LIN_SLOPES.astype(float), FLOAT32.u) + 1e-20).all()


@needs_extended
def test_a_stream_of_lin_heads_is_within_the_bound_that_covers_it():
    slopes, n = LIN_SLOPES[1::4], 2_000
    exact = lin_exactly(inputs(n)[:, :1], slopes)
    for h, p in enumerate(slopes):
        found = np.asarray(one_head(float(p), "float32").stream().feed(inputs(n)[:, :1])).astype(LONG)
        error = float(np.abs(found - exact[:, h]).max())
        assert error <= stream(slopes.astype(float), FLOAT32.u)[h] + 1e-20, p


def test_lin_heads_lose_less_than_150_roundings():
    """Of the largest value, whatever the slope and the length (docs/theory.md)."""
    slopes = np.geomspace(2.0**-24, 100, 400)
    paths = possible_paths(one_head(1.0, "float32", path="certified").architecture)
    assert set(paths) == {"plain", "recurrence"}
    assert SumKernels(LIN, slopes, paths=paths).recall_error(FLOAT32, False).max() < 150 * FLOAT32.u


def test_the_normaliser_of_a_steep_head_is_exactly_1():
    """Then a shift by one loses nothing at all."""
    heads = heads_of("lin", [18.0, 24.0, 40.0])
    assert np.asarray(jax.vmap(lambda e: e.infinite_sum(1))(heads.encoding)).tolist() == [1.0] * 3
    for path in ("plain", "recurrence", "blocks"):
        kernels = SumKernels(LIN, np.array([40.0]), paths={path: LONGEST})
        assert kernels.recall_error(FLOAT32, False)[0] < 1e-16
    x = inputs(500)
    assert (recalled(heads, "recurrence", x)[1:, 2] == x[:-1]).all()


# -- log ----------------------------------------------------------------------------------------------------

LOG_SLOPES = np.array([1.05, 1.2, 1.5, 2.0, 3.0, 6.0, 20.0, 70.0], dtype=np.float32)


def log_exactly(x: np.ndarray, slopes: np.ndarray, at) -> np.ndarray:
    """Kernel sums at some positions, smallest terms first."""
    with ctx.workprec(120):
        Z = np.array([LONG(arb(float(p)).zeta().str(30, radius=False)) for p in slopes])
    found = []
    for t in at:
        z = np.arange(t, 0, -1).astype(LONG)
        w = np.exp(-slopes.astype(LONG)[:, None] * np.log(z)[None, :]) / Z[:, None]
        found.append(w @ x[:t].astype(LONG))
    return np.stack(found)


@needs_extended
@pytest.mark.parametrize("path, n", [("plain", 300), ("blocks", 700), ("blocks", 2_048)])
def test_no_sequence_beats_the_bound_of_log_heads(path, n):
    at = sorted({1, 2, 15, 16, 17, 127, 128, 129, n // 2, n - 1})
    found = recalled(heads_of("log", LOG_SLOPES), path, inputs(n))[at]
    error = np.abs(found - log_exactly(inputs(n), LOG_SLOPES, at)).max(axis=(0, 2)).astype(float)
    kernels = SumKernels(LOG, LOG_SLOPES.astype(float), paths={path: n if path == "plain" else LONGEST})
    bound = kernels.recall_error(FLOAT32, False)
    assert (error <= bound).all(), np.stack([LOG_SLOPES, error, bound])
    assert (bound[3:] < (60 if path == "blocks" else n + 60) * FLOAT32.u).all()


@needs_extended
@pytest.mark.slow
def test_blocks_hold_at_length_65536():
    n, slopes = 65_536, LOG_SLOPES[1:2]
    found = recalled(heads_of("log", slopes), "blocks", inputs(n))[[n - 1]]
    error = float(np.abs(found - log_exactly(inputs(n), slopes, [n - 1])).max())
    assert error <= SumKernels(LOG, slopes.astype(float), paths={"blocks": n}).recall_error(FLOAT32, False)[0]


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_zeta_errs_by_less_than_is_derived_from_exp_and_log(precision):
    p = np.concatenate([1 + np.geomspace(1e-3, 1, 60), np.linspace(2, 60, 60), [1e3]]).astype(precision)
    found = np.asarray(jax.jit(jax.vmap(zeta))(jnp.asarray(p)), dtype=float)
    bound = SumKernels(LOG, p.astype(float))._zeta_error(PRECISIONS[precision].u)
    with ctx.workprec(120):
        for at, value, most in zip(p.astype(float), found, bound, strict=True):
            exact = arb(float(at)).zeta()
            assert abs(arb(float(value)) - exact) <= arb(float(most)) * exact, at
    assert bound[60:].max() < 25 * PRECISIONS[precision].u


# -- what the proofs rest on --------------------------------------------------------------------------------


def test_two_sums_are_exact_where_they_are_compiled():
    """x + y = total + error without an error, alone and in a loop; so are the pairs of blocks, up to u^2."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=4_000) * 2.0 ** rng.integers(-30, 30, 4_000) for _ in range(2))
    x, y = x.astype(np.float32), y.astype(np.float32)
    total, error = (np.asarray(part) for part in jax.jit(two_sum)(x, y))
    for a, b, s, e in zip(*(v.astype(float).tolist() for v in (x, y, total, error)), strict=True):
        assert Fraction(a) + Fraction(b) == Fraction(s) + Fraction(e)

    terms = rng.choice([1.0, -1.0], 3_000) * rng.uniform(0, 1, 3_000)
    terms = terms.astype(np.float32)
    step = lambda pair, new: (_added(pair[0], pair[1], new), None)
    (high, low), _ = jax.jit(lambda terms: jax.lax.scan(step, (jnp.float32(0), jnp.float32(0)), terms))(terms)
    exact, mass = sum(map(Fraction, terms.astype(float).tolist())), float(np.abs(terms).sum())
    off = abs(exact - Fraction(float(high)) - Fraction(float(low)))
    assert off <= 4.5 * len(terms) * FLOAT32.u**2 * mass and abs(float(low)) <= FLOAT32.u * mass


def rounded(x: float, bits: int) -> float:
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)


@pytest.mark.parametrize("seed", range(6))
def test_no_order_of_additions_beats_any_order(seed):
    """Trees of every shape, in 10 bits, over weights that decay: random ones, and the two extreme ones."""
    rng, bits = np.random.default_rng(seed), 10
    n = int(rng.choice([5, 20, 60]))
    w = rng.choice([0.5, 0.8, 0.95]) ** np.arange(n)
    w /= w.sum()
    values = (w * rng.choice([1.0, -1.0] if seed % 2 else [1.0], n)).tolist()
    terms = [rounded(v, bits) for v in values]
    mass = np.array([sum(map(abs, terms))])
    tails = np.append(np.cumsum(np.abs(terms)[::-1])[::-1], 0.0)
    bound = any_order(n, mass, lambda k: np.array([tails[min(k, n)]]), 2.0**-bits)[0]
    exact = float(sum(map(Fraction, terms)))
    for shape in ("forwards", "backwards", "random", "random", "halves"):
        parts = terms[::-1] if shape == "backwards" else list(terms)
        while len(parts) > 1:
            i, j = (0, 1) if shape != "random" else rng.choice(len(parts), 2, replace=False).tolist()
            i, j = max(i, j), min(i, j)
            total = rounded(parts.pop(i) + parts.pop(j), bits)
            parts.insert(len(parts) if shape == "halves" else 0, total)
        assert abs(parts[0] - exact) <= bound


@needs_extended
@pytest.mark.parametrize("precision", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "expm1", "log", "sin", "cos"])
def test_library_functions_on_dense_samples(name, precision):
    """Item 2 of certify/rounding.py, on the ranges that it names; sin and cos absolutely, the others relatively."""
    rng, own, n = np.random.default_rng(0), PRECISIONS[precision], 200_000
    low = math.log(own.least) * 0.999
    x = {
        "exp": np.concatenate([rng.uniform(low, 0, n), -(10 ** rng.uniform(-9, 0, n)), rng.uniform(0, 10, n)]),
        "expm1": -(10 ** rng.uniform(-4 if precision == "float16" else -30, 0, 2 * n)),
        "log": np.concatenate([np.arange(2, min(n, own.most)), 10 ** rng.uniform(0, math.log10(min(2**31, own.most)) - 1e-3, n)]),
        "sin": rng.uniform(-np.pi, np.pi, 2 * n),
        "cos": rng.uniform(-np.pi, np.pi, 2 * n),
    }[name].astype(precision)  # fmt: skip
    x = x[np.isfinite(x) & (np.abs(x.astype(float)) >= own.least)]
    found = np.asarray(jax.jit(getattr(jnp, name))(jnp.asarray(x))).astype(LONG)
    exact = getattr(np, name)(x.astype(LONG))
    size = np.ones_like(exact) if name in ("sin", "cos") else np.abs(exact)
    assert (np.abs(found - exact) <= LIBRARY * own.u * size)[size >= own.least].all()


def test_paths_are_taken_up_to_the_lengths_that_are_told():
    """On every device; beyond the longest plain sequence another path is taken."""
    for fields in (
        {"encoding": "lin"},
        {"encoding": "log"},
        {"encoding": "t5", "window": 64, "max_distance": 64},
    ):
        for path in ("auto", "certified"):
            shared = {"layers": 1, "heads": 2, "width": 0, "attention": "dpf", "normalisation": "infinite"}
            a = Architecture.model_validate({**shared, "path": path, **fields})
            told = possible_paths(a)
            for device in ("cpu", "gpu", "tpu"):
                for n in (1, 15, 16, 127, 128, 600, 2_047, 2_048, 20_000, 10**6):
                    assert n <= told[choose(a, n, device)]


# -- peaks and symbols --------------------------------------------------------------------------------------


def test_a_peak_that_stands_alone_has_the_weight_1():
    """Rotary and t5 heads bring numbers as they are: four lags combined come out below 1e-6 in float32."""
    task = Fixed(lags=[5, 60, 181, 240], readout="x1 - x2 + 0.5 * x3 - 0.25 * x4")
    built = compile(task, tolerance=1e-6, precision="float32", route="rotary")
    assert built.certificate.met
    attention = built.model.layers[0].attention
    kernels = layer_kernels(attention, ANY_ORDER)
    assert (kernels.recall_error(FLOAT32, False) < 1e-12).all()
    x = np.random.default_rng(0).uniform(-1, 1, (300, 1)).astype("float32")
    weights = np.asarray(
        eqx.filter_jit(lambda model: model.layers[0].attention.weights(model.embed(x)))(built.model)
    )
    for h, lag in enumerate([5, 60, 181, 240]):
        assert (np.diagonal(weights[h], -lag) == 1.0).all()
    for path in ("plain", "blocks"):
        y = np.asarray(eqx.filter_jit(built.model.using(path))(x)).astype(float)
        assert np.abs(y - np.asarray(task.target(x.astype(float)))).max() <= built.certificate.bound


def test_grids():
    assert grid(np.array([0.0, 1.0, 6.0, 0.75, -40.0])).tolist() == [math.inf, 1.0, 2.0, 0.25, 8.0]
    assert representable(np.array([1 + 2.0**-23, 1 + 2.0**-24, 0.1]), 2.0**-24).tolist() == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("disturbance", [0.0, 1e-12, 3e-10, 1e-6, 1e-3])
@pytest.mark.parametrize("seed", range(4))
def test_neurons_at_symbols_round_by_no_more_than_is_said(seed, disturbance):
    """Random readouts, of whole numbers and of others, at disturbed symbols; the truth in Fractions."""
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(1, 12)), 3
    whole = seed % 2 == 0
    draw = lambda *shape: rng.integers(-6, 7, shape) * (1.0 if whole else 0.1)
    B, c, A = draw(m, d + 1), draw(m) + 0.5, draw(d + 1, m)
    B[:, d], A[:d] = 0.0, 0.0
    W_U, b_U = np.zeros((1, d + 1)), draw(1)
    W_U[0, d] = 1.0 if whole else 0.7
    as32 = lambda x: np.asarray(x, np.float32).astype(float)
    readout = ReadoutWeights(*map(as32, (B, c, A, W_U, b_U)))
    slots = Slots((0, 1, 2), ("a", "b", "c"), (disturbance,) * d)
    symbols = (-1.0, 0.0, 0.5, 2.0)

    class Symbols:
        domains = dict.fromkeys("abc", tuple(map(point, symbols)))

        def boxes(self, names):
            every = np.array(np.meshgrid(*[symbols] * d)).reshape(d, -1).T
            return every, every

    bound = at_symbols(0, readout, slots, Symbols(), FLOAT32, False)  # type: ignore[arg-type]
    network = jax.jit(lambda x: jax.nn.relu(x @ f(readout.B).T + f(readout.c)[None]) @ f(readout.A).T)
    f = lambda W: jnp.asarray(W, "float32")
    x = np.zeros((300, d + 1))
    x[:, :d] = rng.choice(symbols, (300, d)) + rng.uniform(-1, 1, (300, d)) * disturbance
    x = x.astype(np.float32)
    x = x[(np.abs(x[:, :d, None] - np.array(symbols)).min(axis=2) <= disturbance).all(axis=1)]
    y = np.asarray((f(x) + network(f(x))) @ f(readout.W_U).T + f(readout.b_U)[None]).astype(float)
    for row, computed in zip(x.astype(float), y[:, 0], strict=True):
        assert abs(Fraction(float(computed)) - _network(readout, row)) <= bound
    if whole and disturbance < 1e-10:
        assert bound <= 1e4 * disturbance + 1e-10


def _network(r: ReadoutWeights, x: np.ndarray) -> Fraction:
    exact = lambda values: [Fraction(float(v)) for v in values]
    X = exact(x)
    neurons = [max(sum(b * v for b, v in zip(exact(row), X, strict=True)) + Fraction(float(c)), Fraction(0)) for row, c in zip(r.B, r.c, strict=True)]  # fmt: skip
    X = [
        v + sum(a * k for a, k in zip(exact(row), neurons, strict=True))
        for v, row in zip(X, r.A, strict=True)
    ]
    return sum((w * v for w, v in zip(exact(r.W_U[0]), X, strict=True)), Fraction(float(r.b_U[0])))


# -- tightness ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding, p, kernel, most",
    [("lin", 1e-5, "1e-5 * exp(-1e-5 * z)", 8e-6), ("log", 1.2, "z ** -1.2", 5e-4)],
)
def test_slow_heads_are_bounded_by_a_few_roundings(encoding, p, kernel, most):
    """They were 0.067 and 0.48: every sum was taken for one of as many terms as matter, in the worst order."""
    model = one_head(p, "float32", encoding=encoding, path="certified")
    certificate = certify(model, Essential(kernels=[kernel], readout="x1"))
    heads = SumKernels(
        LIN if encoding == "lin" else LOG,
        np.array([p], dtype=np.float32).astype(float),
        paths=possible_paths(model.architecture),
    )
    assert heads.recall_error(FLOAT32, False)[0] < (7e-6 if encoding == "lin" else 9e-6)
    assert certificate.bound - certificate.exact_bound < most


@pytest.mark.slow
def test_bounds_lie_within_ten_times_what_is_found():
    """Per route, the median of bound / max(adversarial error, 2 ulps of the output's range)."""
    from benchmarks.tightness import measured

    for route in (
        "rotary",
        "t5",
        "one-layer-lin",
        "one-layer-log",
        "depth-1",
        "depth-2",
        "bias-table",
        "chain",
    ):
        ratios = [one.ratio for one in measured([route], count=4, gallery=False)]
        assert np.median(ratios) < 10, (route, ratios)
