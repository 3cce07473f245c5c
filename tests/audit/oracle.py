"""The target of a task, evaluated a second time from the text of its file; nothing of memloci is used.

    H_t(X) = f(x_t, memory_1, ..., memory_M),   memory_i = x_{t - lag_i} or sum_z rho_i(z) x_{t - z}, blank before the start,
    or x_{s + o} for the latest, the earliest or all s < t - o with a predicate of x_s, x_t and earlier memories

Two arithmetics share one reading of the text: `outputs` takes many sequences at once in NumPy's long double (64 bits of
significand on x86), for searching, and `enclosure` takes one position of one sequence in Arb balls, for proofs. A
subexpression without variables is its exact value, rounded once to float64, as the documentation of task files says.
"""

import ast
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from flint import arb, ctx

BITS = 200
Wide = np.longdouble


class Undecided(Exception):
    """A comparison or a step that balls of BITS bits do not decide."""


# -- two arithmetics ----------------------------------------------------------------------------------------

BINARY = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.Div: lambda x, y: x / y,
    ast.Pow: lambda x, y: x**y,
}
COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


class Array:
    """Long doubles, many at once."""

    number = staticmethod(lambda text_or_float: Wide(text_or_float))

    @staticmethod
    def call(name: str, xs: Sequence[Any]) -> Any:
        if name == "where":
            return np.where(xs[0] != 0, xs[1], xs[2])
        if name in ("min", "max"):
            pick, found = {"min": np.minimum, "max": np.maximum}[name], xs[0]
            for x in xs[1:]:
                found = pick(found, x)
            return found
        return (np.rint if name == "round" else getattr(np, name))(xs[0])

    @staticmethod
    def compare(sign: str, x: Any, y: Any) -> Any:
        tests = {
            "<": np.less,
            "<=": np.less_equal,
            ">": np.greater,
            ">=": np.greater_equal,
            "==": np.equal,
            "!=": np.not_equal,
        }
        return tests[sign](x, y).astype(Wide)

    floor_divide = staticmethod(np.floor_divide)
    modulo = staticmethod(np.mod)
    power = staticmethod(np.power)


class Balls:
    """Arb, one number at a time."""

    number = staticmethod(lambda value: arb(value))

    @staticmethod
    def call(name: str, xs: Sequence[Any]) -> Any:
        if name == "where":
            return xs[1] if Balls.true(xs[0]) else xs[2]
        if name in ("min", "max"):
            found = xs[0]
            for x in xs[1:]:
                found = getattr(found, name)(x)
            return found
        if name == "sign":
            return arb(0) if xs[0].is_zero() else arb(1 if Balls.below(arb(0), xs[0]) else -1)
        if name == "floor":
            return arb(Balls.whole(xs[0].floor()))
        if name == "round":  # halves to even
            down = Balls.whole((xs[0] + arb(0.5)).floor())
            half = (xs[0] + arb(0.5) - down).is_zero()
            return arb(down - 1 if half and down % 2 else down)
        return abs(xs[0]) if name == "abs" else getattr(xs[0], name)()

    @staticmethod
    def whole(x: arb) -> int:
        found = x.unique_fmpz()
        if found is None:
            raise Undecided(str(x))
        return int(found)

    @staticmethod
    def below(x: arb, y: arb) -> bool:
        if not (x < y or x >= y):
            raise Undecided(f"{x} < {y}")
        return bool(x < y)

    @staticmethod
    def true(x: arb) -> bool:
        return Balls.compare("!=", x, arb(0)) == arb(1)

    @staticmethod
    def compare(sign: str, x: arb, y: arb) -> arb:
        if sign in ("==", "!="):
            if not (x - y).is_zero() and (x - y).contains(0):
                raise Undecided(f"{x} == {y}")
            return arb(int((x - y).is_zero() == (sign == "==")))
        if sign in (">", "<="):
            found = Balls.below(y, x)
            return arb(int(found if sign == ">" else not found))
        found = Balls.below(x, y)
        return arb(int(found if sign == "<" else not found))

    @staticmethod
    def floor_divide(x: arb, y: arb) -> arb:
        return arb(Balls.whole((x / y).floor()))

    @staticmethod
    def modulo(x: arb, y: arb) -> arb:
        return x - y * Balls.floor_divide(x, y)

    @staticmethod
    def power(x: arb, y: arb) -> arb:
        whole = y.unique_fmpz() if y.is_integer() else None
        return x ** int(whole) if whole is not None else x**y


