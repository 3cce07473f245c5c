"""The comparison itself, on the path that is the definition."""

import pytest

from ..model.cases import VALID, name
from .agreement import assert_agrees, sample


@pytest.mark.parametrize("case", VALID[::6], ids=name)
def test_the_plain_path_is_the_definition(case):
    assert_agrees("plain", *sample(case, 9, "float64"))
