"""III. Essential memory: y_t = f((X * rho_1)(t), ..., (X * rho_M)(t)), kernels over the past.

    (X * rho)(t) = sum_{z >= 1} rho(z) x_{t-z},   the past before the start being 0

A kernel must be absolutely summable; expressions are shown to be so (expressions/tails.py), callables
come with a declared majorant.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from memloci.errors import BadInput
from memloci.expressions.domain import Domain
from memloci.expressions.formula import Formula, make_formula
from memloci.expressions.interval import Interval
from memloci.expressions.tails import Majorant, majorant
from memloci.specs import shorten
from memloci.tasks.base import Task
from memloci.tasks.channel import Many

NORM_LAGS = 4_096  # lags summed one by one for a norm; the rest by the majorant
BLOCK = 256  # rows of the convolution held at once


def _kernel(value: Any) -> Any:
    if isinstance(value, str) or callable(value):
        return value
    raise BadInput(f"a kernel is an expression in z, in quotes, or a callable; found {shorten(value)}")


Kernel = Annotated[str | Callable[..., Any], BeforeValidator(_kernel)]


class Essential(Task):
    """`ml.Essential(kernels=["z ** -2"], readout="x1")`."""

    kernels: Many[Kernel]
    # For callables: expressions with |rho_i(z)| <= majorants[i](z) at every lag, taken on trust.
    majorants: Many[str] | None = None

    if TYPE_CHECKING:  # lists, one readout, dictionaries for channels: wider than the fields they become

        def __init__(self, **fields: Any): ...

    @property
    def M(self) -> int:
        return len(self.kernels)

    @property
    def lag_bounds(self) -> tuple[int | float, ...]:
        return (math.inf,) * self.M

    @property
    def domains(self) -> dict[str, Domain]:
        now = {f"{channel.name}0": channel.domain for channel in self.channels}
        past = {
            f"{channel.name}{i}": (Interval(-norm * channel.magnitude, norm * channel.magnitude),)
            for i, norm in enumerate(self.kernel_norms, start=1)
            for channel in self.channels
        }
        return now | past

    @cached_property
    def rho(self) -> tuple[Formula, ...]:
        """The kernels as formulas in z."""
        return tuple(self._formula(k) for k in range(self.M))

    @cached_property
    def tails(self) -> tuple[Majorant, ...]:
        """For each kernel, a summable majorant."""
        bounds = [
            self.majorants[k] if formula.expression is None and self.majorants else formula.source
            for k, formula in enumerate(self.rho)
        ]
        found = []
        for k, (source, formula) in enumerate(zip(bounds, self.rho, strict=True)):
            try:
                expression = make_formula(source, {"z"}).expression
                if expression is None:
                    raise BadInput(f"nothing can be proved of the callable {formula}; declare majorants")
                found.append(majorant(expression))
            except BadInput as error:
                raise error.within(f"kernels[{k}]") from None
        return tuple(found)

    @cached_property
    def kernel_norms(self) -> tuple[float, ...]:
        """For each kernel, sum_z |rho(z)| from above, up to the rounding of a float64 sum."""
        norms = []
        for formula, tail in zip(self.rho, self.tails, strict=True):
            n = max(NORM_LAGS, tail.start)
            norms.append((math.fsum(abs(_at_lags(formula, n))) + tail.sum_beyond(n)) * (1 + 1e-12))
        return tuple(norms)

    def _formula(self, k: int) -> Formula:
        try:
            return make_formula(self.kernels[k], {"z"})
        except BadInput as error:
            raise error.within(f"kernels[{k}]") from None

    def _check_memories(self) -> None:
        import numpy as np

        if self.majorants is not None and len(self.majorants) != self.M:
            raise BadInput(
                f"majorants: needs one for each of the {self.M} kernels, found {len(self.majorants)}"
            )
        for k, (formula, tail) in enumerate(zip(self.rho, self.tails, strict=True)):
            n = max(NORM_LAGS, tail.start)
            values = _at_lags(formula, n)
            bad = ~np.isfinite(values)
            if bad.any():
                z = int(np.nonzero(bad)[0][0]) + 1
                raise BadInput(f"kernels[{k}]: {formula} has no finite value at lag z = {z}")
            if not math.isfinite(self.kernel_norms[k]):
                raise BadInput(f"kernels[{k}]: the sum of |{formula}| over all lags exceeds float64")
            if self.majorants is not None and formula.expression is None:
                above = abs(values) > _at_lags(make_formula(self.majorants[k], {"z"}), n)
                if above.any():
                    z = int(np.nonzero(above)[0][0]) + 1
                    raise BadInput(f"majorants[{k}]: {self.majorants[k]} is below the kernel at lag z = {z}")

    def recall(self, X: Any, xp: Any) -> list[Any]:
        import jax

        n, d = X.shape
        if n == 0:
            return [X] * self.M
        t = xp.arange(n)
        rows = -(-n // BLOCK) * BLOCK
        memories = []
        for formula in self.rho:
            kernel = xp.asarray(_at_lags(formula, n), dtype=X.dtype)  # z ** 20 would overflow float32

            def past(block: Any, kernel: Any = kernel) -> Any:
                lag = block[:, None] - t[None, :]  # (rows, s)
                weights = xp.where(lag >= 1, kernel[xp.clip(lag - 1, 0, n - 1)], xp.zeros((), X.dtype))
                return weights @ X

            if n <= BLOCK:
                memories.append(past(t))
                continue
            # Blocks of rows: the definition, term by term, in memory linear in the length.
            blocks = jax.lax.map(past, xp.arange(rows).reshape(-1, BLOCK))
            memories.append(blocks.reshape(rows, d)[:n])
        return memories


def _at_lags(formula: Formula, n: int) -> Any:
    """rho(1), ..., rho(n) in float64; NaN where it has no value."""
    import numpy as np

    z = np.arange(1.0, n + 1.0)
    try:
        with np.errstate(all="ignore"):
            return np.broadcast_to(np.asarray(formula({"z": z}, np), dtype=float), z.shape)
    except Exception as error:
        problem = f"{type(error).__name__}: {shorten(str(error))}"
        raise BadInput(f"the kernel {formula} cannot be computed on an array of lags ({problem})") from None
