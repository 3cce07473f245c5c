"""The contenders of benchmarks/attention.py, one process each: `python -m benchmarks.attention_peers NAME`.

    recalled_t^h = sum_{s<t} w^h(t - s) v_s^h / sum_{s<t} w^h(t - s),   w = e^{-p z} (lin) or z^-p (log)

for 8 heads of 16 in float32. `gradient` is the forward pass and the gradient of <G, recalled> in V and p.

PyTorch gets every help that keeps its digits: the layout it likes, inputs built beforehand, no work on
future keys, denormal numbers flushed (as XLA does), and the best of several block sizes. Its forms:

    band     blocks of queries, the bias a slice of one prebuilt (B, n) band per head
    strip    blocks of queries in reverse order: the bias of a block is then a view of one strip of n + B
             numbers per head, row i starting at number i, and stays in cache
    keys     lin only: -p z = p s - p t, and the query's part cancels, so p (s - last t) is a key feature

`band` is a contender of its own, the one that ratios are required to; `sdpa` is the faster of the others.

The queries stand at positions 1..n: position 0 sees nothing. Imports are late: `serve` chooses the core first.
"""

# pyright: reportMissingImports=false
# PyTorch is optional.

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.turns import Measure, Prepare, best_within, serve

H, D_V = 8, 16
TUNED_AT = 4_096  # all forms are tried up to this length, the best few beyond
MOST_TUNED = 16_384  # and none anew beyond this one
MOST_QUERIES = 1_024  # in a block; lengths are multiples of it


class Case(NamedTuple):
    kind: str  # lin or log
    work: str  # forward or gradient
    n: int

    def __str__(self) -> str:
        return f"{self.kind} {self.work} {self.n}"

    @classmethod
    def parse(cls, text: str) -> "Case":
        kind, work, n = text.split()
        return cls(kind, work, int(n))


class Job(NamedTuple):
    form: str
    call: Callable[[], Any]  # ends with the result in memory
    found: Callable[[Any], dict[str, np.ndarray]]  # its numbers, at `positions` where there are many


def inputs(n: int) -> tuple[np.ndarray, np.ndarray]:
    """V and the weights G of the sum whose gradient is taken."""
    V, G = np.random.default_rng(0).standard_normal((2, n, H, D_V), dtype=np.float32)
    return V, G


def slopes(kind: str) -> np.ndarray:
    """p, spread as memloci does at the start."""
    rank = (np.arange(H, dtype=np.float32) + 0.5) / H
    return np.exp2(-8 * rank) if kind == "lin" else 1 + 3 * rank


def positions(n: int) -> np.ndarray:
    """Where results are compared: the first, the last, and some between."""
    return np.unique(np.concatenate([[1, 2, 3, 7, 20, n - 2, n - 1], np.geomspace(1, n - 1, 9).astype(int)]))


def _warm(job: Job) -> Job:
    """Compile it now, outside the time."""
    job.call()
    return job


# -- memloci, and the roofline ----------------------------------------------------------------------------


def memloci_on(path: str) -> Callable[[Case], Job]:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from memloci.model.architecture import Architecture
    from memloci.model.attention import Attention
    from memloci.model.paths.choice import PATHS

    if path not in PATHS:
        raise LookupError(f"memloci has no path {path!r}, only {', '.join(PATHS)}")

    def prepare(case: Case) -> Job:
        architecture = Architecture(
            layers=1,
            heads=H,
            width=0,
            attention="dpf",
            encoding=case.kind,
            normalisation="softmax",
            dim=H * D_V,
            value_dim=D_V,
            path=path,
        )
        made = Attention.init(architecture, key=jr.key(0)).heads
        V, G = map(jnp.asarray, inputs(case.n))
        p, X = jnp.asarray(slopes(case.kind)), V.reshape(case.n, H * D_V)

        def recalled(p, V, X):
            heads: Any = eqx.tree_at(lambda heads: heads.encoding.p, made, p)
            with jax.default_matmul_precision("highest"):
                return PATHS[path].recalled(heads, X, V)

        total = lambda p, V, X, G: (G * recalled(p, V, X)).sum()
        at = positions(case.n)
        if case.work == "forward":
            forward = jax.jit(recalled)
            found = lambda Y: {"recalled": np.asarray(Y)[at]}
            return _warm(Job(path, lambda: jax.block_until_ready(forward(p, V, X)), found))
        gradient = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))
        found = lambda result: {"p": np.asarray(result[1][0]), "V": np.asarray(result[1][1])[at - 1]}
        return _warm(Job(path, lambda: jax.block_until_ready(gradient(p, V, X, G)), found))

    return prepare


