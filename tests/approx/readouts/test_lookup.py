"""Tables as neurons: exact on every symbol, deaf to errors below the margin, silent where a memory is blank."""

import itertools
import math

import numpy as np
import pytest

from memloci.approx.readouts.lookup import (
    Fresh,
    LookupLayer,
    LookupNeurons,
    Old,
    TooLong,
    gate,
    longest,
    lookup,
    place,
)
from memloci.core.errors import BadInput
from memloci.core.intervals import Interval
from memloci.language.domain import Domain

NOTHING = 1e-12  # what float64 rounds in a table of a few symbols
MARGIN = 0.25  # of the gap


def symbols(*values: float) -> Domain:
    return tuple(Interval(v, v) for v in values)


A, REAL, SPANS = symbols(1, 2, 3, 4), symbols(-1.5, 0.25, 3), (Interval(-1, -0.2), Interval(0.2, 1.0))
ALPHABETS = {"whole": A, "real": REAL, "intervals": SPANS, "two": symbols(-20.0, 60.0)}


def table_of(fresh: list[Fresh], old: list[Old], values: np.ndarray, lags=None) -> LookupNeurons:
    layer = LookupLayer()
    lookup(layer, fresh, old, values, [f"y{k}" for k in range(values.shape[-1])], lags)
    return layer.neurons()


def answers(neurons: LookupNeurons, outputs: int, values: dict[str, float]) -> list[float]:
    """What reaches each output; an output that no neuron writes stays 0."""
    found = neurons({name: values.get(name, 0.0) for name in neurons.inputs})
    return [found.get(f"y{k}", 0.0) for k in range(outputs)]


def least_gap(pieces: Domain) -> float:
    return min(b.lo - a.hi for a, b in itertools.pairwise(pieces))


def distances(i: int, n: int, rng: np.random.Generator) -> dict[str, float]:
    """Exactly 0 at the letter, at least 1 at every other."""
    return {f"d{k}": 0.0 if k == i else float(1 + 3 * rng.random()) for k in range(n)}


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ALPHABETS)
def test_a_table_is_exact_on_every_symbol(name, exact):
    pieces, rng = ALPHABETS[name], np.random.default_rng(0)
    values = rng.uniform(-2, 2, (len(pieces), 3))
    neurons = table_of([Fresh("a", pieces, exact=exact)], [], values)
    for piece, expected in zip(pieces, values, strict=True):
        for x in np.linspace(piece.lo, piece.hi, 5):
            assert answers(neurons, 3, {"a": x}) == pytest.approx(expected, abs=NOTHING)


@pytest.mark.parametrize("name", ALPHABETS)
def test_errors_below_a_quarter_of_the_gap_vanish(name):
    pieces, rng = ALPHABETS[name], np.random.default_rng(1)
    values = rng.uniform(-2, 2, (len(pieces), 2))
    neurons = table_of([Fresh("a", pieces)], [], values)
    for k, piece in enumerate(pieces):
        below = MARGIN * (piece.lo - pieces[k - 1].hi) if k else 5.0
        above = MARGIN * (pieces[k + 1].lo - piece.hi) if k + 1 < len(pieces) else 5.0
        for x in np.linspace(piece.lo - 0.999 * below, piece.hi + 0.999 * above, 9):
            assert answers(neurons, 2, {"a": x}) == pytest.approx(values[k], abs=1e-11)


def test_beyond_the_plateau_a_table_slides_to_its_neighbour():
    neurons = table_of([Fresh("a", A)], [], np.array([[1.0], [5.0], [5.0], [0.0]]))
    assert answers(neurons, 1, {"a": 1.5}) == pytest.approx([3.0])
    assert answers(neurons, 1, {"a": 2.5}) == pytest.approx([5.0])  # equal neighbours need no step


@pytest.mark.parametrize("seed", range(6))
def test_several_fresh_variables_and_errors_in_all_of_them(seed):
    """Each variable may err by the margin of its own line: the sum stays on the plateau of the least gap."""
    rng = np.random.default_rng(seed)
    alphabets = [ALPHABETS[str(name)] for name in rng.choice(list(ALPHABETS), 2)]
    fresh = [Fresh(f"x{k}", pieces) for k, pieces in enumerate(alphabets)]
    values = rng.uniform(-1, 1, (*map(len, alphabets), 2))
    neurons = table_of(fresh, [], values)
    for cell in itertools.product(*(range(len(pieces)) for pieces in alphabets)):
        at = {
            f"x{k}": float(rng.uniform(p[i].lo, p[i].hi))
            for k, (p, i) in enumerate(zip(alphabets, cell, strict=True))
        }
        assert answers(neurons, 2, at) == pytest.approx(values[cell], abs=1e-11)
        moved = {name: x + rng.uniform(-1, 1) * 1e-3 for name, x in at.items()}
        assert answers(neurons, 2, moved) == pytest.approx(values[cell], abs=1e-11)


