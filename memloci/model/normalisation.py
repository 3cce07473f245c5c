"""From logits to weights, over the visible past.

    visible lags   z = k, 2k, 3k, ... <= w          (stride k, window w; strictly the past, z >= 1)
    softmax        a(t, s) = e^{logit} / sum over the visible s
    infinite       a(t, s) = e^{logit} / Z,   Z = sum over all admitted lags of e^{position part}
    none           a(t, s) = e^{logit}

Under `infinite` the past runs to minus infinity and is blank before the start, so Z is a constant of
the head: 1/(e^p - 1) for lin, zeta(p) for log. A finite window makes it a finite sum, for every encoding.
Every weight is 0 where nothing is visible, in particular at t = 0.

Both sides of a `where` must stay finite, or its gradient is NaN: hidden logits are replaced by 0 before exp.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from memloci.core.arrays import LagPairs, Pairs, Scalar, VisiblePairs
from memloci.core.errors import BadInput
from memloci.core.numbers import literal, number
from memloci.model.architecture import Architecture
from memloci.model.encodings import AbstractEncoding
from memloci.model.paths.base import apart, together

if TYPE_CHECKING:  # scores.py stands below this file
    from memloci.model.scores import AbstractScore


class Past(eqx.Module):
    """Which lags a head may see: the multiples of `stride` up to `window`."""

    window: int | None = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def pairs(self, n: int) -> tuple[LagPairs, VisiblePairs]:
        """The lag of every pair, and if it is visible; hidden ones show the first lag: phi is finite."""
        position = jnp.arange(n, dtype=jnp.int32)
        z = position[:, None] - position[None, :]
        visible = (z >= 1) & (z % self.stride == 0)
        if self.window is not None:
            visible &= z <= self.window
        return jnp.where(visible, z, self.stride), visible

    def sees_any(self, marked: Bool[Array, "n H"]) -> Bool[Array, "n H"]:
        """Which positions see a marked one, in linear time."""
        n = marked.shape[0]
        if n == 0:
            return marked
        before = jnp.cumsum(apart(marked, self.stride), axis=1, dtype=jnp.int32)
        before = jnp.pad(before, [(0, 0), (1, 0), (0, 0)])[:, :-1]  # marks strictly before, per residue
        if self.window is not None and self.window // self.stride < before.shape[1]:
            lags = self.window // self.stride
            before = before - jnp.pad(before, [(0, 0), (lags, 0), (0, 0)])[:, :-lags]
        return together(before > 0, n)

    def admitted(self) -> Int[Array, " J"]:
        """All lags of a finite window."""
        assert self.window is not None
        return self.stride * jnp.arange(1, self.window // self.stride + 1, dtype=jnp.int32)


class AbstractNormalisation(eqx.Module):
    name: ClassVar[str]
    cancels_query: ClassVar[bool] = False  # a term that depends on t alone does not matter
    sums_position: ClassVar[bool] = False  # needs the sum of e^{position part} over the past

    @classmethod
    def refusals(
        cls, architecture: Architecture, score: "type[AbstractScore]", encoding: type[AbstractEncoding]
    ) -> list[str]:
        return []

    def check(self, encoding: AbstractEncoding, past: Past) -> None:
        """Refuse stacked heads whose normaliser does not exist; reads values, so never inside jit."""

    @abstractmethod
    def weights(
        self, content: Pairs, position: Pairs, visible: VisiblePairs, encoding: AbstractEncoding, past: Past
    ) -> Pairs: ...


class Softmax(AbstractNormalisation):
    name = "softmax"
    cancels_query = True

    def weights(
        self, content: Pairs, position: Pairs, visible: VisiblePairs, encoding: AbstractEncoding, past: Past
    ) -> Pairs:
        logits = jnp.where(visible, content + position, -jnp.inf)
        largest = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True, initial=-jnp.inf))
        some = visible.any(axis=1, keepdims=True)
        largest = jnp.where(some, largest, 0.0)
        unnormalised = _exp(content + position - largest, visible)
        return unnormalised / jnp.where(some, unnormalised.sum(axis=1, keepdims=True), 1.0)


class Infinite(AbstractNormalisation):
    name = "infinite"
    sums_position = True

    @classmethod
    def refusals(cls, architecture, score, encoding):
        pair = f"normalisation 'infinite' with encoding {encoding.name!r}"
        if encoding.summable == "never":
            return [f"{pair} has no position part to sum over the past; use softmax or none"]
        if encoding.rotates and score.dot:
            return [
                f"{pair} and attention {score.name!r}: the rotation acts on queries and keys, so there is no "
                "position part to sum; use softmax or none"
            ]
        if encoding.summable == "window" and architecture.window is None:
            return [f"{pair}: the sum over an unlimited past diverges; set window"]
        return []

    def check(self, encoding: AbstractEncoding, past: Past) -> None:
        slope = encoding.slope()
        if past.window is not None or slope is None or encoding.least_slope is None:
            return
        for h, p in enumerate(np.atleast_1d(np.asarray(slope))):
            if not p > encoding.least_slope:
                raise BadInput(
                    f"head {h} has slope p = {number(p, 6)}, but encoding {encoding.name!r} normalised over an "
                    f"infinite past needs p > {literal(encoding.least_slope)}"
                )

    def weights(
        self, content: Pairs, position: Pairs, visible: VisiblePairs, encoding: AbstractEncoding, past: Past
    ) -> Pairs:
        if past.window is None:
            anchor, total = unlimited_past(encoding, past, content.dtype)
        else:
            # The logits are taken from the table that is summed. At the peak, logit and anchor are then the
            # same number, and a sharp head weighs it 1 up to two roundings, however large the logits are.
            table = encoding.position(past.admitted(), content.dtype)
            anchor = jax.lax.stop_gradient(table.max())
            total = jnp.exp(table - anchor).sum()
            z, _ = past.pairs(content.shape[0])
            position = table[z // past.stride - 1]
        return _exp(content + (position - anchor), visible) / total


class Unnormalised(AbstractNormalisation):
    name = "none"

    def weights(
        self, content: Pairs, position: Pairs, visible: VisiblePairs, encoding: AbstractEncoding, past: Past
    ) -> Pairs:
        return _exp(content + position, visible)


NORMALISATIONS: dict[str, type[AbstractNormalisation]] = {
    normalisation.name: normalisation for normalisation in (Softmax, Infinite, Unnormalised)
}


def unlimited_past(encoding: AbstractEncoding, past: Past, dtype: np.dtype) -> tuple[Scalar, Scalar]:
    """(anchor, total) with Z = e^anchor total over an unlimited past; e^anchor alone may over- or underflow."""
    p, least = encoding.slope(), encoding.least_slope
    assert p is not None and least is not None
    anchor = encoding.position(jnp.asarray(past.stride, jnp.int32), dtype)
    # Where the sum diverges there are no weights: NaN says so at once, and `check` says which head.
    return anchor, jnp.where(p > least, encoding.infinite_sum(past.stride), jnp.nan)


def _exp(logits: Pairs, visible: VisiblePairs) -> Pairs:
    return jnp.where(visible, jnp.exp(jnp.where(visible, logits, 0.0)), 0.0)
