"""Where the time goes in the work whose required ratios are hard to reach: parts alone, beside the whole.

    a streamed token     a call of a program that does nothing, the same with the model's arguments, and the
                         arithmetic: the same step inside a scan, where nothing is called
    a training step      two layers; each part with its gradient over all micro-batches, and the products
                         alone, at the speed this machine has for matrices of these shapes and for large ones
    the lin recurrence   the loop over steps alone; the floor is a copy of the array

A part alone reads its inputs from memory where the whole has them in cache, and cannot share loops with its
neighbours, so parts do not add up exactly. CPU time, one thread on one core, parts in turn. This module is also
its own worker, see benchmarks/turns.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.table import Table
from benchmarks.turns import Measure, Prepare, best_within, serve, started

ROUNDS, BUDGET = 7, 0.1
TOKENS = 256
CASES = {
    "token": "a streamed token",
    "training 4": "a training step, L = 2, H = 4",
    "training 16": "a training step, L = 2, H = 16",
    "lin 4096": "lin forward, 4,096",
    "lin 65536": "lin forward, 65,536",
}
COPY = "reading and writing the array once"
WIDE: dict[str, str | bool] = {"xla_cpu_prefer_vector_width": "512"}  # as in training_peers.py


class Part(NamedTuple):
    name: str
    call: Callable[[], object]  # ends with the result in memory
    units: int = 1  # tokens or steps in a call
    flops: float | None = None  # of a unit


# -- a streamed token -------------------------------------------------------------------------------------


def token() -> list[Part]:
    import jax
    import jax.numpy as jnp

    from benchmarks.streaming import CONTEXT, model, tokens

    x = tokens()[CONTEXT : CONTEXT + TOKENS]
    stream = model().stream()
    leaves, advance = stream._leaves, stream._one.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    states = {name: jax.tree.map(jnp.copy, stream._state) for name in ("passed on", "scanned")}
    nothing = jax.jit(lambda x_t: x_t + 0)
    passed_on = jax.jit(lambda state, leaves, x_t: (state, x_t + 0), donate_argnums=0, keep_unused=True)
    scanned = jax.jit(
        lambda state, leaves, x: jax.lax.scan(lambda state, x_t: advance(state, leaves, x_t), state, x)
    )

    def dispatched() -> Any:
        y = None
        for x_t in x:
            states["passed on"], y = passed_on(states["passed on"], leaves, x_t)
        return np.asarray(y)

    def arithmetic() -> Any:
        states["scanned"], y = scanned(states["scanned"], leaves, x)
        return np.asarray(y)

    matrices = [np.asarray(leaf) for leaf in leaves if leaf.ndim == 2]
    ones = [np.ones(W.shape[1], W.dtype) for W in matrices]
    return [
        Part("whole", lambda: np.asarray([stream(x_t) for x_t in x][-1]), TOKENS),
        Part("a program that does nothing", lambda: np.asarray([nothing(x_t) for x_t in x][-1]), TOKENS),
        Part("the same, with the model's arguments", dispatched, TOKENS),
        Part("the arithmetic, in a scan", arithmetic, TOKENS),
        Part("its matrices times a vector, in NumPy", lambda: list(map(np.matmul, matrices, ones))),
    ]


# -- a training step --------------------------------------------------------------------------------------


def training(H: int) -> list[Part]:
    import equinox as eqx
    import jax.numpy as jnp
    import optax

    from benchmarks import training_peers as peers
    from benchmarks.training import BATCH, LENGTH, job
    from memloci.model.paths.folded import MICRO_BATCH, fold
    from memloci.model.paths.gradients import recall_own_values

    one, made, n, D, d = job(2, H), peers.model(2, H), LENGTH, peers.DIM, peers.DIM // H
    rng = np.random.default_rng(0)

    def some(*shape: int) -> Any:
        """For every micro-batch."""
        return jnp.asarray(rng.standard_normal((BATCH // MICRO_BATCH, *shape)), "float32")

    trained, rest = eqx.partition(made, eqx.is_inexact_array)
    optimiser: Any = optax.adam(one["rate"])

    def around(trained: Any, moments: Any) -> Any:
        folded, pull_back = eqx.filter_vjp(lambda trained: fold(eqx.combine(trained, rest), n), trained)
        slopes = pull_back(eqx.filter(folded, eqx.is_inexact_array))[0]
        change, moments = optimiser.update(slopes, moments)
        return optax.apply_updates(trained, change), moments

    folded: Any = fold(made, n)
    first, later = folded.layers
    attend = later.attend
    x = jnp.asarray(one["x"], "float32").reshape(-1, MICRO_BATCH, n, 2).transpose(0, 3, 1, 2)
    X, q, k, v, r = some(D, MICRO_BATCH, n), *(some(H, d, MICRO_BATCH, n) for _ in range(4))
    recall = lambda p, inputs: recall_own_values(True, *inputs, attend.table, p)
    after = lambda later, inputs: later.after(*inputs)

    maps = [(4 + 2 * H, D), (4 + 2 * H, peers.WIDTH), (peers.WIDTH, D), (D, 3 * D), (D, D), (D, peers.WIDTH)]
    weights = [(some(o, i)[0], some(i, o)[0]) for i, o in maps]
    tokens = [(some(i, MICRO_BATCH * n), some(o, MICRO_BATCH * n)) for i, o in maps]
    heads = [some(MICRO_BATCH * H, d, n) for _ in range(4)]
    scores = [some(MICRO_BATCH * H, n, n) for _ in range(2)]

    def of_maps(weights: Any, tokens: Any) -> Any:
        return [(W @ X, T @ Y, Y @ X.T) for (W, T), (X, Y) in zip(weights, tokens, strict=True)]

    def of_pairs(_: None, inputs: Any) -> Any:
        (q, k, v, r), (a, x) = inputs
        return k.mT @ q, v @ a, v.mT @ r, k @ x, q @ x.mT, r @ a.mT

    rows = BATCH * n
    square = jnp.ones((1024, 1024), "float32")
    return [
        Part("whole", peers.memloci(one)[2], peers.STEPS),
        Part("folding, its gradient, Adam", _ready(around, trained, optimiser.init(trained))),
        Part("first layer", _both(lambda first, x: first(x), first, None, x, X)),
        Part("second: queries, keys, values", _both(lambda a, X: a._per_head(X), attend, X, None, [q, k, v])),
        Part("second: attention, forward", _forward(recall, attend.p, (q, k, v))),
        Part("second: attention, with its gradient", _both(recall, attend.p, (q, k, v), None, r)),
        Part("second: output, FFN, readout", _both(after, later, (X, r), None, some(1, MICRO_BATCH, n))),
        Part(
            "the products alone, of the maps of both layers",
            _forward(of_maps, weights, tokens),
            flops=6.0 * rows * sum(i * o for i, o in maps),
        ),
        Part(
            "the products over pairs as matrix products",
            _forward(of_pairs, None, (heads, scores)),
            flops=12.0 * rows * n * D,
        ),
        Part("exponentials of pairs alone", _forward(lambda _, x: jnp.exp(x), None, scores[0])),
        Part("a product of size 1,024", _ready(jnp.matmul, square, square), flops=2.0 * 1024**3),
    ]


def _ready(function: Any, *given: Any) -> Callable[[], object]:
    import jax

    compiled = jax.jit(function).lower(*given).compile(compiler_options=WIDE)
    return lambda: jax.block_until_ready(compiled(*given))


def _forward(function: Any, weights: Any, inputs: Any) -> Callable[[], object]:
    """function(weights, inputs of a micro-batch) for one after the other; the last result is kept."""
    import jax
    import jax.numpy as jnp

    def every(weights: Any, inputs: Any) -> Any:
        shapes = jax.eval_shape(function, weights, jax.tree.map(lambda a: a[0], inputs))
        start = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        return jax.lax.scan(lambda _, one: (function(weights, one), None), start, inputs)[0]

    return _ready(every, weights, inputs)


def _both(function: Any, weights: Any, inputs: Any, plain: Any, arriving: Any) -> Callable[[], object]:
    """The same with the gradient: of the weights, summed, and of the inputs, but not of plain ones."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    arrays, rest = eqx.partition(weights, eqx.is_inexact_array)
    called = lambda arrays, given: function(eqx.combine(arrays, rest), given)

    def one(arrays: Any, given: Any) -> Any:
        inputs, plain, arriving = given
        if inputs is None:
            _, pull_back = jax.vjp(lambda arrays: called(arrays, plain), arrays)
        else:
            _, pull_back = jax.vjp(called, arrays, inputs)
        return pull_back(arriving)

    def every(arrays: Any, given: Any) -> Any:
        shapes = jax.eval_shape(one, arrays, jax.tree.map(lambda a: a[0], given))
        start = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

        def add(kept: Any, given: Any) -> Any:
            slopes, *of_inputs = one(arrays, given)
            return (jax.tree.map(jnp.add, kept[0], slopes), *of_inputs), None

        return jax.lax.scan(add, start, given)[0]

    return _ready(every, arrays, (inputs, plain, arriving))


