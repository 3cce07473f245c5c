"""The precisions: what each holds, and in which a model can be evaluated. Everything that asks, asks here.

| precision | bits | u | least | most |
|---|---|---|---|---|
| float64 | 53 | 2^-53 | 2^-1022 | 2^1024 |
| float32 | 24 | 2^-24 | 2^-126 | 2^128 |
| float16 | 11 | 2^-11 | 2^-14 | 65,504 |
| bfloat16 | 8 | 2^-8 | 2^-126 | 2^128 |

To add one, add a row; NumPy and JAX must know its name if models are to run in it.
"""

from dataclasses import dataclass

from memloci.core.errors import BadInput


@dataclass(frozen=True)
class Precision:
    """A binary floating-point format, rounded to nearest."""

    name: str
    bits: int  # of the significand, the leading one included
    least: float  # the smallest normal number: what is below may be taken for 0
    most: float  # what is above is infinite
    evaluates: bool  # models run in it

    @property
    def u(self) -> float:
        """The unit roundoff."""
        return 2.0**-self.bits

    @property
    def sharp(self) -> float:
        """A gap between logits, e^-gap of which is far below u: 16 for float32, 32 for float64. Tuned, no proof uses it."""
        return 16.0 if self.bits <= 24 else 32.0


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float64", 53, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023, True),
        Precision("float32", 24, 2.0**-126, (2 - 2.0**-23) * 2.0**127, True),
        Precision("float16", 11, 2.0**-14, 65504.0, True),
        Precision("bfloat16", 8, 2.0**-126, (2 - 2.0**-7) * 2.0**127, False),
    )
}
EVALUATED = tuple(name for name, precision in PRECISIONS.items() if precision.evaluates)
DEFAULT = "float32"


def precision_of(name: object) -> Precision:
    """The precision of that name, or a refusal."""
    if isinstance(name, str) and name in PRECISIONS:
        return PRECISIONS[name]
    from memloci.core.specs import shorten

    raise BadInput(f"precision {shorten(name)} is unknown; use {', '.join(PRECISIONS)}")


def evaluated(name: object) -> Precision:
    """A precision in which models run."""
    precision = precision_of(name)
    if not precision.evaluates:
        raise BadInput(f"precision {precision.name!r}: models are built in {' or '.join(EVALUATED)}")
    return precision
