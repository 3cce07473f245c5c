"""What a kernel sum imitates: summable sequences rho(z), z >= 1, with their sums to infinity.

| target | rho(z) | sum_{z>n} rho(z) |
|---|---|---|
| `SingleLag(t)` | 1{z = t} | 1{t > n} |
| `Power(p, c)` | c z^{-p} | c zeta(p, n+1) |
| `Exponential(b, c)` | c e^{-b z} | c e^{-b (n+1)} / (1 - e^{-b}) |
| `Generic(values, majorant)` | given in Arb | only |.| <= sum_j C_j z^{-a_j} e^{-b_j z} |
| `Sum(parts)` | sum of the above | sum |

`spectrum` writes rho(z) beyond `start` as a sum of exponentials e^{-nu x} (x = z for lin heads, log z for
log heads) and powers of z, the terms of which residuals.py knows how to sum with their signs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from flint import arb

from memloci.approx.kernels.rpe import AbstractRPE
from memloci.core.errors import BadInput
from memloci.core.numbers import literal

NORM_LAGS = 1 << 14  # tuned: lags summed one by one for a norm, a second's work
MAX_LAG = 1 << 20  # tuned: beyond this the first window alone would take minutes


@dataclass(frozen=True)
class Spectrum:
    """rho = sum c e^{-nu x} + sum c z^-p, with x = z (lin) or log z (log); powers only beside lin."""

    exponentials: tuple[tuple[arb, arb], ...] = ()  # (nu, c)
    powers: tuple[tuple[arb, arb], ...] = ()  # (p, c)


class AbstractTarget(ABC):
    """A summable rho(z), z >= 1, with rigorous values and tails at flint's current precision."""

    @property
    @abstractmethod
    def label(self) -> str: ...

    @property
    def start(self) -> int:
        """`spectrum` describes rho(z) for z > start."""
        return 0

    @abstractmethod
    def value(self, z: int) -> arb: ...

    @abstractmethod
    def tail_bound(self, n: int) -> arb:
        """At least sum_{z>n} |rho(z)|."""

    @abstractmethod
    def tail_sum(self, n: int) -> arb:
        """Encloses sum_{z>n} rho(z); a wide ball when no closed form is known."""

    def spectrum(self, rpe: AbstractRPE) -> Spectrum | None:
        """The terms of rho beyond `start`, or None when they are not of a known kind."""
        return None

    def block_sum(self, lo: int, hi: int) -> arb:
        """Encloses sum of rho(z) over lo < z <= hi."""
        if hi - lo <= 16:
            return sum((self.value(z) for z in range(lo + 1, hi + 1)), arb(0))
        return self.tail_sum(lo) - self.tail_sum(hi)

    def norm(self) -> arb:
        """Encloses sum_z |rho(z)|: what a relative error is relative to."""
        total, done, n = arb(0), 0, max(self.start, 1)
        while True:
            total += sum((abs(self.value(z)) for z in range(done + 1, n + 1)), arb(0))
            if self.tail_is_signed():
                return total + abs(self.tail_sum(n))
            tail = self.tail_bound(n)
            if tail < total * 1e-6 or n > NORM_LAGS:
                return total + _between(arb(0), tail)
            done, n = n, 2 * n

    def tail_is_signed(self) -> bool:
        """rho has one sign beyond `start`."""
        return False


@dataclass(frozen=True)
class _Zero(AbstractTarget):
    """rho = 0: what remains of a target that has died out."""

    @property
    def label(self) -> str:
        return "0"

    def value(self, z: int) -> arb:
        return arb(0)

    def tail_bound(self, n: int) -> arb:
        return arb(0)

    def tail_sum(self, n: int) -> arb:
        return arb(0)

    def spectrum(self, rpe: AbstractRPE) -> Spectrum:
        return Spectrum()

    def tail_is_signed(self) -> bool:
        return True


ZERO = _Zero()


@dataclass(frozen=True)
class SingleLag(AbstractTarget):
    """rho(z) = 1{z = lag}."""

    lag: int

    def __post_init__(self):
        if isinstance(self.lag, bool) or not 1 <= self.lag <= MAX_LAG:
            raise BadInput(f"lag {self.lag}: lags run from 1 to {MAX_LAG}")

    @property
    def label(self) -> str:
        return f"lag {self.lag}"

    @property
    def start(self) -> int:
        return self.lag

    def value(self, z: int) -> arb:
        return arb(int(z == self.lag))

    def tail_bound(self, n: int) -> arb:
        return arb(int(self.lag > n))

    def tail_sum(self, n: int) -> arb:
        return arb(int(self.lag > n))

    def spectrum(self, rpe: AbstractRPE) -> Spectrum:
        return Spectrum()

    def tail_is_signed(self) -> bool:
        return True


