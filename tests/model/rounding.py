"""Numbers that carry their own rounding error, in units of eps: Wilkinson's running error analysis.

    v + w:  e_v + e_w + |v + w|          v w:  |v| e_w + |w| e_v + |v w|          f(v):  |f'| e_v + |f(v)|

First order in eps. A computation of the same formula in floating point, in any order of its sums, may
differ from `value` by about eps * `error`; so tests need no tolerance of their own.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rounded:
    value: np.ndarray
    error: np.ndarray

    def __add__(self, other: "Rounded | float") -> "Rounded":
        other = exact(other)
        value = self.value + other.value
        return Rounded(value, self.error + other.error + abs(value))

    def __neg__(self) -> "Rounded":
        return Rounded(-self.value, self.error)

    def __sub__(self, other: "Rounded") -> "Rounded":
        return self + (-other)

    def __mul__(self, other: "Rounded | float") -> "Rounded":
        other = exact(other)
        value = self.value * other.value
        return Rounded(value, abs(self.value) * other.error + abs(other.value) * self.error + abs(value))

    def __truediv__(self, other: "Rounded | float") -> "Rounded":
        other = exact(other)
        value = self.value / other.value
        return Rounded(value, (self.error + abs(value) * other.error) / abs(other.value) + abs(value))

    def __getitem__(self, index) -> "Rounded":
        return Rounded(self.value[index], self.error[index])

    def sum(self) -> "Rounded":
        """Over the last axis, in any order."""
        terms = self.value.shape[-1]
        error = self.error.sum(-1) + max(terms - 1, 0) * abs(self.value).sum(-1)
        return Rounded(self.value.sum(-1), error)

    def mean(self) -> "Rounded":
        return self.sum() / float(self.value.shape[-1])

    def exp(self) -> "Rounded":
        value = np.exp(self.value)
        return Rounded(value, value * (self.error + 1))

    def sqrt(self) -> "Rounded":
        value = np.sqrt(self.value)
        return Rounded(value, self.error / (2 * value) + value)

    def relu(self) -> "Rounded":
        return Rounded(np.maximum(self.value, 0), self.error)


def exact(value) -> Rounded:
    """A number known exactly, such as a parameter."""
    if isinstance(value, Rounded):
        return value
    value = np.asarray(value, np.float64)
    return Rounded(value, np.zeros_like(value))


def nearly(value) -> Rounded:
    """A number known to one rounding."""
    value = np.asarray(value, np.float64)
    return Rounded(value, abs(value))


def apply(W, x: Rounded) -> Rounded:
    """W x."""
    return (exact(W) * x[None, :]).sum()


def dot(a: Rounded, b: Rounded) -> Rounded:
    return (a * b).sum()
