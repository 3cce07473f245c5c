"""The second opinion: confirm or refuse the certificate of a model directory. One file, standard library only.

    python check.py DIR [--json]        exit status 0 confirmed, 3 refused or tolerance missed, 2 cannot follow

It shares no code with memloci. Read from DIR: model.json (task, architecture), model.safetensors, certificate.json; none
is trusted. Confirmed are `bound` (in the model's precision, roundings included) and `exact_bound` (exact arithmetic):
each must be at least what is derived here. `terms` and `bound_by_precision` must agree with them; other precisions,
`mass` and `bits` are not looked at. Numbers are intervals of whole multiples of 2^-256, rounded outwards.

Derivation. Every coordinate of the stream is an affine form of tokens at lags, of the heads' and the task's own kernels
over the past, and of the constant 1, up to E (what is left out) and R (roundings):

    X_j = sum_a c_a a + e,   |e| <= E + R,       sup |form| = sum over channels of sup|x| ||joint kernel||_1 + E + R

1. Fixed kernels. An l1 norm over all lags is summed lag by lag until the rest keeps its sign, which Abel summation shows,
   and is then closed (geometric series; Euler and Maclaurin).
2. Lags that depend on symbols. Every case of the symbols and of t is followed through all layers. A rotary query finds its
   lag because all others lose a proved gap of logits; a gated sum of heads is a table over its window.
3. Neurons. relu is exact where its sign is known, and lies in a strip elsewhere. A polynomial readout is split into
   functions of one direction each, whose extremes between the kinks of the neurons are computed.
4. Roundings. The model of certify/rounding.py is adopted as an assumption: unit roundoff u, library functions within 8 u,
   the model's zeta within 64 u, sums over the past as running sums of running sums, underflow to 0, no overflow.

Where this derivation and certify/ differ by more than a tenth, it is because: certify/ keeps coefficients in float64
(exact bounds near 1e-14); it charges heads without normalisation for lags beyond their window, and for sums at powers of 2
only; it takes the roundings of the last neurons by Lipschitz constants, where sums that are exact are seen here.
"""
# ruff: noqa: E501
# fmt: off
# A formula stands on one line, like its neighbours.

import ast
import json
import math
import os
import re
import stat
import struct
import sys
import time
from collections import defaultdict
from fractions import Fraction
from functools import lru_cache
from itertools import product
from pathlib import Path

P = 256  # numbers are whole multiples of 2^-P
UNIT, LOW = 1 << P, (1 << P) - 1
FORMAT = {"float64": (53, -1022, 1024), "float32": (24, -126, 128), "float16": (11, -14, 16)}  # bits, least, most
LIBRARY, ZETA, LENGTH, SMALL, CHUNK = 8, 64, 2**31, 7, 128  # the rounding model; CHUNK of model/paths/decay.py
MAX_BYTES, MAX_CASES, MAX_LAGS = 2**26, 20_000, 2**17
NUMBER = (-1, 0)  # the atom that is 1 everywhere

class Bad(Exception):
    """The files are not what they should be."""

class Cannot(Exception):
    """The checker cannot follow this model."""

# -- numbers ---------------------------------------------------------------------------------------------------------