@dataclass(frozen=True)
class Power(AbstractTarget):
    """rho(z) = c z^-p."""

    p: float
    c: float = 1.0

    def __post_init__(self):
        if not (1.0 < self.p < 1e3):
            raise BadInput(f"power {self.p}: z^-p is summable for p > 1 only (and p < 1000 here)")
        _check_factor(self.c)

    @property
    def label(self) -> str:
        return f"{_times(self.c)}z^-{literal(self.p)}"

    def value(self, z: int) -> arb:
        return self.c * (-arb(self.p) * arb(z).log()).exp()

    def tail_bound(self, n: int) -> arb:
        return abs(self.tail_sum(n))

    def tail_sum(self, n: int) -> arb:
        return self.c * arb(self.p).zeta(arb(n + 1))

    def spectrum(self, rpe: AbstractRPE) -> Spectrum:
        if rpe.name == "log":
            return Spectrum(exponentials=((arb(self.p), arb(self.c)),))
        return Spectrum(powers=((arb(self.p), arb(self.c)),))

    def tail_is_signed(self) -> bool:
        return True


@dataclass(frozen=True)
class Exponential(AbstractTarget):
    """rho(z) = c e^{-b z}."""

    b: float
    c: float = 1.0

    def __post_init__(self):
        if not (0.0 < self.b < 1e6):
            raise BadInput(f"rate {self.b}: e^(-b z) is summable for b > 0 only (and b < 1e6 here)")
        _check_factor(self.c)

    @property
    def label(self) -> str:
        return f"{_times(self.c)}e^(-{literal(self.b)} z)"

    def value(self, z: int) -> arb:
        return self.c * (-arb(self.b) * z).exp()

    def tail_bound(self, n: int) -> arb:
        return abs(self.tail_sum(n))

    def tail_sum(self, n: int) -> arb:
        b = arb(self.b)
        return self.c * (-b * n).exp() / b.expm1()

    def spectrum(self, rpe: AbstractRPE) -> Spectrum | None:
        return Spectrum(exponentials=((arb(self.b), arb(self.c)),)) if rpe.name == "lin" else None

    def tail_is_signed(self) -> bool:
        return True


@dataclass(frozen=True)
class Generic(AbstractTarget):
    """Any rho with values in Arb and |rho(z)| <= sum_j C_j z^-a_j e^{-b_j z} for every z > `beyond`.

    The caller vouches for the majorant: it is the one part that is not recomputed here.
    """

    values: Callable[[int], arb]
    majorant: tuple[tuple[float, float, float], ...]  # (C, a, b)
    name: str = "given kernel"
    beyond: int = 0
    _values_cache: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        for C, a, b in self.majorant:
            if not (C >= 0 and b >= 0 and a >= 0 and (b > 0 or a > 1)):
                raise BadInput(
                    f"majorant term {literal(C)} z^-{literal(a)} e^(-{literal(b)} z): to be summable it needs C, a, b >= 0, "
                    "and b > 0 or a > 1"
                )

    @property
    def label(self) -> str:
        return self.name

    @property
    def start(self) -> int:
        return self.beyond

    def value(self, z: int) -> arb:
        from flint import ctx

        key = (z, ctx.prec)
        if key not in self._values_cache:
            self._values_cache[key] = self.values(z)
        return self._values_cache[key]

    def tail_bound(self, n: int) -> arb:
        first = max(n, self.beyond)
        total = sum((abs(self.value(z)) for z in range(n + 1, first + 1)), arb(0))
        for C, a, b in self.majorant:
            power = (-arb(a) * arb(first + 1).log()).exp()  # z^-a <= (first+1)^-a in the tail
            bounds = []
            if b > 0:
                bounds.append(power * (-arb(b) * first).exp() / arb(b).expm1())
            if a > 1:
                bounds.append((-arb(b) * (first + 1)).exp() * arb(a).zeta(arb(first + 1)))
            total += C * min(bounds, key=lambda ball: float(ball.mid()))
        return total.upper()

    def tail_sum(self, n: int) -> arb:
        bound = self.tail_bound(n)
        return _between(-bound, bound)


@dataclass(frozen=True)
class Sum(AbstractTarget):
    """rho = sum of targets, as for a kernel with several time scales."""

    parts: tuple[AbstractTarget, ...]

    def __post_init__(self):
        if not self.parts:
            raise BadInput("a sum of kernels needs at least one part")

    @property
    def label(self) -> str:
        return " + ".join(part.label for part in self.parts)

    @property
    def start(self) -> int:
        return max(part.start for part in self.parts)

    def value(self, z: int) -> arb:
        return sum((part.value(z) for part in self.parts), arb(0))

    def tail_bound(self, n: int) -> arb:
        return sum((part.tail_bound(n) for part in self.parts), arb(0))

    def tail_sum(self, n: int) -> arb:
        return sum((part.tail_sum(n) for part in self.parts), arb(0))

    def spectrum(self, rpe: AbstractRPE) -> Spectrum | None:
        spectra = [part.spectrum(rpe) for part in self.parts]
        known = [spectrum for spectrum in spectra if spectrum is not None]
        if len(known) < len(spectra):
            return None
        return Spectrum(
            exponentials=tuple(term for spectrum in known for term in spectrum.exponentials),
            powers=tuple(term for spectrum in known for term in spectrum.powers),
        )


def _between(lo: arb, hi: arb) -> arb:
    return lo.lower().union(hi.upper())


def _check_factor(c: float) -> None:
    if not (0 < abs(c) < 1e300):
        raise BadInput(f"factor {c}: a kernel's factor must be finite and not 0")


def _times(c: float) -> str:
    return "" if c == 1 else f"{literal(c)} "
