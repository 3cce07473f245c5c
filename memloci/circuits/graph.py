"""The graph of a compiled model: which part reads what from which other part, what it carries, and which parts do nothing.

    input -> a0.h1<v> -> m0 -> a1.h0<q> -> output          a{layer}.h{head}, m{layer} (neurons), as discovery tools say

It is read off the weights. A part writes the coordinates where its output matrix is not 0, and reads those where its
input matrices are not 0; nothing else passes. An edge stands for what the source writes and the target then reads on a
way to the output. A part on no such way is irrelevant: whatever it computes meets a weight of 0, and 0 times a number
adds an exact 0 in every arithmetic, so that ablating it changes no output by any amount.

An edge, or a node, is constant where what it carries is the same for all inputs of one length, such as the slot that
holds 1. Nothing that compares two inputs can see it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from memloci.circuits.circuit import Circuit, DecayKernel, Head, Layer, PeakKernel, TableKernel, Turns
from memloci.model.transformer import Block, Transformer

INPUT, OUTPUT = "input", "output"
NOTHING_WRITTEN = "it writes nothing"
NOTHING_READ = "nothing on a way to the output reads what it writes"
SHIFTED = 0.99  # of its attention on one lag: such a head is called an offset


@dataclass(frozen=True)
class Neurons:
    """A run of neurons with one purpose."""

    start: int
    stop: int
    purpose: str | None
    relevant: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A part of the model; `reads` by the name of the input: q, k and v of heads, "" of all others."""

    name: str
    layer: int | None
    head: int | None
    hook: str  # where its output is in a TransformerLens model; of a head, one index of the third axis
    purpose: str | None
    role: str | None  # of a head: offset, decay-lin, decay-log, table, pointer, match, sink
    offset: int | None  # the lag of an offset
    reads: Mapping[str, tuple[str, ...]]
    writes: tuple[str, ...]
    relevant: bool
    constant: bool
    why: str | None  # it is irrelevant
    neurons: tuple[Neurons, ...] = ()


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    input: str  # q, k or v of a head; "" of neurons and of the output
    carries: tuple[str, ...]
    constant: bool

    @property
    def name(self) -> str:
        return edge_name(self.source, self.target, self.input)


def edge_name(source: str, target: str, input: str) -> str:
    return f"{source}->{target}" + (f"<{input}>" if input else "")


