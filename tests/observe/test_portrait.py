"""What a page shows is looked up once: the wall stands before sums of lin heads, and before nothing else."""

import math

from memloci.approx.kernels.lower_bounds import chebyshev_mass
from memloci.observe.portrait import STRICT, TOLD_LAG, _wall
from memloci.routes.registry import ROUTES
from memloci.synthesize import request_of
from memloci.tasks.short import Adaptive, Fixed
from memloci.tasks.task import Task


def wall_of(task: Task, route: str):
    return _wall(task, ROUTES[route](request_of(task, 0.1, "float32")))


def test_lags_beyond_the_picture_have_the_bits_that_are_proved():
    found = wall_of(Fixed(lags=[3, 40, 2 * TOLD_LAG], readout="x1 + x2 + x3"), "rotary")
    assert found is not None and found.lags == (3, 40, 2 * TOLD_LAG)
    assert {point.lag for point in found.points} == set(range(2, 33))
    bits = math.floor(chebyshev_mass(40, STRICT).log2)
    assert found.beyond == {40: bits, 2 * TOLD_LAG: None}


def test_pointers_that_turn_never_meet_the_wall_and_sums_do():
    channels = [{"name": "a", "values": [1, 2]}, {"name": "v", "range": [-1, 1]}]
    task = Adaptive(channels=channels, lags=["a0"], readout="v1")
    assert wall_of(task, "rotary") is None
    found = wall_of(task, "lin-tmx")
    assert found is not None and found.lags == (1, 2)
    assert wall_of(Fixed(lags=[], readout="x0"), "one-layer-lin") is None
