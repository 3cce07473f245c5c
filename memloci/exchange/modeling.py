"""One Transformer in plain PyTorch; it imports torch and the standard library only.

    X  = x W_E + b_E  (+ a vector per position, for sin and learned)
    X <- X + Attn(X),   X <- X + FFN(X)                   per block, normalised if `norm` says so
    y  = X W_U + b_U

    Attn(X)_t = sum_h sum_{s<t} a^h(t, s) x_s W_V^h W_O^h           FFN(X) = relu(X W_in + b_in) W_out

    logit(t, s), z = t - s:   dp       <x_t W_Q, x_s W_K> + p phi(z)     dpf       p phi(z)
                              tmx      <w, x_t> + p phi(z)               tmx-mul   <w, x_t> phi(z)

Matrices have the names and shapes of TransformerLens: W_Q, W_K, W_V (heads, D, d), W_O (heads, d, D), W_in (D, m).

Attention reads strictly the past: the lags z = k, 2k, ... <= w (stride k, window w). Inputs are real numbers of shape
(batch, length, channels), or (length, channels).

    model = load("folder"); y = model(x)          # model.safetensors and config.json; nothing in them is executed

Long sequences are cut into blocks of queries, so memory grows with the length and not with its square.
"""

import json
import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

EPS = 1e-5  # of the norms
STEEP_SLOPE = 1.0  # from here on 1 - e^-p is computed as it stands, below with expm1
PAIRS = 2**22  # attention weights that are held at a time
DTYPES = {"float32": torch.float32, "float64": torch.float64}
FORMAT, VERSION = "memloci-torch", 2