def evaluate(node: ast.expr, values: Mapping[str, Any], own: Any) -> Any:
    """An expression at numbers of one of the arithmetics."""
    again = lambda inner: evaluate(inner, values, own)
    if own is Array and not _names(node):
        return Wide(_constant(ast.unparse(node)))
    match node:
        case ast.Constant(value=int() | float() as value):
            return own.number(float(value))
        case ast.Name(id="pi"):
            return own.number(float(np.pi))
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return -again(x)
        case ast.UnaryOp(op=ast.UAdd(), operand=x):
            return again(x)
        case ast.UnaryOp(op=ast.Not(), operand=x):
            return own.compare("==", again(x), own.number(0.0))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return own.floor_divide(again(left), again(right))
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return own.modulo(again(left), again(right))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return own.power(again(left), again(right))
        case ast.BinOp(left=left, op=op, right=right):
            return BINARY[type(op)](again(left), again(right))
        case ast.BoolOp(op=op, values=parts):
            true = [own.compare("!=", again(part), own.number(0.0)) for part in parts]
            return own.call("min" if isinstance(op, ast.And) else "max", true)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return own.compare(COMPARE[type(op)], again(left), again(right))
        case ast.Call(func=ast.Name(id=name), args=args):
            return own.call(name, [again(arg) for arg in args])
    raise NotImplementedError(ast.unparse(node))


def _names(node: ast.expr) -> set[str]:
    inner = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    called = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return inner - called - {"pi"}


@cache
def _constant(text: str) -> float:
    """The exact value of an expression of numbers, to the nearest float64."""
    with ctx.workprec(400):
        value = evaluate(ast.parse(text, mode="eval").body, {}, Balls)
        return float(value.mid())


