"""A task: input channels, memories, and a readout of them.

    y_t = f(x_t, m_1(t), ..., m_M(t)),   m_i(t) the i-th memory recalled at position t

A subclass says how memories are recalled (`recall`) and what values they can take (`domains`); the
target, the names and the norms that later stages consume are here. Variables are written `x0` for the
present token's channel x, `x1` for the first memory's, and so on. Tasks are specs: what a user types is
the object itself, checked once.
"""

import abc
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, field_validator, model_validator

from memloci.errors import BadInput
from memloci.expressions.domain import Domain, bounds, check_defined, lipschitz
from memloci.expressions.formula import Formula, make_formula
from memloci.expressions.interval import Interval
from memloci.specs import Spec, shorten
from memloci.tasks.channel import Channel, Many, with_blank

MAX_CHANNELS = 64
MAX_MEMORIES = 256
MAX_OUTPUTS = 64
MAX_LAG = 1 << 24


def _readout(value: Any) -> Any:
    several = isinstance(value, list | tuple)
    parts = list(value) if several else [value]
    for k, part in enumerate(parts):
        if not isinstance(part, str) and not callable(part):
            place = f"[{k}] " if several else ""
            raise BadInput(f"{place}must be an expression in quotes or a callable, found {shorten(part)}")
    return tuple(parts)


Readout = Annotated[tuple[str | Callable[..., Any], ...], BeforeValidator(_readout)]


