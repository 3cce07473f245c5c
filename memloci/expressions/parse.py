"""Text to expression tree. Nothing a user writes is ever run by Python.

Python's own parser reads the text into a syntax tree; every node must be on the list below, and the
tree is copied into ours. Sizes are limited, so that no text can exhaust the stack or the memory.
"""

import ast
import difflib
import math
import sys
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field

from memloci.errors import BadInput
from memloci.expressions.interval import Undefined, point
from memloci.expressions.language import CONSTANTS, FUNCTIONS, OPERATIONS
from memloci.specs import shorten

MAX_TEXT = 4_000  # characters
MAX_DEPTH = 80  # nested operations; the evaluators recurse


@dataclass(frozen=True)
class Constant:
    value: float


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class Apply:
    operation: str  # a key of OPERATIONS
    operands: tuple["Expression", ...]
    text: str = field(compare=False, default="")  # as the user wrote it, for messages


Expression = Constant | Variable | Apply

_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def parse(text: str, names: Collection[str]) -> Expression:
    """The expression that `text` writes, over the variables in `names`."""
    if len(text) > MAX_TEXT:
        raise BadInput(f"the expression has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    if not text.strip():
        raise BadInput("the expression is empty")
    text = text.strip()
    strange = next((c for c in text if not (c.isascii() and (c.isprintable() or c in "\t\r\n"))), None)
    if strange is not None:
        raise BadInput(f"{shorten(text)} has the character {ascii(strange)}; an expression is plain ASCII")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's advice on its own language
            body = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise BadInput(f"{shorten(text)} is not an expression ({error.msg})") from None
    except (ValueError, RecursionError, MemoryError):
        raise BadInput(f"{shorten(text)} is not an expression") from None
    return _Reader(text, names).read(body, 0)


class _Reader:
    def __init__(self, text: str, names: Collection[str]):
        self.text = text
        self.names = names

    def _written(self, node: ast.expr) -> str:
        """The part of the text that a node was read from."""
        return ast.get_source_segment(self.text, node) or ""

    def read(self, node: ast.expr, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise BadInput(f"the expression is nested more than {MAX_DEPTH} deep; split it")
        below = depth + 1
        match node:
            case ast.Constant(value=bool()):
                raise BadInput(f"{node.value} is not a number; write 1 or 0")
            case ast.Constant(value=int() | float() as value):
                return _constant(value)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.read(operand, below)
                if isinstance(inner, Constant):
                    return Constant(-inner.value)
                return self._apply("neg", (inner,), node)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand, below)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._apply("not", (self.read(operand, below),), node)
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
                operands = self.read(left, below), self.read(right, below)
                return self._apply(_BINARY[type(op)], operands, node)
            case ast.BoolOp(op=op, values=values):
                name = "and" if isinstance(op, ast.And) else "or"
                return self._fold(name, [self.read(v, below) for v in values], node, depth)
            case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(o) in _COMPARE for o in ops):
                terms = [self.read(v, below) for v in (left, *rest)]
                links = [
                    self._apply(_COMPARE[type(o)], (a, b), node)
                    for o, a, b in zip(ops, terms[:-1], terms[1:], strict=True)
                ]
                return self._fold("and", links, node, depth)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, [self.read(a, below) for a in args], node, depth)
            case _:
                allowed = "numbers, variables, arithmetic, comparisons, and/or/not, " + ", ".join(FUNCTIONS)
                raise BadInput(
                    f"{shorten(self._written(node))} is not allowed in an expression; use {allowed}"
                )

    def _name(self, name: str) -> Expression:
        if name in self.names:
            return Variable(name)
        if name in CONSTANTS:
            return Constant(CONSTANTS[name])
        if name in FUNCTIONS:
            raise BadInput(f"{name} is a function; write {name}(...)")
        raise BadInput(f"unknown name {shorten(name)}{_suggest(name, self.names)}")

    def _call(self, name: str, operands: list[Expression], node: ast.expr, depth: int) -> Expression:
        if name not in FUNCTIONS:
            raise BadInput(f"unknown function {shorten(name)}; the functions are {', '.join(FUNCTIONS)}")
        if name in ("min", "max") and len(operands) > 2:
            return self._fold(name, operands, node, depth)
        arity = OPERATIONS[name].arity
        if len(operands) != arity:
            wanted = f"{arity} value{'s' if arity > 1 else ''}"
            raise BadInput(f"{name} takes {wanted}, found {len(operands)} in {shorten(self._written(node))}")
        return self._apply(name, tuple(operands), node)

    def _fold(self, name: str, operands: list[Expression], node: ast.expr, depth: int) -> Expression:
        if depth + len(operands) > MAX_DEPTH:
            raise BadInput(f"the expression is nested more than {MAX_DEPTH} deep; split it")
        result = operands[0]
        for operand in operands[1:]:
            result = self._apply(name, (result, operand), node)
        return result

    def _apply(self, name: str, operands: tuple[Expression, ...], node: ast.expr) -> Expression:
        text = self._written(node)
        numbers = [operand.value for operand in operands if isinstance(operand, Constant)]
        if len(numbers) < len(operands):
            return Apply(name, operands, text)
        try:  # numbers only: the middle of an interval that holds the value
            value = OPERATIONS[name].enclose(*map(point, numbers))
        except Undefined as error:
            raise BadInput(f"{error} in {shorten(text)}") from None
        return _constant(value.lo + value.width / 2)


def _constant(value: int | float) -> Constant:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):  # NaN too: infinity minus infinity
        raise BadInput("a number is too large for float64")
    if 0 < abs(number) < sys.float_info.min:  # XLA reads a subnormal as 0, and x / 0 is not x / 1e-320
        raise BadInput("a number is too close to 0 for float64; write 0")
    return Constant(number)


def _suggest(name: str, names: Collection[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    listed = sorted(names)
    return f"; the variables are {', '.join(listed[:8])}{', ...' if len(listed) > 8 else ''}"


def variables(expression: Expression) -> frozenset[str]:
    """The names that an expression reads."""
    match expression:
        case Variable(name):
            return frozenset({name})
        case Apply(operands=operands):
            return frozenset().union(*map(variables, operands))
        case _:
            return frozenset()