@pytest.mark.parametrize("error", [1e-3, 0.02])
def test_errors_of_symbol_and_presence_vanish_together(error):
    """A recalled symbol brings a presence that is off by as much: neither reaches the table's value."""
    rng = np.random.default_rng(2)
    values = rng.uniform(-2, 2, (4, 2))
    neurons = table_of([Fresh("a1", A, presence="here")], [], values)
    for k, piece in enumerate(A):
        for sign, other in itertools.product((-1, 0, 1), repeat=2):
            at = {"a1": piece.lo + sign * error, "here": 1.0 + other * error}
            assert answers(neurons, 2, at) == pytest.approx(values[k], abs=NOTHING)


@pytest.mark.parametrize("name", ALPHABETS)
def test_a_blank_memory_silences_a_table(name):
    pieces, rng = ALPHABETS[name], np.random.default_rng(3)
    values = rng.uniform(1, 2, (len(pieces), 2))
    neurons = table_of([Fresh("a1", pieces, presence="here")], [], values)
    for error in (0.0, 1e-3, -1e-3):
        assert answers(neurons, 2, {"a1": error, "here": error}) == [0.0, 0.0]
    assert answers(neurons, 2, {"a1": pieces[-1].hi, "here": 1.0}) == pytest.approx(values[-1], abs=NOTHING)


def test_old_variables_choose_the_table():
    rng = np.random.default_rng(4)
    values = rng.uniform(-2, 2, (3, 4, 2))
    old = Old(REAL, ("d0", "d1", "d2"), absence="gone")
    neurons = table_of([Fresh("a", A, exact=True)], [old], values)
    for i, k in itertools.product(range(3), range(4)):
        at = {"a": A[k].lo, **distances(i, 3, rng), "gone": 0.0}
        assert answers(neurons, 2, at) == pytest.approx(values[i, k], abs=NOTHING)
    blank = {"a": 3.0, "d0": 0.0, "d1": 1.0, "d2": 5.0, "gone": 3.0}
    assert answers(neurons, 2, blank) == [0.0, 0.0]


def test_only_old_variables_need_one_neuron_per_cell():
    rng = np.random.default_rng(5)
    values = rng.uniform(1, 2, (3, 2))
    neurons = table_of([], [Old(REAL, ("d0", "d1", "d2"))], values)
    assert neurons.width == 3
    for i in range(3):
        assert answers(neurons, 2, distances(i, 3, rng)) == pytest.approx(values[i], abs=0)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ALPHABETS)
def test_distances_are_0_at_the_letter_and_1_elsewhere(name, exact):
    pieces, layer = ALPHABETS[name], LookupLayer()
    slots = [f"y{k}" for k in range(len(pieces))]
    place(layer, Fresh("a", pieces, exact=exact, presence="here"), slots, "gone")
    neurons = layer.neurons()
    flat = 0.0 if exact else 0.999 * MARGIN * least_gap(pieces)
    for k, piece in enumerate(pieces):
        for x in (piece.lo - flat, piece.lo, piece.hi, piece.hi + flat):
            found = neurons({"a": x, "here": 0.8})
            assert found[f"y{k}"] == 0.0 and found["gone"] == 0.0
            assert all(found[f"y{j}"] >= 1 - NOTHING for j in range(len(pieces)) if j != k)
    assert neurons({"a": 0.0, "here": 0.0})["gone"] >= 1


def test_an_affine_lag_uses_the_short_line():
    """2 a + b takes 10 values on 16 cells: fewer neurons than cells, however many outputs."""
    fresh = [Fresh("a", A, exact=True), Fresh("b", A, exact=True)]
    grid = np.array([[2 * p.lo + q.lo for q in A] for p in A])
    values = np.stack([np.cos(grid), np.sin(grid)], axis=-1)
    short, long = table_of(fresh, [], values, grid), table_of(fresh, [], values)
    assert short.width <= 10 < long.width
    for (i, p), (j, q) in itertools.product(enumerate(A), enumerate(A)):
        assert answers(short, 2, {"a": p.lo, "b": q.lo}) == pytest.approx(values[i, j], abs=NOTHING)