# -- the lin recurrence -----------------------------------------------------------------------------------


def lin(n: int) -> list[Part]:
    import jax
    import jax.numpy as jnp

    from benchmarks.attention_peers import D_V, Case, inputs, memloci_on, roofline, slopes
    from memloci.model.paths import decay

    case, C = Case("lin", "forward", n), decay.CHUNK
    V = jnp.asarray(inputs(n)[0]).reshape(-1, C, len(slopes("lin")) * D_V)
    p = jnp.asarray(slopes("lin"))

    def loop(V: Any, p: Any) -> Any:
        rates = decay._rates(p, C, D_V)
        return jax.lax.map(lambda chunk: decay._within(rates, chunk)[1], V)

    def moved(V: Any) -> Any:
        steps = lambda chunk: jax.lax.scan(lambda before, v: (v, before), chunk[0], chunk)[1]
        return jax.lax.map(steps, V)

    return [
        Part("whole", memloci_on("recurrence")(case).call),
        Part("the loop over steps", _ready(loop, V, p)),
        Part("a loop over steps that only moves numbers", _ready(moved, V)),
        Part(COPY, roofline()(case).call),
    ]


# -- the worker and the table -----------------------------------------------------------------------------


def start(name: str) -> Prepare:
    import jax  # noqa: F401  now that the core is chosen

    def prepare(case: str) -> Measure:
        kind, *size = case.split()
        parts: list[Part] = {"token": token, "training": training, "lin": lin}[kind](*map(int, size))

        def measure() -> dict[str, Any]:
            best = dict.fromkeys((part.name for part in parts), float("inf"))
            for _ in range(ROUNDS):
                for part in parts:
                    seconds = best_within(part.call, BUDGET)[0] / part.units
                    best[part.name] = min(best[part.name], seconds)
            return {"seconds": best["whole"], "parts": best, "flops": {p.name: p.flops for p in parts}}

        return measure

    return prepare


def run() -> Table:
    cells: list[list[str | float]] = []
    with started("benchmarks.profile", ["parts"]) as workers:
        for case, work in CASES.items():
            answer = workers["parts"].run(case)
            if "error" in answer:
                raise RuntimeError(f"{case}: {answer['error']}")
            copy = answer["parts"].get(COPY)
            for name, seconds in answer["parts"].items():
                flops = answer["flops"][name]
                share = seconds / answer["seconds"]
                cells.append(
                    [
                        work,
                        name,
                        1e6 * seconds,
                        f"{100 * share:.0f} %",
                        "" if copy is None else seconds / copy,
                        "" if flops is None else f"{flops / seconds / 1e9:.0f}",
                    ]
                )
    columns = ["work", "part", "microseconds", "of the whole", "copies", "GFLOP/s"]
    return Table(
        "Where the time goes", columns, cells, "CPU time; parts alone, so they do not add up exactly"
    )


if __name__ == "__main__":
    serve(start)
