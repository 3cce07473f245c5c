"""The architecture: sizes and switches, checked once.

    L layers, H heads of key width d_k and value width d_v, FFN width m, residual width D,
    and a head = attention (score) x encoding x normalisation over the lags z = k, 2k, ... <= w

Here k is `stride` and w is `window`. Layers are alike, unless `blocks` gives each its own switches. Some triples make no sense (under softmax the query term of tmx
cancels; some normalisers diverge). Each part knows what it cannot be paired with, and all reasons are told at
once. JAX is first needed to check the names, so it is imported then, not with this file.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from memloci.core.errors import BadInput
from memloci.core.precision import DEFAULT, EVALUATED
from memloci.core.specs import Spec, shorten

# Tuned: far above any use on one machine, far below what would exhaust its memory.
MAX_PARAMETERS = 2**28
MAX_LAG = 2**20  # a finite window is summed lag by lag


Heads = Annotated[int, Field(ge=1, le=4096)]
Width = Annotated[int, Field(ge=0, le=2**22)]
HeadDim = Annotated[int, Field(ge=1, le=2**13)]
Window = Annotated[int, Field(ge=1, le=MAX_LAG)]
Buckets = Annotated[int, Field(ge=4, le=4096)]
Distance = Annotated[int, Field(ge=4, le=MAX_LAG)]


class LayerSwitches(Spec):
    """The switches that a layer may have of its own."""

    heads: Heads
    width: Width
    attention: str
    encoding: str
    normalisation: str
    key_dim: HeadDim = 1
    value_dim: HeadDim = 1
    window: Window | None = None
    stride: Window = 1
    buckets: Buckets = 32
    max_distance: Distance = 128


class Architecture(Spec):
    """What `Transformer` builds; `width=0` means no FFN, `window=None` an unlimited past."""

    layers: Annotated[int, Field(ge=1, le=256)]
    heads: Heads
    width: Width
    attention: str = "dp"
    encoding: str = "lin"
    normalisation: str = "softmax"
    norm: Literal["none", "pre", "post", "rms"] = "none"
    dim: Annotated[int, Field(ge=1, le=2**16)] = 64
    key_dim: HeadDim = 16
    value_dim: HeadDim = 16
    window: Window | None = None
    stride: Window = 1
    precision: str = DEFAULT
    buckets: Buckets = 32  # t5
    max_distance: Distance = 128  # t5: the last bucket starts beyond it
    rope_base: Annotated[float, Field(ge=1.0, le=1e9)] = 10000.0  # rope and sin
    max_length: Annotated[int, Field(ge=1, le=MAX_LAG)] = 1024  # learned: positions in the table
    path: str = "auto"  # how it is evaluated: a name of memloci/model/paths/choice.py
    # Each layer's own switches, in place of those above, which then say what the first layer has.
    blocks: tuple[LayerSwitches, ...] | None = None

    @field_validator("blocks", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if not isinstance(value, list | tuple):
            return value
        return tuple(LayerSwitches(**each) if isinstance(each, dict) else each for each in value)

    @model_validator(mode="after")
    def _possible(self) -> "Architecture":
        if self.blocks is not None:
            if len(self.blocks) != self.layers:
                raise ValueError(f"blocks: {len(self.blocks)} of them for {self.layers} layers")
            for l in range(self.layers):
                self.block(l)  # refuses what cannot be paired in that layer
        reasons = [*self._too_large(), *self._impossible()]
        if reasons:
            raise ValueError("; ".join(reasons))
        return self

    def _too_large(self) -> Iterable[str]:
        if (count := self.parameter_limit()) > MAX_PARAMETERS:
            yield f"about {count:,} parameters, at most {MAX_PARAMETERS:,} are allowed; make it smaller"

    def _impossible(self) -> Iterable[str]:
        from memloci.model.encodings import ENCODINGS
        from memloci.model.normalisation import NORMALISATIONS
        from memloci.model.paths.choice import AUTOMATIC, PATHS
        from memloci.model.scores import SCORES

        switches = {"attention": SCORES, "encoding": ENCODINGS, "normalisation": NORMALISATIONS}
        switches["precision"] = dict.fromkeys(EVALUATED)
        switches["path"] = dict.fromkeys((*AUTOMATIC, *PATHS))
        unknown = [name for name, kinds in switches.items() if getattr(self, name) not in kinds]
        for name in unknown:
            known = ", ".join(switches[name])
            yield f"{name}: unknown {shorten(getattr(self, name))}, use one of {known}"
        if self.window is not None and self.window < self.stride:
            yield f"window {self.window} is shorter than stride {self.stride}, so no lag is visible"
        if not unknown:
            score, encoding = SCORES[self.attention], ENCODINGS[self.encoding]
            normalisation = NORMALISATIONS[self.normalisation]
            yield from encoding.refusals(self)
            yield from score.refusals(encoding, normalisation)
            yield from normalisation.refusals(self, score, encoding)
            if self.path in PATHS and (reason := PATHS[self.path].refusal(self)):
                yield reason

    def block(self, l: int) -> "Architecture":
        """Layer l as an architecture of one layer."""
        if self.blocks is None:
            return self
        return self._blocks[l]

    @cached_property
    def _blocks(self) -> tuple["Architecture", ...]:
        shared = {**self.to_dict(), "layers": 1}
        shared.pop("blocks", None)
        blocks = []
        for l, block in enumerate(self.blocks or ()):
            try:
                blocks.append(Architecture(**{**shared, **block.model_dump()}))
            except BadInput as error:
                raise error.within(f"blocks[{l}]") from None
        return tuple(blocks)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; without `blocks` where the layers are alike."""
        data = self.model_dump(mode="json")
        if self.blocks is None:
            del data["blocks"]
        return data

    def parameter_limit(self) -> int:
        """An upper limit on the parameters of every pairing of these sizes, embedding and readout aside.

        `Transformer.parameter_count` is the exact number.
        """
        if self.blocks is not None:
            return sum(self.block(l).parameter_limit() for l in range(self.layers))
        D, m = self.dim, self.width
        head = 2 * D * (self.key_dim + self.value_dim) + D + 2 * self.key_dim + self.buckets
        layer = self.heads * head + m * (2 * D + 1) + 4 * D
        return self.layers * layer + 2 * D + self.max_length * D
