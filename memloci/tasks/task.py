"""A task: input channels, memories, and a readout of them.

    y_t = f(x_t, m_1(t), ..., m_M(t)),   m_i(t) the i-th memory recalled at position t

Memories (memories/) mix freely. Variables are written `x0` for the present token's channel x, `x1` for the first
memory's, and so on. A task is a spec: what a user types is the object itself, checked once. It knows nothing of
Transformers, and imports no JAX until it computes.
"""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, field_validator, model_validator

from memloci.core.errors import BadInput
from memloci.core.intervals import Interval
from memloci.core.numbers import literal
from memloci.core.specs import Spec, shorten
from memloci.language.domain import Domain, bounds, check_defined, lipschitz
from memloci.language.formula import Formula, make_formula
from memloci.tasks.channel import Channel, Many
from memloci.tasks.memories import memory_from
from memloci.tasks.memories.base import Memory, Recall, Scope
from memloci.tasks.memories.lag_table import MAX_CELLS, LagTable
from memloci.tasks.names import channel_of, memory_of, variable

MAX_CHANNELS = 64
MAX_MEMORIES = 256
MAX_OUTPUTS = 64


def _readout(value: Any) -> Any:
    several = isinstance(value, list | tuple)
    parts = list(value) if several else [value]
    for k, part in enumerate(parts):
        if not isinstance(part, str) and not callable(part):
            place = f"[{k}] " if several else ""
            raise BadInput(f"{place}must be an expression in quotes or a callable, found {shorten(part)}")
    return tuple(parts)


