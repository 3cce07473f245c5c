"""The value of an expression: on arrays, on intervals, and with its partial derivatives.

    evaluate(f, {x1: array}, xp)      arrays in, array out; xp is numpy or jax.numpy
    enclose(f, {x1: [a, b]})          an interval that contains f on the whole box
    slopes(f, {x1: [a, b]})           for every variable, an interval that contains df/dx on the box

`slopes` is forward differentiation in interval arithmetic: chain rule, enclosures throughout.
"""

from collections.abc import Mapping
from typing import Any

from memloci.expressions import interval as iv
from memloci.expressions.interval import FALSE, TRUE, Interval, Undefined
from memloci.expressions.language import OPERATIONS
from memloci.expressions.parse import Apply, Constant, Expression, Variable
from memloci.specs import shorten

Box = Mapping[str, Interval]


def evaluate(expression: Expression, values: Mapping[str, Any], xp: Any, taken: Any = None) -> Any:
    """The value; `taken` says where it will be used, inside the branch of a `where`.

    Elsewhere every operation is fed 1, at which all are smooth: the branch that is not taken then gives
    neither a warning nor a derivative that is not a number.
    """
    match expression:
        case Constant(value):
            return value
        case Variable(name):
            return values[name]
        case Apply("where", (condition, x, y)):
            chosen = xp.not_equal(evaluate(condition, values, xp, taken), 0)
            here = chosen if taken is None else chosen & taken
            there = ~chosen if taken is None else ~chosen & taken
            return xp.where(chosen, evaluate(x, values, xp, here), evaluate(y, values, xp, there))
        case Apply(operation, operands):
            arguments = [evaluate(o, values, xp, taken) for o in operands]
            if taken is not None:
                arguments = [
                    a if isinstance(o, Constant) else xp.where(taken, a, xp.ones_like(a))
                    for a, o in zip(arguments, operands, strict=True)
                ]
            return OPERATIONS[operation].apply(xp, *arguments)


def enclose(expression: Expression, box: Box) -> Interval:
    match expression:
        case Constant(value):
            return iv.point(value)
        case Variable(name):
            return box[name]
        case Apply("where", (condition, x, y)):
            # The branch that is not taken need not be defined: where(x1 > 0, log(x1), 0).
            known = iv.truth(enclose(condition, box))
            if known != iv.EITHER:
                return enclose(x if known == TRUE else y, box)
            return iv.hull(enclose(x, box), enclose(y, box))
        case Apply(operation, operands, text):
            inner = [enclose(o, box) for o in operands]
            try:
                return OPERATIONS[operation].enclose(*inner)
            except Undefined as error:
                raise Undefined(
                    f"{error} in {shorten(text)}" if " in " not in str(error) else str(error)
                ) from None


def slopes(expression: Expression, box: Box) -> dict[str, Interval]:
    return _dual(expression, box)[1]


def _dual(expression: Expression, box: Box) -> tuple[Interval, dict[str, Interval]]:
    match expression:
        case Constant() | Variable():
            own = {expression.name: TRUE} if isinstance(expression, Variable) else {}
            return enclose(expression, box), own
        case Apply("where", (condition, x, y)) if (known := iv.truth(enclose(condition, box))) != iv.EITHER:
            return _dual(x if known == TRUE else y, box)
        case Apply(operation, operands):
            inner = [_dual(o, box) for o in operands]
            arguments = [value for value, _ in inner]
            outer = OPERATIONS[operation].slopes(*arguments)
            total: dict[str, Interval] = {}
            for slope, (_, partials) in zip(outer, inner, strict=True):
                for name, partial in partials.items():
                    total[name] = iv.add(total.get(name, FALSE), iv.mul(slope, partial))
            return OPERATIONS[operation].enclose(*arguments), total
