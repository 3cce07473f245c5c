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
   the model's zeta within 64 u, underflow to 0, no overflow; and how path `certified` adds up the past (model/paths): plain
   sums in any order to 127 tokens (lin) or 15 (log), then chunks of 128 with their own error (lin), or runs of 8, two by
   two, in blocks that are added as pairs of numbers (log). Windows and softmax: sums in any order.

Where this derivation proves less than certify/ by more than a tenth, the reasons are these. certify/ keeps coefficients in
float64, so that its exact bounds end near 1e-14; it charges heads without normalisation for lags beyond their window, and
takes the additions of their sums at powers of 2 only. Here a computed number that must lie within u/2 of a short number is
that number, wherever it occurs (`snapped`); certify/ sees that for the last neurons.
"""
# ruff: noqa: E701
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
from bisect import bisect_right
from collections import defaultdict
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, product
from pathlib import Path
from typing import Any

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

class I:  # noqa: E742
    """The interval [lo, hi] 2^-P, lo and hi whole; every operation rounds outwards."""
    __slots__ = ("hi", "lo")

    def __init__(self, lo, hi=None): self.lo, self.hi = lo, lo if hi is None else hi

    @staticmethod
    def of(x):
        if isinstance(x, I): return x
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
        if (y := I.of(y)).lo <= 0 <= y.hi: raise Cannot("a divisor that may be 0")
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
    if x > 1000 << P: raise Cannot("a number above e^1000")
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
    if x <= 0: raise Cannot("a logarithm of a number that may be 0")
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
    raise AssertionError("the loop returns")

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
        if len(dict(pairs)) < len(pairs): raise ValueError("a key occurs twice")
        return dict(pairs)

    def number(text, kind=float):
        if len(text) > 40 or not math.isfinite(float(text)): raise ValueError(f"{text[:20]} is no number that is held")
        return kind(text)

    try:
        found = json.loads(data.decode(), object_pairs_hook=unique, parse_int=lambda x: number(x, int), parse_float=number, parse_constant=number)
    except (ValueError, RecursionError) as error:
        raise Bad(f"{name} is not JSON that can be trusted: {error}") from None
    if not isinstance(found, dict): raise Bad(f"{name} is not an object")
    return found

def nested(shape, numbers):
    step = math.prod(shape[1:])
    return list(numbers) if len(shape) <= 1 else [nested(shape[1:], numbers[k * step : (k + 1) * step]) for k in range(shape[0])]

def read_tensors(data, expected, precision):
    """name -> nested lists; exactly the tensors expected, and every byte belongs to one of them. And the file's id."""
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else MAX_BYTES
    if length > min(len(data) - 8, 2**22): raise Bad("model.safetensors has a header longer than the file, or than 4 MiB")
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
        if not all(map(math.isfinite, numbers)): raise Bad(f"model.safetensors: {name} holds NaN or infinity")
        tensors[name] = nested(expected[name], numbers)
    if end != len(body): raise Bad("model.safetensors has bytes that belong to no tensor")
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
    if yes == no: raise Cannot("a comparison that intervals do not decide")
    return no if relation == "!=" else yes

def floor(x):
    if x.lo >> P != x.hi >> P: raise Cannot("a jump that intervals do not decide")
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
        if set(p) - {()}: raise Cannot("a readout that is no polynomial of what the symbols leave open")
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
    def visit(self, node):
        n = node
        if not isinstance(n, ast.expr) or isinstance(n, ast.Constant) or names(n) or (isinstance(n, ast.Name) and n.id != "pi"):
            return self.generic_visit(n)
        x = ev(n, {}).get((), ZERO)
        if float(real(x.lo)) != float(real(x.hi)): raise Cannot("a constant in the middle of two float64 numbers")
        return ast.Constant(float(real(x.lo)))

def parse(text):
    try:
        return Fold().visit(ast.parse(text.strip()[:4001], mode="eval").body) if len(text) <= 4000 else 1 / 0
    except (SyntaxError, ValueError, RecursionError, MemoryError, AttributeError, ArithmeticError, TypeError):
        raise Bad(f"{str(text)[:60]!r} is not an expression") from None

# -- kernels over lags: a term (c, a, b) is c z^-a e^{-b (z - 1)}, with a = 0 or b = 0 --------------------------------

def beyond(t, n): return t[0] * zeta(t[1], n + 1) if t[1] else t[0] * exp(I.of(-t[2] * n)) / (ONE - exp(I.of(-t[2])))
def at(t, z): return t[0] * power(z, t[1]) if t[1] else t[0] * exp(I.of(-t[2] * (z - 1)))

def l1(terms, rho, first):
    """sum_z |sum of the terms + rho(z)| from above, rho being 0 beyond lag `first`.

    Beyond lag n all is closed if, from the slowest term to the fastest, the partial sums at n have one sign (Abel)."""
    merged = defaultdict(lambda: ZERO)
    for c, a, b in terms:
        merged[b, a] += c
    terms = [(c, a, b) for (b, a), c in sorted(merged.items()) if c.size]
    values, ratios, total = [at(t, 1) for t in terms], [exp(I.of(-t[2])) for t in terms], ZERO
    ordered = min((t[2] for t in terms if t[2]), default=Fraction(LENGTH)), max((t[1] for t in terms), default=0)
    for n in range(1, MAX_LAGS):
        total += abs(sum(values, rho(n)))
        if n >= first and n & (n - 1) == 0:
            rest, partial = [beyond(t, n) for t in terms], list(accumulate(at(t, n) for t in terms))
            if (all(x.lo >= 0 for x in partial) or all(x.hi <= 0 for x in partial)) and ordered[1] <= n * ordered[0]:
                return (total + abs(sum(rest, ZERO))).hi
            if sum(x.size for x in rest) <= total.hi >> 50:
                return total.hi + sum(x.size for x in rest)
        values = [v * q if t[2] else t[0] * power(n + 1, t[1]) for v, q, t in zip(values, ratios, terms, strict=True)]
    raise Cannot(f"a kernel that keeps changing its sign beyond lag {MAX_LAGS:,}")

def spectrum(n):
    """The terms of a kernel in z that is a sum of c z^-a and c e^{-b z}; None for others."""
    match n:
        case ast.BinOp(op=ast.Add() | ast.Sub() as op, left=x, right=y):
            left, right, sign = spectrum(x), spectrum(y), 1 if isinstance(op, ast.Add) else -1
            return None if left is None or right is None else left + [(c * sign, a, b) for c, a, b in right]
        case ast.BinOp(op=ast.Mult(), left=ast.Constant(value=int() | float() as k), right=x) | ast.BinOp(op=ast.Mult(), left=x, right=ast.Constant(value=int() | float() as k)):
            return None if (own := spectrum(x)) is None else [(c * Fraction(k), a, b) for c, a, b in own]
        case ast.BinOp(op=ast.Pow(), left=ast.Name(), right=ast.Constant(value=int() | float() as p)) if p < -1: return [(ONE, Fraction(-p), Fraction(0))]
        case ast.Call(func=ast.Name(id="exp"), args=[x]):
            line = ev(x, {"z": {("z",): ONE}})
            slope, shift = (line.get(m, ZERO).point for m in (("z",), ()))
            if set(line) <= {(), ("z",)} and slope is not None and shift is not None and slope < 0:
                return [(exp(I.of(shift + slope)), Fraction(0), -slope)]

def majorant(n, z):
    """(C, b): |f| <= C e^{-b (lag - z)} from lag z on; a concave exponent lies below its tangent."""
    match n:
        case ast.Call(func=ast.Name(id="cos" | "sin")): return ONE, ZERO
        case ast.Constant(value=int() | float() as x): return abs(I.of(x)), ZERO
        case ast.BinOp(op=ast.Mult(), left=x, right=y): return tuple(f(a, b) for f, a, b in zip((I.__mul__, I.__add__), majorant(x, z), majorant(y, z), strict=True))
        case ast.Call(func=ast.Name(id="exp"), args=[x]):
            p = ev(x, {"z": {("z",): ONE}})
            shift, slope, square = (p.get(m, ZERO) for m in ((), ("z",), ("z", "z")))
            if len(p) <= 3 and square.hi <= 0: return exp(shift + slope * z + square * z * z), -slope - square * (2 * z)
    raise Cannot("the tail of a kernel of the task")

# -- the task, case by case ---------------------------------------------------------------------------------------------