def at_most(memories: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(memories) > MAX_MEMORIES:
        raise BadInput(f"a task has at most {MAX_MEMORIES} memories, found {len(memories)}")
    return memories


Readout = Annotated[tuple[str | Callable[..., Any], ...], BeforeValidator(_readout)]


class Task(Spec):
    """`ml.Task(memories=[ml.Lag(3), ml.Kernel("z ** -2")], readout="x1 - x2")`; `Fixed`, `Adaptive` and `Essential`
    are short ways to write common cases."""

    description: str = ""
    channels: Many[Channel] = (Channel(),)
    memories: Many[Annotated[Memory, BeforeValidator(memory_from)]]
    readout: Readout
    # Declared bounds on |df/dx|, for a callable readout only; a certificate lists them as assumptions.
    lipschitz: dict[str, float] | None = None

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

    @field_validator("memories")
    @classmethod
    def _not_too_many(cls, memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
        return at_most(memories)

    @field_validator("readout")
    @classmethod
    def _some_outputs(cls, readout: tuple[Any, ...]) -> tuple[Any, ...]:
        if not 1 <= len(readout) <= MAX_OUTPUTS:
            raise BadInput(f"a task has 1 to {MAX_OUTPUTS} outputs, found {len(readout)}")
        return readout

    if TYPE_CHECKING:  # lists, one readout, dictionaries for channels: wider than the fields they become

        def __init__(self, **fields: Any): ...

    @model_validator(mode="after")
    def _check(self) -> "Task":
        domains = self.domains  # prepares the memories, which checks them
        for k, formula in enumerate(self.readouts):
            if formula.expression is not None:
                try:
                    check_defined(formula.expression, domains)
                except BadInput as error:
                    raise error.within(self._readout_key(k)) from None
        self._check_declared()
        return self

    def _check_declared(self) -> None:
        if self.lipschitz is None:
            return
        if all(formula.expression is not None for formula in self.readouts):
            raise BadInput("lipschitz: is computed for expressions; declare it for a callable only")
        for name, bound in self.lipschitz.items():
            if name not in self.variables or not bound >= 0:
                raise BadInput(
                    f"lipschitz: needs variables and bounds >= 0, found {name!r} = {literal(bound)}"
                )

    def _readout_key(self, k: int) -> str:
        return "readout" if len(self.readout) == 1 else f"readout[{k}]"

    # The memories.

    @cached_property
    def recalls(self) -> tuple[Recall, ...]:
        """The memories in this task, prepared."""
        recalls: list[Recall] = []
        for i, memory in enumerate(self.memories, start=1):
            room = MAX_CELLS - sum(len(recall.cells) for recall in recalls)
            try:
                recalls.append(memory.prepare(Scope(self.channels, tuple(recalls), self.M, room)))
            except BadInput as error:
                raise error.within(f"memories[{i - 1}]") from None
        return tuple(recalls)

    @property
    def kind(self) -> str:
        """One word for people: `fixed`, `adaptive`, `essential`, or `mixed`."""
        from memloci.tasks.short import kind_of

        return kind_of(self)

    @property
    def M(self) -> int:
        """The number of memories."""
        return len(self.memories)

    @property
    def d(self) -> int:
        return len(self.channels)

    @property
    def outputs(self) -> int:
        return len(self.readout)

    @property
    def K(self) -> int:
        """The paper's adaptivity, the largest memory that any lag reads: lags read the present and the first K
        memories."""
        return max((i for parents in self.parents for i in parents), default=0)

    @property
    def paper_layers(self) -> int:
        """The layers of the paper's construction: K + 1 + 1{M >= K + 1}."""
        return self.K + 1 + (self.M >= self.K + 1)

    @property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """For each memory, the earlier memories that it reads."""
        return tuple(recall.parents for recall in self.recalls)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """For each memory, how many recalls must come before it: 0 when it reads the present only."""
        levels: list[int] = []
        for parents in self.parents:
            levels.append(max((levels[j - 1] + 1 for j in parents), default=0))
        return tuple(levels)

    @property
    def lag_bounds(self) -> tuple[int | float, ...]:
        """T_i: the largest lag at which memory i can lie; infinite for a kernel without a horizon."""
        return tuple(recall.bound for recall in self.recalls)

    @property
    def farthest(self) -> int | float:
        """The largest lag at which any memory can lie; 0 if there is none."""
        return max(self.lag_bounds, default=0)

    @property
    def stationary(self) -> bool:
        """Every memory is a fixed kernel over lags: nothing depends on content."""
        return all(recall.kernel for recall in self.recalls)

    @property
    def fixed_lags(self) -> dict[int, int]:
        """The memories at fixed lags: number -> lag."""
        tables = enumerate(self.recalls, start=1)
        return {i: recall.bound for i, recall in tables if isinstance(recall, LagTable) and recall.kernel}

    def channel(self, name: str) -> Channel:
        """The channel of a variable."""
        return self.channels[self.channel_names.index(channel_of(name))]

    @cached_property
    def channel_names(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.channels)

    @cached_property
    def lag_variables(self) -> frozenset[str]:
        """The variables that some memory reads to find its place."""
        return frozenset(name for recall in self.recalls for name in recall.reads)

    @cached_property
    def domains(self) -> dict[str, Domain]:
        """What every variable can be."""
        now = {variable(channel.name, 0): channel.domain for channel in self.channels}
        past = {
            variable(channel.name, i): recall.domain(channel)
            for i, recall in enumerate(self.recalls, start=1)
            for channel in self.channels
        }
        return now | past

    def occur_together(self, values: Mapping[str, float]) -> bool:
        """Whether these variables can have these values at one position; True where it is not known.

        While a token at a fixed lag is blank, every older one is blank too.
        """
        lags = {0: 0} | self.fixed_lags
        first_blank, last_seen = math.inf, 0
        for name, value in values.items():
            if (memory := memory_of(name)) not in lags:
                continue
            if not any(piece.contains(value) for piece in self.channel(name).domain):
                first_blank = min(first_blank, lags[memory])
            elif value:
                last_seen = max(last_seen, lags[memory])
        return last_seen < first_blank

    # The readout.

    @cached_property
    def variables(self) -> tuple[str, ...]:
        return tuple(variable(channel.name, i) for i in range(self.M + 1) for channel in self.channels)

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
        largest = dict.fromkeys(self.variables, 0.0)
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
                largest[name] = max(largest[name], constant)
        return largest

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

    # The target.

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

    def recall(self, X: Any, xp: Any) -> list[Any]:
        """The M memories, each (length, channels), of one sequence X of that shape."""
        return self.recall_with_blanks(X, xp)[0]

    def recall_with_blanks(self, X: Any, xp: Any) -> tuple[list[Any], list[Any]]:
        """The memories, and for each the positions at which it is blank."""
        tokens, blank = [X], [xp.zeros(X.shape[:1], dtype=bool)]
        values = self._columns(0, X)
        for i, recall in enumerate(self.recalls, start=1):
            token, missing = recall.recall(values, blank, X, xp)
            tokens.append(token)
            blank.append(missing)
            values |= self._columns(i, token)
        return tokens[1:], blank[1:]

    def _columns(self, i: int, token: Any) -> dict[str, Any]:
        return {variable(name, i): token[:, c] for c, name in enumerate(self.channel_names)}

    def _target(self, X: Any, xp: Any) -> Any:
        values: dict[str, Any] = {}
        for i, token in enumerate([X, *self.recall(X, xp)]):
            values |= self._columns(i, token)
        columns = []
        for k, formula in enumerate(self.readouts):
            y = xp.asarray(formula(values, xp), dtype=X.dtype)
            if y.shape not in ((), X.shape[:1]):
                raise BadInput(f"{self._readout_key(k)}: gave shape {y.shape}, expected {X.shape[:1]}")
            columns.append(xp.broadcast_to(y, X.shape[:1]))
        return xp.stack(columns, axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """What a task file says, ready for JSON or TOML, in the short form if there is one; refuses callables."""
        from memloci.tasks.short import shortened

        data = {name: plain(getattr(self, name), name) for name in ("description", "channels", "lipschitz")}
        fields = type(self).model_fields
        data = {name: value for name, value in data.items() if getattr(self, name) != fields[name].default}
        readout = plain(self.readout, "readout")  # last, as one would write it
        return {**shortened(self, data), "readout": readout[0] if len(readout) == 1 else readout}


def plain(value: Any, key: str) -> Any:
    """Specs as tables, tuples as lists; what a file cannot hold is refused."""
    if isinstance(value, Spec):
        fields = type(value).model_fields
        return {k: plain(v, key) for k, v in value if v is not None and v != fields[k].default}
    if isinstance(value, tuple):
        return [plain(v, key) for v in value]
    if callable(value):
        raise BadInput(f"{key}: a callable cannot be written to a file; write it as an expression")
    return value
