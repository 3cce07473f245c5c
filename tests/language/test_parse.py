"""Only the language gets through; everything else is refused in one line."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memloci.core.errors import BadInput
from memloci.language.expression import Constant, variables
from memloci.language.parse import MAX_DEPTH, MAX_TEXT, parse

from .texts import expression_texts

NOT_ALLOWED = "is not allowed in an expression; use numbers"
NO_EXPRESSION = "is not an expression"
TOO_DEEP = "nested more than 80 deep"
TOO_LARGE = "too large for float64"
NOT_ASCII = "an expression is plain ASCII"

HOSTILE = {
    "attribute": ("x1.__class__", NOT_ALLOWED),
    "dunder chain": ("x1.__class__.__mro__[1].__subclasses__()", NOT_ALLOWED),
    "method": ("x1.sum()", NOT_ALLOWED),
    "import": ("__import__('os').system('ls')", NOT_ALLOWED),
    "builtin": ("open(x1)", "unknown function 'open'; the functions are abs, exp"),
    "eval": ("eval(x1)", "unknown function 'eval'"),
    "string argument": ("abs('x1')", NOT_ALLOWED),
    "computed function": ("(abs)(x1)(x1)", NOT_ALLOWED),
    "lambda": ("(lambda: x1)()", NOT_ALLOWED),
    "bare lambda": ("lambda x1: x1", NOT_ALLOWED),
    "list": ("[x1]", NOT_ALLOWED),
    "tuple": ("x1, x2", NOT_ALLOWED),
    "dict": ("{x1: x2}", NOT_ALLOWED),
    "set": ("{x1}", NOT_ALLOWED),
    "comprehension": ("[x1 for x1 in x2]", NOT_ALLOWED),
    "generator": ("max(x1 for x1 in x2)", NOT_ALLOWED),
    "subscript": ("x1[0]", NOT_ALLOWED),
    "slice": ("x1[::2]", NOT_ALLOWED),
    "star": ("min(*x1)", NOT_ALLOWED),
    "keyword": ("sin(x=x1)", NOT_ALLOWED),
    "double star": ("sin(**x1)", NOT_ALLOWED),
    "f-string": ("f'{x1}'", NOT_ALLOWED),
    "string": ("'x1'", NOT_ALLOWED),
    "escape that warns": (r"'\d'", NOT_ALLOWED),
    "bytes": ("b'x1'", NOT_ALLOWED),
    "walrus": ("(x1 := x2)", NOT_ALLOWED),
    "assignment": ("x1 = x2", NO_EXPRESSION),
    "statement": ("import os", NO_EXPRESSION),
    "two statements": ("x1; x2", NO_EXPRESSION),
    "two lines": ("x1\nx2", NO_EXPRESSION),
    "yield": ("yield x1", NO_EXPRESSION),
    "yield in brackets": ("(yield x1)", NOT_ALLOWED),
    "await": ("await x1", NOT_ALLOWED),
    "conditional": ("x1 if x1 else x2", NOT_ALLOWED),
    "conditional that warns": ("1if x1 else x2", NOT_ALLOWED),
    "matrix product": ("x1 @ x2", NOT_ALLOWED),
    "bits": ("x1 | x2", NOT_ALLOWED),
    "shift": ("1 << x1", NOT_ALLOWED),
    "complement": ("~x1", NOT_ALLOWED),
    "identity": ("x1 is x2", NOT_ALLOWED),
    "membership": ("x1 in x2", NOT_ALLOWED),
    "complex": ("2j * x1", NOT_ALLOWED),
    "ellipsis": ("...", NOT_ALLOWED),
    "none": ("None", NOT_ALLOWED),
    "true": ("True", "True is not a number; write 1 or 0"),
    "empty": ("", "the expression is empty"),
    "blank": (" \t\n", "the expression is empty"),
    "unfinished": ("x1 +", NO_EXPRESSION),
    "unbalanced": ("(x1", NO_EXPRESSION),
    "caret is not a power": ("x1 ^ 2", NOT_ALLOWED),
    "unknown name": ("x_1 + 1", "unknown name 'x_1'; did you mean 'x1'"),
    "unknown memory": ("x3", "unknown name 'x3'; the variables are x1, x2"),
    "unknown name, no neighbour": ("omega", "unknown name 'omega'; the variables are x1, x2"),
    "nan": ("nan", "unknown name 'nan'"),
    "inf": ("-inf", "unknown name 'inf'"),
    "function as a name": ("sin + 1", r"sin is a function; write sin\(\.\.\.\)"),
    "too few operands": ("where(x1, x2)", "where takes 3 values, found 2"),
    "too many operands": ("sin(x1, x2)", "sin takes 1 value, found 2"),
    "no operand": ("min()", "min takes 2 values, found 0"),
    "huge literal": ("1e999", TOO_LARGE),
    "huge integer": ("9" * 3_000, TOO_LARGE),
    "huge power": ("9 ** 9 ** 9", TOO_LARGE),
    "huge negative": ("-1e308 * 10", TOO_LARGE),
    "huge exponential": ("exp(exp(exp(9)))", TOO_LARGE),
    "subnormal": ("x1 / 1e-320", "too close to 0 for float64; write 0"),
    "constant division by zero": ("x1 + 1 / 0", "the divisor can be 0 in '1 / 0'"),
    "constant remainder by zero": ("1 % 0", "the divisor can be 0"),
    "constant log": ("log(0)", "log of a value that can be 0 or less"),
    "constant root": ("sqrt(-1)", "sqrt of a value that can be negative"),
    "constant fractional power": ("(-8) ** 0.5", "needs a whole-number exponent"),
    "deep sum": ("+".join(["x1"] * 200), TOO_DEEP),
    "deep brackets": ("(" * 300 + "x1" + ")" * 300, NO_EXPRESSION),
    "deep minus": ("-" * 3_000 + "x1", NO_EXPRESSION),
    "deep not": ("not " * 900 + "x1", TOO_DEEP),
    "deep calls": ("abs(" * 90 + "x1" + ")" * 90, TOO_DEEP),
    "deep power": ("**".join(["x1"] * 200), TOO_DEEP),
    "long chain": ("<".join(["x1"] * 200), TOO_DEEP),
    "wide maximum": ("max(" + ",".join(["x1"] * 200) + ")", TOO_DEEP),
    "deep inside a list": ("[" + "+".join(["x1"] * 1_000) + "]", NOT_ALLOWED),
    "very long": ("x1 + " * 1_000 + "x1", "the expression has 5,002 characters; at most 4,000 are read"),
    "very long name": ("y" * 3_000, r"unknown name 'y{56}\.\.\."),
    "very long function": ("y" * 3_000 + "(x1)", r"unknown function 'y{56}\.\.\."),
    "null byte": ("x1\x00", NOT_ASCII),
    "escape sequence": ("x1\x1b[31m", NOT_ASCII),
    "form feed": ("x1 +\x0c x2", NOT_ASCII),
    "full width": ("\uff581", NOT_ASCII),
    "subscript digit": ("x\u2081", NOT_ASCII),
    "times sign": ("x1 \u00d7 x2", NOT_ASCII),
    "bidirectional override": ("x1 \u202e+ x2", NOT_ASCII),
    "no-break space": ("x1\u00a0+ x2", NOT_ASCII),
    "emoji": ("\U0001f600", NOT_ASCII),
    "lone surrogate": ("\ud800", NOT_ASCII),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_one_line(name):
    text, reason = HOSTILE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Python's advice on its own syntax must not leak either
        with pytest.raises(BadInput, match=reason) as refusal:
            parse(text, {"x1", "x2"})
    message = str(refusal.value)
    assert len(message) < 500 and message.isprintable()


VALUES = {
    "2 + 3 * 4": 14.0,
    "-2 ** 2": -4.0,
    "2 ** -1": 0.5,
    "2 ** 3 ** 2": 512.0,
    "7 // 2": 3.0,
    "6 // 3": 2.0,
    "-7 // 2": -4.0,
    "2.5 // 0.5": 5.0,
    "1 // 0.1": 9.0,  # 0.1 is a little more than a tenth
    "0.5 % 0.25": 0.0,
    "-1 % 3": 2.0,
    "5.5 % -2": -0.5,
    "6 % 3": 0.0,
    "2 / 3": 2 / 3,
    "0.1 + 0.2": 0.1 + 0.2,
    "sin(0)": 0.0,
    "cos(0)": 1.0,
    "sin(1e-10)": 1e-10,
    "exp(0)": 1.0,
    "tanh(0)": 0.0,
    "sqrt(9)": 3.0,
    "round(2.5)": 2.0,
    "round(-0.5)": 0.0,
    "floor(-0.5)": -1.0,
    "sign(-3)": -1.0,
    "abs(-3)": 3.0,
    "min(3, 1, 2)": 1.0,
    "max(3, 1, 2)": 3.0,
    "where(0, 1, 2)": 2.0,
    "1 < 2 < 3": 1.0,
    "1 < 3 < 2": 0.0,
    "1 and 0 or 1": 1.0,
    "not 2": 0.0,
    "2 and 3": 1.0,
    "+1_000": 1000.0,
    "0x10": 16.0,
    "(1 +\n 2)": 3.0,
    "1  # one": 1.0,
    "pi": 3.141592653589793,
}


@pytest.mark.parametrize("text", VALUES)
def test_an_expression_of_numbers_is_that_number(text):
    assert parse(text, ()) == Constant(VALUES[text])


def test_depth_and_length_limits_are_inclusive():
    parse("+".join(["x"] * (MAX_DEPTH + 1)), {"x"})
    with pytest.raises(BadInput, match=TOO_DEEP):
        parse("+".join(["x"] * (MAX_DEPTH + 2)), {"x"})
    parse("x".ljust(MAX_TEXT), {"x"})
    with pytest.raises(BadInput, match="at most 4,000"):
        parse("x".ljust(MAX_TEXT + 1), {"x"})


def test_a_variable_hides_a_constant():
    assert variables(parse("pi * 2", {"pi"})) == {"pi"}


@given(expression_texts)
def test_text_of_the_language_is_read_or_refused(text):
    """A grammatical text fails only because its numbers do not exist, never with another error."""
    try:
        assert variables(parse(text, {"x", "y"})) <= {"x", "y"}
    except BadInput as refusal:
        assert any(part in str(refusal) for part in (" in ", "too large", "too close", "nested"))


@given(st.text(st.characters(codec="ascii"), max_size=40) | st.text(max_size=20))
def test_any_text_is_read_or_refused_in_one_line(text):
    try:
        parse(text, {"x1"})
    except BadInput as refusal:
        assert str(refusal).isprintable() and len(str(refusal)) < 500
