"""Kernels beside pointers: a layer in front whose heads are the fixed kernels that a task also asks for."""

from typing import NamedTuple

from memloci.circuits.circuit import Layer
from memloci.routes.bias_table import bias_table
from memloci.routes.kernel_heads import cost, fewest_heads, sum_heads, sum_text
from memloci.routes.request import Obstacle, Request


class Front(NamedTuple):
    layers: list[Layer]  # none, or one
    slots: dict[str, str]
    text: str  # what to add to a plan's reason


def kernel_front(request: Request) -> Front:
    """The layer that brings the kernels of a task, by lin heads, log heads or tables: the first that is good enough,
    else the best."""
    if not request.kernels:
        return Front([], {}, "")
    slots = {w.name: w.name for w in request.kernels}
    kernels = list(dict.fromkeys(w.target for w in request.kernels))
    choices = []
    for rpe in ("lin", "log"):
        try:
            best = fewest_heads(rpe, kernels, request, request.E_attn)
        except Obstacle:
            continue
        choices.append(best)
        if cost(best, request.u) <= request.E_attn:
            break
    if not choices or min(cost(best, request.u) for best in choices) > request.E_attn:
        try:
            (table,) = bias_table(request.of_kernels()).layers
            return Front([table], slots, "; kernels by bias tables in a layer in front")
        except Obstacle:
            if not choices:
                raise
    best = min(choices, key=lambda one: cost(one, request.u))
    layer = Layer("dpf", best.rpe, "infinite", sum_heads(best, request.kernels))
    return Front([layer], slots, f"; kernels by a layer in front: {sum_text(best)}")
