"""Every operation contains what it should, at the points where floating point is awkward."""

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator

import numpy as np
import pytest
from flint import arb, ctx

from memloci.core.intervals import WHOLE_LINE, Interval, Undefined, point
from memloci.language.evaluate import dual, enclose, enclose_boxes, on_boxes
from memloci.language.expression import Apply, Variable
from memloci.language.operations import OPERATIONS, Operation
from memloci.language.parse import parse

from .exact import BITS, Unsure, exact, exact_operation, outside, ulps

INF = math.inf
TINY, HUGE = 5e-324, 1.7976931348623157e308
MAGNITUDES = [TINY, 1e-300, 1e-9, 0.1, 0.5, 1.0, math.pi / 2, 2.0, math.pi, 3.0, 2 * math.pi, 7.5, 22.0]
MAGNITUDES += [300.0, 710.0, 1e6, 2.0**41, 2.0**53 + 2, 1e155, HUGE]
AWKWARD = sorted({s * m for s in (-1.0, 1.0) for m in MAGNITUDES} | {0.0})
SAMPLES = 400  # intervals, or pairs of them, per operation


def applied(name: str) -> Apply:
    """The operation, of variables x1, x2, ..."""
    return Apply(name, tuple(Variable(f"x{k + 1}") for k in range(OPERATIONS[name].arity)))


def box_of(operands: tuple[Interval, ...] | list[Interval]) -> dict[str, Interval]:
    return {f"x{k + 1}": operand for k, operand in enumerate(operands)}


def _samples(interval: Interval) -> list[float]:
    inner = [x for x in AWKWARD if interval.contains(x)]
    middle = interval.lo / 2 + interval.hi / 2
    return [x for x in {*interval, middle, *inner} if math.isfinite(x) and interval.contains(x)]


def awkward_operands(name: str, choose: random.Random) -> Iterator[list[Interval]]:
    """Operands whose ends are awkward; narrow ones too, because wide ones hide mistakes."""
    ends = [-INF, *AWKWARD, INF]
    for _ in range(SAMPLES):
        operands = []
        for _ in range(OPERATIONS[name].arity):
            k = choose.randrange(len(ends))
            lo, hi = ends[k], ends[min(k + choose.choice([0, 1, 2, 4, len(ends)]), len(ends) - 1)]
            operands.append(Interval(min(lo, HUGE), max(hi, -HUGE)))
        yield operands


def values_on(name: str, operands: list[Interval], choose: random.Random) -> Iterator[arb]:
    """A few of the values that the operation has on the operands."""
    grid = list(itertools.product(*map(_samples, operands)))
    for values in choose.sample(grid, min(9, len(grid))):
        try:
            yield exact_operation(name, *values)
        except Unsure:
            continue


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_enclosure_contains_sampled_values(name):
    choose = random.Random(name)
    checked = 0
    for operands in awkward_operands(name, choose):
        try:
            enclosure = enclose(applied(name), box_of(operands))
        except Undefined:
            continue
        for value in values_on(name, operands, choose):
            assert not outside(value, enclosure), (name, operands, value, enclosure)
            checked += 1
    assert checked > SAMPLES


@pytest.mark.parametrize("name", OPERATIONS)
def test_many_boxes_are_enclosed_as_each_of_them_alone(name):
    """Arrays of ends give sharp enclosures of the same values, and the whole line where one box alone is refused."""
    choose = random.Random(name)
    boxes = list(awkward_operands(name, choose))
    columns = [Interval(*map(np.array, zip(*column, strict=True))) for column in zip(*boxes, strict=True)]
    together = enclose_boxes(applied(name), box_of(columns))
    lo, hi = (np.broadcast_to(end, len(boxes)) for end in together)
    assert (lo <= hi).all()
    for k, operands in enumerate(boxes):
        many = Interval(float(lo[k]), float(hi[k]))
        try:
            alone = enclose(applied(name), box_of(operands))
        except Undefined:
            assert many == WHOLE_LINE, (name, operands, many)
            continue
        assert many.lo <= alone.hi and alone.lo <= many.hi, (name, operands, many, alone)
        for value in values_on(name, operands, choose):
            assert not outside(value, many), (name, operands, value, many)