class Task:
    def __init__(self, data):
        self.channels, self.memories, self.known = [], [], {}
        for entry in data.get("channels", [{}]):
            pieces = [(v, v) for v in entry.get("values", ())] or entry.get("intervals") or [entry.get("range", (-1, 1))]
            self.channels.append((entry.get("name", "x"), sorted((Fraction(a), Fraction(b)) for a, b in pieces)))
        if "matches" in data or any(isinstance(m, dict) and "match" in m for m in data.get("memories", ())): raise Cannot("memories that are found by content; `memloci verify` does")
        if len({"lags", "kernels", "memories"} & data.keys()) != 1 or "majorants" in data or "lipschitz" in data: raise Cannot("a task that lists its memories in another way")
        listed = [{"lag": x} for x in data.get("lags", ())] + [{"kernel": x} for x in data.get("kernels", ())]
        for m in data.get("memories", listed):
            if set(m) - {"lag", "kernel", "horizon"} or type(m.get("horizon", 1)) is not int: raise Cannot(f"a memory that says {sorted(m)}")
            node = parse(m["kernel"]) if "kernel" in m else ast.Constant(m["lag"]) if type(m["lag"]) is int else parse(m["lag"])
            self.memories.append((node, "kernel" in m, m.get("horizon")))
        self.readouts = [parse(f) for f in ([data["readout"]] if isinstance(data["readout"], str) else data["readout"])]
        self.variables = {f"{name}{i}": (c, i) for i in range(len(self.memories) + 1) for c, (name, _) in enumerate(self.channels)}
        self.sizes = [max(abs(end) for piece in pieces for end in piece) for _, pieces in self.channels]
        self.reads = set().union(*(names(node) for node, kernel, _ in self.memories if not kernel))
        unknown = self.reads.union(*map(names, self.readouts)) - set(self.variables)
        if unknown or max(self.sizes) > 2**20 or len(self.variables) != (len(self.memories) + 1) * len(self.channels): raise Bad(f"a task with channels beyond 2^20, with two of one name, or with the unknown name {min(unknown, default='')!r}")

    def norm(self, channel, items):
        """sup |sum of c_a a| for atoms of one channel: tokens at lags, heads ("w", channel, (a, b)), kernels ("k", channel, memory)."""
        if (key := (channel, items)) not in self.known:
            terms, taps, first, extra, values = [], defaultdict(lambda: ZERO), 1, 0, []
            for atom, c in items:
                if atom[0] == "w":
                    a, b = atom[2]
                    terms.append((I(c) * ((ONE - exp(I.of(-b))) if b else ONE / zeta(a, 1)), a, b))
                elif atom[0] != "k":
                    taps[atom[1]] += I(c)
                    first = max(first, atom[1])
                else:
                    node, _, horizon = self.memories[atom[2] - 1]
                    own = None if horizon else spectrum(node)
                    terms += [(x * I(c), a, b) for x, a, b in own or ()]
                    if own is None:
                        first, (C, b) = max(first, horizon or 2048), (ZERO, ONE) if horizon else majorant(node, 2049)
                        values.append(lambda z, c=c, node=node, last=horizon or 2048: ev(node, {"z": {(): I.of(z)}}).get((), ZERO) * I(c) if z <= last else ZERO)
                        extra += (I(abs(c)) * C / (ONE - exp(-b))).hi
            found = l1(terms, lambda z: sum((f(z) for f in values), taps.get(z, ZERO)), first) + extra
            self.known[key] = times(found, up(self.sizes[channel] if channel >= 0 else 1))
        return self.known[key]

class Case:
    """Some positions of some sequences: t_min <= t <= t_max, and what is known of tokens at lags."""
    def __init__(self, task, tokens, lags, t_min, t_max):
        self.task, self.tokens, self.lags, self.t_min, self.t_max, self.ranges = task, tokens, lags, t_min, t_max, {}

    def range(self, atom):
        """(lo, hi) of an atom."""
        if atom not in self.ranges:
            lo = hi = Fraction(0)
            if atom[0] in ("w", "k"):
                hi = real(self.task.norm(atom[1], ((atom, UNIT),)))
                lo = -hi
            elif self.t_max >= atom[1]:
                pieces = self.task.channels[atom[0]][1]
                lo, hi = (1, 1) if atom[0] < 0 else self.tokens.get(atom) or (pieces[0][0], pieces[-1][1])
                lo, hi = (lo, hi) if self.t_min >= atom[1] else (min(lo, 0), max(hi, 0))
            if max(-lo, hi) > 2**40: raise Cannot("numbers beyond 2^40")
            self.ranges[atom] = -up(-lo), up(hi)
        return self.ranges[atom]

    def environment(self):
        """The variables of the task: numbers, or atoms."""
        found = {}
        for name, (c, i) in self.task.variables.items():
            atom = ("k", c, i) if self.lags[i] == "kernel" else (c, self.lags[i])
            lo, hi = (0, 0) if self.lags[i] is None else self.range(atom)
            found[name] = {(): I(lo)} if lo == hi else {(atom,): ONE}
        return found

def cases(task, wanted):
    """Every way in which a position finds its memories, told apart by the symbols of the variables `wanted`."""
    def appear(i, lag, tokens):
        own = [c for c, (name, _) in enumerate(task.channels) if f"{name}{i}" in wanted and (c, lag) not in tokens]
        for chosen in product(*(task.channels[c][1] for c in own)):
            yield {**tokens, **{(c, lag): piece for c, piece in zip(own, chosen, strict=True)}}

    def grow(tokens, lags, t_min, t_max):
        if (i := len(lags)) > len(task.memories):
            yield Case(task, tokens, lags, t_min, t_max)
            return
        node, kernel, _ = task.memories[i - 1]
        read = {name: task.variables[name] for name in names(node)} if not kernel else {}
        if kernel or any(lags[j] is None for _, j in read.values()):
            yield from grow(tokens, [*lags, "kernel" if kernel else None], t_min, t_max)
            return
        pieces = {name: tokens[c, lags[j]] for name, (c, j) in read.items()}
        value = ev(node, {name: {(): I(-up(-lo), up(hi))} for name, (lo, hi) in pieces.items()}).get((), ZERO)
        lag = round(real(middle(value)))
        if (value - lag).size > up(Fraction(1, 10**9)) or not 0 <= lag <= 2**24: raise Bad("a lag that is no whole number from 0 to 2^24")
        for more in appear(i, lag, tokens) if t_max >= lag else ():
            yield from grow(more, [*lags, lag], max(t_min, lag), t_max)
        if t_min < lag:
            yield from grow(tokens, [*lags, None], t_min, min(t_max, lag - 1))

    for t_min, t_max in ((0, 0), (1, LENGTH)):
        for tokens in appear(0, 0, {}):
            yield from grow(tokens, [0], t_min, t_max)

# -- affine forms, and sums as a model computes them ---------------------------------------------------------------------

class Form:
    """sum_a c_a a, up to E in exact arithmetic and R by roundings; E is None where nothing is known."""
    __slots__ = ("E", "R", "c")

    def __init__(self, c=None, E: Any = 0, R=0): self.c, self.E, self.R = c or {}, E, R

    @property
    def nothing(self): return not self.c and self.E == 0 and not self.R

    def span(self, case):
        """(lo, hi), all heads and kernels over one channel together."""
        lo, hi, joint = 0, 0, {atom[1]: [] for atom in self.c if atom[0] in ("w", "k")}
        for atom, c in self.c.items():
            if atom[0] in ("w", "k") or (atom[0] in joint and atom[1]):
                joint[atom[1] if atom[0] in ("w", "k") else atom[0]].append((atom, c))
                continue
            a, b = case.range(atom)
            lo, hi = lo + min(c * a, c * b), hi + max(c * a, c * b)
        more = self.E + self.R + sum(case.task.norm(channel, tuple(items)) for channel, items in joint.items())
        return (lo >> P) - more, -(-hi >> P) + more

    def size(self, case): return max(abs(end) for end in self.span(case))

    def minus(self, p):
        """Less a polynomial that is affine."""
        c = {m[0] if m else NUMBER: middle(x) for m, x in p.items()}
        return Form({a: self.c.get(a, 0) - c.get(a, 0) for a in {**self.c, **c}}, self.E + sum(x.hi - x.lo << 40 for x in p.values()), self.R)

    def later(self, z):
        lost = self.E is None or any(atom[0] in ("w", "k") for atom in self.c)
        return UNKNOWN if lost else Form({(a[0], a[1] + z): c for a, c in self.c.items()}, self.E, self.R)

    def known(self, case):
        """Atoms that a case knows become the constant; nothing is known of any position."""
        c, E = defaultdict(int), self.E
        if E is None or case.t_min == 0 < case.t_max: return self
        for atom, x in self.c.items():
            lo, hi = case.range(atom)
            c[atom if lo < hi else NUMBER] += x if lo < hi else x * lo >> P
            E += lo == hi and x * lo & LOW > 0
        return Form({a: x for a, x in c.items() if x}, E, self.R)