class I:
    """The interval [lo, hi] 2^-P, lo and hi whole; every operation rounds outwards."""
    __slots__ = ("hi", "lo")

    def __init__(self, lo, hi=None): self.lo, self.hi = lo, lo if hi is None else hi

    @staticmethod
    def of(x):
        if isinstance(x, I): return x  # noqa: E701
        f = Fraction(x)
        return I((f.numerator << P) // f.denominator, -((-f.numerator << P) // f.denominator))

    def __add__(self, y): return I(self.lo + (y := I.of(y)).lo, self.hi + y.hi)
    def __neg__(self): return I(-self.hi, -self.lo)
    def __sub__(self, y): return self + -I.of(y)
    def __rsub__(self, y): return I.of(y) - self
    def __rtruediv__(self, y): return I.of(y) / self
    def __abs__(self): return self if self.lo >= 0 else -self if self.hi <= 0 else I(0, max(-self.lo, self.hi))

    def __mul__(self, y):
        y = I.of(y)
        ends = self.lo * y.lo, self.lo * y.hi, self.hi * y.lo, self.hi * y.hi
        return I(min(ends) >> P, -(-max(ends) >> P))

    def __truediv__(self, y):
        if (y := I.of(y)).lo <= 0 <= y.hi: raise Cannot("a divisor that may be 0")  # noqa: E701
        ends = [(n << P) * (1 if d > 0 else -1) for n in (self.lo, self.hi) for d in (y.lo, y.hi)], [abs(y.lo), abs(y.hi)] * 2
        return I(min(n // d for n, d in zip(*ends, strict=True)), max(-(-n // d) for n, d in zip(*ends, strict=True)))

    __radd__, __rmul__ = __add__, __mul__

    @property
    def size(self): return max(-self.lo, self.hi)

    @property
    def point(self): return Fraction(self.lo, UNIT) if self.lo == self.hi else None

ZERO, ONE = I(0), I(UNIT)

def up(x): return I.of(x).hi
def real(x): return Fraction(x, UNIT)
def times(x, y): return -(-x * y >> P)  # of numbers that are not negative, from above
def middle(x): return (x.lo + x.hi) // 2

@lru_cache(maxsize=1 << 14)
def _exp(x):
    """(lo, hi) around e^x: a Taylor sum at x / 2^k, squared k times."""
    if x < 0:
        lo, hi = _exp(-x) if -x < P << P else (UNIT, 0)
        return ((UNIT * UNIT) // hi, -(-UNIT * UNIT // lo)) if hi else (0, 1)
    if x > 1000 << P: raise Cannot("a number above e^1000")  # noqa: E701
    k = (x >> P).bit_length() + 12
    Q = P + 64 + 2 * k + 2 * (x >> P)
    r, total, term, n = x << (Q - P) >> k, 1 << Q, 1 << Q, 0
    while term:
        n, term = n + 1, (term * r >> Q) // (n + 1)
        total += term
    lo, hi = total, total + 4 * n + 8  # a term is off by less than 3, r by 1, the rest is below 1
    for _ in range(k):
        lo, hi = lo * lo >> Q, -(-hi * hi >> Q)
    return lo >> (Q - P), -(-hi >> (Q - P))

def exp(x): return I(_exp(x.lo)[0], _exp(x.hi)[1])

@lru_cache(maxsize=1 << 12)
def _log(x):
    """log x = y + log r, r = x e^-y, and 1 - 1/r <= log r <= r - 1."""
    if x <= 0: raise Cannot("a logarithm of a number that may be 0")  # noqa: E701
    y = int((math.log(x) - P * math.log(2)) * 2**52) << (P - 52)
    for _ in range(2):
        d = I(x) / exp(I(y)) - ONE
        y += middle(d - d * d / 2)
    r = I(x) / exp(I(y))
    return y + (ONE - ONE / r).lo, y + (r - ONE).hi

def log(x): return I(_log(x.lo)[0], _log(x.hi)[1])

def _arctan(n):
    total, power, k = 0, (1 << (P + 32)) // n, 0
    while power >> 8:
        total, power, k = total + (-1) ** k * (power // (2 * k + 1)), power // (n * n), k + 1
    return I((total >> 32) - 1, (total >> 32) + 2)

PI = 16 * _arctan(5) - 4 * _arctan(239)

def cos(x):
    """Taylor at the midpoint, less whole turns; the radius is added, for |cos'| <= 1."""
    x = x - PI * (2 * round(Fraction(x.lo + x.hi, 4 * PI.lo)))
    mid, radius, total, term, n = middle(x), (x.hi - x.lo) // 2 + 1, UNIT << 64, UNIT << 64, 0
    while term:
        n, term = n + 2, term * mid * mid // (((n + 1) * (n + 2)) << 2 * P)
        total += term if n % 4 == 0 else -term
    return I(max((total >> 64) - 1 - radius, -UNIT), min((total >> 64) + 2 + radius, UNIT))

@lru_cache(maxsize=1 << 16)
def cos_turns(n):
    """cos(2 pi n / 2^32)."""
    n = min(n % 2**32, -n % 2**32)
    return {0: ONE, 2**30: ZERO, 2**31: -ONE}.get(n) or cos(PI * Fraction(n, 2**31))

@lru_cache(maxsize=1 << 16)
def power(z, p):
    """z^-p for a whole z, from its factors."""
    d = next((d for d in range(2, math.isqrt(z) + 1) if z % d == 0), z) if z < 2**20 else z
    return ONE if z == 1 else power(d, p) * power(z // d, p) if d < z else exp(-log(I.of(z)) * p)

@lru_cache
def bernoulli(n): return Fraction(1) if n == 0 else -sum(math.comb(n + 1, k) * bernoulli(k) for k in range(n)) / (n + 1)

@lru_cache(maxsize=1 << 12)
def zeta(p, n):
    """sum_{z>=n} z^-p: Euler and Maclaurin, whose terms envelop the sum, for z^-p is completely monotone."""
    near, n, first = ZERO, n, n
    while n < min(40 + p, first + 200):
        near, n = near + power(n, p), n + 1
    total, rising = I.of(Fraction(n) / (p - 1) + Fraction(1, 2)), Fraction(p, n)
    for i in range(1, 40):
        term = I.of(bernoulli(2 * i) / math.factorial(2 * i) * rising)
        if i == 39 or term.size <= 256:
            return near + power(n, p) * (total + I(-term.size, term.size))
        total, rising = total + term, rising * (p + 2 * i - 1) * (p + 2 * i) / n**2

# -- files -----------------------------------------------------------------------------------------------------------

def read_bytes(path):
    """A plain file of a modest size; not a link."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
                raise Bad(f"{path.name} is not a plain file of at most {MAX_BYTES:,} bytes")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Bad(f"{path.name} cannot be read: {error.strerror}") from None

def parse_json(data, name):
    def unique(pairs):
        if len(dict(pairs)) < len(pairs): raise ValueError("a key occurs twice")  # noqa: E701
        return dict(pairs)

    def number(text, kind=float):
        if len(text) > 40 or not math.isfinite(float(text)): raise ValueError(f"{text[:20]} is no number that is held")  # noqa: E701
        return kind(text)

    try:
        found = json.loads(data.decode(), object_pairs_hook=unique, parse_int=lambda x: number(x, int), parse_float=number, parse_constant=number)
    except (ValueError, RecursionError) as error:
        raise Bad(f"{name} is not JSON that can be trusted: {error}") from None
    if not isinstance(found, dict): raise Bad(f"{name} is not an object")  # noqa: E701
    return found

def nested(shape, numbers):
    step = math.prod(shape[1:])
    return list(numbers) if len(shape) <= 1 else [nested(shape[1:], numbers[k * step : (k + 1) * step]) for k in range(shape[0])]

def read_tensors(data, expected, precision):
    """name -> nested lists; exactly the tensors expected, and every byte belongs to one of them. And the file's id."""
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else MAX_BYTES
    if length > min(len(data) - 8, 2**22): raise Bad("model.safetensors has a header longer than the file, or than 4 MiB")  # noqa: E701
    header, body, tensors, end = parse_json(data[8 : 8 + length], "the header of model.safetensors"), data[8 + length :], {}, 0
    identity = header.pop("__metadata__", {}).get("id")
    if header.keys() != expected.keys():
        raise Bad(f"model.safetensors must hold the tensors of the architecture; {sorted(header.keys() ^ expected.keys())[0]} is missing or unknown")
    code = {"float64": ("F64", "d", 8), "float32": ("F32", "f", 4), "float16": ("F16", "e", 2)}[precision]
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        kind, letter, width = ("U32", "I", 4) if name.endswith(".turns") else code
        (start, stop), count = entry["data_offsets"], math.prod(expected[name])
        if entry["dtype"] != kind or tuple(entry["shape"]) != expected[name]:
            raise Bad(f"model.safetensors: {name} must be {kind} of shape {expected[name]}")
        if start != end or stop - start != count * width or stop > len(body):
            raise Bad(f"model.safetensors: {name} overlaps another tensor, or leaves a gap")
        numbers, end = struct.unpack(f"<{count}{letter}", body[start:stop]), stop
        if not all(map(math.isfinite, numbers)): raise Bad(f"model.safetensors: {name} holds NaN or infinity")  # noqa: E701
        tensors[name] = nested(expected[name], numbers)
    if end != len(body): raise Bad("model.safetensors has bytes that belong to no tensor")  # noqa: E701
    return tensors, identity

# -- expressions: polynomials in atoms, {monomial: interval} -------------------------------------------------------------

FUNCTIONS = {
    "abs": abs, "exp": exp, "log": log, "cos": cos, "sin": lambda x: cos(x - PI / 2), "floor": lambda x: floor(x),
    "tanh": lambda x: ONE - 2 / (exp(x * 2) + ONE), "sqrt": lambda x: exp(log(x) / 2) if x.size else ZERO,
    "sign": lambda x: truth(holds(x, ">", ZERO)) - truth(holds(x, "<", ZERO)), "round": lambda x: nearest(x),
}
RELATIONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}

def truth(x): return ONE if x else ZERO

def holds(x, relation, y):
    """A comparison, where intervals decide it."""
    if relation in (">", ">="):
        x, y, relation = y, x, relation.replace(">", "<")
    same = x.lo == x.hi == y.lo == y.hi
    yes, no = {"<": (x.hi < y.lo, x.lo >= y.hi), "<=": (x.hi <= y.lo, x.lo > y.hi)}.get(relation, (same, x.hi < y.lo or x.lo > y.hi))
    if yes == no: raise Cannot("a comparison that intervals do not decide")  # noqa: E701
    return no if relation == "!=" else yes

def floor(x):
    if x.lo >> P != x.hi >> P: raise Cannot("a jump that intervals do not decide")  # noqa: E701
    return I(x.lo >> P << P)

def nearest(x):
    """Half to even."""
    low, half = floor(x), I.of(Fraction(1, 2))
    even = (x - low).point == Fraction(1, 2) and (low.lo >> P) % 2 == 0
    return low if even or not holds(x - low, ">=", half) else low + ONE

def names(n): return {x.id for x in ast.walk(n) if isinstance(x, ast.Name)} - {*FUNCTIONS, "pi", "min", "max", "where"}

def join(x, y, sign=1): return {m: x.get(m, ZERO) + y.get(m, ZERO) * sign for m in {**x, **y}}

def multiply(x, y):
    result = defaultdict(lambda: ZERO)
    for (a, c), (b, d) in product(x.items(), y.items()):
        result[tuple(sorted((*a, *b), key=repr))] += c * d
    return dict(result)

def ev(n, env):
    """The value of a syntax tree; names are polynomials of `env`. Jumps that are not decided are refused."""
    def number(m):
        p = {k: c for k, c in ev(m, env).items() if k == () or c.size}
        if set(p) - {()}: raise Cannot("a readout that is no polynomial of what the symbols leave open")  # noqa: E701
        return p.get((), ZERO)

    match n:
        case ast.Constant(value=int() | float() as x) if not isinstance(x, bool): return {(): I.of(float(x))}
        case ast.Name(id="pi"): return {(): I.of(math.pi)}
        case ast.Name(id=name) if name in env: return env[name]
        case ast.UnaryOp(op=ast.USub(), operand=x): return join({}, ev(x, env), -1)
        case ast.UnaryOp(op=ast.UAdd(), operand=x): return ev(x, env)
        case ast.UnaryOp(op=ast.Not(), operand=x): return {(): truth(holds(number(x), "==", ZERO))}
        case ast.BinOp(op=ast.Add() | ast.Sub() as op, left=x, right=y): return join(ev(x, env), ev(y, env), 1 if isinstance(op, ast.Add) else -1)
        case ast.BinOp(op=ast.Mult(), left=x, right=y): return multiply(ev(x, env), ev(y, env))
        case ast.BinOp(op=ast.Div(), left=x, right=y): return multiply(ev(x, env), {(): 1 / number(y)})
        case ast.BinOp(op=ast.Pow(), left=x, right=y):
            k = (e := number(y)).point
            if k is not None and k.denominator == 1 and abs(k) <= 64:
                base, result = ev(x, env), {(): ONE}
                for _ in range(abs(int(k))):
                    result = multiply(result, base)
                return result if k >= 0 else {(): 1 / result[()]} if set(result) == {()} else {(): 1 / number(x)}
            return {(): exp(log(number(x)) * e)}
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod() as op, left=x, right=y):
            a, b = number(x), number(y)
            turns = I.of(a.point // b.point) if a.point is not None and b.point else floor(a / b)
            return {(): turns if isinstance(op, ast.FloorDiv) else a - b * turns}
        case ast.BoolOp(op=op, values=values):
            wanted = isinstance(op, ast.Or)
            return {(): truth(next((wanted for x in values if holds(number(x), "!=", ZERO) == wanted), not wanted))}
        case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(o) in RELATIONS for o in ops):
            x = [number(m) for m in (left, *rest)]
            return {(): truth(all([holds(a, RELATIONS[type(o)], b) for a, o, b in zip(x[:-1], ops, x[1:], strict=True)]))}
        case ast.Call(func=ast.Name(id="where"), args=[c, x, y]): return ev(x if holds(number(c), "!=", ZERO) else y, env)
        case ast.Call(func=ast.Name(id="min" | "max" as f), args=args) if len(args) > 1:
            x, pick = [number(m) for m in args], min if f == "min" else max
            return {(): I(pick(y.lo for y in x), pick(y.hi for y in x))}
        case ast.Call(func=ast.Name(id=f), args=[x], keywords=[]) if f in FUNCTIONS: return {(): FUNCTIONS[f](number(x))}
    raise Bad(f"an expression with a part that is not known: {ast.dump(n)[:60]}")

class Fold(ast.NodeTransformer):
    """Every largest part without variables is the float64 number nearest to its value."""
    def visit(self, n):
        if not isinstance(n, ast.expr) or isinstance(n, ast.Constant) or names(n) or (isinstance(n, ast.Name) and n.id != "pi"):
            return self.generic_visit(n)
        x = ev(n, {}).get((), ZERO)
        if float(real(x.lo)) != float(real(x.hi)): raise Cannot("a constant in the middle of two float64 numbers")  # noqa: E701
        return ast.Constant(float(real(x.lo)))

def parse(text):
    try:
        return Fold().visit(ast.parse(text.strip()[:4001], mode="eval").body) if len(text) <= 4000 else 1 / 0
    except (SyntaxError, ValueError, RecursionError, MemoryError, AttributeError, ArithmeticError, TypeError):
        raise Bad(f"{str(text)[:60]!r} is not an expression") from None
