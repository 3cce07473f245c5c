"""All routes, by name, in the order in which plans try them."""

from collections.abc import Callable

from memloci.circuits.circuit import Circuit
from memloci.routes import bias_table, chain, depth, match, one_layer, rotary, sums, t5
from memloci.routes.request import Request

Route = Callable[[Request], Circuit]

ROUTES: dict[str, Route] = {}
for module in (one_layer, rotary, t5, bias_table, depth, chain, sums, match):
    ROUTES |= module.ROUTES
