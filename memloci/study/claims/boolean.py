"""The sparse Boolean function of 1b, 3a and 8: three signs at lags that have nothing to do with each other."""

from typing import Any

from memloci.study.arms import SIGNS, fixed
from memloci.study.claim import Profile

READOUT = "where(b1 > 0, b2, b3)"  # one sign chooses between the two others; its variance is 1
# Within what float32 lets one lin layer recall (docs/theory.md, section 2), and beyond.
NEAR, FAR = (1, 2, 4), (2, 5, 11)
SOLVED = 0.05  # mean square error, of a variance of 1


def boolean(lags: tuple[int, ...] = NEAR) -> dict[str, Any]:
    return fixed(lags, READOUT, SIGNS)


def training(profile: Profile) -> dict[str, Any]:
    return {"steps": profile.pick(2000, 4000), "batch": 64, "length": 32, "held_out": 128}
