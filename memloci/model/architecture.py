"""The architecture: sizes and switches, checked once.

    L layers, H heads of key width d_k and value width d_v, FFN width m, residual width D,
    and a head = attention (score) x encoding x normalisation over the lags z = k, 2k, ... <= w

Here k is `stride` and w is `window`. Some triples make no sense (under softmax the query term of tmx
cancels; some normalisers diverge). Each part knows what it cannot be paired with, and all reasons are told at
once. JAX is first needed to check the names, so it is imported then, not with this file.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from memloci.specs import Spec, shorten

# Tuned: far above any use on one machine, far below what would exhaust its memory.
MAX_PARAMETERS = 2**28
MAX_LAG = 2**20  # a finite window is summed lag by lag


class Architecture(Spec):
    """What `Transformer` builds; `width=0` means no FFN, `window=None` an unlimited past."""

    layers: Annotated[int, Field(ge=1, le=256)]
    heads: Annotated[int, Field(ge=1, le=4096)]
    width: Annotated[int, Field(ge=0, le=2**22)]
    attention: str = "dp"
    encoding: str = "lin"
    normalisation: str = "softmax"
    norm: Literal["none", "pre", "post", "rms"] = "none"
    dim: Annotated[int, Field(ge=1, le=2**16)] = 64
    key_dim: Annotated[int, Field(ge=1, le=2**13)] = 16
    value_dim: Annotated[int, Field(ge=1, le=2**13)] = 16
    window: Annotated[int, Field(ge=1, le=MAX_LAG)] | None = None
    stride: Annotated[int, Field(ge=1, le=MAX_LAG)] = 1
    precision: Literal["float32", "float64"] = "float32"
    buckets: Annotated[int, Field(ge=4, le=4096)] = 32  # t5
    max_distance: Annotated[int, Field(ge=4, le=MAX_LAG)] = 128  # t5: the last bucket starts beyond it
    rope_base: Annotated[float, Field(ge=1.0, le=1e9)] = 10000.0  # rope and sin
    max_length: Annotated[int, Field(ge=1, le=MAX_LAG)] = 1024  # learned: positions in the table
    path: str = "auto"  # how it is evaluated: a name of memloci/fast/choice.py

    @model_validator(mode="after")
    def _possible(self) -> "Architecture":
        reasons = [*self._too_large(), *self._impossible()]
        if reasons:
            raise ValueError("; ".join(reasons))
        return self

    def _too_large(self) -> Iterable[str]:
        if (count := self.parameter_limit()) > MAX_PARAMETERS:
            yield f"about {count:,} parameters, at most {MAX_PARAMETERS:,} are allowed; make it smaller"

    def _impossible(self) -> Iterable[str]:
        from memloci.fast.choice import AUTOMATIC, PATHS
        from memloci.model.encodings import ENCODINGS
        from memloci.model.normalisation import NORMALISATIONS
        from memloci.model.scores import SCORES

        switches = {"attention": SCORES, "encoding": ENCODINGS, "normalisation": NORMALISATIONS}
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

    def parameter_limit(self) -> int:
        """An upper limit on the parameters of every pairing of these sizes, embedding and readout aside.

        `Transformer.parameter_count` is the exact number.
        """
        D, m = self.dim, self.width
        head = 2 * D * (self.key_dim + self.value_dim) + D + 2 * self.key_dim + self.buckets
        layer = self.heads * head + m * (2 * D + 1) + 4 * D
        return self.layers * layer + 2 * D + self.max_length * D
