"""Balls of vectors in float64: a midpoint and a radius per coordinate."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ball:
    middle: np.ndarray
    radius: np.ndarray

    def pairs(self) -> tuple["Ball", "Ball"]:
        """The two halves of the last axis: rotary heads turn coordinate j together with coordinate j + d/2."""
        f = self.middle.shape[-1] // 2
        return (
            Ball(self.middle[..., :f], self.radius[..., :f]),
            Ball(self.middle[..., f:], self.radius[..., f:]),
        )

    @property
    def size(self) -> np.ndarray:
        return np.abs(self.middle) + self.radius
