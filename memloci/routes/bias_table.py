"""Bias tables: any kernel over up to 2,048 lags, a t5 head for each sign of it.

    rho = ||rho+||_1 w+ - ||rho-||_1 w-,   the biases of a head being the logarithms of its kernel

Heads do not cancel, so the mass is ||rho||_1 and there is no wall: what is left is the tail beyond the window, and
rounding, about 2 u per lag of it. Parameters grow with the window. The gallery's oscillating kernels, asked for
1e-3 (certified errors; no number of bits saves those lin heads):

| task | route | precision | heads | parameters | mass | error |
|---|---|---|---|---|---|---|
| ringing | one-layer-lin | float32 | 8 | 47 | 2.4e4 | 3.5 |
| | one-layer-lin | float64 | 24 | 127 | 2.5e12 | 0.92 |
| | bias-table | float32 | 2 | 371 | 5.6 | 7.7e-4 |
| morlet | one-layer-lin | float32 | 8 | 47 | 2.7e3 | 6.4 |
| | bias-table | float32 | 2 | 139 | 6.1 | 4.5e-4 |
"""

import numpy as np
from flint import ctx

from memloci.approx.kernels.targets import AbstractTarget, SingleLag
from memloci.circuits.circuit import Circuit, Head, Layer, TableKernel
from memloci.core.numbers import number, upper_number
from memloci.routes.request import ROUNDING, Obstacle, Request
from memloci.routes.t5 import MOST_T5_LAGS


def bias_table(request: Request) -> Circuit:
    request.fixed_kernels()
    if not request.kernels:
        raise Obstacle("single lags need no table: route t5 does that with one head each")
    request.report("the kernels, lag by lag")
    kernels = {target: _values(target) for target in request.targets}
    window = max(_window(*pair, request) for pair in kernels.items())
    reads = tuple(dict.fromkeys(w.channel for w in request.kernel_variables))
    heads = []
    for target, rho in kernels.items():
        variables = [w for w in request.kernel_variables if w.target == target]
        for sign, word in ((1.0, "positive"), (-1.0, "negative")):
            part = np.maximum(sign * rho[:window], 0.0)
            if part.any():
                gain = sign * float(part.sum())
                logits = _logarithms(part, 2 * request.format.sharp)
                writes = {w.name: {w.channel: gain} for w in variables}
                heads.append(
                    Head(
                        f"the {word} part of {target.label}", reads, writes, TableKernel(logits, min(logits))
                    )
                )
    if not heads:
        raise Obstacle("its kernels are 0 at every lag")
    why = f"{len(heads)} table{'s' if len(heads) > 1 else ''} of {window:,} biases, one per lag"
    layer = Layer("dpf", "t5", "infinite", tuple(heads), window=window)
    return request.circuit("bias-table", why, [layer], {w.name: w.name for w in request.kernel_variables})


def _values(target: AbstractTarget) -> np.ndarray:
    """rho(1), rho(2), ... in float64; in balls of 128 bits first, for kernels that are differences."""
    with ctx.workprec(128):
        return np.array([float(target.value(z).mid()) for z in range(1, MOST_T5_LAGS + 1)])


def _window(target: AbstractTarget, rho: np.ndarray, request: Request) -> int:
    """The fewest lags whose tail, with what rounding will cost, is small enough; else the best number."""
    size = np.abs(rho)
    beyond = float(target.tail_bound(MOST_T5_LAGS).upper())
    if not beyond <= request.E_attn:
        raise Obstacle(
            f"beyond lag {MOST_T5_LAGS:,} the norm of {target.label} is up to {upper_number(beyond)}, more than the "
            f"{number(request.E_attn)} that it may be wrong by; at most {MOST_T5_LAGS:,} lags have a bucket of their own"
        )
    if isinstance(target, SingleLag):
        return max(2, target.lag)
    n = np.arange(2, MOST_T5_LAGS + 1)
    tail = beyond + np.append(np.cumsum(size[::-1])[::-1], 0.0)[n]
    paid = tail + (2.0 * n + ROUNDING) * request.u * (size.sum() + beyond)
    enough = np.nonzero(paid <= request.E_attn)[0]
    return int(n[enough[0] if len(enough) else paid.argmin()])


def _logarithms(part: np.ndarray, c: float) -> tuple[float, ...]:
    """log rho, 0 at its largest; -c where rho is 0, so that those lags weigh e^-c, below the roundoff."""
    with np.errstate(divide="ignore"):
        return tuple(map(float, np.maximum(np.log(part / part.max()), -c)))


ROUTES = {"bias-table": bias_table}
