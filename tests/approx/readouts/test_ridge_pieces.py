"""Pieces are nearly as good as their number allows, and their error is proved."""

import pytest

from memloci.approx.readouts.ridge_pieces import Pieces, profile, proved_error
from memloci.language.parse import parse


@pytest.mark.parametrize(
    "text", ["s ** 2", "s ** 3", "tanh(3 * s)", "exp(s)", "s ** 5 - s ** 2", "abs(s) ** 1.5"]
)
def test_pieces_are_nearly_the_best_that_their_number_allows(text):
    phi = parse(text, ("s",))
    along = profile(phi, -1.0, 1.0)
    for n in (8, 64):
        assert proved_error(phi, -1.0, 1.0, along.pieces(n)) <= 1.25 * (along.effort / n) ** 2


def test_the_error_of_a_chord_is_known():
    for h in (0.5, 0.25):  # s^2 on [0, h]: the chord lies h^2 / 4 above
        assert proved_error(parse("s ** 2", ("s",)), 0.0, h, Pieces(0.0, h, (), ())) == pytest.approx(
            h * h / 4, rel=0.01
        )