@dataclass(frozen=True)
class Graph:
    """All nodes in the order of computation, and the edges on ways to the output."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    @property
    def irrelevant(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.relevant)

    def candidates(self) -> Iterator[tuple[str, str, str]]:
        """Every edge that the architecture has: (source, target, input)."""
        for k, target in enumerate(self.nodes):
            for source in self.nodes[:k]:
                # Heads of one layer read the same stream.
                if source.head is None or target.head is None or source.layer != target.layer:
                    for name in target.reads:
                        yield source.name, target.name, name


# -- from the weights -------------------------------------------------------------------------------------


class HeadDesign(NamedTuple):
    """What a head was made for."""

    purpose: str
    role: str | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Design:
    """What weights do not say: the names of the coordinates, and what parts are for."""

    slots: tuple[str, ...]
    heads: tuple[tuple[HeadDesign, ...], ...]  # per layer
    neurons: tuple[tuple[str | None, ...], ...]  # per layer

    @classmethod
    def of(cls, circuit: Circuit) -> "Design":
        heads = tuple(
            tuple(HeadDesign(head.purpose, *role_of(head, layer)) for head in layer.heads)
            for layer in circuit.layers
        )
        return cls(
            circuit.slots, heads, tuple(circuit.neuron_purposes(l) for l in range(len(circuit.layers)))
        )

    @classmethod
    def unnamed(cls, model: Transformer) -> "Design":
        """Of weights about which nothing else is known."""
        L = model.architecture.layers
        return cls(tuple(map(str, range(model.architecture.dim))), ((),) * L, ((),) * L)

    def head(self, l: int | None, h: int | None) -> HeadDesign | None:
        """None of what is no head, and where a layer has none. Heads that only fill a layer ask what its last one asks."""
        if l is None or h is None or not (designs := self.heads[l]):
            return None
        return designs[h] if h < len(designs) else designs[-1]._replace(purpose="")


@dataclass
class _Part:
    """What a node reads and writes, as sets of coordinates."""

    name: str
    layer: int | None
    head: int | None
    reads: dict[str, np.ndarray]
    writes: np.ndarray
    changing: np.ndarray  # what of it depends on the tokens
    relevant: bool
    neurons: tuple[Neurons, ...] = ()


def graph_of(model: Transformer, design: Design) -> Graph:
    """The graph of a model whose coordinates are the slots of its design."""
    parts = _parts(model, design)
    named = lambda which: _named(design, which)
    nodes, edges = [], []
    for k, part in enumerate(parts):
        design_of_head = design.head(part.layer, part.head) or HeadDesign("")
        why = None if part.relevant else NOTHING_READ if part.writes.any() else NOTHING_WRITTEN
        reads = {name: named(which) for name, which in part.reads.items()}
        constant = not part.changing.any() and part.name != OUTPUT
        meaning = design_of_head.purpose or None, design_of_head.role, design_of_head.offset
        place = part.name, part.layer, part.head, _hook(part, model.architecture.layers), *meaning
        nodes.append(Node(*place, reads, named(part.writes), part.relevant, constant, why, part.neurons))
        for source in parts[:k]:
            if part.relevant and source.relevant and not _side_by_side(source, part):
                edges += _edges(source, part, named)
    return Graph(tuple(nodes), tuple(edges))


def _hook(part: "_Part", layers: int) -> str:
    if part.layer is None:
        return "hook_embed" if part.name == INPUT else f"blocks.{layers - 1}.hook_resid_post"
    return f"blocks.{part.layer}." + ("attn.hook_z" if part.head is not None else "hook_mlp_out")


def _edges(source: "_Part", target: "_Part", named: Callable[[np.ndarray], tuple[str, ...]]) -> list[Edge]:
    edges = []
    for name, which in target.reads.items():
        passed = which & source.writes
        if passed.any():
            constant = not (passed & source.changing).any()
            edges.append(Edge(source.name, target.name, name, named(passed), constant))
    return edges


def _named(design: Design, which: np.ndarray) -> tuple[str, ...]:
    return tuple(design.slots[j] for j in np.flatnonzero(which))


def _side_by_side(source: _Part, target: _Part) -> bool:
    return source.head is not None and target.head is not None and source.layer == target.layer


def _parts(model: Transformer, design: Design) -> list[_Part]:
    """In the order of computation; what is relevant is found from the output back, what changes from the input on."""
    W_U = np.asarray(model.W_U) != 0
    live = W_U.any(axis=0)
    parts = [_Part(OUTPUT, None, None, {"": live}, np.zeros_like(live), np.zeros_like(live), True)]
    for l in reversed(range(len(model.layers))):
        block = model.layers[l]
        if block.ffn is not None:
            part = _neurons(block, l, live, design)
            parts.append(part)
            live = live | (part.reads[""] & part.relevant)
        heads = _heads(block, l, live)
        parts += reversed(heads)
        live = live | np.any(
            [np.any([*part.reads.values()], axis=0) for part in heads if part.relevant] or [live], axis=0
        )
    W_E, b_E = np.asarray(model.W_E) != 0, np.asarray(model.b_E) != 0
    written, reached = W_E.any(axis=1) | b_E, W_E.any(axis=1)
    parts.append(_Part(INPUT, None, None, {}, written, reached, bool((written & live).any())))
    parts.reverse()
    _spread(parts, model)
    return parts


def _neurons(block: Block, l: int, live: np.ndarray, design: Design) -> _Part:
    assert block.ffn is not None
    B, A = np.asarray(block.ffn.B) != 0, np.asarray(block.ffn.A) != 0  # (m, D) and (D, m)
    acts = B.any(axis=1) | (np.asarray(block.ffn.c) > 0)  # else it is 0 whatever is read
    relevant = A[live].any(axis=0) & acts
    reads = B[relevant if relevant.any() else slice(None)].any(axis=0)
    runs = []
    for start, stop, purpose, counts in _runs(design.neurons[l], relevant):
        run = slice(start, stop)
        inputs, outputs = (_named(design, each) for each in (B[run].any(axis=0), A[:, run].any(axis=1)))
        runs.append(Neurons(start, stop, purpose, counts, inputs, outputs))
    none = np.zeros_like(live)
    return _Part(f"m{l}", l, None, {"": reads}, A.any(axis=1), none, bool(relevant.any()), tuple(runs))


def _runs(purposes: Sequence[str | None], relevant: np.ndarray) -> list[tuple[int, int, str | None, bool]]:
    """(start, stop, purpose, relevant) of neighbours that are alike."""
    runs: list[tuple[int, int, str | None, bool]] = []
    for k, counts in enumerate(relevant.tolist()):
        purpose = purposes[k] if k < len(purposes) else None
        if runs and runs[-1][2:] == (purpose, counts):
            runs[-1] = (runs[-1][0], k + 1, purpose, counts)
        else:
            runs.append((k, k + 1, purpose, counts))
    return runs


def _heads(block: Block, l: int, live: np.ndarray) -> list[_Part]:
    heads = block.attention.heads
    W_V, W_O = np.asarray(heads.W_V) != 0, np.asarray(heads.W_O) != 0  # (H, d_v, D) and (H, D, d_v)
    maps = W_O & W_V.any(axis=2)[:, None, :]  # a value that reads nothing is 0
    parts = []
    for h in range(len(W_V)):
        used = maps[h][live].any(axis=0)  # value coordinates on a way to the output
        relevant = bool(used.any())
        reads = _asked(heads, h) | {"v": W_V[h][used if relevant else slice(None)].any(axis=0)}
        written = maps[h].any(axis=1)
        parts.append(_Part(f"a{l}.h{h}", l, h, reads, written, np.zeros_like(live), relevant))
    return parts


def _asked(heads: Any, h: int) -> dict[str, np.ndarray]:
    """What queries and keys of a head read; a coordinate of the query counts where the key has it too."""
    score = heads.score
    if not score.dot:
        return {"q": np.asarray(score.w)[h] != 0} if hasattr(score, "w") else {}
    W_Q, W_K = np.asarray(score.W_Q)[h] != 0, np.asarray(score.W_K)[h] != 0
    has_q, has_k = W_Q.any(axis=1), W_K.any(axis=1)
    if heads.encoding.rotates:  # coordinates are pairs that lie half of them apart
        half = len(has_q) // 2
        has_q, has_k = has_q | np.roll(has_q, half), has_k | np.roll(has_k, half)
    return {"q": W_Q[has_k].any(axis=0), "k": W_K[has_q].any(axis=0)}


def _spread(parts: list[_Part], model: Transformer) -> None:
    """What of each part's output depends on the tokens."""
    known = parts[0].changing
    for l, block in enumerate(model.layers):
        heads = [part for part in parts if part.layer == l and part.head is not None]
        attention_heads = block.attention.heads
        W_V, W_O = np.asarray(attention_heads.W_V) != 0, np.asarray(attention_heads.W_O) != 0
        for h, part in enumerate(heads):
            moved = (W_V[h] & known).any(axis=1)
            if any((which & known).any() for which in _asked(attention_heads, h).values()):
                moved = moved | W_V[h].any(axis=1)
            part.changing = W_O[h][:, moved].any(axis=1)
        known = np.any([known, *(part.changing for part in heads)], axis=0)
        for part in (part for part in parts if part.layer == l and part.head is None):
            assert block.ffn is not None
            moved = ((np.asarray(block.ffn.B) != 0) & known).any(axis=1)
            part.changing = (np.asarray(block.ffn.A) != 0)[:, moved].any(axis=1)
            known = known | part.changing


# -- the role of a head -----------------------------------------------------------------------------------


def role_of(head: Head, layer: Layer) -> tuple[str, int | None]:
    """What the attention of a head looks like, and the lag where it is an offset."""
    match head.position:
        case PeakKernel(lag=lag):
            return "offset", lag
        case TableKernel(logits=logits, beyond=beyond):
            weights = np.exp(np.array([*logits, beyond]) - max(*logits, beyond))
            top = int(np.argmax(weights))
            return ("offset", top + 1) if weights[top] > SHIFTED * weights.sum() else ("table", None)
        case Turns():
            if head.lag is None:
                return "pointer", None
            return ("offset", head.lag) if head.lag else ("sink", None)
        case DecayKernel(p=p) if head.key and layer.normalisation == "softmax":
            return "match", None
        case DecayKernel(p=p):
            weights = np.exp(-p * (np.arange(64.0) if layer.encoding == "lin" else np.log1p(np.arange(64.0))))
            if weights[0] > SHIFTED * weights.sum():
                return "offset", 1
            return f"decay-{layer.encoding}", None
    raise AssertionError(head.position)
