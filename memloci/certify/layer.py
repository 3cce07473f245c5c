"""One layer of a model, followed: what its heads find in each case, and what its neurons add.

Which heads can be followed is an allow-list (`read_heads`): fixed kernels, rotary softmax heads, softmax heads that
compare content, and heads without normalisation whose query scales a kernel. Whatever else a layer has is refused, with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from memloci.certify.affine_forms import (
    FAINT,
    MOST_LIFTED,
    AffineForms,
    add,
    errors_as_unknowns,
    linear,
    relu,
    room_for,
    unknowns_as_errors,
    widened,
)
from memloci.certify.fixed_kernels import FixedKernelHeads
from memloci.certify.match_heads import MatchHeads
from memloci.certify.position_forms import PositionForms
from memloci.certify.rotary_heads import RotaryHeads
from memloci.certify.rounding import Format, dot, gamma, roundings, times
from memloci.certify.unnormalised import UnnormalisedHeads
from memloci.core.errors import BadInput
from memloci.model.transformer import Block

MOST_UNKNOWNS = 24


class LayerHeads(Protocol):
    """The attention of one layer."""

    @property
    def W_V(self) -> np.ndarray: ...  # (H, d_v, D)

    @property
    def W_O(self) -> np.ndarray: ...  # (H, D, d_v)

    def streams(self, precision: Format) -> bool:
        """Whether what is proved holds for model.stream() too."""
        ...

    def attend(
        self, X: AffineForms, past: PositionForms, shape: tuple[int, int], precision: Format, stored: bool
    ) -> AffineForms:
        """X + Attn(X) at the position of each case; `shape` = (M + 1, d)."""
        ...

    def at_any_position(self, past: PositionForms, precision: Format, stored: bool) -> PositionForms:
        """X + Attn(X) at a position of which nothing is known."""
        ...


def read_heads(block: Block, paths: Mapping[str, int]) -> LayerHeads:
    """The heads of a layer; `paths` that it may take, and the longest sequence on each (model/paths/choice.py)."""
    heads = block.attention.heads
    score, encoding, normalisation = heads.score.name, heads.encoding.name, heads.normalisation.name
    if (score, normalisation) == ("dpf", "infinite"):
        return FixedKernelHeads.of(block.attention, paths)
    if (score, encoding, normalisation) == ("dp", "rope", "softmax"):
        return RotaryHeads.of(heads)
    if (score, encoding, normalisation) == ("dp", "lin", "softmax"):
        return MatchHeads.of(heads)
    if encoding in ("lin", "log") and normalisation == "none" and score in ("dp", "tmx"):
        return UnnormalisedHeads.of(heads, paths)
    raise BadInput(
        f"no certificate follows attention {score!r} with encoding {encoding!r} under normalisation {normalisation!r}; "
        "they follow 'dpf' under 'infinite', 'dp' with 'rope' or 'lin' under 'softmax', and 'dp' or 'tmx' with 'lin' or 'log' "
        "under 'none'"
    )


@dataclass
class Extent:
    """How large the values, queries and keys of a layer become: every position is the query of some case."""

    query: float = 0.0
    key: float = 0.0

    def include(self, heads: LayerHeads, X: AffineForms, precision: Format) -> None:
        most = X.size.max(axis=0)
        precision.expect(np.abs(heads.W_V) @ most)  # of every head, also of one that writes nothing
        for name in ("query", "key"):
            W = getattr(heads, {"query": "W_Q", "key": "W_K"}[name], None)
            if W is not None:
                setattr(self, name, max(getattr(self, name), float((np.abs(W) @ most).sum(axis=1).max())))
                precision.expect(np.abs(W) @ most)

    @property
    def logit(self) -> float:
        return 2 * self.query * self.key


@dataclass(frozen=True)
class LayerNeurons:
    """The FFN of a layer, in float64."""

    B: np.ndarray
    c: np.ndarray
    A: np.ndarray
    asleep: tuple[np.ndarray, np.ndarray]  # B and c of neurons that write nothing, unless they overflow

    @classmethod
    def of(cls, block: Block) -> "LayerNeurons":
        D, ffn = block.attention.heads.W_V.shape[-1], block.ffn
        if ffn is None:
            empty = np.zeros((0, D)), np.zeros(0)
            return cls(*empty, np.zeros((D, 0)), empty)
        B, c, A = (np.asarray(array, dtype=float) for array in (ffn.B, ffn.c, ffn.A))
        awake = (A != 0).any(axis=0)
        asleep = ~awake & ((B != 0).any(axis=1) | (c != 0))
        return cls(B[awake], c[awake], A[:, awake], (B[asleep], c[asleep]))

    def expect_asleep(self, size: np.ndarray, precision: Format) -> None:
        if len(self.asleep[1]):
            precision.expect(size @ np.abs(self.asleep[0]).T + np.abs(self.asleep[1]))

    def __call__(self, X: AffineForms, precision: Format, stored: bool) -> AffineForms:
        """X + FFN(X) at the position of each case."""
        self.expect_asleep(X.size, precision)
        if not len(self.c):
            return X
        # The error of a coordinate reaches several neurons at once, and a staircase cancels it: while they
        # are computed it is an unknown like the others.
        largest = np.where(np.isfinite(X.E), X.E, 0.0).max(axis=0, initial=0.0)
        # Underflow alone does not matter where it cancels; as unknowns such errors would cost more.
        readers = (self.B != 0).sum(axis=0) * np.where(largest > FAINT, largest, 0.0)
        # Where neurons write on what is there, as in a rotated stream, errors would spread over all of it.
        mixed = (self.A.any(axis=1) & X.nonzero.any(axis=0)).any() and room_for(X, len(self.c))
        most = MOST_LIFTED if mixed else MOST_UNKNOWNS
        read = np.argsort(-readers, kind="stable")[: min(most, np.count_nonzero(readers))]
        lifted = errors_as_unknowns(X, read)
        active = relu(linear(self.B, lifted, precision, self.c, stored))
        if mixed and np.isfinite(active.E).all():
            active = errors_as_unknowns(
                active, np.argsort(-active.E.max(axis=0), kind="stable")[:MOST_LIFTED]
            )
            added = linear(self.A, active, precision, stored=stored)
            return add(widened(lifted, added.cases), added, precision)
        added = linear(self.A, active, precision, stored=stored)
        return unknowns_as_errors(add(lifted, added, precision), X.cases)

    def at_any_position(self, X: PositionForms, precision: Format) -> PositionForms:
        """X + FFN(X) at any position: what neurons add there is only bounded."""
        self.expect_asleep(X.size[None, :], precision)
        if not len(self.c):
            return X
        most = X.relu_sizes(self.B, self.c, precision)
        reach = dot(np.abs(self.A), most)
        rounded = times(gamma(roundings(self.A) + 1, precision.u), reach)
        joined = precision.u * (X.size + reach + rounded)
        error = np.where(reach > 0, rounded + joined, 0.0)
        return X.with_unknowns(self.A, most).worse(error, at_first=True)


@dataclass(frozen=True)
class LayerWeights:
    heads: LayerHeads
    neurons: LayerNeurons

    @classmethod
    def read(cls, block: Block, l: int, paths: Mapping[str, int]) -> "LayerWeights":
        try:
            block.attention.check()
            return cls(read_heads(block, paths), LayerNeurons.of(block))
        except BadInput as error:
            raise error.within(f"layer {l}") from None