@pytest.mark.long(2)
@pytest.mark.parametrize("many", [False, True], ids=["one box", "many boxes"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_slopes_contain_the_difference_quotients_of_every_operation(name, many):
    """Mean value theorem, one operand moving at a time; a jump therefore has unbounded slopes."""
    choose = random.Random(name)
    checked = 0
    for operands in awkward_operands(name, choose):
        box = box_of(operands)
        if many:
            box = {n: Interval(np.array([part.lo]), np.array([part.hi])) for n, part in box.items()}
        try:
            found = (on_boxes(applied(name), box) if many else dual(applied(name), box))[1]
        except Undefined:
            continue
        points = [_samples(x) for x in operands]
        for _ in range(9):
            here = [choose.choice(options) for options in points]
            k = choose.randrange(len(here))
            there = [*here[:k], choose.choice(points[k]), *here[k + 1 :]]
            if there == here:
                continue
            try:
                before, after = exact_operation(name, *here), exact_operation(name, *there)
            except Unsure:
                continue
            with ctx.workprec(BITS):
                quotient = (after - before) / (arb(there[k]) - arb(here[k]))
            ends = found.get(f"x{k + 1}", point(0.0))  # the branch that is not taken has no slope
            slope = Interval(*(float(np.asarray(end).item()) for end in ends))
            assert not outside(quotient, slope), (name, operands, here, there, quotient, slope)
            checked += 1
    assert checked > SAMPLES / 4


MODERATE = [-22.0, -math.pi, -2.0, -1.0, -0.5, -0.1, 0.0, 0.1, 0.25, 0.5, 1.0, math.pi / 2, 3.0, 7.5]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_enclosure_at_a_point_is_sharp(name):
    """At points where a value exists the enclosure exists too, and is a few units in the last place wide."""
    operation = OPERATIONS[name]
    checked = 0
    for values in itertools.product(MODERATE, repeat=operation.arity):
        try:
            value = exact_operation(name, *values)
        except Unsure:
            continue
        enclosure = enclose(applied(name), box_of([*map(point, values)]))
        assert not outside(value, enclosure)
        wide = 64 if name == "**" else 8  # a power is repeated multiplication
        least = 4 * math.ulp(1.0) if name in ("sin", "cos") else 2 * TINY  # near a zero at a multiple of pi
        assert ulps(enclosure) <= wide or enclosure.width <= least, (name, values, enclosure)
        checked += 1
    assert checked >= 5


UNDEFINED = [
    ("/", (Interval(1.0, 2.0), Interval(-1.0, 1.0)), "divisor"),
    ("/", (Interval(1.0, 2.0), point(0.0)), "divisor"),
    ("//", (Interval(1.0, 2.0), Interval(0.0, 1.0)), "divisor"),
    ("%", (Interval(1.0, 2.0), Interval(-1.0, 0.0)), "divisor"),
    ("log", (Interval(0.0, 1.0),), "log"),
    ("sqrt", (Interval(-TINY, 1.0),), "sqrt"),
    ("**", (Interval(-1.0, 1.0), point(-1.0)), "divisor"),
    ("**", (Interval(-1.0, 1.0), point(0.5)), "whole-number"),
    ("**", (Interval(0.0, 1.0), Interval(-1.0, 1.0)), "positive exponent"),
]


@pytest.mark.parametrize(("name", "operands", "reason"), UNDEFINED)
def test_an_operation_that_may_not_exist_says_so(name, operands, reason):
    with pytest.raises(Undefined, match=reason):
        enclose(applied(name), box_of(operands))
    with pytest.raises(Undefined, match=reason):
        dual(applied(name), box_of(operands))


@pytest.mark.parametrize(("name", "operands", "reason"), UNDEFINED)
def test_among_many_boxes_one_without_a_value_is_the_whole_line(name, operands, reason):
    """The box beside it is enclosed as ever; so are the slopes."""
    beside = [point(2.0)] * len(operands)
    box = box_of(
        [Interval(*map(np.array, zip(x, y, strict=True))) for x, y in zip(operands, beside, strict=True)]
    )
    value, partials = on_boxes(applied(name), box)
    for found in (value, *partials.values()):
        assert (found.lo[0], found.hi[0]) == (-INF, INF)
    for found in (value, *partials.values()):
        assert np.isfinite(found.lo[1]) and np.isfinite(found.hi[1])


# Divisors that are not 0, but whose powers are below the smallest number; an exponent beside the last whole one.
EXTREME = [
    ("1 / x", 1e-200, 1e-190),
    ("1 / x", TINY, 1.0),
    ("x ** -2", 1e-200, 1e-190),
    ("x ** -2", -1e-190, -1e-200),
    ("x ** -3", 1e-200, 1e-190),
    ("x ** -3", -1e-190, -1e-200),
    ("x ** -1024", -2.0, -1.0),
    ("x ** -1023", -2.0, -1.0),
    ("x ** 1024", -1.0, 0.5),
    ("x ** 1025", 0.5, 1.0),
    ("x ** -1.5", 1e-300, 1e-299),
    ("0 ** (x + 3)", 0.0, 1.0),
    ("2 ** (500 * x)", 1.0, 2.0),
    ("exp(500 * x)", 1.0, 2.0),
]


@pytest.mark.parametrize(("text", "lo", "hi"), EXTREME)
def test_values_and_slopes_beyond_float64_are_enclosed(text, lo, hi):
    """With Python's numbers, with NumPy's, and with arrays of them."""
    f = parse(text, ("x",))
    points = [lo, lo + (hi - lo) / 3, hi]
    values = [exact(f, {"x": x}) for x in points]
    with ctx.workprec(BITS):
        rise = (values[2] - values[0]) / (arb(hi) - arb(lo))
    with np.errstate(all="ignore"):
        found = [
            dual(f, {"x": Interval(lo, hi)}),
            dual(f, {"x": Interval(np.float64(lo), np.float64(hi))}),
            on_boxes(f, {"x": Interval(np.array([lo]), np.array([hi]))}),
        ]
    for value, partials in found:
        value, slope = (Interval(*(float(np.asarray(e).item()) for e in x)) for x in (value, partials["x"]))
        assert value.lo <= value.hi and slope.lo <= slope.hi
        assert not any(outside(at, value) for at in values)
        assert not outside(rise, slope)


def test_an_operation_needs_every_column():
    """A row with a gap cannot be made, so the table cannot be imported with one."""
    columns = {column.name: getattr(OPERATIONS["+"], column.name) for column in dataclasses.fields(Operation)}
    assert Operation(**columns) == OPERATIONS["+"]
    for missing in ("arity", "apply", "value", "slopes", "undefined", "ball", "tail"):
        with pytest.raises(TypeError, match=missing):
            Operation(**{name: column for name, column in columns.items() if name != missing})


def test_whole_numbers_stay_points():
    """Lag tables rely on it: what is exact is not widened."""
    for name, expected in {"+": 9, "-": 3, "*": 18, "//": 2, "%": 0, "**": 216, "min": 3, "max": 6}.items():
        assert enclose(applied(name), box_of([point(6.0), point(3.0)])) == point(float(expected)), name