def roofline() -> Callable[[Case], Job]:
    import jax
    import jax.numpy as jnp

    def prepare(case: Case) -> Job:
        V = jnp.asarray(inputs(case.n)[0])
        copy = jax.jit(lambda V: V * 1.0001)
        return _warm(Job("copy", lambda: jax.block_until_ready(copy(V)), lambda Y: {}))

    return prepare


# -- PyTorch ----------------------------------------------------------------------------------------------


class TorchCase:
    """The arrays that PyTorch's forms share, heads first."""

    def __init__(self, case: Case):
        import torch

        if case.n % MOST_QUERIES:
            raise ValueError(f"the length must be a multiple of {MOST_QUERIES}, found {case.n}")
        V, G = inputs(case.n)
        self.case, self.at = case, torch.from_numpy(positions(case.n))
        self.p = torch.from_numpy(slopes(case.kind))
        self.V = torch.from_numpy(V).permute(1, 0, 2).contiguous()[None]
        self.G = torch.zeros_like(self.V)  # at the positions of the queries
        self.G[0, :, :-1] = torch.from_numpy(G).permute(1, 0, 2)[:, 1:]

    def phi(self, z):
        return -z.float() if self.case.kind == "lin" else -z.clamp(min=1).float().log()

    def bias(self, z):
        """p phi(z) per head, -inf where z < 1 is not the past."""
        import torch

        logits = self.p.view(H, *[1] * z.ndim) * self.phi(z)
        return torch.where(z >= 1, logits, -torch.inf)

    def job(self, form: str, call: Callable[[], Any]) -> Job:
        def forward(Y) -> dict[str, np.ndarray]:
            return {"recalled": Y[0, :, self.at - 1].transpose(0, 1).numpy()}

        def gradient(result) -> dict[str, np.ndarray]:
            dp, dV = result
            return {"p": dp.numpy(), "V": dV[0, :, self.at - 1].transpose(0, 1).numpy()}

        return Job(form, call, forward if self.case.work == "forward" else gradient)


def strip(arrays: TorchCase, B: int, layout: str = "heads first") -> Job:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    n, V, G = arrays.case.n, arrays.V, arrays.G
    if layout == "time first":
        V = V.transpose(1, 2).contiguous().transpose(1, 2)
    z = n - torch.arange(n + B)
    logits, phi = arrays.bias(z), torch.where(z >= 1, arrays.phi(z), 0.0)
    Q, K = torch.zeros(1, H, B, D_V), torch.zeros(1, H, n, D_V)
    ends = range(B, n + 1, B)  # the queries of a block: end, end - 1, ..., end - B + 1
    bias = {end: logits.as_strided((1, H, B, end), (0, n + B, 1, 1), n - end) for end in ends}

    def forward():
        with torch.inference_mode():
            Y = torch.empty_like(V)
            for end in ends:
                block = attend(Q, K[:, :, :end], V[:, :, :end], attn_mask=bias[end])
                Y[:, :, end - B : end] = block.flip(2)
            return Y

    def gradient():
        """Block by block, so that the scores are small; the slope's part from the gradient of the bias."""
        dp, dV = torch.zeros(H), torch.zeros_like(V)
        for end in ends:
            shift, values = bias[end].detach().requires_grad_(), V[:, :, :end].detach().requires_grad_()
            block = attend(Q, K[:, :, :end], values, attn_mask=shift)
            of_shift, of_values = torch.autograd.grad(block, (shift, values), G[:, :, end - B : end].flip(2))
            dp += torch.einsum("hij,ij->h", of_shift[0], phi.as_strided((B, end), (1, 1), n - end))
            dV[:, :, :end] += of_values
        return dp, dV

    call = forward if arrays.case.work == "forward" else gradient
    return arrays.job(f"strip, {B} queries, {layout}", call)


