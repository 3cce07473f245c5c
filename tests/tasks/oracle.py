"""The target, one number at a time: loops over positions, memories and lags, straight from the definition.

It reads a task's fields as the user wrote them and nothing else of the package. Expressions are read by
Python's own parser and computed in Python floats; a branch that is not taken is not computed.
"""

import ast
import inspect
import math
import operator
import re
from typing import Any

import numpy as np

FUNCTIONS = {name: getattr(math, name) for name in ("exp", "log", "sin", "cos", "tanh", "sqrt", "floor")}
FUNCTIONS |= {"abs": abs, "min": min, "max": max, "round": round, "sign": lambda x: (x > 0) - (x < 0)}
ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def value(source: Any, values: dict[str, float]) -> float:
    """A formula, text or callable, at one point."""
    if callable(source):
        answer: Any = source(**{name: values[name] for name in inspect.signature(source).parameters})
        return float(answer)
    return float(_read(ast.parse(source, mode="eval").body, values))


def _read(node, values) -> Any:
    read = lambda part: _read(part, values)
    match node:
        case ast.Constant():
            return node.value
        case ast.Name(id="pi"):
            return math.pi
        case ast.Name():
            return values[node.id]
        case ast.UnaryOp(op=ast.USub()):
            return -read(node.operand)
        case ast.UnaryOp(op=ast.Not()):
            return float(not read(node.operand))
        case ast.BinOp():
            return ARITHMETIC[type(node.op)](read(node.left), read(node.right))
        case ast.BoolOp(op=ast.And()):
            return float(all(read(part) for part in node.values))
        case ast.BoolOp():
            return float(any(read(part) for part in node.values))
        case ast.Compare():
            terms = [read(part) for part in (node.left, *node.comparators)]
            steps = zip(node.ops, terms[:-1], terms[1:], strict=True)
            return float(all(ARITHMETIC[type(op)](a, b) for op, a, b in steps))
        case ast.Call(func=ast.Name(id="where")):
            return read(node.args[1] if read(node.args[0]) else node.args[2])
        case ast.Call(func=ast.Name(id=name)):
            return float(FUNCTIONS[name](*map(read, node.args)))
    raise NotImplementedError(ast.dump(node))


def target(task, X):
    """H_t(X) in float64 for one sequence (length, channels)."""
    X = np.asarray(X, dtype=float)
    Y = np.zeros((len(X), len(task.readout)))
    for t in range(len(X)):
        values = _named(task, [X[t], *recall(task, X, t)])
        for k, f in enumerate(task.readout):
            Y[t, k] = value(f, values)
    return Y


def _named(task, tokens):
    return {
        f"{channel.name}{i}": float(token[c])
        for i, token in enumerate(tokens)
        for c, channel in enumerate(task.channels)
    }


def _token(X, s):
    return X[s] if s >= 0 else np.zeros(X.shape[1])  # before the start: blank


def recall(task, X, t):
    """The memories at one position, one after another: sums for kernels, tokens for lags."""
    tokens, blank = [X[t]], [False]
    for memory in task.memories:
        if hasattr(memory, "kernel"):
            tokens.append(_sum(memory, X, t))
            blank.append(False)
            continue
        if hasattr(memory, "match"):
            found = _matches(task, memory, X, t, tokens, blank)
            pick = {"latest": found[-1:], "earliest": found[:1], "mean": found}[memory.which]
            tokens.append(np.mean(pick, axis=0) if found else np.zeros(X.shape[1]))
            blank.append(not found)
            continue
        source = memory.lag
        reads = _memories_read(source)
        symbols = [_symbols(task, token) for token in tokens]
        s = -1
        if not any(blank[j] for j in reads):
            lag = source if isinstance(source, int) else value(source, _named(task, symbols))
            assert abs(lag - round(lag)) < 1e-9 and round(lag) >= 0
            s = t - round(lag)
        tokens.append(_token(X, s))
        blank.append(s < 0)
    return tokens[1:]


def _matches(task, memory, X, t, tokens, blank):
    """The tokens `offset` steps after those that the match holds for, all of them strictly past, in the order of time."""
    own = len(tokens)
    if any(blank[j] for j in _memories_read(memory.match) - {own}):
        return []
    symbols, found = [_symbols(task, token) for token in tokens], []
    for s in range(t - memory.offset):
        if value(memory.match, _named(task, [*symbols, _symbols(task, X[s])])):
            found.append(X[s + memory.offset])
    return found


def _memories_read(source):
    if isinstance(source, int):
        return set()
    names = inspect.signature(source).parameters if callable(source) else re.findall(r"[a-z_]\w*", source)
    return {int(name.lstrip("abcdefghijklmnopqrstuvwxyz_")) for name in names if name[-1].isdigit()}


def _symbols(task, token):
    """A token as the user's numbers: the float32 nearest to 0.1 stands for 0.1."""
    return [
        min(channel.values, key=lambda v: abs(v - x)) if channel.values else x
        for x, channel in zip(token, task.channels, strict=True)
    ]


def _sum(memory, X, t):
    last = t if memory.horizon is None else min(t, memory.horizon)
    terms = [value(memory.kernel, {"z": float(z)}) * X[t - z] for z in range(1, last + 1)]
    return [math.fsum(term[c] for term in terms) for c in range(X.shape[1])]