UNKNOWN = Form({}, None)

def single(w): return abs(w) & (abs(w) - 1) == 0  # a power of 2: products with it round nothing

def rounded(n):
    """The multiple of 2^-16 next to a number, where it is very near."""
    near = (n + (1 << (P - 17))) >> (P - 16) << (P - 16)
    return near if abs(n - near) < UNIT >> 30 else n

class Arithmetic:
    """Sums as a model computes them in a precision, or exactly (bits = 0)."""
    def __init__(self, precision=None):
        self.bits, least, most = FORMAT.get(precision or "", (0, 0, 0))
        self.u, self.known = Fraction(self.bits > 0, 2**self.bits), {}
        self.least, self.most = up(Fraction(2) ** least) if self.bits else 0, UNIT << most >> 2 if self.bits else 1 << 8 * P

    def gamma(self, n):
        if n * self.u >= Fraction(1, 2): raise Cannot("sums with too many terms for their precision")
        if n not in self.known: self.known[n] = up((1 + self.u) ** n - 1)
        return self.known[n]

    def fits(self, size):
        if size >= self.most: raise Cannot("numbers that may overflow")

    def combine(self, row, X, case, bias=0):
        """bias + sum of w X_j over the pairs (j, w) of a row."""
        terms = [(w, X[j]) for j, w in row if not X[j].nothing]
        if any(x.E is None for _, x in terms): return UNKNOWN
        c = defaultdict(int, {NUMBER: bias << P} if bias else {})
        for w, x in terms:
            for atom, value in x.c.items():
                c[atom] += w * value
        E, R = (sum(times(abs(w), getattr(x, kind)) for w, x in terms) for kind in "ER")
        E += sum(value & LOW > 0 for value in c.values()) << 40  # atoms are below 2^40, see Case.range
        result = Form({a: x >> P for a, x in c.items() if x >> P}, E, R)
        if not self.bits or not terms: return result
        if all(not x.R and not x.E and len(x.c) == (NUMBER in x.c) for _, x in terms):  # sums of few digits are exact
            parts = [n for n in (bias << P, *(w * x.c.get(NUMBER, 0) for w, x in terms)) if n]
            low, total = min((n & -n for n in parts), default=UNIT * UNIT), sum(map(abs, parts))
            self.fits(total >> P)
            if total <= low << self.bits and low >= self.least << P: return result
        count, rounds = len(terms) + bool(bias) - 1, not all(single(w) for w, _ in terms)
        total = sum(times(abs(w), x.size(case)) for w, x in terms) + abs(bias)
        self.fits(total)
        lost = times(up(self.u), result.size(case)) if count == 1 and not rounds else times(self.gamma(count + rounds), total)
        # Near a grid: let all terms be multiples of `low` up to disturbances. Where these are below u low / 2, every partial sum
        # rounds to a multiple of `low` or, at 0, stays a disturbance; else an operation at most doubles them.
        numbers = [rounded(x.c.get(NUMBER, 0)) for _, x in terms]
        parts = [w * n for (w, _), n in zip(terms, numbers, strict=True)] + [bias << P]
        low = min((x & -x for x in parts if x), default=0)
        if 4 * total << P <= low << self.bits and low >= self.least << P:
            rest = sum(times(abs(w), Form({**x.c, NUMBER: x.c.get(NUMBER, 0) - n}, x.E, x.R).size(case)) for (w, x), n in zip(terms, numbers, strict=True))
            if not rest: return result
            gone = 20 * rest << (P + self.bits) <= 9 * low
            lost = min(lost, rest + (rest >> 3) + 1 if gone else (2 ** (count + 1) - 1) * rest if count < 40 else lost)
        result.R += lost + self.least * (2 * len(terms) + 2 + (sum(abs(w) for w, _ in terms) >> P))
        return self.snapped(result, case)

    def snapped(self, x, case):
        """A computed number that is within 0.45 u |n| of a number n of few digits is n: its neighbours are u |n| away."""
        if (n := rounded(x.c.get(NUMBER, 0))) and Form({**x.c, NUMBER: x.c[NUMBER] - n}, x.E, x.R).size(case) * 20 << self.bits <= 9 * abs(n):
            return Form({NUMBER: n}) if abs(n) <= (n & -n) << self.bits else x
        return x

    def add(self, x, y, case):
        if x.nothing or y.nothing: return self.snapped(y if x.nothing else x, case) if self.bits and x.E is not None and y.E is not None else y if x.nothing else x
        return self.combine([(0, UNIT), (1, UNIT)], [x, y], case)

    def relu(self, x, case):
        """relu(x) lies between k x and k x + max(-k lo, (1 - k) hi), for any 0 <= k <= 1."""
        if x.E is None: return UNKNOWN
        lo, hi = x.span(case)
        if lo >= 0 or hi <= 0: return x if lo >= 0 else Form()
        if set(x.c) <= {NUMBER, *(a for a in x.c if a[0] == "e")} and hi - lo < UNIT >> 10:  # a number, hardly disturbed, stays one
            return Form({NUMBER: max(x.c.get(NUMBER, 0), 0)}, hi - lo)
        k = (hi << P) // (hi - lo)
        half = (max(times(k, -lo), times(UNIT - k, hi)) >> 1) + 1
        c = {NUMBER: 0, **{atom: value * k >> P for atom, value in x.c.items()}}
        return Form({**c, NUMBER: c[NUMBER] + half}, times(k, x.E + x.R) + half + (len(c) << 40))

    def neurons(self, layer, X, case):
        """X + A relu(B X + c). Errors of coordinates are unknowns while neurons read them, for staircases cancel them."""
        lifted = list(X)
        for j in {j for row in layer.B for j, _ in row}:
            if X[j].E is not None and X[j].E + X[j].R:
                case.ranges["e", j] = -X[j].E - X[j].R, X[j].E + X[j].R
                lifted[j] = Form({**X[j].c, ("e", j): UNIT})
        h = [self.relu(self.combine(row, lifted, case, b), case) for row, b in zip(layer.B, layer.c, strict=True)]
        after = [self.add(x, self.combine(row, h, case), case) if row else y for x, y, row in zip(lifted, X, layer.A, strict=True)]
        noise = [sum(times(abs(c), case.ranges[a][1]) for a, c in x.c.items() if a[0] == "e") for x in after]
        return [x if x.E is None else Form({a: c for a, c in x.c.items() if a[0] != "e"}, x.E + e, x.R) for x, e in zip(after, noise, strict=True)]

# -- what heads lose by rounding, per unit of the values ------------------------------------------------------------------

def joined(u, terms):
    """What small terms cost when they meet large ones, per unit of their sum."""
    return min(up(1 + 2 * terms * u / (1 - terms * u)), SMALL << P) if 2 * terms * u < 1 else SMALL << P

def running(u, cuts, terms):
    """(k, weights beyond the k largest, all weights) -> what a sum of so many terms loses, in any order."""
    few = [times(up((1 + u) ** (terms - 1) - 1), mass) for _, _, mass in cuts[:1] if 2 * terms * u < 1]
    J = joined(u, terms)
    return min(few + [((I.of((k - 1) * u) * I(mass) + I(times(J, min(rest, mass)))) / (ONE - I.of((k - 1) * u))).hi for k, rest, mass in cuts if 2 * (k - 1) * u < 1])

def share(u, weights, adding, mass=UNIT):
    """Weights that are off by `weights` in l1, their products with values, and the sum over the past."""
    return weights + times(up(u), weights + mass) + times(adding, up(1 + u))

