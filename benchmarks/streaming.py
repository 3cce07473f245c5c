"""Microseconds per new token after a context of 16,384, against PyTorch with a cache.

D = 128, 8 heads of 16, two layers, dpf with lin, FFN width 512, float32, one thread on one core. memloci's
`stream` carries sums of fixed size; the cache keeps every past value, so a token costs a pass over all of them.
PyTorch gets a preallocated cache, its bias built beforehand and the fastest of its forms; it needs no keys, for
there is no dot product. `error` is the difference from a float64 reference, over the largest output.

This module is also its own worker: `python -m benchmarks.streaming NAME`, see benchmarks/turns.py.
"""

# pyright: reportMissingImports=false
# PyTorch is optional.

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.table import Table
from benchmarks.turns import Measure, Prepare, best_within, in_turn, serve, started

D, H, L, D_V, M = 128, 8, 2, 16, 512
CHANNELS = OUTPUTS = 8
CONTEXT = 16_384
CHUNK = 1_024
NAMES = {
    "token": "memloci, one token at a time",
    "chunk": f"memloci, chunks of {CHUNK:,}",
    "sdpa": "PyTorch with a cache, SDPA",
    "by hand": "PyTorch with a cache, softmax by hand",
    "cached chunk": f"PyTorch with a cache, chunks of {CHUNK:,}",
    "recompute": "PyTorch, all computed again",
}
OURS = ("token", "chunk")
PEERS = ("sdpa", "by hand")  # the faster one is compared with
TOKENS = {"token": 256, "chunk": CHUNK, "sdpa": 32, "by hand": 32, "cached chunk": CHUNK, "recompute": 1}
ROUNDS = {"token": 7, "chunk": 7, "sdpa": 7, "by hand": 7, "cached chunk": 2, "recompute": 1}
REQUIRED = 100


def tokens() -> np.ndarray:
    """The context and one chunk after it."""
    return np.random.default_rng(0).standard_normal((CONTEXT + CHUNK, CHANNELS), dtype=np.float32)


def model() -> Any:
    import jax.random as jr

    from memloci.model.architecture import Architecture
    from memloci.model.transformer import Transformer

    architecture = Architecture(
        layers=L, heads=H, width=M, attention="dpf", encoding="lin", dim=D, value_dim=D_V
    )
    return Transformer(architecture, CHANNELS, OUTPUTS, key=jr.key(0))


def reference() -> np.ndarray:
    """What should come out after the context, in float64."""
    from benchmarks.attention import recalled

    made, exact = model(), lambda array: np.asarray(array, np.float64)
    X = tokens() @ exact(made.W_E).T + exact(made.b_E)
    for layer in made.layers:
        heads, ffn = layer.attention.heads, layer.ffn
        added = np.zeros_like(X)
        for h, p in enumerate(exact(heads.encoding.p)):
            V = X @ exact(heads.W_V[h]).T
            added += recalled("lin", p, V, np.zeros_like(V))["recalled"] @ exact(heads.W_O[h]).T
        X = X + added
        X = X + np.maximum(X @ exact(ffn.B).T + exact(ffn.c), 0) @ exact(ffn.A).T
    return (X @ exact(made.W_U).T + exact(made.b_U))[CONTEXT:]


# -- memloci ----------------------------------------------------------------------------------------------


def memloci(name: str) -> Prepare:
    made, x = model(), tokens()

    def prepare(case: str) -> Measure:
        stream = made.stream()
        stream.feed(x[:CONTEXT])
        new = x[CONTEXT : CONTEXT + TOKENS[name]]
        call = (lambda: [stream(x_t) for x_t in new]) if name == "token" else (lambda: stream.feed(new))
        first = np.asarray(call()).tolist()  # the state moves on: only these follow the context
        finish = lambda: np.asarray(call()[-1])  # waits for the last

        def measure() -> dict[str, Any]:
            return {"seconds": best_within(finish)[0] / TOKENS[name], "found": first}

        return measure

    return prepare


# -- PyTorch ----------------------------------------------------------------------------------------------


