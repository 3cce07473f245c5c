"""One stranger of every extension point: things that nobody in the package has thought of.

A stranger is registered by adding it to the point's own table, as a contributor would. Everything that meets it must
agree with the plain definition, or refuse it with a reason.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from memloci.core import intervals as iv
from memloci.core.precision import Precision
from memloci.language.expression import Constant
from memloci.language.operations import Operation, everywhere
from memloci.language.tails import power
from memloci.model.encodings import AbstractEncoding
from memloci.model.normalisation import AbstractNormalisation, Softmax
from memloci.model.paths.base import AbstractPath
from memloci.model.paths.plain import Plain
from memloci.model.scores import AbstractScore
from memloci.tasks.memories.base import Memory, Recall, Scope


class Halved(AbstractNormalisation):
    """Softmax, and half of it."""

    name = "halved"

    def weights(self, content, position, visible, encoding, past):
        return Softmax().weights(content, position, visible, encoding, past) / 2


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


class Doubled(AbstractScore):
    """dpf with twice the logit."""

    name = "doubled"

    @classmethod
    def init(cls, architecture, rank, *, key):
        return cls()

    def logits(self, encoding, X, z):
        position = encoding.position(z, X.dtype)
        return position, position


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
    undefined=everywhere,
    ball=_cube,
    tail=lambda x: power(x, Constant(3.0)),
    function=True,
)


class Doubling(Memory):
    """Twice the token before."""

    key = "double"
    double: int

    def prepare(self, scope: Scope) -> "DoublingRecall":
        return DoublingRecall(self.double)


@dataclass(frozen=True)
class DoublingRecall(Recall):
    lag: int
    reads = ()
    cells = ()

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
