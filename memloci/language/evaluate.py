"""The value of an expression: on arrays, on intervals, and with its partial derivatives.

    evaluate(f, {x1: array}, xp)      arrays in, array out; xp is numpy or jax.numpy
    enclose(f, {x1: [a, b]})          an interval that contains f on the whole box
    dual(f, {x1: [a, b]})             that, and for every variable an interval that contains df/dx on the box

A box is one box, with floats for ends, or many, with arrays. On one box an operation without a value raises
`Undefined`: the caller may split the box and try again, or refuse. Of many, a box on which that would happen gets the
whole line, whatever is then done with the value: 0 * log(x1) is not 0 at x1 = -1.
`dual` is forward differentiation in interval arithmetic: chain rule, enclosures throughout.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from memloci.core import intervals as iv
from memloci.core.intervals import TRUE, WHOLE_LINE, Interval, Undefined, choose
from memloci.core.specs import shorten
from memloci.language.expression import Apply, Constant, Expression, Variable
from memloci.language.operations import OPERATIONS

Box = Mapping[str, Interval]
NARROW = 1e-6  # relative width of an enclosure in which no jump hides


def evaluate(expression: Expression, values: Mapping[str, Any], xp: Any, branch: Any = None) -> Any:
    """The value; `branch` says where it will be used, inside the branch of a `where`.

    Elsewhere every operation is fed 1, at which all are smooth: the branch that is not taken then gives
    neither a warning nor a derivative that is not a number.
    """
    match expression:
        case Constant(value):
            return value
        case Variable(name):
            return values[name]
        case Apply("where", (condition, x, y)):
            chosen = xp.not_equal(evaluate(condition, values, xp, branch), 0)
            if_chosen = chosen if branch is None else chosen & branch
            otherwise = ~chosen if branch is None else ~chosen & branch
            return xp.where(chosen, evaluate(x, values, xp, if_chosen), evaluate(y, values, xp, otherwise))
        case Apply(operation, operands):
            arguments = [evaluate(o, values, xp, branch) for o in operands]
            if branch is not None:
                arguments = [
                    a if isinstance(o, Constant) else xp.where(branch, a, xp.ones_like(a))
                    for a, o in zip(arguments, operands, strict=True)
                ]
            return OPERATIONS[operation].apply(xp, *arguments)


def enclose(expression: Expression, box: Box) -> Interval:
    """An interval that contains the expression on the box; on each of many boxes."""
    value, undefined = _enclose(expression, box, _many(box))
    return choose(undefined, WHOLE_LINE, value)


def can_overflow(expression: Expression, box: Box) -> bool:
    """Whether a value on the way may exceed float64 on one box: sin(x1 ** x1) is a number at 144, and its power is not."""
    match expression:
        case Apply("where", (condition, x, y)):
            branch = _branch(enclose(condition, box), x, y)
            parts = (condition, x, y) if branch is None else (condition, branch)
        case Apply(_, operands):
            parts = operands
        case _:
            parts = ()
    return not all(map(math.isfinite, enclose(expression, box))) or any(
        can_overflow(part, box) for part in parts
    )


def dual(expression: Expression, box: Box) -> tuple[Interval, dict[str, Interval]]:
    """The enclosure, and the enclosures of all partial derivatives."""
    value, partials, undefined = _dual(expression, box, _many(box))
    partials = {name: choose(undefined, WHOLE_LINE, partial) for name, partial in partials.items()}
    return choose(undefined, WHOLE_LINE, value), partials


def _enclose(expression: Expression, box: Box, many: bool) -> tuple[Interval, Any]:
    """The enclosure, and on which of many boxes an operation may have no value."""
    match expression:
        case Constant(value):
            return iv.point(value), False
        case Variable(name):
            return box[name], False
        case Apply("where", (condition, x, y)):
            decision, undecided = _enclose(condition, box, many)
            if (branch := _branch(decision, x, y)) is not None:
                value, undefined = _enclose(branch, box, many)
                return value, undecided | undefined
            (a, no_a), (b, no_b) = _enclose(x, box, many), _enclose(y, box, many)
            return iv.select(decision, a, b), undecided | _of_branches(decision, no_a, no_b)
        case Apply(operation, operands, text):
            inner = [_enclose(o, box, many) for o in operands]
            arguments = [value for value, _ in inner]
            undefined = _undefined(operation, arguments, text, many)
            (value,) = _whole_line_where(undefined, lambda: (OPERATIONS[operation].value(*arguments),), 1)
            return value, _any([undefined, *(undefined_below for _, undefined_below in inner)])


def _dual(expression: Expression, box: Box, many: bool) -> tuple[Interval, dict[str, Interval], Any]:
    """The same with the partial derivatives."""
    match expression:
        case Constant(value):
            return iv.point(value), {}, False
        case Variable(name):
            return box[name], {name: TRUE}, False
        case Apply("where", (condition, x, y)) if (
            branch := _branch((decided := _enclose(condition, box, many))[0], x, y)
        ) is not None:
            value, partials, undefined = _dual(branch, box, many)
            return value, partials, decided[1] | undefined
        case Apply(operation, operands, text):
            inner = [_dual(o, box, many) for o in operands]
            arguments = [value for value, _, _ in inner]
            undefined, row = _undefined(operation, arguments, text, many), OPERATIONS[operation]
            value, *slopes = _whole_line_where(
                undefined, lambda: (row.value(*arguments), *row.slopes(*arguments)), 1 + len(inner)
            )
            total: dict[str, Interval] = {}
            for slope, (_, partials, _) in zip(slopes, inner, strict=True):
                for name, partial in partials.items():
                    term = iv.mul(slope, partial)
                    total[name] = iv.add(total[name], term) if name in total else term
            below = [undefined_below for _, _, undefined_below in inner]
            if operation == "where":
                below = [below[0], _of_branches(arguments[0], *below[1:])]
            return value, total, _any([undefined, *below])


def _many(box: Box) -> bool:
    return not all(map(iv.single, box.values()))


def _branch(decision: Interval, x: Expression, y: Expression) -> Expression | None:
    """The branch of a `where` that one box takes; the other need not be defined: where(x1 > 0, log(x1), 0)."""
    if not iv.single(decision):
        return None
    decided = iv.truth(decision)
    return None if decided == iv.EITHER else x if decided == TRUE else y


def _of_branches(decision: Interval, no_x: Any, no_y: Any) -> Any:
    """Where a `where` is undefined: where a branch is that it may take."""
    decided = iv.truth(decision)
    return (no_x & (decided.hi == 1.0)) | (no_y & (decided.lo == 0.0))


def _any(conditions: list[Any]) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = result | condition
    return result


def _undefined(operation: str, arguments: list[Interval], text: str, many: bool) -> Any:
    """On which of many boxes the operation may have no value; of one box, it has one or `Undefined` is raised."""
    undefined, reason = OPERATIONS[operation].undefined(*arguments)
    if not many and undefined:
        raise Undefined(f"{reason} in {shorten(text)}" if text else reason)
    return bool(undefined) if iv.is_decided(undefined) else undefined


def _whole_line_where(
    undefined: Any, intervals: Callable[[], tuple[Interval, ...]], count: int
) -> tuple[Interval, ...]:
    """The intervals found, the whole line where the operation has no value."""
    if undefined is True:
        return (WHOLE_LINE,) * count
    return tuple(choose(undefined, WHOLE_LINE, x) for x in intervals())


def slopes(expression: Expression, box: Box) -> dict[str, Interval]:
    return dual(expression, box)[1]


def on_boxes(f: Expression, box: Box) -> tuple[Interval, dict[str, Interval]]:
    """`dual` on many boxes, whose ends are arrays; what overflows there is no mistake."""
    import numpy as np

    with np.errstate(all="ignore"):
        return dual(f, box)


def enclose_boxes(f: Expression, box: Box) -> Interval:
    """`enclose` on many boxes."""
    import numpy as np

    with np.errstate(all="ignore"):
        return enclose(f, box)


def doubtful(f: Expression, values: Mapping[str, Any]) -> Any:
    """The indices at which a rounded comparison or step in f may go the wrong way; `values` are arrays."""
    import numpy as np

    (shape,) = {np.shape(value) for value in values.values()}
    spans = enclose_boxes(f, {name: Interval(value, value) for name, value in values.items()})
    lo, hi = (np.broadcast_to(end, shape) for end in spans)
    with np.errstate(invalid="ignore"):
        sure = hi - lo <= NARROW * np.maximum(np.abs(lo), np.abs(hi))
    return np.flatnonzero(~(sure & np.isfinite(lo) & np.isfinite(hi)))


def jumps(expression: Expression) -> bool:
    """Whether an operation in it is a step, a comparison or a choice."""
    if not isinstance(expression, Apply):
        return False
    return OPERATIONS[expression.operation].jumps or any(map(jumps, expression.operands))