def band(arrays: TorchCase, B: int) -> Job:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    n, V, G = arrays.case.n, arrays.V, arrays.G
    z = torch.arange(n - B + 1, n + 1)[:, None] - torch.arange(n)[None, :]
    bias, phi = arrays.bias(z)[None], torch.where(z >= 1, arrays.phi(z), 0.0)
    Q, K = torch.zeros(1, H, B, D_V), torch.zeros(1, H, n, D_V)

    def forward():
        with torch.inference_mode():
            Y = torch.empty_like(V)
            for end in range(B, n + 1, B):
                block = attend(Q, K[:, :, :end], V[:, :, :end], attn_mask=bias[..., n - end :])
                Y[:, :, end - B : end] = block
            return Y

    def gradient():
        dp, dV = torch.zeros(H), torch.zeros_like(V)
        for end in range(B, n + 1, B):
            shift = bias[..., n - end :].detach().requires_grad_()
            values = V[:, :, :end].detach().requires_grad_()
            block = attend(Q, K[:, :, :end], values, attn_mask=shift)
            of_shift, of_values = torch.autograd.grad(block, (shift, values), G[:, :, end - B : end])
            dp += torch.einsum("hij,ij->h", of_shift[0], phi[:, n - end :])
            dV[:, :, :end] += of_values
        return dp, dV

    return arrays.job(f"band, {B} queries", forward if arrays.case.work == "forward" else gradient)


def keys(arrays: TorchCase, B: int) -> Job:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    n, V, G = arrays.case.n, arrays.V, arrays.G
    Q, K, last = _features(arrays, B)
    order = torch.arange(B)
    past = torch.zeros(B, n)
    past[:, n - B :] = torch.where(order[:, None] >= order[None, :], 0.0, -torch.inf)

    def block(keys, values, end):
        return attend(Q, keys, values, attn_mask=past[:, n - end :], scale=1.0)

    def forward():
        with torch.inference_mode():
            Y = torch.empty_like(V)
            for end in range(B, n + 1, B):
                Y[:, :, end - B : end] = block(K[:, :, n - end :], V[:, :, :end], end)
            return Y

    def gradient():
        dK, dV = torch.zeros(H, n), torch.zeros_like(V)
        for end in range(B, n + 1, B):
            ends = K[:, :, n - end :].detach().requires_grad_(), V[:, :, :end].detach().requires_grad_()
            of_keys, of_values = torch.autograd.grad(block(*ends, end), ends, G[:, :, end - B : end])
            dK[:, n - end :] += of_keys[0, :, :, 0]
            dV[:, :, :end] += of_values
        return dK @ last, dV

    return arrays.job(f"keys, {B} queries", forward if arrays.case.work == "forward" else gradient)


