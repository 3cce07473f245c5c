"""III. A kernel over the past: every channel summed with weights that depend on the lag alone.

    (X * rho)(t) = sum_{z >= 1} rho(z) x_{t-z},   the past before the start being 0

A kernel must be absolutely summable, or end at a `horizon`. Expressions are shown to be summable (language/tails.py),
callables come with a declared majorant.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from memloci.core.balls import above
from memloci.core.errors import BadInput
from memloci.core.intervals import Interval, Undefined
from memloci.core.specs import shorten
from memloci.language.balls import value_at
from memloci.language.domain import Domain
from memloci.language.evaluate import doubtful, enclose_boxes, jumps
from memloci.language.expression import Expression
from memloci.language.formula import Formula, make_formula
from memloci.language.tails import MAX_START, Majorant, majorant
from memloci.tasks.channel import Channel
from memloci.tasks.memories.base import Memory, Recall, Scope

NORM_LAGS = 4_096  # lags summed one by one for a norm; the rest by the majorant
BLOCK = 256  # rows of the convolution held at once


def _kernel(value: Any) -> Any:
    if isinstance(value, str) or callable(value):
        return value
    raise BadInput(f"a kernel is an expression in z, in quotes, or a callable; found {shorten(value)}")


def _horizon(value: Any) -> Any:
    try:
        last = operator.index(value)
    except TypeError:
        last = 0
    if isinstance(value, bool) or not 1 <= last <= MAX_START:
        raise BadInput(f"a horizon is a whole number from 1 to {MAX_START:,}, found {shorten(value)}")
    return last


def _majorant(value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise BadInput(f"a majorant is an expression in z, in quotes; found {shorten(value)}")


class Kernel(Memory):
    """`ml.Kernel("z ** -2")`, or `{ kernel = "z ** -0.5", horizon = 1000 }` in a task file."""

    key = "kernel"
    kernel: Annotated[str | Callable[..., Any], BeforeValidator(_kernel)]
    # The last lag; beyond it the kernel is 0.
    horizon: Annotated[int, BeforeValidator(_horizon)] | None = None
    # For a callable: |rho(z)| <= majorant(z) at every lag, taken on trust.
    majorant: Annotated[str, BeforeValidator(_majorant)] | None = None

    if TYPE_CHECKING:  # the first argument may stand alone

        def __init__(self, *first: Any, **fields: Any): ...

    def prepare(self, scope: Scope) -> "Convolution":
        if isinstance(self.kernel, str):
            return _prepared(self.kernel, self.horizon, self.majorant)
        return self._prepare()

    def _prepare(self) -> "Convolution":
        rho = make_formula(self.kernel, {"z"})
        recall = Convolution(rho, self._tail(rho), self.horizon)
        self._check(recall)
        return recall

    def _tail(self, rho: Formula) -> Majorant:
        if self.horizon is not None:
            return Majorant((), self.horizon + 1)
        if rho.expression is not None:
            return majorant(rho.expression)
        if self.majorant is None:
            raise BadInput(
                f"nothing can be proved of the callable {rho}; declare a majorant, or end it at a horizon"
            )
        declared = self._declared().expression
        assert declared is not None
        try:
            return majorant(declared)
        except BadInput as error:
            raise error.within("majorant") from None

    def _declared(self) -> Formula:
        try:
            return make_formula(self.majorant, {"z"})
        except BadInput as error:
            raise error.within("majorant") from None

    def _check(self, convolution: "Convolution") -> None:
        import numpy as np

        n = convolution.horizon or max(NORM_LAGS, convolution.tail.start)
        values = convolution.at_lags(n)
        bad = ~np.isfinite(values)
        if bad.any():
            z = int(np.nonzero(bad)[0][0]) + 1
            raise BadInput(f"{convolution.rho} has no finite value at lag z = {z}")
        if not math.isfinite(convolution.norm):
            raise BadInput(f"the sum of |{convolution.rho}| over all lags exceeds float64")
        if self.majorant is not None and convolution.rho.expression is None:
            bound = self._declared()
            below = ~(abs(values) <= _at_lags(bound, n))  # nor is it above where it has no value
            if below.any():
                z = int(np.nonzero(below)[0][0]) + 1
                raise BadInput(f"majorant: {bound} is below the kernel at lag z = {z}")


@dataclass(frozen=True, eq=False)
class Convolution(Recall):
    """A kernel in its task."""

    rho: Formula
    tail: Majorant
    horizon: int | None = None
    reads = ()
    cells = ()

    @property
    def kernel(self) -> bool:
        return True

    @property
    def formulas(self) -> tuple[Formula, ...]:
        return (self.rho,)

    @property
    def bound(self) -> int | float:
        return math.inf if self.horizon is None else self.horizon

    @property
    def text(self) -> str:
        return self.rho.text + ("" if self.horizon is None else f" up to lag {self.horizon:,}")

    def values_of(self, channel: Channel) -> Domain:
        reach = self.norm * channel.magnitude
        return (Interval(-reach, reach),)

    @cached_property
    def norm(self) -> float:
        """At least sum_z |rho(z)|; of a callable, up to the rounding of its values."""
        n = self.horizon or max(NORM_LAGS, self.tail.start)
        f = self.rho.expression
        try:
            total = math.fsum(abs(self.at_lags(n)) if f is None else _sizes(f, n))
        except OverflowError:
            return math.inf
        return (total + self.tail.sum_beyond(n)) * (1 + 1e-12)

    def at_lags(self, n: int) -> Any:
        """rho(1), ..., rho(n) in float64; NaN where it has no value."""
        import numpy as np

        m = n if self.horizon is None else min(n, self.horizon)
        return np.concatenate([_at_lags(self.rho, m), np.zeros(n - m)])

    def recall(self, values: dict[str, Any], blank: list[Any], X: Any, xp: Any) -> tuple[Any, Any]:
        import jax

        n, d = X.shape
        never = xp.zeros((n,), dtype=bool)
        if n == 0:
            return X, never
        t = xp.arange(n)
        kernel = xp.asarray(self.at_lags(n), dtype=X.dtype)  # z ** 20 would overflow float32

        def past(block: Any) -> Any:
            lag = block[:, None] - t[None, :]  # (rows, s)
            weights = xp.where(lag >= 1, kernel[xp.clip(lag - 1, 0, n - 1)], xp.zeros((), X.dtype))
            return weights @ X

        if n <= BLOCK:
            return past(t), never
        # Blocks of rows: the definition, term by term, in memory linear in the length.
        rows = -(-n // BLOCK) * BLOCK
        blocks = jax.lax.map(past, xp.arange(rows).reshape(-1, BLOCK))
        return blocks.reshape(rows, d)[:n], never


@lru_cache(maxsize=256)
def _prepared(kernel: str, horizon: int | None, majorant: str | None) -> Convolution:
    """Of an expression, which is the same in every task: sweeps and studies make hundreds of tasks from one kernel."""
    return Kernel(kernel, horizon=horizon, majorant=majorant)._prepare()


def _sizes(f: Expression, n: int) -> Any:
    """At least |f(z)| at z = 1, ..., n: by intervals, and by balls where these do not know."""
    import numpy as np

    z = np.arange(1.0, n + 1.0)
    sizes = np.broadcast_to(enclose_boxes(f, {"z": Interval(z, z)}).magnitude, z.shape).copy()
    unsure = doubtful(f, {"z": z}) if jumps(f) else np.flatnonzero(~np.isfinite(sizes))
    for k in unsure.tolist():
        try:
            sizes[k] = above(abs(value_at(f, {"z": float(z[k])})))
        except Undefined:
            sizes[k] = math.inf
    return sizes


def _at_lags(formula: Formula, n: int) -> Any:
    """The values at z = 1, ..., n in float64. Where a sum cancels or a jump is near, balls decide."""
    import numpy as np

    z = np.arange(1.0, n + 1.0)
    try:
        with np.errstate(all="ignore"):
            values = np.broadcast_to(np.asarray(formula({"z": z}, np), dtype=float), z.shape)
    except Exception as error:
        problem = f"{type(error).__name__}: {shorten(str(error))}"
        raise BadInput(f"the kernel {formula} cannot be computed on an array of lags ({problem})") from None
    if formula.expression is None:
        return values
    values = values.copy()
    for k in doubtful(formula.expression, {"z": z}).tolist():
        try:
            values[k] = float(value_at(formula.expression, {"z": float(z[k])}))
        except Undefined:
            values[k] = math.nan
    return values