class Folded(ast.NodeTransformer):
    """Every largest subexpression without variables becomes its number."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant) and not _names(node):
            return _numeral(_constant(ast.unparse(node)))
        if isinstance(node, ast.Call):
            return ast.Call(node.func, [_expr(self.visit(arg)) for arg in node.args], [])
        return self.generic_visit(node)


def _numeral(value: float) -> ast.expr:
    """A number as text would give it: written out, a Constant below 0 has no brackets, and -1 ** z is -(1 ** z)."""
    size = ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), size) if value < 0 else size


def _expr(node: ast.AST) -> ast.expr:
    assert isinstance(node, ast.expr)
    return node


def _parsed(text: Any) -> ast.expr:
    body = ast.parse(str(text), mode="eval").body
    return _expr(Folded().visit(body))


# -- tasks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Channel:
    name: str
    pieces: tuple[tuple[float, float], ...]  # closed intervals; a symbol is a point

    @property
    def finite(self) -> bool:
        return all(lo == hi for lo, hi in self.pieces)


@dataclass(frozen=True)
class Memory:
    lag: ast.expr | None = None
    kernel: ast.expr | None = None
    horizon: int | None = None
    match: ast.expr | None = None
    which: str = "latest"
    offset: int = 0


def _memory(one: Mapping[str, Any]) -> Memory:
    if "kernel" in one:
        return Memory(kernel=_parsed(one["kernel"]), horizon=one.get("horizon"))
    if "match" in one:
        return Memory(
            match=_parsed(one["match"]), which=one.get("which", "latest"), offset=one.get("offset", 0)
        )
    return Memory(lag=_parsed(one["lag"]))


@dataclass(frozen=True)
class Oracle:
    channels: tuple[Channel, ...]
    memories: tuple[Memory, ...]
    readouts: tuple[ast.expr, ...]

    @classmethod
    def read(cls, text: str) -> "Oracle":
        data = tomllib.loads(text)
        given = data.get("channels", [{"name": "x", "range": [-1, 1]}])
        channels = []
        for one in given:
            if "values" in one:
                pieces = sorted((float(v), float(v)) for v in one["values"])
            else:
                pieces = [
                    (float(lo), float(hi)) for lo, hi in one.get("intervals", [one.get("range", [-1, 1])])
                ]
            channels.append(Channel(one["name"], tuple(pieces)))
        listed = data.get("memories")
        if listed is None:
            key = "kernels" if data["kind"] == "essential" else "lags"
            listed = [{key[:-1]: value} for value in data[key]]
        memories = [_memory(one) for one in listed]
        readout = data["readout"]
        texts = readout if isinstance(readout, list) else [readout]
        return cls(tuple(channels), tuple(memories), tuple(map(_parsed, texts)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.channels)

    def _variables(self, i: int) -> list[str]:
        return [f"{name}{i}" for name in self.names]

    def _parents(self, lag: ast.expr) -> list[int]:
        numbers = {v: i for i in range(len(self.memories) + 1) for v in self._variables(i)}
        return sorted({numbers[name] for name in _names(lag)})

    def weights(self, i: int, n: int) -> list[arb]:
        """rho_i(1), ..., rho_i(n)."""
        memory = self.memories[i]
        assert memory.kernel is not None
        with ctx.workprec(BITS):
            found = [evaluate(memory.kernel, {"z": arb(z)}, Balls) for z in range(1, n + 1)]
        return [
            w if memory.horizon is None or z <= memory.horizon else arb(0) for z, w in enumerate(found, 1)
        ]

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """H of sequences of shape (N, n, channels), in long double; (N, n, outputs)."""
        N, n, d = x.shape
        x = x.astype(Wide)
        at = np.arange(n)[None, :]
        values: dict[str, np.ndarray] = dict(zip(self._variables(0), np.moveaxis(x, 2, 0), strict=True))
        there = {0: np.ones((N, n), dtype=bool)}  # which memories are not blank
        for i, memory in enumerate(self.memories, start=1):
            if memory.match is not None:
                token, there[i] = self._matched(i, memory, values, there, x)
            elif memory.lag is None:
                token, there[i] = self._convolved(i - 1, x), np.ones((N, n), dtype=bool)
            else:
                known = np.logical_and.reduce([there[j] for j in self._parents(memory.lag)] or [there[0]])
                lag = np.broadcast_to(np.asarray(evaluate(memory.lag, values, Array), dtype=Wide), (N, n))
                lag = np.where(known, np.rint(lag), 0).astype(int)
                there[i] = known & (at >= lag)
                source = np.where(there[i], at - lag, 0)
                token = np.take_along_axis(x, source[:, :, None], axis=1) * there[i][:, :, None]
            values |= dict(zip(self._variables(i), np.moveaxis(token, 2, 0), strict=True))
        found = [np.broadcast_to(evaluate(f, values, Array), (N, n)) for f in self.readouts]
        return np.stack(found, axis=2)

    def _matched(
        self,
        i: int,
        memory: Memory,
        values: dict[str, np.ndarray],
        there: dict[int, np.ndarray],
        x: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(what match i recalls, whether it has found anything), candidate by candidate from the earliest to the latest."""
        (N, n, d), o = x.shape, memory.offset
        assert memory.match is not None
        parents = [j for j in self._parents(memory.match) if j != i]
        known = np.logical_and.reduce([there[j] for j in parents] or [there[0]])
        total, count = np.zeros((N, n, d), dtype=Wide), np.zeros((N, n), dtype=int)
        for s in range(n - 1 - o):
            candidate = {name: x[:, s, c, None] for c, name in enumerate(self._variables(i))}
            holds = np.broadcast_to(evaluate(memory.match, values | candidate, Array), (N, n)) != 0
            holds = holds & known & (np.arange(n)[None, :] > s + o)
            if memory.which == "latest":
                total, count = (
                    np.where(holds[:, :, None], x[:, s + o, None], total),
                    np.where(holds, 1, count),
                )
            elif memory.which == "earliest":
                first = holds & (count == 0)
                total, count = (
                    np.where(first[:, :, None], x[:, s + o, None], total),
                    np.where(first, 1, count),
                )
            else:
                total, count = total + holds[:, :, None] * x[:, s + o, None], count + holds
        return total / np.maximum(count, 1)[:, :, None], count > 0

    def _matched_at(
        self, i: int, memory: Memory, values: dict[str, arb], x: np.ndarray, t: int
    ) -> list[list[arb]]:
        """The tokens that match i finds at t."""
        assert memory.match is not None
        found = []
        for s in range(t - memory.offset):
            candidate = dict(zip(self._variables(i), (arb(float(v)) for v in x[s]), strict=True))
            if Balls.true(evaluate(memory.match, values | candidate, Balls)):
                found.append([arb(float(v)) for v in x[s + memory.offset]])
        return {"latest": found[-1:], "earliest": found[:1], "mean": found}[memory.which]

    def _convolved(self, i: int, x: np.ndarray) -> np.ndarray:
        n = x.shape[1]
        rho = _long_doubles(self, i, n)
        found = np.zeros_like(x)
        for z in range(1, n):
            found[:, z:] += rho[z - 1] * x[:, :-z]
        return found

    def enclosure(self, x: np.ndarray, t: int, o: int) -> arb:
        """A ball that holds H_t of one sequence (n, channels) of float64 numbers, output o."""
        with ctx.workprec(BITS):
            values = dict(zip(self._variables(0), (arb(float(v)) for v in x[t]), strict=True))
            there = {0: True}
            for i, memory in enumerate(self.memories, start=1):
                token = [arb(0)] * len(self.channels)
                if memory.match is not None:
                    parents = [j for j in self._parents(memory.match) if j != i]
                    found = (
                        self._matched_at(i, memory, values, x, t) if all(there[j] for j in parents) else []
                    )
                    there[i] = bool(found)
                    token = [sum(column, arb(0)) / len(found) for column in zip(*found, strict=True)] or token
                elif memory.lag is None:
                    there[i] = True
                    rho = self.weights(i - 1, t)
                    for z in range(1, t + 1):
                        token = [v + rho[z - 1] * arb(float(w)) for v, w in zip(token, x[t - z], strict=True)]
                else:
                    there[i] = all(there[j] for j in self._parents(memory.lag))
                    if there[i]:
                        lag = Balls.whole(evaluate(memory.lag, values, Balls))
                        there[i] = lag <= t
                        if there[i]:
                            token = [arb(float(w)) for w in x[t - lag]]
                values |= dict(zip(self._variables(i), token, strict=True))
            return evaluate(self.readouts[o], values, Balls)


@cache
def _rho(text: str, horizon: int | None, n: int) -> np.ndarray:
    memory = Memory(kernel=ast.parse(text, mode="eval").body, horizon=horizon)
    exact = Oracle((), (memory,), ()).weights(0, n)
    return np.array([Wide(w.mid().str(25, radius=False)) for w in exact])


def _long_doubles(oracle: Oracle, i: int, n: int) -> np.ndarray:
    memory = oracle.memories[i]
    assert memory.kernel is not None
    return _rho(ast.unparse(memory.kernel), memory.horizon, n)


def exceeds(y: float, H: arb, bound: float) -> bool:
    """Whether |y - H| > bound for every number in the ball H."""
    with ctx.workprec(BITS):
        return not np.isfinite(y) or bool(abs(arb(float(y)) - H) > arb(float(bound)))


__all__ = ["Channel", "Oracle", "Undecided", "exceeds"]