def load(folder, kind=None) -> "Transformer":
    """The model of a folder; what is wrong with its files raises ValueError in one line."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text())
        if config["format"] != FORMAT or config["version"] != VERSION:
            raise ValueError(
                f"version {config['version']} of {config['format']}, this file reads {FORMAT} {VERSION}"
            )
        model = (kind or Transformer)(config)
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{folder}: config.json is not that of such a model: {repr(error)[:200]}") from None
    try:
        tensors = read_safetensors(Path(folder) / "model.safetensors")
        require_same(tensors, model.state_dict())
    except ValueError as error:
        raise ValueError(f"{folder}: model.safetensors: {error}") from None
    model.load_state_dict(tensors, strict=True)
    return model.eval()


def require_same(tensors: dict, expected: dict) -> None:
    """Refuse tensors that are missing, left over, misshapen, of another type, or not finite."""
    for name in sorted(expected.keys() - tensors.keys()):
        raise ValueError(f"tensor {name} is missing")
    for name in sorted(tensors.keys() - expected.keys()):
        raise ValueError(f"tensor {repr(name)[:80]} does not belong to this architecture")
    for name, expected_tensor in expected.items():
        tensor = tensors[name]
        if tensor.shape != expected_tensor.shape:
            raise ValueError(
                f"tensor {name} must have shape {tuple(expected_tensor.shape)}, found {tuple(tensor.shape)}"
            )
        if tensor.dtype != expected_tensor.dtype:
            raise ValueError(f"tensor {name} must be {expected_tensor.dtype}, found {tensor.dtype}")
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(f"tensor {name} holds NaN or infinity")


def read_safetensors(path) -> dict:
    """Tensors by name: 8 bytes with the size of a JSON header, the header, then the numbers."""
    kinds = {"F32": torch.float32, "F64": torch.float64, "U32": torch.uint32, "I64": torch.int64}
    data = bytearray(Path(path).read_bytes())
    start, tensors = 8 + int.from_bytes(data[:8], "little"), {}
    try:
        for name, entry in json.loads(data[8:start]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                kind, shape = kinds[entry["dtype"]], entry["shape"]
                if (
                    not 0 <= first <= last <= len(data) - start
                    or last - first != math.prod(shape) * kind.itemsize
                ):
                    raise ValueError(f"tensor {repr(name)[:80]} does not fit the file")
                raw = data[start + first : start + last]
                tensors[name] = (
                    torch.frombuffer(raw, dtype=kind) if raw else torch.zeros(0, dtype=kind)
                ).reshape(shape)
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise ValueError(f"not a whole safetensors file: {repr(error)[:200]}") from None
    return {name: t.to(torch.int64) if t.dtype == torch.uint32 else t for name, t in tensors.items()}


class Transformer(nn.Module):
    """(batch, length, channels) -> (batch, length, outputs)."""

    def __init__(self, config: dict):
        super().__init__()
        self.config = config
        a = config["architecture"]
        dtype = DTYPES[a["precision"]]
        self.embed = Embed(config["channels"], a, dtype)
        self.hook_embed = nn.Identity()
        self.hook_pos_embed = nn.Identity() if a["encoding"] in ("sin", "learned") else None
        switches_of_blocks = a.get("blocks") or [{}] * a["layers"]
        self.blocks = nn.ModuleList([Block({**a, **switches}, dtype) for switches in switches_of_blocks])
        self.ln_final = Norm(a["dim"], a["norm"], dtype) if a["norm"] in ("pre", "rms") else None
        self.unembed = Unembed(a["dim"], config["outputs"], dtype)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            return self(x[None])[0]
        X = self.hook_embed(self.embed(x.to(self.unembed.W_U.dtype)))
        if self.hook_pos_embed is not None:
            X = X + self.hook_pos_embed(self.embed.positions(x.shape[1])[None])
        for block in self.blocks:
            X = block(X)
        return self.unembed(X if self.ln_final is None else self.ln_final(X))


class Embed(nn.Module):
    """x W_E + b_E; sin and learned also have a vector per position."""

    def __init__(self, channels: int, a: dict, dtype):
        super().__init__()
        self.W_E = nn.Parameter(torch.zeros(channels, a["dim"], dtype=dtype))
        self.b_E = nn.Parameter(torch.zeros(a["dim"], dtype=dtype))
        self.encoding, self.dim = a["encoding"], a["dim"]
        if self.encoding == "sin":
            self.register_buffer("turns", torch.zeros((a["dim"] + 1) // 2, dtype=torch.int64))
        if self.encoding == "learned":
            self.table = nn.Parameter(torch.zeros(a["max_length"], a["dim"], dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.W_E + self.b_E

    def positions(self, n: int) -> Tensor:
        if self.encoding == "learned":
            if n > self.table.shape[0]:
                raise ValueError(f"encoding 'learned' has {self.table.shape[0]} positions, the sequence {n}")
            return self.table[:n]
        theta = angles(self.turns, torch.arange(n, device=self.W_E.device), self.W_E.dtype)
        return torch.cat([torch.sin(theta), torch.cos(theta)], dim=-1)[:, : self.dim]


class Unembed(nn.Module):
    """X W_U + b_U."""

    def __init__(self, D: int, outputs: int, dtype):
        super().__init__()
        self.W_U = nn.Parameter(torch.zeros(D, outputs, dtype=dtype))
        self.b_U = nn.Parameter(torch.zeros(outputs, dtype=dtype))

    def forward(self, X: Tensor) -> Tensor:
        return X @ self.W_U + self.b_U


class Norm(nn.Module):
    """layer: g (x - mean x) / sqrt(var x + eps) + b;   rms: g x / sqrt(mean x^2 + eps)."""

    def __init__(self, D: int, kind: str, dtype):
        super().__init__()
        self.w = nn.Parameter(torch.ones(D, dtype=dtype))
        self.b = None if kind == "rms" else nn.Parameter(torch.zeros(D, dtype=dtype))
        self.hook_scale, self.hook_normalized = nn.Identity(), nn.Identity()

    def forward(self, X: Tensor) -> Tensor:
        centred = X if self.b is None else X - X.mean(dim=-1, keepdim=True)
        scale = self.hook_scale(torch.sqrt((centred * centred).mean(dim=-1, keepdim=True) + EPS))
        normalized = self.hook_normalized(centred / scale) * self.w
        return normalized if self.b is None else normalized + self.b


class Block(nn.Module):
    def __init__(self, a: dict, dtype):
        super().__init__()
        self.norm, D, m = a["norm"], a["dim"], a["width"]
        self.attn = Attention(a, dtype)
        self.mlp = FFN(D, m, dtype) if m else None
        self.ln1 = Norm(D, self.norm, dtype) if self.norm != "none" else None
        self.ln2 = Norm(D, self.norm, dtype) if self.norm != "none" and m else None
        self.hook_resid_pre = nn.Identity()
        self.hook_attn_out = nn.Identity()
        self.hook_resid_mid = nn.Identity() if m else None
        self.hook_mlp_out = nn.Identity() if m else None
        self.hook_resid_post = nn.Identity()

    def forward(self, X: Tensor) -> Tensor:
        X = self.hook_resid_pre(X)
        X = self._after(X + self.hook_attn_out(self.attn(self._before(X, self.ln1))), self.ln1)
        if self.mlp is not None and self.hook_resid_mid is not None and self.hook_mlp_out is not None:
            X = self.hook_resid_mid(X)
            X = self._after(X + self.hook_mlp_out(self.mlp(self._before(X, self.ln2))), self.ln2)
        return self.hook_resid_post(X)

    def _before(self, X: Tensor, norm) -> Tensor:
        return norm(X) if self.norm in ("pre", "rms") else X

    def _after(self, X: Tensor, norm) -> Tensor:
        return norm(X) if self.norm == "post" else X


class FFN(nn.Module):
    """relu(X W_in + b_in) W_out."""

    def __init__(self, D: int, m: int, dtype):
        super().__init__()
        self.W_in = nn.Parameter(torch.zeros(D, m, dtype=dtype))
        self.b_in = nn.Parameter(torch.zeros(m, dtype=dtype))
        self.W_out = nn.Parameter(torch.zeros(m, D, dtype=dtype))
        self.hook_pre = nn.Identity()
        self.hook_post = nn.Identity()

    def forward(self, X: Tensor) -> Tensor:
        pre = self.hook_pre(X @ self.W_in + self.b_in)
        return self.hook_post(torch.relu(pre)) @ self.W_out


class Attention(nn.Module):
    """H heads: score x encoding x normalisation over the visible past."""

    def __init__(self, a: dict, dtype):
        super().__init__()
        H, D, d_k, d_v = a["heads"], a["dim"], a["key_dim"], a["value_dim"]
        self.kind, self.encoding, self.normalisation = a["attention"], a["encoding"], a["normalisation"]
        self.window, self.stride = a["window"], a["stride"]
        self.pairs: int | None = PAIRS  # None: one block, so that hooks see all weights at once
        self.guard = True  # a value that is not finite makes the positions that see it NaN, and no others
        new = lambda *shape: nn.Parameter(torch.zeros(*shape, dtype=dtype))
        self.W_V, self.W_O = new(H, D, d_v), new(H, d_v, D)
        if self.kind == "dp":
            self.W_Q, self.W_K = new(H, D, d_k), new(H, D, d_k)
        if self.kind in ("tmx", "tmx-mul"):
            self.w = new(H, D)
        if self.encoding in ("lin", "log") and self.kind != "tmx-mul":
            self.p = new(H)
        if self.encoding == "t5":
            self.table = new(H, a["buckets"])
            self.register_buffer("bucket", buckets_of(a["buckets"], a["max_distance"]), persistent=False)
        if self.encoding == "rope":
            self.register_buffer("turns", torch.zeros(H, d_k // 2, dtype=torch.int64))
            if self.kind != "dp":
                self.q, self.k = new(H, d_k), new(H, d_k)
        self.hook_q, self.hook_k, self.hook_v = nn.Identity(), nn.Identity(), nn.Identity()
        self.hook_rot_q, self.hook_rot_k = nn.Identity(), nn.Identity()
        self.hook_attn_scores, self.hook_pattern = nn.Identity(), nn.Identity()
        self.hook_z = nn.Identity()

    def forward(self, X: Tensor) -> Tensor:
        n, (H, d_v, D) = X.shape[1], self.W_O.shape
        V = self.hook_v(per_head(X, self.W_V)).transpose(1, 2)  # (batch, H, n, d_v)
        if self.guard:
            broken = ~torch.isfinite(V).all(dim=-1)
            V = torch.where(broken[..., None], torch.zeros_like(V), V)
        q, k = self._queries_and_keys(X)
        t = torch.arange(n, device=X.device)
        table, total = self._table(n, X)
        if self.pairs is None:
            z = self._rows(q, k, V, table, total, t, t)
        else:
            z = self._in_blocks(q, k, V, table, total, t)
        if self.guard:
            z = torch.where(self._any_seen(broken)[..., None], torch.full_like(z, math.nan), z)
        z = self.hook_z(z.transpose(1, 2))  # (batch, n, H, d_v)
        return z.flatten(-2) @ self.W_O.reshape(H * d_v, D)

    def _in_blocks(self, q, k, V: Tensor, table, total, t: Tensor) -> Tensor:
        """The same sums, a block of queries at a time; a gradient makes each block's weights again."""
        batch, H, n, _ = V.shape
        rows = max(1, (self.pairs or PAIRS) // max(1, batch * H * n))
        parts = []
        for a in range(0, n, rows):
            b = min(a + rows, n)
            first = 0 if self.window is None else max(0, a - self.window)
            columns = lambda x, first=first, b=b: None if x is None else x[:, :, first:b]
            queries = None if q is None else q[:, :, a:b]
            given = (queries, columns(k), columns(V), table, total, t[a:b], t[first:b])
            again = torch.is_grad_enabled() and rows < n
            parts.append(checkpoint(self._rows, *given, use_reentrant=False) if again else self._rows(*given))
        return torch.cat(parts, dim=2) if parts else torch.zeros_like(V)

    def _rows(self, q, k, V: Tensor, table, total, t: Tensor, s: Tensor) -> Tensor:
        """sum_s a(t, s) v_s for the queries t, over the keys s."""
        z = t[:, None] - s[None, :]
        visible = (z >= 1) & (z % self.stride == 0)
        if self.window is not None:
            visible = visible & (z <= self.window)
        z = torch.where(visible, z, self.stride)
        position = 0.0 if table is None or self.kind == "tmx-mul" else table[:, self._index(z)]
        logits = torch.where(visible, self._content(q, k, z, table) + position, -math.inf)
        logits = self.hook_attn_scores(logits.expand(V.shape[0], -1, -1, -1))
        if self.normalisation == "softmax":
            some = visible.any(dim=-1, keepdim=True)
            top = logits.amax(dim=-1, keepdim=True).detach()
            weights = torch.exp(logits - torch.where(some, top, 0.0))
            weights = weights / torch.where(some, weights.sum(dim=-1, keepdim=True), 1.0)
        else:
            weights = torch.exp(logits)
            weights = weights if total is None else weights / total
        return self.hook_pattern(weights) @ V

    # -- the parts of the logit ---------------------------------------------------------------------------

    def _queries_and_keys(self, X: Tensor):
        """(batch, H, n, d_k) each; for tmx and tmx-mul the query is one number, and there is no key."""
        if self.kind == "dp":
            q = self.hook_q(per_head(X, self.W_Q)).transpose(1, 2)
            k = self.hook_k(per_head(X, self.W_K)).transpose(1, 2)
            if self.encoding == "rope":
                theta = angles(self.turns, torch.arange(X.shape[1], device=X.device), X.dtype)
                q = self.hook_rot_q(rotate(q, theta).transpose(1, 2)).transpose(1, 2)
                k = self.hook_rot_k(rotate(k, theta).transpose(1, 2)).transpose(1, 2)
            return q, k
        if self.kind in ("tmx", "tmx-mul"):
            return self.hook_q((X @ self.w.T)[..., None]).transpose(1, 2), None
        if self.kind == "dpf":
            return None, None
        raise ValueError(f"attention {self.kind!r} is unknown")

    def _content(self, q, k, z: Tensor, table) -> Tensor:
        if q is None:
            return torch.zeros(1, 1, 1, 1, dtype=self.W_V.dtype, device=z.device)
        if k is not None:
            return q @ k.transpose(-1, -2)
        return q * table[:, z] if self.kind == "tmx-mul" else q

    def _table(self, n: int, X: Tensor):
        """The position part of the logit per head and lag, and what weights are divided by; None where there is none.

        Over an infinite past, Z = e^anchor total, and the anchor is taken off the position part. With a window, logits
        come from the table that is summed: at the peak, logit and anchor are the same number.
        """
        if self.normalisation == "infinite" and self.window is not None:
            lags = self.stride * torch.arange(1, self.window // self.stride + 1, device=X.device)
            table = self._position(lags, X.dtype)
            table = table - table.amax(dim=1, keepdim=True).detach()
            return table, torch.exp(table).sum(dim=1)[:, None, None]
        table = self._position(torch.arange(n + self.stride, device=X.device), X.dtype)
        if self.normalisation == "infinite":
            anchor = self._position(torch.full((1,), self.stride, device=X.device), X.dtype)
            return table - anchor, self._infinite_sum()[:, None, None]
        if self.normalisation in ("softmax", "none"):
            return table, None
        raise ValueError(f"normalisation {self.normalisation!r} is unknown")

    def _index(self, z: Tensor) -> Tensor:
        """Where a lag stands in that table."""
        return z // self.stride - 1 if self.normalisation == "infinite" and self.window is not None else z

    def _position(self, z: Tensor, dtype):
        if self.encoding in ("lin", "log", "t5"):
            phi = self._phi(z, dtype)
            return phi if self.encoding == "t5" or self.kind == "tmx-mul" else self.p[:, None] * phi
        if self.encoding == "rope" and self.kind != "dp":
            theta = angles(self.turns, z, dtype)  # (H, z, f)
            half = self.q.shape[1] // 2
            q1, q2, k1, k2 = self.q[:, :half], self.q[:, half:], self.k[:, :half], self.k[:, half:]
            even, odd = (q1 * k1 + q2 * k2)[..., None], (q1 * k2 - q2 * k1)[..., None]
            return (torch.cos(theta) @ even + torch.sin(theta) @ odd)[..., 0]
        if self.encoding in ("rope", "sin", "learned", "none"):
            return None
        raise ValueError(f"encoding {self.encoding!r} is unknown")

    def _phi(self, z: Tensor, dtype) -> Tensor:
        """(H or 1, z)."""
        if self.encoding == "lin":
            return -z.to(dtype)[None]
        if self.encoding == "log":
            return -torch.log(z.clamp(min=1).to(dtype))[None]
        return self.table[:, self.bucket[z.clamp(max=self.bucket.shape[0] - 1)]]

    def _infinite_sum(self) -> Tensor:
        if self.encoding == "lin":
            steep, least = self.p * self.stride, 0.0
            total = 1 / torch.where(steep < STEEP_SLOPE, -torch.expm1(-steep), 1 - torch.exp(-steep))
        else:
            total, least = zeta(self.p), 1.0
        return torch.where(self.p > least, total, math.nan)  # where the sum diverges there are no weights

    def _any_seen(self, marked: Tensor) -> Tensor:
        """(batch, H, n): which positions see a marked one."""
        n, k = marked.shape[2], self.stride
        count = marked.to(torch.int64)
        short = -n % k
        if k > 1:
            count = torch.nn.functional.pad(count, (0, short)).unflatten(2, (-1, k))
        else:
            count = count[..., None]
        total = torch.cumsum(count, dim=2)
        before = torch.cat([torch.zeros_like(total[:, :, :1]), total], dim=2)[:, :, :-1]
        if self.window is not None:
            lags = self.window // k
            shifted = torch.nn.functional.pad(before, (0, 0, lags, 0))[:, :, : before.shape[2]]
            before = before - shifted
        return (before > 0).flatten(2)[:, :, :n]


def per_head(X: Tensor, W: Tensor) -> Tensor:
    """(batch, n, D) by (H, D, d) -> (batch, n, H, d)."""
    return (X @ W.transpose(0, 1).flatten(1)).unflatten(-1, (W.shape[0], W.shape[2]))


def angles(turns: Tensor, t: Tensor, dtype) -> Tensor:
    """omega_j t in [-pi, pi), (..., t, f): turns are whole numbers of 2^-32, so the product is reduced exactly."""
    wrapped = torch.remainder(t[:, None] * turns[..., None, :], 2**32)
    signed = torch.where(wrapped >= 2**31, wrapped - 2**32, wrapped)
    return signed.to(dtype) * (2 * math.pi / 2.0**32)


def rotate(x: Tensor, theta: Tensor) -> Tensor:
    """The pair (x_j, x_{j + d/2}) turned by theta_j."""
    half = x.shape[-1] // 2
    x1, x2, cos, sin = x[..., :half], x[..., half:], torch.cos(theta), torch.sin(theta)
    return torch.cat([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1)


def buckets_of(buckets: int, farthest: int) -> Tensor:
    """The t5 bucket of every lag up to farthest + 1: single lags first, then log-spaced, in integers throughout."""
    E = buckets // 2
    q = buckets - E - 1
    starts = list(range(1, E + 1))
    for j in range(q + 1):
        power = farthest**j * E ** (q - j)
        v = round(E * (farthest / E) ** (j / q))
        while v**q > power:
            v -= 1
        while (v + 1) ** q <= power:
            v += 1
        starts.append(max(starts[-1], v) + 1)
    lags = torch.arange(max(farthest, starts[-1]) + 2)
    return (torch.searchsorted(torch.tensor(starts), lags, right=True) - 1).clamp(min=0, max=buckets - 1)


def zeta(p: Tensor) -> Tensor:
    """Riemann's zeta(p) = sum_{z>=1} z^-p for p > 1, by Euler-Maclaurin summation with 16 terms."""
    N, u = 16, 17.0
    coefficients = [1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160]
    coefficients += [-691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000]
    s = torch.minimum(p, torch.full_like(p, 32.0 * u))  # beyond, the tail is below e^-512 of the first term
    corrections = torch.zeros_like(p)
    for i in range(len(coefficients), 0, -1):
        step = s / u if i == 1 else ((s + (2 * i - 3)) / u) * ((s + (2 * i - 2)) / u)
        corrections = step * (coefficients[i - 1] + corrections)
    power = lambda x: torch.exp(-p * torch.log(torch.tensor(x, dtype=p.dtype, device=p.device)))
    total = (u / (p - 1) + 0.5 + corrections) * power(u)
    for j in range(N - 1, -1, -1):  # the smallest terms first
        total = total + power(1.0 + j)
    return total