def term_share(t, u):
    """Path certified: lin heads are plain up to 127 tokens, then a recurrence; log heads up to 15, then blocks.

    The exponential is exactly 1 at lag 1, elsewhere off by 1 + LIBRARY u and a factor e^{a (z-1)} or z^a; the normaliser by `off`."""
    c, p, lin, theta = t[0], t[1] or t[2], not t[1], LIBRARY * u
    a = p * ((1 + u) ** 3 - 1) * Fraction(129, 128) if lin else p * ((1 + theta) * (1 + u) - 1 + u / 7)
    slower = p - Fraction(math.ceil(a * 2**90), 2**90)
    if slower <= (0 if lin else 1): raise Cannot(f"a head of slope {float(p):.3g}, within the roundings of where its sum diverges")
    slow, q, one = (c, Fraction(0), slower) if lin else (c, slower, Fraction(0)), exp(I.of(-p)), False
    if lin:
        one = p >= 1 and (q * (1 + theta)).hi <= up(u * Fraction(49, 100))  # 1 - e^-p is then exactly 1
        wrong = I.of(theta) if p < 1 else q / c if one else q * theta / c + u
    else:  # exp(-p log x) for x = 16, ..., 1 after a tail; every addition rounds what is there so far
        wrong = sum((power(x, slower) * (1 + theta) - power(x, p) for x in range(2, 17)), zeta(slower, 17) * (1 + theta) - zeta(p, 17) + 9 * u * zeta(p, 17))
        wrong = (wrong + sum((zeta(p, x) for x in range(1, 17)), ZERO) * u) * c
        wrong = I(min(wrong.hi, up(ZETA * u)))
    off = wrong / (ONE - wrong) if one else (1 + u) ** (2 if lin else 1) / (ONE - wrong) - ONE
    later = beyond(slow, 0) - c
    weights = later * (1 + theta) - (beyond(t, 0) - c)
    weights = weights + off * (ONE + weights)
    grown = (ONE + off) * (1 + theta)
    mass = ((ONE + off) * c + grown * later).hi
    terms, ends = 126 if lin else 14, {2**k for k in range(31)} | ({math.ceil(min(-math.log(u) / p, LENGTH))} if lin else set())
    rest = lambda k, last=None: (grown * (beyond(slow, k) - (beyond(slow, last) if last else ZERO))).hi
    cuts = lambda last: [(k, rest(k, last), mass) for k in sorted(ends) if k < last]
    products = times(up(u), (grown * later).hi if one else mass)
    plain = weights.hi + products + times(running(u, cuts(terms), terms), up(1 + u))
    if lin: return max(plain, recurrence(p, u, q, wrong, one))
    near = rest(1)
    most = LENGTH // 128 + 4  # blocks of 128 positions, added one after the other as pairs of numbers
    left = lambda b: 4 * min(rest((b - 1) * (64 if b > 4 else 16)), mass) if b < most else 0
    blocks = [2 * min(near, mass), *(times(up(u * Fraction(11, 10) + Fraction(9, 2) * b * u * u), mass) + left(b) for b in (*(2**k for k in range(1, 25)), most))]
    pairs = min(times(up((1 + u) ** 4 - 1), mass), times(joined(u, 128), min(near, mass)))
    adding = running(u, [(k, rest(k), mass) for k in (1, 2, 4)], 8) + times(pairs, up(1 + u) + up(u * 100)) + min(blocks)
    return max(plain, weights.hi + products + times(adding, up(1 + u)))

def recurrence(p, u, q, wrong, one):
    """Chunks of CHUNK steps S <- S + (expm1(-p) S + v), for p < 1/2, or e^-p S + v; chunks one after the other, with their error."""
    theta, C, kept = LIBRARY * u, CHUNK, ONE - q
    over = exp(I.of(-p * C))
    busy = I(min((1 / kept - C * over / (ONE - over)).hi, (C + 1) << (P - 1)))  # the mean of |S| over the steps of the past
    small = lambda x: I(min(up(u), x.hi))
    within = busy * (kept * (theta + 2 * u) + u) + u if 2 * p < 1 else I(min((busy * u).hi, (q / kept).hi)) + q * busy * (theta + u)
    chunks = (u * (theta + 3 * u)) / (ONE - over) + (theta + 5 * u) if 2 * p * C < 1 else (over * (theta + u) + small(over)) / (ONE - over)
    bump = I.of(Fraction(37, 100)) if p < 1 else q * p
    total = within + chunks + q * (theta + u) + bump * u + small(q) + wrong + (0 if one else 3 * u)
    return (total * (1 + Fraction(1, 64) if u < Fraction(1, 2**20) else Fraction(11, 10)) / (ONE - total * 2)).hi

def table_share(w, A, u, divided):
    """Computed weights w (1 + a), |a| <= A; if `divided`, by their sum, which is near 1."""
    mass, off, cuts = sum(x.hi for x in w), sum(times(x.hi, a) for x, a in zip(w, A, strict=True)), []
    if divided and off >> (P - 1): raise Cannot("a table whose logits are not known to a factor of 2")
    room = ONE - I(off) if divided else ONE
    sizes = sorted(((x * I(a + UNIT) * (1 + u) ** 4 / room).hi for x, a in zip(w, A, strict=True)), reverse=True)
    total = rest = sum(sizes)
    for k, size in enumerate(sizes, 1):
        rest -= size
        cuts.append((k, rest, total))
    G = running(u, cuts, len(w))
    beside = cuts[0][1]
    if divided and A.count(0) == 1 and sizes[0] == (w[A.index(0)] * (1 + u) ** 4 / room).hi and times(joined(u, len(w)), beside) <= up(u * Fraction(9, 10)):
        return 3 * beside + times(beside, up(u) + times(joined(u, len(w)), up(1 + u)))  # the computed sum is exactly 1, and so is the largest weight
    if not divided: return (I(share(u, off, G, mass)) / I(mass)).hi
    weights = ((I(2 * off) + I(off + UNIT) * ((1 + u) ** 2 - 1) + I(off + UNIT) * I(G)) / (room * (ONE - I(G)))).hi
    return share(u, weights, times(G, weights + UNIT))

def t5_logits(block, t, h, u):
    E, far = block["buckets"] // 2, block["max_distance"]
    q, starts = block["buckets"] - E - 1, list(range(1, E + 1))
    for j in range(q + 1):  # the largest v with v^q <= far^j E^(q-j), in whole numbers
        v, limit = round(E * (far / E) ** (j / q)), far**j * E ** (q - j)
        while v**q > limit: v -= 1
        while (v + 1) ** q <= limit: v += 1
        starts.append(max(starts[-1], v) + 1)
    row = [Fraction(t["encoding.table"][h][bisect_right(starts, z) - 1]) for z in range(1, block["window"] + 1)]
    return [I.of(x - max(row)) for x in row], [u * (max(row) - x) for x in row]

def rope_logits(block, t, h, u):
    """Angles are off by 10 u, cosines by the library, coefficients by 3, sums by 2 f; of a lag, and of the largest."""
    turns, q, k = t["encoding.turns"][h], [I.of(x) for x in t["encoding.q"][h]], [I.of(x) for x in t["encoding.k"][h]]
    f, own = len(turns), []
    for z in range(1, block["window"] + 1):
        turned = [(cos_turns(t * z), cos_turns(t * z - 2**30)) for t in turns]
        own.append(sum(((q[j] * k[j] + q[j + f] * k[j + f]) * c + (q[j] * k[j + f] - q[j + f] * k[j]) * s for j, (c, s) in enumerate(turned)), ZERO))
    size = real(sum(((abs(q[j]) + abs(q[j + f])) * (abs(k[j]) + abs(k[j + f])) for j in range(f)), ZERO).hi)
    top = max(range(len(own)), key=lambda z: own[z].hi)
    return [x - own[top] if z != top else ZERO for z, x in enumerate(own)], [2 * size * ((1 + u) ** (12 + LIBRARY + 2 * f + 2) - 1)] * len(own)

# -- layers -----------------------------------------------------------------------------------------------------------------

