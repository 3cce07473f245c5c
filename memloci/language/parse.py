"""Text to expression tree. Nothing a user writes is ever run by Python.

Python's own parser reads the text into a syntax tree; every node must be on the list below, and the
tree is copied into ours. Sizes are limited, so that no text can exhaust the stack or the memory.

How numbers are read. A literal is the nearest float64 number: 0.1 is 0x1.999999999999ap-4. A subexpression without
variables is one number too: its exact value, rounded once to the nearest float64 (balls.py). So 0.1 + 0.2 - 0.3 is
2^-55, not what a chain of rounded operations gives, and sin(1e10) is right to the last bit. Whatever is proved
of a task is proved of these numbers; a certificate lists those that had to be rounded.
"""

import ast
import difflib
import math
import sys
import warnings
from collections.abc import Collection

from memloci.core.errors import BadInput
from memloci.core.intervals import Undefined
from memloci.core.specs import shorten
from memloci.language.balls import pin
from memloci.language.evaluate import enclose
from memloci.language.expression import Apply, Constant, Expression, Variable, variables
from memloci.language.operations import CONSTANTS, OPERATIONS, functions

MAX_TEXT = 4_000  # characters
MAX_DEPTH = 80  # nested operations; the evaluators recurse


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
    return _fold(_Reader(text, names).read(body, 0))


def _fold(f: Expression) -> Expression:
    """Every largest subexpression without variables becomes the number that it stands for."""
    if not isinstance(f, Apply):
        return f
    if variables(f):
        return Apply(f.operation, tuple(map(_fold, f.operands)), f.text)
    try:
        around = enclose(f, {})  # its refusals say which operation has no value
        value, exact = pin(f) if math.isfinite(around.magnitude) else (math.inf, False)
    except Undefined as error:
        raise BadInput(f"{error} in {shorten(f.text)}" if " in " not in str(error) else str(error)) from None
    except BadInput as error:
        raise BadInput(f"{shorten(f.text)}: {error}") from None
    return Constant(_constant(value).value, "" if exact else f.text)


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
                return self._chain(name, [self.read(v, below) for v in values], node, depth)
            case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(o) in _COMPARE for o in ops):
                terms = [self.read(v, below) for v in (left, *rest)]
                links = [
                    self._apply(_COMPARE[type(o)], (a, b), node)
                    for o, a, b in zip(ops, terms[:-1], terms[1:], strict=True)
                ]
                return self._chain("and", links, node, depth)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, [self.read(a, below) for a in args], node, depth)
            case _:
                allowed = "numbers, variables, arithmetic, comparisons, and/or/not, " + ", ".join(functions())
                raise BadInput(
                    f"{shorten(self._written(node))} is not allowed in an expression; use {allowed}"
                )

    def _name(self, name: str) -> Expression:
        if name in self.names:
            return Variable(name)
        if name in CONSTANTS:
            return Constant(CONSTANTS[name])
        if name in functions():
            raise BadInput(f"{name} is a function; write {name}(...)")
        raise BadInput(f"unknown name {shorten(name)}{_suggest(name, self.names)}")

    def _call(self, name: str, operands: list[Expression], node: ast.expr, depth: int) -> Expression:
        if name not in functions():
            raise BadInput(f"unknown function {shorten(name)}; the functions are {', '.join(functions())}")
        if name in ("min", "max") and len(operands) > 2:
            return self._chain(name, operands, node, depth)
        arity = OPERATIONS[name].arity
        if len(operands) != arity:
            expected = f"{arity} value{'s' if arity > 1 else ''}"
            raise BadInput(
                f"{name} takes {expected}, found {len(operands)} in {shorten(self._written(node))}"
            )
        return self._apply(name, tuple(operands), node)

    def _chain(self, name: str, operands: list[Expression], node: ast.expr, depth: int) -> Expression:
        if depth + len(operands) > MAX_DEPTH:
            raise BadInput(f"the expression is nested more than {MAX_DEPTH} deep; split it")
        result = operands[0]
        for operand in operands[1:]:
            result = self._apply(name, (result, operand), node)
        return result

    def _apply(self, name: str, operands: tuple[Expression, ...], node: ast.expr) -> Expression:
        return Apply(name, operands, self._written(node))


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
