"""The contenders of benchmarks/training.py, one process each: `python -m benchmarks.training_peers NAME`.

Every contender gets the same weights and the same batch, and takes Adam steps. PyTorch comes as fast as it goes:
eager, compiled, x-transformers, folded. Each tries variants on its own and keeps the fastest:

    attention    softmax   written out, the position part added to the scores
                 sdpa      scaled_dot_product_attention with a constant mask: p phi(z) = -p t + p s is one more
                           feature of queries and keys, because a learned mask would rule out the flash kernel
    chunks       the batch at once, or in parts whose gradients add up

Further: fused Adam, queries, keys and values as one product, and a relu that the compiler does not spoil.
x-transformers contributes its attention (`Attend`, flash); its layers have norms that this model has not.
Imports are late: `serve` chooses the core first.
"""

# pyright: reportMissingImports=false
# The peers are optional.

import importlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.turns import Measure, Prepare, best_within, serve

OURS = "memloci"
EAGER, COMPILED = "PyTorch, tuned", "torch.compile, tuned"
FLASH, FOLDED = "x-transformers flash, tuned", "PyTorch folded by hand, compiled"
PEERS = (EAGER, COMPILED, FLASH, FOLDED)
CHUNKS = {EAGER: (1, 4, 16), COMPILED: (1, 8), FLASH: (1, 4, 16), FOLDED: (1, 8)}
KINDS = {
    EAGER: ("softmax", "sdpa"),
    COMPILED: ("softmax", "sdpa"),
    FLASH: ("bias", "feature"),
    FOLDED: ("matmul", "fused"),
}
DIM, WIDTH = 64, 128
STEPS = 5  # timed together

Run = Callable[[], object]  # STEPS steps


def start(name: str) -> Prepare:
    """A case is the JSON text of `training.job`: weights, batch, and what shapes them."""
    for library in {OURS: ["jax"], FLASH: ["torch", "x_transformers"]}.get(name, ["torch"]):
        importlib.import_module(library)
    build = memloci if name == OURS else partial(pytorch, name)

    def prepare(case: str) -> Measure:
        loss, variant, run = build(json.loads(case))

        def measure() -> dict[str, Any]:
            return {"seconds": best_within(run)[0] / STEPS, "loss": loss, "variant": variant}

        return measure

    return prepare


# -- memloci ----------------------------------------------------------------------------------------------


def model(L: int, H: int) -> Any:
    """The same weights in every process."""
    import jax.random as jr

    from memloci.model.architecture import Architecture
    from memloci.model.transformer import Transformer

    each = DIM // H
    architecture = Architecture(layers=L, heads=H, width=WIDTH, dim=DIM, key_dim=each, value_dim=each)
    return Transformer(architecture, 2, 1, key=jr.key(0))


def memloci(job: dict[str, Any]) -> tuple[float, str, Run]:
    """Adam steps in a scan."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    from memloci.model.paths.folded import loss_and_gradient

    trained, rest = eqx.partition(model(job["L"], job["H"]), eqx.is_inexact_array)
    x, y = jnp.asarray(job["x"], "float32"), jnp.asarray(job["y"], "float32")
    optimiser: Any = optax.adam(job["rate"])

    def step(state: Any, _: None) -> tuple[Any, Any]:
        trained, moments = state
        loss, slopes = loss_and_gradient(eqx.combine(trained, rest), x, y)
        change, moments = optimiser.update(slopes, moments)
        return (optax.apply_updates(trained, change), moments), loss

    steps = lambda state: jax.lax.scan(step, state, None, length=STEPS)
    # XLA uses half the vector registers of recent processors unless told.
    wide: dict[str, str | bool] = {"xla_cpu_prefer_vector_width": "512"}
    state = (trained, optimiser.init(trained))
    compiled = jax.jit(steps).lower(state).compile(compiler_options=wide)
    state, losses = jax.block_until_ready(compiled(state))
    kept = {"state": state}

    def run() -> None:
        kept["state"] = jax.block_until_ready(compiled(kept["state"]))[0]

    return float(losses[0]), "", run


# -- PyTorch ----------------------------------------------------------------------------------------------


def pytorch(peer: str, job: dict[str, Any]) -> tuple[float, str, Run]:
    """(the first loss, the fastest variant, its steps)."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.tensor(job["x"]), torch.tensor(job["y"])
    best: tuple[float, float, str, Run] | None = None
    for kind, chunks in [(kind, chunks) for kind in KINDS[peer] for chunks in CHUNKS[peer]]:
        loss, run = contender(peer, kind, chunks, job["weights"], x, y, job["rate"])
        run()  # compiles
        seconds = best_within(run, 0.5)[0]
        if best is None or seconds < best[0]:
            best = seconds, loss, f"{kind}, {chunks} chunks".replace(" 1 chunks", " 1 chunk"), run
    assert best is not None
    return best[1:]


