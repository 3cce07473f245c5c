"""One layer of a model, followed: what its heads find in each case, and what its neurons add.

Which heads can be followed is an allow-list (`read_heads`): fixed kernels, rotary softmax heads, softmax heads that
compare content, and heads without normalisation whose query scales a kernel. Whatever else a layer has is refused, with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from memloci.certify.affine_forms import FAINT, AffineForms, add, linear, relu
from memloci.certify.cases import Cases
from memloci.certify.fixed_kernels import FixedKernelHeads
from memloci.certify.match_heads import MatchHeads
from memloci.certify.position_forms import PositionForms
from memloci.certify.rotary_heads import RotaryHeads
from memloci.certify.rounding import Format
from memloci.certify.slacks import SUMMED
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

    def everywhere(self, past: PositionForms, precision: Format, stored: bool) -> PositionForms:
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

    def see(self, heads: LayerHeads, X: AffineForms, precision: Format) -> None:
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
class Neurons:
    """The FFN of a layer, in float64."""

    B: np.ndarray
    c: np.ndarray
    A: np.ndarray
    asleep: tuple[np.ndarray, np.ndarray]  # B and c of neurons that write nothing, unless they overflow

    @classmethod
    def of(cls, block: Block) -> "Neurons":
        D, ffn = block.attention.heads.W_V.shape[-1], block.ffn
        if ffn is None:
            nothing = np.zeros((0, D)), np.zeros(0)
            return cls(*nothing, np.zeros((D, 0)), nothing)
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
        read = np.argsort(-readers, kind="stable")[: min(MOST_UNKNOWNS, np.count_nonzero(readers))]
        lifted = _errors_as_unknowns(X, read)
        argument = linear(self.B, lifted, precision, self.c, stored)
        added = linear(self.A, relu(argument), precision, stored=stored)
        return _unknowns_as_errors(add(lifted, added, precision), X.cases)

    def everywhere(self, X: PositionForms, precision: Format) -> PositionForms:
        """X + FFN(X) at any position: what neurons add there is only bounded."""
        self.expect_asleep(X.size[None, :], precision)
        if not len(self.c):
            return X
        added = X.relu_added(self.B, self.c, self.A, precision)
        added = np.where(added > 0, added + precision.u * (X.size + added), 0.0)
        return X.worse(added, at_first=True)


@dataclass(frozen=True)
class Layer:
    heads: LayerHeads
    neurons: Neurons

    @classmethod
    def read(cls, block: Block, l: int, paths: Mapping[str, int]) -> "Layer":
        try:
            block.attention.check()
            return cls(read_heads(block, paths), Neurons.of(block))
        except BadInput as error:
            raise error.within(f"layer {l}") from None


def _errors_as_unknowns(X: AffineForms, which: np.ndarray) -> AffineForms:
    """The errors of some coordinates as unknowns of their own."""
    n, D, k = *X.const.shape, len(which)
    coef, E = np.zeros((n, D, k)), X.E.copy()
    coef[:, which, np.arange(k)] = 1.0
    radius = np.where(np.isfinite(E[:, which]), E[:, which], 0.0)
    E[:, which] -= radius
    centre = np.concatenate([X.cases.centre, np.zeros((n, k))], axis=1)
    cases = replace(X.cases, centre=centre, radius=np.concatenate([X.cases.radius, radius], axis=1))
    return AffineForms(cases, X.const, np.concatenate([X.coef, coef], axis=2), E)


def _unknowns_as_errors(X: AffineForms, cases: Cases) -> AffineForms:
    """The unknowns beyond those of `cases` as errors again."""
    A = cases.centre.shape[1]
    back = np.einsum("nda,na->nd", np.abs(X.coef[:, :, A:]), X.cases.radius[:, A:])
    return AffineForms(cases, X.const, X.coef[:, :, :A], X.E + back * SUMMED)
