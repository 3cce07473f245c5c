"""The comparison itself, on the path that is the definition."""

import numpy as np
import pytest

from memloci.core.errors import BadInput
from tests.model.cases import VALID, build, name

from .agreement import assert_agrees, sample


@pytest.mark.long
@pytest.mark.parametrize("case", VALID[::6], ids=name)
def test_the_plain_path_is_the_definition(case):
    assert_agrees("plain", *sample(case, 9, "float64"))


def test_too_many_pairs_are_refused():
    model = build(VALID[0], path="plain")
    with pytest.raises(
        BadInput, match="path 'plain' would hold 40,000 x 40,000 weights of 2 heads; use path 'auto'"
    ):
        model(np.zeros((40_000, model.channels)))


def test_more_positions_than_can_be_counted_are_refused():
    model = build(VALID[0])
    with pytest.raises(BadInput, match="2,147,483,648 positions, at most 2,147,483,647"):
        model(np.broadcast_to(np.zeros((1, model.channels)), (2**31, model.channels)))