class Cached:
    """The same model in PyTorch with one preallocated cache of values per layer."""

    def __init__(self):
        import torch

        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        made = model()
        own = lambda array: torch.from_numpy(np.array(array))
        self.W_E, self.b_E, self.W_U, self.b_U = map(own, (made.W_E, made.b_E, made.W_U, made.b_U))
        self.layers = [
            {
                "W_V": own(layer.attention.heads.W_V).reshape(H * D_V, D),
                "W_O": own(layer.attention.heads.W_O).permute(1, 0, 2).reshape(D, H * D_V).contiguous(),
                "B": own(layer.ffn.B),
                "c": own(layer.ffn.c),
                "A": own(layer.ffn.A),
            }
            for layer in made.layers
        ]
        n = CONTEXT + CHUNK
        self.V = [torch.zeros(1, H, n, D_V) for _ in self.layers]
        # The bias of a block of queries in reverse order is a view of these numbers: row i starts at number i.
        z = n - torch.arange(n + CHUNK)
        logits = [own(layer.attention.heads.encoding.p)[:, None] * -z for layer in made.layers]
        self.logits = [torch.where(z >= 1, each, -torch.inf) for each in logits]
        self.zeros = torch.zeros(1, H, n, D_V)

    def bias(self, l: int, t: int, B: int) -> Any:
        """Of queries t, t - 1, ..., t - B + 1 on keys 0..t-1."""
        n = self.V[l].shape[2]
        return self.logits[l].as_strided((1, H, B, t), (0, n + CHUNK, 1, 1), n - t)

    def sdpa(self, l: int, t: int, B: int) -> Any:
        from torch.nn.functional import scaled_dot_product_attention as attend

        values, zeros = self.V[l][:, :, :t], self.zeros
        return attend(zeros[:, :, :B], zeros[:, :, :t], values, attn_mask=self.bias(l, t, B))

    def by_hand(self, l: int, t: int, B: int) -> Any:
        import torch

        return torch.softmax(self.bias(l, t, B), -1) @ self.V[l][:, :, :t]

    def __call__(self, x: Any, t0: int, recall: Callable[[int, int, int], Any], block: int) -> Any:
        """Outputs of tokens t0, t0 + 1, ..., whose values enter the cache."""
        import torch
        from torch.nn.functional import linear, relu

        n = len(x)
        X = linear(x, self.W_E, self.b_E)
        for l, layer in enumerate(self.layers):
            self.V[l][0, :, t0 : t0 + n] = linear(X, layer["W_V"]).view(n, H, D_V).transpose(0, 1)
            parts = []
            for start in range(t0, t0 + n, block):
                end = min(start + block, t0 + n)
                first = max(start, 1)  # position 0 sees nothing
                part = recall(l, end - 1, end - first)[0].flip(1).transpose(0, 1).reshape(-1, H * D_V)
                parts.append(torch.cat([part.new_zeros(first - start, H * D_V), part]))
            read = parts[0] if len(parts) == 1 else torch.cat(parts)
            X = X + linear(read, layer["W_O"])
            X = X + linear(relu(linear(X, layer["B"], layer["c"])), layer["A"])
        return linear(X, self.W_U, self.b_U)


def pytorch(name: str) -> Prepare:
    import torch

    cached, x = Cached(), torch.from_numpy(tokens())
    new = x[CONTEXT : CONTEXT + TOKENS[name]]

    def call(recall, block):
        with torch.inference_mode():
            if name in PEERS:
                return torch.cat([cached(x_t[None], CONTEXT + i, recall, 1) for i, x_t in enumerate(new)])
            if name == "cached chunk":
                return cached(new, CONTEXT, recall, block)
            return cached(x[: CONTEXT + 1], 0, recall, block)[CONTEXT:]

    def prepare(case: str) -> Measure:
        forms = {
            "sdpa": [(cached.sdpa, 1)],
            "by hand": [(cached.by_hand, 1)],
            "cached chunk": [(way, B) for way in (cached.sdpa, cached.by_hand) for B in (64, 128, 256)],
            "recompute": [(cached.sdpa, 128)],
        }[name]
        if name != "recompute":
            with torch.inference_mode():
                cached(x[:CONTEXT], 0, cached.sdpa, 128)  # fills the cache
        if len(forms) > 1:
            forms.sort(key=lambda form: best_within(lambda: call(*form))[0])
        way, block = forms[0]

        def measure() -> dict[str, Any]:
            seconds, found = best_within(lambda: call(way, block))
            form = f"{way.__name__.replace('_', ' ')}, blocks of {block}" if block > 1 else ""
            return {"seconds": seconds / TOKENS[name], "found": found.tolist(), "form": form}

        return measure

    return prepare


# -- the benchmark ----------------------------------------------------------------------------------------


def run() -> Table:
    with started("benchmarks.streaming", NAMES) as workers:
        best = in_turn(workers, "after the context", ROUNDS)
    right = reference()
    seconds = {name: answer["seconds"] for name, answer in best.items() if "seconds" in answer}
    peer = min((seconds[name] for name in PEERS if name in seconds), default=None)
    cells: list[list[str | float]] = []
    for name, took in seconds.items():
        found = np.array(best[name]["found"])
        off = np.abs(found - right[: len(found)]).max() / np.abs(right).max()
        met = "" if peer is None else " yes" if peer / took >= REQUIRED else " NO"
        cells.append(
            [
                NAMES[name],
                1e6 * took,
                "" if peer is None else peer / took,
                f"{REQUIRED}{met}" if name == "token" else "",  # chunks should be compared with chunks
                f"{off:.0e}",
                best[name].get("form", ""),
            ]
        )
    columns = ["contender", "microseconds per token", "cache / this", "required", "error", "form"]
    notes = [f"context {CONTEXT:,}; the ratio is to the faster cache, one token at a time"]
    notes += [
        f"skipped {NAMES[name]}: {answer['error']}" for name, answer in best.items() if "error" in answer
    ]
    return Table("Streaming", columns, cells, "; ".join(notes))


def start(name: str) -> Prepare:
    return memloci(name) if name in OURS else pytorch(name)


if __name__ == "__main__":
    serve(start)