def test_runs_of_equal_values_cost_nothing():
    values = np.where(np.arange(64) < 32, 1.0, 7.0)[:, None]
    letters = symbols(*map(float, range(64)))
    assert table_of([Fresh("a", letters)], [], values).width <= 3


def test_equal_neurons_are_built_once():
    layer, values = LookupLayer(), np.array([[1.0], [2.0], [5.0], [3.0]])
    for name in ("y0", "y1"):
        lookup(layer, [Fresh("a", A)], [], values, [name])
    neurons = layer.neurons()
    assert neurons.width == table_of([Fresh("a", A)], [], values).width
    assert answers(neurons, 2, {"a": 3.0}) == pytest.approx([5.0, 5.0])


PAYLOADS = (-0.75, 0.0, 1e-9, 0.3, 0.75)


@pytest.mark.parametrize("passes", list(itertools.product([False, True], repeat=4)))
def test_a_gate_passes_the_value_or_nothing(passes):
    layer = LookupLayer()
    gate(layer, [Fresh("a", A, presence="here")], [], np.array(passes), [("v", "y0", 0.75)])
    neurons = layer.neurons()
    for k, v, error in itertools.product(range(4), PAYLOADS, (-0.2, 0.0, 0.2)):
        found = answers(neurons, 1, {"a": A[k].lo + error, "here": 1.0, "v": v})
        assert found == pytest.approx([v if passes[k] else 0.0], abs=1e-14)
        if not passes[k]:
            assert abs(found[0]) <= 1e-15
    for v in PAYLOADS:
        assert answers(neurons, 1, {"a": 0.0, "here": 0.0, "v": v}) == [0.0]


def test_a_gate_on_exact_letters_measures_from_the_last_that_passes():
    """Far letters would cost roundings of their size; measured from an origin they cost none."""
    far, layer = symbols(*(2.0**k for k in range(9))), LookupLayer()
    passes = np.arange(9) == 0
    gate(layer, [Fresh("a", far, exact=True)], [], passes, [("v", "y0", 1.0)])
    neurons = layer.neurons()
    (slot,) = layer.origins
    assert layer.origins[slot] == ("a", 1.0)
    for k, v in itertools.product(range(9), (-1.0, 0.1, 1.0)):
        assert answers(neurons, 1, {slot: 2.0**k - 1.0, "v": v}) == pytest.approx([v * (k == 0)], abs=3e-16)


def test_a_gate_on_old_letters_and_two_payloads():
    rng, layer = np.random.default_rng(6), LookupLayer()
    passes = rng.random((3, 4)) < 0.5
    old, payloads = Old(REAL, ("d0", "d1", "d2"), absence="gone"), [("v", "y0", 1.0), ("w", "y1", 3.0)]
    gate(layer, [Fresh("a", A)], [old], passes, payloads)
    neurons = layer.neurons()
    for i, k in itertools.product(range(3), range(4)):
        at = {"a": A[k].lo, **distances(i, 3, rng), "gone": 0.0, "v": 0.7, "w": -3.0}
        expected = [0.7, -3.0] if passes[i, k] else [0.0, 0.0]
        assert answers(neurons, 2, at) == pytest.approx(expected, abs=1e-13)
        assert answers(neurons, 2, {**at, "gone": 3.0}) == [0.0, 0.0]


def test_a_gate_that_never_passes_has_no_neurons():
    layer = LookupLayer()
    gate(layer, [Fresh("a", A)], [], np.zeros(4, dtype=bool), [("v", "y0", 1.0)])
    assert layer.neurons().width == 0


def test_too_many_symbols_for_the_precision_are_refused():
    letters = symbols(*map(float, range(200)))
    values = np.arange(200.0)[:, None] % 2
    with pytest.raises(TooLong, match="200 symbols on one line; at most 48"):
        lookup(LookupLayer(), [Fresh("a", letters)], [], values, ["y0"], longest=longest("float32"))
    lookup(LookupLayer(), [Fresh("a", letters)], [], values, ["y0"], longest=longest("float64"))


def test_too_many_neurons_are_refused(monkeypatch):
    monkeypatch.setattr("memloci.approx.readouts.lookup.MAX_WIDTH", 5)
    layer = LookupLayer()
    lookup(layer, [Fresh("a", A)], [], np.array([[1.0], [5.0], [2.0], [0.0]]), ["y0"])
    with pytest.raises(BadInput, match="needs 7 neurons; at most 5"):
        layer.neurons()


def test_a_table_of_no_variable_is_a_constant():
    neurons = table_of([], [], np.array([2.5, 0.0]))
    assert answers(neurons, 2, {}) == [2.5, 0.0] and math.isfinite(neurons.c.sum())
