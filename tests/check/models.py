"""Small compiled models of every route, with their certificates on disk: what the checker is asked about."""

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memloci.approx.kernels.kernel_sums import KernelSum
from memloci.approx.kernels.rpe import as_rpe
from memloci.certify.certify import certify
from memloci.circuits.circuit import Circuit
from memloci.circuits.compile import compile_circuit
from memloci.model.store import save
from memloci.model.transformer import Transformer
from memloci.routes.depth import depth
from memloci.routes.one_layer import kernel_circuit
from memloci.routes.registry import ROUTES
from memloci.routes.request import Request
from memloci.routes.sums import sums
from memloci.synthesize import request_of
from memloci.tasks.short import Adaptive, Essential, Fixed
from memloci.tasks.task import Task

SIGN: dict[str, Any] = {"name": "b", "values": [-1, 1]}
SYMBOL: dict[str, Any] = {"name": "a", "values": [1, 2, 3]}
VALUE: dict[str, Any] = {"name": "v", "range": [-1, 1]}


class Example(NamedTuple):
    task: Task
    make: Callable[[Request], Circuit]
    precision: str = "float32"


def _heads(rpe: str, *exponents: float) -> Callable[[Request], Circuit]:
    """Heads with these exponents and the coefficients of least squares, however good they are: no search."""

    def make(request: Request) -> Circuit:
        z = np.arange(1.0, 257.0)
        w = as_rpe(rpe).kernel(np.array(exponents), z)  # type: ignore[arg-type]
        rows = [
            np.linalg.lstsq(w.T, [float(target.value(int(k)).mid()) for k in z], rcond=None)[0]
            for target in request.targets
        ]
        unknown = tuple((0.0, math.inf) for _ in rows)
        coefficients = tuple(tuple(map(float, row)) for row in rows)
        best = KernelSum(
            rpe,  # type: ignore[arg-type]
            tuple(request.targets),
            exponents,
            coefficients,
            request.precision,
            unknown,
            math.inf,
        )
        return kernel_circuit(request, best)

    return make


def _pointer(*lags: str | int, readout: str = "v1") -> Task:
    return Adaptive(channels=[SYMBOL, VALUE], lags=list(lags), readout=readout)


def _two() -> Task:
    return Adaptive(channels=[{"name": "a", "values": [1, 2]}, VALUE], lags=["a0"], readout="v1")


EXAMPLES: dict[str, Example] = {
    "lin": Example(Fixed(lags=[2], readout="x1"), _heads("lin", 0.5, 1.0, 2.0, 4.0)),
    "lin, several outputs": Example(
        Fixed(lags=[1, 3], readout=["0.5 * x1 - 0.25 * x2 + 0.1", "x0 + x2 / 3"]),
        _heads("lin", 0.4, 0.8, 1.6, 3.2),
        "float64",
    ),
    "log": Example(Fixed(lags=[2], readout="x1"), _heads("log", 2.0, 4.0, 8.0), "float64"),
    "lin for exp": Example(Essential(kernels=["exp(-0.3 * z)"], readout="x1"), _heads("lin", 0.3)),
    "log for a power": Example(Essential(kernels=["z ** -2"], readout="2 * x1"), _heads("log", 2.0)),
    "lin for a power": Example(
        Essential(kernels=["z ** -3 + 0.5 * exp(-z)"], readout="x1"), _heads("lin", 0.05, 0.2, 0.8, 3.0)
    ),
    "rotary": Example(Fixed(lags=[3, 10], readout="x1 - x2"), ROUTES["rotary"]),
    "rotary, float16": Example(Fixed(lags=[3], readout="x1"), ROUTES["rotary"], "float16"),
    "t5": Example(Fixed(lags=[1, 8], readout="x1 + 0.5 * x2"), ROUTES["t5"]),
    "bias table": Example(Essential(kernels=["exp(-z / 3) * cos(z)"], readout="x1"), ROUTES["bias-table"]),
    "depth 1": Example(Fixed(lags=[2, 5], readout="x1 - x2"), ROUTES["depth-1"]),
    "depth 2": Example(Fixed(lags=[4], readout="x1"), lambda request: depth(request, 2, heads=4)),
    "parity": Example(Fixed(channels=[SIGN], lags=[2, 5], readout="b1 * b2"), ROUTES["rotary"]),
    "table": Example(
        Fixed(
            channels=[{"name": "w", "values": [0, 1, 2]}], lags=[1, 2], readout="((5 * w1 + 3 * w2) % 7) / 7"
        ),
        ROUTES["t5"],
    ),
    "square": Example(Fixed(lags=[3], readout="x1 ** 2"), ROUTES["t5"]),
    "product": Example(Fixed(lags=[3, 4], readout="x1 * x2"), ROUTES["rotary"]),
    "chain": Example(_pointer("a0"), ROUTES["chain"]),
    "nested chain": Example(_pointer("a0", "a0 + a1", readout="v2"), ROUTES["chain"]),
    "pointer": Example(_pointer("2 * a0"), ROUTES["rotary"]),
    "pointer, float64": Example(_pointer("a0 - 1", 4, readout="v1 - v2"), ROUTES["rotary"], "float64"),
    "nested pointer": Example(_pointer("a0", "a0 + a1", readout="v2"), ROUTES["rotary"]),
    "lin tmx": Example(_two(), lambda request: sums(request, "lin", "tmx", heads_each=3), "float64"),
    "lin dp": Example(_two(), lambda request: sums(request, "lin", "dp", heads_each=3), "float64"),
    "log tmx": Example(_two(), lambda request: sums(request, "log", "tmx", heads_each=2), "float64"),
    "log dp": Example(_two(), lambda request: sums(request, "log", "dp", heads_each=2), "float64"),
}
TOLERANCE = 1e-3


@cache
def model_of(name: str) -> Transformer:
    example = EXAMPLES[name]
    return compile_circuit(example.make(request_of(example.task, TOLERANCE, example.precision)))


@cache
def certificate_of(name: str) -> str:
    return certify(model_of(name), EXAMPLES[name].task, tolerance=TOLERANCE).to_json()


def write(directory: Path, name: str, model: Transformer | None = None, **claims: Any) -> Path:
    """An example on disk, with other weights or other claims if they are given."""
    certificate = json.loads(certificate_of(name)) | claims
    text = (json.dumps(certificate) + "\n").encode()
    save(model or model_of(name), directory, task=EXAMPLES[name].task, beside={"certificate.json": text})
    return directory