class Task(Spec, abc.ABC):
    """The base of `Fixed`, `Adaptive` and `Essential`."""

    description: str = ""
    channels: Many[Channel] = (Channel(),)
    readout: Readout
    # Declared bounds on |df/dx|, for a callable readout only; a certificate lists them as assumptions.
    lipschitz: dict[str, float] | None = None

    # What a kind of task must say.

    @property
    @abc.abstractmethod
    def M(self) -> int:
        """The number of memories."""

    @property
    @abc.abstractmethod
    def lag_bounds(self) -> tuple[int | float, ...]:
        """T_i: the largest lag at which memory i can lie; infinite for a kernel."""

    @abc.abstractmethod
    def recall(self, X: Any, xp: Any) -> list[Any]:
        """The M memories, each (length, channels), of one sequence X of that shape."""

    @property
    def K(self) -> int:
        """The paper's adaptivity: lags read the present and the first K memories. It takes
        L = K + 1 + 1{M >= K + 1} layers."""
        return 0

    @property
    def domains(self) -> dict[str, Domain]:
        """What every variable can be. A recalled token may be blank, that is 0."""
        now = {f"{channel.name}0": channel.domain for channel in self.channels}
        past = {
            f"{channel.name}{i}": with_blank(channel.domain)
            for i in range(1, self.M + 1)
            for channel in self.channels
        }
        return now | past

    def occur_together(self, values: Mapping[str, float]) -> bool:
        """Whether these variables can have these values at one position; True where it is not known."""
        return True

    # Checks, once, when the task is made.

    @field_validator("description")
    @classmethod
    def _short(cls, text: str) -> str:
        if len(text) > 200 or not text.isprintable():
            raise BadInput("must be one printable line of at most 200 characters")
        return text

    @field_validator("channels")
    @classmethod
    def _distinct(cls, channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
        if not 1 <= len(channels) <= MAX_CHANNELS:
            raise BadInput(f"a task has 1 to {MAX_CHANNELS} channels, found {len(channels)}")
        names = [channel.name for channel in channels]
        for name in names:
            if names.count(name) > 1:
                raise BadInput(f"two channels are called {name!r}")
        return channels

    @field_validator("readout")
    @classmethod
    def _some_outputs(cls, readout: tuple[Any, ...]) -> tuple[Any, ...]:
        if not 1 <= len(readout) <= MAX_OUTPUTS:
            raise BadInput(f"a task has 1 to {MAX_OUTPUTS} outputs, found {len(readout)}")
        return readout

    @model_validator(mode="after")
    def _check(self) -> "Task":
        if not 1 <= self.M <= MAX_MEMORIES:
            raise BadInput(f"a task has 1 to {MAX_MEMORIES} memories, found {self.M}")
        self._check_memories()
        domains = self.domains
        for k, formula in enumerate(self.readouts):
            if formula.expression is not None:
                try:
                    check_defined(formula.expression, domains)
                except BadInput as error:
                    raise error.within(self._readout_key(k)) from None
        self._check_declared()
        return self

    def _check_memories(self) -> None:
        """What a kind of task must check about its memories; raises BadInput."""

    def _check_declared(self) -> None:
        if self.lipschitz is None:
            return
        if all(formula.expression is not None for formula in self.readouts):
            raise BadInput("lipschitz: is computed for expressions; declare it for a callable only")
        for name, bound in self.lipschitz.items():
            if name not in self.variables or not bound >= 0:
                raise BadInput(f"lipschitz: needs variables and bounds >= 0, found {name!r} = {bound:g}")

    def _readout_key(self, k: int) -> str:
        return "readout" if len(self.readout) == 1 else f"readout[{k}]"

    # What later stages ask.

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()

    @property
    def d(self) -> int:
        return len(self.channels)

    @property
    def outputs(self) -> int:
        return len(self.readout)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        return tuple(f"{channel.name}{i}" for i in range(self.M + 1) for channel in self.channels)

    @cached_property
    def readouts(self) -> tuple[Formula, ...]:
        """f, one formula per output."""
        formulas = []
        for k, source in enumerate(self.readout):
            try:
                formulas.append(make_formula(source, self.variables))
            except BadInput as error:
                raise error.within(self._readout_key(k)) from None
        return tuple(formulas)

    @cached_property
    def lip_f(self) -> dict[str, float]:
        """Per variable, a bound on |df/dx| over all outputs; inf where f may jump."""
        found = dict.fromkeys(self.variables, 0.0)
        for formula in self.readouts:
            if formula.expression is None:
                if self.lipschitz is None:
                    raise BadInput(
                        f"readout: nothing can be proved of the callable {formula}; write it as an "
                        "expression, or declare lipschitz = {variable: bound}"
                    )
                constants: Mapping[str, float] = {
                    name: self.lipschitz.get(name, math.inf) for name in formula.variables
                }
            else:
                constants = lipschitz(formula.expression, self.domains)
            for name, constant in constants.items():
                found[name] = max(found[name], constant)
        return found

    @cached_property
    def output_ranges(self) -> tuple[Interval, ...]:
        """For each output, an interval that contains every value of the target."""
        ranges = []
        for formula in self.readouts:
            if formula.expression is None:
                raise BadInput(
                    f"readout: the range of the callable {formula} is unknown; write an expression"
                )
            ranges.append(bounds(formula.expression, self.domains))
        return tuple(ranges)

    def target(self, X: Any) -> Any:
        """H_t(X) for every t: (..., length, channels) -> (..., length, outputs), in the dtype of X."""
        import jax
        import jax.numpy as jnp

        X = jnp.asarray(X)
        if X.ndim < 2 or X.shape[-1] != self.d:
            raise BadInput(f"a sequence has shape (length, {self.d}), found {X.shape}")
        if not jnp.issubdtype(X.dtype, jnp.floating):
            X = X.astype(jnp.result_type(float))
        one = lambda sequence: self._target(sequence, jnp)
        for _ in range(X.ndim - 2):
            one = jax.vmap(one)
        return one(X)

    def _target(self, X: Any, xp: Any) -> Any:
        tokens = [X, *self.recall(X, xp)]
        values = {
            f"{channel.name}{i}": token[:, c]
            for i, token in enumerate(tokens)
            for c, channel in enumerate(self.channels)
        }
        columns = []
        for k, formula in enumerate(self.readouts):
            y = xp.asarray(formula(values, xp), dtype=X.dtype)
            if y.shape not in ((), X.shape[:1]):
                raise BadInput(f"{self._readout_key(k)}: gave shape {y.shape}, expected {X.shape[:1]}")
            columns.append(xp.broadcast_to(y, X.shape[:1]))
        return xp.stack(columns, axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """What a task file says, ready for JSON or TOML; refuses callables, which a file cannot hold."""
        data: dict[str, Any] = {"kind": self.kind}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default:
                data[name] = _plain(value, name)
        readout = data.pop("readout")  # last, as one would write it
        return {**data, "readout": readout[0] if len(readout) == 1 else readout}


def _plain(value: Any, key: str) -> Any:
    if isinstance(value, Spec):
        return {k: _plain(v, key) for k, v in value if v is not None}
    if isinstance(value, tuple):
        return [_plain(v, key) for v in value]
    if callable(value):
        raise BadInput(f"{key}: a callable cannot be written to a file; write it as an expression")
    return value
