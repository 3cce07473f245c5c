"""Expressions as trees: numbers, variables, and operations of operations.py applied to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Constant:
    value: float
    rounded_from: str = field(
        compare=False, default=""
    )  # the text whose value this is the nearest float64 to


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class Apply:
    operation: str  # a key of OPERATIONS
    operands: tuple["Expression", ...]
    text: str = field(compare=False, default="")  # as the user wrote it, for messages


Expression = Constant | Variable | Apply


def variables(expression: Expression) -> frozenset[str]:
    """The names that an expression reads."""
    match expression:
        case Variable(name):
            return frozenset({name})
        case Apply(operands=operands):
            return frozenset().union(*map(variables, operands))
        case _:
            return frozenset()


def renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    """The same with other names for some variables."""
    match expression:
        case Variable(name):
            return Variable(names.get(name, name))
        case Apply(operands=operands):
            return replace(expression, operands=tuple(renamed(o, names) for o in operands))
        case _:
            return expression


def rounded_constants(expression: Expression) -> dict[str, float]:
    """The subexpressions without variables whose value is no float64 number, and the number they are read as."""
    match expression:
        case Constant(value, text) if text:
            return {text: value}
        case Apply(operands=operands):
            return {text: value for o in operands for text, value in rounded_constants(o).items()}
        case _:
            return {}
