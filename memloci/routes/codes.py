"""Letters as bits: how neurons turn a symbol into a code that a dot product can compare.

    b(a) in {0, 1}^r, r = ceil(log2 A),      <2 b(a) - 1, b(a')> = |b(a)| - Hamming(b(a), b(a'))

So equal letters win by at least 1, in r dimensions: that is the gap g = 1, proved for every alphabet because codes of
different letters differ in a bit. A bit is piecewise linear in the symbol, with a kink at each letter, so one layer takes A
neurons. Where the letters are equally spaced, two layers take about 4 sqrt(A): the first counts in steps of B letters (the
high digit), the second reads the bits of both digits. Letters that are not equally spaced take two neurons for each step from
one to the next. All numbers on the way are whole multiples of one power of 2 where the letters are, so nothing is rounded:
no precision loses a bit of a code.
"""

import math
from collections.abc import Sequence

import numpy as np

from memloci.approx.readouts.lookup import LookupLayer
from memloci.language.domain import Domain

FEW = 24  # tuned: letters up to which one layer has fewer parameters than two


def bits_of(count: int) -> int:
    """r: the bits that tell so many letters apart."""
    return max(1, math.ceil(math.log2(count)))


def codes(count: int) -> np.ndarray:
    """(letters, r): b(a), the letter's number in binary."""
    return (np.arange(count)[:, None] >> np.arange(bits_of(count))) & 1


def spacing(letters: Domain) -> float | None:
    """The distance of neighbours, if all have the same and it is a power of 2; else None."""
    values = [piece.lo for piece in letters]
    steps = {b - a for a, b in zip(values[:-1], values[1:], strict=True)}
    if len(steps) != 1:
        return None
    (step,) = steps
    return step if math.frexp(step)[0] == 0.5 else None


def in_digits(letters: Domain) -> bool:
    """Whether two layers are taken for the bits of these letters."""
    return len(letters) > FEW and spacing(letters) is not None


def read_letters(
    layer: LookupLayer, slot: str, letters: Domain, values: np.ndarray, outputs: Sequence[str]
) -> None:
    """Neurons for `values` (letters, outputs) at the letters, constant beyond both ends."""
    at = [piece.lo for piece in letters]
    if values[0].any():
        layer.add({}, 1.0, dict(zip(outputs, values[0], strict=True)))
    if len(at) == 1:
        return
    (_broken_line if spacing(letters) is not None else _steps)(layer, slot, at, values, outputs)


def _steps(
    layer: LookupLayer, slot: str, at: Sequence[float], values: np.ndarray, outputs: Sequence[str]
) -> None:
    """From each letter a to the next, b: relu(w x - o) - relu(w x - o - 1), w a power of 2 and o whole, w a <= o <= w b - 1.

    A slope that is 1 / (b - a) instead, like 1/3, would be rounded, and the code with it.
    """
    for a, b, jump in zip(at[:-1], at[1:], np.diff(values, axis=0), strict=True):
        if jump.any():
            w = 2.0 ** math.ceil(math.log2(2 / (b - a)))
            origin = math.ceil(w * a)
            layer.add({slot: w}, -float(origin), dict(zip(outputs, jump, strict=True)))
            layer.add({slot: w}, -float(origin + 1), dict(zip(outputs, -jump, strict=True)))


def _broken_line(
    layer: LookupLayer, slot: str, at: Sequence[float], values: np.ndarray, outputs: Sequence[str]
) -> None:
    """Linear between the letters, with a kink at each."""
    slopes = np.diff(values, axis=0) / np.diff(at)[:, None]
    turns = np.diff(
        np.concatenate([np.zeros((1, slopes.shape[1])), slopes, np.zeros((1, slopes.shape[1]))]), axis=0
    )
    for a, turn in zip(at, turns, strict=True):
        if turn.any():
            layer.add({slot: 1.0}, -a, dict(zip(outputs, turn, strict=True)))


def high_digit(layer: LookupLayer, slot: str, letters: Domain, base: int, output: str) -> None:
    """The number of the letter, divided by `base` and rounded down: a staircase."""
    step = spacing(letters)
    assert step is not None
    first = letters[0].lo
    for k in range(base, len(letters), base):
        layer.add({slot: 1 / step}, -(first / step + k - 1), {output: 1.0})
        layer.add({slot: 1 / step}, -(first / step + k), {output: -1.0})


def bits_of_digits(
    layer: LookupLayer, slot: str, high: str, letters: Domain, base: int, outputs: Sequence[str]
) -> None:
    """The bits, from the symbol and its high digit."""
    step = spacing(letters)
    assert step is not None
    first, low = letters[0].lo, bits_of(base)
    for digit, count, names in (
        ({slot: 1 / step, high: -float(base)}, base, outputs[:low]),
        ({high: 1.0}, -(-len(letters) // base), outputs[low:]),
    ):
        if not names:
            continue
        origin = first / step if slot in digit else 0.0
        slopes = np.diff(codes(count), axis=0)
        flat = np.zeros((1, slopes.shape[1]))
        turns = np.diff(np.concatenate([flat, slopes, flat]), axis=0)
        for k, turn in enumerate(turns):
            if turn.any():
                layer.add(digit, -(origin + k), dict(zip(names, turn, strict=True)))


def base_of(letters: Domain) -> int:
    """B: a power of 2 near the square root of the number of letters."""
    return 1 << -(-bits_of(len(letters)) // 2)