def causal(arrays: TorchCase) -> Job:
    """`keys` with all queries at once and the built-in causal mask: the fastest, but p s loses digits."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    Q, K, last = _features(arrays, arrays.case.n)

    def forward():
        with torch.inference_mode():
            return attend(Q, K, arrays.V, is_causal=True, scale=1.0)

    def gradient():
        ends = K.detach().requires_grad_(), arrays.V.detach().requires_grad_()
        Y = attend(Q, *ends, is_causal=True, scale=1.0)
        of_keys, dV = torch.autograd.grad(Y, ends, arrays.G)
        return of_keys[0, :, :, 0] @ last, dV

    return arrays.job("causal", forward if arrays.case.work == "forward" else gradient)


def by_hand(arrays: TorchCase, B: int) -> Job:
    """The same blocks as `strip` from softmax and matrix products, with the gradient written out."""
    import torch

    n, V, G = arrays.case.n, arrays.V[0], arrays.G[0]
    z = n - torch.arange(n + B)
    logits, phi = arrays.bias(z), torch.where(z >= 1, arrays.phi(z), 0.0)

    def weights(end):
        return torch.softmax(logits.as_strided((H, B, end), (n + B, 1, 1), n - end), -1)

    def forward():
        Y = torch.empty_like(V)
        for end in range(B, n + 1, B):
            Y[:, end - B : end] = torch.bmm(weights(end), V[:, :end]).flip(1)
        return Y[None]

    def gradient():
        dp, dV = torch.zeros(H), torch.zeros_like(V)
        for end in range(B, n + 1, B):
            a, g, values = weights(end), G[:, end - B : end].flip(1), V[:, :end]
            along = (g * torch.bmm(a, values)).sum(-1, keepdim=True)
            dV[:, :end] += torch.bmm(a.transpose(1, 2), g)
            of_logits = torch.bmm(g, values.transpose(1, 2)).sub_(along).mul_(a)
            dp += torch.einsum("hij,ij->h", of_logits, phi.as_strided((B, end), (1, 1), n - end))
        return dp, dV[None]

    def call():
        with torch.inference_mode():
            return forward() if arrays.case.work == "forward" else gradient()

    return arrays.job(f"by hand, {B} queries", call)


def _features(arrays: TorchCase, B: int):
    """Queries and keys with <q, k_s> = p (s - n + 1), and s - n + 1; a block that ends earlier shifts them."""
    import torch

    n = arrays.case.n
    Q, K = torch.zeros(1, H, B, D_V), torch.zeros(1, H, n, D_V)
    last = torch.arange(-n + 1.0, 1.0)
    Q[..., 0] = 1.0
    K[0, :, :, 0] = arrays.p[:, None] * last
    return Q, K, last


Form = tuple[Any, ...]  # a function above and what it takes after the arrays


def sdpa_forms(case: Case) -> Iterable[Form]:
    if case.work == "forward":
        yield from (
            (strip, B, layout) for layout in ("heads first", "time first") for B in (64, 128, 256, 512)
        )
        if case.kind == "lin":
            yield from ((keys, B) for B in (64, 128, 256))
    else:
        yield from ((strip, B) for B in (32, 64, 128))
        if case.kind == "lin":
            yield from ((keys, B) for B in (64, 128, 256))  # longer blocks lose digits


def band_forms(case: Case) -> Iterable[Form]:
    sizes = (32, 64, 128, 256, 512, MOST_QUERIES) if case.work == "forward" else (16, 32, 64, 128, 256)
    return ((band, B) for B in sizes)


def torch_best_of(forms: Callable[[Case], Iterable[Form]]) -> Callable[[Case], Job]:
    """The fastest form for a case: all are tried up to TUNED_AT, and the best few at the length itself."""
    import torch

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    ranked: dict[Case, list[Form]] = {}

    def rank(case: Case, some: Iterable[Form]) -> list[Form]:
        arrays = TorchCase(case)
        make = lambda form: form[0](arrays, *form[1:])
        times = {form: best_within(make(form).call, 0.1)[0] for form in some}
        return sorted(times, key=lambda form: times[form])

    def prepare(case: Case) -> Job:
        short, long = (case._replace(n=min(case.n, limit)) for limit in (TUNED_AT, MOST_TUNED))
        some = list(forms(case))
        if len(some) > 1:
            if short not in ranked:
                ranked[short] = rank(short, some)
            if long not in ranked:
                ranked[long] = rank(long, ranked[short][: 3 if case.work == "forward" else 2])
            some = ranked[long]
        best, *rest = some[0]
        return best(TorchCase(case), *rest)

    return prepare


def flex() -> Callable[[Case], Job]:
    """Compiled flex attention; PyTorch compiles it for the forward pass only on a CPU."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    compiled = torch.compile(flex_attention)

    def prepare(case: Case) -> Job:
        if case.work != "forward":
            raise NotImplementedError("flex attention has no gradient on a CPU")
        arrays, n = TorchCase(case), case.n
        p = arrays.p

        def lin(score, b, h, t, s):
            return score - p[h] * (t + 1 - s)

        def log(score, b, h, t, s):
            return score - p[h] * torch.log((t + 1 - s).float().clamp(min=1.0))

        Q, K = torch.zeros(1, H, n, D_V), torch.zeros(1, H, n, D_V)
        past = create_block_mask(lambda b, h, t, s: s <= t, None, None, n, n, device="cpu")

        def call():
            with torch.inference_mode():
                return compiled(Q, K, arrays.V, score_mod=lin if case.kind == "lin" else log, block_mask=past)

        return _warm(arrays.job("compiled", call))

    return prepare


# -- the worker -------------------------------------------------------------------------------------------

CONTENDERS: dict[str, Callable[[], Callable[[Case], Job]]] = {
    "recurrence": lambda: memloci_on("recurrence"),
    "convolution": lambda: memloci_on("convolution"),
    "roofline": roofline,
    "band": lambda: torch_best_of(band_forms),
    "sdpa": lambda: torch_best_of(sdpa_forms),
    "causal": lambda: torch_best_of(lambda case: [(causal,)]),
    "by hand": lambda: torch_best_of(lambda case: ((by_hand, B) for B in (32, 64, 128))),
    "flex": flex,
}


def start(name: str) -> Prepare:
    prepare_job = CONTENDERS[name]()

    def prepare(text: str) -> Measure:
        case = Case.parse(text)
        job = prepare_job(case)

        def measure() -> dict[str, Any]:
            seconds, result = best_within(job.call)
            found = {key: np.asarray(value).tolist() for key, value in job.found(result).items()}
            return {"seconds": seconds, "form": job.form, "found": found}

        return measure

    return prepare


if __name__ == "__main__":
    serve(start)