def scaled(x):
    n, d = x.as_integer_ratio()
    if d > UNIT: raise Cannot("a weight below 2^-256")
    return n * (UNIT // d)

def sparse(rows): return [[(j, scaled(x)) for j, x in enumerate(row) if x] for row in rows]

class Layer:
    def __init__(self, block, t, D, alone):
        self.block, self.t, self.alone, self.H = block, t, alone, block["heads"]
        self.W_V, self.W_O = ([sparse(W) for W in t[name]] for name in ("W_V", "W_O"))
        self.B, self.A, self.c = sparse(t.get("B", [])), sparse(t.get("A", [[]] * D)), [scaled(x) for x in t.get("c", [])]
        self.kind, self.window = (block["attention"], block["encoding"], block["normalisation"]), block["window"]
        self.W_Q = [sparse(W) for W in t.get("score.W_Q", [[row] for row in t.get("score.w", [])])]
        self.gains, self.cache = [defaultdict(lambda: [0] * self.H) for _ in range(D)], {}
        for h, W in enumerate(self.W_O):
            for j, v, w in ((j, v, w) for j, row in enumerate(W) for v, w in row):
                for i, x in self.W_V[h][v]:
                    if w * x & LOW: raise Cannot("weights whose products need more than 256 bits")
                    self.gains[j][i][h] += w * x >> P
        if block["stride"] != 1 or (self.window or 0) > 4096: raise Cannot("heads with a stride, or a window beyond 4,096 lags")

    def fixed(self, ar, past, case):
        """Heads of fixed kernels: what they add at any position."""
        if self.window is None and self.kind[1] in ("lin", "log"):
            lin, p = self.kind[1] == "lin", [Fraction(x) for x in self.t["encoding.p"]]
            if min(p) <= 1 - lin: raise Bad("a head has a slope whose sum over the past diverges")
            rates = [(x * (1 - lin), x * lin) for x in p]
            terms = [((ONE - exp(I.of(-b))) if lin else ONE / zeta(a, 1), a, b) for a, b in rates]
            lost = [term_share(t, ar.u) if ar.bits else 0 for t in terms]
            return self.convolved(ar, past, case, lambda g: self.short(g, terms, rates), lost, [UNIT] * self.H, LENGTH)
        if self.window is None or self.kind[1] not in ("t5", "rope"): raise Cannot(f"encoding {self.kind[1]!r} without a window")
        tables, lost = [], []
        for h in range(self.H):
            own, wrong = (t5_logits if self.kind[1] == "t5" else rope_logits)(self.block, self.t, h, ar.u)
            e = [exp(x) for x in own]
            total = sum(e, ZERO)
            tables.append([x / total for x in e])
            if ar.bits:
                sure = all(not x.size or x.hi + up(y) < 0 for x, y in zip(own, wrong, strict=True))  # exp(0) = 1
                A = [(exp(I.of(y)) * (1 + LIBRARY * ar.u) - ONE).hi if x.size or not sure else 0 for x, y in zip(own, wrong, strict=True)]
                lost.append(table_share(tables[-1], A, ar.u, True))
        return self.convolved(ar, past, case, lambda g: table(g, tables), lost or [0] * self.H, [UNIT] * self.H, self.window)

    def short(self, g, terms, rates):
        """A short table of sum_h g_h w_h; None where there is none, or where the heads stand for themselves."""
        own = [(I(x) * c, a, b) for x, (c, a, b) in zip(g, terms, strict=True) if x]
        left, values, q, found = [abs(beyond(t, 0)).hi for t in own], [at(t, 1) for t in own], [exp(I.of(-t[2])) for t in own], {}
        enough, off = sum(left) >> 90, 0  # coefficients of later layers cancel, so that what is left out here weighs more there
        while sum(left) > enough:
            if len(found) > 600 or self.alone or self.kind[1] == "log":
                return {("w", rate): x for x, rate in zip(g, rates, strict=True) if x}, 0, lambda: l1(own, lambda z: ZERO, 1)
            found[len(found) + 1] = middle(x := sum(values, ZERO))
            off += x.hi - x.lo + 1
            values, left = [x * y for x, y in zip(values, q, strict=True)], [times(x, y.hi) for x, y in zip(left, q, strict=True)]
        rest = sum(left) + off
        return found, rest, lambda: sum(map(abs, found.values())) + rest

    def convolved(self, ar, past, case, kernel, lost, mass, lags):
        """Attn(X); `kernel` gives taps, what they leave out and a norm. Head h weighs mass[h] and loses lost[h] of values."""
        out, sizes, kernels = [], [0 if x.E is None else x.size(case) for x in past], {}
        for row in (row for W in self.W_V for row in W if ar.bits):
            if any(past[i].E is None for i, _ in row): raise Cannot("a value that depends on something that is not known")
            ar.fits(lags * sum(times(abs(x), sizes[i]) for i, x in row))
        for j, gains in enumerate(self.gains):
            c, E, R, used = defaultdict(int), 0, 0, {i: g for i, g in gains.items() if not past[i].nothing and any(g)}
            for i, g in used.items():
                if tuple(g) not in kernels: kernels[tuple(g)] = kernel(g)
                taps, rest, norm = kernels[tuple(g)]
                heads = any(isinstance(z, tuple) for z in taps)
                if past[i].E is None or any(a[0] in ("w", "k") or (heads and a[1]) for a in past[i].c):
                    E = None
                    break
                for atom, value in past[i].c.items():
                    for z, k in taps.items():
                        c[("w", atom[0], z[1]) if heads else (atom[0], atom[1] + z)] += value * k
                    E += times(times(rest, abs(value)), max(map(abs, case.range(atom))))
                most = norm() if past[i].E or past[i].R else 0
                E, R = E + times(most, past[i].E), R + times(most, past[i].R)
            if E is None:
                out.append(UNKNOWN)
                continue
            kept = {atom: x >> P for atom, x in c.items() if abs(x) >> (2 * P - 80) or atom[0] == "w"}
            E += sum((abs(x) >> P) * max(map(abs, case.range(a))) >> P for a, x in c.items() if a not in kept) + (len(c) << 40)
            out.append(Form(kept, E, R + self.rounded(ar, j, sizes, lost, mass, lags)) if used else Form())
        return out

    def rounded(self, ar, j, sizes, lost, mass, lags):
        """What row j loses: values, weights and sums over the past, then the sum over all heads."""
        count, rounds, reach, error = 0, False, 0, 0
        for h, v, w in ((h, v, w) for h, W in enumerate(self.W_O) for v, w in W[j] if ar.bits):
            row = [(i, x) for i, x in self.W_V[h][v] if sizes[i]]
            if value := sum(times(abs(x), sizes[i]) for i, x in row):
                wrong = times(ar.gamma(len(row) - 1 + (not all(single(x) for _, x in row))), value)
                own = times(mass[h], wrong + times(lost[h], value + wrong)) + lags * times(ar.least, 4 * UNIT + 3 * value)
                whole = times(mass[h], value) + own
                ar.fits(whole)
                count, rounds, error, reach = count + 1, rounds or not single(w), error + times(abs(w), own), reach + times(abs(w), whole)
        ar.fits(reach)
        return error + times(ar.gamma(count - 1 + rounds), reach) + ar.least * (3 * count + 2) if count else 0

    def attend(self, ar, X, past, case, anywhere, fixed=None):
        """What the heads add at the position of a case, whose stream is X."""
        if self.kind[::2] == ("dpf", "infinite"): return [x.known(case) for x in fixed or self.fixed(ar, past, anywhere)]
        if self.kind == ("dp", "rope", "softmax") and self.window is None:
            recalled, d = [x for h in range(self.H) for x in self.pointed(ar, h, X, past, case, anywhere)], len(self.W_V[0])
            rows = [[(h * d + v, w) for h, W in enumerate(self.W_O) for v, w in W[j]] for j in range(len(X))]
            return [ar.combine(row, recalled, case) for row in rows]
        if self.kind[1] in ("lin", "log") and self.kind[2] == "none" and self.kind[0] in ("dp", "tmx") and self.window:
            return self.gated(ar, X, past, case, anywhere)
        raise Cannot(f"attention {self.kind[0]!r} with encoding {self.kind[1]!r} under normalisation {self.kind[2]!r}")

    def pointed(self, ar, h, X, past, case, anywhere):
        """What a softmax head with rotary keys recalls."""
        if (ar, h) not in self.cache:
            self.cache[ar, h] = tuple([ar.combine(row, past, anywhere) for row in W] for W in (self.W_V[h], sparse(self.t["score.W_K"][h])))
        (values, keys), asked = self.cache[ar, h], [ar.combine(row, X, case) for row in self.W_Q[h]]
        idle, nothing = not any(self.W_O[h]), [Form()] * len(self.W_V[h])
        if idle and case is anywhere: return nothing  # every position is that of some case
        if any(x.E is None for x in (*asked, *keys, *values)):
            if idle: raise Cannot("an idle head that reads what is not known")
            return [UNKNOWN] * len(values)
        start, after = Case(case.task, {}, [], 0, 0), Case(case.task, {}, [], 1, LENGTH)
        if idle: ar.fits(4 * sum(times(x.size(case), y.size(anywhere)) for x, y in zip(asked, keys, strict=True)))
        if idle or case.t_max == 0: return nothing
        q, k, k0 = ([I(*x.span(where)) for x in part] for part, where in ((asked, case), (keys, after), (keys, start)))
        key = ar, h, max(case.t_min, 1), case.t_max, *((x.lo, x.hi) for x in q)
        if key not in self.cache: self.cache[key] = find(q, k, k0, self.t["encoding.turns"][h], *key[2:4], ar)
        z, beside = self.cache[key]
        if beside >> (P - 6): return [UNKNOWN] * len(values)
        found = []
        for x in values:
            most, (lo, hi) = x.size(anywhere), x.span(start)
            ar.fits(most * LENGTH)
            x = x.later(z).known(case) if z else UNKNOWN if case.t_min == 0 else Form({NUMBER: (lo + hi) // 2}, (hi - lo) // 2 + 1)
            # The weight of the match is exp(0) / (1 + beside), then a product; the others weigh 16 times `beside` at most.
            # Where all of that is below u / 2 the computed sum is exactly 1, and nothing is lost of the match.
            alone = SMALL * beside * 100 <= up(ar.u) * 90
            lost = (0 if alone else times(ar.gamma(3), x.size(case))) + times(20 * beside, most) + 4 * LENGTH * ar.least if ar.bits and x.E is not None else 0
            found.append(x if x.E is None else ar.snapped(Form(x.c, x.E, x.R + lost), case) if ar.bits else Form(x.c, x.E + times(2 * beside, most), x.R))
        return found

    def gated(self, ar, X, past, case, anywhere):
        """Heads without normalisation, e^{q_h + p_h phi(z)}: the query scales a table over the window."""
        asked, u, lin = [self.query(ar, h, X, past, case, anywhere) for h in range(self.H)], ar.u, self.kind[1] == "lin"
        if (key := (ar, *((q.lo, q.hi) for q in asked))) in self.cache: return [x.known(case) for x in self.cache[key]]
        tables, lost, mass, lags = [], [], [], range(1, self.window + 1)
        for q, p in zip(asked, map(Fraction, self.t["encoding.p"]), strict=True):
            if p <= 0: raise Cannot("a head without normalisation whose weights grow with the lag")
            first, step = (exp(q - p), exp(I.of(-p))) if lin else (exp(q), ONE)
            own = list(accumulate([first, *[step] * (self.window - 1)], I.__mul__)) if lin else [first * power(z, p) for z in lags]
            away = [I.of(z) * p if lin else log(I.of(z)) * p for z in lags]
            each = u if lin else (1 + LIBRARY * u) * (1 + u) - 1  # of p phi(z); then a sum with q, and the library's exp
            errors = [a * each + (a * (1 + each) + I(q.size)) * u for a in away]
            if max(e.hi for e in errors) >> (P - 1): raise Cannot("logits that are not known to a factor of 2")
            tables.append(own)
            lost.append(table_share(own, [((1 + LIBRARY * u) / (ONE - e) - ONE).hi for e in errors], u, False) if ar.bits else 0)
            mass.append(sum(x.hi for x in own))
        self.cache[key] = self.convolved(ar, past, anywhere, lambda g: table(g, tables), lost, mass, self.window)
        return [x.known(case) for x in self.cache[key]]

    def query(self, ar, h, X, past, case, anywhere):
        """What the query adds to all logits, as an interval; keys must be the same everywhere."""
        asked = [ar.combine(row, X, case) for row in self.W_Q[h]]
        keys = [ar.combine(row, past, anywhere) for row in sparse(self.t["score.W_K"][h])] if self.kind[0] == "dp" else [Form({NUMBER: UNIT})]
        if any(x.E is None or set(x.c) - {NUMBER} for x in (*asked, *keys)): raise Cannot("a query that is not known, or keys that differ")
        q, wrong = ZERO, 0
        for x, k in zip(asked, keys, strict=True):
            a, b, e = I(x.c.get(NUMBER, 0)), I(k.c.get(NUMBER, 0)), k.E + k.R
            q += a * b
            wrong += times(x.E + x.R, b.size + e) + times(a.size, e)
            wrong += 0 if len(asked) == 1 and single(b.size) else times(ar.gamma(len(asked)), times(a.size + x.E + x.R, b.size + e))
        return q + I(-wrong, wrong)

def table(g, tables):
    K = [sum((I(x) * w[z] for x, w in zip(g, tables, strict=True) if x), ZERO) for z in range(len(tables[0]))]
    rest = sum((x.hi - x.lo) // 2 + 1 for x in K)
    return {z: middle(x) for z, x in enumerate(K, 1)}, rest, lambda: sum(abs(middle(x)) for x in K) + rest

def find(q, k, k0, turns, t_min, t_max, ar):
    """(lag, weight beside it) of what a rotary query finds; lag 0 stands for position 0.

    logit(z) = sum_b A_b cos(pi 2^-b (z - z*)) up to slack. For z - z* = y = 2^b (odd) the b-th cosine is -1, and for each
    later bit of y one of its two values has a cosine <= 0: the others weigh sum_b e^{-2 A_b} prod_{k>b} (1 + e^{-A_k}).
    """
    f, u, z, A = len(turns), ar.u, 0, [ZERO] * 31
    pair = lambda x, j: abs(x[j]) + abs(x[j + f])
    where, still = {turn: j for j, turn in enumerate(turns)}, [j for j in range(f) if turns[j] == 0]
    if len(where) < f: raise Cannot("a rotary head with a frequency that occurs twice")
    size = sum((pair(q, j) * (pair(k, j) + pair(k0, j)) for j in range(f)), ZERO)
    ar.fits(4 * size.hi)
    # Angles and cosines within 24 units each, twice; then a sum, and the difference to the largest.
    slack = size * (2 * ((1 + 24 * u) ** 2 * (1 + u) ** (2 * f + 2) - 1) + 4 * u)
    C, S = [q[j] * k[j] + q[j + f] * k[j + f] for j in range(f)], [q[j] * k[j + f] - q[j + f] * k[j] for j in range(f)]
    slack += I(sum(x.hi - x.lo + 2 for x in (*C, *S)))
    C, S = ([I(middle(x)) for x in part] for part in (C, S))
    turned = lambda j, n: (C[j] * cos_turns(n) + S[j] * cos_turns(n - 2**30), S[j] * cos_turns(n) - C[j] * cos_turns(n - 2**30))
    rotating = [(b, where[1 << (31 - b)]) for b in range(31) if 1 << (31 - b) in where]
    slack += sum((2 * (abs(C[j]) + abs(S[j])) for j in set(range(f)) - {*still, *(j for _, j in rotating)}), ZERO)
    for b, j in rotating:
        z += (turned(j, z << (31 - b))[0].hi < 0) << b
    for b, j in rotating:
        along, aside = turned(j, z << (31 - b))
        A[b], slack = I(max(along.lo, 0)), slack + abs(aside) + I(2 * max(-along.lo, 0))
    others, rest = ZERO, ONE
    for a in reversed(A):
        others, rest = others + exp(-2 * a) * rest, rest * (ONE + exp(-a))
    base = sum((C[j] for j in still), ZERO)
    at0 = sum((q[j] * k0[j] + q[j + f] * k0[j + f] for j in still), ZERO)
    at0 += I(-UNIT, UNIT) * sum((pair(q, j) * pair(k0, j) for j in range(f) if j not in still), ZERO)
    highest = sum((abs(C[j]) + abs(S[j]) for j in range(f) if j not in still), base)
    same = all((x.lo, x.hi) == (y.lo, y.hi) for x, y in zip(k, k0, strict=True))
    below, found = lambda x: exp(x).hi if x.hi < 0 else UNIT, [(UNIT, 0)]
    if z >= 1 and t_min >= z + (not same): found.append((times(others.hi, exp(slack).hi) + (0 if same else below(at0 - sum(A, base) + slack)), z))
    if not same and t_max <= z: found.append((times(others.hi, exp(sum(A, base) - at0 + slack).hi), 0))
    if not same: found.append((t_max * below(highest - at0 + slack), 0))
    return min(found)[::-1]

# -- the whole model ----------------------------------------------------------------------------------------------------------

def shapes(a, channels, outputs):
    """The tensors that an architecture has, and their shapes."""
    D, found = a["dim"], {"W_E": (a["dim"], channels), "b_E": (a["dim"],), "W_U": (outputs, a["dim"]), "b_U": (outputs,)}
    for l in range(a["layers"]):
        b = {**a, **a["blocks"][l]} if a.get("blocks") else a
        H, m, k, v, dot = b["heads"], b["width"], b["key_dim"], b["value_dim"], b["attention"] == "dp"
        own = {"W_V": (H, v, D), "W_O": (H, D, v)} | ({"score.W_Q": (H, k, D), "score.W_K": (H, k, D)} if dot else {})
        own |= {"score.w": (H, D)} if b["attention"] == "tmx" else {}
        own |= {"lin": {"encoding.p": (H,)}, "log": {"encoding.p": (H,)}, "t5": {"encoding.table": (H, b["buckets"])}}.get(b["encoding"], {})
        own |= {"encoding.turns": (H, k // 2)} | ({} if dot else {"encoding.q": (H, k), "encoding.k": (H, k)}) if b["encoding"] == "rope" else {}
        found |= {f"layers.{l}.attention.heads.{name}": shape for name, shape in own.items()}
        found |= {f"layers.{l}.ffn.{name}": shape for name, shape in {"B": (m, D), "c": (m,), "A": (D, m)}.items() if m}
    return found

class Model:
    def __init__(self, a, t):
        self.W_E, self.W_U, self.layers = sparse(t["W_E"]), sparse(t["W_U"]), []
        self.b_E, self.b_U = ([scaled(x) for x in t[name]] for name in ("b_E", "b_U"))
        for l in range(a["layers"]):
            own = {re.sub(rf"^layers\.{l}\.(attention\.heads|ffn)\.", "", n): x for n, x in t.items() if n.startswith(f"layers.{l}.")}
            self.layers.append(Layer({**a, **a["blocks"][l]} if a.get("blocks") else a, own, a["dim"], a["layers"] == 1))

    def embed(self, ar, case):
        tokens = []
        for c, (_, pieces) in enumerate(case.task.channels):
            between = ar.bits and not all(holds_number(lo, hi, ar.bits) for lo, hi in pieces if not lo <= 0 <= hi)
            tokens.append(Form({(c, 0): UNIT}, 0, times(up(ar.u), up(case.task.sizes[c])) if between else 0).known(case))
        return [ar.combine(row, tokens, case, b) for row, b in zip(self.W_E, self.b_E, strict=True)]

    def past(self, ar, anywhere):
        """The stream of any position before each layer, and what fixed heads add to it; last, the stream after the last."""
        X, found = self.embed(ar, anywhere), []
        for layer in self.layers:
            added = layer.attend(ar, X, X, anywhere, anywhere) if layer.kind[2] != "none" else [UNKNOWN if g else Form() for g in layer.gains]
            found.append((X, added))
            after = [ar.add(x, y, anywhere) for x, y in zip(X, added, strict=True)]
            X = [UNKNOWN if row else x for row, x in zip(layer.A, after, strict=True)]
        return found

    def distances(self, ar, past, case, anywhere):
        """sup |f - output| over a case, for every output: (of the exact model, roundings)."""
        X = read = self.embed(ar, case)
        for layer, (before, fixed) in zip(self.layers, past, strict=True):
            added = layer.attend(ar, X, before, case, anywhere, fixed)
            read = [ar.add(x, y, case) for x, y in zip(X, added, strict=True)]
            X = ar.neurons(layer, read, case)
        for o, (row, b) in enumerate(zip(self.W_U, self.b_U, strict=True)):
            Y, f = ar.combine(row, X, case, b), ev(case.task.readouts[o], case.environment())
            if Y.E is None: raise Cannot(f"output {o}, which depends on something that is not known")
            ways = [(Form(Y.c, Y.E).minus(f).size(case), Y.R)] if max(map(len, f), default=0) <= 1 else []
            try:
                ways += [ridge(self, ar, o, f, read, case)] if case.task.curved else []
            except Cannot:
                if not ways: raise
            yield min(ways, key=sum)

def holds_number(lo, hi, bits):
    """Some number of the precision lies between two of one sign."""
    near, far = sorted((abs(lo), abs(hi)))
    step = Fraction(2) ** (math.frexp(near)[1] - bits)
    return math.ceil(near / step) * step <= far

# -- readouts that are polynomials, by neurons along few directions ---------------------------------------------------------

def ridge(model, ar, o, f, X, case):
    """(sup |f - N|, roundings) of output o, X being the stream that the last neurons read.

    Coordinates hold variables up to `off`. f = sum over directions d of P_d(<d, x>) + affine, so that f - N is a sum of
    functions of one variable each; their extremes add up. |f(x) - f(v)| <= sum_j sup |df/dx_j| off_j.
    """
    layer, held, Z, error = model.layers[-1], {}, [], Fraction(0)
    variables = {m[0]: {m: ONE} for p in case.environment().values() for m in p if m}
    for j, x in enumerate(X):
        lo, hi = (0, 0) if x.E is None else Form(x.c, x.E).span(case)
        near = {v: Form(x.c, x.E).minus(p).size(case) for v, p in variables.items()} if lo < hi and x.E is not None else {}
        best = min(near, key=near.__getitem__, default=None)
        if best is None or 4 * near[best] > hi - lo:  # nothing is held here
            Z.append(x if x.E is None or lo == hi else Form({NUMBER: (lo + hi) // 2}, (hi - lo) // 2 + 1, x.R))
            continue
        first, off = held.setdefault(best, (j, near[best]))  # a second coordinate that holds it is off by both errors
        case.ranges["X", j] = lo, hi
        Z.append(Form({("X", first): UNIT}, 0 if first == j else off + near[best], x.R))
    arguments = [ar.combine(row, Z, case, b) for row, b in zip(layer.B, layer.c, strict=True)]
    for k, x in enumerate(arguments):
        case.ranges["h", k] = 0, 0 if x.E is None else max(x.span(case)[1], 0)
    h = [UNKNOWN if x.E is None else Form({("h", k): UNIT}, x.E, x.R) for k, x in enumerate(arguments)]
    after = [ar.add(x, ar.combine(row, h, case), case) for x, row in zip(Z, layer.A, strict=True)]
    Y = ar.combine(model.W_U[o], after, case, model.b_U[o])
    if Y.E is None or any(a not in held for m in f for a in m) or any(c.point is None for c in f.values()):
        raise Cannot(f"output {o}, whose readout is no polynomial of what the stream holds")
    f = {tuple(sorted(("X", held[a][0]) for a in m)): c.point for m, c in f.items() if c.point}
    box = {("X", j): tuple(map(real, case.ranges["X", j])) for j, _ in held.values()}
    for j, off in held.values():
        a, most = ("X", j), {("X", i): max(map(abs, box["X", i])) + real(e) for i, e in held.values()}
        error += sum(abs(c) * m.count(a) * math.prod(most[x] for x in m) / most[a] for m, c in f.items() if a in m) * real(off)
    line, ridges = defaultdict(Fraction), defaultdict(list)
    line.update({m: c for m, c in f.items() if len(m) < 2})
    for atom, g in Y.c.items():
        if atom[0] != "h":
            line[() if atom == NUMBER else (atom,)] -= real(g)
            continue
        own = {a: real(c) for a, c in arguments[atom[1]].c.items()}
        shift, lead = own.pop(NUMBER, Fraction(0)), own[min(own)] if own else 0
        if not own: line[()] -= real(g) * max(shift, 0)
        else: ridges[tuple(sorted((a, c / lead) for a, c in own.items()))].append((real(g), lead, shift))
    powers = {d: {} for d in ridges}
    for degree in range(2, max(map(len, f), default=0) + 1):
        for d, c in zip(ridges, solve(list(ridges), {m: c for m, c in f.items() if len(m) == degree}, degree), strict=True):
            powers[d][degree] = c
    total = [line.pop((), Fraction(0))] * 2
    for d, parts in ridges.items():
        ends = [sum(c * box[a][(c < 0) ^ side] for a, c in d) for side in (False, True)]
        alpha, lowest, highest = extremes(parts, powers[d], *ends)
        total = [total[0] + lowest, total[1] + highest]
        for a, c in d:
            line[a,] -= alpha * c
    for a, c in ((m[0], c) for m, c in line.items()):
        total = [total[0] + min(c * x for x in box[a]), total[1] + max(c * x for x in box[a])]
    return up(max(map(abs, total)) + error) + Y.E, Y.R

def solve(directions, wanted, degree):
    """c with sum_d c_d <d, x>^degree = the polynomial; by elimination."""
    powers, pivots, found = [], [], [Fraction(0)] * len(directions)
    for d in directions:
        p = {(): ONE}
        for _ in range(degree):
            p = multiply(p, {(a,): I.of(c) for a, c in d})
        powers.append({m: c.point for m, c in p.items()})
    if any(c is None for p in powers for c in p.values()): raise Cannot("neurons along directions that are not dyadic")
    rows = [[p.get(m, Fraction(0)) for p in (*powers, wanted)] for m in {m for p in (*powers, wanted) for m in p}]
    for k in range(len(directions)):
        n = len(pivots)
        if (i := next((i for i in range(n, len(rows)) if rows[i][k]), None)) is None: continue
        rows[n], rows[i] = rows[i], rows[n]
        rows[n] = [x / rows[n][k] for x in rows[n]]
        rows = [row if r == n else [x - row[k] * y for x, y in zip(row, rows[n], strict=True)] for r, row in enumerate(rows)]
        pivots.append(k)
    if any(row[-1] for row in rows[len(pivots):]): raise Cannot("a polynomial that the directions of the neurons do not span")
    for row, k in zip(rows, pivots, strict=False):
        found[k] = row[-1]
    return found

def extremes(parts, powers, lo, hi):
    """(alpha, least, largest) of sum_k c_k s^k - sum g relu(l s + m) + alpha s, lo <= s <= hi; alpha makes its ends equal."""
    value = lambda s: sum(c * s**k for k, c in powers.items()) - sum(g * max(l * s + m, 0) for g, l, m in parts)
    alpha = Fraction(round((value(lo) - value(hi)) / (hi - lo) * 2**60), 2**60) if hi > lo else Fraction(0)
    breaks, found = sorted({lo, hi, *(-m / l for _, l, m in parts if lo < -m / l < hi)}), [value(lo) + alpha * lo]
    for s, r in (((a + b) / 2, (b - a) / 2) for a, b in zip(breaks[:-1], breaks[1:], strict=True)):
        slope = alpha - sum(g * l for g, l, m in parts if l * s + m > 0) + sum(c * k * s ** (k - 1) for k, c in powers.items())
        bend = sum(c * math.comb(k, 2) * s ** (k - 2) for k, c in powers.items())
        rest = sum(abs(c) * math.comb(k, i) * abs(s) ** (k - i) * r**i for k, c in powers.items() for i in range(3, k + 1))
        tips = [-r, r, -slope / (2 * bend)] if bend and abs(slope) < 2 * r * abs(bend) else [-r, r]
        heights = [value(s) + alpha * s + slope * t + bend * t * t for t in tips]
        found += [min(heights) - rest, max(heights) + rest]
    return alpha, min(found), max(found)

# -- the claim ----------------------------------------------------------------------------------------------------------------

def bounds(model, task, precision):
    """(bound, exact bound), of scale 2^-P."""
    apart = [ev(f, {name: {(name,): ONE} for name in task.variables}) if polynomial(f) else None for f in task.readouts]
    task.curved = any(p is not None and max(map(len, p)) > 1 for p in apart)
    finite = {name for name, (c, i) in task.variables.items() if all(lo == hi for lo, hi in task.channels[c][1]) and not (i and task.memories[i - 1][1])}
    wanted = task.reads.union(*(names(f) & finite for f, p in zip(task.readouts, apart, strict=True) if p is None or max(map(len, p)) > 1))
    kernels = all(layer.kind[::2] == ("dpf", "infinite") for layer in model.layers)
    quiet = not any(row for layer in model.layers for row in layer.A)
    ar, exact, anywhere = Arithmetic(precision), Arithmetic(), Case(task, {}, [0], 0, LENGTH)
    past = model.past(ar, anywhere)
    if not wanted and kernels and quiet:  # one case covers all: what is blank is 0, and so is what kernels make of it
        lags = [0, *("kernel" if kernel else node.value for node, kernel, _ in task.memories)]
        one = Case(task, {}, lags, 0, LENGTH)
        found = list(model.distances(ar, past, one, anywhere))
        return max(map(sum, found)), max(x for x, _ in found)
    every = [case for case, _ in zip(cases(task, wanted), range(MAX_CASES + 1), strict=False)]
    if len(every) > MAX_CASES: raise Cannot(f"a task with more than {MAX_CASES:,} cases")
    worst = max(sum(x) for case in every for x in model.distances(ar, past, case, anywhere))
    past = model.past(exact, anywhere)
    for case in every:
        case.ranges.clear()
    return worst, max(x for case in every for x, _ in model.distances(exact, past, case, anywhere))

def polynomial(f):
    """Whether f is made of sums, products, whole powers and quotients by numbers."""
    known = ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd, ast.Load
    if not all(isinstance(n, known) for n in ast.walk(f)): return False
    sides = [(n.op, n.right) for n in ast.walk(f) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div | ast.Pow)]
    return all(isinstance(y, ast.Constant) and (isinstance(op, ast.Div) or y.value in range(17)) for op, y in sides)

def inconsistent(claim, precision):
    """What in a certificate contradicts itself."""
    number = lambda x: isinstance(x, int | float) and not isinstance(x, bool) and x >= 0
    bound, exact, tolerance, terms = (claim.get(key) for key in ("bound", "exact_bound", "tolerance", "terms"))
    if not number(tolerance) or not all(x is None or number(x) for x in (bound, exact)): return "a bound or the tolerance is no number"
    if claim.get("precision") != precision: return f"it is about {claim.get('precision')}, and the model runs in {precision}"
    if claim.get("status") != ("met" if bound is not None and bound <= tolerance else "missed"): return "its status does not follow from its bound"
    if claim.get("bound_by_precision", {}).get(precision) != bound: return "bound_by_precision says another bound"
    if bound is None or exact is None: return None
    if exact > bound: return "its exact bound is above its bound"
    sums = defaultdict(Fraction)
    for term in terms if isinstance(terms, list) else ():
        if not isinstance(term, dict) or not number(term.get("E")): return "a term is no number"
        sums[re.sub(r".*(output \d+|rounding|neglected)$", r"\1", str(term.get("name")))] += Fraction(term["E"])
    rounding, near = sums.pop("rounding", Fraction(0)), lambda x, y: abs(x - Fraction(y)) <= Fraction(y) / 10**9 + Fraction(1, 10**300)
    if not near(max(sums.values(), default=Fraction(0)), exact) or not near(rounding + Fraction(exact), bound): return "its terms do not add up to its bounds"
    return None

def check(directory):
    """The verdict on a model directory, as a record."""
    began, directory = time.monotonic(), Path(directory)
    record, claim = (parse_json(read_bytes(directory / name), name) for name in ("model.json", "certificate.json"))
    try:
        a, precision = record["architecture"], record["architecture"]["precision"]
        if a["norm"] != "none" or a["encoding"] in ("sin", "learned") or a["path"] != "certified" or precision not in FORMAT:
            raise Cannot(f"norm {a['norm']!r}, encoding {a['encoding']!r}, path {a['path']!r} and precision {precision!r} together")
        if math.prod((a["dim"], a["layers"], a["heads"])) > 2**20: raise Cannot("a model of this size")
        task = Task(record["task"])
        tensors, identity = read_tensors(read_bytes(directory / "model.safetensors"), shapes(a, len(task.channels), len(task.readouts)), precision)
        if identity is not None and identity != record.get("id"): raise Bad("model.json and model.safetensors are from different models")
        problem = inconsistent(claim, precision)
        bound, exact = bounds(Model(a, tensors), task, precision) if not problem else (0, 0)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, struct.error, RecursionError) as error:
        raise Bad(f"the files do not describe a model: {error!r}") from None
    for name, own in (("bound", bound), ("exact_bound", exact)):
        if not problem and claim[name] is not None and own > I.of(claim[name]).lo:
            problem = f"it claims {name} = {claim[name]!r}, this derivation proves {above(own)!r}"
    return {
        "confirmed": problem is None, "problem": problem, "met": problem is None and claim["status"] == "met", "precision": precision,
        "claimed": {name: claim[name] for name in ("bound", "exact_bound", "tolerance", "status")},
        "proved": {"bound": above(bound), "exact_bound": above(exact)}, "seconds": round(time.monotonic() - began, 3),
    }

def above(x): return y if (y := float(real(x))) >= real(x) else math.nextafter(y, math.inf)

def sentence(found):
    """A verdict in words."""
    if not found["confirmed"]: return f"refused: {found['problem']}"
    claimed = found["claimed"]
    missed = "" if found["met"] else f"; the tolerance {claimed['tolerance']!r} is missed"
    return f"confirmed: the error is at most {claimed['bound']!r} in {found['precision']}, {claimed['exact_bound']!r} in exact arithmetic{missed}"

def main(arguments):
    as_json, rest = "--json" in arguments, [x for x in arguments if x != "--json"]
    if len(rest) != 1:
        print("usage: python check.py DIR [--json]", file=sys.stderr)
        return 2
    try:
        found = check(rest[0])
    except (Bad, Cannot) as error:
        problem = f"the checker cannot follow {error}" if isinstance(error, Cannot) else str(error)
        print(json.dumps({"confirmed": False, "problem": problem}) if as_json else f"not checked: {problem}")
        return 2
    print(json.dumps(found, indent=2) if as_json else sentence(found))
    return 0 if found["met"] else 3

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