def contender(
    peer: str, kind: str, chunks: int, weights: dict[str, Any], x: Any, y: Any, rate: float
) -> tuple[float, Run]:
    import torch

    parameter = lambda values: torch.nn.Parameter(torch.tensor(values))
    top = {name: parameter(weights[name]) for name in ("W_E", "b_E", "W_U", "b_U")}
    layers = [
        {name: parameter(values) for name, values in _merged(layer).items()} for layer in weights["layers"]
    ]
    parameters = [*top.values(), *(value for layer in layers for value in layer.values())]
    n = x.shape[1]
    if peer == FOLDED:
        model = _folded(top, layers[0], n, kind)
    else:
        model = _stacked(top, layers, _attention(peer, kind, n), peer == COMPILED)
    loss_of = lambda x, y: ((model(x) - y) ** 2).mean()
    if peer in (COMPILED, FOLDED):
        torch._dynamo.reset()
        loss_of = torch.compile(loss_of, fullgraph=True, dynamic=False)
    optimiser = torch.optim.Adam(parameters, lr=rate, fused=True)
    parts = list(zip(x.chunk(chunks), y.chunk(chunks), strict=True))
    with torch.no_grad():
        loss = float(sum(loss_of(*part) for part in parts)) / chunks

    def run() -> None:
        for _ in range(STEPS):
            optimiser.zero_grad(set_to_none=True)
            for part in parts:
                (loss_of(*part) / chunks).backward()
            optimiser.step()

    return loss, run


def _merged(layer: dict[str, Any]) -> dict[str, Any]:
    """Queries, keys and values as one matrix, heads side by side."""
    rows = [row for name in ("W_Q", "W_K", "W_V") for head in layer[name] for row in head]
    W_O = [[value for head in layer["W_O"] for value in head[i]] for i in range(len(layer["W_O"][0]))]
    return {"W_QKV": rows, "W_O": W_O, **{name: layer[name] for name in ("p", "B", "c", "A")}}


def _stacked(
    top: dict[str, Any], layers: list[dict[str, Any]], attention: Callable[..., Any], compiled: bool
) -> Callable[[Any], Any]:
    import torch
    import torch.nn.functional as F

    relu = _relu if compiled else F.relu

    def model(x: Any) -> Any:
        seen = (torch.arange(x.shape[1]) > 0).float()[:, None]
        X = F.linear(x, top["W_E"], top["b_E"])
        for layer in layers:
            H = layer["p"].shape[0]
            q, k, v = F.linear(X, layer["W_QKV"]).view(*X.shape[:2], 3, H, -1).permute(2, 0, 3, 1, 4)
            r = attention(q, k, v, layer["p"]).transpose(1, 2).reshape(X.shape) * seen
            X = X + F.linear(r, layer["W_O"])
            X = X + F.linear(relu(F.linear(X, layer["B"], layer["c"])), layer["A"])
        return F.linear(X, top["W_U"], top["b_U"])

    return model


def _relu(x: Any) -> Any:
    """For the compiler, which stores the mask of its own relu in a slow loop."""
    return 0.5 * (x + x.abs())


