"""Strangers of every extension point: things that nobody in the package has thought of.

A stranger is registered by adding it to the point's own table, as a contributor would. Everything that meets it must
agree with the plain definition, or refuse it with a reason. Some are derived from a class of the package, some forget
to declare what they do: neither may be taken for what it is not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp

from memloci.circuits.circuit import Circuit
from memloci.core import intervals as iv
from memloci.core.precision import Precision
from memloci.language.expression import Constant
from memloci.language.operations import Operation, always_defined
from memloci.language.tails import power
from memloci.model.encodings import AbstractEncoding, Lin, Sin
from memloci.model.normalisation import AbstractNormalisation, Softmax
from memloci.model.paths.base import AbstractPath
from memloci.model.paths.plain import Plain
from memloci.model.scores import AbstractScore, DotProduct
from memloci.routes import rotary
from memloci.routes.request import Obstacle, Request
from memloci.sweeps.store import Store
from memloci.sweeps.worker import Job, Worker, load_engine
from memloci.tasks.memories.base import Memory, Recall, Scope
from memloci.tasks.memories.lag import Lag
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from memloci.train.spec import Run

# -- normalisations ------------------------------------------------------------------------------------------


class Halved(AbstractNormalisation):
    """Softmax, and half of it."""

    name = "halved"

    def weights(self, content, position, visible, encoding, past):
        return Softmax().weights(content, position, visible, encoding, past) / 2


class Hinge(AbstractNormalisation):
    """The positive part of the logits: what the query adds does not become a factor."""

    name = "hinge"

    def weights(self, content, position, visible, encoding, past):
        return jnp.where(visible, jnp.maximum(content + position, 0.0), 0.0)


# -- encodings -----------------------------------------------------------------------------------------------


class Root(AbstractEncoding):
    """phi(z) = -sqrt(z)."""

    name = "root"
    sees_lag = True
    has_phi = True
    p: Any

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        return cls(None if multiplied else 1.0 + rank)

    def slope(self):
        return self.p

    def phi(self, z, dtype):
        return -jnp.sqrt(z.astype(dtype))


class Steeper(Lin):
    """Derived from lin, with phi(z) = -2 z: whatever takes it for lin is wrong by a factor of 2 in every logit."""

    name = "steeper"

    def phi(self, z, dtype):
        return -2 * z.astype(dtype)

    def infinite_sum(self, stride):
        assert self.p is not None
        return 1 / -jnp.expm1(-2 * self.p * stride)


class Steady(AbstractEncoding):
    """lin with a slope that is no weight of its own, but computed from one."""

    name = "steady"
    sees_lag = True
    has_phi = True
    summable = "always"
    least_slope = 0.0
    rate: Any

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        return cls(-2.0 * rank)

    def slope(self):
        return jnp.exp(self.rate)

    def phi(self, z, dtype):
        return -z.astype(dtype)

    def infinite_sum(self, stride):
        return 1 / -jnp.expm1(-self.slope() * stride)


class Ledge(AbstractEncoding):
    """A position part without a phi: 1 up to lag 3, then 0."""

    name = "ledge"
    sees_lag = True

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        return cls()

    def position(self, z, dtype):
        return (z <= 3).astype(dtype)


class Twist(AbstractEncoding):
    """Turns queries and keys, but not as rope does: <q_t, k_s> with the sign of t + s."""

    name = "twist"
    sees_lag = True
    rotates = True

    @classmethod
    def for_head(cls, architecture, rank, *, dot, multiplied, key):
        return cls()

    def position(self, z, dtype):
        return jnp.zeros(z.shape, dtype)

    def inner(self, q, k):
        t = jnp.arange(q.shape[0])
        return (q @ k.T) * jnp.where((t[:, None] + t[None, :]) % 2 == 0, 1.0, -1.0).astype(q.dtype)


class Undeclared(Twist):
    """The same, and it forgets to say that it turns."""

    name = "undeclared"
    rotates = False


class Louder(Sin):
    """Derived from sin: adds twice the vectors to the embedding."""

    name = "louder"

    def vectors(self, n):
        return 2 * super().vectors(n)


# -- scores --------------------------------------------------------------------------------------------------


class Doubled(AbstractScore):
    """dpf with twice the logit."""

    name = "doubled"

    @classmethod
    def init(cls, architecture, rank, *, key):
        return cls()

    def logits(self, encoding, X, z):
        position = encoding.position(z, X.dtype)
        return position, position


class Cooler(DotProduct):
    """Derived from dp: half of the dot product."""

    name = "cooler"

    def logits(self, encoding, X, z):
        content, position = super().logits(encoding, X, z)
        return content / 2, position


# -- paths, precisions, operations ---------------------------------------------------------------------------


class Detour(AbstractPath):
    """The plain definition under another name."""

    name = "detour"
    growth = "n^2"

    @classmethod
    def recalled(cls, heads, X, V):
        return Plain.recalled(heads, X, V)

    recall = recalled


TINY = Precision("tiny", 5, 2.0**-126, 2.0**127, evaluates=False)


def _cube(x: Any) -> Any:
    return x * x * x


CUBE = Operation(
    arity=1,
    apply=lambda xp, x: x * x * x,
    value=lambda x: iv.integer_power(x, 3),
    slopes=lambda x: (iv.mul(iv.point(3.0), iv.integer_power(x, 2)),),
    undefined=always_defined,
    ball=_cube,
    tail=lambda x: power(x, Constant(3.0)),
    function=True,
)


# -- routes --------------------------------------------------------------------------------------------------


def roundabout(request: Request) -> Circuit:
    """A good route under another name."""
    return replace(rotary.rotary(request), route="roundabout")


def astray(request: Request) -> Circuit:
    """A route that recalls the token beside the one that is asked for."""
    later = [lag + 1 for lag in request.task.fixed_lags.values()]
    task = Task(channels=request.task.channels, memories=map(Lag, later), readout=request.task.readout)
    return replace(rotary.rotary(replace(request, task=task)), route="astray")


def closed(request: Request) -> Circuit:
    raise Obstacle("the road is closed")


# -- memories ------------------------------------------------------------------------------------------------


class Doubling(Memory):
    """Twice the token at a lag; `steady` says that it is a fixed kernel, which is true, and no reason to trust it."""

    key = "double"
    double: int
    steady: bool = False

    def prepare(self, scope: Scope) -> "DoublingRecall":
        return DoublingRecall(self.double, self.steady)


@dataclass(frozen=True)
class DoublingRecall(Recall):
    lag: int
    steady: bool
    reads = ()
    cells = ()

    @property
    def kernel(self) -> bool:
        return self.steady

    @property
    def bound(self) -> int:
        return self.lag

    @property
    def text(self) -> str:
        return f"twice lag {self.lag}"

    def domain(self, channel):
        reach = 2 * channel.magnitude
        return (iv.Interval(-reach, reach),)

    def recall(self, values, blank, X, xp):
        t = xp.arange(X.shape[0])
        missing = t < self.lag
        token = 2 * X[xp.where(missing, 0, t - self.lag)]
        return xp.where(missing[:, None], xp.zeros_like(token), token), missing


class Farther(Lag):
    """Derived from a fixed lag: the token at twice the lag."""

    key = "farther"
    lag: int = 0
    farther: int

    def prepare(self, scope: Scope) -> LagTable:
        return Lag(2 * self.farther).prepare(scope)


# -- sweeps and training -------------------------------------------------------------------------------------


def run(job: Job, workers: int | None, progress: Callable[[str, float], None]) -> None:
    """An engine of sweeps: one worker, in this process."""
    with Store(job.store) as store:
        Worker(job, "stranger", store, load_engine(job.engine)).work()
    progress("worked off", 1.0)


@dataclass
class Guess:
    """What comes of a training that trains nothing: the least that a record must say."""

    key: str
    record: dict[str, Any]
    history: dict[str, list[Any]] = field(default_factory=dict)
    weights: bytes = b""


def guess(
    runs: Sequence[Run],
    *,
    states: Mapping[str, bytes] = {},
    save: Callable[[Any], None] | None = None,
) -> list[Guess]:
    """In place of training: it is done at once, breaks with the seed 1, and forgets runs with the seed 2."""
    if any(run.training.seed == 1 for run in runs):
        raise ArithmeticError("the stranger broke")
    record = {"status": "done", "steps": 0, "err_sup": 0.25}
    return [Guess(run.key, record) for run in runs if run.training.seed != 2]


def fourth_power(found: Any, y: Any) -> Any:
    """A loss."""
    return jnp.mean((found - y) ** 4)