def _attention(peer: str, kind: str, n: int) -> Callable[..., Any]:
    """softmax(<q, k> - p (t - s)) v over s < t; position 0 sees itself, and is blanked by the caller."""
    import torch
    import torch.nn.functional as F

    position = torch.arange(n)
    z = position[:, None] - position[None, :]
    visible = (z >= 1) | ((z == 0) & (position[:, None] == 0))
    mask = torch.zeros(n, n).masked_fill(~visible, -torch.inf)
    lag = z.clamp(min=0).float()
    s = position.float()

    def written_out(q: Any, k: Any, v: Any, p: Any) -> Any:
        return torch.softmax(q @ k.transpose(2, 3) + (mask - p[:, None, None] * lag), dim=3) @ v

    def one_more(q: Any, k: Any, v: Any, p: Any) -> tuple[Any, Any, Any]:
        slope = p[None, :, None, None].expand(*q.shape[:3], 1)
        place = s[None, None, :, None].expand(*k.shape[:3], 1)
        return torch.cat([q, slope], 3), torch.cat([k, place], 3), F.pad(v, (0, 1))

    def sdpa(q: Any, k: Any, v: Any, p: Any) -> Any:
        q, k, padded = one_more(q, k, v, p)
        return F.scaled_dot_product_attention(q, k, padded, attn_mask=mask, scale=1.0)[..., :-1]

    if peer != FLASH:
        return written_out if kind == "softmax" else sdpa

    from x_transformers.attend import Attend

    attend = Attend(flash=True, scale=1.0)
    constant = mask.clamp(min=-1e9)[None, None]

    def flash(q: Any, k: Any, v: Any, p: Any) -> Any:
        if kind == "bias":
            return attend(q, k, v, attn_bias=constant - (p[:, None, None] * lag)[None])[0]
        q, k, padded = one_more(q, k, v, p)
        return attend(q, k, padded, attn_bias=constant)[0][..., :-1]

    return flash


def _folded(top: dict[str, Any], layer: dict[str, Any], n: int, kind: str):
    """One layer whose keys and values are the raw input, as in memloci/model/paths/folded.py."""
    import torch
    import torch.nn.functional as F

    position = torch.arange(n)
    z = position[:, None] - position[None, :]
    visible = (z >= 1) | ((z == 0) & (position[:, None] == 0))
    mask = torch.zeros(n, n).masked_fill(~visible, -torch.inf)
    lag = z.clamp(min=0).float()
    seen = (position > 0).float()

    def model(x: Any) -> Any:
        H, D = layer["p"].shape[0], top["W_E"].shape[0]
        E = torch.cat([top["W_E"], top["b_E"][:, None]], 1)
        Q, K, V = (layer["W_QKV"] @ E).view(3, H, -1, E.shape[1])
        A = Q.transpose(1, 2) @ K[:, :, :-1]
        M = torch.einsum("dhv,hve->dhe", layer["W_O"].view(D, H, -1), V)
        S = torch.cat([E, M[:, :, -1].sum(1, keepdim=True), M[:, :, :-1].reshape(D, -1)], 1)
        tokens = F.pad(x, (0, 1), value=1.0)
        bias = mask - layer["p"][:, None, None] * lag
        if kind == "matmul":
            q = torch.einsum("bte,hej->bhtj", tokens, A)
            a = torch.softmax(q @ x.transpose(1, 2)[:, None] + bias, dim=3)
            r = a @ x[:, None]
        else:  # products over two features as part of the loop over pairs, which the compiler fuses
            q = (tokens @ A.permute(1, 2, 0).reshape(E.shape[1], -1)).view(*x.shape[:2], -1, H)
            keys = x.permute(2, 0, 1)[:, :, None, None, :]
            logits = bias + sum(q[:, :, j].transpose(1, 2)[:, :, :, None] * keys[j] for j in range(len(keys)))
            a = torch.softmax(logits, dim=3)
            r = torch.stack([(a * key).sum(3) for key in keys], 3)
        flat = (r * seen[:, None]).transpose(1, 2).reshape(*x.shape[:2], -1)
        features = torch.cat([tokens, seen[None, :, None].expand(x.shape[0], -1, 1), flat], 2)
        ridges = _relu(F.linear(features, layer["B"] @ S, layer["c"]))
        return F.linear(features, top["W_U"] @ S, top["b_U"]) + F.linear(ridges, top["W_U"] @ layer["A"])

    return model


if __name__ == "__main__":
    serve(start)
